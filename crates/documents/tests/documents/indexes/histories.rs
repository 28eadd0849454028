//! Random histories of documents with indexes, on a database of their own or at replicas in turn, with kills and operators between.

use std::sync::Arc;
use std::time::Duration;

use ebbtide::internals::Sim;
use ebbtide::{Database, DefaultTtl, Durability, ManualClock, Options};
use ebbtide_documents::{
    BatchOperation, Conditions, Container, Documents, PartitionKey, Patch, Scope,
};
use testkit::random::Random;

use super::{definition, paged};
use crate::replicas::{Meanwhile, OneOf};
use crate::{START_MS, seconds};

const HISTORIES: u64 = 250;
const STEPS: usize = 60;
const KEYS: [&str; 4] = ["[{}]", "[1]", "[\"a\"]", "[\"ab\"]"];
const IDS: [&str; 5] = ["1", "12", "2", "a", "é"];
/// At the paths of indexes, and as constants of queries.
const VALUES: [&str; 20] = [
    "null",
    "false",
    "true",
    "-1.5",
    "-0",
    "0",
    "1",
    "1.0",
    "2",
    "9007199254740993",
    "\"\"",
    "\"a\"",
    "\"a\\u0000\"",
    "\"ab\"",
    "\"b\"",
    "\"é\"",
    "[]",
    "[1,2]",
    "{}",
    "{\"x\":1}",
];
const POLICIES: [&[&str]; 6] = [
    &["/a/?"],
    &["/b/c/?", "/*"],
    &["/a/?", "/b/c/?"],
    &["/\"b\"/'c'/?", "/a/?", "/p/?", "/id/?", "/_ts/?", "/a/?"],
    &["/*"],
    &["/b/?", "/a/?", "/a/[]/?"],
];

/// The paths of the indexes that a policy names.
fn paths(policy: &[&str]) -> Vec<Vec<String>> {
    let mut paths: Vec<Vec<String>> = vec![];
    for path in policy {
        let names = path
            .split('/')
            .skip(1)
            .map(|name| name.trim_matches(['"', '\'']));
        let names = Vec::from_iter(names.map(str::to_owned));
        let is_one = names.last().is_some_and(|last| last == "?");
        let names = &names[..names.len() - 1];
        let is_named = !names.iter().any(|name| name == "[]" || name == "_ts");
        if is_one && is_named && !paths.iter().any(|path| path == names) {
            paths.push(names.to_vec());
        }
    }
    paths
}

/// The same query by an index and by a scan.
struct Asked {
    by_index: String,
    by_scan: String,
}

fn ask(random: &mut Random) -> Asked {
    let path = |random: &mut Random| random.pick(&["c.a", "c.a", "c.b.c", "c.p", "c.id", "c.b"]);
    let one = |random: &mut Random| {
        let (path, value) = (path(random), random.pick(&VALUES));
        match random.below(9) {
            0 => format!(
                "{path} IN ({value}, {}, {})",
                random.pick(&VALUES),
                random.pick(&VALUES)
            ),
            1 => format!(
                "STARTSWITH({path}, {})",
                random.pick(&["\"\"", "\"a\"", "\"é\""])
            ),
            2 => format!("{path} BETWEEN {value} AND {}", random.pick(&VALUES)),
            3 => format!("({path} = {value} OR {path} = {})", random.pick(&VALUES)),
            4 => format!("{path} LIKE \"a%\""),
            5 => format!("IS_DEFINED({path})"),
            _ => {
                let operator = random.pick(&["=", "=", "=", "<", "<=", ">", ">=", "!="]);
                format!("{path} {operator} {value}")
            }
        }
    };
    let conditions = Vec::from_iter((0..random.below(3)).map(|_| one(random)));
    let condition = conditions.join(" AND ");
    let shown = "c.p, c.id, c.a, c.b, c.n";
    let (select, ends): (String, String) = match random.below(8) {
        0 => ("VALUE COUNT(1)".to_owned(), String::new()),
        1 => ("DISTINCT c.a".to_owned(), String::new()),
        2 => ("c.a, COUNT(1) AS n".to_owned(), " GROUP BY c.a".to_owned()),
        3 => (format!("TOP {} {shown}", random.below(4)), String::new()),
        4 => {
            let window = format!(" OFFSET {} LIMIT {}", random.below(4), random.below(5));
            (shown.to_owned(), window)
        }
        _ => (shown.to_owned(), String::new()),
    };
    let ordered = !ends.contains("GROUP") && !select.contains("COUNT") && random.one_in(2);
    let (mut order, mut sorted) = (String::new(), String::new());
    if ordered {
        order = format!(
            " ORDER BY {}{}",
            path(random),
            random.pick(&["", " ASC", " DESC"])
        );
        // No document has it.
        sorted = format!("{order}, c.none");
    }
    let text = |wraps: bool, order: &str| {
        let filter = match (conditions.is_empty(), wraps) {
            (true, _) => String::new(),
            (_, false) => format!(" WHERE {condition}"),
            (_, true) => format!(" WHERE NOT (NOT ({condition}))"),
        };
        match ends.starts_with(" OFFSET") {
            true => format!("SELECT {select} FROM c{filter}{order}{ends}"),
            false => format!("SELECT {select} FROM c{filter}{ends}{order}"),
        }
    };
    Asked {
        by_index: text(false, &order),
        by_scan: text(true, &sorted),
    }
}

