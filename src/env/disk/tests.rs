use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn files_and_folders_are_private_and_links_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a/b");
    Disk.create_dir_all(&folder).unwrap();
    Disk.create_dir_all(&folder).unwrap();
    let (name, link) = (folder.join("file"), folder.join("link"));
    let file = Disk.create(&name).unwrap();
    file.write_at(3, b"xyz").unwrap();
    file.sync().unwrap();
    assert_eq!(Disk.read(&name).unwrap(), b"\0\0\0xyz");
    assert!(Disk.create(&name).is_err(), "it is there");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&name)), (0o700, 0o600));
    std::os::unix::fs::symlink(&name, &link).unwrap();
    assert!(Disk.open(&link).is_err());
    assert!(Disk.read(&link).is_err());
    assert!(Disk.map(&link).is_err());
    assert!(Disk.len(&link).is_err());
    assert!(Disk.ring(&link, 8).is_err());
    assert!(Disk.lock(&link, LockKind::Exclusive).is_err());
    assert!(Disk.read(&folder).is_err(), "a folder is not a file");
    Disk.remove(&link).unwrap();
    assert_eq!(Disk.list(&folder).unwrap(), ["file"]);
    assert_eq!(
        Disk.list(dir.path()).unwrap(),
        [""; 0],
        "folders are left out"
    );
    assert_eq!(Disk.len(&folder.join("none")).unwrap(), None);
    Disk.sync_dir(&folder).unwrap();
}

#[test]
fn sizes_room_and_maps() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("file");
    let file = Disk.create(&name).unwrap();
    assert!(Disk.map(&name).unwrap().is_empty());
    file.allocate(10_000).unwrap();
    assert_eq!(file.len().unwrap(), 10_000);
    assert!(Disk.allocated(&name).unwrap() >= 10_000);
    file.allocate(100).unwrap();
    assert_eq!(file.len().unwrap(), 10_000, "never less");
    file.write_at(0, b"abc").unwrap();
    file.truncate(3).unwrap();
    let map = Disk.map(&name).unwrap();
    Disk.hard_link(&name, &dir.path().join("second")).unwrap();
    Disk.remove(&name).unwrap();
    assert_eq!(&map[..], b"abc", "readable as long as it is held");
    Disk.rename(&dir.path().join("second"), &name).unwrap();
    assert_eq!(Disk.len(&name).unwrap(), Some(3));
    let room = Disk.room(dir.path()).unwrap();
    assert!(room.free > 0 && room.free <= room.total);
}

#[test]
fn zeros_are_written_where_nothing_can_be_reserved() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("file");
    let file = files::create(&name).unwrap();
    file.write_all_at(b"abc", 0).unwrap();
    write_zeros(&file, 3, 40_000).unwrap();
    let bytes = Disk.read(&name).unwrap();
    assert_eq!((&bytes[..3], bytes.len()), (&b"abc"[..], 40_000));
}

#[test]
fn a_ring_keeps_bytes_at_every_alignment() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("ring");
    let (len, mut model) = (100, vec![0; 100]);
    let ring = Disk.ring(&name, len).unwrap();
    for offset in 0..40 {
        for size in 0..40 {
            let bytes: Vec<u8> = (0..size)
                .map(|i| (offset * 7 + size * 3 + i) as u8)
                .collect();
            ring.store(offset, &bytes);
            model[offset..offset + size].copy_from_slice(&bytes);
            let mut all = vec![0; len];
            ring.load(0, &mut all);
            assert_eq!(all, model);
            let mut part = vec![0; size];
            ring.load(offset, &mut part);
            assert_eq!(part, bytes);
        }
    }
    drop(ring);
    assert_eq!(Disk.read(&name).unwrap(), model);
    let mut part = [0; 2];
    Disk.ring(&name, len).unwrap().load(98, &mut part);
    assert_eq!(part, model[98..]);
}

/// A drain zeroes up to the byte at which the next append begins.
#[test]
fn stores_beside_each_other_in_one_word_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ring = Disk.ring(&dir.path().join("ring"), 24).unwrap();
    std::thread::scope(|threads| {
        for (from, to) in [(3, 12), (12, 21)] {
            let ring = &ring;
            threads.spawn(move || {
                let mut found = vec![0; to - from];
                for n in 0..300_000u32 {
                    let bytes = vec![n as u8; to - from];
                    ring.store(from, &bytes);
                    ring.load(from, &mut found);
                    assert_eq!(found, bytes, "from {from}, store {n}");
                }
            });
        }
    });
}

