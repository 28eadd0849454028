//! Looks whether every answer has its place.
//!
//! All writes of a key stand in the order of their versions, each with what is known of its index in the log: that of its answer, or
//! between those of the versions around it, if it was seen by others only. An answer was given somewhere between what its asker
//! could know of and the index that it says, at the moment that it says. There has to be a write in between after which the key
//! looked so at that moment. In real time places and moments never go back. A version has one value and one end, by whomever it
//! is told. A write without an answer may be anywhere after its question, unless it was seen; what was said not to be done is nowhere.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::history::{Op, Outcome, Place, Shown, What};

/// Behind a version: what it left. A take has the version of what it took, and stands behind that.
type Order = (u64, u8);

#[derive(Clone, Debug)]
enum Left {
    Nothing,
    Item {
        value: String,
        expires: Option<u64>,
    },
    /// A touch of what nobody told of.
    Something,
}

impl Left {
    /// Whether the key has an item at a moment; `None`: it is not known.
    fn is_there(&self, at: u64) -> Option<bool> {
        match self {
            Left::Nothing => Some(false),
            Left::Item { expires, .. } => Some(expires.is_none_or(|end| at < end)),
            Left::Something => None,
        }
    }
}

#[derive(Clone, Debug)]
struct Write {
    earliest: u64,
    latest: u64,
    left: Left,
}

#[derive(Default)]
struct Key<'a> {
    writes: BTreeMap<Order, Write>,
    /// Writes whose version nobody knows: without an answer, and seen by nobody; or taken in the entry of such a one.
    lost: Vec<&'a Op>,
}

pub struct Checked {
    pub violations: Vec<String>,
    /// Answers that were looked at.
    pub answers: usize,
    /// Answers that only a write without an answer explains.
    pub by_lost: usize,
}

/// Checks a history.
pub fn check(ops: &[Op]) -> Checked {
    let mut checked = Checked {
        violations: vec![],
        answers: 0,
        by_lost: 0,
    };
    let lows = real_time(ops, &mut checked.violations);
    let versions = versions(ops, &mut checked.violations);
    let mut keys: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, op) in ops.iter().enumerate() {
        keys.entry(&op.key).or_default().push(number);
    }
    for numbers in keys.values() {
        let of_key: Vec<&Op> = numbers.iter().map(|&number| &ops[number]).collect();
        let key = key(&of_key, &versions, &mut checked.violations);
        for &number in numbers {
            look(&ops[number], lows[number], &key, &mut checked);
        }
    }
    checked
}

/// No answer goes back behind one that was there before its question. Returns how far each has to see.
fn real_time(ops: &[Op], violations: &mut Vec<String>) -> Vec<u64> {
    let mut by_answer: Vec<&Op> = ops
        .iter()
        .filter(|op| op.outcome.place().is_some())
        .collect();
    by_answer.sort_by_key(|op| op.answered);
    let mut answers = by_answer.into_iter().peekable();
    let mut by_question: Vec<usize> = (0..ops.len()).collect();
    by_question.sort_by_key(|&number| ops[number].invoked);
    let mut floor = Place::default();
    let mut lows = vec![0; ops.len()];
    for number in by_question {
        let op = &ops[number];
        while let Some(answer) = answers.next_if(|answer| answer.answered < op.invoked) {
            let place = answer.outcome.place().expect("they have one");
            floor.at = floor.at.max(place.at);
            floor.index = floor.index.max(place.index);
        }
        let low = match op.what.is_linearizable() {
            true => floor,
            false => op.since,
        };
        lows[number] = low.index;
        if let Some(place) = op.outcome.place()
            && (place.index < low.index || place.at < low.at)
        {
            violations.push(format!("goes back behind {low:?}: {op:?}"));
        }
    }
    lows
}

/// The indexes of versions that were answered.
fn versions(ops: &[Op], violations: &mut Vec<String>) -> BTreeMap<u64, u64> {
    let mut versions = BTreeMap::new();
    for op in ops {
        if let Outcome::Wrote(place, version) = op.outcome
            && versions.insert(version, place.index).is_some()
        {
            violations.push(format!("a version twice: {op:?}"));
        }
    }
    let mut before = 0;
    for (version, index) in &versions {
        if *index < before {
            violations.push(format!(
                "version {version} is before one of an earlier entry"
            ));
        }
        before = *index;
    }
    versions
}

