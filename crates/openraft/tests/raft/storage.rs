//! Goal: what the log and snapshots promise beside openraft's suite: how much is read at once, what a power cut leaves of the log,
//! when entries go, and that a snapshot is whole or not there.
//!
//! Method: histories of a few steps, each written for one promise; the log on a simulated disk, snapshots on real files.

use std::io::SeekFrom;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use crate::common::{Ask, Counters, Life, Program, START, Store, entry, log_id, millis, put};
use ebbtide::WatchEvent;
use ebbtide::internals::Sim;
use ebbtide_openraft::{LogStore, Rest, SnapshotData, StateOptions, StateStore, Watched};
use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::{Entry, RaftLogReader, RaftSnapshotBuilder, SnapshotMeta, Vote};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

type Log = LogStore<Program>;
/// The end of the log and the term of the vote, as acknowledged.
type Promises = Arc<Mutex<Vec<(u64, u64)>>>;

fn numbered(term: u64, index: u64, bytes: usize) -> Entry<Program> {
    let ask = Ask::Put(0, format!("{index}"), "v".repeat(bytes), Life::Never);
    entry(log_id(term, 1, index), START + index, 0, vec![ask.into()])
}

fn indexes(entries: &[Entry<Program>]) -> Vec<u64> {
    entries.iter().map(|entry| entry.log_id.index).collect()
}

fn in_memory(sim: &Sim) -> Log {
    let db = Log::options().fs(Arc::new(sim.clone()));
    LogStore::new(&db.open("/log").unwrap(), "group-0").unwrap()
}

#[tokio::test]
async fn a_message_has_a_mebibyte_of_entries_or_one() {
    let sim = Sim::new(1);
    let mut log = in_memory(&sim);
    for index in 0..8 {
        log.blocking_append([numbered(1, index, 400_000)])
            .await
            .unwrap();
    }
    log.blocking_append([numbered(1, 8, 3 << 20)])
        .await
        .unwrap();
    for opened_again in [false, true] {
        if opened_again {
            drop(log);
            log = in_memory(&sim);
        }
        assert_eq!(
            indexes(&log.limited_get_log_entries(1, 9).await.unwrap()),
            [1, 2]
        );
        assert_eq!(
            indexes(&log.limited_get_log_entries(7, 9).await.unwrap()),
            [7]
        );
        assert_eq!(
            indexes(&log.limited_get_log_entries(8, 9).await.unwrap()),
            [8]
        );
        assert_eq!(log.try_get_log_entries(..).await.unwrap().len(), 9);
        // Some are on disk, and the last ones in memory.
        log.blocking_append([numbered(1, 9, 10)]).await.unwrap();
        assert_eq!(
            indexes(&log.try_get_log_entries(5..=9).await.unwrap()),
            [5, 6, 7, 8, 9]
        );
        log.truncate(log_id(1, 1, 9)).await.unwrap();
    }
}

/// Memory holds 16 MiB of them; the rest comes from the database.
#[tokio::test]
async fn entries_beyond_those_in_memory_are_read_from_the_database() {
    let sim = Sim::new(1);
    let mut log = in_memory(&sim);
    for index in 0..40 {
        log.blocking_append([numbered(1, index, 1 << 20)])
            .await
            .unwrap();
    }
    let all = log.try_get_log_entries(..).await.unwrap();
    assert_eq!(indexes(&all), (0..40).collect::<Vec<_>>());
    log.truncate(log_id(1, 1, 38)).await.unwrap();
    log.blocking_append([numbered(2, 38, 5)]).await.unwrap();
    let last = log.try_get_log_entries(36..).await.unwrap();
    assert_eq!(indexes(&last), [36, 37, 38]);
    assert_eq!(last[2].log_id, log_id(2, 1, 38));
}

