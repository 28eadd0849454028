//! The time that a query takes for each document: 1 000 000 documents of about 300 bytes in memory, of which some thousand pass.
//!
//! `cargo run --release --package ebbtide-documents --example query_speed [DOCUMENTS] [FILE]`; with FILE the documents are
//! written there, a line each, for another program to be measured over the same.

use std::io::Write;
use std::time::{Instant, UNIX_EPOCH};

use ebbtide_documents::query::{NoSystem, Query, QueryLimits};

const QUERIES: [&str; 7] = [
    "SELECT * FROM c WHERE c.customer = 'customer-77'",
    "SELECT * FROM c WHERE c.total > 995",
    "SELECT * FROM c WHERE c.address.city = 'city-7' AND c.total < 10",
    "SELECT c.id, c.total FROM c WHERE c.tags[1] = 'tag-3' AND c.total > 900",
    "SELECT TOP 10 c.id FROM c ORDER BY c.total DESC",
    "SELECT c.address.city, COUNT(1) AS n, AVG(c.total) AS mean FROM c GROUP BY c.address.city",
    "SELECT VALUE COUNT(1) FROM c",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
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
        ..QueryLimits::default()
    };
    for text in QUERIES {
        let query = Query::parse(text)?.bind(&[])?;
        let (mut best, mut rows) = (f64::MAX, 0);
        for _ in 0..3 {
            let began = Instant::now();
            let mut execution = query.start(&limits, UNIX_EPOCH);
            for document in &documents {
                execution.push(document.as_bytes(), &NoSystem)?;
            }
            rows = execution.finish()?.len();
            best = best.min(began.elapsed().as_nanos() as f64 / count as f64);
        }
        println!("{best:7.1} ns a document, {rows:6} rows: {text}");
    }
    Ok(())
}

fn document(at: u64) -> String {
    let mixed = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    format!(
        r#"{{"id":"order-{at:09}","customer":"customer-{}","placed":"2026-03-01T09:{:02}:00Z","total":{}.{:02},"paid":{},"address":{{"street":"{} High Street","city":"city-{}","postcode":"{:05}"}},"tags":["tag-{}","tag-{}"],"note":"please leave it at the door, behind the green pots","ttl":86400}}"#,
        mixed % 1_000,
        mixed % 60,
        mixed % 997,
        mixed % 100,
        mixed.is_multiple_of(2),
        mixed % 90,
        mixed % 50,
        mixed % 100_000,
        mixed % 5,
        mixed % 7,
    )
}
