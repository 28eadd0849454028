//! The decoders that fuzzing calls, with the feature `unstable-internals`; not part of the public API, and free to change.

use ebbtide::Ledger;

use crate::format::Manifest;
pub use crate::format::seal;

/// The ledger of a manifest of any bytes; none: they are none. What was read is the same when it is written and read again.
pub fn read_manifest(bytes: &[u8]) -> Option<Ledger> {
    let (manifest, _) = Manifest::decode(bytes).ok()?;
    let again = Manifest::decode(&manifest.encode());
    assert_eq!(again.expect("it was written").0, manifest);
    // The sum of its lengths is a number.
    let _ = manifest.bytes();
    Some(manifest.ledger)
}
