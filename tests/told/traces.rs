//! Goal: background work has the spans that docs/metrics.md lists, with these fields.
//!
//! Method: a subscriber that writes down each span, beside a stepped database on a simulated disk.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::internals::Sim;
use ebbtide::{Database, ManualClock, Options};
use testkit::process;
use testkit::stage;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Metadata, Subscriber};

const NOW: u64 = 1_767_225_600_000;

/// The spans with their fields, and how many are open.
#[derive(Clone, Default)]
struct Spans {
    fields: Arc<Mutex<BTreeMap<&'static str, BTreeSet<&'static str>>>>,
    begun: Arc<AtomicU64>,
    open: Arc<AtomicU64>,
}

impl Subscriber for Spans {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let metadata = span.metadata();
        assert_eq!(metadata.target(), "ebbtide");
        let fields = metadata.fields().iter().map(|field| field.name());
        let mut all = self.fields.lock().unwrap();
        all.insert(metadata.name(), fields.collect());
        Id::from_u64(1 + self.begun.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    fn exit(&self, _: &Id) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Opens, is stalled, flushes, merges and reclaims.
fn work(clock: &ManualClock) -> Database {
    let options = Options::new()
        .fs(Arc::new(Sim::new(1)))
        .clock(clock.clone());
    let options = options.stepped().memtable_bytes(256 << 10);
    let (db, c) = stage::open(options.sizes(4 << 10, 64 << 10, 256 << 10));
    for n in 0..20_000u32 {
        let (key, ttl) = ((n % 5_000).to_be_bytes(), Duration::from_secs(60));
        c.put_with_ttl(key, [1; 100], ttl).unwrap();
    }
    db.compact().unwrap();
    clock.advance(Duration::from_secs(61));
    while db.step().unwrap() {}
    db.close().unwrap();
    db
}

#[test]
fn spans_are_those_that_are_documented() {
    // Whether anybody looks at a span is known once for all threads, by the first that comes to it.
    if !process::is_alone(module_path!(), "spans_are_those_that_are_documented") {
        return;
    }
    let (clock, spans) = (ManualClock::new(NOW), Spans::default());
    let db = with_default(spans.clone(), || work(&clock));
    assert!(db.stats().stalls > 0 && db.stats().merges > 0 && db.stats().bytes_dropped > 0);
    assert_eq!(spans.open.load(Ordering::Relaxed), 0, "all have ended");
    let page = include_str!("../../docs/metrics.md");
    let table = page.split("| span | fields |").nth(1).unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let documented: BTreeMap<&str, BTreeSet<&str>> = rows
        .map(|row| {
            let mut words = row.split('`').skip(1).step_by(2);
            (words.next().unwrap(), words.collect())
        })
        .collect();
    assert_eq!(*spans.fields.lock().unwrap(), documented);
}
