//! Clients: each a task with a connection of its own, which asks, waits for the answer, and asks again.

use std::net::SocketAddr;
use std::sync::Arc;

use etcd_client::PutOptions;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::Result;
use crate::store::{Answer, Ask, Put, Status};
use crate::wire::Connection;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum System {
    Ebbtide,
    Etcd,
    Redis,
}

pub enum Client {
    Ebbtide(Connection),
    Etcd(Box<etcd_client::Client>),
    Redis(BufReader<TcpStream>),
}

/// As long as this nothing ends, in seconds.
pub const LIFE_S: u64 = 3_600;

impl Client {
    pub async fn open(system: System, at: SocketAddr) -> Result<Client> {
        Ok(match system {
            System::Ebbtide => Client::Ebbtide(Connection::open(at, Arc::default()).await?),
            System::Etcd => {
                let at = [format!("http://{at}")];
                Client::Etcd(Box::new(etcd_client::Client::connect(at, None).await?))
            }
            System::Redis => {
                let stream = TcpStream::connect(at).await?;
                stream.set_nodelay(true)?;
                Client::Redis(BufReader::new(stream))
            }
        })
    }

    /// `life_ms`, 0: no end.
    pub async fn put(&mut self, key: u64, value: &[u8], life_ms: u64) -> Result<()> {
        match self {
            Client::Ebbtide(connection) => {
                let value = value.to_vec();
                let put = Put {
                    key,
                    value,
                    life_ms,
                };
                done(connection.ask(&Ask::Put(vec![put])).await?)
            }
            Client::Etcd(client) => {
                let lease = match life_ms {
                    0 => None,
                    life => {
                        let seconds = life.div_ceil(1_000) as i64;
                        let lease = client.lease_grant(seconds, None).await?;
                        Some(PutOptions::new().with_lease(lease.id()))
                    }
                };
                client.put(key.to_be_bytes(), value, lease).await?;
                Ok(())
            }
            Client::Redis(stream) => {
                let mut ask = set(key, value, life_ms);
                ask.extend_from_slice(b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$1\r\n0\r\n");
                stream.get_mut().write_all(&ask).await?;
                is(&line(stream).await?, "+OK")?;
                match line(stream).await?.as_str() {
                    ":1" | ":2" => Ok(()),
                    other => Err(format!("redis: {other}").into()),
                }
            }
        }
    }

    /// Many that end, as quickly as the system takes them: of one entry, of a pipeline; etcd has no such thing.
    pub async fn put_many(&mut self, keys: &[(u64, u64)], value: &[u8]) -> Result<()> {
        match self {
            Client::Ebbtide(connection) => {
                let put = |(key, life_ms): &(u64, u64)| Put {
                    key: *key,
                    value: value.to_vec(),
                    life_ms: *life_ms,
                };
                let puts: Vec<Put> = keys.iter().map(put).collect();
                done(connection.ask(&Ask::Put(puts)).await?)
            }
            Client::Etcd(_) => {
                for (key, life_ms) in keys {
                    self.put(*key, value, *life_ms).await?;
                }
                Ok(())
            }
            Client::Redis(stream) => {
                let sets = keys.iter().map(|(key, life_ms)| set(*key, value, *life_ms));
                let sets: Vec<u8> = sets.flatten().collect();
                stream.get_mut().write_all(&sets).await?;
                for _ in keys {
                    is(&line(stream).await?, "+OK")?;
                }
                Ok(())
            }
        }
    }

    /// A linearizable read; redis has none.
    pub async fn get(&mut self, key: u64) -> Result<Option<Vec<u8>>> {
        match self {
            Client::Ebbtide(connection) => match connection.ask(&Ask::Get(key)).await? {
                Answer::Value(value) => Ok(value),
                other => Err(format!("{other:?}").into()),
            },
            Client::Etcd(client) => {
                let found = client.get(key.to_be_bytes(), None).await?;
                Ok(found.kvs().first().map(|item| item.value().to_vec()))
            }
            Client::Redis(_) => Err("redis has no linearizable read".into()),
        }
    }

    /// The sum of what the system has written to its replicas, in entries and in bytes; none where it does not tell.
    pub async fn replicated(&mut self) -> Result<(Option<u64>, Option<u64>)> {
        Ok(match self {
            Client::Ebbtide(_) => {
                let status = self.status().await?;
                (Some(status.index), Some(status.raft_bytes))
            }
            Client::Etcd(client) => (Some(client.status().await?.raft_index()), None),
            Client::Redis(stream) => {
                let info = info(stream).await?;
                let offset = info
                    .lines()
                    .find_map(|line| line.strip_prefix("master_repl_offset:"));
                (None, Some(offset.ok_or("no offset")?.trim().parse()?))
            }
        })
    }

    /// Of an Ebbtide node.
    pub async fn status(&mut self) -> Result<Status> {
        let Client::Ebbtide(connection) = self else {
            return Err("it is not a node of Ebbtide".into());
        };
        match connection.ask(&Ask::Status).await? {
            Answer::Status(status) => Ok(status),
            other => Err(format!("{other:?}").into()),
        }
    }

    /// Replicas that a redis master has, in step.
    pub async fn redis_replicas(&mut self) -> Result<usize> {
        let Client::Redis(stream) = self else {
            return Err("it is not redis".into());
        };
        let info = info(stream).await?;
        Ok(info
            .lines()
            .filter(|line| line.contains("state=online"))
            .count())
    }
}

fn done(answer: Answer) -> Result<()> {
    match answer {
        Answer::Done => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

fn set(key: u64, value: &[u8], life_ms: u64) -> Vec<u8> {
    let life = life_ms.to_string();
    let key = key.to_be_bytes();
    let mut parts: Vec<&[u8]> = vec![b"SET", &key, value];
    if life_ms > 0 {
        parts.extend([&b"PX"[..], life.as_bytes()]);
    }
    let mut ask = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        ask.extend(format!("${}\r\n", part.len()).into_bytes());
        ask.extend(part);
        ask.extend(b"\r\n");
    }
    ask
}

fn is(line: &str, expected: &str) -> Result<()> {
    match line == expected {
        true => Ok(()),
        false => Err(format!("redis: {line}").into()),
    }
}

async fn line(stream: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    Ok(line.trim_end().to_owned())
}

async fn info(stream: &mut BufReader<TcpStream>) -> Result<String> {
    let ask = b"*2\r\n$4\r\nINFO\r\n$11\r\nreplication\r\n";
    stream.get_mut().write_all(ask).await?;
    let bytes = line(stream).await?;
    let bytes: usize = bytes.strip_prefix('$').ok_or("no text")?.parse()?;
    let mut text = vec![0; bytes + 2];
    stream.read_exact(&mut text).await?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
