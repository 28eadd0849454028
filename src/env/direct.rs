//! Direct reads: of finished files, past the system's cache. They are for callers that cache what they need themselves.
//!
//! ```text
//! wanted           |......bytes......|                 of any place and length
//! read     |___________________________________|       whole sectors of SECTOR bytes, to memory that begins at one
//! ```
//!
//! One range is read by a call, several by one request to the system, so that the device has all of them at once. Whatever
//! fails is no error but nothing: another way of reading says what is wrong with the file. A file system that has no such
//! reads refuses them when the file is opened or read. Each call opens its files, so that tables hold no descriptors: some 2 us
//! of the 80 that a device takes. All calls together have MOST_OPEN of them at most, for the process needs others.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use rustix::fs::OFlags;

use super::aio::{Request, read_together};
use super::files;
use super::system::zeros;

/// A multiple of every device's.
const SECTOR: usize = 4096;

/// Files that calls have open together.
const MOST_OPEN: usize = 128;
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// The bytes of each range, if they could be read.
pub(super) fn read(wanted: &[(&Path, Range<u64>)]) -> Vec<Option<Bytes>> {
    let mut files = Files::default();
    let mut places: Vec<_> = (wanted.iter())
        .map(|(path, range)| Place::new(files.open(path)?, range))
        .collect();
    let mut requests: Vec<_> = (places.iter_mut().flatten())
        .map(|place| place.request(&files))
        .collect();
    match &mut requests[..] {
        [] => {}
        [request] => read_alone(request),
        several => {
            read_together(several);
            let left = several.iter_mut().filter(|request| *request.read == 0);
            left.for_each(read_alone);
        }
    }
    places.into_iter().map(|place| place?.bytes()).collect()
}

/// The files of a call, each opened once.
#[derive(Default)]
struct Files<'a>(Vec<(&'a Path, OpenFile)>);

impl<'a> Files<'a> {
    /// The number of the file at `path`, if it can be opened so.
    fn open(&mut self, path: &'a Path) -> Option<usize> {
        let there = self.0.iter().position(|(opened, _)| *opened == path);
        there.or_else(|| {
            let file = OpenFile::new(path)?;
            self.0.push((path, file));
            Some(self.0.len() - 1)
        })
    }
}

/// One of MOST_OPEN.
struct OpenFile(Option<File>);

impl OpenFile {
    fn new(path: &Path) -> Option<OpenFile> {
        let mut opened = OpenFile(None);
        if OPEN.fetch_add(1, Ordering::Relaxed) < MOST_OPEN {
            let mut options = OpenOptions::new();
            opened.0 = files::open_as(options.read(true), path, OFlags::DIRECT).ok();
        }
        opened.0.is_some().then_some(opened)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        drop(self.0.take());
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A range of a file, and memory for the sectors that it lies in.
struct Place {
    file: usize,
    memory: Vec<u8>,
    /// Where the sectors begin in the memory, and in the file.
    begin: usize,
    at: u64,
    /// Bytes of the sectors.
    len: usize,
    /// The range in the sectors.
    wanted: Range<usize>,
    /// Bytes of the sectors that were read.
    read: usize,
}

impl Place {
    /// `None` if there is no memory for it.
    fn new(file: usize, range: &Range<u64>) -> Option<Place> {
        let at = range.start - range.start % SECTOR as u64;
        let start = (range.start - at) as usize;
        let wanted = start..start + usize::try_from(range.end - range.start).ok()?;
        let len = wanted.end.next_multiple_of(SECTOR);
        let memory = zeros(len + SECTOR - 1).ok()?;
        let begin = memory.as_ptr().align_offset(SECTOR);
        (begin < SECTOR).then_some(Place {
            file,
            memory,
            begin,
            at,
            len,
            wanted,
            read: 0,
        })
    }

    fn request<'a>(&'a mut self, files: &'a Files<'_>) -> Request<'a> {
        Request {
            file: files.0[self.file].1.0.as_ref().expect("it is open"),
            offset: self.at,
            memory: &mut self.memory[self.begin..self.begin + self.len],
            read: &mut self.read,
        }
    }

    /// The range, if so much was read that it is there.
    fn bytes(self) -> Option<Bytes> {
        let Range { start, end } = self.wanted;
        let range = self.begin + start..self.begin + end;
        (self.read >= end).then(|| Bytes::from(self.memory).slice(range))
    }
}

fn read_alone(request: &mut Request<'_>) {
    loop {
        match request.file.read_at(request.memory, request.offset) {
            Ok(read) => return *request.read = read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_they_are_in_their_files() {
        // Not the folder for temporary files, which may be in memory, but that of this program.
        let program = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let paths = ["one", "other", "missing"].map(|name| folder.path().join(name));
        let content: Vec<u8> = (0..40_000_u32).map(|n| (n % 251) as u8).collect();
        let [one, other, missing] = &paths;
        std::fs::write(one, &content).unwrap();
        std::fs::write(other, &content[..10_000]).unwrap();
        let options = &mut OpenOptions::new();
        if files::open_as(options.read(true), one, OFlags::DIRECT).is_err() {
            println!("left out: this file system cannot be read past the system's cache");
            return;
        }
        let of = |file: &Path, range: &Range<u64>| {
            let len = if file == other { 10_000 } else { content.len() };
            let range = range.start as usize..range.end as usize;
            let is_there = file != missing && range.end <= len;
            is_there.then(|| Bytes::copy_from_slice(&content[range]))
        };
        let ranges = [
            0..1,
            0..4_096,
            4_095..4_097,
            8_192..12_288,
            9_000..10_000,
            39_999..40_000,
            39_999..40_001,
        ];
        let mut all = vec![];
        for path in &paths {
            for range in &ranges {
                assert_eq!(
                    read(&[(path, range.clone())]),
                    [of(path, range)],
                    "{path:?} {range:?}"
                );
                all.push((path.as_path(), range.clone()));
            }
        }
        // More than one request takes.
        for _ in 0..2 {
            all.extend(all.clone());
        }
        for several in [&all[..0], &all[..2], &all[..]] {
            let wanted: Vec<_> = several
                .iter()
                .map(|(path, range)| of(path, range))
                .collect();
            assert_eq!(read(several), wanted);
        }
    }
}