/// The writes that were answered.
fn written<'a>(ops: &[&'a Op]) -> Key<'a> {
    let mut key = Key::default();
    for op in ops {
        if let Outcome::Wrote(place, version) = op.outcome {
            let left = match &op.what {
                What::Delete => Left::Nothing,
                What::Touch => Left::Something,
                what => {
                    let (value, life) = what.value().expect("it puts");
                    Left::Item {
                        value: value.to_owned(),
                        expires: life.map(|life| place.at + life),
                    }
                }
            };
            let (earliest, latest) = (place.index, place.index);
            let write = Write {
                earliest,
                latest,
                left,
            };
            key.writes.insert((version, 0), write);
        }
    }
    key
}

/// Whether some write of an item that was taken in its entry, or a touch of it, had no answer.
fn is_of_lost(ops: &[&Op], taken: &Op, value: &str) -> bool {
    ops.iter().any(|lost| {
        let wrote = lost.what.value().is_some_and(|(put, _)| put == value);
        lost.outcome == Outcome::Unknown
            && lost.invoked < taken.answered
            && (wrote || lost.what == What::Touch)
    })
}

/// The versions of touches: a value that is shown with one of them tells no version of the write that put it.
fn touches(ops: &[&Op]) -> HashSet<u64> {
    let touches = ops.iter().filter(|op| op.what == What::Touch);
    touches
        .filter_map(|op| match op.outcome {
            Outcome::Wrote(_, version) => Some(version),
            _ => None,
        })
        .collect()
}

/// All that can be known of the writes of a key.
fn key<'a>(ops: &[&'a Op], versions: &BTreeMap<u64, u64>, violations: &mut Vec<String>) -> Key<'a> {
    let lives: HashMap<&str, (&Op, Option<u64>)> = ops
        .iter()
        .filter_map(|op| op.what.value().map(|(value, life)| (value, (*op, life))))
        .collect();
    let mut key = written(ops);
    let touches = touches(ops);
    let mut seen_values = HashSet::new();
    for op in ops {
        let Outcome::Item(place, shown) = &op.outcome else {
            continue;
        };
        match lives.get(&*shown.value) {
            None => violations.push(format!("nobody wrote that: {op:?}")),
            Some((write, _)) if write.outcome == Outcome::NotDone => {
                violations.push(format!("shown, though not done by {write:?}: {op:?}"));
            }
            Some((write, _)) if matches!(write.outcome, Outcome::Missed(_)) => {
                violations.push(format!("shown, though missed by {write:?}: {op:?}"));
            }
            Some(_) => {}
        }
        // Taken in the entry in which it was written: it has no version of its own.
        let version = match shown.version {
            0 => taken_in_its_entry(&key, &shown.value, place.index),
            version => Some(version),
        };
        let Some(version) = version else {
            // The writer or toucher of this entry had no answer: both stand somewhere among the versions of the entry.
            if !is_of_lost(ops, op, &shown.value) {
                violations.push(format!("taken in an entry that did not write it: {op:?}"));
            }
            key.lost.push(op);
            continue;
        };
        seen_values.extend((!touches.contains(&version)).then_some(&*shown.value));
        see(&mut key, version, shown, versions, violations, op);
        if op.what == What::Take {
            let write = Write {
                earliest: place.index,
                latest: place.index,
                left: Left::Nothing,
            };
            if key.writes.insert((version, 1), write).is_some() {
                violations.push(format!("taken twice: {op:?}"));
            }
        }
    }
    fill_touches(&mut key, &lives, ops);
    for op in ops {
        let is_seen = op
            .what
            .value()
            .is_some_and(|(value, _)| seen_values.contains(value));
        if op.what.is_write() && op.outcome == Outcome::Unknown && !is_seen {
            key.lost.push(op);
        }
    }
    key
}

