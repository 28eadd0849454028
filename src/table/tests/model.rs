//! Tables compared with a sorted list: gets at every sequence number, and cursors in both directions.

use std::ops::Range;

use super::*;
use crate::base::record::order;
use crate::data::cursor::{Cursor, DeadSpan, Position, Seek};
use crate::expiry::ExpiryView;
use crate::table::RunCursor;

/// Sorted records with spans that are dead under [`view`], keys that share much and little, and sometimes many
/// versions, a long key or a large value.
fn records(random: &mut Random, keys: usize) -> Vec<Record> {
    let mut all: Vec<Vec<u8>> = (0..keys).map(|_| key(random)).collect();
    all.sort();
    all.dedup();
    let (mut records, mut dead) = (vec![], false);
    for key in all {
        if random.one_in(12) {
            dead = !dead;
        }
        let versions = if random.one_in(60) {
            60
        } else {
            1 + random.below(5) / 3
        };
        let mut seq = 1_000 + random.below(50) as u64;
        for _ in 0..versions {
            records.push(record(random, &key, seq, dead));
            seq -= 1 + random.below(9) as u64;
        }
    }
    records
}

fn key(random: &mut Random) -> Vec<u8> {
    let front: &[u8] = [&b""[..], b"a", b"user/", b"a rather long front/"][random.below(4)];
    let len = match random.below(400) {
        0 => 65_535 - front.len(),
        1 => 2_000,
        n => 1 + n % 11,
    };
    let tail = (0..len).map(|_| b"abcd\0\xff"[random.below(6)]);
    front.iter().copied().chain(tail).collect()
}

fn record(random: &mut Random, key: &[u8], seq: u64, dead: bool) -> Record {
    let len = match random.below(300) {
        0 => 16_384 + random.below(3),
        1 => 50_000,
        n => n % 90,
    };
    let noise = random.one_in(3);
    let value: Vec<u8> = (0..len)
        .map(|i| {
            if noise {
                random.next() as u8
            } else {
                (i / 9) as u8
            }
        })
        .collect();
    let (written_at, ttl) = match (dead, random.below(3)) {
        (true, 0) => return tombstone(key, seq, 500),
        (true, 1) => (random.below(900) as u64, ItemTtl::Absent),
        (true, _) => (random.below(500) as u64, ItemTtl::Millis(400)),
        (false, 0) => (1_000, ItemTtl::Never),
        (false, 1) => (950, ItemTtl::Absent),
        (false, _) => (random.below(500) as u64, ItemTtl::Millis(900_000)),
    };
    put(key, seq, written_at, ttl, &value)
}

/// A view under which exactly the records made as dead ones are dead.
fn view() -> ExpiryView {
    ExpiryView::at(Timestamp(1_000), || {
        Settings::new(DefaultMillis::Millis(100))
    })
}

/// A model of a run: all its records, and which of them make a block, which blocks a page of the index, and a table.
struct Model {
    records: Vec<Record>,
    blocks: Vec<Range<usize>>,
    pages: Vec<Range<usize>>,
    tables: Vec<Range<usize>>,
    /// Whether dead tables are dead spans as a whole.
    table_dead_spans: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stop {
    End,
    Table(usize),
    Page(usize),
    /// Consecutive blocks of a page.
    Rest(usize, usize),
    Block(usize),
    Record(usize),
}

fn admits(to: Seek<'_>, key: &[u8]) -> bool {
    match to {
        Seek::First | Seek::Last => true,
        Seek::AtOrAfter(bound) => key >= bound,
        Seek::After(bound) => key > bound,
        Seek::AtOrBefore(bound) => key <= bound,
        Seek::Before(bound) => key < bound,
    }
}

impl Model {
    fn new(tables: &[Arc<Table>], records: Vec<Record>, table_dead_spans: bool) -> Model {
        let mut model = Model {
            records,
            blocks: vec![],
            pages: vec![],
            tables: vec![],
            table_dead_spans,
        };
        for table in tables {
            let index = table.index().unwrap();
            let first_block = model.blocks.len();
            for number in 0..index.len() {
                let (page, row) = table.row(number).unwrap();
                let keys = page.first_key(row)..=page.last_key(row);
                let start = model.blocks.last().map_or(0, |block| block.end);
                let len = model.records[start..]
                    .iter()
                    .take_while(|record| keys.contains(&&record.key[..]))
                    .count();
                model.blocks.push(start..start + len);
            }
            let pages = (0..index.top().len()).map(|page| index.blocks_of(page));
            let pages = pages.map(|blocks| first_block + blocks.start..first_block + blocks.end);
            model.pages.extend(pages);
            model.tables.push(first_block..model.blocks.len());
        }
        assert_eq!(model.blocks.last().unwrap().end, model.records.len());
        model
    }

