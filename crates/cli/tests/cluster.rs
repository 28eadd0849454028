//! Goal: three nodes, each a process that the command has started, are one cluster: `ebbtide cluster` tells and changes its members,
//! also after the node that led was killed. Method: run the built program on loopback, and read what it prints and answers.

// clippy.toml keeps the library away from the world; these tests look at it from outside.
#![allow(clippy::disallowed_methods)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;
use testkit::patience::wait_until;

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebbtide"));
    command.args(args).current_dir(folder).stdin(Stdio::null());
    command
}

/// A process that serves, killed with the test.
struct Serving {
    child: Child,
    dir: String,
    node: String,
    http: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that nobody listens at; the system gives it to no other socket soon.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

impl Serving {
    fn start(folder: &Path, dir: &str, node: &str, more: &[&str]) -> Serving {
        let mut args = vec!["serve", dir, "--cluster", node, "--http", "127.0.0.1:0"];
        args.extend(more);
        let mut command = command(folder, &args);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut url).unwrap();
        let http = url.trim().trim_start_matches("http://");
        Serving {
            child,
            dir: dir.to_owned(),
            node: node.to_owned(),
            http: http.trim_end_matches('/').to_owned(),
        }
    }

    /// The status and the body of an answer.
    fn get(&self, path: &str) -> (u16, String) {
        ask(&self.http, "GET", path, "")
    }
}

/// The status and the body of an answer.
fn ask(http: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(http).unwrap();
    let head = format!(
        "host: localhost\r\nconnection: close\r\ncontent-length: {}",
        body.len()
    );
    write!(stream, "{method} {path} HTTP/1.1\r\n{head}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap();
    (status.parse().unwrap(), body.to_owned())
}

struct World(tempfile::TempDir);

impl World {
    fn run(&self, args: &[&str]) -> Output {
        command(self.0.path(), args).output().unwrap()
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        let err = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{args:?}: {err}");
        String::from_utf8(ran.stdout).unwrap()
    }

    #[track_caller]
    fn fails(&self, status: i32, args: &[&str]) -> String {
        let ran = self.run(args);
        let err = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(
            (ran.status.code(), ran.stdout.len()),
            (Some(status), 0),
            "{err}"
        );
        assert_eq!(err.lines().count(), 1, "{err}");
        err
    }

    fn status(&self, of: &Serving) -> Value {
        let text = self.ok(&["cluster", "status", &of.dir, "--json"]);
        serde_json::from_str(&text).unwrap()
    }

    /// The address of the node that leads, if one does.
    fn leader(&self, of: &Serving) -> Option<String> {
        let ran = self.run(&["cluster", "leader", &of.dir]);
        let text = String::from_utf8(ran.stdout).unwrap();
        Some(text.trim().split_once('\t')?.1.to_owned())
    }

    fn wait_for_leader(&self, of: &Serving, is_it: impl Fn(&str) -> bool) -> String {
        let mut leader = None;
        wait_until("a node leads", || {
            leader = self.leader(of).filter(|leader| is_it(leader));
            leader.is_some()
        });
        leader.unwrap()
    }
}

fn roles(status: &Value) -> Vec<&str> {
    let members = status["members"].as_array().unwrap().iter();
    let mut roles: Vec<&str> = members.map(|m| m["role"].as_str().unwrap()).collect();
    roles.sort_unstable();
    roles
}

fn of<'s>(nodes: &'s [Serving], address: &str) -> &'s Serving {
    nodes.iter().find(|node| node.node == address).unwrap()
}