/// The version of an item that was taken in the entry in which it was written, or touched.
fn taken_in_its_entry(key: &Key<'_>, value: &str, index: u64) -> Option<u64> {
    let is_put =
        |write: &Write| matches!(&write.left, Left::Item { value: put, .. } if put == value);
    let put = key.writes.iter().find(|(_, write)| is_put(write))?;
    let behind = key.writes.range((put.0.0, 1)..);
    let touches = behind.take_while(|(_, write)| {
        write.latest <= index && (matches!(write.left, Left::Something) || is_put(write))
    });
    let (last, write) = touches.last().unwrap_or(put);
    // Else it is a touch of this entry that nobody told of.
    (write.earliest..=write.latest)
        .contains(&index)
        .then_some(last.0)
}

/// A version with its value and its end, as an answer shows it.
fn see(
    key: &mut Key<'_>,
    version: u64,
    shown: &Shown,
    versions: &BTreeMap<u64, u64>,
    violations: &mut Vec<String>,
    op: &Op,
) {
    let told = Left::Item {
        value: shown.value.clone(),
        expires: shown.expires,
    };
    match key.writes.get_mut(&(version, 0)) {
        Some(Write {
            left: Left::Item { value, expires },
            ..
        }) => {
            if *value != shown.value || *expires != shown.expires {
                violations.push(format!("another value or end, {value} {expires:?}: {op:?}"));
            }
        }
        Some(
            write @ Write {
                left: Left::Something,
                ..
            },
        ) => write.left = told,
        Some(_) => violations.push(format!("it was deleted by that version: {op:?}")),
        None => {
            let earliest = versions
                .range(..version)
                .next_back()
                .map_or(0, |(_, index)| *index);
            let latest = versions
                .range(version..)
                .next()
                .map_or(u64::MAX, |(_, index)| *index);
            // It was there when it was shown.
            let shown_at = op.outcome.place().expect("it was shown").index;
            let write = Write {
                earliest,
                latest: latest.min(shown_at),
                left: told,
            };
            key.writes.insert((version, 0), write);
        }
    }
}

/// A touch that nobody read left what was there before, if that is known.
fn fill_touches(key: &mut Key<'_>, lives: &HashMap<&str, (&Op, Option<u64>)>, ops: &[&Op]) {
    let at_of: HashMap<u64, u64> = ops
        .iter()
        .filter_map(|op| match op.outcome {
            Outcome::Wrote(place, version) => Some((version, place.at)),
            _ => None,
        })
        .collect();
    // A lost write may stand before a touch.
    let has_lost = ops
        .iter()
        .any(|op| op.what.is_write() && op.outcome == Outcome::Unknown);
    let mut before: Option<String> = None;
    for ((version, _), write) in &mut key.writes {
        if let (Left::Something, Some(value), false) = (&write.left, &before, has_lost) {
            let life = lives.get(&**value).and_then(|(_, life)| *life);
            write.left = Left::Item {
                value: value.clone(),
                expires: life.map(|life| at_of[version] + life),
            };
        }
        before = match &write.left {
            Left::Item { value, .. } => Some(value.clone()),
            _ => None,
        };
    }
}

/// The key as an answer says it is.
enum Claim<'a> {
    There,
    Absent,
    Version(&'a Shown),
}

fn look(op: &Op, low: u64, key: &Key<'_>, checked: &mut Checked) {
    let Some(place) = op.outcome.place() else {
        return;
    };
    checked.answers += 1;
    let is_in_its_entry = op.what.is_write();
    let low = match is_in_its_entry {
        true => place.index.saturating_sub(1),
        false => low,
    };
    let own = match op.outcome {
        Outcome::Wrote(_, version) => Some((version, 0)),
        _ => None,
    };
    let claim = match (&op.what, &op.outcome) {
        (What::PutIf(_, _, expected), Outcome::Wrote(_, version)) => {
            let between = key.writes.range((*expected, 1)..(*version, 0)).next();
            if let Some(between) = between {
                let text = format!("written over a later one, {between:?}: {op:?}");
                checked.violations.push(text);
            }
            return;
        }
        (What::Create(..), Outcome::Wrote(..))
        | (What::Take | What::Touch | What::Read(_), Outcome::Missed(_)) => Claim::Absent,
        (What::Create(..), Outcome::Missed(_)) | (What::Touch, Outcome::Wrote(..)) => Claim::There,
        (_, Outcome::Item(_, shown)) => Claim::Version(shown),
        _ => return,
    };
    if let Claim::Version(shown) = claim
        && shown.expires.is_some_and(|end| place.at >= end)
    {
        checked
            .violations
            .push(format!("shown after its end: {op:?}"));
    }
    if let Claim::Version(Shown { version: 0, .. }) = claim {
        return;
    }
    match explain(key, low, place, own, &claim) {
        true => {}
        false if could_be_lost(key, op, &claim) => checked.by_lost += 1,
        false => {
            let near: Vec<_> = key.writes.iter().rev().take(6).collect();
            let text = format!("has no place above {low}: {op:?}\n    the last writes: {near:?}");
            checked.violations.push(text);
        }
    }
}

