//! The operating system: files, clocks, threads. Only this folder may use std::fs, memory maps, time and threads.

mod tasks;
mod wait_word;
mod fs;
pub mod words;
mod system;
mod clock;
pub mod files;
#[cfg(all(target_os = "linux", not(miri)))]
mod aio;
#[cfg(all(target_os = "linux", not(miri)))]
mod direct;
mod disk;
mod memory;
mod process;
#[cfg(any(test, feature = "unstable-internals"))]
mod sim;

pub use clock::{
    Clock, ClockBehind, ClockReading, ClockWatch, DatabaseClock, ManualClock, SettledClock,
    SystemClock, monotonic,
};
pub use disk::Disk;
pub use fs::{
    Dir, File, Fs, Lock, LockKind, RING_WORD, ReadAt, Ring, Room, create_folder, make_dir,
    sync_name,
};
pub use memory::MemoryDisk;
pub use process::{DeviceReads, Priority, priority, set_priority};
#[cfg(any(test, feature = "unstable-internals"))]
pub use sim::{Call, FailedSync, Fault, FaultPlan, Sim, Survivors};
#[cfg(any(test, feature = "unstable-internals"))]
pub use system::pretend_memory_is_short;
pub use system::{
    Chunk, fault_in, is_resident, memory_is_short, memory_was_known_short, memory_was_short,
    will_need, zeros,
};
pub use tasks::{
    JoinHandle, Signal, ThreadId, beside, give_way, is_another, is_own_thread, sleep, spawn,
    this_thread,
};
pub use wait_word::WaitWord;
