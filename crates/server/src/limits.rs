//! The bounds of what clients may hold of the server.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// A body has at most so many bytes, as Cosmos DB has it.
pub(crate) const BODY_BYTES: usize = 2 << 20;
/// Of a body that is larger so much is still read, and thrown away, before it is refused.
pub(crate) const THROWN_AWAY_BYTES: usize = 16 << 20;
/// A body is whole within this.
pub(crate) const BODY_TIME: Duration = Duration::from_secs(30);
/// The head of a request is whole within this; a connection without requests is closed after it.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(60);
/// A handshake of TLS is done within this.
#[cfg(feature = "tls")]
pub(crate) const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// The head of a request has at most so many bytes.
pub(crate) const HEAD_BYTES: usize = 64 << 10;
/// Connections at once, unless configured otherwise.
pub(crate) const CONNECTIONS: usize = 12_000;
/// The bodies of all requests in progress have at most so many bytes.
pub(crate) const MEMORY_BYTES: usize = 256 << 20;
const MEMORY_KIB: usize = MEMORY_BYTES >> 10;
/// Requests that are worked on by threads at once; more wait.
pub(crate) const THREADS: usize = 64;
/// The time that requests in progress have when the server is told to end.
pub(crate) const GRACE: Duration = Duration::from_secs(3);
/// How long the threads of a runtime may go on with what nobody waits for any more.
pub(crate) const LEFT_OVER: Duration = Duration::from_millis(500);

/// The memory that bodies of requests may take, in KiB.
pub(crate) static MEMORY: Semaphore = Semaphore::const_new(MEMORY_KIB);

/// Bytes that the bodies of requests take now, to the KiB.
pub(crate) fn memory_in_use() -> u64 {
    ((MEMORY_KIB - MEMORY.available_permits()) as u64) << 10
}

/// Takes memory for so many bytes, if there is room.
pub(crate) fn fits(memory: &'static Semaphore, bytes: usize) -> Option<SemaphorePermit<'static>> {
    let kib = u32::try_from(bytes.div_ceil(1024)).ok()?;
    memory.try_acquire_many(kib).ok()
}
