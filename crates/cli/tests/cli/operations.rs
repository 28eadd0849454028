//! Goal: the page on a bad week does what it says. Method: each command of docs/operations.md is run in the page's order, the
//! one in a line of prose too, on the database that the page describes, and prints what the page shows, but for the moments
//! and lengths of time in it. `EBBTIDE_REWRITE=1` has what was printed written into the page.

use std::ops::Range;

use ebbtide::{Batch, Container, ContainerOptions, DefaultTtl, ManualClock, Options, Ttl};
use ebbtide_cli::{calendar, given};

use super::*;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");

/// When the database of the page was filled.
const FILLED: &str = "2026-11-25T09:00:23.230Z";

/// Longer lines of output go on in the next one.
const COLUMNS: usize = 124;

/// The database that the page describes; by now a third of its sessions has expired. Of the carts there are as many of each
/// age, and all ages are far from those that the page names.
fn filled(world: &World) -> SystemTime {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let begun = SystemTime::now() - minutes(340);
    let begun = begun.duration_since(UNIX_EPOCH).unwrap();
    let clock = ManualClock::new(begun.as_millis() as u64);
    let options = Options::new().clock(clock.clone());
    let db = options.open(world.path("db")).unwrap();
    let day = ContainerOptions::new().default_ttl(DefaultTtl::After(minutes(24 * 60)));
    let carts = db.container_with("carts", day).unwrap();
    let (sessions, audit) = (
        db.container("sessions").unwrap(),
        db.container("audit").unwrap(),
    );
    let put = |container: &Container, name: &str, items: Range<u64>, ttl: &dyn Fn(u64) -> Ttl| {
        let mut batch = Batch::new();
        let value = "v".repeat(164);
        for item in items {
            batch.put_with_ttl(container, format!("{name}-{item:06}"), &value, ttl(item));
        }
        db.write(&batch).unwrap();
    };
    let mut age = 340;
    for (part, next) in (0..).zip([170, 85, 42, 21, 3]) {
        put(&carts, "c", part * 400..(part + 1) * 400, &|_| Ttl::Inherit);
        clock.advance(minutes(age - next));
        age = next;
    }
    let filled = db.now();
    for part in 0..60 {
        put(
            &sessions,
            "s",
            part * 1_000..(part + 1) * 1_000,
            &|item| match item % 3 {
                0 => Duration::from_secs(20).into(),
                _ => minutes(60).into(),
            },
        );
        clock.advance(Duration::from_millis(250));
    }
    put(&audit, "a", 0..5_000, &|_| Ttl::Inherit);
    db.close().unwrap();
    filled
}

/// A part of the page.
enum PagePart {
    /// A line that stays as it is.
    Line(String),
    /// A command in a block, and the output below it.
    Command(String, String),
}

fn parts(page: &str) -> Vec<PagePart> {
    let mut parts = vec![];
    let mut is_block = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_block = !is_block;
        }
        match (line.strip_prefix("$ "), parts.last_mut()) {
            (Some(command), _) => parts.push(PagePart::Command(command.to_owned(), String::new())),
            (None, Some(PagePart::Command(_, output))) if is_block => {
                *output += &format!("{line}\n")
            }
            _ => parts.push(PagePart::Line(line.to_owned())),
        }
    }
    parts
}

/// The commands between backquotes in a line of prose.
fn inline(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').skip(1).step_by(2);
    spans.filter(|span| span.starts_with("ebbtide "))
}

/// The text with each of its moments told from another origin.
fn moved(text: &str, from: SystemTime, to: SystemTime) -> String {
    let word = |word: &str| {
        let end = word.trim_end_matches([':', ';', ',']);
        match given::moment(end, from) {
            Ok(moment) if end.contains('T') => {
                let moved = match moment.duration_since(from) {
                    Ok(after) => to + after,
                    Err(before) => to - before.duration(),
                };
                calendar::date_and_time(moved) + &word[end.len()..]
            }
            _ => word.to_owned(),
        }
    };
    text.split_inclusive([' ', '\n'])
        .map(|part| {
            let end = part.trim_end_matches([' ', '\n']);
            word(end) + &part[end.len()..]
        })
        .collect()
}

/// Figures that depend on the file system.
const OF_THE_DISK: [&str; 3] = ["folders", "log_ahead", "as du counts"];

