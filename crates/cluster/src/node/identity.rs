//! The file `node` in a node's folder: which cluster it is of, and which node of it.
//!
//! ```text
//! ebbtide-cluster 1
//! cluster 0123456789abcdef0123456789abcdef
//! node 1234567890
//! first true                                  the cluster began with this node
//! opened true                                 it has a log and a state: without them it would break what it has promised
//! removed true                                it has learned that it was taken out; missing: it has not
//! ```
//!
//! Invariant (I9): an id is drawn with the folder and written before the node says it to anybody. A folder that was emptied is a new
//! node, for it has promised nothing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use ebbtide::shared::files;

use super::draw;

const NAME: &str = "node";
/// Where it is written, before it gets its name.
const NEW: &str = "node.new";
const HEAD: &str = "ebbtide-cluster 1";

/// See the file's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub cluster: u128,
    pub node: u64,
    pub is_first: bool,
    pub was_opened: bool,
    pub was_removed: bool,
}

impl Identity {
    /// A new node of this cluster.
    pub fn of(cluster: u128) -> Identity {
        Identity {
            cluster,
            node: draw(),
            is_first: false,
            was_opened: false,
            was_removed: false,
        }
    }

    /// The first node of a new cluster.
    pub fn first() -> Identity {
        Identity {
            is_first: true,
            ..Identity::of(u128::from(draw()) << 64 | u128::from(draw()))
        }
    }

    /// The one of a folder, if there is one.
    pub fn read(folder: &Path) -> io::Result<Option<Identity>> {
        let path = folder.join(NAME);
        let text = match fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return expect_empty(folder).map(|()| None);
            }
            Err(error) => return Err(error),
        };
        let Some(identity) = parse(&text) else {
            return Err(damaged(&path, "does not say which node this is"));
        };
        if identity.was_opened {
            expect_whole(folder)?;
        }
        Ok(Some(identity))
    }

    /// Notes durably that the node has a log and a state.
    pub fn opened(self, folder: &Path) -> io::Result<()> {
        let was_opened = true;
        Identity { was_opened, ..self }.write(folder)
    }

    /// Notes durably that it was taken out of its cluster, for good.
    pub fn removed(self, folder: &Path) -> io::Result<()> {
        let was_removed = true;
        Identity {
            was_removed,
            was_opened: true,
            ..self
        }
        .write(folder)
    }

    /// Writes it durably.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        files::create_dir_all(folder)?;
        let new = folder.join(NEW);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = files::create(&new)?;
        let (cluster, node, first) = (self.cluster, self.node, self.is_first);
        write!(
            file,
            "{HEAD}\ncluster {cluster:032x}\nnode {node}\nfirst {first}\nopened {}\n",
            self.was_opened
        )?;
        if self.was_removed {
            writeln!(file, "removed true")?;
        }
        file.sync_all()?;
        fs::rename(&new, folder.join(NAME))?;
        File::open(folder)?.sync_all()
    }
}

fn parse(text: &str) -> Option<Identity> {
    let mut lines = text.lines();
    if lines.next()? != HEAD {
        return None;
    }
    let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    Some(Identity {
        cluster: u128::from_str_radix(field("cluster")?, 16).ok()?,
        node: field("node")?.parse().ok()?,
        is_first: field("first")?.parse().ok()?,
        was_opened: field("opened")?.parse().ok()?,
        was_removed: match lines.next() {
            None => false,
            Some(line) => line.strip_prefix("removed ")?.parse().ok()?,
        },
    })
}

/// A folder for a new node.
fn expect_empty(folder: &Path) -> io::Result<()> {
    if folder.join("log").exists() || folder.join("group-0").exists() {
        // A node without its name would be another one with the same promises.
        let what = "is missing, and the folder has a node's files";
        return Err(damaged(&folder.join(NAME), what));
    }
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        if name != NEW && name != "lost+found" {
            let text = format!(
                "{} holds other things and no node: one is made in a folder that is missing or empty",
                folder.display()
            );
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
    }
    Ok(())
}

/// The parts of a node that was open once.
fn expect_whole(folder: &Path) -> io::Result<()> {
    let is_filled = |path: &Path| fs::read_dir(path).is_ok_and(|mut there| there.next().is_some());
    let states = fs::read_dir(folder.join("group-0")).into_iter().flatten();
    let mut states = states.flatten().filter(|entry| {
        entry.file_name().to_string_lossy().starts_with("state-") && is_filled(&entry.path())
    });
    let missing = match (is_filled(&folder.join("log")), states.next()) {
        (false, _) => "log",
        (true, None) => "group-0",
        (true, Some(_)) => return Ok(()),
    };
    let what = "is missing or empty: what this node has promised to the others is lost with it. Remove the node from its cluster, \
                and let a new folder join";
    Err(damaged(&folder.join(missing), what))
}

fn damaged(path: &Path, what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{} {what}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_says_which_node_it_is_and_one_without_its_name_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Identity::read(folder.path()).unwrap(), None);
        let (first, other) = (Identity::first(), Identity::of(7));
        assert!(first.node != other.node && !other.is_first);
        first.write(folder.path()).unwrap();
        assert_eq!(Identity::read(folder.path()).unwrap(), Some(first));
        let text = fs::read_to_string(folder.path().join(NAME)).unwrap();
        let gone = parse(&format!("{text}removed true\n")).unwrap();
        assert_eq!(
            gone,
            Identity {
                was_removed: true,
                ..first
            }
        );
        assert_eq!(parse(&format!("{text}removed perhaps\n")), None);
        fs::create_dir(folder.path().join("log")).unwrap();
        fs::remove_file(folder.path().join(NAME)).unwrap();
        assert!(Identity::read(folder.path()).is_err());
        let mut file = files::create(&folder.path().join(NAME)).unwrap();
        file.write_all(b"ebbtide-cluster 2\n").unwrap();
        assert!(Identity::read(folder.path()).is_err());
    }
}
