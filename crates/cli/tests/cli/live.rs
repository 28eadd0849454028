//! Goal: while a service has the database open and listens on its control socket, the command changes, compacts and copies, with
//! the outputs and exit statuses that it has elsewhere. Method: this program again, as a process that serves
//! ([`a_process_that_serves`]), is asked by lines what its own reads find, and the command is run beside it.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::Arc;

use ebbtide::{ControlEvent, EventListener};

use super::*;

/// The folder that it serves.
const DIR: &str = "EBBTIDE_TEST_SERVES";
/// Where it is set, without a control socket.
const SILENT: &str = "EBBTIDE_TEST_SILENT";

/// In the place of a key: it closes the database, and goes on listening.
const CLOSE: &str = "close, please";

/// Prints what it is told.
struct Prints;

impl EventListener for Prints {
    fn on_control(&self, control: &ControlEvent) {
        say(&format!("{} {:?}", control.request, control.error));
    }
}

/// The lines of the test harness are not these.
fn say(what: &str) {
    println!("\nserves: {what}");
}

/// No test where it is run as one: the service of those below. Reads keys of the container `c`, and says what it finds.
#[test]
fn a_process_that_serves() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let options = ebbtide::Options::new().listener(Arc::new(Prints));
    let db = options.open(dir).unwrap();
    let c = db.container("c").unwrap();
    let listens = std::env::var_os(SILENT).is_none();
    let _control =
        listens.then(|| ebbtide_control::listen(&db, ebbtide_control::Options::new()).unwrap());
    say("ready");
    for key in std::io::stdin().lines() {
        let key = key.unwrap();
        if key == CLOSE {
            db.close().unwrap();
            say("closed");
            continue;
        }
        let found = c.get(key).unwrap();
        say(&format!(
            "{:?}",
            found.map(|value| String::from_utf8(value.to_vec()).unwrap())
        ));
    }
}

struct Serving {
    child: Child,
    keys: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
    /// Events that were said among answers.
    events: Vec<String>,
}

impl Serving {
    fn of(world: &World, dir: &str, listens: bool) -> Serving {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "live::a_process_that_serves",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(DIR, world.path(dir))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if !listens {
            command.env(SILENT, "1");
        }
        let mut child = command.spawn().unwrap();
        let mut serving = Serving {
            keys: child.stdin.take(),
            said: BufReader::new(child.stdout.take().unwrap()),
            child,
            events: vec![],
        };
        assert_eq!(serving.next(), "ready");
        serving
    }

