//! Documents from a shell.

use super::*;

/// A container of carts by user, with a default of an hour.
fn carts() -> World {
    let world = World::new();
    world.ok("doc create db shop/carts --key /user --ttl 1h");
    world
}

fn stored(world: &World, document: &str) -> Value {
    serde_json::from_str(&world.ok(&["doc", "put", "db", "shop/carts", document])).unwrap()
}

#[test]
fn a_document_is_stored_read_and_deleted_by_its_id_and_partition_key() {
    let world = carts();
    let put = stored(&world, r#"{"id":"c-1","user":"ada","tea":1.50,"ttl":-1}"#);
    assert_eq!((&put["id"], &put["ttl"]), (&"c-1".into(), &(-1).into()));
    assert!(put["_etag"].is_string() && put["_ts"].is_u64());
    let of = ["db", "shop/carts", "c-1", "--key", "ada"];
    let got = world.ok(&[&["doc", "get"][..], &of].concat());
    assert!(
        got.starts_with(r#"{"id":"c-1","user":"ada","tea":1.50,"ttl":-1,"_rid":"#),
        "{got}"
    );
    let why = world.fails(2, "doc get db shop/carts c-1");
    assert!(why.contains("at /user: give --key VALUE"), "{why}");
    world.ok(&[&["doc", "delete"][..], &of].concat());
    world.fails(1, &[&["doc", "get"][..], &of].concat());
    world.fails(1, &[&["doc", "delete"][..], &of].concat());
    // Text that is JSON is that value.
    stored(&world, r#"{"id":"c-2","user":7}"#);
    world.ok("doc get db shop/carts c-2 --key 7");
    world.fails(
        1,
        &["doc", "get", "db", "shop/carts", "c-2", "--key", "\"7\""],
    );
}

#[test]
fn a_lifetime_that_is_none_is_refused_and_nothing_is_stored() {
    let world = carts();
    for ttl in ["0", "-10", "null", "\"60\"", "1.5", "2147483648"] {
        let document = format!(r#"{{"id":"c-1","user":"ada","ttl":{ttl}}}"#);
        let why = world.fails(2, &["doc", "put", "db", "shop/carts", &document]);
        assert!(why.contains("ttl"), "{why}");
    }
    assert_eq!(world.ok("doc list db shop/carts"), "");
}

#[test]
fn lines_are_stored_up_to_a_bad_one_or_without_it() {
    let world = carts();
    let lines = "{\"id\":\"a\",\"user\":\"u\",\"n\":1}\n{\"id\":5}\n\n{\"id\":\"b\",\"user\":\"u\",\"n\":2}\n";
    world.write("lines", lines);
    let import = "doc import db shop/carts lines";
    let why = world.fails(2, import);
    assert!(
        why.contains("line 2") && why.contains("1 document stored"),
        "{why}"
    );
    let skipping = world.run(&format!("{import} --skip-bad --json"));
    assert_eq!(skipping.status, 0);
    assert!(skipping.err.contains("line 2"), "{}", skipping.err);
    let told: Value = serde_json::from_slice(&skipping.out).unwrap();
    assert_eq!((&told["documents"], &told["bad"]), (&2.into(), &1.into()));
    // The lines of list are read again: system properties are left out.
    let listed = world.ok("doc list db shop/carts");
    assert_eq!(listed.lines().count(), 2);
    world.write("listed", &listed);
    world.told("doc import db shop/carts listed");
    let query = "SELECT c.id FROM c WHERE c.n >= @n ORDER BY c.n DESC";
    let select = ["doc", "query", "db", "shop/carts", query, "--with", "@n=1"];
    assert_eq!(world.ok(&select), "{\"id\":\"b\"}\n{\"id\":\"a\"}\n");
    assert_eq!(
        world.ok(&[&select[..], &["--limit", "1"]].concat()),
        "{\"id\":\"b\"}\n"
    );
    let why = world.fails(
        2,
        &[
            "doc",
            "query",
            "db",
            "shop/carts",
            "SELECT * FROM c JOIN t IN c.tags",
        ],
    );
    assert!(why.contains("JOIN"), "{why}");
    world.fails(2, &["doc", "query", "db", "shop/carts", query]);
    world.fails(
        2,
        &["doc", "query", "db", "shop/carts", query, "--with", "n=1"],
    );
}

#[test]
fn containers_are_listed_changed_and_dropped() {
    let world = carts();
    assert_eq!(world.ok("doc ttl db shop/carts"), "1h\n");
    world.ok("doc ttl db shop/carts -1");
    assert_eq!(world.ok("doc ttl db shop/carts"), "-1\n");
    world.fails(2, "doc ttl db shop/carts 0");
    world.fails(2, "doc create db shop/carts");
    world.fails(2, "doc create db carts");
    world.ok("doc create db shop/orders");
    let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].clone();
    let listed = world.ok("doc list db shop");
    assert_eq!(
        listed.lines().map(id).collect::<Vec<_>>(),
        ["carts", "orders"]
    );
    world.fails(2, "doc drop db shop");
    world.ok("doc drop db shop/orders --yes");
    world.fails(1, "doc drop db shop/orders --yes");
    world.ok("doc drop db shop --yes");
    assert_eq!(world.ok("doc list db"), "");
    world.fails(1, "doc list db shop");
}

#[test]
fn a_folder_without_documents_is_named() {
    let world = World::new();
    world.ok("put db c k v");
    let why = world.fails(1, "doc list db");
    assert!(why.contains("there are no documents in db"), "{why}");
    world.fails(1, &["doc", "put", "db", "shop/carts", "{\"id\":\"a\"}"]);
    world.fails(
        2,
        &["doc", "put", "nowhere", "shop/carts", "{\"id\":\"a\"}"],
    );
    assert!(!world.path("nowhere").exists());
}

/// Retention of documents by the commands on containers: there is one truth, and a copy that is only read has it, too.
#[test]
fn a_default_and_a_quota_that_other_commands_set_are_those_of_the_documents() {
    let world = carts();
    stored(&world, r#"{"id":"c-1","user":"ada"}"#);
    let listed: Value = serde_json::from_str(&world.ok("doc list db shop")).unwrap();
    let rid = listed["_rid"].as_str().unwrap();
    world.run(&["ttl", "db", rid, "5m", "--yes"]);
    world.run(&["quota", "db", rid, "10MB"]);
    assert_eq!(world.ok("doc ttl db shop/carts"), "5m\n");
    world.run("checkpoint db copy");
    let listed: Value = serde_json::from_str(&world.ok("doc list copy shop")).unwrap();
    assert_eq!(listed["maxLiveBytes"], 10_000_000);
    assert_eq!(world.ok("doc list copy shop/carts").lines().count(), 1);
}
