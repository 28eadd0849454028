//! The commands that the guide tells.

use super::*;

/// Every command is named in the guide, the README or the operations, where somebody looks for what there is.
#[test]
fn every_command_is_in_the_guide_or_the_readme() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut text = std::fs::read_to_string(root.join("README.md")).unwrap();
    for page in root.join("docs/guide").read_dir().unwrap() {
        text += &std::fs::read_to_string(page.unwrap().path()).unwrap();
    }
    let help = World::new().ok(&["--help"]);
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let commands = commands.lines().take_while(|line| !line.is_empty());
    let names = commands.filter_map(|line| {
        let name = line.strip_prefix("  ")?.split(' ').next()?;
        (!name.is_empty()).then_some(name)
    });
    let names: Vec<&str> = names.filter(|name| *name != "help").collect();
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
