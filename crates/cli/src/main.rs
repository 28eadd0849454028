//! The command line: a database from a shell, on the library's public interface alone.
//!
//! Exit status: 0 done, 1 not found, 2 wrong use or an error, 3 a demo on a machine too busy for it. An error is one
//! line on standard error; standard output carries results and nothing else. A reader that goes away early (`ebbtide
//! scan ... | head`) is no error.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod arguments;
mod failure;
mod ask;
mod form;
mod show;
mod store;
mod table;
mod clock;
mod interrupt;
mod folder;
mod histogram;
mod input;
mod moment;
mod random;
mod tally;

mod ending;

mod analytical;
mod backups;
mod changes;
mod cluster;
mod containers;
mod demo;
mod disk;
mod documents;
mod expire;
mod items;
mod pages;
mod ranges;
mod replay;
mod report;
mod serve;
mod stats;
mod top;
mod transfer;
mod upkeep;

use std::process::ExitCode;

use clap::FromArgMatches;

use arguments::{Arguments, Command};
use failure::{Failure, Outcome};

fn main() -> ExitCode {
    let given = arguments::command().try_get_matches();
    let outcome = match given.and_then(|given| Arguments::from_arg_matches(&given)) {
        Ok(arguments) => run(arguments),
        Err(refused) => failure::usage(refused),
    };
    match outcome {
        Ok(()) | Err(Failure::ReaderLeft) => ExitCode::SUCCESS,
        Err(failed) => {
            failure::say(&failed.why());
            ExitCode::from(match failed {
                Failure::NotFound(_) => 1,
                Failure::Late(_) => 3,
                _ => 2,
            })
        }
    }
}

fn run(arguments: Arguments) -> Outcome {
    let json = arguments.json;
    match arguments.command {
        Command::Put(put) => items::put(&put, json),
        Command::Get(key) => items::get(&key, json),
        Command::Why(key) => items::why(&key, json),
        Command::Delete(key) => items::delete(&key, json),
        Command::Touch(key) => items::touch(&key, json),
        Command::Scan(scan) => ranges::scan(&scan, json),
        Command::Keys(scan) => ranges::keys(&scan, json),
        Command::Count(count) => ranges::count(&count, json),
        Command::DeleteRange(range) => ranges::delete_range(&range, json),
        Command::Clear(container) => ranges::clear(&container, json),
        Command::Expire(which) => expire::expire(&which, json),
        Command::Drop(container) => ranges::drop(&container, json),
        Command::Ttl {
            place,
            default: Some(default),
            preview: true,
            ..
        } => containers::preview(&place, &default, json),
        Command::Ttl {
            place,
            default: Some(default),
            yes,
            ..
        } => containers::set_ttl(&place, &default, yes, json),
        Command::Ttl { place, .. } => containers::ttl(&place, json),
        Command::Quota {
            place,
            limit,
            when_full,
        } => match limit {
            Some(limit) => containers::set_quota(&place, &limit, when_full.as_deref(), json),
            None => containers::quota(&place, json),
        },
        Command::Import(import) => transfer::import(&import, json),
        Command::Export(export) => match &export.parquet {
            Some(out) => analytical::export(&export, out, json),
            None => transfer::export(&export, json),
        },
        Command::Changes(settings) => changes::changes(&settings),
        Command::Containers(home) => containers::containers(&home, json),
        Command::Stats {
            home,
            container,
            disk: true,
        } => disk::disk(&home, container.as_deref(), json),
        Command::Stats {
            home, container, ..
        } => stats::stats(&home, container.as_deref(), json),
        Command::Top(settings) => top::top(&settings, json),
        Command::Report(settings) => report::report(&settings, json),
        Command::Compact(home) => upkeep::compact(&home, json),
        Command::Verify(home) => upkeep::verify(&home, json),
        Command::Repair { home, yes } => upkeep::repair(&home, yes, json),
        Command::Upgrade(home) => upkeep::upgrade(&home, json),
        Command::Checkpoint { home, to } => upkeep::checkpoint(&home, &to, json),
        Command::Backup(backup) => backups::backup(&backup, json),
        Command::Backups { to } => backups::list(&to, json),
        Command::Restore(restore) => backups::restore(&restore, json),
        Command::Doc { action } => documents::run(&action, json),
        Command::Serve(flags) => serve::serve(&flags),
        Command::Cluster { action } => cluster::run(&action, json),
        Command::Demo(settings) => demo::run(&settings, json),
        Command::Replay(settings) => replay::run(&settings, json),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { command } => pages::man(command.as_deref()),
    }
}
