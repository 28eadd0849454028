//! Goal: whatever fails while backups are made, removed or restored, earlier backups stay whole, the same call succeeds
//! later, and nothing is left behind. Method: a store that fails at its n-th operation, once or from then on as for a
//! killed process, and in the middle of an object, for every n; or that does something else in between.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::time::Duration;

use ebbtide_backup::{Error, Folder, Keep, Later, Store};

use crate::store::Fault;
use crate::{World, backups_in, keep, names, small};

/// As if the leases had run out, and the unfinished objects were old.
fn let_leases_end(world: &World) {
    for folder in ["store/leases", "store/tmp"] {
        for name in names(&world.path(folder)) {
            fs::remove_file(world.path(folder).join(name)).unwrap();
        }
    }
}

/// Nothing but what the backups need is in the store, and nothing beside the database.
fn expect_clean(world: &World) {
    let mut named = BTreeSet::new();
    for number in names(&world.path("store/backups")) {
        let text = fs::read_to_string(world.path("store/backups").join(number)).unwrap();
        let json: serde_json::Value =
            serde_json::from_str(text.split_once('\n').unwrap().1).unwrap();
        for file in json["files"].as_array().unwrap() {
            named.insert(file["sha256"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(names(&world.path("store/objects")), Vec::from_iter(named));
    world.expect_nothing_left();
}

#[test]
fn a_backup_of_what_has_not_changed_sends_no_table() {
    let world = World::new();
    world.write("first", 2000);
    let backups = world.backups();
    let first = world.backup(&backups).unwrap();
    assert!(first.uploaded_bytes > 1_000_000, "{first:?}");
    let second = world.backup(&backups).unwrap();
    assert!(second.uploaded_bytes < 100_000, "{second:?}");
    world.write("second", 200);
    let third = world.backup(&backups).unwrap();
    assert!(
        (100_000..400_000).contains(&third.uploaded_bytes),
        "{third:?}"
    );
    assert_eq!(world.items_in(&backups, first.number), 2000);
    assert_eq!(world.items_in(&backups, second.number), 2000);
    assert_eq!(world.items_in(&backups, third.number), 2200);
    let listed = backups.list().unwrap();
    let numbers: Vec<u64> = listed.iter().map(|backup| backup.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    let pruned = backups.prune(keep(1)).unwrap();
    assert_eq!(pruned.backups, 2);
    assert_eq!(world.items_in(&backups, third.number), 2200);
    expect_clean(&world);
}

#[test]
fn a_follower_is_backed_up_beside_its_writer() {
    let world = World::new();
    world.write("first", 20);
    world.items.put("unflushed", "v").unwrap();
    let follower = small().follow(world.path("db")).unwrap();
    let backups = world.backups();
    let report = backups.backup(&follower, &world.path("db")).unwrap();
    assert_eq!(world.items_in(&backups, report.number), 21);
    expect_clean(&world);
}

#[test]
fn a_backup_that_fails_at_any_operation_harms_nothing() {
    for fault in [Fault::Once, Fault::Stop, Fault::Torn] {
        let mut at = 0;
        loop {
            let world = World::new();
            world.write("first", 20);
            let store = world.watched();
            let backups = backups_in(store.clone());
            world.backup(&backups).unwrap();
            world.write("second", 20);
            store.fail(at, fault);
            let done = world.backup(&backups);
            if !store.heal() {
                assert!(done.is_ok());
                break;
            }
            let what = format!("{fault:?} at operation {at}: {done:?}");
            assert_eq!(world.items_in(&backups, 1), 20, "{what}");
            let again = world.backup(&backups).unwrap();
            assert_eq!(world.items_in(&backups, again.number), 40, "{what}");
            let_leases_end(&world);
            backups.prune(keep(2)).unwrap();
            assert_eq!(world.items_in(&backups, again.number), 40, "{what}");
            expect_clean(&world);
            at += 1;
        }
        assert!(at > 8, "{fault:?}: only {at} operations failed");
    }
}

#[test]
fn a_prune_that_fails_at_any_operation_harms_nothing() {
    for fault in [Fault::Once, Fault::Stop] {
        let mut at = 0;
        loop {
            let world = World::new();
            let store = world.watched();
            let backups = backups_in(store.clone());
            for round in ["a", "b", "c"] {
                world.write(round, 10);
                world.backup(&backups).unwrap();
                backups.ledger(&world.db, &world.path("db")).unwrap();
            }
            store.fail(at, fault);
            let done = backups.prune(keep(1));
            if !store.heal() {
                assert!(done.is_ok());
                break;
            }
            let_leases_end(&world);
            for backup in backups.list().unwrap() {
                assert_eq!(backup.number % 2, 1);
                let expected = (backup.number + 1) * 5;
                assert_eq!(world.items_in(&backups, backup.number), expected);
            }
            backups.prune(keep(1)).unwrap();
            assert_eq!(world.items_in(&backups, 5), 30);
            expect_clean(&world);
            at += 1;
        }
        assert!(at > 10, "{fault:?}: only {at} operations failed");
    }
}

#[test]
fn a_restore_that_fails_at_any_operation_leaves_no_folder() {
    let world = World::new();
    world.write("first", 20);
    let store = world.watched();
    let backups = backups_in(store.clone());
    world.backup(&backups).unwrap();
    let mut at = 0;
    loop {
        store.fail(at, Fault::Once);
        let to = world.path("restored");
        let done = backups.restore(None, &to, Later::Tell);
        let has_failed = store.heal();
        let_leases_end(&world);
        if !has_failed {
            done.unwrap();
            fs::remove_dir_all(&to).unwrap();
            break;
        }
        // A lease that cannot be given back fails nothing.
        assert_eq!(to.exists(), done.is_ok(), "{at}");
        if done.is_ok() {
            fs::remove_dir_all(&to).unwrap();
        }
        expect_clean(&world);
        at += 1;
    }
    assert!(at > 6, "only {at} operations failed");
}

#[test]
fn nothing_is_removed_under_a_restore_or_a_backup() {
    let world = World::new();
    let store = world.watched();
    let backups = backups_in(store.clone());
    for round in ["a", "b"] {
        world.write(round, 10);
        world.backup(&backups).unwrap();
    }
    for at in 2..8 {
        let other = world.backups();
        store.meanwhile(at, move || {
            let refused = other.prune(keep(1));
            assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
        });
        assert_eq!(world.items_in(&backups, 1), 10);
        assert!(store.is_over(), "{at}");
        let other = world.backups();
        store.meanwhile(at, move || {
            let refused = other.prune(keep(1));
            assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
        });
        world.backup(&backups).unwrap();
        assert!(store.is_over(), "{at}");
    }
    let (other, to) = (world.backups(), world.path("restored"));
    store.meanwhile(3, move || {
        let refused = other.restore(None, &to, Later::Tell);
        assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
    });
    backups.prune(keep(1)).unwrap();
    assert!(store.is_over());
    expect_clean(&world);
}

#[test]
fn damage_is_found() {
    let world = World::new();
    world.write("first", 20);
    let backups = world.backups();
    world.backup(&backups).unwrap();
    let proof = backups.prove(&world.path("db")).unwrap();
    assert_eq!((proof.backups, proof.oldest_expired), (1, None));
    for folder in ["store/objects", "store/backups"] {
        for name in names(&world.path(folder)) {
            let path = world.path(folder).join(name);
            let sound = fs::read(&path).unwrap();
            if sound.is_empty() {
                continue;
            }
            let mut damaged = sound.clone();
            let middle = damaged.len() / 2;
            damaged[middle] ^= 1;
            fs::write(&path, &damaged).unwrap();
            let found = backups.prove(&world.path("db"));
            assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
            let to = world.path("restored");
            let refused = backups.restore(None, &to, Later::Tell);
            assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
            assert!(!to.exists());
            fs::write(&path, &sound).unwrap();
        }
    }
    backups.prove(&world.path("db")).unwrap();
    expect_clean(&world);
}

/// Also where what is changed is read and means something else.
#[test]
fn a_manifest_that_was_changed_is_found() {
    let world = World::new();
    let backups = world.backups();
    world.backup(&backups).unwrap();
    let path = world.path("store/backups").join(format!("{:020}", 1));
    let text = fs::read_to_string(&path).unwrap();
    let changed = text.replace("\"taken_at\":1", "\"taken_at\":2");
    assert_ne!(changed, text);
    fs::write(&path, changed).unwrap();
    let found = backups.list();
    assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
    let found = backups.prune(keep(1));
    assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
}

#[test]
fn a_name_is_taken_once() {
    let folder = testkit::scratch();
    let store = Folder::new(folder.path().join("store"));
    assert!(store.put("backups/1", &mut &b"first"[..]).unwrap());
    assert!(!store.put("backups/1", &mut &b"second"[..]).unwrap());
    let mut read = vec![];
    store
        .get("backups/1")
        .unwrap()
        .read_to_end(&mut read)
        .unwrap();
    assert_eq!(read, b"first");
    assert_eq!(store.list("backups").unwrap(), ["1"]);
}

#[test]
fn a_folder_that_is_not_empty_is_not_restored_into() {
    let world = World::new();
    let backups = world.backups();
    let none = backups.restore(None, &world.path("restored"), Later::Tell);
    assert!(matches!(none, Err(Error::NotFound { number: None })));
    world.backup(&backups).unwrap();
    let none = backups.restore(Some(7), &world.path("restored"), Later::Tell);
    assert!(matches!(none, Err(Error::NotFound { number: Some(7) })));
    let refused = backups.restore(None, &world.path("db"), Later::Tell);
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    fs::create_dir(world.path("empty")).unwrap();
    backups
        .restore(None, &world.path("empty"), Later::Tell)
        .unwrap();
    assert!(small().open(world.path("empty")).is_ok());
}

#[test]
fn backups_go_by_their_age() {
    let world = World::new();
    let backups = world.backups();
    world.backup(&backups).unwrap();
    world.backup(&backups).unwrap();
    let by_age = |age| Keep {
        younger_than: Some(age),
        ..Keep::default()
    };
    let none = backups.prune(by_age(Duration::from_secs(86_400))).unwrap();
    assert_eq!(none.backups, 0);
    std::thread::sleep(Duration::from_millis(5));
    let one = backups.prune(by_age(Duration::ZERO)).unwrap();
    assert_eq!(one.backups, 1);
    assert_eq!(backups.list().unwrap()[0].number, 2);
    expect_clean(&world);
}
