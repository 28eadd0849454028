//! The end of an item: the moment from which it is gone, and by what. Where the rule (rule.rs) answers whether an item is
//! gone now, this answers since when, also long after, and after any number of changes of the settings.
//!
//! ```text
//! default 60 s, item written at 0    the end                              by
//! nothing changes                    60 s                                 the default
//! at 50 s the default becomes 30 s   50 s: before, it was there           the change
//! at 70 s the default goes off       60 s: it had ended                   the default
//! at 40 s: expire_before(80 s)       40 s                                 the command
//! off until 60 s, then again 60 s    60 s: before, it was there           the default, and not without the change
//! ```
//!
//! An end is exact from [`Settings::known_from`] on, and never changes again once it has passed: a change at T gives what it
//! ends the end T, or leaves alone what had ended by T. So `gone(item, now)` is `end <= now`; a test compares the two over
//! random histories.
//!
//! A [`Reason`] says by which part of the rule of now an item is gone, for people; nothing is decided by it. It knows the
//! write of the change or command, and no end before it.

use crate::base::record::Header;
use crate::base::{Seq, Timestamp};
use crate::expiry::command::Command;
use crate::expiry::life::Life;
use crate::expiry::rule::{DefaultMillis, Settings, SettingsChange};

/// By what an item ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Its own ttl.
    Own,
    /// The container's default.
    Default,
    /// A change of the default, under which it had ended already.
    Change,
    /// A command.
    Command,
}

/// The end of an item, or of one that lives: when it will end if the settings stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The moment; [`Timestamp::MAX`] for never.
    pub at: Timestamp,
    /// By what.
    pub cause: Cause,
    /// The sequence number of the write without which it would not have come at that moment: the change, the command, or the
    /// item's own.
    pub by: Seq,
}

/// The first of these by which the rule holds an item to be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The clock, under the default of now: by its own ttl or by the default.
    Clock(Ending),
    /// A default that was in force before the change of this sequence number, made at this moment or before.
    Floor(Seq, Timestamp),
    /// A command.
    Command(Command),
}

impl Settings {
    /// Why an item is gone; none: it is not. `header` is that of a put.
    pub fn reason(&self, header: &Header, now: Timestamp) -> Option<Reason> {
        let by_clock = natural(header, self.default, Since::default());
        if by_clock.at <= now {
            return Some(Reason::Clock(by_clock));
        }
        if header.seq < self.floor_seq && self.floors().holds(header) {
            return Some(Reason::Floor(self.floor_seq, self.override_floor.before(1)));
        }
        let mut commands = self.commands.iter().copied();
        let command = commands.find(|command| command.holds(header));
        command.map(|command| match command.reach.is_floor() {
            true => Reason::Floor(command.seq, command.at),
            false => Reason::Command(command),
        })
    }

    /// The end of a put. None: it ended before [`Settings::known_from`].
    pub fn ending(&self, header: &Header) -> Option<Ending> {
        let (base, changes) = match &self.past {
            None => (self, &[][..]),
            Some(past) => (&past.base, &past.changes[..]),
        };
        if base.holds_past(header) {
            return None;
        }
        let (mut default, mut since) = (base.default, Since::default());
        for made in changes {
            if header.seq < made.seq {
                let ending = natural(header, default, since);
                if ending.at <= made.at {
                    return Some(ending);
                }
                if let SettingsChange::Expire(what) = made.what
                    && default.reach_of(what).holds(header)
                {
                    return Some(Ending {
                        at: made.at,
                        cause: Cause::Command,
                        by: made.seq,
                    });
                }
            }
            if let SettingsChange::Default(to) = made.what {
                default = to;
                if header.seq < made.seq {
                    (since.at, since.by) = (made.at, made.seq);
                }
            }
        }
        Some(natural(header, default, since))
    }

    /// Whether floors or commands hold a put, whatever the time.
    fn holds_past(&self, header: &Header) -> bool {
        self.last_seq() > header.seq && self.reach(header.seq).holds(header)
    }

    /// Ends before this moment are not told apart.
    pub fn known_from(&self) -> Timestamp {
        match &self.past {
            Some(past) => past.known_from,
            None => self.changed_before(),
        }
    }