#[test]
fn three_processes_are_a_cluster_that_loses_its_leader_and_goes_on() {
    let world = World(testkit::scratch());
    let folder = world.0.path();
    let first = Serving::start(folder, "1", &free_address(), &[]);
    let contact = first.node.clone();
    let added = world.ok(&["cluster", "add", "1"]);
    assert!(
        added.trim().ends_with(&format!("--join {contact}")),
        "{added}"
    );
    let mut nodes = vec![first];
    for dir in ["2", "3", "4"] {
        nodes.push(Serving::start(
            folder,
            dir,
            &free_address(),
            &["--join", &contact],
        ));
    }
    let status = world.status(&nodes[3]);
    assert_eq!(roles(&status), ["leader", "voter", "voter", "voter"]);
    assert!(
        status["members"]
            .as_array()
            .unwrap()
            .iter()
            .all(|m| m["trouble"].is_null())
    );
    wait_until("all say that they speak the newest format", || {
        let status = world.status(&nodes[1]);
        let members = status["members"].as_array().unwrap();
        status["format"] == 2 && members.iter().all(|m| m["speaks"] == 2)
    });
    let table = world.ok(&["cluster", "status", "2"]);
    assert!(
        table.lines().count() == 6
            && table.starts_with("ID ")
            && table.ends_with("\nThe log is of format 2.\n"),
        "{table}"
    );
    for node in &nodes {
        wait_until("the node is ready", || node.get("/readyz").0 == 200);
        assert_eq!(node.get("/healthz").0, 200);
        let (_, told) = node.get("/_cluster");
        assert_eq!(
            serde_json::from_str::<Value>(&told).unwrap()["cluster"],
            status["cluster"]
        );
        let (_, figures) = node.get("/metrics");
        assert!(
            figures.contains("\nebbtide_cluster_voters 4\n"),
            "{figures}"
        );
    }

    // One that goes for good, by its address.
    let gone = nodes.pop().unwrap();
    world.ok(&["cluster", "remove", "1", &gone.node]);
    assert_eq!(
        roles(&world.status(&nodes[0])),
        ["leader", "voter", "voter"]
    );
    let unknown = world.fails(1, &["cluster", "remove", "1", &gone.node]);
    assert!(unknown.contains("cluster status"), "{unknown}");
    wait_until("who was taken out says so", || {
        let (code, why) = gone.get("/readyz");
        code == 503 && why.contains("was taken out")
    });
    let table = world.ok(&["cluster", "status", &gone.dir]);
    let own = table
        .lines()
        .find(|line| line.contains(&gone.node))
        .unwrap();
    assert!(
        own.contains(" removed ") && own.contains("was taken out"),
        "{table}"
    );
    assert!(
        table.contains(" voter ") || table.contains(" leader "),
        "{table}"
    );
    drop(gone);

    let led = world.wait_for_leader(&nodes[0], |_| true);
    let next = nodes
        .iter()
        .find(|node| node.node != led)
        .unwrap()
        .node
        .clone();
    world.ok(&["cluster", "leader", "1", &next]);
    assert_eq!(world.wait_for_leader(of(&nodes, &next), |_| true), next);

    // Dropped: killed, as by kill -9.
    let place = nodes.iter().position(|node| node.node == next).unwrap();
    let killed = nodes.remove(place);
    let (dir, address) = (killed.dir.clone(), killed.node.clone());
    drop(killed);
    let heir = world.wait_for_leader(&nodes[0], |leader| leader != address);
    let status = world.status(of(&nodes, &heir));
    let members = status["members"].as_array().unwrap();
    let lost = members.iter().find(|m| m["address"] == *address).unwrap();
    assert!(
        lost["applied"].is_null() && lost["trouble"].is_string(),
        "{status}"
    );
    assert_eq!(members.len(), 3);
    wait_until("the rest is ready", || {
        nodes.iter().all(|node| node.get("/readyz").0 == 200)
    });

    // The folder goes on as the member that it is.
    nodes.push(Serving::start(folder, &dir, &address, &[]));
    wait_until("who came back is ready", || {
        nodes[2].get("/readyz").0 == 200
    });
    assert_eq!(
        roles(&world.status(&nodes[2])),
        ["leader", "voter", "voter"]
    );
    for node in &mut nodes {
        let stop = Command::new("kill")
            .arg(node.child.id().to_string())
            .status();
        assert!(stop.unwrap().success() && node.child.wait().unwrap().success());
    }
    let unheard = world.fails(2, &["cluster", "status", "1"]);
    assert!(unheard.contains("ebbtide serve 1 --cluster"), "{unheard}");
}

