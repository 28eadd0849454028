//! Five requests a minute for each client: a count that begins anew when its minute is over, because it expires.
//!
//! `cargo run --example rate_limiter`

use std::time::Duration;

use ebbtide::{Container, ManualClock, Options, Ttl, Update};

const LIMIT: u8 = 5;
const WINDOW: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    // A clock that is moved by hand, so that the example need not wait for a minute.
    let clock = ManualClock::new(1_800_000_000_000);
    let db = Options::new().clock(clock.clone()).open(folder.path())?;
    let counts = db.container("requests")?;

    for request in 1..=7 {
        let verdict = if admit(&counts, "203.0.113.9")? {
            "admitted"
        } else {
            "turned away"
        };
        println!("request {request}: {verdict}");
        clock.advance(Duration::from_secs(1));
    }
    assert!(!admit(&counts, "203.0.113.9")?);
    assert!(
        admit(&counts, "198.51.100.7")?,
        "another client has a count of its own"
    );
    clock.advance(WINDOW);
    assert!(admit(&counts, "203.0.113.9")?, "a new minute");

    Ok(db.close()?)
}

/// Counts a request, as one step: two that arrive together are counted twice.
fn admit(counts: &Container, client: &str) -> ebbtide::Result<bool> {
    counts.update(client, |count| match count {
        None => Update::Put(vec![1], Ttl::After(WINDOW)),
        Some(item) if item.value()[0] < LIMIT => {
            // Written again, an item would live for another whole window: it keeps the end of its first one.
            let end = item.expires_at().expect("written with a ttl");
            Update::Put(vec![item.value()[0] + 1], Ttl::Until(end))
        }
        Some(_) => Update::Keep,
    })
}