    fn records_of(&self, blocks: Range<usize>) -> &[Record] {
        &self.records[self.blocks[blocks.start].start..self.blocks[blocks.end - 1].end]
    }

    fn dead(&self, blocks: Range<usize>, view: Option<&ExpiryView>) -> bool {
        view.is_some_and(|view| {
            self.records_of(blocks)
                .iter()
                .all(|record| view.dead(&record.header))
        })
    }

    fn admits(&self, to: Seek<'_>, blocks: Range<usize>) -> bool {
        let records = self.records_of(blocks);
        let nearest = if to.is_forward() {
            records.last()
        } else {
            records.first()
        };
        admits(to, &nearest.unwrap().key)
    }

    fn in_direction(forward: bool, range: Range<usize>) -> Vec<usize> {
        if forward {
            range.collect()
        } else {
            range.rev().collect()
        }
    }

    fn table_of(&self, block: usize) -> usize {
        self.tables.partition_point(|table| table.end <= block)
    }

    fn page_of(&self, block: usize) -> usize {
        self.pages.partition_point(|page| page.end <= block)
    }

    fn seek(&self, to: Seek<'_>, view: Option<&ExpiryView>) -> Stop {
        self.seek_from(
            Self::in_direction(to.is_forward(), 0..self.tables.len()),
            to,
            view,
        )
    }

    fn seek_from(&self, tables: Vec<usize>, to: Seek<'_>, view: Option<&ExpiryView>) -> Stop {
        for number in tables {
            let blocks = self.tables[number].clone();
            if self.admits(to, blocks.clone()) {
                if self.table_dead_spans && self.dead(blocks, view) {
                    return Stop::Table(number);
                }
                return self.seek_in_table(number, to, view);
            }
        }
        Stop::End
    }

    fn seek_in_table(&self, number: usize, to: Seek<'_>, view: Option<&ExpiryView>) -> Stop {
        let in_table = |page: &usize| self.tables[number].contains(&self.pages[*page].start);
        let pages = Self::in_direction(to.is_forward(), 0..self.pages.len());
        for page in pages.into_iter().filter(in_table) {
            let blocks = self.pages[page].clone();
            if self.admits(to, blocks.clone()) {
                if self.dead(blocks, view) {
                    return Stop::Page(page);
                }
                return self.seek_in_page(page, to, view);
            }
        }
        self.beyond_table(number, to.is_forward(), view)
    }

    fn seek_in_page(&self, page: usize, to: Seek<'_>, view: Option<&ExpiryView>) -> Stop {
        for block in Self::in_direction(to.is_forward(), self.pages[page].clone()) {
            if self.admits(to, block..block + 1) {
                if self.dead(block..block + 1, view) {
                    return Stop::Block(block);
                }
                return self.seek_in_block(block, to, view);
            }
        }
        self.beyond_page(page, to.is_forward(), view)
    }

    fn seek_in_block(&self, block: usize, to: Seek<'_>, view: Option<&ExpiryView>) -> Stop {
        Self::in_direction(to.is_forward(), self.blocks[block].clone())
            .into_iter()
            .find(|&at| admits(to, &self.records[at].key))
            .map_or_else(
                || self.beyond_block(block, to.is_forward(), view),
                Stop::Record,
            )
    }

    fn beyond_block(&self, block: usize, forward: bool, view: Option<&ExpiryView>) -> Stop {
        let next = if forward {
            Some(block + 1)
        } else {
            block.checked_sub(1)
        };
        let page = self.page_of(block);
        match next.filter(|next| self.pages[page].contains(next)) {
            Some(next) => self.at_edge(next, forward, view),
            None => self.beyond_page(page, forward, view),
        }
    }

    fn seek_in_rest(&self, rest: Range<usize>, to: Seek<'_>, view: Option<&ExpiryView>) -> Stop {
        let forward = to.is_forward();
        if rest.len() == 1 {
            return self.seek_in_block(rest.start, to, view);
        }
        Self::in_direction(forward, rest.clone())
            .into_iter()
            .find(|&block| self.admits(to, block..block + 1))
            .map_or_else(
                || {
                    let edge = if forward { rest.end - 1 } else { rest.start };
                    self.beyond_block(edge, forward, view)
                },
                Stop::Block,
            )
    }

