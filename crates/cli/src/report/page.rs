//! The page of a report: one file, which needs no network, and scripts only to step through the film.

use std::fmt::Write;
use std::time::SystemTime;

use ebbtide::RunInfo;

use super::ends::{Ends, Sum};
use super::facts::{Facts, Of, ratio};
use super::film::{Fate, Frame, Kind, Picture};
use super::html::{StripPart, Text, columns, details, line, name, strip, table};
use super::{keys, text, verdict};
use crate::{moment, show};

/// Of so many containers the details are open from the start, and of so many there are any: those that take most disk.
const OPEN: usize = 4;
const DETAILED: usize = 50;
/// Of a container so many runs are drawn, those that end first, and of a frame.
const RUNS: usize = 64;
const FRAME_RUNS: usize = 24;

pub fn page(facts: &Facts) -> String {
    let title = format!("Ebbtide: {}", facts.dir);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n",
        Text(&title),
        include_str!("style.css")
    );
    let _ = writeln!(
        out,
        "<h1>{}</h1>\n<p>At {}, by ebbtide {}. Other times are counted from then.</p>",
        name(&facts.dir),
        moment::date_and_time(facts.now),
        env!("CARGO_PKG_VERSION")
    );
    for (heading, section) in [
        ("At a glance", glance(facts)),
        ("What the disk is made of", disk(facts)),
        ("Containers", containers(facts)),
        ("Amplification", amplification(facts)),
        ("Edits of the manifest", film(facts)),
        ("For a bug report", bug_report(facts)),
    ] {
        let _ = write!(out, "<section>\n<h2>{heading}</h2>\n{section}</section>\n");
    }
    let _ = write!(
        out,
        "</main>\n<script>\n{}</script>\n</body>\n</html>\n",
        include_str!("film.js")
    );
    out
}

fn glance(facts: &Facts) -> String {
    let rows = text::glance(facts);
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(what, amount)| vec![Text(what).to_string(), Text(&amount).to_string()])
        .collect();
    let mut out = format!(
        "<p class=\"verdict\">{}</p>\n",
        Text(&verdict::verdict(facts))
    );
    out += &table("The database", &["what", "amount"], &rows);
    for trouble in &facts.trouble {
        let _ = writeln!(out, "<p class=\"bad\">{}</p>", Text(trouble));
    }
    out
}

fn disk(facts: &Facts) -> String {
    let all: u64 = facts.disk.iter().map(|row| row.bytes).sum();
    let (mut parts, mut rows, mut so_far) = (vec![], vec![], 0);
    for row in &facts.disk {
        let class = row.colour;
        let share = |bytes: u64| 1_000.0 * bytes as f64 / all.max(1) as f64;
        parts.push(StripPart {
            from: share(so_far),
            to: share(so_far + row.bytes),
            class,
        });
        so_far += row.bytes;
        rows.push(vec![
            format!("<span class=\"swatch {class}\"></span>{}", Text(&row.what)),
            show::bytes(row.bytes),
            format!("{:.1} %", share(row.bytes) / 10.0),
        ]);
    }
    let label = "Shares of the disk space, in the order of the table below";
    let caption = format!("{} in all", show::bytes(all));
    strip(label, &parts) + &table(&caption, &["for", "bytes", "share"], &rows)
}

fn containers(facts: &Facts) -> String {
    if facts.containers.is_empty() {
        return "<p>There is none.</p>\n".to_owned();
    }
    let head = [
        "container",
        "default ttl",
        "items",
        "live",
        "expired",
        "disk",
        "runs",
        "oldest expired",
    ];
    let row = |of: &Of| {
        let stats = &of.stats;
        vec![
            name(&of.name),
            Text(&text::default_ttl(of)).to_string(),
            show::count(stats.live_items),
            show::bytes(stats.live_bytes),
            show::bytes(stats.expired_bytes),
            show::bytes(stats.disk_bytes),
            show::count(stats.runs),
            text::oldest(stats.oldest_unreclaimed, facts.now),
        ]
    };
    let rows: Vec<_> = facts.containers.iter().map(row).collect();
    let mut out = table("All containers, by name", &head, &rows);
    let detailed = text::by_disk(facts);
    for (at, of) in detailed.iter().take(DETAILED).enumerate() {
        let summary = format!("<h3>{}</h3>", name(&of.name));
        out += &details(&summary, &container(of, facts), at < OPEN);
    }
    if detailed.len() > DETAILED {
        let _ = writeln!(
            out,
            "<p>Not shown in detail: {}, which take less disk than these.</p>",
            show::counted((detailed.len() - DETAILED) as u64, "container")
        );
    }
    out
}