struct World {
    random: Random,
    clock: ManualClock,
    sim: Sim,
    documents: Documents,
    /// Where it is a state of several: handles that share nothing else, of which one is asked at a time.
    replicas: Vec<(Documents, Arc<OneOf>)>,
    c: Container,
    policy: &'static [&'static str],
    default: Option<i64>,
    durability: Durability,
    n: u64,
}

fn open(sim: &Sim, clock: &ManualClock, durability: Durability) -> Database {
    let options = Options::new()
        .clock(clock.clone())
        .fs(Arc::new(sim.clone()))
        .stepped();
    let options = options.durability(durability).memtable_bytes(64 << 10);
    options.open("/db").unwrap()
}

/// Documents over a database of their own, or over replicas of one state.
fn over(engine: Database, replicas: usize) -> (Documents, Vec<(Documents, Arc<OneOf>)>) {
    let replicas = Vec::from_iter((0..replicas).map(|_| OneOf::over(&engine)));
    match replicas.first() {
        Some((first, _)) => (first.clone(), replicas),
        None => (Documents::with(engine).unwrap(), replicas),
    }
}

impl World {
    fn new(seed: u64, replicas: usize) -> World {
        let mut random = Random(seed);
        let (clock, sim) = (ManualClock::new(START_MS), Sim::new(seed));
        // Without waiting nothing is written under `Sync`.
        let durability = random.pick(&[Durability::Sync, Durability::Buffered]);
        let (documents, replicas) = over(open(&sim, &clock, durability), replicas);
        documents.create_database("db").unwrap();
        let (policy, default) = (
            random.pick(&POLICIES),
            random.pick(&[None, Some(-1), Some(9)]),
        );
        let c = documents
            .create_container("db", definition(policy, default))
            .unwrap();
        World {
            random,
            clock,
            sim,
            documents,
            replicas,
            c,
            policy,
            default,
            durability,
            n: 0,
        }
    }

    fn body(&mut self, key: usize, id: &str) -> Vec<u8> {
        self.n += 1;
        let random = &mut self.random;
        let mut text = format!("{{\"id\":\"{id}\",\"n\":{}", self.n);
        if key > 0 {
            text += &format!(",\"p\":{}", KEYS[key].trim_matches(['[', ']']));
        }
        if !random.one_in(6) {
            text += &format!(", \"a\" : {}", random.pick(&VALUES));
        }
        match random.below(5) {
            0 => text += &format!(",\"b\":{}", random.pick(&VALUES)),
            1 => {}
            _ => text += &format!(",\"b\":{{\"c\":{},\"d\":1}}", random.pick(&VALUES)),
        }
        if random.one_in(20) {
            // The second one counts, for a query and an index.
            text += &format!(",\"a\":{}", random.pick(&VALUES));
        }
        if random.one_in(12) {
            text += &format!(
                ",\"long\":1,\"a\":\"{}{}\"",
                "x".repeat(1_024),
                random.below(3)
            );
        }
        match random.below(6) {
            0 => text += ",\"ttl\":3",
            1 => text += ",\"ttl\":20",
            2 => text += ",\"ttl\":-1",
            _ => {}
        }
        (text + "}").into_bytes()
    }

