//! Runs a plan over documents that come one by one, and holds no more of them than the result needs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use super::aggregate::Running;
use super::compile::{Output, Plan, too_long};
use super::eval::{Row, object_text};
use super::scan::{self, Paths, Span};
use super::value::{Tree, Value};
use super::{Error, Flow, Progress, QueryLimits, Result, System};
use crate::error::ErrorKind;

/// A query that runs.
///
/// Documents are pushed in the order that rows without ORDER BY are to have. Rows that are final can be taken at any time;
/// the others are there at the end.
#[derive(Debug)]
pub struct Execution {
    plan: Arc<Plan>,
    limits: QueryLimits,
    now: SystemTime,
    /// Whether documents come in the order of ORDER BY.
    ordered: bool,
    /// Of the document that is read, to be used again.
    spans: Vec<Span>,
    source: Option<Paths>,
    held: Held,
    seen: HashSet<Tree>,
    sorter: Sorter,
    groups: Groups,
    rows: Vec<String>,
    row_bytes: usize,
    row_count: usize,
    progress: Progress,
}

impl Execution {
    pub(super) fn new(
        plan: &Arc<Plan>,
        limits: &QueryLimits,
        now: SystemTime,
        ordered: bool,
        progress: Progress,
    ) -> Self {
        let source = plan
            .source
            .as_ref()
            .filter(|source| !source.path.is_empty())
            .map(|source| {
                let mut paths = Paths::default();
                paths.add(&source.path);
                paths
            });
        Self {
            plan: plan.clone(),
            limits: limits.clone(),
            now,
            ordered,
            spans: vec![],
            source,
            held: Held {
                bytes: 0,
                most: limits.held_bytes,
            },
            seen: HashSet::new(),
            sorter: Sorter::default(),
            groups: Groups::default(),
            rows: vec![],
            row_bytes: 0,
            row_count: 0,
            progress,
        }
    }

    /// Takes a document: its JSON as it was written, which is UTF-8, and the system's properties of it.
    ///
    /// # Errors
    ///
    /// 400 where ORDER BY, DISTINCT or GROUP BY would hold more than [`QueryLimits::held_bytes`], or a value would be too
    /// long to be made; 500 where the document is no JSON.
    pub fn push(&mut self, body: &[u8], system: &dyn System) -> Result<Flow> {
        if self.plan.source.is_none() || self.is_done() {
            return Ok(Flow::Enough);
        }
        let text = std::str::from_utf8(body).map_err(|_| no_json())?;
        let plan = self.plan.clone();
        match &self.source {
            None => self.element(&plan, text, Some(system))?,
            Some(paths) => {
                let mut spans = vec![];
                paths.extract(text, &mut spans).ok_or_else(no_json)?;
                let (start, end) = spans[0];
                self.elements(&plan, &text[start..end])?;
            }
        }
        Ok(match self.is_done() || self.is_full() {
            true => Flow::Enough,
            false => Flow::Continue,
        })
    }

    /// The rows that are final since this was called last. There are none before the end where
    /// [`BoundQuery::is_streaming`](super::BoundQuery::is_streaming) says so.
    pub fn take_rows(&mut self) -> Vec<String> {
        std::mem::take(&mut self.rows)
    }

