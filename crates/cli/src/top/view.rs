//! A frame of `ebbtide top`, as it fits into the terminal.
//!
//! ```text
//! what it is, when                                     1 line
//! unreclaimed, live, disk; rates                       4 lines
//! history, on 30 rows or more                          5 lines
//! containers, as many as have room                     a third
//! runs of the selected one, what comes back next first a third
//! last edits, newest first                             a third
//! keys                                                 1 line
//! ```

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::history::History;
use super::reading::{Of, Rates, TopSample};
use crate::{moment, show, table};

/// History is shown from so many rows on.
const ROWS_WITH_HISTORY: usize = 30;

/// In which order containers stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    Disk,
    Expired,
    Name,
}

impl Sort {
    pub fn next(self) -> Sort {
        match self {
            Sort::Disk => Sort::Expired,
            Sort::Expired => Sort::Name,
            Sort::Name => Sort::Disk,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Sort::Disk => "disk",
            Sort::Expired => "expired",
            Sort::Name => "name",
        }
    }
}

/// The user's view: the rows and the one that is chosen.
pub struct View {
    title: String,
    pub sort: Sort,
    pub is_paused: bool,
    pub history: History,
    /// The selected container; the first while there is none of this name.
    selected: Option<String>,
}

/// A line, and whether it stands out.
type Lines = Vec<(String, Style)>;

impl View {
    pub fn new(title: String) -> View {
        View {
            title,
            sort: Sort::Disk,
            is_paused: false,
            history: History::default(),
            selected: None,
        }
    }

    fn sorted<'a>(&self, reading: &'a TopSample) -> Vec<&'a Of> {
        let mut all: Vec<&Of> = reading.containers.iter().collect();
        let sizes = |of: &Of| (of.stats.disk_bytes, of.stats.live_bytes);
        match self.sort {
            Sort::Disk => all.sort_by_key(|of| std::cmp::Reverse(sizes(of))),
            Sort::Expired => all.sort_by_key(|of| std::cmp::Reverse(of.stats.expired_bytes)),
            Sort::Name => {}
        }
        all
    }

    fn place(&self, sorted: &[&Of]) -> usize {
        let is_it = |of: &&Of| Some(&of.name) == self.selected.as_ref();
        sorted.iter().position(is_it).unwrap_or(0)
    }

    /// Selects the next container, or the one before.
    pub fn step(&mut self, reading: &TopSample, by: isize) {
        let sorted = self.sorted(reading);
        let at = self.place(&sorted).saturating_add_signed(by);
        let last = sorted.len().saturating_sub(1);
        self.selected = sorted.get(at.min(last)).map(|of| of.name.clone());
    }

    /// Without a terminal.
    pub fn text(&self, reading: &TopSample, columns: u16, rows: u16) -> String {
        let lines = self.lines(reading, columns.into(), rows.into());
        let mut text = String::new();
        for (line, _) in lines {
            text += table::cut(&line, columns.into()).trim_end();
            text.push('\n');
        }
        text
    }

    pub fn draw(&self, reading: &TopSample, area: Rect, buffer: &mut Buffer) {
        let lines = self.lines(reading, area.width.into(), area.height.into());
        for (y, (line, style)) in (area.y..area.bottom()).zip(lines) {
            let line = format!("{line:<width$}", width = usize::from(area.width));
            buffer.set_stringn(area.x, y, line, area.width.into(), style);
        }
    }

    fn lines(&self, reading: &TopSample, columns: usize, rows: usize) -> Lines {
        let (bold, plain) = (Style::new().add_modifier(Modifier::BOLD), Style::new());
        let paused = if self.is_paused { "  PAUSED" } else { "" };
        let at = moment::date_and_time(reading.now);
        let title = table::printable(&self.title);
        let mut lines = vec![(format!("{title}  {}{paused}", &at[..19]), bold)];
        lines.extend(amounts(reading).map(|(line, is_bold)| match is_bold {
            true => (line, bold),
            false => (line, plain),
        }));
        if rows >= ROWS_WITH_HISTORY {
            let history = self.history.lines(columns);
            let styled = history.into_iter().enumerate();
            lines.extend(styled.map(|(at, line)| (line, if at == 0 { bold } else { plain })));
        }
        // Heads and keys take a line each; what is left is shared.
        let share = rows.saturating_sub(lines.len() + 4) / 3;
        let sorted = self.sorted(reading);
        let selected = self.place(&sorted);
        lines.extend(self.containers(&sorted, selected, share.max(1), columns));
        let runs = match share {
            // On a small terminal the container's own line says more.
            0 => vec![],
            _ => runs(sorted.get(selected).copied(), reading, share),
        };
        lines.extend(runs.into_iter().enumerate().map(|(at, line)| {
            let style = if at == 0 { bold } else { plain };
            (line, style)
        }));
        lines.push(("LAST EDITS, newest first".to_owned(), bold));
        let room = rows.saturating_sub(lines.len() + 1);
        for edit in reading.edits.iter().take(room) {
            let mark = moment::of_mark(edit.at);
            let ago = mark.map_or("-".to_owned(), |at| moment::relative(at, reading.now));
            let what = table::printable(&edit.title).into_owned();
            lines.push((format!("{:>7}  {ago:>12}  {what}", edit.number), plain));
        }
        lines.resize(
            rows.saturating_sub(1).max(lines.len()),
            (String::new(), plain),
        );
        lines.truncate(rows.saturating_sub(1));
        let keys = format!(
            "q quit  up/down container  s sort: {}  p pause",
            self.sort.name()
        );
        lines.push((keys, Style::new().add_modifier(Modifier::REVERSED)));
        lines
    }

    /// As many as have room, the selected one among them.
    fn containers(&self, sorted: &[&Of], selected: usize, room: usize, columns: usize) -> Lines {
        let first = selected.saturating_sub(room.saturating_sub(1));
        let rows: Vec<Vec<String>> = sorted
            .iter()
            .enumerate()
            .skip(first)
            .take(room)
            .map(|(at, of)| {
                let stats = &of.stats;
                let mark = if at == selected { "> " } else { "  " };
                vec![
                    format!("{mark}{}", table::cut(&table::printable(&of.name), 30)),
                    show::count(stats.live_items),
                    show::bytes(stats.live_bytes),
                    show::bytes(stats.expired_bytes),
                    show::bytes(stats.disk_bytes),
                    show::count(stats.runs),
                    show::explained(&stats.explain),
                ]
            })
            .collect();
        let head = format!("  CONTAINER, {} in all", sorted.len());
        let head = [
            head.as_str(),
            "ITEMS",
            "LIVE",
            "EXPIRED",
            "DISK",
            "RUNS",
            "NEXT",
        ];
        let text = table::first_columns(&head, &rows, columns);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut lines: Lines = text
            .lines()
            .enumerate()
            .map(|(at, line)| {
                let stands_out = at == 0 || at == selected - first + 1;
                (
                    line.to_owned(),
                    if stands_out { bold } else { Style::new() },
                )
            })
            .collect();
        lines.resize(room + 1, (String::new(), Style::new()));
        lines
    }
}

