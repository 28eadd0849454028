//! Pieces of a page: escaped text, tables, and pictures.
//!
//! A picture is shapes alone, in an SVG that is stretched to the width there is; its words stand beside it as text, so that
//! they keep their size on a narrow screen and are read aloud. Colours are classes (style.css).

use std::fmt::{self, Display, Write};

use crate::table;

/// Text that stands for itself in HTML, in attributes too.
pub struct Text<'a>(pub &'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in table::printable(self.0).chars() {
            match char {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                char => f.write_char(char)?,
            }
        }
        Ok(())
    }
}

/// A name, whose direction of writing does not reach beyond it.
pub fn name(name: &str) -> String {
    format!("<bdi>{}</bdi>", Text(name))
}

/// A table; the cells are HTML. Of each row the first cell is its head.
pub fn table(caption: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = format!(
        "<div class=\"wide\"><table><caption>{}</caption><thead><tr>",
        Text(caption)
    );
    for cell in head {
        let _ = write!(out, "<th scope=\"col\">{}</th>", Text(cell));
    }
    out += "</tr></thead><tbody>\n";
    for row in rows {
        out += "<tr>";
        for (at, cell) in row.iter().enumerate() {
            // On a narrow screen a row is a block of lines, each with the head of its column.
            let _ = match at {
                0 => write!(out, "<th scope=\"row\">{cell}</th>"),
                at => write!(out, "<td data-head=\"{}\">{cell}</td>", Text(head[at])),
            };
        }
        out += "</tr>\n";
    }
    out + "</tbody></table></div>\n"
}

pub fn details(summary: &str, body: &str, is_open: bool) -> String {
    let open = if is_open { " open" } else { "" };
    format!("<details{open}><summary>{summary}</summary>\n{body}</details>\n")
}

/// Part of a strip, from and to in thousandths of its width.
pub struct StripPart {
    pub from: f64,
    pub to: f64,
    pub class: &'static str,
}

/// One row of parts; `label` is what it shows, in words.
pub fn strip(label: &str, parts: &[StripPart]) -> String {
    let mut out = svg("strip", label, 10);
    for part in parts {
        let width = (part.to - part.from).max(3.0);
        let from = part.from.min(1_000.0 - width);
        let _ = write!(
            out,
            "<rect class=\"{}\" x=\"{from:.1}\" y=\"0\" width=\"{width:.1}\" height=\"10\"/>",
            part.class
        );
    }
    out + "</svg>"
}

/// Bars side by side, each of its class; one of nothing is a gap.
pub fn columns(label: &str, bars: &[(f64, &str)]) -> String {
    let mut out = svg("columns", label, 100);
    let most = bars.iter().map(|(amount, _)| *amount).fold(0.0, f64::max);
    let width = 1_000.0 / bars.len().max(1) as f64;
    for (at, (amount, class)) in bars.iter().enumerate() {
        if *amount < 0.5 {
            continue;
        }
        let height = (amount / most * 100.0).max(1.5);
        let _ = write!(
            out,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\"/>",
            at as f64 * width + width * 0.08,
            100.0 - height,
            width * 0.84
        );
    }
    out + "</svg>"
}

/// A line through points, both coordinates from 0 to 1.
pub fn line(label: &str, points: &[(f64, f64)]) -> String {
    let mut out = svg("line", label, 100);
    let points: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{:.1},{:.1}", x * 1_000.0, 98.0 - y * 96.0))
        .collect();
    let _ = write!(out, "<polyline points=\"{}\"/>", points.join(" "));
    out + "</svg>"
}

fn svg(class: &str, label: &str, height: u32) -> String {
    format!(
        "<svg class=\"{class}\" viewBox=\"0 0 1000 {height}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
        Text(label)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_is_markup() {
        let ugly = "<script>\"a'&\n\u{1b}";
        assert_eq!(
            name(ugly),
            r"<bdi>&lt;script&gt;\&quot;a\&#39;&amp;\n\u{1b}</bdi>"
        );
        assert_eq!(Text("a & b").to_string(), "a &amp; b");
    }

    #[test]
    fn parts_are_seen_and_stay_inside() {
        let end = StripPart {
            from: 1_000.0,
            to: 1_000.0,
            class: "c0",
        };
        assert!(strip("a", &[end]).contains("x=\"997.0\" y=\"0\" width=\"3.0\""));
    }
}
