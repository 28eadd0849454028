//! Writes of two items at once: batches, transactions, and reads of both at one moment.
//!
//! ```text
//! N-a N-b       a batch puts both, with one value and one life, or deletes both: a read shows both alike, or none
//! count-a -b    a transaction reads both, which are alike, and puts the next number into both
//! ```
//!
//! So a transaction that was answered has a number that no other has, higher than those answered before its question; a number
//! that nobody told of is of one without an answer. A linearizable read shows no number below those answered before its question, and
//! nothing older than what was put before it, at the end of which both are gone at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebbtide::Ttl;
use ebbtide_cluster::{Batch, Error, Item, Node, ReadLevel, Token, Transaction};
use testkit::random::Random;

use super::cluster::Cluster;
use super::history::{Level, Life, Place};
use super::process::Process;

/// Of both items, and of the counter.
pub const CONTAINER: &str = "pairs";
const COUNT: &str = "count";

/// A question about a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Count,
    Put(String, Life),
    Delete,
    Read(Level),
}

/// One of the two items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Half {
    pub value: String,
    pub end: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Wrote(Place),
    Counted(Place, u64),
    Shown(Place, [Option<Half>; 2]),
    /// A transaction has read two numbers.
    Halved,
    NotDone,
    Unknown,
}

impl Answer {
    fn place(&self) -> Option<Place> {
        match self {
            Answer::Wrote(place) | Answer::Counted(place, _) | Answer::Shown(place, _) => {
                Some(*place)
            }
            _ => None,
        }
    }
}

/// A question with its answer. Times are nanoseconds of the one who asked.
#[derive(Clone, Debug)]
pub struct Turn {
    pub pair: String,
    pub asked: Asked,
    pub since: Place,
    pub invoked: u64,
    pub answered: u64,
    pub answer: Answer,
}

impl Turn {
    /// Whether it has written to its pair, as far as anybody can know.
    pub fn may_write(&self) -> bool {
        !matches!(self.asked, Asked::Read(_)) && self.answer != Answer::NotDone
    }

    pub fn place(&self) -> Option<Place> {
        self.answer.place()
    }

    /// When what it has put ends, if it does and its moment is known.
    pub fn end(&self) -> Option<u64> {
        match self.asked {
            Asked::Put(_, life) => Some(self.place()?.at + life?),
            _ => None,
        }
    }
}

/// As a node: answers what [`Asked`] is as a line.
pub async fn answer(
    node: &Node,
    pair: &str,
    since: Token,
    parts: &[&str],
) -> Result<String, Error> {
    let pairs = node.container(CONTAINER);
    let both = ["a", "b"].map(|half| format!("{pair}-{half}"));
    let token = match parts[0] {
        "count" => {
            let work = {
                let pairs = pairs.clone();
                move |tx: &mut Transaction| {
                    let number = |item: Option<Item>| {
                        item.map_or(0, |item| {
                            String::from_utf8_lossy(item.value()).parse().unwrap()
                        })
                    };
                    let [one, other] = [tx.item(&pairs, &both[0])?, tx.item(&pairs, &both[1])?];
                    let (one, other): (u64, u64) = (number(one), number(other));
                    if one != other {
                        return Ok(None);
                    }
                    for half in &both {
                        tx.put(&pairs, half, (one + 1).to_string());
                    }
                    Ok::<_, Error>(Some(one + 1))
                }
            };
            let counted = node.transaction(work).await?;
            let Token { index, at_ms } = counted.token;
            return Ok(match counted.value {
                Some(number) => format!("counted\t{index}\t{at_ms}\t{number}"),
                None => "halved".to_owned(),
            });
        }
        "put" => {
            let ttl = match parts[2].parse() {
                Ok(life) => Ttl::After(Duration::from_millis(life)),
                Err(_) => Ttl::Never,
            };
            let mut batch = Batch::new();
            for half in &both {
                batch.put_with_ttl(&pairs, half, parts[1].to_owned(), ttl);
            }
            node.write(batch).await?.token
        }
        "delete" => {
            let mut batch = Batch::new();
            for half in &both {
                batch.delete(&pairs, half);
            }
            node.write(batch).await?.token
        }
        level => {
            let level = match level {
                "Local" => ReadLevel::Local,
                "Bounded" => ReadLevel::Bounded(Duration::from_millis(500)),
                _ => ReadLevel::Linearizable,
            };
            let shown = pairs.at(level).since(since);
            let shown = shown.prefix(format!("{pair}-"), 2).await?;
            let Token { index, at_ms } = shown.token;
            let half = |key: &String| {
                let found = shown.value.iter().find(|item| item.key() == key.as_bytes());
                found.map_or("-\t-".to_owned(), |item| {
                    super::node::value_and_end(item.value(), item.expires_at())
                })
            };
            let [one, other] = [half(&both[0]), half(&both[1])];
            return Ok(format!("shown\t{index}\t{at_ms}\t{one}\t{other}"));
        }
    };
    Ok(format!("wrote\t{}\t{}", token.index, token.at_ms))
}

