//! The functions that fuzzing calls: one for each decoder, and one for operations against a model.
//!
//! Each takes any bytes, and panics when the engine breaks a promise: a panic of the engine's own, something read back
//! that was never written, an error that should not be. The same functions run in two places: under libFuzzer (the
//! files in fuzz_targets/ name them), and over seeds/ and seeded mutations of it in the crate's tests/damage/fuzz_smoke.rs,
//! which includes this file as a module.

mod input;

mod backup;
mod faults;
mod items;
mod json;
mod log;
mod manifest;
mod operations;
mod pieces;
mod table;

pub use backup::{backup, ledger};
pub use faults::faults;
pub use items::{batch, census, header, relog};
pub use json::json;
pub use log::log;
pub use manifest::{manifest, open};
pub use operations::operations;
pub use pieces::{block, filter, footer, frame, index};
pub use table::{table, table_file};

/// A function that takes any bytes.
pub type Target = fn(&[u8]);

/// Every target, by the name of its folder in seeds/.
pub const TARGETS: [(&str, Target); 19] = [
    ("batch", batch),
    ("relog", relog),
    ("header", header),
    ("census", census),
    ("frame", frame),
    ("block", block),
    ("index", index),
    ("filter", filter),
    ("footer", footer),
    ("manifest", manifest),
    ("open", open),
    ("log", log),
    ("table_file", table_file),
    ("table", table),
    ("json", json),
    ("operations", operations),
    ("faults", faults),
    ("backup", backup),
    ("ledger", ledger),
];
