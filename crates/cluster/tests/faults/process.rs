//! A node in a process of its own (this program again): lines go in, answers come out, and it is killed without a warning.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::history::{Op, Outcome, Place, Shown, What};
use super::node::{self, NODE};

#[derive(Clone)]
pub struct Config {
    /// The namespace of its network; `None`: that of this process.
    pub space: Option<PathBuf>,
    pub folder: PathBuf,
    pub listen: String,
    pub advertise: String,
    pub join: Option<String>,
    pub ahead_ms: i64,
}

impl Config {
    fn command(&self) -> Command {
        let alone = testkit::process::alone(node::MODULE, "a_node");
        let Some(space) = &self.space else {
            return alone;
        };
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--net={}", space.display()));
        inside.arg(alone.get_program()).args(alone.get_args());
        inside
    }
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
        let mut child = config
            .command()
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

    /// `None`: it died, or does not answer within a time in which one that works does.
    pub async fn ask_soon(&self, line: &str) -> Option<String> {
        timeout(Duration::from_secs(2), self.ask(line)).await.ok()?
    }

    /// It stands still, and its clocks go on.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.lock().unwrap();
        let _ = rustix::process::kill_process(Pid::from_child(&child), signal);
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
