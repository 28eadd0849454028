//! Goal: whatever is damaged, the answer is right or names the damage, `verify` finds what a reader would meet, and a
//! repair restores no item that was deleted, expired, replaced or dropped, and every sound one that the lost records
//! cannot have hidden.
//!
//! Method: small databases with every kind of file and record are in memory, at several moments of their histories. For
//! each damage a copy is changed: a bit, a length, a sector, a file of the same name. The copy is verified; opened and
//! read in every way, before and after a compaction; and repaired and read. The right contents are known.
//!
//! Default: a slice, the same every time, and the ends of some files. `EBBTIDE_ROT=n`: n damages of each kind to every
//! file; `EBBTIDE_ROT=all`: every bit, every length, every pair of sectors near each other. `EBBTIDE_SECONDS=n`: damages at
//! random from `EBBTIDE_SEED` on, for so long.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebbtide::internals::{Fs, Sim, repair_with, verify_in};
use ebbtide::{Error, Loss, Reads};
use testkit::random::Random;

mod images;
mod manifest;

use images::{ContainerKey, DB, Image, State, files, image_on, images, options};

#[derive(Clone, Debug)]
enum Damage {
    Flip { at: usize, mask: u8 },
    Cut { len: usize },
    Zero { sector: usize },
    Swap { sectors: (usize, usize) },
    Replace { by: PathBuf },
    Older,
    Remove,
}

const SECTOR: usize = 512;

impl Damage {
    /// The file's bytes then; `None` when the damage changes nothing.
    fn bytes(&self, image: &Image, path: &Path, before: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = before.to_vec();
        let sector = |n: usize| n * SECTOR..((n + 1) * SECTOR).min(before.len());
        match self {
            Damage::Flip { at, mask } => bytes[*at] ^= mask,
            Damage::Cut { len } => bytes.truncate(*len),
            Damage::Zero { sector: n } => bytes[sector(*n)].fill(0),
            Damage::Swap { sectors: (a, b) } => {
                let (a, b) = (sector(*a), sector(*b));
                let len = a.len().min(b.len());
                bytes[a.start..a.start + len].copy_from_slice(&before[b.start..b.start + len]);
                bytes[b.start..b.start + len].copy_from_slice(&before[a.start..a.start + len]);
            }
            Damage::Replace { by } => bytes = image.disk.read(by).unwrap(),
            Damage::Older => bytes = image.older.as_ref()?.read(path).ok()?,
            Damage::Remove => return Some(vec![]),
        }
        (bytes != before).then_some(bytes)
    }

    fn apply(&self, image: &Image, path: &Path, before: &[u8]) -> Option<Sim> {
        let bytes = self.bytes(image, path, before)?;
        let disk = image.disk.kill();
        disk.remove(path).unwrap();
        if !matches!(self, Damage::Remove) {
            disk.create(path).unwrap().write_at(0, &bytes).unwrap();
        }
        Some(disk)
    }
}

fn must_name_damage(error: &Error, folder: &Path) -> Result<(), String> {
    testkit::plain(error)?;
    match error {
        Error::Corruption { path, .. } if path.starts_with(folder) => Ok(()),
        Error::Poisoned { cause } => must_name_damage(cause, folder),
        other => Err(format!("the error does not name the damage: {other}")),
    }
}

/// The results of reading everything.
#[derive(Default)]
struct WholeRead {
    /// By gets alone.
    state: State,
    /// Containers of which a get failed.
    failed: BTreeSet<String>,
    /// The first error, which named the damage; the rest was read nevertheless.
    met: Option<Error>,
    opened: bool,
    /// A part of the log that was synced is lost.
    log_is_lost: bool,
}

impl WholeRead {
    fn may_be(&self, image: &Image, place: &ContainerKey, value: Option<&[u8]>) -> bool {
        let states = match self.log_is_lost {
            true => &image.history,
            false => &image.states,
        };
        let mut values = states.iter().map(|state| state.get(place));
        values.any(|was| was.map(Vec::as_slice) == value)
    }

    fn note(&mut self, error: Error, folder: &Path) -> Result<(), String> {
        must_name_damage(&error, folder)?;
        self.met.get_or_insert(error);
        Ok(())
    }
}

/// Everything in a container, in one direction; `None` when a part of it is damaged.
fn scan(
    image: &Image,
    name: &str,
    items: impl Iterator<Item = ebbtide::Result<ebbtide::Item>>,
    reading: &mut WholeRead,
) -> Result<Option<State>, String> {
    let (mut seen, mut whole) = (State::new(), true);
    for item in items {
        match item {
            Err(error) => {
                reading.note(error, &image.folder)?;
                whole = false;
            }
            Ok(item) => {
                let place = (name.to_owned(), item.key().to_vec());
                if !reading.may_be(image, &place, Some(item.value())) {
                    return Err(format!("a scan shows {place:?} as it never was"));
                }
                seen.insert(place, item.value().to_vec());
            }
        }
    }
    Ok(whole.then_some(seen))
}

