//! Documents over replicas: two handles that share nothing but a state, as the servers of two nodes do; and what others write
//! between a decision and its commit, or between the beginning of a request and its feed. The state is one database of the engine,
//! which does the writes as a cluster does them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use ebbtide::{
    Batch, ContainerOptions, Database, Expect, Expiration, ExpiryCursor, ManualClock, Options,
    Quota, Snapshot, Ttl, Version,
};
use ebbtide_documents::{
    BatchOperation, ChangeStart, ChangeStartAt, Commit, Conditions, ContainerDefinition,
    ContainerSettings, Document, Documents, Patch, QueryLimits, Replica, Result, Scope, Write,
};

use super::{START_MS, body, container, key, refused, seconds};

pub type Meanwhile = Box<dyn FnOnce() + Send>;

/// A replica of the one state, and what others do before its next commit.
pub struct OneOf {
    engine: Database,
    pub meanwhile: Mutex<Option<Meanwhile>>,
    /// The same before its reads are renewed the next time.
    pub renewed: Mutex<Option<Meanwhile>>,
    /// The snapshot that the reads of a request are of.
    request: Mutex<Option<Snapshot>>,
    /// The commits that it has been asked for.
    pub commits: AtomicUsize,
    /// From this one on they fail, as if the node was lost.
    pub is_lost_at: AtomicUsize,
    pub is_old: AtomicBool,
}

impl OneOf {
    /// Documents over a replica of the state in an engine, which shares nothing with other ones but that.
    pub fn over(engine: &Database) -> (Documents, Arc<OneOf>) {
        let replica = Arc::new(OneOf {
            engine: engine.clone(),
            meanwhile: Mutex::default(),
            renewed: Mutex::default(),
            request: Mutex::default(),
            commits: AtomicUsize::new(0),
            is_lost_at: AtomicUsize::new(usize::MAX),
            is_old: AtomicBool::new(false),
        });
        (Documents::over(replica.clone()).unwrap(), replica)
    }

    /// Begins a request, whose reads are of one moment until they are renewed.
    pub fn begin(&self) {
        *self.request.lock().unwrap() = Some(self.engine.snapshot());
    }
}

impl Replica for OneOf {
    fn engine(&self) -> &Database {
        &self.engine
    }

    fn container(&self, name: &str) -> Option<ebbtide::Container> {
        let known = self.engine.containers();
        let is_there = known.iter().any(|known| known == name);
        let kept = ContainerOptions::new().or_keep();
        is_there.then(|| self.engine.container_with(name, kept).unwrap())
    }

    fn quota(&self, name: &str) -> Option<Quota> {
        self.container(name)?.quota()
    }

    fn snapshot(&self) -> Result<Snapshot> {
        let of_request = self.request.lock().unwrap().clone();
        Ok(of_request.unwrap_or_else(|| self.engine.snapshot()))
    }

    fn takes_put_like(&self) -> bool {
        !self.is_old.load(Ordering::Relaxed)
    }

    fn renew(&self) -> Result<()> {
        let meanwhile = self.renewed.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        *self.request.lock().unwrap() = None;
        Ok(())
    }

    fn ends(
        &self,
        container: &str,
        from: &ExpiryCursor,
        most: usize,
    ) -> Result<(Vec<Expiration>, ExpiryCursor)> {
        let container = self.container(container).unwrap();
        let mut ends = container.expirations(from.clone());
        let given: ebbtide::Result<_> = ends.by_ref().take(most).collect();
        Ok((given?, ends.cursor()))
    }

    fn now(&self) -> SystemTime {
        self.engine.now()
    }

