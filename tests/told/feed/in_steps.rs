//! A reader gathers few ends first, and more each time: of many, some of them written anew between, each comes once, in order.

use super::*;

const ITEMS: usize = 40_000;
/// All ends are within so many milliseconds.
const SPAN: u64 = 1_000;
/// A reader asks so often.
const STEP: u64 = 20;

/// Writes items that end within the rest of the span.
fn write(world: &Stage, due: &mut BTreeMap<String, u64>, now: u64, first: usize, count: usize) {
    let mut random = Random(now + 1);
    let mut batch = Batch::new();
    for n in first..first + count {
        let (key, ttl) = (
            format!("{n:05}"),
            1 + random.below((SPAN - now) as usize) as u64,
        );
        batch.put_with_ttl(&world.c, &key, "v", ms(ttl));
        due.insert(key, now + ttl);
    }
    world.db.write(&batch).unwrap();
}

#[test]
fn ends_of_many_gatherings_come_once_and_in_order() {
    let world = stage(Duration::ZERO);
    let mut ended = world.c.expirations(ExpiryCursor::now());
    let mut due = BTreeMap::new();
    write(&world, &mut due, 0, 0, ITEMS);
    world.db.flush().unwrap();
    for now in (STEP..SPAN + STEP).step_by(STEP as usize) {
        world.pass(STEP);
        // An end is told when its millisecond is over.
        let mut expected: Vec<_> = due.clone().into_iter().collect();
        expected.retain(|(_, end)| *end < now);
        due.retain(|_, end| *end >= now);
        expected.sort_by_key(|(key, end)| (*end, key.clone()));
        assert_eq!(all(&mut ended), expected, "at {now}");
        // Some end at another moment, before and beyond what is gathered.
        if now < SPAN {
            write(&world, &mut due, now, now as usize * 39, 100);
        }
    }
    assert_eq!(due.values().filter(|end| **end < SPAN).count(), 0);
}