#[tokio::test]
async fn a_power_cut_leaves_whatever_was_acknowledged_and_no_hole() {
    for seed in 0..2 {
        let sim = Sim::new(seed);
        let mut log = in_memory(&sim);
        type Cuts = Vec<(u64, u64, Sim)>;
        let cuts: Arc<Mutex<Cuts>> = Arc::default();
        // All that was ever promised, in turn. A thread of the database writes while the test goes on: a cut is held to the least of
        // what stood from before it was made until after.
        let promises: Promises = Arc::new(Mutex::new(vec![(0, 0)]));
        sim.watch({
            let (cuts, promises) = (cuts.clone(), promises.clone());
            move |sim, _| {
                let before = promises.lock().unwrap().len() - 1;
                let mut cuts = cuts.lock().unwrap();
                let chance = seed * 10_000 + cuts.len() as u64;
                let cut = sim.power_cut(chance);
                let stood = &promises.lock().unwrap()[before..];
                let last = stood.iter().map(|promise| promise.0).min().unwrap();
                cuts.push((last, stood[0].1, cut));
            }
        });
        let promise = |last, term| promises.lock().unwrap().push((last, term));
        for term in 1..=4 {
            log.save_vote(&Vote::new(term, 1)).await.unwrap();
            let from = (term - 1) * 5;
            promise(from, term);
            for index in from..from + 5 {
                log.blocking_append([numbered(term, index, 100), numbered(term, index + 1, 100)])
                    .await
                    .unwrap();
                promise(index + 2, term);
                log.save_committed(Some(log_id(term, 1, index)))
                    .await
                    .unwrap();
                promise(index + 1, term);
                log.truncate(log_id(term, 1, index + 1)).await.unwrap();
            }
            log.purge(log_id(term, 1, from + 1)).await.unwrap();
        }
        sim.unwatch();
        let cuts = std::mem::take(&mut *cuts.lock().unwrap());
        assert!(cuts.len() > 50, "{} cuts", cuts.len());
        // Each is a database to be opened: every eighth, from another one on for each seed.
        for (at, (last, term, cut)) in cuts.iter().enumerate().skip(seed as usize * 3).step_by(8) {
            let about = format!("seed {seed}, cut {at}");
            let mut log = in_memory(cut);
            let state = log.get_log_state().await.unwrap();
            let first = state
                .last_purged_log_id
                .map_or(0, |purged| purged.index + 1);
            let entries = indexes(&log.try_get_log_entries(..).await.unwrap());
            let end = first + entries.len() as u64;
            assert_eq!(entries, (first..end).collect::<Vec<_>>(), "{about}");
            assert!(
                end >= *last,
                "{about}: entry {last} was acknowledged, and {entries:?} are there"
            );
            let vote = log
                .read_vote()
                .await
                .unwrap()
                .map_or(0, |vote| vote.leader_id.term);
            assert!(
                vote >= *term,
                "{about}: the vote of term {term} was acknowledged"
            );
        }
    }
}

fn open(folder: &Path) -> Store {
    StateStore::open(folder, Counters, StateOptions::default()).unwrap()
}

async fn with_an_item(folder: &Path) -> Store {
    let mut state = open(folder);
    let put = vec![put("own", Life::Never)];
    let applied = state.apply([entry(log_id(1, 1, 0), START, 0, put)]);
    applied.await.unwrap();
    state
}

async fn filled(folder: &Path) -> Store {
    let mut state = open(folder);
    for index in 0..50 {
        let life = Life::For(1_000_000 + index);
        let ask = Ask::Put(0, format!("k{index}"), "v".repeat(2_000), life);
        state
            .apply([entry(log_id(1, 1, index), START, 0, vec![ask.into()])])
            .await
            .unwrap();
    }
    state.reader().flush().unwrap();
    state
        .apply([entry(
            log_id(1, 1, 50),
            START,
            0,
            vec![put("in the log", Life::Never)],
        )])
        .await
        .unwrap();
    state
}

fn count(state: &Store) -> u64 {
    let view = state.reader().view(0);
    view.container("a").unwrap().count(..).unwrap()
}

