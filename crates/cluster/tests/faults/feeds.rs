//! Readers of feeds, whose pages come from one node after the other.
//!
//! ```text
//! a copy    the changes of all containers, from a position on ──> a map, which is to be what the nodes have
//! ends      those of the pairs, from a cursor on
//! ```
//!
//! An end is told once, in the order of ends; of the last write of a pair both ends are told. A node that knows no more what is behind a
//! position says so, and another one is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebbtide::{Change, ChangePosition, ExpiryCursor, Version};
use ebbtide_cluster::{Error, Node, ReadLevel, Token};
use testkit::random::Random;
use tokio::time::Instant;

use super::cluster::Cluster;
use super::history::Place;
use super::node;
use super::pairs::{self, Asked, Turn};

const PAGE: usize = 64;
/// The answer of a node that knows no more what is behind a position.
pub const GONE: &str = "gone";
/// So many of these one after the other: no node knows it.
const ALL_GONE: u32 = 16;
/// By then the longest life is over.
const LONGEST: Duration = Duration::from_millis(2_500);
/// A reader is at the end within this, once all works again.
const DONE: Duration = Duration::from_secs(30);

/// By container and key: version, value and end.
pub type State = BTreeMap<String, String>;

/// An end: its moment in milliseconds, the key, the value.
pub type End = (u64, String, String);

/// As a node: a page of changes.
pub async fn changes(node: &Node, since: Token, position: &str) -> Result<String, Error> {
    let position: ChangePosition = serde_json::from_str(position).unwrap();
    let page = node
        .changes(ReadLevel::Local, since, position, PAGE)
        .await?;
    let Token { index, at_ms } = page.token;
    let position = serde_json::to_string(&page.value.position).unwrap();
    let mut text = format!("{index}\t{at_ms}\t{position}");
    for change in &page.value.changes {
        match change {
            Change::Put { container, item } => {
                let key = String::from_utf8_lossy(item.key());
                let told = node::told_of(item.version(), item.value(), item.expires_at());
                text.push_str(&format!("\t+{container}/{key} {}", told.replace('\t', " ")));
            }
            Change::Delete { container, key, .. } => {
                let key = String::from_utf8_lossy(key);
                text.push_str(&format!("\t-{container}/{key}"));
            }
            _ => {}
        }
    }
    Ok(text)
}

/// As a node: a page of ends.
pub async fn ends(node: &Node, since: Token, cursor: &str) -> Result<String, Error> {
    let cursor: ExpiryCursor = serde_json::from_str(cursor).unwrap();
    let pairs = node.container(pairs::CONTAINER);
    let mut reader = pairs.at(ReadLevel::Local).since(since).expirations(cursor);
    let page = reader.next(PAGE).await?;
    let Token { index, at_ms } = page.token;
    let cursor = serde_json::to_string(&reader.cursor()).unwrap();
    let mut text = format!("{index}\t{at_ms}\t{cursor}");
    for end in &page.value {
        let [key, value] = [end.key(), end.value()].map(String::from_utf8_lossy);
        let at = node::millis(end.expired_at());
        text.push_str(&format!("\t{at} {key} {value}"));
    }
    Ok(text)
}

/// The ends that a reader was told, all from a moment on.
#[derive(Default)]
pub struct Told {
    pub ends: Vec<End>,
    from: u64,
}

/// A place in a feed, as text, and the last place of the log that a page of it was of.
struct Reader {
    question: &'static str,
    at: String,
    since: Place,
    gone: u32,
}

impl Reader {
    fn new(question: &'static str, start: &str) -> Reader {
        Reader {
            question,
            at: start.to_owned(),
            since: Place::default(),
            gone: 0,
        }
    }

    /// A page by some node; `None`: it has none now.
    async fn page(&mut self, cluster: &Cluster, random: &mut Random) -> Option<Vec<String>> {
        let Place { index, at } = self.since;
        let line = format!("{}\t{index}\t{at}\t{}", self.question, self.at);
        let told = cluster.ask(random.below(cluster.count), &line).await?;
        self.gone = if told == GONE { self.gone + 1 } else { 0 };
        let mut parts = told.split('\t').map(str::to_owned);
        self.since.index = parts.next()?.parse().ok()?;
        self.since.at = parts.next()?.parse().unwrap();
        self.at = parts.next().unwrap();
        Some(parts.collect())
    }
}

