//! A node that answers lines: in a process of its own (this program again), which is killed without a warning, or on a host of a
//! simulation.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::history::{Op, Outcome, Place, Shown, What};
use super::node::{self, NODE};
use super::simulation::Simulation;

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

type Askers = HashMap<u64, oneshot::Sender<String>>;

/// The askers of a node that have no answer yet; `None`: it died.
#[derive(Clone)]
pub struct Waiting(Arc<Mutex<Option<Askers>>>);

impl Waiting {
    /// The first of them, of number 0, asks for the id of the node.
    fn new() -> (Waiting, oneshot::Receiver<String>) {
        let (ready, id) = oneshot::channel();
        let all = HashMap::from([(0, ready)]);
        (Waiting(Arc::new(Mutex::new(Some(all)))), id)
    }

    fn asks(&self, id: u64) -> Option<oneshot::Receiver<String>> {
        let (asker, answer) = oneshot::channel();
        self.0.lock().unwrap().as_mut()?.insert(id, asker);
        Some(answer)
    }

    pub fn answered(&self, id: u64, answer: &str) {
        let mut waiting = self.0.lock().unwrap();
        let asker = waiting.as_mut().and_then(|all| all.remove(&id));
        asker.map(|asker| asker.send(answer.to_owned()));
    }

    pub fn died(&self) {
        *self.0.lock().unwrap() = None;
    }
}

enum Runs {
    Process {
        child: Mutex<Child>,
        stdin: Mutex<ChildStdin>,
    },
    Simulated {
        simulation: Arc<Simulation>,
        number: usize,
        lines: mpsc::UnboundedSender<String>,
    },
}

pub struct Process {
    runs: Runs,
    waiting: Waiting,
    next: AtomicU64,
}

impl Process {
    fn new(runs: Runs, waiting: Waiting) -> Process {
        Process {
            runs,
            waiting,
            next: AtomicU64::new(1),
        }
    }

    /// The node of a host, and its id once it is open.
    pub async fn simulate(
        simulation: &Arc<Simulation>,
        number: usize,
        config: &Config,
    ) -> (Process, Option<u64>) {
        let (waiting, id) = Waiting::new();
        let (lines, arrived) = mpsc::unbounded_channel();
        simulation.start(number, config.clone(), arrived, waiting.clone());
        let runs = Runs::Simulated {
            simulation: simulation.clone(),
            number,
            lines,
        };
        let id = id.await.ok().map(|id| id.parse().unwrap());
        (Process::new(runs, waiting), id)
    }

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
        let (waiting, id) = Waiting::new();
        let of_thread = waiting.clone();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Some((id, answer)) = line
                    .strip_prefix('@')
                    .and_then(|line| line.split_once('\t'))
                {
                    of_thread.answered(id.parse().unwrap(), answer);
                }
            }
            of_thread.died();
        });
        let child = Mutex::new(child);
        let id = id.await.ok().map(|id| id.parse().unwrap());
        (Process::new(Runs::Process { child, stdin }, waiting), id)
    }

    /// `None`: it died.
    pub async fn ask(&self, line: &str) -> Option<String> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let answer = self.waiting.asks(id)?;
        let line = format!("{id}\t{line}");
        match &self.runs {
            Runs::Process { stdin, .. } => writeln!(stdin.lock().unwrap(), "{line}").ok()?,
            Runs::Simulated { lines, .. } => lines.send(line).ok()?,
        }
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
        if let Runs::Process { child, .. } = &self.runs {
            let child = child.lock().unwrap();
            let _ = rustix::process::kill_process(Pid::from_child(&child), signal);
        }
    }

    pub fn kill(&self) {
        match &self.runs {
            Runs::Process { child, .. } => {
                let mut child = child.lock().unwrap();
                let _ = child.kill();
                let _ = child.wait();
            }
            Runs::Simulated {
                simulation, number, ..
            } => {
                self.waiting.died();
                simulation.crash(*number);
            }
        }
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
        // A host may have another node by now.
        if let Runs::Process { .. } = self.runs {
            self.kill();
        }
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
