//! Snapshots between nodes: one stream, which goes on where it broke off.
//!
//! ```text
//! sender    how much of the snapshot NAME have you? ──> receiver
//!           <── so many bytes
//!           stream (vote, meta, so many) + the rest ──> verified, synced, installed
//!           <── the receiver's vote, or why not
//! ```
//!
//! Invariant: the receiver keeps one unfinished snapshot, the last that was sent to it. Bytes are taken at the place where those
//! before ended, and nowhere else.

use std::io;
use std::io::SeekFrom;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebbtide_openraft::SnapshotData;
use openraft::raft::SnapshotResponse;
use openraft::{BasicNode, Raft, Snapshot, SnapshotMeta, Vote};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::sync::Mutex;

use super::Types;
use crate::calls::{self, Calls};
use crate::net::Peer;

/// The end of a transfer, and of the copy that it sends.
pub const LONGEST: Duration = Duration::from_secs(600);
/// So often a stream that broke is gone on with, before openraft begins anew.
const ATTEMPTS: usize = 8;
const PAUSE: Duration = Duration::from_millis(200);
const ASK: Duration = Duration::from_secs(5);
const PIECE: usize = 64 << 10;

#[derive(Serialize, Deserialize)]
struct Head {
    vote: Vote<u64>,
    meta: SnapshotMeta<u64, BasicNode>,
    position: u64,
}

type Told = Result<SnapshotResponse<u64>, String>;

/// Sends a snapshot, and waits until it is installed.
pub async fn send(
    calls: &Arc<Calls>,
    to: &Peer,
    vote: Vote<u64>,
    mut snapshot: Snapshot<Types>,
) -> io::Result<SnapshotResponse<u64>> {
    let mut failed = io::Error::other("it was not sent");
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        match once(calls, to, vote, &mut snapshot).await {
            Ok(response) => return Ok(response),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn once(
    calls: &Arc<Calls>,
    to: &Peer,
    vote: Vote<u64>,
    snapshot: &mut Snapshot<Types>,
) -> io::Result<SnapshotResponse<u64>> {
    let other = |e: crate::net::NetError| io::Error::other(calls::text(&e));
    let name = calls::encode(&snapshot.meta.snapshot_id);
    let position = calls.ask(to, calls::SNAPSHOT_AT, name, ASK).await;
    let position: u64 = calls::decode(&position.map_err(other)?)?;
    let data = &mut *snapshot.snapshot;
    data.seek(SeekFrom::Start(position)).await?;
    let head = calls::encode(&Head {
        vote,
        meta: snapshot.meta.clone(),
        position,
    });
    let sent = calls.send(to, calls::SNAPSHOT, head, data, LONGEST);
    let told: Told = calls::decode(&sent.await.map_err(other)?)?;
    told.map_err(io::Error::other)
}

struct Partial {
    name: String,
    data: Box<SnapshotData>,
    position: u64,
}

/// The receiver's side.
pub struct Incoming {
    raft: Raft<Types>,
    partial: Mutex<Option<Partial>>,
}

impl Incoming {
    pub fn new(raft: Raft<Types>) -> Incoming {
        Incoming {
            raft,
            partial: Mutex::new(None),
        }
    }

    /// Drops what came.
    pub async fn forget(&self) {
        *self.partial.lock().await = None;
    }

    /// How much of a snapshot is here.
    pub async fn position(&self, name: &[u8]) -> Bytes {
        let name: String = calls::decode(name).unwrap_or_default();
        let partial = self.partial.lock().await;
        let same = partial.as_ref().filter(|partial| partial.name == name);
        calls::encode(&same.map_or(0, |partial| partial.position))
    }

    pub async fn take(&self, head: Bytes, body: impl AsyncRead + Unpin) -> Bytes {
        let told: Told = match calls::decode::<Head>(&head) {
            Ok(head) => self.receive(head, body).await.map_err(|e| e.to_string()),
            Err(error) => Err(error.to_string()),
        };
        calls::encode(&told)
    }

    async fn receive(
        &self,
        head: Head,
        mut body: impl AsyncRead + Unpin,
    ) -> io::Result<SnapshotResponse<u64>> {
        let mut place = self.partial.lock().await;
        let is_next = |partial: &Partial| {
            partial.name == head.meta.snapshot_id && partial.position == head.position
        };
        if head.position == 0 {
            // The part that came of another one goes before this one takes room.
            *place = None;
            let data = self.raft.begin_receiving_snapshot().await;
            *place = Some(Partial {
                name: head.meta.snapshot_id.clone(),
                data: data.map_err(io::Error::other)?,
                position: 0,
            });
        }
        let Some(partial) = place.as_mut().filter(|partial| is_next(partial)) else {
            return Err(io::Error::other("these bytes are not the next"));
        };
        let mut piece = vec![0; PIECE];
        loop {
            let read = body.read(&mut piece).await?;
            if read == 0 {
                break;
            }
            partial.data.write_all(&piece[..read]).await?;
            partial.position += read as u64;
        }
        let Some(mut whole) = place.take() else {
            return Err(io::Error::other("it is gone"));
        };
        whole.data.shutdown().await?;
        let snapshot = Snapshot {
            meta: head.meta,
            snapshot: whole.data,
        };
        let installed = self.raft.install_full_snapshot(head.vote, snapshot).await;
        installed.map_err(io::Error::other)
    }
}
