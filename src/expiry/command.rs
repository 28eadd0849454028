//! Expiring on command: what ends at once, and the commands that stand in a container.
//!
//! ```text
//! at sequence number S             ends at once, of what was written before S
//! expire_before(T)                 what would end before T under the settings of that moment
//! expire_written_before(T)         what was written before T, whatever its ttl
//! expire_all()                     everything
//! ```
//!
//! A bulk load may leave one more kind behind: the floor of inheriting items, of an earlier change of the default, which later
//! changes must not have reach what was loaded (rule.rs).
//!
//! A command is a sequence number and three bounds ([`Reach`]). It cannot share the floors' sequence number: a bound may lie
//! beyond the moment of the command, and the next change of the default, which moves that number, would have the bound
//! reach what was written in between.
//!
//! Example: at 50 s, with sequence number 7, a container with a default of 60 s is told to expire what ends before 80 s:
//! inheriting items below number 7 that were written before 20 s are gone, and items with a ttl of their own that end
//! before 80 s. An item that is written at 51 s with a ttl of 10 s has number 8: it lives until 61 s.
//!
//! Invariants:
//!
//! 1. Commands stand in the order of their sequence numbers. None covers an earlier one, and the floors cover none. A
//!    command that stands for what a backup left out covers no given command: other copies are told of given commands
//!    alone.
//! 2. A command is left out only if the floors or a later command cover it, or if it can reach nothing that is stored and
//!    nothing that somebody reads still.
//! 3. Of the bounds of a reach `written` is the lowest: what was written before it also ends by the others.

use std::sync::Arc;

use crate::base::record::Header;
use crate::base::{ItemTtl, Seq, Timestamp};

/// A command to expire items of a container; see the file's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expire {
    /// Items that end before this moment.
    Before(Timestamp),
    /// Items written before this moment.
    WrittenBefore(Timestamp),
    /// Everything.
    All,
}

/// The bounds below which items of lower sequence numbers are gone.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Reach {
    /// Inheriting items that were written before this moment are gone.
    pub inherit: Timestamp,
    /// Items with their own ttl that ended before this moment are gone.
    #[serde(rename = "override")]
    pub own: Timestamp,
    /// Items that were written before this moment are gone; [`Timestamp::MAX`]: all are.
    pub written: Timestamp,
}

impl Reach {
    /// Reaches items written before a moment; [`Timestamp::MAX`]: everything.
    pub fn written_before(moment: Timestamp) -> Reach {
        Reach {
            inherit: moment,
            own: moment,
            written: moment,
        }
    }

    /// Whether it is a floor that was set apart: a command that ends inheriting items ends those with a ttl of their own,
    /// too.
    pub fn is_floor(&self) -> bool {
        self.own < self.inherit
    }

    /// Whether it reaches everything, whatever its times.
    pub fn is_all(&self) -> bool {
        self.written == Timestamp::MAX
    }

    /// Whether it reaches an item. `header` is that of a put with a lower sequence number.
    #[inline]
    pub fn holds(&self, header: &Header) -> bool {
        self.is_all()
            || match header.ttl {
                ItemTtl::Never => header.written_at < self.written,
                ItemTtl::Absent => header.written_at < self.inherit,
                ItemTtl::Millis(millis) => {
                    header.written_at < self.written || header.written_at.after(millis) < self.own
                }
            }
    }

    /// The bounds of which each is the higher of both.
    pub fn max(self, other: Reach) -> Reach {
        Reach {
            inherit: self.inherit.max(other.inherit),
            own: self.own.max(other.own),
            written: self.written.max(other.written),
        }
    }

    /// Whether it reaches whatever the other one reaches.
    pub fn covers(&self, other: &Reach) -> bool {
        self.max(*other) == *self
    }
}

/// A command: what it reaches below its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Command {
    /// Its sequence number: it reaches only records below.
    pub seq: Seq,
    /// The settled moment at which it was given.
    pub at: Timestamp,
    /// Nobody gave it: this copy lacks what it reaches, because a backup left that out. It is this copy's alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
    /// Its bounds.
    #[serde(flatten)]
    pub reach: Reach,
}

