//! Goal: the main path works on the real disk. Method: write, read, flush, reopen, expire, reclaim.

use std::time::Duration;

use ebbtide::{Batch, DefaultTtl, ManualClock, Options, Ttl};

#[test]
fn items_live_and_die_through_flush_and_reopen() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(1_800_000_000_000);
    let options = Options::new()
        .clock(clock.clone())
        .reclaim_within(Duration::from_secs(5))
        .stepped();
    let db = options.open(folder.path()).unwrap();
    let c = db.container("c").unwrap();
    for n in 0..1_000u32 {
        c.put_with_ttl(
            n.to_be_bytes(),
            format!("value {n}"),
            Ttl::After(Duration::from_secs(10)),
        )
        .unwrap();
    }
    c.put("stays", "here").unwrap();
    assert!(c.create("new", "1", Ttl::Inherit).unwrap());
    assert!(!c.create("new", "2", Ttl::Inherit).unwrap());
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    assert_eq!(c.iter().count(), 1_002);
    assert_eq!(c.iter().rev().count(), 1_002);
    db.flush().unwrap();
    assert_eq!(c.get(7u32.to_be_bytes()).unwrap().unwrap(), "value 7");
    assert_eq!(c.iter().count(), 1_002);
    db.write(Batch::new().put(&c, "a", "1").delete(&c, "new"))
        .unwrap();
    drop((c, db));
    let db = options.open(folder.path()).unwrap();
    let c = db.container("c").unwrap();
    assert_eq!(c.default_ttl(), DefaultTtl::NoDefault);
    assert_eq!(c.iter().count(), 1_002, "{}", db.describe());
    let snapshot = db.snapshot();
    clock.advance(Duration::from_secs(10));
    assert_eq!(c.iter().count(), 2);
    assert_eq!(snapshot.container("c").unwrap().iter().rev().count(), 2);
    clock.advance(Duration::from_secs(10));
    while db.step().unwrap() {}
    assert_eq!(c.iter().count(), 2);
    println!("{}\n{:#?}", db.describe(), db.stats());
    assert_eq!(db.stats().expired_bytes, 0);
    db.compact().unwrap();
    assert_eq!(c.stats().live_items, 2);
}
