//! Reading all of a table to check it, or to save what is sound.

pub mod verify;
pub mod gap;
pub mod salvage;
