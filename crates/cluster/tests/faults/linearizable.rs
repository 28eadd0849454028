//! Looks for an order, key by key, in which the operations could have happened one after the other (Wing and Gong's algorithm, crate
//! todc-utils): each between its question and its answer, at the moment that it says, which never goes back.
//!
//! Time is a part of the state, and an item ends at its end. A write without an answer happens any time after its question, at the
//! latest after all others: then it shows nowhere. Its version, its moment and its end are what later answers let them be. The log's
//! indexes have no part in it: those are placement.rs's.

use std::collections::{BTreeMap, HashMap};

use todc_utils::{Action, History, Specification, WGLChecker};

use super::history::{Life, Op, Outcome, What};

/// A question; values are numbers.
#[derive(Clone, Copy, Debug)]
enum Act {
    Put(u64, Life),
    Create(u64, Life),
    PutIf(u64, Life, u64),
    Delete,
    Take,
    Touch,
    Read,
}

/// An answer with its moment.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Wrote(u64, u64),
    Missed(u64),
    /// The version, 0: unknown; the value; the end.
    Item(u64, u64, u64, Option<u64>),
    None,
}

type Step = (Act, Answer);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Item {
    value: u64,
    version: Option<u64>,
    life: Life,
    /// The earliest and the latest end that it can have, if it has one.
    end: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    now: u64,
    /// The last one that is known.
    version: u64,
    item: Option<Item>,
}

impl State {
    fn there(&mut self, at: u64) -> Option<()> {
        if let Some(end) = &mut self.item.as_mut()?.end {
            end.0 = end.0.max(at + 1);
            return (end.0 <= end.1).then_some(());
        }
        Some(())
    }

    fn absent(&mut self, at: u64) -> Option<()> {
        let Some(item) = &mut self.item else {
            return Some(());
        };
        let end = item.end.as_mut()?;
        end.1 = end.1.min(at);
        (end.0 <= end.1).then_some(())
    }

    fn next(&mut self, version: u64) -> Option<()> {
        let is_later = version > self.version;
        self.version = version;
        is_later.then_some(())
    }

    fn is(&mut self, version: u64, value: u64, end: Option<u64>) -> Option<()> {
        let item = self.item.as_mut()?;
        let (from, to) = match (item.end, end) {
            (Some(possible), Some(end)) => (possible.0.max(end), possible.1.min(end)),
            (None, None) => (0, 0),
            _ => return None,
        };
        item.end = end.map(|_| (from, to));
        let fits = item.value == value && from <= to;
        // Taken in the entry in which it was written.
        if version > 0 {
            self.has(version)?;
        }
        fits.then_some(())
    }

    /// The item has this version, which is a later one than all before where nobody knew it.
    fn has(&mut self, version: u64) -> Option<()> {
        let item = self.item.as_mut()?;
        match item.version {
            Some(known) => (known == version).then_some(()),
            None => {
                item.version = Some(version);
                self.next(version)
            }
        }
    }

    fn put(&mut self, value: u64, life: Life, at: u64, version: u64) -> Option<()> {
        let end = life.map(|life| (at + life, at + life));
        let version = Some(version);
        self.item = Some(Item {
            value,
            version,
            life,
            end,
        });
        self.next(version?)
    }

    /// Nobody said when, and with which version.
    fn lost(&mut self, value: u64, life: Life, earliest: u64) {
        let end = life.map(|life| (earliest + life, u64::MAX));
        self.item = Some(Item {
            value,
            version: None,
            life,
            end,
        });
    }

    /// `None`: it cannot have been so.
    fn apply(&mut self, (act, answer): Step) -> Option<()> {
        if let Answer::Wrote(at, _) | Answer::Missed(at) | Answer::Item(at, ..) = answer {
            if at < self.now {
                return None;
            }
            self.now = at;
        }
        match (act, answer) {
            (Act::Put(value, life), Answer::Wrote(at, version)) => {
                self.put(value, life, at, version)
            }
            (Act::Create(value, life), Answer::Wrote(at, version)) => {
                self.absent(at)?;
                self.put(value, life, at, version)
            }
            (Act::PutIf(value, life, expected), Answer::Wrote(at, version)) => {
                self.there(at)?;
                self.has(expected)?;
                self.put(value, life, at, version)
            }
            (Act::PutIf(_, _, expected), Answer::Missed(at)) => match self.item {
                Some(item) if item.version == Some(expected) => self.absent(at),
                _ => Some(()),
            },
            (Act::Create(..), Answer::Missed(at)) => self.there(at),
            (Act::Delete, Answer::Wrote(_, version)) => {
                self.item = None;
                self.next(version)
            }
            (Act::Touch, Answer::Wrote(at, version)) => {
                self.there(at)?;
                let item = self.item?;
                self.put(item.value, item.life, at, version)
            }
            (Act::Take, Answer::Item(at, version, value, end)) => {
                self.there(at)?;
                self.is(version, value, end)?;
                self.item = None;
                Some(())
            }
            (Act::Read, Answer::Item(at, version, value, end)) => {
                self.there(at)?;
                self.is(version, value, end)
            }
            (Act::Take | Act::Touch | Act::Read, Answer::Missed(at)) => self.absent(at),
            (act, Answer::None) => {
                self.perhaps(act);
                Some(())
            }
            _ => None,
        }
    }

