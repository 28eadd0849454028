//! Goal: what expired, by the clock, by a changed default or by a command, and what went as a range or with its container,
//! stays gone in every backup that is restored, however old; and nothing else is missing. Method: random histories, with
//! a model that follows the definition: an item of a backup is gone from the first moment on at which it was expired under
//! the settings in force. Some go on with a restored copy of any backup, told or as it was, some of which lack what their
//! backup left out: the model keeps what is left of each backup once for every such branch that came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::{Container, Database, DefaultTtl, ManualClock, Ttl};
use ebbtide_backup::{Backups, Error, Folder, Keep, Later};
use testkit::random::Random;

use crate::small;

const START: u64 = 1_800_000_000_000;
const CONTAINERS: [&str; 2] = ["a", "b"];

/// An item as the model knows it.
#[derive(Clone, Debug)]
struct Known {
    container: &'static str,
    key: u8,
    value: String,
    written_at: u64,
    ttl: Option<Option<u64>>,
    /// See [`World::delete_range`].
    may_be_gone: bool,
}

impl Known {
    /// When it ends under a default; `None`: never.
    fn end(&self, default: DefaultTtl) -> Option<u64> {
        let own = match (default, self.ttl) {
            (DefaultTtl::Off, _) => None,
            (_, Some(own)) => own,
            (DefaultTtl::After(ttl), None) => Some(ttl.as_millis() as u64),
            (_, None) => None,
        };
        own.map(|ttl| self.written_at + ttl)
    }
}

/// The items left of a backup on each branch that came of it.
type Views = BTreeMap<usize, Vec<Known>>;

struct BackedUp {
    number: u64,
    /// The last sequence number: of two backups with one on one branch, what came of the first came of the second.
    used: u64,
    /// The branch on which it was made.
    branch: usize,
    /// The items that lived when it was made, and the defaults of that moment.
    items: Vec<Known>,
    defaults: BTreeMap<&'static str, DefaultTtl>,
    /// The containers that there were.
    there: BTreeMap<&'static str, u64>,
    /// The items left of earlier backups at that moment.
    earlier: BTreeMap<u64, Vec<Known>>,
    views: Views,
    /// The items that had ended on some branch, as a ledger knows: a prune may have removed them.
    ended: BTreeSet<String>,
}

struct World {
    folder: tempfile::TempDir,
    clock: ManualClock,
    now: u64,
    random: Random,
    db: Database,
    /// Where the database is now.
    branch: usize,
    /// Of each branch.
    defaults: Vec<BTreeMap<&'static str, DefaultTtl>>,
    /// The containers of each branch, by a number that each has from when it was made until it is dropped.
    there: Vec<BTreeMap<&'static str, u64>>,
    made: u64,
    /// The live items.
    live: Vec<Known>,
    backed_up: Vec<BackedUp>,
    /// Objects that a prune has removed because all in them had ended.
    ended: u64,
    /// Items that backups have left out.
    left_out: u64,
    /// Range deletes that no ledger has.
    untold: u64,
    backups: Backups,
    skipping: Backups,
    written: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let folder = testkit::scratch();
        let clock = ManualClock::new(START);
        let options = small().clock(clock.clone());
        let db = options.open(folder.path().join("db")).unwrap();
        let backups = || {
            let store = Folder::new(folder.path().join("store"));
            Backups::open(store).options(options.clone())
        };
        let defaults = CONTAINERS.map(|name| (name, DefaultTtl::NoDefault));
        World {
            backups: backups(),
            skipping: backups().skip_ending_within(Duration::from_secs(30)),
            folder,
            clock,
            now: START,
            random: Random(seed * 2 + 1),
            db,
            branch: 0,
            defaults: vec![defaults.into_iter().collect()],
            there: vec![BTreeMap::new()],
            made: 0,
            live: vec![],
            backed_up: vec![],
            ended: 0,
            left_out: 0,
            untold: 0,
            written: 0,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("db")
    }

