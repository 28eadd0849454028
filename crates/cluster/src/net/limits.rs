//! The most that one node lets others take of it.

use std::time::Duration;

/// Connections that others have open to a node, streams among them: four nodes with thirty streams each.
pub(super) const CONNECTIONS: usize = 128;
/// Requests of one kind that are under way to one peer: the next one waits. The longest gathered entry has 1 024 ops.
pub(super) const ASKS_OF_A_KIND: usize = 1_024;
/// Requests of one connection that are handled at a time. Whoever follows the rule above passes it only with what it gave
/// up, or with several kinds that all wait; what comes more is answered as busy.
pub(super) const HANDLED: usize = 4_096;
/// Bytes of the bodies of one connection that are handled, and of answers that wait: what comes more is answered as busy.
pub(super) const HELD_BYTES: usize = 64 << 20;
/// A connection whose answers nobody reads ends when so many bytes wait.
pub(super) const UNREAD_BYTES: usize = 256 << 20;
/// Frames that wait for the socket; who has one more waits himself.
pub(super) const QUEUED: usize = 64;
/// Parts of a stream that wait for the socket.
pub(super) const QUEUED_PARTS: usize = 2;
/// The longest part of a stream.
pub(super) const PART_BYTES: usize = 64 << 10;
/// Bytes of a stream between the socket and its reader.
pub(super) const STREAM_BYTES: usize = 128 << 10;

/// For resolving a name, connecting, TLS; and, on the other side, TLS and the first frame of the right cluster.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(5);
/// How often each side says that it is there.
pub(super) const ALIVE: Duration = Duration::from_secs(1);
/// Without a byte for so long, the other side is gone.
pub(super) const SILENCE: Duration = Duration::from_secs(6);
/// The other side takes no byte for so long: it is stuck. A disk that is stuck for 30 s is slow.
pub(super) const STUCK: Duration = Duration::from_secs(60);
/// A connection that nobody asks over for so long ends.
pub(super) const IDLE: Duration = Duration::from_secs(60);
/// A peer that could not be reached is tried again after the first, and at last after the second.
pub(super) const FIRST_RETRY: Duration = Duration::from_millis(25);
pub(super) const LAST_RETRY: Duration = Duration::from_millis(500);
/// Requests under way may go on so long after `shutdown`.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// How long a connection is read from after the last was written, lest a reset overtake that.
pub(super) const LINGER: Duration = Duration::from_secs(1);