#[test]
#[should_panic(expected = "outside a ring")]
fn a_store_outside_a_ring_panics() {
    let dir = tempfile::tempdir().unwrap();
    let ring = Disk.ring(&dir.path().join("ring"), 16).unwrap();
    ring.store(10, b"1234567");
}

#[test]
fn locks_exclude_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("LOCK");
    let is_held = |kind| match Disk.lock(&name, kind) {
        Ok(_) => false,
        Err(Error::Locked { path }) => path == dir.path(),
        Err(error) => panic!("{error}"),
    };
    // Also while the file is missing: a shared lock does not make it.
    for removed in [true, false, true] {
        let shared = Disk.lock(&name, LockKind::Shared).unwrap();
        assert_eq!(
            (is_held(LockKind::Shared), is_held(LockKind::Exclusive)),
            (false, true)
        );
        drop(shared);
        let alone = Disk.lock(&name, LockKind::Exclusive).unwrap();
        if removed {
            Disk.remove(&name).unwrap();
        }
        assert!(is_held(LockKind::Shared) && is_held(LockKind::Exclusive));
        assert_eq!(Disk.len(&name).unwrap().is_none(), removed);
        drop(alone);
    }
}

/// A copy of an open file is what a process has that was just forked, for a command that is about to begin.
#[test]
fn a_lock_ends_while_another_process_has_its_files_open() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("LOCK");
    let locked = |file: fs::File| {
        file.try_lock().unwrap();
        (file.try_clone().unwrap(), file)
    };
    let (folder_there, folder) = locked(open_folder(dir.path()).unwrap());
    let (file_there, file) = locked(fs::File::create(&name).unwrap());
    let lock = |process| DiskLock {
        folder: Some(folder.try_clone().unwrap()),
        file: Some(file.try_clone().unwrap()),
        process,
    };
    // Not by the process that was forked.
    drop(lock(0));
    assert!(Disk.lock(&name, LockKind::Exclusive).is_err());
    drop(lock(std::process::id()));
    Disk.lock(&name, LockKind::Exclusive).unwrap();
    drop((folder_there, file_there));
}

#[test]
fn where_folders_cannot_be_locked_the_file_is_locked_alone() {
    let dir = tempfile::tempdir().unwrap();
    let folder = || open_folder(dir.path()).unwrap();
    // An NFS client answers so without its lock service, and with it for a folder that is open for reading.
    for code in [rustix::io::Errno::NOLCK, rustix::io::Errno::BADF] {
        let tried = Err(TryLockError::Error(code.into()));
        assert!(held_folder(folder(), tried).unwrap().is_none());
    }
    assert!(held_folder(folder(), Ok(())).unwrap().is_some());
    assert!(held_folder(folder(), Err(TryLockError::WouldBlock)).is_err());
    // So the file alone excludes others, too.
    let file = files::open(
        OpenOptions::new().write(true).create_new(true),
        &dir.path().join("LOCK"),
    );
    let file = file.unwrap();
    file.try_lock().unwrap();
    assert!(
        Disk.lock(&dir.path().join("LOCK"), LockKind::Shared)
            .is_err()
    );
}

#[test]
fn a_file_that_was_allocated_ahead_is_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("file");
    let len = 3 * PIECE + 10;
    // One byte that is not zero: first or last of all, of a piece, of a block within one, or none.
    let places = [
        0,
        PIECE - 1,
        PIECE,
        PIECE + 255,
        PIECE + 256,
        3 * PIECE,
        len - 1,
        len,
    ];
    for place in places {
        let mut bytes = vec![0; len + 1];
        bytes[place] = 7;
        bytes.truncate(len);
        fs::write(&name, &bytes).unwrap();
        // In no memory, and in such as is shorter, or long enough, or longer than the file.
        for had in [0, 1, PIECE, len, len + 1, 4 * PIECE] {
            let read = Disk.read_into(&name, vec![9; had]).unwrap();
            assert_eq!(read.len(), len, "{place} {had}");
            assert!(read == bytes, "{place} {had}");
        }
    }
    fs::write(&name, b"").unwrap();
    assert_eq!(Disk.read_into(&name, vec![9; 5]).unwrap(), b"");
}