/// Reads each key alone and all together, forwards and backwards, before and after a compaction. No answer may be one
/// that never was; with `losses`, none but the truth, less what is lost.
fn read(
    image: &Image,
    disk: &Sim,
    reads: Reads,
    losses: Option<&[Loss]>,
) -> Result<WholeRead, String> {
    let folder = &image.folder;
    let of_log = |loss: &Loss| {
        loss.container.is_none()
            && matches!(&loss.fault, Error::Corruption { path, .. } if path.starts_with(folder.join("wal")))
    };
    let mut reading = WholeRead {
        log_is_lost: losses.is_some_and(|losses| losses.iter().any(of_log)),
        ..WholeRead::default()
    };
    let db = match options(disk, image.now, reads).open(folder) {
        Ok(db) => db,
        Err(error) => {
            reading.note(error, folder)?;
            return Ok(reading);
        }
    };
    reading.opened = true;
    let names = db.containers();
    for place in image.places.iter().filter(|place| names.contains(&place.0)) {
        match db.container(&place.0).and_then(|c| c.get(&place.1)) {
            Err(error) => {
                reading.failed.insert(place.0.clone());
                reading.note(error, folder)?;
            }
            Ok(value) => {
                let value = value.as_deref();
                let is_lost =
                    losses.is_some_and(|losses| losses.iter().any(|loss| covers(loss, place)));
                if !(reading.may_be(image, place, value) || value.is_none() && is_lost) {
                    return Err(format!(
                        "get of {place:?} answers {value:?}, which it never was"
                    ));
                }
                if let Some(value) = value {
                    reading.state.insert(place.clone(), value.to_vec());
                }
            }
        }
    }
    for compacted in [false, true] {
        for name in &names {
            let c = db.container(name).map_err(|error| error.to_string())?;
            let forwards = scan(image, name, c.iter(), &mut reading)?;
            let backwards = scan(image, name, c.iter().rev(), &mut reading)?;
            let single = reading.state.iter().filter(|(place, _)| place.0 == *name);
            let single: State = single
                .map(|(place, value)| (place.clone(), value.clone()))
                .collect();
            let agree = |scan: &Option<State>| scan.as_ref().is_none_or(|scan| *scan == single);
            if !(reading.failed.contains(name) || agree(&forwards) && agree(&backwards)) {
                return Err(format!(
                    "scans of {name} differ from gets, compacted: {compacted}"
                ));
            }
        }
        if !compacted && let Err(error) = db.compact() {
            reading.note(error, folder)?;
        }
    }
    if let Err(error) = db.close() {
        reading.note(error, folder)?;
    }
    Ok(reading)
}

/// The report says that this may be lost.
fn covers(loss: &Loss, (container, key): &ContainerKey) -> bool {
    loss.container.as_ref() == Some(container)
        && loss.from <= *key
        && loss.to.as_ref().is_none_or(|to| key < to)
}

/// The outcomes of the damages.
#[derive(Default)]
struct Tally {
    damages: u64,
    /// A reader met an error.
    met: u64,
    /// Nobody met one, `verify` found it nevertheless.
    found_early: u64,
    /// Nothing noticed, nothing was wrong: by file and kind of damage.
    unnoticed: BTreeMap<String, u64>,
    repaired: u64,
    lost_records: u64,
}

impl Tally {
    fn and(mut self, other: Tally) -> Tally {
        self.damages += other.damages;
        self.met += other.met;
        self.found_early += other.found_early;
        for (what, count) in other.unnoticed {
            *self.unnoticed.entry(what).or_default() += count;
        }
        self.repaired += other.repaired;
        self.lost_records += other.lost_records;
        self
    }
}

fn kind_of(path: &Path) -> &'static str {
    let name = path.to_string_lossy();
    let kinds = [
        ("manifest-", "manifest"),
        (".manifest", "copy"),
        (".table", "table"),
        (".wal", "log"),
        (".ring", "ring"),
        ("LOCK", "lock"),
    ];
    kinds
        .iter()
        .find(|(part, _)| name.contains(part))
        .map_or("other", |(_, kind)| kind)
}

