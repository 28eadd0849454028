//! Goal: every `cargo test` finds what fuzzing found, and what it would find in its first second, without a fuzzer.
//! Method: each fuzz target with its committed seeds, and with some thousand mutations of them, generated from a seed.

#![allow(clippy::disallowed_methods)]

use testkit::random::Random;

#[path = "../../fuzz/src/lib.rs"]
mod fuzz;

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = testkit::repository().join("fuzz/seeds").join(name);
    let files = std::fs::read_dir(folder).expect("every target has seeds");
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// A part of some seed: from anywhere, up to anywhere.
fn part<'a>(random: &mut Random, seeds: &'a [Vec<u8>]) -> &'a [u8] {
    let seed = &seeds[random.below(seeds.len())];
    let from = random.below(seed.len() + 1);
    let len = random.below((seed.len() - from).min(64) + 1);
    &seed[from..from + len]
}

fn mutate(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() + 1);
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..at + random.below((bytes.len() - at).min(16) + 1))),
            2 => drop(bytes.splice(at..at, part(random, seeds).iter().copied())),
            3 => bytes.push(random.next() as u8),
            _ if at == bytes.len() => {}
            4 => bytes[at] ^= 1 << random.below(8),
            _ => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, random.next() as u8][random.below(6)],
        }
    }
    bytes
}

/// Says which input it was, should the target panic.
struct Culprit<'a> {
    name: &'a str,
    bytes: &'a [u8],
}

impl Drop for Culprit<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hex: String = self
                .bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            eprintln!("the input of {}, in hexadecimal: {hex}", self.name);
        }
    }
}

fn run(name: &str, mutations: usize) {
    let (_, target) = fuzz::TARGETS
        .into_iter()
        .find(|(known, _)| *known == name)
        .unwrap();
    let (seeds, random) = (seeds(name), &mut Random(7));
    let mutated = (0..mutations).map(|_| mutate(random, &seeds));
    for bytes in seeds.iter().cloned().chain(mutated) {
        let culprit = Culprit {
            name,
            bytes: &bytes,
        };
        target(&bytes);
        drop(culprit);
    }
}

macro_rules! smoke {
    ($($name:ident $mutations:literal,)*) => {
        $(#[test]
        fn $name() {
            run(stringify!($name), $mutations);
        })*

        #[test]
        fn no_target_is_left_out() {
            let here = [$(stringify!($name)),*];
            assert_eq!(fuzz::TARGETS.map(|(name, _)| name), here);
        }
    };
}

// As many as take about a second, unoptimised.
smoke! {
    batch 5_000,
    relog 5_000,
    header 5_000,
    census 5_000,
    frame 5_000,
    block 5_000,
    index 5_000,
    filter 1_000,
    footer 5_000,
    manifest 3_000,
    open 50,
    log 5_000,
    table_file 5_000,
    table 300,
    json 2_000,
    operations 20,
    faults 30,
    backup 5_000,
    ledger 100,
}
