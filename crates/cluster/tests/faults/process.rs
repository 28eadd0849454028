//! A node in a process of its own (this program again): lines go in, answers come out, and it is killed without a warning.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::{Clock, SystemClock, Ttl};
use ebbtide_cluster::{Answered, Container, Error, Expect, Item, Node, ReadLevel, Token};
use tokio::sync::oneshot;

use super::history::{Level, Op, Outcome, Place, Shown, What};

const NODE: &str = "EBBTIDE_FAULTS_NODE";
pub const CONTAINER: &str = "items";

#[derive(Clone)]
pub struct Config {
    pub folder: PathBuf,
    pub listen: String,
    pub advertise: String,
    pub join: Option<String>,
    pub ahead_ms: i64,
}

type Waiting = HashMap<u64, oneshot::Sender<String>>;

pub struct Process {
    child: Mutex<Child>,
    stdin: Mutex<ChildStdin>,
    waiting: Arc<Mutex<Option<Waiting>>>,
    next: AtomicU64,
}

impl Process {
    /// The process, and the id of its node once that is open.
    pub async fn start(config: &Config) -> (Process, Option<u64>) {
        let text = format!(
            "{}\t{}\t{}\t{}\t{}",
            config.folder.display(),
            config.listen,
            config.advertise,
            config.join.as_deref().unwrap_or(""),
            config.ahead_ms,
        );
        let mut child = testkit::process::alone(module_path!(), "a_node")
            .env(NODE, text)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = Mutex::new(child.stdin.take().unwrap());
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (ready, id) = oneshot::channel();
        let waiting = Arc::new(Mutex::new(Some(HashMap::from([(0, ready)]))));
        let of_thread = waiting.clone();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Some((id, answer)) = line
                    .strip_prefix('@')
                    .and_then(|line| line.split_once('\t'))
                {
                    let mut waiting = of_thread.lock().unwrap();
                    let asker = waiting
                        .as_mut()
                        .and_then(|all| all.remove(&id.parse().unwrap()));
                    asker.map(|asker| asker.send(answer.to_owned()));
                }
            }
            *of_thread.lock().unwrap() = None;
        });
        let process = Process {
            child: Mutex::new(child),
            stdin,
            waiting,
            next: AtomicU64::new(1),
        };
        let id = id.await.ok().map(|id| id.parse().unwrap());
        (process, id)
    }

    /// `None`: it died.
    pub async fn ask(&self, line: &str) -> Option<String> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (asker, answer) = oneshot::channel();
        self.waiting.lock().unwrap().as_mut()?.insert(id, asker);
        let line = format!("{id}\t{line}\n");
        self.stdin.lock().unwrap().write_all(line.as_bytes()).ok()?;
        answer.await.ok()
    }

    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Does an operation and writes down what came out.
    pub async fn take(&self, op: &mut Op) {
        let life = |life: &Option<u64>| life.map_or("-".to_owned(), |life| life.to_string());
        let what = match &op.what {
            What::Put(value, ttl) => format!("put\t{value}\t{}", life(ttl)),
            What::Create(value, ttl) => format!("create\t{value}\t{}", life(ttl)),
            What::PutIf(value, ttl, version) => {
                format!("put_if\t{value}\t{}\t{version}", life(ttl))
            }
            What::Delete => "delete".to_owned(),
            What::Take => "take".to_owned(),
            What::Touch => "touch".to_owned(),
            What::Read(level) => format!("read\t{level:?}"),
        };
        let line = format!("{}\t{}\t{}\t{what}", op.key, op.since.index, op.since.at);
        let answer = self.ask(&line).await;
        op.outcome = outcome(answer.as_deref());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn outcome(answer: Option<&str>) -> Outcome {
    let Some(answer) = answer else {
        return Outcome::Unknown;
    };
    let parts: Vec<&str> = answer.split('\t').collect();
    let number = |at: usize| parts[at].parse::<u64>().unwrap();
    let place = || Place {
        index: number(1),
        at: number(2),
    };
    match parts[0] {
        "wrote" => Outcome::Wrote(place(), number(3)),
        "missed" => Outcome::Missed(place()),
        "item" => {
            let shown = Shown {
                version: number(3),
                value: parts[4].to_owned(),
                expires: parts[5].parse().ok(),
            };
            Outcome::Item(place(), shown)
        }
        "not" => Outcome::NotDone,
        "unknown" => Outcome::Unknown,
        _ => panic!("{answer}"),
    }
}

/// The system's clock, moved.
#[derive(Clone)]
struct Moved(Arc<AtomicI64>);

impl Clock for Moved {
    fn wall(&self) -> u64 {
        SystemClock
            .wall()
            .saturating_add_signed(self.0.load(Ordering::SeqCst))
    }

    fn uptime(&self) -> u64 {
        SystemClock.uptime()
    }
}

/// This process is a node, if it was started as one.
#[test]
fn a_node() {
    let Ok(config) = std::env::var(NODE) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(run(&config));
}

async fn run(config: &str) {
    let parts: Vec<&str> = config.split('\t').collect();
    let ahead = Arc::new(AtomicI64::new(parts[4].parse().unwrap()));
    let mut options = Node::options()
        .listen(parts[1].parse::<std::net::SocketAddr>().unwrap())
        .advertise(parts[2])
        .memtable_bytes(256 << 10)
        .reclaim_within(Duration::from_secs(8))
        .clock(Moved(ahead.clone()));
    if !parts[3].is_empty() {
        options = options.join(parts[3]);
    }
    let node = match options.open(parts[0]).await {
        Ok(node) => node,
        Err(error) => {
            eprintln!("a node does not open: {error}");
            std::process::exit(1);
        }
    };
    println!("\n@0\t{}", node.id());
    let (lines, mut arrived) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = lines.send(line);
        }
    });
    while let Some(line) = arrived.recv().await {
        let (node, ahead) = (node.clone(), ahead.clone());
        tokio::spawn(async move {
            let parts: Vec<&str> = line.split('\t').collect();
            let answer = answer(&node, &ahead, &parts[1..]).await;
            println!("@{}\t{answer}", parts[0]);
        });
    }
    std::process::exit(0);
}