fn container(of: &Of, facts: &Facts) -> String {
    let mut out = String::from("<ul>");
    let compression = of
        .stored
        .as_ref()
        .map_or("unknown", |stored| &stored.compression);
    let _ = write!(
        out,
        "<li>default ttl: {}; compression: {}</li><li>next: {}</li>",
        Text(&text::default_ttl(of)),
        Text(compression),
        Text(&show::explained(&of.stats.explain))
    );
    for line in of.retention(&|millis| moment::date_and_time(moment::of_millis(millis))) {
        let _ = write!(out, "<li>{}</li>", Text(&line));
    }
    out += "</ul>\n";
    out + &due(of, facts.now) + &runs(&of.runs, facts)
}

fn due(of: &Of, now: SystemTime) -> String {
    let ends = Ends::of(&of.due, now, (of.stats.live_items, of.stats.live_bytes));
    if ends.is_empty() {
        return "<p>Nothing in it ends.</p>\n".to_owned();
    }
    let mut out = String::from(
        "<h4>What ends, and what comes back</h4>\n<p><span class=\"swatch past\"></span>has ended, stored yet \
         <span class=\"swatch future\"></span>ends within that time <span class=\"swatch never\"></span>never ends</p>\n\
         <div class=\"curves\">",
    );
    type Value = fn(&Sum) -> f64;
    type Shown = fn(u64) -> String;
    let curves: [(&str, Value, Shown); 3] = [
        ("items", |sum| sum.items, text::about_items),
        ("their bytes", |sum| sum.bytes, text::about_bytes),
        (
            "disk space that comes back",
            |sum| sum.disk,
            text::about_bytes,
        ),
    ];
    for (what, value, shown) in curves {
        let sums: Vec<_> = ends.bars.iter().map(|bar| value(&bar.sum)).collect();
        let (all, past) = (sums.iter().sum::<f64>(), value(&ends.past));
        let mut bars = vec![(past, "past"), (0.0, "")];
        bars.extend(sums.into_iter().map(|sum| (sum, "future")));
        if ends.has_never() {
            bars.extend([(0.0, ""), (value(&ends.never), "never")]);
        }
        let label = format!("{what}: a bar for each row of the table below");
        let _ = write!(
            out,
            "<figure><figcaption>{what}: {} from now on, {} of the past</figcaption>{}{}</figure>",
            shown(all as u64),
            shown(past as u64),
            columns(&label, &bars),
            axis(&ends)
        );
    }
    out += "</div>\n";
    let head = ["end", "items, about", "bytes, about", "disk, about"];
    let caption = "Each row from the one before; of the past, what is stored yet";
    out + &details(
        "As a table",
        &table(caption, &head, &text::ends(&ends)),
        false,
    )
}

/// The names of the bars that have one, each below its bar.
fn axis(ends: &Ends) -> String {
    let mut names = vec!["past", ""];
    names.extend(ends.bars.iter().map(|bar| bar.tick));
    if ends.has_never() {
        names.extend(["", "never"]);
    }
    let mut out = format!(
        "<div class=\"ticks\" style=\"grid-template-columns: repeat({}, minmax(0, 1fr))\">",
        names.len()
    );
    // A name is wider than a bar: those that have no room are left out, but for the two at the sides.
    let (room, last) = (names.len().div_ceil(9), names.len() - 1);
    let mut taken = 0;
    let has_name = names
        .iter()
        .enumerate()
        .filter(|(_, name)| !name.is_empty());
    for (at, name) in has_name {
        let is_side = at == 0 || ends.has_never() && at == last;
        if !is_side && (at < taken + room || ends.has_never() && at + room > last) {
            continue;
        }
        taken = at;
        let _ = write!(out, "<span style=\"grid-column: {}\">{name}</span>", at + 1);
    }
    out + "</div>"
}

