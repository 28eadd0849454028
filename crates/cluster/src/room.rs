//! Room on the disks of a cluster: openraft takes a failed append for the end of a node, so a node stops before its disk is full.
//!
//! ```text
//! free space of the own disk:   ── enough ── reserve ── short ── half of it ── out ──
//!     as the leader             writes       hands over, or refuses writes; ticks and reads go on
//!     as another member         takes entries             takes entries, no snapshot       takes no entries
//! ```
//!
//! Invariants:
//!
//! 1. A write that is refused for want of room was not proposed.
//! 2. Entries that move time are proposed and taken while room is short: ends make room.
//! 3. All of this ends by itself when there is room again, a quarter of the reserve above the mark.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebbtide::Clock;

/// Kept free by default: 64 MiB.
pub const RESERVE: u64 = 64 << 20;
/// The word of another node counts for so long, in milliseconds of the own uptime.
const FRESH_MS: u64 = 10_000;
/// After an attempt to hand over the next one waits so long.
const AGAIN_MS: u64 = 30_000;

/// Reads the free bytes of a disk; `None`: they cannot be told, and count as enough.
pub type Free = Arc<dyn Fn() -> Option<u64> + Send + Sync>;

/// Asks the file system of a folder.
pub fn free_of(folder: PathBuf) -> Free {
    Arc::new(move || {
        let stat = rustix::io::retry_on_intr(|| rustix::fs::statvfs(&folder)).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    })
}

/// The conduct of a leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plan {
    #[default]
    Write,
    Refuse,
    /// This node has room, and with it a majority.
    HandOver(u64),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Room {
    #[default]
    Enough,
    Short,
    Out,
}

struct Told {
    is_short: bool,
    uptime_ms: u64,
}

#[derive(Default)]
struct State {
    free: Option<u64>,
    room: Room,
    others: HashMap<u64, Told>,
    plan: Plan,
    handed_over_ms: Option<u64>,
}

