//! Readings of sensors, kept for thirty days, or for as long as is decided later.
//!
//! The retention is the container's default ttl: a reading is put without one. Changing it acts at once on readings that
//! were written long ago, and rewrites nothing; what it ends stays gone when it is raised again. A reading that is to stay
//! is put with `Ttl::Never`. A window of time is a range of keys, since a key is the sensor's name and a time.
//!
//! `cargo run --example telemetry`

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::{Container, ContainerOptions, Database, DefaultTtl, ManualClock, Options, Ttl};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    // A clock that is moved by hand, so that the example need not wait for months.
    let clock = ManualClock::new(1_800_000_000_000);
    let options = Options::new().clock(clock.clone());
    let telemetry = Telemetry::open(folder.path(), options, 30 * DAY)?;

    for hour in 0..45 * 24u32 {
        telemetry.record("boiler", f64::from(60 + hour % 24), Ttl::Inherit)?;
        clock.advance(DAY / 24);
    }
    let now = telemetry.db.now();
    let (count, mean) = telemetry.mean("boiler", now - 7 * DAY, now)?;
    println!("the last 7 days:    {count} readings, {mean:.1} degrees on average");
    println!(
        "kept for 30 days:   {} readings",
        telemetry.readings.count(..)?
    );

    telemetry.keep_for(10 * DAY)?;
    println!(
        "kept for 10 days:   {} readings",
        telemetry.readings.count(..)?
    );
    telemetry.keep_for(90 * DAY)?;
    println!(
        "kept for 90 days:   {} readings",
        telemetry.readings.count(..)?
    );

    telemetry.record("boiler", 140.0, Ttl::Never)?;
    clock.advance(90 * DAY);
    println!(
        "90 days later:      {} reading",
        telemetry.readings.count(..)?
    );

    telemetry.db.compact()?; // or wait: the database gives space back by itself
    let expired = telemetry.readings.stats().expired_bytes;
    println!("expired on disk:    {expired} bytes");
    Ok(telemetry.db.close()?)
}

struct Telemetry {
    db: Database,
    /// A reading, eight bytes, by its sensor's name, a zero byte, and its time: milliseconds since the Unix epoch, eight bytes,
    /// the highest first, so that the order of keys is that of times.
    readings: Container,
}

impl Telemetry {
    /// The retention counts when the folder is new; else the one that was set last does.
    fn open(folder: &Path, options: Options, retention: Duration) -> ebbtide::Result<Telemetry> {
        let db = options.open(folder)?;
        let kept = ContainerOptions::new()
            .default_ttl(DefaultTtl::After(retention))
            .or_keep();
        Ok(Telemetry {
            readings: db.container_with("readings", kept)?,
            db,
        })
    }

    /// Records what a sensor reads now; of two in one millisecond the second takes the place of the first.
    fn record(&self, sensor: &str, reading: f64, ttl: Ttl) -> ebbtide::Result<()> {
        let key = key(sensor, self.db.now());
        self.readings.put_with_ttl(key, reading.to_be_bytes(), ttl)
    }

    /// How long readings are kept from now on, those that are there too.
    fn keep_for(&self, retention: Duration) -> ebbtide::Result<()> {
        self.readings.set_default_ttl(DefaultTtl::After(retention))
    }

    /// How many readings a sensor has from a moment on until before another, and their mean.
    fn mean(&self, sensor: &str, from: SystemTime, to: SystemTime) -> ebbtide::Result<(u64, f64)> {
        let (mut count, mut sum) = (0, 0.0);
        let window = key(sensor, from)..key(sensor, to);
        let _: ControlFlow<()> = self.readings.for_each(window, |_, reading| {
            count += 1;
            sum += f64::from_be_bytes(reading.try_into().expect("eight bytes"));
            ControlFlow::Continue(())
        })?;
        Ok((count, sum / count as f64))
    }
}

fn key(sensor: &str, time: SystemTime) -> Vec<u8> {
    let since = time.duration_since(UNIX_EPOCH).expect("after 1970");
    let millis = since.as_millis() as u64;
    [sensor.as_bytes(), &[0], &millis.to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reading of the model: when it was recorded, what it reads, whether it is kept for ever.
    type Reading = (u64, f64, bool);

    /// Chance readings, rests and changes of the retention, against a list from which what has ended is taken for good.
    #[test]
    fn windows_hold_what_the_retention_keeps() {
        const START: u64 = 1_800_000_000_000;
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new(START);
        let options = Options::new().clock(clock.clone());
        let telemetry = Telemetry::open(folder.path(), options, 30 * DAY).unwrap();
        let (mut kept, mut now, mut days): (Vec<Reading>, u64, u64) = (vec![], START, 30);
        let mut chance = 1u64;
        let mut below = |n: u64| {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (chance >> 33) % n
        };
        let day = DAY.as_millis() as u64;
        let (mut ended, mut counted) = (0, 0);
        for step in 0..4_000 {
            match below(40) {
                0 => {
                    days = 1 + below(40);
                    telemetry.keep_for(days as u32 * DAY).unwrap();
                }
                1 => telemetry.db.flush().unwrap(),
                2 => telemetry.db.compact().unwrap(),
                _ => {
                    let rest = 1 + below(day / 4);
                    clock.advance(Duration::from_millis(rest));
                    now += rest;
                    let (reading, is_kept) = (step as f64, below(50) == 0);
                    let ttl = if is_kept { Ttl::Never } else { Ttl::Inherit };
                    telemetry.record("a", reading, ttl).unwrap();
                    telemetry.record("ab", reading, Ttl::Inherit).unwrap();
                    kept.push((now, reading, is_kept));
                }
            }
            let before = kept.len();
            kept.retain(|(time, _, is_kept)| *is_kept || time + days * day > now);
            ended += before - kept.len();
            let from = START + below(now - START + 1);
            let to = from + below(now - from + 2);
            let window = kept
                .iter()
                .filter(|reading| (from..to).contains(&reading.0));
            let (count, sum) = window.fold((0, 0.0), |(n, sum), one| (n + 1, sum + one.1));
            let at = |millis| UNIX_EPOCH + Duration::from_millis(millis);
            let found = telemetry.mean("a", at(from), at(to)).unwrap();
            assert_eq!(found.0, count, "at step {step}");
            assert!(count == 0 || found.1 == sum / count as f64);
            counted += count;
        }
        assert!(ended > 1_000 && counted > 1_000, "{ended}, {counted}");
    }

    #[test]
    fn a_retention_lasts_over_a_reopen() {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new(1_800_000_000_000);
        let options = Options::new().clock(clock.clone());
        let telemetry = Telemetry::open(folder.path(), options.clone(), 30 * DAY).unwrap();
        telemetry.record("a", 1.0, Ttl::Inherit).unwrap();
        telemetry.keep_for(2 * DAY).unwrap();
        telemetry.db.close().unwrap();
        clock.advance(2 * DAY);
        let telemetry = Telemetry::open(folder.path(), options, 30 * DAY).unwrap();
        assert!(telemetry.readings.is_empty().unwrap());
    }
}
