//! Sockets: connected and accepted, with or without TLS. No other file names TCP.
//!
//! ```text
//! Links, streams, Server ──> Sockets ──> Tls, if there is any ──> Transport: Tcp, or a simulated network in tests
//! ```

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::limits::HANDSHAKE;
use super::tls::Tls;

/// Bytes in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// A connection.
pub type Socket = Box<dyn Duplex>;

/// The future of a result of a [`Transport`].
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// The network below a node.
pub trait Transport: Send + Sync + 'static {
    /// Listens.
    fn bind(&self, addr: SocketAddr) -> Pending<'static, Box<dyn Listener>>;

    /// Resolves `name:port`, and connects.
    fn connect(&self, addr: &str) -> Pending<'static, Socket>;
}

/// A listening socket.
pub trait Listener: Send + Sync {
    /// The address that it listens on.
    ///
    /// # Errors
    /// Those of the network.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// The next connection. Cancel safe.
    fn accept(&self) -> Pending<'_, Socket>;
}

/// The network of the machine.
pub(crate) struct Tcp;

impl Transport for Tcp {
    fn bind(&self, addr: SocketAddr) -> Pending<'static, Box<dyn Listener>> {
        Box::pin(async move { Ok(Box::new(TcpListener::bind(addr).await?) as Box<dyn Listener>) })
    }

    fn connect(&self, addr: &str) -> Pending<'static, Socket> {
        let addr = addr.to_owned();
        Box::pin(async move { at_once(TcpStream::connect(addr).await?) })
    }
}

impl Listener for TcpListener {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        TcpListener::local_addr(self)
    }

    fn accept(&self) -> Pending<'_, Socket> {
        Box::pin(async { at_once(TcpListener::accept(self).await?.0) })
    }
}

/// Has the stream send each write at once (`TCP_NODELAY`).
fn at_once(stream: TcpStream) -> io::Result<Socket> {
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

/// The way to connections. Clones are the same.
#[derive(Clone)]
pub(crate) struct Sockets {
    transport: Arc<dyn Transport>,
    tls: Option<Tls>,
}

impl Sockets {
    pub fn new(transport: Arc<dyn Transport>, tls: Option<Tls>) -> Sockets {
        Sockets { transport, tls }
    }

    pub async fn bind(&self, addr: SocketAddr) -> io::Result<Box<dyn Listener>> {
        self.transport.bind(addr).await
    }

    /// Speaks TLS on a connection that was accepted, if there is any; the caller limits the time.
    pub async fn greet(&self, socket: Socket) -> io::Result<Socket> {
        match &self.tls {
            None => Ok(socket),
            Some(tls) => Ok(Box::new(tls.accept(socket).await?)),
        }
    }

    /// Connects, and speaks TLS, within [`HANDSHAKE`].
    pub async fn connect(&self, addr: &str) -> io::Result<Socket> {
        let connect = async {
            let socket = self.transport.connect(addr).await?;
            match &self.tls {
                None => Ok(socket),
                Some(tls) => Ok(Box::new(tls.connect(host(addr), socket).await?) as Socket),
            }
        };
        timeout(HANDSHAKE, connect)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// The name in `name:port` or `[address]:port`.
fn host(addr: &str) -> &str {
    let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}
