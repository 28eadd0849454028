//! The first second of fuzzing: its target over its seeds, and over mutations of them.

use std::path::Path;

#[path = "../../../../fuzz/documents/query.rs"]
mod query;

#[test]
fn seeds_and_mutations() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/document_query");
    let files = std::fs::read_dir(folder).expect("the target has seeds");
    let seeds: Vec<_> = files
        .map(|file| std::fs::read(file.unwrap().path()).unwrap())
        .collect();
    assert!(seeds.len() >= 8);
    seeds.iter().for_each(|seed| query::document_query(seed));
    let random = &mut crate::random::Random(1);
    for _ in 0..20_000 {
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
        query::document_query(&bytes);
    }
}
