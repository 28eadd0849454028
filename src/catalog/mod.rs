//! The catalogue: immutable versions of a container's runs, the edits that lead from one to the next, and the manifest.
//!
//! ```text
//! Version ── Run ── TableFile                      what a reader pins; each never changes      version.rs run.rs table_file.rs
//!    │        └── RunFacts ── TableFacts           the same as plain values, for the policy    facts.rs
//!    │
//! Change: runs appear, go, are replaced            an edit: all or nothing                     edit.rs catalogue.rs
//!    │
//! manifest-000007 = edits in order, and a copy     what a crash leaves, and whether it counts  manifest.rs current.rs
//! ```

mod branch;
mod edit;
mod catalogue;
mod facts;
mod table_file;
mod run;
mod version;
mod manifest;
mod current;
mod ledger;

pub use catalogue::Catalogue;
pub use current::{
    CurrentManifest, LoadedManifest, expect_no_others, find_current, manifest_stamp,
};
pub use edit::{Change, ContainerRecord, Edit, Logged, RunId, RunRecord, TableRecord};
pub use facts::{Facts, RunFacts, TableFacts};
pub use ledger::{Ledger, Telling};
pub use manifest::{
    Manifest, begin, copy_path, edit_texts, expect_own, is_current, parse, version_of, write_both,
};
pub use run::Run;
pub use table_file::{
    NamePin, ObsoleteTable, Pins, TableFile, TableSpace, later_table, unnamed_tables,
};
pub use version::ContainerVersion;
