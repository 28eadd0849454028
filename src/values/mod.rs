//! Values of the public surface that have no behaviour of their own: what a program may choose, and what it is told. They
//! depend on the basic types alone, and every layer may use them.

pub mod choices;
pub mod listener;
pub mod disk_usage;
pub mod stats;

pub use choices::{Compression, Quota, Reads, WhenFull};