impl Command {
    /// One that somebody gave.
    pub fn given(seq: Seq, at: Timestamp, reach: Reach) -> Command {
        Command {
            seq,
            at,
            left_out: false,
            reach,
        }
    }

    /// Whether it reaches an item. `header` is that of a put.
    #[inline]
    pub fn holds(&self, header: &Header) -> bool {
        header.seq < self.seq && self.reach.holds(header)
    }

    /// Whether an earlier one need not stand beside it.
    pub fn covers(&self, earlier: &Command) -> bool {
        self.reach.covers(&earlier.reach) && (earlier.left_out || !self.left_out)
    }
}

/// The commands that stand in a container, in the order of their sequence numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commands(Option<Arc<[Command]>>);

impl Commands {
    /// None stands.
    pub const NONE: Commands = Commands(None);
    /// So many may stand: a read of an old item looks at each.
    pub const MOST: usize = 64;

    /// Whether none stands.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The commands, lowest sequence number first.
    pub fn iter(&self) -> std::slice::Iter<'_, Command> {
        self.0.as_deref().unwrap_or_default().iter()
    }

    /// The joint reach of the commands with a sequence number above `seq`.
    #[inline]
    pub fn reach(&self, seq: Seq) -> Reach {
        match self.is_empty() {
            true => Reach::default(),
            false => self.reach_below(seq),
        }
    }

    fn reach_below(&self, seq: Seq) -> Reach {
        let later = self.iter().rev().take_while(|command| command.seq > seq);
        later.fold(Reach::default(), |all, command| all.max(command.reach))
    }

    /// Whether one reaches an item. `header` is that of a put.
    #[inline(always)]
    pub fn hold(&self, header: &Header) -> bool {
        !self.is_empty() && self.reach_below(header.seq).holds(header)
    }

    /// When the first that reaches an item was given.
    pub fn given_over(&self, header: &Header) -> Option<Timestamp> {
        let mut over = self.iter().filter(|command| command.holds(header));
        over.next().map(|command| command.at)
    }

    /// With one more, of the highest sequence number, and without those that it covers.
    pub fn with(&self, command: Command) -> Commands {
        let others = self.iter().copied();
        let kept = others.filter(|other| !command.covers(other));
        kept.chain([command]).collect()
    }

    /// Without some of them.
    pub fn without_those(&self, are: impl Fn(&Command) -> bool) -> Commands {
        match self.iter().any(&are) {
            true => self
                .iter()
                .copied()
                .filter(|command| !are(command))
                .collect(),
            false => self.clone(),
        }
    }

    /// The number of the last one; 0: none stands.
    pub fn last_seq(&self) -> Seq {
        let last = self.iter().next_back();
        last.map_or(Seq(0), |command| command.seq)
    }

    /// Those that were given.
    pub fn given(&self) -> Commands {
        self.without_those(|command| command.left_out)
    }

    /// These and others. Those of one sequence number are one command, which reaches what each of them does.
    pub fn and(&self, others: impl Iterator<Item = Command>) -> Commands {
        let mut all: Vec<Command> = self.iter().copied().chain(others).collect();
        all.sort_by_key(|command| command.seq);
        all.dedup_by(|next, before| {
            let is_same = next.seq == before.seq;
            if is_same {
                before.reach = before.reach.max(next.reach);
            }
            is_same
        });
        all.into_iter().collect()
    }
}

impl FromIterator<Command> for Commands {
    fn from_iter<I: IntoIterator<Item = Command>>(commands: I) -> Commands {
        let commands: Arc<[Command]> = commands.into_iter().collect();
        Commands((!commands.is_empty()).then_some(commands))
    }
}

impl serde::Serialize for Commands {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> serde::Deserialize<'de> for Commands {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let commands = Vec::<Command>::deserialize(deserializer)?;
        let ascend = commands.is_sorted_by(|a, b| a.seq < b.seq);
        match ascend {
            true => Ok(commands.into_iter().collect()),
            false => Err(serde::de::Error::custom("commands out of order")),
        }
    }
}
