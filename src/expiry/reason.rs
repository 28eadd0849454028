//! Why an item is gone, said for people. Nothing is decided by it: [`Settings::gone`] is the rule.

use crate::base::record::Header;
use crate::base::{ItemTtl, Seq, Timestamp};
use crate::expiry::command::Command;
use crate::expiry::rule::{DefaultMillis, Settings};

/// The first of these that ends an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its own ttl, which ended then.
    Own(Timestamp),
    /// The default, by which it ended then.
    Default(Timestamp),
    /// A default that was in force before the change of this sequence number.
    Floor(Seq),
    /// A command.
    Command(Command),
}

impl Settings {
    /// Why an item is gone; none: it is not. `header` is that of a put.
    pub fn reason(&self, header: &Header, now: Timestamp) -> Option<Reason> {
        let floor = (header.seq < self.floor_seq).then_some(Reason::Floor(self.floor_seq));
        let by_floor_or_clock = match (header.ttl, self.default) {
            (ItemTtl::Never, _) => None,
            (ItemTtl::Absent, default) => {
                let end = match default {
                    DefaultMillis::Millis(n) => header.written_at.after(n),
                    _ => Timestamp::MAX,
                };
                let by_floor = floor.filter(|_| header.written_at < self.inherit_floor);
                let by_clock = end <= now && end < Timestamp::MAX;
                by_clock.then_some(Reason::Default(end)).or(by_floor)
            }
            (ItemTtl::Millis(m), default) => {
                let end = header.written_at.after(m);
                let by_clock = default.is_on() && end <= now;
                let by_floor = floor.filter(|_| end < self.override_floor);
                by_clock.then_some(Reason::Own(end)).or(by_floor)
            }
        };
        let command = || self.commands.iter().find(|command| command.holds(header));
        by_floor_or_clock.or_else(|| command().copied().map(Reason::Command))
    }
}
