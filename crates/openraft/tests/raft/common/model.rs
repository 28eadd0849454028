//! The program, restated: maps from which whatever has ended is taken out when time moves.

use std::collections::{BTreeMap, HashMap};

use ebbtide_openraft::{Answer, OLDEST_OP_MS, OP_AHEAD_MS, Op, OpId, Refused};
use openraft::{CommittedLeaderId, EntryPayload};

use super::{Applied, Ask, Life, NAMES, Program, Told};

#[derive(Clone, Debug, PartialEq)]
struct Thing {
    value: String,
    written: u64,
    /// `None`: the container's default; `Some(None)`: never.
    own: Option<Option<u64>>,
}

#[derive(Clone, Default)]
struct Shelf {
    things: BTreeMap<String, Thing>,
    default: Option<u64>,
}

impl Shelf {
    fn end(&self, thing: &Thing) -> Option<u64> {
        let life = thing.own.unwrap_or(self.default);
        life.map(|life| thing.written + life)
    }

    fn take_out(&mut self, now: u64) {
        let shelf = self.clone();
        self.things
            .retain(|_, thing| shelf.end(thing).is_none_or(|end| end > now));
    }
}

/// See the file's head.
#[derive(Clone, Default)]
pub struct Model {
    shelves: [Shelf; NAMES.len()],
    served: HashMap<OpId, Answer<Told>>,
    leader: Option<CommittedLeaderId<u64>>,
    pub time: u64,
    pub until: u64,
}

impl Model {
    pub fn apply(&mut self, entry: &openraft::Entry<Program>) -> Applied {
        let leader = entry.log_id.leader_id;
        if self.leader.is_some_and(|before| before != leader) {
            self.time = self.time.max(self.until);
        }
        self.leader = Some(leader);
        let mut answers = vec![];
        if let EntryPayload::Normal(entry) = &entry.payload {
            self.time = self.time.max(entry.stamp_ms);
            self.until = self.until.max(entry.until_ms);
        }
        self.until = self.until.max(self.time);
        self.shelves
            .iter_mut()
            .for_each(|shelf| shelf.take_out(self.time));
        self.served
            .retain(|_, answer| answer.at_ms + 2 * OLDEST_OP_MS > self.time);
        if let EntryPayload::Normal(normal) = &entry.payload {
            let is_alone = normal.ops.len() == 1;
            for op in &normal.ops {
                answers.push(self.answer(op, entry.log_id.index, is_alone));
            }
        }
        Applied {
            index: entry.log_id.index,
            at_ms: self.time,
            answers,
        }
    }

    fn answer(&mut self, op: &Op<Ask>, index: u64, is_alone: bool) -> Answer<Told> {
        let at_ms = self.time;
        let answer = |outcome| Answer {
            index,
            at_ms,
            outcome,
        };
        if let Some(id) = op.id {
            if id.born_ms + OLDEST_OP_MS < self.time {
                return answer(Err(Refused::TooOld));
            }
            if id.born_ms >= self.time + OP_AHEAD_MS {
                return answer(Err(Refused::FromTheFuture));
            }
            if let Some(served) = self.served.get(&id) {
                return served.clone();
            }
        }
        let before = self.shelves.clone();
        let outcome = self.ask(&op.body, is_alone);
        if outcome.is_err() {
            self.shelves = before;
        }
        let answer = answer(outcome);
        if let Some(id) = op.id {
            self.served.insert(id, answer.clone());
        }
        answer
    }

