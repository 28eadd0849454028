//! The process of a node: it answers lines, and ends with its input.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::{Clock, SystemClock, Ttl, Version};
use ebbtide_cluster::{
    Answered, Container, Error, Expect, Item, Node, NodeOptions, ReadLevel, Token,
};
use tokio::sync::mpsc;

use super::history::Level;
use super::process::Config;
use super::{feeds, pairs};

/// Holds what the node is to be, as [`super::process::Config`] writes it.
pub const NODE: &str = "EBBTIDE_FAULTS_NODE";
pub const MODULE: &str = module_path!();
const CONTAINER: &str = "items";
/// Ends of pairs are known for so long.
const KEPT: Duration = Duration::from_secs(120);

/// A clock that is ahead of another one.
#[derive(Clone)]
pub struct Ahead<C> {
    pub of: C,
    pub ms: Arc<AtomicI64>,
}

impl<C: Clock> Clock for Ahead<C> {
    fn wall(&self) -> u64 {
        let ahead = self.ms.load(Ordering::SeqCst);
        self.of.wall().saturating_add_signed(ahead)
    }

    fn uptime(&self) -> u64 {
        self.of.uptime()
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
    let config = Config {
        space: None,
        folder: parts[0].into(),
        listen: parts[1].to_owned(),
        advertise: parts[2].to_owned(),
        join: (!parts[3].is_empty()).then(|| parts[3].to_owned()),
        ahead_ms: parts[4].parse().unwrap(),
    };
    let (lines, arrived) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = lines.send(line);
        }
    });
    // The first line may stand behind what the test's frame has printed.
    println!();
    let tell = |id: u64, told: &str| println!("@{id}\t{told}");
    let served = serve(&config, Node::options(), SystemClock, arrived, tell);
    if let Err(error) = served.await {
        eprintln!("a node does not open: {error}");
        std::process::exit(1);
    }
    std::process::exit(0);
}

/// Opens a node, tells its id as the answer 0, and answers lines until there are no more.
pub async fn serve(
    config: &Config,
    options: NodeOptions,
    clock: impl Clock + 'static,
    mut lines: mpsc::UnboundedReceiver<String>,
    tell: impl Fn(u64, &str) + Clone + Send + Sync + 'static,
) -> Result<(), Error> {
    let ms = Arc::new(AtomicI64::new(config.ahead_ms));
    let ahead = ms.clone();
    let mut options = options
        .listen(config.listen.parse::<SocketAddr>().unwrap())
        .advertise(&config.advertise)
        .memtable_bytes(256 << 10)
        .reclaim_within(Duration::from_secs(8))
        .clock(Ahead { of: clock, ms });
    if let Some(contact) = &config.join {
        options = options.join(contact);
    }
    let node = options.open(&config.folder).await?;
    tell(0, &node.id().to_string());
    while let Some(line) = lines.recv().await {
        let (id, line) = line.split_once('\t').expect("a number is before it");
        let id = id.parse().unwrap();
        // In the order in which they were sent, also after a pause.
        if let Some(by) = line.strip_prefix("ahead\t") {
            ahead.store(by.parse().unwrap(), Ordering::SeqCst);
            tell(id, "");
            continue;
        }
        let (node, line, tell) = (node.clone(), line.to_owned(), tell.clone());
        tokio::spawn(async move {
            let parts: Vec<&str> = line.split('\t').collect();
            tell(id, &answer(&node, &parts).await);
        });
    }
    Ok(())
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
            // A node that leads no more, or was taken out itself, does not know them.
            if let Err(error) = node.containers().await {
                return format!("not\t{error}");
            }
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
