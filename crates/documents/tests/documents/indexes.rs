//! Indexes by name: what a query answers by one is what a scan answers, row by row, whatever was written, ended, commanded,
//! replaced, killed before. A scan is had by a condition and an order of the same meaning that no index serves.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::internals::Sim;
use ebbtide::{Database, DefaultTtl, Durability, ManualClock, Options, Quota, WhenFull};
use ebbtide_documents::{
    BatchOperation, Conditions, Container, ContainerDefinition, Continuation, Documents,
    PartitionKey, Patch, QueryLimits, Scope,
};
use serde_json::{Value, json};
use testkit::random::Random;

use super::replicas::{Meanwhile, OneOf};
use super::{START_MS, body, container, documents, key, refused, seconds};

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

pub fn definition(policy: &[&str], default: Option<i64>) -> ContainerDefinition {
    let included = policy.iter().map(|path| json!({"path": path}));
    let json = json!({
        "id": "c", "partitionKey": {"paths": ["/p"]}, "defaultTtl": default,
        "indexingPolicy": {"includedPaths": Vec::from_iter(included)},
    });
    ContainerDefinition::from_json(json.to_string().as_bytes()).unwrap()
}

/// All rows, by pages of so many.
fn paged(c: &Container, text: &str, scope: &Scope, rows: usize) -> Vec<String> {
    let limits = QueryLimits {
        rows,
        ..QueryLimits::default()
    };
    let (mut all, mut from): (Vec<String>, Option<Continuation>) = (vec![], None);
    loop {
        let page = c.query(text, &[], scope, &limits, from.as_ref()).unwrap();
        all.extend(page.rows);
        let Some(next) = page.continuation else {
            return all;
        };
        // It is plain data.
        let stored = serde_json::to_string(&next).unwrap();
        from = Some(serde_json::from_str(&stored).unwrap());
    }
}

