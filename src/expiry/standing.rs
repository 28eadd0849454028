//! The commands that stand beside the floors, and the floors that are set apart like commands.
//!
//! ```text
//! sequence number      7: the default 10 s is lifted, at 20 s      9: a load that began at 0 s ends      11: any change
//! not set apart        floor 7: written before 10.001              floor 7                               floor 11: ended the load
//! set apart            floor 7: written before 10.001              command 7                             command 7, floor 11
//! ```
//!
//! A command, or a floor that was set apart, stands until floors or a later command cover it, or until it can reach nothing
//! that is stored or read.

use crate::base::{Seq, Timestamp};
use crate::expiry::command::{Command, Reach};
use crate::expiry::rule::Settings;

impl Settings {
    /// Whether `inherit_floor` must not come to cover a load that began at this moment.
    pub fn must_be_apart_from(&self, began: Timestamp) -> bool {
        began < self.inherit_floor
    }

    /// The settings after a bulk load that began at this moment: they say the same of every record, and no later change
    /// has `inherit_floor` reach what was loaded.
    pub fn loaded(&self, began: Timestamp) -> Settings {
        match self.must_be_apart_from(began) {
            true => Settings {
                inherit_floor: Timestamp(0),
                command_seq: self.command_seq.max(self.floor_seq),
                ..self.with_commands(self.inherit_floor_alone().into_iter())
            },
            false => self.clone(),
        }
    }

    /// `inherit_floor` as a command.
    fn inherit_floor_alone(&self) -> Option<Command> {
        let is_one = self.inherit_floor > Timestamp(0);
        is_one.then(|| {
            let reach = Reach {
                inherit: self.inherit_floor,
                ..Reach::default()
            };
            Command::given(self.floor_seq, self.override_floor.before(1), reach)
        })
    }

    /// The settings with the commands of earlier ones, but for those that are covered. An `inherit_floor` that the earlier
    /// ones have is one of them: it may have been set apart since, and no longer stand.
    pub fn with_commands_of(&self, earlier: &Settings) -> Settings {
        let floor = earlier.inherit_floor_alone();
        let all = self.with_commands(earlier.commands.iter().copied().chain(floor));
        all.without_commands(|command| self.cover(command))
    }

    /// The settings with more commands, of any sequence numbers, but for those that a later one covers.
    fn with_commands(&self, more: impl Iterator<Item = Command>) -> Settings {
        let all = self.commands.and(more);
        let is_covered = |command: &Command| {
            let mut later = all.iter().filter(|later| later.seq > command.seq);
            later.any(|later| later.covers(command))
        };
        Settings {
            commands: all.without_those(is_covered),
            ..self.clone()
        }
    }

    /// The settings without some of the commands.
    pub fn without_commands(&self, are: impl Fn(&Command) -> bool) -> Settings {
        Settings {
            commands: self.commands.without_those(are),
            ..self.clone()
        }
    }

    /// The highest sequence number of a command that stands here, and neither stands in later settings nor is covered by
    /// them; 0 if there is none.
    pub fn last_left_out(&self, later: &Settings) -> Seq {
        let stands = |command: &Command| {
            let mut others = later.commands.iter();
            later.cover(command)
                || others
                    .any(|other| other.seq >= command.seq && other.reach.covers(&command.reach))
        };
        let left_out = self.commands.iter().filter(|command| !stands(command));
        left_out
            .map(|command| command.seq)
            .max()
            .unwrap_or_default()
    }

    /// Whether the floors reach whatever a command reaches.
    pub(super) fn cover(&self, command: &Command) -> bool {
        let reaches_none = command.reach == Reach::default();
        reaches_none || (self.floor_seq >= command.seq && self.floors().covers(&command.reach))
    }
}
