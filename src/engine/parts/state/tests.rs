use super::*;
use crate::base::ItemTtl;
use crate::base::record::{Header, Kind};
use crate::expiry::Expire;

fn fresh() -> ContainerState {
    let record = ContainerRecord {
        id: ContainerId(1),
        name: "c".into(),
        created: Seq(1),
        compression: Compression::None,
        settings: Settings::default(),
        settings_seq: Seq(1),
        quota: None,
        flushed: Seq(0),
        runs: vec![],
        range_deletes: vec![],
        changes_from: Seq(0),
        keep_expired: 0,
        ends_dropped: Timestamp(0),
    };
    ContainerState::new(&record, Version::default(), Arc::new(Pool::new(1 << 20)))
}

// A reader loads the read state first: what it misses there it must know to have left, at whatever moment it comes.
#[test]
fn what_leaves_is_noted_before_it_is_missed() {
    let state = fresh();
    let leaves = Leaves {
        flushed: Some(Seq(7)),
        purged: Some(Timestamp(70)),
    };
    state.install(leaves, |before| {
        assert_eq!(state.flushed(), Seq(7));
        assert!(state.has_purged_after(Timestamp(69)) && !state.has_purged_after(Timestamp(70)));
        ReadState {
            active: before.active.clone(),
            sealed: vec![],
            version: Arc::default(),
        }
    });
    // What leaves nothing takes nothing back; nor does a job that judged by an earlier moment.
    let earlier = Leaves {
        purged: Some(Timestamp(60)),
        ..Leaves::NOTHING
    };
    state.install(earlier, |_| ReadState {
        active: state.new_flushable(),
        sealed: vec![],
        version: Arc::default(),
    });
    assert_eq!(state.flushed(), Seq(7));
    assert!(state.has_purged_after(Timestamp(69)));
}

// Its reader takes the settings of now: without the command it would find the record alive.
#[test]
fn a_command_stays_while_an_earlier_read_state_needs_it() {
    let state = fresh();
    let header = Header {
        kind: Kind::Put,
        seq: Seq(2),
        written_at: Timestamp(0),
        ttl: ItemTtl::Never,
    };
    let memtable = state.pin();
    memtable.active.memtable.insert(header, b"k", b"v").unwrap();
    let told = Settings::default().expire(Expire::All, Timestamp(0), Seq(3));
    assert_eq!(state.as_needed(told.clone(), Seq::MAX), told);
    state.install(Leaves::NOTHING, |_| ReadState {
        active: state.new_flushable(),
        sealed: vec![],
        version: Arc::default(),
    });
    assert_eq!(state.as_needed(told.clone(), Seq::MAX), told);
    drop(memtable);
    // Whoever reads the changes since 2 is told of it.
    assert_eq!(state.as_needed(told.clone(), Seq(2)), told);
    // Settings that are only thought of leave nothing out.
    assert!(state.needed_of(&told, Seq::MAX).commands.is_empty());
    assert_eq!(state.changes_from(), Seq(0));
    assert!(state.as_needed(told, Seq::MAX).commands.is_empty());
    assert_eq!(state.changes_from(), Seq(3));
}
