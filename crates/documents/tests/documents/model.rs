//! Random histories against a model that knows the rules by their definition: who is live, its etag, its body; a batch as
//! its operations one after the other on a copy. The disk is simulated: the process is killed, and the power cut. The model
//! shares no code with the crate: it parses bodies as values, and judges by arithmetic on milliseconds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::internals::Sim;
use ebbtide::{Durability, ExpiryCursor, ManualClock, Options, Version};
use ebbtide_documents::{
    BatchOperation, ChangeStart, ChangeStartAt, Conditions, Container, ContainerDefinition,
    Document, Documents, Etag, PartitionKey, Patch, QueryLimits, Scope,
};
use serde_json::{Value, json};
use testkit::random::Random;

use super::START_MS;

const KEYS: [&str; 5] = ["[{}]", "[null]", "[1]", "[\"a\"]", "[\"ab\"]"];
const IDS: [&str; 3] = ["1", "12", "é"];
const HISTORIES: u64 = 800;
const STEPS: usize = 60;

/// A document in the model.
#[derive(Clone, Debug, PartialEq)]
struct Doc {
    body: Value,
    version: u64,
    written_ms: u64,
}

impl Doc {
    /// In milliseconds since 1970, under a default in seconds: `None` is off, -1 without default.
    fn end(&self, default: Option<i64>) -> Option<u64> {
        let own = self.body.get("ttl").and_then(Value::as_i64);
        let seconds = match (default?, own) {
            (_, Some(-1)) | (-1, None) => return None,
            (_, Some(own)) => own,
            (default, None) => default,
        };
        Some(self.written_ms + 1_000 * seconds as u64)
    }
}

/// By partition key and id, as their places in the lists above.
type State = BTreeMap<(usize, usize), Doc>;

struct World {
    random: Random,
    clock: ManualClock,
    sim: Sim,
    documents: Documents,
    c: Container,
    state: State,
    default: Option<i64>,
    indexes: &'static [&'static str],
    /// The ends by time to live that are to be told: versions, moments, keys; and those that were told.
    ended: Vec<(u64, u64, (usize, usize))>,
    told: Vec<u64>,
    cursor: ExpiryCursor,
    highest: u64,
}

fn open(sim: &Sim, clock: &ManualClock) -> Documents {
    let options = Options::new()
        .clock(clock.clone())
        .fs(Arc::new(sim.clone()))
        .stepped();
    Documents::with(
        options
            .durability(Durability::Sync)
            .memtable_bytes(64 << 10)
            .open("/db")
            .unwrap(),
    )
    .unwrap()
}

/// With indexes of these paths.
fn definition(default: Option<i64>, indexes: &[&str]) -> ContainerDefinition {
    let included = indexes
        .iter()
        .map(|path| json!({"path": format!("/{path}/?")}));
    let json = json!({
        "id": "c", "partitionKey": {"paths": ["/p"]}, "defaultTtl": default,
        "changeFeedPolicy": {"retentionDuration": 1_000},
        "indexingPolicy": {"includedPaths": Vec::from_iter(included)},
    });
    ContainerDefinition::from_json(json.to_string().as_bytes()).unwrap()
}

/// The paths of indexes, for the random policies of a container.
const POLICIES: [&[&str]; 4] = [&[], &["n"], &["n", "m"], &["m", "p", "ttl"]];

