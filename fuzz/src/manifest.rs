//! The manifest: any bytes, and any edits under right checksums; and what opening makes of them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ebbtide::internals::{Catalogue, Fs, Sim, parse_manifest, put_frame};
use ebbtide::{Batch, Database, DefaultTtl, ManualClock, Options, Ttl};

use super::input::Input;
use super::log::forge;

const PATH: &str = "/db/manifest-000001";
const NOW: u64 = 1_772_366_400_000;

/// Bytes of a manifest, or the lines of its edits.
pub fn manifest(data: &[u8]) {
    let mut input = Input::new(data);
    let cut = usize::from(input.u16());
    let bytes = match input.flag() {
        false => input.rest().to_vec(),
        true => seal(input.rest()),
    };
    let Some((catalogue, torn)) = parse(&bytes) else {
        return;
    };
    // Told anew it is the same, but for what an older build did not note.
    let edit = catalogue.to_edit();
    let line = serde_json::to_vec(&edit).expect("an edit is JSON");
    let told = parse(&seal(&line)).map(|(told, torn)| (told.to_edit(), torn));
    assert_eq!(told, Some((edit, false)));
    let Some(end) = bytes.len().checked_sub(1 + cut % bytes.len()) else {
        return;
    };
    if let Some((earlier, _)) = parse(&bytes[..end]) {
        assert!(torn || earlier.edit <= catalogue.edit);
    }
}

/// A database whose manifest goes on with these changes, one a line, in JSON; `$0` to `$9` stand for its tables. Or one
/// whose log says what the input wants. It opens and can be used, or it says what is damaged.
pub fn open(data: &[u8]) {
    let mut input = Input::new(data);
    let sim = template().kill();
    let (path, bytes) = manifest_of(&sim);
    let (catalogue, _) = parse(&bytes).expect("it is whole");
    if input.flag() {
        let log = catalogue.log.expect("it has one");
        let path = format!("/db/wal/{:06}.wal", log.first);
        // Of another log it is refused at once.
        let identity = [log.chain, input.u64()][usize::from(input.below(8) == 0)];
        replace(
            &sim,
            Path::new(&path),
            &forge(&mut input, identity, log.first, 0),
        );
    } else {
        let mark = input.any_size();
        let lines = edits(&catalogue, mark, &String::from_utf8_lossy(input.rest()));
        replace(
            &sim,
            &path,
            &[bytes, seal(lines.as_bytes())[16..].to_vec()].concat(),
        );
    }
    match options(&sim).open("/db") {
        Ok(db) => use_all(&db),
        Err(error) => drop(error.to_string()),
    }
}

fn manifest_of(sim: &Sim) -> (PathBuf, Vec<u8>) {
    let names = sim.list(Path::new("/db")).expect("the folder is there");
    let mut names = names.iter().filter(|name| name.starts_with("manifest-"));
    let path = Path::new("/db").join(names.next().expect("a database has a manifest"));
    let bytes = sim.read(&path).expect("it is there");
    (path, bytes)
}

fn replace(sim: &Sim, path: &Path, bytes: &[u8]) {
    let file = sim.open(path).expect("it is there");
    file.truncate(0).expect("nothing fails here");
    file.write_at(0, bytes).expect("nothing fails here");
}

/// Edits, one a line, that follow the last one of `catalogue`.
fn edits(catalogue: &Catalogue, mark: u64, changes: &str) -> String {
    let mut changes = changes.to_owned();
    let runs = catalogue
        .containers
        .values()
        .flat_map(|container| &container.runs);
    for (n, table) in runs.flat_map(|run| &run.tables).take(10).enumerate() {
        let table = serde_json::to_string(table).expect("plain numbers");
        changes = changes.replace(&format!("${n}"), &table);
    }
    let numbered = (catalogue.edit + 1..).zip(changes.lines());
    let lines = numbered.map(|(number, changes)| {
        format!(r#"{{"number":{number},"mark":{mark},"changes":[{changes}]}}"#)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Reads, writes and compacts, whatever comes of it.
pub(super) fn use_all(db: &Database) {
    for name in db.containers() {
        let container = db.container(&name).expect("it was listed");
        for _ in container.iter().take_while(Result::is_ok) {}
        for _ in container.iter().rev().take_while(Result::is_ok) {}
        drop(container.stats());
        let _ = container.put("key", "value");
        let _ = container.set_default_ttl(DefaultTtl::NoDefault);
    }
    let _ = db.compact();
    for _ in 0..20 {
        if !matches!(db.step(), Ok(true)) {
            break;
        }
    }
    let _ = db.close();
}

fn parse(bytes: &[u8]) -> Option<(Catalogue, bool)> {
    match parse_manifest(Path::new(PATH), bytes) {
        Ok(found) => Some(found),
        Err(error) => {
            assert!(error.is_corruption(), "{error}");
            None
        }
    }
}

/// A manifest of these edits, one a line.
fn seal(lines: &[u8]) -> Vec<u8> {
    let mut bytes = b"EBBTIDEM\x07\0\0\0".to_vec();
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    for line in lines.split(|&byte| byte == b'\n') {
        put_frame(&mut bytes, line);
    }
    bytes
}

pub(super) fn options(sim: &Sim) -> Options {
    Options::new()
        .fs(Arc::new(sim.clone()))
        .clock(ManualClock::new(NOW))
        .memtable_bytes(4096)
        .sizes(256, 4096, 4096)
        .stepped()
}

/// A killed database with two containers, tables, range deletes and a log.
pub(super) fn template() -> &'static Sim {
    static TEMPLATE: OnceLock<Sim> = OnceLock::new();
    TEMPLATE.get_or_init(|| build_template().expect("nothing fails here"))
}

fn build_template() -> ebbtide::Result<Sim> {
    let sim = Sim::new(7);
    let db = options(&sim).open("/db")?;
    let (a, b) = (db.container("a")?, db.container("b")?);
    a.set_default_ttl(DefaultTtl::NoDefault)?;
    for n in 0..40u32 {
        let ttl = [Ttl::Inherit, Ttl::After(std::time::Duration::from_secs(60))][n as usize % 2];
        a.put_with_ttl(format!("key{n:02}"), vec![n as u8; 100], ttl)?;
        if n % 10 == 9 {
            db.flush()?;
        }
    }
    a.delete_range("key05".."key08")?;
    let mut batch = Batch::new();
    batch.put(&a, "last", "of a").put(&b, "first", "of b");
    db.write(&batch)?;
    Ok(sim.kill())
}
