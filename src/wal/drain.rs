//! Drains the ring of a chain that is only read: copies frames that only the ring holds into the segments.
//!
//! ```text
//! before     segment 8 |frames ......|000000|      ring |.... frames of segment 8 ....|
//! after      segment 8 |frames ......frames|       ring: to be removed, once the manifest names none
//! ```
//!
//! That needs no room: a segment's blocks are reserved before its first frame, and a frame has the same bytes in both
//! places. It can be repeated, for instance after a crash: frames that are in the segments already are left alone.

use std::path::Path;

use crate::base::Result;
use crate::env::Fs;
use crate::wal::chain::{LogStart, parse_ring};
use crate::wal::folder::{Folder, Loaded, Ring};
use crate::wal::frame::FrameKind;
use crate::wal::replay::frame_at;

/// Copies the frames that only the ring of a chain holds into its segments, durably. Nobody may append to the chain.
pub fn drain_ring(fs: &dyn Fs, dir: &Path, log: &LogStart) -> Result<()> {
    let folder = Folder::new(fs, dir);
    let ring = Ring::of_chain(fs, dir, log)?;
    ring.check()?;
    let mut segment = folder.first(log)?;
    loop {
        let end = drain_into(fs, &segment, &ring)?;
        match folder.next(segment.header())? {
            Some(next) if end == Some(next.header().start) => segment = next,
            _ => return Ok(()),
        }
    }
}

/// Does it for one segment; returns the position at which its frames end, unless the log was closed there.
fn drain_into(fs: &dyn Fs, segment: &Loaded, ring: &Ring) -> Result<Option<u64>> {
    let (mut position, mut file) = (segment.header().start, None);
    let mut closed = false;
    while let Some((found, in_ring)) = frame_at(segment, ring, position).filter(|_| !closed) {
        if in_ring {
            let file = match &mut file {
                Some(file) => file,
                none => none.insert(fs.open(segment.path())?),
            };
            file.write_at(
                segment.offset_of(position),
                &ring.from(position)[..found.len],
            )?;
        }
        closed = found.header.kind == FrameKind::End;
        position += found.len as u64;
    }
    if let Some(file) = file {
        file.sync()?;
    }
    Ok((!closed).then_some(position))
}

/// Removes the rings in the folder that it can remove, and returns how many. No manifest names one, and no log is open.
pub fn remove_rings(fs: &dyn Fs, dir: &Path) -> usize {
    let names = fs.list(dir).unwrap_or_default().into_iter();
    let rings = names.filter(|name| parse_ring(name).is_some());
    rings
        .filter(|name| fs.remove(&dir.join(name)).is_ok())
        .count()
}
