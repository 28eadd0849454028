//! The help: commands in groups, and an example of each.

use std::fmt::Write;

use clap::{Command, CommandFactory};

use super::Arguments;

/// A group of commands, with one of their examples: its heading, and the commands with their examples.
type Group = (&'static str, &'static [(&'static str, &'static str)]);

/// The first example of a group stands for it in the help of the whole.
const GROUPS: [Group; 7] = [
    (
        "Items",
        &[
            ("put", "ebbtide put db sessions s-1 ada --ttl 30m"),
            ("get", "ebbtide get db sessions s-1 --json"),
            ("delete", "ebbtide delete db sessions s-1"),
            ("touch", "ebbtide touch db sessions s-1"),
            ("scan", "ebbtide scan db sessions --prefix s- --limit 10"),
            ("keys", "ebbtide keys db sessions --from s-1 --to s-5"),
            ("count", "ebbtide count db sessions --prefix s-"),
            (
                "delete-range",
                "ebbtide delete-range db sessions --prefix s-",
            ),
            ("clear", "ebbtide clear db sessions --yes"),
            ("drop", "ebbtide drop db sessions --yes"),
            ("containers", "ebbtide containers db"),
            ("import", "ebbtide import db users users.jsonl --key id"),
            ("export", "ebbtide export db users users.jsonl"),
        ],
    ),
    (
        "Documents",
        &[
            ("doc", "ebbtide doc get db shop/carts c-1 --key ada"),
            ("serve", "ebbtide serve db --http 127.0.0.1:8081"),
            ("cluster", "ebbtide cluster status data/1"),
        ],
    ),
    (
        "Retention",
        &[
            ("ttl", "ebbtide ttl db sessions 7d"),
            (
                "expire",
                "ebbtide expire db audit --written-before 2026-03-01 --dry-run",
            ),
            (
                "quota",
                "ebbtide quota db sessions 10MB --when-full expire-soonest",
            ),
        ],
    ),
    (
        "Copies",
        &[
            ("backup", "ebbtide backup db store"),
            ("backups", "ebbtide backups store"),
            ("restore", "ebbtide restore store restored --at 3"),
            ("checkpoint", "ebbtide checkpoint db copy"),
            ("changes", "ebbtide changes db sessions --since 42"),
        ],
    ),
    (
        "Inside",
        &[
            ("stats", "ebbtide stats db --disk"),
            ("top", "ebbtide top db --every 500ms"),
            ("report", "ebbtide report db -o report.html"),
            ("why", "ebbtide why db sessions s-1"),
        ],
    ),
    (
        "Upkeep",
        &[
            ("compact", "ebbtide compact db"),
            ("verify", "ebbtide verify db"),
            ("repair", "ebbtide repair db"),
            ("upgrade", "ebbtide upgrade db"),
        ],
    ),
    (
        "Trying it, and this command",
        &[
            ("demo", "ebbtide demo --seconds 30"),
            ("replay", "ebbtide replay trace.csv.gz --speed 60"),
            ("completions", "ebbtide completions bash"),
            ("man", "ebbtide man put"),
            ("help", "ebbtide help put"),
        ],
    ),
];

/// As the other headings are on a terminal; elsewhere they are left out.
const BOLD: &str = "\x1b[1;4m";
const PLAIN: &str = "\x1b[0m";

/// The command with its groups and examples.
pub fn command() -> Command {
    let command = Arguments::command();
    let groups = groups(&command);
    let command = command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ));
    let examples = GROUPS.iter().flat_map(|(_, commands)| commands.iter());
    examples
        .filter(|(name, _)| *name != "help")
        .fold(command, |command, (name, example)| {
            let example = format!("Example:\n  {example}");
            command.mut_subcommand(name, |one| one.after_help(example))
        })
}

fn groups(command: &Command) -> String {
    let about = |name: &str| match command.find_subcommand(name) {
        Some(found) => found
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default(),
        None => "Print this, or the help of a command".to_owned(),
    };
    let mut text = String::new();
    for (heading, commands) in GROUPS {
        let _ = writeln!(text, "{BOLD}{heading}:{PLAIN}");
        for (name, _) in commands {
            let _ = writeln!(text, "  {name:<12}  {}", about(name));
        }
        let (_, example) = commands[0];
        let _ = writeln!(text, "  for example   {example}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_is_in_one_group_with_an_example_that_it_takes() {
        let command = Arguments::command();
        let mut grouped = BTreeSet::new();
        for (name, example) in GROUPS.iter().flat_map(|(_, commands)| commands.iter()) {
            assert!(grouped.insert(*name), "{name} is in two groups");
            assert!(example.starts_with(&format!("ebbtide {name}")), "{example}");
            let taken = super::command().try_get_matches_from(example.split(' '));
            let taken = taken.map(|_| ()).or_else(|help| match help.kind() {
                clap::error::ErrorKind::DisplayHelp => Ok(()),
                kind => Err(kind),
            });
            assert_eq!(taken, Ok(()), "{example}");
        }
        for known in command.get_subcommands() {
            assert!(grouped.remove(known.get_name()), "{}", known.get_name());
        }
        assert_eq!(grouped.into_iter().collect::<Vec<_>>(), ["help"]);
    }
}
