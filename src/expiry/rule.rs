//! The rule: which items are gone, under which settings, at which moment. Reads and compaction use only these
//! functions.
//!
//! Example, in seconds. The default is 60. Item 1 is written at 0 and has no ttl of its own, item 2 at 50 with a ttl of
//! 30, item 3 at 70 and has none. At 100 the default goes off, by a change with sequence number 4, and nothing expires
//! any more:
//!
//! ```text
//!          written   ttl   by 100        after the change                              at 200
//! item 1         0     -   gone at 60    before number 4, written before 40.001:       stays gone
//! item 2        50    30   gone at 80    before number 4, ended before 100.001:        stays gone
//! item 3        70     -   lives         written after 40.001:                         lives, and does not expire
//!                                        floors: inherit 40.001, override 100.001, number 4
//! ```
//!
//! An item expires when `written_at + ttl <= now`. The ttl is the item's own, or else the container's default. Expiry
//! is final: a change of the default must not bring back what was gone before it. Three values ensure that (see
//! [`Settings::change`]), so that the check is O(1) however often the default changes:
//!
//! * `inherit_floor`: an inheriting item written before this moment, and before `floor_seq`, is gone;
//! * `override_floor`: an item with its own ttl that ended before this moment, and was written before `floor_seq`, is
//!   gone;
//! * `floor_seq`: the sequence number of the last change; only the clock decides about later writes.
//!
//! A container may also be told to expire items at once. Such a command stands beside the floors, with bounds and a
//! sequence number of its own (command.rs), until floors or a later command cover it.
//!
//! A write that keeps the lifetime of the item it replaces may have an old `written_at` and a sequence number above the
//! floors. The floors do not apply to it, and need not: the replaced item was not gone. So `written_at` need not ascend
//! with the sequence number.
//!
//! A floor never comes to cover a write that was made after it. A change moves `floor_seq` over all that was written since
//! the last change, and keeps the higher `inherit_floor`. That is sound where nothing in between was written before the
//! floor. A bulk load is the one write that may be: its `written_at` is the moment at which it began, and its sequence
//! number that of its end. So a load that began before `inherit_floor` sets it apart, as a command of the number that it
//! has ([`Settings::loaded`]). `override_floor` needs none of that: whatever ended before it has ended by the clock, too,
//! when `floor_seq` moves, for the ttl was on until then.
//!
//! Invariant: for a fixed item, once `gone` has returned true for (settings, now), it returns true for every later
//! `now' >= now` and all settings reached by changes at moments `T >= now`. Tests compare it with the definition, by
//! brute force over random histories.
//!
//! A reader evaluates it lazily ([`ExpiryCheck`]): reading the exact clock is expensive, and a moment that is the same
//! or some seconds later is cheap. An item that is live then is live now. Example: it is 10.001, and the later moment
//! is 13.
//!
//! ```text
//!          ends at   at 13    at 10.001
//! item 4        20   lives    not asked: it lives
//! item 5         3   dead     the clock is read: dead
//! item 6        12   dead     by the same reading: lives
//! ```

use crate::base::coding::{ByteReader, Malformed, put_varint};
use crate::base::record::{Header, Kind};
use crate::base::{
    Countdown, DefaultTtl, Error, ItemTtl, MAX_TTL_MILLIS, Result, Seq, Timestamp, lifetime_millis,
};
use crate::expiry::command::{Command, Commands, Expire, Reach};
use crate::expiry::life::Life;
use crate::expiry::past::{Made, Past};
use std::time::Duration;

/// A lifetime given by a caller, in milliseconds; it must be more than 0 and at most 2 147 483 647 seconds.
#[inline]
pub fn ttl_millis(duration: Duration) -> Result<u64> {
    lifetime(
        duration,
        "Ttl::Never, or a Duration of more than 0 and at most 2147483647 seconds",
    )
}

#[inline]
fn lifetime(duration: Duration, allowed: &'static str) -> Result<u64> {
    lifetime_millis(duration).ok_or_else(|| no_lifetime(duration, allowed))
}

#[cold]
fn no_lifetime(duration: Duration, allowed: &'static str) -> Error {
    let given = format!("{} s", duration.as_secs_f64());
    Error::invalid("ttl", given, allowed)
}