/// Only one who holds them synced lets entries go (I6).
#[tokio::test]
async fn entries_go_when_the_state_holds_them_synced_and_not_before() {
    let folder = testkit::scratch();
    let mut state = filled(&folder.path().join("group-0")).await;
    let mut log = in_memory(&Sim::new(1)).behind(state.durable());
    for index in 0..52 {
        log.blocking_append([numbered(1, index, 10)]).await.unwrap();
    }
    let a_while = Duration::from_millis(100);
    let early = tokio::time::timeout(a_while, log.purge(log_id(1, 1, 50))).await;
    assert!(early.is_err(), "the state is not synced");
    assert_eq!(log.try_get_log_entries(..).await.unwrap().len(), 52);
    let built = state
        .get_snapshot_builder()
        .await
        .build_snapshot()
        .await
        .unwrap();
    assert_eq!(built.meta.last_log_id, Some(log_id(1, 1, 50)));
    log.purge(log_id(1, 1, 50)).await.unwrap();
    assert_eq!(indexes(&log.try_get_log_entries(..).await.unwrap()), [51]);
    let beyond = tokio::time::timeout(a_while, log.purge(log_id(1, 1, 51))).await;
    assert!(beyond.is_err(), "the state has not applied it");
    // Readers do not keep it.
    let _reader = state.reader();
    drop((state, built));
    assert!(
        log.purge(log_id(1, 1, 51)).await.is_err(),
        "the state is gone"
    );
}

async fn sent(state: &mut Store) -> (SnapshotMeta<u64, openraft::BasicNode>, Box<SnapshotData>) {
    let snapshot = state.get_current_snapshot().await.unwrap().unwrap();
    (snapshot.meta, snapshot.snapshot)
}

fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = names
        .map(|name| name.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_from_any_place_and_what_comes_of_it_is_the_same() {
    let folder = testkit::scratch();
    let at = |name: &str| folder.path().join(name);
    let mut state = filled(&at("one")).await;
    let (meta, mut from) = sent(&mut state).await;
    assert!(
        names(&at("one"))
            .iter()
            .any(|name| name.starts_with("sending-"))
    );
    // It is of this moment, whatever comes later.
    state
        .apply([entry(
            log_id(1, 1, 51),
            START,
            0,
            vec![put("late", Life::Never)],
        )])
        .await
        .unwrap();
    let mut other = open(&at("two"));
    let mut to = other.begin_receiving_snapshot().await.unwrap();
    let end = from.seek(SeekFrom::End(0)).await.unwrap();
    let (mut position, mut turns) = (0, 0);
    while position < end {
        turns += 1;
        from.seek(SeekFrom::Start(position)).await.unwrap();
        let mut piece = vec![0; 7_001.min((end - position) as usize)];
        from.read_exact(&mut piece).await.unwrap();
        to.seek(SeekFrom::Start(position)).await.unwrap();
        to.write_all(&piece).await.unwrap();
        position += piece.len() as u64;
        match turns {
            // The whole is sent anew, and a piece twice.
            4 => position = 0,
            9 => position -= 7_001,
            _ => {}
        }
    }
    to.shutdown().await.unwrap();
    other.install_snapshot(&meta, to).await.unwrap();
    assert_eq!(
        other.applied_state().await.unwrap(),
        (meta.last_log_id, meta.last_membership.clone())
    );
    assert_eq!(count(&other), 51);
    drop(from);
    assert_eq!(names(&at("one")), ["CURRENT", "state-0"]);
    let now = names(&at("two"));
    assert_eq!(now.len(), 2, "{now:?}");
    drop(other);
    assert_eq!(count(&open(&at("two"))), 51);
}

/// However a stream is damaged, the state stays as it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_damaged_or_cut_short_changes_nothing() {
    let folder = testkit::scratch();
    let at = |name: &str| folder.path().join(name);
    let mut state = filled(&at("one")).await;
    let (meta, mut from) = sent(&mut state).await;
    let mut whole = vec![];
    from.read_to_end(&mut whole).await.unwrap();
    let mut other = with_an_item(&at("two")).await;
    let places = (0..whole.len()).step_by(whole.len() / 40);
    for (n, place) in places.enumerate() {
        let mut stream = whole.clone();
        match n % 4 {
            0 => stream.truncate(place),
            _ => stream[place] ^= 1 << (n % 8),
        }
        let mut to = other.begin_receiving_snapshot().await.unwrap();
        let taken = match to.write_all(&stream).await {
            Ok(()) => to.shutdown().await,
            refused => refused,
        };
        assert!(taken.is_err(), "place {place}");
        // A program's own network may not have asked.
        if n % 4 == 1 {
            assert!(
                other.install_snapshot(&meta, to).await.is_err(),
                "place {place}"
            );
        }
        assert_eq!(count(&other), 1);
    }
    assert_eq!(names(&at("two")), ["CURRENT", "state-0"]);
    // The announced entry is another one.
    let (_, again) = sent(&mut state).await;
    let wrong = SnapshotMeta {
        last_log_id: Some(log_id(1, 1, 49)),
        ..meta
    };
    assert!(other.install_snapshot(&wrong, again).await.is_err());
    assert_eq!(count(&other), 1);
    drop(other);
    let again = open(&at("two"));
    assert_eq!(count(&again), 1);
    assert_eq!(names(&at("two")), ["CURRENT", "state-0"]);
}

