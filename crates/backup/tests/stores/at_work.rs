//! Goal: calls that end early leave nothing that is in the way of others, a store that can only be read serves who reads,
//! and whoever waits is told for how long. Method: stores in folders that stop a call in the middle of an object, let
//! another call run at a step of the first, or refuse to change.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use ebbtide::Database;
use ebbtide_backup::{Backups, Error, Folder, Later, Store};

use crate::store::Hooked;
use crate::{World, backups_in, keep, names};

/// With a backup of ten items.
fn backed_up() -> World {
    let world = World::new();
    world.write("first", 10);
    world.backup(&world.backups()).unwrap();
    world
}

/// A store whose first object is read or written for ever, which it says.
fn stuck(store: Folder, said: Sender<()>) -> impl Store {
    let said = Mutex::new(said);
    Hooked {
        store,
        before: move |name: &str| {
            if name.starts_with("objects/") {
                said.lock().unwrap().send(()).unwrap();
                loop {
                    thread::park();
                }
            }
        },
    }
}

#[test]
fn what_is_given_up_is_in_nobodys_way() {
    type Call = fn(&Backups, &Database, &Path) -> ebbtide_backup::Result<()>;
    let calls: [Call; 3] = [
        |backups, db, folder| backups.backup(db, &folder.join("db")).map(drop),
        |backups, _, folder| {
            let restored = backups.restore(None, &folder.join("to"), Later::Tell);
            restored.map(drop)
        },
        |backups, _, folder| backups.prove(&folder.join("store")).map(drop),
    ];
    for call in calls {
        let world = backed_up();
        world.write("second", 10);
        let (said, is_stuck) = channel();
        let backups = Arc::new(backups_in(stuck(world.store(), said)));
        let (working, db) = (Arc::clone(&backups), world.db.clone());
        let folder = world.folder.path().to_owned();
        thread::spawn(move || call(&working, &db, &folder));
        is_stuck.recv_timeout(Duration::from_secs(60)).unwrap();
        let refused = world.backups().prune(keep(1));
        assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
        assert!(names(world.folder.path()).len() > 2, "a scratch folder");
        backups.give_up();
        world.expect_nothing_left();
        world.backups().prune(keep(1)).unwrap();
        assert_eq!(world.backup(&world.backups()).unwrap().number, 2);
        assert_eq!(world.items_in(&world.backups(), 2), 20);
        world.expect_nothing_left();
    }
}

/// Method: a restore at every operation of a prune that finds a backup at work.
#[test]
fn a_prune_that_is_refused_is_in_nobodys_way() {
    let world = backed_up();
    let lease = "leases/use-99999999999999-1.0";
    world.store().put(lease, &mut [].as_slice()).unwrap();
    let mut at = 0;
    loop {
        let watched = world.watched();
        let (backups, to) = (world.backups(), world.path("restored"));
        watched.meanwhile(at, move || {
            backups.restore(None, &to, Later::Tell).unwrap();
            fs::remove_dir_all(&to).unwrap();
        });
        let refused = backups_in(watched.clone()).prune(keep(1));
        assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
        if !watched.is_over() {
            break;
        }
        at += 1;
    }
    assert!(at > 0);
}

/// Method: both have written a lease before either looks for others.
#[test]
fn a_restore_waits_for_a_prune_that_gives_way() {
    let world = backed_up();
    let watched = world.watched();
    let (backups, to) = (world.backups(), world.path("restored"));
    let leases = world.path("store/leases");
    let restoring = Arc::new(Mutex::new(None));
    let begun = Arc::clone(&restoring);
    // Before it has looked for the first time, written its own, and looks again.
    watched.meanwhile(2, move || {
        let restore = move || backups.restore(None, &to, Later::Tell).map(drop);
        *begun.lock().unwrap() = Some(thread::spawn(restore));
        while !names(&leases).iter().any(|name| name.starts_with("use")) {
            thread::yield_now();
        }
    });
    let refused = backups_in(watched.clone()).prune(keep(1));
    assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
    assert!(watched.is_over());
    let restoring = restoring.lock().unwrap().take().unwrap();
    restoring.join().unwrap().unwrap();
}

#[test]
fn a_lease_says_until_when_it_holds_and_can_be_broken() {
    let world = backed_up();
    let name = "use-99999999999999-1.0";
    let lease = format!("leases/{name}");
    world.store().put(&lease, &mut [].as_slice()).unwrap();
    let Err(busy) = world.backups().prune(keep(1)) else {
        panic!("it pruned");
    };
    let said = busy.to_string();
    // The clocks of two machines may differ by five minutes.
    assert!(
        said.contains(name) && said.contains("until 5138-11-16T09:51:39.999Z"),
        "{said}"
    );
    let Error::Busy { until, .. } = busy else {
        panic!("{busy:?}");
    };
    assert!(until > SystemTime::now());
    assert_eq!(world.backups().break_leases().unwrap(), 1);
    assert_eq!(world.backups().break_leases().unwrap(), 0);
    world.backups().prune(keep(1)).unwrap();
    world.expect_nothing_left();
}