    fn commit(&self, writes: Vec<Write>) -> Result<Commit> {
        let number = self.commits.fetch_add(1, Ordering::Relaxed);
        if number >= self.is_lost_at.load(Ordering::Relaxed) {
            return Err(self.engine.container("").unwrap_err().into());
        }
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        // Reads of the request go on in a snapshot that has it.
        *self.request.lock().unwrap() = None;
        if writes.iter().any(|write| !self.has_containers(write)) {
            return Ok(Commit::Conflict);
        }
        let mut batch = Batch::new();
        let (conditions, writes): (Vec<_>, Vec<_>) = writes
            .into_iter()
            .partition(|write| matches!(write, Write::Require(..)));
        let (items, containers): (Vec<_>, Vec<_>) = writes.into_iter().partition(|write| {
            matches!(
                write,
                Write::Put(..) | Write::PutLike(..) | Write::Delete(..) | Write::Expire(..)
            )
        });
        let lifts = |write: &Write| match write {
            Write::Change(name, settings) if settings.quota.is_none() => Some(name.clone()),
            _ => None,
        };
        let lifted: Vec<String> = containers.iter().filter_map(lifts).collect();
        for write in conditions.into_iter().chain(containers).chain(items) {
            self.add(&mut batch, write);
        }
        match self.engine.commit(&batch) {
            Ok(written) => {
                // No batch of the engine lifts one.
                for name in lifted {
                    self.container(&name).unwrap().set_quota(None)?;
                }
                Ok(Commit::Done(written.into()))
            }
            Err(error) if error.is_conflict() => Ok(Commit::Conflict),
            Err(error) => Err(error.into()),
        }
    }
}

fn options(settings: ContainerSettings) -> ContainerOptions {
    let options = ContainerOptions::new()
        .default_ttl(settings.default_ttl)
        .keep_expired(settings.keep_expired);
    match settings.quota {
        Some(quota) => options
            .max_live_bytes(quota.max_live_bytes)
            .when_full(quota.when_full),
        None => options,
    }
}

impl OneOf {
    /// As a cluster judges before it looks at conditions.
    fn has_containers(&self, write: &Write) -> bool {
        let has = |name: &str| self.container(name).is_some();
        match write {
            Write::PutLike(name, .., like, _) => has(name) && has(like),
            Write::Create(name, _) => !has(name),
            Write::Require(name, ..)
            | Write::Put(name, ..)
            | Write::Expire(name, ..)
            | Write::Delete(name, _)
            | Write::DeleteRange(name, ..)
            | Write::Change(name, _)
            | Write::Drop(name) => has(name),
        }
    }

    fn add(&self, batch: &mut Batch, write: Write) {
        let of = |name: &str| self.container(name).unwrap();
        match write {
            Write::Require(name, key, version) => {
                let expect = version.map_or(Expect::Absent, Expect::Version);
                batch.require(of(&name), key, expect)
            }
            Write::Put(name, key, value, ttl) => batch.put_with_ttl(of(&name), key, value, ttl),
            Write::PutLike(name, key, value, like, like_key) => {
                let item = of(&like).item(like_key).unwrap();
                let ttl = item.map_or(Ttl::Never, |item| Ttl::Like(&item));
                batch.put_with_ttl(of(&name), key, value, ttl)
            }
            Write::Expire(name, key, ttl) => batch.expire(of(&name), key, ttl),
            Write::Delete(name, key) => batch.delete(of(&name), key),
            Write::DeleteRange(name, from, to) => batch.delete_range(of(&name), (from, to)),
            Write::Create(name, settings) => batch.create_container(name, options(settings)),
            Write::Change(name, settings) => {
                batch.create_container(name, options(settings).or_change())
            }
            Write::Drop(name) => batch.drop_container(name),
        };
    }
}

/// Two handles of one state with a database `db`, the first one's replica, and the clock.
pub fn two() -> (Documents, Documents, Arc<OneOf>, ManualClock) {
    let clock = ManualClock::new(START_MS);
    let engine = Options::new()
        .clock(clock.clone())
        .open_temporary()
        .unwrap();
    let ((one, first), (two, _)) = (OneOf::over(&engine), OneOf::over(&engine));
    one.create_database("db").unwrap();
    (one, two, first, clock)
}

/// A document as clients see it, and its end.
fn told(document: &Document) -> (String, Option<SystemTime>) {
    let mut json = vec![];
    document.write_json(&mut json);
    (String::from_utf8(json).unwrap(), document.expires_at)
}

fn ids(container: &ebbtide_documents::Container, query: &str) -> Vec<String> {
    let rows = container.query(
        query,
        &[],
        &Scope::everything(),
        &QueryLimits::default(),
        None,
    );
    rows.unwrap().rows
}

