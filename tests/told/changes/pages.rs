//! Goal: pages in the order of versions make the same copies, whatever their size, and wherever a reader goes on. Method: the
//! histories of the changes; one copy by an object that stays open, with other steps between its pages, one by a new reader
//! for every page; single histories for what stands at one version.

use ebbtide::{ChangePage, ChangePages, ChangePosition};

use super::*;

/// A copy, and its position.
#[derive(Default)]
struct Paged {
    copy: Copy,
    position: Option<ChangePosition>,
}

impl Paged {
    fn position(&self) -> ChangePosition {
        let start = || Version::start().into();
        self.position.clone().unwrap_or_else(start)
    }

    /// Checks the order of a page, and takes it in.
    fn take_in(&mut self, page: ChangePage, limit: usize, now: SystemTime) {
        assert!((1..=limit).contains(&page.len()), "{page:?}");
        let mut last = self.position().version();
        assert!(last <= page.version());
        for change in &page {
            let version = match change {
                Change::Put { item, .. } => item.version(),
                Change::Created { version, .. }
                | Change::Delete { version, .. }
                | Change::DeleteRange { version, .. } => *version,
                _ => continue,
            };
            assert!(last <= version, "{page:?}");
            last = version;
        }
        self.position = Some(page.position());
        page.into_iter()
            .for_each(|change| self.copy.told.apply(change, now).unwrap());
    }
}

/// Plays a history; returns how many pages were taken in, and how often a reader had to begin anew.
fn play(seed: u64, steps: usize) -> (usize, usize) {
    let (mut random, mut world) = (Random(seed), World::new(seed));
    let (mut open, mut single) = (Paged::default(), Paged::default());
    let mut pages: Option<(ChangePages, usize)> = None;
    let (mut taken, mut anew) = (0, 0);
    for at in 0..steps {
        if step(&mut world, &mut random, ALL) {
            (pages, open) = (None, Paged::default());
        }
        let who = format!("seed {seed}, step {at}");
        let most = 1 << random.below(8);
        let limit = 1 + random.below(most);
        if random.one_in(5) {
            let (pages, limit) = pages.get_or_insert_with(|| {
                (world.db.changes_by_version(open.position(), limit), limit)
            });
            let (limit, expected) = (*limit, contents(&world.db));
            for page in pages.by_ref() {
                open.take_in(page.unwrap(), limit, world.db.now());
                taken += 1;
                if random.one_in(3) {
                    step(&mut world, &mut random, WHILE_TIME_STANDS);
                }
            }
            open.copy
                .compare_with(&expected, world.db.now(), &format!("{who}, open"));
        }
        // Some of the pages, each by a reader of its own.
        if random.one_in(5) {
            for _ in 0..random.below(6) {
                let stored = serde_json::to_string(&single.position()).unwrap();
                let position: ChangePosition = serde_json::from_str(&stored).unwrap();
                match world.db.changes_by_version(position, limit).next() {
                    None => {
                        single
                            .copy
                            .compare(&world.db, &format!("{who}, a reader for each page"));
                        break;
                    }
                    Some(Ok(page)) => single.take_in(page, limit, world.db.now()),
                    Some(Err(error)) => {
                        assert!(error.is_changes_gone(), "{error}");
                        (single, anew) = (Paged::default(), anew + 1);
                    }
                }
                taken += 1;
            }
        }
    }
    (taken, anew)
}

#[test]
fn pages_make_the_same_copies() {
    let seed = testkit::env("EBBTIDE_SEED", 1);
    let histories = testkit::env("EBBTIDE_HISTORIES", 20);
    let played: Vec<_> = (seed..seed + histories)
        .map(|seed| play(seed, 400))
        .collect();
    let sum = |of: fn(&(usize, usize)) -> usize| played.iter().map(of).sum::<usize>();
    let (taken, anew) = (sum(|one| one.0), sum(|one| one.1));
    assert!(
        anew > 0 && taken > 5 * anew,
        "{taken} pages, {anew} began anew"
    );
}

/// The keys of the puts of each page.
fn puts(pages: &mut ChangePages) -> Vec<String> {
    let key = |change: &Change| match change {
        Change::Put { item, .. } => Some(item.key()[0] as char),
        _ => None,
    };
    pages
        .map(|page| page.unwrap().iter().filter_map(key).collect())
        .collect()
}

#[test]
fn a_reader_goes_on_in_the_middle_of_a_batch() {
    let world = World::new(1);
    let c = world.c("a");
    let mut first = world.db.changes_by_version(Version::start(), 9);
    let begun = first.next().unwrap().unwrap();
    assert_eq!(begun.len(), 2, "the container and its rule");
    let mut batch = Batch::new();
    for key in ["e", "d", "c", "b", "a"] {
        batch.put(&c, key, "");
    }
    world.db.write(&batch).unwrap();
    c.put("c", "again").unwrap();
    let pages = |since: ChangePosition, limit| world.db.changes_by_version(since, limit);
    assert_eq!(puts(&mut pages(begun.position(), 2)), ["ed", "ba", "c"]);
    let page = pages(begun.position(), 3).next().unwrap().unwrap();
    assert_eq!(puts(&mut pages(page.position(), 9)), ["ac"]);
    // A version alone will do, where each write has its own.
    assert_eq!(puts(&mut pages(page.version().into(), 9)), ["ac"]);
    // No limit counts as one change.
    assert_eq!(
        puts(&mut pages(begun.position(), 0)),
        ["e", "d", "b", "a", "c"]
    );
}