/// Each run a row, each table a part of it: from its first key to its last, by their ranks among all such keys.
fn runs(runs: &[RunInfo], facts: &Facts) -> String {
    if runs.is_empty() {
        return "<p>Nothing of it is in tables.</p>\n".to_owned();
    }
    let ranks = keys::Ranks::of(runs);
    let mut sorted: Vec<&RunInfo> = runs.iter().collect();
    sorted.sort_by_key(|run| (run.end.is_none(), run.end, run.id));
    let mut out = String::from(
        "<h4>Runs by key and end</h4>\n<p>From the lowest key at the left to the highest at the right; what ends first is \
         on top. <span class=\"swatch live\"></span>live <span class=\"swatch expired\"></span>expired</p>\n<div class=\"runs\">\n",
    );
    let mut rows = vec![];
    for run in &sorted {
        let mut parts = vec![];
        for table in &run.tables {
            let (from, to) = ranks.span(table);
            let share = ratio(table.expired_bytes, table.stored_bytes)
                .unwrap_or(0.0)
                .min(1.0);
            let middle = from + (to - from) * share;
            parts.push(StripPart {
                from: middle,
                to,
                class: "live",
            });
            if share > 0.0 {
                parts.push(StripPart {
                    from,
                    to: middle,
                    class: "expired",
                });
            }
            rows.push(vec![
                format!("{} of run {}", table.id, run.id),
                end(run.end, facts.now),
                show::bytes(table.file_bytes),
                show::count(table.records),
                format!("{:.0} %", share * 100.0),
                Text(&ranks.words(table, facts.key_bytes)).to_string(),
                format!("{} to {}", table.first_version, table.last_version),
            ]);
        }
        if rows.len() > RUNS * 8 {
            break;
        }
        let bytes = run.tables.iter().map(|table| table.file_bytes).sum();
        let words = format!(
            "run {}, {}, ends {}",
            run.id,
            show::bytes(bytes),
            end(run.end, facts.now)
        );
        let _ = writeln!(
            out,
            "<div><span>{words}</span>{}</div>",
            strip(&words, &parts)
        );
    }
    out += "</div>\n";
    if sorted.len() > RUNS {
        let _ = writeln!(
            out,
            "<p>{} in all.</p>",
            show::counted(sorted.len() as u64, "run")
        );
    }
    let head = [
        "table", "ends", "file", "records", "expired", "keys", "versions",
    ];
    let caption = "Tables; what ends first comes first";
    out + &details("As a table", &table(caption, &head, &rows), false)
}

fn end(end: Option<SystemTime>, now: SystemTime) -> String {
    end.map_or("never".to_owned(), |end| moment::relative(end, now))
}

fn amplification(facts: &Facts) -> String {
    let frames = &facts.film.frames;
    let known: Vec<(usize, f64)> = frames
        .iter()
        .enumerate()
        .filter_map(|(at, frame)| Some((at, frame.written.amplification()?)))
        .collect();
    let rows: Vec<_> = text::amplification(facts)
        .into_iter()
        .map(|(what, amount)| vec![Text(what).to_string(), amount])
        .collect();
    let mut out = table("Bytes for each byte", &["what", "amount"], &rows);
    if known.len() < 2 {
        return out;
    }
    let most = known.iter().map(|(_, times)| *times).fold(1.0, f64::max);
    let last = frames.len() as f64 - 1.0;
    let points: Vec<_> = known
        .iter()
        .map(|(at, times)| (*at as f64 / last, times / most))
        .collect();
    let _ = writeln!(
        out,
        "<figure><figcaption>Bytes written for each byte of the log, so far: from 0 to {most:.2}, over the edits {} to {}\
         </figcaption>{}</figure>",
        frames[0].number,
        frames[frames.len() - 1].number,
        line(
            "Write amplification after each edit; the amounts are in the frames of the film",
            &points
        )
    );
    out
}

fn film(facts: &Facts) -> String {
    let frames = &facts.film.frames;
    let shown = &frames[frames.len() - facts.shown_edits.min(frames.len())..];
    let mut out = format!(
        "<p>{} in the manifest; the last {} below, the newest at the end. Earlier ones are summed up in the first, \
         when the database is opened or the manifest has grown long. Moments are settled times on which an edit \
         relied.</p>\n<div id=\"film\">\n",
        show::counted(frames.len() as u64, "edit"),
        shown.len()
    );
    for (at, frame) in shown.iter().enumerate() {
        out += &details(
            &summary(frame),
            &frame_body(frame, facts.now),
            at + 1 == shown.len(),
        );
    }
    out + "</div>\n"
}

