//! Goal: a process of `ebbtide backup`, `backup prune` or `restore` that is killed at any moment harms no backup, and the
//! same command succeeds later. Method: the built program, killed (SIGKILL) after a part of the time that it takes. The
//! part goes from nothing to all over the rounds, and the time is corrected whenever a process was done before.

use super::*;

/// How often each command is killed.
const ROUNDS: u32 = 16;

struct Store {
    world: World,
    /// Items in each backup that was acknowledged, by its number.
    items: std::collections::BTreeMap<u64, u64>,
    written: u64,
}

impl Store {
    fn new() -> Store {
        Store {
            world: World::new(),
            items: std::collections::BTreeMap::new(),
            written: 0,
        }
    }

    /// Writes some items in a table of their own.
    fn write(&mut self) {
        let line = |n| format!("{{\"id\":\"k{n}\",\"v\":\"{}\"}}\n", "x".repeat(300));
        let lines: String = (self.written..self.written + 200).map(line).collect();
        self.written += 200;
        self.world.write("lines", &lines);
        let ran = self.world.run("import db c lines --key id");
        assert_eq!(ran.status, 0, "{}", ran.err);
    }

    fn backup(&mut self) {
        let made = json(&self.world.ok("backup db store --json"));
        let number = made["backup"].as_u64().unwrap();
        self.items.insert(number, self.written);
    }

    /// Runs a command, and kills it after so many parts of the time that it takes; whether it was killed.
    fn kill(&self, args: &[&str], took: &mut Duration, part: u32) -> bool {
        let mut command = self.world.command(args);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        sleep(*took * part / ROUNDS);
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert!(status.signal() == Some(9) || status.success(), "{status}");
        if status.success() {
            *took = *took * 3 / 4;
        }
        !status.success()
    }

    /// As if the 65 minutes had passed for which a killed process's lease holds.
    fn let_leases_end(&self) {
        let entries = std::fs::read_dir(self.world.path("store/leases"));
        for entry in entries.into_iter().flatten() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }

    /// Every backup in the store is whole, those that were acknowledged are there from `oldest` on, and the last one has
    /// all its items.
    fn check(&mut self, oldest: u64) {
        let listed = self.world.ok("backups store --json");
        let numbers: Vec<u64> = listed
            .lines()
            .map(|line| json(line)["backup"].as_u64().unwrap())
            .collect();
        for number in self.items.keys().filter(|number| **number >= oldest) {
            assert!(numbers.contains(number), "{number} of {numbers:?}");
        }
        let proved = json(&self.world.ok("backup prove store --json"));
        assert_eq!(proved["backups"], numbers.len());
        let last = *numbers.last().unwrap();
        let items = *self.items.entry(last).or_insert(self.written);
        self.restore_whole(last, items);
    }

    fn restore_whole(&self, number: u64, items: u64) {
        let number = number.to_string();
        self.world
            .told(&["restore", "store", "to", "--at", &number]);
        let count = self.world.ok("count to c");
        assert_eq!(count.trim(), items.to_string());
        std::fs::remove_dir_all(self.world.path("to")).unwrap();
    }
}

fn timed(run: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    run();
    begun.elapsed()
}

#[test]
fn a_killed_backup_harms_none() {
    let mut store = Store::new();
    store.write();
    let mut took = timed(|| store.backup());
    let mut killed = 0;
    for part in 0..ROUNDS {
        store.write();
        killed += u32::from(store.kill(&["backup", "db", "store"], &mut took, part));
        store.check(1);
    }
    store.backup();
    store.let_leases_end();
    store.world.told("backup prune store --keep 1");
    store.check(u64::MAX);
    assert!(killed > 0, "none was killed");
}

#[test]
fn a_killed_prune_harms_none_that_stays() {
    let mut store = Store::new();
    let mut killed = 0;
    let prune = ["backup", "prune", "store", "--keep", "1"];
    let round = |store: &mut Store| {
        for _ in 0..3 {
            store.write();
            store.backup();
        }
    };
    round(&mut store);
    let mut took = timed(|| drop(store.world.told(&prune)));
    for part in 0..ROUNDS {
        round(&mut store);
        killed += u32::from(store.kill(&prune, &mut took, part));
        store.let_leases_end();
        let last = *store.items.keys().last().unwrap();
        store.check(last);
        store.world.told(&prune);
    }
    let last = *store.items.keys().last().unwrap();
    store.check(last);
    assert!(killed > 0, "none was killed");
}

#[test]
fn a_killed_restore_leaves_no_folder_or_a_whole_one() {
    let mut store = Store::new();
    store.write();
    store.backup();
    let mut killed = 0;
    let restore = ["restore", "store", "to"];
    let mut took = timed(|| drop(store.world.told(&restore)));
    for part in 0..ROUNDS {
        std::fs::remove_dir_all(store.world.path("to")).unwrap();
        killed += u32::from(store.kill(&restore, &mut took, part));
        if !store.world.path("to").exists() {
            store.world.told(&restore);
        }
        let count = store.world.ok("count to c");
        assert_eq!(count.trim(), store.written.to_string());
        assert!(!store.world.path("to.ebbtide-scratch").exists());
    }
    assert!(killed > 0, "none was killed");
}
