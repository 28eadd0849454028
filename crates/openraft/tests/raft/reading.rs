//! Goal: an answer of a reader is that of one place in the log: at its moment nothing had been written that it does not show, and
//! nothing is written at an earlier one afterwards.
//!
//! Method: an item is read from a file of a simulated disk, which applies more entries in the middle of that call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Ask, Counters, Life, NAMES, Program, START, Store, entry, log_id, millis};
use ebbtide::internals::Sim;
use ebbtide::{Change, Item, ManualClock, Options, Reads, Version};
use ebbtide_openraft::{Reader, StateOptions, StateStore};
use openraft::storage::RaftStateMachine;

const KEY: &str = "key";

/// A state whose reads of items that were flushed go to the disk.
fn state(sim: &Sim) -> (Store, ebbtide::Database) {
    let options = StateOptions {
        options: Options::new()
            .fs(Arc::new(sim.clone()))
            .reads(Reads::Pread)
            .cache_bytes(0)
            .stepped(),
        clock: Arc::new(ManualClock::new(START)),
        ..StateOptions::default()
    };
    let db = options
        .options
        .clone()
        .given_time()
        .sync_interval(Duration::from_secs(1_000_000));
    let db = db.open("/state").unwrap();
    let state = StateStore::over(db.clone(), Counters, options).unwrap();
    (state, db)
}

/// Writes the key at a moment, for a life that ends 100 ms later.
fn write(state: &mut Store, index: u64, moment: u64) {
    let op = Ask::Put(0, KEY.into(), moment.to_string(), Life::For(100)).into();
    let entry = entry(log_id(1, 1, index), moment, moment + 200, vec![op]);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let applied = runtime.build().unwrap().block_on(state.apply([entry]));
    applied.unwrap();
}

/// Reads while entries of these moments come in the middle of it; the first one, of START, is in a file. Returns the moments of all.
fn read_beside<T>(moments: [u64; 2], read: impl Fn(&Reader<Program>) -> T) -> (T, Vec<u64>) {
    let sim = Sim::new(1);
    let (mut state, db) = state(&sim);
    write(&mut state, 0, START);
    db.flush().unwrap();
    let reader = state.reader();
    let beside = Arc::new(Mutex::new(Some(state)));
    let left = beside.clone();
    sim.watch(move |_, call| {
        if call.operation == "read"
            && let Some(mut state) = beside.lock().unwrap().take()
        {
            for (n, moment) in moments.iter().enumerate() {
                write(&mut state, 1 + n as u64, START + moment);
            }
        }
    });
    let read = read(&reader);
    sim.unwatch();
    let is_left = left.lock().unwrap().is_some();
    assert!(!is_left, "nothing was written meanwhile");
    let after = [0].into_iter().chain(moments);
    (read, after.map(|after| START + after).collect())
}

fn text(item: &Item) -> String {
    String::from_utf8(item.value().to_vec()).unwrap()
}

#[test]
fn an_item_is_shown_as_it_was_at_the_moment_that_is_said() {
    for moments in [[40, 60], [40, 160], [99, 100], [100, 250]] {
        let get = |reader: &Reader<Program>| reader.get(NAMES[0], KEY, START + 10).unwrap();
        let (shown, writes) = read_beside(moments, get);
        let last = writes.iter().filter(|moment| **moment <= shown.at_ms).max();
        let written = last.filter(|moment| shown.at_ms < **moment + 100);
        let item = (shown.item.as_ref()).map(|item| (text(item), item.expires_at().map(millis)));
        let expected = written.map(|moment| (moment.to_string(), Some(moment + 100)));
        let at = shown.at_ms - START;
        assert_eq!(item, expected, "at {at} after {moments:?}");
    }
}

#[test]
fn a_page_of_changes_tells_all_before_its_moment_or_leaves_it_to_the_next() {
    let page = |reader: &Reader<Program>| reader.changes(Version::start().into(), 10).unwrap();
    let (page, writes) = read_beside([40, 60], page);
    let told = page.changes.iter().filter_map(|change| match change {
        Change::Put { item, .. } => Some(text(item)),
        _ => None,
    });
    let before = writes.iter().filter(|moment| **moment <= page.at_ms);
    assert_eq!(told.last(), before.max().map(u64::to_string));
}