/// Keeps a copy until it has what an entry has left that is written when all is over.
pub async fn copy(cluster: Arc<Cluster>, mut random: Random) -> State {
    let position = ChangePosition::from(Version::start());
    let start = serde_json::to_string(&position).unwrap();
    let mut reader = Reader::new("changes", &start);
    let mut copy = State::new();
    let mut over: Option<Instant> = None;
    loop {
        let page = reader.page(&cluster, &mut random).await;
        if reader.gone == ALL_GONE {
            reader.at = start.clone();
            copy.clear();
        }
        let is_empty = page.as_ref().is_some_and(Vec::is_empty);
        for change in page.into_iter().flatten() {
            let (kind, rest) = change.split_at(1);
            match (kind, rest.split_once(' ')) {
                ("+", Some((key, told))) => drop(copy.insert(key.to_owned(), told.to_owned())),
                _ => drop(copy.remove(rest)),
            }
        }
        match over {
            None if cluster.is_settled() => over = Some(Instant::now()),
            Some(_) if is_empty => return copy,
            Some(over) => assert!(over.elapsed() < DONE, "a copy is never there"),
            None => {}
        }
        cluster
            .rests(Duration::from_millis(if is_empty { 20 } else { 1 }))
            .await;
    }
}

/// Reads the ends of the pairs until there is none left.
pub async fn all_ends(cluster: Arc<Cluster>, mut random: Random) -> Told {
    let start = serde_json::to_string(&ExpiryCursor::start()).unwrap();
    let mut reader = Reader::new("ends", &start);
    let mut told = Told::default();
    let mut over: Option<Instant> = None;
    loop {
        let page = reader.page(&cluster, &mut random).await;
        if reader.gone == ALL_GONE {
            reader.at = start.clone();
            told = Told::default();
        }
        // It is not said which of the earlier ends are known.
        if page.is_some() && told.from == 0 {
            told.from = reader.since.at;
        }
        let is_empty = page.as_ref().is_some_and(Vec::is_empty);
        for end in page.into_iter().flatten() {
            let parts: Vec<&str> = end.split(' ').collect();
            told.ends.push((
                parts[0].parse().unwrap(),
                parts[1].to_owned(),
                parts[2].to_owned(),
            ));
        }
        match over {
            None if cluster.is_settled() => over = Some(Instant::now()),
            Some(over) if is_empty && over.elapsed() > LONGEST => return told,
            Some(over) => assert!(over.elapsed() < DONE, "a reader of ends is never there"),
            None => {}
        }
        cluster
            .rests(Duration::from_millis(if is_empty { 20 } else { 1 }))
            .await;
    }
}

/// The violations of a copy, beside the state of the nodes at a moment.
pub fn check_copy(mut copy: State, state: &State, latest: u64) -> Vec<String> {
    copy.retain(|_, item| node::lasts(item, latest));
    let differs = |key: &&String| copy.get(*key) != state.get(*key);
    let keys: BTreeSet<&String> = copy.keys().chain(state.keys()).collect();
    let told = |key: &String| {
        format!(
            "{key}: a copy has {:?}, the nodes {:?}",
            copy.get(key),
            state.get(key)
        )
    };
    keys.into_iter().filter(differs).map(told).collect()
}

