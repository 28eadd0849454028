//! The errors of commands, and how they are reported.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use clap::error::ErrorKind;
use ebbtide_control::Failed;

/// The result of every command.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Why a command failed; the text is one line.
pub enum Failure {
    /// Exit status 1: no such item or container.
    NotFound(String),
    /// Exit status 2.
    Refused(String),
    /// Exit status 3: the demo kept its promises late, because the machine did not run its threads.
    Late(String),
    /// The reader of standard output has closed it. Not an error.
    ReaderLeft,
}

impl From<ebbtide::Error> for Failure {
    fn from(error: ebbtide::Error) -> Self {
        Failure::Refused(ebbtide_control::in_words(&error))
    }
}

impl From<Failed> for Failure {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::NotFound(what) => Failure::NotFound(what),
            other => Failure::Refused(other.to_string()),
        }
    }
}

/// For standard output; files add their names, see [`Failure::file`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderLeft,
            _ => Failure::Refused(format!("cannot write standard output: {error}")),
        }
    }
}

impl Failure {
    pub fn why(&self) -> &str {
        match self {
            Failure::NotFound(why) | Failure::Refused(why) | Failure::Late(why) => why,
            Failure::ReaderLeft => "the reader left",
        }
    }

    pub fn file(doing: &str, path: &Path, error: &io::Error) -> Failure {
        Failure::Refused(format!("cannot {doing} {}: {error}", path.display()))
    }
}

/// Prints the reason on standard error. If that fails, only the exit status tells.
pub fn say(why: &dyn Display) {
    let _ = writeln!(io::stderr(), "ebbtide: {why}");
}

/// Prints a one-line summary on standard error, because standard output has only results.
pub fn note(what: &dyn Display) {
    let _ = writeln!(io::stderr(), "{what}");
}

/// Help and version go to standard output. Of clap's other messages the first paragraph and the first tip are printed,
/// on one line.
pub fn usage(refused: clap::Error) -> Outcome {
    match refused.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(refused.print()?),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Err(Failure::Refused(format!(
            "which command? `ebbtide {}` lists them",
            help()
        ))),
        _ => Err(Failure::Refused(one_line(&refused.render().to_string()))),
    }
}

fn one_line(text: &str) -> String {
    let lines = || text.lines().map(str::trim);
    let first: Vec<_> = lines().take_while(|line| !line.is_empty()).collect();
    let said = first.join(" ");
    let said = said.strip_prefix("error: ").unwrap_or(&said);
    let tip = lines().find_map(|line| line.strip_prefix("tip: "));
    let tip = tip.map_or(String::new(), |tip| format!(" ({tip})"));
    let said = said.replace("invalid digit found in string", "it is no whole number");
    format!("{said}{tip}; see `ebbtide {}`", help())
}

/// The command that helps with the one that was called.
fn help() -> String {
    given_command().map_or("help".to_owned(), |command| format!("help {command}"))
}

/// The command that was called, if there is one of this name.
fn given_command() -> Option<String> {
    let mut words = std::env::args_os().skip(1);
    let name = words.find_map(|word| {
        word.into_string()
            .ok()
            .filter(|word| !word.starts_with('-'))
    })?;
    let known = crate::arguments::command();
    (name != "help" && known.find_subcommand(&name).is_some()).then_some(name)
}
