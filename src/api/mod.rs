//! The front desk: what a user holds, and nothing but. Each type here is a handle on the engine and checks what it is given;
//! everything else is asked of the engine.

pub mod arguments;
pub mod cursor;
pub mod read;
pub mod container;
pub mod snapshot;
pub mod batch;
pub mod database;
pub mod inspect;
