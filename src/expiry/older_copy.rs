//! What the settings of an older copy of a container become when it is told those of today.
//!
//! Commands that nothing stored needs any more no longer stand, and a copy may have what they reached. So it is told the
//! changes themselves, as far as settings keep how they came about (past.rs).

use crate::base::{Seq, Timestamp};
use crate::expiry::command::{Command, Expire, Reach};
use crate::expiry::rule::{DefaultMillis, Settings};

impl Settings {
    /// These settings, of an older copy that has seen the changes up to `seen`, after those that `later` ones came about by
    /// since. None: it is not known any more which these were.
    pub fn after_those_of(&self, later: &Settings, seen: Seq) -> Option<Settings> {
        let past = later.past.as_ref()?;
        let (known, news) = past
            .changes
            .split_at(past.changes.partition_point(|made| made.seq <= seen));
        let then = known.iter().fold(past.base.clone(), |settings, made| {
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
        let is_same = of_default(&then) == of_default(self) && past.base.last_seq() <= seen;
        is_same.then(|| {
            news.iter().fold(self.clone(), |settings, made| {
                settings.after(made.what, made.at, made.seq)
            })
        })
    }

    /// The settings of a copy from which all is left out that was to end before a moment where `by` was the default. How
    /// they came about is no more known.
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
            command_seq: seq,
            commands: self.commands.with(Command { seq, at, reach }),
            past: None,
            ..self.clone()
        }
    }
}
