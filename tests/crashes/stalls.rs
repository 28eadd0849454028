//! Goal: while a sync of the log waits for the device, the log is drained, so that writers need not do that themselves.
//! Method: the sync is held at a gate until the test opens it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ebbtide::internals::Sim;
use ebbtide::{Durability, ManualClock, Options};
use testkit::patience::wait_until;
use testkit::stage;

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "wal")
}

#[test]
fn the_log_is_drained_while_a_sync_of_it_waits() {
    let sim = Sim::new(6);
    let options = Options::new()
        .durability(Durability::Buffered)
        .sync_interval(Duration::from_millis(20))
        .clock(ManualClock::new(1_800_000_000_000))
        .fs(Arc::new(sim.clone()));
    let (db, c) = stage::open(&options);
    let (held, drained) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (open, gate) = channel::<()>();
    let watching = (held.clone(), drained.clone(), Mutex::new(gate));
    sim.watch(move |_, call| {
        let (held, drained, gate) = &watching;
        let thread = thread::current();
        match (call.operation, thread.name()) {
            ("sync", Some("ebbtide-sync")) if is_segment(call.path) => {
                held.fetch_add(1, Ordering::SeqCst);
                // Until the test drops its end.
                let _ = gate.lock().unwrap().recv();
            }
            ("write", Some("ebbtide-log")) if is_segment(call.path) => {
                drained.fetch_add(1, Ordering::SeqCst);
            }
            _ => {}
        }
    });
    c.put("first", "v").unwrap();
    wait_until("a sync is held", || held.load(Ordering::SeqCst) > 0);
    let before = drained.load(Ordering::SeqCst);
    // More than half of the ring, so that the log's thread drains it.
    for n in 0..2_500u32 {
        c.put(n.to_be_bytes(), [n as u8; 1_000]).unwrap();
    }
    wait_until("the log's thread drains", || {
        drained.load(Ordering::SeqCst) > before
    });
    assert_eq!(held.load(Ordering::SeqCst), 1, "the sync still waits");
    drop(open);
    db.close().unwrap();
}
