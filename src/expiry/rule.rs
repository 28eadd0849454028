//! THE rule: which items are gone, under which settings, at which moment. Reads and compaction ask these functions and
//! no others.
//!
//! Example, in seconds. The default is 60. Item 1 is written at 0 and has no ttl of its own, item 2 at 50 with a ttl of 30,
//! item 3 at 70 and has none. At 100 the default goes off, by the change of number 4, and nothing expires any more:
//!
//! ```text
//!          written   ttl   by 100        after the change                              at 200
//! item 1         0     -   gone at 60    before number 4, written before 40.001:       stays gone
//! item 2        50    30   gone at 80    before number 4, ended before 100.001:        stays gone
//! item 3        70     -   lives         written after 40.001:                         lives, and does not expire
//!                                        floors: inherit 40.001, override 100.001, number 4
//! ```
//!
//! An item expires when `written_at + ttl <= now`. Which ttl counts is the item's own, or else the container's default.
//! Expiry is final: a change of the default must not bring back what was gone before it. Three numbers carry that (see
//! [`Settings::change`]), so that the check stays O(1) however often the default changes:
//!
//! * `inherit_floor`: an inheriting item written before this moment, and before `floor_seq`, is gone;
//! * `override_floor`: an item with its own ttl that ended before this moment, and was written before `floor_seq`, is
//!   gone;
//! * `floor_seq`: the sequence number of the last change; writes after it are judged by the clock alone.
//!
//! A write that keeps the life of the item that it replaces has a number above floors that the item had to pass: it passes
//! them too, for it was kept because it was not gone. So `written_at` need not grow with the number.
//!
//! Invariant: for a fixed item, once `gone` has answered true for (settings, now), it answers true for every later
//! `now' >= now` and every settings reached by changes at moments `T >= now`. Brute force over random histories holds
//! it to the definition (tests).
//!
//! A reader asks lazily ([`ExpiryCheck`]): an exact reading of the clock has its price, and a moment that is the same
//! or some seconds later is to be had for less. What lives then lives now. Example: it is 10.001, and the later moment
//! is 13.
//!
//! ```text
//!          ends at   at 13    at 10.001
//! item 4        20   lives    not asked: it lives
//! item 5         3   dead     the clock is read: dead
//! item 6        12   dead     by the same reading: lives
//! ```

use crate::base::coding::{Malformed, Reader, put_varint};
use crate::base::record::Header;
use crate::base::{DefaultTtl, Error, ItemTtl, MAX_TTL_MILLIS, Result, Seq, Timestamp, millis_up};
use crate::expiry::life::Life;
use std::time::Duration;

/// A lifetime as a caller gives it, in milliseconds, when it is more than 0 and at most 2 147 483 647 seconds.
pub fn ttl_millis(duration: Duration) -> Result<u64> {
    lifetime(
        duration,
        "Ttl::Never, or a Duration of more than 0 and at most 2147483647 seconds",
    )
}

