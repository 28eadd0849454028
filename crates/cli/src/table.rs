//! Text tables, as wide as their cells, up to the width available.

use std::borrow::Cow;
use std::io::stdout;

use terminal_size::{Width, terminal_size_of};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The width without a terminal.
const COLUMNS: usize = 80;
/// The length to which names in the first column are cut if there is not enough room.
const NAME: usize = 32;
const GAP: usize = 2;

/// The width of a line of standard output, in characters.
pub fn columns() -> usize {
    match terminal_size_of(stdout()) {
        Some((Width(columns), _)) if columns > 0 => columns.into(),
        _ => COLUMNS,
    }
}

/// Rows under a header, each column as wide as its widest cell; all but the first are aligned to the right.
pub fn whole(header: &[&str], rows: &[Vec<String>]) -> String {
    aligned(&lines(header, rows), usize::MAX).0
}

/// The same within a width, without a word of the columns that have no room.
pub fn first_columns(header: &[&str], rows: &[Vec<String>], columns: usize) -> String {
    aligned(&lines(header, rows), columns).0
}

/// The same within a width: the last columns are left out, and named below; long names are cut.
pub fn fitted(header: &[&str], rows: &[Vec<String>], columns: usize) -> String {
    let mut lines = lines(header, rows);
    let (text, left_out) = aligned(&lines, columns);
    if left_out == 0 {
        return text;
    }
    for line in &mut lines {
        line[0] = cut(&line[0], NAME);
    }
    let (mut text, left_out) = aligned(&lines, columns);
    if left_out > 0 {
        let left_out = &header[header.len() - left_out..];
        let note = format!("Not shown: {}.", left_out.join(", ").to_lowercase());
        text.push_str(&cut(&note, columns));
        text.push('\n');
    }
    text
}

/// Without control characters, which would move a terminal's cursor.
pub fn printable(name: &str) -> Cow<'_, str> {
    match name.contains(char::is_control) {
        true => name.escape_debug().to_string().into(),
        false => name.into(),
    }
}

fn lines(header: &[&str], rows: &[Vec<String>]) -> Vec<Vec<String>> {
    let header = header.iter().map(|cell| (*cell).to_owned()).collect();
    let rows = rows.iter().cloned().map(|mut row: Vec<String>| {
        row[0] = printable(&row[0]).into_owned();
        row
    });
    std::iter::once(header).chain(rows).collect()
}

/// The first columns that fit into a width, at least one; and the number of the others.
fn aligned(lines: &[Vec<String>], columns: usize) -> (String, usize) {
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].width());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..lines[0].len()).map(width).collect();
    let mut taken = 0;
    let fitting = widths.iter().take_while(|&width| {
        taken += width + GAP;
        taken - GAP <= columns
    });
    let shown = fitting.count().max(1);
    let mut text = String::new();
    for line in lines {
        for (column, cell) in line[..shown].iter().enumerate() {
            let space = widths[column] - cell.width();
            match column {
                0 => text.push_str(&format!("{cell}{:space$}", "")),
                _ => text.push_str(&format!("{:GAP$}{:space$}{cell}", "", "")),
            }
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    (text, widths.len() - shown)
}

/// The first characters of a wider text, with a mark that it is cut.
pub fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut taken = 1;
    let fitting = text.chars().take_while(|char| {
        taken += char.width().unwrap_or(0);
        taken <= columns
    });
    fitting.collect::<String>() + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: [&str; 4]) -> Vec<String> {
        cells.map(str::to_owned).to_vec()
    }

    #[test]
    fn tables_are_aligned() {
        let rows = [
            row(["sessions", "7", "", "x"]),
            row(["s", "1,000", "1 B", "y"]),
        ];
        assert_eq!(
            whole(&["NAME", "N", "", "NEXT"], &rows),
            "NAME          N       NEXT\nsessions      7          x\ns         1,000  1 B     y\n"
        );
    }

    #[test]
    fn what_has_no_room_is_left_out_and_named() {
        let rows = [row(["sessions", "7", "12 B", "nothing to do"])];
        let header = ["NAME", "ITEMS", "LIVE", "NEXT"];
        assert_eq!(fitted(&header, &rows, 36), whole(&header, &rows));
        assert_eq!(
            fitted(&header, &rows, 35),
            "NAME      ITEMS  LIVE\nsessions      7  12 B\nNot shown: next.\n"
        );
        assert_eq!(fitted(&header, &rows, 9), "NAME\nsessions\nNot show…\n");
    }

    #[test]
    fn a_long_name_leaves_room_for_others() {
        let rows = [
            row([&"表".repeat(80), "7", "a\u{301}", ""]),
            row(["a\nb\u{1b}[1m", "1", "", ""]),
        ];
        let text = fitted(&["NAME", "N", "M", "O"], &rows, 80);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], format!("{}…  7  a\u{301}", "表".repeat(15)));
        assert_eq!(lines[2], format!("{:<33}1", r"a\nb\u{1b}[1m"));
        assert!(lines.iter().all(|line| line.width() <= 80), "{text}");
    }
}