    /// A number below `most`.
    fn random(&mut self, most: u64) -> u64 {
        self.random.next() % most
    }

    fn container(&self, name: &str) -> Container {
        self.db.container(name).unwrap()
    }

    /// Of what lives, and of every backup that the database came of, only this stays.
    fn retain(&mut self, stays: impl Fn(&Known) -> bool) {
        self.live.retain(&stays);
        for backup in &mut self.backed_up {
            if let Some(items) = backup.views.get_mut(&self.branch) {
                items.retain(&stays);
            }
        }
    }

    /// Ended items are gone for good, on each branch under its settings.
    fn judge(&mut self) {
        let lives = |item: &Known, branch: usize| {
            let default = self.defaults[branch][item.container];
            item.end(default).is_none_or(|end| end > self.now)
        };
        self.live.retain(|item| lives(item, self.branch));
        for backup in &mut self.backed_up {
            for (branch, items) in &mut backup.views {
                items.retain(|item| lives(item, *branch));
            }
        }
    }

    /// Writes a ledger, which knows what has ended.
    fn ledger(&mut self) -> u64 {
        let number = self.backups.ledger(&self.db, &self.path()).unwrap();
        self.note_ended();
        number
    }

    /// Whether a ledger has a range delete of a container that begins at this key.
    fn is_told(&self, number: u64, name: &str, from: u8) -> bool {
        let json = self.stored("ledgers", number);
        let containers = json["ledger"]["containers"].as_array().unwrap().iter();
        let mut ranges = containers
            .filter(|container| container["name"] == name)
            .flat_map(|container| container["range_deletes"].as_array().unwrap());
        ranges.any(|range| range["from"] == format!("{from:02x}"))
    }

    fn stored(&self, folder: &str, number: u64) -> serde_json::Value {
        let name = format!("store/{folder}/{number:020}");
        let text = fs::read_to_string(self.folder.path().join(name)).unwrap();
        serde_json::from_str(text.split_once('\n').unwrap().1).unwrap()
    }

    fn note_ended(&mut self) {
        let defaults = &self.defaults[self.branch];
        for backup in &mut self.backed_up {
            if backup.views.contains_key(&self.branch) {
                let ended = backup.items.iter().filter(|item| {
                    let end = item.end(defaults[item.container]);
                    end.is_some_and(|end| end <= self.now)
                });
                backup.ended.extend(ended.map(|item| item.value.clone()));
            }
        }
    }

    fn backup(&mut self) {
        let backups = match self.random(3) {
            0 => &self.skipping,
            _ => &self.backups,
        };
        let number = backups.backup(&self.db, &self.path()).unwrap().number;
        self.note_ended();
        let defaults = self.defaults[self.branch].clone();
        let there = self.there[self.branch].clone();
        let mut items = self.live.clone();
        if let Some(before) = self.left_out_before(number) {
            let stays = |item: &Known| {
                let end = item.end(defaults[item.container]);
                end.is_none_or(|end| end >= before)
            };
            items.retain(stays);
            self.left_out += (self.live.len() - items.len()) as u64;
        }
        let earlier = self.backed_up.iter().filter_map(|backup| {
            let left = backup.views.get(&self.branch)?;
            Some((backup.number, left.clone()))
        });
        let used = self.stored("backups", number)["ledger"]["used"].as_u64();
        let backup = BackedUp {
            number,
            used: used.unwrap(),
            branch: self.branch,
            views: BTreeMap::from([(self.branch, items.clone())]),
            items,
            defaults,
            there,
            earlier: earlier.collect(),
            ended: BTreeSet::new(),
        };
        self.backed_up.push(backup);
    }

    /// Before when what was to end is missing in a backup.
    fn left_out_before(&self, number: u64) -> Option<u64> {
        self.stored("backups", number)["left_out_before"].as_u64()
    }

