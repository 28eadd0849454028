//! Goal: what a newcomer tries first works: a duration is a ttl, a range needs no annotation, a container is iterable,
//! items can be taken apart, and printed values are readable.
//!
//! Method: small programs with a clock that moves only when told to.

use std::ops::Bound;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::{
    Batch, Bytes, Database, DefaultTtl, Error, ManualClock, Options, Result, Ttl, Value,
};

use crate::fixture::{NOW, fixture, keys};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_duration_is_a_ttl_wherever_one_is_taken() -> Result<()> {
    let f = fixture();
    f.c.put_with_ttl("put", "v", MINUTE)?;
    assert!(f.c.create("created", "v", MINUTE)?);
    f.c.put("replaced", "v")?;
    assert!(f.c.replace("replaced", "v", MINUTE)?);
    f.db.write(Batch::new().put_with_ttl(&f.c, "batch", "v", MINUTE))?;
    f.c.put_with_ttl("stays", "v", Ttl::Never)?;
    for item in &f.c {
        let item = item?;
        let expected = if item.key() == b"stays" {
            Ttl::Never
        } else {
            MINUTE.into()
        };
        assert_eq!(item.ttl(), expected, "{item:?}");
    }
    f.clock.advance(MINUTE);
    assert_eq!(keys(&f.c), [b"stays"]);
    Ok(())
}

#[test]
fn ranges_need_no_annotation() -> Result<()> {
    let f = fixture();
    for key in ["a", "b", "c", "d"] {
        f.c.put(key, key)?;
    }
    let view = f.db.snapshot().container("c")?;
    let count = |iter: ebbtide::Iter| iter.map(Result::unwrap).count();
    let (from, to) = (b"b".to_vec(), Bytes::from_static(b"c"));
    for (found, expected) in [
        (count(f.c.range(..)), 4),
        (count(view.range(..)), 4),
        (count(f.c.range("b"..)), 3),
        (count(f.c.range(.."b")), 1),
        (count(f.c.range("b"..="c")), 2),
        (count(f.c.range(..=b"c")), 3),
        (count(f.c.range(&from..)), 3),
        (count(f.c.range(from.clone()..b"d".to_vec())), 2),
        (count(f.c.range(..to.clone())), 2),
        (
            count(f.c.range((Bound::Excluded("a"), Bound::Excluded("d")))),
            2,
        ),
        (
            count(f.c.range((Bound::Excluded(&to), Bound::Unbounded))),
            1,
        ),
        (count(f.c.range("c".."b")), 0),
    ] {
        assert_eq!(found, expected);
    }
    f.c.delete_range("b".."d")?;
    assert_eq!(keys(&f.c), [b"a", b"d"]);
    f.c.delete_range(..)?;
    assert!(keys(&f.c).is_empty());
    assert_eq!((&view).into_iter().count(), 4);
    Ok(())
}

#[test]
fn items_come_apart_wherever_they_lie() -> Result<()> {
    let f = fixture();
    f.c.put("flushed", "1")?;
    f.db.flush()?;
    f.c.put("in memory", "22")?;
    let found = |key: &str| f.c.item(key).map(Option::unwrap);
    let scanned: Vec<_> = f.c.iter().collect::<Result<_>>()?;
    for item in scanned
        .into_iter()
        .chain([found("flushed")?, found("in memory")?])
    {
        let value: Value = item.clone().into_value();
        let (key, same): (Bytes, Value) = item.clone().into_parts();
        assert_eq!((&*key, &same), (item.key(), item.value()));
        assert_eq!(value, same);
        assert_eq!(value, if key == "flushed" { "1" } else { "22" });
        assert_eq!(Vec::from(value), &**item.value());
    }
    Ok(())
}

