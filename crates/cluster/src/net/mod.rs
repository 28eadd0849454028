//! The bytes between nodes: questions and streams over TCP, with or without TLS, framed as frame.rs shows.
//!
//! Invariants:
//! - `within` bounds a question and a stream with all that belongs to them. One that is over leaves nothing behind here, and
//!   the other side drops what it does for it.
//! - What may have reached the peer is never sent again: the caller decides.
//! - A handler sees only what the cluster's own nodes sent to this node, or one that joins.
//! - Whoever cannot be reached costs an error at once, while it is not yet tried again.
//! - No bytes that arrive make this side panic, or take more memory than has arrived and limits.rs allows.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebbtide::Clock;
use tokio::io::AsyncRead;
use tokio::time::timeout;

mod frame;
mod limits;
mod socket;
mod tls;
mod wire;
mod conn;
mod link;
mod links;
mod server;
mod stream;
#[cfg(test)]
mod tests;

pub use socket::Transport;
#[cfg(feature = "unstable-internals")]
pub use socket::{Duplex, Listener, Pending, Socket};
pub(crate) use socket::{Sockets, Tcp};
pub use tls::Tls;

use frame::{Frame, MOST_BODY};
use links::Links;
use server::Server;
use wire::Us;

/// The node itself, as every frame that it sends names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// 0 while the node joins: it may ask any cluster, and is asked by nobody else.
    pub cluster: u128,
    pub node: u64,
    /// The newest format of entries that the node speaks. Not judged here.
    pub format: u16,
}

/// The sender of a request or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct From {
    /// This node's own cluster; or 0, of a request, where a node asks to join.
    pub cluster: u128,
    pub node: u64,
    pub format: u16,
    /// Its wall clock when the frame was written, in milliseconds since 1970.
    pub wall_ms: u64,
}

impl From {
    fn of(frame: &Frame) -> From {
        From {
            cluster: frame.cluster,
            node: frame.from,
            format: frame.format,
            wall_ms: frame.wall_ms,
        }
    }
}

/// The answers of a node to requests. A future is dropped, wherever it is, once nobody waits for its answer: after the time
/// that the asker gave, or when the asker or the connection is gone. That of a stream runs on without a connection until
/// its time is over.
pub(crate) trait Handler: Send + Sync + 'static {
    fn request(&self, from: From, kind: u8, body: Bytes) -> impl Future<Output = Bytes> + Send;

    /// The body ends with `UnexpectedEof` where the sender or the connection broke off, and not otherwise before all was
    /// read.
    fn stream(
        &self,
        from: From,
        kind: u8,
        head: Bytes,
        body: impl AsyncRead + Unpin + Send,
    ) -> impl Future<Output = Bytes> + Send;
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// 0: whichever node is there.
    pub node: u64,
    /// `name:port`, resolved at each connection.
    pub addr: String,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NetError {
    /// The connection broke: the request may have been handled. With
    /// [`io::ErrorKind::ResourceBusy`] it was not: too many are under way there.
    Unreachable(io::Error),
    /// There is no connection: the request was not sent.
    NotSent(io::Error),
    /// The time is over. The request may have been handled, or may yet be.
    TimedOut,
    /// The request was not handled: another cluster or node is there, or it is too long.
    Refused(String),
}

/// A node's place on the network. Clones are the same.
#[derive(Clone)]
pub(crate) struct Net {
    shared: Arc<Shared>,
}

struct Shared {
    us: Arc<Us>,
    sockets: Sockets,
    local_addr: SocketAddr,
    links: Links,
    server: Server,
}

impl Net {
    /// Listens. Connections are taken once [`Net::serve`] is called.
    pub async fn bind(
        addr: SocketAddr,
        hello: Hello,
        sockets: Sockets,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Net> {
        let listener = sockets.bind(addr).await?;
        let us = Arc::new(Us { hello, clock });
        let shared = Shared {
            local_addr: listener.local_addr()?,
            links: Links::new(us.clone(), sockets.clone()),
            server: Server::new(listener, us.clone(), sockets.clone()),
            us,
            sockets,
        };
        Ok(Net {
            shared: Arc::new(shared),
        })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local_addr
    }

    /// Answers requests, until [`Net::shutdown`]. Only the first call does anything.
    pub fn serve(&self, handler: Arc<impl Handler>) {
        self.shared.server.serve(handler);
    }

    /// Takes no more connections and requests, gives those under way [`limits::GRACE`], and ends all connections. Every
    /// question after that fails.
    pub async fn shutdown(&self) {
        self.shared.server.shutdown().await;
        self.shared.links.close();
    }

    /// Asks a peer. Many questions share a connection, and answers overtake each other. Dropping the future gives the
    /// question up.
    pub async fn ask(
        &self,
        to: &Peer,
        kind: u8,
        body: Bytes,
        within: Duration,
    ) -> Result<(From, Bytes), NetError> {
        check_len(&body)?;
        let asked = self.shared.links.ask(to, kind, body, within);
        timeout(within, asked)
            .await
            .unwrap_or(Err(NetError::TimedOut))
    }

    /// Sends a stream of any length over a connection of its own, as fast as the body is read and the peer reads.
    pub async fn send(
        &self,
        to: &Peer,
        kind: u8,
        head: Bytes,
        body: impl AsyncRead + Unpin + Send,
        within: Duration,
    ) -> Result<(From, Bytes), NetError> {
        check_len(&head)?;
        let Shared {
            us, sockets, links, ..
        } = &*self.shared;
        let outgoing = stream::Outgoing {
            to,
            kind,
            head,
            within,
        };
        let sent = outgoing.send(us, sockets, body);
        let sent = async {
            tokio::select! {
                sent = sent => sent,
                () = links.closed() => Err(links::shut_down()),
            }
        };
        timeout(within, sent)
            .await
            .unwrap_or(Err(NetError::TimedOut))
    }
}

fn check_len(body: &Bytes) -> Result<(), NetError> {
    if body.len() > MOST_BODY {
        let text = format!("a message of {} bytes is longer than 16 MiB", body.len());
        return Err(NetError::Refused(text));
    }
    Ok(())
}
