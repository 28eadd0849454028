//! Goal: a merge of uniform blocks lends what a plain merge of their records shows. Method: random uniform blocks with
//! few keys, so that prefixes, whole keys and ends of uniform blocks coincide often; the plain merge sorts all records.

use std::cell::Cell;
use std::ops::ControlFlow;

use bytes::Bytes;

use super::*;
use crate::base::Timestamp;
use crate::data::lend::lent::CertainView;
use crate::data::lend::uniform_block::UniformShape;
use crate::expiry::{ExpiryView, Settings};

/// Numbers by chance (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % end
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    key: Vec<u8>,
    seq: u64,
    adds_up: bool,
}

const HEADER_LEN: usize = 2;

fn hash_byte(key: &[u8]) -> u8 {
    key.iter()
        .fold(0, |hash: u8, byte| hash.wrapping_mul(7).wrapping_add(*byte))
        % 64
}

/// Records with keys of one length, in order, and the body that holds them.
struct Source {
    records: Vec<Record>,
    shape: UniformShape,
    body: Bytes,
    first: usize,
}

impl Source {
    fn random(dice: &mut Dice, head: &str, seqs: &mut u64) -> Source {
        let digits = 1 + dice.below(2) as usize;
        let most = [9, 60][dice.below(2) as usize];
        let count = 1 + dice.below(most);
        let mut records: Vec<Record> = (0..count)
            .map(|_| {
                *seqs += 1;
                Record {
                    key: format!("{head}{:0digits$}", dice.below(10u64.pow(digits as u32)))
                        .into_bytes(),
                    // Each number once, in no order.
                    seq: *seqs * 7919 % 10_007,
                    adds_up: true,
                }
            })
            .collect();
        records.sort_by(|a, b| a.key.cmp(&b.key).then(b.seq.cmp(&a.seq)));
        let first = dice.below(count) as usize;
        if dice.below(6) == 0 && first + 1 < records.len() {
            records.last_mut().expect("not the first").adds_up = false;
        }
        Source::of(records, first)
    }

    fn of(records: Vec<Record>, first: usize) -> Source {
        let (mut body, mut offsets) = (vec![], vec![]);
        for record in &records {
            offsets.extend_from_slice(&(body.len() as u16).to_le_bytes());
            body.extend_from_slice(&(record.seq as u16).to_le_bytes());
            body.extend_from_slice(&record.key);
            // One that does not add up is too long.
            let value = format!("{:05}{}", record.seq, if record.adds_up { "" } else { "+" });
            body.extend_from_slice(value.as_bytes());
        }
        let shape = UniformShape {
            offsets_at: body.len(),
            count: records.len(),
            header_len: HEADER_LEN,
            key_len: records[0].key.len(),
            value_most: 5,
        };
        body.extend_from_slice(&offsets);
        // Few different ones, so that those of different keys are equal, too.
        body.extend(records.iter().map(|record| hash_byte(&record.key)));
        Source {
            records,
            shape,
            body: body.into(),
            first,
        }
    }
}

/// A merge's sources and question, with the right answer.
struct Case {
    sources: Vec<Source>,
    decided: Vec<u8>,
    bound: Option<Vec<u8>>,
    most: usize,
    full_bytes: usize,
}

type Answer = (LendOutcome, Vec<String>, Vec<(usize, usize)>);

impl Case {
    fn random(dice: &mut Dice) -> Case {
        let head = ["", "k", "all-alike-", "\u{ff}\u{ff}\u{ff}\u{ff}"][dice.below(4) as usize];
        let (blocks, mut seqs) = (1 + dice.below(MOST_BLOCKS as u64), 0);
        let mut sources: Vec<Source> = (0..blocks)
            .map(|_| Source::random(dice, head, &mut seqs))
            .collect();
        let head_of = |source: &Source| source.records[source.first].clone();
        sources.sort_by(|a, b| {
            let (a, b) = (head_of(a), head_of(b));
            a.key.cmp(&b.key).then(b.seq.cmp(&a.seq))
        });
        let decided = match dice.below(3) {
            0 => head_of(&sources[0]).key,
            _ => vec![],
        };
        let bound = (dice.below(2) == 0).then(|| format!("{head}{}", dice.below(11)).into_bytes());
        let most = [30, 200][dice.below(2) as usize];
        Case {
            sources,
            decided,
            bound,
            most: dice.below(most) as usize,
            full_bytes: match dice.below(3) {
                0 => dice.below(300) as usize,
                _ => usize::MAX,
            },
        }
    }

