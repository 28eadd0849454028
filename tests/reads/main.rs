//! What reads show, of which they need not read, and what they say of what is stored.

mod bare;
mod dead;
mod due;
mod estimates;
mod lending;
mod reading;
mod short_memory;
mod why;
