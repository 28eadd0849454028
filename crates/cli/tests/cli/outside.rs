//! The world around the program: readers that leave, disks that are full, words that are wrong.

use super::named::commands;
use super::*;

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let world = World::new();
    let lines: String = (0..20_000)
        .map(|n| format!("{{\"id\":{n},\"text\":\"some text\"}}\n"))
        .collect();
    world.write("in.jsonl", &lines);
    world.told("import db c in.jsonl --key id");
    for command in ["scan db c", "export db c"] {
        let mut child = world
            .command(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        Ran::of(child.wait_with_output().unwrap()).ok();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written_is_one_line_and_an_error() {
    let full = || {
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let world = World::new();
    world.ok("put db c k v");
    world.write("t.csv", TRACE);
    for command in [
        "get db c k",
        "get db c k --json",
        "scan db c",
        "export db c",
        "containers db",
        "stats db",
        "ttl db c",
        "verify db",
        "report db",
        "compact db --json",
        "keys db c",
        "count db c",
        "completions zsh",
        "man get",
        "replay t.csv",
        "help",
    ] {
        let ran = Ran::of(world.command(command).stdout(full()).output().unwrap());
        assert_eq!(
            ran.failed(2),
            "cannot write standard output: No space left on device (os error 28)",
            "{command:?}"
        );
    }
    // The status says it where the line cannot.
    for (command, status) in [("get db c missing", 1), ("fetch", 2)] {
        let ran = Ran::of(world.command(command).stderr(full()).output().unwrap());
        assert_eq!(ran.status, status, "{command:?}");
    }
}

#[test]
fn wrong_use_is_said_in_one_line() {
    let world = World::new();
    for (args, word) in [
        ("", "which command?"),
        (
            "fetch",
            "unrecognized subcommand 'fetch'; see `ebbtide help`",
        ),
        (
            "stat db",
            "'stat' (a similar subcommand exists: 'stats'); see",
        ),
        ("put db c", "<KEY> <VALUE>; see `ebbtide help put`"),
        ("get db c k --wait -1", "'-1' for '--wait"),
        ("get db c k more", "unexpected argument 'more'"),
        ("scan db c --limit -1", "'--limit <N>'"),
        ("put db c k v --ttl", "a value is required"),
        ("demo --seconds 1", "1 is not in 2..=86400"),
        ("demo --seconds 2d", "2d is not in 2..=86400"),
        ("top db --every 9ms", "9ms is not in 100ms..=1h"),
        (
            "changes db --follow --every 2h",
            "2h is not in 10ms..=1h; see `ebbtide help changes`",
        ),
        (
            "scan db c --limit x",
            "it is no whole number; see `ebbtide help scan`",
        ),
        (
            "quota db c 0",
            "quota \"0\" is not allowed: bytes from 1 to 2^62",
        ),
        ("man putt", "there is no command \"putt\"; is it \"put\"?"),
        (
            "backup prun store",
            "there is no database in prun; is it \"prune\"?",
        ),
        ("put db c k v --tll 1", "similar argument exists: '--ttl'"),
    ] {
        let why = world.fails(2, args);
        assert!(why.contains(word), "{why}");
    }
    assert_eq!(std::fs::read_dir(world.folder.path()).unwrap().count(), 0);
    assert!(world.ok("help").contains("Exit status"));
    assert!(world.ok("put --help").contains("--ttl"));
    assert!(world.ok("--version").starts_with("ebbtide "));
}

#[test]
fn shells_and_manuals_are_told_of_every_command() {
    let world = World::new();
    let commands = ["put", "delete-range", "checkpoint", "completions"];
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = world.ok(&["completions", shell]);
        assert!(
            commands.iter().all(|command| script.contains(command)),
            "{shell}"
        );
    }
    world.fails(2, "completions cmd.exe");
    let page = world.ok("man");
    assert!(
        page.contains(".TH ebbtide 1") && page.contains("Exit status"),
        "{page}"
    );
    assert!(page.contains("ebbtide\\-put(1)"), "{page}");
    let page = world.ok("man delete-range");
    assert!(
        page.contains(".TH ebbtide-delete-range 1") && page.contains("prefix"),
        "{page}"
    );
    let why = world.fails(2, "man fetch");
    assert_eq!(
        why,
        "there is no command \"fetch\"; `ebbtide help` lists them"
    );
}

#[test]
fn help_fits_a_terminal() {
    let world = World::new();
    let whole = world.ok("--help");
    let names = commands(&whole);
    assert!(names.len() > 30, "each has one line: {names:?}");
    for name in names {
        let told = world.ok(&["help", name]);
        assert!(
            name == "help" || told.contains(&format!("Example:\n  ebbtide {name} ")),
            "{told}"
        );
        for line in world.ok(&["help", name]).lines().chain(whole.lines()) {
            assert!(line.chars().count() <= 80, "{name}: {line}");
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_reader_that_is_gone_from_the_start_is_no_error() {
    let world = World::new();
    world.ok("put db c k v");
    for command in [
        "get db c k",
        "keys db c",
        "count db c",
        "stats db",
        "verify db",
        "report db",
        "completions bash",
        "man",
        "--help",
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = Ran::of(world.command(command).stdout(writer).output().unwrap());
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{command:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_folder_that_cannot_be_written_is_one_line() {
    let world = World::new();
    let file = world.path("file");
    world.write("file", "no folder");
    std::os::unix::fs::symlink("gone", world.path("dangling")).unwrap();
    world.ok("put there c k v");
    assert!(
        world
            .fails(2, "put dangling c k v")
            .contains("a symbolic link stands where a folder should be")
    );
    for command in [
        "put file c k v",
        "get file c k",
        "checkpoint db file",
        "put dangling c k v",
        "backup there file",
        "backup there dangling",
        "put /proc/ebbtide c k v",
        "put file/below c k v",
    ] {
        let ran = world.run(command);
        assert_eq!(
            (ran.status, ran.err.lines().count()),
            (2, 1),
            "{command:?}: {}",
            ran.err
        );
    }
    assert_eq!(std::fs::read(file).unwrap(), b"no folder");
    assert!(!world.path("gone").exists());
    // Standard error may be gone, too.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    world.ok("put db c k v");
    let ran = Ran::of(world.command("compact db").stderr(writer).output().unwrap());
    assert_eq!(ran.status, 0);
}
