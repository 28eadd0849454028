//! A service that keeps readings of sensors for thirty days, or for as long as an operator decides while it runs.
//!
//! `cargo run -p ebbtide-examples --bin telemetry`, and beside it, in other shells:
//!
//! ```text
//! ebbtide ttl readings-db readings 7d --preview         what would go
//! ebbtide ttl readings-db readings 7d --yes             it is gone, in the millisecond of the answer
//! ebbtide backup readings-db backups                    a copy that forgets, too
//! ebbtide export --parquet lake readings-db readings    for DuckDB; its retention is its own
//! ebbtide top readings-db
//! ```
//!
//! A reading is put without a ttl, so it lives for the container's default. A key is the sensor's name and the time, so a window of
//! time is a range. `container_with(.., or_keep())` says the retention of a new database, and leaves alone what the operator has
//! set since.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::{ContainerOptions, Database, DefaultTtl, Result, TypedContainer};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// By sensor and milliseconds since 1970.
type Readings = TypedContainer<(String, u64), f64>;

fn readings(db: &Database) -> Result<Readings> {
    let kept = ContainerOptions::new()
        .default_ttl(DefaultTtl::After(30 * DAY))
        .or_keep();
    Ok(db.container_with("readings", kept)?.typed())
}

fn millis(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// The number of readings of a sensor since then, and their mean.
fn mean(readings: &Readings, sensor: &str, since: SystemTime) -> Result<(u32, f64)> {
    let (mut count, mut sum) = (0, 0.0);
    for reading in readings.range((sensor, millis(since))..=(sensor, u64::MAX)) {
        (count, sum) = (count + 1, sum + reading?.value);
    }
    Ok((count, sum / f64::from(count.max(1))))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let db = Database::open("readings-db")?;
    let _control = ebbtide_control::listen(&db, ebbtide_control::Options::new())?;
    let readings = readings(&db)?;
    for second in 0.. {
        for sensor in ["boiler", "roof", "cellar"] {
            let reading = 20.0 + f64::from(second % 60) / 10.0;
            readings.put((sensor, millis(db.now())), &reading)?;
        }
        let (count, mean) = mean(&readings, "boiler", db.now() - DAY)?;
        println!("boiler: {count} readings of the last day, {mean:.1} degrees on average");
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ebbtide::{ManualClock, Options};
    use ebbtide_backup::{Backups, Folder, Later};
    use ebbtide_control::{Change, Request, connect, listen};

    use super::*;

    /// The retention is changed by another process while the service runs; a backup that is restored later forgets, too.
    #[test]
    fn an_operator_changes_the_retention_while_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, copy) = (folder.path().join("db"), folder.path().join("copy"));
        let clock = ManualClock::new(1_800_000_000_000);
        let options = Options::new().clock(clock.clone());
        let db = options.open(&dir).unwrap();
        let kept = readings(&db).unwrap();
        let control = listen(&db, ebbtide_control::Options::new()).unwrap();
        for hour in 0..20 * 24u32 {
            kept.put(("boiler", millis(db.now())), &f64::from(hour))
                .unwrap();
            kept.put(("boiler room", millis(db.now())), &0.0).unwrap();
            clock.advance(DAY / 24);
        }
        let of_last = |days: u32| mean(&kept, "boiler", db.now() - days * DAY).unwrap();
        assert_eq!(of_last(1), (24, 467.5));
        assert_eq!(of_last(365).0, 480);

        let backups =
            Backups::open(Folder::new(folder.path().join("backups"))).options(options.clone());
        backups.backup(&db, &dir).unwrap();
        let client = connect(&dir).unwrap().expect("it listens");
        let week = Change::DefaultTtl(DefaultTtl::After(7 * DAY));
        client
            .ask(&Request::change("readings", week), &mut |_| ())
            .unwrap();
        assert_eq!(
            of_last(365).0,
            7 * 24 - 1,
            "those of up to a week ago, less the one that ends now"
        );
        backups.ledger(&db, &dir).unwrap();

        drop(control);
        db.close().unwrap();
        backups.restore(None, &copy, Later::Tell).unwrap();
        let restored = options.open(&copy).unwrap();
        let kept = readings(&restored).unwrap();
        let found = mean(&kept, "boiler", UNIX_EPOCH).unwrap().0;
        assert_eq!(found, 7 * 24 - 1, "the backup was made before the change");
        clock.advance(3 * DAY);
        assert_eq!(mean(&kept, "boiler", UNIX_EPOCH).unwrap().0, 4 * 24 - 1);
    }
}
