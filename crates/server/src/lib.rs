//! Documents of an [Ebbtide](ebbtide) database on the protocol of Azure Cosmos DB: its SDKs create, read, query and follow
//! them, and each ends to the millisecond.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//! use ebbtide_server::{Config, Server};
//!
//! let mut config = Config::default();
//! config.temporary = true; // in memory; else `config.dir`
//! config.http = "127.0.0.1:0".parse()?;
//! let server = Server::start(&config)?;
//!
//! let mut stream = TcpStream::connect(server.address())?;
//! let body = r#"{"id": "shop"}"#;
//! write!(stream, "POST /dbs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer)?;
//! assert!(answer.starts_with("HTTP/1.1 201 Created"));
//! server.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The command `ebbtide serve` is [`serve`] with flags. docs/server.md says what is answered, and what differs from Cosmos DB.
//!
//! # Design
//!
//! ```text
//! connection ──> handle: host, signature, body within limits ──> a point read whose document is in memory: at once
//!                                                            └─> all else: route, on a thread that may wait
//! a node of a cluster ──> node: health, figures, members; documents as below, over replica
//!
//! route ──> catalog | items | query | batch | changes | offers | own | status | metrics ──> ebbtide-documents ──> one engine
//! ```
//!
//! Imports point up: a module imports from those above its own `mod` line.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod limits;
mod date;
mod path;
mod hash;
mod reply;
mod request;
mod auth;
mod hosts;
mod partitions;
mod places;
mod state;
mod lists;
mod account;
mod within;
mod query;
mod offers;
mod catalog;
mod batch;
mod changes;
mod items;
mod own;
mod status;
mod metrics;
mod page;
mod handle;
mod config;
mod tls;
#[cfg(feature = "cluster")]
mod replica;
#[cfg(feature = "cluster")]
mod node;
mod connection;
mod notify;
mod server;

pub use config::{ClockKind, Config, LogFormat, LogLevel, ServeError};
pub use server::{Server, serve};