    /// The database is lost, and a backup, restored, goes on in its place.
    fn go_on_with_a_backup(&mut self) {
        if self.backed_up.is_empty() {
            return;
        }
        self.ledger();
        let at = self.random(self.backed_up.len() as u64) as usize;
        let later = match self.random(3) {
            0 => Later::Ignore,
            _ => Later::Tell,
        };
        let new = self.defaults.len();
        let (number, branch) = (self.backed_up[at].number, self.backed_up[at].branch);
        let restored = &self.backed_up[at];
        let (&last, left) = restored.views.last_key_value().unwrap();
        let (live, mut defaults) = match later {
            Later::Tell => (left.clone(), self.defaults[last].clone()),
            Later::Ignore => (restored.items.clone(), restored.defaults.clone()),
        };
        let mut there = restored.there.clone();
        if later == Later::Tell {
            // The backup lacks containers made since, also one in the place of a dropped one.
            there.retain(|name, made| self.there[last].get(name) == Some(made));
        }
        for name in CONTAINERS.iter().filter(|name| !there.contains_key(*name)) {
            defaults.insert(name, DefaultTtl::NoDefault);
        }
        let earlier = restored.earlier.clone();
        let used = restored.used;
        for (place, backup) in self.backed_up.iter_mut().enumerate() {
            let is_before = place < at || (backup.branch, backup.used) == (branch, used);
            if is_before && backup.views.contains_key(&branch) {
                let left = match later {
                    Later::Tell => backup.views[&last].clone(),
                    Later::Ignore if place < at => earlier[&backup.number].clone(),
                    Later::Ignore => backup.items.clone(),
                };
                backup.views.insert(new, left);
            }
        }
        self.backed_up[at].views.insert(new, live.clone());
        self.defaults.push(defaults);
        self.there.push(there);
        (self.branch, self.live) = (new, live);
        self.db.close().unwrap();
        fs::remove_dir_all(self.path()).unwrap();
        self.backups
            .restore(Some(number), &self.path(), later)
            .unwrap();
        let options = small().clock(self.clock.clone());
        self.db = options.open(self.path()).unwrap();
    }

    fn moment(&self, millis: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(millis)
    }

    /// Makes a container that is not there.
    fn open(&mut self, name: &'static str) {
        if !self.db.containers().iter().any(|there| there == name) {
            self.db.container(name).unwrap();
            self.made += 1;
            self.there[self.branch].insert(name, self.made);
        }
    }

    fn put(&mut self, name: &'static str) {
        self.open(name);
        let (key, millis) = (self.random(8) as u8, 1 + self.random(60_000));
        let (ttl, known) = match self.random(3) {
            0 => (Ttl::Inherit, None),
            1 => (Ttl::Never, Some(None)),
            _ => (
                Ttl::After(Duration::from_millis(millis)),
                Some(Some(millis)),
            ),
        };
        self.written += 1;
        let value = self.written.to_string();
        self.container(name)
            .put_with_ttl([key], &value, ttl)
            .unwrap();
        self.live
            .retain(|item| (item.container, item.key) != (name, key));
        self.live.push(Known {
            container: name,
            key,
            value,
            written_at: self.now,
            ttl: known,
            may_be_gone: false,
        });
    }

    fn set_default(&mut self, name: &'static str) {
        self.open(name);
        let default = match self.random(4) {
            0 => DefaultTtl::Off,
            1 => DefaultTtl::NoDefault,
            _ => DefaultTtl::After(Duration::from_millis(1 + self.random(60_000))),
        };
        self.container(name).set_default_ttl(default).unwrap();
        self.defaults[self.branch].insert(name, default);
    }

    fn expire(&mut self, name: &'static str) {
        self.open(name);
        let at = (self.now + self.random(60_000)).saturating_sub(self.random(60_000));
        let (container, moment) = (self.container(name), self.moment(at));
        let default = self.defaults[self.branch][name];
        match self.random(4) {
            0 => {
                container.expire_all().unwrap();
                self.retain(|item| item.container != name);
            }
            1 => {
                container.expire_written_before(moment).unwrap();
                self.retain(|item| item.container != name || item.written_at >= at);
            }
            _ => {
                container.expire_before(moment).unwrap();
                self.retain(|item| {
                    item.container != name || item.end(default).is_none_or(|end| end >= at)
                });
            }
        }
        self.ledger();
    }

