//! Goal: typed containers keep what their documentation says: the order of bytes is the order of keys, each key has one
//! spelling, what is stored is what docs/format.md shows, and what is not of the types is an error that changes nothing.
//!
//! Method: encodings are compared with the order of the standard library, for keys that a generator makes mostly of bytes
//! that mean something to the encoding; a container is compared with a map; the bytes are compared with the document's.

#![allow(clippy::disallowed_methods)]

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Bound;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::{
    Batch, Database, Error, Expect, ExpirationCause, ExpiryCursor, Json, ManualClock, Options, Ttl,
    TypedChange, TypedContainer, TypedKey, TypedUpdate, TypedValue, Version,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

const NOW: u64 = 1_800_000_000_000;

fn encoded<K: TypedKey>(key: &K, is_last: bool) -> Vec<u8> {
    let mut out = vec![];
    K::encode(&key.as_borrowed(), is_last, &mut out);
    out
}

/// All that is promised of two keys of a type, whatever stands behind them.
fn check<K: TypedKey + Ord + Debug>(a: &K, b: &K, behind_a: &[u8], behind_b: &[u8]) {
    let (last_a, last_b) = (encoded(a, true), encoded(b, true));
    assert_eq!(last_a.cmp(&last_b), a.cmp(b), "{a:?} {b:?}");
    let mut rest = &last_a[..];
    assert_eq!(
        (K::decode(true, &mut rest).as_ref(), rest),
        (Ok(a), &[][..])
    );

    let (mid_a, mid_b) = (
        [&encoded(a, false)[..], behind_a].concat(),
        [&encoded(b, false)[..], behind_b].concat(),
    );
    let order = a.cmp(b).then(behind_a.cmp(behind_b));
    assert_eq!(mid_a.cmp(&mid_b), order, "{a:?} {b:?}, and more");
    let mut rest = &mid_a[..];
    assert_eq!(
        (K::decode(false, &mut rest).as_ref(), rest),
        (Ok(a), behind_a)
    );
}

/// A failing case is shown, and kept nowhere.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Bytes that mean something to the encoding, above all.
fn bytes() -> BoxedStrategy<Vec<u8>> {
    let byte = prop_oneof![Just(0), Just(1), Just(2), Just(254), Just(255), any::<u8>()];
    prop::collection::vec(byte, 0..5).boxed()
}

fn string() -> BoxedStrategy<String> {
    let char = prop_oneof![
        Just('\0'),
        Just('\u{1}'),
        Just('a'),
        Just('\u{ff}'),
        Just('\u{10ffff}'),
        any::<char>()
    ];
    prop::collection::vec(char, 0..5)
        .prop_map(String::from_iter)
        .boxed()
}

/// On both sides of 1970.
fn time() -> impl Strategy<Value = SystemTime> + Clone {
    (-5_000_000_000..5_000_000_000_i64).prop_map(|nanos| {
        let from_1970 = Duration::from_nanos(nanos.unsigned_abs());
        match nanos {
            0.. => UNIX_EPOCH + from_1970,
            _ => UNIX_EPOCH - from_1970,
        }
    })
}

fn address() -> impl Strategy<Value = IpAddr> + Clone {
    (any::<bool>(), any::<[u8; 16]>()).prop_map(|(is_long, bytes)| match is_long {
        true => Ipv6Addr::from(bytes).into(),
        false => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
    })
}

/// Two keys that are often alike in their first part.
fn pair<K: Clone + Debug>(
    key: impl Strategy<Value = K> + Clone,
    mix: impl Fn(K, K) -> K + Clone + 'static,
) -> impl Strategy<Value = (K, K)> {
    (key.clone(), key, any::<bool>()).prop_map(move |(a, b, alike)| {
        let other = if alike { mix(a.clone(), b) } else { b };
        (a, other)
    })
}

macro_rules! orders {
    ($($name:ident: $strategy:expr, $mix:expr;)*) => {
        proptest! {
            #![proptest_config(cases(512))]
            $(
                #[test]
                fn $name((a, b) in pair($strategy, $mix), x in bytes(), y in bytes()) {
                    check(&a, &b, &x, &y);
                    check(&b, &a, &x, &y);
                    check(&a, &a, &x, &y);
                }
            )*
        }
    };
}

orders! {
    order_of_u64: any::<u64>(), |a, b| a ^ (b & 0xff);
    order_of_i16: any::<i16>(), |a, _| a.wrapping_add(1);
    order_of_i128: any::<i128>(), |a, _| !a;
    order_of_u128: any::<u128>(), |a, _| a.wrapping_sub(1);
    order_of_chars: any::<char>(), |a, _| a;
    order_of_bools: any::<bool>(), |a, _| a;
    order_of_strings: string(), |a, b| a + &b;
    order_of_bytes: bytes(), |a, b| [a, b].concat();
    order_of_options: prop::option::of(string()), |a, b| a.map(|a| a + &b.unwrap_or_default());
    order_of_arrays: [string(), string(), string()], |[a, _, _], [_, b, c]| [a, b, c];
    order_of_byte_arrays: any::<[u8; 3]>(), |a, b| [a[0], b[1], b[2]];
    order_of_times: time(), |a, _| a + Duration::from_nanos(1);
    order_of_addresses: address(), |_, b| Ipv4Addr::new(0, 0, 0, b.is_ipv4().into()).into();
    order_of_long_addresses: any::<[u8; 16]>().prop_map(Ipv6Addr::from), |a, _| a;
    order_of_pairs: (string(), any::<i8>()), |a: (_, _), b| (a.0, b.1);
    order_of_strings_in_tuples: (bytes(), string(), bytes()), |a: (_, _, _), b| (a.0, a.1, b.2);
    order_of_mixed: (string(), any::<u8>(), prop::option::of(bytes()), any::<char>()),
        |a: (_, _, _, _), b| (a.0, a.1, b.2, b.3);
    order_of_nested: ((string(), any::<i64>()), (bytes(), (any::<bool>(), string()))),
        |a: (_, _), b| (a.0, b.1);
    order_of_six: (any::<bool>(), string(), any::<u16>(), bytes(), any::<char>(), string()),
        |a: (_, _, _, _, _, _), b| (a.0, a.1, a.2, a.3, b.4, b.5);
}

/// The edges and their neighbours, which a generator seldom meets.
#[test]
fn order_at_the_edges() {
    fn all<K: TypedKey + Ord + Debug>(keys: &[K]) {
        for a in keys {
            for b in keys {
                check(a, b, &[0], &[255]);
                check(a, b, &[255], &[0]);
            }
        }
    }
    all(&(i8::MIN..=i8::MAX).collect::<Vec<_>>());
    all(&[u16::MIN, 1, 255, 256, u16::MAX]);
    all(&[i32::MIN, i32::MIN + 1, -256, -1, 0, 1, 255, 256, i32::MAX]);
    all(&[i64::MIN, -1, 0, 1, i64::MAX]);
    all(&[u32::MIN, 1, 65_535, 65_536, u32::MAX]);
    all(&[
        '\0',
        '\u{7f}',
        '\u{80}',
        '\u{7ff}',
        '\u{800}',
        '\u{d7ff}',
        '\u{e000}',
        '\u{ffff}',
        '\u{10000}',
        char::MAX,
    ]);
    all(&[
        "",
        "\0",
        "\0\0",
        "\0\u{1}",
        "\u{1}",
        "a",
        "a\0",
        "a\0\u{ff}",
        "a\u{1}",
        "ab",
    ]
    .map(String::from));
    all(&[
        vec![],
        vec![0],
        vec![0, 0],
        vec![0, 1],
        vec![0, 255],
        vec![1],
        vec![255],
        vec![255, 0],
        vec![255, 255],
    ]);
    all(&[None, Some(None), Some(Some(0u8)), Some(Some(255))]);
    let furthest = Duration::new(i64::MAX as u64, 999_999_999);
    all(&[
        UNIX_EPOCH - Duration::from_secs(1 << 63),
        UNIX_EPOCH - Duration::from_millis(1),
        UNIX_EPOCH,
        UNIX_EPOCH + furthest,
    ]);
}

#[test]
fn bytes_that_are_no_key_are_refused() {
    fn refused<K: TypedKey + Debug>(bytes: &[u8], what: &str) {
        let mut rest = bytes;
        let found = K::decode(false, &mut rest).expect_err("it is no key");
        assert!(found.contains(what), "{bytes:?}: {found}");
    }
    refused::<u64>(&[1; 7], "too short");
    refused::<i8>(&[], "too short");
    refused::<bool>(&[2], "neither 0 nor 1");
    refused::<char>(&[0xed, 0xa0, 0x80], "not UTF-8");
    refused::<char>(&[0xf0, 0x9f], "not UTF-8");
    refused::<char>(&[], "too short");
    refused::<String>(b"abc", "no end");
    refused::<String>(b"abc\0", "a byte 0");
    refused::<String>(b"abc\0\x02", "a byte 0");
    refused::<String>(b"\xff\0\x01", "not UTF-8");
    refused::<Option<u8>>(&[2, 0], "neither 0 nor 1");
    refused::<SystemTime>(&[128, 0, 0, 0, 0, 0, 0, 0, 0x3b, 0x9a, 0xca, 0], "a second");
    refused::<SystemTime>(&[128, 0, 0, 0, 0, 0, 0, 0, 0], "too short");
    refused::<IpAddr>(&[5, 0, 0, 0, 0], "neither of version");
    refused::<IpAddr>(&[6, 0, 0, 0, 0], "too short");
    refused::<Option<u8>>(&[1], "too short");
    refused::<[u16; 2]>(&[0, 1, 2], "too short");
    refused::<(String, u32)>(b"a\0\x01\0\0\0", "too short");
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Session {
    user: String,
    visits: u32,
}

fn session(user: &str, visits: u32) -> Session {
    let user = user.to_owned();
    Session { user, visits }
}

struct Stage {
    _folder: tempfile::TempDir,
    clock: ManualClock,
    db: Database,
}

fn stage() -> Stage {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(NOW);
    let db = Options::new()
        .clock(clock.clone())
        .open(folder.path())
        .unwrap();
    Stage {
        _folder: folder,
        clock,
        db,
    }
}

/// The lines of docs/format.md that show what stands in files, with what this build stores.
#[test]
fn the_bytes_are_those_of_the_document() {
    fn line<K: TypedKey>(shown: &str, ty: &str, key: K) -> String {
        let hex: Vec<_> = encoded(&key, true)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("| `{ty}` | `{shown}` | `{}` |", hex.join(" "))
    }
    fn value_line<V: TypedValue>(shown: &str, ty: &str, data: &V::Data) -> String {
        let bytes = V::encode(data).unwrap();
        let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("| `{ty}` | `{shown}` | `{}` |", hex.join(" "))
    }
    macro_rules! key {
        ($ty:ty, $key:expr) => {
            line::<$ty>(stringify!($key), stringify!($ty), $key.into())
        };
    }
    let lines = [
        line::<u16>("258", "u16", 258),
        line::<u64>("7", "u64", 7),
        key!(i32, 7),
        key!(i32, -2),
        key!(bool, true),
        key!(char, 'é'),
        key!(String, "ada"),
        key!(Vec<u8>, b"\x00\xff"),
        key!(Option<u8>, None),
        key!(Option<u8>, Some(7)),
        key!([u8; 2], [1, 2]),
        key!(SystemTime, UNIX_EPOCH - Duration::from_nanos(1)),
        key!(IpAddr, [127, 0, 0, 1]),
        key!(Ipv4Addr, [10, 0, 0, 7]),
        line::<(String, u16)>("(\"ada\", 7)", "(String, u16)", ("ada".into(), 7)),
        line::<(String, String)>(
            "(\"a\\0b\", \"c\\0d\")",
            "(String, String)",
            ("a\0b".into(), "c\0d".into()),
        ),
        line::<(u8, (bool, char))>("(7, (true, 'x'))", "(u8, (bool, char))", (7, (true, 'x'))),
        value_line::<u64>("300", "u64", &300),
        value_line::<String>("\"ada\"", "String", &"ada".into()),
        value_line::<(Option<u8>, bool)>("(Some(7), true)", "(Option<u8>, bool)", &(Some(7), true)),
        value_line::<Json<Vec<u8>>>("[1, 2]", "Json<Vec<u8>>", &vec![1, 2]),
    ];
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/format.md");
    let document = std::fs::read_to_string(path).unwrap();
    let missing: Vec<_> = lines
        .iter()
        .filter(|line| !document.contains(*line))
        .collect();
    assert!(missing.is_empty(), "docs/format.md lacks {missing:#?}");
}

#[test]
fn what_is_stored_is_read_without_types() {
    let Stage { _folder, db, .. } = stage();
    let json = db.typed::<String, Json<Session>>("json").unwrap();
    json.put("s-1", &session("ada", 2)).unwrap();
    let stored = json.untyped().get("s-1").unwrap().unwrap();
    assert_eq!(stored, r#"{"user":"ada","visits":2}"#);
    json.untyped()
        .put("s-2", r#" {"visits": 1, "user": "bob"} "#)
        .unwrap();
    assert_eq!(json.get("s-2").unwrap(), Some(session("bob", 1)));

    let short = db.typed::<String, Session>("postcard").unwrap();
    short.put("s-1", &session("ada", 2)).unwrap();
    assert_eq!(short.untyped().get("s-1").unwrap().unwrap(), b"\x03ada\x02");
}

type Key = (String, i32);

/// A container and a map have the same items, in both directions, in every range and under every prefix.
fn same(typed: &TypedContainer<Key, u64>, map: &BTreeMap<Key, u64>, at: &Key) {
    type Items = ebbtide::Result<Vec<(Key, u64)>>;
    let key = (&at.0[..], at.1);
    let all = |items: ebbtide::TypedIter<Key, u64>| -> Vec<(Key, u64)> {
        let pairs = items.map(|item| item.map(|item| (item.key, item.value)));
        pairs.collect::<Items>().unwrap()
    };
    let pairs = |range: (Bound<Key>, Bound<Key>)| -> Vec<(Key, u64)> {
        map.range(range)
            .map(|(key, value)| (key.clone(), *value))
            .collect()
    };
    let (from, to) = (Bound::Included(at.clone()), Bound::Unbounded);
    assert_eq!(all(typed.range(key..)), pairs((from.clone(), to.clone())));
    assert_eq!(
        all(typed.range(..key)),
        pairs((to.clone(), Bound::Excluded(at.clone())))
    );
    assert_eq!(all(typed.range(..=key)), pairs((to.clone(), from)));
    let above = (Bound::Excluded(key), Bound::Unbounded);
    assert_eq!(
        all(typed.range(above)),
        pairs((Bound::Excluded(at.clone()), to))
    );
    assert_eq!(
        typed.count(..key).unwrap(),
        map.range(..at.clone()).count() as u64
    );

    let backwards: Vec<_> = typed.iter().rev().map(|item| item.unwrap().key).collect();
    assert_eq!(backwards, map.keys().rev().cloned().collect::<Vec<_>>());
    let keys: Vec<_> = typed.keys(..).map(Result::unwrap).collect();
    assert_eq!(keys, map.keys().cloned().collect::<Vec<_>>());
    let expected: Vec<_> = map
        .clone()
        .into_iter()
        .filter(|(key, _)| key.0 == at.0)
        .collect();
    assert_eq!(all(typed.prefix((&at.0[..],))), expected);
    assert_eq!(typed.get(key).unwrap(), map.get(at).copied());
    assert_eq!(typed.contains(key).unwrap(), map.contains_key(at));
    let ends = (typed.first().unwrap(), typed.last().unwrap());
    let ends = (ends.0.map(|item| item.key), ends.1.map(|item| item.key));
    assert_eq!(
        ends,
        (map.keys().next().cloned(), map.keys().next_back().cloned())
    );
    assert_eq!(typed.is_empty().unwrap(), map.is_empty());
}

proptest! {
    #![proptest_config(cases(24))]
    #[test]
    fn a_container_is_an_ordered_map(
        steps in prop::collection::vec((0..6u8, string(), -2..3i32, any::<u64>()), 1..24)
    ) {
        let Stage { _folder, db, .. } = stage();
        let typed = db.typed::<Key, u64>("c").unwrap();
        let mut map = BTreeMap::new();
        for (step, name, n, value) in steps {
            let (key, at) = ((&name[..], n), (name.clone(), n));
            match step {
                0 => {
                    typed.delete(key).unwrap();
                    map.remove(&at);
                }
                1 => {
                    typed.delete_range(key..).unwrap();
                    map.split_off(&at);
                }
                2 => {
                    let created = typed.create(key, &value, Ttl::Inherit).unwrap();
                    prop_assert_eq!(created, !map.contains_key(&at));
                    map.entry(at.clone()).or_insert(value);
                }
                3 => {
                    let taken = typed.take(key).unwrap();
                    prop_assert_eq!(taken.map(|item| item.value), map.remove(&at));
                }
                _ => {
                    typed.put(key, &value).unwrap();
                    map.insert(at.clone(), value);
                }
            }
            same(&typed, &map, &at);
        }
        db.flush().unwrap();
        same(&typed, &map, &("a".to_owned(), 0));
    }
}

/// Prefixes of each kind admit the keys that begin with their whole elements.
#[test]
fn prefixes_are_of_whole_elements() {
    let Stage { _folder, db, .. } = stage();
    let triples = db.typed::<(u8, String, u8), ()>("triples").unwrap();
    for key in [
        (1, "a", 1),
        (1, "a", 255),
        (1, "a\0", 1),
        (1, "ab", 1),
        (2, "a", 1),
        (255, "", 0),
    ] {
        triples.put(key, &()).unwrap();
    }
    assert_eq!(triples.prefix((1,)).count(), 4);
    assert_eq!(triples.prefix((1, "a")).count(), 2);
    assert_eq!(triples.prefix((255,)).count(), 1);
    assert_eq!(triples.prefix((3,)).count(), 0);
    let strings = db.typed::<String, ()>("strings").unwrap();
    ["a", "ab", "b"]
        .iter()
        .try_for_each(|key| strings.put(key, &()))
        .unwrap();
    assert_eq!(strings.prefix("a").count(), 2);
    assert_eq!(strings.prefix("").count(), 3);
    assert_eq!(strings.range("ab".."b").count(), 1);
    let bytes = db.typed::<Vec<u8>, ()>("bytes").unwrap();
    bytes.put(&[255, 255, 1], &()).unwrap();
    assert_eq!(bytes.prefix(&[255, 255][..]).count(), 1);
}

#[test]
fn items_keep_their_times() {
    let Stage { _folder, db, clock } = stage();
    let c = db.typed::<u64, String>("c").unwrap();
    let minute = Duration::from_secs(60);
    let end = || c.item(7).unwrap().unwrap().stored.expires_at();
    let at =
        |seconds: u64| Some(UNIX_EPOCH + Duration::from_millis(NOW) + Duration::from_secs(seconds));
    c.put_with_ttl(7, &"seven".to_owned(), minute).unwrap();
    assert_eq!(end(), at(60));
    clock.advance(Duration::from_secs(30));
    assert!(c.touch(7).unwrap() && !c.touch(8).unwrap());
    assert_eq!(end(), at(90));
    assert!(c.expire(7, Duration::from_secs(5)).unwrap());
    assert_eq!(end(), at(35));
    c.put_with_ttl(7, &"sieben".to_owned(), Ttl::Keep).unwrap();
    assert_eq!(
        (end(), c.get(7).unwrap().as_deref()),
        (at(35), Some("sieben"))
    );
    clock.advance(Duration::from_secs(5));
    assert!(c.item(7).unwrap().is_none());
    assert!(!c.replace(7, &"late".to_owned(), Ttl::Inherit).unwrap());
    assert!(c.create(7, &"new".to_owned(), minute).unwrap());
    assert_eq!(c.get_many([8, 7]).unwrap(), [None, Some("new".to_owned())]);
}

#[test]
fn an_update_sees_and_writes_values() {
    let Stage { _folder, db, .. } = stage();
    let c = db.typed::<String, Json<u64>>("c").unwrap();
    let add = |item: Option<&ebbtide::TypedItem<String, u64>>| {
        TypedUpdate::Put(item.map_or(0, |item| item.value) + 1, Ttl::Inherit)
    };
    assert!(c.update("n", add).unwrap());
    let done = c.fetch_update("n", add).unwrap();
    assert_eq!(
        done.before.map(|item| (item.key, item.value)),
        Some(("n".to_owned(), 1))
    );
    let written = c.item("n").unwrap().unwrap();
    assert_eq!(
        (written.value, Some(written.stored.version())),
        (2, done.written.map(|w| w.version()))
    );
    let seen = written.stored.version();
    let put = |value| c.put_if("n", &value, Ttl::Inherit, |found| found == Some(seen));
    assert!(put(2).unwrap().written.is_some() && put(9).unwrap().written.is_none());
    assert!(!c.update("n", |_| TypedUpdate::Keep).unwrap());
    assert!(c.update("n", |_| TypedUpdate::Delete).unwrap());
    assert!(!c.update("n", |_| TypedUpdate::Delete).unwrap());
    assert!(c.take("n").unwrap().is_none());
}

#[test]
fn a_batch_takes_typed_writes_of_several_containers() {
    let Stage { _folder, db, .. } = stage();
    let (a, b) = (
        db.typed::<u32, String>("a").unwrap(),
        db.typed::<(String, u32), ()>("b").unwrap(),
    );
    let name = |name: &str| name.to_owned();
    let mut batch = Batch::new();
    batch
        .typed(&a)
        .put(1, &name("one"))
        .put_with_ttl(2, &name("two"), Ttl::Never)
        .put(9, &name("nine"));
    batch.typed(&b).put(("one", 1), &()).put(("two", 2), &());
    db.write(&batch).unwrap();
    assert_eq!((a.count(..).unwrap(), b.count(..).unwrap()), (3, 2));

    let mut batch = Batch::new();
    batch
        .typed(&a)
        .require(1, Expect::Present)
        .replace(1, &name("uno"), Ttl::Inherit)
        .delete(2);
    batch.typed(&a).touch(1).delete_range(5..);
    batch.typed(&b).create(("uno", 1), &(), Ttl::Inherit);
    db.write(&batch).unwrap();
    assert_eq!(
        a.iter().map(|item| item.unwrap().value).collect::<Vec<_>>(),
        ["uno"]
    );
    let conflict = db.write(&batch).unwrap_err();
    assert!(
        matches!(&conflict, Error::Conflict { container, .. } if container == "b"),
        "{conflict}"
    );
    assert_eq!(a.get(1).unwrap().unwrap(), "uno");
}

/// A serde type of which some values cannot be stored.
#[derive(Clone, Debug, Deserialize)]
struct Short(u8);

impl Serialize for Short {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            0..100 => serializer.serialize_u8(self.0),
            _ => Err(serde::ser::Error::custom("it is too long")),
        }
    }
}

#[test]
fn a_bulk_load_takes_keys_in_the_order_of_their_type() {
    let Stage { _folder, db, clock } = stage();
    let c = db.typed::<(String, i32), Json<Short>>("c").unwrap();
    let key = |name: &str, n| (name.to_owned(), n);
    c.put(("a", -3), &Short(9)).unwrap();
    let keys = [key("", 0), key("a", -3), key("a", 2), key("a\0", -9)];
    let value = Short(7);
    let written = c.bulk_load(keys.iter().map(|key| (key.clone(), &value)));
    let version = written.unwrap().version();
    let loaded = c.iter().map(|item| {
        let item = item.unwrap();
        assert_eq!((item.value.0, item.stored.version()), (7, version));
        item.key
    });
    assert!(loaded.eq(keys));

    // Each of these is refused, and nothing of it is stored.
    let refused = |second: (String, i32), value: u8| {
        let items = [(key("b", 1), Short(1)), (second, Short(value))];
        let error = c.bulk_load(items).unwrap_err();
        assert!(c.get(("b", 1)).unwrap().is_none());
        match error {
            Error::InvalidArgument { what, .. } => what,
            other => panic!("{other}"),
        }
    };
    assert_eq!(refused(key("b", -1), 1), "key");
    assert_eq!(refused(key("b", 2), 100), "value");
    let failing = [Ok((key("b", 1), Short(1), Ttl::Never)), Err(Error::Stalled)];
    assert!(matches!(c.bulk_load_with_ttl(failing), Err(Error::Stalled)));
    assert!(c.get(("b", 1)).unwrap().is_none());

    let minute = Ttl::After(Duration::from_secs(60));
    let ttls = [Ttl::Inherit, Ttl::Never, minute];
    let items = (1..)
        .zip(ttls)
        .map(|(n, ttl)| Ok((key("b", n), Short(1), ttl)));
    c.bulk_load_with_ttl(items).unwrap();
    let found = c.range(("b", 1)..).map(|item| item.unwrap().stored.ttl());
    assert!(found.eq(ttls));
    clock.advance(Duration::from_secs(60));
    assert_eq!(c.last().unwrap().unwrap().key, key("b", 2));
}

#[test]
fn a_view_reads_what_was_there() {
    let Stage { _folder, db, .. } = stage();
    let c = db.typed::<i8, Json<u8>>("c").unwrap();
    for n in [1, -1, 0] {
        c.put(n, &1).unwrap();
    }
    let then = db
        .snapshot()
        .container("c")
        .unwrap()
        .typed::<i8, Json<u8>>();
    c.put(0, &2).unwrap();
    c.delete(-1).unwrap();
    assert_eq!(
        then.keys(..).map(Result::unwrap).collect::<Vec<_>>(),
        [-1, 0, 1]
    );
    assert_eq!(
        (then.get(0).unwrap(), c.get(0).unwrap()),
        (Some(1), Some(2))
    );
    assert_eq!((then.count(..0).unwrap(), c.count(..0).unwrap()), (1, 0));
    assert_eq!((&then).into_iter().count(), (&c).into_iter().count() + 1);
}

/// The error names the container, the key and what is wrong.
#[track_caller]
fn undecodable<T: Debug>(answer: Result<T, Error>, key: &[u8], words: &str) {
    let error = answer.expect_err("it is not of the types");
    match &error {
        Error::Decode {
            container,
            key: found,
            what,
        } => {
            assert_eq!((&container[..], &found[..]), ("c", key));
            assert!(what.contains(words), "{what}");
        }
        other => panic!("{other}"),
    }
    let said = error.to_string();
    assert!(said.contains("\"c\"") && said.contains(words), "{said}");
    assert!(!error.is_corruption() && !error.is_retryable(), "{said}");
}

#[test]
fn values_of_another_type_are_an_error_and_stay() {
    let Stage { _folder, db, .. } = stage();
    let c = db.typed::<String, Session>("c").unwrap();
    c.put("a", &session("ada", 1)).unwrap();
    c.untyped().put("b", b"\x09bob\x01").unwrap(); // nine bytes are said
    c.untyped().put("c", b"\x03bob\x01 and more").unwrap();
    c.put("d", &session("dan", 1)).unwrap();
    let before: Vec<_> = c.untyped().iter().map(Result::unwrap).collect();

    undecodable(c.get("b"), b"b", "its value");
    undecodable(c.get("c"), b"c", "9 bytes behind");
    undecodable(c.item("b"), b"b", "its value");
    undecodable(c.take("b"), b"b", "its value");
    undecodable(c.get_many(["a", "b"]), b"b", "its value");
    let mut asked = 0;
    let put = |_: Option<&_>| {
        asked += 1;
        TypedUpdate::Put(session("eve", 1), Ttl::Inherit)
    };
    undecodable(c.update("b", put), b"b", "its value");
    assert_eq!(asked, 0);
    let good: Vec<_> = c
        .iter()
        .filter_map(Result::ok)
        .map(|item| item.key)
        .collect();
    assert_eq!(
        (good, c.iter().count()),
        (vec!["a".to_owned(), "d".to_owned()], 4)
    );
    let good: Vec<_> = c
        .iter()
        .rev()
        .filter_map(Result::ok)
        .map(|item| item.key)
        .collect();
    assert_eq!(good, ["d", "a"]);
    assert!(c.contains("b").unwrap());
    assert_eq!(c.keys(..).filter(Result::is_ok).count(), 4);
    assert_eq!(
        c.untyped().iter().map(Result::unwrap).collect::<Vec<_>>(),
        before
    );
    assert!(c.replace("b", &session("bob", 1), Ttl::Inherit).unwrap());
    assert_eq!(c.get("b").unwrap(), Some(session("bob", 1)));

    let json = db.container("c").unwrap().typed::<String, Json<Session>>();
    undecodable(json.get("a"), b"a", "its value: expected value at line 1");
}

#[test]
fn keys_of_another_type_are_an_error() {
    let Stage { _folder, db, .. } = stage();
    let c = db.typed::<u32, ()>("c").unwrap();
    c.put(7, &()).unwrap();
    c.untyped().put("longer", "").unwrap();
    c.untyped().put("s", "").unwrap();
    undecodable(
        c.iter().nth(1).unwrap(),
        b"longer",
        "its key: there are bytes behind it",
    );
    undecodable(c.last(), b"s", "its key: it is too short");
    undecodable(c.keys(..).next_back().unwrap(), b"s", "its key");
    assert_eq!(
        (c.keys(..).count(), c.keys(..).filter(Result::is_ok).count()),
        (3, 1)
    );
}

#[track_caller]
fn refused<T: Debug>(answer: Result<T, Error>, what: &str, words: &str) {
    let error = answer.expect_err("it is not allowed");
    assert!(
        matches!(&error, Error::InvalidArgument { what: found, .. } if *found == what),
        "{error}"
    );
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn what_cannot_be_stored_is_refused() {
    let Stage { _folder, db, .. } = stage();
    let c = db
        .typed::<String, Json<HashMap<(u8, u8), u8>>>("c")
        .unwrap();
    let fine = HashMap::new();
    let long = "k".repeat(65_536);
    for (key, words) in [("", "0 bytes"), (&long[..], "65536 bytes")] {
        refused(c.put(key, &fine), "key", words);
        refused(c.get(key), "key", words);
        refused(c.update(key, |_| TypedUpdate::Delete), "key", words);
        let mut batch = Batch::new();
        batch.typed(&c).put("fine", &fine).put(key, &fine);
        refused(db.write(&batch), "key", words);
    }
    refused(
        db.typed::<[u8; 0], ()>("none").unwrap().put([], &()),
        "key",
        "0 bytes",
    );

    let bad = HashMap::from([((1, 2), 3)]); // an object's names are strings
    let put = |_: Option<&_>| TypedUpdate::Put(bad.clone(), Ttl::Inherit);
    let mut batch = Batch::new();
    let mut own = batch.typed(&c);
    own.put("fine", &fine).put("k", &bad);
    own.create("l", &bad, Ttl::Inherit);
    for answer in [
        c.put("k", &bad),
        c.create("k", &bad, Ttl::Inherit).map(drop),
        c.replace("k", &bad, Ttl::Inherit).map(drop),
        c.update("k", put).map(drop),
        db.write(&batch),
    ] {
        refused(answer, "value", "must be a string");
    }
    assert!(c.is_empty().unwrap());

    // Terminators count: of two strings the first has two bytes more.
    let pairs = db.typed::<(String, String), ()>("pairs").unwrap();
    pairs.put((&long[..65_533], ""), &()).unwrap();
    refused(pairs.put((&long[..65_534], ""), &()), "key", "65536 bytes");
    assert_eq!(pairs.first().unwrap().unwrap().key.0.len(), 65_533);
}

/// Changes and expirations of a container come in the program's types; bytes that are not of them are an error that is
/// passed over.
#[test]
fn changes_and_expirations_are_typed() {
    let Stage {
        _folder, db, clock, ..
    } = stage();
    let c = db.typed::<(u8, String), u32>("told").unwrap();
    let (mut changes, mut expirations) = (
        c.changes(Version::start()),
        c.expirations(ExpiryCursor::now()),
    );
    let mut pass = || -> Vec<String> {
        let shown = |change: Result<TypedChange<(u8, String), u32>, Error>| match change {
            Ok(TypedChange::Put(item)) => format!("{:?}={}", item.key, item.value),
            Ok(TypedChange::Delete { key, .. }) => format!("without {key:?}"),
            Ok(TypedChange::DeleteRange { from, to, .. }) => format!("range {from:?} {to:?}"),
            Ok(TypedChange::Created { .. }) => "created".to_owned(),
            Ok(TypedChange::Dropped) => "dropped".to_owned(),
            Ok(TypedChange::Expiry { rule }) => format!("{:?}", rule.default_ttl()),
            Ok(other) => panic!("{other:?}"),
            Err(Error::Decode { .. }) => "not of the types".to_owned(),
            Err(other) => panic!("{other}"),
        };
        changes.by_ref().map(shown).collect()
    };
    c.put((1, "ada"), &7).unwrap();
    assert_eq!(pass(), ["created", "NoDefault", "(1, \"ada\")=7"]);
    c.put_with_ttl((1, "bob"), &8, Duration::from_secs(1))
        .unwrap();
    c.untyped().put([2], [255; 9]).unwrap();
    c.put_with_ttl((3, "eve"), &9, Duration::from_secs(1))
        .unwrap();
    c.delete((1, "ada")).unwrap();
    c.delete_range((4, "")..(5, "")).unwrap();
    db.container("other").unwrap().put("k", "v").unwrap();
    let told = [
        "range b\"\\x04\" Some(b\"\\x05\")",
        "without (1, \"ada\")",
        "(1, \"bob\")=8",
        "not of the types",
        "(3, \"eve\")=9",
    ];
    assert_eq!(pass(), told);
    clock.advance(Duration::from_secs(2));
    let ended = expirations.next().unwrap().unwrap();
    assert_eq!((ended.key, ended.value), ((1, "bob".to_owned()), 8));
    let mut expirations = c.expirations(expirations.cursor());
    let ended = expirations.next().unwrap().unwrap();
    assert_eq!(
        (ended.stored.cause(), ended.value),
        (ExpirationCause::Ttl, 9)
    );
    assert!(expirations.next().is_none());
    db.drop_container("other").unwrap();
    assert!(pass().is_empty());
    db.drop_container("told").unwrap();
    assert_eq!(pass(), ["dropped"]);
}

/// Handles go to other threads, of any types.
#[test]
fn handles_are_sent_and_shared() {
    fn shared<T: Send + Sync + Clone + Debug>(_: &T) {}
    let Stage { _folder, db, .. } = stage();
    struct Unshared(#[allow(dead_code)] std::cell::Cell<*const u8>);
    impl TypedValue for Unshared {
        type Data = Unshared;

        fn encode(_: &Unshared) -> Result<Vec<u8>, String> {
            Ok(vec![])
        }

        fn decode(_: &[u8]) -> Result<Unshared, String> {
            Ok(Unshared(std::cell::Cell::new(std::ptr::null())))
        }
    }
    let c = db.typed::<u8, Unshared>("c").unwrap();
    shared(&c);
    shared(
        &db.snapshot()
            .container("c")
            .unwrap()
            .typed::<u8, Unshared>(),
    );
    assert!(format!("{c:?}").contains("\"c\""));
}
