//! Indexes by name over replicas: their entries come, end and go with the documents, whichever replica writes; they are built in
//! steps, which another replica goes on with where one is lost; and none goes by an index that is not whole.

use std::sync::atomic::Ordering;

use ebbtide_documents::{BatchOperation, Conditions, Container, Documents, PartitionKey};

use super::indexes::{entries, indexed, replaced, whole};
use super::replicas::{Meanwhile, two};
use super::{body, key, seconds};

const QUERY: &str = "SELECT VALUE c.id FROM c WHERE c.a = 1";

fn upsert(c: &Container, id: &str, members: &str) {
    c.upsert(&key(), &body(id, members), &Conditions::none())
        .unwrap();
}

fn count(documents: &Documents, c: &Container) -> u64 {
    entries(documents, c).count(..).unwrap()
}

/// By an index, and by a scan.
fn both(c: &Container, a: usize) -> [Vec<String>; 2] {
    [
        whole(c, &format!("SELECT VALUE c.id FROM c WHERE c.a = {a}")),
        whole(
            c,
            &format!("SELECT VALUE c.id FROM c WHERE NOT (NOT (c.a = {a}))"),
        ),
    ]
}

#[test]
fn queries_at_each_replica_go_by_an_index() {
    let (one, two, ..) = two();
    let c = indexed(&one, &["/a/?"], None);
    let other = two.container("db", "c").unwrap();
    for n in 0..40 {
        let at = [&c, &other][n % 2];
        upsert(at, &n.to_string(), &format!(",\"a\":{}", n % 20));
    }
    for at in [&c, &other] {
        assert_eq!(whole(at, QUERY), ["\"1\"", "\"21\""]);
    }
    // Without their entries they find nothing: a scan would.
    entries(&one, &c).clear().unwrap();
    for at in [&c, &other] {
        assert!(whole(at, QUERY).is_empty());
    }
}

/// As on a database of its own, also those that an index gets when it is built.
#[test]
fn entries_have_the_lives_of_their_documents() {
    let (one, two, _, clock) = two();
    let c = indexed(&one, &["/*"], Some(10));
    for (n, members) in ["", ",\"ttl\":-1", ",\"ttl\":3", ",\"ttl\":60"]
        .into_iter()
        .enumerate()
    {
        upsert(&c, &n.to_string(), &format!(",\"a\":1{members}"));
    }
    clock.advance(seconds(2));
    let c = replaced(&two, &["/a/?"], Some(10));
    upsert(&c, "4", ",\"a\":1,\"ttl\":5");
    let same = |most: usize| {
        let entries = Vec::from_iter(entries(&one, &c).iter().map(Result::unwrap));
        let items = Vec::from_iter(c.items().iter().map(Result::unwrap));
        assert_eq!((entries.len(), items.len()), (most, most));
        for (entry, item) in entries.iter().zip(&items) {
            assert!(entry.key().ends_with(item.key()));
            assert_eq!(
                (entry.written_at(), entry.ttl(), entry.expires_at()),
                (item.written_at(), item.ttl(), item.expires_at())
            );
        }
    };
    same(5);
    // Another default is that of both.
    replaced(&one, &["/a/?"], Some(20));
    same(5);
    clock.advance(seconds(8));
    same(3);
    clock.advance(seconds(10));
    same(2);
    c.read_and_touch(&key(), "3").unwrap();
    same(2);
    clock.advance(seconds(50));
    same(2);
    clock.advance(seconds(10));
    same(1);
    assert_eq!(whole(&c, QUERY), ["\"1\""]);
}

