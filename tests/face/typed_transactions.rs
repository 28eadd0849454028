//! Goal: a typed container in a transaction has the typed container's methods, and the transaction's rules.
//!
//! Method: each method, with its answer and its effect; items that are not of the types; errors of one's own.

use std::time::Duration;

use ebbtide::{Database, Error, ManualClock, Options, Result, Ttl, TypedContainer, TypedUpdate};

fn open() -> (tempfile::TempDir, ManualClock, Database) {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(1_800_000_000_000);
    let db = Options::new()
        .clock(clock.clone())
        .open(folder.path())
        .unwrap();
    (folder, clock, db)
}

type Hits = TypedContainer<(String, u64), u32>;

#[test]
fn it_has_the_methods_of_a_typed_container() {
    let (_folder, clock, db) = open();
    let hits: Hits = db.typed("hits").unwrap();
    hits.put(("home", 9), &1).unwrap();
    hits.put(("page", 9), &2).unwrap();
    let tx = db.begin();
    let own = tx.typed(&hits);
    assert_eq!(own.name(), "hits");
    assert_eq!(own.get(("home", 9)).unwrap(), Some(1));
    own.put(("home", 9), &3).unwrap();
    own.put_with_ttl(("home", 10), &4, Duration::from_secs(60))
        .unwrap();
    assert!(!own.create(("home", 10), &5, Ttl::Inherit).unwrap());
    assert!(own.replace(("home", 10), &5, Ttl::Keep).unwrap());
    assert!(own.contains(("home", 10)).unwrap());
    assert!(own.touch(("page", 9)).unwrap() && !own.touch(("none", 9)).unwrap());
    assert!(own.expire(("page", 9), Duration::from_secs(30)).unwrap());
    let many = own
        .get_many([("none", 1), ("home", 10), ("page", 9)])
        .unwrap();
    assert_eq!(many, [None, Some(5), Some(2)]);
    let keys = |range: &mut dyn Iterator<Item = Result<(String, u64)>>| {
        let keys: Result<Vec<_>> = range
            .map(|key| key.map(|(page, hour)| format!("{page} {hour}")))
            .collect();
        keys.unwrap()
    };
    assert_eq!(keys(&mut own.keys(..)), ["home 9", "home 10", "page 9"]);
    assert_eq!(
        keys(&mut own.keys(("home", 10)..).rev()),
        ["page 9", "home 10"]
    );
    let values: Result<Vec<u32>> = own.prefix(("home",)).map(|item| Ok(item?.value)).collect();
    assert_eq!(values.unwrap(), [3, 5]);
    let back: Result<Vec<u32>> = own.iter().rev().map(|item| Ok(item?.value)).collect();
    assert_eq!(back.unwrap(), [2, 5, 3]);
    assert_eq!(own.range(..("home", 10)).count(), 1);
    assert_eq!((own.count(..).unwrap(), own.count_up_to(.., 2)), (3, 2));
    assert_eq!(own.first().unwrap().unwrap().value, 3);
    assert_eq!(own.last().unwrap().unwrap().key, ("page".to_owned(), 9));
    assert!(own.random().unwrap().is_some() && !own.is_empty().unwrap());
    let raise = |item: Option<&ebbtide::TypedItem<(String, u64), u32>>| {
        TypedUpdate::Put(item.map_or(0, |item| item.value) + 10, Ttl::Keep)
    };
    assert!(own.update(("home", 9), raise).unwrap());
    let done = own.fetch_update(("home", 9), raise).unwrap();
    assert_eq!(
        (done.before.unwrap().value, done.written.is_some()),
        (13, true)
    );
    let put = own.put_if(("home", 9), &23, Ttl::Keep, |found| found.is_some());
    assert!(put.unwrap().before.is_some());
    assert_eq!(own.item(("home", 9)).unwrap().unwrap().value, 23);
    assert_eq!(own.take(("home", 10)).unwrap().unwrap().value, 5);
    own.delete(("none", 1)).unwrap();
    own.delete_range(("q", 0)..).unwrap();
    assert_eq!(
        hits.get(("home", 9)).unwrap(),
        Some(1),
        "nobody else sees it"
    );
    tx.commit().unwrap();
    assert_eq!(hits.get(("home", 9)).unwrap(), Some(23));
    assert_eq!(hits.count(..).unwrap(), 2);
    clock.advance(Duration::from_secs(30));
    assert!(!hits.contains(("page", 9)).unwrap());
    db.transaction(|tx| tx.typed(&hits).expire_all()).unwrap();
    assert!(hits.is_empty().unwrap());
}

#[test]
fn what_is_not_of_the_types_is_an_error_and_stays() {
    let (_folder, _clock, db) = open();
    let hits: Hits = db.typed("hits").unwrap();
    hits.put(("home", 9), &1).unwrap();
    let key = hits.first().unwrap().unwrap().stored.key().to_vec();
    hits.untyped().put(&key, [0xff; 9]).unwrap();
    let tx = db.begin();
    let own = tx.typed(&hits);
    let wrong = |error: Error| assert!(matches!(error, Error::Decode { .. }), "{error}");
    wrong(own.get(("home", 9)).unwrap_err());
    wrong(own.take(("home", 9)).unwrap_err());
    wrong(
        own.update(("home", 9), |_| TypedUpdate::Delete)
            .unwrap_err(),
    );
    wrong(own.iter().next().unwrap().unwrap_err());
    tx.commit().unwrap();
    assert!(hits.contains(("home", 9)).unwrap());
}

/// Over two typed containers, an error of one's own leaves nothing of either.
#[test]
fn an_own_error_aborts_over_typed_containers() {
    #[derive(Debug)]
    enum Refused {
        Poor(u64),
        Failed(Error),
    }
    impl From<Error> for Refused {
        fn from(error: Error) -> Refused {
            Refused::Failed(error)
        }
    }
    let (_folder, _clock, db) = open();
    let accounts: TypedContainer<String, u64> = db.typed("accounts").unwrap();
    let receipts: TypedContainer<(String, u64), String> = db.typed("receipts").unwrap();
    accounts.put("ada", &50).unwrap();
    let pay = |sum: u64| {
        db.try_transaction(|tx| -> Result<u64, Refused> {
            tx.typed(&receipts).put(("ada", sum), &"paid".to_owned())?;
            let has = tx.typed(&accounts).get("ada")?.unwrap_or(0);
            let left = has.checked_sub(sum).ok_or(Refused::Poor(has))?;
            tx.typed(&accounts).put("ada", &left)?;
            Ok(left)
        })
    };
    assert!(matches!(pay(60), Err(Refused::Poor(50))));
    assert!(receipts.is_empty().unwrap());
    let (left, written) = pay(30).unwrap();
    assert_eq!((left, accounts.get("ada").unwrap()), (20, Some(20)));
    let receipt = receipts.item(("ada", 30)).unwrap().unwrap().stored;
    assert_eq!(receipt.written_at(), written.written_at());
    accounts.untyped().put("ada", [0xff; 20]).unwrap();
    assert!(matches!(pay(1), Err(Refused::Failed(Error::Decode { .. }))));
    // A key of another database.
    let (_other_folder, _other_clock, other) = open();
    let foreign: TypedContainer<String, u64> = other.typed("accounts").unwrap();
    let failed = db.transaction(|tx| tx.typed(&foreign).put("ada", &1));
    assert!(matches!(failed, Err(Error::InvalidArgument { .. })));
}
