//! Reads: the items they show, the blocks they leave alone, the numbers they give of stored items.

mod at_once;
mod bare;
mod dead;
mod due;
mod estimates;
mod lending;
mod reading;
mod short_memory;
mod why;
