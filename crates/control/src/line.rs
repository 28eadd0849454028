//! Reading a request: one line, of a bounded length, within a bounded time.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ebbtide::{MAX_KEY_LEN, MAX_VALUE_LEN};

use crate::request::Failed;

/// Longer requests take turns.
const SHORT: usize = 64 << 10;
/// No request is longer: a value in base64 beside its key, or the batch of an import.
const MOST: usize = 2 * MAX_VALUE_LEN;
const _: () = assert!((MAX_VALUE_LEN + MAX_KEY_LEN + (8 << 20)) / 3 * 4 + (1 << 20) < MOST);
/// Read at a time.
const PIECE: usize = 16 << 10;

/// A line, and the turn that a long one has until it is answered.
pub struct Line<'a> {
    pub bytes: Vec<u8>,
    _turn: Option<MutexGuard<'a, ()>>,
}

/// Reads a line within `patience`, and a second more for each MiB of it. `None`: the other end left without a word.
pub fn read<'a>(
    mut stream: &UnixStream,
    patience: Duration,
    long: &'a Mutex<()>,
) -> Result<Option<Line<'a>>, Failed> {
    let refused = |why: &str| Err(Failed::Refused(why.to_owned()));
    let (mut begun, mut bytes, mut turn) = (Instant::now(), vec![], None);
    let mut piece = [0; PIECE];
    loop {
        let longer = Duration::from_secs((bytes.len() >> 20) as u64);
        let left = (patience + longer).saturating_sub(begun.elapsed());
        if left.is_zero() {
            return refused("the request took too long to come");
        }
        let set = stream.set_read_timeout(Some(left));
        let read = set.and_then(|()| stream.read(&mut piece));
        let some = match read {
            Ok(0) if bytes.is_empty() => return Ok(None),
            Ok(0) => return refused("the request ended before its line did"),
            Ok(len) => &piece[..len],
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // At the end of the time, which is looked at above.
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(_) => return Ok(None),
        };
        let end = some.iter().position(|byte| *byte == b'\n');
        if end.is_some_and(|end| end + 1 < some.len()) {
            return refused("a connection takes one request");
        }
        bytes.extend_from_slice(&some[..end.unwrap_or(some.len())]);
        if bytes.len() > MOST {
            return refused("the request is too long: 128 MiB at most");
        }
        if bytes.len() > SHORT && turn.is_none() {
            let waited_since = Instant::now();
            turn = Some(long.lock().unwrap_or_else(PoisonError::into_inner));
            begun += waited_since.elapsed();
        }
        if end.is_some() {
            return Ok(Some(Line { bytes, _turn: turn }));
        }
    }
}
