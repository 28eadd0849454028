//! Copies that are kept by `changes` alone: after each pass one is the database as it was when the pass began.
//!
//! One goes on by an object that stays open, and meets no error; others come back at a version, often or seldom, and begin anew
//! when they are told that they have to. A pass is taken in over several steps of the history. A copy that was synced behind
//! its pass stays right over a power cut.

use std::collections::BTreeMap;
use std::time::SystemTime;

use ebbtide::{Changes, Database, DefaultTtl, Item, Ttl, Version};

use super::{Counts, Observer, ends};
use crate::copy::Copy;
use crate::op::{Op, shorten};
use crate::random::Random;
use crate::world::{Settings, World, at, failed, same};

/// Key, value, version, moment of the write, ttl.
type Shown = (String, String, Version, SystemTime, Ttl);
/// Of each container the default and the live items, each with its end.
type Contents = BTreeMap<String, (DefaultTtl, Vec<(Shown, Option<SystemTime>)>)>;

fn shown(item: &Item) -> Shown {
    let (key, value) = (shorten(item.key()), shorten(item.value()));
    (key, value, item.version(), item.written_at(), item.ttl())
}

fn contents(db: &Database) -> Result<Contents, String> {
    let mut contents = Contents::new();
    for name in db.containers() {
        let container = db.container(&name).map_err(failed)?;
        let items = container.iter().map(|item| {
            let item = item.map_err(failed)?;
            Ok((shown(&item), item.expires_at()))
        });
        let items = items.collect::<Result<_, String>>()?;
        contents.insert(name, (container.default_ttl(), items));
    }
    Ok(contents)
}

/// A pass that is taken in over several steps.
struct Pass {
    expected: Contents,
    /// Settled time, and the settings, when it began.
    began: u64,
    settings: Settings,
    changes: Changes,
}

/// A copy, and how far it has come.
#[derive(Default)]
struct Kept {
    version: Option<Version>,
    copy: Copy,
    /// Nothing that it has can be lost.
    is_synced: bool,
    pass: Option<Pass>,
    /// The object of its passes, if that stays open.
    open: Option<Changes>,
}

impl Kept {
    /// The copy is the database as it was when the pass began, but for what has ended since: of such a key it may have an older
    /// state, which has ended as well.
    fn compare(&self, pass: &Pass, world: &World) -> Result<(), String> {
        let names: Vec<&String> = self.copy.parts.keys().collect();
        same("containers", &names, &pass.expected.keys().collect())?;
        let now = at(world.model.time.settled);
        // Then the rule ends nothing more.
        let is_lifted = pass.settings != world.settings();
        for (name, part) in &self.copy.parts {
            let rule = part.rule.as_ref().ok_or("a container without a rule")?;
            let (default, there) = &pass.expected[name];
            same("default", &rule.default_ttl(), default)?;
            let own: Vec<Shown> = part.live(now).map(shown).collect();
            let lives = |(shown, end): &&(Shown, Option<SystemTime>)| match is_lifted {
                true => !rule.is_gone(shown.2, shown.3, shown.4, now),
                false => end.is_none_or(|end| end > now),
            };
            let there: Vec<&Shown> = there.iter().filter(lives).map(|(shown, _)| shown).collect();
            same(name, &own.iter().collect(), &there)?;
        }
        Ok(())
    }

    /// Takes in so many changes at most. None: it has to begin anew; else whether the pass is over.
    fn go_on(&mut self, world: &mut World, most: usize) -> Result<Option<bool>, String> {
        let mut pass = match self.pass.take() {
            Some(pass) => pass,
            None => {
                let db = world.db()?;
                let since = self.version.unwrap_or(Version::start());
                Pass {
                    expected: contents(&db)?,
                    began: world.model.time.settled,
                    settings: world.settings(),
                    changes: self.open.take().unwrap_or_else(|| db.changes(since)),
                }
            }
        };
        for _ in 0..most {
            match pass.changes.next() {
                Some(Ok(change)) => self.copy.apply(change, at(pass.began))?,
                Some(Err(error)) if error.is_changes_gone() => return Ok(None),
                Some(Err(error)) => return Err(failed(error)),
                None => {
                    self.version = Some(pass.changes.version());
                    self.compare(&pass, world)?;
                    self.open = Some(pass.changes);
                    self.is_synced = false;
                    return Ok(Some(true));
                }
            }
        }
        self.pass = Some(pass);
        Ok(Some(false))
    }
}

/// The first stays open, the second comes back often, and the last seldom.
#[derive(Default)]
pub struct Copies {
    copies: [Kept; 3],
    anew: usize,
    passes: usize,
}

impl Copies {
    fn go_on(&mut self, world: &mut World, which: usize, most: usize) -> Result<(), String> {
        let copy = &mut self.copies[which];
        let begun = copy.version.is_some();
        let is_open = copy.open.is_some() || copy.pass.is_some() && which == 0;
        match copy.go_on(world, most)? {
            None if is_open || !begun => return Err("an open pass is told that it is late".into()),
            None => {
                self.anew += 1;
                *copy = Kept::default();
            }
            Some(true) => {
                self.passes += usize::from(begun);
                if which != 0 {
                    copy.open = None;
                }
            }
            Some(false) => {}
        }
        Ok(())
    }
}

impl Observer for Copies {
    fn name(&self) -> &'static str {
        "copies"
    }

    fn act(&mut self, world: &mut World, random: &mut Random) -> Result<(), String> {
        // Items that a wrong clock has ended may live again.
        if world.model.time.unsettled() {
            return Ok(());
        }
        let which = match random.below(10) {
            0..5 => 0,
            5..9 => 1,
            _ => 2,
        };
        let most = random.pick(&[1, 5, 20, usize::MAX]);
        self.go_on(world, which, most)?;
        let copy = &mut self.copies[which];
        if copy.pass.is_none() && copy.version.is_some() && random.one_in(4) {
            world.run(&Op::Sync)?;
            copy.is_synced = true;
        }
        Ok(())
    }

    fn before(&mut self, _: &mut World, op: &Op) -> Result<(), String> {
        if !ends(op) {
            return Ok(());
        }
        for copy in &mut self.copies {
            let is_lost = matches!(op, Op::PowerCut(_)) && !copy.is_synced;
            if copy.pass.is_some() || is_lost {
                *copy = Kept::default();
            }
            copy.open = None;
        }
        Ok(())
    }

    fn end(&mut self, world: &mut World) -> Result<(), String> {
        if world.model.time.unsettled() {
            return Ok(());
        }
        (0..3).try_for_each(|which| {
            self.go_on(world, which, usize::MAX)?;
            self.go_on(world, which, usize::MAX)
        })
    }

    fn counts(&self) -> Counts {
        vec![("passes", self.passes), ("copies anew", self.anew)]
    }
}