/// Whether some write leaves what is claimed, that may be the last one at the place.
fn explain(key: &Key<'_>, low: u64, place: Place, own: Option<Order>, claim: &Claim<'_>) -> bool {
    let before = |order: &Order| own.is_none_or(|own| *order < own);
    let writes = || key.writes.iter().filter(|(order, _)| before(order));
    // The last one that was surely written before the question, and therefore seen.
    let first = writes()
        .rev()
        .find(|(_, write)| write.latest <= low)
        .map(|(order, _)| *order);
    let fits = |left: &Left, order: Order| match claim {
        Claim::There => left.is_there(place.at).unwrap_or(true),
        Claim::Absent => !left.is_there(place.at).unwrap_or(false),
        Claim::Version(shown) => order == (shown.version, 0),
    };
    let at_first = first.is_none() && fits(&Left::Nothing, (0, 0));
    // A write of its own has one place: right behind the version before it.
    let last = match own {
        Some(_) => writes().next_back().map(|(order, _)| *order),
        None => None,
    };
    at_first && last.is_none()
        || writes()
            .filter(|(order, write)| {
                first.is_none_or(|first| **order >= first) && write.earliest <= place.index
            })
            .filter(|(order, _)| last.is_none_or(|last| **order == last))
            .any(|(order, write)| fits(&write.left, *order))
}

fn could_be_lost(key: &Key<'_>, op: &Op, claim: &Claim<'_>) -> bool {
    let mut lost = key.lost.iter().filter(|lost| lost.invoked < op.answered);
    lost.any(|lost| match claim {
        // It would have its version.
        Claim::Version(_) => false,
        // One that ended since, or that removed it.
        Claim::Absent => match &lost.what {
            What::Delete | What::Take => true,
            // Of a touch the end is later than without it.
            What::Touch => false,
            what => what.value().is_some_and(|(_, life)| life.is_some()),
        },
        Claim::There => !matches!(lost.what, What::Delete | What::Take),
    })
}

#[cfg(test)]
mod tests {
    use super::super::history::Level;
    use super::*;

    fn op(what: What, invoked: u64, answered: u64, outcome: Outcome) -> Op {
        Op {
            key: "k".to_owned(),
            what,
            since: Place::default(),
            invoked,
            answered,
            outcome,
        }
    }

    fn at(index: u64, at: u64) -> Place {
        Place { index, at }
    }

    fn put(value: &str, life: Option<u64>) -> What {
        What::Put(value.to_owned(), life)
    }

    fn read() -> What {
        What::Read(Level::Linearizable)
    }

    fn item(place: Place, version: u64, value: &str, expires: Option<u64>) -> Outcome {
        let value = value.to_owned();
        Outcome::Item(
            place,
            Shown {
                version,
                value,
                expires,
            },
        )
    }

    /// A put for 50 ms at 100, and what is asked after it.
    fn after(asked: impl IntoIterator<Item = Op>) -> Vec<String> {
        let first = op(put("a", Some(50)), 1, 2, Outcome::Wrote(at(5, 100), 40));
        let ops: Vec<Op> = std::iter::once(first).chain(asked).collect();
        check(&ops).violations
    }

