//! Goal: what is published is what docs/metrics.md lists, with these kinds, units and labels, and says what `stats` and
//! `disk` say; and what alerts and the dashboard name exists.
//!
//! Method: a recorder that keeps the last value of everything, beside databases on a simulated disk.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::internals::Sim;
use ebbtide::{Database, ManualClock, Options};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
    Unit, with_local_recorder,
};

const NOW: u64 = 1_767_225_600_000;

/// The last value of everything, by name and labels.
#[derive(Clone, Default)]
struct Kept {
    values: Arc<Mutex<BTreeMap<(String, String), f64>>>,
    described: Arc<Mutex<BTreeMap<String, (&'static str, Unit)>>>,
}

struct Slot(Kept, (String, String));

impl Slot {
    fn set_to(&self, value: f64) {
        self.0.values.lock().unwrap().insert(self.1.clone(), value);
    }
}

impl CounterFn for Slot {
    fn increment(&self, _: u64) {
        unreachable!("they are published whole")
    }

    fn absolute(&self, value: u64) {
        self.set_to(value as f64);
    }
}

impl GaugeFn for Slot {
    fn increment(&self, _: f64) {
        unreachable!("they are published whole")
    }

    fn decrement(&self, _: f64) {
        unreachable!("they are published whole")
    }

    fn set(&self, value: f64) {
        self.set_to(value);
    }
}

impl Kept {
    fn slot(&self, key: &Key) -> Arc<Slot> {
        let labels = key.labels();
        let labels = labels.map(|label| format!("{}={}", label.key(), label.value()));
        let labels = labels.collect::<Vec<_>>().join(",");
        Arc::new(Slot(self.clone(), (key.name().to_owned(), labels)))
    }

    fn describe(&self, name: &KeyName, kind: &'static str, unit: Option<Unit>) {
        let mut described = self.described.lock().unwrap();
        described.insert(name.as_str().to_owned(), (kind, unit.unwrap()));
    }

    fn value(&self, name: &str, labels: &str) -> f64 {
        let of = (name.to_owned(), labels.to_owned());
        self.values.lock().unwrap()[&of]
    }

    fn sum(&self, name: &str) -> f64 {
        let values = self.values.lock().unwrap();
        let of = values.iter().filter(|((of, _), _)| of == name);
        of.map(|(_, value)| value).sum()
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&key, "counter", unit);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&key, "gauge", unit);
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        unreachable!("there are none")
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.slot(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.slot(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        unreachable!("there are none")
    }
}

fn world() -> (ManualClock, Database, Kept) {
    let clock = ManualClock::new(NOW);
    let db = Options::new()
        .fs(Arc::new(Sim::new(1)))
        .clock(clock.clone())
        .stepped()
        .memtable_bytes(256 << 10)
        .sizes(4 << 10, 64 << 10, 256 << 10)
        .reclaim_within(Duration::from_secs(600))
        .open("/db")
        .unwrap();
    (clock, db, Kept::default())
}

fn publish(db: &Database, kept: &Kept) {
    with_local_recorder(kept, || db.publish_metrics()).unwrap();
}

fn fill(db: &Database, name: &str, seconds: u64) {
    let c = db.container(name).unwrap();
    for n in 0..1_000u32 {
        let ttl = Duration::from_secs(seconds);
        c.put_with_ttl(n.to_be_bytes(), [1; 100], ttl).unwrap();
    }
    db.flush().unwrap();
}

/// Name, kind, unit, labels of each row of the table.
fn documented() -> BTreeMap<String, [String; 3]> {
    let page = include_str!("../../docs/metrics.md");
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `ebbtide_"));
    let row = |row: &str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = format!("ebbtide_{}", cells[0].trim_end_matches('`'));
        (name, [1, 2, 3].map(|at| cells[at].to_owned()))
    };
    rows.map(row).collect()
}

#[test]
fn what_is_published_is_what_is_documented() {
    let (_, db, kept) = world();
    fill(&db, "c", 60);
    publish(&db, &kept);
    let mut published: BTreeMap<String, [String; 3]> = BTreeMap::new();
    let described = kept.described.lock().unwrap().clone();
    for (name, labels) in kept.values.lock().unwrap().keys() {
        let (kind, unit) = described[name];
        let unit = match unit {
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
            Unit::Microseconds => "microseconds",
            Unit::Count => "1",
            other => panic!("{name}: {other:?}"),
        };
        let labels = labels
            .split(',')
            .map(|label| label.split('=').next().unwrap());
        let labels: Vec<String> = labels.map(|label| format!("`{label}`")).collect();
        let row = [kind.to_owned(), unit.to_owned(), labels.join(", ")];
        published.insert(name.clone(), row);
    }
    assert_eq!(published, documented());
    assert_eq!(described.len(), published.len());
}

