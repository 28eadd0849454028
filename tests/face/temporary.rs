//! Goal: a database in memory works as one in a folder, makes no file, and is another one each time. Method: items through
//! flush, merge and expiry; what a database in a folder does and this one refuses.

use std::time::Duration;

use ebbtide::{Durability, ManualClock, Options, Reads};

use crate::fixture::refused;

fn clock() -> ManualClock {
    ManualClock::new(1_800_000_000_000)
}

#[test]
fn items_live_flush_merge_and_end_in_memory() {
    for reads in [Reads::Map, Reads::Pread] {
        let clock = clock();
        let options = Options::new().clock(clock.clone()).stepped().reads(reads);
        let options = options
            .memtable_bytes(64 << 10)
            .durability(Durability::Sync);
        let db = options.open_temporary().unwrap();
        let c = db.container("c").unwrap();
        let hour = Duration::from_secs(3_600);
        for n in 0..4_000u32 {
            let key = n.to_be_bytes();
            match n % 2 {
                0 => c.put(key, format!("value {n}")).unwrap(),
                _ => c.put_with_ttl(key, format!("value {n}"), hour).unwrap(),
            }
            while db.step().unwrap() {}
        }
        db.flush().unwrap();
        db.sync().unwrap();
        assert!(db.stats().table_bytes > 0);
        assert_eq!(c.iter().count(), 4_000);
        assert_eq!(c.get(7u32.to_be_bytes()).unwrap().unwrap(), "value 7");
        assert!(db.verify().unwrap().faults.is_empty());
        let before = db.stats().table_bytes;
        clock.advance(hour);
        db.compact().unwrap();
        assert_eq!(c.iter().count(), 2_000);
        assert!(db.stats().table_bytes < before * 2 / 3);
        db.drop_container("c").unwrap();
        assert!(db.containers().is_empty());
        db.close().unwrap();
        assert!(c.get("k").unwrap_err().is_closed());
    }
}

#[test]
fn each_is_another_one_without_a_folder() {
    let [one, other] = [(); 2].map(|()| Options::temporary().unwrap());
    one.container("c").unwrap().put("k", "v").unwrap();
    assert_eq!((one.path(), other.path()), (None, None));
    assert!(other.containers().is_empty());
    let folder = tempfile::tempdir().unwrap();
    let db = Options::new().open(folder.path()).unwrap();
    assert_eq!(db.path(), Some(folder.path()));
}

#[test]
fn what_needs_a_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let db = Options::temporary().unwrap();
    refused(db.checkpoint(folder.path().join("copy")), "checkpoint", &[]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    refused(
        Options::new().read_only(true).open_temporary(),
        "read_only",
        &[],
    );
    refused(Options::new().max_runs(1).open_temporary(), "max_runs", &[]);
}