    /// The first source alone.
    fn of_one(self) -> Case {
        let mut case = self;
        case.sources.truncate(1);
        case
    }

    fn ask<T>(&self, lend: impl FnOnce(&Ask<'_>, &mut Lent) -> T) -> (T, Vec<String>) {
        let mut lent = Lent::default();
        lent.begin((self.most, self.most), self.full_bytes);
        let ask = Ask {
            view: &CertainView {
                max: Seq(u64::MAX),
                later: ExpiryView::at(Timestamp(0), Settings::default),
                number: 1,
            },
            call: 1,
            decided: &self.decided,
            bound: self.bound.as_deref(),
            above: Seq(0),
        };
        let answer = lend(&ask, &mut lent);
        let text = |(key, value): (&[u8], &[u8])| {
            format!(
                "{}={}",
                String::from_utf8_lossy(key),
                String::from_utf8_lossy(value)
            )
        };
        let mut items: Vec<String> = vec![];
        let all = lent.each(|key, value| {
            items.push(text((key, value)));
            ControlFlow::<()>::Continue(())
        });
        assert!(all.is_continue());
        let again = (0..lent.len()).filter_map(|index| lent.get(index).map(text));
        assert!(again.eq(items.iter().cloned()));
        (answer, items)
    }

    /// The items that the first source lends by itself.
    fn alone(&self) -> Answer {
        let source = &self.sources[0];
        let ((stand, at), items) = self.ask(|ask, lent| {
            let owner = lent.hold(source.body.clone());
            let block = source.shape.block(&source.body, owner);
            block.lend(source.first, ask, lent)
        });
        (stand, items, vec![(0, at)])
    }

    /// Items, and where each source stands that has moved, with those first that are first in order.
    fn merged(&self) -> Answer {
        let whole = |source: &Source| vec![(0, Source::of(source.records.clone(), source.first))];
        self.merged_in(self.sources.iter().map(whole).collect())
    }

    /// The same, where the records of a source are in several uniform blocks, one after the other.
    fn merged_in_parts(&self, dice: &mut Dice) -> Answer {
        let mut parts_of = |source: &Source| {
            let (mut parts, mut from) = (vec![], 0);
            for cut in source.first + 1..=source.records.len() {
                let next = source.records.get(cut);
                if next.is_none_or(|next| next.adds_up && dice.below(4) == 0) {
                    let records = source.records[from..cut].to_vec();
                    parts.push((from, Source::of(records, source.first.saturating_sub(from))));
                    from = cut;
                }
            }
            parts
        };
        let parts = self.sources.iter().map(&mut parts_of).collect();
        self.merged_in(parts)
    }

    /// Items, where the merge ends at some keys before its bound, and then goes on.
    fn merged_up_to(&self, dice: &mut Dice) -> (LendOutcome, Vec<String>) {
        let keys = self.sources.iter().flat_map(|source| &source.records);
        let keys = keys.map(|record| record.key.clone());
        let mut bounds: Vec<_> = keys.filter(|_| dice.below(20) == 0).collect();
        bounds.retain(|key| self.bound.as_ref().is_none_or(|bound| key < bound));
        bounds.sort();
        let mut bounds: Vec<_> = bounds.into_iter().map(Some).collect();
        bounds.push(self.bound.clone());
        self.ask(|ask, lent| {
            let mut merge = UniformMerge::default();
            for (number, source) in self.sources.iter().enumerate() {
                let owner = lent.hold(source.body.clone());
                let block = source.shape.block(&source.body, owner);
                merge.push(number, &block, source.first);
            }
            merge.begin(bounds[0].as_deref(), lent.held(), lent.len());
            let (mut stand, mut has_moved) = (LendOutcome::Same, false);
            for (number, bound) in bounds.iter().enumerate() {
                let bound = bound.as_deref();
                if number > 0 {
                    merge.move_bound(bound, lent.held());
                }
                let seq = |number: usize, at: usize| Seq(self.sources[number].records[at].seq);
                stand = merge.lend(&Ask { bound, ..*ask }, lent, seq);
                has_moved |= stand != LendOutcome::Same;
                self.check_newer(&merge, lent, bound);
                if stand == LendOutcome::OnLast || lent.is_full() {
                    break;
                }
            }
            match stand {
                LendOutcome::Same => LendOutcome::behind(has_moved),
                other => other,
            }
        })
    }

    /// Of the key at which a merge has ended, it knows whether one of its records is newer than another.
    fn check_newer(&self, merge: &UniformMerge, lent: &Lent, bound: Option<&[u8]>) {
        let Some(key) = bound.filter(|_| merge.order[0].runner() == BOUND) else {
            return;
        };
        let seq = |number: usize, at: usize| Seq(self.sources[number].records[at].seq);
        let heads = merge.left(lent.held());
        let heads = heads.map(|left| &self.sources[left.cursor].records[left.at]);
        let newest = heads
            .filter(|record| record.key == key)
            .map(|record| record.seq)
            .max();
        for than in [newest.unwrap_or(1) - 1, newest.unwrap_or(1)].map(Seq) {
            let has_newer = merge.has_newer((key, than), lent.held(), seq);
            assert_eq!(has_newer, newest.is_some_and(|newest| newest > than.0));
        }
    }

    /// The same, where the records of a source from the given ones on are in these uniform blocks.
    fn merged_in(&self, sources: Vec<Vec<(usize, Source)>>) -> Answer {
        let currents: Vec<Cell<usize>> = sources.iter().map(|_| Cell::new(0)).collect();
        let part = |number: usize| &sources[number][currents[number].get()];
        let seq = |number: usize, at: usize| Seq(part(number).1.records[at].seq);
        let ((stand, mut left), items) = self.ask(|ask, lent| {
            let mut merge = UniformMerge::default();
            let hold = |number: usize, lent: &mut Lent| {
                let source = &part(number).1;
                let owner = lent.hold(source.body.clone());
                (source.shape.block(&source.body, owner), source.first)
            };
            for number in 0..sources.len() {
                let (block, first) = hold(number, lent);
                merge.push(number, &block, first);
            }
            merge.begin(ask.bound, lent.held(), lent.len());
            let mut has_moved = false;
            let stand = loop {
                let stand = merge.lend(ask, lent, seq);
                has_moved |= stand != LendOutcome::Same;
                let first = merge.order[0].runner();
                if stand != LendOutcome::OnLast || currents[first].get() + 1 == sources[first].len()
                {
                    break stand;
                }
                assert_eq!(merge.first(lent.held()).cursor, first);
                currents[first].set(currents[first].get() + 1);
                let (block, at) = hold(first, lent);
                merge.go_on(&block, at, ask.bound, lent.held());
            };
            let stand = match stand {
                LendOutcome::Same => LendOutcome::behind(has_moved),
                other => other,
            };
            let left = merge.left(lent.held()).map(|left| Left {
                at: part(left.cursor).0 + left.at,
                ..left
            });
            (stand, left.collect::<Vec<Left>>())
        });
        assert_eq!(left.len(), self.sources.len());
        for Left { cursor, at, prefix } in &left {
            let key = &self.sources[*cursor].records[*at].key;
            assert_eq!(*prefix, key_prefix(key), "of {cursor}");
        }
        let last = (stand == LendOutcome::OnLast).then(|| left[0].cursor);
        left.sort_by_key(|left| left.cursor);
        let mut places: Vec<_> = left.iter().map(|left| (left.cursor, left.at)).collect();
        if let Some(last) = last {
            places[..=last].rotate_right(1);
        }
        (stand, items, places)
    }

    /// The same, by sorting all records.
    fn plainly(&self) -> Answer {
        let mut all: Vec<(&Record, usize, usize)> = vec![];
        for (number, source) in self.sources.iter().enumerate() {
            let records = source.records.iter().enumerate().skip(source.first);
            all.extend(records.map(|(at, record)| (record, number, at)));
        }
        all.sort_by(|(a, ..), (b, ..)| a.key.cmp(&b.key).then(b.seq.cmp(&a.seq)));
        let (mut items, mut stand, mut bytes) = (vec![], LendOutcome::Same, 0);
        let mut places: Vec<(usize, usize)> =
            (0..).zip(self.sources.iter().map(|s| s.first)).collect();
        let mut before = &self.decided;
        for (record, number, at) in all {
            let is_beyond = self
                .bound
                .as_ref()
                .is_some_and(|bound| record.key >= *bound);
            if is_beyond || items.len() >= self.most || bytes >= self.full_bytes {
                break;
            }
            if record.key != *before {
                bytes += record.key.len() + 5;
                items.push(format!(
                    "{}={:05}",
                    String::from_utf8_lossy(&record.key),
                    record.seq
                ));
            }
            (before, stand) = (&record.key, LendOutcome::Behind);
            let next = self.sources[number].records.get(at + 1);
            if !next.is_some_and(|next| next.adds_up) {
                stand = LendOutcome::OnLast;
                places[..=number].rotate_right(1);
                break;
            }
            places[number].1 = at + 1;
        }
        (stand, items, places)
    }
}

#[test]
fn a_uniform_block_lends_what_its_records_show() {
    let mut items = [0; 3];
    for seed in 0..8_000 {
        let case = Case::random(&mut Dice(seed)).of_one();
        let (alone, plainly) = (case.alone(), case.plainly());
        assert_eq!(alone, plainly, "seed {seed}");
        items[alone.0 as usize] += alone.1.len();
    }
    assert_eq!(items[0], 0);
    assert!(items[1].min(items[2]) > 1_000, "{items:?}");
}

#[test]
fn merged_uniform_blocks_lend_what_a_plain_merge_shows() {
    let mut items = [0; 3];
    for seed in 0..8_000 {
        let case = Case::random(&mut Dice(seed));
        let (merged, plainly) = (case.merged(), case.plainly());
        assert_eq!(merged, plainly, "seed {seed}");
        items[merged.0 as usize] += merged.1.len();
    }
    assert_eq!(items[0], 0);
    assert!(items[1].min(items[2]) > 1_000, "{items:?}");
}

#[test]
fn uniform_blocks_that_go_on_lend_what_a_plain_merge_shows() {
    let mut items = [0; 3];
    for seed in 0..8_000 {
        let mut dice = Dice(seed);
        let case = Case::random(&mut dice);
        let (merged, plainly) = (case.merged_in_parts(&mut dice), case.plainly());
        assert_eq!(merged, plainly, "seed {seed}");
        items[merged.0 as usize] += merged.1.len();
    }
    assert_eq!(items[0], 0);
    assert!(items[1].min(items[2]) > 1_000, "{items:?}");
}

#[test]
fn a_merge_that_goes_on_behind_its_bound_lends_what_a_plain_merge_shows() {
    let mut items = [0; 3];
    for seed in 0..8_000 {
        let mut dice = Dice(seed);
        let case = Case::random(&mut dice);
        let (stand, shown) = case.merged_up_to(&mut dice);
        let (plain_stand, plain, _) = case.plainly();
        assert_eq!((stand, &shown), (plain_stand, &plain), "seed {seed}");
        items[stand as usize] += shown.len();
    }
    assert_eq!(items[0], 0);
    assert!(items[1].min(items[2]) > 1_000, "{items:?}");
}
