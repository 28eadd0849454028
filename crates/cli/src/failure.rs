//! Why a command was not done, and how that is said.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use clap::error::ErrorKind;

/// What every command returns.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Why a command ended early; the text is one line for a person.
pub enum Failure {
    /// Exit status 1: no such item or container.
    NotFound(String),
    /// Exit status 2.
    Refused(String),
    /// Exit status 3: the demo kept its promises as far as the machine let it run.
    Late(String),
    /// Nobody reads standard output any more. Not an error.
    ReaderLeft,
}

impl From<ebbtide::Error> for Failure {
    fn from(error: ebbtide::Error) -> Self {
        Failure::Refused(error.to_string())
    }
}

/// For standard output; files say their names, see [`Failure::file`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderLeft,
            _ => Failure::Refused(format!("cannot write standard output: {error}")),
        }
    }
}

impl Failure {
    pub fn file(doing: &str, path: &Path, error: &io::Error) -> Failure {
        Failure::Refused(format!("cannot {doing} {}: {error}", path.display()))
    }
}

/// Says why on standard error. Where that cannot be written either, the exit status must do.
pub fn say(why: &dyn Display) {
    let _ = writeln!(io::stderr(), "ebbtide: {why}");
}

/// What was done, in one line: on standard error, for standard output carries results alone.
pub fn note(what: &dyn Display) {
    let _ = writeln!(io::stderr(), "{what}");
}

/// Help and version go to standard output. Of anything else clap has to say, the first paragraph and the first tip are kept,
/// on one line.
pub fn usage(refused: clap::Error) -> Outcome {
    match refused.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(refused.print()?),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Err(Failure::Refused(
            "which command? `ebbtide help` lists them".to_owned(),
        )),
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
    let usage = lines().find_map(|line| line.strip_prefix("Usage: ebbtide "));
    let word = usage.and_then(|usage| usage.split(' ').next());
    // Where it is no command, options follow at once.
    let command = word.filter(|word| word.starts_with(char::is_alphabetic));
    let help = command.map_or("help".to_owned(), |command| format!("help {command}"));
    format!("{said}{tip}; see `ebbtide {help}`")
}
