//! Documents over a node: what they read and write, asked of the cluster.
//!
//! ```text
//! a request   its first read ── at the level of the request, since its session token ──> a snapshot, which all its reads are of
//!             a write ──> one op with its conditions ──> done: reads go on in a snapshot that has it
//!                                                    └─> a condition does not hold: reads go on in a linearizable one
//! the answer  <── the session token of all that the request saw: N:-1#INDEX#0=MOMENT
//! ```
//!
//! Invariants:
//!
//! 1. A request that may write, or that names no session and no level, is linearizable: its snapshot is no older than the request,
//!    and than what it lost a write to.
//! 2. No answer is of an earlier entry or an earlier moment than the session token of its request says. Its own token says what it
//!    saw, so an SDK that merges both, as each does, keeps the promise for its next request.
//! 3. Reads of a session see an end at most [`SESSION`] late, those that ask for less at most [`WEAK`]: else they are linearizable.
//! 4. A feed is of one state of the node: where a snapshot has come meanwhile, its client is to ask again.
//! 5. Requests are worked on by threads of their own, each from beginning to end: what is known of one is the thread's.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::{Container, Database, Expiration, ExpiryCursor, Quota};
use ebbtide_cluster::{Answered, Batch, Error, Expect, Node, ReadLevel, Snapshot, Token, shared};
use ebbtide_documents::{Commit, Committed, ContainerSettings, ErrorKind, Replica, Result, Write};
use tokio::runtime::Handle;

use crate::handle::writes_nothing;
use crate::request::Request;

/// By the leader's clock, a read of a session is at most so old. It is the time for which a leader's promise holds without an entry.
const SESSION: ReadLevel = ReadLevel::Bounded(Duration::from_millis(200));
/// The same of levels below: Cosmos DB's smallest bound of one region.
const WEAK: ReadLevel = ReadLevel::Bounded(Duration::from_secs(5));
const SESSION_HEADER: &str = "x-ms-session-token";

/// A request under way.
struct Under {
    level: ReadLevel,
    /// All that it was told to see and has seen.
    since: Token,
    has_seen: bool,
    snapshot: Option<Arc<Snapshot>>,
    /// The moment of the last snapshot.
    now: SystemTime,
}

thread_local! {
    /// The one that this thread works on.
    static UNDER: RefCell<Option<Under>> = const { RefCell::new(None) };
}

fn under<T>(change: impl FnOnce(&mut Under) -> T) -> Option<T> {
    UNDER.with_borrow_mut(|under| under.as_mut().map(change))
}

/// Works on a request; returns the token of what it saw, if it saw anything.
pub(crate) fn work_on<T>(request: &Request, work: impl FnOnce() -> T) -> (T, Option<Token>) {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            UNDER.set(None);
        }
    }
    let since = request.header(SESSION_HEADER).and_then(parsed);
    let level = level(request, since.is_some());
    UNDER.set(Some(Under {
        level,
        since: since.unwrap_or_default(),
        has_seen: false,
        snapshot: None,
        now: UNIX_EPOCH,
    }));
    // A panic ends the request, too.
    let _end = End;
    let done = work();
    let seen = under(|under| under.has_seen.then_some(under.since));
    (done, seen.flatten())
}

fn level(request: &Request, has_session: bool) -> ReadLevel {
    if !writes_nothing(request) {
        return ReadLevel::Linearizable;
    }
    match request.header("x-ms-consistency-level") {
        Some("Eventual" | "ConsistentPrefix" | "BoundedStaleness") => WEAK,
        Some("Session") | None if has_session => SESSION,
        _ => ReadLevel::Linearizable,
    }
}

/// The places in the history of the cluster that a session token names, the later of each part; none where a part is no token of
/// a cluster's. SDKs join those of several partitions by commas.
fn parsed(text: &str) -> Option<Token> {
    let of_partition = |text: &str| {
        let (_, vector) = text.trim().split_once(':')?;
        let (index, at_ms) = vector.strip_prefix("-1#")?.split_once("#0=")?;
        Some(Token {
            index: index.parse().ok()?,
            at_ms: at_ms.parse().ok()?,
        })
    };
    let mut all = Token::default();
    for part in text.split(',') {
        all = all.max(of_partition(part)?);
    }
    Some(all)
}

/// The header of an answer, which names the partition of its request, as a token of a cluster.
pub(crate) fn tokened(header: &str, token: Token) -> String {
    let partition = header.split(':').next().unwrap_or("0");
    let Token { index, at_ms } = token;
    format!("{partition}:-1#{index}#0={at_ms}")
}

pub(crate) fn is_session(header: &str) -> bool {
    header == SESSION_HEADER
}

/// See the file's head.
pub(crate) struct OfNode {
    node: Node,
    runtime: Handle,
    engine: Database,
    /// The node took [`Write::PutLike`] when this was made.
    took_put_like: bool,
}

