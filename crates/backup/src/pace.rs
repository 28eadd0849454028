//! Reading at a limited rate, and hashing on the way.

use std::io::{self, Read};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

/// Bytes a read returns at most, so that a limited rate is even.
const PART: usize = 256 << 10;

/// How fast bytes may pass, over one call.
pub struct Pace {
    bytes_per_second: Option<u64>,
    begun: Instant,
    passed: u64,
}

impl Pace {
    pub fn new(bytes_per_second: Option<u64>) -> Pace {
        Pace {
            bytes_per_second,
            begun: Instant::now(),
            passed: 0,
        }
    }

    /// Waits until so many more bytes may have passed.
    fn pass(&mut self, bytes: u64) {
        self.passed += bytes;
        if let Some(rate) = self.bytes_per_second {
            let due = Duration::from_secs_f64(self.passed as f64 / rate.max(1) as f64);
            sleep(due.saturating_sub(self.begun.elapsed()));
        }
    }
}

/// Reads on, at a pace, and hashes what it reads.
pub struct Hashed<'a> {
    from: Box<dyn Read + 'a>,
    pace: &'a mut Pace,
    hash: Sha256,
    /// Bytes read.
    pub len: u64,
}

impl<'a> Hashed<'a> {
    pub fn new(from: impl Read + 'a, pace: &'a mut Pace) -> Hashed<'a> {
        Hashed {
            from: Box::new(from),
            pace,
            hash: Sha256::new(),
            len: 0,
        }
    }

    /// The hash of all that was read, in hexadecimal.
    pub fn finish(self) -> String {
        data_encoding::HEXLOWER.encode(&self.hash.finalize())
    }
}

impl Read for Hashed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(PART);
        let read = self.from.read(&mut buffer[..most])?;
        self.hash.update(&buffer[..read]);
        self.len += read as u64;
        self.pace.pass(read as u64);
        Ok(read)
    }
}