/// Method: the lease of a backup is broken at every operation.
#[test]
fn a_backup_whose_lease_was_broken_is_whole_or_none() {
    let world = backed_up();
    let (mut at, mut broken) = (0, 0);
    world.write("second", 10);
    loop {
        let watched = world.watched();
        let backups = world.backups();
        watched.meanwhile(at, move || {
            if backups.break_leases().unwrap() > 0 {
                // The prune may remove objects that the other process was about to name.
                backups.prune(keep(1)).unwrap();
            }
        });
        let items = world.items.count(..).unwrap();
        match world.backup(&backups_in(watched.clone())) {
            Ok(made) => assert_eq!(world.items_in(&world.backups(), made.number), items),
            Err(error) => {
                assert!(error.to_string().contains("broke the lease"), "{error}");
                broken += 1;
            }
        }
        world.expect_nothing_left();
        if !watched.is_over() {
            break;
        }
        at += 1;
    }
    assert!(broken > 3, "{broken} of {at}");
}

/// A store in which nothing can be changed.
struct ReadOnly(Folder, io::ErrorKind);

impl Store for ReadOnly {
    fn put(&self, _: &str, _: &mut dyn Read) -> io::Result<bool> {
        Err(self.1.into())
    }

    fn get(&self, name: &str) -> io::Result<Box<dyn Read>> {
        self.0.get(name)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.0.list(folder)
    }

    fn delete(&self, _: &str) -> io::Result<()> {
        Err(self.1.into())
    }
}

#[test]
fn a_store_that_can_only_be_read_is_restored_and_proved() {
    let world = backed_up();
    for kind in [
        io::ErrorKind::ReadOnlyFilesystem,
        io::ErrorKind::PermissionDenied,
    ] {
        let backups = backups_in(ReadOnly(world.store(), kind));
        assert_eq!(world.items_in(&backups, 1), 10);
        // Nothing can be made beside it, either.
        let beside = match cfg!(target_os = "linux") {
            true => PathBuf::from("/sys/store"),
            false => world.path("store"),
        };
        assert_eq!(backups.prove(&beside).unwrap().backups, 1);
        let refused = world.backup(&backups);
        assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
        let refused = backups.prune(keep(1));
        assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
        // A prune by somebody else keeps it away, as always.
        let lease = "leases/prune-99999999999999-1.0";
        world.store().put(lease, &mut [].as_slice()).unwrap();
        let refused = backups.restore(None, &world.path("to"), Later::Tell);
        assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
        world.store().delete(lease).unwrap();
    }
    let other = backups_in(ReadOnly(world.store(), io::ErrorKind::Other));
    let refused = other.restore(None, &world.path("to"), Later::Tell);
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
}

#[test]
fn a_missing_object_may_have_been_pruned_where_no_lease_forbids_it() {
    let world = backed_up();
    for object in names(&world.path("store/objects")) {
        fs::remove_file(world.path("store/objects").join(object)).unwrap();
    }
    let kind = io::ErrorKind::ReadOnlyFilesystem;
    let backups = backups_in(ReadOnly(world.store(), kind));
    let refused = backups.restore(None, &world.path("to"), Later::Tell);
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("pruned meanwhile"), "{said}");
    let refused = world
        .backups()
        .restore(None, &world.path("to"), Later::Tell);
    let said = refused.unwrap_err().to_string();
    assert!(!said.contains("pruned meanwhile"), "{said}");
}

#[test]
fn a_fault_in_a_copy_is_not_said_of_a_database() {
    let world = backed_up();
    // Tables vanish as soon as the copy is whole: before the first object is stored.
    let scratch = world.path("db.ebbtide-scratch");
    let removed = scratch.clone();
    let backups = Backups::open(Hooked {
        store: world.store(),
        before: move |name: &str| {
            if name.starts_with("leases/") {
                let _ = fs::remove_dir_all(removed.join("tables"));
            }
        },
    });
    world.write("second", 10);
    let said = world.backup(&backups).unwrap_err().to_string();
    assert!(said.contains("ebbtide-scratch"), "{said}");
    assert!(!said.contains("repair"), "{said}");
    world.expect_nothing_left();
}
