//! Goal: nothing that a command leaves can be reached by others, whatever the umask is; but for files that the user names for
//! a result, which have the rights that he chose. Method: every command that the help lists, under a umask that forbids
//! nothing; then a walk over all that is there.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use super::named::commands;
use super::*;

/// With those below they are all that there are.
const COMMANDS: [&str; 30] = [
    "import db c lines --key id",
    "import db c lines --key id --sorted",
    "put db c k v --ttl 600",
    "touch db c k",
    "delete db c k0",
    "delete-range db c --from k1 --to k2",
    "ttl db c 60",
    "quota db c 9000000",
    "expire db c --all --dry-run",
    "checkpoint db copy",
    "backup db store",
    "put db c later v",
    "backup db store",
    "backup ledger db store",
    "backup prove store",
    "restore store restored",
    "restore store above/was --at 1 --as-it-was",
    "put restored c k w",
    "backup prune store --keep 1",
    "compact db",
    "clear db c --yes",
    "drop db c --yes",
    "upgrade db",
    "repair damaged --yes",
    "export restored c out-lines",
    "report restored -o out-page.html",
    "doc create documents shop/carts --key /user",
    "doc put documents shop/carts {\"id\":\"c-1\",\"user\":\"ada\"}",
    "demo demo --seconds 2",
    "replay trace replayed",
];

/// They print, and write nothing: nor does `serve`, without its feature.
const READING: [&str; 16] = [
    "backups",
    "changes",
    "cluster",
    "completions",
    "containers",
    "count",
    "get",
    "help",
    "keys",
    "man",
    "scan",
    "serve",
    "stats",
    "top",
    "verify",
    "why",
];

fn below(path: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            below(&entry.path(), found);
        }
        found.push(entry.path());
    }
}

fn mode(path: &Path) -> u32 {
    let found = std::fs::symlink_metadata(path).unwrap();
    found.permissions().mode() & 0o7777
}

/// Runs a command under a umask.
fn run_under(world: &World, umask: &str, args: &(impl Words + ?Sized)) -> Ran {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("umask {umask} && exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_ebbtide"))
        .args(args.words())
        .current_dir(world.folder.path())
        .env("TMPDIR", world.folder.path())
        .stdin(Stdio::null());
    Ran::of(command.output().unwrap())
}

#[test]
fn what_commands_leave_is_its_owners() {
    let world = World::new();
    let line = |n| format!("{{\"id\":\"k{n:03}\",\"v\":\"{}\"}}\n", "x".repeat(300));
    let lines: String = (0..100).map(line).collect();
    world.write("lines", &lines);
    world.write("trace", "1,k,1,10,1,set,0\n2,k,1,10,1,get,0\n");
    world.ok("put damaged c k v");
    world.told("compact damaged");
    let table = std::fs::read_dir(world.path("damaged/tables"))
        .unwrap()
        .next();
    std::fs::write(table.unwrap().unwrap().path(), "no table").unwrap();
    let given: BTreeSet<PathBuf> = ["lines", "trace"].map(|name| world.path(name)).into();

    let mut run: BTreeSet<String> = READING.map(str::to_owned).into();
    for command in COMMANDS {
        let ran = run_under(&world, "000", command);
        assert!([0, 3].contains(&ran.status), "{command}: {}", ran.err);
        run.insert(command.words()[0].to_owned());
    }
    let help = world.ok("help");
    let listed: BTreeSet<String> = commands(&help).into_iter().map(str::to_owned).collect();
    assert!(listed.len() > 20, "{listed:?}");
    assert_eq!(
        listed.difference(&run).next(),
        None,
        "a command that was not run"
    );

    let mut found = vec![];
    below(world.folder.path(), &mut found);
    found.retain(|path| !given.contains(path));
    let (results, own): (Vec<&PathBuf>, Vec<&PathBuf>) = found.iter().partition(|path| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("out")
    });
    for path in &own {
        assert_eq!(mode(path) & 0o077, 0, "{:o} {}", mode(path), path.display());
    }
    for made in [
        "store/objects",
        "restored/tables",
        "above/was",
        "copy/tables",
        "damaged/lost",
        "demo",
        "documents",
        "replayed",
    ] {
        assert!(own.contains(&&world.path(made)), "{made} of {own:?}");
    }
    // The user's umask forbids nobody anything.
    assert_eq!(results.len(), 2, "{results:?}");
    assert!(
        results.iter().all(|path| mode(path) == 0o666),
        "{results:?}"
    );
}

#[test]
fn a_result_has_the_rights_of_the_file_that_it_replaces() {
    let world = World::new();
    world.ok("put db c k v");
    world.write("out", "as it was");
    let set = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(world.path("out"), set).unwrap();
    for args in ["export db c out", "report db -o out"] {
        let ran = run_under(&world, "000", args);
        assert_eq!(
            (ran.status, mode(&world.path("out"))),
            (0, 0o640),
            "{}",
            ran.err
        );
    }
    let ran = run_under(&world, "027", &["export", "db", "c", "new"]);
    assert_eq!(
        (ran.status, mode(&world.path("new"))),
        (0, 0o640),
        "{}",
        ran.err
    );
}

#[test]
fn a_store_that_others_could_read_is_its_owners_after_a_backup() {
    let world = World::new();
    world.ok("put db c k v");
    world.told("backup db store");
    let mut made = vec![world.path("store")];
    below(&world.path("store"), &mut made);
    std::fs::write(world.path("store/notes"), "mine").unwrap();
    for path in &made {
        let all = if path.is_dir() { 0o777 } else { 0o666 };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(all)).unwrap();
    }
    let notes = mode(&world.path("store/notes"));
    world.told("backup db store");
    for path in &made[1..] {
        assert_eq!(mode(path) & 0o077, 0, "{}", path.display());
    }
    assert_eq!(mode(&made[0]), 0o755);
    assert_eq!(mode(&world.path("store/notes")), notes);
}