/// Items of a load have one version, and so has all that a batch does to settings, at its last write.
#[test]
fn a_version_may_be_told_in_part() {
    let world = World::new(1);
    let [a, b] = ["a", "b"].map(|name| world.c(name));
    let mut pages = world.db.changes_by_version(Version::start(), 1);
    let lens: Vec<_> = pages.by_ref().map(|page| page.unwrap().len()).collect();
    assert_eq!(lens, [1; 4]);
    let second = DefaultTtl::After(Duration::from_secs(1));
    let mut batch = Batch::new();
    batch
        .set_default_ttl(&b, second)
        .set_default_ttl(&a, second);
    batch.put(&a, "k", "v");
    world.db.write(&batch).unwrap();
    let told: Vec<_> = pages.by_ref().map(|page| page.unwrap()).collect();
    assert!(
        matches!(
            told.iter().map(|page| &page[0]).collect::<Vec<_>>()[..],
            [
                Change::Expiry { .. },
                Change::Put { .. },
                Change::Expiry { .. }
            ]
        ),
        "{told:?}"
    );
    let c = world.c("c");
    assert_eq!(puts(&mut pages), ["", ""], "it is made");
    let before = pages.position();
    let items = ["f", "g", "h", "i", "j"].map(|key| (key, ""));
    let loaded = c.bulk_load(items).unwrap().version();
    assert_eq!(puts(&mut pages), ["f", "g", "h", "i", "j"]);
    let mut found = vec![];
    let mut position = before;
    while let Some(page) = world.db.changes_by_version(position.clone(), 2).next() {
        let page = page.unwrap();
        found.push((page.len(), page.version() < loaded));
        position = page.position();
    }
    assert_eq!(found, [(2, true), (2, true), (1, false)]);
}

#[test]
fn a_position_whose_changes_are_gone_is_told() {
    let world = World::new(1);
    let c = world.c("a");
    c.put("k", "v").unwrap();
    world.db.flush().unwrap();
    let page = world.db.changes_by_version(Version::start(), 99).next();
    let since = page.unwrap().unwrap().position();
    c.delete("k").unwrap();
    world.db.flush().unwrap();
    world.db.compact().unwrap();
    let mut pages = world.db.changes_by_version(since.clone(), 99);
    for _ in 0..2 {
        assert!(pages.next().unwrap().unwrap_err().is_changes_gone());
        assert!(pages.next().is_none());
    }
    assert_eq!(pages.position(), since);
}

/// All that a new reader for every page tells, from the start on; `step` is done between the pages.
fn first_copy(world: &World, limit: usize, mut step: impl FnMut(usize)) -> Result<Copy, Error> {
    let mut paged = Paged::default();
    for at in 0.. {
        let mut pages = world.db.changes_by_version(paged.position(), limit);
        let Some(page) = pages.next().transpose()? else {
            break;
        };
        paged.take_in(page, limit, world.db.now());
        drop(pages);
        step(at);
    }
    Ok(paged.copy)
}

/// No first copy has an item that jobs had left out before its first page; it may have one that they leave out later.
#[test]
fn a_first_copy_may_be_made_by_a_reader_for_each_page() {
    let world = World::new(1);
    let c = world.c("a");
    let purge = |key: &str| {
        c.delete(key).unwrap();
        world.db.flush().unwrap();
        world.db.compact().unwrap();
    };
    for key in ["a", "b", "c", "d", "e"] {
        c.put(key, key).unwrap();
    }
    c.put("gone", "").unwrap();
    purge("gone");
    c.put("f", "f").unwrap();
    for limit in (1..9).chain([usize::MAX - 1, usize::MAX]) {
        let copy = first_copy(&world, limit, |at| {
            if at < 3 {
                c.put("f", format!("{at}")).unwrap();
                world.db.flush().unwrap();
            }
        });
        copy.unwrap().compare(&world.db, &format!("{limit} a page"));
    }
    let late = first_copy(&world, 3, |at| {
        if at == 1 {
            purge("a");
        }
    });
    assert!(late.err().unwrap().is_changes_gone(), "it may have a");
    // The page between the delete and the purge has not told of it yet.
    let late = first_copy(&world, 1, |at| match at {
        4 => c.delete("b").unwrap(),
        5 => {
            world.db.flush().unwrap();
            world.db.compact().unwrap();
        }
        _ => {}
    });
    assert!(late.err().unwrap().is_changes_gone(), "it may have b");
}