fn lifetime(duration: Duration, allowed: &'static str) -> Result<u64> {
    let millis = millis_up(duration);
    if millis == 0 || millis > MAX_TTL_MILLIS {
        let given = format!("{} s", duration.as_secs_f64());
        return Err(Error::invalid("ttl", given, allowed));
    }
    Ok(millis)
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

    /// As the public interface shows it.
    pub fn to_public(self) -> DefaultTtl {
        match self {
            DefaultMillis::Off => DefaultTtl::Off,
            DefaultMillis::NoDefault => DefaultTtl::NoDefault,
            DefaultMillis::Millis(millis) => DefaultTtl::After(Duration::from_millis(millis)),
        }
    }

    /// Appends it, as the picture of [`Settings`] has it.
    pub fn encode(self, out: &mut Vec<u8>) {
        let number = match self {
            DefaultMillis::Off => 0,
            DefaultMillis::NoDefault => 1,
            DefaultMillis::Millis(millis) => millis.saturating_add(1),
        };
        put_varint(out, number);
    }

    /// Reads what [`DefaultMillis::encode`] wrote.
    pub fn decode(reader: &mut Reader<'_>) -> std::result::Result<DefaultMillis, Malformed> {
        Ok(match reader.varint()? {
            0 => DefaultMillis::Off,
            1 => DefaultMillis::NoDefault,
            more => DefaultMillis::Millis(more - 1),
        })
    }

    /// Items with their own ttl expire.
    pub fn is_on(self) -> bool {
        self != DefaultMillis::Off
    }

    /// The longest life of an inheriting item: off and -1 are infinite.
    fn inherited_millis(self) -> u64 {
        match self {
            DefaultMillis::Millis(millis) => millis,
            DefaultMillis::Off | DefaultMillis::NoDefault => u64::MAX,
        }
    }

    /// Nothing lives longer under `self` than it did under `then`: an end that was found under `then` can be trusted.
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

/// A container's settings and floors: always read as one value.
///
/// ```text
/// settings   default varint | inherit_floor varint | override_floor varint | floor_seq varint
/// default    0 off | 1 none | milliseconds + 1
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Settings {
    /// What becomes of items without a ttl of their own.
    pub default: DefaultMillis,
    /// Inheriting items from before `floor_seq` that were written before this moment are gone.
    pub inherit_floor: Timestamp,
    /// Overriding items from before `floor_seq` that ended before this moment are gone.
    pub override_floor: Timestamp,
    /// The sequence number of the change that set the floors.
    pub floor_seq: Seq,
}

impl Settings {
    /// Settings of a new container.
    pub fn new(default: DefaultMillis) -> Settings {
        Settings {
            default,
            ..Settings::default()
        }
    }

    /// Appends the picture above.
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
    pub fn decode(reader: &mut Reader<'_>) -> std::result::Result<Settings, Malformed> {
        Ok(Settings {
            default: DefaultMillis::decode(reader)?,
            inherit_floor: Timestamp(reader.varint()?),
            override_floor: Timestamp(reader.varint()?),
            floor_seq: Seq(reader.varint()?),
        })
    }

    /// The settings after the default becomes `to` by the write `seq` at the moment `at`. What was gone at `at` under
    /// the old default stays gone: the bounds are exclusive of `at + 1`.
    pub fn change(&self, to: DefaultMillis, at: Timestamp, seq: Seq) -> Settings {
        let mut next = Settings {
            default: to,
            ..*self
        };
        if let DefaultMillis::Millis(n) = self.default {
            next.inherit_floor = next.inherit_floor.max(at.after(1).before(n));
        }
        if self.default.is_on() {
            next.override_floor = next.override_floor.max(at.after(1));
            next.floor_seq = seq;
        }
        next
    }

    /// Whether an item is expired, or was at any earlier moment under the settings of then. `header` is that of a put.
    #[inline(always)]
    pub fn gone(&self, header: &Header, now: Timestamp) -> bool {
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

    /// The moment from which the removal of something that is gone is measured: `expiry`, but for what was written before
    /// the last change of the default (`is_older`) at the earliest that change, which may have been what ended it.
    pub fn overdue_since(&self, expiry: Timestamp, is_older: bool) -> Timestamp {
        if is_older {
            expiry.max(self.override_floor.before(1))
        } else {
            expiry
        }
    }

    /// How long an item lives that is not gone, and by what, if these settings stay.
    #[inline]
    pub fn life(&self, header: &Header) -> Life {
        match (header.ttl, self.default) {
            (ItemTtl::Absent, default) => Life::Inherited(default.inherited_millis()),
            (ItemTtl::Never, _) => Life::Endless,
            (ItemTtl::Millis(m), DefaultMillis::Off) => Life::Suspended(m),
            (ItemTtl::Millis(m), _) => Life::Own(m),
        }
    }

    /// When an item that is not gone will be, if these settings stay: [`Timestamp::MAX`] for never.
    #[inline]
    pub fn expires_at(&self, header: &Header) -> Timestamp {
        self.life(header).end(header.written_at)
    }
}

/// One reading of the clock and the settings that go with it: a job, or one step of an iterator, judges by one such pair.
///
/// The clock is read first, so that a pair never holds settings that were changed before its moment: nothing was ever
/// judged by such a pair, and what it calls dead may live. What a pair calls dead is dead when its settings are read, and
/// what it calls live was live when the clock was, if that did not go back in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// The fields are read everywhere, also in this crate; but only `at` makes one.
#[allow(clippy::manual_non_exhaustive)]
pub struct ExpiryView {
    /// Settings and floors, read as one value.
    pub settings: Settings,
    /// The moment.
    pub now: Timestamp,
    /// Nobody else makes one.
    in_order: (),
}

impl ExpiryView {
    /// `settings` reads the settings, now that the clock has been read.
    #[inline(always)]
    pub fn at(now: Timestamp, settings: impl FnOnce() -> Settings) -> ExpiryView {
        ExpiryView {
            settings: settings(),
            now,
            in_order: (),
        }
    }

    /// The record shows nothing: a tombstone, or a put that is gone.
    #[inline(always)]
    pub fn dead(&self, header: &Header) -> bool {
        header.is_tombstone() || self.settings.gone(header, self.now)
    }
}

/// The views of now and of settled time, by the same settings.
#[derive(Clone, Copy, Debug)]
pub struct ExpiryViews {
    /// What is shown.
    pub now: ExpiryView,
    /// What is dead for good.
    pub settled: ExpiryView,
}

impl ExpiryViews {
    /// `settings` reads the settings, now that both times have been read.
    pub fn at(
        now: Timestamp,
        settled: Timestamp,
        settings: impl FnOnce() -> Settings,
    ) -> ExpiryViews {
        let now = ExpiryView::at(now, settings);
        let settled = ExpiryView {
            now: settled,
            ..now
        };
        ExpiryViews { now, settled }
    }
}

/// Who is dead at one step of a reader. What lives at a `later` moment, which costs little to know, lives now; only for
/// the rest is the exact clock read, once.
pub struct ExpiryCheck<'a, F> {
    later: ExpiryView,
    settled: &'a mut ExpiryView,
    now: Option<ExpiryView>,
    read: F,
    /// Now, to within some milliseconds: what items tell of it, not what they are judged by.
    pub moment: Timestamp,
}

impl<'a, F: Fn() -> ExpiryViews> ExpiryCheck<'a, F> {
    /// `settled` is of settled time at an earlier moment, and becomes that of this one when `read` is called. `later` is of
    /// the settings of now, and of no earlier moment.
    pub fn new(later: ExpiryView, settled: &'a mut ExpiryView, moment: Timestamp, read: F) -> Self {
        ExpiryCheck {
            later,
            settled,
            now: None,
            read,
            moment,
        }
    }

    /// The record shows nothing now.
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

    /// As [`Settings::life`] tells.
    #[inline]
    pub fn life(&self, header: &Header) -> Life {
        self.later.settings.life(header)
    }

    /// What it calls dead is dead for good, so that it may be passed over before it is asked for: `now` may go back, when
    /// a wrong clock is put right, and settled time does not.
    #[inline]
    pub fn for_good(&self) -> &ExpiryView {
        self.settled
    }
}

/// Resolves the ttl of a write at the moment of its stamp.
pub fn stored_ttl_until(until: Timestamp, written_at: Timestamp) -> ItemTtl {
    ItemTtl::Millis(until.since(written_at).min(MAX_TTL_MILLIS))
}

#[cfg(test)]
mod tests;