/// A replica that has decided a write by the indexes of before decides it anew.
#[test]
fn a_write_that_an_index_overtakes_is_in_it() {
    let (one, two, replica, _) = two();
    let c = indexed(&one, &["/*"], None);
    let overtake = |policy: &'static [&'static str]| {
        let two = two.clone();
        let meanwhile: Meanwhile = Box::new(move || {
            replaced(&two, policy, None);
        });
        *replica.meanwhile.lock().unwrap() = Some(meanwhile);
    };
    overtake(&["/a/?"]);
    upsert(&c, "1", ",\"a\":1,\"b\":1");
    assert_eq!(whole(&c, QUERY), ["\"1\""]);
    assert_eq!(count(&one, &c), 1);
    overtake(&["/a/?", "/b/?"]);
    let upsert = |id: &str| BatchOperation::Upsert(body(id, ",\"a\":1"), Conditions::none());
    c.batch(&key(), &[upsert("2"), upsert("3")]).unwrap();
    assert_eq!(count(&one, &c), 6);
    // Gone and made again, it has other numbers.
    overtake(&["/b/?"]);
    c.touch(&key(), "2", &Conditions::none()).unwrap();
    overtake(&["/a/?", "/b/?"]);
    c.delete(&key(), "2", &Conditions::none()).unwrap();
    assert_eq!(count(&one, &c), 4);
    overtake(&["/a/?"]);
    c.delete_partition(&key()).unwrap();
    assert_eq!(count(&one, &c), 0);
    overtake(&["/*"]);
    c.create(&key(), &body("4", ",\"a\":1")).unwrap();
    assert!(
        !one.engine()
            .containers()
            .contains(&format!("{}#index", c.rid()))
    );
    assert_eq!(whole(&c, QUERY), ["\"4\""]);
}

/// The one that builds is lost after some steps: queries scan, and another one goes on where it was.
#[test]
fn another_replica_goes_on_with_an_index() {
    let (one, two, replica, clock) = two();
    let c = indexed(&one, &["/*"], Some(-1));
    for n in 0..2_000 {
        upsert(&c, &format!("{n:04}"), &format!(",\"a\":{}", n % 10));
    }
    // The replacement, and three steps of 256 documents.
    let commits = replica.commits.load(Ordering::Relaxed);
    replica.is_lost_at.store(commits + 4, Ordering::Relaxed);
    replaced(&one, &["/a/?"], Some(-1));
    let other = two.container("db", "c").unwrap();
    assert_eq!(count(&two, &other), 3 * 256);
    for c in [&c, &other] {
        assert_eq!(c.indexes(), [(vec!["a".to_owned()], false)]);
        assert_eq!(both(c, 3)[0].len(), 200);
    }
    // Among what is built, and beyond it.
    for id in ["0001", "1501"] {
        upsert(&other, id, ",\"a\":3");
        other
            .delete(&key(), &id.replace("01", "02"), &Conditions::none())
            .unwrap();
    }
    clock.advance(seconds(5));
    let not_yet = two.container("db", "c").unwrap();
    assert_eq!(not_yet.indexes(), [(vec!["a".to_owned()], false)]);

    let (third, of_third) = super::replicas::OneOf::over(one.engine());
    clock.advance(seconds(1));
    let before = of_third.commits.load(Ordering::Relaxed);
    let c = third.container("db", "c").unwrap();
    assert_eq!(c.indexes(), [(vec!["a".to_owned()], true)]);
    // Five steps, and that it is whole.
    assert_eq!(of_third.commits.load(Ordering::Relaxed) - before, 6);
    assert_eq!(count(&two, &c), 1_998);
    for c in [&c, &other] {
        let [by_index, by_scan] = both(c, 3);
        assert_eq!((by_index.len(), by_index), (202, by_scan));
    }
    assert_eq!(
        third
            .engine()
            .container("documents")
            .unwrap()
            .prefix("b")
            .count(),
        0
    );
}