impl OfNode {
    pub fn new(node: Node, runtime: Handle) -> OfNode {
        OfNode {
            engine: shared::database(&node),
            took_put_like: shared::takes_put_like(&node),
            node,
            runtime,
        }
    }

    /// Whether the node has this state still. Another one takes its place when a snapshot comes.
    pub fn is_of_now(&self) -> bool {
        shared::database(&self.node).path() == self.engine.path()
    }

    /// Whether handles that were made over it are without indexes that may be kept by now.
    pub fn is_outgrown(&self) -> bool {
        !self.took_put_like && shared::takes_put_like(&self.node)
    }

    fn take(&self) -> Result<Arc<Snapshot>> {
        if let Some(kept) = under(|under| under.snapshot.clone()).flatten() {
            return Ok(kept);
        }
        let (level, since) = under(|under| (under.level, under.since)).unwrap_or_default();
        let taken = self.node.snapshot(level, since);
        let taken = self.runtime.block_on(taken);
        taken.map(keep).map_err(failed)
    }

    /// A snapshot of this node with what was written, whose token this is.
    fn take_with(&self, written: Token) -> Result<()> {
        under(|under| (under.since, under.has_seen) = (under.since.max(written), true));
        let taken = self.node.snapshot(ReadLevel::Local, written);
        match self.runtime.block_on(taken) {
            Ok(taken) => {
                keep(taken);
                Ok(())
            }
            Err(error) => {
                let message = format!("It was done, but this node cannot show it: {error}.");
                let kind = ErrorKind::RequestTimeout;
                Err(ebbtide_documents::Error::new(kind, message))
            }
        }
    }

    fn batch(&self, writes: Vec<Write>) -> Batch {
        let mut batch = Batch::new();
        for write in writes {
            self.add(&mut batch, write);
        }
        batch
    }

    fn add(&self, batch: &mut Batch, write: Write) {
        let of = |name: &str| self.node.container(name);
        match write {
            Write::Require(name, key, version) => {
                let expect = version.map_or(Expect::Absent, Expect::Version);
                batch.require(&of(&name), key, expect);
            }
            Write::Put(name, key, value, ttl) => {
                batch.put_with_ttl(&of(&name), key, value, ttl);
            }
            Write::PutLike(name, key, value, like, like_key) => {
                batch.put_like(&of(&name), key, value, &of(&like), like_key);
            }
            Write::Expire(name, key, ttl) => {
                batch.expire(&of(&name), key, ttl);
            }
            Write::Delete(name, key) => {
                batch.delete(&of(&name), key);
            }
            Write::DeleteRange(name, from, to) => {
                batch.delete_range(&of(&name), (from, to));
            }
            Write::Create(name, settings) => {
                let ContainerSettings {
                    default_ttl,
                    keep_expired,
                    quota,
                } = settings;
                batch.create_container_with(name, default_ttl, keep_expired, quota);
            }
            Write::Change(name, settings) => {
                let of = of(&name);
                batch.set_default_ttl(&of, settings.default_ttl);
                batch.set_keep_expired(&of, settings.keep_expired);
                batch.set_quota(&of, settings.quota);
            }
            Write::Drop(name) => {
                batch.drop_container(name);
            }
        }
    }
}

/// For the reads of the request from now on.
fn keep(taken: Answered<Snapshot>) -> Arc<Snapshot> {
    let snapshot = Arc::new(taken.value);
    under(|under| {
        under.since = under.since.max(taken.token);
        under.has_seen = true;
        under.now = taken.at;
        under.snapshot = Some(snapshot.clone());
    });
    snapshot
}

fn failed(error: Error) -> ebbtide_documents::Error {
    let kind = match error {
        Error::NoContainer(_) => {
            let gone = "The container was deleted.";
            return ebbtide_documents::Error::new(ErrorKind::NotFound, gone).with_sub_status(1003);
        }
        Error::Engine(engine) => return engine.into(),
        Error::Invalid(_) => ErrorKind::BadRequest,
        Error::Unknown(_) => ErrorKind::RequestTimeout,
        ref error if error.is_retryable() => ErrorKind::TooManyRequests,
        _ => ErrorKind::InternalServerError,
    };
    ebbtide_documents::Error::new(kind, format!("The cluster: {error}."))
}

impl Replica for OfNode {
    fn engine(&self) -> &Database {
        &self.engine
    }

    fn container(&self, name: &str) -> Option<Container> {
        shared::container(&self.node, name)
    }

    fn quota(&self, name: &str) -> Option<Quota> {
        shared::quota(&self.node, name)
    }

    fn snapshot(&self) -> Result<ebbtide::Snapshot> {
        Ok((**self.take()?).clone())
    }

    fn renew(&self) -> Result<()> {
        let since = under(|under| under.since).unwrap_or_default();
        let taken = self.node.snapshot(ReadLevel::Local, since);
        keep(self.runtime.block_on(taken).map_err(failed)?);
        match self.is_of_now() {
            true => Ok(()),
            false => {
                let message = "This node has taken over the state of another one meanwhile.";
                let kind = ErrorKind::TooManyRequests;
                Err(ebbtide_documents::Error::new(kind, message))
            }
        }
    }