/// A process may end at any step of an installation.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_finds_the_state_that_current_names_and_removes_the_rest() {
    let folder = testkit::scratch();
    let group = folder.path().join("group-0");
    drop(filled(&group).await);
    for left in ["receiving-3", "sending-4", "state-7"] {
        std::fs::create_dir(group.join(left)).unwrap();
        std::fs::write(group.join(left).join("part"), "half").unwrap();
    }
    std::fs::write(group.join("CURRENT.new"), "state-7").unwrap();
    let state = open(&group);
    assert_eq!(count(&state), 51);
    assert_eq!(names(&group), ["CURRENT", "state-0"]);
    drop(state);
    std::fs::write(group.join("CURRENT"), "../elsewhere\n").unwrap();
    let error =
        StateStore::<Program, _>::open(&group, Counters, StateOptions::default()).unwrap_err();
    assert!(error.to_string().contains("CURRENT"), "{error}");
}

/// A reader of the state before ends on it; then its folder goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_outlives_the_snapshot_that_replaces_its_state() {
    let folder = testkit::scratch();
    let at = |name: &str| folder.path().join(name);
    let mut state = filled(&at("one")).await;
    let mut other = with_an_item(&at("two")).await;
    let view = other.reader().view(0);
    let (meta, snapshot) = sent(&mut state).await;
    other.install_snapshot(&meta, snapshot).await.unwrap();
    assert_eq!(count(&other), 51);
    assert_eq!(view.container("a").unwrap().count(..).unwrap(), 1);
    assert!(names(&at("two")).contains(&"state-0".to_owned()));
    drop(view);
    assert!(!names(&at("two")).contains(&"state-0".to_owned()));
}

/// Versions and ends are the same in the state that has come, so a reader of ends goes on at its cursor.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_ends_goes_on_in_the_snapshot_that_replaces_its_state() {
    let folder = testkit::scratch();
    let at = |name: &str| folder.path().join(name);
    let mut state = filled(&at("one")).await;
    let mut other = with_an_item(&at("two")).await;
    let mut ends = other
        .reader()
        .expirations("a", ebbtide::ExpiryCursor::start());
    let none = ends.next(10).unwrap();
    assert!(none.ends.is_empty() && none.next_due.is_none());
    let (meta, snapshot) = sent(&mut state).await;
    other.install_snapshot(&meta, snapshot).await.unwrap();
    assert!(!names(&at("two")).contains(&"state-0".to_owned()));
    let due = ends.next(10).unwrap().next_due;
    assert_eq!(due.map(millis), Some(START + 1_000_000));
    let later = entry(log_id(1, 1, 51), START + 1_000_003, 0, vec![]);
    other.apply([later]).await.unwrap();
    let mut given = vec![];
    for most in [2, 2, 2] {
        let ended = ends.next(most).unwrap().ends;
        assert!(ended.len() <= most);
        given.extend(ended.iter().map(|end| end.key().to_vec()));
    }
    assert_eq!(given, [b"k0", b"k1", b"k2"]);
}

