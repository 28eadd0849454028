//! A kill and a power cut before every call to the disk: afterwards the catalog, the engine's containers and the documents
//! are as after one of the steps, and no step that was answered is missing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ebbtide::internals::Sim;
use ebbtide::{Durability, ManualClock, Options};
use ebbtide_documents::{
    BatchOperation, Conditions, Container, ContainerDefinition, Documents, Scope,
};

use super::{START_MS, body, key};

fn open(sim: &Sim) -> Documents {
    let options = Options::new().clock(ManualClock::new(START_MS));
    let options = options
        .fs(Arc::new(sim.clone()))
        .stepped()
        .memtable_bytes(64 << 10);
    Documents::with(options.durability(Durability::Sync).open("/db").unwrap()).unwrap()
}

fn definition(members: &str) -> ContainerDefinition {
    let json = format!("{{\"id\":\"c\",\"partitionKey\":{{\"paths\":[\"/p\"]}}{members}}}");
    ContainerDefinition::from_json(json.as_bytes()).unwrap()
}

/// With a default of a minute, and indexes of these paths.
fn indexed(paths: &str) -> String {
    let included = paths.split(", ").map(|path| format!("{{\"path\":{path}}}"));
    let included = Vec::from_iter(included).join(",");
    format!(",\"defaultTtl\":60,\"indexingPolicy\":{{\"includedPaths\":[{included}]}}")
}

fn c(documents: &Documents) -> Container {
    documents.container("db", "c").unwrap()
}

/// The steps, each a change that is there whole or not at all.
const STEPS: &[fn(&Documents)] = &[
    |documents| drop(documents.create_database("db").unwrap()),
    |documents| drop(documents.create_container("db", definition("")).unwrap()),
    |documents| {
        let create = |id: &str| BatchOperation::Create(body(id, ""));
        c(documents)
            .batch(&key(), &["1", "2", "3"].map(create))
            .unwrap();
    },
    |documents| {
        drop(
            documents
                .replace_container("db", definition(",\"defaultTtl\":60,\"x\":1"))
                .unwrap(),
        )
    },
    |documents| {
        c(documents)
            .delete(&key(), "2", &Conditions::none())
            .unwrap()
    },
    |documents| {
        drop(
            documents
                .replace_container("db", definition(&indexed("\"/n/?\", \"/p/?\"")))
                .unwrap(),
        )
    },
    |documents| drop(c(documents).create(&key(), &body("4", ",\"n\":4")).unwrap()),
    |documents| {
        drop(
            documents
                .replace_container("db", definition(&indexed("\"/n/?\"")))
                .unwrap(),
        )
    },
    |documents| drop(c(documents).read_and_touch(&key(), "3").unwrap()),
    |documents| drop(documents.create_database("other").unwrap()),
    |documents| drop(documents.create_container("other", definition("")).unwrap()),
    |documents| c(documents).delete_partition(&key()).unwrap(),
    |documents| documents.delete_container("db", "c").unwrap(),
    |documents| {
        drop(
            documents
                .create_container("db", definition(",\"defaultTtl\":-1"))
                .unwrap(),
        )
    },
    |documents| documents.delete_database("other").unwrap(),
    |documents| documents.delete_database("db").unwrap(),
];

/// All that there is; fails where catalog and engine differ.
fn shown(documents: &Documents) -> String {
    let mut shown = String::new();
    let mut names = vec!["documents".to_owned()];
    for database in documents.databases().unwrap() {
        shown += &format!("{}\n", database.to_json());
        for container in documents.containers(&database.id).unwrap() {
            assert_eq!(
                container.definition().default_ttl,
                container.items().default_ttl()
            );
            names.push(container.rid().to_string());
            // Opening it builds the indexes that are not whole.
            let id = &container.definition().id;
            let indexes = documents.container(&database.id, id).unwrap().indexes();
            assert_eq!(indexes.len(), container.definition().indexing.paths().len());
            assert!(indexes.iter().all(|(_, is_whole)| *is_whole));
            if !indexes.is_empty() {
                let name = format!("{}#index", container.rid());
                let entries = documents.engine().container(&name).unwrap();
                let expected = container.items().count(..).unwrap() * indexes.len() as u64;
                assert_eq!(entries.count(..).unwrap(), expected);
                names.push(name);
            }
            shown += &format!("{}\n", container.to_json());
            for document in container
                .list(&Scope::everything(), 100, None)
                .unwrap()
                .documents
            {
                shown += &format!("{}\n", document.to_json());
            }
        }
    }
    names.sort_unstable();
    assert_eq!(documents.engine().containers(), names);
    shown
}

#[test]
fn a_crash_leaves_no_half() {
    let sim = Sim::new(7);
    let documents = open(&sim);
    let (states, done) = (Arc::new(Mutex::new(vec![])), Arc::new(AtomicUsize::new(0)));
    {
        let (states, done) = (states.clone(), done.clone());
        sim.watch(move |sim, _| {
            let (at, seed) = (done.load(Ordering::Relaxed), sim.operations());
            states
                .lock()
                .unwrap()
                .push((at, [sim.kill(), sim.power_cut(seed)]));
        });
    }
    let mut after = vec![shown(&documents)];
    for step in STEPS {
        step(&documents);
        after.push(shown(&documents));
        done.fetch_add(1, Ordering::Relaxed);
    }
    sim.unwatch();
    let states = std::mem::take(&mut *states.lock().unwrap());
    assert!(states.len() > 2 * STEPS.len(), "{}", states.len());
    for (at, crashed) in states {
        for sim in crashed {
            let found = shown(&open(&sim));
            let is_known = found == after[at] || after.get(at + 1) == Some(&found);
            assert!(is_known, "after step {at}: {found}");
        }
    }
}