    #[track_caller]
    fn is_found(asked: impl IntoIterator<Item = Op>, text: &str) {
        let violations = after(asked);
        assert!(
            violations.iter().any(|one| one.contains(text)),
            "{violations:?}"
        );
    }

    #[test]
    fn good_histories_are_good() {
        let good = [
            op(read(), 3, 4, item(at(5, 149), 40, "a", Some(150))),
            op(read(), 5, 6, Outcome::Missed(at(5, 150))),
            op(
                What::Create("b".to_owned(), None),
                7,
                8,
                Outcome::Wrote(at(6, 150), 41),
            ),
            op(What::Take, 9, 10, item(at(7, 151), 41, "b", None)),
            op(read(), 11, 12, Outcome::Missed(at(7, 151))),
            // Nobody said what became of it; then it was seen.
            op(put("c", None), 13, 14, Outcome::Unknown),
            op(read(), 15, 16, item(at(8, 160), 43, "c", None)),
            op(What::Touch, 17, 18, Outcome::Wrote(at(9, 170), 44)),
            op(
                What::PutIf("d".to_owned(), None, 44),
                19,
                20,
                Outcome::Wrote(at(10, 171), 45),
            ),
        ];
        assert_eq!(after(good), Vec::<String>::new());
        // Nobody said what became of it, and it was seen only after a touch.
        let touched = [
            op(put("c", None), 3, 4, Outcome::Unknown),
            op(What::Touch, 5, 6, Outcome::Wrote(at(9, 170), 44)),
            op(read(), 7, 8, item(at(9, 171), 44, "c", None)),
        ];
        assert_eq!(after(touched), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_violation_is_found() {
        is_found(
            [op(read(), 3, 4, item(at(5, 150), 40, "a", Some(150)))],
            "after its end",
        );
        is_found(
            [op(read(), 3, 4, item(at(5, 120), 40, "a", Some(151)))],
            "another value or end",
        );
        is_found(
            [op(read(), 3, 4, Outcome::Missed(at(5, 149)))],
            "has no place",
        );
        is_found([op(read(), 3, 4, Outcome::Missed(at(5, 99)))], "goes back");
        is_found([op(read(), 3, 4, Outcome::Missed(at(4, 150)))], "goes back");
        is_found(
            [op(read(), 3, 4, item(at(6, 120), 41, "x", None))],
            "nobody wrote",
        );
        let refused = op(put("b", None), 3, 4, Outcome::NotDone);
        let shown = op(read(), 5, 6, item(at(6, 120), 41, "b", None));
        is_found([refused, shown.clone()], "though not done");
        // A write that was answered is missing.
        let second = op(put("b", None), 3, 4, Outcome::Wrote(at(6, 110), 41));
        let stale = op(read(), 5, 6, item(at(6, 120), 40, "a", Some(150)));
        is_found([second.clone(), stale], "has no place");
        let created = op(
            What::Create("c".to_owned(), None),
            5,
            6,
            Outcome::Wrote(at(7, 120), 42),
        );
        is_found([second.clone(), created], "has no place");
        let over = op(
            What::PutIf("c".to_owned(), None, 40),
            5,
            6,
            Outcome::Wrote(at(7, 120), 42),
        );
        is_found([second.clone(), over], "over a later one");
        let taken = |from| {
            op(
                What::Take,
                from,
                from + 1,
                item(at(from + 5, 120), 41, "b", None),
            )
        };
        is_found([second.clone(), taken(5), taken(7)], "taken twice");
        // Of version 0: it was written, or touched, in the entry in which it was taken.
        let own = |from| op(What::Take, from, from + 1, item(at(7, 120), 0, "b", None));
        is_found([second.clone(), own(5)], "did not write it");
        let lost = op(What::Touch, 3, 4, Outcome::Unknown);
        let told = [second.clone(), lost, own(5)];
        assert_eq!(after(told), Vec::<String>::new());
        let again = op(read(), 9, 10, item(at(20, 130), 41, "b", None));
        is_found([second, taken(5), again], "has no place");
        // Read on behalf of a token that it does not see.
        let mut local = op(What::Read(Level::Local), 3, 4, Outcome::Missed(at(4, 99)));
        local.since = at(5, 100);
        is_found([local], "goes back");
    }
}
