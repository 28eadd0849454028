//! Goal: the command line does what its help says, with the exit status and the one line on standard error that scripts
//! rely on. Method: run the built program, each command on a folder of its own, and read what it prints.

// clippy.toml keeps the library away from the world; these tests look at it from outside.
#![allow(clippy::disallowed_methods)]

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[cfg(target_os = "linux")]
use rustix::{
    pty::{OpenptFlags, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use serde_json::Value;

use testkit::patience::wait_until;

mod backups;
mod changes;
mod documents;
mod given;
mod interrupted;
mod items;
mod killed;
mod live;
mod many;
mod named;
mod operations;
mod outside;
mod replay;
mod report;
mod rights;
mod transfer;
mod upkeep;

const ALLOWED_TTL: &str = "-1 (never), or whole seconds from 1 to 2147483647";

/// The words of a command: a line in which blanks part them, or each by itself.
trait Words {
    fn words(&self) -> Vec<&str>;
}

impl Words for str {
    fn words(&self) -> Vec<&str> {
        self.split_whitespace().collect()
    }
}

impl Words for String {
    fn words(&self) -> Vec<&str> {
        self.as_str().words()
    }
}

impl Words for [&str] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl<const N: usize> Words for [&str; N] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl Words for Vec<&str> {
    fn words(&self) -> Vec<&str> {
        self.clone()
    }
}

/// A folder that goes with the test.
struct World {
    folder: tempfile::TempDir,
}

/// The result of a run of the program.
struct Ran {
    status: i32,
    out: Vec<u8>,
    err: String,
}

impl World {
    fn new() -> World {
        World {
            folder: testkit::scratch(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn command(&self, args: &(impl Words + ?Sized)) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebbtide"));
        command
            .args(args.words())
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn run(&self, args: &(impl Words + ?Sized)) -> Ran {
        Ran::of(self.command(args).output().unwrap())
    }

    /// Runs on a terminal that is so many characters wide, where `typed` is typed; what stands on it in the end.
    #[cfg(target_os = "linux")]
    fn run_on_terminal(
        &self,
        args: &(impl Words + ?Sized),
        columns: u16,
        typed: &[u8],
    ) -> (i32, String) {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, vec![]).unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&terminal, size).unwrap();
        let mut options = std::fs::File::options();
        let side = options.read(true).write(true).open(name.to_str().unwrap());
        let side = side.unwrap();
        let mut command = self.command(args);
        command
            .stdin(side.try_clone().unwrap())
            .stdout(side.try_clone().unwrap())
            .stderr(side);
        let mut child = command.spawn().unwrap();
        // It holds the program's side of the terminal, whose end is that of what can be read here.
        drop(command);
        let mut terminal = std::fs::File::from(terminal);
        terminal.write_all(typed).unwrap();
        let mut shown = vec![];
        let mut some = [0; 4096];
        while let Ok(len @ 1..) = terminal.read(&mut some) {
            shown.extend(&some[..len]);
        }
        let status = child.wait().unwrap();
        (status.code().unwrap(), String::from_utf8(shown).unwrap())
    }

    fn run_with_input(&self, args: &(impl Words + ?Sized), input: &[u8]) -> Ran {
        let mut command = self.command(args);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // The program may leave before it has read everything.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let ran = Ran::of(child.wait_with_output().unwrap());
        writer.join().unwrap();
        ran
    }

    /// Runs what must succeed without a word on standard error, and gives its output.
    #[track_caller]
    fn ok(&self, args: &(impl Words + ?Sized)) -> String {
        self.run(args).ok()
    }

    /// Runs what must succeed without a result, and gives the one line on standard error that says what was done.
    #[track_caller]
    fn told(&self, args: &(impl Words + ?Sized)) -> String {
        self.run(args).told()
    }

    /// Runs what must fail, with nothing on standard output, and gives the one line that says why.
    #[track_caller]
    fn fails(&self, status: i32, args: &(impl Words + ?Sized)) -> String {
        self.run(args).failed(status)
    }
}

impl Ran {
    fn of(output: Output) -> Ran {
        Ran {
            status: output.status.code().expect("not killed"),
            out: output.stdout,
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    fn ok(self) -> String {
        assert_eq!((self.status, self.err.as_str()), (0, ""));
        String::from_utf8(self.out).unwrap()
    }

    #[track_caller]
    fn told(self) -> String {
        assert_eq!(
            (self.status, self.out.as_slice()),
            (0, &b""[..]),
            "{}",
            self.err
        );
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        self.err.trim_end().to_owned()
    }

    #[track_caller]
    fn failed(self, status: i32) -> String {
        assert_eq!(self.status, status, "{}", self.err);
        assert_eq!(self.out, b"", "{}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        let line = self.err.trim_end().strip_prefix("ebbtide: ").unwrap();
        line.to_owned()
    }
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

/// It has these members, among others.
#[track_caller]
fn has(line: &Value, members: &str) {
    for (name, value) in json(members).as_object().unwrap() {
        assert_eq!(line[name], *value, "{name} of {line}");
    }
}

fn now_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

/// Two seconds before `b` expires it is there, and when it expires it is not; `n` never does. The key of one letter in
/// seven bytes stands for those that anonymised traces have.
const TRACE: &str = "\
100,b,7,0,0,get,0
100,b,7,40,0,set,10
101,n,1,20,0,add,0
101,n,1,20,0,add,60
108,b,7,0,0,gets,0
109,b,7,2,0,append,60

110,b,7,0,0,get,0
110,b,7,8,0,replace,60
111,n,1,0,0,incr,0
112,d,1,9,0,set,60
112,d,1,0,0,delete,0
112,d,1,9,0,cas,60
113,n,1,0,0,get,0\r
";

fn replayed(shown: &str) -> Value {
    assert_eq!(shown.lines().count(), 1, "{shown}");
    let report = json(shown);
    assert_eq!(report["broken"], json("[]"));
    assert_eq!(
        [
            &report["expired_returned"],
            &report["live_missed"],
            &report["wrong_answers"]
        ],
        [0, 0, 0]
    );
    report
}
