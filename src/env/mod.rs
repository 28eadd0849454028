//! The world outside: files, clocks, threads. The only folder that may touch std::fs, memory maps, time and threads.

mod tasks;
mod fs;
mod clock;
mod disk;
mod process;
mod sim;

pub use clock::{Clock, ClockBehind, ManualClock, Reading, SettledClock, SystemClock, monotonic};
pub use disk::{Disk, fault_in};
pub use fs::{File, Fs, Lock, LockKind, ReadAt, Ring};
pub use process::{DeviceReads, lower_priority};
pub use sim::{FaultPlan, Sim};
pub use tasks::{JoinHandle, Signal, give_way, sleep, spawn};
