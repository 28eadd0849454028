//! Backups in stores that fail, wait, are read alone, or lie; and what has gone from each by now.

mod at_work;
mod backups;
mod ended;
mod hostile;
mod ledgers;
mod store;

use ebbtide::Options;
use ebbtide_backup::{Backups, Store};

/// Options of the databases here: in a folder in memory an open takes most of its time to allocate the log.
fn small() -> Options {
    Options::new().memtable_bytes(256 << 10)
}

fn backups_in(store: impl Store + 'static) -> Backups {
    Backups::open(store).options(small())
}
