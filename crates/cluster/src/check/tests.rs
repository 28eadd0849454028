//! Goal: a digest shows every part of an item, and no wear; and a node stops only by a majority.

use ebbtide::{Database, ManualClock, Options};

use super::*;

const START: u64 = 1_800_000_000;

fn moment(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(START + seconds)
}

/// One history, and a change in its middle.
fn history(is_worn: bool, change: impl Fn(&Database)) -> (tempfile::TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::new().given_time();
    if is_worn {
        options = options.memtable_bytes(64 << 10);
    }
    let db = options.open(folder.path()).unwrap();
    db.advance_to(moment(0)).unwrap();
    let (c, d) = (db.container("c").unwrap(), db.container("d").unwrap());
    c.set_default_ttl(Duration::from_secs(1_000).into())
        .unwrap();
    for n in 0..300 {
        let ttl = Duration::from_secs(1 + n % 50);
        c.put_with_ttl(format!("{n:03}"), vec![b'v'; 500], ttl)
            .unwrap();
        if is_worn && n % 100 == 0 {
            db.flush().unwrap();
        }
    }
    change(&db);
    c.put("inherits", "v").unwrap();
    d.put("never", "v").unwrap();
    db.advance_to(moment(30)).unwrap();
    if is_worn {
        db.set_purge_limit(moment(30)).unwrap();
        db.compact().unwrap();
    }
    (folder, db)
}

fn digest_of(db: &Database, at: SystemTime) -> u64 {
    let names = db.containers();
    let default = |name: String| {
        let default = db.container(&name).unwrap().default_ttl();
        (name, default)
    };
    let defaults: Vec<_> = names.into_iter().map(default).collect();
    digest(&db.snapshot_at(at), &defaults, || true).unwrap()
}

fn put(db: &Database, key: &str, value: &str, seconds: u64) {
    let c = db.container("c").unwrap();
    c.put_with_ttl(key, value, Duration::from_secs(seconds))
        .unwrap();
}

#[test]
fn wear_does_not_show_and_each_change_does() {
    let at = moment(30);
    let one = |db: &Database| {
        let c = db.container("c").unwrap();
        c.put_with_ttl("k", "value", Duration::from_secs(600))
            .unwrap();
    };
    let (_folder, plain) = history(false, one);
    let same = digest_of(&plain, at);
    assert_eq!(same, digest_of(&plain, at));
    let (_other, worn) = history(true, one);
    assert_eq!(same, digest_of(&worn, at));
    type Change = fn(&Database);
    let changes: [(&str, Change); 8] = [
        ("key", |db| put(db, "l", "value", 600)),
        ("value", |db| put(db, "k", "valuf", 600)),
        ("where a value begins", |db| put(db, "kv", "alue", 600)),
        ("ttl", |db| put(db, "k", "value", 601)),
        ("no ttl", |db| {
            db.container("c").unwrap().put("k", "value").unwrap();
        }),
        ("container", |db| {
            let d = db.container("d").unwrap();
            d.put_with_ttl("k", "value", Duration::from_secs(600))
                .unwrap();
        }),
        ("version", |db| {
            put(db, "k", "value", 600);
            put(db, "k", "value", 600);
        }),
        ("default", |db| {
            put(db, "k", "value", 600);
            let d = db.container("d").unwrap();
            d.set_default_ttl(Duration::from_secs(9_999).into())
                .unwrap();
        }),
    ];
    for (what, change) in changes {
        let (_folder, db) = history(false, change);
        assert_ne!(same, digest_of(&db, at), "{what}");
    }
    // It is of one moment.
    assert_ne!(same, digest_of(&plain, moment(31)));
}

#[test]
fn one_value_alone_shows() {
    // All versions are the same: nothing but the value tells.
    let with = |value: &'static str| {
        history(false, move |db| {
            db.container("d").unwrap().put("k", value).unwrap();
        })
    };
    let ((_one, one), (_two, two)) = (with("a"), with("b"));
    assert_ne!(digest_of(&one, moment(30)), digest_of(&two, moment(30)));
}

fn checked(index: u64, digests: &[Option<u64>]) -> Checked {
    let node = |(at, digest): (usize, &Option<u64>)| CheckedNode {
        id: at as u64 + 1,
        votes: at < 3,
        digest: digest.ok_or_else(|| "it is away".to_owned()),
    };
    Checked {
        at: Token { index, at_ms: 1 },
        nodes: digests.iter().enumerate().map(node).collect(),
    }
}

#[test]
fn the_majority_is_of_all_that_vote() {
    let of = |digests: &[Option<u64>]| {
        let checked = checked(1, digests);
        (checked.agree(), checked.differing(), checked.absent())
    };
    assert_eq!(of(&[Some(7), Some(7), Some(7)]), (true, vec![], vec![]));
    assert_eq!(of(&[Some(7), Some(8), Some(7)]), (false, vec![2], vec![]));
    assert_eq!(of(&[Some(7), None, Some(7)]), (true, vec![], vec![2]));
    assert_eq!(of(&[Some(7), None, Some(8)]), (false, vec![], vec![2]));
    assert_eq!(of(&[Some(7), Some(8), Some(9)]), (false, vec![], vec![]));
    assert_eq!(of(&[None, None, None]), (true, vec![], vec![1, 2, 3]));
    // One that catches up counts for nothing, and stops like the others.
    let learner = of(&[Some(7), Some(7), None, Some(8)]);
    assert_eq!(learner, (false, vec![4], vec![3]));
    assert!(of(&[Some(7), Some(8), None, Some(8)]).1.is_empty());
    assert!(of(&[Some(7), None, None, Some(8)]).1.is_empty());
}

#[test]
fn a_node_stops_by_its_own_digest_and_stays_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(START * 1_000);
    let open = || Checks::open(folder.path(), Arc::new(clock.clone())).unwrap();
    let checks = open();
    assert!(!checks.is_due(Duration::from_secs(1)));
    clock.advance(Duration::from_secs(1));
    assert!(checks.is_due(Duration::from_secs(1)));
    let bad = checked(5, &[Some(7), Some(8), Some(7)]);
    assert!(
        !checks.heard(bad.clone(), 2),
        "it has no digest of that place"
    );
    lock(&checks.state).found.insert(5, Digested::Done(7));
    assert!(!checks.heard(bad.clone(), 2), "its digest is another one");
    assert_eq!(checks.last(), Some(bad.clone()));
    lock(&checks.state).found.insert(5, Digested::Done(8));
    assert!(!checks.heard(bad.clone(), 1));
    assert!(!checks.heard(checked(5, &[Some(7), Some(8), None]), 2));
    assert_eq!(open().differs(), None);
    assert!(checks.heard(bad.clone(), 2));
    assert_eq!((checks.differs(), open().differs()), (Some(5), Some(5)));
    lock(&checks.state).found.insert(6, Digested::Done(7));
    let good = checked(6, &[Some(7), Some(7), Some(7)]);
    assert!(!checks.heard(good.clone(), 2));
    assert!(!checks.heard(checked(4, &[None, None, None]), 2));
    assert_eq!((checks.last(), checks.differs()), (Some(good), Some(5)));
}