impl Process {
    async fn turn(&self, turn: &mut Turn) {
        let asked = match &turn.asked {
            Asked::Count => "count".to_owned(),
            Asked::Put(value, life) => {
                format!(
                    "put\t{value}\t{}",
                    life.map_or("-".to_owned(), |life| life.to_string())
                )
            }
            Asked::Delete => "delete".to_owned(),
            Asked::Read(level) => format!("{level:?}"),
        };
        let Turn { pair, since, .. } = turn;
        let line = format!("pair\t{}\t{}\t{pair}\t{asked}", since.index, since.at);
        if let Some(line) = self.ask(&line).await {
            turn.answer = told(&line);
        }
    }
}

fn told(line: &str) -> Answer {
    let parts: Vec<&str> = line.split('\t').collect();
    let number = |at: usize| parts[at].parse::<u64>().unwrap();
    let place = || Place {
        index: number(1),
        at: number(2),
    };
    let half = |at: usize| {
        let value = parts[at].to_owned();
        (value != "-").then(|| Half {
            value,
            end: parts[at + 1].parse().ok(),
        })
    };
    match parts[0] {
        "wrote" => Answer::Wrote(place()),
        "counted" => Answer::Counted(place(), number(3)),
        "shown" => Answer::Shown(place(), [half(3), half(5)]),
        "halved" => Answer::Halved,
        "not" => Answer::NotDone,
        "unknown" => Answer::Unknown,
        _ => panic!("{line}"),
    }
}

/// One client, which asks until all is over.
pub async fn client(cluster: Arc<Cluster>, mut random: Random) -> Vec<Turn> {
    let (mut turns, mut token) = (vec![], Place::default());
    while !cluster.is_over() {
        let Some(node) = cluster.node(random.below(cluster.count)) else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let level = [
            Level::Linearizable,
            Level::Linearizable,
            Level::Bounded,
            Level::Local,
        ][random.below(4)];
        let twin = || format!("{}", cluster.elapsed().as_secs() / 2);
        let life = (!random.one_in(3)).then(|| 1 + random.below(1_500) as u64);
        let (pair, asked) = match random.below(10) {
            0..3 => (COUNT.to_owned(), Asked::Count),
            3 => (COUNT.to_owned(), Asked::Read(level)),
            4..6 => (twin(), Asked::Put(cluster.new_value(), life)),
            6 => (twin(), Asked::Delete),
            _ => (twin(), Asked::Read(level)),
        };
        let keeps_token = matches!(asked, Asked::Read(_)) && random.one_in(2);
        let mut turn = Turn {
            pair,
            asked,
            since: if keeps_token { token } else { Place::default() },
            invoked: cluster.nanos(),
            answered: 0,
            answer: Answer::Unknown,
        };
        node.turn(&mut turn).await;
        turn.answered = cluster.nanos();
        if let Some(place) = turn.answer.place() {
            token.index = token.index.max(place.index);
            token.at = token.at.max(place.at);
        }
        turns.push(turn);
        cluster.pause(&mut random).await;
    }
    turns
}