    /// Whether no further document can add a row, be the page full or not.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let streams = self.streams();
        self.plan.limit == 0 || (streams && self.progress.emitted >= self.plan.limit)
    }

    /// How far OFFSET and LIMIT are, for another execution to go on with behind the last document that was pushed.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// The rows that were not taken yet.
    ///
    /// # Errors
    ///
    /// As of [`Execution::push`].
    pub fn finish(mut self) -> Result<Vec<String>> {
        let plan = self.plan.clone();
        if plan.is_grouped() {
            if plan.source.is_none() {
                // Aggregates are over the one row that there is.
                self.element(&plan, "", None)?;
            }
            let groups = std::mem::take(&mut self.groups);
            for group in groups.finish(&plan) {
                if let Some(row) = group.row(&plan, self.now)? {
                    self.held.add(row.len())?;
                    self.emit(&plan, row)?;
                }
            }
        } else if plan.source.is_none() {
            self.element(&plan, "", None)?;
        } else if !self.streams() {
            for row in std::mem::take(&mut self.sorter).finish() {
                self.window(&plan, row);
            }
        }
        Ok(self.rows)
    }

    fn streams(&self) -> bool {
        !self.plan.is_grouped() && (self.ordered || self.plan.order.is_empty())
    }

    fn is_full(&self) -> bool {
        self.row_count >= self.limits.rows || self.row_bytes >= self.limits.bytes
    }

    /// The parts of a document that the source takes instead of it.
    fn elements(&mut self, plan: &Plan, text: &str) -> Result<()> {
        let iterates = plan.source.as_ref().is_some_and(|source| source.iterates);
        if !iterates {
            return match text.is_empty() {
                true => Ok(()),
                false => self.element(plan, text, None),
            };
        }
        if !text.starts_with('[') {
            return Ok(());
        }
        let before = self.row_bytes;
        for element in scan::elements(text) {
            if self.is_done() {
                break;
            }
            self.element(plan, element, None)?;
            // A page takes all rows of a document, or it could not go on behind it.
            if self.row_bytes - before > self.held.most {
                let most = self.held.most;
                let error = format!("the rows of one document would have more than {most} bytes");
                return Err(Error::bad_request(error));
            }
        }
        Ok(())
    }

    fn element(&mut self, plan: &Plan, text: &str, system: Option<&dyn System>) -> Result<()> {
        let mut spans = std::mem::take(&mut self.spans);
        let done = match plan.paths.extract(text, &mut spans) {
            Some(()) => {
                let mut row = Row::new(text, &spans, self.now);
                row.system = system;
                self.row(plan, &row)
            }
            None => Err(no_json()),
        };
        self.spans = spans;
        done
    }

    fn row(&mut self, plan: &Plan, row: &Row<'_>) -> Result<()> {
        if let Some(filter) = &plan.filter {
            let passes = matches!(filter.value(row), Value::Bool(true));
            if row.is_too_long() {
                return Err(too_long());
            }
            if !passes {
                return Ok(());
            }
        }
        if plan.is_grouped() {
            return self.groups.add(plan, row, &mut self.held);
        }
        if !self.streams() {
            return self.sorter.add(plan, row, &mut self.held);
        }
        match project(&plan.output, row)? {
            Some(out) => self.emit(plan, out),
            None => Ok(()),
        }
    }

    /// A row in its place: DISTINCT, then OFFSET and LIMIT.
    fn emit(&mut self, plan: &Plan, row: String) -> Result<()> {
        if plan.distinct {
            let Some(tree) = Tree::parse(&row) else {
                return Err(no_json());
            };
            let bytes = tree.bytes();
            if !self.seen.insert(tree) {
                return Ok(());
            }
            self.held.add(bytes)?;
        }
        self.window(plan, row);
        Ok(())
    }

    fn window(&mut self, plan: &Plan, row: String) {
        if self.progress.skipped < plan.offset {
            self.progress.skipped += 1;
        } else if self.progress.emitted < plan.limit {
            self.progress.emitted += 1;
            self.row_count += 1;
            self.row_bytes += row.len();
            self.rows.push(row);
        }
    }
}

fn no_json() -> Error {
    Error::new(ErrorKind::InternalServerError, "a document is no JSON")
}

/// The row's text; `None` where its value is undefined.
fn project(output: &Output, row: &Row<'_>) -> Result<Option<String>> {
    let text = match output {
        Output::All => Some(row.to_whole()),
        Output::Value(node) => {
            let mut out = String::new();
            node.write(row, &mut out);
            Some(out).filter(|out| !out.is_empty())
        }
        Output::Object(members) => object_text(members, row),
    };
    match row.is_too_long() {
        true => Err(too_long()),
        false => Ok(text),
    }
}

/// The bytes that are held until the end.
#[derive(Debug)]
struct Held {
    bytes: usize,
    most: usize,
}

impl Held {
    fn add(&mut self, bytes: usize) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes <= self.most {
            return Ok(());
        }
        let most = self.most;
        let error = format!("ORDER BY, DISTINCT or GROUP BY would hold more than {most} bytes");
        Err(Error::bad_request(error))
    }
}

/// A key of ORDER BY: `None` is undefined.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Up(Option<Tree>),
    Down(Reverse<Option<Tree>>),
}

/// A row and its place: rows of one key stay in the order in which they came.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sorted {
    keys: Vec<Key>,
    sequence: u64,
    row: String,
}

/// Rows of ORDER BY: no more than OFFSET and LIMIT ask for. With DISTINCT, the first of each that are the same.
#[derive(Debug, Default)]
struct Sorter {
    /// The last one first.
    heap: BinaryHeap<Sorted>,
    distinct: HashMap<Tree, Sorted>,
    sequence: u64,
}

