//! The sender's side of a stream: a copy of the state, and a place in it.

use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{self, Read, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ebbtide::Database;
use tokio::io::ReadBuf;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep};
use twox_hash::XxHash3_64;

use super::{Listed, MAGIC, VERSION, moved};

/// The most that is read from a file at once.
const PIECE: usize = 256 << 10;
/// Bytes go so much ahead of their rate: timers are no finer than a millisecond.
const AHEAD: Duration = Duration::from_millis(10);
/// The end of a copy, whoever still reads it (I7).
const LONGEST: Duration = Duration::from_secs(600);

/// A checkpoint in a folder of its own, which goes with it.
#[derive(Debug)]
pub struct Copy {
    folder: PathBuf,
    layout: OnceLock<io::Result<Layout>>,
    /// Bytes a second, of all streams together.
    rate: u64,
    /// When the next piece may be read.
    free_at: Mutex<Instant>,
}

impl Copy {
    pub fn of(db: &Database, folder: PathBuf, rate: u64) -> io::Result<Arc<Copy>> {
        db.checkpoint(&folder)?;
        let copy = Arc::new(Copy {
            folder: folder.clone(),
            layout: OnceLock::new(),
            rate: rate.max(1),
            free_at: Mutex::new(Instant::now()),
        });
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let copy = Arc::downgrade(&copy);
            runtime.spawn(async move {
                tokio::time::sleep(LONGEST).await;
                copy.upgrade().map(|_| fs::remove_dir_all(folder))
            });
        }
        Ok(copy)
    }

    /// The pause after so many bytes.
    fn pause(&self, bytes: usize) -> Sleep {
        let lasts = Duration::from_secs_f64(bytes as f64 / self.rate as f64);
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = (*free_at).max(Instant::now()) + lasts;
        tokio::time::sleep_until(*free_at - AHEAD)
    }

    /// Reads all of it once, for the checksums.
    fn layout(&self) -> io::Result<&Layout> {
        let layout = self.layout.get_or_init(|| Layout::of(&self.folder));
        layout
            .as_ref()
            .map_err(|e| io::Error::new(e.kind(), e.to_string()))
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // The rest goes at the next start.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[derive(Debug)]
struct Layout {
    head: Vec<u8>,
    /// Where each begins in the stream.
    files: Vec<(u64, PathBuf)>,
    bytes: u64,
}

impl Layout {
    fn of(folder: &Path) -> io::Result<Layout> {
        let mut paths = vec![];
        walk(folder, &mut paths)?;
        paths.sort();
        let listed = |path: &PathBuf| {
            let name = path.strip_prefix(folder).map_err(io::Error::other)?;
            let (bytes, checksum) = checksum(path)?;
            let name = name.to_string_lossy().into_owned();
            Ok(Listed {
                name,
                bytes,
                checksum,
            })
        };
        let list = paths.iter().map(listed).collect::<io::Result<Vec<_>>>()?;
        let encoded = postcard::to_allocvec(&list).map_err(io::Error::other)?;
        let mut head = [
            &MAGIC[..],
            &VERSION.to_le_bytes(),
            &(encoded.len() as u32).to_le_bytes(),
            &encoded,
        ]
        .concat();
        head.extend(XxHash3_64::oneshot(&head).to_le_bytes());
        let mut bytes = head.len() as u64;
        let mut files = vec![];
        for (path, listed) in paths.into_iter().zip(&list) {
            files.push((bytes, path));
            bytes += listed.bytes;
        }
        Ok(Layout { head, files, bytes })
    }

    /// The bytes from a place on, up to `most` of them and to the end of the file; none: the end.
    fn read_at(&self, position: u64, most: usize) -> io::Result<Vec<u8>> {
        if position < self.head.len() as u64 {
            let rest = &self.head[position as usize..];
            return Ok(rest[..rest.len().min(most)].to_vec());
        }
        if position >= self.bytes {
            return Ok(vec![]);
        }
        let next = self.files.partition_point(|(start, _)| *start <= position);
        let (start, path) = &self.files[next - 1];
        let end = self.files.get(next).map_or(self.bytes, |(start, _)| *start);
        let mut piece = vec![0; most.min(PIECE).min((end - position) as usize)];
        File::open(path)?.read_exact_at(&mut piece, position - start)?;
        Ok(piece)
    }
}

fn walk(folder: &Path, out: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => walk(&entry.path(), out)?,
            false => out.push(entry.path()),
        }
    }
    Ok(())
}

/// The length and the checksum of a file.
pub fn checksum(path: &Path) -> io::Result<(u64, u64)> {
    let (mut file, mut hash) = (File::open(path)?, XxHash3_64::new());
    let (mut piece, mut bytes) = (vec![0; PIECE], 0);
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok((bytes, hash.finish()));
        }
        hash.write(&piece[..read]);
        bytes += read as u64;
    }
}

/// See the file's head. Files are read by threads for what waits.
#[derive(Debug)]
pub struct Sending {
    copy: Arc<Copy>,
    /// Its end, once the list is made.
    end: Option<u64>,
    position: u64,
    seek: Option<SeekFrom>,
    listing: Option<JoinHandle<io::Result<u64>>>,
    reading: Option<JoinHandle<io::Result<Vec<u8>>>>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Sending {
    pub fn new(copy: Arc<Copy>) -> Sending {
        Sending {
            copy,
            end: None,
            position: 0,
            seek: None,
            listing: None,
            reading: None,
            pause: None,
        }
    }

    /// Gives all of it, piece by piece, and waits meanwhile.
    pub fn each_piece(&self, mut give: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let layout = self.copy.layout()?;
        let mut position = 0;
        loop {
            let piece = layout.read_at(position, PIECE)?;
            if piece.is_empty() {
                return Ok(());
            }
            give(position, &piece)?;
            position += piece.len() as u64;
        }
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        if let Some(end) = self.end {
            return Poll::Ready(Ok(end));
        }
        let copy = &self.copy;
        let list = || {
            let copy = copy.clone();
            tokio::task::spawn_blocking(move || copy.layout().map(|layout| layout.bytes))
        };
        let listing = self.listing.get_or_insert_with(list);
        let end = ready!(Pin::new(listing).poll(cx));
        self.listing = None;
        let end = end.map_err(io::Error::other)??;
        self.end = Some(end);
        Poll::Ready(Ok(end))
    }

    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_end(cx))?;
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        if self.reading.is_none() {
            let (copy, position, most) = (self.copy.clone(), self.position, buf.remaining());
            let read = move || copy.layout()?.read_at(position, most);
            self.reading = Some(tokio::task::spawn_blocking(read));
        }
        let reading = self.reading.as_mut().expect("it was started");
        let piece = ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        let piece = piece.map_err(io::Error::other)??;
        let taken = &piece[..piece.len().min(buf.remaining())];
        buf.put_slice(taken);
        self.position += taken.len() as u64;
        self.pause = Some(Box::pin(self.copy.pause(taken.len())));
        Poll::Ready(Ok(()))
    }

    pub fn start_seek(&mut self, to: SeekFrom) -> io::Result<()> {
        self.reading = None;
        self.seek = Some(to);
        Ok(())
    }

    pub fn poll_seek(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let end = ready!(self.poll_end(cx))?;
        if let Some(to) = self.seek.take() {
            self.position = moved(self.position, Some(end), to)?;
        }
        Poll::Ready(Ok(self.position))
    }
}