    /// The position after entering a block from its front, or its back.
    fn at_edge(&self, block: usize, forward: bool, view: Option<&ExpiryView>) -> Stop {
        if self.dead(block..block + 1, view) {
            let page = self.pages[self.page_of(block)].clone();
            let rest = if forward {
                block..page.end
            } else {
                page.start..block + 1
            };
            let dead = Self::in_direction(forward, rest).into_iter();
            let dead: Vec<usize> = dead
                .take_while(|&block| self.dead(block..block + 1, view))
                .collect();
            let (one, other) = (dead[0], dead[dead.len() - 1]);
            Stop::Rest(one.min(other), one.max(other) + 1)
        } else if forward {
            Stop::Record(self.blocks[block].start)
        } else {
            Stop::Record(self.blocks[block].end - 1)
        }
    }

    fn beyond_page(&self, page: usize, forward: bool, view: Option<&ExpiryView>) -> Stop {
        let next = if forward {
            Some(page + 1)
        } else {
            page.checked_sub(1)
        };
        let number = self.table_of(self.pages[page].start);
        let next = next.filter(|&next| {
            let page = self.pages.get(next);
            page.is_some_and(|page| self.tables[number].contains(&page.start))
        });
        match next {
            Some(next) if self.dead(self.pages[next].clone(), view) => Stop::Page(next),
            Some(next) if forward => self.at_edge(self.pages[next].start, forward, view),
            Some(next) => self.at_edge(self.pages[next].end - 1, forward, view),
            None => self.beyond_table(number, forward, view),
        }
    }

    fn beyond_table(&self, number: usize, forward: bool, view: Option<&ExpiryView>) -> Stop {
        if forward {
            self.seek_from((number + 1..self.tables.len()).collect(), Seek::First, view)
        } else {
            self.seek_from((0..number).rev().collect(), Seek::Last, view)
        }
    }

    fn step(&self, from: Stop, forward: bool, view: Option<&ExpiryView>) -> Stop {
        match from {
            Stop::End => Stop::End,
            Stop::Table(number) => self.beyond_table(number, forward, view),
            Stop::Page(page) => self.beyond_page(page, forward, view),
            Stop::Rest(_, end) if forward => self.beyond_block(end - 1, forward, view),
            Stop::Rest(start, _) => self.beyond_block(start, forward, view),
            Stop::Block(block) => self.beyond_block(block, forward, view),
            Stop::Record(at) => {
                let block = self.blocks.partition_point(|block| block.end <= at);
                let next = if forward {
                    Some(at + 1)
                } else {
                    at.checked_sub(1)
                };
                match next.filter(|next| self.blocks[block].contains(next)) {
                    Some(next) => Stop::Record(next),
                    None => self.beyond_block(block, forward, view),
                }
            }
        }
    }

    fn enter(&self, span: Stop, to: Seek<'_>, view: Option<&ExpiryView>) -> Stop {
        match span {
            Stop::Table(number) => self.seek_in_table(number, to, view),
            Stop::Page(page) => self.seek_in_page(page, to, view),
            Stop::Rest(start, end) => self.seek_in_rest(start..end, to, view),
            Stop::Block(block) => self.seek_in_block(block, to, view),
            _ => unreachable!("only a dead span is entered"),
        }
    }

    fn check(&self, cursor: &impl Cursor, stop: Stop) {
        // For part of a page, the highest sequence number may be that of more of the page.
        let span = |records: &[Record], page: Range<usize>| match cursor.position() {
            Position::DeadSpan(DeadSpan {
                first,
                last,
                seq_max,
            }) => {
                assert_eq!(first, records[0].key);
                assert_eq!(last, records.last().unwrap().key);
                let max_seq = |records: &[Record]| {
                    let seqs = records.iter().map(|record| record.header.seq);
                    seqs.max().unwrap()
                };
                let most = if page.is_empty() {
                    max_seq(records)
                } else {
                    max_seq(self.records_of(page))
                };
                assert!((max_seq(records)..=most).contains(&seq_max));
            }
            other => panic!("{other:?} instead of a dead span"),
        };
        match stop {
            Stop::End => assert_eq!(cursor.position(), Position::End),
            Stop::Table(number) => span(self.records_of(self.tables[number].clone()), 0..0),
            Stop::Page(page) => span(self.records_of(self.pages[page].clone()), 0..0),
            Stop::Rest(start, end) => {
                let page = self.pages[self.page_of(start)].clone();
                span(self.records_of(start..end), page)
            }
            Stop::Block(block) => {
                let page = self.pages[self.page_of(block)].clone();
                span(self.records_of(block..block + 1), page)
            }
            Stop::Record(at) => {
                let record = &self.records[at];
                assert_eq!(cursor.position(), Position::Record(record_ref(record)));
                assert_eq!(cursor.value().unwrap(), record.value);
                assert_eq!(cursor.value_bytes().unwrap(), record.value);
                assert_eq!(cursor.pair().unwrap().key(), record.key);
            }
        }
    }