/// The violations of a history, and how many answers were looked at.
pub fn check(turns: &[Turn]) -> (Vec<String>, usize) {
    let mut wrong = vec![];
    real_time(turns, &mut wrong);
    let mut pairs: BTreeMap<&str, Vec<&Turn>> = BTreeMap::new();
    for turn in turns {
        pairs.entry(&turn.pair).or_default().push(turn);
    }
    for (pair, turns) in pairs {
        match pair {
            COUNT => count(&turns, &mut wrong),
            _ => twins(&turns, &mut wrong),
        }
    }
    let answered = turns.iter().filter(|turn| turn.answer.place().is_some());
    (wrong, answered.count())
}

/// No answer goes back behind its token, and no linearizable one behind those that were there before its question.
fn real_time(turns: &[Turn], wrong: &mut Vec<String>) {
    let mut by_answer = Vec::from_iter(turns);
    by_answer.sort_by_key(|turn| turn.answered);
    let mut by_question = by_answer.clone();
    by_question.sort_by_key(|turn| turn.invoked);
    let (mut answers, mut floor) = (by_answer.into_iter().peekable(), Place::default());
    for turn in by_question {
        while let Some(before) = answers.next_if(|before| before.answered < turn.invoked) {
            let place = before.place().unwrap_or_default();
            floor.index = floor.index.max(place.index);
            floor.at = floor.at.max(place.at);
        }
        let low = match turn.asked {
            Asked::Read(Level::Bounded | Level::Local) => turn.since,
            _ => floor,
        };
        let is_behind = |place: Place| place.index < low.index || place.at < low.at;
        if turn.place().is_some_and(is_behind) {
            wrong.push(format!("goes back behind {low:?}: {turn:?}"));
        }
    }
}

fn count(turns: &[&Turn], wrong: &mut Vec<String>) {
    let lost = turns
        .iter()
        .filter(|turn| turn.asked == Asked::Count && turn.answer == Answer::Unknown)
        .count();
    let mut counted: BTreeMap<u64, &Turn> = BTreeMap::new();
    let mut highest = 0;
    for turn in turns {
        match &turn.answer {
            Answer::Counted(_, number) => {
                highest = highest.max(*number);
                if let Some(other) = counted.insert(*number, turn) {
                    wrong.push(format!("a number twice: {other:?} {turn:?}"));
                }
            }
            Answer::Shown(_, [one, other]) => {
                if one != other {
                    wrong.push(format!("a half: {turn:?}"));
                }
                highest = highest.max(shown_number(one));
            }
            Answer::Halved => wrong.push(format!("a half: {turn:?}")),
            _ => {}
        }
    }
    let untold = (1..=highest)
        .filter(|number| !counted.contains_key(number))
        .count();
    if untold > lost {
        wrong.push(format!(
            "{untold} numbers that nobody told of, and {lost} transactions without an answer"
        ));
    }
    let mut place = Place::default();
    for turn in counted.values() {
        let next = turn.answer.place().expect("it counted");
        if next.index < place.index || next.at < place.at {
            wrong.push(format!("a higher number is earlier: {turn:?}"));
        }
        place = next;
    }
    // The highest number of those that were answered before.
    let mut by_answer = Vec::from_iter(&counted);
    by_answer.sort_by_key(|(_, turn)| turn.answered);
    let mut by_question = turns.to_vec();
    by_question.sort_by_key(|turn| turn.invoked);
    let (mut answers, mut floor) = (by_answer.into_iter().peekable(), 0);
    for turn in by_question {
        while let Some((number, _)) = answers.next_if(|(_, other)| other.answered < turn.invoked) {
            floor = floor.max(*number);
        }
        match (&turn.asked, &turn.answer) {
            (_, Answer::Counted(_, number)) if *number <= floor => {
                wrong.push(format!(
                    "not above {floor}, which was there before: {turn:?}"
                ));
            }
            (Asked::Read(level), Answer::Shown(place, [one, _])) => {
                let number = shown_number(one);
                let seen = |limit: u64| {
                    let told = counted.iter().rev();
                    let told = told.filter(|(_, turn)| {
                        turn.answer.place().expect("it counted").index <= limit
                    });
                    told.map(|(number, _)| *number).next().unwrap_or(0)
                };
                let least = match level {
                    Level::Linearizable => floor.max(seen(turn.since.index)),
                    _ => seen(turn.since.index),
                };
                let is_ahead = counted.get(&number).is_some_and(|turn| {
                    turn.answer.place().expect("it counted").index > place.index
                });
                if number < least || is_ahead {
                    wrong.push(format!("at least {least}: {turn:?}"));
                }
            }
            _ => {}
        }
    }
}

