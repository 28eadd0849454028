//! The thin front of PostgreSQL: a request is one prepared statement.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio_postgres::{Client, NoTls, Statement};

use crate::Result;

/// A connection to PostgreSQL, on which statements may follow one another before they are answered.
struct Connection {
    client: Client,
    upsert: Statement,
    read: Statement,
}

#[derive(Deserialize)]
struct Document {
    id: String,
    pk: String,
}

impl Connection {
    async fn open(socket: &Path) -> Result<Connection> {
        let mut config = tokio_postgres::Config::new();
        config.host_path(socket).user("bench").dbname("postgres");
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        let upsert = "INSERT INTO docs (pk, id, body) VALUES ($1, $2, $3::text::jsonb) \
                      ON CONFLICT (pk, id) DO UPDATE SET body = EXCLUDED.body";
        let read = "SELECT body::text FROM docs WHERE pk = $1 AND id = $2";
        Ok(Connection {
            upsert: client.prepare(upsert).await?,
            read: client.prepare(read).await?,
            client,
        })
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Bytes> {
        if request.method() == Method::GET {
            let id = request.uri().path().rsplit('/').next().unwrap_or_default();
            let key = request.headers()["x-ms-documentdb-partitionkey"].to_str()?;
            let [key]: [String; 1] = serde_json::from_str(key)?;
            let row = self.client.query_one(&self.read, &[&key, &id]).await?;
            return Ok(Bytes::from(row.get::<_, String>(0)));
        }
        let body = request.into_body().collect().await?.to_bytes();
        let text = std::str::from_utf8(&body)?;
        let Document { id, pk } = serde_json::from_str(text)?;
        self.client
            .execute(&self.upsert, &[&pk, &id, &text])
            .await?;
        Ok(body)
    }
}

/// Serves until it is killed; the first line of output is the address.
pub fn serve(socket: &Path, connections: usize) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut all = Vec::new();
        for _ in 0..connections {
            all.push(Arc::new(Connection::open(socket).await?));
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let next = AtomicUsize::new(0);
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let own = all[next.fetch_add(1, Ordering::Relaxed) % all.len()].clone();
            tokio::spawn(async move {
                let service = service_fn(|request: Request<Incoming>| {
                    let own = own.clone();
                    async move {
                        let body = own.answer(request).await.map_err(std::io::Error::other)?;
                        Ok::<_, std::io::Error>(Response::new(Full::new(body)))
                    }
                });
                let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                if let Err(error) = served.await {
                    eprintln!("front: {error}");
                }
            });
        }
    })
}