    /// Whether all ends from a moment on are told apart; at the moment itself, if a sequence number is given, those by
    /// a write above it.
    pub fn tell_ends_from(&self, moment: Timestamp, above: Option<Seq>) -> bool {
        let known_from = self.known_from();
        let is_later = || above.is_some_and(|above| above >= self.last_untold());
        moment >= known_from || moment.after(1) == known_from && is_later()
    }

    /// The earliest place from which all ends are told apart, as [`Settings::tell_ends_from`] takes it: several changes may have
    /// been made in one millisecond.
    pub fn told_from(&self) -> (Timestamp, Option<Seq>) {
        match self.known_from() {
            Timestamp(0) => (Timestamp(0), None),
            known_from => (known_from.before(1), Some(self.last_untold())),
        }
    }

    /// Ends by writes up to this one, in the millisecond before [`Settings::known_from`], are not told apart.
    fn last_untold(&self) -> Seq {
        match &self.past {
            None => self.last_seq(),
            Some(past) => {
                let first = past.changes.first();
                first.map_or(Seq::MAX, |made| Seq(made.seq.0.saturating_sub(1)))
            }
        }
    }

    /// When the last change was made, as far as it can have ended something; 0 if there was none.
    pub fn last_change(&self) -> Timestamp {
        match &self.past {
            Some(past) => past.last_at(),
            None => self.changed_before().before(1),
        }
    }

    /// Only records below this sequence number can have ended by a change.
    pub fn last_change_seq(&self) -> Seq {
        self.last_seq()
            .max(self.past.as_ref().map_or(Seq(0), |past| {
                past.changes.last().map_or(Seq(0), |made| made.seq)
            }))
    }

    /// The settings at a moment, of which earlier changes are kept; those of an earlier moment than is known are the
    /// earliest known ones. A pair of the two that was in force together.
    pub fn at(&self, moment: Timestamp) -> Settings {
        let Some(past) = &self.past else {
            return self.clone();
        };
        let later = past.changes.iter().any(|made| made.at > moment);
        if !later {
            return self.clone();
        }
        let earlier = past.changes.iter().take_while(|made| made.at <= moment);
        earlier.fold(past.base.clone(), |settings, made| {
            settings.after_alone(made.what, made.at, made.seq)
        })
    }

    /// Settings under which, at a moment that has passed, that is gone which had ended by then. What came after a change
    /// since then was never under the settings of that moment, though a bulk load, which is stamped with its beginning, looks
    /// as if it was: so what they had ended is held by floors, and nothing ends by the clock. The number of the floors is below
    /// that change's, by which no record is judged here (`judged up to` in a table): what was written just before it is kept.
    pub fn that_had_ended(&self, moment: Timestamp) -> Settings {
        let then = self.at(moment);
        let mut changes = self.past.iter().flat_map(|past| &past.changes);
        match changes.find(|made| made.at > moment) {
            Some(made) => then.change(DefaultMillis::Off, moment, Seq(made.seq.0 - 1)),
            None => then,
        }
    }

    /// The moments of the changes that are known one by one.
    pub fn changed_at(&self) -> impl Iterator<Item = Timestamp> + use<'_> {
        let changes = self.past.iter().flat_map(|past| &past.changes);
        changes.map(|made| made.at)
    }

    /// When the first of the changes above this sequence number was made that are known one by one.
    pub fn changed_above(&self, seq: Seq) -> Option<Timestamp> {
        let mut changes = self.past.iter().flat_map(|past| &past.changes);
        changes.find(|made| made.seq > seq).map(|made| made.at)
    }

    /// The first change after a moment.
    pub fn next_change(&self, moment: Timestamp) -> Option<Timestamp> {
        self.changed_at().find(|at| *at > moment)
    }
}

/// Since when a default counts, and the change that made it.
#[derive(Clone, Copy, Default)]
struct Since {
    at: Timestamp,
    by: Seq,
}

/// The end by the clock under a default that counts since a moment.
fn natural(header: &Header, default: DefaultMillis, since: Since) -> Ending {
    let life = default.life(header.ttl);
    let end = life.end(header.written_at);
    let cause = match life {
        _ if end < since.at => Cause::Change,
        Life::Inherited(_) => Cause::Default,
        _ => Cause::Own,
    };
    // In the millisecond of the change, too, it was there until the change.
    let by = match end <= since.at {
        true => header.seq.max(since.by),
        false => header.seq,
    };
    Ending {
        at: end.max(since.at),
        cause,
        by,
    }
}

#[cfg(test)]
mod tests;
