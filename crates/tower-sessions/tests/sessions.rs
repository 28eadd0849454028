//! Goal: a session is there until its date and never after it, is never another's, and its user ends all of theirs.
//!
//! Method: the calls of the store, by a clock that is moved by hand; tasks that use sessions while their user ends them; a
//! process that is killed.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ebbtide::tokio::AsyncDatabase;
use ebbtide::{ManualClock, Options, Ttl};
use serde_json::{Value, json};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};
use tokio::sync::Barrier;
use tower_sessions_core::SessionStore;
use tower_sessions_core::session::{Id, Record};
use tower_sessions_core::session_store::Error;
use tower_sessions_ebbtide::EbbtideStore;

const START: u64 = 1_800_000_000_000;

/// The clock's first moment, later by some milliseconds.
fn after(millis: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(START as i64 / 1000).unwrap()
        + Duration::milliseconds(millis)
}

fn record(user: impl Into<Value>, expiry_date: OffsetDateTime) -> Record {
    let data = HashMap::from([("user".to_owned(), user.into()), ("n".to_owned(), json!(1))]);
    Record {
        id: Id::default(),
        data,
        expiry_date,
    }
}

struct Fixture {
    folder: TempDir,
    clock: ManualClock,
    db: AsyncDatabase,
    store: EbbtideStore,
}

impl Fixture {
    async fn new() -> Fixture {
        let (folder, clock) = (TempDir::new().unwrap(), ManualClock::new(START));
        let db = open(folder.path(), &clock).await;
        let store = over(&db).await;
        Fixture {
            folder,
            clock,
            db,
            store,
        }
    }

    async fn create(&self, user: impl Into<Value>, expiry_date: OffsetDateTime) -> Record {
        let mut record = record(user, expiry_date);
        self.store.create(&mut record).await.unwrap();
        record
    }

    async fn is_there(&self, record: &Record) -> bool {
        self.store.load(&record.id).await.unwrap().is_some()
    }

    async fn ids_of(&self, user: &str) -> Vec<Id> {
        let sessions = self.store.sessions_of(user).await.unwrap();
        sessions.iter().map(|session| session.id).collect()
    }

    fn advance(&self, millis: u64) {
        self.clock.advance(std::time::Duration::from_millis(millis));
    }
}

async fn open(folder: &Path, clock: &ManualClock) -> AsyncDatabase {
    let options = Options::new().clock(clock.clone());
    AsyncDatabase::open_with(&options, folder).await.unwrap()
}

async fn over(db: &AsyncDatabase) -> EbbtideStore {
    let store = EbbtideStore::open(db, "sessions").await.unwrap();
    store.user_key("user")
}

#[tokio::test]
async fn a_session_and_its_entry_end_in_the_millisecond_of_its_date() {
    let f = Fixture::new().await;
    let mut session = f.create("ada", after(1_000)).await;
    f.advance(999);
    assert_eq!(
        f.store.load(&session.id).await.unwrap(),
        Some(session.clone())
    );
    // Slides, and then is cut short.
    for (date, millis) in [(5_000, 4_000), (5_500, 500)] {
        session.expiry_date = after(date);
        f.store.save(&session).await.unwrap();
        f.advance(millis);
        assert!(f.is_there(&session).await);
        let listed = f.store.sessions_of("ada").await.unwrap();
        assert_eq!((listed.len(), listed[0].expires), (1, Some(after(date))));
    }
    assert_eq!(
        f.store.sessions_of("ada").await.unwrap()[0].written,
        after(4_999)
    );
    f.advance(1);
    assert!(!f.is_there(&session).await && f.ids_of("ada").await.is_empty());
    // A request that had loaded it cannot bring it back, and the id is free.
    session.expiry_date = after(60_000);
    f.store.save(&session).await.unwrap();
    assert!(!f.is_there(&session).await);
    let (id, mut again) = (session.id, session);
    f.store.create(&mut again).await.unwrap();
    assert!(again.id == id && f.is_there(&again).await);
}

#[tokio::test]
async fn dates_finer_than_a_millisecond_in_the_past_and_far_ahead() {
    let f = Fixture::new().await;
    let fine = f.create("ada", after(10) + Duration::nanoseconds(1)).await;
    assert_eq!(f.store.load(&fine.id).await.unwrap(), Some(fine.clone()));
    f.advance(10);
    assert!(f.is_there(&fine).await);
    f.advance(1);
    assert!(!f.is_there(&fine).await);
    for past in [after(0), OffsetDateTime::UNIX_EPOCH - Duration::days(400)] {
        assert!(!f.is_there(&f.create("ada", past).await).await);
    }
    let mut session = f.create("ada", after(60_000)).await;
    session.expiry_date = after(11);
    f.store.save(&session).await.unwrap();
    assert!(!f.is_there(&session).await && f.ids_of("ada").await.is_empty());

    let far = f
        .create("ada", after(0) + Duration::days(365 * 3_000))
        .await;
    f.advance(100 * 365 * 86_400_000);
    assert_eq!(f.store.load(&far.id).await.unwrap(), Some(far));
    assert_eq!(f.store.sessions_of("ada").await.unwrap()[0].expires, None);
}

