//! A server that is killed, or told to end, under writes: what it acknowledged is there at the next start.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::client::Client;

fn spawn(folder: &Path) -> (Child, Client) {
    let text = serde_json::json!({ "dir": folder.join("db"), "http": "127.0.0.1:0", "log-level": "error" });
    spawn_as(&folder.join("serve.json"), &text)
}

/// The server as a process of its own: this test program again, which finds its configuration in the environment.
pub fn spawn_as(config: &Path, text: &serde_json::Value) -> (Child, Client) {
    std::fs::write(config, text.to_string()).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "killed::the_server_itself",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env("EBBTIDE_TEST_CONFIG", config)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = lines.find_map(|line| {
        line.unwrap()
            .strip_prefix("http://")
            .map(|url| url.trim_end_matches('/').to_string())
    });
    let client = Client(url.expect("it listens").parse().unwrap());
    // The rest of its output is read, so that it never waits for a reader.
    std::thread::spawn(move || lines.count());
    (child, client)
}

/// A service manager listens, and passes its socket: the shell makes it the third descriptor, as systemd does.
#[test]
fn a_socket_is_taken_from_the_service_manager() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.json");
    // Nothing can listen there: the socket comes first.
    let text = serde_json::json!({ "dir": folder.path().join("db"), "http": "127.0.0.1:1", "log-level": "error" });
    std::fs::write(&config, text.to_string()).unwrap();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client(socket.local_addr().unwrap());
    let pass = "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\"";
    let mut child = Command::new("sh")
        .args(["-c", pass])
        .arg(std::env::current_exe().unwrap())
        .args([
            "killed::the_server_itself",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env("EBBTIDE_TEST_CONFIG", &config)
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(socket)))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The connection waits in the socket's queue until the server takes it.
    client.get("/healthz", &[]).is(200);
    client.post("/dbs", r#"{"id":"shop"}"#, &[]).is(201);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

/// No test: what [`spawn`] runs.
#[test]
#[ignore = "the other tests run it as a process"]
fn the_server_itself() {
    let Some(path) = std::env::var_os("EBBTIDE_TEST_CONFIG") else {
        return;
    };
    let config = ebbtide_server::Config::from_file(Path::new(&path)).unwrap();
    ebbtide_server::serve(&config, |url| println!("\n{url}")).unwrap();
}

/// Writes from four threads until the process ends; of each thread, how many documents were acknowledged.
fn write_until_the_end(client: Client, round: u32, end: impl FnOnce()) -> Vec<u64> {
    let stop = AtomicBool::new(false);
    let acknowledged: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for (thread, count) in acknowledged.iter().enumerate() {
            let stop = &stop;
            scope.spawn(move || {
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let body = format!("{{\"id\":\"{round}-{thread}-{n}\",\"pk\":\"a\"}}");
                    let reply = std::panic::catch_unwind(|| client.create("c", &body));
                    match reply {
                        Ok(reply) if reply.status == 201 => count.store(n + 1, Ordering::Relaxed),
                        _ => return,
                    }
                }
            });
        }
        while acknowledged
            .iter()
            .any(|count| count.load(Ordering::Relaxed) < 20)
        {
            std::thread::yield_now();
        }
        end();
        stop.store(true, Ordering::Relaxed);
    });
    acknowledged
        .iter()
        .map(|count| count.load(Ordering::Relaxed))
        .collect()
}

fn check(client: Client, rounds: &[Vec<u64>]) {
    for (round, counts) in rounds.iter().enumerate() {
        for (thread, count) in counts.iter().enumerate() {
            for n in 0..*count {
                assert_eq!(
                    client.read("c", &format!("{round}-{thread}-{n}")).status,
                    200,
                    "{round}-{thread}-{n} of {count}"
                );
            }
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_to_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut rounds = Vec::new();
    for round in 0..4 {
        let (mut child, client) = spawn(folder.path());
        if round == 0 {
            client.post("/dbs", r#"{"id":"shop"}"#, &[]);
            client.container("c", "");
        }
        check(client, &rounds);
        let counts = write_until_the_end(client, round, || child.kill().unwrap());
        child.wait().unwrap();
        rounds.push(counts);
    }
    let (mut child, client) = spawn(folder.path());
    check(client, &rounds);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_signal_ends_the_server_within_seconds_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, client) = spawn(folder.path());
    client.post("/dbs", r#"{"id":"shop"}"#, &[]);
    client.container("c", "");
    let mut took = Duration::ZERO;
    let counts = write_until_the_end(client, 0, || {
        let began = Instant::now();
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success());
        took = began.elapsed();
    });
    // The promise is 5 s; a busy machine may be slower than it.
    assert!(took < Duration::from_secs(30), "{took:?}");
    let (mut child, client) = spawn(folder.path());
    check(client, &[counts]);
    child.kill().unwrap();
    child.wait().unwrap();
}
