//! Spans of the crate `tracing` for background work, with the feature of that name; without it nothing is left of them.
//!
//! A subscriber is called where a span begins and ends, also under locks of the engine, so it must not use the database.
//! docs/metrics.md lists the spans.

use std::fmt::Display;

/// Ends its span when it is dropped.
#[must_use = "a span lasts as long as this"]
pub struct Span {
    #[cfg(feature = "tracing")]
    _entered: tracing::span::EnteredSpan,
}

/// Begins a span with what the crate's macro of this level takes.
macro_rules! span {
    ($level:ident, $name:literal, $($field:ident = $value:expr),*) => {{
        #[cfg(feature = "tracing")]
        {
            let span = tracing::span!(target: "ebbtide", tracing::Level::$level, $name, $($field = $value),*);
            Span { _entered: span.entered() }
        }
        #[cfg(not(feature = "tracing"))]
        {
            $(let _ = $value;)*
            Span {}
        }
    }};
}

/// Opening a database.
pub fn open(path: &dyn Display) -> Span {
    span!(INFO, "open", path = display(path))
}

/// A flush of the memtables of so many containers.
pub fn flush(containers: usize) -> Span {
    span!(INFO, "flush", containers = containers as u64)
}

/// A merge or rewrite.
pub fn merge(container: &str, why: &dyn Display) -> Span {
    span!(INFO, "merge", container = container, why = display(why))
}

/// The removal of tables that nobody reads.
pub fn reclaim(container: &str, tables: usize) -> Span {
    span!(
        INFO,
        "reclaim",
        container = container,
        tables = tables as u64
    )
}

/// A writer that is stopped.
pub fn stall(container: &str) -> Span {
    span!(DEBUG, "stall", container = container)
}

/// A sync of the log.
pub fn sync() -> Span {
    span!(DEBUG, "sync",)
}

/// The macro has one of its own.
#[cfg(not(feature = "tracing"))]
fn display<T>(value: T) -> T {
    value
}