/// Heads and amounts, a column each, whole on 80 columns.
fn amounts(reading: &TopSample) -> [(String, bool); 4] {
    let stats = &reading.stats;
    let oldest = stats.oldest_unreclaimed;
    let age = oldest.and_then(|oldest| reading.now.duration_since(oldest).ok());
    let rate = |of: fn(&Rates) -> f64| reading.rates.as_ref().map(|rates| of(rates) as u64);
    let bytes = |rate: Option<u64>| rate.map_or("-".to_owned(), show::bytes);
    let rows: [[(&str, String); 7]; 2] = [
        [
            ("UNRECLAIMED", show::bytes(stats.expired_bytes)),
            ("OLDEST", age.map_or("-".to_owned(), show::time)),
            ("LIVE", show::bytes(stats.live_bytes)),
            ("ITEMS", short(stats.live_items)),
            ("DISK", show::bytes(stats.disk_bytes)),
            ("TABLES", show::bytes(stats.table_bytes)),
            ("LOG", show::bytes(stats.log_bytes)),
        ],
        [
            (
                "WRITES/S",
                rate(|of| of.writes).map_or("-".to_owned(), short),
            ),
            ("LOGGED/S", bytes(rate(|of| of.logged))),
            ("FLUSHED/S", bytes(rate(|of| of.flushed))),
            ("MERGED/S", bytes(rate(|of| of.merged))),
            ("UNLINKED/S", bytes(rate(|of| of.dropped))),
            ("SUPERSEDED", show::bytes(stats.superseded_bytes)),
            (
                "BEHIND",
                match stats.overdue.is_zero() {
                    true => "no".to_owned(),
                    false => show::time(stats.overdue),
                },
            ),
        ],
    ];
    let line = |cells: [&str; 7]| -> String { cells.map(|cell| format!("{cell:>11}")).concat() };
    let [first, second] = rows;
    [
        (line(first.each_ref().map(|cell| cell.0)), true),
        (line(first.each_ref().map(|cell| cell.1.as_str())), false),
        (line(second.each_ref().map(|cell| cell.0)), true),
        (
            line(second.each_ref().map(|cell| cell.1.as_str())),
            !stats.overdue.is_zero(),
        ),
    ]
}