/// Writes and reads at one node all the time, until it is dropped.
struct Load {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    fn at(node: &Serving) -> Load {
        let (http, is_over) = (node.http.clone(), Arc::new(AtomicBool::new(false)));
        assert_eq!(ask(&http, "POST", "/dbs", r#"{"id":"d"}"#).0, 201);
        let carts = r#"{"id":"c","partitionKey":{"paths":["/id"]},"defaultTtl":8}"#;
        assert_eq!(ask(&http, "POST", "/dbs/d/colls", carts).0, 201);
        let ends = is_over.clone();
        let thread = std::thread::spawn(move || {
            for n in 0.. {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let cart = format!(r#"{{"id":"{n}"}}"#);
                ask(&http, "POST", "/dbs/d/colls/c/docs", &cart);
                ask(&http, "GET", "/dbs/d/colls/c", "");
            }
        });
        Load {
            is_over,
            thread: Some(thread),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let thread = self.thread.take();
        let _ = thread.map(JoinHandle::join);
    }
}

fn row<'s>(status: &'s Value, of: &Serving) -> &'s Value {
    let members = status["members"].as_array().unwrap();
    members.iter().find(|m| m["address"] == *of.node).unwrap()
}

#[test]
fn top_shows_what_each_node_of_a_cluster_does() {
    let world = World(testkit::scratch());
    let folder = world.0.path();
    let first = Serving::start(folder, "1", &free_address(), &[]);
    let contact = first.node.clone();
    let mut nodes = vec![first];
    for dir in ["2", "3"] {
        nodes.push(Serving::start(
            folder,
            dir,
            &free_address(),
            &["--join", &contact],
        ));
    }
    let load = Load::at(&nodes[1]);
    let top = || -> Value {
        serde_json::from_str(&world.ok(&["top", "3", "--once", "--json", "--every", "200ms"]))
            .unwrap()
    };
    wait_until("the load is seen where it is", || {
        let status = top();
        let rate = |of: &Serving, what: &str| row(&status, of)[what].as_f64();
        let is_busy = ["writes_per_second", "reads_per_second", "ends_per_second"]
            .map(|what| rate(&nodes[1], what) > Some(0.0));
        // Nobody asks the others; what they apply is no write of theirs, and it ends there, too.
        let is_idle = rate(&nodes[0], "writes_per_second") == Some(0.0);
        is_busy == [true; 3] && is_idle && rate(&nodes[0], "ends_per_second") > Some(0.0)
    });
    let status = top();
    assert_eq!(roles(&status), ["leader", "voter", "voter"]);
    for node in &nodes {
        let row = row(&status, node);
        for figure in ["term", "applied", "live_items", "live_bytes", "disk_bytes"] {
            assert!(row[figure].as_u64() > Some(0), "{figure}: {row}");
        }
        for figure in ["lag", "behind_seconds", "overdue_seconds"] {
            assert!(row[figure].as_f64() >= Some(0.0), "{figure}: {row}");
        }
    }
    let frame = world.ok(&["top", "1", "--once"]);
    let lines: Vec<&str> = frame.lines().collect();
    assert!(
        lines[0].starts_with("cluster ") && lines[0].contains(&contact),
        "{frame}"
    );
    let header = "ADDRESS ROLE TERM APPLIED LAG BEHIND WRITES/S READS/S ENDS/S LIVE DISK OVERDUE";
    assert_eq!(
        lines[1].split_whitespace().collect::<Vec<_>>().join(" "),
        header
    );
    assert_eq!(lines.len(), 5, "{frame}");

    drop(load);
    let killed = nodes.pop().unwrap();
    let address = killed.node.clone();
    drop(killed);
    let frame = world.ok(&["top", "1", "--once"]);
    let lost: Vec<&str> = frame
        .lines()
        .filter(|line| line.contains(&address))
        .collect();
    assert!(lost.len() == 2 && lost[0].contains(" - "), "{frame}");
    assert!(lost[1].starts_with(&format!("{address}: ")), "{frame}");

    let why = world.fails(2, &["top", "1"]);
    assert!(why.contains("--once"), "{why}");
    world.fails(2, &["top", "1", "--json"]);
    let unheard = world.fails(2, &["top", "3", "--once"]);
    assert!(unheard.contains("ebbtide serve 3 --cluster"), "{unheard}");
}

#[test]
fn a_database_is_no_node_and_a_node_no_database() {
    let world = World(testkit::scratch());
    let folder = world.0.path();
    let address = free_address();
    let node = Serving::start(folder, "n", &address, &[]);
    // The usual address of HTTP may be another program's.
    let serve = |dir: &str, cluster: &str| {
        world.fails(
            2,
            &["serve", dir, "--http", "127.0.0.1:0", "--cluster", cluster],
        )
    };
    let taken = serve("n", &free_address());
    assert!(taken.contains("node"), "{taken}");
    let listened_on = serve("m", &address);
    assert!(listened_on.contains(&address), "{listened_on}");
    world.fails(2, &["put", "n", "c", "k", "v"]);
    let open = serve("other", "192.0.2.1:7421");
    assert!(open.contains("--cluster-cert"), "{open}");
    // It joins once it can be asked, and not before.
    let late = free_address();
    let args = ["serve", "late", "--cluster", &late, "--join", &address];
    let unasked = world.fails(2, &[&args[..], &["--http", &node.http]].concat());
    assert!(unasked.contains(&node.http), "{unasked}");
    assert_eq!(roles(&world.status(&node)), ["leader"]);
    drop(node);
    world.ok(&["put", "db", "c", "k", "v"]);
    let held = serve("db", &address);
    assert!(held.contains("holds other things"), "{held}");
    assert_eq!(world.ok(&["get", "db", "c", "k"]), "v");
    let none = world.fails(2, &["cluster", "status", "db"]);
    assert!(none.contains("no node of db runs"), "{none}");
}