    fn next(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "it has ended");
            if let Some(said) = line.strip_prefix("serves: ") {
                return said.trim_end().to_owned();
            }
        }
    }

    /// The value that the service itself finds under a key.
    fn reads(&mut self, key: &str) -> Option<String> {
        writeln!(self.keys.as_ref().unwrap(), "{key}").unwrap();
        loop {
            let said = self.next();
            match said.strip_prefix("Some(\"") {
                Some(value) => return Some(value.strip_suffix("\")").unwrap().to_owned()),
                None if said == "None" => return None,
                None => self.events.push(said),
            }
        }
    }

    #[track_caller]
    fn is_told(&mut self, event: &str) {
        while !self.events.iter().any(|told| told == event) {
            let said = self.next();
            self.events.push(said);
        }
    }

    fn end(mut self) {
        drop(self.keys.take());
        assert!(self.child.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn retention_is_changed_while_the_service_runs() {
    let world = World::new();
    let mut service = Serving::of(&world, "db", true);
    for key in ["a", "b", "d"] {
        world.ok(&["put", "db", "c", key, key]);
        assert_eq!(service.reads(key).as_deref(), Some(key));
    }
    world.ok("put db c short v --ttl 1h");
    world.ok("ttl db c 7d");
    service.is_told("ttl c 7d None");
    let beside = world.run("get db c a");
    assert_eq!((beside.status, beside.out.as_slice()), (0, b"a".as_slice()));
    let beside = world.run("ttl db c");
    assert_eq!(
        (beside.status, beside.out.as_slice()),
        (0, b"604800\n".as_slice())
    );
    // As without a service: a question, and then at once.
    let why = world.run_with_input("expire db c --before +2h", b"");
    let would = why.failed(2);
    assert!(
        would.starts_with("nothing was changed: --yes would expire about 1 item, "),
        "{would}"
    );
    let told = world.told("expire db c --before +2h --yes");
    assert!(told.starts_with("\"c\" expired: about 1 item, "), "{told}");
    assert_eq!(
        (service.reads("short"), service.reads("a")),
        (None, Some("a".to_owned()))
    );
    sleep(Duration::from_millis(1_100));
    let told = world.told("ttl db c 1 --yes");
    assert!(told.starts_with("\"c\" expired: about 3 items, "), "{told}");
    assert_eq!(service.reads("a"), None);
    world.ok("ttl db c off");
    // A quota is kept by the service, which writes for the command.
    world.ok("quota db c 1KiB");
    let why = world.fails(2, &["put", "db", "c", "k", &"v".repeat(2_000)]);
    assert!(why.starts_with("container \"c\" is full: "), "{why}");
    service.end();
    assert_eq!(world.ok("quota db c"), "1024 refuse\n");
    assert_eq!(world.ok("ttl db c"), "off\n");
}

#[test]
fn items_are_written_while_the_service_runs_as_without_it() {
    let commands: [&[&str]; 14] = [
        &["put", "db", "c", "k", "v", "--json"],
        &["put", "db", "c", "other", "v", "--ttl", "-1", "--sync"],
        &["touch", "db", "c", "k"],
        &["touch", "db", "c", "missing"],
        &["touch", "db", "c", "6b", "--hex"],
        &["touch", "db", "c", "00", "--hex"],
        &["delete", "db", "c", "k", "--json"],
        &["delete", "db", "c", "k", "--json"],
        &["delete", "db", "sea", "k"],
        &["put", "db", "c", "", "v"],
        &["put", "db", "a/b", "k", "v"],
        &["import", "db", "c", "lines", "--key", "id", "--keep-times"],
        &["delete-range", "db", "c", "--prefix", "i-", "--json"],
        &["clear", "db", "c", "--yes"],
    ];
    let outcomes = |served: bool| {
        let world = World::new();
        let at = now_seconds() - 100;
        let line = |n: u32| {
            format!(
                "{{\"_key\":\"i-{n}\",\"_ts\":{at},\"_ts_ms\":{at}000,\"id\":\"i-{n}\",\"ttl\":{}}}\n",
                50 + n
            )
        };
        world.write("lines", &(0..100).map(line).collect::<String>());
        world.ok("put db c first v");
        let service = served.then(|| Serving::of(&world, "db", true));
        let ran = |args: &&[&str]| {
            let Ran { status, out, err } = world.run(*args);
            (args.join(" "), status, String::from_utf8(out).unwrap(), err)
        };
        let ran = commands.iter().map(ran).collect::<Vec<_>>();
        service.into_iter().for_each(Serving::end);
        (ran, world.ok("scan db c"))
    };
    assert_eq!(outcomes(true), outcomes(false));
}

#[test]
fn it_is_compacted_and_copied_while_the_service_runs() {
    let world = World::new();
    for run in 0..3 {
        world.ok(&["put", "db", "c", &format!("{run}"), "v"]);
    }
    let mut service = Serving::of(&world, "db", true);
    world.ok("put db c new v");
    let said = world.told("compact db");
    assert!(
        said.starts_with("on disk ") && said.ends_with("runs left: 1"),
        "{said}"
    );
    service.is_told("compact None");
    let both = json(&world.ok("compact db --json"));
    assert_eq!(both["after"]["live_items"], 4);
    let made = world.told("backup db store");
    assert!(made.starts_with("backup 1 of db in store: "), "{made}");
    assert_eq!(world.told("checkpoint db copy"), "checkpoint of db in copy");
    let copy = world.path("copy").canonicalize().unwrap();
    service.is_told(&format!("checkpoint {} None", copy.display()));
    world.told("expire db c --all --yes");
    assert_eq!(
        world.told("backup ledger db store"),
        "ledger 2 of db in store"
    );
    for (dir, items) in [("restored", "0\n"), ("was", "4\n")] {
        let as_it_was = if dir == "was" {
            &["--as-it-was"][..]
        } else {
            &[]
        };
        let restore = ["restore", "store", dir, "--at", "1"];
        world.told(&[&restore, as_it_was].concat());
        assert_eq!(world.ok(&["count", dir, "c"]), items);
        assert!(!world.path(dir).join("control.sock").exists());
    }
    assert_eq!(world.ok("count copy c"), "4\n");
    assert!(!world.path("db.ebbtide-scratch").exists());
    // The socket is nobody's file where all files are looked at.
    for args in ["verify db", "stats db --disk", "containers db"] {
        let ran = world.run(args);
        assert_eq!(ran.status, 0, "{args:?}: {}", ran.err);
    }
    service.kill();
    assert!(world.path("db/control.sock").exists());
    for args in ["verify db", "stats db --disk", "repair db"] {
        world.ok(args);
    }
    let shown = json(&world.ok("report db --text --json"));
    assert!(shown.is_object());
}

#[test]
fn a_killed_service_is_in_nobodys_way() {
    let world = World::new();
    let service = Serving::of(&world, "db", true);
    world.ok("put db c before v");
    service.kill();
    assert!(world.path("db/control.sock").exists());
    // The command owns the database, whatever the folder has.
    world.ok("put db c between v");
    let mut service = Serving::of(&world, "db", true);
    assert_eq!(service.reads("before").as_deref(), Some("v"));
    assert_eq!(service.reads("between").as_deref(), Some("v"));
    world.ok("put db c after v");
    assert_eq!(service.reads("after").as_deref(), Some("v"));
    service.end();
    assert!(!world.path("db/control.sock").exists());
    // And one that does not listen beside such a socket.
    Serving::of(&world, "db", true).kill();
    let service = Serving::of(&world, "db", false);
    let why = world.fails(2, "put db c k v");
    assert!(why.contains("listens on no control socket"), "{why}");
    service.end();
}

#[test]
fn two_services_are_asked_each_by_its_folder() {
    let world = World::new();
    let mut first = Serving::of(&world, "first", true);
    let mut second = Serving::of(&world, "second", true);
    world.ok("put first c k 1");
    world.ok("put second c k 2 --wait 600");
    assert_eq!(first.reads("k").as_deref(), Some("1"));
    assert_eq!(second.reads("k").as_deref(), Some("2"));
    first.end();
    second.end();
}

#[test]
fn of_a_service_that_does_not_listen_the_process_is_named() {
    let world = World::new();
    let service = Serving::of(&world, "db", false);
    let process = if cfg!(target_os = "linux") {
        format!(", in process {}", service.child.id())
    } else {
        String::new()
    };
    assert_eq!(
        world.fails(2, "ttl db c 7d"),
        format!(
            "db is open elsewhere{process}, which listens on no control socket (its program opens one by \
             `ebbtide_control::listen`): end it, or --wait TIME"
        )
    );
    assert_eq!(
        world.fails(2, "repair db --yes"),
        format!("db is open elsewhere{process}, and this needs it closed: end it, or --wait TIME")
    );
    service.end();
}

#[test]
fn what_needs_the_database_for_itself_says_so() {
    let world = World::new();
    world.write("lines", "{\"id\":\"a\"}\n{\"id\":\"b\"}\n");
    let mut service = Serving::of(&world, "db", true);
    let why = world.fails(2, "import db c lines --key id --sorted");
    assert!(
        why.starts_with("--sorted loads straight into tables"),
        "{why}"
    );
    assert_eq!(service.reads("a"), None);
    let why = world.fails(2, "upgrade db");
    assert!(why.contains("and this needs it closed"), "{why}");
    service.end();
}

#[test]
fn the_lock_says_who_may_listen() {
    let world = World::new();
    let mut service = Serving::of(&world, "db", true);
    writeln!(service.keys.as_ref().unwrap(), "{CLOSE}").unwrap();
    while service.next() != "closed" {}
    let next = ebbtide::Database::open(world.path("db")).unwrap();
    let _control = ebbtide_control::listen(&next, ebbtide_control::Options::new()).unwrap();
    world.ok("put db c k v");
    // The one that has closed it leaves, and takes nothing with it.
    service.end();
    assert_eq!(next.container("c").unwrap().get("k").unwrap().unwrap(), "v");
    world.ok("put db c k w");
    assert_eq!(next.container("c").unwrap().get("k").unwrap().unwrap(), "w");
}

/// Answers every connection by these bytes, for ever.
fn answers(socket: &Path, by: &'static str) {
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            let _ = BufReader::new(&stream).read_line(&mut line);
            let _ = stream.write_all(by.as_bytes());
        }
    });
}

