//! The servers as processes, and the processor time that they have taken.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::{Arguments, Result};

/// Ticks of a second, as Linux tells them to all programs.
const TICKS: f64 = 100.0;

pub trait Running {
    fn address(&self) -> SocketAddr;
    /// Of all processes of the server, since they were started.
    fn processor_seconds(&self) -> Result<f64>;
}

/// A child that ends with its owner.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub struct Ebbtide {
    address: SocketAddr,
    child: Owned,
    _folder: TempDir,
    _out: BufReader<ChildStdout>,
}

pub struct Postgres {
    address: SocketAddr,
    front: Owned,
    server: Owned,
    _folder: TempDir,
    _out: BufReader<ChildStdout>,
}

/// Starts a program that tells something in its first line.
fn start(command: &mut Command) -> Result<(Owned, BufReader<ChildStdout>, String)> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut out = BufReader::new(child.stdout.take().ok_or("no output")?);
    let (child, mut line) = (Owned(child), String::new());
    out.read_line(&mut line)?;
    Ok((child, out, line.trim().to_owned()))
}

/// User and system time of a process, and those of its children that have ended.
fn ticks(pid: u32) -> Result<(u32, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Behind the name, which may have anything in it: the state, the parent, and so on.
    let fields = stat.rsplit_once(')').ok_or("no stat")?.1;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let sum = fields[11..15]
        .iter()
        .map(|ticks| ticks.parse::<u64>())
        .sum::<std::result::Result<u64, _>>()?;
    Ok((fields[1].parse()?, sum))
}

fn seconds_with_children(pid: u32) -> Result<f64> {
    let mut sum = ticks(pid)?.1;
    for entry in std::fs::read_dir("/proc")? {
        let Ok(other) = entry?.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        // One that ends meanwhile is counted by its parent the next time.
        if let Ok((parent, ticks)) = ticks(other)
            && parent == pid
        {
            sum += ticks;
        }
    }
    Ok(sum as f64 / TICKS)
}

impl Ebbtide {
    pub fn start(program: &Path, scratch: &Path) -> Result<Ebbtide> {
        let folder = TempDir::new_in(scratch)?;
        let mut command = Command::new(program);
        command
            .arg("serve")
            .arg(folder.path().join("db"))
            .args(["--http", "127.0.0.1:0", "--no-control"])
            .stderr(Stdio::null());
        let (child, out, url) = start(&mut command)?;
        let address: SocketAddr = url
            .trim_start_matches("http://")
            .trim_end_matches('/')
            .parse()?;
        for (path, body) in [
            ("/dbs", r#"{"id":"d"}"#),
            (
                "/dbs/d/colls",
                r#"{"id":"c","partitionKey":{"paths":["/pk"],"version":2}}"#,
            ),
        ] {
            post(address, path, body)?;
        }
        Ok(Ebbtide {
            address,
            child,
            _folder: folder,
            _out: out,
        })
    }
}

fn post(address: SocketAddr, path: &str, body: &str) -> Result<()> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address)?;
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.starts_with("HTTP/1.1 201") {
        true => Ok(()),
        false => Err(answer.into()),
    }
}

impl Running for Ebbtide {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn processor_seconds(&self) -> Result<f64> {
        seconds_with_children(self.child.0.id())
    }
}

/// A program of PostgreSQL, as another user where this is root.
fn program(arguments: &Arguments, name: &str) -> Command {
    let mut command = Command::new(arguments.postgres.join(name));
    if is_root() {
        command.uid(arguments.user).gid(arguments.user);
    }
    command
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

impl Postgres {
    pub fn start(arguments: &Arguments, connections: usize) -> Result<Postgres> {
        let folder = TempDir::new_in(&arguments.scratch)?;
        if is_root() {
            chown(folder.path(), Some(arguments.user), Some(arguments.user))?;
        }
        let data: PathBuf = folder.path().join("data");
        let made = program(arguments, "initdb")
            .args([
                "--username=bench",
                "--auth=trust",
                "--no-sync",
                "--locale=C",
                "-E",
                "UTF8",
            ])
            .arg(&data)
            .current_dir(folder.path())
            .output()?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into());
        }
        let mut command = program(arguments, "postgres");
        command
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=", "-c", "synchronous_commit=off"])
            .args(["-c", "shared_buffers=512MB", "-c", "max_wal_size=4GB"])
            .arg("-k")
            .arg(folder.path())
            .current_dir(folder.path())
            .stderr(Stdio::null());
        let server = Owned(command.spawn()?);
        make_table(folder.path())?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["--ebbtide", "-"])
            .arg("--front")
            .arg(folder.path())
            .arg(format!("--connections={connections}"));
        let (front, out, address) = start(&mut command)?;
        Ok(Postgres {
            address: address.parse()?,
            front,
            server,
            _folder: folder,
            _out: out,
        })
    }
}

/// The table, once the server answers.
fn make_table(socket: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut config = tokio_postgres::Config::new();
    config.host_path(socket).user("bench").dbname("postgres");
    runtime.block_on(async {
        let mut tries = 0;
        let (client, connection) = loop {
            match config.connect(tokio_postgres::NoTls).await {
                Ok(connected) => break connected,
                Err(error) if tries > 100 => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
            tries += 1;
        };
        tokio::spawn(connection);
        let table =
            "CREATE TABLE docs (pk text, id text, body jsonb NOT NULL, PRIMARY KEY (pk, id))";
        Ok(client.batch_execute(table).await?)
    })
}

impl Running for Postgres {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn processor_seconds(&self) -> Result<f64> {
        Ok(seconds_with_children(self.server.0.id())? + seconds_with_children(self.front.0.id())?)
    }
}
