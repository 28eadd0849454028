//! Goal: databases that older builds have written are read whole, and continued in the format of this build.
//!
//! Method: tests/golden/format-N.txt has a database each of format 6, 7, 8 and 9 of the manifest (of 6 and of 7 of the log), written by builds of these
//! formats and then killed, so that part of it is in the log alone. As both were filled by one program, what is in them is
//! computed here. Each file of a folder is a line `file LENGTH NAME`, and the rows of 48 bytes in it that are not all zero:
//! offset and bytes, hexadecimal.

use std::fs;
use std::path::Path;

use ebbtide::{Container, Database, DefaultTtl, Error, ManualClock, Options};
use testkit::stage::{ms, seconds};

/// When the databases were begun, and how long after that they were last written to, in milliseconds.
const BEGUN: u64 = 1_767_225_600_000;
const LASTED: u64 = 1_060_000;

const GOLDEN: [(u32, &str); 4] = [
    (6, include_str!("../golden/format-6.txt")),
    (7, include_str!("../golden/format-7.txt")),
    (8, include_str!("../golden/format-8.txt")),
    (9, include_str!("../golden/format-9.txt")),
];

fn unpack(golden: &str, dir: &Path) {
    let mut files: Vec<(&str, Vec<u8>)> = vec![];
    for line in golden.lines() {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().unwrap();
        match word() {
            "file" => {
                let len = word().parse().unwrap();
                files.push((word(), vec![0; len]));
            }
            offset => {
                let at = usize::from_str_radix(offset, 16).unwrap();
                let hex = word().as_bytes().chunks(2);
                let bytes = hex.map(|two| std::str::from_utf8(two).unwrap());
                let bytes = bytes.map(|two| u8::from_str_radix(two, 16).unwrap());
                let file = &mut files.last_mut().unwrap().1;
                bytes.zip(&mut file[at..]).for_each(|(byte, to)| *to = byte);
            }
        }
    }
    for (name, bytes) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn options() -> Options {
    Options::new().clock(ManualClock::new(BEGUN + LASTED))
}

/// Keys, values, and the seconds from the beginning to the end; none: no end.
type Items = Vec<(String, String, Option<u64>)>;

fn items(c: &Container) -> Items {
    let shown = c.iter().map(|item| {
        let item = item.unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let end = item.expires_at().map(|end| {
            let end = end.duration_since(std::time::UNIX_EPOCH).unwrap();
            (end - ms(BEGUN)).as_secs()
        });
        (text(item.key()), text(item.value()), end)
    });
    shown.collect()
}

/// The items that the program wrote that filled them, as they are when it ended.
fn expected(format: u32, prefix: &str) -> Items {
    let mut items = vec![];
    for n in 0..60 {
        let written = if n < 30 { 0 } else { 60 };
        let end = match n % 3 {
            0 if prefix == "z" => Some(written + 7_200),
            0 | 1 => None,
            _ => Some(written + n * 100),
        };
        // From format 7 on there is a command to expire what ends before 2 000 s.
        let bound = match (format, prefix) {
            (7.., "p") => 2_000,
            _ => LASTED / 1_000 + 1,
        };
        let is_deleted = prefix == "p" && matches!(n, 0 | 10..13 | 31..33);
        if is_deleted || end.is_some_and(|end| end < bound) {
            continue;
        }
        let value = match (prefix, n) {
            ("p", 1) => "written anew".to_owned(),
            ("p", _) => format!("plain value {n}"),
            _ => format!("squeezed squeezed squeezed value {n}"),
        };
        items.push((format!("{prefix}{n:03}"), value, end));
    }
    if prefix == "z" {
        let end = Some(LASTED / 1_000 + 1_000_000);
        items.push(("z100".to_owned(), "in the log".to_owned(), end));
    }
    items
}

#[track_caller]
fn check(db: &Database, format: u32) {
    assert_eq!(db.containers(), ["lz4", "plain"]);
    let (plain, lz4) = (db.container("plain").unwrap(), db.container("lz4").unwrap());
    assert_eq!(items(&plain), expected(format, "p"), "format {format}");
    assert_eq!(items(&lz4), expected(format, "z"), "format {format}");
    assert_eq!(plain.default_ttl(), DefaultTtl::NoDefault);
    let two_hours = seconds(7_200);
    assert_eq!(lz4.default_ttl(), DefaultTtl::After(two_hours));
    // From format 8 on there are limits.
    let limit = (format >= 8).then_some(1 << 20);
    let quotas = [plain.quota(), lz4.quota()].map(|quota| quota.map(|quota| quota.max_live_bytes));
    assert_eq!(quotas, [limit, None]);
}

/// The versions in the headers of manifest and log.
fn versions(dir: &Path) -> (u32, Vec<u32>) {
    let version = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        u32::from_le_bytes(bytes[8..12].try_into().unwrap())
    };
    let named = |dir: &Path, part: &str| {
        let entries = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut paths: Vec<_> = entries
            .filter(|path| path.file_name().unwrap().to_str().unwrap().contains(part))
            .collect();
        paths.sort();
        paths
    };
    let manifests = named(dir, "manifest-");
    let segments = named(&dir.join("wal"), ".wal");
    (
        version(manifests.last().unwrap()),
        segments.iter().map(|path| version(path)).collect(),
    )
}

