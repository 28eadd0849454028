//! The process that has a database open.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

/// The number of the process that holds the lock of the database in this folder, where the system tells it (Linux does, of
/// processes that can be seen).
#[must_use]
pub fn owner(dir: &Path) -> Option<u32> {
    let lock = fs::metadata(dir.join("LOCK")).ok()?;
    let (device, inode) = (lock.dev(), lock.ino());
    let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    holder(&fs::read_to_string("/proc/locks").ok()?, &file)
}

/// `1: FLOCK  ADVISORY  WRITE 4711 fd:01:393219 0 EOF`
fn holder(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, "FLOCK", _, "WRITE", process, of, ..] if *of == file => process.parse().ok(),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_read_from_the_systems_list() {
        let locks = "\
1: POSIX  ADVISORY  WRITE 1 00:2a:7 0 EOF
2: FLOCK  ADVISORY  READ  2 fd:01:7 0 EOF
2: -> FLOCK  ADVISORY  WRITE 3 fd:01:7 0 EOF
3: FLOCK  ADVISORY  WRITE 4711 fd:01:7 0 EOF
4: FLOCK  ADVISORY  WRITE -1 fd:01:8 0 EOF
";
        assert_eq!(holder(locks, "fd:01:7"), Some(4711));
        assert_eq!(holder(locks, "fd:01:8"), None);
        assert_eq!(holder(locks, "00:2a:7"), None);
    }
}