/// A replacement returns when its index is whole, also where another replica has come before it in building that; and goes on itself
/// where that one is lost, by the time of the log or, where that stands, by its own.
#[test]
fn a_replacement_waits_for_an_index_that_another_replica_builds() {
    for (is_lost, time_stands) in [(false, false), (true, false), (true, true)] {
        let (one, _, replica, clock) = two();
        let c = indexed(&one, &["/*"], None);
        for n in 0..600 {
            upsert(&c, &format!("{n:03}"), &format!(",\"a\":{}", n % 10));
        }
        let (other, of_other) = super::replicas::OneOf::over(one.engine());
        let step = {
            let (other, clock) = (other.clone(), clock.clone());
            move || {
                clock.advance(seconds(6));
                other.container("db", "c").unwrap();
            }
        };
        let before_the_first_step: Meanwhile = Box::new({
            let (step, of_other) = (step.clone(), of_other.clone());
            move || {
                let commits = of_other.commits.load(Ordering::Relaxed);
                of_other.is_lost_at.store(commits + 1, Ordering::Relaxed);
                step();
            }
        });
        let slot = replica.clone();
        let replacement: Meanwhile =
            Box::new(move || *slot.meanwhile.lock().unwrap() = Some(before_the_first_step));
        *replica.meanwhile.lock().unwrap() = Some(replacement);
        *replica.renewed.lock().unwrap() = Some(match is_lost {
            true if time_stands => Box::new(|| ()),
            true => Box::new(move || clock.advance(seconds(6))),
            false => Box::new({
                let of_other = of_other.clone();
                move || {
                    of_other.is_lost_at.store(usize::MAX, Ordering::Relaxed);
                    step();
                }
            }),
        });
        let replaced = replaced(&one, &["/a/?"], None);
        assert_eq!(replaced.indexes(), [(vec!["a".to_owned()], true)]);
        assert!(replica.renewed.lock().unwrap().is_none());
        assert_eq!(count(&one, &replaced), 600);
        let steps = of_other.commits.load(Ordering::Relaxed);
        // The other one: a step and its loss, or all of them and that it is whole.
        assert_eq!(steps, if is_lost { 2 } else { 5 });
    }
}

/// The policy changes under the one that builds: it builds what is asked for then, or leaves it to the other one.
#[test]
fn a_policy_changes_while_an_index_is_built() {
    let (one, two, replica, _) = two();
    let c = indexed(&one, &["/*"], None);
    for n in 0..600 {
        upsert(
            &c,
            &format!("{n:03}"),
            &format!(",\"a\":{},\"b\":{n}", n % 10),
        );
    }
    for policies in [
        [&["/a/?"][..], &["/b/?"]],
        [&["/a/?", "/b/?"], &["/a/?"]],
        [&["/b/?"], &["/*"]],
        [&["/a/?"], &["/a/?"]],
    ] {
        let two = two.clone();
        let [first, second] = policies;
        let inner: Meanwhile = Box::new(move || {
            replaced(&two, second, None);
        });
        // Before the commit behind the replacement: the first step.
        let slot = replica.clone();
        let outer: Meanwhile = Box::new(move || *slot.meanwhile.lock().unwrap() = Some(inner));
        *replica.meanwhile.lock().unwrap() = Some(outer);
        replaced(&one, first, None);
        assert!(replica.meanwhile.lock().unwrap().is_none());
        assert!(
            c.indexes().iter().all(|(_, is_whole)| *is_whole),
            "{policies:?}"
        );
        let indexes = c.indexes().len() as u64;
        assert_eq!(
            indexes,
            second.iter().filter(|path| **path != "/*").count() as u64
        );
        if indexes > 0 {
            assert_eq!(count(&one, &c), 600 * indexes);
        }
        let [by_index, by_scan] = both(&c, 3);
        assert_eq!((by_index.len(), by_index), (60, by_scan));
    }
}

/// Documents change under the one that builds: what it does not meet as it was has its entries, and no other is left.
#[test]
fn documents_change_while_an_index_is_built() {
    let (one, two, replica, clock) = two();
    let c = indexed(&one, &["/*"], Some(-1));
    for n in 0..300 {
        upsert(
            &c,
            &format!("{n:03}"),
            &format!(",\"a\":{},\"ttl\":{}", n % 10, 3 + n % 2 * 90),
        );
    }
    let other = two.container("db", "c").unwrap();
    let slot = replica.clone();
    let outer: Meanwhile = Box::new(move || {
        let inner: Meanwhile = Box::new(move || {
            upsert(&other, "003", ",\"a\":1");
            other.delete(&key(), "005", &Conditions::none()).unwrap();
            other.touch(&key(), "007", &Conditions::none()).unwrap();
            clock.advance(seconds(3));
        });
        *slot.meanwhile.lock().unwrap() = Some(inner);
    });
    *replica.meanwhile.lock().unwrap() = Some(outer);
    replaced(&one, &["/a/?"], Some(-1));
    assert!(c.indexes()[0].1);
    for a in 0..10 {
        let [by_index, by_scan] = both(&c, a);
        assert_eq!(by_index, by_scan);
    }
    assert_eq!(c.items().count(..).unwrap(), 149);
    assert_eq!(count(&one, &c), 149);
}

