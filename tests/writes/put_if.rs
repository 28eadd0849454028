//! Goal: a put is done if, and only if, the version that it is to find is the live one; and it tells which that was.
//!
//! Method: each state of a key by a clock that the test moves, in memory and in tables; and threads that count by versions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ebbtide::{Error, Ttl, Version};

use crate::conditions::{after, fixture, version};

/// An item that is there, that has ended, that was deleted; in memory and in a table; and a version that is refused.
#[test]
fn put_if_judges_the_version_that_is_live() {
    for is_flushed in [false, true] {
        let f = fixture();
        let put = |value: &str, accepted: Option<Version>| {
            if is_flushed {
                f.db.flush().unwrap();
            }
            let accepts = |found| found == accepted;
            let done = f.c.put_if("k", value, after(10), accepts).unwrap();
            (done.before, done.written.map(|written| written.version()))
        };
        let (before, first) = put("1", None);
        assert_eq!((before, first), (None, Some(version(&f.c, "k"))));
        assert_eq!(put("2", None), (first, None));
        f.clock.advance(Duration::from_millis(9));
        let (before, second) = put("3", first);
        assert_eq!((before, second), (first, Some(version(&f.c, "k"))));
        assert_eq!(put("4", first), (second, None));
        assert_eq!(f.c.get("k").unwrap().unwrap(), "3");
        f.clock.advance(Duration::from_millis(10)); // it has ended
        assert_eq!(put("5", second), (None, None));
        let (before, third) = put("6", None);
        assert_eq!((before, third), (None, Some(version(&f.c, "k"))));
        f.c.delete("k").unwrap();
        assert_eq!(put("7", third), (None, None));
        let kept = f.c.put_if("k", "8", Ttl::Keep, |_| true).unwrap();
        assert_eq!((kept.before, kept.written.is_some()), (None, true));
        let error = f.c.put_if("k", "9", after(0), |_| true).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { what: "ttl", .. }));
        assert_eq!(f.c.get("k").unwrap().unwrap(), "8");
    }
}

/// Each of eight threads counts by the version that it has seen: none is lost.
#[test]
fn of_several_puts_of_one_version_one_is_done() {
    let f = fixture();
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let item = f.c.item("n").unwrap();
                    let n: u64 = item.as_ref().map_or(0, |item| {
                        String::from_utf8_lossy(item.value()).parse().unwrap()
                    });
                    let seen = item.map(|item| item.version());
                    let (next, accepts) = ((n + 1).to_string(), |found| found == seen);
                    let put = f.c.put_if("n", next, Ttl::Inherit, accepts).unwrap();
                    assert_eq!(put.before == seen, put.written.is_some());
                    done.fetch_add(put.written.is_some().into(), Ordering::Relaxed);
                }
            });
        }
    });
    let done = done.into_inner().to_string();
    assert_eq!(f.c.get("n").unwrap().unwrap(), *done);
}