    fn ask(&mut self, ask: &Ask, is_alone: bool) -> Result<Told, Refused> {
        let time = self.time;
        let put = |shelf: &mut Shelf, key: &str, value: &str, life: Life| {
            let there = shelf.things.get(key);
            let (written, own) = match life {
                Life::Inherit => (time, None),
                Life::Never => (time, Some(None)),
                Life::For(0) => return Err(()),
                Life::For(ms) => (time, Some(Some(ms))),
                Life::Until(at) => (time, Some(Some(at.saturating_sub(time)))),
                Life::Keep => there.map_or((time, None), |there| (there.written, there.own)),
            };
            let value = value.to_owned();
            shelf.things.insert(
                key.to_owned(),
                Thing {
                    value,
                    written,
                    own,
                },
            );
            shelf.take_out(time);
            Ok(())
        };
        let refused = |()| {
            Refused::Invalid("a ttl of 0ns: it is more than 0, and at most 2 147 483 647 s".into())
        };
        let told = match ask {
            Ask::Put(c, key, value, life) => {
                put(&mut self.shelves[*c], key, value, *life).map_err(refused)?;
                Told::Done(true)
            }
            Ask::Create(c, key, value, life) => {
                let is_free = !self.shelves[*c].things.contains_key(key);
                if is_free {
                    put(&mut self.shelves[*c], key, value, *life).map_err(refused)?;
                }
                Told::Done(is_free)
            }
            Ask::Touch(c, key) => {
                let thing = self.shelves[*c].things.get_mut(key);
                let is_there = thing.is_some();
                if let Some(thing) = thing {
                    thing.written = time;
                }
                Told::Done(is_there)
            }
            Ask::Delete(c, key) => {
                self.shelves[*c].things.remove(key);
                Told::Done(true)
            }
            Ask::Take(c, key) => {
                let thing = self.shelves[*c].things.remove(key);
                let end = thing.as_ref().and_then(|thing| self.shelves[*c].end(thing));
                Told::Item(thing.map(|thing| thing.value), end)
            }
            Ask::Count(c, from, to) if from < to => {
                let things = self.shelves[*c]
                    .things
                    .range(from.clone()..to.clone())
                    .take(5);
                let (mut count, mut sum) = (0, 0);
                for (key, thing) in things {
                    count += 1;
                    sum += (key.len() + thing.value.len()) as u64;
                }
                Told::Number(count * 1_000 + sum)
            }
            Ask::Count(..) => Told::Number(0),
            Ask::Add(c, key, by) => {
                let there = self.shelves[*c].things.get(key);
                let number = there
                    .and_then(|thing| thing.value.parse().ok())
                    .unwrap_or(0u64)
                    + by;
                put(&mut self.shelves[*c], key, &number.to_string(), Life::Keep)
                    .map_err(refused)?;
                Told::Number(number)
            }
            Ask::Refuse(c, one, two, unless) => {
                put(&mut self.shelves[*c], one, "refused", Life::Never).map_err(refused)?;
                self.shelves[*c].things.remove(two);
                if self.shelves[*c].things.contains_key(unless) {
                    return Err(Refused::Invalid("it is there".into()));
                }
                Told::Done(true)
            }
            // The model knows no versions: this one is none of any item.
            Ask::CompareAndPut(..) => Told::Done(false),
            _ if !is_alone => return Err(Refused::Invalid("it goes alone".into())),
            Ask::Default(c, ms) => {
                let shelf = &mut self.shelves[*c];
                shelf.default = *ms;
                shelf.take_out(time);
                Told::Done(true)
            }
            Ask::DeleteRange(c, from, to) => {
                self.shelves[*c]
                    .things
                    .retain(|key, _| !(from <= key && key < to));
                Told::Done(true)
            }
            Ask::ExpireBefore(c, moment) => {
                let shelf = self.shelves[*c].clone();
                let stays = |thing: &Thing| shelf.end(thing).is_none_or(|end| end >= *moment);
                self.shelves[*c].things.retain(|_, thing| stays(thing));
                Told::Done(true)
            }
            Ask::ExpireAll(c) => {
                self.shelves[*c].things.clear();
                Told::Done(true)
            }
        };
        Ok(told)
    }

    /// Keys, values and ends.
    pub fn shown(&self, container: usize) -> Vec<(String, String, Option<u64>)> {
        let shelf = &self.shelves[container];
        let things = shelf.things.iter();
        things
            .map(|(key, thing)| (key.clone(), thing.value.clone(), shelf.end(thing)))
            .collect()
    }
}
