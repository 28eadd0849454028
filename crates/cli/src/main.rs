//! The command line: a database from a shell, on the library's public interface alone.
//!
//! Exit status: 0 done, 1 not found, 2 wrong use or an error, 3 a demo on a machine too busy for it. What went wrong is one line on standard error; standard
//! output carries results and nothing else. A reader that goes away early (`ebbtide scan ... | head`) is no error.

mod arguments;
mod failure;
mod show;
mod store;
mod clock;
mod folder;
mod histogram;
mod input;
mod random;
mod tally;

mod demo;
mod items;
mod replay;
mod transfer;
mod upkeep;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};
use failure::{Failure, Outcome};

fn main() -> ExitCode {
    let outcome = match Arguments::try_parse() {
        Ok(arguments) => run(arguments),
        Err(refused) => failure::usage(refused),
    };
    match outcome {
        Ok(()) | Err(Failure::ReaderLeft) => ExitCode::SUCCESS,
        Err(Failure::NotFound(what)) => {
            failure::say(&what);
            ExitCode::from(1)
        }
        Err(Failure::Late(why)) => {
            failure::say(&why);
            ExitCode::from(3)
        }
        Err(Failure::Refused(why)) => {
            failure::say(&why);
            ExitCode::from(2)
        }
    }
}

fn run(arguments: Arguments) -> Outcome {
    let json = arguments.json;
    match arguments.command {
        Command::Put(put) => items::put(&put),
        Command::Get { place, key } => items::get(&place, &key, json),
        Command::Delete { place, key } => items::delete(&place, &key),
        Command::Touch { place, key } => items::touch(&place, &key),
        Command::Scan(scan) => items::scan(&scan, json),
        Command::Ttl { place, default } => items::ttl(&place, default.as_deref(), json),
        Command::Import(import) => transfer::import(&import, json),
        Command::Export { place, file } => transfer::export(&place, file.as_deref(), json),
        Command::Containers { dir } => upkeep::containers(&dir, json),
        Command::Stats { dir, container } => upkeep::stats(&dir, container.as_deref(), json),
        Command::Compact { dir } => upkeep::compact(&dir, json),
        Command::Verify { dir } => upkeep::verify(&dir, json),
        Command::Repair { dir, yes } => upkeep::repair(&dir, yes, json),
        Command::Checkpoint { dir, to } => upkeep::checkpoint(&dir, &to, json),
        Command::Demo(settings) => demo::run(&settings, json),
        Command::Replay(settings) => replay::run(&settings, json),
    }
}