    fn is_dead_span(stop: Stop) -> bool {
        matches!(
            stop,
            Stop::Table(_) | Stop::Page(_) | Stop::Rest(..) | Stop::Block(_)
        )
    }

    /// Whole iterations first; then random seeks and steps, compared after each.
    fn drive(&self, cursor: &mut impl Cursor, random: &mut Random, rounds: usize) {
        for view in [None, Some(&view())] {
            for (to, forward) in [(Seek::First, true), (Seek::Last, false)] {
                cursor.seek(to, view).unwrap();
                let mut stop = self.seek(to, view);
                self.check(cursor, stop);
                while stop != Stop::End {
                    stop = self.step(stop, forward, view);
                    step(cursor, forward, view);
                    self.check(cursor, stop);
                }
            }
        }
        for _ in 0..rounds {
            let view = if random.one_in(3) {
                None
            } else {
                Some(&view())
            };
            let bound = self.bound(random);
            let to = seek(random, &bound);
            cursor.seek(to, view).unwrap();
            let mut stop = self.seek(to, view);
            self.check(cursor, stop);
            for _ in 0..random.below(12) {
                if Self::is_dead_span(stop) && random.one_in(2) {
                    let bound = self.bound(random);
                    let to = seek(random, &bound);
                    stop = self.enter(stop, to, view);
                    cursor.enter(to, view).unwrap();
                } else {
                    let forward = random.one_in(2) || to.is_forward();
                    stop = self.step(stop, forward, view);
                    step(cursor, forward, view);
                }
                self.check(cursor, stop);
            }
        }
    }

    /// A key that is there, or one directly beside it.
    fn bound(&self, random: &mut Random) -> Vec<u8> {
        let mut bound = self.records[random.below(self.records.len())].key.to_vec();
        match random.below(4) {
            0 => bound.push(0),
            1 => {
                bound.pop();
            }
            _ => {}
        }
        bound
    }
}

fn step(cursor: &mut impl Cursor, forward: bool, view: Option<&ExpiryView>) {
    if forward {
        cursor.advance(view).unwrap()
    } else {
        cursor.retreat(view).unwrap()
    }
}

fn seek<'a>(random: &mut Random, bound: &'a [u8]) -> Seek<'a> {
    match random.below(14) {
        0 => Seek::First,
        1 => Seek::Last,
        2..5 => Seek::AtOrAfter(bound),
        5..8 => Seek::After(bound),
        8..11 => Seek::AtOrBefore(bound),
        _ => Seek::Before(bound),
    }
}

const SHAPES: &[(usize, Compression)] = &[
    (64, Compression::None),
    (64, Compression::Lz4),
    (256, Compression::None),
    (256, Compression::Lz4),
    (4096, Compression::None),
    (4096, Compression::Lz4),
    #[cfg(all(feature = "zstd", not(miri)))]
    (256, Compression::Zstd),
];

/// Goal: a get finds the newest version at or below a sequence number, and its value. Method: every record's sequence
/// number and its neighbours, for every key; keys that are not there.
#[test]
fn gets_are_those_of_the_model() {
    for (seed, &(block_bytes, compression)) in SHAPES.iter().enumerate() {
        let random = &mut Random(seed as u64);
        let records = records(random, 600);
        let table = table(9, &records, options(block_bytes, compression));
        let check = |key: &[u8], max: Seq| {
            let at = records
                .partition_point(|record| order(&record.key, record.header.seq, key, max).is_lt());
            let expected = records.get(at).filter(|record| record.key == key);
            let found = table.get(hash_key(key), key, max).unwrap();
            assert_eq!(found.is_some(), expected.is_some());
            if let (Some(found), Some(expected)) = (found, expected) {
                assert_eq!(found.header, expected.header);
                assert_eq!(found.value::<Wait>().unwrap(), expected.value);
            }
        };
        for record in &records {
            let seq = record.header.seq;
            for max in [Seq(0), Seq(seq.0 - 1), seq, seq.next(), Seq::MAX] {
                check(&record.key, max);
            }
            check(&[&record.key[..], b"\0"].concat(), Seq::MAX);
            check(&record.key[1..], Seq::MAX);
        }
        let report = table.verify().unwrap();
        assert_eq!(report.records, records.len() as u64);
        assert!(report.large_values > 0 && report.blocks > 3, "{report:?}");
    }
}

/// How many shapes, keys and rounds: few for Miri, of the sizes that cost it least.
const WALKED: (usize, usize, usize) = if cfg!(miri) {
    (2, 16, 8)
} else {
    (SHAPES.len(), 400, 1_500)
};

