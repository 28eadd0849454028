//! The end of the command.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::request::{Answer, Failed, Progress, Reply, Request};
use crate::socket;

/// A service says something every 200 ms, and takes what it is sent.
const SILENCE: Duration = Duration::from_secs(30);

/// How long a busy service is asked again, and how often.
const BUSY: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(50);

/// No line of a service is longer.
const MOST: u64 = 4 << 20;

/// A process that has a database open and listens.
#[derive(Clone, Debug)]
pub struct Client {
    dir: PathBuf,
}

/// The process that has the database in this folder open, if it listens. A socket that a killed process left is none.
///
/// # Errors
/// The system refuses to connect: to another user's service, for instance.
pub fn connect(dir: impl AsRef<Path>) -> io::Result<Option<Client>> {
    let dir = dir.as_ref();
    Ok(socket::connect(dir)?.map(|_| Client {
        dir: dir.to_owned(),
    }))
}

impl Client {
    /// Asks, and waits for the answer; `progress` is called now and then meanwhile.
    ///
    /// # Errors
    /// The service's; also if it ends before it has answered.
    pub fn ask(
        &self,
        request: &Request,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Answer, Failed> {
        let refused = |error: serde_json::Error| Failed::Refused(error.to_string());
        let line = request.line().map_err(refused)?;
        let begun = Instant::now();
        loop {
            match self.ask_once(&line, progress) {
                Err(Failed::Busy) if begun.elapsed() < BUSY => thread::sleep(AGAIN),
                answered => return answered,
            }
        }
    }

    fn ask_once(&self, line: &[u8], progress: &mut dyn FnMut(&Progress)) -> Result<Answer, Failed> {
        let lost = |why: String| {
            let dir = self.dir.display();
            Failed::Refused(format!(
                "the process that has {dir} open did not answer ({why}): whether it has done what was asked is not known"
            ))
        };
        let mut stream = self.connected()?;
        // A service that refuses what it has not read to the end has said why, and that can be read.
        let sent = stream.write_all(line);
        let mut replies = BufReader::new(stream);
        loop {
            let mut reply = vec![];
            let read = (&mut replies).take(MOST).read_until(b'\n', &mut reply);
            match read {
                Ok(1..) => {}
                Ok(0) => {
                    return Err(lost(
                        sent.err().map_or("it left".to_owned(), |e| e.to_string()),
                    ));
                }
                Err(error) => return Err(lost(error.to_string())),
            }
            let reply = serde_json::from_slice(&reply);
            match reply.map_err(|error| lost(error.to_string()))? {
                Reply::Progress(step) => progress(&step),
                Reply::Done(answer) => return Ok(answer),
                Reply::Failed(failed) => return Err(failed),
            }
        }
    }

    fn connected(&self) -> Result<UnixStream, Failed> {
        let connected = socket::connect(&self.dir).and_then(|stream| {
            let stream = stream.ok_or(io::ErrorKind::ConnectionRefused)?;
            stream.set_read_timeout(Some(SILENCE))?;
            stream.set_write_timeout(Some(SILENCE))?;
            Ok(stream)
        });
        connected.map_err(|error| {
            let dir = self.dir.display();
            Failed::Refused(format!(
                "the process that had {dir} open listens no more ({error}): try again"
            ))
        })
    }
}
