//! Frames over TCP, a length and postcard, and openraft's network over them.

// Errors are openraft's, of the size that it gives them.
#![allow(clippy::result_large_err)]

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{BasicNode, Raft, RaftNetwork, RaftNetworkFactory};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::store::Program;

/// A connection, and the bytes that were written to all that share the count.
pub struct Connection {
    stream: BufReader<TcpStream>,
    frame: Vec<u8>,
    written: Arc<AtomicU64>,
}

impl Connection {
    pub fn new(stream: TcpStream, written: Arc<AtomicU64>) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream: BufReader::new(stream),
            frame: vec![],
            written,
        })
    }

    pub async fn open(to: SocketAddr, written: Arc<AtomicU64>) -> io::Result<Connection> {
        Connection::new(TcpStream::connect(to).await?, written)
    }

    pub async fn write(&mut self, message: &impl Serialize) -> io::Result<()> {
        let frame = std::mem::take(&mut self.frame);
        let mut frame = frame;
        frame.clear();
        frame.extend([0; 4]);
        let mut frame = postcard::to_extend(message, frame).map_err(io::Error::other)?;
        let bytes = frame.len() as u32 - 4;
        frame[..4].copy_from_slice(&bytes.to_le_bytes());
        self.written.fetch_add(frame.len() as u64, Relaxed);
        self.stream.get_mut().write_all(&frame).await?;
        self.frame = frame;
        Ok(())
    }

    pub async fn read<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let bytes = self.stream.read_u32_le().await?;
        self.frame.resize(bytes as usize, 0);
        self.stream.read_exact(&mut self.frame).await?;
        postcard::from_bytes(&self.frame).map_err(io::Error::other)
    }

    pub async fn ask<T: DeserializeOwned>(&mut self, message: &impl Serialize) -> io::Result<T> {
        self.write(message).await?;
        self.read().await
    }
}

#[derive(Serialize, Deserialize)]
enum Call {
    Append(AppendEntriesRequest<Program>),
    Vote(VoteRequest<u64>),
    Install(InstallSnapshotRequest<Program>),
}

/// Answers the calls of other nodes.
pub async fn serve(
    listener: TcpListener,
    raft: Raft<Program>,
    written: Arc<AtomicU64>,
) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let connection = Connection::new(stream, written.clone())?;
        tokio::spawn(answer(connection, raft.clone()));
    }
}

async fn answer(mut connection: Connection, raft: Raft<Program>) -> io::Result<()> {
    loop {
        match connection.read().await? {
            Call::Append(rpc) => connection.write(&raft.append_entries(rpc).await).await?,
            Call::Vote(rpc) => connection.write(&raft.vote(rpc).await).await?,
            Call::Install(rpc) => connection.write(&raft.install_snapshot(rpc).await).await?,
        }
    }
}

/// Connections to a peer that nobody uses just now.
#[derive(Default)]
struct Idle(Mutex<Vec<Connection>>);

/// The ways to all peers. Clones are the same.
#[derive(Clone)]
pub struct Network {
    peers: BTreeMap<u64, (SocketAddr, Arc<Idle>)>,
    written: Arc<AtomicU64>,
}

impl Network {
    pub fn new(peers: &BTreeMap<u64, SocketAddr>, written: Arc<AtomicU64>) -> Network {
        let peers = peers.iter().map(|(id, at)| (*id, (*at, Arc::default())));
        Network {
            peers: peers.collect(),
            written,
        }
    }
}

impl RaftNetworkFactory<Program> for Network {
    type Network = Way;

    async fn new_client(&mut self, target: u64, _: &BasicNode) -> Way {
        let (at, idle) = self.peers[&target].clone();
        Way {
            target,
            at,
            idle,
            written: self.written.clone(),
        }
    }
}

pub struct Way {
    target: u64,
    at: SocketAddr,
    idle: Arc<Idle>,
    written: Arc<AtomicU64>,
}

type Failed<E> = RPCError<u64, BasicNode, RaftError<u64, E>>;

impl Way {
    /// A connection whose call was dropped half-way is not used again.
    async fn ask<T: DeserializeOwned>(&self, call: &Call) -> io::Result<T> {
        let idle = self.idle.0.lock().expect("no panics").pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => Connection::open(self.at, self.written.clone()).await?,
        };
        let answer = connection.ask(call).await?;
        self.idle.0.lock().expect("no panics").push(connection);
        Ok(answer)
    }

    async fn call<T, E>(&self, call: Call) -> Result<T, Failed<E>>
    where
        T: DeserializeOwned,
        E: std::error::Error + DeserializeOwned,
    {
        let answer: io::Result<Result<T, RaftError<u64, E>>> = self.ask(&call).await;
        let answer = answer.map_err(|e| RPCError::Network(NetworkError::new(&e)))?;
        answer.map_err(|e| RPCError::RemoteError(RemoteError::new(self.target, e)))
    }
}

impl RaftNetwork<Program> for Way {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Program>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        self.call(Call::Append(rpc)).await
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<Program>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Failed<InstallSnapshotError>> {
        self.call(Call::Install(rpc)).await
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        _: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        self.call(Call::Vote(rpc)).await
    }
}