pub fn whole(c: &Container, text: &str) -> Vec<String> {
    paged(c, text, &Scope::everything(), usize::MAX)
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

/// The engine's container of the entries.
pub fn entries(documents: &Documents, c: &Container) -> ebbtide::Container {
    let name = format!("{}#index", c.rid());
    assert!(documents.engine().containers().contains(&name));
    documents.engine().container(name).unwrap()
}

/// Without their entries they find nothing: a scan would.
#[test]
fn queries_go_by_an_index() {
    let (documents, _) = documents();
    let c = documents
        .create_container("db", definition(&["/a/?"], None))
        .unwrap();
    for n in 0..2_000 {
        let body = body(&n.to_string(), &format!(",\"a\":{}", n % 500));
        c.create(&key(), &body).unwrap();
    }
    let queries = [
        "SELECT c.id FROM c WHERE c.a = 7",
        "SELECT c.id FROM c WHERE c.a IN (7, 9)",
        "SELECT c.id FROM c WHERE c.a > 7 AND c.a < 30",
        "SELECT VALUE COUNT(1) FROM c WHERE c.a < 9",
        "SELECT c.id FROM c WHERE c.a < 9 ORDER BY c.id",
        "SELECT TOP 3 c.id FROM c ORDER BY c.a DESC",
        "SELECT TOP 3 c.id FROM c ORDER BY c.a",
    ];
    for query in queries {
        assert!(!whole(&c, query).is_empty(), "{query}");
    }
    entries(&documents, &c).clear().unwrap();
    for query in queries {
        let rows = whole(&c, query);
        assert!(rows.is_empty() || rows == ["0"], "{query}");
    }
    // The documents are asked where no index says it.
    for query in [
        "SELECT c.id FROM c WHERE c.a != 1",
        "SELECT c.id FROM c",
        "SELECT c.id FROM c ORDER BY c.a, c.id",
    ] {
        assert!(!whole(&c, query).is_empty(), "{query}");
    }
}

/// One entry of each index for each document, with its life, whatever its value was before.
#[test]
fn each_document_has_its_entries() {
    let (documents, clock) = documents();
    let c = documents
        .create_container("db", definition(&["/a/?", "/b/c/?"], Some(10)))
        .unwrap();
    let entries = entries(&documents, &c);
    let none = Conditions::none();
    let bodies = [
        body("1", ",\"a\":1,\"ttl\":-1"),
        body("1", ",\"a\":2,\"b\":{\"c\":null}"),
        body("1", ",\"b\":{\"c\":[]},\"ttl\":3"),
    ];
    for body in &bodies {
        c.upsert(&key(), body, &none).unwrap();
        let item = c.items().first().unwrap().unwrap();
        let found = Vec::from_iter(entries.iter().map(Result::unwrap));
        assert_eq!(found.len(), 2);
        for entry in found {
            assert!(entry.key().ends_with(item.key()) && entry.value().is_empty());
            let life = (entry.written_at(), entry.ttl(), entry.expires_at());
            assert_eq!(life, (item.written_at(), item.ttl(), item.expires_at()));
        }
    }
    clock.advance(seconds(2));
    c.read_and_touch(&key(), "1").unwrap();
    clock.advance(seconds(2));
    assert_eq!(entries.count(..).unwrap(), 2);
    clock.advance(seconds(1));
    assert!(entries.is_empty().unwrap());
    let again = Vec::from_iter(
        bodies
            .iter()
            .map(|body| BatchOperation::Upsert(body.clone(), none)),
    );
    c.batch(&key(), &again).unwrap();
    assert_eq!(entries.count(..).unwrap(), 2);
    c.delete(&key(), "1", &none).unwrap();
    assert!(entries.is_empty().unwrap());
}

/// A delete by partition key takes the entries along, however many they are.
#[test]
fn a_partition_of_many_documents() {
    let (documents, _) = documents();
    let c = documents
        .create_container("db", definition(&["/a/?"], None))
        .unwrap();
    for n in 0..2_500 {
        c.create(&key(), &body(&n.to_string(), ",\"a\":1")).unwrap();
    }
    let other = br#"{"id":"1","p":"other","a":1}"#;
    c.create(&"other".into(), other).unwrap();
    c.delete_partition(&key()).unwrap();
    assert_eq!(entries(&documents, &c).count(..).unwrap(), 1);
    assert_eq!(
        whole(&c, "SELECT VALUE c.p FROM c WHERE c.a = 1"),
        ["\"other\""]
    );
}

/// Of long texts an index keeps the beginning, of lists and objects that they are.
#[test]
fn what_an_index_does_not_order_is_sorted() {
    let (documents, _) = documents();
    let c = documents
        .create_container("db", definition(&["/a/?"], None))
        .unwrap();
    let long = "x".repeat(1_024);
    let values = [
        format!("\"{long}b\""),
        format!("\"{long}a\""),
        format!("\"{long}\""),
    ];
    for (n, value) in values
        .iter()
        .chain(&["[2]".to_owned(), "[1]".to_owned()])
        .enumerate()
    {
        c.create(&key(), &body(&n.to_string(), &format!(",\"a\":{value}")))
            .unwrap();
    }
    let ids = |text: &str| whole(&c, text).concat().replace('"', "");
    assert_eq!(ids("SELECT VALUE c.id FROM c ORDER BY c.a"), "21043");
    assert_eq!(ids("SELECT VALUE c.id FROM c ORDER BY c.a DESC"), "34012");
    assert_eq!(ids("SELECT TOP 1 VALUE c.id FROM c ORDER BY c.a"), "2");
    assert_eq!(
        ids(&format!("SELECT VALUE c.id FROM c WHERE c.a = '{long}a'")),
        "1"
    );
    assert_eq!(
        ids(&format!("SELECT VALUE c.id FROM c WHERE c.a > '{long}a'")),
        "0"
    );
    assert_eq!(
        ids(&format!("SELECT VALUE c.id FROM c WHERE c.a <= '{long}a'")),
        "12"
    );
    assert_eq!(
        ids(&format!(
            "SELECT VALUE c.id FROM c WHERE STARTSWITH(c.a, '{long}b')"
        )),
        "0"
    );
}

/// An index of documents that are there is built while others write; each document is in it at the end.
#[test]
fn an_index_is_built_among_writers() {
    let (documents, _) = documents();
    let c = container(&documents, "");
    let upsert = |n: usize, a: usize| {
        let body = body(&n.to_string(), &format!(",\"a\":{a},\"b\":{}", n % 7));
        drop(c.upsert(&key(), &body, &Conditions::none()).unwrap());
    };
    (0..3_000).for_each(|n| upsert(n, n % 10));
    // The last ones that are built, which nobody writes again.
    (9_000..9_100).for_each(|n| upsert(n, 77));
    let (is_over, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    let found = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        for at in 0..2 {
            let (is_over, upsert, c) = (&is_over, &upsert, &c);
            scope.spawn(move || {
                let mut n = at;
                while !is_over.load(Ordering::Relaxed) {
                    n = (n * 31 + 7) % 4_000;
                    match n % 5 {
                        0 => drop(c.delete(&key(), &n.to_string(), &Conditions::none())),
                        1 => drop(c.read_and_touch(&key(), &n.to_string())),
                        _ => upsert(n, n % 11),
                    }
                }
            });
        }
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let count = whole(&c, "SELECT VALUE COUNT(1) FROM c WHERE c.a = 77");
                let first = whole(&c, "SELECT TOP 1 VALUE c.a FROM c ORDER BY c.a DESC");
                reads.fetch_add(1, Ordering::Relaxed);
                found.lock().unwrap().insert((count, first));
            }
        });
        let replace = |policy: &[&str]| {
            documents
                .replace_container("db", definition(policy, None))
                .unwrap();
            assert!(c.indexes().iter().all(|(_, is_whole)| *is_whole));
        };
        while reads.load(Ordering::Relaxed) < 100 {
            let policies = [&["/a/?"][..], &["/b/?", "/a/?"], &["/b/?"], &["/*"]];
            policies.into_iter().for_each(replace);
        }
        replace(&["/a/?"]);
        is_over.store(true, Ordering::Relaxed);
    });
    let always = (vec!["100".to_owned()], vec!["77".to_owned()]);
    assert_eq!(found.into_inner().unwrap(), BTreeSet::from([always]));
    for a in 0..11 {
        let by_index = whole(&c, &format!("SELECT * FROM c WHERE c.a = {a}"));
        let by_scan = whole(&c, &format!("SELECT * FROM c WHERE NOT (NOT (c.a = {a}))"));
        assert_eq!(by_index, by_scan);
    }
    let entries = entries(&documents, &c).count(..).unwrap();
    assert_eq!(entries, c.items().count(..).unwrap());
}

