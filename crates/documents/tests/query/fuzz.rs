//! The first second of fuzzing: each target over its seeds, and over mutations of them.

use std::path::Path;

#[path = "../../../../fuzz/documents/continuation.rs"]
mod continuation;
#[path = "../../../../fuzz/documents/partition_key.rs"]
mod partition_key;
#[path = "../../../../fuzz/documents/patch.rs"]
mod patch;
#[path = "../../../../fuzz/documents/path.rs"]
mod path;
#[path = "../../../../fuzz/documents/query.rs"]
mod query;

fn seeds_and_mutations(name: &str, mutations: usize, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let files = std::fs::read_dir(folder.join(name)).expect("the target has seeds");
    let seeds: Vec<_> = files
        .map(|file| std::fs::read(file.unwrap().path()).unwrap())
        .collect();
    assert!(seeds.len() >= 3);
    seeds.iter().for_each(|seed| target(seed));
    let random = &mut testkit::random::Random(1);
    for _ in 0..mutations {
        let mut bytes = seeds[random.below(seeds.len())].clone();
        for _ in 0..1 + random.below(4) {
            let other = &seeds[random.below(seeds.len())];
            let (at, from) = (random.below(bytes.len()), random.below(other.len()));
            let part = &other[from..other.len().min(from + random.below(40))];
            match random.below(4) {
                0 => bytes[at] = b" \"'()[]{}.,*-@%\\0c1"[random.below(18)],
                1 => drop(bytes.splice(at..at, part.iter().copied())),
                2 => drop(bytes.splice(at..bytes.len().min(at + part.len()), part.iter().copied())),
                _ => bytes.truncate(at + 1),
            }
        }
        target(&bytes);
    }
}

#[test]
fn queries() {
    seeds_and_mutations("document_query", 20_000, query::document_query);
}

#[test]
fn patches() {
    seeds_and_mutations("document_patch", 20_000, patch::document_patch);
}

#[test]
fn paths() {
    seeds_and_mutations("document_path", 20_000, path::document_path);
}

#[test]
fn partition_keys() {
    seeds_and_mutations(
        "document_partition_key",
        20_000,
        partition_key::document_partition_key,
    );
}

#[test]
fn continuations() {
    seeds_and_mutations(
        "document_continuation",
        5_000,
        continuation::document_continuation,
    );
}
