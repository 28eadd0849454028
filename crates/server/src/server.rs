//! A server: started, and stopped.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::SystemTime;

use ebbtide::{ClockBehind, Database, ManualClock, Options, Stall};
use ebbtide_control::Control;
use ebbtide_documents::Documents;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::auth::Key;
use crate::config::{ClockKind, Config, LogFormat, LogLevel, ServeError};
use crate::connection::accept;
use crate::hosts::Hosts;
use crate::limits::{LEFT_OVER, THREADS};
use crate::notify::notify;
use crate::offers;
use crate::places::Places;
use crate::state::{Figures, Frontend, Shared, State};
use crate::tls::Tls;

/// A server that runs in threads of its own, until it is stopped or dropped.
pub struct Server {
    address: SocketAddr,
    scheme: &'static str,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Opens the database and listens.
    ///
    /// # Errors
    /// The configuration is refused, the database cannot be opened, or the address is taken.
    pub fn start(config: &Config) -> Result<Server, ServeError> {
        Server::start_on(None, config)
    }

    /// On a socket that listens already, if there is one.
    fn start_on(
        socket: Option<std::net::TcpListener>,
        config: &Config,
    ) -> Result<Server, ServeError> {
        config.check()?;
        let tls = Tls::new(config)?;
        let frontend = Frontend {
            key: key(config)?,
            hosts: Hosts::new(&config.hosts),
            figures: Figures::default(),
            most_connections: config.max_connections,
        };
        let fails = |error: std::io::Error| {
            ServeError::new(format!("{} cannot be listened on: {error}.", config.http))
        };
        let runtime = runtime().map_err(fails)?;
        let listener = runtime
            .block_on(async {
                match socket {
                    Some(socket) => TcpListener::from_std(socket),
                    None => TcpListener::bind(config.http).await,
                }
            })
            .map_err(fails)?;
        let address = listener.local_addr().map_err(fails)?;
        // After the address is there, for a new node joins its cluster when it is opened.
        let backing = Backing::open(config)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let state = match backing.service(frontend, scheme) {
            Ok(state) => state,
            Err(error) => {
                backing.end();
                return Err(error);
            }
        };
        let (stop, stopped) = watch::channel(false);
        let most = config.max_connections;
        let run = move || {
            runtime.block_on(accept(listener, state, tls, most, stopped));
            runtime.shutdown_timeout(LEFT_OVER);
            backing.end();
        };
        let thread = std::thread::Builder::new()
            .name("ebbtide-server".to_string())
            .spawn(run)
            .map_err(fails)?;
        Ok(Server {
            address,
            scheme,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// As clients are told it: `http://127.0.0.1:8081/`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}/", self.scheme, self.address)
    }

    /// Accepts nothing more, finishes what was begun within some seconds, and closes the database.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been told by itself.
            let _ = thread.join();
        }
    }
}

fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(THREADS)
        .thread_name("ebbtide-http")
        .build()
}

/// The thing that is served.
enum Backing {
    Database {
        engine: Database,
        clock: Option<ManualClock>,
        control: Option<Control>,
    },
    #[cfg(feature = "cluster")]
    Node(crate::node::Opened),
}

impl Backing {
    fn open(config: &Config) -> Result<Backing, ServeError> {
        if config.cluster.is_some() {
            #[cfg(feature = "cluster")]
            return crate::node::Opened::open(config).map(Backing::Node);
            #[cfg(not(feature = "cluster"))]
            return Err(ServeError::new(
                "This build has no nodes of clusters: it was made without the feature cluster of ebbtide-server.",
            ));
        }
        let clock = (config.clock == ClockKind::Manual).then(manual_clock);
        let engine = open(config, clock.clone())?;
        if let Some(clock) = &clock {
            // It goes on where it was moved to before: the database never goes behind that.
            clock.set(milliseconds(engine.now()));
        }
        Ok(Backing::Database {
            control: control(config, &engine)?,
            engine,
            clock,
        })
    }

    fn service(&self, frontend: Frontend, scheme: &'static str) -> Result<Shared, ServeError> {
        let (engine, clock) = match self {
            Backing::Database { engine, clock, .. } => (engine, clock),
            #[cfg(feature = "cluster")]
            Backing::Node(node) => return Ok(node.service(frontend, scheme)),
        };
        let fails = |error: ebbtide_documents::Error| ServeError::new(error.to_string());
        let documents = Documents::with(engine.clone()).map_err(fails)?;
        let partitions = offers::partitions(&documents).map_err(fails)?;
        Ok(Arc::new(State {
            frontend: Arc::new(frontend),
            documents,
            clock: clock.clone(),
            partitions,
            places: Places::default(),
            scheme,
        }))
    }

