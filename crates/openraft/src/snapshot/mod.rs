//! Snapshots: one stream of a list and the files that it tells of, which any network carries in pieces, in any size.
//!
//! ```text
//! stream   head | file | file | ...
//! head     "EBSN" | version u32 | length of the list u32 | list | xxh3 of all before u64        numbers: LE
//! list     postcard([(name, length, xxh3 of the file)])
//! files    a checkpoint of the state's database: never the vote, never the log
//! ```
//!
//! The sender's copy is made of hard links when the stream is asked for, and goes with it, at the latest after 10 min (I7); for
//! its links hold expired files. The receiver writes each byte in its place, so that the stream goes on from any offset up to
//! that which it has. When all of it is there, every file is compared with the list and synced.
//!
//! Invariant: a state is made of a stream only after all its files were verified and synced (I8).

mod receiving;
mod sending;

use std::collections::hash_map::RandomState;
use std::fmt::Debug;
use std::hash::BuildHasher;
use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use ebbtide::Database;
use openraft::{LogId, RaftTypeConfig};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

use self::receiving::Receiving;
use self::sending::{Copy, Sending};

const MAGIC: &[u8; 4] = b"EBSN";
const VERSION: u32 = 1;
/// Magic, version, length.
const HEAD_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 8;
/// A list of some hundred thousand files; more is damage.
const MOST_LIST_BYTES: usize = 32 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Listed {
    /// Relative, with `/` between folders.
    name: String,
    bytes: u64,
    checksum: u64,
}

/// The program's `RaftTypeConfig::SnapshotData`: a snapshot that is sent, to be read from, or one that comes in, to be written
/// to. It is for openraft's default transport by chunks and, with its feature `generic-snapshot-data`, for a program's own:
/// both read, write and seek. Memory is bounded by the pieces that are asked for.
#[derive(Debug)]
pub struct SnapshotData(Kind);

#[derive(Debug)]
enum Kind {
    Unmade,
    Sending(Sending),
    Receiving(Receiving),
}

impl SnapshotData {
    /// Of a state that was only synced.
    pub(crate) fn unmade() -> SnapshotData {
        SnapshotData(Kind::Unmade)
    }

    /// A stream that comes in, into a folder that is not there yet.
    pub(crate) fn receive(folder: Option<&Path>) -> io::Result<SnapshotData> {
        let folder = folder.ok_or_else(|| unsupported("this state has no folder for snapshots"))?;
        Ok(SnapshotData(Kind::Receiving(Receiving::new(folder)?)))
    }

    /// A copy of a database, in a folder that is not there yet, to be sent at so many bytes a second.
    pub(crate) fn copy_of(db: &Database, folder: PathBuf, rate: u64) -> io::Result<Arc<Copy>> {
        Copy::of(db, folder, rate)
    }

    /// The folder of what came in, verified and synced. What was never sent, but is handed over in the same process, is copied to
    /// `fresh`.
    pub(crate) fn into_folder(self, fresh: PathBuf) -> io::Result<PathBuf> {
        match self.0 {
            Kind::Unmade => Err(unmade()),
            Kind::Receiving(receiving) => receiving.finish(),
            Kind::Sending(sending) => {
                let mut receiving = Receiving::new(&fresh)?;
                sending.each_piece(|position, mut piece| {
                    let mut position = position;
                    while !piece.is_empty() {
                        let taken = receiving.write_at(position, piece)?;
                        (position, piece) = (position + taken as u64, &piece[taken..]);
                    }
                    Ok(())
                })?;
                receiving.finish()
            }
        }
    }
}

fn unsupported(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, what)
}

fn unmade() -> io::Error {
    unsupported("the state was synced, and no copy was made: Raft::get_snapshot makes one")
}

fn damaged(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl AsyncRead for SnapshotData {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Kind::Sending(sending) => sending.poll_read(cx, buf),
            Kind::Receiving(_) => {
                Poll::Ready(Err(unsupported("a snapshot that comes in is not read")))
            }
            Kind::Unmade => Poll::Ready(Err(unmade())),
        }
    }
}

impl AsyncWrite for SnapshotData {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Kind::Receiving(receiving) => Poll::Ready(receiving.write(buf)),
            _ => Poll::Ready(Err(unsupported("a snapshot that is sent is not written"))),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Compares every file with the list, and syncs it.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Kind::Receiving(receiving) => receiving.poll_verify(cx),
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncSeek for SnapshotData {
    fn start_seek(self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        match &mut self.get_mut().0 {
            Kind::Sending(sending) => sending.start_seek(to),
            Kind::Receiving(receiving) => receiving.seek(to),
            Kind::Unmade => Err(unmade()),
        }
    }

    fn poll_complete(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        match &mut self.get_mut().0 {
            Kind::Sending(sending) => sending.poll_seek(cx),
            Kind::Receiving(receiving) => Poll::Ready(Ok(receiving.position())),
            Kind::Unmade => Poll::Ready(Err(unmade())),
        }
    }
}

/// A place in a stream, moved as asked.
fn moved(position: u64, end: Option<u64>, to: SeekFrom) -> io::Result<u64> {
    let (from, by) = match to {
        SeekFrom::Start(to) => (to, 0),
        SeekFrom::Current(by) => (position, by),
        SeekFrom::End(by) => (
            end.ok_or_else(|| unsupported("the end is not known yet"))?,
            by,
        ),
    };
    from.checked_add_signed(by)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a place before the beginning"))
}

/// Something of the state after an entry.
type Of<C, T> = (Option<LogId<<C as RaftTypeConfig>::NodeId>>, T);

/// The ids of snapshots, and the copy that is being sent: as long as nothing is applied, all who ask get the same.
pub(crate) struct SnapshotIds<C: RaftTypeConfig> {
    /// Two nodes, or two starts of one, make no id in common.
    salt: u64,
    made: u64,
    last: Option<Of<C, String>>,
    copy: Option<Of<C, Weak<Copy>>>,
}

impl<C: RaftTypeConfig> SnapshotIds<C> {
    pub(crate) fn new() -> SnapshotIds<C> {
        SnapshotIds {
            salt: RandomState::new().hash_one(std::process::id()),
            made: 0,
            last: None,
            copy: None,
        }
    }

    /// The id of a snapshot of the state after this entry.
    pub(crate) fn id(&mut self, applied: &Option<LogId<C::NodeId>>) -> String {
        match &self.last {
            Some((of, id)) if of == applied => id.clone(),
            _ => {
                self.made += 1;
                let id = format!("{:016x}-{}", self.salt, self.made);
                self.set(applied, id.clone());
                id
            }
        }
    }

    /// The state after this entry came by the snapshot of this id.
    pub(crate) fn set(&mut self, applied: &Option<LogId<C::NodeId>>, id: String) {
        self.last = Some((applied.clone(), id));
    }

    /// The copy of the state after this entry that is being sent, or a new one.
    pub(crate) fn copy(
        &mut self,
        applied: &Option<LogId<C::NodeId>>,
        make: impl FnOnce() -> io::Result<Arc<Copy>>,
    ) -> io::Result<SnapshotData> {
        let same = self.copy.as_ref().filter(|(of, _)| of == applied);
        let copy = match same.and_then(|(_, copy)| copy.upgrade()) {
            Some(copy) => copy,
            None => make()?,
        };
        self.copy = Some((applied.clone(), Arc::downgrade(&copy)));
        Ok(SnapshotData(Kind::Sending(Sending::new(copy))))
    }
}
