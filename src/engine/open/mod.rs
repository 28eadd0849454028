//! A database's beginning and end: opening and recovery, following, closing, checkpoints, repair.

pub mod old_log;
pub mod new_log;
pub mod replay;
pub mod recover;
pub mod catch_up;
pub mod close;
pub mod checkpoint;
pub mod repair;
pub mod verify;
pub mod at_rest;