    /// Nothing acknowledged is lost: the log has it, and closing syncs the log.
    fn end(self) {
        match self {
            Backing::Database {
                engine, control, ..
            } => {
                drop(control);
                if let Err(error) = engine.close() {
                    tracing::error!("the database could not be closed: {error}");
                }
            }
            #[cfg(feature = "cluster")]
            Backing::Node(node) => node.end(),
        }
    }
}

fn key(config: &Config) -> Result<Option<Key>, ServeError> {
    let Some(path) = &config.key_file else {
        return Ok(None);
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| ServeError::new(format!("{}: {error}.", path.display())))?;
    match Key::parse(&text) {
        Some(key) => Ok(Some(key)),
        None => Err(ServeError::new(format!(
            "{} has no key in base64.",
            path.display()
        ))),
    }
}

fn manual_clock() -> ManualClock {
    ManualClock::new(milliseconds(SystemTime::now()))
}

/// Since 1970.
fn milliseconds(moment: SystemTime) -> u64 {
    let since = moment
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn open(config: &Config, clock: Option<ManualClock>) -> Result<Database, ServeError> {
    // A client is told to come again later; a thread that waits would keep others from working.
    let mut options = Options::new().on_stall(Stall::Fail);
    if let Some(clock) = clock {
        // A clock that was moved ahead is behind at the next start.
        options = options.clock(clock).clock_behind(ClockBehind::StartAtMark);
    }
    let opened = match &config.dir {
        Some(dir) => options.open(dir),
        None => options.open_temporary(),
    };
    opened.map_err(|error| ServeError::new(error.to_string()))
}

/// The socket by which the command changes the database meanwhile. There is none for a database without a folder.
fn control(config: &Config, engine: &Database) -> Result<Option<Control>, ServeError> {
    if !config.control || config.dir.is_none() {
        return Ok(None);
    }
    let listened = ebbtide_control::listen(engine, ebbtide_control::Options::new());
    listened
        .map(Some)
        .map_err(|error| ServeError::new(format!("There can be no control socket: {error}.")))
}

/// The socket that the service manager listens on for this process, by `LISTEN_FDS`, if it does.
fn socket() -> std::io::Result<Option<std::net::TcpListener>> {
    let socket = listenfd::ListenFd::from_env().take_tcp_listener(0)?;
    if let Some(socket) = &socket {
        socket.set_nonblocking(true)?;
    }
    Ok(socket)
}

/// Serves until a signal ends it: SIGTERM or SIGINT. `told` is called with the URL once requests are answered. It listens on the
/// socket that a service manager has passed, and else where the configuration says.
///
/// # Errors
/// Those of [`Server::start`].
pub fn serve(config: &Config, told: impl FnOnce(&str)) -> Result<(), ServeError> {
    log(config);
    let fails = |error: std::io::Error| {
        ServeError::new(format!("The socket that was passed is of no use: {error}."))
    };
    let (socket, mut config) = (socket().map_err(fails)?, config.clone());
    if let Some(socket) = &socket {
        // The rules for an address count for this one.
        config.http = socket.local_addr().map_err(fails)?;
    }
    let server = Server::start_on(socket, &config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| ServeError::new(error.to_string()))?;
    let fails =
        |error: std::io::Error| ServeError::new(format!("Signals cannot be waited for: {error}."));
    let ended: std::io::Result<()> = runtime.block_on(async {
        let (mut term, mut int) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        tracing::info!("listening on {}", server.url());
        told(&server.url());
        say("READY=1");
        tokio::select! { _ = term.recv() => {} _ = int.recv() => {} }
        Ok(())
    });
    ended.map_err(fails)?;
    say("STOPPING=1");
    tracing::info!("ending");
    server.stop();
    Ok(())
}

fn say(word: &str) {
    if let Err(error) = notify(std::env::var_os("NOTIFY_SOCKET"), word) {
        tracing::warn!("the service manager cannot be told {word}: {error}");
    }
}

fn log(config: &Config) {
    let level = match config.log_level {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
    };
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr);
    // Each step of an election is for those who look for one of its faults.
    let of_openraft = match config.log_level {
        LogLevel::Debug => tracing::Level::INFO,
        _ => tracing::Level::ERROR,
    };
    let targets = Targets::new()
        .with_default(level)
        .with_target("openraft", of_openraft);
    // A program that has set up lines of its own keeps them.
    let _ = match config.log {
        LogFormat::Text => lines.with_ansi(false).finish().with(targets).try_init(),
        LogFormat::Json => lines.json().finish().with(targets).try_init(),
    };
}
