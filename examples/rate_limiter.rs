//! Five requests a minute for each client, in two ways.
//!
//! By a fixed window: a counter that expires a minute after the first request that it counted; `Ttl::Keep` leaves its end
//! where it is. By a sliding window: the times of the last five requests, so that no minute whatever sees more than five.
//! Each decision is one `fetch_update`, so callers at the same moment cannot pass together. Nothing has to be cleaned up.
//!
//! `cargo run --example rate_limiter`

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::{Container, Database, ManualClock, Options, Ttl, Update};

const LIMIT: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    // A clock that is moved by hand, so that the example need not wait for a minute.
    let clock = ManualClock::new(1_800_000_000_000);
    let db = Options::new().clock(clock.clone()).open(folder.path())?;
    let (fixed, sliding) = (Fixed::new(&db)?, Sliding::new(&db)?);

    println!("second  fixed window     sliding window");
    for second in [0, 50, 51, 52, 53, 54, 61, 62, 63, 111] {
        clock.set(1_800_000_000_000 + second * 1_000);
        let by_fixed = shown(fixed.admit("203.0.113.9")?);
        let by_sliding = shown(sliding.admit("203.0.113.9")?);
        println!("{second:>6}  {by_fixed:<15}  {by_sliding}");
    }
    clock.advance(WINDOW);
    assert!(fixed.counts.is_empty()? && sliding.times.is_empty()?);
    println!("a minute later nothing is stored");
    Ok(db.close()?)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Admitted,
    /// A request may be admitted after so long, if no other one is before.
    RetryAfter(Duration),
}

fn shown(verdict: Verdict) -> String {
    match verdict {
        Verdict::Admitted => "admitted".to_owned(),
        Verdict::RetryAfter(time) => format!("retry after {} s", time.as_secs()),
    }
}

/// At most [`LIMIT`] requests from the first one on until [`WINDOW`] later.
struct Fixed {
    counts: Container,
}

impl Fixed {
    fn new(db: &Database) -> ebbtide::Result<Fixed> {
        let counts = db.container("requests, fixed")?;
        Ok(Fixed { counts })
    }

    fn admit(&self, client: &str) -> ebbtide::Result<Verdict> {
        let updated = self.counts.fetch_update(client, |count| {
            let Some(count) = count else {
                return Update::Put(vec![1], Ttl::After(WINDOW));
            };
            match count.value()[0] {
                n if usize::from(n) < LIMIT => Update::Put(vec![n + 1], Ttl::Keep),
                _ => Update::Keep,
            }
        })?;
        Ok(match (updated.written, updated.before) {
            (None, Some(count)) => Verdict::RetryAfter(count.remaining().expect("it has a ttl")),
            _ => Verdict::Admitted,
        })
    }
}

/// At most [`LIMIT`] requests in every [`WINDOW`].
struct Sliding {
    db: Database,
    /// Milliseconds since the Unix epoch, eight bytes each, the earliest first.
    times: Container,
}

impl Sliding {
    fn new(db: &Database) -> ebbtide::Result<Sliding> {
        Ok(Sliding {
            db: db.clone(),
            times: db.container("requests, sliding")?,
        })
    }