#[test]
fn figures_are_those_of_stats_and_disk() {
    let (clock, db, kept) = world();
    let a = "database=/db,container=a";
    fill(&db, "a", 60);
    fill(&db, "b", 7_200);
    let (c, stalls) = (db.container("a").unwrap(), db.stats().stalls);
    let value = c.get(0u32.to_be_bytes()).unwrap();
    publish(&db, &kept);
    assert_eq!(kept.value("ebbtide_container_live_items", a), 1_000.0);
    let due_now = kept.value("ebbtide_due_bytes", "database=/db,within=now");
    assert_eq!(due_now, 0.0);
    let day = kept.value("ebbtide_due_bytes", "database=/db,within=day");
    let hour = kept.value("ebbtide_due_bytes", "database=/db,within=hour");
    assert!(hour >= 100_000.0 && day >= 200_000.0, "{hour} {day}");
    // Ten minutes of grace, and a little more: late.
    clock.advance(Duration::from_secs(60 + 700));
    assert!(c.get(0u32.to_be_bytes()).unwrap().is_none());
    publish(&db, &kept);
    let (stats, usage) = (db.stats(), db.disk().unwrap());
    let whole = |name: &str| kept.value(name, "database=/db");
    assert_eq!(
        whole("ebbtide_reclaim_overdue_seconds"),
        stats.overdue.as_secs_f64()
    );
    assert!(stats.overdue.as_secs() == 100 && whole("ebbtide_expire_lag_seconds") == 700.0);
    assert_eq!(kept.value("ebbtide_container_overdue_seconds", a), 100.0);
    assert_eq!(whole("ebbtide_expired_misses_total"), 1.0);
    assert_eq!(
        whole("ebbtide_flush_bytes_total"),
        stats.bytes_flushed as f64
    );
    assert_eq!(whole("ebbtide_put_bytes_total"), stats.bytes_put as f64);
    assert_eq!(whole("ebbtide_stalls_total"), stalls as f64);
    assert_eq!(whole("ebbtide_du_bytes"), usage.bytes() as f64);
    assert_eq!(kept.sum("ebbtide_disk_bytes"), usage.bytes() as f64);
    assert!(kept.value("ebbtide_disk_bytes", "database=/db,kind=expired") > 0.0);
    // Back in time: nothing is late, and a value keeps a file.
    db.compact().unwrap();
    publish(&db, &kept);
    assert_eq!(whole("ebbtide_reclaim_overdue_seconds"), 0.0);
    assert_eq!(
        kept.value("ebbtide_disk_bytes", "database=/db,kind=expired"),
        0.0
    );
    assert_eq!(kept.value("ebbtide_container_live_items", a), 0.0);
    let by_values = kept.value("ebbtide_pinned_bytes", "database=/db,holder=value");
    assert!(value.is_some() && by_values == db.disk().unwrap().unlinked_bytes() as f64);
    // A dropped container does not stay as it was.
    let b = "database=/db,container=b";
    assert_eq!(kept.value("ebbtide_container_live_items", b), 1_000.0);
    db.drop_container("b").unwrap();
    publish(&db, &kept);
    assert_eq!(kept.value("ebbtide_container_live_items", b), 0.0);
    db.close().unwrap();
    assert!(
        with_local_recorder(&kept, || db.publish_metrics())
            .unwrap_err()
            .is_closed()
    );
}

/// The words in a text that look like names of metrics.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("ebbtide_"));
    names.map(str::to_owned).collect()
}

#[test]
fn alerts_and_dashboard_name_what_there_is() {
    let alerts = include_str!("../../docs/operations/alerts.yml");
    let dashboard = include_str!("../../docs/operations/dashboard.json");
    let there: BTreeSet<String> = documented().into_keys().collect();
    for text in [alerts, dashboard] {
        let named = named(text);
        let missing: Vec<_> = named.difference(&there).collect();
        assert!(missing.is_empty() && named.len() > 5, "{missing:?}");
    }
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels
        .iter()
        .map(|panel| panel["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids.len(), panels.len());
    for panel in panels {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            assert!(!named(query).is_empty(), "{query}");
            let count = |c| query.matches(c).count();
            assert_eq!(
                (count('('), count('{')),
                (count(')'), count('}')),
                "{query}"
            );
        }
    }
    // Each alert says what it is about.
    let alerts = alerts.split("- alert: ").skip(1);
    assert!(alerts.clone().count() >= 6);
    for alert in alerts {
        assert!(
            ["expr: ", "severity: ", "summary: "]
                .iter()
                .all(|part| alert.contains(part))
        );
    }
}
