//! The three systems as processes on loopback, and the processor time that they take.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::clients::{Client, System};
use crate::{Arguments, Result};

/// Ticks of a second, as Linux tells them to all programs.
const TICKS: f64 = 100.0;

/// A child that ends with its owner.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Three processes.
pub struct Running {
    pub system: System,
    /// Of the one that leads, for clients.
    pub leader: SocketAddr,
    clients: Vec<SocketAddr>,
    processes: Vec<Owned>,
}

fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn start(command: &mut Command) -> Result<Owned> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(Owned(command.spawn()?))
}

impl Running {
    pub async fn start(system: System, arguments: &Arguments, folder: &Path) -> Result<Running> {
        let first = arguments.port
            + match system {
                System::Ebbtide => 0,
                System::Etcd => 10,
                System::Redis => 20,
            };
        let clients: Vec<SocketAddr> = (0..3).map(|n| local(first + n)).collect();
        let peers: Vec<SocketAddr> = (5..8).map(|n| local(first + n)).collect();
        let mut processes = vec![];
        for n in 0..3 {
            let folder = folder.join(format!("{system:?}-{n}"));
            std::fs::create_dir_all(&folder)?;
            let mut command = match system {
                System::Ebbtide => ebbtide(n, &folder, &clients, &peers, arguments)?,
                System::Etcd => etcd(n, &folder, &clients, &peers, arguments),
                System::Redis => redis(n, &folder, &clients, arguments),
            };
            processes.push(start(&mut command)?);
        }
        let mut running = Running {
            system,
            leader: clients[0],
            clients,
            processes,
        };
        running.wait().await?;
        Ok(running)
    }

    /// Waits until one leads all.
    async fn wait(&mut self) -> Result<()> {
        for _ in 0..300 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            for at in self.clients.clone() {
                if self.leads(at).await.unwrap_or(false) {
                    self.leader = at;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    return Ok(());
                }
            }
        }
        Err(format!("{:?} has no leader", self.system).into())
    }

    async fn leads(&self, at: SocketAddr) -> Result<bool> {
        let mut client = Client::open(self.system, at).await?;
        Ok(match &mut client {
            Client::Ebbtide(_) => client.status().await?.leads,
            Client::Etcd(etcd) => {
                let status = etcd.status().await?;
                status.leader() != 0
                    && status
                        .header()
                        .is_some_and(|h| h.member_id() == status.leader())
            }
            Client::Redis(_) => client.redis_replicas().await? == 2,
        })
    }

    /// User and system time of the three.
    pub fn processor_seconds(&self) -> Result<f64> {
        let mut sum = 0.0;
        for process in &self.processes {
            sum += processor_seconds(process.0.id())?;
        }
        Ok(sum)
    }
}

pub fn processor_seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Behind the name, which may have anything in it: the state, the parent, and so on.
    let fields = stat.rsplit_once(')').ok_or("no stat")?.1;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / TICKS)
}

fn ebbtide(
    n: usize,
    folder: &Path,
    clients: &[SocketAddr],
    peers: &[SocketAddr],
    arguments: &Arguments,
) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("node").arg(n.to_string()).arg(folder);
    command
        .arg(clients[n].to_string())
        .arg(arguments.window.to_string());
    command.args(peers.iter().map(SocketAddr::to_string));
    Ok(command)
}

fn etcd(
    n: usize,
    folder: &Path,
    clients: &[SocketAddr],
    peers: &[SocketAddr],
    arguments: &Arguments,
) -> Command {
    let url = |at: &SocketAddr| format!("http://{at}");
    let name = |n: usize| format!("n{n}");
    let cluster: Vec<String> = (0..3)
        .map(|n| format!("{}={}", name(n), url(&peers[n])))
        .collect();
    let mut command = Command::new(&arguments.etcd);
    command
        .arg("--name")
        .arg(name(n))
        .arg("--data-dir")
        .arg(folder);
    for flag in ["--listen-client-urls", "--advertise-client-urls"] {
        command.arg(flag).arg(url(&clients[n]));
    }
    for flag in ["--listen-peer-urls", "--initial-advertise-peer-urls"] {
        command.arg(flag).arg(url(&peers[n]));
    }
    command.arg("--initial-cluster").arg(cluster.join(","));
    command.args(["--log-level", "error", "--logger", "zap"]);
    command.args(["--quota-backend-bytes", "8589934592"]);
    command
}

fn redis(n: usize, folder: &Path, clients: &[SocketAddr], arguments: &Arguments) -> Command {
    let mut command = Command::new(&arguments.redis);
    command.arg("--port").arg(clients[n].port().to_string());
    command.args(["--bind", "127.0.0.1", "--save", "", "--daemonize", "no"]);
    command.args(["--appendonly", "yes", "--appendfsync", "always"]);
    command.arg("--dir").arg(folder);
    if n > 0 {
        let master = clients[0].port().to_string();
        command.args(["--replicaof", "127.0.0.1", &master]);
    }
    command
}