    /// A version that the database has no more is one that was overwritten. Then nothing may be stored that the range
    /// hides, no ledger has the range, and that version may come back from a backup. So may any, if the range has been
    /// reclaimed before the ledger is taken.
    fn delete_range(&mut self, name: &'static str) {
        self.open(name);
        let from = self.random(8) as u8;
        let to = from + 1 + self.random(3) as u8;
        self.container(name).delete_range([from]..[to]).unwrap();
        let number = self.ledger();
        let is_told = self.is_told(number, name, from);
        self.untold += u64::from(!is_told);
        let is_in = |item: &Known| item.container == name && (from..to).contains(&item.key);
        let versions = self.live.iter().map(|item| item.value.clone());
        let lived: Vec<String> = versions.collect();
        for backup in &mut self.backed_up {
            let items = backup.views.get_mut(&self.branch);
            for item in items.into_iter().flatten().filter(|item| is_in(item)) {
                item.may_be_gone |= !is_told || !lived.contains(&item.value);
            }
        }
        self.live.retain(|item| !is_in(item));
        self.retain(|item| !is_in(item) || item.may_be_gone);
    }

    fn drop_container(&mut self, name: &'static str) {
        self.db.drop_container(name).unwrap();
        self.retain(|item| item.container != name);
        self.there[self.branch].remove(name);
        self.defaults[self.branch].insert(name, DefaultTtl::NoDefault);
    }

    fn step(&mut self, goes_on: bool) {
        if goes_on && self.random(16) == 0 {
            self.go_on_with_a_backup();
        }
        let name = CONTAINERS[self.random(2) as usize];
        match self.random(20) {
            0 => self.set_default(name),
            1 => self.expire(name),
            2 => self.delete_range(name),
            3 if self.random(2) == 0 => self.drop_container(name),
            4 => self.backup(),
            5 => self.db.compact().unwrap(),
            9 => self.prune_ended(),
            6..9 => {
                let by = 1 + self.random(20_000);
                self.now += by;
                self.clock.advance(Duration::from_millis(by));
            }
            _ => self.put(name),
        }
        self.judge();
    }

    /// Removes no backup, but what has ended in them.
    fn prune_ended(&mut self) {
        let pruned = self.backups.prune(Keep::default()).unwrap();
        assert_eq!(pruned.backups, 0);
        self.ended += pruned.ended_objects;
    }

    /// Restores every backup and compares, also as it was; returns how many were restored.
    fn check(&mut self) -> usize {
        self.ledger();
        self.prune_ended();
        self.backups.prove(&self.path()).unwrap();
        let to = self.folder.path().join("restored");
        for backup in &self.backed_up {
            let number = Some(backup.number);
            self.backups.restore(number, &to, Later::Tell).unwrap();
            let (_, left) = backup.views.last_key_value().unwrap();
            self.compare(&to, backup, left);
            fs::remove_dir_all(&to).unwrap();
            self.backups.restore(number, &to, Later::Ignore).unwrap();
            let lives = |item: &&Known| {
                item.end(backup.defaults[item.container])
                    .is_none_or(|end| end > self.now)
            };
            let items: Vec<Known> = backup.items.iter().filter(lives).cloned().collect();
            self.compare(&to, backup, &items);
            fs::remove_dir_all(&to).unwrap();
        }
        self.backed_up.len()
    }

