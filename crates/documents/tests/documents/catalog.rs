//! Databases and containers.

use ebbtide::{Quota, WhenFull};
use ebbtide_documents::{Container, ContainerDefinition, Documents};

use super::{START_MS, body, container, documents, key, refused};

#[test]
fn databases() {
    let (documents, _) = documents();
    refused(documents.create_database("db"), 409);
    for wrong in ["", "a/b", "a#b"] {
        refused(documents.create_database(wrong), 400);
    }
    let other = documents.create_database("a database of ö").unwrap();
    let ids: Vec<_> = documents
        .databases()
        .unwrap()
        .into_iter()
        .map(|info| info.id)
        .collect();
    assert_eq!(ids, ["a database of ö", "db"]);
    assert_eq!(documents.database(&other.id).unwrap(), other);
    assert_eq!(documents.database(&other.rid.to_string()).unwrap(), other);
    let json: serde_json::Value = serde_json::from_str(&other.to_json()).unwrap();
    assert_eq!(json["_self"], format!("dbs/{}/", other.rid));
    assert_eq!(
        (&json["id"], &json["_ts"]),
        (&"a database of ö".into(), &(START_MS / 1_000).into())
    );
    documents.delete_database(&other.id).unwrap();
    refused(documents.delete_database(&other.id), 404);
    assert_eq!(
        refused(documents.database(&other.id), 404).sub_status(),
        1003
    );
    assert_ne!(documents.create_database(&other.id).unwrap().rid, other.rid);
}

#[test]
fn containers() {
    let (documents, _) = documents();
    refused(
        documents.create_container("none", ContainerDefinition::new("c", "/p")),
        404,
    );
    let c = container(
        &documents,
        ",\"conflictResolutionPolicy\":{\"mode\":\"LastWriterWins\"}",
    );
    refused(
        documents.create_container("db", ContainerDefinition::new("c", "/p")),
        409,
    );
    let rid = c.rid().to_string();
    let database = documents.database("db").unwrap().rid.to_string();
    for (database, id) in [
        ("db", "c"),
        ("db", &*rid),
        (&*database, "c"),
        (&*database, &*rid),
    ] {
        assert_eq!(
            documents.container(database, id).unwrap().to_json(),
            c.to_json()
        );
    }
    let json: serde_json::Value = serde_json::from_str(&c.to_json()).unwrap();
    assert_eq!(json["conflictResolutionPolicy"]["mode"], "LastWriterWins");
    assert_eq!(json["partitionKey"]["paths"][0], "/p");
    assert_eq!(json["_self"], format!("dbs/{database}/colls/{rid}/"));
    // All handles are one: each sees the definition change.
    let other = documents.container("db", "c").unwrap();
    let mut definition = (*c.definition()).clone();
    definition.default_ttl = "1h".parse().unwrap();
    let replaced = documents
        .replace_container("db", definition.clone())
        .unwrap();
    assert_eq!(
        (other.to_json(), c.to_json()),
        (replaced.to_json(), replaced.to_json())
    );
    definition.partition_key = vec!["/q".into()];
    refused(documents.replace_container("db", definition), 400);
    refused(
        documents.replace_container("db", ContainerDefinition::new("none", "/p")),
        404,
    );

    c.create(&key(), &body("1", "")).unwrap();
    documents.delete_container("db", "c").unwrap();
    refused(documents.delete_container("db", "c"), 404);
    assert_eq!(
        refused(documents.container("db", "c"), 404).sub_status(),
        1003
    );
    let anew = container(&documents, "");
    assert_ne!(anew.rid(), c.rid());
    refused(anew.read(&key(), "1"), 404);
    // The handles of the one that was deleted reach no other.
    for result in [
        c.read(&key(), "1").map(drop),
        c.create(&key(), &body("2", "")).map(drop),
        c.delete_partition(&key()),
    ] {
        assert_eq!(refused(result, 404).sub_status(), 1003);
    }
    assert!(anew.items().is_empty().unwrap());
    documents.delete_database("db").unwrap();
    refused(documents.container("db", "c"), 404);
    assert_eq!(documents.engine().containers(), ["documents"]);
}