/// Every file and its bytes.
fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = vec![];
    for folder in ["", "tables", "wal", "copy"] {
        for entry in fs::read_dir(dir.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                all.push((path.display().to_string(), fs::read(path).unwrap()));
            }
        }
    }
    all.sort();
    all
}

#[test]
fn older_formats_are_read_without_a_change() {
    for (format, golden) in GOLDEN {
        let folder = tempfile::tempdir().unwrap();
        unpack(golden, folder.path());
        assert_eq!(versions(folder.path()), (format, vec![format.min(7)]));
        let before = contents(folder.path());
        check(
            &options().read_only(true).open(folder.path()).unwrap(),
            format,
        );
        check(&options().follow(folder.path()).unwrap(), format);
        assert!(contents(folder.path()) == before, "nothing was written");
    }
}

#[test]
fn older_formats_are_continued_in_this_one() {
    for (format, golden) in GOLDEN {
        let folder = tempfile::tempdir().unwrap();
        unpack(golden, folder.path());
        let db = options().open(folder.path()).unwrap();
        check(&db, format);
        check(&options().follow(folder.path()).unwrap(), format);
        db.compact().unwrap();
        check(&db, format);
        db.container("plain").unwrap().put("new", "item").unwrap();
        db.close().unwrap();
        let db = options().open(folder.path()).unwrap();
        let plain = db.container("plain").unwrap();
        assert_eq!(plain.get("new").unwrap().unwrap(), "item");
        plain.delete("new").unwrap();
        check(&db, format);
    }
}

#[test]
fn upgrading_leaves_the_version_of_this_build() {
    for (format, golden) in GOLDEN {
        let folder = tempfile::tempdir().unwrap();
        unpack(golden, folder.path());
        let refused = options().read_only(true).upgrade(folder.path());
        assert!(matches!(refused, Err(Error::ReadOnly)));
        let done = options().upgrade(folder.path()).unwrap();
        assert_eq!((done.from, done.to), (format, 10));
        let (manifest, log) = versions(folder.path());
        assert_eq!(manifest, 10);
        assert!(log.iter().all(|version| *version == 8), "{log:?}");
        check(&options().open(folder.path()).unwrap(), format);
        let again = options().upgrade(folder.path()).unwrap();
        assert_eq!((again.from, again.to), (10, 10));
    }
}

#[test]
fn a_version_that_does_not_fit_is_named_and_nothing_is_made_over_it() {
    for (version, advice) in [
        (5u8, "`ebbtide upgrade` of a build in between"),
        (11, "use a newer build"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        unpack(GOLDEN[1].1, folder.path());
        for name in ["manifest-000001", "copy/000001.manifest"] {
            let path = folder.path().join(name);
            let mut bytes = fs::read(&path).unwrap();
            bytes[8] = version;
            let crc = crc32fast::hash(&bytes[..12]).to_le_bytes();
            bytes[12..16].copy_from_slice(&crc);
            fs::write(&path, bytes).unwrap();
        }
        let before = contents(folder.path());
        let opened = options().open(folder.path()).map(drop);
        let upgraded = options().upgrade(folder.path()).map(drop);
        for error in [opened.unwrap_err(), upgraded.unwrap_err()] {
            let told = error.to_string();
            assert!(
                told.contains(&format!("has format version {version}")),
                "{told}"
            );
            assert!(told.contains("10") && told.contains(advice), "{told}");
        }
        assert!(contents(folder.path()) == before, "nothing was written");
    }
}

#[test]
fn what_is_no_database_is_not_made_one() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path(), &folder.path().join("none")] {
        let refused = options().upgrade(path);
        assert!(matches!(refused, Err(Error::NotFound { .. })));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let of_another = folder.path().join("letter.txt");
    fs::write(&of_another, "Dear Ada").unwrap();
    options().upgrade(folder.path()).unwrap_err();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
