//! The control socket of an Ebbtide database: others ask the process that has it open.
//!
//! One process at a time writes a database. A service that has it open for weeks calls [`listen`], and from then on the
//! command `ebbtide` changes retention and quotas, expires, compacts and copies while the service runs. Without that call
//! there is no socket.
//!
//! ```
//! use ebbtide::{Database, DefaultTtl};
//! use ebbtide_control::{Change, Options, Request};
//! use std::time::Duration;
//!
//! let folder = tempfile::tempdir()?;
//! let db = Database::open(folder.path())?;
//! let sessions = db.container("sessions")?;
//! let control = ebbtide_control::listen(&db, Options::new())?; // until it is dropped
//!
//! // What `ebbtide ttl DIR sessions 7d` does in another process:
//! let client = ebbtide_control::connect(folder.path())?.expect("it listens");
//! let week = DefaultTtl::After(Duration::from_secs(7 * 86_400));
//! client.ask(&Request::change("sessions", Change::DefaultTtl(week)), &mut |_| ())?;
//! assert_eq!(sessions.default_ttl(), week);
//!
//! drop(control);
//! assert!(ebbtide_control::connect(folder.path())?.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Design
//!
//! [`perform`] does what a [`Request`] says with an open database, and answers. The command calls it where it has opened the
//! database itself, and the service where the request comes by the socket: so both do and say the same.
//!
//! ```text
//! DIR/control.sock     a stream socket of the file system, mode 0600
//! a connection         one line from the client, then lines from the service, the last of which is the answer
//! request              {"version":1,"request":{"change":{"container":"sessions","change":{"default_ttl":"7d"}}}}
//! lines                {"progress":{..}} every 200 ms while it takes longer, then {"done":..} or {"failed":{..}}
//! ```
//!
//! The lock decides which process owns the database, never the socket: whoever may write it replaces a socket that a killed
//! process left, and a client asks only after it was refused the lock. A client does not wait for a line for longer than 30 s.
//!
//! A hostile client neither holds nor grows the service. Only the user of the service and root may ask. There are 8
//! connections at most; one more is told that it is busy. A request has to be whole within 10 s, and a second more for each
//! MiB of it. One request at a time may be longer than 64 KiB, and none longer than 128 MiB. A client that does not read is
//! left. When the client goes, a compaction ends after the step that it is in; all else is short, or a copy.
//!
//! The database's listener is told of each request ([`EventListener::on_control`](ebbtide::EventListener::on_control)),
//! without keys and values.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod words;
mod ends;
mod cluster;
mod request;
mod perform;
mod owner;
mod socket;
mod line;
mod server;
mod client;

pub use client::{Client, connect};
pub use cluster::{ClusterMember, ClusterStatus, MemberFigures};
pub use ends::{Bar, Ends, Sum};
pub use owner::owner;
pub use perform::{MOST_COUNTED, container, figures, perform, watched};
pub use request::{Answer, Change, Ending, Failed, Key, NewItem, Progress, Request, Secret};
pub use server::{Control, Options, Serves, listen, listen_in};
pub use socket::NAME;
pub use words::{in_words, likely};
