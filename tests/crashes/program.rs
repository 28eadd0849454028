//! Failing calls, full disks, kills and power cuts lose nothing and bring nothing back.

mod failures;
mod faults;
mod follow_kill;
mod full;
mod kept_log;
mod kill;
mod opening;
mod power_cuts;
mod stalls;
