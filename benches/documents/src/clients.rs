//! Clients: each a thread with a connection that stays, which asks, reads the answer, checks it, and asks again.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::Result;

/// Documents of a partition key.
const OF_KEY: usize = 10;
/// A document with its id and partition key.
const BYTES: usize = 300;

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Upsert,
    Read,
}

#[derive(Clone, Copy)]
pub struct Load {
    pub address: SocketAddr,
    pub clients: usize,
    pub documents: usize,
    pub time: Duration,
}

impl Load {
    /// Writes each document once.
    pub fn fill(&self) -> Result<()> {
        self.all(|load, number| {
            let mut client = Client::new(load.address)?;
            for document in (number..load.documents).step_by(load.clients) {
                client.ask(Kind::Upsert, document)?;
            }
            Ok(0)
        })?;
        Ok(())
    }

    /// Upserts or reads documents at random: the number of answers, and the seconds that they took.
    pub fn run(&self, kind: Kind) -> Result<(u64, f64)> {
        let began = Instant::now();
        let answers = self.all(move |load, number| {
            let mut client = Client::new(load.address)?;
            let (mut answers, mut state) = (0, number as u64 + 1);
            while began.elapsed() < load.time {
                // G. Marsaglia, xorshift.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                client.ask(kind, state as usize % load.documents)?;
                answers += 1;
            }
            Ok(answers)
        })?;
        Ok((answers, began.elapsed().as_secs_f64()))
    }

    fn all(&self, work: impl Fn(Load, usize) -> Result<u64> + Copy + Send) -> Result<u64> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.clients)
                .map(|number| scope.spawn(move || work(*self, number)))
                .collect();
            let mut sum = 0;
            for thread in threads {
                sum += thread.join().map_err(|_| "a client failed")??;
            }
            Ok(sum)
        })
    }
}

struct Client {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
    line: String,
    body: Vec<u8>,
}

impl Client {
    fn new(address: SocketAddr) -> Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Client {
            stream: BufReader::with_capacity(1 << 14, stream),
            request: Vec::new(),
            line: String::new(),
            body: Vec::new(),
        })
    }

    fn ask(&mut self, kind: Kind, document: usize) -> Result<()> {
        let key = document / OF_KEY;
        self.request.clear();
        match kind {
            Kind::Read => write!(
                self.request,
                "GET /dbs/d/colls/c/docs/{document:08} HTTP/1.1\r\nhost: localhost\r\n\
                 x-ms-documentdb-partitionkey: [\"{key:08}\"]\r\n\r\n"
            )?,
            Kind::Upsert => {
                let mut body = format!(
                    "{{\"id\":\"{document:08}\",\"pk\":\"{key:08}\",\"n\":{document},\"text\":\""
                );
                while body.len() < BYTES - 2 {
                    body.push(char::from(b'a' + (body.len() * 7 + document) as u8 % 26));
                }
                body.push_str("\"}");
                write!(
                    self.request,
                    "POST /dbs/d/colls/c/docs HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\
                     x-ms-documentdb-is-upsert: True\r\nx-ms-documentdb-partitionkey: [\"{key:08}\"]\r\n\r\n{body}",
                    body.len()
                )?;
            }
        }
        self.stream.get_mut().write_all(&self.request)?;
        self.answer(document)
    }

    fn answer(&mut self, document: usize) -> Result<()> {
        let (mut status, mut len) = (String::new(), 0);
        loop {
            self.line.clear();
            self.stream.read_line(&mut self.line)?;
            let line = self.line.trim_end();
            if line.is_empty() {
                break;
            }
            if status.is_empty() {
                status = line.to_owned();
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                len = value.trim().parse()?;
            }
        }
        self.body.resize(len, 0);
        self.stream.read_exact(&mut self.body)?;
        let is_it = |window: &[u8]| window == format!("{document:08}").as_bytes();
        if !status.starts_with("HTTP/1.1 20") || !self.body[..len.min(80)].windows(8).any(is_it) {
            let body = String::from_utf8_lossy(&self.body);
            return Err(format!("{status}: {body}").into());
        }
        Ok(())
    }
}
