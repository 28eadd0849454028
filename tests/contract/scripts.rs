//! Goal: each promise of ttl.md, and each fact that the proof of dropping relies on, as a short readable history.
//!
//! Method: the files in tests/scripts are blocks: commands (crates/testkit/src/op.rs lists them), a line of dashes, and what
//! they show. A block without dashes shows nothing. The model (crates/testkit) takes every step too, so a script is
//! judged twice: by the text below it and by the definition.
//!
//! `EBBTIDE_REWRITE=1` writes what is shown into the files; what the engine and the model disagree on still fails.
//! `EBBTIDE_SCRIPT=name` runs one.

use std::fs;
use std::path::PathBuf;

use testkit::op::parse;
use testkit::world::{Setup, World};

const DASHES: &str = "----";

struct Block {
    /// Comments and empty lines before it, as they stand.
    lead: String,
    commands: Vec<String>,
    expected: Vec<String>,
}

fn read_blocks(text: &str) -> Vec<Block> {
    let mut blocks = vec![];
    let mut lines = text.lines().peekable();
    while lines.peek().is_some() {
        let mut block = Block {
            lead: String::new(),
            commands: vec![],
            expected: vec![],
        };
        while let Some(line) = lines.next_if(|line| line.is_empty() || line.starts_with('#')) {
            block.lead += &format!("{line}\n");
        }
        while let Some(line) = lines.next_if(|line| !line.is_empty() && *line != DASHES) {
            block.commands.push(line.to_owned());
        }
        if lines.next_if_eq(&DASHES).is_some() {
            while let Some(line) = lines.next_if(|line| !line.is_empty()) {
                block.expected.push(line.to_owned());
            }
        }
        blocks.push(block);
    }
    blocks
}

/// The output of the commands, or where engine and model differ.
fn play(world: &mut World, block: &Block) -> Result<Vec<String>, String> {
    let mut shown = vec![];
    for line in block.commands.iter().filter(|line| !line.starts_with('#')) {
        let outcome = parse(line)
            .and_then(|op| world.run(&op))
            .map_err(|error| format!("{line}: {error}"))?;
        shown.extend(outcome.lines().map(str::to_owned));
    }
    Ok(shown)
}

/// Runs a script; answers what is wrong with it, and its text with what was shown.
fn run(text: &str) -> (Vec<String>, String) {
    let mut world = World::new(Setup::default(), 1);
    let (mut faults, mut rewritten) = (vec![], String::new());
    for block in read_blocks(text) {
        rewritten += &block.lead;
        block
            .commands
            .iter()
            .for_each(|line| rewritten += &format!("{line}\n"));
        match play(&mut world, &block) {
            Ok(shown) => {
                if shown != block.expected {
                    let (at, expected) =
                        (block.commands.join("\n    "), block.expected.join("\n    "));
                    faults.push(format!(
                        "    {at}\n  shows\n    {}\n  and should\n    {expected}",
                        shown.join("\n    ")
                    ));
                }
                if !shown.is_empty() {
                    rewritten += &format!("{DASHES}\n{}\n", shown.join("\n"));
                }
            }
            Err(difference) => {
                return (
                    [faults, vec![format!("  {difference}")]].concat(),
                    text.to_owned(),
                );
            }
        }
    }
    if let Err(difference) = world.check() {
        faults.push(format!("  at the end: {difference}"));
    }
    (faults, rewritten)
}

fn scripts() -> Vec<PathBuf> {
    let folder = testkit::repository().join("tests/scripts");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths
}

#[test]
fn every_script_shows_what_it_says() {
    let only = std::env::var("EBBTIDE_SCRIPT").ok();
    let rewrite = testkit::env("EBBTIDE_REWRITE", 0) == 1;
    let (mut ran, mut faults) = (0, vec![]);
    for path in scripts() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let (found, rewritten) = match std::panic::catch_unwind(|| run(&text)) {
            Ok(outcome) => outcome,
            Err(panic) => (
                vec![format!("  panic: {}", testkit::panic_text(&*panic))],
                text.clone(),
            ),
        };
        if rewrite {
            fs::write(&path, rewritten).unwrap();
        }
        ran += 1;
        faults.extend(found.into_iter().map(|fault| format!("{name}:\n{fault}\n")));
    }
    assert!(ran > 0, "no script was found");
    assert!(
        faults.is_empty(),
        "{} of {ran} scripts:\n\n{}",
        faults.len(),
        faults.join("\n")
    );
}