/// Goal: a table's cursor stops where its contract says.
#[test]
fn walks_through_a_table_are_those_of_the_model() {
    let (shapes, keys, rounds) = WALKED;
    for (seed, &(block_bytes, compression)) in SHAPES.iter().take(shapes).enumerate() {
        let random = &mut Random(100 + seed as u64);
        let records = records(random, keys);
        let table = table(9, &records, options(block_bytes, compression));
        let model = Model::new(std::slice::from_ref(&table), records, false);
        model.drive(&mut table.cursor(), random, rounds);
    }
}

/// Goal: so does a run's cursor, over dead and other tables. Method: the same, cut into tables.
#[test]
fn walks_through_a_run_are_those_of_the_model() {
    for (seed, &(block_bytes, compression)) in SHAPES.iter().enumerate() {
        let random = &mut Random(200 + seed as u64);
        let records = records(random, 400);
        let run = run(&records, random, options(block_bytes, compression));
        let model = Model::new(&run, records, true);
        let dead = |table: &Range<usize>| model.dead(table.clone(), Some(&view()));
        assert!(model.tables.iter().any(dead) && !model.tables.iter().all(dead));
        model.drive(&mut RunCursor::new(run), random, 1_500);
    }
}

/// Tables of some keys each.
fn run(records: &[Record], random: &mut Random, options: TableOptions) -> Arc<[Arc<Table>]> {
    let mut tables = vec![];
    let mut rest = records;
    while !rest.is_empty() {
        let mut len = (1 + random.below(30)).min(rest.len());
        while len < rest.len() && rest[len].key == rest[len - 1].key {
            len += 1;
        }
        tables.push(table(tables.len() as u64, &rest[..len], options));
        rest = &rest[len..];
    }
    tables.into()
}

/// Goal: dead blocks are not read. Method: a dead run, iterated in both directions and searched; then one dead span is
/// entered.
#[test]
fn dead_spans_stay_unread() {
    let key = |i: u32| format!("{i:05}").into_bytes();
    let records: Vec<Record> = (0..300)
        .map(|i| put(&key(i), 1, 10, ItemTtl::Absent, b"value"))
        .collect();
    let run: Arc<[Arc<Table>]> = records
        .chunks(100)
        .enumerate()
        .map(|(number, records)| table(number as u64, records, options(256, Compression::None)))
        .collect();
    let read = || run.iter().map(|table| table.blocks_read()).sum::<u64>();
    let view = Some(&view());
    let mut cursor = RunCursor::new(run.clone());
    for (to, forward) in [(Seek::First, true), (Seek::Last, false)] {
        cursor.seek(to, view).unwrap();
        for _ in 0..3 {
            assert!(matches!(cursor.position(), Position::DeadSpan(_)));
            step(&mut cursor, forward, view);
        }
        assert_eq!(cursor.position(), Position::End);
    }
    assert_eq!(read(), 0);
    let bound = key(150);
    let to = Seek::AtOrAfter(&bound);
    cursor.seek(to, view).unwrap();
    for part in ["a page of it", "a block of it"] {
        cursor.enter(to, view).unwrap();
        assert!(matches!(cursor.position(), Position::DeadSpan(_)), "{part}");
    }
    assert_eq!(read(), 0);
    cursor.enter(to, view).unwrap();
    assert_eq!(
        cursor.position(),
        Position::Record(record_ref(&records[150]))
    );
    assert_eq!(read(), 1);
}

/// Goal: all versions of a key are in one block, however many, and offsets of both widths work.
#[test]
fn a_block_grows_for_the_versions_of_a_key() {
    let mut records = vec![put(b"a", 1, 10, ItemTtl::Never, b"first")];
    records.extend(
        (1..=3_000)
            .rev()
            .map(|seq| put(b"k", seq, 10, ItemTtl::Never, &[seq as u8; 40])),
    );
    records.push(put(b"z", 1, 10, ItemTtl::Never, b"last"));
    for &compression in COMPRESSIONS {
        let table = table(1, &records, options(64, compression));
        assert_eq!(table.verify().unwrap().blocks, 3);
        for seq in [1, 2, 1_499, 2_999, 3_000] {
            let found = table.get(hash_key(b"k"), b"k", Seq(seq)).unwrap().unwrap();
            assert_eq!(found.header.seq, Seq(seq));
            assert_eq!(found.value::<Wait>().unwrap(), vec![seq as u8; 40]);
        }
        assert!(table.get(hash_key(b"k"), b"k", Seq(0)).unwrap().is_none());
    }
}