/// Another one over the same database goes by no index that has become another since.
#[test]
fn indexes_that_another_one_replaced() {
    let (documents, _) = documents();
    let c = documents
        .create_container("db", definition(&["/a/?"], None))
        .unwrap();
    for n in 0..9 {
        let body = body(&n.to_string(), &format!(",\"a\":{n},\"b\":{}", n + 1));
        c.create(&key(), &body).unwrap();
    }
    let late = Documents::with(documents.engine().clone()).unwrap();
    let late = late.container("db", "c").unwrap();
    for policy in [&["/*"][..], &["/b/?", "/a/?"], &["/b/?"], &["/a/?"]] {
        documents
            .replace_container("db", definition(policy, None))
            .unwrap();
        for c in [&c, &late] {
            assert_eq!(
                whole(c, "SELECT VALUE c.id FROM c WHERE c.a = 7"),
                ["\"7\""]
            );
            assert_eq!(
                whole(c, "SELECT VALUE c.a FROM c ORDER BY c.a DESC")[0],
                "8"
            );
        }
    }
}

/// An operator raises the default of the documents alone: entries would end before their documents.
#[test]
fn a_default_that_an_operator_raises() {
    let (documents, clock) = documents();
    let c = documents
        .create_container("db", definition(&["/a/?"], Some(10)))
        .unwrap();
    c.create(&key(), &body("1", ",\"a\":1")).unwrap();
    c.items()
        .set_default_ttl(DefaultTtl::After(seconds(60)))
        .unwrap();
    clock.advance(seconds(20));
    let query = "SELECT VALUE c.id FROM c WHERE c.a = 1";
    assert_eq!(whole(&c, query), ["\"1\""]);
    assert!(entries(&documents, &c).is_empty().unwrap());
    // The next one that opens it makes the index anew, without what the entries' container has ended.
    let again = Documents::with(documents.engine().clone()).unwrap();
    let c = again.container("db", "c").unwrap();
    assert_eq!(c.indexes(), [(vec!["a".to_owned()], true)]);
    assert_eq!(entries(&documents, &c).count(..).unwrap(), 1);
    assert_eq!(whole(&c, query), ["\"1\""]);
    clock.advance(seconds(40));
    assert!(whole(&c, query).is_empty() && entries(&documents, &c).is_empty().unwrap());
}

/// An operator drops the entries: queries do without, and who opens the container makes them anew.
#[test]
fn entries_that_an_operator_drops() {
    let (documents, _) = documents();
    let c = documents
        .create_container("db", definition(&["/a/?"], None))
        .unwrap();
    c.create(&key(), &body("1", ",\"a\":1")).unwrap();
    let name = format!("{}#index", c.rid());
    assert!(documents.engine().drop_container(&name).unwrap());
    let query = "SELECT VALUE c.id FROM c WHERE c.a = 1";
    assert_eq!(whole(&c, query), ["\"1\""]);
    refused(c.create(&key(), &body("2", ",\"a\":1")), 404);
    let again = Documents::with(documents.engine().clone()).unwrap();
    let c = again.container("db", "c").unwrap();
    assert_eq!(c.indexes(), [(vec!["a".to_owned()], true)]);
    c.create(&key(), &body("2", ",\"a\":1")).unwrap();
    assert_eq!(entries(&documents, &c).count(..).unwrap(), 2);
    assert_eq!(whole(&c, query).len(), 2);
}