#[tokio::test]
async fn an_id_that_is_taken_is_left_to_its_session() {
    let f = Fixture::new().await;
    let first = f.create("ada", after(1_000)).await;
    let mut second = record("grace", after(1_000));
    second.id = first.id;
    f.store.create(&mut second).await.unwrap();
    assert_ne!(second.id, first.id);
    assert_eq!(
        f.store.load(&first.id).await.unwrap().as_ref(),
        Some(&first)
    );
    assert_eq!(f.ids_of("grace").await, [second.id]);

    // Of many that want one id at the same moment, one gets it.
    let tasks = (0..8).map(|n| {
        let (store, mut record) = (f.store.clone(), record("eve", after(1_000)));
        record.id = Id(n / 4);
        tokio::spawn(async move { store.create(&mut record).await.map(|()| record.id) })
    });
    let mut ids = vec![];
    for task in tasks.collect::<Vec<_>>() {
        ids.push(task.await.unwrap().unwrap().to_string());
    }
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), f.ids_of("eve").await.len()), (8, 8));
    assert!(ids.contains(&Id(0).to_string()) && ids.contains(&Id(1).to_string()));
}

#[tokio::test]
async fn a_session_is_listed_for_the_user_that_it_has() {
    let f = Fixture::new().await;
    let mut session = f.create(Value::Null, after(1_000)).await;
    session.data.insert("user".into(), json!("ada"));
    f.store.save(&session).await.unwrap();
    let other = f.create("adam", after(1_000)).await;
    assert_eq!(f.ids_of("ada").await, [session.id]);
    session.data.insert("user".into(), json!(7));
    f.store.save(&session).await.unwrap();
    assert!(f.ids_of("ada").await.is_empty());
    assert_eq!(f.ids_of("7").await, [session.id]);
    assert_eq!(f.store.log_out_everywhere("ada").await.unwrap(), 0);
    f.store.delete(&session.id).await.unwrap();
    f.store.delete(&session.id).await.unwrap();
    assert!(!f.is_there(&session).await && f.ids_of("7").await.is_empty());
    assert_eq!(f.ids_of("adam").await, [other.id]);

    let mut refused = record(json!(["ada"]), after(1_000));
    let error = f.store.create(&mut refused).await.unwrap_err();
    assert!(matches!(error, Error::Encode(_)), "{error}");
    let mut too_long = record("x".repeat(70_000), after(1_000));
    let error = f.store.create(&mut too_long).await.unwrap_err();
    assert!(matches!(error, Error::Encode(_)), "{error}");
    let without = EbbtideStore::open(&f.db, "sessions").await.unwrap();
    without.log_out_everywhere("adam").await.unwrap_err();
    without.sessions_of("adam").await.unwrap_err();
}

#[tokio::test]
async fn no_request_brings_back_what_was_logged_out_everywhere() {
    let f = Fixture::new().await;
    let (first, second) = (
        f.create("ada", after(1_000)).await,
        f.create("ada", after(2_000)).await,
    );
    let other = f.create("grace", after(1_000)).await;
    let mut loaded = f.store.load(&first.id).await.unwrap().unwrap();
    assert_eq!(f.store.log_out_everywhere("ada").await.unwrap(), 2);
    loaded.data.insert("n".into(), json!(2));
    f.store.save(&loaded).await.unwrap();
    assert!(!f.is_there(&first).await && !f.is_there(&second).await);
    assert!(f.is_there(&other).await && f.ids_of("ada").await.is_empty());
    assert_eq!(f.store.log_out_everywhere("ada").await.unwrap(), 0);
    // Nothing is left of them.
    let stored = f.db.container("sessions").await.unwrap();
    assert_eq!(stored.count(..).await.unwrap(), 1);
}

/// Tasks use sessions of one user, as requests do, while they are ended, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn logging_out_everywhere_holds_against_requests_at_the_same_time() {
    let f = Fixture::new().await;
    for _ in 0..20 {
        let (begun, is_over) = (Arc::new(Barrier::new(5)), Arc::new(AtomicBool::new(false)));
        let mut tasks = vec![];
        for _ in 0..4 {
            let session = f.create("ada", after(60_000)).await;
            let (begun, is_over, store) = (begun.clone(), is_over.clone(), f.store.clone());
            tasks.push(tokio::spawn(async move {
                begun.wait().await;
                for saved in 0.. {
                    let is_last = is_over.load(Ordering::SeqCst);
                    let Some(mut loaded) = store.load(&session.id).await.unwrap() else {
                        break;
                    };
                    assert!(!is_last, "it is there after its end");
                    loaded.data.insert("n".into(), json!(saved));
                    store.save(&loaded).await.unwrap();
                }
                session
            }));
        }
        begun.wait().await;
        assert_eq!(f.store.log_out_everywhere("ada").await.unwrap(), 4);
        is_over.store(true, Ordering::SeqCst);
        for task in tasks {
            let session = task.await.unwrap();
            assert!(!f.is_there(&session).await);
        }
        assert!(f.ids_of("ada").await.is_empty());
    }
}

