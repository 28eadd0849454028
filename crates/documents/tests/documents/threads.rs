//! Several threads on one document, one container, one definition.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ebbtide::{AtOnce, DefaultTtl};
use ebbtide_documents::{BatchOperation, Conditions, ContainerDefinition, Patch};

use super::{body, container, documents, key, seconds};

const THREADS: usize = 4;

fn n(document: &ebbtide_documents::Document) -> u64 {
    document.to::<serde_json::Value>().unwrap()["n"]
        .as_u64()
        .unwrap()
}

/// Counts by patch, by batch, by read and replace, and by upserts that do not wait, in turn or all by these: none is lost.
#[test]
fn writers_of_one_document() {
    each_counts([0, 1, 2, 3], 100);
    each_counts([2; THREADS], 1_000);
}

fn each_counts(ways: [usize; THREADS], rounds: u64) {
    let (documents, _) = documents();
    let c = container(&documents, "");
    c.create(&key(), &body("1", ",\"n\":0")).unwrap();
    let patch = Patch::from_json(br#"[{"op":"incr","path":"/n","value":1}]"#).unwrap();
    thread::scope(|scope| {
        for way in ways {
            let (c, patch) = (&c, &patch);
            scope.spawn(move || {
                for _ in 0..rounds {
                    match way {
                        0 => drop(c.patch(&key(), "1", patch, &Conditions::none()).unwrap()),
                        1 => {
                            let operation = BatchOperation::Patch(
                                "1".into(),
                                patch.clone(),
                                Conditions::none(),
                            );
                            assert_eq!(c.batch(&key(), &[operation]).unwrap()[0].status, 200);
                        }
                        2 => loop {
                            let read = c.read(&key(), "1").unwrap();
                            let next = body("1", &format!(",\"n\":{}", n(&read) + 1));
                            let current = Conditions::if_match(read.version);
                            match c.try_upsert(&key(), &next, &current) {
                                Ok(AtOnce::Ready(_)) => break,
                                Ok(AtOnce::WouldWait) => thread::yield_now(),
                                Err(error) => assert_eq!(error.status(), 412),
                            }
                        },
                        _ => loop {
                            let read = c.read(&key(), "1").unwrap();
                            let next = body("1", &format!(",\"n\":{}", n(&read) + 1));
                            match c.replace(&key(), "1", &next, &Conditions::if_match(read.version))
                            {
                                Ok(_) => break,
                                Err(error) => assert_eq!(error.status(), 412),
                            }
                        },
                    }
                }
            });
        }
    });
    assert_eq!(n(&c.read(&key(), "1").unwrap()), THREADS as u64 * rounds);
}

/// A batch moves between two documents; whoever reads them by a batch sees their sum.
#[test]
fn a_batch_is_seen_whole() {
    let (documents, _) = documents();
    let c = container(&documents, "");
    c.batch(
        &key(),
        &["a", "b"].map(|id| BatchOperation::Create(body(id, ",\"n\":1000"))),
    )
    .unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut reads = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let read = ["a", "b"]
                            .map(|id| BatchOperation::Read(id.into(), Conditions::none()));
                        let results = c.batch(&key(), &read).unwrap();
                        let sum: u64 = results
                            .iter()
                            .map(|result| n(result.document.as_ref().unwrap()))
                            .sum();
                        assert_eq!(sum, 2_000);
                        reads += 1;
                    }
                    reads
                })
            })
            .collect();
        for _ in 0..300 {
            let by = |id: &str, by: i32| {
                let patch = format!("[{{\"op\":\"incr\",\"path\":\"/n\",\"value\":{by}}}]");
                BatchOperation::Patch(
                    id.into(),
                    Patch::from_json(patch.as_bytes()).unwrap(),
                    Conditions::none(),
                )
            };
            c.batch(&key(), &[by("a", -1), by("b", 1)]).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(
            readers
                .into_iter()
                .map(|reader| reader.join().unwrap())
                .sum::<u32>()
                > 0
        );
    });
}

/// While a container is made and deleted again, a writer is answered by one of them or by 404, and never leaves anything
/// in the next one.
#[test]
fn a_container_that_is_deleted_while_it_is_written() {
    let (documents, _) = documents();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for at in 0..3 {
            let (documents, is_over) = (&documents, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let written = documents.container("db", "c").and_then(|c| {
                        let id = format!("{}-{at}", c.rid());
                        c.upsert(&key(), &body(&id, ""), &Conditions::none())
                    });
                    if let Err(error) = written {
                        assert_eq!((error.status(), error.sub_status()), (404, 1003), "{error}");
                    }
                }
            });
        }
        for _ in 0..40 {
            let c = documents
                .create_container("db", ContainerDefinition::new("c", "/p"))
                .unwrap();
            thread::yield_now();
            for document in c.list(&Default::default(), 100, None).unwrap().documents {
                assert!(
                    document.id.starts_with(&c.rid().to_string()),
                    "{}",
                    document.id
                );
            }
            documents.delete_container("db", "c").unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(documents.engine().containers(), ["documents"]);
}

/// The default ttl changes while others write: what the catalog says is what the engine does.
#[test]
fn definitions_that_change_while_others_write() {
    let (documents, _) = documents();
    let c = container(&documents, "");
    thread::scope(|scope| {
        for at in 0..3 {
            let documents = &documents;
            scope.spawn(move || {
                for round in 0..30 {
                    let mut definition = ContainerDefinition::new("c", "/p");
                    definition.default_ttl = match (at + round) % 3 {
                        0 => DefaultTtl::Off,
                        1 => DefaultTtl::NoDefault,
                        n => DefaultTtl::After(seconds(n + at + 1)),
                    };
                    documents.replace_container("db", definition).unwrap();
                }
            });
        }
        for n in 0..200 {
            c.create(&key(), &body(&n.to_string(), "")).unwrap();
        }
    });
    assert_eq!(c.definition().default_ttl, c.items().default_ttl());
    let anew = ebbtide_documents::Documents::with(documents.engine().clone()).unwrap();
    assert_eq!(anew.container("db", "c").unwrap().to_json(), c.to_json());
}
