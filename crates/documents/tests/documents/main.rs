//! Documents: the rules one by one, random histories against a model, and several threads.

mod batches;
mod catalog;
mod crashes;
mod feeds;
mod from_cosmos;
mod indexes;
mod model;
mod queries;
mod replica_indexes;
mod replicas;
mod threads;
mod writes;

use std::time::Duration;

use ebbtide::{ManualClock, Options};
use ebbtide_documents::{
    Container, ContainerDefinition, Documents, Error, PartitionKey, QueryLimits,
};

const START_MS: u64 = 1_800_000_000_250;

/// Documents in memory, with a database `db`, and their clock.
fn documents() -> (Documents, ManualClock) {
    let clock = ManualClock::new(START_MS);
    let engine = Options::new()
        .clock(clock.clone())
        .open_temporary()
        .unwrap();
    let documents = Documents::with(engine).unwrap();
    documents.create_database("db").unwrap();
    (documents, clock)
}

/// A container of this definition, beside an id and the partition key path `/p`.
fn container(documents: &Documents, members: &str) -> Container {
    let json = format!("{{\"id\":\"c\",\"partitionKey\":{{\"paths\":[\"/p\"]}}{members}}}");
    let definition = ContainerDefinition::from_json(json.as_bytes()).unwrap();
    documents.create_container("db", definition).unwrap()
}

fn key() -> PartitionKey {
    PartitionKey::from("k")
}

/// A document of the partition `k`.
fn body(id: &str, members: &str) -> Vec<u8> {
    format!("{{\"id\":\"{id}\",\"p\":\"k\"{members}}}").into_bytes()
}

fn rows_at_most(rows: usize) -> QueryLimits {
    QueryLimits {
        rows,
        ..QueryLimits::default()
    }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[track_caller]
fn refused<T>(result: Result<T, Error>, status: u16) -> Error {
    match result {
        Ok(_) => panic!("{status} was expected"),
        Err(error) => {
            assert_eq!(error.status(), status, "{error}");
            error
        }
    }
}
