//! Documents of 300 bytes over HTTP: point reads and upserts by some clients over loopback, of `ebbtide serve` and of
//! PostgreSQL's jsonb behind a thin front, as ratios in one run.
//!
//! Both get the same bytes from the same clients, one after the other: the loading of all documents, upserts of documents
//! that are there, reads. What counts is answers for each second of processor time that the server took: of PostgreSQL that
//! is all its processes and the front. The front is hyper and tokio-postgres with prepared statements, and has no more to do
//! than find id and partition key.

mod clients;
mod front;
mod processes;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use clients::{Kind, Load};
use processes::{Ebbtide, Postgres, Running};

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Parser)]
struct Arguments {
    /// The command `ebbtide`, built with the feature `serve`.
    #[arg(long)]
    ebbtide: PathBuf,
    /// The folder of `initdb` and `postgres`.
    #[arg(long, default_value = "/usr/local/bin")]
    postgres: PathBuf,
    /// Of the user that PostgreSQL runs as, where this runs as root: PostgreSQL refuses that.
    #[arg(long, default_value_t = 65_534)]
    user: u32,
    /// A folder for both databases.
    #[arg(long, default_value = "/tmp")]
    scratch: PathBuf,
    #[arg(long, default_value_t = 16)]
    clients: usize,
    #[arg(long, default_value_t = 100_000)]
    documents: usize,
    /// Of each of the two kinds.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Connections of the front to PostgreSQL; the best of them counts.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 16])]
    connections: Vec<usize>,
    /// Serves as the front of PostgreSQL on this socket of it, and does nothing else.
    #[arg(long, hide = true)]
    front: Option<PathBuf>,
}

/// Answers, and the seconds of time and of processors that they took.
struct Row {
    what: String,
    answers: u64,
    seconds: f64,
    processors: f64,
}

impl Row {
    fn print(&self) {
        let (each, per_processor) = (
            self.answers as f64 / self.seconds,
            self.answers as f64 / self.processors,
        );
        println!(
            "| {:<34} | {each:>9.0} | {:>10.2} | {per_processor:>12.0} |",
            self.what, self.processors
        );
    }
}

fn measure(name: &str, running: &dyn Running, arguments: &Arguments) -> Result<[Row; 2]> {
    let address: SocketAddr = running.address();
    let load = Load {
        address,
        clients: arguments.clients,
        documents: arguments.documents,
        time: Duration::from_secs(arguments.seconds),
    };
    load.fill()?;
    let of = |kind: Kind, what: &str| -> Result<Row> {
        let before = running.processor_seconds()?;
        let (answers, seconds) = load.run(kind)?;
        Ok(Row {
            what: format!("{name}, {what}"),
            answers,
            seconds,
            processors: running.processor_seconds()? - before,
        })
    };
    Ok([of(Kind::Upsert, "upserts")?, of(Kind::Read, "reads")?])
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(socket) = &arguments.front {
        return front::serve(socket, arguments.connections[0]);
    }
    println!("| what | answers a second | seconds of processors | answers for each |");
    println!("| --- | --- | --- | --- |");
    for _ in 0..arguments.rounds {
        let ebbtide = {
            let running = Ebbtide::start(&arguments.ebbtide, &arguments.scratch)?;
            measure("ebbtide", &running, &arguments)?
        };
        ebbtide.iter().for_each(Row::print);
        for connections in &arguments.connections {
            let name = format!("PostgreSQL by {connections} connections");
            let running = Postgres::start(&arguments, *connections)?;
            measure(&name, &running, &arguments)?
                .iter()
                .for_each(Row::print);
        }
    }
    Ok(())
}