    fn ends(
        &self,
        container: &str,
        from: &ExpiryCursor,
        most: usize,
    ) -> Result<(Vec<Expiration>, ExpiryCursor)> {
        let (level, since) = under(|under| (under.level, under.since)).unwrap_or_default();
        let container = self.node.container(container).at(level).since(since);
        let mut ends = container.expirations(from.clone());
        let given = self.runtime.block_on(ends.next(most)).map_err(failed)?;
        under(|under| (under.since, under.has_seen) = (under.since.max(given.token), true));
        Ok((given.value, ends.cursor()))
    }

    fn takes_put_like(&self) -> bool {
        shared::takes_put_like(&self.node)
    }

    fn now(&self) -> SystemTime {
        match (self.take(), under(|under| under.now)) {
            (Ok(_), Some(now)) => now,
            // Nobody leads, and nothing is read.
            _ => UNIX_EPOCH + Duration::from_millis(self.node.status().applied.at_ms),
        }
    }

    fn commit(&self, writes: Vec<Write>) -> Result<Commit> {
        let written = self.node.write(self.batch(writes));
        let written = self.runtime.block_on(written);
        // All that was read is of before, done or not; and what it lost to is in no older snapshot.
        under(|under| (under.snapshot, under.level) = (None, ReadLevel::Linearizable));
        match written {
            Ok(written) => {
                self.take_with(written.token)?;
                Ok(Commit::Done(Committed {
                    version: written.value,
                    written_at: written.at,
                }))
            }
            // Decided anew, it finds that the container is gone, or does without its entries.
            Err(Error::Conflict { .. } | Error::NoContainer(_)) => Ok(Commit::Conflict),
            Err(error) => Err(failed(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No request asks for ends yet; other programs do.
    #[test]
    fn ends_are_told_of_what_is_kept() {
        use ebbtide_documents::{ContainerDefinition, Documents};
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let node = runtime.block_on(Node::open(folder.path())).unwrap();
        let replica = Arc::new(OfNode::new(node.clone(), runtime.handle().clone()));
        let documents = Documents::over(replica).unwrap();
        documents.create_database("db").unwrap();
        let definition = br#"{"id":"c","partitionKey":{"paths":["/id"]},"defaultTtl":-1,"changeFeedPolicy":{"retentionDuration":60}}"#;
        let definition = ContainerDefinition::from_json(definition).unwrap();
        let c = documents.create_container("db", definition).unwrap();
        let made = c.create(&"a".into(), br#"{"id":"a","ttl":1}"#).unwrap();
        c.create(&"b".into(), br#"{"id":"b"}"#).unwrap();
        let (mut cursor, mut told) = (ExpiryCursor::start(), vec![]);
        while told.is_empty() {
            let page = c.ends(&cursor, 10).unwrap();
            cursor = page.cursor;
            told = page.ends;
        }
        assert_eq!(told.len(), 1);
        assert!(told[0].document.id == "a" && told[0].time_to_live_expired);
        assert_eq!(Some(told[0].expired_at), made.expires_at);
        assert!(c.ends(&cursor, 10).unwrap().ends.is_empty());
        runtime.block_on(node.close()).unwrap();
    }

    /// A write by indexes whose entries another node has dropped since is decided anew.
    #[test]
    fn a_container_that_is_gone_is_a_conflict() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let node = runtime.block_on(Node::open(folder.path())).unwrap();
        let replica = OfNode::new(node.clone(), runtime.handle().clone());
        let put = |name: &str| {
            let value = ebbtide::Bytes::new();
            Write::Put(name.to_owned(), b"k".to_vec(), value, ebbtide::Ttl::Never)
        };
        runtime.block_on(node.create_container("there")).unwrap();
        let both = replica.commit(vec![put("there"), put("gone")]);
        assert_eq!(both.unwrap(), Commit::Conflict);
        let done = replica.commit(vec![put("there")]).unwrap();
        assert!(matches!(done, Commit::Done(_)), "{done:?}");
        runtime.block_on(node.close()).unwrap();
    }

    #[test]
    fn tokens_are_read_as_they_are_written() {
        let token = Token {
            index: 7,
            at_ms: 1_800_000_000_000,
        };
        let text = tokened("3:-1#55", token);
        assert_eq!(text, "3:-1#7#0=1800000000000");
        assert_eq!(parsed(&text), Some(token));
        let later = Token { index: 9, at_ms: 1 };
        let both = format!("{text}, {}", tokened("0", later));
        assert_eq!(parsed(&both), Some(token.max(later)));
        for other in [
            "",
            "0:-1#57",
            "0:57",
            "0:-1#7#0=x",
            "0:-1#7#1=2",
            "0:2#7#0=2",
        ] {
            assert_eq!(parsed(other), None, "{other}");
        }
        assert_eq!(parsed(&format!("{text},0:-1#57")), None);
    }
}
