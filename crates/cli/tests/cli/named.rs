//! The commands that the guide tells.

use super::*;

/// The commands in the help, a line each, in groups; the line of an example is none.
pub fn commands(help: &str) -> Vec<&str> {
    let (_, groups) = help.split_once("Items:\n").unwrap();
    let (groups, _) = groups.split_once("Options:\n").unwrap();
    let name = |line: &'_ str| -> Option<usize> {
        let line = line
            .strip_prefix("  ")
            .filter(|line| !line.starts_with("for example "))?;
        line.find("  ")
    };
    let lines = groups.lines();
    lines
        .filter_map(|line| name(line).map(|end| &line[2..2 + end]))
        .collect()
}

/// Every command is named in the guide, the README or the operations, where somebody looks for what there is.
#[test]
fn every_command_is_in_the_guide_or_the_readme() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut text = std::fs::read_to_string(root.join("README.md")).unwrap();
    for page in root.join("docs/guide").read_dir().unwrap() {
        text += &std::fs::read_to_string(page.unwrap().path()).unwrap();
    }
    let help = World::new().ok("--help");
    let mut names = commands(&help);
    names.retain(|name| *name != "help");
    assert!(names.len() > 30 && names.contains(&"put"), "{names:?}");
    let is_named = |name: &str| {
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-');
        let words = format!("ebbtide {name}");
        let mut places = text.match_indices(&words);
        places.any(|(at, found)| ends(&text[at + found.len()..]))
    };
    let missing: Vec<&&str> = names.iter().filter(|name| !is_named(name)).collect();
    assert!(missing.is_empty(), "nowhere: {missing:?}");
}
