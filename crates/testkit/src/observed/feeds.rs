//! Readers of expirations: each end of an item is given once, in the order of ends, with its value and cause, whatever happens
//! to settings, files and processes; one who was away for too long is told.
//!
//! The model knows at each moment what has ended in a container and was not written over since. A reader knows how far it has
//! been given, and so what comes next. Some containers keep what has ended, and a reader of theirs comes and goes, also over a
//! reopen and a kill; in the others it stays open. After a power cut all begin anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebbtide::{Expiration, ExpirationCause, Expirations, ExpiryCursor};

use super::{Counts, Observer, ends};
use crate::model::{Cause, Ended};
use crate::op::{Bytes, Op, shorten};
use crate::random::Random;
use crate::world::{World, at, failed, millis};

/// Longer than any history.
const KEEP: Duration = Duration::from_secs(90 * 86_400);
/// An open reader is waited for so long.
const HELD: u64 = 60_000;
/// Of so many changes of settings it is known what each has ended.
const KNOWN_CHANGES: usize = 60;

struct Reader {
    container: String,
    keeps: bool,
    open: Option<Expirations>,
    cursor: ExpiryCursor,
    /// Settled time when it began.
    began: u64,
    /// All that ends before this moment was given, ...
    before: u64,
    /// ... and of what ends in it, all up to this key.
    last: Option<Bytes>,
    /// The writes whose ends in the moment of the beginning were over by then.
    over: BTreeSet<u64>,
    /// Settled time, the last write and the number of changes when it was asked last.
    asked: (u64, u64, usize),
}

impl Reader {
    /// The ends that it is to be given by now.
    fn due(&self, world: &mut World) -> Vec<Ended> {
        world.model.time.now();
        let mut due = (world.model).ended(&self.container, world.model.time.settled);
        due.retain(|one| {
            let is_behind = match &self.last {
                Some(last) => (one.at, &one.key) > (self.before, last),
                None => one.at >= self.before,
            };
            is_behind && !self.over.contains(&one.order)
        });
        due
    }

    /// It came, in a bulk load, with an end that was over when others were asked for: given or not.
    fn may_be_passed(&self, one: &Ended) -> bool {
        one.order > self.asked.1 && one.at < self.asked.0
    }

    /// Takes so many at most; how many came. None: it is told that it is too late, and may be.
    fn pull(&mut self, world: &mut World, most: usize) -> Result<Option<usize>, String> {
        let container = world.container(&self.container)?;
        let is_anew = self.open.is_none();
        if is_anew {
            self.open = Some(container.expirations(self.cursor.clone()));
            self.raise_time(world)?;
        }
        let mut due = self.due(world).into_iter().peekable();
        let (settled, order) = (world.model.time.settled, world.model.order);
        let mut count = 0;
        while count < most {
            let open = self.open.as_mut().expect("opened above");
            let given = match open.next() {
                None => None,
                Some(Ok(given)) => Some(given),
                Some(Err(error))
                    if error.is_expirations_gone() && self.may_be_late(world, is_anew) =>
                {
                    return Ok(None);
                }
                Some(Err(error)) => return Err(failed(error)),
            };
            let Some(given) = given else {
                if let Some(missing) = due.find(|one| !self.may_be_passed(one)) {
                    return Err(format!("{} is not given", show(&missing)));
                }
                if settled > self.before {
                    (self.before, self.last) = (settled, None);
                    self.over.clear();
                }
                break;
            };
            let shown = shown(&given);
            while due
                .next_if(|one| *one != shown_as(&shown, one.order) && self.may_be_passed(one))
                .is_some()
            {}
            match due.next() {
                Some(one) if one == shown_as(&shown, one.order) => {
                    (self.before, self.last) = (one.at, Some(one.key));
                    count += 1;
                }
                other => {
                    let other = other.as_ref().map_or("nothing".into(), show);
                    return Err(format!("{} is given, not {other}", show(&shown)));
                }
            }
        }
        self.asked = (settled, order, world.model.changes());
        self.cursor = self.open.as_ref().expect("opened above").cursor();
        Ok(Some(count))
    }

    /// A cursor is a mark: if the clock was set back meanwhile, time starts there.
    fn raise_time(&self, world: &mut World) -> Result<(), String> {
        let now = millis(world.db()?.now());
        if now != world.model.time.now() && now == self.before {
            world.model.time.restart(now);
        }
        crate::world::same("now", &now, &world.model.time.now())
    }

