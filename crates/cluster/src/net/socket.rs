//! Sockets: connected and accepted, with or without TLS. No other file names TCP.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::limits::HANDSHAKE;
use super::tls::Tls;

/// Bytes in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

pub(super) type Socket = Box<dyn Duplex>;

/// A listening socket.
pub(super) struct Listener(TcpListener);

impl Listener {
    pub async fn bind(addr: SocketAddr) -> io::Result<Listener> {
        TcpListener::bind(addr).await.map(Listener)
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// A connection on which no TLS was spoken yet. Cancel safe.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        self.0.accept().await.map(|(stream, _)| stream)
    }
}

/// Speaks TLS, if there is any; the caller limits the time.
pub(super) async fn greet(stream: TcpStream, tls: Option<&Tls>) -> io::Result<Socket> {
    stream.set_nodelay(true)?;
    match tls {
        None => Ok(Box::new(stream)),
        Some(tls) => Ok(Box::new(tls.accept(stream).await?)),
    }
}

/// Resolves the name, connects, and speaks TLS, within [`HANDSHAKE`].
pub(super) async fn connect(addr: &str, tls: Option<&Tls>) -> io::Result<Socket> {
    let connect = async {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        match tls {
            None => Ok(Box::new(stream) as Socket),
            Some(tls) => Ok(Box::new(tls.connect(host(addr), stream).await?) as Socket),
        }
    };
    timeout(HANDSHAKE, connect)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The name in `name:port` or `[address]:port`.
fn host(addr: &str) -> &str {
    let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}