#[test]
fn what_is_no_definition_is_refused() {
    for json in [
        "",
        "[]",
        r#"{"partitionKey":{"paths":["/p"]}}"#,
        r#"{"id":"a/b","partitionKey":{"paths":["/p"]}}"#,
        r#"{"id":"c"}"#,
        r#"{"id":"c","partitionKey":{"paths":[]}}"#,
        r#"{"id":"c","partitionKey":{"paths":["p"]}}"#,
        r#"{"id":"c","partitionKey":{"paths":["/a","/b","/c","/d"]}}"#,
    ] {
        refused(ContainerDefinition::from_json(json.as_bytes()), 400);
    }
    for (member, status) in [
        (r#""maxLiveBytes":0"#, 400),
        (r#""indexingPolicy":{"indexingMode":"some"}"#, 400),
        (r#""indexingPolicy":[]"#, 400),
        (r#""changeFeedPolicy":{"retentionDuration":-1}"#, 400),
        (
            r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a"]}]}"#,
            501,
        ),
    ] {
        let json = format!(r#"{{"id":"c","partitionKey":{{"paths":["/p"]}},{member}}}"#);
        refused(ContainerDefinition::from_json(json.as_bytes()), status);
    }
}

/// A second handle of one database of the engine finds what the first one makes.
#[test]
fn opened_twice() {
    let (documents, _) = documents();
    let twice = Documents::with(documents.engine().clone()).unwrap();
    let c = container(&documents, "");
    let same = twice.container("db", "c").unwrap();
    c.create(&key(), &body("1", "")).unwrap();
    assert_eq!(
        same.read(&key(), "1").unwrap().version,
        c.read(&key(), "1").unwrap().version
    );
    refused(
        twice.create_container("db", ContainerDefinition::new("c", "/p")),
        409,
    );
    twice
        .create_container("db", ContainerDefinition::new("d", "/p"))
        .unwrap();
    assert_eq!(documents.containers("db").unwrap().len(), 2);
}

/// Links name resources by id or `_rid`.
#[test]
fn no_id_has_the_form_of_a_resource_id() {
    let (documents, _) = documents();
    let database = documents.database("db").unwrap().rid.to_string();
    refused(documents.create_database(&database), 400);
    let c = container(&documents, "");
    let same = ContainerDefinition::new(c.rid().to_string(), "/p");
    refused(documents.create_container("db", same), 400);
    assert_eq!(documents.database(&database).unwrap().id, "db");
}

/// A document could not be written back as it is read.
#[test]
fn no_partition_key_is_a_system_property_or_there_twice() {
    let (documents, _) = documents();
    for paths in [
        "\"/_ts\"",
        "\"/_etag\"",
        "\"/a\",\"/_rid/x\"",
        "\"/a\",\"/a\"",
    ] {
        let json = format!(
            "{{\"id\":\"c\",\"partitionKey\":{{\"paths\":[{paths}],\"kind\":\"MultiHash\"}}}}"
        );
        refused(ContainerDefinition::from_json(json.as_bytes()), 400);
    }
    container(&documents, "");
}

/// An operator changes the engine's container: by the command, or its control socket.
#[test]
fn the_default_and_the_quota_are_those_of_the_engine() {
    let folder = testkit::scratch();
    let documents = Documents::open(folder.path()).unwrap();
    documents.create_database("db").unwrap();
    let c = container(&documents, ",\"defaultTtl\":3600,\"maxLiveBytes\":5000");
    c.items().set_default_ttl("5m".parse().unwrap()).unwrap();
    c.items().set_quota(None).unwrap();
    let shown = |c: &Container| {
        let definition = c.definition();
        let told: serde_json::Value = serde_json::from_str(&c.to_json()).unwrap();
        assert_eq!(told["maxLiveBytes"].as_u64(), definition.max_live_bytes);
        let ttl = told["defaultTtl"].as_i64();
        (ttl, definition.default_ttl, definition.max_live_bytes)
    };
    let minutes = "5m".parse().unwrap();
    assert_eq!(shown(&c), (Some(300), minutes, None));
    c.create(&key(), &body("1", "")).unwrap();
    let quota = Quota {
        max_live_bytes: 9_000,
        when_full: WhenFull::ExpireSoonest,
    };
    c.items().set_quota(Some(quota)).unwrap();
    documents.engine().close().unwrap();
    drop((c, documents));
    // Also where nothing may be written.
    let read_only = ebbtide::Options::new().read_only(true);
    let documents = Documents::with(read_only.open(folder.path()).unwrap()).unwrap();
    let c = documents.container("db", "c").unwrap();
    assert_eq!(shown(&c), (Some(300), minutes, Some(9_000)));
    c.read(&key(), "1").unwrap();
    refused(c.create(&key(), &body("2", "")), 403);
    documents.engine().close().unwrap();
    drop((c, documents));
    // A definition that replaces it counts.
    let documents = Documents::open(folder.path()).unwrap();
    let mut definition = ContainerDefinition::new("c", "/p");
    definition.default_ttl = ebbtide::DefaultTtl::NoDefault;
    let c = documents.replace_container("db", definition).unwrap();
    assert_eq!(shown(&c), (Some(-1), ebbtide::DefaultTtl::NoDefault, None));
    assert_eq!(c.items().quota(), None);
}

/// An operator drops the engine's container: `ebbtide drop`.
#[test]
fn a_container_that_others_dropped_is_none() {
    let (documents, _) = documents();
    let c = container(&documents, "");
    documents
        .create_container("db", ContainerDefinition::new("other", "/p"))
        .unwrap();
    c.create(&key(), &body("1", "")).unwrap();
    let drop_it = |c: &Container| documents.engine().drop_container(c.rid().to_string());
    assert!(drop_it(&c).unwrap());
    refused(c.read(&key(), "1"), 404);
    let ids = || -> Vec<String> {
        let all = documents.containers("db").unwrap();
        all.iter().map(|c| c.definition().id.clone()).collect()
    };
    assert_eq!(ids(), ["other"]);
    // Its id is free: to be created, and to be deleted.
    let anew = container(&documents, "");
    assert_ne!(anew.rid(), c.rid());
    let found = documents.container("db", "c").unwrap();
    found.create(&key(), &body("2", "")).unwrap();
    anew.read(&key(), "2").unwrap();
    assert!(drop_it(&anew).unwrap());
    documents.delete_container("db", "c").unwrap();
    refused(documents.container("db", "c"), 404);
    container(&documents, "")
        .create(&key(), &body("1", ""))
        .unwrap();
    documents.delete_database("db").unwrap();
}
