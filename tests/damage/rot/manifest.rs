//! The manifest and its copy, each alone and both together.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ebbtide::internals::{ByteReader, Fs, Sim, read_frame, repair_with, verify_in};
use ebbtide::{ContainerOptions, DefaultTtl, Error, Reads};

use super::images::{Author, DB, Image, files, image_on, images, options};
use super::{Damage, Tally, each, kind_of, read, repair};

/// The manifest goes, or rots, at every moment of a life, and all comes back by its copy; both go, and nothing does.
#[test]
fn a_lost_manifest_comes_back_from_its_copy() {
    for image in images() {
        let disk = image.disk.kill();
        let remove = |kind: &str| {
            for (path, _) in files(&image)
                .iter()
                .filter(|(path, _)| kind_of(path) == kind)
            {
                disk.remove(path).unwrap();
            }
        };
        remove("manifest");
        let repaired = disk.kill();
        let plain = options(&repaired, image.now, Reads::Map);
        let report = repair_with(&image.folder, &plain, true).unwrap();
        assert_eq!(report.losses.len(), 1, "{:?}", report.losses);
        let reading = read(&image, &repaired, Reads::Map, None).unwrap();
        assert!(reading.met.is_none(), "{}: {:?}", image.name, reading.met);
        assert!(image.states.contains(&reading.state), "{}", image.name);
        remove("copy");
        let plain = options(&disk, image.now, Reads::Map);
        let error = repair_with(&image.folder, &plain, true).unwrap_err();
        assert!(error.is_corruption(), "{error}");
    }
}

/// A database whose process is killed when this edit has been acknowledged, with nothing behind it.
fn killed_after(edit: &'static str) -> Image {
    let mut author = Author::new();
    for name in ["plain", "dropped", "turned"] {
        let off = ContainerOptions::new().default_ttl(DefaultTtl::Off);
        author.db.container_with(name, off).unwrap();
        author.fill(name, "a", 9);
    }
    match edit {
        "create" => drop(author.container("last")),
        "flush" => author.db.flush().unwrap(),
        // The log stays, for the others.
        "flush of one" => {
            author.fill("plain", "c", 40);
            assert!(author.db.step().unwrap());
        }
        "merge" => {
            author.db.flush().unwrap();
            author.fill("plain", "a", 9);
            author.db.flush().unwrap();
            author.db.compact().unwrap();
        }
        "drop" => {
            assert!(author.db.drop_container("dropped").unwrap());
            author.gone("dropped", "");
        }
        _ => {
            let short = DefaultTtl::After(Duration::from_millis(1));
            author.container("turned").set_default_ttl(short).unwrap();
            author.advance(1);
            for key in ["a00", "a03", "a06"] {
                author.gone("turned", key);
            }
        }
    }
    author.durable();
    author.keep(edit, DB);
    author.images.pop().unwrap()
}

/// Where the last frame of a manifest starts.
fn last_frame(manifest: &[u8]) -> usize {
    let mut reader = ByteReader::new(manifest);
    reader.bytes(16).unwrap();
    let mut start = 0;
    while !reader.is_empty() {
        start = reader.offset();
        read_frame(&mut reader).unwrap();
    }
    start
}