/// See the file's head.
pub struct Rooms {
    own: u64,
    reserve: u64,
    free: Free,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

impl Rooms {
    pub fn new(own: u64, reserve: u64, free: Free, clock: Arc<dyn Clock>) -> Rooms {
        let rooms = Rooms {
            own,
            reserve,
            free,
            clock,
            state: Mutex::default(),
        };
        rooms.look();
        rooms
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the free space.
    pub fn look(&self) {
        let free = (self.free)();
        let mut state = self.lock();
        let (free_now, half) = (free.unwrap_or(u64::MAX), self.reserve / 2);
        // A mark that was fallen below is passed again a bit above it.
        let above = |mark: u64, was_below: bool| match was_below {
            true => free_now >= mark.saturating_add(self.reserve / 4),
            false => free_now >= mark,
        };
        state.room = match state.room {
            room if above(self.reserve, room != Room::Enough) => Room::Enough,
            room if above(half, room == Room::Out) => Room::Short,
            _ => Room::Out,
        };
        state.free = free;
    }

    /// Another node has said how its disk is.
    pub fn heard(&self, node: u64, is_short: bool) {
        let told = Told {
            is_short,
            uptime_ms: self.clock.uptime(),
        };
        self.lock().others.insert(node, told);
    }

    pub fn is_short(&self) -> bool {
        self.lock().room != Room::Enough
    }

    /// Free bytes of the own disk.
    pub fn free(&self) -> Option<u64> {
        self.lock().free
    }

    /// No entry is to be taken.
    pub fn is_out(&self) -> bool {
        self.lock().room == Room::Out
    }

    /// Decides anew what this node does where it leads: `voters`.
    pub fn decide(&self, voters: &[u64]) -> Plan {
        let now = self.clock.uptime();
        let mut state = self.lock();
        let is_short = |state: &State, node: u64| match node == self.own {
            true => Some(state.room != Room::Enough),
            false => {
                let told = state.others.get(&node)?;
                (now.saturating_sub(told.uptime_ms) <= FRESH_MS).then_some(told.is_short)
            }
        };
        let short = |node: &&u64| is_short(&state, **node) == Some(true);
        let short = voters.iter().filter(short).count();
        let has_majority = (voters.len() - short) * 2 > voters.len();
        let own_is_short = state.room != Room::Enough;
        let with_room = |node: &&u64| is_short(&state, **node) == Some(false);
        let again = state
            .handed_over_ms
            .is_none_or(|at| now.saturating_sub(at) >= AGAIN_MS);
        state.plan = match voters.iter().find(with_room) {
            _ if has_majority && !own_is_short => Plan::Write,
            Some(other) if has_majority && again => Plan::HandOver(*other),
            _ => Plan::Refuse,
        };
        state.plan
    }

    /// This node tries to hand over.
    pub fn hands_over(&self) {
        self.lock().handed_over_ms = Some(self.clock.uptime());
    }

    /// As it was decided last.
    pub fn plan(&self) -> Plan {
        self.lock().plan
    }

    /// Of the own disk, or of the majority's where this node leads.
    pub fn trouble(&self, is_leading: bool) -> Option<String> {
        let state = self.lock();
        let own = || {
            let free = state.free.unwrap_or(u64::MAX);
            let (reserve, out) = (
                self.reserve,
                match state.room {
                    Room::Out => ", and takes no entries",
                    _ => "",
                },
            );
            format!(
                "its disk is short of room: {free} bytes are free, {reserve} are kept in reserve; it takes no writes as the leader{out}"
            )
        };
        if state.room != Room::Enough {
            return Some(own());
        }
        let refuses = is_leading && state.plan == Plan::Refuse;
        refuses.then(|| {
            "the disks of half of the nodes or more are short of room, and writes are refused"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use ebbtide::ManualClock;

    use super::*;

    fn node(reserve: u64) -> (Rooms, Arc<AtomicU64>, ManualClock) {
        let (free, clock) = (Arc::new(AtomicU64::new(1_000)), ManualClock::new(0));
        let read = free.clone();
        let read = Arc::new(move || Some(read.load(Ordering::Relaxed)));
        let rooms = Rooms::new(1, reserve, read, Arc::new(clock.clone()));
        (rooms, free, clock)
    }

    #[test]
    fn marks_are_passed_upwards_a_bit_above_them() {
        let (rooms, free, _) = node(100);
        let at = |bytes| {
            free.store(bytes, Ordering::Relaxed);
            rooms.look();
            (rooms.is_short(), rooms.is_out())
        };
        let (enough, short, out) = ((false, false), (true, false), (true, true));
        assert_eq!(
            [at(100), at(99), at(124), at(125), at(50)],
            [enough, short, short, enough, short]
        );
        assert_eq!(
            [at(49), at(74), at(75), at(50), at(49), at(1_000)],
            [out, out, short, short, out, enough]
        );
    }

    #[test]
    fn a_disk_that_cannot_be_asked_has_room() {
        let rooms = Rooms::new(1, 100, Arc::new(|| None), Arc::new(ManualClock::new(0)));
        assert!(!rooms.is_short());
        assert_eq!(rooms.decide(&[1]), Plan::Write);
    }

    #[test]
    fn a_leader_hands_over_to_who_has_room_and_refuses_where_no_majority_has() {
        let (rooms, free, clock) = node(100);
        let own = |bytes| {
            free.store(bytes, Ordering::Relaxed);
            rooms.look();
        };
        assert_eq!(rooms.decide(&[1, 2, 3]), Plan::Write);
        own(99);
        assert_eq!(rooms.decide(&[1]), Plan::Refuse);
        assert_eq!(
            rooms.decide(&[1, 2, 3]),
            Plan::Refuse,
            "nobody has said that it has room"
        );
        rooms.heard(3, false);
        assert_eq!(rooms.decide(&[1, 2, 3]), Plan::HandOver(3));
        rooms.hands_over();
        assert_eq!(rooms.decide(&[1, 2, 3]), Plan::Refuse);
        rooms.heard(2, true);
        clock.advance(Duration::from_millis(AGAIN_MS));
        rooms.heard(3, false);
        rooms.heard(2, true);
        assert_eq!(
            rooms.decide(&[1, 2, 3]),
            Plan::Refuse,
            "two of three are short"
        );
        own(1_000);
        assert_eq!(rooms.decide(&[1, 2, 3]), Plan::Write);
        rooms.heard(3, true);
        assert_eq!(rooms.decide(&[1, 2, 3]), Plan::Refuse);
        assert_eq!(rooms.decide(&[1, 2]), Plan::Refuse);
        assert!(rooms.trouble(true).is_some() && rooms.trouble(false).is_none());
        clock.advance(Duration::from_millis(FRESH_MS + 1));
        assert_eq!(rooms.decide(&[1, 2, 3]), Plan::Write, "words are old");
    }
}
