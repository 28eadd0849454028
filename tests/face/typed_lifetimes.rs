//! Goal: lifetimes of typed items go on, or begin anew, as those of bytes do.
//!
//! Method: each call where there is an item of the types, one of others, and none.

use std::time::Duration;

use ebbtide::{Batch, Error, Json, ManualClock, Options, Ttl, TypedUpdate};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn lifetimes_of_typed_items_are_those_of_bytes() {
    let (folder, clock) = (
        tempfile::tempdir().unwrap(),
        ManualClock::new(1_800_000_000_000),
    );
    let options = Options::new().clock(clock.clone());
    let db = options.open(folder.path()).unwrap();
    let c = db.typed::<u64, Json<u32>>("c").unwrap();
    assert!(c.get_and_touch(7).unwrap().is_none());
    c.put_with_ttl(7, &1, MINUTE).unwrap();
    clock.advance(MINUTE / 2);
    let item = c.get_and_touch(7).unwrap().unwrap();
    assert_eq!((item.key, item.value), (7, 1));
    assert_eq!(item.stored.remaining(), Some(MINUTE));
    assert_eq!(c.item(7).unwrap().unwrap().stored, item.stored);
    clock.advance(MINUTE / 2);
    assert_eq!(c.touch_until(7).unwrap(), Some(db.now() + MINUTE));
    assert_eq!(c.touch_until(8).unwrap(), None);

    c.untyped()
        .put_with_ttl(9_u64.to_be_bytes(), "no number", MINUTE)
        .unwrap();
    clock.advance(MINUTE / 2);
    let left = c.untyped().item(9_u64.to_be_bytes()).unwrap().unwrap();
    assert!(matches!(c.get_and_touch(9), Err(Error::Decode { .. })));
    let after = c.untyped().item(9_u64.to_be_bytes()).unwrap().unwrap();
    assert_eq!(after.version(), left.version(), "it is not touched");

    let like = c.item(7).unwrap().unwrap();
    let mut batch = Batch::new();
    batch
        .typed(&c)
        .rename(7, 10)
        .put_with_ttl(11, &2, Ttl::Like(&like.stored));
    db.write(batch).unwrap();
    let ends = |key| {
        c.item(key)
            .unwrap()
            .map(|item| (item.stored.written_at(), item.stored.expires_at()))
    };
    assert_eq!((ends(7), ends(10), ends(11)), (None, ends(11), ends(10)));
    assert_eq!(ends(10).unwrap().1, like.stored.expires_at());

    let value: u32 = 5;
    assert!(
        c.update_with(10, |_| TypedUpdate::Put(&value, Ttl::Keep))
            .unwrap()
    );
    assert_eq!(c.get(10).unwrap(), Some(5));
    assert_eq!(ends(10), ends(11));
}
