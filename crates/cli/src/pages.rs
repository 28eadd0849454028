//! Completions for shells, and manual pages.

use std::io::{Write, stdout};

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::arguments::Arguments;
use crate::failure::{Failure, Outcome};

/// The script that has a shell complete the command.
pub fn completions(shell: Shell) -> Outcome {
    // Into memory first: the generator panics if it cannot write.
    let mut script = vec![];
    clap_complete::generate(shell, &mut Arguments::command(), "ebbtide", &mut script);
    Ok(stdout().lock().write_all(&script)?)
}

/// The manual page of the whole command or of one subcommand.
pub fn man(command: Option<&str>) -> Outcome {
    let mut whole = Arguments::command().disable_help_subcommand(true);
    whole.build();
    let page = match command {
        None => whole,
        Some(name) => whole.find_subcommand(name).cloned().ok_or_else(|| {
            Failure::Refused(format!(
                "there is no command {name:?}; `ebbtide help` lists them"
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