/// A watcher loses what came between, and is told so once, from the last version that it knows of on.
#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_is_told_that_a_snapshot_has_replaced_its_state() {
    let folder = testkit::scratch();
    let at = |name: &str| folder.path().join(name);
    let mut state = filled(&at("one")).await;
    let mut other = with_an_item(&at("two")).await;
    let range = || (Bound::Unbounded, Bound::Unbounded);
    let reader = other.reader();
    assert!(reader.watch("none", range()).is_err());
    let mut watch = reader.watch("a", range()).unwrap();
    let shown = |watched: Watched| watched.events.iter().map(shown).collect::<Vec<_>>();
    assert!(watch.next(10).unwrap().events.is_empty());
    assert_eq!(watch.look().unwrap(), Rest::Until(None));
    let known = reader.get("a", "own", 0).unwrap().item.unwrap().version();
    let (meta, snapshot) = sent(&mut state).await;
    other.install_snapshot(&meta, snapshot).await.unwrap();
    assert!(!names(&at("two")).contains(&"state-0".to_owned()));
    assert_eq!(watch.look().unwrap(), Rest::Ask);
    let lost = watch.next(1).unwrap().events;
    assert!(
        matches!(&lost[..], [WatchEvent::Lost { from }] if *from >= known),
        "{lost:?}"
    );
    let due = UNIX_EPOCH + Duration::from_millis(START + 1_000_000);
    assert_eq!(watch.look().unwrap(), Rest::Until(Some(due)));
    let later = entry(log_id(1, 1, 51), START + 1_000_003, 0, vec![]);
    other.apply([later]).await.unwrap();
    assert_eq!(watch.look().unwrap(), Rest::Ask);
    assert_eq!(shown(watch.next(2).unwrap()), ["k0 ended", "k1 ended"]);
    assert_eq!(shown(watch.next(0).unwrap()), ["k2 ended"]);
    assert!(watch.next(1).unwrap().events.is_empty());
}

fn shown(event: &WatchEvent) -> String {
    match event {
        WatchEvent::Ended(ended) => format!("{} ended", ended.key().escape_ascii()),
        other => format!("{other:?}"),
    }
}

/// A state that was only synced has no copy.
#[tokio::test]
async fn a_snapshot_that_is_built_takes_no_room() {
    let folder = testkit::scratch();
    let group = folder.path().join("group-0");
    let mut state = filled(&group).await;
    let mut built = state
        .get_snapshot_builder()
        .await
        .build_snapshot()
        .await
        .unwrap();
    assert_eq!(names(&group), ["CURRENT", "state-0"]);
    assert!(built.snapshot.read_u8().await.is_err());
}

/// Two streams of one snapshot share its rate. Time is the runtime's, which passes when all wait.
#[tokio::test(start_paused = true)]
async fn a_snapshot_is_sent_no_faster_than_its_rate() {
    let folder = testkit::scratch();
    let group = folder.path().join("group-0");
    drop(filled(&group).await);
    let options = StateOptions {
        snapshot_rate: 10_000,
        ..StateOptions::default()
    };
    let mut state: Store = StateStore::open(&group, Counters, options).unwrap();
    let (_, mut one) = sent(&mut state).await;
    let (_, mut other) = sent(&mut state).await;
    let begun = tokio::time::Instant::now();
    let (mut first, mut second) = (vec![], vec![]);
    let read = tokio::join!(one.read_to_end(&mut first), other.read_to_end(&mut second));
    assert_eq!(read.0.unwrap(), read.1.unwrap());
    let (seconds, bytes) = (begun.elapsed().as_secs_f64(), 2 * first.len());
    let due = bytes as f64 / 10_000.0;
    assert!(
        seconds > due - 0.02 && seconds < due + 1.0,
        "{bytes} bytes in {seconds} s"
    );
}