/// One damage, from every side.
fn judge(
    image: &Image,
    path: &Path,
    before: &[u8],
    damage: &Damage,
    tally: &mut Tally,
) -> Result<(), String> {
    let Some(disk) = damage.apply(image, path, before) else {
        return Ok(());
    };
    tally.damages += 1;
    let fs = |disk: &Sim| -> Arc<dyn Fs> { Arc::new(disk.kill()) };
    let found = match verify_in(fs(&disk), &image.folder, &mut |_, _| {}) {
        Ok(report) => {
            report
                .faults
                .iter()
                .try_for_each(|fault| must_name_damage(fault, &image.folder))?;
            !report.faults.is_empty()
        }
        Err(error) => {
            must_name_damage(&error, &image.folder)?;
            true
        }
    };
    let reads = if tally.damages.is_multiple_of(2) {
        Reads::Map
    } else {
        Reads::Pread
    };
    let reading = read(image, &disk.kill(), reads, None)?;
    let right = image.states.contains(&reading.state);
    match (&reading.met, found) {
        (Some(error), false) => return Err(format!("verify found nothing, a reader met: {error}")),
        (None, _) if !right => return Err("no error, and not as it ever was".to_owned()),
        (Some(_), true) => tally.met += 1,
        (None, true) => tally.found_early += 1,
        (None, false) => {
            let what = format!("{damage:?}");
            let what = what.split(' ').next().unwrap_or_default();
            *tally
                .unnoticed
                .entry(format!("{} {}", kind_of(path), what.to_lowercase()))
                .or_default() += 1;
        }
    }
    if kind_of(path) == "table" && reading.opened && reading.failed.len() > 1 {
        return Err(format!(
            "one table is damaged, and gets fail in {:?}",
            reading.failed
        ));
    }
    repair(image, &disk, kind_of(path), tally)?;
    Ok(())
}

