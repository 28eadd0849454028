//! Reads: of one key, of many, of one at random, of a range.

pub mod point;
pub mod random;
pub mod scan;
pub mod source;
pub mod many;
