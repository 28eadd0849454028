//! Backups from a shell.

use ebbtide::Options;

use super::*;

#[test]
fn a_backup_is_restored_without_what_expired_since() {
    let world = World::new();
    world.ok("put db c k v");
    let made = world.told("backup db store");
    assert!(made.starts_with("backup 1 of db in store: "), "{made}");
    world.told("restore store first");
    assert_eq!(world.ok("get first c k"), "v");

    world.told("expire db c --all --yes");
    let ledger = world.told("backup ledger db store");
    assert_eq!(ledger, "ledger 2 of db in store");
    let told = world.told("restore store told --at 1");
    assert!(told.contains("expired since is gone (1 ledger"), "{told}");
    world.fails(1, "get told c k");
    let loud = world.told("restore store was --as-it-was");
    assert!(loud.contains("AS IT WAS"), "{loud}");
    assert_eq!(world.ok("get was c k"), "v");

    world.ok("put db c later v");
    let json_of = |args: &[&str]| json(&world.ok(args));
    let again = json_of(&["backup", "db", "store", "--json"]);
    assert_eq!(again["backup"], 3);
    let listed = world.ok("backups store --json");
    let numbers: Vec<Value> = listed
        .lines()
        .map(|line| json(line)["backup"].clone())
        .collect();
    assert_eq!(numbers, [1, 3]);
    let table = world.ok("backups store");
    assert!(
        table.starts_with("Backup") && table.lines().count() == 3,
        "{table}"
    );
    assert_eq!(
        json_of(&["backup", "prove", "store", "--json"])["backups"],
        2
    );
    let pruned = json_of(&["backup", "prune", "store", "--keep", "1", "--json"]);
    has(&pruned, r#"{"backups":1,"ledgers":1}"#);
}

#[test]
fn what_is_wrong_with_a_backup_is_said_in_a_line() {
    let world = World::new();
    world.ok("put db c k v");
    let why = world.fails(2, "backup db nowhere://bucket/db");
    assert!(why.starts_with("nowhere://bucket/db: "), "{why}");
    let why = world.fails(2, "backup db store --skip-ending-within soon");
    assert!(why.contains("time soon is not allowed: "), "{why}");
    for of_none in [
        "restore store to",
        "backups store",
        "backup prove store",
        "backup prune store --keep 1",
    ] {
        assert_eq!(world.fails(1, of_none), "there is no backup in store");
        assert!(!world.folder.path().join("store").exists(), "{of_none:?}");
    }
    for inside in ["db", "db/store"] {
        let why = world.fails(2, &["backup", "db", inside]);
        assert!(why.ends_with("lies in db: name a folder outside"), "{why}");
        world.fails(2, &["backup", "ledger", "db", inside]);
    }
    world.told("backup db store");
    world.fails(2, "restore store store/to");
    world.ok("put other c k v");
    for of_another in ["backup other store", "backup ledger other store"] {
        let why = world.fails(2, of_another);
        assert!(why.contains("backups of another database"), "{why}");
    }
    let why = world.fails(1, "restore store to --at 9");
    assert!(why.starts_with("there is no backup 9"), "{why}");
    let why = world.fails(2, "restore store db");
    assert!(why.contains("is not empty"), "{why}");
    world.fails(2, "backup missing store");
    world.fails(2, "backup prune store");
    world.fails(2, "backup db");
}

#[test]
fn what_ends_soon_is_left_out_on_request() {
    let world = World::new();
    world.ok("put db c soon v --ttl 600");
    world.ok("put db c late v --ttl -1");
    let made = world.told("backup db store --skip-ending-within 1h30m --rate 64MiB --wait 1m");
    assert!(made.contains("were left out"), "{made}");
    world.told("restore store to");
    assert_eq!(world.ok("get to c late"), "v");
    world.fails(1, "get to c soon");
    world.told("backup db store");
    world.told("restore store whole");
    assert_eq!(world.ok("get whole c soon"), "v");
}

#[test]
fn nothing_is_stored_among_the_files_of_others() {
    let world = World::new();
    world.ok("put db c k v");
    std::fs::create_dir_all(world.path("mine/tmp")).unwrap();
    world.write("mine/notes", "");
    for command in ["backup db mine", "backup ledger db mine"] {
        let why = world.fails(2, command);
        assert!(
            why.starts_with("mine holds other things and no backups"),
            "{why}"
        );
    }
    assert_eq!(std::fs::read_dir(world.path("mine")).unwrap().count(), 2);
    // An empty folder becomes a store, and stays one beside what others put there.
    std::fs::create_dir(world.path("store")).unwrap();
    world.told("backup db store");
    world.write("store/notes", "");
    world.told("backup db store");
    // A first backup that was killed early has left some of its folders.
    for folder in ["leases", "tmp", "objects"] {
        std::fs::create_dir_all(world.path("begun").join(folder)).unwrap();
    }
    world.told("backup db begun");
}

/// As a checkpoint of a cluster's state is, of which docs/cluster.md has a backup made.
#[test]
fn a_database_whose_time_is_given_is_backed_up_at_that_time() {
    let world = World::new();
    let time = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let db = Options::new().given_time().open(world.path("db")).unwrap();
    db.advance_to(time).unwrap();
    let c = db.container("c").unwrap();
    c.put_with_ttl("lives", "v", Duration::from_secs(2))
        .unwrap();
    c.put_with_ttl("ends", "v", Duration::from_secs(1)).unwrap();
    db.advance_to(time + Duration::from_secs(1)).unwrap();
    // The time of a write is what others see of it.
    c.put("later", "v").unwrap();
    // Beside the process that has it open, and alone.
    let beside = world.run("backup db beside");
    assert_eq!(beside.status, 0, "{}", beside.err);
    db.close().unwrap();
    drop((c, db));
    world.told("backup db alone");
    world.told("checkpoint db copy");
    world.told(&["backup", "copy", "of copy"]);
    for store in ["beside", "alone", "of copy"] {
        let restored = format!("restored from {store}");
        world.told(&["restore", store, &restored]);
        assert_eq!(world.ok(&["get", &restored, "c", "lives"]), "v");
        assert_eq!(world.run(&["get", &restored, "c", "ends"]).status, 1);
    }
}