#[test]
fn what_one_has_made_changed_or_dropped_all_see() {
    let (one, two, ..) = two();
    assert_eq!(two.databases().unwrap(), one.databases().unwrap());
    refused(two.create_database("db"), 409);
    let at_one = container(&one, "");
    refused(
        two.create_container("db", ContainerDefinition::new("c", "/p")),
        409,
    );
    let at_two = two.container("db", "c").unwrap();
    assert_eq!(at_two.to_json(), at_one.to_json());
    let made = at_two.create(&key(), &body("1", "")).unwrap();
    assert_eq!(told(&at_one.read(&key(), "1").unwrap()), told(&made));
    assert_eq!(made.expires_at, None);

    let mut definition = (*at_two.definition()).clone();
    definition.default_ttl = "1h".parse().unwrap();
    let replaced = two.replace_container("db", definition).unwrap();
    let seen = one.container("db", "c").unwrap();
    assert_eq!(seen.to_json(), replaced.to_json());
    let ends = at_one.read(&key(), "1").unwrap().expires_at;
    assert_eq!(ends, made.written_at.checked_add(seconds(3_600)));

    one.delete_container("db", "c").unwrap();
    refused(two.container("db", "c"), 404);
    assert_eq!(refused(at_two.read(&key(), "1"), 404).sub_status(), 1003);
    let gone = refused(at_two.create(&key(), &body("2", "")), 404);
    assert_eq!(gone.sub_status(), 1003);
    let anew = container(&two, "");
    assert_ne!(anew.rid(), at_one.rid());
    refused(one.container("db", "c").unwrap().read(&key(), "1"), 404);
    two.delete_database("db").unwrap();
    refused(one.container("db", "c"), 404);
    assert_eq!(one.databases().unwrap(), []);
    assert_eq!(one.engine().containers(), ["documents"]);
}

#[test]
fn what_others_write_before_a_commit_is_seen_by_it() {
    let (one, two, replica, clock) = two();
    let c = container(&one, ",\"defaultTtl\":-1");
    let other = two.container("db", "c").unwrap();
    let meanwhile = |does: Box<dyn Fn(&ebbtide_documents::Container) + Send>| {
        let other = other.clone();
        let once: Meanwhile = Box::new(move || does(&other));
        *replica.meanwhile.lock().unwrap() = Some(once);
    };
    let writes = |text: &'static str| -> Box<dyn Fn(&ebbtide_documents::Container) + Send> {
        Box::new(move |other| {
            let body = body("1", text);
            other.upsert(&key(), &body, &Conditions::none()).unwrap();
        })
    };
    meanwhile(writes(",\"n\":1"));
    refused(c.create(&key(), &body("1", "")), 409);

    let incr = br#"[{"op":"incr","path":"/n","value":10}]"#;
    let incr = Patch::from_json(incr).unwrap();
    meanwhile(writes(",\"n\":2"));
    let patched = c.patch(&key(), "1", &incr, &Conditions::none()).unwrap();
    assert!(std::str::from_utf8(patched.body()).unwrap().contains(":12"));

    let condition = Conditions::if_match(patched.version);
    meanwhile(writes(",\"n\":3"));
    refused(
        c.replace(&key(), "1", &body("1", ",\"n\":4"), &condition),
        412,
    );
    meanwhile(writes(",\"n\":4"));
    refused(c.delete(&key(), "1", &condition), 412);
    meanwhile(writes(",\"n\":5"));
    let operations = br#"[{"operationType":"Patch","id":"1","resourceBody":{"operations":[{"op":"incr","path":"/n","value":10}]}},
        {"operationType":"Create","resourceBody":{"id":"2","p":"k"}}]"#;
    let operations = BatchOperation::from_json(operations).unwrap();
    let results = c.batch(&key(), &operations).unwrap();
    let statuses: Vec<_> = results.iter().map(|result| result.status).collect();
    assert_eq!(statuses, [200, 201]);
    assert_eq!(ids(&c, "SELECT VALUE c.n FROM c WHERE c.n > 0"), ["15"]);
    let of_batch = results.last().unwrap().document.clone().unwrap();
    assert_eq!(told(&c.read(&key(), "2").unwrap()), told(&of_batch));

    // It ends before the commit: what was decided by it is decided anew.
    c.upsert(&key(), &body("1", ",\"ttl\":10"), &Conditions::none())
        .unwrap();
    let end = clock.clone();
    meanwhile(Box::new(move |_| end.advance(seconds(10))));
    refused(c.touch(&key(), "1", &Conditions::none()), 404);
    meanwhile(Box::new(|other| {
        other.delete_partition(&key()).unwrap();
    }));
    refused(c.delete(&key(), "2", &Conditions::none()), 404);
}

