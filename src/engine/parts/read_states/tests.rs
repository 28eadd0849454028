use super::*;
use crate::base::ItemTtl;
use crate::base::record::{Header, Kind};
use crate::engine::parts::read_state::Flushable;
use crate::expiry::Expire;
use crate::mem::Pool;

/// A read state without runs, whose memtables take their memory from `pool`.
pub(super) fn empty(pool: &Arc<Pool>) -> ReadState {
    ReadState {
        active: Flushable::new(pool),
        sealed: vec![],
        version: Arc::default(),
    }
}

// An install that leaves nothing out takes nothing back; nor does one of a job that judged by an earlier moment.
#[test]
fn what_has_left_stays_noted() {
    let (pool, feeds) = (Arc::new(Pool::new(1 << 20)), Feeds::default());
    let states = ReadStates::new(empty(&pool), Seq(0), Seq(0));
    let missing = Missing {
        flushed: Some(Seq(7)),
        purged: Some(Timestamp(70)),
        changes: Seq(6),
        ends: Some((Timestamp(65), Seq(5))),
    };
    let earlier = Missing {
        purged: Some(Timestamp(60)),
        changes: Seq(4),
        ends: Some((Timestamp(50), Seq(5))),
        ..Missing::NOTHING
    };
    for missing in [missing, earlier, Missing::NOTHING] {
        states.install(missing, &feeds, |_| empty(&pool));
        assert_eq!(states.flushed(), Seq(7));
        assert!(states.has_purged_after(Timestamp(69)));
        assert!(!states.has_purged_after(Timestamp(70)));
        assert_eq!(states.changes_low_water(), Seq(6));
        assert_eq!(feeds.dropped(), Some(Timestamp(65)));
    }
}

// Its reader takes the settings of now: without the command it would find the record alive.
#[test]
fn a_command_stays_while_an_earlier_read_state_needs_it() {
    let (pool, feeds) = (Arc::new(Pool::new(1 << 20)), Feeds::default());
    let states = ReadStates::new(empty(&pool), Seq(0), Seq(0));
    let header = Header {
        kind: Kind::Put,
        seq: Seq(2),
        written_at: Timestamp(0),
        ttl: ItemTtl::Never,
    };
    let earlier = states.pin();
    let memtable = &earlier.active.memtable;
    memtable.insert(header, b"k", b"v").unwrap();
    let told = Settings::default().expire(Expire::All, Timestamp(0), Seq(3));
    assert_eq!(states.prune_commands(told.clone(), Seq::MAX), told);
    states.install(Missing::NOTHING, &feeds, |_| empty(&pool));
    assert_eq!(states.prune_commands(told.clone(), Seq::MAX), told);
    drop(earlier);
    // A reader of the changes since 2 is told of it.
    assert_eq!(states.prune_commands(told.clone(), Seq(2)), told);
    // Settings that are only thought of leave nothing out.
    assert!(states.needed_of(&told, Seq::MAX).commands.is_empty());
    assert_eq!(states.changes_low_water(), Seq(0));
    assert!(states.prune_commands(told, Seq::MAX).commands.is_empty());
    assert_eq!(states.changes_low_water(), Seq(3));
}