/// An acknowledged edit lies in the manifest and in its copy. Damage of the one is seen by the other: it is never taken for
/// the torn tail of a power cut, nothing is removed for it, and a repair brings back all.
#[test]
fn the_last_edit_of_a_manifest_is_not_lost_unnoticed() {
    for edit in ["create", "flush", "merge", "drop", "default"] {
        let image = killed_after(edit);
        let found = files(&image);
        let of_kind = |kind: &str| {
            let mut of_kind = found.iter().filter(|(path, _)| kind_of(path) == kind);
            of_kind.next().unwrap().clone()
        };
        let (manifest, bytes) = of_kind("manifest");
        assert_eq!(bytes, of_kind("copy").1, "{edit}");
        let last = last_frame(&bytes)..bytes.len();
        let mut damages: Vec<Damage> = last.clone().map(|len| Damage::Cut { len }).collect();
        let masks = if each().is_some() { 0..8 } else { 0..1 };
        damages.extend(last.flat_map(|at| {
            let mask = move |bit: usize| 1u8 << ((at + bit) % 8);
            masks.clone().map(move |bit| Damage::Flip {
                at,
                mask: mask(bit),
            })
        }));
        for (n, damage) in damages.iter().enumerate() {
            let disk = damage.apply(&image, &manifest, &bytes).unwrap();
            let damaged = files(&image_on(&image, &disk));
            let names_manifest = |error: &Error| matches!(error, Error::Corruption { path, .. } if *path == manifest);
            for read_only in [true, false] {
                let options = options(&disk, image.now, Reads::Map).read_only(read_only);
                match options.open(DB) {
                    Err(error) => assert!(names_manifest(&error), "{edit}, {damage:?}: {error}"),
                    Ok(_) => panic!("{edit}, {damage:?}: it opens, read only: {read_only}"),
                }
            }
            let report = verify_in(Arc::new(disk.clone()), Path::new(DB), &mut |_, _| {}).unwrap();
            let [fault] = &report.faults[..] else {
                panic!("{edit}, {damage:?}: {:?}", report.faults)
            };
            assert!(names_manifest(fault), "{edit}, {damage:?}: {fault}");
            let unchanged = files(&image_on(&image, &disk)) == damaged;
            assert!(unchanged, "{edit}, {damage:?}: nothing is removed");
            // A repair makes the same of it whichever byte it was.
            if n % 32 == 0 {
                let mut tally = Tally::default();
                let repaired = repair(&image, &disk, "manifest", &mut tally);
                repaired.unwrap_or_else(|fault| panic!("{edit}, {damage:?}: {fault}"));
                assert_eq!(tally.lost_records, 0, "{edit}, {damage:?}");
            }
        }
        // The copy's own damage is nobody's loss. What no crash leaves there `verify` finds.
        let (copy, bytes) = of_kind("copy");
        for (n, damage) in damages.iter().enumerate() {
            let disk = damage.apply(&image, &copy, &bytes).unwrap();
            if matches!(damage, Damage::Flip { .. }) {
                let [_, verified, repaired] = said(&image, &disk);
                assert!(verified.is_some(), "{edit}, {damage:?}");
                assert_eq!(verified, repaired, "{edit}, {damage:?}");
            }
            if n % 32 == 0 {
                let reading = read(&image, &disk, Reads::Map, None).unwrap();
                let met = &reading.met;
                assert!(met.is_none(), "{edit}, {damage:?}: {met:?}");
                assert!(image.states.contains(&reading.state), "{edit}, {damage:?}");
            }
        }
    }
}

/// The first words of an open, `verify` and a repair about damage; `None`: nothing.
fn said(image: &Image, disk: &Sim) -> [Option<String>; 3] {
    let options = options(disk, image.now, Reads::Map);
    let opened = options.clone().read_only(true).open(&image.folder);
    let verified = verify_in(Arc::new(disk.clone()), &image.folder, &mut |_, _| {});
    let repaired = repair_with(&image.folder, &options, false);
    [
        opened.err(),
        verified.map_or_else(Some, |report| report.faults.first().cloned()),
        repaired.map_or_else(Some, |report| {
            report.losses.first().map(|loss| loss.fault.clone())
        }),
    ]
    .map(|error| error.map(|error| error.to_string()))
}