#[test]
fn a_container_that_comes_while_its_database_goes_goes_with_it() {
    let (one, two, replica, _) = two();
    container(&one, "");
    let other: Meanwhile = Box::new(move || {
        two.create_container("db", ContainerDefinition::new("d", "/p"))
            .unwrap();
    });
    *replica.meanwhile.lock().unwrap() = Some(other);
    one.delete_database("db").unwrap();
    assert_eq!(one.engine().containers(), ["documents"]);
    one.create_database("db").unwrap();
    assert!(one.containers("db").unwrap().is_empty());
}

#[test]
fn documents_end_alike_and_records_are_shared() {
    let (one, two, _, clock) = two();
    let c = container(&one, ",\"defaultTtl\":10");
    let other = two.container("db", "c").unwrap();
    c.create(&key(), &body("1", "")).unwrap();
    c.create(&key(), &body("2", ",\"ttl\":-1")).unwrap();
    clock.advance(seconds(9));
    let touched = other.read_and_touch(&key(), "1").unwrap();
    clock.advance(seconds(9));
    assert_eq!(told(&c.read(&key(), "1").unwrap()), told(&touched));
    clock.advance(seconds(1));
    for of in [&c, &other] {
        refused(of.read(&key(), "1"), 404);
        assert_eq!(ids(of, "SELECT VALUE c.id FROM c"), ["\"2\""]);
    }
    let [at_one, at_two] = [&one, &two].map(|documents| documents.records("offers"));
    assert!(at_two.item("a").unwrap().is_none() && at_two.all().unwrap().is_empty());
    at_two.delete("a").unwrap();
    at_one.put("a", "400").unwrap();
    at_two.put("b", "500").unwrap();
    assert_eq!(at_two.item("a").unwrap().unwrap().value(), "400");
    at_two.delete("a").unwrap();
    assert_eq!(at_one.all().unwrap().len(), 1);
}

/// Each page is of a request that began before others wrote, and goes on where a page of the other replica ended: a copy that is
/// kept by them has what is there, and no version that is there is told twice.
#[test]
fn a_copy_by_pages_of_two_replicas_is_what_is_there() {
    let (one, two, first, clock) = two();
    let c = container(&one, ",\"defaultTtl\":-1");
    let other = two.container("db", "c").unwrap();
    let mut random = testkit::random::Random(17);
    let (mut copy, mut at) = (BTreeMap::new(), ChangeStartAt::Beginning);
    for round in 0..300 {
        first.begin();
        for _ in 0..random.below(6) {
            let id = random.below(12).to_string();
            let ttl = format!(",\"n\":{round},\"ttl\":{}", 1 + random.below(9));
            let written = match random.below(4) {
                0 => other.delete(&key(), &id, &Conditions::none()),
                1 => other.touch(&key(), &id, &Conditions::none()).map(drop),
                2 => other
                    .upsert(&key(), &body(&id, ""), &Conditions::none())
                    .map(drop),
                _ => other
                    .upsert(&key(), &body(&id, &ttl), &Conditions::none())
                    .map(drop),
            };
            let _ = written.map_err(|error| assert_eq!(error.status(), 404));
        }
        clock.advance(seconds(random.below(2) as u64));
        let page =
            [&c, &other][random.below(2)].changes(&ChangeStart::of_all(at), 1 + random.below(4));
        let page = page.unwrap();
        let mut last = match at {
            ChangeStartAt::After(version) => version,
            _ => Version::start(),
        };
        for document in page.documents {
            assert!(document.version > last && document.version <= page.version);
            last = document.version;
            copy.insert(document.id.clone(), told(&document));
        }
        at = ChangeStartAt::After(page.version);
        first.renew().unwrap();
        if !page.has_more {
            let there = c.list(&Scope::everything(), 100, None).unwrap().documents;
            let there: BTreeMap<_, _> = there.iter().map(|d| (d.id.clone(), told(d))).collect();
            copy.retain(|id, _| there.contains_key(id));
            assert_eq!(copy, there, "round {round}");
        }
    }
}