/// The violations of what a reader was told who was at the end after this moment, beside what was written.
pub fn check_ends(told: &Told, turns: &[Turn], latest: u64) -> Vec<String> {
    let mut wrong = vec![];
    let is_before = |pair: &[End]| (pair[0].0, &pair[0].1) < (pair[1].0, &pair[1].1);
    let unordered = told.ends.windows(2).filter(|pair| !is_before(pair));
    wrong.extend(unordered.map(|pair| format!("in no order: {pair:?}")));
    let mut pairs: BTreeMap<&str, Vec<&Turn>> = BTreeMap::new();
    let mut puts: BTreeMap<&str, &Turn> = BTreeMap::new();
    for turn in turns.iter().filter(|turn| turn.may_write()) {
        pairs.entry(&turn.pair).or_default().push(turn);
        if let Asked::Put(value, Some(_)) = &turn.asked {
            puts.insert(value, turn);
        }
    }
    for end in &told.ends {
        let (at, key, value) = end;
        let put = puts.get(&**value).filter(|put| {
            let is_of = ["a", "b"]
                .iter()
                .any(|half| *key == format!("{}-{half}", put.pair));
            is_of && put.end().is_none_or(|end| end == *at)
        });
        let Some(put) = put else {
            wrong.push(format!("nothing ends so: {end:?}"));
            continue;
        };
        // A later one that came before the end.
        let is_over = |write: &&&Turn| match (put.place(), write.place()) {
            (Some(put), Some(over)) => put.index < over.index && over.at < *at,
            _ => false,
        };
        if let Some(over) = pairs[&*put.pair].iter().find(is_over) {
            wrong.push(format!("it was gone before its end: {end:?}, by {over:?}"));
        }
    }
    let ends: BTreeSet<&End> = told.ends.iter().collect();
    for (pair, writes) in pairs {
        // Another one without an answer may stand behind all. Ends of what was written anew are left out where a reader is late.
        let places = writes.iter().map(|write| Some((write.place()?, write)));
        let Some(mut places) = places.collect::<Option<Vec<_>>>() else {
            continue;
        };
        places.sort_by_key(|(place, _)| place.index);
        let Some((place, last)) = places.pop() else {
            continue;
        };
        let is_alone = places
            .last()
            .is_none_or(|(before, _)| before.index < place.index);
        // The time of the log stands where it has leapt, until the clocks are there.
        let asked = told.from..=latest;
        let end = last.end().filter(|end| is_alone && asked.contains(end));
        if let (Asked::Put(value, _), Some(end)) = (&last.asked, end) {
            for half in ["a", "b"] {
                if !ends.contains(&(end, format!("{pair}-{half}"), value.clone())) {
                    wrong.push(format!("the end of {half} is not told: {last:?}"));
                }
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::super::history::Place;
    use super::super::pairs::Answer;
    use super::*;

    fn end(at: u64, key: &str, value: &str) -> End {
        (at, key.to_owned(), value.to_owned())
    }

    /// A put for 50 ms at 100.
    fn put(index: u64, answer: Option<u64>) -> Turn {
        Turn {
            pair: "1".to_owned(),
            asked: Asked::Put(format!("v{index}"), Some(50)),
            since: Place::default(),
            invoked: index,
            answered: index,
            answer: answer.map_or(Answer::Unknown, |at| Answer::Wrote(Place { index, at })),
        }
    }

    #[test]
    fn each_kind_of_violation_is_found() {
        let wrong = |ends: &[End], turns: &[Turn], latest| {
            let (ends, from) = (ends.to_vec(), 0);
            check_ends(&Told { ends, from }, turns, latest)
        };
        let good = [end(150, "1-a", "v5"), end(150, "1-b", "v5")];
        let turns = [put(4, Some(99)), put(5, Some(100))];
        assert_eq!(wrong(&good, &turns, 150), Vec::<String>::new());
        let nobody_knows = [put(5, Some(100)), put(6, None)];
        assert_eq!(wrong(&[], &nobody_knows, 900), Vec::<String>::new());
        assert_eq!(wrong(&[], &turns, 149), Vec::<String>::new());
        let [a, b] = good;
        for (text, told) in [
            ("the end of b", vec![a.clone()]),
            ("in no order", vec![b.clone(), a.clone()]),
            ("in no order", vec![a.clone(), a.clone(), b.clone()]),
            ("the end of a", vec![]),
            ("gone before its end", vec![end(149, "1-a", "v4")]),
            ("nothing ends so", vec![end(150, "2-a", "v5")]),
            ("nothing ends so", vec![end(149, "1-a", "v5"), a, b]),
        ] {
            let wrong = wrong(&told, &turns, 150);
            assert!(
                wrong.iter().any(|one| one.contains(text)),
                "{text}: {wrong:?}"
            );
        }

        let state = |items: &[(&str, &str)]| {
            let own = items
                .iter()
                .map(|(key, told)| (key.to_string(), told.to_string()));
            State::from_iter(own)
        };
        let nodes = state(&[("c/k", "7 v -"), ("c/l", "8 v 300")]);
        let ended = ("c/m", "9 v 200");
        let copy = state(&[("c/k", "7 v -"), ("c/l", "8 v 300"), ended]);
        assert_eq!(check_copy(copy.clone(), &nodes, 200), Vec::<String>::new());
        assert_eq!(check_copy(copy, &nodes, 199).len(), 1);
        assert_eq!(check_copy(state(&[("c/k", "7 w -")]), &nodes, 0).len(), 2);
    }
}