/// A number in at most nine characters.
fn short(number: u64) -> String {
    match number {
        0..10_000_000 => show::count(number),
        10_000_000..10_000_000_000 => format!("{} M", show::count(number / 1_000_000)),
        _ => format!("{} G", show::count(number / 1_000_000_000)),
    }
}

/// The runs of a container: what comes back next comes first.
fn runs(of: Option<&Of>, reading: &TopSample, room: usize) -> Vec<String> {
    let Some(of) = of else {
        return vec!["no container".to_owned()];
    };
    let name = table::cut(&table::printable(&of.name), 30);
    let mut lines = vec![format!("RUNS of {name}, what comes back next first")];
    let bytes = |run: &ebbtide::RunInfo| run.tables.iter().map(|table| table.file_bytes).sum();
    let most = of.runs.iter().map(bytes).max().unwrap_or(0).max(1);
    for run in of.runs.iter().take(room) {
        let end = run.end;
        let end = end.map_or("never".to_owned(), |end| moment::relative(end, reading.now));
        let bar = "█".repeat((bytes(run) * 20).div_ceil(most) as usize);
        let tables = show::counted(run.tables.len() as u64, "table");
        let size = show::bytes(bytes(run));
        lines.push(format!("{end:>12}  {size:>9}  {tables:>9}  {bar}"));
    }
    lines.resize(room + 1, String::new());
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ebbtide::{ManualClock, Options};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use unicode_width::UnicodeWidthStr;

    use super::*;

    /// Rows of what stands on a terminal of this size.
    fn shown(view: &View, reading: &TopSample, columns: u16, rows: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        let draw = |frame: &mut ratatui::Frame<'_>| {
            view.draw(reading, frame.area(), frame.buffer_mut());
        };
        terminal.draw(draw).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| -> String { (0..columns).map(|x| buffer[(x, y)].symbol()).collect() };
        (0..rows).map(|y| row(y).trim_end().to_owned()).collect()
    }

    fn database() -> (tempfile::TempDir, TopSample) {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new(1_800_000_000_000);
        let db = Options::new()
            .clock(clock.clone())
            .open(folder.path())
            .unwrap();
        for n in 0..50 {
            let c = db.container(format!("c-{n:02}\u{1b}[2J")).unwrap();
            for item in 0..=n {
                let ttl = Duration::from_secs(60 + item);
                c.put_with_ttl(item.to_string(), [0; 500], ttl).unwrap();
            }
        }
        db.flush().unwrap();
        clock.advance(Duration::from_secs(30));
        let reading = TopSample::of(&db, None).ok().unwrap();
        (folder, reading)
    }

    #[test]
    fn a_frame_fits_into_terminals_of_any_size() {
        let (_folder, reading) = database();
        let view = View::new("db".to_owned());
        for (columns, rows) in [(80, 24), (200, 60)] {
            let frame = shown(&view, &reading, columns, rows);
            assert_eq!(frame[0], "db  2027-01-15T08:00:30");
            let runs = frame.iter().position(|row| row.starts_with("RUNS of c-49"));
            let runs = runs.expect("the one that takes most disk is selected");
            assert!(
                frame[runs + 1].trim_start().starts_with("in 79.0 s"),
                "{frame:?}"
            );
            let edits = frame.iter().position(|row| row.starts_with("LAST EDITS"));
            assert!(
                frame[edits.unwrap() + 1].contains("flush of c-"),
                "{frame:?}"
            );
            assert!(frame[usize::from(rows) - 1].starts_with("q quit"));
            assert!(frame.iter().all(|row| !row.contains('\u{1b}')));
            let listed = frame
                .iter()
                .filter(|row| row.contains(r"c-") && row.contains("KiB"))
                .count();
            assert!(listed >= usize::from(rows) / 6, "{frame:?}");
        }
        for (columns, rows) in [(1, 1), (20, 3), (80, 9)] {
            shown(&view, &reading, columns, rows);
        }
        let frame = shown(&view, &reading, 80, 10);
        let selected = frame.iter().position(|row| row.starts_with("> c-49"));
        assert!(selected.is_some(), "{frame:?}");
        assert!(
            !frame.iter().any(|row| row.starts_with("RUNS")),
            "{frame:?}"
        );
    }

    #[test]
    fn arrows_select_and_s_sorts() {
        let (_folder, reading) = database();
        let mut view = View::new("db".to_owned());
        let selected = |view: &View| {
            let frame = shown(view, &reading, 80, 24);
            let row = frame.into_iter().find(|row| row.starts_with("> "));
            row.unwrap()[2..6].to_owned()
        };
        assert_eq!(selected(&view), "c-49");
        view.step(&reading, 1);
        assert_eq!(selected(&view), "c-48");
        (0..60).for_each(|_| view.step(&reading, 1));
        assert_eq!(selected(&view), "c-00");
        view.sort = Sort::Name;
        view.step(&reading, -1);
        assert_eq!(selected(&view), "c-00", "it is the first");
        (0..30).for_each(|_| view.step(&reading, 1));
        assert_eq!(selected(&view), "c-30");
        let text = view.text(&reading, 80, 24);
        assert!(text.lines().all(|line| line.width() <= 80));
        assert_eq!(text.lines().count(), 24);
    }

    #[test]
    fn a_database_of_nothing_has_a_frame() {
        let folder = tempfile::tempdir().unwrap();
        let db = ebbtide::Database::open(folder.path()).unwrap();
        let reading = TopSample::of(&db, None).ok().unwrap();
        let mut view = View::new("db".to_owned());
        view.step(&reading, 1);
        assert!(shown(&view, &reading, 80, 24).contains(&"no container".to_owned()));
    }

    #[test]
    fn amounts_are_whole_on_eighty_columns() {
        let (_folder, mut reading) = database();
        let stats = &mut reading.stats;
        let sizes = [
            &mut stats.expired_bytes,
            &mut stats.live_bytes,
            &mut stats.disk_bytes,
            &mut stats.table_bytes,
            &mut stats.log_bytes,
            &mut stats.superseded_bytes,
        ];
        sizes.into_iter().for_each(|bytes| *bytes = 1_023 << 40);
        stats.live_items = 9_999_999_999;
        stats.overdue = Duration::from_secs(7_199);
        reading.rates = Some(Rates {
            writes: 1e7 - 1.0,
            logged: 1e9,
            flushed: 1e9,
            merged: 1e9,
            dropped: 1e9,
        });
        let frame = shown(&View::new("db".to_owned()), &reading, 80, 24);
        assert!(frame[1].starts_with("UNRECLAIMED"), "{}", frame[1]);
        let heads = [1, 3].map(|at| frame[at].split_whitespace().count());
        assert_eq!(heads, [7, 7], "{:?}", &frame[1..5]);
        let amounts = [2, 4].map(|at| {
            frame[at]
                .split("  ")
                .filter(|cell| !cell.is_empty())
                .count()
        });
        assert_eq!(amounts, [7, 7], "{:?}", &frame[1..5]);
        assert!(frame[4].ends_with("120 min"), "{}", frame[4]);
    }

    #[test]
    fn history_is_shown_where_there_is_room() {
        let (_folder, mut reading) = database();
        let mut view = View::new("db".to_owned());
        reading.rates = Some(Rates {
            writes: 100.0,
            logged: 0.0,
            flushed: 0.0,
            merged: 0.0,
            dropped: 0.0,
        });
        for step in 1..=300u64 {
            reading.stats.live_bytes = step;
            reading.stats.disk_bytes = 300;
            view.history.add(&reading);
        }
        let frame = shown(&view, &reading, 80, 40);
        let at = frame.iter().position(|row| row.starts_with("HISTORY"));
        let lines = &frame[at.unwrap() + 1..][..4];
        assert!(
            lines[0].starts_with("       live      300 B at most"),
            "{lines:?}"
        );
        assert!(
            lines[0].contains("▇█") && lines[2].ends_with("██"),
            "{lines:?}"
        );
        assert!(frame.iter().all(|row| row.width() <= 80));
        let small = shown(&view, &reading, 80, 24);
        assert!(!small.iter().any(|row| row.starts_with("HISTORY")));
    }
}
