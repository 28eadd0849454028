//! Replicated puts and linearizable reads on three processes: Ebbtide on openraft, etcd and redis. See README.md.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use clients::System;
use load::{Figures, Kind, Load};
use systems::Running;

mod clients;
mod expiry;
mod load;
mod node;
mod store;
mod systems;
mod wire;

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Parser)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Starts the systems, and measures them in turns.
    Run(Arguments),
    /// A node of Ebbtide, which `run` starts.
    Node {
        id: u64,
        folder: PathBuf,
        clients: SocketAddr,
        /// Space is given back within so many seconds.
        reclaim_within: u64,
        peers: Vec<SocketAddr>,
    },
}

#[derive(clap::Args)]
pub struct Arguments {
    /// Ports from this one on.
    #[arg(long, default_value_t = 23_700)]
    port: u16,
    /// For the files of all processes.
    #[arg(long, default_value = "/tmp")]
    folder: PathBuf,
    #[arg(long, default_value = "etcd")]
    etcd: PathBuf,
    #[arg(long, default_value = "redis-server")]
    redis: PathBuf,
    /// The systems that take part.
    #[arg(long, value_delimiter = ',', default_value = "ebbtide,etcd,redis")]
    systems: Vec<String>,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Of one measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    clients: Vec<usize>,
    #[arg(long, default_value_t = 10_000)]
    keys: u64,
    /// So many end within the window; of etcd the second number. 0: this part is left out.
    #[arg(long, default_value_t = 200_000)]
    ending: u64,
    #[arg(long, default_value_t = 10_000)]
    ending_etcd: u64,
    /// Within which they end, in seconds.
    #[arg(long, default_value_t = 60)]
    window: u64,
    /// To put them, in seconds.
    #[arg(long, default_value_t = 20)]
    fill: u64,
}

impl Arguments {
    pub fn fill(&self) -> Duration {
        Duration::from_secs(self.fill)
    }

    fn systems(&self) -> Result<Vec<System>> {
        let system = |name: &String| match name.as_str() {
            "ebbtide" => Ok(System::Ebbtide),
            "etcd" => Ok(System::Etcd),
            "redis" => Ok(System::Redis),
            other => Err(format!("{other} is none of ebbtide, etcd and redis").into()),
        };
        self.systems.iter().map(system).collect()
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    match Program::parse().command {
        Command::Run(arguments) => measure(&arguments).await,
        Command::Node {
            id,
            folder,
            clients,
            reclaim_within,
            peers,
        } => {
            node::run(
                id,
                &folder,
                peers,
                clients,
                Duration::from_secs(reclaim_within),
            )
            .await
        }
    }
}

/// All measurements of one system and load, one a round.
struct Row {
    system: usize,
    load: Load,
    measured: Vec<Figures>,
}

async fn measure(arguments: &Arguments) -> Result<()> {
    let folder = tempfile::tempdir_in(&arguments.folder)?;
    let mut running = vec![];
    for system in arguments.systems()? {
        running.push(Running::start(system, arguments, folder.path()).await?);
    }
    let mut rows = rows(arguments, &running);
    for _ in 0..arguments.rounds {
        for row in &mut rows {
            let system = &running[row.system];
            row.measured.push(load::run(system, row.load).await?);
        }
    }
    print(&rows, &running);
    if let Some(ebbtide) = running
        .iter()
        .find(|running| running.system == System::Ebbtide)
    {
        syncs(ebbtide).await?;
    }
    if arguments.ending > 0 {
        println!("\n| | window before | window of the ends | |\n| --- | --- | --- | --- |");
        for system in &running {
            let items = match system.system {
                System::Etcd => arguments.ending_etcd,
                _ => arguments.ending,
            };
            expiry::run(system, arguments, items).await?;
        }
    }
    Ok(())
}

/// In turns: one load by all systems, then the next.
fn rows(arguments: &Arguments, running: &[Running]) -> Vec<Row> {
    let mut rows = vec![];
    for kind in [Kind::Put, Kind::PutWithLife, Kind::Read] {
        for clients in &arguments.clients {
            let load = Load {
                kind,
                clients: *clients,
                time: Duration::from_secs_f64(arguments.seconds),
                keys: arguments.keys,
            };
            for (system, running) in running.iter().enumerate() {
                if kind != Kind::Read || running.system != System::Redis {
                    rows.push(Row {
                        system,
                        load,
                        measured: vec![],
                    });
                }
            }
        }
    }
    rows
}

fn print(rows: &[Row], running: &[Running]) {
    println!(
        "| load | clients | system | a second | median, ms | 99 %, ms | CPU of the servers, us each | of the clients |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for row in rows {
        let median = |of: fn(&Figures) -> f64| {
            let mut all: Vec<f64> = row.measured.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
        };
        println!(
            "| {:?} | {} | {:?} | {:.0} | {:.2} | {:.2} | {:.0} | {:.0} |",
            row.load.kind,
            row.load.clients,
            running[row.system].system,
            median(|f| f.a_second),
            median(|f| f.median_us) / 1e3,
            median(|f| f.p99_us) / 1e3,
            median(|f| f.server_us),
            median(|f| f.client_us),
        );
    }
}

/// Syncs of the leader's log for each entry, under 16 clients that put for two seconds.
async fn syncs(running: &Running) -> Result<()> {
    let mut client = clients::Client::open(System::Ebbtide, running.leader).await?;
    let before = client.status().await?;
    let load = Load {
        kind: Kind::Put,
        clients: 16,
        time: Duration::from_secs(2),
        keys: 10_000,
    };
    let figures = load::run(running, load).await?;
    let after = client.status().await?;
    let (entries, syncs) = (after.index - before.index, after.syncs - before.syncs);
    let puts = figures.a_second * 2.0;
    println!(
        "\n{entries} entries of {:.1} puts: {:.3} syncs of the leader's log each, {:.0} raft bytes a put",
        puts / entries.max(1) as f64,
        syncs as f64 / entries.max(1) as f64,
        (after.raft_bytes - before.raft_bytes) as f64 / puts
    );
    Ok(())
}
