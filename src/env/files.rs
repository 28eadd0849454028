//! The one place that makes files and folders: the engine's disk, backups and the command all come here, and clippy.toml
//! keeps them from making any elsewhere.
//!
//! New files and folders have the modes 0600 and 0700, however lax the umask is: only their owner can reach them.
//! Nothing is opened through a symbolic link, and only regular files are: opening a pipe succeeds or fails at once, and
//! is an error then. The exceptions are files that a user names for a result: they have the rights that his umask
//! gives.

#![allow(clippy::disallowed_methods)]

use std::fs::{self, DirBuilder, File, FileType, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// The rights of a file.
const FILE: u32 = 0o600;
/// The rights of a folder.
const FOLDER: u32 = 0o700;
/// All rights of the group and of others.
const OTHERS: u32 = 0o077;
/// Their rights to write.
const WRITE: u32 = 0o022;

/// Opens a regular file as the options say; see the file's head.
pub fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    open_as(options, path, OFlags::empty())
}

/// The same with more flags.
pub(super) fn open_as(options: &mut OpenOptions, path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = options
        .mode(FILE)
        .custom_flags(flags.bits() as i32)
        .open(path);
    match opened {
        Ok(file) => {
            regular(&file.metadata()?)?;
            Ok(file)
        }
        // The type of what is there says more than "too many levels of symbolic links".
        Err(error) => {
            if let Ok(metadata) = fs::symlink_metadata(path) {
                regular(&metadata)?;
            }
            Err(error)
        }
    }
}

/// Creates a file, for writing; fails if anything of this name exists.
pub fn create(path: &Path) -> io::Result<File> {
    open(OpenOptions::new().write(true).create_new(true), path)
}

/// Opens a file to lock it, and creates it if it is missing. What is in it stays.
pub fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    open(options.append(true).create(true), path)
}

/// Creates a folder; fails if anything of this name exists.
pub fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER).create(path)
}

/// Creates a folder and those above it; does nothing if it exists.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(FOLDER).create(path);
    // The type of what stands in the way says more than "file exists".
    if let (Err(error), Ok(found)) = (&made, fs::symlink_metadata(path))
        && error.kind() == io::ErrorKind::AlreadyExists
    {
        expect(false, found.file_type(), "a folder")?;
    }
    made
}

/// Creates a file that is to replace another, with the rights of that; without one, those of the umask: for a result that
/// a user has named. One of this name that a killed process left goes.
pub fn create_in_place_of(there: Option<&Metadata>, path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    // Nobody reads what nobody else may read before it has its rights.
    let rights = if there.is_some() { FILE } else { 0o666 };
    let file = options
        .write(true)
        .create_new(true)
        .mode(rights)
        .open(path)?;
    if let Some(there) = there {
        file.set_permissions(there.permissions())?;
    }
    Ok(file)
}

/// Opens what a user has named for a result and is no regular file: a pipe, a device.
pub fn open_named(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// Whether a path still names an open file.
pub fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes from group and others all rights to the files in a folder whose names are `own`, and the right to write in the
/// folder itself, which its user may have made with wider rights. Files of another user stay as they are.
pub fn withdraw_rights(folder: &Path, own: &dyn Fn(&str) -> bool) -> io::Result<()> {
    if rights(&fs::metadata(folder)?) & OTHERS == 0 {
        return Ok(());
    }
    let folder = fs::canonicalize(folder)?;
    withdraw(&folder, WRITE)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(own) {
            withdraw_below(&entry.path())?;
        }
    }
    Ok(())
}

/// The same for something in the folder, and all below it. Nobody else reaches what is in a folder without rights for others.
fn withdraw_below(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    let is_open = rights(&found) & OTHERS != 0 && (found.is_file() || found.is_dir());
    if is_open {
        withdraw(path, OTHERS)?;
    }
    if is_open && found.is_dir() {
        for entry in fs::read_dir(path)? {
            withdraw_below(&entry?.path())?;
        }
    }
    Ok(())
}

/// Through a handle, so that what another puts there meanwhile keeps its rights.
fn withdraw(path: &Path, taken: u32) -> io::Result<()> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    let changed = options
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .and_then(|opened| {
            let has = rights(&opened.metadata()?);
            match has & taken {
                0 => Ok(()),
                _ => opened.set_permissions(Permissions::from_mode(has & !taken)),
            }
        });
    match changed {
        Err(error) if is_of_another(&error) => Ok(()),
        done => done,
    }
}

/// It belongs to another user, or is gone, or a link was put in its place.
fn is_of_another(error: &io::Error) -> bool {
    let known = [Errno::ACCESS, Errno::PERM, Errno::NOENT, Errno::LOOP];
    Errno::from_io_error(error).is_some_and(|errno| known.contains(&errno))
}

fn rights(metadata: &Metadata) -> u32 {
    metadata.permissions().mode() & 0o7777
}

/// Fails if it is no regular file.
pub fn regular(metadata: &Metadata) -> io::Result<()> {
    expect(metadata.is_file(), metadata.file_type(), "a regular file")
}

/// The error if something else is in the place of `wanted`.
pub fn expect(is_it: bool, found: FileType, wanted: &str) -> io::Result<()> {
    if is_it {
        return Ok(());
    }
    let found = if found.is_symlink() {
        "a symbolic link"
    } else if found.is_dir() {
        "a folder"
    } else if found.is_file() {
        "a file"
    } else {
        "a pipe, socket or device"
    };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{found} stands where {wanted} should be; move it away"),
    ))
}