    /// Compares a restored database with what is to be in it; then writes, and reads that.
    fn compare(&self, path: &Path, backup: &BackedUp, items: &[Known]) {
        let number = backup.number;
        let options = small().clock(self.clock.clone());
        let db = options.open(path).unwrap();
        let mut found = vec![];
        for name in CONTAINERS {
            for item in &db.container(name).unwrap() {
                let item = item.unwrap();
                let value = String::from_utf8(item.value().to_vec()).unwrap();
                found.push((name, item.key()[0], value));
            }
        }
        let named = |item: &Known| (item.container, item.key, item.value.clone());
        for item in items {
            let is_there = found.contains(&named(item));
            let may_be_gone = item.may_be_gone || backup.ended.contains(&item.value);
            assert!(is_there || may_be_gone, "backup {number} lacks {item:?}");
        }
        for one in &found {
            let is_known = items.iter().any(|item| named(item) == *one);
            assert!(is_known, "backup {number} brings back {one:?}");
        }
        for name in CONTAINERS {
            let c = db.container(name).unwrap();
            c.put_with_ttl([1], "written later", Ttl::Never).unwrap();
            assert_eq!(c.get([1]).unwrap().unwrap(), "written later");
        }
        db.close().unwrap();
    }
}

#[test]
fn what_is_gone_stays_gone_in_every_backup() {
    let (mut restored, mut ended) = (0, 0);
    for seed in 0..12 {
        let mut world = World::new(seed);
        for _ in 0..80 {
            world.step(false);
        }
        restored += world.check();
        ended += world.ended;
    }
    assert!(
        restored > 20 && ended > 10,
        "only {restored} backups, {ended} objects that had ended"
    );
}

#[test]
fn what_is_gone_stays_gone_where_restored_backups_go_on() {
    let (mut restored, mut branches, mut left_out) = (0, 0, 0);
    for seed in 0..24 {
        let mut world = World::new(seed + 1_000);
        for _ in 0..100 {
            world.step(true);
        }
        restored += world.check();
        branches += world.branch;
        left_out += world.left_out;
        println!("{} range deletes in no ledger", world.untold);
    }
    assert!(
        restored > 60 && branches > 60 && left_out > 20,
        "only {restored} backups, {branches} branches, {left_out} items left out"
    );
}

/// Nobody has ended the items that a backup left out: an older backup, which has them, is told nothing of them.
#[test]
fn a_backup_that_left_something_out_goes_on_and_older_ones_are_restored() {
    let world = World::new(0);
    let c = world.container("a");
    c.put_with_ttl("soon", "v", Duration::from_secs(20))
        .unwrap();
    c.put_with_ttl("kept", "v", Ttl::Never).unwrap();
    let whole = world.backups.backup(&world.db, &world.path()).unwrap();
    // The second backup is of a later state, so what comes of it is told to the first. It leaves out the table of "soon"
    // and keeps that of "mixed", for whose sake the end stands in the copy.
    c.put_with_ttl("mixed", "v", Duration::from_secs(20))
        .unwrap();
    c.put_with_ttl("late", "v", Duration::from_secs(3600))
        .unwrap();
    let skipping = world.skipping.backup(&world.db, &world.path()).unwrap();
    assert!(skipping.left_out_bytes > 0);
    let copy = world.folder.path().join("copy");
    let options = small().clock(world.clock.clone());
    world.backups.restore(None, &copy, Later::Tell).unwrap();
    let db = options.open(&copy).unwrap();
    let value = |db: &Database, key| db.container("a").unwrap().get(key).unwrap();
    assert_eq!(value(&db, "soon"), None);
    assert_eq!(value(&db, "mixed"), None);
    let to = world.folder.path().join("restored");
    // At last the copy needs the end of what it lacks no more, and its ledger does not have it.
    for round in 0..2 {
        world.backups.backup(&db, &copy).unwrap();
        world.backups.prove(&world.path()).unwrap();
        let number = Some(whole.number);
        world.backups.restore(number, &to, Later::Tell).unwrap();
        let older = options.open(&to).unwrap();
        assert_eq!(value(&older, "soon").unwrap(), "v", "{round}");
        assert_eq!(value(&older, "kept").unwrap(), "v", "{round}");
        older.close().unwrap();
        fs::remove_dir_all(&to).unwrap();
        db.compact().unwrap();
    }
}

