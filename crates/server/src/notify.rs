//! Words to the service manager that started the process: one datagram to the socket that it named.

use std::ffi::OsString;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Says this to the socket of the environment's `NOTIFY_SOCKET`, if there is one.
pub(crate) fn notify(socket: Option<OsString>, word: &str) -> io::Result<()> {
    let Some(socket) = socket else { return Ok(()) };
    let address = address(&socket)?;
    UnixDatagram::unbound()?.send_to_addr(word.as_bytes(), &address)?;
    Ok(())
}

#[cfg(target_os = "linux")]
fn address(socket: &OsString) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(socket),
    }
}

#[cfg(not(target_os = "linux"))]
fn address(socket: &OsString) -> io::Result<SocketAddr> {
    SocketAddr::from_pathname(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_manager_gets_one_datagram() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        notify(Some(path.into_os_string()), "READY=1").unwrap();
        let mut word = [0; 64];
        let length = socket.recv(&mut word).unwrap();
        assert_eq!(&word[..length], b"READY=1");
        notify(None, "READY=1").unwrap();
        assert!(notify(Some("/no/such/socket".into()), "READY=1").is_err());
    }
}