    fn write(&mut self) {
        let key = self.random.below(KEYS.len());
        let id = self.random.pick(&IDS);
        let partition = PartitionKey::from_json(KEYS[key]).unwrap();
        let (none, body) = (Conditions::none(), self.body(key, id));
        let (c, random) = (&self.c, &mut self.random);
        match random.below(13) {
            0 => drop(c.create(&partition, &body)),
            1 => drop(c.replace(&partition, id, &body, &none)),
            2 => {
                let value = random.pick(&VALUES);
                let patch = format!("[{{\"op\":\"set\",\"path\":\"/a\",\"value\":{value}}}]");
                let patch = Patch::from_json(patch.as_bytes()).unwrap();
                drop(c.patch(&partition, id, &patch, &none));
            }
            3 => drop(c.delete(&partition, id, &none)),
            4 => drop(c.touch(&partition, id, &none)),
            5 => drop(c.read_and_touch(&partition, id)),
            6 => {
                let other = random.pick(&IDS);
                let second = self.body(key, other);
                let operations = [
                    BatchOperation::Upsert(body, none),
                    BatchOperation::Upsert(second, none),
                    BatchOperation::Delete(id.into(), none),
                ];
                let most = 1 + self.random.below(3);
                self.c.batch(&partition, &operations[..most]).unwrap();
            }
            7 => drop(c.replace(&partition, random.pick(&IDS), &body, &none)),
            8 => drop(c.try_create(&partition, &body)),
            9 => drop(c.try_upsert(&partition, &body, &none).unwrap()),
            _ => drop(c.upsert(&partition, &body, &none).unwrap()),
        }
    }

    /// An operator changes the engine's container of the documents alone.
    fn operate(&mut self) {
        let (items, now) = (self.c.items(), self.documents.engine().now());
        match self.random.below(7) {
            0..=3 => {
                let defaults = [
                    DefaultTtl::Off,
                    DefaultTtl::NoDefault,
                    DefaultTtl::After(seconds(4)),
                    DefaultTtl::After(seconds(30)),
                ];
                items.set_default_ttl(self.random.pick(&defaults)).unwrap();
            }
            4 => items
                .expire_before(now + seconds(self.random.below(20) as u64))
                .unwrap(),
            5 => items.expire_written_before(now - seconds(2)).unwrap(),
            _ => items.expire_all().unwrap(),
        }
    }

    fn reopen(&mut self) {
        self.sim = match self.random.below(3) {
            0 => self.sim.kill(),
            1 => self.sim.power_cut(self.random.next()),
            _ => {
                self.documents.engine().close().unwrap();
                self.sim.kill()
            }
        };
        let engine = open(&self.sim, &self.clock, self.durability);
        (self.documents, self.replicas) = over(engine, self.replicas.len());
        self.c = self.documents.container("db", "c").unwrap();
        self.all_are_whole();
    }

    /// The replica that is asked from now on.
    fn turn(&mut self) {
        if !self.replicas.is_empty() {
            let at = self.random.below(self.replicas.len());
            self.documents = self.replicas[at].0.clone();
            self.c = self.documents.container("db", "c").unwrap();
        }
    }

