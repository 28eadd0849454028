//! Goal: an answer of a reader is that of one place in the log: at its moment nothing had been written that it does not show, and
//! nothing is written at an earlier one afterwards.
//!
//! Method: an item is read from a file of a simulated disk, which applies more entries in the middle of that call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Ask, Counters, Life, NAMES, START, Store, entry, log_id, millis};
use ebbtide::internals::Sim;
use ebbtide::{ManualClock, Options, Reads};
use ebbtide_openraft::{StateOptions, StateStore};
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

#[test]
fn an_item_is_shown_as_it_was_at_the_moment_that_is_said() {
    for moments in [[40, 60], [40, 160], [99, 100], [100, 250]] {
        let sim = Sim::new(1);
        let (mut state, db) = state(&sim);
        write(&mut state, 0, START);
        db.flush().unwrap();
        let reader = state.reader();
        let beside = Mutex::new(Some(state));
        sim.watch(move |_, call| {
            if call.operation == "read"
                && let Some(mut state) = beside.lock().unwrap().take()
            {
                for (n, moment) in moments.iter().enumerate() {
                    write(&mut state, 1 + n as u64, START + moment);
                }
            }
        });
        let shown = reader.get(NAMES[0], KEY, START + 10).unwrap();
        sim.unwatch();
        let writes = [0].into_iter().chain(moments).map(|after| START + after);
        let last = writes.filter(|moment| *moment <= shown.at_ms).max();
        let written = last.filter(|moment| shown.at_ms < moment + 100);
        let item = shown.item.map(|item| {
            let end = item.expires_at().map(millis);
            (String::from_utf8(item.value().to_vec()).unwrap(), end)
        });
        let expected = written.map(|moment| (moment.to_string(), Some(moment + 100)));
        assert_eq!(
            item,
            expected,
            "at {} after {moments:?}",
            shown.at_ms - START
        );
        assert!(shown.at_ms > START + 10, "nothing was written meanwhile");
    }
}
