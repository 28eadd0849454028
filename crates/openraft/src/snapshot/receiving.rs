//! The receiver's side of a stream: the files that have come, each byte in its place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::task::{Context, Poll, ready};

use ebbtide::shared::files;
use tokio::task::JoinHandle;
use twox_hash::XxHash3_64;

use super::sending::checksum;
use super::{CHECKSUM_BYTES, HEAD_BYTES, Listed, MAGIC, MOST_LIST_BYTES, VERSION, damaged, moved};
use crate::folder::sync_folder;

/// A folder that goes unless it is kept.
#[derive(Debug)]
struct Incoming(Option<PathBuf>);

impl Incoming {
    fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            // The rest goes at the next start.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// See the file's head.
#[derive(Debug)]
pub struct Receiving {
    folder: Incoming,
    position: u64,
    head: Vec<u8>,
    /// Where each file begins, once the list is there.
    files: Option<Vec<(u64, Listed)>>,
    end: u64,
    open: Option<(usize, File)>,
    verifying: Option<JoinHandle<io::Result<()>>>,
    is_verified: bool,
}

impl Receiving {
    pub fn new(folder: &Path) -> io::Result<Receiving> {
        files::create_dir(folder)?;
        Ok(Receiving {
            folder: Incoming(Some(folder.to_owned())),
            position: 0,
            head: vec![],
            files: None,
            end: 0,
            open: None,
            verifying: None,
            is_verified: false,
        })
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    pub fn seek(&mut self, to: SeekFrom) -> io::Result<()> {
        let end = self.files.is_some().then_some(self.end);
        self.position = moved(self.position, end, to)?;
        Ok(())
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.write_at(self.position, bytes)?;
        self.position += taken as u64;
        Ok(taken)
    }

    /// Takes some of the bytes, which belong to this place. A stream that begins anew replaces the one before.
    pub fn write_at(&mut self, position: u64, bytes: &[u8]) -> io::Result<usize> {
        self.is_verified = false;
        if position == 0 && !self.head.is_empty() {
            self.begin_anew()?;
        }
        let Some(files) = &self.files else {
            return self.write_head(position, bytes);
        };
        if position < self.head.len() as u64 || position >= self.end {
            return Err(damaged(format!(
                "a piece at {position} of a snapshot of {} bytes",
                self.end
            )));
        }
        let at = files.partition_point(|(start, _)| *start <= position) - 1;
        let (start, listed) = &files[at];
        if !matches!(&self.open, Some((open, _)) if *open == at) {
            let path = self.folder.path().join(&listed.name);
            self.open = Some((at, files::open(OpenOptions::new().write(true), &path)?));
        }
        let room = start + listed.bytes - position;
        let taken = bytes.len().min(room as usize);
        let (_, file) = self.open.as_ref().expect("it was opened");
        file.write_all_at(&bytes[..taken], position - start)?;
        Ok(taken)
    }

    fn begin_anew(&mut self) -> io::Result<()> {
        (self.files, self.open, self.end) = (None, None, 0);
        self.head.clear();
        fs::remove_dir_all(self.folder.path())?;
        files::create_dir(self.folder.path())
    }

    fn write_head(&mut self, position: u64, bytes: &[u8]) -> io::Result<usize> {
        if position != self.head.len() as u64 {
            return Err(damaged(format!(
                "a piece at {position}, and {} bytes have come",
                self.head.len()
            )));
        }
        let wanted = match self.head.get(..HEAD_BYTES) {
            None => HEAD_BYTES,
            Some(head) => head_len(head)?,
        };
        let taken = bytes.len().min(wanted - self.head.len());
        self.head.extend_from_slice(&bytes[..taken]);
        if self.head.len() > HEAD_BYTES && self.head.len() == head_len(&self.head)? {
            self.make_files()?;
        }
        Ok(taken)
    }

    fn make_files(&mut self) -> io::Result<()> {
        let (head, checksum) = self.head.split_at(self.head.len() - CHECKSUM_BYTES);
        if XxHash3_64::oneshot(head).to_le_bytes() != checksum {
            return Err(damaged("the list of a snapshot has another checksum"));
        }
        let list: Vec<Listed> =
            postcard::from_bytes(&head[HEAD_BYTES..]).map_err(|e| damaged(e.to_string()))?;
        let mut files = vec![];
        let mut end = self.head.len() as u64;
        for listed in list {
            let path = Path::new(&listed.name);
            if listed.name.is_empty()
                || !path
                    .components()
                    .all(|part| matches!(part, Component::Normal(_)))
            {
                return Err(damaged(format!(
                    "a snapshot has a file of the name {:?}",
                    listed.name
                )));
            }
            let path = self.folder.path().join(path);
            path.parent().map_or(Ok(()), files::create_dir_all)?;
            files::create(&path)?;
            let bytes = listed.bytes;
            // Files without bytes have no place in the stream.
            files.push((end, listed));
            end = end
                .checked_add(bytes)
                .ok_or_else(|| damaged("a snapshot of too many bytes"))?;
        }
        (self.files, self.end) = (Some(files), end);
        Ok(())
    }

    /// Verifies and syncs by a thread for what waits.
    pub fn poll_verify(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.verifying.is_none() {
            self.open = None;
            let (folder, files) = (self.folder.path().to_owned(), self.files.clone());
            self.verifying = Some(tokio::task::spawn_blocking(move || {
                verify(&folder, files.as_deref())
            }));
        }
        let verifying = self.verifying.as_mut().expect("it was started");
        let verified = ready!(std::pin::Pin::new(verifying).poll(cx));
        self.verifying = None;
        verified.map_err(io::Error::other)??;
        self.is_verified = true;
        Poll::Ready(Ok(()))
    }

    /// The folder, which is the caller's from now on.
    pub fn finish(mut self) -> io::Result<PathBuf> {
        if !self.is_verified {
            self.open = None;
            verify(self.folder.path(), self.files.as_deref())?;
        }
        Ok(self.folder.0.take().expect("it is taken once"))
    }
}

/// The length of the head that begins so.
fn head_len(head: &[u8]) -> io::Result<usize> {
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    if head[..4] != *MAGIC {
        return Err(damaged("this is no snapshot of ebbtide-openraft"));
    }
    if number(4) != VERSION {
        let text = format!(
            "a snapshot of version {}, and this one knows version {VERSION}",
            number(4)
        );
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let list = number(8) as usize;
    if list > MOST_LIST_BYTES {
        return Err(damaged(format!("a list of {list} bytes")));
    }
    Ok(HEAD_BYTES + list + CHECKSUM_BYTES)
}

/// Compares every file with the list, and syncs it and its folder.
fn verify(folder: &Path, files: Option<&[(u64, Listed)]>) -> io::Result<()> {
    let files = files.ok_or_else(|| damaged("a snapshot without a list"))?;
    for (_, listed) in files {
        let path = folder.join(&listed.name);
        if checksum(&path)? != (listed.bytes, listed.checksum) {
            return Err(damaged(format!(
                "{}: the file of a snapshot is not what was sent",
                listed.name
            )));
        }
        File::open(&path)?.sync_all()?;
        for above in path
            .ancestors()
            .skip(1)
            .take_while(|above| above.starts_with(folder))
        {
            sync_folder(above)?;
        }
    }
    Ok(())
}
