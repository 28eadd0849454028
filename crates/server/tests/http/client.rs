//! A client of HTTP that shows what came, and a server to ask.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use ebbtide_server::{ClockKind, Config, Server};
use serde_json::Value;

/// A server in memory whose clock stands, with a database `shop`.
pub fn start() -> (Server, Client) {
    let server = Server::start(&config()).unwrap();
    let client = Client(server.address());
    client.post("/dbs", r#"{"id":"shop"}"#, &[]).is(201);
    (server, client)
}

pub fn config() -> Config {
    let mut config = Config::default();
    config.temporary = true;
    config.clock = ClockKind::Manual;
    config.http = "127.0.0.1:0".parse().unwrap();
    config
}

#[derive(Clone, Copy)]
pub struct Client(pub SocketAddr);

pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    /// Itself, whose status is this one.
    #[track_caller]
    pub fn is(self, status: u16) -> Reply {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    #[track_caller]
    pub fn is_refused(&self, status: u16, code: &str) {
        let told = (self.status, self.json()["code"].as_str().map(str::to_owned));
        assert_eq!(told, (status, Some(code.to_owned())), "{}", self.body);
    }

    /// The same with a sub-status.
    #[track_caller]
    pub fn is_refused_as(&self, status: u16, sub_status: &str) {
        let told = (self.status, self.header("x-ms-substatus"));
        assert_eq!(told, (status, Some(sub_status)), "{}", self.body);
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|_| panic!("{} {:?}", self.status, self.body))
    }

    /// The rows of a list or query, without system properties.
    pub fn rows(&self) -> Vec<Value> {
        let mut rows = self.json()["Documents"].as_array().unwrap().clone();
        for row in &mut rows {
            if let Some(row) = row.as_object_mut() {
                row.retain(|name, _| !name.starts_with('_'));
            }
        }
        rows
    }
}

impl Client {
    pub fn ask(&self, method: &str, path: &str, body: &str, headers: &[(&str, &str)]) -> Reply {
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        if !headers.iter().any(|(name, _)| *name == "host") {
            request.push_str("host: localhost\r\n");
        }
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        let mut stream = TcpStream::connect(self.0).unwrap();
        // A server that refuses a request by its head may close before the body was sent.
        let _ = stream.write_all(format!("{request}\r\n{body}").as_bytes());
        read(stream).unwrap()
    }

    pub fn get(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        self.ask("GET", path, "", headers)
    }

    pub fn post(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> Reply {
        self.ask("POST", path, body, headers)
    }

    pub fn put(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> Reply {
        self.ask("PUT", path, body, headers)
    }

    /// A container in `shop`, by `/pk`, with more members of its definition.
    pub fn container(&self, id: &str, more: &str) {
        let body = format!(
            "{{\"id\":\"{id}\",\"partitionKey\":{{\"paths\":[\"/pk\"],\"kind\":\"Hash\",\"version\":2}}{more}}}"
        );
        self.post("/dbs/shop/colls", &body, &[]).is(201);
    }

    pub fn create(&self, container: &str, body: &str) -> Reply {
        self.post(&format!("/dbs/shop/colls/{container}/docs"), body, &[])
    }

    pub fn read(&self, container: &str, id: &str) -> Reply {
        self.get(&format!("/dbs/shop/colls/{container}/docs/{id}"), &[KEY])
    }

    pub fn query(&self, container: &str, text: &str, headers: &[(&str, &str)]) -> Reply {
        let body = serde_json::json!({ "query": text }).to_string();
        let all = ("x-ms-documentdb-query-enablecrosspartition", "true");
        let headers = [&[("content-type", "application/query+json"), all], headers].concat();
        self.post(
            &format!("/dbs/shop/colls/{container}/docs"),
            &body,
            &headers,
        )
    }

    pub fn advance(&self, by: &str) {
        self.post("/_clock", &format!("{{\"advance\":\"{by}\"}}"), &[])
            .is(200);
    }
}

/// The partition key of the documents of most tests.
pub const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"a\"]");

pub fn read(stream: impl Read) -> std::io::Result<Reply> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let status = status.ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_string(), value.to_string())),
            None => break,
        }
    }
    let mut body = Vec::new();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    match length.and_then(|(_, length)| length.parse::<u64>().ok()) {
        Some(length) => reader.take(length).read_to_end(&mut body)?,
        None => reader.read_to_end(&mut body)?,
    };
    let body = String::from_utf8(body).map_err(std::io::Error::other)?;
    Ok(Reply {
        status,
        headers,
        body,
    })
}
