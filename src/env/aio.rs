//! Several reads at once, by the system's queues of asynchronous I/O: io_submit(2), "aio". They are older than io_uring and allowed
//! where that is not. For reads past the system's cache alone: others would wait in the call.
//!
//! Why it is sound: the system writes to a request's memory until it has told the read's end. [`read_together`] borrows
//! that memory, and waits for all ends, or drops the queue, which waits, before it returns.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A read of a range of a file.
pub(super) struct Request<'a> {
    pub file: &'a File,
    pub offset: u64,
    pub memory: &'a mut [u8],
    /// How much was read.
    pub read: &'a mut usize,
}

/// Reads all of them at once, as far as the system does: what is refused or fails has read nothing.
pub(super) fn read_together(requests: &mut [Request<'_>]) {
    thread_local! { static QUEUE: Cell<Option<Queue>> = const { Cell::new(None) } }
    for requests in requests.chunks_mut(Queue::MOST) {
        let kept = QUEUE.try_with(Cell::take).ok().flatten();
        let Some(queue) = kept.or_else(Queue::new) else {
            return;
        };
        // One that fails is not kept: dropping it waits for what it was given.
        if queue.read(requests).is_ok() {
            let _ = QUEUE.try_with(|kept| kept.set(Some(queue)));
        }
    }
}

/// A thread's queue, one of MOST_QUEUES of the process: all processes of a system share what queues may hold
/// (`/proc/sys/fs/aio-max-nr`, 65 536 as a rule, of which one takes 64 or more).
struct Queue(libc::c_ulong);

const MOST_QUEUES: usize = 64;
static QUEUES: AtomicUsize = AtomicUsize::new(0);

/// A read, as the system is told: `struct iocb` of linux/aio_abi.h.
#[repr(C)]
#[derive(Default)]
struct Told {
    number: u64,
    key_and_flags: [u32; 2],
    operation: u16,
    priority: i16,
    descriptor: u32,
    address: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    more_flags: [u32; 2],
}

/// Its end: `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Ended {
    number: u64,
    told: u64,
    /// Bytes, or the error as a negative number.
    read: i64,
    more: i64,
}

impl Queue {
    /// Reads that it takes at once.
    const MOST: usize = 32;

    fn new() -> Option<Queue> {
        let mut id: libc::c_ulong = 0;
        if QUEUES.fetch_add(1, Ordering::Relaxed) < MOST_QUEUES {
            // SAFETY: the call writes the number alone, which outlives it.
            let made = unsafe { libc::syscall(libc::SYS_io_setup, Queue::MOST, &raw mut id) };
            if made == 0 {
                return Some(Queue(id));
            }
        }
        QUEUES.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// Reads up to [`Queue::MOST`], and waits for all that the system has taken. After an error the queue has to be
    /// dropped before the requests' memory is used.
    fn read(&self, requests: &mut [Request<'_>]) -> io::Result<()> {
        let mut told: Vec<_> = (requests.iter_mut().enumerate())
            .map(|(number, request)| Told {
                number: number as u64,
                descriptor: request.file.as_raw_fd() as u32,
                address: request.memory.as_mut_ptr() as u64,
                len: request.memory.len() as u64,
                offset: request.offset as i64,
                ..Told::default()
            })
            .collect();
        let mut pointers: Vec<_> = told.iter_mut().map(|told| &raw mut *told).collect();
        let mut ended = vec![Ended::default(); told.len()];
        // SAFETY: the call reads as many pointers, and reads and marks the structures that they point to. The memory that the
        // system writes to is borrowed until all ends are known, here or where the queue is dropped.
        let taken = unsafe {
            libc::syscall(
                libc::SYS_io_submit,
                self.0,
                told.len(),
                pointers.as_mut_ptr(),
            )
        };
        let taken = usize::try_from(taken).map_err(|_| io::Error::last_os_error())?;
        let mut known = 0;
        while known < taken {
            let (room, left) = (ended[known..taken].as_mut_ptr(), taken - known);
            let no_end = std::ptr::null::<libc::timespec>();
            // SAFETY: there is room for as many ends as are asked for.
            let more =
                unsafe { libc::syscall(libc::SYS_io_getevents, self.0, left, left, room, no_end) };
            match usize::try_from(more) {
                Ok(more) => known += more,
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
        for &Ended { number, read, .. } in &ended[..taken] {
            *requests[number as usize].read = usize::try_from(read).unwrap_or(0);
        }
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the call takes a number. It waits for all reads that have not ended.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
        QUEUES.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_so_many_queues_and_no_more() {
        let kept: Vec<_> = std::iter::from_fn(Queue::new).collect();
        // Other tests may have some; a system that has no such reads gives none.
        let most = kept.len();
        assert!(most <= MOST_QUEUES);
        drop(kept);
        if most > 0 {
            assert!(Queue::new().is_some(), "they were given back");
        }
    }
}
