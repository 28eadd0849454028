//! Nodes in one process, over the loopback, with clocks that tests move; each file names its goal. What happens to nodes that are
//! processes of their own is in the program `faults`.

mod check;
mod commands;
mod common;
mod expiry;
mod feeds;
mod formats;
mod history;
mod node;
mod quotas;
mod removed;
mod tokens;
mod transactions;
mod trouble;
mod watch;