fn shown_number(half: &Option<Half>) -> u64 {
    half.as_ref().map_or(0, |half| half.value.parse().unwrap())
}

fn twins(turns: &[&Turn], wrong: &mut Vec<String>) {
    let writes: Vec<&&Turn> = turns.iter().filter(|turn| turn.may_write()).collect();
    let put_of = |value: &str| {
        let puts = |turn: &&&&Turn| matches!(&turn.asked, Asked::Put(put, _) if put == value);
        writes.iter().find(puts).copied()
    };
    for turn in turns {
        let (Asked::Read(level), Answer::Shown(place, [one, other])) = (&turn.asked, &turn.answer)
        else {
            continue;
        };
        if one != other {
            wrong.push(format!("a half: {turn:?}"));
        }
        // The last write that it has to see.
        let is_before = |write: &Turn, at: Place| {
            at.index <= turn.since.index
                || *level == Level::Linearizable && write.answered < turn.invoked
        };
        let seen = writes.iter().filter_map(|write| {
            let at = write.answer.place()?;
            is_before(write, at).then_some((at.index, write))
        });
        let last = seen.max_by_key(|(index, _)| *index);
        // Writes that it may see behind that, or in the same entry.
        let may_be_later = |write: &Turn| {
            let index = write.answer.place().map(|at| at.index);
            let last = last.map_or(0, |(index, _)| index);
            write.invoked < turn.answered
                && index.is_none_or(|index| (last..=place.index).contains(&index))
        };
        match one {
            Some(half) => {
                let Some(put) = put_of(&half.value) else {
                    wrong.push(format!("nobody has put that: {turn:?}"));
                    continue;
                };
                let Asked::Put(_, life) = &put.asked else {
                    unreachable!()
                };
                let told = put.answer.place().map(|at| life.map(|life| at.at + life));
                let is_over = half.end.is_some_and(|end| end <= place.at);
                if is_over
                    || told.is_some_and(|end| end != half.end)
                    || half.end.is_some() != life.is_some()
                {
                    wrong.push(format!("another end, or after it: {put:?} {turn:?}"));
                }
                if !may_be_later(put) {
                    wrong.push(format!("older than {last:?}: {turn:?}"));
                }
            }
            None => {
                let may_be_gone = |write: &Turn| match (&write.asked, write.answer.place()) {
                    (Asked::Put(_, life), Some(at)) => {
                        life.is_some_and(|life| at.at + life <= place.at)
                    }
                    (Asked::Put(_, life), None) => life.is_some(),
                    _ => true,
                };
                let explains = |write: &&&&Turn| may_be_later(write) && may_be_gone(write);
                if last.is_some() && !writes.iter().any(|write| explains(&write)) {
                    wrong.push(format!("gone, though {last:?}: {turn:?}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(index: u64, at: u64) -> Place {
        Place { index, at }
    }

    fn turn(pair: &str, asked: Asked, invoked: u64, answer: Answer) -> Turn {
        Turn {
            pair: pair.to_owned(),
            asked,
            since: Place::default(),
            invoked,
            answered: invoked + 1,
            answer,
        }
    }

    fn counted(invoked: u64, index: u64, number: u64) -> Turn {
        let answer = Answer::Counted(at(index, 100 + index), number);
        turn(COUNT, Asked::Count, invoked, answer)
    }

    fn half(value: &str, end: Option<u64>) -> Option<Half> {
        let value = value.to_owned();
        Some(Half { value, end })
    }

    fn shown(pair: &str, invoked: u64, place: Place, halves: [Option<Half>; 2]) -> Turn {
        let asked = Asked::Read(Level::Linearizable);
        turn(pair, asked, invoked, Answer::Shown(place, halves))
    }

    fn number(invoked: u64, index: u64, number: u64) -> Turn {
        let halves = [(); 2].map(|()| {
            (number > 0)
                .then(|| half(&number.to_string(), None))
                .flatten()
        });
        shown(COUNT, invoked, at(index, 100 + index), halves)
    }

    fn put(invoked: u64, index: u64, value: &str, life: Life) -> Turn {
        let asked = Asked::Put(value.to_owned(), life);
        turn("1", asked, invoked, Answer::Wrote(at(index, 100 + index)))
    }

    fn both(invoked: u64, place: Place, value: &str, end: Option<u64>) -> Turn {
        shown("1", invoked, place, [half(value, end), half(value, end)])
    }

    #[test]
    fn good_histories_are_good_and_each_kind_of_violation_is_found() {
        let lost = turn(COUNT, Asked::Count, 4, Answer::Unknown);
        let gone = |invoked, place| shown("1", invoked, place, [None, None]);
        let good = [
            number(0, 1, 0),
            counted(2, 5, 1),
            lost.clone(),
            counted(6, 7, 3),
            number(8, 7, 3),
            put(10, 8, "x", Some(50)),
            both(12, at(8, 157), "x", Some(158)),
            gone(14, at(8, 158)),
            put(16, 60, "y", None),
            turn("1", Asked::Delete, 18, Answer::Unknown),
            gone(20, at(60, 160)),
        ];
        assert_eq!(check(&good), (vec![], 9));
        let x = || put(10, 8, "x", Some(50));
        let y = || put(16, 9, "y", None);
        for (text, bad) in [
            ("a number twice", vec![counted(0, 5, 1), counted(2, 6, 1)]),
            (
                "not above 2",
                vec![counted(0, 4, 1), counted(2, 5, 2), counted(6, 6, 1)],
            ),
            (
                "a higher number is earlier",
                vec![counted(0, 5, 1), counted(2, 4, 2)],
            ),
            (
                "numbers that nobody told of",
                vec![counted(0, 5, 1), counted(2, 6, 3)],
            ),
            ("at least 1", vec![counted(0, 5, 1), number(2, 6, 0)]),
            ("at least 0", vec![number(0, 4, 1), counted(0, 5, 1)]),
            ("goes back", vec![x(), gone(12, at(7, 158))]),
            ("goes back", vec![x(), gone(12, at(8, 107))]),
            ("a half", vec![turn(COUNT, Asked::Count, 0, Answer::Halved)]),
            (
                "a half",
                vec![
                    x(),
                    shown("1", 12, at(8, 120), [half("x", Some(158)), None]),
                ],
            ),
            ("after it", vec![x(), both(12, at(8, 158), "x", Some(158))]),
            (
                "another end",
                vec![x(), both(12, at(8, 120), "x", Some(159))],
            ),
            ("nobody has put", vec![both(12, at(8, 120), "z", None)]),
            (
                "older than",
                vec![x(), y(), both(18, at(9, 120), "x", Some(158))],
            ),
            ("gone, though", vec![x(), gone(12, at(8, 157))]),
            ("gone, though", vec![x(), y(), gone(18, at(9, 900))]),
        ] {
            let (wrong, _) = check(&bad);
            assert!(
                wrong.iter().any(|one| one.contains(text)),
                "{text}: {wrong:?}"
            );
        }
    }
}
