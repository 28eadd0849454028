//! Models of the read states: readers that miss something and ask whether it has left, beside installs.

use super::tests::empty;
use super::*;
use crate::base::sync::{check, spawn};
use crate::engine::parts::read_state::Flushable;
use crate::mem::Pool;

/// A container with one sealed memtable, which holds a record of this number, an end of it, and a delete.
const LAST: Seq = Seq(7);
const END: Timestamp = Timestamp(70);

struct World {
    pool: Arc<Pool>,
    feeds: Feeds,
    states: ReadStates,
}

fn world() -> Arc<World> {
    let pool = Arc::new(Pool::new(1 << 20));
    let first = ReadState {
        sealed: vec![Flushable::new(&pool)],
        ..empty(&pool)
    };
    Arc::new(World {
        states: ReadStates::new(first, Seq(0), Seq(0)),
        feeds: Feeds::default(),
        pool,
    })
}

impl World {
    /// The memtable is flushed, and all in it is dropped.
    fn flush(&self) {
        let missing = Missing {
            flushed: Some(LAST),
            purged: Some(END),
            changes: LAST,
            ends: Some((END, LAST)),
        };
        self.states
            .install(missing, &self.feeds, |before| ReadState {
                active: before.active.clone(),
                sealed: vec![],
                version: before.version.clone(),
            });
    }

    /// The active memtable is sealed, and another takes its place.
    fn seal(&self) {
        self.states
            .install(Missing::NOTHING, &self.feeds, |before| {
                let mut sealed = before.sealed.clone();
                sealed.insert(0, before.active.clone());
                ReadState {
                    active: Flushable::new(&self.pool),
                    sealed,
                    version: before.version.clone(),
                }
            });
    }

    /// A reader that misses the memtable, and asks, is told.
    fn expect_told(&self, has_left: impl Fn(&World) -> bool) {
        let read_state = self.states.load();
        if read_state.sealed.is_empty() {
            assert!(has_left(self), "what is missed was not noted");
        }
    }
}

/// Each note on its own: a reader that asks for one learns nothing from the others.
#[test]
fn what_is_missed_was_noted() {
    let asks: [(&str, fn(&World) -> bool); 4] = [
        ("was it flushed", |world| world.states.flushed() >= LAST),
        ("was it purged", |world| {
            world.states.has_purged_after(Timestamp(END.0 - 1))
        }),
        ("which changes are known", |world| {
            world.states.changes_low_water() >= LAST
        }),
        ("which ends are known", |world| {
            world.feeds.dropped() >= Some(END)
        }),
    ];
    for (what, has_left) in asks {
        check(&format!("{what}, beside a flush"), 3, move || {
            let world = world();
            let reader = {
                let world = world.clone();
                spawn(move || world.expect_told(has_left))
            };
            world.flush();
            reader.join().unwrap();
        });
    }
}

/// A seal and a flush at the same time: each is in the read state in the end, and no reader sees one undone.
#[test]
fn installs_beside_each_other_lose_nothing() {
    check("a seal beside a flush, and a reader", 3, || {
        let world = world();
        let first = world.states.pin();
        let sealing = {
            let world = world.clone();
            spawn(move || world.seal())
        };
        let flushing = {
            let world = world.clone();
            spawn(move || world.flush())
        };
        let holds_old = |read_state: &ReadState| {
            let mut sealed = read_state.sealed.iter();
            sealed.any(|one| Arc::ptr_eq(one, &first.sealed[0]))
        };
        let seen = world.states.pin();
        let later = world.states.pin();
        assert!(holds_old(&seen) || !holds_old(&later), "it came back");
        sealing.join().unwrap();
        flushing.join().unwrap();
        let last = world.states.pin();
        let sealed = |state: &ReadState| !Arc::ptr_eq(&state.active, &first.active);
        assert!(sealed(&last) && !holds_old(&last));
    });
}
