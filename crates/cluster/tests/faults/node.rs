//! The process of a node: it answers lines, and ends with its input.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::{Clock, SystemClock, Ttl, Version};
use ebbtide_cluster::{Answered, Container, Error, Expect, Item, Node, ReadLevel, Token};

use super::history::Level;
use super::{feeds, pairs};

/// Holds what the node is to be, as [`super::process::Config`] writes it.
pub const NODE: &str = "EBBTIDE_FAULTS_NODE";
pub const MODULE: &str = module_path!();
const CONTAINER: &str = "items";
/// Ends of pairs are known for so long.
const KEPT: Duration = Duration::from_secs(120);

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
        // In the order in which they were sent, also after a pause.
        if let Some((id, by)) = line.split_once("\tahead\t") {
            ahead.store(by.parse().unwrap(), Ordering::SeqCst);
            println!("@{id}\t");
            continue;
        }
        let node = node.clone();
        tokio::spawn(async move {
            let parts: Vec<&str> = line.split('\t').collect();
            let answer = answer(&node, &parts[1..]).await;
            println!("@{}\t{answer}", parts[0]);
        });
    }
    std::process::exit(0);
}

async fn answer(node: &Node, parts: &[&str]) -> String {
    let other = || parts[1].parse().unwrap();
    match parts[0] {
        "leader" => return node.leader().unwrap_or(0).to_string(),
        "make" => {
            for name in [CONTAINER, pairs::CONTAINER] {
                if let Err(error) = node.create_container(name).await {
                    return error.to_string();
                }
            }
            // A reader may be held up for as long as a fault lasts.
            let pairs = node.container(pairs::CONTAINER);
            return match pairs.set_keep_expired(KEPT).await {
                Ok(_) => "made".to_owned(),
                Err(error) => error.to_string(),
            };
        }
        "status" => return format!("{:?}", node.status()),
        "term" => return node.status().term.to_string(),
        "members" => {
            let members = node.members().into_iter();
            let ids: Vec<String> = members.map(|member| member.id.to_string()).collect();
            return ids.join(",");
        }
        "remove" => return format!("{:?}", node.remove(other()).await),
        "transfer" => return format!("{:?}", node.transfer(other()).await),
        "check" => {
            return match node.check().await {
                Ok(checked) if checked.agree() && checked.absent().is_empty() => "alike".to_owned(),
                checked => format!("{checked:?}"),
            };
        }
        _ => {}
    }
    let since = Token {
        index: parts[1].parse().unwrap(),
        at_ms: parts[2].parse().unwrap(),
    };
    let items = node.container(CONTAINER);
    if parts[0] == "all" {
        let [items, pairs] = [items, node.container(pairs::CONTAINER)];
        return all(&[items, pairs].map(|of| of.at(ReadLevel::Local).since(since))).await;
    }
    let done = match parts[0] {
        "changes" => feeds::changes(node, since, parts[3]).await,
        "ends" => feeds::ends(node, since, parts[3]).await,
        "pair" => pairs::answer(node, parts[3], since, &parts[4..]).await,
        key => operation(&items, key, since, &parts[3..]).await,
    };
    match done {
        Ok(answer) => answer,
        Err(error @ (Error::Unknown(_) | Error::Closed | Error::Storage(_))) => {
            format!("unknown\t{error}")
        }
        Err(Error::Engine(
            ebbtide::Error::ChangesGone { .. } | ebbtide::Error::ExpirationsGone { .. },
        )) => feeds::GONE.to_owned(),
        Err(error) => format!("not\t{error}"),
    }
}

/// The last moment, and each item with its container, its key, its version, its value and its end.
async fn all(containers: &[Container]) -> String {
    let (mut at_ms, mut text) = (0, String::new());
    for container in containers {
        let answered = match container.range(.., usize::MAX).await {
            Ok(answered) => answered,
            Err(error) => return format!("not {error}"),
        };
        at_ms = at_ms.max(answered.token.at_ms);
        for item in &answered.value {
            let (name, key) = (container.name(), String::from_utf8_lossy(item.key()));
            text.push_str(&format!("\t{name}/{key} {}", told(item).replace('\t', " ")));
        }
    }
    format!("{at_ms}{text}")
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
    let told = |token: Token, version: Option<Version>| {
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
            let expect = Expect::Version(Version::from_u64(parts[3].parse().unwrap()));
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
    match answered.value {
        None => format!("missed\t{index}\t{at_ms}"),
        Some(item) => format!("item\t{index}\t{at_ms}\t{}", told(&item)),
    }
}

fn told(item: &Item) -> String {
    told_of(item.version(), item.value(), item.expires_at())
}

/// Version, value and end.
pub fn told_of(version: Version, value: &[u8], end: Option<SystemTime>) -> String {
    format!("{}\t{}", version.as_u64(), value_and_end(value, end))
}

pub fn value_and_end(value: &[u8], end: Option<SystemTime>) -> String {
    let end = end.map_or("-".to_owned(), |end| millis(end).to_string());
    format!("{}\t{end}", String::from_utf8_lossy(value))
}

pub fn millis(moment: SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Whether an item, as [`all`] tells it, ends after a moment.
pub fn lasts(item: &str, at_ms: u64) -> bool {
    let end = item.rsplit(' ').next().expect("it has three parts");
    end.parse::<u64>().map_or(true, |end| end > at_ms)
}