fn ms(moment: SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

fn partition_key(key: usize) -> PartitionKey {
    PartitionKey::from_json(KEYS[key]).unwrap()
}

/// The model's answer to an operation: the status, and the body that is stored, if one is.
struct Said {
    status: u16,
    stored: Option<Value>,
    deletes: bool,
}

fn said(status: u16) -> Said {
    Said {
        status,
        stored: None,
        deletes: false,
    }
}

/// An operation on one document, as both have it.
#[derive(Clone, Debug)]
enum Act {
    Create(Value),
    Upsert(Value),
    Replace(Value),
    Patch(Vec<Value>),
    Touch,
    Delete,
    Read,
}

/// A condition by the version that it is about.
#[derive(Clone, Copy, Debug)]
enum Wants {
    Nothing,
    Match(u64),
    Any,
    NoneMatch(u64),
    Absent,
}

impl Wants {
    fn conditions(self) -> Conditions {
        let etag = |version| Some(Etag::Version(Version::from_u64(version)));
        let (if_match, if_none_match) = match self {
            Wants::Nothing => (None, None),
            Wants::Match(version) => (etag(version), None),
            Wants::Any => (Some(Etag::Any), None),
            Wants::NoneMatch(version) => (None, etag(version)),
            Wants::Absent => (None, Some(Etag::Any)),
        };
        Conditions {
            if_match,
            if_none_match,
        }
    }

    fn holds(self, found: Option<&Doc>) -> bool {
        match self {
            Wants::Nothing => true,
            Wants::Match(version) => found.is_some_and(|found| found.version == version),
            Wants::Any => found.is_some(),
            Wants::NoneMatch(version) => found.is_none_or(|found| found.version != version),
            Wants::Absent => found.is_none(),
        }
    }
}

fn is_ttl(body: &Value) -> bool {
    match body.get("ttl") {
        None => true,
        Some(ttl) => ttl
            .as_i64()
            .is_some_and(|ttl| ttl == -1 || (1..=2_147_483_647).contains(&ttl)),
    }
}

/// A patch, on a value. `None`: it is refused.
fn patched(body: &Value, operations: &[Value]) -> Option<Value> {
    let mut body = body.clone();
    for operation in operations {
        let members = body.as_object_mut().unwrap();
        let name = operation["path"].as_str().unwrap()[1..].to_owned();
        match operation["op"].as_str().unwrap() {
            "set" | "add" => drop(members.insert(name, operation["value"].clone())),
            "replace" => *members.get_mut(&name)? = operation["value"].clone(),
            "remove" => drop(members.remove(&name)?),
            "incr" => {
                let by = operation["value"].as_i64().unwrap();
                let sum = members
                    .get(&name)
                    .map_or(Some(by), |number| Some(number.as_i64()? + by))?;
                members.insert(name, sum.into());
            }
            _ => {
                let from = operation["from"].as_str().unwrap()[1..].to_owned();
                let moved = members.remove(&from)?;
                members.insert(name, moved);
            }
        }
    }
    Some(body)
}

/// The place of a body that is written for a place: a replaced document may get another id.
fn place_of(body: &Value, place: (usize, usize)) -> (usize, usize) {
    let id = IDS.iter().position(|id| body["id"] == *id);
    (place.0, id.unwrap_or(place.1))
}

/// The rules of one operation on what is live.
fn judge(act: &Act, wants: Wants, state: &State, place: &(usize, usize)) -> Said {
    let found = state.get(place);
    let is_of_key = |body: &Value| key_text(body) == KEYS[place.0];
    let is_own = |body: &Value| body["id"] == IDS[place.1] && is_of_key(body);
    let is_refused = match act {
        Act::Create(body) | Act::Upsert(body) => !(is_ttl(body) && is_own(body)),
        Act::Replace(body) => !(is_ttl(body) && is_of_key(body)),
        _ => false,
    };
    if is_refused {
        return said(400);
    }
    let put = |status, body: &Value| Said {
        status,
        stored: Some(body.clone()),
        deletes: false,
    };
    match (act, found) {
        (Act::Create(_), Some(_)) => said(409),
        (Act::Create(body), None) => put(201, body),
        (Act::Upsert(_), _) if !wants.holds(found) => said(412),
        (Act::Upsert(body), _) => put(if found.is_some() { 200 } else { 201 }, body),
        (_, None) => said(404),
        (Act::Read, Some(_)) => said(200),
        (_, Some(_)) if !wants.holds(found) => said(412),
        (Act::Replace(body), Some(_)) => match place_of(body, *place) {
            other if other != *place && state.contains_key(&other) => said(409),
            _ => put(200, body),
        },
        (Act::Touch, Some(found)) => put(200, &found.body),
        (Act::Delete, Some(_)) => Said {
            status: 204,
            stored: None,
            deletes: true,
        },
        (Act::Patch(operations), Some(found)) => match patched(&found.body, operations) {
            Some(body) if is_ttl(&body) && is_own(&body) => put(200, &body),
            _ => said(400),
        },
    }
}

fn key_text(body: &Value) -> String {
    body.get("p")
        .map_or("[{}]".to_owned(), |value| format!("[{value}]"))
}

fn bytes(body: &Value) -> Vec<u8> {
    body.to_string().into_bytes()
}

fn patch_of(operations: &[Value]) -> Patch {
    Patch::from_json(Value::from(operations.to_vec()).to_string().as_bytes()).unwrap()
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let (clock, sim) = (ManualClock::new(START_MS), Sim::new(seed));
        let documents = open(&sim, &clock);
        documents.create_database("db").unwrap();
        let default = random.pick(&[None, Some(-1), Some(5), Some(60)]);
        let indexes = random.pick(&POLICIES);
        let c = documents
            .create_container("db", definition(default, indexes))
            .unwrap();
        World {
            random,
            clock,
            sim,
            documents,
            c,
            state: State::new(),
            default,
            indexes,
            ended: vec![],
            told: vec![],
            cursor: ExpiryCursor::start(),
            highest: 0,
        }
    }

    fn now(&self) -> u64 {
        ms(self.documents.engine().now())
    }

    /// With SHOW set, each step of a history.
    fn show(&self, step: &str) {
        if std::env::var_os("SHOW").is_some() {
            println!("{step}");
        }
    }

    /// Removes for ever what has expired by now. What a change of the default has ended ends with it.
    fn sweep(&mut self, is_of_change: bool) {
        let (now, default) = (self.now(), self.default);
        let ended = &mut self.ended;
        self.state.retain(|place, doc| match doc.end(default) {
            Some(end) if end <= now => {
                ended.push((doc.version, if is_of_change { now } else { end }, *place));
                false
            }
            _ => true,
        });
    }

    /// An end that was not told when its key is written again is told no more.
    fn written_again(&mut self, is_it: impl Fn((usize, usize)) -> bool) {
        let told = &self.told;
        self.ended
            .retain(|(version, _, place)| told.contains(version) || !is_it(*place));
    }

    fn place(&mut self) -> (usize, usize) {
        (self.random.below(KEYS.len()), self.random.below(IDS.len()))
    }

    fn body(&mut self, place: (usize, usize)) -> Value {
        let mut body = json!({"id": IDS[place.1], "n": self.random.below(20)});
        if place.0 > 0 {
            body["p"] = serde_json::from_str::<Value>(KEYS[place.0]).unwrap()[0].clone();
        }
        let ttls = [
            json!(-1),
            json!(5),
            json!(60),
            json!(7),
            json!(0),
            json!(null),
            json!(1.5),
            json!("60"),
        ];
        let which = if self.random.one_in(10) {
            self.random.below(8)
        } else {
            self.random.below(4)
        };
        if self.random.one_in(2) {
            body["ttl"] = ttls[which].clone();
        }
        if self.random.one_in(30) {
            body["id"] = "other".into();
        }
        if self.random.one_in(30) {
            body["p"] = "other".into();
        }
        body
    }

    fn patch(&mut self) -> Vec<Value> {
        let random = &mut self.random;
        let mut one = || match random.below(8) {
            0 => json!({"op": "incr", "path": "/n", "value": random.below(9)}),
            1 => json!({"op": "set", "path": "/m", "value": [random.below(9)]}),
            2 => json!({"op": "remove", "path": random.pick(&["/m", "/n", "/ttl", "/p"])}),
            3 => json!({"op": "set", "path": "/ttl", "value": random.pick(&[-1, 5, 0, 60])}),
            4 => json!({"op": "replace", "path": random.pick(&["/n", "/m"]), "value": "x"}),
            5 => json!({"op": "move", "from": random.pick(&["/n", "/m"]), "path": "/l"}),
            6 => json!({"op": "add", "path": "/p", "value": random.pick(&["a", "b"])}),
            _ => json!({"op": "add", "path": "/n", "value": 3}),
        };
        let first = one();
        let more = random_len(&first);
        [vec![first], (0..more).map(|_| one()).collect()].concat()
    }

    fn act(&mut self, place: (usize, usize)) -> (Act, Wants) {
        let act = match self.random.below(10) {
            0 | 1 => Act::Create(self.body(place)),
            2..=4 => Act::Upsert(self.body(place)),
            5 => {
                let mut body = self.body(place);
                if body["id"] == "other" || self.random.one_in(4) {
                    body["id"] = self.random.pick(&IDS).into();
                }
                Act::Replace(body)
            }
            6 => Act::Patch(self.patch()),
            7 => Act::Touch,
            8 => Act::Delete,
            _ => Act::Read,
        };
        let current = self.state.get(&place).map_or(1, |doc| doc.version);
        let past = self.ended.last().map_or(self.highest / 2, |ended| ended.0);
        let wants = match self.random.below(12) {
            0 => Wants::Match(current),
            1 => Wants::Match(past),
            2 => Wants::Any,
            3 => Wants::NoneMatch(current),
            4 => Wants::NoneMatch(past),
            5 => Wants::Absent,
            _ => Wants::Nothing,
        };
        (act, wants)
    }

    /// A document that was written is what the model stores.
    fn store(&mut self, of: (usize, usize), body: Value, document: &Document, now: u64) {
        let place = place_of(&body, of);
        if place != of {
            self.state.remove(&of);
        }
        let doc = Doc {
            body,
            version: document.version.as_u64(),
            written_ms: now,
        };
        assert!(doc.version > self.highest, "{doc:?}");
        assert_eq!(document.id, IDS[place.1], "{doc:?}");
        self.highest = doc.version;
        self.same(&doc, document);
        self.state.insert(place, doc);
        self.written_again(|other| other == place);
    }

    fn same(&self, doc: &Doc, document: &Document) {
        assert_eq!(document.to::<Value>().unwrap(), doc.body);
        assert_eq!(
            (document.version.as_u64(), ms(document.written_at)),
            (doc.version, doc.written_ms)
        );
        assert_eq!(
            document.expires_at.map(ms),
            doc.end(self.default),
            "{doc:?}"
        );
        assert_eq!(document.ts(), doc.written_ms / 1_000);
    }

    fn one(&mut self) {
        let place = self.place();
        let (act, wants) = self.act(place);
        let (key, id, conditions) = (partition_key(place.0), IDS[place.1], wants.conditions());
        let (c, now) = (self.c.clone(), self.now());
        self.show(&format!("{key} {id} {act:?} {wants:?}"));
        let done: Result<(u16, Option<Document>), ebbtide_documents::Error> = match &act {
            Act::Create(body) => c
                .create(&key, &bytes(body))
                .map(|document| (201, Some(document))),
            Act::Upsert(body) => c
                .upsert(&key, &bytes(body), &conditions)
                .map(|(document, created)| (if created { 201 } else { 200 }, Some(document))),
            Act::Replace(body) => c
                .replace(&key, id, &bytes(body), &conditions)
                .map(|document| (200, Some(document))),
            Act::Patch(operations) => c
                .patch(&key, id, &patch_of(operations), &conditions)
                .map(|document| (200, Some(document))),
            Act::Touch => c
                .touch(&key, id, &conditions)
                .map(|document| (200, Some(document))),
            Act::Delete => c.delete(&key, id, &conditions).map(|()| (204, None)),
            Act::Read => c.read(&key, id).map(|document| (200, Some(document))),
        };
        let of_body = |body: &Value| body["id"] == id && key_text(body) == KEYS[place.0];
        // An upsert of another id is one of that document, which the model does not have: it is not played.
        if let Act::Create(body) | Act::Upsert(body) = &act
            && body["id"] != id
            && is_ttl(body)
            && key_text(body) == KEYS[place.0]
        {
            let _ = c.delete(&key, "other", &Conditions::none());
            assert!(!of_body(body));
            self.highest = self.documents.engine().last_version().as_u64();
            return;
        }
        let said = judge(&act, wants, &self.state, &place);
        let status = done
            .as_ref()
            .map_or_else(ebbtide_documents::Error::status, |(status, _)| *status);
        assert_eq!(status, said.status, "{act:?} {wants:?} {done:?}");
        match (said.stored, done.ok().and_then(|(_, document)| document)) {
            (Some(body), Some(document)) => self.store(place, body, &document, now),
            (None, Some(document)) => self.same(&self.state[&place].clone(), &document),
            _ if said.deletes => drop(self.state.remove(&place)),
            (stored, _) => assert!(stored.is_none()),
        }
    }

    fn batch(&mut self) {
        let key = self.random.below(KEYS.len());
        let mut operations = vec![];
        for _ in 0..1 + self.random.below(6) {
            let place = (key, self.random.below(IDS.len()));
            let (mut act, wants) = self.act(place);
            if let Act::Touch = act {
                act = Act::Read;
            }
            if let Act::Create(body) | Act::Upsert(body) = &mut act {
                body["id"] = IDS[place.1].into();
            }
            operations.push((place, act, wants));
        }
        let as_given = operations.iter().map(|(place, act, wants)| {
            let (id, conditions) = (IDS[place.1].to_owned(), wants.conditions());
            match act {
                Act::Create(body) => BatchOperation::Create(bytes(body)),
                Act::Upsert(body) => BatchOperation::Upsert(bytes(body), conditions),
                Act::Replace(body) => BatchOperation::Replace(id, bytes(body), conditions),
                Act::Patch(operations) => {
                    BatchOperation::Patch(id, patch_of(operations), conditions)
                }
                Act::Delete => BatchOperation::Delete(id, conditions),
                Act::Touch | Act::Read => BatchOperation::Read(id, Conditions::none()),
            }
        });
        let (given, now) = (Vec::from_iter(as_given), self.now());
        let results = self.c.batch(&partition_key(key), &given).unwrap();
        if let Some((refused, status)) = self.refused(&operations) {
            let expected = |n: usize| if n == refused { status } else { 424 };
            let statuses: Vec<_> = results.iter().map(|result| result.status).collect();
            assert_eq!(
                statuses,
                Vec::from_iter((0..results.len()).map(expected)),
                "{operations:?}"
            );
            return;
        }
        for (at, (place, act, wants)) in operations.iter().enumerate() {
            let said = judge(act, *wants, &self.state, place);
            let result = &results[at];
            assert_eq!(
                result.status, said.status,
                "{operations:?} {at} {:?}",
                result.message
            );
            match (said.stored, &result.document) {
                (Some(body), Some(document)) => self.store(*place, body, document, now),
                (None, Some(document)) => self.same(&self.state[place].clone(), document),
                _ if said.deletes => drop(self.state.remove(place)),
                _ => panic!("{operations:?} {at}"),
            }
        }
    }

    /// The operation of a batch by which all are refused.
    fn refused(&self, operations: &[((usize, usize), Act, Wants)]) -> Option<(usize, u16)> {
        let mut state = self.state.clone();
        for (at, (place, act, wants)) in operations.iter().enumerate() {
            let said = judge(act, *wants, &state, place);
            if said.status >= 400 {
                return Some((at, said.status));
            }
            if let Some(body) = said.stored {
                // No condition is about a version that nobody knows.
                let doc = Doc {
                    body,
                    version: u64::MAX,
                    written_ms: 0,
                };
                let to = place_of(&doc.body, *place);
                state.remove(place);
                state.insert(to, doc);
            } else if said.deletes {
                state.remove(place);
            }
        }
        None
    }

    fn set_default(&mut self) {
        let default = self.random.pick(&[None, Some(-1), Some(5), Some(60)]);
        if self.random.one_in(2) {
            self.indexes = self.random.pick(&POLICIES);
        }
        self.documents
            .replace_container("db", definition(default, self.indexes))
            .unwrap();
        self.default = default;
        self.sweep(true);
    }

    /// The container is made anew, with everything in it gone.
    fn recreate(&mut self) {
        self.documents.delete_container("db", "c").unwrap();
        self.c = self
            .documents
            .create_container("db", definition(self.default, self.indexes))
            .unwrap();
        self.state.clear();
        (self.ended, self.told, self.cursor) = (vec![], vec![], ExpiryCursor::start());
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
        self.documents = open(&self.sim, &self.clock);
        self.c = self.documents.container("db", "c").unwrap();
        assert_eq!(
            self.c.to_json(),
            self.documents.containers("db").unwrap()[0].to_json()
        );
    }

    fn delete_partition(&mut self) {
        let key = self.random.below(KEYS.len());
        self.c.delete_partition(&partition_key(key)).unwrap();
        self.state.retain(|place, _| place.0 != key);
        self.written_again(|place| place.0 == key);
    }

    /// Everything that reads, against the model.
    fn look(&mut self) {
        let mut from = None;
        let mut listed = vec![];
        loop {
            let page = self
                .c
                .list(
                    &Scope::everything(),
                    1 + self.random.below(4),
                    from.as_ref(),
                )
                .unwrap();
            listed.extend(page.documents);
            from = page.continuation;
            if from.is_none() {
                break;
            }
        }
        assert_eq!(listed.len(), self.state.len());
        for ((place, doc), document) in self.state.iter().zip(&listed) {
            assert_eq!(IDS[place.1], document.id);
            self.same(doc, document);
        }
        let key = self.random.below(KEYS.len());
        let query = "SELECT VALUE [c.id, c.n] FROM c WHERE c.n >= 10 AND c.id != '12'";
        let (scope, limits) = (Scope::partition(partition_key(key)), QueryLimits::default());
        let rows = self
            .c
            .query(query, &[], &scope, &limits, None)
            .unwrap()
            .rows;
        let is_row = |(place, doc): &(&(usize, usize), &Doc)| {
            place.0 == key
                && doc.body["n"].as_i64().is_some_and(|n| n >= 10)
                && doc.body["id"] != "12"
        };
        let expected = self
            .state
            .iter()
            .filter(is_row)
            .map(|(_, doc)| json!([doc.body["id"], doc.body["n"]]).to_string());
        assert_eq!(rows, Vec::from_iter(expected));
        let count = self
            .c
            .query_as::<usize>("SELECT VALUE COUNT(1) FROM c", &[], &Scope::everything())
            .unwrap();
        assert_eq!(count, [self.state.len()]);
        self.look_at_feeds();
        self.look_at_entries();
    }

    /// Each document has its entries, which end with it, and there are no others.
    fn look_at_entries(&mut self) {
        let whole = |path: &&str| (vec![(*path).to_owned()], true);
        let indexes = Vec::from_iter(self.indexes.iter().map(whole));
        assert_eq!(self.c.indexes(), indexes);
        let engine = self.documents.engine();
        let name = format!("{}#index", self.c.rid());
        assert_eq!(engine.containers().contains(&name), !indexes.is_empty());
        if indexes.is_empty() {
            return;
        }
        let mut expected = vec![];
        for item in self.c.items().iter() {
            let item = item.unwrap();
            let life = (item.written_at(), item.ttl(), item.expires_at());
            expected.extend(indexes.iter().map(|_| (item.key().to_vec(), life)));
        }
        let mut found = vec![];
        for entry in engine.container(&name).unwrap().iter() {
            let entry = entry.unwrap();
            let life = (entry.written_at(), entry.ttl(), entry.expires_at());
            let is_of = |(key, _): &&(Vec<u8>, _)| entry.key().ends_with(key);
            let (key, _) = expected.iter().find(is_of).expect("a document");
            found.push((key.clone(), life));
        }
        let key = |(key, _): &(Vec<u8>, _)| key.clone();
        expected.sort_by_key(key);
        found.sort_by_key(key);
        assert_eq!(found, expected);
    }

    fn look_at_feeds(&mut self) {
        let mut by_version: Vec<_> = self.state.values().map(|doc| doc.version).collect();
        by_version.sort_unstable();
        let since = by_version.get(self.random.below(3)).copied().unwrap_or(0);
        by_version.retain(|version| *version > since);
        let mut start = ChangeStart::of_all(ChangeStartAt::After(Version::from_u64(since)));
        let mut changed = vec![];
        loop {
            let page = self.c.changes(&start, 1 + self.random.below(3)).unwrap();
            changed.extend(
                page.documents
                    .iter()
                    .map(|document| document.version.as_u64()),
            );
            start.at = ChangeStartAt::After(page.version);
            if !page.has_more {
                break;
            }
        }
        assert_eq!(changed, by_version);
        let page = self.c.ends(&self.cursor, 100).unwrap();
        self.cursor = page.cursor;
        assert!(page.ends.iter().all(|end| end.time_to_live_expired));
        self.told
            .extend(page.ends.iter().map(|end| end.document.version.as_u64()));
        // An end is told when its millisecond is over.
        let now = self.now();
        let over = self.ended.iter().filter(|(_, end, _)| *end < now);
        let mut over: Vec<_> = over.map(|(version, ..)| *version).collect();
        over.sort_unstable();
        self.told.sort_unstable();
        assert_eq!(self.told, over);
    }

    fn step(&mut self) {
        self.sweep(false);
        let which = self.random.below(100);
        self.show(&format!("{which} at {} of {:?}", self.now(), self.default));
        match which {
            0..=54 => self.one(),
            55..=69 => self.batch(),
            70..=81 => {
                let by = self
                    .random
                    .pick(&[1, 999, 1_000, 4_999, 5_000, 7_000, 60_000]);
                self.clock.advance(Duration::from_millis(by));
            }
            82..=84 => self.set_default(),
            85..=86 => self.delete_partition(),
            87 => self.recreate(),
            88..=90 => self.reopen(),
            91..=93 => drop(self.documents.engine().flush()),
            _ => self.look(),
        }
    }
}

/// 0 to 2, by what came first: the generator is borrowed.
fn random_len(first: &Value) -> usize {
    first.to_string().len() % 3
}

fn play(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step();
    }
    world.sweep(false);
    world.look();
    world.reopen();
    world.sweep(false);
    world.look();
}

#[test]
fn every_history() {
    let (first, histories) = (
        testkit::env("SEED", 1),
        testkit::env("HISTORIES", HISTORIES),
    );
    for seed in first..first + histories {
        let played = std::panic::catch_unwind(|| play(seed));
        if let Err(panic) = played {
            panic!("seed {seed}: {}", testkit::panic_text(&*panic)); // SEED and HISTORIES=1 play it alone
        }
    }
}
