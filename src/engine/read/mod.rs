//! Reads: of one key, of many, of one at random, of a range.

pub mod source;
pub mod point;
pub mod random;
pub mod walks;
pub mod scan;
pub mod many;
