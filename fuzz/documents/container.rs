//! A container to fuzz with, one for each thread.

use ebbtide_documents::{Container, ContainerDefinition, Documents};

/// Of one in memory, by these paths.
pub fn container(paths: &[&str]) -> Container {
    let engine = ebbtide::Options::temporary().expect("memory is there");
    let documents = Documents::with(engine).expect("it is new");
    documents.create_database("d").expect("it is new");
    let mut definition = ContainerDefinition::new("c", paths[0]);
    definition.partition_key = paths.iter().map(|&path| path.into()).collect();
    let container = documents.create_container("d", definition);
    container.expect("it is new")
}

/// The bytes before the first that is zero, and those behind it.
pub fn split(data: &[u8]) -> (&[u8], &[u8]) {
    let at = data.iter().position(|&byte| byte == 0);
    at.map_or((data, &[]), |at| (&data[..at], &data[at + 1..]))
}
