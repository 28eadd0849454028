//! Goal: the control socket does what is asked by it as the process itself would, is there for its owner alone, leaves nothing
//! behind, and no client holds or grows the service. Method: services in this process, asked by the client and by bytes that
//! no client would send.

// clippy.toml keeps the library away from the world; these tests look at it from outside.
#![allow(clippy::disallowed_methods)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::{Container, ControlEvent, Database, EventListener};
use ebbtide_control::{Answer, Client, Control, Failed, NAME, Options, Request, connect, listen};

use testkit::patience::wait_until;

mod asked;
mod hostile;
mod named;

/// A service, and what its listener was told.
struct Service {
    folder: tempfile::TempDir,
    db: Database,
    control: Option<Control>,
    told: Told,
}

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<ControlEvent>>>);

impl EventListener for Told {
    fn on_control(&self, control: &ControlEvent) {
        self.0.lock().unwrap().push(control.clone());
    }
}

impl Service {
    fn new() -> Service {
        Service::with(ebbtide::Options::new(), Options::new())
    }

    fn with(database: ebbtide::Options, options: Options) -> Service {
        let folder = testkit::scratch();
        let told = Told::default();
        let database = database.listener(Arc::new(told.clone()));
        let db = database.open(folder.path().join("db")).unwrap();
        let control = Some(listen(&db, options).unwrap());
        Service {
            folder,
            db,
            control,
            told,
        }
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("db")
    }

    fn container(&self) -> Container {
        self.db.container("c").unwrap()
    }

    fn client(&self) -> Client {
        connect(self.dir()).unwrap().expect("it listens")
    }

    fn ask(&self, request: &Request) -> Result<Answer, Failed> {
        self.client().ask(request, &mut |_| ())
    }

    fn connection(&self) -> UnixStream {
        UnixStream::connect(self.dir().join(NAME)).unwrap()
    }

    /// Its answer to these bytes, after which the connection is closed.
    fn say(&self, bytes: &[u8]) -> String {
        let mut stream = self.connection();
        // It may refuse before it has read all of them.
        let _ = stream.write_all(bytes);
        let mut answer = vec![];
        // Bytes that were not read make the end of the connection an error.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    /// It answers a client as if nothing had been.
    #[track_caller]
    fn still_answers(&self) {
        let state = Request::State {
            container: "c".to_owned(),
        };
        assert!(matches!(self.ask(&state), Ok(Answer::State { .. })));
    }

    /// The last request that the listener was told of.
    #[track_caller]
    fn told_of(&self, request: &str) -> ControlEvent {
        let of =
            |told: &Vec<ControlEvent>| told.iter().rfind(|event| event.request == request).cloned();
        wait_until(request, || of(&self.told.0.lock().unwrap()).is_some());
        of(&self.told.0.lock().unwrap()).unwrap()
    }
}