impl Sorter {
    fn add(&mut self, plan: &Plan, row: &Row<'_>, held: &mut Held) -> Result<()> {
        let keys = plan.order.iter().map(|(node, descends)| match descends {
            true => Key::Down(Reverse(node.value(row).tree())),
            false => Key::Up(node.value(row).tree()),
        });
        let keys: Vec<Key> = keys.collect();
        if row.is_too_long() {
            return Err(too_long());
        }
        self.sequence += 1;
        let most = plan.offset.saturating_add(plan.limit);
        let is_full = self.heap.len() as u64 >= most;
        if is_full && self.heap.peek().is_some_and(|last| last.keys <= keys) {
            return Ok(());
        }
        let Some(text) = project(&plan.output, row)? else {
            return Ok(());
        };
        let sorted = Sorted {
            keys,
            sequence: self.sequence,
            row: text,
        };
        if plan.distinct {
            return self.add_distinct(sorted, held);
        }
        held.add(sorted.bytes())?;
        self.heap.push(sorted);
        if is_full && let Some(last) = self.heap.pop() {
            held.bytes -= last.bytes();
        }
        Ok(())
    }

    fn add_distinct(&mut self, sorted: Sorted, held: &mut Held) -> Result<()> {
        let tree = Tree::parse(&sorted.row).ok_or_else(no_json)?;
        held.add(tree.bytes() + sorted.bytes())?;
        match self.distinct.entry(tree) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(sorted);
            }
            std::collections::hash_map::Entry::Occupied(mut entry) => {
                held.bytes -= entry.key().bytes();
                let first = entry.get_mut();
                let other = match sorted < *first {
                    true => std::mem::replace(first, sorted),
                    false => sorted,
                };
                held.bytes -= other.bytes();
            }
        }
        Ok(())
    }

    fn finish(self) -> impl Iterator<Item = String> {
        let mut rows = self.heap.into_vec();
        rows.extend(self.distinct.into_values());
        rows.sort_unstable();
        rows.into_iter().map(|sorted| sorted.row)
    }
}

impl Sorted {
    fn bytes(&self) -> usize {
        let keys = self.keys.iter().map(|key| match key {
            Key::Up(tree) | Key::Down(Reverse(tree)) => tree.as_ref().map_or(32, Tree::bytes),
        });
        size_of::<Self>() + self.row.len() + keys.sum::<usize>()
    }
}

/// The groups that become a row each, in the order in which the first of each came.
#[derive(Debug, Default)]
struct Groups {
    places: HashMap<Vec<Option<Tree>>, usize>,
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    /// The texts of the keys; `None` is undefined.
    keys: Vec<Option<String>>,
    running: Vec<Running>,
}

impl Group {
    fn new(plan: &Plan) -> Self {
        let running = plan
            .aggregates
            .iter()
            .map(|(aggregate, _)| Running::new(*aggregate));
        Self {
            keys: vec![],
            running: running.collect(),
        }
    }

    fn row(&self, plan: &Plan, now: SystemTime) -> Result<Option<String>> {
        let results: Vec<_> = self.running.iter().map(Running::result).collect();
        let mut row = Row::new("", &[], now);
        row.groups = &self.keys;
        row.results = &results;
        project(&plan.output, &row)
    }

    fn bytes(&self) -> usize {
        let keys = self.keys.iter().flatten().map(String::len).sum::<usize>();
        size_of::<Self>() + keys + self.running.iter().map(Running::bytes).sum::<usize>()
    }
}

impl Groups {
    fn add(&mut self, plan: &Plan, row: &Row<'_>, held: &mut Held) -> Result<()> {
        let at = self.place(plan, row, held)?;
        let group = &mut self.groups[at];
        for (running, (_, of)) in group.running.iter_mut().zip(&plan.aggregates) {
            let before = running.bytes();
            running.add(&of.value(row));
            held.bytes -= before;
            held.add(running.bytes())?;
        }
        match row.is_too_long() {
            true => Err(too_long()),
            false => Ok(()),
        }
    }

    fn place(&mut self, plan: &Plan, row: &Row<'_>, held: &mut Held) -> Result<usize> {
        let trees: Vec<_> = plan.group.iter().map(|key| key.value(row).tree()).collect();
        if let Some(&at) = self.places.get(&trees) {
            return Ok(at);
        }
        let mut group = Group::new(plan);
        group.keys.extend(plan.group.iter().map(|key| {
            let mut text = String::new();
            key.write(row, &mut text);
            Some(text).filter(|text| !text.is_empty())
        }));
        let bytes = trees.iter().flatten().map(Tree::bytes).sum::<usize>();
        held.add(bytes + group.bytes())?;
        self.places.insert(trees, self.groups.len());
        self.groups.push(group);
        Ok(self.groups.len() - 1)
    }

    /// One group of no document at all where nothing but aggregates is asked for.
    fn finish(mut self, plan: &Plan) -> Vec<Group> {
        if plan.group.is_empty() && self.groups.is_empty() {
            self.groups.push(Group::new(plan));
        }
        self.groups
    }
}