#[test]
fn an_item_says_how_long_it_has_left() -> Result<()> {
    let f = fixture();
    let left = |key: &str| f.c.item(key).map(|item| item.unwrap().remaining());
    f.c.put_with_ttl("own", "v", MINUTE)?;
    f.c.put("inherits", "v")?;
    f.c.put_with_ttl("never", "v", Ttl::Never)?;
    assert_eq!(left("inherits")?, None);
    f.c.set_default_ttl(DefaultTtl::After(2 * MINUTE))?;
    let held = f.c.item("own")?.unwrap();
    let mut iter = f.c.iter();
    // In the order of keys: inherits, never, own.
    let wholes = [Some(2 * MINUTE), None, Some(MINUTE)];
    for (seconds, whole) in [0, 10, 49].into_iter().zip(wholes) {
        f.clock.set(NOW + seconds * 1_000);
        let gone = Duration::from_secs(seconds);
        assert_eq!(left("own")?, Some(MINUTE - gone));
        assert_eq!(left("inherits")?, Some(2 * MINUTE - gone));
        assert_eq!(left("never")?, None);
        assert_eq!(held.remaining(), Some(MINUTE), "as it was read");
        let item = iter.next().unwrap()?;
        assert_eq!(
            item.remaining(),
            whole.map(|whole| whole - gone),
            "{item:?}"
        );
    }
    f.c.set_default_ttl(DefaultTtl::Off)?;
    assert_eq!(left("own")?, None, "ttl does not count");
    // A lapse too small to count is none: what is read is the same item.
    let before = f.c.item("own")?;
    f.clock.advance(Duration::from_secs(1));
    assert_eq!(f.c.item("own")?, before);

    // On the clock of the system, as it is read by all.
    let folder = tempfile::tempdir().unwrap();
    let c = Database::open(folder.path())?.container("c")?;
    c.put_with_ttl("k", "v", MINUTE)?;
    for item in [c.item("k")?.unwrap(), c.iter().next().unwrap()?] {
        let read_at = item.expires_at().unwrap() - item.remaining().unwrap();
        // The clock is read by its ticks.
        let tick = Duration::from_secs(1);
        assert!(read_at + tick >= item.written_at(), "{item:?}");
        assert!(read_at <= SystemTime::now() + tick, "{item:?}");
    }
    Ok(())
}

#[test]
fn what_is_printed_can_be_read() -> Result<()> {
    let f = fixture();
    f.c.put_with_ttl("k\0", "quote \" and \u{1}", MINUTE)?;
    f.c.put("long", vec![b'x'; 10_000])?;
    let shown: Vec<String> =
        f.c.iter()
            .map(|item| format!("{:?}", item.unwrap()))
            .collect();
    // Two writes, two versions: they are numbers.
    let shown: Vec<String> = shown
        .iter()
        .map(|item| {
            let (before, rest) = item.split_once("version: ").unwrap();
            let (number, after) = rest.split_once(", ").unwrap();
            assert!(number.parse::<u64>().unwrap() > 0);
            format!("{before}{after}")
        })
        .collect();
    let cut = "x".repeat(64);
    assert_eq!(
        shown,
        [
            "Item { key: b\"k\\x00\", value: b\"quote \\\" and \\x01\", written_at: 2027-01-15T08:00:00.000Z, ttl: After(60s), \
             expires_at: 2027-01-15T08:01:00.000Z }"
                .to_owned(),
            format!(
                "Item {{ key: b\"long\", value: b\"{cut}\".. (10000 bytes), written_at: 2027-01-15T08:00:00.000Z, \
                 ttl: Inherit, expires_at: never }}"
            ),
        ]
    );
    assert_eq!(format!("{:?}", Value::default()), "b\"\"");
    Ok(())
}

#[test]
fn errors_about_clocks_give_moments_that_one_can_use() {
    let folder = tempfile::tempdir().unwrap();
    let open = |at| {
        Options::new()
            .clock(ManualClock::new(at))
            .open(folder.path())
    };
    let c = open(NOW).unwrap().container("c").unwrap();
    c.put("k", "v").unwrap();
    drop(c);
    let early = NOW - 86_400_000;
    let Err(Error::ClockBehind { wall, mark }) = open(early) else {
        panic!("a day behind");
    };
    let moment = |millis| UNIX_EPOCH + Duration::from_millis(millis);
    assert_eq!((wall, mark), (moment(early), moment(NOW)));
    assert!(
        open(early)
            .unwrap_err()
            .to_string()
            .contains("2027-01-14T08:00:00.000Z")
    );
}