#[test]
fn where_the_service_makes_no_copy_it_is_made_beside_it() {
    let world = World::new();
    let db = ebbtide::Database::open(world.path("db")).unwrap();
    db.container("c").unwrap().put("k", "v").unwrap();
    answers(
        &world.path("db/control.sock"),
        "{\"failed\":{\"refused\":\"cannot create\"}}\n",
    );
    let beside = "db is open in another process: read beside it, as it is now";
    for args in ["backup db store", "checkpoint db copy"] {
        let ran = world.run(args);
        assert_eq!(
            (ran.status, ran.err.lines().next()),
            (0, Some(beside)),
            "{}",
            ran.err
        );
    }
    assert_eq!(world.ok("get copy c k"), "v");
    // A folder that is taken is refused once.
    assert_eq!(world.fails(2, "checkpoint db copy"), "cannot create");
}

#[test]
fn a_service_that_makes_no_sense_is_an_error() {
    for (said, why) in [
        (
            "",
            "did not answer (it left): whether it has done what was asked is not known",
        ),
        ("{\"done\":\"do", "did not answer (EOF while parsing"),
        ("{\"failed\":{\"not_found\":\"no\"}}\n", "no"),
    ] {
        let world = World::new();
        let _db = ebbtide::Database::open(world.path("db")).unwrap();
        answers(&world.path("db/control.sock"), said);
        let status = if why == "no" { 1 } else { 2 };
        let told = world.fails(status, &["delete", "db", "c", "k"]);
        assert!(told.contains(why), "{told}");
    }
}