/// A session that was there before one that is still live was there at the moment at which all of them end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn logging_out_everywhere_is_one_moment_among_logins() {
    let f = Fixture::new().await;
    for _ in 0..20 {
        let first = f.create("ada", after(60_000)).await;
        let begun = Arc::new(Barrier::new(4));
        let mut tasks = vec![];
        for _ in 0..3 {
            let (begun, store, first) = (begun.clone(), f.store.clone(), first.id);
            tasks.push(tokio::spawn(async move {
                let mut before = vec![];
                begun.wait().await;
                loop {
                    let mut session = record("ada", after(60_000));
                    store.create(&mut session).await.unwrap();
                    if store.load(&first).await.unwrap().is_none() {
                        return before;
                    }
                    before.push(session);
                }
            }));
        }
        begun.wait().await;
        let ended = f.store.log_out_everywhere("ada").await.unwrap();
        assert!(ended >= 1);
        for task in tasks {
            for session in task.await.unwrap() {
                assert!(!f.is_there(&session).await);
            }
        }
        f.store.log_out_everywhere("ada").await.unwrap();
    }
}

/// However often a session moves to another user, a request finds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_moves_to_another_user_is_always_found() {
    let f = Fixture::new().await;
    let mut session = f.create("ada", after(60_000)).await;
    let (store, id) = (f.store.clone(), session.id);
    let moves = tokio::spawn(async move {
        for user in ["grace", "ada"].repeat(1_000) {
            session.data.insert("user".into(), json!(user));
            store.save(&session).await.unwrap();
        }
    });
    while !moves.is_finished() {
        assert!(f.store.load(&id).await.unwrap().is_some());
    }
    moves.await.unwrap();
}

#[tokio::test]
async fn another_handle_a_reader_and_a_restart_see_the_same_sessions() {
    let f = Fixture::new().await;
    let session = f.create("ada", after(1_000)).await;
    let other = over(&AsyncDatabase::from(f.db.as_sync().clone())).await;
    assert_eq!(
        other.load(&session.id).await.unwrap().as_ref(),
        Some(&session)
    );
    let locked = AsyncDatabase::open(f.folder.path()).await.unwrap_err();
    assert!(locked.is_retryable(), "{locked}");

    let following = Options::new()
        .clock(f.clock.clone())
        .follow(f.folder.path());
    let reader = over(&following.unwrap().into()).await;
    assert_eq!(
        reader.load(&session.id).await.unwrap().as_ref(),
        Some(&session)
    );
    assert_eq!(reader.sessions_of("ada").await.unwrap().len(), 1);
    let error = reader.save(&session).await.unwrap_err();
    assert!(matches!(error, Error::Backend(_)), "{error}");

    f.db.close().await.unwrap();
    let error = f.store.load(&session.id).await.unwrap_err();
    assert!(matches!(error, Error::Backend(_)), "{error}");
    let store = over(&open(f.folder.path(), &f.clock).await).await;
    assert_eq!(
        store.load(&session.id).await.unwrap().as_ref(),
        Some(&session)
    );
    assert_eq!(store.log_out_everywhere("ada").await.unwrap(), 1);
    assert_eq!(store.load(&session.id).await.unwrap(), None);
}

#[tokio::test]
async fn bytes_that_are_no_session_are_an_error() {
    let f = Fixture::new().await;
    let sessions = f.db.container("sessions").await.unwrap();
    let id = Id::default();
    sessions
        .put_with_ttl(id.to_string(), "{}", Ttl::Never)
        .await
        .unwrap();
    let error = f.store.load(&id).await.unwrap_err();
    assert!(matches!(error, Error::Decode(_)), "{error}");
}

/// A process of this test logs users in until it is killed.
#[tokio::test]
async fn what_was_answered_survives_a_killed_process() {
    const FOLDER: &str = "EBBTIDE_SESSIONS";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let store = over(&AsyncDatabase::open(folder).await.unwrap()).await;
        for n in 0.. {
            let mut session = record("ada", OffsetDateTime::now_utc() + Duration::days(1));
            store.create(&mut session).await.unwrap();
            session.data.insert("n".into(), json!(n));
            store.save(&session).await.unwrap();
            println!("\nsession {} {n}", session.id);
        }
    }
    let folder = TempDir::new().unwrap();
    let name = "what_was_answered_survives_a_killed_process";
    let mut child = testkit::process::alone(module_path!(), name)
        .env(FOLDER, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let told = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = told
        .map(Result::unwrap)
        .filter(|line| line.starts_with("session "));
    let told: Vec<String> = told.take(20).collect();
    child.kill().unwrap();
    child.wait().unwrap();

    let store = over(&AsyncDatabase::open(folder.path()).await.unwrap()).await;
    for line in &told {
        let mut words = line.split(' ').skip(1);
        let id: Id = words.next().unwrap().parse().unwrap();
        let session = store.load(&id).await.unwrap().expect(line);
        assert_eq!(session.data["n"].to_string(), words.next().unwrap());
    }
    assert!(told.len() == 20 && store.log_out_everywhere("ada").await.unwrap() >= 20);
}