    /// Where a condition may hold it does: where it did not, the write may stand after all others.
    fn perhaps(&mut self, act: Act) {
        let (now, item) = (self.now, self.item);
        match (act, item) {
            (Act::Put(value, life), _) | (Act::Create(value, life), None) => {
                self.lost(value, life, now)
            }
            // When that has ended.
            (
                Act::Create(value, life),
                Some(Item {
                    end: Some((end, _)),
                    ..
                }),
            ) => {
                self.lost(value, life, now.max(end));
            }
            (Act::PutIf(value, life, expected), Some(item)) => {
                if item.version.is_none_or(|known| known == expected) {
                    self.lost(value, life, now);
                }
            }
            (Act::Touch, Some(item)) => self.lost(item.value, item.life, now),
            (Act::Delete | Act::Take, _) => self.item = None,
            (Act::Create(..) | Act::PutIf(..) | Act::Touch | Act::Read, _) => {}
        }
    }
}

struct Model;

impl Specification for Model {
    type State = State;
    type Operation = Step;

    fn init() -> State {
        State::default()
    }

    fn apply(step: &Step, state: &State) -> (bool, State) {
        let mut next = *state;
        match next.apply(*step) {
            Some(()) => (true, next),
            None => (false, *state),
        }
    }
}

#[derive(Default)]
pub struct Ordered {
    pub keys: usize,
    pub ops: usize,
    /// The most operations of one key.
    pub longest: usize,
    /// Keys whose operations have no order.
    pub without: Vec<String>,
}

/// Checks a history.
pub fn check(ops: &[Op]) -> Ordered {
    let mut keys: BTreeMap<&str, Vec<&Op>> = BTreeMap::new();
    for op in ops {
        let counts = op.what.is_linearizable() && op.outcome != Outcome::NotDone;
        let is_lost_read = !op.what.is_write() && op.outcome == Outcome::Unknown;
        if counts && !is_lost_read {
            keys.entry(&op.key).or_default().push(op);
        }
    }
    let mut ordered = Ordered::default();
    for (key, ops) in keys {
        ordered.keys += 1;
        ordered.ops += ops.len();
        ordered.longest = ordered.longest.max(ops.len());
        if !WGLChecker::<Model>::is_linearizable(history(&ops)) {
            ordered.without.push(key.to_owned());
        }
    }
    ordered
}

fn history(ops: &[&Op]) -> History<Step> {
    let mut values: HashMap<&str, u64> = HashMap::new();
    let mut actions = vec![];
    // Each in a process of its own, for one without an answer never ends.
    for (process, op) in ops.iter().enumerate() {
        let step = step(op, &mut values);
        let answered = match op.outcome {
            Outcome::Unknown => u64::MAX,
            _ => op.answered,
        };
        actions.push((op.invoked, false, (process, Action::Call(step))));
        actions.push((answered, true, (process, Action::Response(step))));
    }
    actions.sort_by_key(|(moment, is_answer, _)| (*moment, *is_answer));
    History::from_actions(actions.into_iter().map(|(.., action)| action).collect())
}

fn step<'a>(op: &'a Op, values: &mut HashMap<&'a str, u64>) -> Step {
    let mut number = |value: &'a str| {
        let next = values.len() as u64;
        *values.entry(value).or_insert(next)
    };
    let act = match &op.what {
        What::Put(value, life) => Act::Put(number(value), *life),
        What::Create(value, life) => Act::Create(number(value), *life),
        What::PutIf(value, life, version) => Act::PutIf(number(value), *life, *version),
        What::Delete => Act::Delete,
        What::Take => Act::Take,
        What::Touch => Act::Touch,
        What::Read(_) => Act::Read,
    };
    let answer = match &op.outcome {
        Outcome::Wrote(place, version) => Answer::Wrote(place.at, *version),
        Outcome::Missed(place) => Answer::Missed(place.at),
        Outcome::Item(place, shown) => {
            Answer::Item(place.at, shown.version, number(&shown.value), shown.expires)
        }
        Outcome::Unknown | Outcome::NotDone => Answer::None,
    };
    (act, answer)
}