/// Entries whose documents a command has ended go while others write.
#[test]
fn entries_without_documents_are_swept() {
    let (documents, _) = documents();
    let c = documents
        .create_container("db", definition(&["/a/?", "/b/?"], Some(-1)))
        .unwrap();
    let upsert = |n: u32, a: u32| {
        let body = body(&n.to_string(), &format!(",\"a\":{a}"));
        drop(c.upsert(&key(), &body, &Conditions::none()).unwrap());
    };
    (0..500).for_each(|n| upsert(n, n));
    c.items().expire_all().unwrap();
    let entries = entries(&documents, &c);
    assert_eq!(entries.count(..).unwrap(), 1_000);
    // Under other values, of which those from before are no more.
    (0..50).for_each(|n| upsert(n, n + 1));
    assert_eq!(whole(&c, "SELECT VALUE c.a FROM c ORDER BY c.a").len(), 50);
    for _ in 0..20 {
        (0..50).for_each(|n| upsert(n, n + 1));
    }
    assert_eq!(entries.count(..).unwrap(), 100);
    // A quota that expires what ends soonest ends documents alone.
    c.delete_partition(&key()).unwrap();
    assert!(entries.is_empty().unwrap());
    let quota = Quota {
        max_live_bytes: 2_000,
        when_full: WhenFull::ExpireSoonest,
    };
    c.items().set_quota(Some(quota)).unwrap();
    for n in 0..400 {
        let body = body(
            &format!("q{n}"),
            &format!(",\"a\":{},\"ttl\":{}", n % 7, 100 + n),
        );
        c.upsert(&key(), &body, &Conditions::none()).unwrap();
        let by_index = whole(&c, "SELECT VALUE c.id FROM c WHERE c.a = 3");
        let by_scan = whole(&c, "SELECT VALUE c.id FROM c WHERE NOT (NOT (c.a = 3))");
        assert_eq!(by_index, by_scan);
    }
    let (documents, entries) = (c.items().count(..).unwrap(), entries.count(..).unwrap());
    assert!(
        entries <= 2 * (3 * documents + 64),
        "{entries} of {documents}"
    );
}

/// A database that may expire any item to make room keeps no index; without that quota it does.
#[test]
fn a_database_that_expires_what_ends_soonest_keeps_no_index() {
    let folder = testkit::scratch();
    let open = |options: Options| Documents::with(options.open(folder.path()).unwrap()).unwrap();
    let expires = || {
        Options::new()
            .max_live_bytes(1 << 20)
            .when_full(WhenFull::ExpireSoonest)
    };
    let query = "SELECT VALUE c.id FROM c WHERE c.a = 1";
    for (round, options) in [Options::new(), expires(), Options::new()]
        .into_iter()
        .enumerate()
    {
        let documents = open(options);
        let has_entries = documents
            .engine()
            .containers()
            .iter()
            .any(|name| name.ends_with("#index"));
        assert!(!has_entries);
        let c = match round {
            0 => {
                documents.create_database("db").unwrap();
                documents
                    .create_container("db", definition(&["/a/?"], None))
                    .unwrap()
            }
            _ => documents.container("db", "c").unwrap(),
        };
        assert_eq!(c.indexes().len(), usize::from(round != 1));
        assert_eq!(whole(&c, query).len(), round);
        c.create(&key(), &body(&round.to_string(), ",\"a\":1"))
            .unwrap();
        assert_eq!(whole(&c, query).len(), round + 1);
        documents.engine().close().unwrap();
    }
}