async fn answer(node: &Node, ahead: &AtomicI64, parts: &[&str]) -> String {
    match parts[0] {
        "leader" => return node.leader().unwrap_or(0).to_string(),
        "make" => return format!("{:?}", node.create_container(CONTAINER).await),
        "status" => return format!("{:?}", node.status()),
        "ahead" => {
            ahead.store(parts[1].parse().unwrap(), Ordering::SeqCst);
            return String::new();
        }
        _ => {}
    }
    let since = Token {
        index: parts[1].parse().unwrap(),
        at_ms: parts[2].parse().unwrap(),
    };
    let items = node.container(CONTAINER);
    let done = operation(&items, parts[0], since, &parts[3..]).await;
    match done {
        Ok(answer) => answer,
        Err(error @ (Error::Unknown(_) | Error::Closed | Error::Storage(_))) => {
            format!("unknown\t{error}")
        }
        Err(error) => format!("not\t{error}"),
    }
}

async fn operation(
    items: &Container,
    key: &str,
    since: Token,
    parts: &[&str],
) -> Result<String, Error> {
    let life = || match parts[2].parse() {
        Ok(life) => Ttl::After(Duration::from_millis(life)),
        Err(_) => Ttl::Never,
    };
    let told = |token: Token, version: Option<ebbtide::Version>| {
        let Token { index, at_ms } = token;
        match version {
            Some(version) => format!("wrote\t{index}\t{at_ms}\t{}", version.as_u64()),
            None => format!("missed\t{index}\t{at_ms}"),
        }
    };
    let written = match parts[0] {
        "put" => items
            .put_with_ttl(key, parts[1].to_owned(), life())
            .await?
            .map(Some),
        "create" => items.create(key, parts[1].to_owned(), life()).await?,
        "put_if" => {
            let expect = Expect::Version(ebbtide::Version::from_u64(parts[3].parse().unwrap()));
            items
                .put_if(key, parts[1].to_owned(), life(), expect)
                .await?
        }
        "delete" => items.delete(key).await?.map(Some),
        "touch" => items.touch(key).await?,
        "take" => return Ok(shown(items.take(key).await?)),
        _ => {
            let level = match parts[1] {
                level if level == format!("{:?}", Level::Local) => ReadLevel::Local,
                level if level == format!("{:?}", Level::Bounded) => {
                    ReadLevel::Bounded(Duration::from_millis(500))
                }
                _ => ReadLevel::Linearizable,
            };
            return Ok(shown(items.at(level).since(since).item(key).await?));
        }
    };
    Ok(told(written.token, written.value))
}

fn shown(answered: Answered<Option<Item>>) -> String {
    let Token { index, at_ms } = answered.token;
    let Some(item) = answered.value else {
        return format!("missed\t{index}\t{at_ms}");
    };
    let end = item.expires_at().map_or("-".to_owned(), |end| {
        let end = end.duration_since(std::time::UNIX_EPOCH).unwrap();
        end.as_millis().to_string()
    });
    let value = String::from_utf8_lossy(item.value()).into_owned();
    format!(
        "item\t{index}\t{at_ms}\t{}\t{value}\t{end}",
        item.version().as_u64()
    )
}