#[cfg(test)]
mod tests {
    use super::super::history::{Level, Place, Shown};
    use super::*;

    fn op(what: What, invoked: u64, answered: u64, outcome: Outcome) -> Op {
        let (key, since) = ("k".to_owned(), Place::default());
        Op {
            key,
            what,
            since,
            invoked,
            answered,
            outcome,
        }
    }

    fn put(value: &str, life: Life) -> What {
        What::Put(value.to_owned(), life)
    }

    fn read(invoked: u64, answered: u64, outcome: Outcome) -> Op {
        op(What::Read(Level::Linearizable), invoked, answered, outcome)
    }

    fn at(at: u64) -> Place {
        Place { index: 1, at }
    }

    fn item(moment: u64, version: u64, value: &str, expires: Option<u64>) -> Outcome {
        let value = value.to_owned();
        Outcome::Item(
            at(moment),
            Shown {
                version,
                value,
                expires,
            },
        )
    }

    /// A put for 50 ms at 100, another one without an answer, and what is asked after both.
    #[track_caller]
    fn are_ordered(asked: impl IntoIterator<Item = Op>, expected: bool) {
        let first = op(put("a", Some(50)), 1, 2, Outcome::Wrote(at(100), 40));
        let lost = op(put("b", Some(30)), 3, 4, Outcome::Unknown);
        let ops: Vec<Op> = [first, lost].into_iter().chain(asked).collect();
        assert_eq!(check(&ops).without.is_empty(), expected);
    }

    #[test]
    fn a_lost_write_is_seen_or_is_not() {
        let unseen = || read(5, 6, item(149, 40, "a", Some(150)));
        are_ordered([unseen()], true);
        are_ordered([unseen(), read(7, 8, Outcome::Missed(at(150)))], true);
        // At 105 or before, and it took the place of what would be there.
        are_ordered([read(5, 6, Outcome::Missed(at(135)))], true);
        are_ordered([read(5, 6, Outcome::Missed(at(129)))], false);
        let seen = || read(7, 8, item(149, 43, "b", Some(160)));
        are_ordered([seen(), read(9, 10, Outcome::Missed(at(160)))], true);
        // It was written at 130, and what was there before was read at 149.
        are_ordered([unseen(), seen()], false);
        are_ordered([seen(), read(9, 10, Outcome::Missed(at(159)))], false);
        are_ordered([seen(), read(9, 10, item(150, 40, "a", Some(151)))], false);
        // It may have been made when the other one had ended.
        let create = || {
            op(
                What::Create("e".to_owned(), Some(30)),
                5,
                6,
                Outcome::Unknown,
            )
        };
        let made = |at, end| read(9, 10, item(at, 44, "e", Some(end)));
        are_ordered([unseen(), create(), made(170, 180)], true);
        are_ordered([unseen(), create(), made(170, 179)], false);
    }

    #[test]
    fn what_happened_in_no_order_is_found() {
        // At its end.
        are_ordered([read(5, 6, item(150, 40, "a", Some(150)))], false);
        // Time goes back.
        let later = read(5, 6, item(120, 40, "a", Some(150)));
        are_ordered([later, read(7, 8, item(119, 40, "a", Some(150)))], false);
        // An item that a later one has replaced, after that and before.
        let second = || op(put("c", None), 5, 9, Outcome::Wrote(at(110), 41));
        are_ordered(
            [second(), read(10, 11, item(110, 40, "a", Some(150)))],
            false,
        );
        are_ordered([second(), read(7, 8, item(110, 40, "a", Some(150)))], true);
        // Created over an item.
        let create = |over: u64| {
            let create = What::Create("d".to_owned(), None);
            op(create, 5, 6, Outcome::Wrote(at(over), 41))
        };
        are_ordered([create(120)], false);
        are_ordered([create(150)], true);
        // Over another version.
        let over = |version| {
            let put_if = What::PutIf("d".to_owned(), None, version);
            op(put_if, 10, 11, Outcome::Wrote(at(112), 42))
        };
        are_ordered([second(), over(40)], false);
        are_ordered([second(), over(41)], true);
        // Deleted, and there again.
        let delete = op(What::Delete, 10, 11, Outcome::Wrote(at(112), 42));
        let again = read(12, 13, item(113, 41, "c", None));
        are_ordered([second(), delete, again], false);
    }
}
