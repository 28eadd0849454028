//! Arguments of a machine that are out of range refuse its op, on all replicas alike: the engine never sees them.

use std::time::Duration;

use ebbtide::Ttl;

use crate::machine::StepError;

/// The longest key.
pub const MOST_KEY_BYTES: usize = 65_535;

/// The longest lifetime, in seconds; one that is longer has no end.
pub const LONGEST_SECONDS: u64 = 2_147_483_647;

/// Names that begin so are the crate's.
const RESERVED: &str = "ebbtide-openraft";

/// Whether it is a name of the crate's own.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED)
}

pub fn check_name(name: &str) -> Result<(), StepError> {
    let is_valid = (1..=255).contains(&name.len()) && !name.contains(['/', '\0']);
    if !is_valid || is_reserved(name) {
        return Err(StepError::refuse(format!(
            "a container named {name:?}: a name has 1 to 255 bytes without '/' and NUL, and does not begin with {RESERVED}"
        )));
    }
    Ok(())
}

pub fn check_item(key: &[u8], value: &[u8], ttl: Ttl) -> Result<(), StepError> {
    if key.is_empty() || key.len() > MOST_KEY_BYTES {
        return Err(StepError::refuse(format!(
            "a key of {} bytes: it has 1 to 65 535",
            key.len()
        )));
    }
    if value.len() > 64 << 20 {
        return Err(StepError::refuse(format!(
            "a value of {} bytes: it has up to 64 MiB",
            value.len()
        )));
    }
    check_ttl(ttl)
}

pub fn check_ttl(ttl: Ttl) -> Result<(), StepError> {
    match ttl {
        Ttl::After(lifetime)
            if lifetime.is_zero() || lifetime > Duration::from_secs(LONGEST_SECONDS) =>
        {
            Err(StepError::refuse(format!(
                "a ttl of {lifetime:?}: it is more than 0, and at most 2 147 483 647 s"
            )))
        }
        _ => Ok(()),
    }
}
