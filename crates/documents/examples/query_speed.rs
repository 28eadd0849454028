//! The time that a query takes for each document: 1 000 000 documents of about 300 bytes, first in memory, then in a store.
//!
//! `cargo run --release --package ebbtide-documents --example query_speed [DOCUMENTS] [FILE]`; with FILE the documents are
//! written there, a line each, for another program to be measured over the same.

use std::error::Error;
use std::io::Write;
use std::time::{Duration, Instant, UNIX_EPOCH};

use ebbtide_documents::query::{NoSystem, Query, QueryLimits};
use ebbtide_documents::{Conditions, ContainerDefinition, Documents, Scope};

mod support;

use support::document;

const QUERIES: [&str; 7] = [
    "SELECT * FROM c WHERE c.customer = 'customer-77'",
    "SELECT * FROM c WHERE c.total > 995",
    "SELECT * FROM c WHERE c.address.city = 'city-7' AND c.total < 10",
    "SELECT c.id, c.total FROM c WHERE c.tags[1] = 'tag-3' AND c.total > 900",
    "SELECT TOP 10 c.id FROM c ORDER BY c.total DESC",
    "SELECT c.address.city, COUNT(1) AS n, AVG(c.total) AS mean FROM c GROUP BY c.address.city",
    "SELECT VALUE COUNT(1) FROM c",
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments
        .next()
        .map_or(Ok(1_000_000), |count| count.parse())?;
    let documents: Vec<String> = (0..count).map(document).collect();
    if let Some(file) = arguments.next() {
        let mut out = std::io::BufWriter::new(std::fs::File::create(file)?);
        documents
            .iter()
            .try_for_each(|document| writeln!(out, "{document}"))?;
    }
    let bytes: usize = documents.iter().map(String::len).sum();
    println!("{count} documents of {} bytes", bytes as u64 / count);
    let limits = QueryLimits {
        rows: usize::MAX,
        bytes: usize::MAX,
        time: Duration::MAX,
        ..QueryLimits::default()
    };
    for text in QUERIES {
        let query = Query::parse(text)?.bind(&[])?;
        measure(count, text, || {
            let mut execution = query.start(&limits, UNIX_EPOCH);
            for document in &documents {
                execution.push(document.as_bytes(), &NoSystem)?;
            }
            Ok(execution.finish()?.len())
        })?;
    }
    let folder = tempfile::tempdir()?;
    let store = Documents::open(folder.path())?;
    store.create_database("shop")?;
    let orders = store.create_container("shop", ContainerDefinition::new("orders", "/customer"))?;
    let began = Instant::now();
    for document in &documents {
        let key = orders.partition_key_of(document.as_bytes())?;
        orders.upsert(&key, document.as_bytes(), &Conditions::default())?;
    }
    let nanos = began.elapsed().as_nanos() as f64 / count as f64;
    println!("{nanos:7.1} ns an upsert; the same queries of the store:");
    drop(documents);
    for text in QUERIES {
        measure(count, text, || {
            let page = orders.query(text, &[], &Scope::everything(), &limits, None)?;
            Ok(page.rows.len())
        })?;
    }
    Ok(())
}

/// The best of three.
fn measure(
    count: u64,
    text: &str,
    run: impl Fn() -> Result<usize, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let (mut best, mut rows) = (f64::MAX, 0);
    for _ in 0..3 {
        let began = Instant::now();
        rows = run()?;
        best = best.min(began.elapsed().as_nanos() as f64 / count as f64);
    }
    println!("{best:7.1} ns a document, {rows:6} rows: {text}");
    Ok(())
}
