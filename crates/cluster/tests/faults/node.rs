//! The process of a node: it answers lines, and ends with its input.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ebbtide::{Clock, SystemClock, Ttl};
use ebbtide_cluster::{Answered, Container, Error, Expect, Item, Node, ReadLevel, Token};

use super::history::Level;

/// Holds what the node is to be, as [`super::process::Config`] writes it.
pub const NODE: &str = "EBBTIDE_FAULTS_NODE";
pub const MODULE: &str = module_path!();
const CONTAINER: &str = "items";

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
        "make" => return format!("{:?}", node.create_container(CONTAINER).await),
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
        return all(&items.at(ReadLevel::Local).since(since)).await;
    }
    let done = operation(&items, parts[0], since, &parts[3..]).await;
    match done {
        Ok(answer) => answer,
        Err(error @ (Error::Unknown(_) | Error::Closed | Error::Storage(_))) => {
            format!("unknown\t{error}")
        }
        Err(error) => format!("not\t{error}"),
    }
}

/// The moment, and each item with its key, its version, its value and its end.
async fn all(items: &Container) -> String {
    let answered = match items.range(.., usize::MAX).await {
        Ok(answered) => answered,
        Err(error) => return format!("not {error}"),
    };
    let mut text = answered.token.at_ms.to_string();
    for item in &answered.value {
        let key = String::from_utf8_lossy(item.key());
        text.push_str(&format!("\t{key} {}", told(item).replace('\t', " ")));
    }
    text
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
    match answered.value {
        None => format!("missed\t{index}\t{at_ms}"),
        Some(item) => format!("item\t{index}\t{at_ms}\t{}", told(&item)),
    }
}

fn told(item: &Item) -> String {
    let end = item.expires_at().map_or("-".to_owned(), |end| {
        let end = end.duration_since(std::time::UNIX_EPOCH).unwrap();
        end.as_millis().to_string()
    });
    let value = String::from_utf8_lossy(item.value()).into_owned();
    format!("{}\t{value}\t{end}", item.version().as_u64())
}