/// Neither side knows the last edit whole any more: that is no torn tail, which a sound copy would confirm. All say the
/// same, a repair goes on without the edit and tells, and refuses where something went with it.
#[test]
fn a_last_edit_that_no_copy_confirms_is_damage() {
    let (mut refused, mut repaired) = (0, 0);
    for edit in [
        "create",
        "flush",
        "flush of one",
        "merge",
        "drop",
        "default",
    ] {
        let image = killed_after(edit);
        let of_kind = |image: &Image, kind: &str| {
            let mut found = files(image).into_iter();
            found.find(|(path, _)| kind_of(path) == kind).unwrap()
        };
        let (manifest, bytes) = of_kind(&image, "manifest");
        let copy = of_kind(&image, "copy").0;
        let others = of_kind(
            &killed_after(if edit == "drop" { "create" } else { "drop" }),
            "copy",
        );
        let last = last_frame(&bytes);
        let copies: [(&str, Option<Vec<u8>>); 4] = [
            ("missing", None),
            ("another's", Some(others.1)),
            // Whole up to the last edit it would confirm that this was never acknowledged.
            (
                "two edits behind",
                Some(bytes[..last_frame(&bytes[..last])].to_vec()),
            ),
            ("damaged before the last edit", {
                let mut bytes = bytes.clone();
                bytes[last - 1] ^= 1;
                Some(bytes)
            }),
        ];
        let at = (last + bytes.len()) / 2;
        for damage in [
            Damage::Cut { len: last + 1 },
            Damage::Cut { len: at },
            Damage::Flip { at, mask: 4 },
        ] {
            for (how, copied) in &copies {
                let what = format!("{edit}, {damage:?}, the copy is {how}");
                let disk = damage.apply(&image, &manifest, &bytes).unwrap();
                disk.remove(&copy).unwrap();
                if let Some(copied) = copied {
                    disk.create(&copy).unwrap().write_at(0, copied).unwrap();
                }
                let before = files(&image_on(&image, &disk));
                let [opened, verified, planned] = said(&image, &disk);
                let opened = opened.unwrap_or_else(|| panic!("{what}: it opens"));
                let name = manifest.display().to_string();
                assert!(opened.starts_with(&name), "{what}: {opened}");
                assert_eq!(
                    [Some(&opened); 2],
                    [verified.as_ref(), planned.as_ref()],
                    "{what}"
                );
                assert!(options(&disk, image.now, Reads::Map).open(DB).is_err());
                assert!(files(&image_on(&image, &disk)) == before, "{what}");
                match repair_with(Path::new(DB), &options(&disk, image.now, Reads::Map), true) {
                    Ok(report) => {
                        let faults = report.losses.iter().map(|loss| loss.fault.to_string());
                        let mut gone = faults.filter(|fault| fault.contains("missing"));
                        assert_eq!(gone.next(), None, "{what}: goes by an edit that is undone");
                        assert_eq!(said(&image, &disk), [None, None, None], "{what}");
                        repaired += 1;
                    }
                    Err(error) => {
                        assert_eq!(error.to_string(), opened, "{what}");
                        assert!(opened.ends_with("restore a checkpoint"), "{what}");
                        assert!(files(&image_on(&image, &disk)) == before, "{what}");
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(refused > 0 && repaired > 0, "{refused} {repaired}");
}

/// The copy of an earlier moment: what the log has seen since is in none of them.
#[test]
fn an_old_copy_alone_is_beyond_repair_for_all() {
    let images = images();
    let mut tried = 0;
    for (n, image) in images
        .iter()
        .enumerate()
        .filter(|(_, image)| image.folder == Path::new(DB))
    {
        let [manifest, copy] = ["manifest", "copy"].map(|kind| {
            let mut found = files(image).into_iter();
            found.find(|(path, _)| kind_of(path) == kind).unwrap().0
        });
        for older in &images[..n] {
            let Ok(bytes) = older.disk.read(&copy) else {
                continue;
            };
            let disk = image.disk.kill();
            disk.remove(&manifest).unwrap();
            disk.remove(&copy).unwrap();
            disk.create(&copy).unwrap().write_at(0, &bytes).unwrap();
            let [opened, verified, repaired] = said(image, &disk);
            let opened = opened.expect("there is no manifest");
            assert_eq!([Some(&opened); 2], [verified.as_ref(), repaired.as_ref()]);
            let is_behind = opened.contains("the log has seen edit");
            tried += usize::from(is_behind);
            let options = options(&disk, image.now, Reads::Map);
            match repair_with(Path::new(DB), &options, true) {
                Ok(_) => assert_eq!(said(image, &disk), [None, None, None]),
                Err(error) => assert!(is_behind && error.to_string() == opened, "{error}"),
            }
        }
    }
    assert!(tried > 0);
}
