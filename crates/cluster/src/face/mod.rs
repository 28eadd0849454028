//! The part that a program sees: handles, answers, errors. Nothing here knows the log or the network.

mod answered;
mod batch;
mod container;
mod error;
mod feeds;
mod transaction;
mod watch;

pub use answered::{Answered, Item, Member, ReadLevel, Status, Surveyed, Token, Told};
pub use batch::{Batch, Expect};
pub use container::Container;
pub use error::Error;
pub use feeds::{ChangePage, Expirations};
pub use transaction::Transaction;
pub use watch::Watch;
