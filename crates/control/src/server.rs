//! The end of the service: accepts, answers, and lets go.
//!
//! ```text
//! the thread `ebbtide-control`   waits for a connection or for the end -> a thread for each, 8 at most
//! a connection's thread          peer -> line -> request -> Serves::perform -> answer
//! ```
//!
//! Invariant: when a [`Control`] has been dropped, its socket has no name, and none of its threads is left.

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, sync::Arc};

use ebbtide::shared::{expect_writer, tell_control};
use ebbtide::{ControlEvent, Database};

use crate::line;
use crate::perform::watched;
use crate::request::{Answer, Failed, Progress, Reply, Request};
use crate::socket::{self, Bound, Peer};

/// A client that takes no byte of its answer for so long is left.
const UNREAD: Duration = Duration::from_secs(5);

/// Between two tries to accept, where the system has no more files to give.
const PAUSE: Duration = Duration::from_millis(50);

/// How a service listens.
///
/// ```
/// use std::time::Duration;
/// use ebbtide_control::Options;
///
/// let options = Options::new().clients(2).patience(Duration::from_secs(2));
/// # drop(options);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    clients: usize,
    patience: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl Options {
    /// Eight clients at a time, ten seconds for a request to come.
    #[must_use]
    pub fn new() -> Options {
        Options {
            clients: 8,
            patience: Duration::from_secs(10),
        }
    }

    /// At most so many are answered at a time, at least 1; the others are told that it is busy, and try again.
    #[must_use]
    pub fn clients(self, clients: usize) -> Options {
        let clients = clients.max(1);
        Options { clients, ..self }
    }

    /// The time within which a request has to be there as a whole; a second more for each MiB of it.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Options {
        Options { patience, ..self }
    }
}

/// The part behind a socket that does requests.
pub trait Serves: Send + Sync + 'static {
    /// Does one, durably. Calls `tick` every 200 ms meanwhile if it may take longer, and ends early where that says no.
    ///
    /// # Errors
    /// Why it was not done.
    fn perform(
        &self,
        request: &Request,
        tick: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Answer, Failed>;

    /// A request has been answered.
    fn told(&self, event: ControlEvent);
}

impl Serves for Database {
    fn perform(
        &self,
        request: &Request,
        tick: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Answer, Failed> {
        let answer = watched(self, request, tick)?;
        // An answered request survives a power cut, as after a command that opens the database itself.
        if !request.is_look() {
            self.sync()?;
        }
        Ok(answer)
    }

    fn told(&self, event: ControlEvent) {
        tell_control(self, event);
    }
}

/// Listens on `control.sock` in the database's folder until what this returns is dropped, which keeps the database open so
/// long, as a container does.
///
/// # Errors
/// This process does not write the database, has closed it, or listens already; the database is in memory; something that is
/// no socket has the name; the system makes none.
pub fn listen(db: &Database, options: Options) -> io::Result<Control> {
    expect_writer(db)?;
    let Some(dir) = db.path() else {
        let why = "a database in memory has no folder for a control socket";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    };
    listen_in(dir, db.clone(), options)
}

/// The same for whatever else owns a folder, by a lock that no other process has: the socket of another one is replaced.
///
/// # Errors
/// This process listens there already; something that is no socket has the name; the system makes none.
pub fn listen_in(dir: &Path, serves: impl Serves, options: Options) -> io::Result<Control> {
    let bound = Bound::new(dir)?;
    // A connection that has gone before it is accepted must not hold the thread.
    bound.listener.set_nonblocking(true)?;
    let (waker, woken) = UnixStream::pair()?;
    let service = Arc::new(Service {
        serves: Box::new(serves),
        dir: dir.to_owned(),
        options,
        is_ending: AtomicBool::new(false),
        connected: Mutex::default(),
        long: Mutex::default(),
    });
    let serving = Arc::clone(&service);
    let thread = thread::Builder::new().name("ebbtide-control".to_owned());
    let thread = thread.spawn(move || serving.serve(&bound, &woken))?;
    Ok(Control {
        service,
        waker,
        thread: Some(thread),
    })
}

/// Listens until it is dropped; that waits for requests that are being done.
#[must_use]
pub struct Control {
    service: Arc<Service>,
    waker: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("dir", &self.service.dir)
            .finish_non_exhaustive()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.service.is_ending.store(true, Ordering::SeqCst);
        // Both ends are open: a byte has room.
        let _ = self.waker.write(b"!");
        for (_, stream) in self.service.connected().iter() {
            // Answers may still be written.
            let _ = stream.shutdown(Shutdown::Read);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Service {
    serves: Box<dyn Serves>,
    dir: PathBuf,
    options: Options,
    is_ending: AtomicBool,
    /// By numbers that rise.
    connected: Mutex<Vec<(u64, UnixStream)>>,
    /// Held by the one long request.
    long: Mutex<()>,
}

impl Service {
    fn connected(&self) -> MutexGuard<'_, Vec<(u64, UnixStream)>> {
        let connected = self.connected.lock();
        connected.unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, bound: &Bound, woken: &UnixStream) {
        thread::scope(|scope| {
            for number in 0.. {
                let waited = socket::wait(&bound.listener, woken);
                if self.is_ending.load(Ordering::SeqCst) {
                    break;
                }
                let accepted = waited.and_then(|()| bound.listener.accept());
                let stream = match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    Err(_) => {
                        thread::sleep(PAUSE);
                        continue;
                    }
                };
                let Some(place) = self.place(number, &stream) else {
                    refuse(&stream, Failed::Busy);
                    continue;
                };
                let named = thread::Builder::new().name("ebbtide-control".to_owned());
                // Without a thread the connection is closed.
                let _ = named.spawn_scoped(scope, move || {
                    let _place = place;
                    // A panic ends this connection alone.
                    let _ = catch_unwind(AssertUnwindSafe(|| self.answer(&stream)));
                });
            }
        });
    }

