use bytes::Bytes;

use super::*;
use crate::base::record::{Kind, RecordRef};
use crate::base::{Error, ItemTtl, Timestamp};
use crate::data::cursor::Position;
use crate::data::item::Pair;
use crate::expiry::Settings;

/// Keys in order, where reading one of them fails after another was read: then it is at its end, like any failed cursor.
struct Failing {
    keys: &'static [&'static str],
    at: Option<usize>,
    fails: &'static str,
}

impl Failing {
    fn go(&mut self, at: Option<usize>) -> Result<()> {
        self.at = at.filter(|at| *at < self.keys.len());
        match self.at {
            Some(at) if self.keys[at] == self.fails => {
                self.at = None;
                Err(Error::corruption("a table", 7, "planned"))
            }
            _ => Ok(()),
        }
    }
}

impl Cursor for Failing {
    fn position(&self) -> Position<'_> {
        self.at.map_or(Position::End, |at| {
            Position::Record(RecordRef {
                header: Header {
                    kind: Kind::Put,
                    seq: Seq(1),
                    written_at: Timestamp(1),
                    ttl: ItemTtl::Absent,
                },
                key: self.keys[at].as_bytes(),
                value_len: 0,
            })
        })
    }

    fn is_on_record(&self) -> bool {
        self.at.is_some()
    }

    fn start_seek(&mut self, to: Seek<'_>, _: Option<&ExpiryView>) -> Result<()> {
        let first = if to.is_forward() {
            0
        } else {
            self.keys.len() - 1
        };
        self.go(Some(first))
    }

    fn poll_seek(&mut self, _: Seek<'_>, _: Option<&ExpiryView>) -> Result<bool> {
        Ok(true)
    }

    fn advance(&mut self, _: Option<&ExpiryView>) -> Result<()> {
        self.go(self.at.map(|at| at + 1))
    }

    fn retreat(&mut self, _: Option<&ExpiryView>) -> Result<()> {
        self.go(self.at.and_then(|at| at.checked_sub(1)))
    }

    fn enter(&mut self, _: Seek<'_>, _: Option<&ExpiryView>) -> Result<()> {
        unreachable!("there are no dead spans")
    }

    fn pair(&self) -> Result<Pair> {
        let key = self.keys[self.at.expect("on a record")];
        Ok(Pair::new(Bytes::from_static(key.as_bytes()), Bytes::new()))
    }

    fn value_bytes(&self) -> Result<Bytes> {
        Ok(Bytes::new())
    }

    fn value(&self) -> Result<&[u8]> {
        Ok(&[])
    }
}

// At an end there is nothing more to read; but an unreadable record may hide those of other cursors.
#[test]
fn after_a_failed_step_a_walk_fails_and_has_no_end() {
    type Keys = &'static [&'static str];
    let alone: &[Keys] = &[&["a", "c", "e"]];
    let beside: &[Keys] = &[&["b", "d"], &["a", "c", "e"], &["f"]];
    for (sources, to, shown) in [
        (alone, Seek::First, 1),
        (alone, Seek::Last, 0),
        (beside, Seek::First, 1),
        (beside, Seek::Last, 1),
    ] {
        let cursor = |keys| Failing {
            keys,
            at: None,
            fails: "c",
        };
        let cursors: Vec<Failing> = sources.iter().copied().map(cursor).collect();
        let view = ExpiryView::at(Timestamp(2), Settings::default);
        let horizon = Horizon {
            max: Seq(9),
            tombstones: RangeTombstones::default(),
            bare: None,
        };
        let mut walk = Walk::seek(cursors, horizon, to, &view).unwrap();
        let (mut settled, mut decided) = (view.clone(), vec![]);
        let certain = CertainView::first(Seq(9), view.clone());
        let mut next = || {
            let read = || ExpiryViews {
                now: view.clone(),
                settled: view.clone(),
            };
            let mut check = ExpiryCheck::new(&view, &mut settled, view.now, read);
            walk.next(&mut check, &mut decided, |_| true, (&certain, None))
        };
        for n in 0..shown {
            assert!(matches!(next(), Some(Ok(_))), "{to:?}: {n}");
        }
        for _ in 0..3 {
            let failed = next().map(|item| item.unwrap_err());
            assert!(failed.is_some_and(|error| error.is_corruption()), "{to:?}");
        }
    }
}

#[test]
fn after_a_failed_step_a_walk_lends_no_more() {
    let cursor = |keys| Failing {
        keys,
        at: None,
        fails: "g",
    };
    let cursors = vec![
        cursor(&["b", "d", "i"]),
        cursor(&["a", "c", "e", "g"]),
        cursor(&["f", "h"]),
    ];
    let view = ExpiryView::at(Timestamp(2), Settings::default);
    let horizon = Horizon {
        max: Seq(9),
        tombstones: RangeTombstones::default(),
        bare: None,
    };
    let mut walk = Walk::seek(cursors, horizon, Seek::First, &view).unwrap();
    let (mut settled, mut decided) = (view.clone(), vec![]);
    let certain = CertainView::first(Seq(9), view.clone());
    let (mut lent, mut failures) = (Lent::default(), 0);
    for call in 1..=4 {
        lent.begin((100, 100), usize::MAX);
        let read = || ExpiryViews {
            now: view.clone(),
            settled: view.clone(),
        };
        let mut check = ExpiryCheck::new(&view, &mut settled, view.now, read);
        let lending = Lending {
            view: &certain,
            call,
            bound: None,
            dying_alone: false,
        };
        let done = walk.lend(&mut check, &mut decided, |_| true, (&lending, &mut lent));
        failures += usize::from(done.is_err_and(|error| error.is_corruption()));
        let keys: Vec<&[u8]> = lent.iter().map(|(key, _)| key).collect();
        match call {
            1 => assert_eq!(keys.concat(), b"abcde"),
            _ => assert!(keys.is_empty()),
        }
    }
    assert_eq!(failures, 4);
}