/// The container's default as it is stored.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum DefaultMillis {
    /// Nothing expires.
    #[default]
    Off,
    /// Only items with their own ttl expire.
    NoDefault,
    /// Milliseconds for items without their own.
    Millis(u64),
}

impl DefaultMillis {
    /// Checks the range and rounds up to a millisecond.
    pub fn from_public(default: DefaultTtl) -> Result<DefaultMillis> {
        Ok(match default {
            DefaultTtl::Off => DefaultMillis::Off,
            DefaultTtl::NoDefault => DefaultMillis::NoDefault,
            DefaultTtl::After(duration) => DefaultMillis::Millis(lifetime(
                duration,
                "DefaultTtl::NoDefault, or a Duration of more than 0 and at most 2147483647 seconds",
            )?),
        })
    }

    /// The same value as the public type.
    pub fn to_public(self) -> DefaultTtl {
        match self {
            DefaultMillis::Off => DefaultTtl::Off,
            DefaultMillis::NoDefault => DefaultTtl::NoDefault,
            DefaultMillis::Millis(millis) => DefaultTtl::After(Duration::from_millis(millis)),
        }
    }

    /// Appends its bytes, as [`Settings`] shows them.
    pub fn encode(self, out: &mut Vec<u8>) {
        let number = match self {
            DefaultMillis::Off => 0,
            DefaultMillis::NoDefault => 1,
            DefaultMillis::Millis(millis) => millis.saturating_add(1),
        };
        put_varint(out, number);
    }

    /// Reads what [`DefaultMillis::encode`] wrote.
    pub fn decode(reader: &mut ByteReader<'_>) -> std::result::Result<DefaultMillis, Malformed> {
        Ok(match reader.varint()? {
            0 => DefaultMillis::Off,
            1 => DefaultMillis::NoDefault,
            more => DefaultMillis::Millis(more - 1),
        })
    }

    /// Whether items with their own ttl expire.
    pub fn is_on(self) -> bool {
        self != DefaultMillis::Off
    }

    /// The longest life of an inheriting item: infinite under off and without a default.
    fn inherited_millis(self) -> u64 {
        match self {
            DefaultMillis::Millis(millis) => millis,
            DefaultMillis::Off | DefaultMillis::NoDefault => u64::MAX,
        }
    }

    /// The reach of a command where this is the default.
    pub(super) fn reach_of(self, what: Expire) -> Reach {
        match (what, self) {
            (Expire::All, _) => Reach::written_before(Timestamp::MAX),
            (Expire::WrittenBefore(moment), _) => Reach::written_before(moment),
            (Expire::Before(_), DefaultMillis::Off) => Reach::default(),
            (Expire::Before(moment), default) => Reach {
                inherit: moment.before(default.inherited_millis()),
                own: moment,
                written: Timestamp(0),
            },
        }
    }

    /// How long an item with this ttl lives, and by which ttl.
    #[inline]
    pub(super) fn life(self, ttl: ItemTtl) -> Life {
        match (ttl, self) {
            (ItemTtl::Absent, default) => Life::Inherited(default.inherited_millis()),
            (ItemTtl::Never, _) => Life::Endless,
            (ItemTtl::Millis(m), DefaultMillis::Off) => Life::Suspended(m),
            (ItemTtl::Millis(m), _) => Life::Own(m),
        }
    }

    /// Whether nothing lives longer under `self` than under `then`: then an end that was computed under `then` can be
    /// trusted.
    pub fn is_as_strict_as(self, then: DefaultMillis) -> bool {
        self.inherited_millis() <= then.inherited_millis() && (!then.is_on() || self.is_on())
    }

    /// The default under which nothing lives longer than under either.
    pub fn strictest(self, other: DefaultMillis) -> DefaultMillis {
        match self.inherited_millis().min(other.inherited_millis()) {
            u64::MAX if self.is_on() || other.is_on() => DefaultMillis::NoDefault,
            u64::MAX => DefaultMillis::Off,
            millis => DefaultMillis::Millis(millis),
        }
    }
}

/// A write that changes a container's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingsChange {
    /// Another default.
    Default(DefaultMillis),
    /// A command.
    Expire(Expire),
    /// The end of a bulk load that began at this moment. It changes what later changes do, and ends nothing.
    Loaded(Timestamp),
}

