//! Documents against the engine below them, in one run: a read against `get`, an upsert against `put`, for documents of 300
//! bytes. `cargo run --release --package ebbtide-documents --example document_speed`

use std::time::{Duration, Instant};

use ebbtide::{Options, Result as EngineResult};
use ebbtide_documents::{Conditions, ContainerDefinition, Documents, PartitionKey};

const DOCUMENTS: u64 = 20_000;
const ROUNDS: u32 = 9;

fn body(n: u64) -> Vec<u8> {
    let mut body = format!(
        "{{\"id\":\"{n:08}\",\"user\":\"u{:04}\",\"cart\":[{n},{}],\"at\":{}.25,\"text\":\"",
        n % 1_000,
        n * 7,
        n * 31
    );
    while body.len() < 286 {
        body.push_str("some words ");
    }
    body.truncate(286);
    (body + "\",\"ttl\":36000")
        .into_bytes()
        .into_iter()
        .chain([b'}'])
        .collect()
}

/// The least that a piece of some documents took, for each of several operations that take turns, in several rounds over all
/// documents: what else runs spoils few pieces, and all operations meet the same memory, flushes and log.
fn least(operations: &mut [&mut dyn FnMut(u64)]) -> Vec<Duration> {
    const PIECE: u64 = 1_000;
    let mut least = vec![Duration::MAX; operations.len()];
    for _ in 0..ROUNDS {
        for (operation, least) in operations.iter_mut().zip(&mut least) {
            for from in (0..DOCUMENTS).step_by(PIECE as usize) {
                let began = Instant::now();
                (from..from + PIECE).for_each(&mut *operation);
                *least = began.elapsed().min(*least);
            }
        }
    }
    least.iter().map(|least| *least / PIECE as u32).collect()
}

/// The middle of what several rounds took, each over all documents.
fn middle(mut round: impl FnMut(u64)) -> Duration {
    let mut took: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            (0..DOCUMENTS).for_each(&mut round);
            began.elapsed()
        })
        .collect();
    took.sort_unstable();
    took[took.len() / 2] / DOCUMENTS as u32
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let engine = Options::new().open(folder.path())?;
    let documents = Documents::with(engine.clone())?;
    documents.create_database("db")?;
    let mut definition = ContainerDefinition::new("c", "/user");
    definition.default_ttl = "1h".parse()?;
    let c = documents.create_container("db", definition)?;
    let plain = engine.container("plain")?;

    let all: Vec<_> = (0..DOCUMENTS).map(body).collect();
    let keys: Vec<_> = (0..DOCUMENTS)
        .map(|n| PartitionKey::from(&*format!("u{:04}", n % 1_000)))
        .collect();
    let ids: Vec<_> = (0..DOCUMENTS).map(|n| format!("{n:08}")).collect();
    // As one that has no documents would call them.
    let plain_keys: Vec<_> = (0..DOCUMENTS)
        .map(|n| format!("u{:04}/{n:08}", n % 1_000))
        .collect();
    let at = |n: u64| usize::try_from(n).expect("a place");
    println!("documents of {} bytes, nanoseconds each", all[0].len());
    let none = Conditions::none();
    let mut put = |n| {
        plain
            .put_with_ttl(&plain_keys[at(n)], &all[at(n)], Duration::from_secs(36_000))
            .expect("a put");
    };
    let mut upsert = |n| {
        let done = c.upsert(&keys[at(n)], &all[at(n)], &none);
        drop(done.expect("an upsert"));
    };
    let mut parse = |n| drop(c.partition_key_of(&all[at(n)]).expect("a document"));
    let mut swap = |n| {
        let value = ebbtide::Bytes::copy_from_slice(&all[at(n)]);
        let ttl = ebbtide::Ttl::After(Duration::from_secs(36_000));
        let swapped = plain.fetch_update(&plain_keys[at(n)], |_| {
            ebbtide::Update::Put(value.clone(), ttl)
        });
        drop(swapped.expect("an update"));
    };
    let took = least(&mut [&mut put, &mut upsert, &mut parse, &mut swap]);
    println!(
        "put {:5}  upsert {:5}  {:.2} x",
        took[0].as_nanos(),
        took[1].as_nanos(),
        ratio(took[1], took[0])
    );
    println!(
        "of which: parsing {:5}; fetch_update {:5}",
        took[2].as_nanos(),
        took[3].as_nanos()
    );
    for place in ["memory", "tables"] {
        if place == "tables" {
            engine.flush()?;
            engine.compact()?;
        }
        let get = middle(|n| {
            let found: EngineResult<_> = plain.get(&plain_keys[at(n)]);
            assert!(found.expect("a get").is_some());
        });
        let item = middle(|n| drop(plain.item(&plain_keys[at(n)]).expect("an item")));
        let read = middle(|n| drop(c.read(&keys[at(n)], &ids[at(n)]).expect("a read")));
        let (times, get, read) = (ratio(read, get), get.as_nanos(), read.as_nanos());
        println!("get {get:5}  read   {read:5}  {times:.2} x  from {place}");
        println!("of which: item {:5}", item.as_nanos());
    }
    Ok(())
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}