    /// Whether it may be told that what it asks for is gone. Of the millisecond in which it began a cursor knows only as long
    /// as it is open which ends were over.
    fn may_be_late(&self, world: &World, is_anew: bool) -> bool {
        let is_old = !self.keeps && world.model.time.settled >= self.before + HELD;
        let is_new = is_anew && self.before <= self.began;
        is_old || is_new || world.model.changes() >= self.asked.2 + KNOWN_CHANGES
    }
}

fn show(one: &Ended) -> String {
    format!(
        "{} = {} at {}, {:?}",
        shorten(&one.key),
        shorten(&one.value),
        one.at,
        one.cause
    )
}

fn shown(given: &Expiration) -> Ended {
    Ended {
        at: millis(given.expired_at()),
        key: given.key().to_vec(),
        value: given.value().to_vec(),
        cause: match given.cause() {
            ExpirationCause::Ttl => Cause::Ttl,
            ExpirationCause::Default => Cause::Default,
            ExpirationCause::Change => Cause::Change,
            ExpirationCause::Command => Cause::Command,
            other => panic!("{other:?}"),
        },
        order: 0,
    }
}

fn shown_as(shown: &Ended, order: u64) -> Ended {
    Ended {
        order,
        ..shown.clone()
    }
}

#[derive(Default)]
pub struct Feeds {
    readers: Vec<Reader>,
    /// By container and its birth: whether it keeps what has ended.
    keeps: BTreeMap<(String, u64), bool>,
    given: usize,
    late: usize,
}

impl Feeds {
    fn begin(&mut self, world: &mut World, random: &mut Random) -> Result<(), String> {
        let names = world.names();
        if world.model.time.unsettled() || names.is_empty() {
            return Ok(());
        }
        let name = random.pick(&names);
        let container = world.container(&name)?;
        let born = world.model.born(&name).expect("it is named");
        let known = self.keeps.entry((name.clone(), born));
        let keeps = match known {
            std::collections::btree_map::Entry::Occupied(known) => *known.get(),
            std::collections::btree_map::Entry::Vacant(none) => {
                let keeps = random.one_in(2);
                if keeps {
                    container.set_keep_expired(KEEP).map_err(failed)?;
                }
                *none.insert(keeps)
            }
        };
        let settled = world.model.time.settled;
        let (cursor, before) = match random.below(3) {
            0 => (ExpiryCursor::now(), settled),
            1 => (ExpiryCursor::at(at(settled)), settled),
            _ => (ExpiryCursor::at(at(settled + 1)), settled + 1),
        };
        let over = world.model.ended(&name, settled + 1).into_iter();
        let open = container.expirations(cursor);
        self.readers.push(Reader {
            container: name,
            keeps,
            cursor: open.cursor(),
            open: Some(open),
            began: settled,
            before,
            last: None,
            over: over.map(|one| one.order).collect(),
            asked: (settled, world.model.order, world.model.changes()),
        });
        if self.readers.len() > 4 {
            self.readers.remove(0);
        }
        Ok(())
    }

    fn pull(&mut self, world: &mut World, which: usize, most: usize) -> Result<(), String> {
        match self.readers[which].pull(world, most)? {
            Some(count) => self.given += count,
            None => {
                self.readers.remove(which);
                self.late += 1;
            }
        }
        Ok(())
    }
}

impl Observer for Feeds {
    fn name(&self) -> &'static str {
        "feeds"
    }

    fn act(&mut self, world: &mut World, random: &mut Random) -> Result<(), String> {
        if self.readers.is_empty() || random.one_in(6) {
            return self.begin(world, random);
        }
        let which = random.below(self.readers.len());
        let most = match random.below(3) {
            0 => random.below(5),
            _ => usize::MAX,
        };
        self.pull(world, which, most)?;
        if let Some(reader) = self.readers.get_mut(which)
            && reader.keeps
            && random.one_in(3)
        {
            reader.open = None;
        }
        Ok(())
    }

    fn before(&mut self, _: &mut World, op: &Op) -> Result<(), String> {
        match op {
            Op::PowerCut(_) => {
                *self = Feeds {
                    given: self.given,
                    late: self.late,
                    ..Feeds::default()
                }
            }
            Op::Drop(name) => self.readers.retain(|reader| reader.container != *name),
            op if ends(op) => {
                self.readers.retain(|reader| reader.keeps);
                self.readers
                    .iter_mut()
                    .for_each(|reader| reader.open = None);
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, world: &mut World) -> Result<(), String> {
        for which in (0..self.readers.len()).rev() {
            self.pull(world, which, usize::MAX)?;
        }
        Ok(())
    }

    fn counts(&self) -> Counts {
        vec![("ends given", self.given), ("readers too late", self.late)]
    }
}
