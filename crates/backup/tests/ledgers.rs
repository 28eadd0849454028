//! Goal: what expired, by the clock, by a changed default or by a command, and what went as a range or with its container,
//! stays gone in every backup that is restored, however old; and nothing else is missing. Method: random histories, with
//! a model that follows the definition: an item of a backup is gone from the first moment on at which it was expired under
//! the settings in force.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::{Container, Database, DefaultTtl, ManualClock, Options, Ttl};
use ebbtide_backup::{Backups, Error, Folder, Keep, Later};

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

struct World {
    folder: tempfile::TempDir,
    clock: ManualClock,
    now: u64,
    seed: u64,
    db: Database,
    defaults: BTreeMap<&'static str, DefaultTtl>,
    /// What lives, and what lives of each backup.
    live: Vec<Known>,
    backed_up: Vec<(u64, Vec<Known>)>,
    /// What lived when each backup was made, and the defaults of that moment.
    as_it_was: Vec<(u64, Vec<Known>, BTreeMap<&'static str, DefaultTtl>)>,
    /// Objects that a prune has removed because all in them had ended.
    ended: u64,
    backups: Backups,
    written: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new(START);
        let options = Options::new().clock(clock.clone());
        let db = options.open(folder.path().join("db")).unwrap();
        let backups = Backups::open(Folder::new(folder.path().join("store"))).options(options);
        let defaults = CONTAINERS.map(|name| (name, DefaultTtl::NoDefault));
        World {
            folder,
            clock,
            now: START,
            seed: seed * 2 + 1,
            db,
            defaults: defaults.into_iter().collect(),
            live: vec![],
            backed_up: vec![],
            as_it_was: vec![],
            ended: 0,
            backups,
            written: 0,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("db")
    }

    /// A number below `most` (splitmix64).
    fn random(&mut self, most: u64) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }

    fn container(&self, name: &str) -> Container {
        self.db.container(name).unwrap()
    }

    /// Of what lives, and of every backup, only this stays.
    fn retain(&mut self, stays: impl Fn(&Known) -> bool) {
        self.live.retain(&stays);
        for (_, items) in &mut self.backed_up {
            items.retain(&stays);
        }
    }

    /// What has ended is gone for good.
    fn judge(&mut self) {
        let (now, defaults) = (self.now, self.defaults.clone());
        self.retain(|item| {
            item.end(defaults[item.container])
                .is_none_or(|end| end > now)
        });
    }

    fn moment(&self, millis: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(millis)
    }

    fn put(&mut self, name: &'static str) {
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
        let default = match self.random(4) {
            0 => DefaultTtl::Off,
            1 => DefaultTtl::NoDefault,
            _ => DefaultTtl::After(Duration::from_millis(1 + self.random(60_000))),
        };
        self.container(name).set_default_ttl(default).unwrap();
        self.defaults.insert(name, default);
    }

    fn expire(&mut self, name: &'static str) {
        let at = (self.now + self.random(60_000)).saturating_sub(self.random(60_000));
        let (container, moment) = (self.container(name), self.moment(at));
        let default = self.defaults[name];
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
        self.backups.ledger(&self.db, &self.path()).unwrap();
    }

    /// A version that the database has no more is one that was overwritten. Then nothing may be stored that the range
    /// hides, no ledger has the range, and that version may come back from a backup.
    fn delete_range(&mut self, name: &'static str) {
        let from = self.random(8) as u8;
        let to = from + 1 + self.random(3) as u8;
        self.container(name).delete_range([from]..[to]).unwrap();
        let is_in = |item: &Known| item.container == name && (from..to).contains(&item.key);
        let versions = self.live.iter().map(|item| item.value.clone());
        let lived: Vec<String> = versions.collect();
        for (_, items) in &mut self.backed_up {
            for item in items.iter_mut().filter(|item| is_in(item)) {
                item.may_be_gone |= !lived.contains(&item.value);
            }
        }
        self.retain(|item| !is_in(item) || item.may_be_gone);
        self.backups.ledger(&self.db, &self.path()).unwrap();
    }

    fn drop_container(&mut self, name: &'static str) {
        self.db.drop_container(name).unwrap();
        self.retain(|item| item.container != name);
        self.defaults.insert(name, DefaultTtl::NoDefault);
    }

    fn step(&mut self) {
        let name = CONTAINERS[self.random(2) as usize];
        match self.random(20) {
            0 => self.set_default(name),
            1 => self.expire(name),
            2 => self.delete_range(name),
            3 if self.random(2) == 0 => self.drop_container(name),
            4 => {
                let report = self.backups.backup(&self.db, &self.path()).unwrap();
                self.backed_up.push((report.number, self.live.clone()));
                let was = (report.number, self.live.clone(), self.defaults.clone());
                self.as_it_was.push(was);
            }
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
        self.backups.ledger(&self.db, &self.path()).unwrap();
        self.prune_ended();
        let to = self.folder.path().join("restored");
        for (number, items) in &self.backed_up {
            let restored = self.backups.restore(Some(*number), &to, Later::Tell);
            restored.unwrap();
            self.compare(&to, *number, items);
            fs::remove_dir_all(&to).unwrap();
        }
        for (number, items, defaults) in &self.as_it_was {
            let restored = self.backups.restore(Some(*number), &to, Later::Ignore);
            restored.unwrap();
            let lives = |item: &&Known| {
                item.end(defaults[item.container])
                    .is_none_or(|end| end > self.now)
            };
            let items: Vec<Known> = items.iter().filter(lives).cloned().collect();
            self.compare(&to, *number, &items);
            fs::remove_dir_all(&to).unwrap();
        }
        self.backed_up.len()
    }

    /// Compares a restored database with what is to be in it; then writes, and reads that.
    fn compare(&self, path: &Path, number: u64, items: &[Known]) {
        let options = Options::new().clock(self.clock.clone());
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
            assert!(
                is_there || item.may_be_gone,
                "backup {number} lacks {item:?}"
            );
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
            world.step();
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
        restored.map(|_| Options::new().clock(world.clock.clone()).open(&to).unwrap())
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

/// What became of another database's items is told to no copy of this one.
#[test]
fn a_ledger_of_another_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new();
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