/// A container's settings, floors and commands: always read as one value.
///
/// ```text
/// settings   default varint | inherit_floor varint | override_floor varint | judged up to varint
/// default    0 off | 1 none | milliseconds + 1
/// ```
///
/// The bytes are those in a table, which need no commands: `judged up to` is the sequence number of the last change or
/// command by which the table's records were judged, and takes the place of `floor_seq`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Settings {
    /// The default ttl.
    pub default: DefaultMillis,
    /// Inheriting items with a sequence number below `floor_seq` that were written before this moment are gone.
    pub inherit_floor: Timestamp,
    /// Overriding items with a sequence number below `floor_seq` that ended before this moment are gone.
    pub override_floor: Timestamp,
    /// The sequence number of the change that set the floors.
    pub floor_seq: Seq,
    /// The sequence number of the last command, whether it stands or not: so settings never are again what they were.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub command_seq: Seq,
    /// The commands that stand.
    #[serde(default, skip_serializing_if = "Commands::is_empty")]
    pub commands: Commands,
    /// How they came about; none if they never changed, and where only the rule of now is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past: Option<Box<Past<Settings, SettingsChange>>>,
}

fn is_zero(seq: &Seq) -> bool {
    *seq == Seq(0)
}

impl Settings {
    /// The settings of a new container.
    pub fn new(default: DefaultMillis) -> Settings {
        Settings {
            default,
            ..Settings::default()
        }
    }

    /// The sequence number of the last change or command that still counts.
    pub fn last_seq(&self) -> Seq {
        self.last_given().max(self.commands.last_seq())
    }

    /// The same, without how they came about: all that the rule of now needs.
    pub fn without_past(&self) -> Settings {
        Settings {
            past: None,
            ..self.clone()
        }
    }

    /// Items ended by changes that are not known one by one ended before this moment.
    pub(super) fn changed_before(&self) -> Timestamp {
        let given = self.commands.iter().map(|command| command.at.after(1));
        given.max().unwrap_or_default().max(self.override_floor)
    }

    /// The part of the settings that a table keeps: those by which its records were judged.
    pub fn of_a_table(&self) -> Settings {
        Settings {
            floor_seq: self.last_seq(),
            command_seq: Seq(0),
            commands: Commands::NONE,
            past: None,
            ..*self
        }
    }

