//! Files that documents name exist, and define the names that stand beside them: "file.rs (`name`)", "`name`, src/file.rs".

use std::fs;

use super::{documents, files, report};

const KINDS: [&str; 8] = [
    "fn", "struct", "enum", "trait", "type", "const", "static", "mod",
];

/// A file that a text names, and a name that the text says is in it.
#[derive(Debug, PartialEq, Eq)]
struct Named<'a> {
    file: &'a str,
    name: Option<&'a str>,
}

fn is_of_path(c: char) -> bool {
    c.is_alphanumeric() || "/_-".contains(c)
}

/// The last part of a name in backticks, if the text begins with one.
fn quoted(text: &str) -> Option<&str> {
    let (name, _) = text.strip_prefix('`')?.split_once('`')?;
    let last = name.rsplit("::").next().unwrap_or(name);
    let is_name = |name: &&str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
    Some(last).filter(is_name)
}

fn named(text: &str) -> Vec<Named<'_>> {
    let ends = text.match_indices(".rs").map(|(at, _)| at);
    ends.filter_map(|at| {
        let (before, behind) = (&text[..at], &text[at + 3..]);
        if behind.starts_with(is_of_path) {
            return None;
        }
        let stem = before.trim_end_matches(is_of_path);
        // Another project's, or a place on the network.
        if stem.len() == at
            || stem.ends_with([':', '.', '*'])
            || before[stem.len()..].starts_with("//")
        {
            return None;
        }
        let file = text[stem.len()..at + 3].trim_start_matches("src/");
        let first = stem.strip_suffix("`, ").and_then(|text| {
            let begin = text.rfind('`')?;
            quoted(&stem[begin..])
        });
        let name = behind.strip_prefix(" (").and_then(quoted).or(first);
        Some(Named { file, name })
    })
    .collect()
}

fn defines(source: &str, name: &str) -> bool {
    let defined = |kind: &&str| {
        let start = format!("{kind} {name}");
        source.match_indices(&start).any(|(at, _)| {
            !source[at + start.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
        })
    };
    KINDS.iter().any(defined)
}

#[test]
fn what_documents_name_exists() {
    let root = testkit::repository();
    let mut paths = vec![];
    for folder in ["src", "crates", "tests", "benches", "examples", "fuzz"] {
        files(&root.join(folder), &mut paths);
    }
    let (mut faults, mut names) = (vec![], 0);
    for document in documents(root) {
        let text = fs::read_to_string(&document).unwrap();
        for Named { file, name } in named(&text) {
            let mut these = paths.iter().filter(|path| path.ends_with(file)).peekable();
            if these.peek().is_none() {
                faults.push(format!("{}: there is no {file}", document.display()));
            } else if let Some(name) = name {
                names += 1;
                let read = |path| fs::read_to_string(path).unwrap();
                if !these.any(|path| defines(&read(path), name)) {
                    faults.push(format!("{}: {file} has no {name}", document.display()));
                }
            }
        }
    }
    assert!(names > 20, "only {names} names were found");
    report(faults);
}

#[test]
fn the_reader_of_names_reads() {
    let found = |file, name| vec![Named { file, name }];
    assert_eq!(named("see src/a/b.rs (`c`)"), found("a/b.rs", Some("c")));
    assert_eq!(named("| `A::b`, src/c.rs |"), found("c.rs", Some("b")));
    assert_eq!(named("a/b.rs, (`c`)"), found("a/b.rs", None));
    assert_eq!(named("https://docs.rs/x, a.rst"), vec![]);
    assert!(defines("pub fn a_b(", "a_b") && !defines("fn a_bc(", "a_b"));
}