/// A repair brings back what is sound, and nothing else.
fn repair(image: &Image, disk: &Sim, kind: &str, tally: &mut Tally) -> Result<(), String> {
    let plain = |disk: &Sim| options(disk, image.now, Reads::Map);
    let planned = {
        let dry = disk.kill();
        let planned = repair_with(&image.folder, &plain(&dry), false);
        if files(&image_on(image, &dry)) != files(&image_on(image, disk)) {
            return Err("a repair that was not asked for changed something".to_owned());
        }
        planned
    };
    let repaired = disk.kill();
    let report = match repair_with(&image.folder, &plain(&repaired), true) {
        Ok(report) => report,
        Err(error) => return Err(format!("repair of a {kind} refused: {error}")),
    };
    report.losses.iter().try_for_each(testkit::plain)?;
    let losses = |report: &ebbtide::RepairReport| {
        report
            .losses
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    match &planned {
        Ok(planned)
            if losses(planned) == losses(&report) && planned.set_aside == report.set_aside => {}
        other => return Err(format!("planned was {other:?}, done was {report:?}")),
    }
    let reading = read(image, &repaired, Reads::Pread, Some(&report.losses))
        .map_err(|fault| format!("after repair: {fault}; {:?}", losses(&report)))?;
    if let Some(error) = &reading.met {
        return Err(format!("after repair: {error}; {:?}", losses(&report)));
    }
    let truth = image.states.last().expect("there is one");
    let missing = truth
        .keys()
        .filter(|place| !reading.state.contains_key(*place))
        .count() as u64;
    let bound: Option<u64> = report
        .losses
        .iter()
        .filter(|loss| loss.container.is_some())
        .map(|loss| loss.records)
        .sum();
    if !reading.log_is_lost && image.states.len() == 1 && bound.is_some_and(|bound| missing > bound)
    {
        return Err(format!(
            "{missing} are missing, more than was said: {:?}",
            losses(&report)
        ));
    }
    tally.lost_records += missing;
    tally.repaired += u64::from(!report.losses.is_empty());
    for file in &report.set_aside {
        let kept = image
            .folder
            .join("lost")
            .join(file.file_name().expect("a file"));
        if repaired
            .len(&kept)
            .map_err(|error| error.to_string())?
            .is_none()
        {
            return Err(format!("{} was not kept", file.display()));
        }
    }
    match verify_in(Arc::new(repaired.kill()), &image.folder, &mut |_, _| {}) {
        Ok(report) if report.faults.is_empty() => Ok(()),
        other => Err(format!("verify after repair: {other:?}")),
    }
}

/// Judges these damages on every processor, and names what went wrong.
fn all(
    images: &[Image],
    damages: impl Iterator<Item = (usize, PathBuf, Damage)> + Send,
    what: &str,
) {
    let contents: Vec<BTreeMap<PathBuf, Vec<u8>>> = images
        .iter()
        .map(|image| files(image).into_iter().collect())
        .collect();
    let (damages, wrong) = (Mutex::new(damages), Mutex::new(vec![]));
    let judge_some = || {
        let mut tally = Tally::default();
        loop {
            let next = damages.lock().unwrap().next();
            let Some((at, path, damage)) = next else {
                return tally;
            };
            let image = &images[at];
            let before = &contents[at][&path];
            let judged = catch_unwind(AssertUnwindSafe(|| {
                judge(image, &path, before, &damage, &mut tally)
            }));
            let fault = match judged {
                Ok(Ok(())) => continue,
                Ok(Err(fault)) => fault,
                Err(panic) => format!("panic: {}", testkit::panic_text(&*panic)),
            };
            let mut wrong = wrong.lock().unwrap();
            wrong.push(format!(
                "{}, {} of {} bytes, {damage:?}: {fault}",
                image.name,
                path.display(),
                before.len()
            ));
            if wrong.len() >= 12 {
                return tally;
            }
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let tally = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(judge_some)).collect();
        let tallies = workers.into_iter().map(|worker| worker.join().unwrap());
        tallies.fold(Tally::default(), Tally::and)
    });
    let wrong = wrong.into_inner().unwrap();
    println!(
        "FIGURE {what}: {} damages, {} met by readers, {} found by verify before any reader, {} that change nothing and nobody notices, {} wrong answers",
        tally.damages,
        tally.met,
        tally.found_early,
        tally.unnoticed.values().sum::<u64>(),
        wrong.len()
    );
    println!(
        "FIGURE {what}, repaired: {} of these, {} items lost, {} wrong",
        tally.repaired,
        tally.lost_records,
        wrong.len()
    );
    println!("unnoticed: {:?}", tally.unnoticed);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// How many damages of a kind every file takes; `None`: what the default is content with.
fn each() -> Option<usize> {
    match std::env::var("EBBTIDE_ROT").as_deref() {
        Ok("all") => Some(usize::MAX),
        Ok(number) => Some(number.parse().expect("EBBTIDE_ROT is a number or all")),
        Err(_) => None,
    }
}

/// Some of all, evenly spaced, from a place that changes with how many there are.
fn slice<T>(all: Vec<T>) -> Vec<T> {
    let step = (all.len() / each().unwrap_or(1)).max(1);
    let first = all.len() % step;
    all.into_iter().skip(first).step_by(step).collect()
}

/// Places at both ends of a file, where headers and footers lie: of the files of the last two moments, by default.
fn edges(images: &[Image], at: usize, len: usize) -> impl Iterator<Item = usize> {
    let is_looked_at = each().is_none() && at + 2 >= images.len();
    let ends = (at % 8..len.min(24)).chain(len.saturating_sub(32).max(24)..len);
    ends.step_by(8).filter(move |_| is_looked_at)
}

/// The files: by default one of each kind at each moment.
fn targets(images: &[Image]) -> Vec<(usize, PathBuf, usize)> {
    let mut targets = vec![];
    for (at, image) in images.iter().enumerate() {
        let mut kinds = BTreeSet::new();
        // Another table and another segment each time.
        let mut files = files(image);
        let len = files.len();
        files.rotate_left(at * 7 % len);
        for (path, bytes) in files {
            if kinds.insert(kind_of(&path)) || each().is_some() {
                targets.push((at, path, bytes.len()));
            }
        }
    }
    targets
}

#[test]
fn the_images_are_what_they_say() {
    for image in images() {
        let reading = read(&image, &image.disk.kill(), Reads::Map, None).unwrap();
        assert!(
            reading.met.is_none() && image.states.contains(&reading.state),
            "{}",
            image.name
        );
        let report = verify_in(Arc::new(image.disk.kill()), &image.folder, &mut |_, _| {}).unwrap();
        assert!(
            report.faults.is_empty(),
            "{}: {:?}",
            image.name,
            report.faults
        );
        let plain = options(&image.disk.kill(), image.now, Reads::Map);
        let report = repair_with(&image.folder, &plain, true).unwrap();
        assert!(report.losses.is_empty() && report.set_aside.is_empty());
    }
}

#[test]
fn flipped_bits() {
    let images = images();
    let damages = targets(&images).into_iter().flat_map(|(at, path, len)| {
        let bits: Vec<usize> = (0..len * 8).collect();
        let at_edges = edges(&images, at, len).map(|byte| byte * 8 + byte % 7);
        let bits = slice(bits).into_iter().chain(at_edges);
        let flips = bits.map(|bit| Damage::Flip {
            at: bit / 8,
            mask: 1 << (bit % 8),
        });
        flips
            .map(move |flip| (at, path.clone(), flip))
            .collect::<Vec<_>>()
    });
    all(&images, damages, "flipped bits");
}

#[test]
fn cut_files() {
    let images = images();
    let damages = targets(&images).into_iter().flat_map(|(at, path, len)| {
        let lengths = slice((0..len).collect()).into_iter();
        let lengths = lengths.chain(edges(&images, at, len));
        let cuts = lengths.map(|len| Damage::Cut { len });
        cuts.map(move |cut| (at, path.clone(), cut))
            .collect::<Vec<_>>()
    });
    all(&images, damages, "files cut short");
}

#[test]
fn sectors_zeroed_and_swapped() {
    let images = images();
    let damages = targets(&images).into_iter().flat_map(|(at, path, len)| {
        let sectors = len.div_ceil(SECTOR);
        let mut damages: Vec<Damage> = (0..sectors).map(|sector| Damage::Zero { sector }).collect();
        damages.extend((0..sectors).flat_map(|a| {
            (a + 1..sectors.min(a + 5)).map(move |b| Damage::Swap { sectors: (a, b) })
        }));
        slice(damages)
            .into_iter()
            .map(move |damage| (at, path.clone(), damage))
            .collect::<Vec<_>>()
    });
    all(&images, damages, "sectors zeroed and swapped");
}

#[test]
fn files_of_another_time_or_name_or_none() {
    let images = images();
    let all_targets = targets(&images);
    let damages = all_targets.iter().flat_map(|(at, path, _)| {
        let like = all_targets.iter().filter(|(other, name, _)| {
            other == at && name != path && kind_of(name) == kind_of(path)
        });
        let mut damages: Vec<Damage> = slice(like.collect())
            .into_iter()
            .map(|(_, name, _)| Damage::Replace { by: name.clone() })
            .collect();
        damages.extend([Damage::Older, Damage::Remove]);
        damages
            .into_iter()
            .map(|damage| (*at, path.clone(), damage))
            .collect::<Vec<_>>()
    });
    all(&images, damages, "files of another time or name");
}

/// Damage is found by reading on, stands in the stats, and no merge writes it again.
#[test]
fn scrubbing_finds_damage_and_merges_refuse_it() {
    let image = images().pop().unwrap();
    let is_table = |(path, _): &(PathBuf, Vec<u8>)| kind_of(path) == "table";
    let (path, bytes) = files(&image).into_iter().find(is_table).unwrap();
    let damage = Damage::Flip { at: 20, mask: 4 };
    let disk = damage.apply(&image, &path, &bytes).unwrap();
    let options = options(&disk, image.now, Reads::Pread);
    let db = options
        .scrub_within(Some(Duration::from_millis(1)))
        .open(DB)
        .unwrap();
    let mut waits = 0;
    let missing = |stats: ebbtide::Stats| {
        stats.damage.is_empty() || (stats.bytes_scrubbed == 0 && stats.tables > 1)
    };
    while missing(db.stats()) {
        db.step().unwrap();
        std::thread::sleep(Duration::from_millis(1));
        waits += 1;
        assert!(waits < 10_000, "it is never found");
    }
    let found = &db.stats().damage[0];
    assert_eq!((&found.path, found.offset), (&path, 0), "{}", found.what);
    assert!(db.compact().unwrap_err().is_corruption());
    let report = db.verify().unwrap();
    assert_eq!(report.faults.len(), 1);
    assert_eq!(report.files, db.stats().tables);
}

/// Noise in one place after the other, for as long as it is given.
#[test]
fn damages_at_random() {
    let images = images();
    let targets = targets(&images);
    let mut random = Random(testkit::env("EBBTIDE_SEED", 1));
    let (until, least) = (
        Instant::now() + Duration::from_secs(testkit::env("EBBTIDE_SECONDS", 0)),
        20,
    );
    let damages = (0..)
        .take_while(|n| *n < least || Instant::now() < until)
        .map(|_| {
            loop {
                let (at, path, len) = random.pick(&targets);
                if len == 0 {
                    continue;
                }
                let sectors = len.div_ceil(SECTOR);
                let damage = match random.below(4) {
                    0 => Damage::Flip {
                        at: random.below(len),
                        mask: 1 + random.below(255) as u8,
                    },
                    1 => Damage::Cut {
                        len: random.below(len),
                    },
                    2 => Damage::Zero {
                        sector: random.below(sectors),
                    },
                    _ => Damage::Swap {
                        sectors: (random.below(sectors), random.below(sectors)),
                    },
                };
                break (at, path, damage);
            }
        });
    all(&images, damages, "damages at random");
}
