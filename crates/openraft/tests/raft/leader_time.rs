//! Goal: reads of the leader wait for the writes before them, in every order in which tasks and the leadership can take their
//! steps.
//!
//! Method: `src/log_time.rs` is built here with the locks of a model checker ([loom](https://docs.rs/loom)), which plays each
//! history in all orders.

#[allow(dead_code)]
#[path = "../../src/log_time.rs"]
mod log_time;

use self::log_time::{LogTime, NotLeading};
use loom::future::block_on;
use loom::sync::atomic::{AtomicU64, Ordering::SeqCst};
use loom::thread;

const START: u64 = 1_800_000_000_000;

fn check(history: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(history);
}

/// The log as it is applied: the greatest time, which entries raise.
#[derive(Clone, Default)]
struct Log(std::sync::Arc<AtomicU64>);

impl Log {
    fn apply(&self, stamp_ms: u64) {
        self.0.fetch_max(stamp_ms, SeqCst);
    }
}

fn leading() -> LogTime {
    let time = LogTime::new();
    time.lead(START, START + 200);
    time
}

#[test]
fn a_read_waits_for_every_write_of_a_lower_ticket() {
    check(|| {
        let time = leading();
        let applied = std::sync::Arc::new(AtomicU64::new(0));
        let writer = {
            let (time, applied) = (time.clone(), applied.clone());
            thread::spawn(move || {
                let ticket = time.draw_write(START).unwrap();
                applied.fetch_add(1, SeqCst);
                ticket.applied();
            })
        };
        let drawn_before = time.draw_write(START).unwrap();
        let read = time.draw_read(START).unwrap();
        assert!(read.at_ms >= drawn_before.stamp_ms);
        let closer = {
            let applied = applied.clone();
            thread::spawn(move || {
                applied.fetch_add(10, SeqCst);
                drawn_before.applied();
            })
        };
        block_on(time.cleared(&read)).unwrap();
        assert!(
            applied.load(SeqCst) >= 10,
            "a write of a lower ticket was under way"
        );
        closer.join().unwrap();
        writer.join().unwrap();
        let late = time.draw_read(START).unwrap();
        block_on(time.cleared(&late)).unwrap();
        assert!(late.at_ms >= read.at_ms);
    });
}

/// A write that lands after an answer has a time that is not before it.
#[test]
fn no_write_takes_a_time_before_an_answer() {
    check(|| {
        let (time, log) = (leading(), Log::default());
        let writer = {
            let (time, log) = (time.clone(), log.clone());
            thread::spawn(move || {
                let ticket = time.draw_write(START).unwrap();
                let stamp = ticket.stamp_ms;
                log.apply(stamp);
                ticket.applied();
                stamp
            })
        };
        let ahead = time.draw_read(START + 7).unwrap();
        block_on(time.cleared(&ahead)).unwrap();
        let seen = log.0.load(SeqCst);
        let stamp = writer.join().unwrap();
        assert!(
            stamp >= ahead.at_ms || seen >= stamp,
            "it landed behind an answer of a later moment"
        );
    });
}

/// A client that gives up closes nothing, and the end of the leadership ends the wait.
#[test]
fn the_end_of_a_leadership_ends_what_waits_for_a_write_that_was_given_up() {
    check(|| {
        let time = leading();
        drop(time.draw_write(START).unwrap());
        let read = time.draw_read(START).unwrap();
        let end = {
            let time = time.clone();
            thread::spawn(move || time.quit())
        };
        assert_eq!(block_on(time.cleared(&read)), Err(NotLeading));
        end.join().unwrap();
        assert_eq!(time.draw_read(START).unwrap_err(), NotLeading);
    });
}

/// A ticket that was dropped under the leadership before neither clears nor holds up the next one.
#[test]
fn a_ticket_that_was_dropped_under_an_earlier_leadership_counts_for_nothing() {
    check(|| {
        let time = leading();
        let old = time.draw_write(START).unwrap();
        let waits = time.draw_read(START).unwrap();
        drop(old);
        let again = {
            let time = time.clone();
            thread::spawn(move || time.lead(START + 50, START + 300))
        };
        assert_eq!(block_on(time.cleared(&waits)), Err(NotLeading));
        again.join().unwrap();
        let new = time.draw_write(START).unwrap();
        assert!(new.stamp_ms >= START + 50);
        let read = time.draw_read(START + 250).unwrap();
        assert!(!read.needs_tick);
        let closer = thread::spawn(move || new.applied());
        block_on(time.cleared(&read)).unwrap();
        closer.join().unwrap();
        let ahead = time.draw_read(START + 301).unwrap();
        assert!(
            ahead.needs_tick,
            "nothing is committed that allows this moment"
        );
    });
}

/// A clock that leapt under one leadership does not count for the next one, which begins behind all that was answered.
#[test]
fn a_leadership_begins_where_the_state_is() {
    check(|| {
        let time = leading();
        let leapt = time.draw_read(START + 3_600_000).unwrap();
        assert!(leapt.needs_tick, "nothing was answered at that moment");
        time.quit();
        time.lead(START + 200, START + 200);
        assert_eq!(time.draw_write(START).unwrap().stamp_ms, START + 200);
    });
}

/// No write takes a time before a moment that was said to be closed, and none that is under way has an earlier one.
#[test]
fn nothing_is_written_before_a_closed_moment() {
    check(|| {
        let (time, log) = (leading(), Log::default());
        assert_eq!(LogTime::new().closed(START), None);
        let writer = {
            let (time, log) = (time.clone(), log.clone());
            thread::spawn(move || {
                let ticket = time.draw_write(START + 3).unwrap();
                let stamp = ticket.stamp_ms;
                log.apply(stamp);
                ticket.applied();
                stamp
            })
        };
        let closed = time.closed(START + 7).unwrap();
        let seen = log.0.load(SeqCst);
        let stamp = writer.join().unwrap();
        assert!(
            stamp >= closed.at_ms || seen >= stamp,
            "it landed before a moment that was closed"
        );
        let far = time.closed(START + 60_000).unwrap();
        assert!(
            far.at_ms <= stamp + 200,
            "no later leader may answer earlier"
        );
        assert_eq!(far.now_ms, START + 60_000);
    });
}

/// A node may lead again before the write of a ticket is proposed: it lands under the new leadership, with the old stamp.
#[test]
fn a_ticket_that_is_held_holds_up_the_next_leadership() {
    check(|| {
        let (time, log) = (leading(), Log::default());
        let old = time.draw_write(START).unwrap();
        time.quit();
        time.lead(START + 50, START + 300);
        let read = time.draw_read(START + 250).unwrap();
        let late = {
            let log = log.clone();
            thread::spawn(move || {
                log.apply(old.stamp_ms);
                old.applied();
            })
        };
        block_on(time.cleared(&read)).unwrap();
        assert_eq!(log.0.load(SeqCst), START, "it landed behind the answer");
        late.join().unwrap();
    });
}
