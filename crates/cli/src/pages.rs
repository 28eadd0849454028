//! Completions for shells, and manual pages.

use std::io::{Write, stdout};

use clap_complete::Shell;
use clap_mangen::Man;

use ebbtide_control::likely;

use crate::arguments::command;
use crate::failure::{Failure, Outcome};

/// The script that has a shell complete the command.
pub fn completions(shell: Shell) -> Outcome {
    // Into memory first: the generator panics if it cannot write.
    let mut script = vec![];
    clap_complete::generate(shell, &mut command(), "ebbtide", &mut script);
    Ok(stdout().lock().write_all(&script)?)
}

/// The manual page of the whole command or of one subcommand.
pub fn man(of: Option<&str>) -> Outcome {
    let mut whole = command().disable_help_subcommand(true);
    whole.build();
    let page = match of {
        None => whole,
        Some(name) => whole.find_subcommand(name).cloned().ok_or_else(|| {
            let names = whole.get_subcommands().map(|known| known.get_name());
            let likely = likely(name, names);
            Failure::Refused(format!(
                "there is no command {name:?}{likely}; `ebbtide help` lists them"
            ))
        })?,
    };
    let mut text = vec![];
    let page = Man::new(page)
        .source(concat!("ebbtide ", env!("CARGO_PKG_VERSION")))
        .manual("Ebbtide");
    page.render(&mut text)?;
    Ok(stdout().lock().write_all(&text)?)
}
