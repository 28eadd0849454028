//! Goal: a command that a signal ends leaves nothing half made, and ends by that signal. Method: the built program, which is
//! sent a signal when the file that it writes is there; one that was faster has more to do the next time.

use rustix::process::{Pid, Signal, kill_process};

use super::*;

/// The names in a folder but for those of databases and input.
fn made(world: &World) -> Vec<String> {
    let entries = std::fs::read_dir(world.folder.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("out")).collect()
}

/// Runs a command that writes a file beside `out`, and interrupts it; whether that ended it.
fn interrupt(world: &World, args: &[&str], signal: Signal) -> bool {
    let mut command = world.command(args);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut status = None;
    wait_until("a file is written, or the end", || {
        status = child.try_wait().unwrap();
        status.is_some() || made(world).iter().any(|name| name != "out")
    });
    if status.is_none() {
        kill_process(Pid::from_child(&child), signal).unwrap();
    }
    let status = child.wait().unwrap();
    assert!(
        status.success() || status.signal() == Some(signal.as_raw()),
        "{status}"
    );
    !status.success()
}

#[test]
fn an_export_that_is_interrupted_leaves_no_file() {
    let world = World::new();
    let mut items = 0;
    for signal in [Signal::INT, Signal::TERM] {
        for more in 1.. {
            let line = |n| format!("{{\"id\":\"{n:08}\",\"v\":\"{}\"}}\n", "x".repeat(1_000));
            let lines: String = (items..items + 10_000).map(line).collect();
            items += 10_000;
            world.write("lines", &lines);
            world.told("import db c lines --key id --sorted");
            world.write("out", "as it was");
            let is_interrupted = interrupt(&world, &["export", "db", "c", "out"], signal);
            assert_eq!(made(&world), ["out"]);
            if is_interrupted {
                assert_eq!(
                    std::fs::read(world.path("out")).unwrap(),
                    b"as it was",
                    "{more}"
                );
                break;
            }
            assert!(
                more < 20,
                "{items} items are exported before a signal comes"
            );
        }
    }
}

/// Runs a command, interrupts it once `has_begun`, and expects that this ended it.
fn interrupt_when(world: &World, args: &[&str], signal: Signal, has_begun: impl Fn() -> bool) {
    let mut command = world.command(args);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    wait_until("it is at work", &has_begun);
    kill_process(Pid::from_child(&child), signal).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(signal.as_raw()), "{args:?}: {status}");
}

/// Method: a rate at which the command takes minutes, interrupted when it writes or reads the first large object.
#[test]
fn a_backup_or_a_restore_that_is_interrupted_is_in_nobodys_way() {
    let names = |world: &World, folder: &str| -> Vec<String> {
        let entries = std::fs::read_dir(world.path(folder)).into_iter().flatten();
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> = entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let world = World::new();
    let line = |n| format!("{{\"id\":\"{n:08}\",\"v\":\"{}\"}}\n", "x".repeat(1_000));
    let lines: String = (0..1_000).map(line).collect();
    world.write("lines", &lines);
    world.told("import db c lines --key id --sorted");
    let none: [String; 0] = [];
    for signal in [Signal::INT, Signal::TERM] {
        let backup = ["backup", "db", "store", "--rate", "5000"];
        interrupt_when(&world, &backup, signal, || {
            !names(&world, "store/tmp").is_empty() && !names(&world, "store/objects").is_empty()
        });
        for folder in ["store/leases", "store/tmp"] {
            assert_eq!(names(&world, folder), none, "{folder}");
        }
        assert_eq!(names(&world, "."), ["db", "lines", "store"]);
    }
    world.told("backup db store");
    for signal in [Signal::INT, Signal::TERM] {
        let restore = ["restore", "store", "to", "--rate", "5000"];
        interrupt_when(&world, &restore, signal, || {
            !names(&world, "to.ebbtide-scratch").is_empty()
        });
        assert_eq!(names(&world, "store/leases"), none);
        assert_eq!(names(&world, "."), ["db", "lines", "store"]);
    }
    world.told("backup prune store --keep 1");
    world.told("restore store to");
    assert_eq!(world.ok("count to c").trim(), "1000");
}