/// Pages go on in the order of an index, where documents come and go between them, and by sorting where it is gone.
#[test]
fn pages_in_the_order_of_an_index() {
    let (documents, _) = documents();
    let c = documents
        .create_container("db", definition(&["/a/?"], None))
        .unwrap();
    for n in 0..40 {
        let a = match n % 4 {
            0 => String::new(),
            _ => format!(",\"a\":{}", n % 10),
        };
        c.create(&key(), &body(&format!("{n:02}"), &a)).unwrap();
    }
    let limits = QueryLimits {
        rows: 3,
        ..QueryLimits::default()
    };
    let all = Scope::everything();
    for order in ["c.a", "c.a DESC"] {
        let text = format!("SELECT VALUE c.id FROM c ORDER BY {order}");
        let sorted = whole(&c, &format!("{text}, c.none"));
        assert_eq!(paged(&c, &text, &all, 3), sorted);
        let first = c.query(&text, &[], &all, &limits, None).unwrap();
        assert_eq!(first.rows, sorted[..3]);
        let from = first.continuation.as_ref();
        // A document that was told goes; one that comes in front is not told.
        let told: String = serde_json::from_str(&first.rows[0]).unwrap();
        c.delete(&key(), &told, &Conditions::none()).unwrap();
        let second = c.query(&text, &[], &all, &limits, from).unwrap();
        assert_eq!(second.rows, sorted[3..6]);
        c.create(&key(), &body(&told, ",\"a\":\"x\"")).unwrap();
        let others = [
            ("SELECT VALUE c.id FROM c ORDER BY c.b".to_owned(), &all),
            (text.clone(), &Scope::partition("k")),
        ];
        for (text, scope) in others {
            refused(c.query(&text, &[], scope, &limits, from), 400);
        }
        refused(c.list(&all, 2, from), 400);
    }
    // Without the index, behind as many rows.
    let text = "SELECT VALUE c.id FROM c ORDER BY c.a OFFSET 2 LIMIT 9";
    let sorted = whole(&c, &text.replace("c.a ", "c.a, c.none "));
    let first = c.query(text, &[], &all, &limits, None).unwrap();
    documents
        .replace_container("db", definition(&["/*"], None))
        .unwrap();
    let from = first.continuation.as_ref();
    let second = c.query(text, &[], &all, &limits, from).unwrap();
    let rows = [first.rows, second.rows].concat();
    assert_eq!(rows, sorted[..6]);
}

#[test]
fn policies() {
    let (documents, _) = documents();
    let many = |count: usize| {
        let paths = Vec::from_iter((0..count).map(|n| json!({"path": format!("/m{n}/?")})));
        let policy = json!({"includedPaths": paths});
        let json =
            json!({"id": "many", "partitionKey": {"paths": ["/p"]}, "indexingPolicy": policy});
        ContainerDefinition::from_json(json.to_string().as_bytes())
    };
    let message = refused(many(33), 400).to_string();
    assert!(
        message.contains("32") && message.contains("33"),
        "{message}"
    );
    let c = documents.create_container("db", many(32).unwrap()).unwrap();
    assert_eq!(c.indexes().len(), 32);
    c.create(&key(), &body("1", ",\"m31\":5")).unwrap();
    assert_eq!(
        whole(&c, "SELECT VALUE c.id FROM c WHERE c.m31 = 5"),
        ["\"1\""]
    );
    // The policy is told as it was given.
    let told: Value = serde_json::from_str(&c.to_json()).unwrap();
    assert_eq!(
        told["indexingPolicy"]["includedPaths"]
            .as_array()
            .unwrap()
            .len(),
        32
    );
    let entries = format!("{}#index", c.rid());
    documents.delete_container("db", "many").unwrap();
    assert_eq!(documents.engine().containers(), ["documents"]);

    for (policy, count) in [
        ("{}", 0),
        (r#"{"includedPaths":[{"path":"/*"}]}"#, 0),
        (
            r#"{"includedPaths":[{"path":"/_ts/?"},{"path":"/_etag/?"}]}"#,
            0,
        ),
        (
            r#"{"includedPaths":[{"path":"/a/[]/?"},{"path":"/a/*"},{"path":"/"}]}"#,
            0,
        ),
        (
            r#"{"indexingMode":"none","includedPaths":[{"path":"/a/?"}]}"#,
            0,
        ),
        (
            r#"{"includedPaths":[{"path":"/a/?"},{"path":"/\"a\"/?"},{"path":"/\"a\""}]}"#,
            1,
        ),
        (
            r#"{"indexingMode":"lazy","includedPaths":[{"path":"/a/?"},{"path":"/b/c/?"}]}"#,
            2,
        ),
    ] {
        let c = container(&documents, &format!(",\"indexingPolicy\":{policy}"));
        assert_eq!(c.indexes().len(), count, "{policy}");
        let containers = documents.engine().containers().len();
        assert_eq!(containers, if count > 0 { 3 } else { 2 }, "{policy}");
        documents.delete_container("db", "c").unwrap();
    }
    assert!(!documents.engine().containers().contains(&entries));
}