fn summary(frame: &Frame) -> String {
    let time = moment::of_mark(frame.at).map(moment::date_and_time);
    format!(
        "<span class=\"number\">{}</span> {} <span class=\"kind {}\">{}</span>",
        frame.number,
        time.as_ref().map_or("-", |time| &time[11..19]),
        kind(frame.kind),
        Text(&frame.title)
    )
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Sum => "sum",
        Kind::Flush => "flush",
        Kind::Merge => "merge",
        Kind::Removal => "removal",
        Kind::Other => "other",
    }
}

fn frame_body(frame: &Frame, now: SystemTime) -> String {
    let moment = moment::of_millis(frame.at);
    let mut out = match moment::of_mark(frame.at) {
        Some(at) => format!(
            "<p>{} ({})</p>\n",
            moment::date_and_time(at),
            moment::relative(at, now)
        ),
        None => String::new(),
    };
    for picture in &frame.pictures {
        out += &frame_picture(picture, moment);
    }
    out += "<ul>";
    for change in &frame.changes {
        let _ = write!(out, "<li>{}</li>", Text(change));
    }
    let written = frame.written;
    let _ = writeln!(
        out,
        "<li>since the first edit: log {}, flushed {}, merged {}, given back unread {}{}</li></ul>",
        show::bytes(written.logged),
        show::bytes(written.flushed),
        show::bytes(written.merged),
        show::bytes(written.dropped),
        written
            .amplification()
            .map_or(String::new(), |times| format!(
                "; {times:.2} for each byte of the log"
            ))
    );
    out
}

/// Each run a row, as long as its bytes.
fn frame_picture(picture: &Picture, moment: SystemTime) -> String {
    let most = picture
        .runs
        .iter()
        .map(super::film::Run::bytes)
        .max()
        .unwrap_or(0)
        .max(1);
    let mut out = format!(
        "<h4>{}</h4>\n<div class=\"runs\">\n",
        name(&picture.container)
    );
    // Changed runs are shown in any case.
    let (changed, same): (Vec<_>, Vec<_>) =
        picture.runs.iter().partition(|run| run.fate != Fate::Stays);
    let left_out = (changed.len() + same.len()).saturating_sub(FRAME_RUNS);
    let hidden: Vec<u64> = same.iter().rev().take(left_out).map(|run| run.id).collect();
    for run in picture.runs.iter().filter(|run| !hidden.contains(&run.id)) {
        let (class, fate) = match run.fate {
            Fate::Stays => ("stays", ""),
            Fate::Comes => ("comes", "+ "),
            Fate::Goes => ("goes", "− "),
        };
        let words = format!(
            "{fate}run {}, {}, ends {}",
            run.id,
            show::bytes(run.bytes()),
            end(run.end.map(moment::of_millis), moment)
        );
        let part = StripPart {
            from: 0.0,
            to: 1_000.0 * run.bytes() as f64 / most as f64,
            class,
        };
        let _ = writeln!(
            out,
            "<div><span>{words}</span>{}</div>",
            strip(&words, &[part])
        );
    }
    out += "</div>\n";
    if !hidden.is_empty() {
        let _ = writeln!(
            out,
            "<p>{} more stay.</p>",
            show::counted(hidden.len() as u64, "run")
        );
    }
    out
}

fn bug_report(facts: &Facts) -> String {
    let about = match facts.key_bytes {
        0 => "It has no key and no value.".to_owned(),
        bytes => format!(
            "It has the first {} of some keys, and no value.",
            show::counted(bytes as u64, "byte")
        ),
    };
    let text = text::text(facts);
    let lines: Vec<String> = text.lines().map(|line| Text(line).to_string()).collect();
    let body = format!("<pre>{}</pre>", lines.join("\n"));
    format!(
        "<p>The same as text. {about} <code>ebbtide report --hide-names</code> leaves out the names of containers, too.</p>\n"
    ) + &details("As text", &body, false)
}
