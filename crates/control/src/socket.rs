//! The socket in the folder: making it, finding it, and who is at its other end.
//!
//! A path to a socket has at most 107 bytes. To a longer one leads `/proc/self/fd/N/control.sock`, N being the open folder,
//! where there is such a thing; elsewhere it is an error.
//!
//! Invariant: nobody but its owner can connect, from the start. On Linux the socket has its mode before it has a name; elsewhere
//! the mode follows at once.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

/// The name of the socket in the database's folder.
pub const NAME: &str = "control.sock";

/// Its owner alone may connect.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Connections that the system keeps until they are looked at.
const BACKLOG: i32 = 64;

/// A socket that listens, and loses its name when it is dropped.
pub struct Bound {
    pub listener: UnixListener,
    path: PathBuf,
    /// Its device and number, by which it is known from a later one of the same name: the number is not given again while
    /// the listener is open.
    file: (u64, u64),
}

impl Bound {
    /// The caller owns the database: the socket of any other process is of before, and is replaced.
    pub fn new(dir: &Path) -> io::Result<Bound> {
        let path = dir.join(NAME);
        match fs::symlink_metadata(&path) {
            Ok(found) if !found.file_type().is_socket() => {
                let why = format!("{} is no socket: move it away", path.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
            }
            Ok(_) => {
                // Another process that listens has let go of the lock, and stays behind.
                if connect(dir)?.is_some_and(|found| is_own(&found)) {
                    let why = format!("{} has a listener already", path.display());
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
                }
                fs::remove_file(&path)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let socket = socket()?;
        // Elsewhere than on Linux a socket without a name has no mode.
        let _ = rustix::fs::fchmod(&socket, MODE);
        let folder = File::open(dir)?;
        rustix::net::bind(&socket, &address(&path, &folder)?)?;
        rustix::fs::chmodat(CWD, &path, MODE, AtFlags::empty())?;
        let found = fs::symlink_metadata(&path)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Bound {
            listener: socket.into(),
            file: (found.dev(), found.ino()),
            path,
        })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.file) {
            // Without a listener it is replaced by the next.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A connection to the process that listens; none: nobody does.
pub fn connect(dir: &Path) -> io::Result<Option<UnixStream>> {
    let path = dir.join(NAME);
    match fs::symlink_metadata(&path) {
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let socket = socket()?;
    let folder = File::open(dir)?;
    let connected = rustix::net::connect(&socket, &address(&path, &folder)?);
    match connected.map_err(io::Error::from) {
        Ok(()) => Ok(Some(socket.into())),
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Ok(None),
            _ => Err(error),
        },
    }
}

fn socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket(family, kind, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    Ok(socket)
}

fn address(path: &Path, folder: &File) -> io::Result<SocketAddrUnix> {
    if let Ok(address) = SocketAddrUnix::new(path) {
        return Ok(address);
    }
    let by_number = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    match by_number.exists() {
        true => Ok(SocketAddrUnix::new(by_number.join(NAME))?),
        false => {
            let why = format!("{} is too long for the path of a socket", path.display());
            Err(io::Error::new(io::ErrorKind::InvalidFilename, why))
        }
    }
}

/// Whether this process listens at the other end, as far as the system tells.
fn is_own(stream: &UnixStream) -> bool {
    let process = peer(stream).ok().and_then(|peer| peer.process);
    process.is_none_or(|process| process == std::process::id())
}

/// The other end of a connection.
pub struct Peer {
    /// Its process, where the system tells it.
    pub process: Option<u32>,
    /// It is this user, or root.
    pub may_ask: bool,
}

/// The peer. Elsewhere than on Linux the mode of the socket alone says who may connect.
#[cfg(target_os = "linux")]
pub fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let found = rustix::net::sockopt::socket_peercred(stream)?;
    let process = found.pid.as_raw_nonzero().get();
    Ok(Peer {
        process: u32::try_from(process).ok(),
        may_ask: may_ask(found.uid, rustix::process::geteuid()),
    })
}

#[cfg(target_os = "linux")]
fn may_ask(user: rustix::process::Uid, own: rustix::process::Uid) -> bool {
    user.is_root() || user == own
}

/// The peer. The mode of the socket alone says who may connect.
#[cfg(not(target_os = "linux"))]
pub fn peer(_: &UnixStream) -> io::Result<Peer> {
    Ok(Peer {
        process: None,
        may_ask: true,
    })
}

/// Waits until one of them can be read or has been closed; none, or at the end of the time.
pub fn wait(first: &impl AsFd, second: &impl AsFd) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut waited = [
        PollFd::new(first, PollFlags::IN),
        PollFd::new(second, PollFlags::IN),
    ];
    match poll(&mut waited, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether something came, or the other end is closed; does not wait.
pub fn has_stirred(stream: &UnixStream) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut looked_at = [PollFd::new(stream, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut looked_at, Some(&at_once)).is_ok_and(|found| found > 0)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::Uid;

    use super::*;

    #[test]
    fn the_own_user_and_root_may_ask() {
        let users = [0, 1_000, 1_001].map(Uid::from_raw);
        let may = users.map(|user| may_ask(user, Uid::from_raw(1_000)));
        assert_eq!(may, [true, true, false]);
        assert_eq!(
            users.map(|user| may_ask(user, Uid::ROOT)),
            [true, false, false]
        );
    }
}