    /// A place among those that are answered.
    fn place(&self, number: u64, stream: &UnixStream) -> Option<Place<'_>> {
        let mut connected = self.connected();
        if connected.len() >= self.options.clients {
            return None;
        }
        connected.push((number, stream.try_clone().ok()?));
        drop(connected);
        let place = Place {
            service: self,
            number,
        };
        // The end came before it was among them.
        if self.is_ending.load(Ordering::SeqCst) {
            let _ = stream.shutdown(Shutdown::Read);
        }
        Some(place)
    }

    fn answer(&self, mut stream: &UnixStream) {
        let prepared = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_write_timeout(Some(UNREAD)))
            .and_then(|()| socket::peer(stream));
        let Ok(peer) = prepared else {
            return;
        };
        if !peer.may_ask {
            let why = "only the user of the process that has the database open may ask it";
            return refuse(stream, Failed::Refused(why.to_owned()));
        }
        let line = match line::read(stream, self.options.patience, &self.long) {
            Ok(Some(line)) => line,
            Ok(None) => return,
            Err(failed) => return refuse(stream, failed),
        };
        let reply = match Request::parse(&line.bytes) {
            Ok(request) => self.perform(&request, &peer, stream),
            Err(failed) => Reply::Failed(failed),
        };
        let _ = stream.write_all(&reply.line());
    }

    /// Does it and tells the listener; says meanwhile how far it is.
    fn perform(&self, request: &Request, peer: &Peer, mut stream: &UnixStream) -> Reply {
        let begun = Instant::now();
        let done = self.serves.perform(request, &mut |progress| {
            let is_there = !socket::has_stirred(stream);
            let told = stream.write_all(&Reply::Progress(*progress).line());
            is_there && told.is_ok() && !self.is_ending.load(Ordering::SeqCst)
        });
        let error = done.as_ref().err().map(Failed::to_string);
        let told = ControlEvent::new(request.to_string(), peer.process, begun.elapsed(), error);
        self.serves.told(told);
        match done {
            Ok(answer) => Reply::Done(answer),
            Err(failed) => Reply::Failed(failed),
        }
    }
}

/// One of those that are answered, until it is dropped.
struct Place<'a> {
    service: &'a Service,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut connected = self.service.connected();
        connected.retain(|(number, _)| *number != self.number);
    }
}

/// Says why, if that does not have to wait.
fn refuse(mut stream: &UnixStream, failed: Failed) {
    let said = stream.set_nonblocking(true);
    let _ = said.and_then(|()| stream.write_all(&Reply::Failed(failed).line()));
}
