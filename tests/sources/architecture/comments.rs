//! Comments begin with a subject or the name of a thing, and not with a clause in its place.

use std::fs;

use super::{files, report};

const CLAUSES: [&str; 5] = ["Who", "What", "Which", "Whoever", "Whatever"];

fn begins_with_a_clause(line: &str) -> bool {
    let first = || {
        let text = line.trim_start().strip_prefix("//")?;
        let text = text.strip_prefix(['/', '!']).unwrap_or(text);
        let words = text.strip_prefix(' ')?;
        words.split(|c: char| !c.is_alphabetic()).next()
    };
    first().is_some_and(|word| CLAUSES.contains(&word))
}

#[test]
fn comments_begin_with_their_subject() {
    let root = testkit::repository();
    let mut paths = vec![];
    for folder in ["src", "crates", "tests", "benches", "examples", "fuzz"] {
        files(&root.join(folder), &mut paths);
    }
    let (mut faults, mut seen) = (vec![], 0);
    for path in paths {
        let name = path.strip_prefix(root).unwrap();
        let name = name.to_string_lossy().replace('\\', "/");
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            seen += usize::from(line.trim_start().starts_with("//"));
            if begins_with_a_clause(line) {
                faults.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(seen > 1_000, "only {seen} lines of comments were found");
    report(faults);
}

#[test]
fn the_reader_of_comments_reads() {
    for wrong in [
        "// What is left.",
        "    /// Who reads it.",
        "//! Whatever: it",
        "/// Which of them.",
    ] {
        assert!(begins_with_a_clause(wrong), "{wrong}");
    }
    for right in [
        "// The rest.",
        "/// Whole runs.",
        "let what = 1; // What",
        "//",
    ] {
        assert!(!begins_with_a_clause(right), "{right}");
    }
}