    /// A write at one replica, before whose commit another one writes or changes the indexes.
    fn write_among_others(&mut self) {
        if self.replicas.is_empty() {
            return self.write();
        }
        let other = self.replicas[self.random.below(self.replicas.len())]
            .0
            .clone();
        let (key, id) = (self.random.below(KEYS.len()), self.random.pick(&IDS));
        let (partition, body) = (
            PartitionKey::from_json(KEYS[key]).unwrap(),
            self.body(key, id),
        );
        let policy = self.random.one_in(2).then(|| self.random.pick(&POLICIES));
        let default = self.default;
        let meanwhile: Meanwhile = Box::new(move || match policy {
            Some(policy) => {
                other
                    .replace_container("db", definition(policy, default))
                    .unwrap();
            }
            None => {
                let c = other.container("db", "c").unwrap();
                c.upsert(&partition, &body, &Conditions::none()).unwrap();
            }
        });
        let slots = Vec::from_iter(self.replicas.iter().map(|(_, replica)| replica.clone()));
        let slot = slots[self.random.below(slots.len())].clone();
        *slot.meanwhile.lock().unwrap() = Some(meanwhile);
        self.write();
        let is_done = slot.meanwhile.lock().unwrap().take().is_none();
        if let Some(policy) = policy.filter(|_| is_done) {
            self.policy = policy;
        }
    }

    fn all_are_whole(&mut self) {
        if !self.replicas.is_empty() && self.c.indexes().iter().any(|(_, is_whole)| !is_whole) {
            // A node that is lost builds no more; another one goes on.
            self.clock.advance(seconds(6));
        }
        self.c = self.documents.container("db", "c").unwrap();
        let paths = paths(self.policy).into_iter().map(|path| (path, true));
        assert_eq!(self.c.indexes(), Vec::from_iter(paths));
    }

    fn look(&mut self) {
        for _ in 0..12 {
            let Asked { by_index, by_scan } = ask(&mut self.random);
            let key = self.random.below(KEYS.len());
            let scope = match self.random.below(4) {
                0 => Scope::partition(PartitionKey::from_json(KEYS[key]).unwrap()),
                _ => Scope::everything(),
            };
            let expected = paged(&self.c, &by_scan, &scope, usize::MAX);
            for rows in [usize::MAX, 1_000, 1 + self.random.below(4)] {
                let found = paged(&self.c, &by_index, &scope, rows);
                assert_eq!(found, expected, "{by_index} by {rows}");
            }
        }
    }

    fn step(&mut self) {
        self.turn();
        match self.random.below(100) {
            0..=44 => self.write(),
            45..=54 => self.write_among_others(),
            55..=69 => {
                let by = self
                    .random
                    .pick(&[1, 1_000, 2_999, 3_000, 5_000, 9_000, 25_000]);
                self.clock.advance(Duration::from_millis(by));
            }
            70..=75 => {
                let defaults = [None, Some(-1), Some(3), Some(9), Some(40)];
                self.default = self.random.pick(&defaults);
                if self.random.one_in(2) {
                    self.policy = self.random.pick(&POLICIES);
                }
                let definition = definition(self.policy, self.default);
                self.documents.replace_container("db", definition).unwrap();
                self.all_are_whole();
            }
            76..=80 => self.operate(),
            81..=83 => self.reopen(),
            84..=85 => {
                let key = self.random.pick(&KEYS);
                let partition = PartitionKey::from_json(key).unwrap();
                self.c.delete_partition(&partition).unwrap();
            }
            86..=88 => self.documents.engine().flush().unwrap(),
            _ => self.look(),
        }
    }
}

#[test]
fn answers_are_those_of_a_scan() {
    play(0, HISTORIES);
}

#[test]
fn answers_over_replicas_are_those_of_a_scan() {
    play(3, HISTORIES / 2);
}

fn play(replicas: usize, histories: u64) {
    let first = testkit::env("SEED", 1);
    for seed in first..first + testkit::env("HISTORIES", histories) {
        let played = std::panic::catch_unwind(|| {
            let mut world = World::new(seed, replicas);
            for _ in 0..STEPS {
                world.step();
            }
            world.look();
        });
        if let Err(panic) = played {
            panic!("seed {seed}: {}", testkit::panic_text(&*panic)); // SEED and HISTORIES=1 play it alone
        }
    }
}
