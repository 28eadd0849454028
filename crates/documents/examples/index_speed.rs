//! The cost and the gain of indexes by name: two containers of 1 000 000 documents of about 300 bytes, one with two
//! indexes. Writes and reads of both, and queries by a scan and by an index.
//!
//! `cargo run --release --package ebbtide-documents --example index_speed [DOCUMENTS] [FILE]`; with FILE the documents are
//! written there, a line each, for another program to be measured over the same.

use std::error::Error;
use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

use ebbtide_documents::{
    Conditions, Container, ContainerDefinition, Documents, PartitionKey, QueryLimits, Scope,
};

mod support;

use support::document;

const QUERIES: [&str; 7] = [
    "SELECT c.id, c.total FROM c WHERE c.address.postcode = '00077'",
    "SELECT c.id, c.total FROM c WHERE c.customer = 'customer-77'",
    "SELECT c.id, c.total FROM c WHERE c.customer IN ('customer-77', 'customer-78')",
    "SELECT c.id, c.total FROM c WHERE c.total > 995.5",
    "SELECT VALUE COUNT(1) FROM c WHERE c.customer = 'customer-77'",
    "SELECT TOP 10 c.id FROM c ORDER BY c.total DESC",
    "SELECT TOP 10 c.id FROM c ORDER BY c.total",
];
const POLICY: &[u8] =
    br#"{"id": "indexed", "partitionKey": {"paths": ["/id"]}, "indexingPolicy": {"includedPaths": [
    {"path": "/address/postcode/?"}, {"path": "/customer/?"}, {"path": "/total/?"}]}}"#;
const CALLS: u64 = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments
        .next()
        .map_or(Ok(1_000_000), |count| count.parse())?;
    if let Some(file) = arguments.next() {
        let mut out = std::io::BufWriter::new(std::fs::File::create(file)?);
        (0..count).try_for_each(|at| writeln!(out, "{}", document(at)))?;
    }
    println!(
        "{count} documents, the first of {} bytes",
        document(0).len()
    );
    let folder = tempfile::tempdir()?;
    let store = Documents::open(folder.path())?;
    store.create_database("shop")?;
    let plain = store.create_container("shop", ContainerDefinition::new("plain", "/id"))?;
    let indexed = store.create_container("shop", ContainerDefinition::from_json(POLICY)?)?;
    for (name, container) in [("none", &plain), ("three indexes", &indexed)] {
        let each = |from: u64, to: u64, call: &dyn Fn(u64) -> Result<(), Box<dyn Error>>| {
            let began = Instant::now();
            (from..to).try_for_each(call)?;
            Ok::<_, Box<dyn Error>>(began.elapsed().as_nanos() as u64 / (to - from).max(1))
        };
        let create = each(0, count, &|at| upsert(container, at))?;
        let again = each(0, CALLS.min(count), &|at| upsert(container, at))?;
        let read = each(0, CALLS.min(count), &|at| {
            let id = format!("order-{at:09}");
            black_box(container.read(&PartitionKey::from(&*id), &id)?);
            Ok(())
        })?;
        println!("{name}: {create} ns an upsert that is new, {again} that is not, {read} a read");
    }
    let entries = store
        .engine()
        .container(format!("{}#index", indexed.rid()))?;
    for (name, container) in [("documents", indexed.items()), ("entries", &entries)] {
        let bytes = container.stats().live_bytes;
        println!("{name}: {} live bytes a document", bytes / count.max(1));
    }
    let limits = QueryLimits {
        rows: 100_000,
        bytes: usize::MAX,
        time: Duration::MAX,
        ..QueryLimits::default()
    };
    for text in QUERIES {
        let run = |container: &Container| -> Result<(Duration, Vec<String>), Box<dyn Error>> {
            let (mut best, mut rows) = (Duration::MAX, vec![]);
            for _ in 0..5 {
                let began = Instant::now();
                rows = container
                    .query(text, &[], &Scope::everything(), &limits, None)?
                    .rows;
                best = best.min(began.elapsed());
            }
            Ok((best, rows))
        };
        let ((scan, scanned), (index, found)) = (run(&plain)?, run(&indexed)?);
        assert!(scanned == found, "{text}");
        let times = scan.as_secs_f64() / index.as_secs_f64();
        println!(
            "{scan:10.1?} by a scan {index:10.1?} by an index {times:8.1} x {:6} rows: {text}",
            found.len()
        );
    }
    Ok(())
}

fn upsert(container: &Container, at: u64) -> Result<(), Box<dyn Error>> {
    let document = document(at);
    let id = format!("order-{at:09}");
    let key = PartitionKey::from(&*id);
    container.upsert(&key, document.as_bytes(), &Conditions::none())?;
    Ok(())
}
