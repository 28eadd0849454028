//! Connections: accepted, served, and ended.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::handle::handle;
use crate::limits::{GRACE, HEAD_BYTES, HEAD_TIME, MEMORY};
use crate::state::Shared;
use crate::tls::Tls;

/// Accepts connections until told to stop, and lets those that are there finish what they have begun.
pub(crate) async fn accept(
    listener: TcpListener,
    state: Shared,
    tls: Option<Tls>,
    most: usize,
    stop: watch::Receiver<bool>,
) {
    let connections = Arc::new(Semaphore::new(most));
    let tls = tls.map(Arc::new);
    let mut stopped = stop.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stops(&mut stopped) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, mostly: others will be closed.
                tracing::warn!("no connection can be accepted: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(permit) = connections.clone().try_acquire_owned() else {
            let figures = &state.frontend().figures;
            figures.refused_connections.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let (state, tls, stop) = (state.clone(), tls.clone(), stop.clone());
        tokio::spawn(async move {
            let open = &state.frontend().figures.connections;
            open.fetch_add(1, Ordering::Relaxed);
            serve(stream, peer, &state, tls.as_deref(), stop).await;
            open.fetch_sub(1, Ordering::Relaxed);
            drop(permit);
        });
    }
    drop(listener);
    let all = connections.acquire_many(u32::try_from(most).unwrap_or(u32::MAX));
    if tokio::time::timeout(GRACE, all).await.is_err() {
        tracing::warn!("connections were still open after {GRACE:?} and are closed");
    }
}

async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    state: &Shared,
    tls: Option<&Tls>,
    stop: watch::Receiver<bool>,
) {
    // Answers are written whole; Nagle's algorithm would hold up the last piece of one.
    let _ = stream.set_nodelay(true);
    match tls {
        None => talk(stream, peer, state, stop).await,
        Some(tls) => match tls.accept(stream).await {
            Ok(stream) => talk(stream, peer, state, stop).await,
            Err(error) => tracing::debug!(%peer, "no TLS: {error}"),
        },
    }
}

async fn talk<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: S,
    peer: SocketAddr,
    state: &Shared,
    mut stop: watch::Receiver<bool>,
) {
    let service = service_fn(|request| {
        let state = state.clone();
        async move { Ok::<_, std::convert::Infallible>(handle(state, &MEMORY, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = stops(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%peer, "the connection ended: {error}");
    }
}

/// Rests until the server is told to stop, or is gone.
async fn stops(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