    /// Appends the bytes shown above.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.default.encode(out);
        for number in [
            self.inherit_floor.0,
            self.override_floor.0,
            self.floor_seq.0,
        ] {
            put_varint(out, number);
        }
    }

    /// Reads what [`Settings::encode`] wrote.
    pub fn decode(reader: &mut ByteReader<'_>) -> std::result::Result<Settings, Malformed> {
        Ok(Settings {
            default: DefaultMillis::decode(reader)?,
            inherit_floor: Timestamp(reader.varint()?),
            override_floor: Timestamp(reader.varint()?),
            floor_seq: Seq(reader.varint()?),
            ..Settings::default()
        })
    }

    /// The settings after the write `seq` changed them at the moment `at`.
    pub fn after(&self, change: SettingsChange, at: Timestamp, seq: Seq) -> Settings {
        let mut past = self.past.clone().unwrap_or_else(|| {
            let base = self.without_past();
            Box::new(Past::since(base, self.changed_before()))
        });
        let made = Made {
            what: change,
            at,
            seq,
        };
        past.add(made, |base, first| {
            base.after_alone(first.what, first.at, first.seq)
        });
        Settings {
            past: Some(past),
            ..self.after_alone(change, at, seq)
        }
    }

    /// The same, without how they came about.
    pub(super) fn after_alone(&self, change: SettingsChange, at: Timestamp, seq: Seq) -> Settings {
        let before = self.without_past();
        match change {
            SettingsChange::Default(to) => before.change(to, at, seq),
            SettingsChange::Expire(what) => before.expire(what, at, seq),
            SettingsChange::Loaded(began) => before.loaded(began),
        }
    }

    /// The settings after the write `seq` changed the default to `to` at the moment `at`. Items gone at `at` under the
    /// old default stay gone: the floors are `at + 1`, exclusive.
    pub fn change(&self, to: DefaultMillis, at: Timestamp, seq: Seq) -> Settings {
        let mut next = Settings {
            default: to,
            ..self.clone()
        };
        if let DefaultMillis::Millis(n) = self.default {
            next.inherit_floor = next.inherit_floor.max(at.after(1).before(n));
        }
        if self.default.is_on() {
            next.override_floor = next.override_floor.max(at.after(1));
            next.floor_seq = seq;
        }
        next.commands = self.commands.without_those(|command| next.cover(command));
        next
    }

    /// The settings after the write `seq` told the container at the moment `at` to expire items.
    pub fn expire(&self, what: Expire, at: Timestamp, seq: Seq) -> Settings {
        let reach = self.default.reach_of(what);
        let told = Settings {
            command_seq: seq,
            commands: self.commands.with(Command::given(seq, at, reach)),
            ..self.clone()
        };
        // A change of the default to itself moves the floors, which may cover what has ended. What one copy lacks moves none.
        let renewed = told.change(self.default, at, seq);
        if renewed.commands.given() == told.commands.given() {
            return told;
        }
        renewed
    }

    /// The reach of the floors over records below `floor_seq`.
    pub(super) fn floors(&self) -> Reach {
        Reach {
            inherit: self.inherit_floor,
            own: self.override_floor,
            written: Timestamp(0),
        }
    }

    /// The joint reach of floors and commands over records with this sequence number.
    #[inline]
    pub fn reach(&self, seq: Seq) -> Reach {
        let floors = if seq < self.floor_seq {
            self.floors()
        } else {
            Reach::default()
        };
        floors.max(self.commands.reach(seq))
    }

    /// Whether an item is expired, or was at any earlier moment under the settings of that moment. `header` is that of
    /// a put.
    #[inline(always)]
    pub fn gone(&self, header: &Header, now: Timestamp) -> bool {
        self.has_passed(header, now) || self.commands.hold(header)
    }

    /// The ttl of an item that is written now and counts from the time of another one; none: that lifetime has passed.
    ///
    /// An item that inherits, and counts from a time below `inherit_floor`, gets the current default as a ttl of its own. The
    /// floor does not cover it, because it is written later; the next floor, which includes this one, would. Commands concern
    /// what was written before them, and so do not count.
    pub fn ttl_like(&self, countdown: Countdown, now: Timestamp) -> Option<ItemTtl> {
        let header = Header {
            kind: Kind::Put,
            seq: Seq::MAX,
            written_at: countdown.written_at(),
            ttl: countdown.ttl(),
        };
        let is_below = header.ttl == ItemTtl::Absent && header.written_at < self.inherit_floor;
        let ttl = match self.default {
            _ if !is_below => header.ttl,
            DefaultMillis::Millis(n) => ItemTtl::Millis(n),
            DefaultMillis::Off | DefaultMillis::NoDefault => ItemTtl::Never,
        };
        (!self.has_passed(&header, now)).then_some(ttl)
    }

    /// [`Settings::gone`] without commands.
    #[inline(always)]
    fn has_passed(&self, header: &Header, now: Timestamp) -> bool {
        let before_floor = header.seq < self.floor_seq;
        match header.ttl {
            ItemTtl::Never => false,
            ItemTtl::Absent => {
                (before_floor && header.written_at < self.inherit_floor)
                    || matches!(self.default, DefaultMillis::Millis(n) if header.written_at.after(n) <= now)
            }
            ItemTtl::Millis(m) => {
                let end = header.written_at.after(m);
                (before_floor && end < self.override_floor) || (self.default.is_on() && end <= now)
            }
        }
    }

    /// The moment from which the delay of the removal of a gone item is measured: `expiry`, but for an item written
    /// before the last change of the default (`is_older`) at the earliest that change, which may have expired it; and no
    /// later than the first command that reached it.
    pub fn overdue_since(
        &self,
        expiry: Timestamp,
        is_older: bool,
        command: Option<Timestamp>,
    ) -> Timestamp {
        let since = if is_older {
            expiry.max(self.override_floor.before(1))
        } else {
            expiry
        };
        since.min(command.unwrap_or(Timestamp::MAX))
    }

    /// How long an item that is not gone lives, and by which ttl, if these settings stay.
    #[inline]
    pub fn life(&self, header: &Header) -> Life {
        self.life_of(header.ttl)
    }

    /// The same of one with this ttl.
    #[inline]
    pub fn life_of(&self, ttl: ItemTtl) -> Life {
        self.default.life(ttl)
    }

    /// When an item that is not gone expires, if these settings stay: [`Timestamp::MAX`] for never.
    #[inline]
    pub fn expires_at(&self, header: &Header) -> Timestamp {
        self.life(header).end(header.written_at)
    }
}

