//! `GET /metrics`: the engine's figures (docs/metrics.md) and the server's own, in the text format of Prometheus.
//!
//! They are recorded anew for each answer, so nothing is counted for them in between.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit, counter,
    describe_counter, describe_gauge, gauge, with_local_recorder,
};

use crate::limits::{MEMORY_BYTES, THREADS, memory_in_use};
use crate::reply::{Answer, Failure, Reply};
use crate::state::{Frontend, State};

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) fn metrics(state: &State) -> Answer {
    answer(&state.frontend, || {
        state.documents.engine().publish_metrics()?;
        containers(state)
    })
}

/// The figures that `publish` records, and the server's own.
pub(crate) fn answer(frontend: &Frontend, publish: impl FnOnce() -> Result<(), Failure>) -> Answer {
    let recorded = Recorded::default();
    with_local_recorder(&recorded, || {
        publish()?;
        server(frontend);
        Ok::<(), Failure>(())
    })?;
    Ok(Reply::text(200, recorded.text(), CONTENT_TYPE))
}

/// The engine knows the containers of documents by their `_rid`s.
fn containers(state: &State) -> Result<(), Failure> {
    describe_gauge!(
        "ebbtide_documents_container_info",
        "the ids of a container of documents"
    );
    for database in state.documents.databases()? {
        for container in state.documents.containers(&database.id)? {
            let labels = [
                ("container", container.rid().to_string()),
                ("db", database.id.clone()),
                ("coll", container.definition().id.clone()),
            ];
            gauge!("ebbtide_documents_container_info", &labels).set(1.0);
        }
    }
    Ok(())
}

fn server(frontend: &Frontend) {
    let figures = &frontend.figures;
    describe_counter!(
        "ebbtide_http_requests_total",
        "requests that were answered, by the class of the status"
    );
    for class in 1..6 {
        counter!("ebbtide_http_requests_total", "class" => format!("{class}xx"))
            .absolute(figures.requests(class));
    }
    for (name, help, value) in [
        (
            "ebbtide_http_reads_total",
            "requests for documents",
            figures.reads(),
        ),
        (
            "ebbtide_http_writes_total",
            "requests that change documents",
            figures.writes(),
        ),
        (
            "ebbtide_http_refused_connections_total",
            "connections that were closed for there were too many",
            figures.refused_connections.load(Ordering::Relaxed),
        ),
        (
            "ebbtide_http_request_bytes_total",
            "bodies of requests",
            figures.request_bytes.load(Ordering::Relaxed),
        ),
        (
            "ebbtide_http_response_bytes_total",
            "bodies of answers",
            figures.response_bytes.load(Ordering::Relaxed),
        ),
    ] {
        describe_counter!(name, help);
        counter!(name).absolute(value);
    }
    for (name, help, value) in [
        (
            "ebbtide_http_connections",
            "connections that are open",
            figures.open_connections(),
        ),
        (
            "ebbtide_http_connections_most",
            "connections at once",
            frontend.most_connections as u64,
        ),
        (
            "ebbtide_http_threads_in_use",
            "requests that threads work on",
            figures.working(),
        ),
        (
            "ebbtide_http_threads_most",
            "requests that threads work on at once",
            THREADS as u64,
        ),
        (
            "ebbtide_http_memory_bytes",
            "bodies of requests in progress",
            memory_in_use(),
        ),
        (
            "ebbtide_http_memory_bytes_most",
            "bodies of requests in progress at once",
            MEMORY_BYTES as u64,
        ),
    ] {
        describe_gauge!(name, help);
        gauge!(name).set(value as f64);
    }
}

/// The figures of one answer.
#[derive(Default)]
struct Recorded(Mutex<BTreeMap<String, Family>>);

/// The figures of one name, by their labels as text. Those of gauges are the bits of floats.
#[derive(Default)]
struct Family {
    help: String,
    is_counter: bool,
    values: BTreeMap<String, Arc<AtomicU64>>,
}

impl Recorded {
    fn describe(&self, name: &KeyName, help: &str) {
        let mut families = self.0.lock().expect("no code panics with it");
        families.entry(name.as_str().to_owned()).or_default().help = help.to_owned();
    }

    fn value(&self, key: &Key, is_counter: bool) -> Arc<AtomicU64> {
        let mut families = self.0.lock().expect("no code panics with it");
        let family = families.entry(key.name().to_owned()).or_default();
        family.is_counter = is_counter;
        family.values.entry(labels(key)).or_default().clone()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, family) in &*self.0.lock().expect("no code panics with it") {
            let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
            let kind = if family.is_counter {
                "counter"
            } else {
                "gauge"
            };
            // A name that was described and has no figure has no samples either.
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            for (labels, value) in &family.values {
                let value = value.load(Ordering::Relaxed);
                let _ = match family.is_counter {
                    true => writeln!(text, "{name}{labels} {value}"),
                    false => writeln!(text, "{name}{labels} {}", f64::from_bits(value)),
                };
            }
        }
        text
    }
}

/// `{a="b",c="d"}`, or nothing.
fn labels(key: &Key) -> String {
    let label = |label: &metrics::Label| {
        let value = label.value().replace('\\', "\\\\");
        let value = value.replace('"', "\\\"").replace('\n', "\\n");
        format!("{}=\"{value}\"", label.key())
    };
    let labels: Vec<String> = key.labels().map(label).collect();
    match labels.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", labels.join(",")),
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&key, &help);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&key, &help);
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.value(key, true))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.value(key, false))
    }

    // Nothing here has a distribution.
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_helps_are_escaped() {
        let recorded = Recorded::default();
        with_local_recorder(&recorded, || {
            describe_gauge!("a_gauge", "one \\ two\nthree");
            gauge!("a_gauge", "x" => "q\" b\\ n\n").set(0.5);
            counter!("a_counter_total").absolute(7);
        });
        assert_eq!(
            recorded.text(),
            "# HELP a_counter_total \n# TYPE a_counter_total counter\na_counter_total 7\n\
             # HELP a_gauge one \\\\ two\\nthree\n# TYPE a_gauge gauge\na_gauge{x=\"q\\\" b\\\\ n\\n\"} 0.5\n"
        );
    }
}
