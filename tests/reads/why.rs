//! Goal: what is said of a key is what reads do, and names the write, setting or command that is the reason.
//!
//! Method: a database on a simulated disk with a manual clock, background work step by step; one history for each reason, and
//! random ones compared with reads.

use std::time::SystemTime;

use ebbtide::{Container, DefaultTtl, Error, Explanation, Fate, StoredIn, Ttl};
use testkit::assert_is;
use testkit::random::Random;
use testkit::stage::{self, Stage, after, default, seconds, small};

fn stage() -> Stage {
    Stage::new(|options| small(options).reclaim_within(seconds(100)))
}

fn at(n: u64) -> SystemTime {
    stage::at(n * 1_000)
}

#[track_caller]
fn newest(c: &Container, key: &str) -> Fate {
    let explained = c.explain(key).unwrap();
    assert_eq!(explained.is_live(), c.contains(key).unwrap());
    explained.versions[0].fate
}

#[test]
fn each_reason_is_named() {
    let Stage { clock, c, .. } = stage();
    let nothing = c.explain("k").unwrap();
    assert!(nothing.versions.is_empty() && !nothing.is_live());
    assert!(nothing.to_string().contains("nothing is stored of it"));
    c.put("k", "v").unwrap();
    assert_eq!(newest(&c, "k"), Fate::Live { ends_at: None });
    c.put_with_ttl("k", "v", seconds(10)).unwrap();
    let ends_at = Some(at(10));
    assert_eq!(newest(&c, "k"), Fate::Live { ends_at });
    clock.advance(seconds(10));
    assert_eq!(newest(&c, "k"), Fate::ExpiredByTtl { at: at(10) });
    c.delete("k").unwrap();
    assert_eq!(newest(&c, "k"), Fate::Delete);
    c.put("by default", "v").unwrap();
    c.put("floored", "v").unwrap();
    c.set_default_ttl(default(5_000)).unwrap();
    clock.advance(seconds(5));
    assert_eq!(
        newest(&c, "by default"),
        Fate::ExpiredByDefault { at: at(15) }
    );
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    let floored = newest(&c, "floored");
    assert_is!(floored, Fate::ExpiredBeforeChange { .. });
    c.put_with_ttl("told", "v", seconds(60)).unwrap();
    let put = c.item("told").unwrap().unwrap().version();
    c.expire_before(at(1_000)).unwrap();
    let Fate::ExpiredByCommand { command, at: given } = newest(&c, "told") else {
        panic!("{}", newest(&c, "told"));
    };
    assert!(command > put && given == at(15));
    c.put("covered", "v").unwrap();
    c.delete_range("c".."d").unwrap();
    let covered = newest(&c, "covered");
    assert!(matches!(covered, Fate::RangeDeleted { .. }), "{covered}");
}

#[test]
fn each_stored_version_is_shown_where_it_lies() {
    let Stage { db, c, .. } = stage();
    c.put_with_ttl("k", "of an hour", seconds(3_600)).unwrap();
    let first = c.item("k").unwrap().unwrap().version();
    db.flush().unwrap();
    c.put("k", "for good").unwrap();
    let second = c.item("k").unwrap().unwrap().version();
    let Explanation { versions, .. } = c.explain("k").unwrap();
    let [new, old] = &versions[..] else {
        panic!("{versions:?}")
    };
    assert_eq!((new.version, old.version), (second, first));
    assert_eq!(
        (new.ttl, old.ttl),
        (Some(Ttl::Inherit), Some(after(3_600_000)))
    );
    assert!(
        matches!(new.place, StoredIn::Memory { segments: Some((first, last)) } if first <= last)
    );
    assert!(matches!(&old.place, StoredIn::Table { path, .. } if path.ends_with("000001.table")));
    assert_eq!(old.fate, Fate::Hidden { by: second });
    assert_eq!((new.bytes, old.bytes), (9, 11));
    assert_eq!(new.leaves_by, None, "it stays");
    let by = old.leaves_by.unwrap();
    assert!((at(3_600)..=at(3_600 + 450)).contains(&by), "{by:?}");
    let told = c.explain("k").unwrap().to_string();
    for part in [
        "found at 2026-01-01T00:00:00.000Z: live",
        "hidden by version",
        "000001.table",
        "in memory",
        "ttl 3600 s",
    ] {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn what_is_said_is_what_reads_do() {
    let Stage { clock, db, c, .. } = stage();
    let mut random = Random(3);
    for step in 0..1_500 {
        let key = format!("{:02}", random.below(40));
        match random.below(24) {
            0 => c.delete(&key).unwrap(),
            1 => c
                .delete_range(key.as_str()..format!("{key}~").as_str())
                .unwrap(),
            2 => db.flush().unwrap(),
            3 => drop(db.step().unwrap()),
            4 => clock.advance(seconds(random.below(100) as u64)),
            5 if step % 3 == 0 => {
                let life = DefaultTtl::After(seconds(1 + random.below(300) as u64));
                let choices = [DefaultTtl::Off, DefaultTtl::NoDefault, life];
                c.set_default_ttl(choices[random.below(3)]).unwrap();
            }
            6 => drop(c.expire_before(db.now() + seconds(random.below(100) as u64))),
            7 => c.put_with_ttl(&key, "v", Ttl::Never).unwrap(),
            8..16 => c.put(&key, "v").unwrap(),
            _ => c
                .put_with_ttl(&key, "v", seconds(1 + random.below(200) as u64))
                .unwrap(),
        }
        let item = c.item(&key).unwrap();
        let explained = c.explain(&key).unwrap();
        assert_eq!(explained.is_live(), item.is_some(), "{key} {explained}");
        if let Some(item) = item {
            let newest = &explained.versions[0];
            assert_eq!(newest.version, item.version());
            assert_eq!(newest.written_at, item.written_at());
            assert_eq!(
                newest.fate,
                Fate::Live {
                    ends_at: item.expires_at()
                }
            );
        }
    }
}

#[test]
fn a_key_that_cannot_be_is_refused() {
    let Stage { c, .. } = stage();
    for key in [vec![], vec![1; 65_536]] {
        let refused = c.explain(&key).unwrap_err();
        assert_is!(refused, Error::InvalidArgument { .. });
    }
}