/// One reading of the clock and the settings that go with it: a job, or one step of an iterator, judges by one such
/// pair.
///
/// The clock is read first, so a pair never holds settings older than its moment. The settings may be newer than the
/// moment, and no reader was ever in that state; so: what a pair calls dead is dead when its settings are read, and
/// what it calls live was live when the clock was read, if the clock did not go back in between.
#[derive(Clone, Debug, PartialEq, Eq)]
// The fields are read everywhere; only `at` constructs one.
#[allow(clippy::manual_non_exhaustive)]
pub struct ExpiryView {
    /// Settings and floors, read as one value.
    pub settings: Settings,
    /// The moment.
    pub now: Timestamp,
    /// Keeps others from constructing one.
    in_order: (),
}

impl ExpiryView {
    /// `settings` reads the settings; it is called after the clock was read.
    #[inline(always)]
    pub fn at(now: Timestamp, settings: impl FnOnce() -> Settings) -> ExpiryView {
        ExpiryView {
            settings: settings(),
            now,
            in_order: (),
        }
    }

    /// Whether the record shows nothing: a tombstone, or a put that is gone.
    #[inline(always)]
    pub fn dead(&self, header: &Header) -> bool {
        header.is_tombstone() || self.settings.gone(header, self.now)
    }
}

/// The views of now and of settled time, under the same settings.
#[derive(Clone, Debug)]
pub struct ExpiryViews {
    /// Decides what is shown.
    pub now: ExpiryView,
    /// Decides what is dead for good.
    pub settled: ExpiryView,
}

impl ExpiryViews {
    /// `settings` reads the settings; it is called after both times were read.
    pub fn at(
        now: Timestamp,
        settled: Timestamp,
        settings: impl FnOnce() -> Settings,
    ) -> ExpiryViews {
        let now = ExpiryView::at(now, settings);
        let settled = ExpiryView {
            now: settled,
            ..now.clone()
        };
        ExpiryViews { now, settled }
    }
}

/// Decides which records are dead at one step of a reader. A record that is live at a `later` moment, which is cheap to
/// know, is live now; for the others the exact clock is read, once.
pub struct ExpiryCheck<'a, F> {
    later: &'a ExpiryView,
    settled: &'a mut ExpiryView,
    now: Option<ExpiryView>,
    read: F,
    /// Now, to within some milliseconds: the moment that items report, not the one they are judged by.
    pub moment: Timestamp,
}

impl<'a, F: Fn() -> ExpiryViews> ExpiryCheck<'a, F> {
    /// `settled` is in settled time at an earlier moment, and is set to now's when `read` is called. `later` has
    /// settings of now, not of an earlier moment.
    pub fn new(
        later: &'a ExpiryView,
        settled: &'a mut ExpiryView,
        moment: Timestamp,
        read: F,
    ) -> Self {
        ExpiryCheck {
            later,
            settled,
            now: None,
            read,
            moment,
        }
    }

    /// Whether the record shows nothing now.
    #[inline]
    pub fn dead(&mut self, header: &Header) -> bool {
        self.later.dead(header) && self.dead_by_the_clock(*header)
    }

    #[cold]
    fn dead_by_the_clock(&mut self, header: Header) -> bool {
        let now = self.now.get_or_insert_with(|| {
            let views = (self.read)();
            *self.settled = views.settled;
            views.now
        });
        now.dead(&header)
    }

    /// The life of a live item; see [`Settings::life`].
    #[inline]
    pub fn life(&self, header: &Header) -> Life {
        self.later.settings.life(header)
    }

    /// Whether a record is dead for good, so that it may be skipped before it is asked for: `now` may go back when a
    /// wrong clock is corrected, and settled time does not.
    #[inline]
    pub fn for_good(&self) -> &ExpiryView {
        self.settled
    }
}

/// The ttl of a write that ends at `until`. None is longer than [`MAX_TTL_MILLIS`]: a moment further ahead is never.
pub fn stored_ttl_until(until: Timestamp, written_at: Timestamp) -> ItemTtl {
    match until.since(written_at) {
        millis @ ..=MAX_TTL_MILLIS => ItemTtl::Millis(millis),
        _ => ItemTtl::Never,
    }
}

#[cfg(test)]
mod tests;
