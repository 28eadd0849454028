use super::*;
use crate::base::ItemTtl;
use crate::base::record::{Header, Kind};
use crate::expiry::Expire;

// Its reader takes the settings of now: without the command it would find the record alive.
#[test]
fn a_command_stays_while_an_earlier_read_state_needs_it() {
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
    let state = ContainerState::new(&record, Version::default(), Arc::new(Pool::new(1 << 20)));
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
    state.install(|_| ReadState {
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
