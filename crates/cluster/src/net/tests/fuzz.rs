//! The first second of fuzzing: the target over its seeds, and over mutations of them.

use std::path::Path;

use crate::net::frame;

#[path = "../../../../../fuzz/cluster/frame.rs"]
mod target;

/// Random numbers that a seed repeats (S. Vigna, splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % n as u64) as usize
    }
}

#[test]
fn cluster_frame() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/cluster_frame");
    let files = std::fs::read_dir(folder).expect("the target has seeds");
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    let seeds: Vec<_> = paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    assert!(seeds.len() >= 3);
    seeds.iter().for_each(|seed| target::cluster_frame(seed));
    let random = &mut Random(1);
    for _ in 0..20_000 {
        let mut bytes = seeds[random.below(seeds.len())].clone();
        for _ in 0..1 + random.below(4) {
            let other = &seeds[random.below(seeds.len())];
            let (at, from) = (random.below(bytes.len()), random.below(other.len()));
            let part = &other[from..other.len().min(from + random.below(80))];
            match random.below(4) {
                0 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, random.below(256) as u8][random.below(6)],
                1 => drop(bytes.splice(at..at, part.iter().copied())),
                2 => bytes[at] ^= 1 << random.below(8),
                _ => bytes.truncate(at + 1),
            }
        }
        target::cluster_frame(&bytes);
    }
}