/// Also where they are more than a step, and another replica creates one of them anew.
#[test]
fn a_partition_goes_with_its_entries() {
    let (one, two, replica, _) = two();
    let c = indexed(&one, &["/a/?", "/b/?"], None);
    for n in 0..700 {
        upsert(&c, &format!("{n:03}"), ",\"a\":1");
    }
    let kept = br#"{"id":"1","p":"other","a":1}"#;
    c.create(&PartitionKey::from("other"), kept).unwrap();
    let other = two.container("db", "c").unwrap();
    let slot = replica.clone();
    let outer: Meanwhile = Box::new(move || {
        let inner: Meanwhile = Box::new(move || upsert(&other, "300", ",\"a\":1"));
        *slot.meanwhile.lock().unwrap() = Some(inner);
    });
    *replica.meanwhile.lock().unwrap() = Some(outer);
    c.delete_partition(&key()).unwrap();
    assert_eq!(whole(&c, QUERY), ["\"300\"", "\"1\""]);
    assert_eq!(count(&one, &c), 4);
}

/// A container from before indexes were kept over replicas gets them by the first one that opens it, and they are built.
#[test]
fn a_container_without_indexes_gets_them() {
    let (one, two, _, clock) = two();
    let c = indexed(&one, &["/a/?"], None);
    for n in 0..300 {
        upsert(&c, &n.to_string(), ",\"a\":1");
    }
    let engine = one.engine();
    engine.drop_container(format!("{}#index", c.rid())).unwrap();
    let catalog = engine.container("documents").unwrap();
    let record = catalog.prefix("i").next().unwrap().unwrap();
    catalog.delete(record.key()).unwrap();
    assert_eq!(
        two.container("db", "c").unwrap().indexes(),
        [(vec!["a".to_owned()], false)]
    );
    upsert(&c, "new", ",\"a\":1");
    clock.advance(seconds(6));
    assert_eq!(
        two.container("db", "c").unwrap().indexes(),
        [(vec!["a".to_owned()], true)]
    );
    for documents in [&one, &two] {
        let c = documents.container("db", "c").unwrap();
        assert_eq!((whole(&c, QUERY).len(), count(&one, &c)), (301, 301));
    }
}

/// A replica that cannot have entries end with their documents keeps none, and takes every policy and write; once it can, the next
/// handle has the indexes built.
#[test]
fn a_replica_that_cannot_keep_indexes_yet_does_without() {
    let (one, _, replica, clock) = two();
    replica.is_old.store(true, Ordering::Relaxed);
    let c = indexed(&one, &["/a/?"], None);
    for n in 0..300 {
        upsert(&c, &n.to_string(), ",\"a\":1");
    }
    let c = replaced(&one, &["/a/?", "/b/?"], Some(-1));
    upsert(&c, "new", ",\"a\":1");
    assert!(c.indexes().is_empty());
    assert_eq!(whole(&c, QUERY).len(), 301);

    let (later, _) = super::replicas::OneOf::over(one.engine());
    let opened = later.container("db", "c").unwrap();
    let names = |is_whole| ["a", "b"].map(|path| (vec![path.to_owned()], is_whole));
    assert_eq!(opened.indexes(), names(false));
    clock.advance(seconds(6));
    let opened = later.container("db", "c").unwrap();
    assert_eq!(opened.indexes(), names(true));
    assert_eq!(
        (whole(&opened, QUERY).len(), count(&later, &opened)),
        (301, 602)
    );
}
