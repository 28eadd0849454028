//! Ebbtide on several machines: containers that are replicated, and whose items end in the same millisecond on every node.
//!
//! A [`Node`] is a folder and an address. It begins as a cluster of one and grows by nodes that join:
//!
//! ```
//! # #[tokio::main] async fn main() -> Result<(), ebbtide_cluster::Error> {
//! use std::time::Duration;
//! use ebbtide_cluster::{Node, ReadLevel};
//!
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let one = Node::open(folder.join("1")).await?;
//! let two = Node::options().join(one.addr()).open(folder.join("2")).await?;
//! let three = Node::options().join(one.addr()).open(folder.join("3")).await?;
//!
//! let sessions = two.create_container("sessions").await?;
//! let written = sessions.put_with_ttl("s-1", "ada", Duration::from_secs(1_800)).await?;
//! let there = three.container("sessions");
//! assert_eq!(there.get("s-1").await?.value.unwrap(), "ada"); // linearizable, by any node
//! let local = there.at(ReadLevel::Local).since(written.token); // asks nobody, and sees that write
//! assert_eq!(local.get("s-1").await?.value.unwrap(), "ada");
//! # for node in [three, two, one] { node.close().await?; }
//! # Ok(()) }
//! ```
//!
//! * **Every item has one end**, the same on all nodes. Every answer carries `at`, the moment by which it was judged; from its end
//!   on an item is shown by nobody, ever after, over changes of the leader too. Ends cost no entry of the log and no byte on the wire.
//! * **Any node takes any call.** Writes and linearizable reads go to the node that leads, and are tried again while none does.
//! * **A write is done once**, though its answer was lost and it was sent again.
//! * **Reads at several levels** ([`ReadLevel`]), each with a token, by which one reads one's own writes.
//!
//! docs/cluster.md has the rules, and says what is missing.

#![forbid(unsafe_code)]

mod calls;
mod check;
mod clocks;
mod face;
mod formats;
mod machine;
mod net;
mod node;
mod raft;
mod room;
#[doc(hidden)]
pub mod shared;

pub use check::{Checked, CheckedNode};
pub use face::{
    Answered, Batch, ChangePage, Container, Error, Expect, Expirations, Item, Member, ReadLevel,
    Status, Surveyed, Token, Told, Transaction, Watch,
};
pub use net::Tls;
#[cfg(feature = "unstable-internals")]
pub use net::{Duplex, Listener, Pending, Socket, Transport};
pub use node::{Node, NodeOptions, Snapshot};
