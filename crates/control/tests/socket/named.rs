//! The name of the socket: who makes it, who may use it, and when it goes.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn it_is_there_while_it_is_asked_for_and_not_before() {
    let mut service = Service::new();
    let socket = service.dir().join(NAME);
    let found = std::fs::symlink_metadata(&socket).unwrap();
    assert!(found.file_type().is_socket());
    service.still_answers();
    let client = service.client();
    service.control = None;
    assert!(!socket.exists());
    assert!(connect(service.dir()).unwrap().is_none());
    let why = client
        .ask(&Request::Compact, &mut |_| ())
        .unwrap_err()
        .to_string();
    assert!(why.contains("listens no more"), "{why}");
    // Off until asked for, and asked for again.
    service.db.put_something();
    assert!(!socket.exists());
    service.control = Some(listen(&service.db, Options::new()).unwrap());
    service.still_answers();
}

trait PutSomething {
    fn put_something(&self);
}

impl PutSomething for Database {
    fn put_something(&self) {
        self.container("c").unwrap().put("k", "v").unwrap();
    }
}

/// However lax the umask is, and between its making and the end of the call too: a thread looks all the time.
#[test]
fn its_owner_alone_may_use_it_from_the_start() {
    let folder = testkit::scratch();
    let db = Database::open(folder.path().join("db")).unwrap();
    let socket = folder.path().join("db").join(NAME);
    let lax = rustix::process::umask(rustix::fs::Mode::empty());
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut seen = std::collections::BTreeSet::new();
            while !is_done.load(Ordering::Relaxed) {
                if let Ok(found) = std::fs::symlink_metadata(&socket) {
                    seen.insert(found.permissions().mode() & 0o7777);
                }
            }
            seen
        });
        for _ in 0..400 {
            drop(listen(&db, Options::new()).unwrap());
        }
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(
            looking.join().unwrap().into_iter().collect::<Vec<_>>(),
            [0o600]
        );
    });
    rustix::process::umask(lax);
}

#[test]
fn a_socket_that_a_killed_process_left_is_replaced() {
    let folder = testkit::scratch();
    let db = Database::open(folder.path()).unwrap();
    let socket = folder.path().join(NAME);
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists() && connect(folder.path()).unwrap().is_none());
    let control = listen(&db, Options::new()).unwrap();
    assert!(connect(folder.path()).unwrap().is_some());
    drop(control);
    assert!(!socket.exists());
    // A file of this name is somebody's.
    std::fs::write(&socket, "notes").unwrap();
    let why = listen(&db, Options::new()).unwrap_err().to_string();
    assert!(why.contains("is no socket"), "{why}");
    assert!(connect(folder.path()).unwrap().is_none());
    assert_eq!(std::fs::read(&socket).unwrap(), b"notes");
}

#[test]
fn one_listens_and_the_name_of_another_stays() {
    let mut service = Service::new();
    let why = listen(&service.db, Options::new()).unwrap_err().to_string();
    assert!(why.contains("has a listener already"), "{why}");
    service.still_answers();
    let socket = service.dir().join(NAME);
    std::fs::remove_file(&socket).unwrap();
    let _later = UnixListener::bind(&socket).unwrap();
    service.control = None;
    assert!(socket.exists());
}

#[test]
fn who_does_not_write_the_database_does_not_listen() {
    let folder = testkit::scratch();
    let dir = folder.path().join("db");
    let db = Database::open(&dir).unwrap();
    db.put_something();
    let refused = |db: &Database| listen(db, Options::new()).unwrap_err().to_string();
    let follower = ebbtide::Options::new().follow(&dir).unwrap();
    assert!(refused(&follower).contains("read-only"));
    drop(follower);
    db.close().unwrap();
    assert!(refused(&db).contains("closed"));
    let reader = ebbtide::Options::new().read_only(true).open(&dir).unwrap();
    assert!(refused(&reader).contains("read-only"));
    assert!(refused(&ebbtide::Options::temporary().unwrap()).contains("in memory"));
    assert!(!dir.join(NAME).exists());
}

#[test]
#[cfg(target_os = "linux")]
fn a_path_that_is_too_long_for_a_socket_is_reached_all_the_same() {
    let folder = testkit::scratch();
    let dir = folder.path().join("d".repeat(200)).join("e".repeat(100));
    std::fs::create_dir_all(dir.parent().unwrap()).unwrap();
    let db = Database::open(&dir).unwrap();
    let control = listen(&db, Options::new()).unwrap();
    let client = connect(&dir).unwrap().unwrap();
    assert!(client.ask(&Request::Compact, &mut |_| ()).is_ok());
    drop(control);
    assert!(!dir.join(NAME).exists());
}

#[test]
fn it_is_let_go_while_clients_are_connected() {
    let mut service = Service::with(
        ebbtide::Options::new(),
        Options::new().patience(Duration::MAX / 4),
    );
    let mut idle: Vec<UnixStream> = (0..4).map(|_| service.connection()).collect();
    idle[0].write_all(b"{\"version\":1,").unwrap();
    service.still_answers();
    service.control = None;
    for stream in &mut idle {
        let mut rest = vec![];
        let _ = stream.read_to_end(&mut rest);
    }
    // The lock is let go with the last of all that keeps the database open.
    let dir = service.dir();
    drop(service.db);
    Database::open(dir).unwrap();
}