/// The words of an output, but for those that are of a moment or a length of time.
fn timeless(text: &str) -> Vec<&str> {
    let lines = text
        .lines()
        .filter(|line| !OF_THE_DISK.iter().any(|kind| line.starts_with(kind)));
    // Of what a compaction has to do, background work may have done a part.
    let compacted = text.starts_with("on disk ");
    let mut words: Vec<&str> = vec![];
    for word in lines.flat_map(str::split_whitespace) {
        let end = word.trim_end_matches([':', ';', ',', ')']);
        let is_number = |word: &&str| word.parse::<f64>().is_ok();
        if ["us", "ms", "s", "min", "h", "d"].contains(&end) && words.last().is_some_and(is_number)
        {
            words.pop();
            words.push("TIME");
        } else if end.contains('T') && given::moment(end, UNIX_EPOCH).is_ok() {
            words.push("MOMENT");
        } else if compacted && (end.ends_with('B') || is_number(&end)) {
            words.push("SIZE");
        } else {
            words.push(word);
        }
    }
    words
}

/// Whether an output is the one that the page shows. Sizes and large counts, some of which are estimates, are so within a fifth;
/// of less than a mebibyte within a factor of two, since background work may have come to one table more or less.
fn is_shown(printed: &str, shown: &str) -> bool {
    let (printed, shown) = (timeless(printed), timeless(shown));
    let number = |word: &str| word.replace(',', "").parse::<f64>().ok();
    let is_near = |at: usize| {
        let words = &shown;
        let is_size = words.get(at + 1).is_some_and(|unit| unit.contains("iB"));
        let (Some(printed), Some(shown)) = (number(printed[at]), number(shown[at])) else {
            return false;
        };
        let is_small = words.get(at + 1).is_some_and(|unit| unit.contains("KiB"));
        let ratio = printed / shown;
        match is_small {
            true => (0.5..2.0).contains(&ratio),
            false => (is_size || shown > 10_000.0) && (ratio - 1.0).abs() < 0.2,
        }
    };
    printed.len() == shown.len()
        && (0..shown.len()).all(|at| printed[at] == shown[at] || is_near(at))
}

/// The output of a command; fails where that is an error.
fn output(world: &World, command: &str) -> String {
    let mut words = command.split(' ');
    assert_eq!(words.next(), Some("ebbtide"), "{command}");
    let args: Vec<&str> = words.collect();
    let ran = world.run(&args);
    let printed = String::from_utf8(ran.out).unwrap() + &ran.err;
    let status = if printed.starts_with("ebbtide: ") {
        2
    } else {
        0
    };
    assert_eq!(ran.status, status, "{command}: {printed}");
    printed
}

fn wrapped(output: &str) -> String {
    let mut lines = String::new();
    for mut line in output.lines() {
        while line.chars().count() > COLUMNS {
            let (end, _) = line.char_indices().nth(COLUMNS).unwrap();
            let Some(space) = line[..end].rfind(' ') else {
                break;
            };
            lines += &format!("{}\n", &line[..space]);
            line = &line[space + 1..];
        }
        lines += &format!("{}\n", line.trim_end());
    }
    lines
}

/// The bytes of all files in a folder.
fn stored(folder: &Path) -> Vec<u8> {
    let mut bytes = vec![];
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => bytes.extend(stored(&path)),
            false => bytes.extend(std::fs::read(path).unwrap()),
        }
    }
    bytes
}

#[test]
fn a_bad_week_goes_as_its_page_says() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let world = World::new();
    let filled = filled(&world);
    let then = given::moment(FILLED, UNIX_EPOCH).unwrap();
    let mut rewritten = String::new();
    let mut run = 0;
    for part in parts(&page) {
        match part {
            PagePart::Line(line) => {
                for command in inline(&line) {
                    output(&world, command);
                    run += 1;
                }
                rewritten += &format!("{line}\n");
            }
            PagePart::Command(command, shown) => {
                let printed = output(&world, &moved(&command, then, filled));
                run += 1;
                let printed = wrapped(&moved(&printed, filled, then));
                rewritten += &format!("$ {command}\n{printed}");
                if std::env::var_os("EBBTIDE_REWRITE").is_none() {
                    assert!(
                        is_shown(&printed, &shown),
                        "{command}\n{printed}\nthe page has\n{shown}"
                    );
                }
            }
        }
    }
    assert!(run > 30, "{run} commands are found");
    let stored = stored(&world.path("store"));
    let holds = |key: &[u8]| stored.windows(key.len()).any(|bytes| bytes == key);
    assert!(
        holds(b"c-000123") && !holds(b"a-000123"),
        "an erased key is in a backup"
    );
    if std::env::var_os("EBBTIDE_REWRITE").is_some() {
        std::fs::write(PAGE, rewritten).unwrap();
    }
}
