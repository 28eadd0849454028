//! The settings of an older copy of a container after it is told those of today.
//!
//! Commands that nothing stored needs any more no longer stand, and a copy may have what they reached. So it is told the
//! changes themselves, as far as settings keep how they came about (past.rs).

use crate::base::{Seq, Timestamp};
use crate::expiry::command::{Command, Expire, Reach};
use crate::expiry::rule::{DefaultMillis, Settings};

impl Settings {
    /// The sequence number of the last change or command that was given and still counts.
    pub(super) fn last_given(&self) -> Seq {
        self.floor_seq.max(self.command_seq)
    }

    /// These settings without what a backup left out, of which no other copy is told.
    pub fn given(&self) -> Settings {
        Settings {
            commands: self.commands.given(),
            ..self.clone()
        }
    }

    /// These settings, of an older copy that has seen the changes up to `seen`, after those that `later` ones came about by
    /// since. None: it is not known any more which these were.
    pub fn after_those_of(&self, later: &Settings, seen: Seq) -> Option<Settings> {
        let past = later.past.as_ref()?;
        let base = past.base.given();
        let (known, news) = past
            .changes
            .split_at(past.changes.partition_point(|made| made.seq <= seen));
        let then = known.iter().fold(base, |settings, made| {
            settings.after_alone(made.what, made.at, made.seq)
        });
        // Every change but that from off moves a floor or a command, so a change that the base has and the copy has not
        // seen shows.
        let of_default = |of: &Settings| {
            (
                of.default,
                of.inherit_floor,
                of.override_floor,
                of.floor_seq,
            )
        };
        let is_same = of_default(&then) == of_default(self) && past.base.last_given() <= seen;
        is_same.then(|| {
            news.iter().fold(self.clone(), |settings, made| {
                settings.after(made.what, made.at, made.seq)
            })
        })
    }

    /// The settings of a copy from which all is left out that was to end before a moment where `by` was the default. How
    /// they came about is no more known. No other copy is told of it.
    pub fn ended_before(
        &self,
        moment: Timestamp,
        by: DefaultMillis,
        at: Timestamp,
        seq: Seq,
    ) -> Settings {
        let reach = by.reach_of(Expire::Before(moment));
        if reach == Reach::default() {
            return self.clone();
        }
        Settings {
            commands: self.commands.with(Command {
                seq,
                at,
                left_out: true,
                reach,
            }),
            past: None,
            ..self.clone()
        }
    }
}
