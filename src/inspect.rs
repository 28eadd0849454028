//! Stand-in until the real check lands.

use std::path::Path;

use crate::error::{Error, Result};

/// What a check of a whole folder found.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Files read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records in them.
    pub records: u64,
    /// What does not fit.
    pub faults: Vec<Error>,
}

/// Reads and checks every byte.
pub fn verify(
    _: impl AsRef<Path>,
    _: &mut dyn FnMut(u64 /*done*/, u64 /*total bytes*/),
) -> Result<VerifyReport> {
    Ok(VerifyReport::default())
}
