//! The question before what cannot be undone.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use crate::failure::{Failure, Outcome};

/// Goes on after --yes, or a yes that is typed on a terminal.
pub fn unless(yes: bool, what: &str) -> Outcome {
    let refused = |why: &str| Err(Failure::Refused(format!("nothing was changed: {why}")));
    if yes {
        return Ok(());
    }
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return refused(&format!("--yes would {what}"));
    }
    let mut answer = String::new();
    let asked = write!(stderr(), "{what}? [y/N] ");
    let answered = asked.and_then(|()| stdin().lock().read_line(&mut answer));
    match answered {
        Ok(_) if ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) => Ok(()),
        _ => refused("the answer was not y"),
    }
}
