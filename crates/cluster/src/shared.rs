//! For the server, which is another crate of this project, and for tests; not part of the public API, and free to change.
//!
//! Invariant: nobody writes through what is given here. It would part this node from the others.

use std::collections::HashMap;

pub use crate::node::Figures;
use crate::{Node, NodeOptions};

/// The database of the state that counts now, for figures.
#[must_use]
pub fn database(node: &Node) -> ebbtide::Database {
    node.database()
}

/// The quota of a container, which the database does not know.
#[must_use]
pub fn quota(node: &Node, name: &str) -> Option<ebbtide::Quota> {
    node.quota_here(name)
}

/// A container of it.
#[must_use]
pub fn container(node: &Node, name: &str) -> Option<ebbtide::Container> {
    node.container_here(name)
}

/// Whether [`Batch::put_like`](crate::Batch::put_like) is taken, for the log has come so far.
#[must_use]
pub fn takes_put_like(node: &Node) -> bool {
    node.format_here() >= crate::machine::body::LIKE
}

/// The figures of the members that answer within a second, by their ids.
pub async fn figures(node: &Node) -> HashMap<u64, Figures> {
    node.figures().await
}

/// A node that speaks formats of the log up to this one, as an earlier version does.
#[must_use]
pub fn speaking(mut options: NodeOptions, format: u16) -> NodeOptions {
    options.speaks = format;
    options
}