#[test]
fn feeds_begin_with_what_is_written_after_them_and_ends_are_told() {
    let (one, two, first, clock) = two();
    let c = container(&one, ",\"defaultTtl\":-1");
    let other = two.container("db", "c").unwrap();
    c.create(&key(), &body("1", "")).unwrap();
    first.begin();
    other.create(&key(), &body("2", ",\"ttl\":5")).unwrap();
    let now = c
        .changes(&ChangeStart::of_all(ChangeStartAt::Now), 10)
        .unwrap();
    assert!(now.documents.is_empty());
    other.create(&key(), &body("3", "")).unwrap();
    let after = ChangeStart::of_all(ChangeStartAt::After(now.version));
    let page = c.changes(&after, 10).unwrap();
    assert_eq!(page.documents.len(), 1);
    assert_eq!(page.documents[0].id, "3");

    // Another replica may be ahead of this one.
    let ahead = Version::from_u64(page.version.as_u64() + 1_000);
    let ahead = ChangeStart::of_all(ChangeStartAt::After(ahead));
    let page = c.changes(&ahead, 10).unwrap();
    assert_eq!(ChangeStartAt::After(page.version), ahead.at);
    assert!(page.documents.is_empty() && !page.has_more);

    c.items().set_keep_expired(seconds(60)).unwrap();
    clock.advance(seconds(6));
    let ends = c.ends(&ExpiryCursor::start(), 10).unwrap();
    assert_eq!(ends.ends[0].document.id, "2");
    assert!(ends.ends[0].time_to_live_expired && ends.ends.len() == 1);
    assert!(other.ends(&ends.cursor, 10).unwrap().ends.is_empty());

    one.delete_container("db", "c").unwrap();
    let gone = refused(other.changes(&after, 10), 404);
    assert_eq!(gone.sub_status(), 1003);
}

#[test]
fn policies_are_those_of_all_replicas() {
    let (one, two, ..) = two();
    let policy = ",\"indexingPolicy\":{\"includedPaths\":[{\"path\":\"/n/?\"}],\"excludedPaths\":[{\"path\":\"/*\"}]}";
    let c = container(&one, policy);
    let seen = two.container("db", "c").unwrap();
    let json: serde_json::Value = serde_json::from_str(&seen.to_json()).unwrap();
    assert_eq!(json["indexingPolicy"]["includedPaths"][0]["path"], "/n/?");
    assert_eq!(seen.indexes(), [(vec!["n".to_owned()], true)]);
    for n in [3, 1, 2] {
        let body = body(&n.to_string(), &format!(",\"n\":{n}"));
        c.create(&key(), &body).unwrap();
    }
    let ordered = ids(&seen, "SELECT VALUE c.n FROM c WHERE c.n > 1 ORDER BY c.n");
    assert_eq!(ordered, ["2", "3"]);
    let page = seen.list(&Scope::everything(), 2, None).unwrap();
    assert_eq!(page.documents.len(), 2);
}

#[test]
fn quotas_and_retention_are_those_of_all_replicas() {
    let (one, two, _, clock) = two();
    let retention = ",\"defaultTtl\":-1,\"changeFeedPolicy\":{\"retentionDuration\":10}";
    let c = container(&one, &format!("{retention},\"maxLiveBytes\":1000"));
    let other = two.container("db", "c").unwrap();
    assert_eq!(other.definition().max_live_bytes, Some(1_000));
    assert_eq!(other.to_json(), c.to_json());
    let wide = format!(",\"ttl\":5,\"x\":\"{}\"", "x".repeat(600));
    other.create(&key(), &body("1", &wide)).unwrap();
    let full = refused(c.create(&key(), &body("2", &wide)), 403);
    assert_eq!(full.sub_status(), 1014);
    clock.advance(seconds(300));
    let ends = other.ends(&ExpiryCursor::start(), 10).unwrap().ends;
    assert_eq!(ends[0].document.id, "1");
    c.create(&key(), &body("2", &wide)).unwrap();

    let mut definition = (*c.definition()).clone();
    definition.max_live_bytes = Some(3_000);
    two.replace_container("db", definition.clone()).unwrap();
    let c = one.container("db", "c").unwrap();
    assert_eq!(c.definition().max_live_bytes, Some(3_000));
    c.create(&key(), &body("3", &wide)).unwrap();
    definition.max_live_bytes = None;
    definition.other.clear();
    one.replace_container("db", definition).unwrap();
    let other = two.container("db", "c").unwrap();
    assert_eq!(other.definition().max_live_bytes, None);
    assert_eq!(other.items().keep_expired(), seconds(0));
}