    fn admit(&self, client: &str) -> ebbtide::Result<Verdict> {
        let mut verdict = Verdict::Admitted;
        self.times.fetch_update(client, |item| {
            let now = millis(self.db.now());
            let window = WINDOW.as_millis() as u64;
            let times = item.map_or(&[][..], |item| item.value());
            let times = times.chunks_exact(8).map(|bytes| {
                let bytes = bytes.try_into().expect("eight bytes");
                u64::from_be_bytes(bytes)
            });
            let mut counted: Vec<u64> = times.filter(|time| time + window > now).collect();
            if counted.len() >= LIMIT {
                verdict = Verdict::RetryAfter(Duration::from_millis(counted[0] + window - now));
                return Update::Keep;
            }
            verdict = Verdict::Admitted;
            counted.push(now);
            let bytes = counted.iter().flat_map(|time| time.to_be_bytes());
            // It expires when the last of them no longer counts.
            Update::Put(bytes.collect::<Vec<_>>(), Ttl::After(WINDOW))
        })?;
        Ok(verdict)
    }
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).expect("after 1970");
    since.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    fn open(clock: &ManualClock) -> (tempfile::TempDir, Database) {
        let folder = tempfile::tempdir().unwrap();
        let db = Options::new().clock(clock.clone()).open(folder.path());
        (folder, db.unwrap())
    }

    /// Eight threads ask for the same clients at once, in one window after the other.
    fn admitted_at_once(clock: &ManualClock, admit: impl Fn(&str) -> Verdict + Sync) {
        for window in 0..20 {
            let admitted = AtomicUsize::new(0);
            thread::scope(|threads| {
                for _ in 0..8 {
                    threads.spawn(|| {
                        for _ in 0..10 {
                            if admit("one") == Verdict::Admitted {
                                admitted.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    });
                }
            });
            assert_eq!(admitted.into_inner(), LIMIT, "in window {window}");
            clock.advance(WINDOW);
        }
    }

    #[test]
    fn callers_at_once_share_the_limit() {
        let clock = ManualClock::new(1_800_000_000_000);
        let (_folder, db) = open(&clock);
        let (fixed, sliding) = (Fixed::new(&db).unwrap(), Sliding::new(&db).unwrap());
        admitted_at_once(&clock, |client| fixed.admit(client).unwrap());
        admitted_at_once(&clock, |client| sliding.admit(client).unwrap());
    }

    /// Requests at chance moments, against the definition: one is admitted if and only if fewer than the limit were admitted
    /// in the window that ends with it; and when it is told to come back, it is admitted then and not a millisecond before.
    #[test]
    fn a_sliding_window_is_every_window() {
        let clock = ManualClock::new(1_800_000_000_000);
        let (_folder, db) = open(&clock);
        let sliding = Sliding::new(&db).unwrap();
        let (mut admitted, mut chance): (Vec<u64>, u64) = (vec![], 1);
        let (mut now, mut refused) = (0, 0);
        for _ in 0..3_000 {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let step = chance >> 50; // up to 16 s
            clock.advance(Duration::from_millis(step));
            now += step;
            let counted = admitted.iter().filter(|time| **time + 60_000 > now).count();
            let verdict = sliding.admit("one").unwrap();
            assert_eq!(verdict == Verdict::Admitted, counted < LIMIT);
            match verdict {
                Verdict::Admitted => admitted.push(now),
                Verdict::RetryAfter(time) if refused % 2 == 0 => {
                    clock.advance(time - Duration::from_millis(1));
                    let early = sliding.admit("one").unwrap();
                    assert_eq!(early, Verdict::RetryAfter(Duration::from_millis(1)));
                    clock.advance(Duration::from_millis(1));
                    assert_eq!(sliding.admit("one").unwrap(), Verdict::Admitted);
                    now += time.as_millis() as u64;
                    admitted.push(now);
                    refused += 1;
                }
                Verdict::RetryAfter(_) => refused += 1,
            }
        }
        assert!(refused > 100, "only {refused} were turned away");
    }

    #[test]
    fn a_fixed_window_ends_when_it_was_to_end() {
        let clock = ManualClock::new(1_800_000_000_000);
        let (_folder, db) = open(&clock);
        let fixed = Fixed::new(&db).unwrap();
        for second in 0..LIMIT as u64 {
            assert_eq!(fixed.admit("one").unwrap(), Verdict::Admitted);
            clock.advance(Duration::from_secs(1));
            let count = fixed.counts.item("one").unwrap().unwrap();
            let left = WINDOW - Duration::from_secs(second + 1);
            assert_eq!(count.remaining(), Some(left));
        }
        let left = WINDOW - Duration::from_secs(LIMIT as u64);
        assert_eq!(fixed.admit("one").unwrap(), Verdict::RetryAfter(left));
        assert_eq!(fixed.admit("another").unwrap(), Verdict::Admitted);
        clock.advance(left);
        assert_eq!(fixed.admit("one").unwrap(), Verdict::Admitted);
    }
}
