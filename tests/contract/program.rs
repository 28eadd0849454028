//! The promises of ttl.md, beside a model that keeps it by its definition; and each history that once broke it.

mod clock;
mod formats;
mod given;
mod histories;
mod model;
mod scripts;