/// A branch has not dropped a container that it does not know.
#[test]
fn a_container_that_only_a_newer_backup_has_is_restored_after_an_older_one_went_on() {
    let world = World::new(0);
    world.container("a").put("k", "1").unwrap();
    let backup = |db, path: &Path| world.backups.backup(db, path).unwrap().number;
    let first = backup(&world.db, &world.path());
    world.container("b").put("k", "2").unwrap();
    world.container("a").expire_all().unwrap();
    let second = backup(&world.db, &world.path());
    let [copy, to] = ["copy", "restored"].map(|name| world.folder.path().join(name));
    let options = small().clock(world.clock.clone());
    world
        .backups
        .restore(Some(first), &copy, Later::Ignore)
        .unwrap();
    let db = options.open(&copy).unwrap();
    // It gets the number that `b` has on the other branch.
    let c = db.container("c").unwrap();
    c.put("k", "3").unwrap();
    c.expire_all().unwrap();
    let third = backup(&db, &copy);
    let containers_of = |number| {
        world
            .backups
            .restore(Some(number), &to, Later::Tell)
            .unwrap();
        let db = options.open(&to).unwrap();
        let there = |name: &String| db.container(name).unwrap().get("k").unwrap().is_some();
        let found: Vec<String> = db.containers().into_iter().filter(there).collect();
        db.close().unwrap();
        fs::remove_dir_all(&to).unwrap();
        found
    };
    assert_eq!(containers_of(second), ["b"]);
    assert_eq!(containers_of(third), ["a"]);
    // On the line of the first backup lies the third, which was not told the second.
    assert_eq!(containers_of(first), ["a"]);
    world.backups.prove(&world.path()).unwrap();
}

#[test]
fn a_command_is_told_also_when_nothing_that_it_reached_is_stored() {
    let world = World::new(0);
    let c = world.container("a");
    c.put_with_ttl("k", "v", Ttl::Never).unwrap();
    let first = world.backups.backup(&world.db, &world.path()).unwrap();
    let end = |commands| {
        for _ in 0..commands {
            c.expire_all().unwrap();
            world.db.compact().unwrap();
        }
        world.backups.ledger(&world.db, &world.path()).unwrap();
    };
    let restore = |to: &str, later| {
        let to = world.folder.path().join(to);
        let restored = world.backups.restore(Some(first.number), &to, later);
        restored.map(|_| small().clock(world.clock.clone()).open(&to).unwrap())
    };
    end(2);
    let told = restore("told", Later::Tell).unwrap();
    assert!(told.container("a").unwrap().get("k").unwrap().is_none());
    // So many that it is known no more what the first ones reached.
    end(70);
    let refused = restore("refused", Later::Tell);
    assert!(
        matches!(&refused, Err(Error::Database(error)) if error.to_string().contains("command")),
        "{refused:?}"
    );
    assert!(!world.folder.path().join("refused").exists());
    let db = restore("was", Later::Ignore).unwrap();
    assert_eq!(db.container("a").unwrap().get("k").unwrap().unwrap(), "v");
}

/// No copy of a database is told of the items of another one.
#[test]
fn a_ledger_of_another_database_is_refused() {
    let folder = testkit::scratch();
    let options = small();
    let copy_of = |name: &str| {
        let db = options.open(folder.path().join(name)).unwrap();
        db.container("c").unwrap().put("k", "v").unwrap();
        let copy = folder.path().join(format!("{name}-copy"));
        db.checkpoint(&copy).unwrap();
        let ledger = options.ledger(&copy).unwrap();
        (copy, ledger)
    };
    let ((copy, own), (_, other)) = (copy_of("one"), copy_of("other"));
    assert!(own.is_of_same_database(&own) && !own.is_of_same_database(&other));
    assert!(own.ended_by(&other).is_empty());
    for refused in [
        options.apply_ledger(&copy, &other),
        options.drop_ended(&copy, &other),
    ] {
        assert!(matches!(
            refused,
            Err(ebbtide::Error::InvalidArgument { .. })
        ));
    }
    options.apply_ledger(&copy, &own).unwrap();
}
