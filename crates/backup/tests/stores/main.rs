//! Backups in stores that fail, wait, are read alone, or lie; and what has gone from each by now.

mod at_work;
mod backups;
mod ended;
mod hostile;
mod ledgers;
mod store;
