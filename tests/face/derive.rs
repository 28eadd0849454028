//! Goal: a struct with `#[derive(Key)]` has the encoding of the tuple of its fields: the same bytes, the same order, the same
//! prefixes.
//!
//! Method: random structs beside their tuples, in memory and in a container.

use ebbtide::{Database, Key, Options, Ttl, TypedContainer, TypedKey, TypedPrefix};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};

#[derive(Key, Clone, Debug, PartialEq, PartialOrd)]
struct Hit {
    page: String,
    hour: i32,
    visitor: Option<String>,
}

#[derive(Key, Clone, Debug, PartialEq, PartialOrd)]
struct Pair<A, B>(A, B);

#[derive(Key, Clone, Copy, Debug, PartialEq)]
struct UserId(u64);

#[derive(Key, Clone, Debug, PartialEq)]
struct Name(String);

/// Its names are those of the generated code.
#[derive(Key, Clone, Debug, PartialEq)]
struct Odd<const N: usize>
where
    [u8; N]: Sized,
{
    key: [u8; N],
    out: bool,
    r#type: Pair<UserId, Hit>,
    bytes: Vec<u8>,
    is_last: u8,
    field_0: char,
    field_1: Name,
}

type Tuple = (String, i32, Option<String>);

impl Hit {
    fn tuple(&self) -> Tuple {
        (self.page.clone(), self.hour, self.visitor.clone())
    }
}

fn encoded<K: TypedKey>(key: &K, is_last: bool) -> Vec<u8> {
    let mut out = vec![];
    K::encode(&key.as_borrowed(), is_last, &mut out);
    out
}

fn decoded<K: TypedKey>(mut bytes: &[u8]) -> K {
    let key = K::decode(true, &mut bytes).unwrap();
    assert!(bytes.is_empty());
    key
}

fn prefix<K: TypedKey>(prefix: &impl TypedPrefix<K>) -> Vec<u8> {
    let mut out = vec![];
    prefix.encode_prefix(&mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_struct_is_encoded_as_its_tuple(
        fields in vec((".{0,3}", -2..2, any::<Option<String>>()), 2),
    ) {
        let hits = fields.into_iter().map(|(page, hour, visitor)| Hit { page, hour, visitor });
        let hits = Vec::from_iter(hits);
        for hit in &hits {
            for is_last in [false, true] {
                assert_eq!(encoded(hit, is_last), encoded(&hit.tuple(), is_last));
            }
            assert_eq!(decoded::<Hit>(&encoded(hit, true)), *hit);
            let pair = Pair(hit.clone(), hit.hour);
            assert_eq!(encoded(&pair, true), encoded(&(hit.tuple(), hit.hour), true));
            assert_eq!(decoded::<Pair<Hit, i32>>(&encoded(&pair, true)), pair);
        }
        let [a, b] = &hits[..] else { unreachable!() };
        assert_eq!(encoded(a, true).cmp(&encoded(b, true)), a.partial_cmp(b).unwrap());
        let begins = |first: &str, hour: i32| {
            let of_page = prefix::<Hit>(&(first,));
            let of_hour = prefix::<Hit>(&(first, hour));
            (encoded(a, true).starts_with(&of_page), encoded(a, true).starts_with(&of_hour))
        };
        assert_eq!(begins(&b.page, b.hour).0, a.page == b.page);
        assert_eq!(begins(&b.page, b.hour).1, a.page == b.page && a.hour == b.hour);
        assert_eq!(begins(&a.page, a.hour), (true, true));
    }
}

#[test]
fn a_program_uses_structs_as_keys() -> ebbtide::Result<()> {
    let db: Database = Options::temporary()?;
    let hits: TypedContainer<Hit, u32> = db.typed("hits")?;
    let hit = |page: &str, hour| Hit {
        page: page.into(),
        hour,
        visitor: None,
    };
    let all = [("about", 1), ("home", -1), ("home", 2), ("home page", 0)];
    let all = all.map(|(page, hour)| hit(page, hour));
    for (n, key) in all.iter().enumerate().rev() {
        hits.put(key, &(n as u32))?;
    }
    let keys = hits.keys(..).collect::<ebbtide::Result<Vec<_>>>()?;
    assert_eq!(keys, all);
    assert_eq!(hits.get(&all[2])?, Some(2));
    assert_eq!(hits.prefix(("home",)).count(), 2);
    assert_eq!(hits.prefix(("home", 2)).count(), 1);
    assert_eq!(hits.count(&all[1]..=&all[2])?, 2);

    let names = db.typed::<UserId, String>("names")?;
    names.put_borrowed(&UserId(7), "ada", Ttl::Inherit)?;
    assert_eq!(names.first()?.unwrap().key, UserId(7));
    let by_name = db.typed::<Name, Vec<u8>>("by name")?;
    by_name.put_borrowed(&Name("ada".into()), &[7, 8][..], Ttl::Never)?;
    assert_eq!(by_name.prefix("a").count(), 1);
    assert_eq!(by_name.get(&Name("ada".into()))?.unwrap(), [7, 8]);

    let odd = Odd {
        key: [1, 0],
        out: true,
        r#type: Pair(UserId(3), hit("home", 4)),
        bytes: vec![0, 1],
        is_last: 5,
        field_0: 'x',
        field_1: Name("last".into()),
    };
    let odds = db.typed::<Odd<2>, ()>("odds")?;
    odds.put(&odd, &())?;
    assert_eq!(odds.last()?.unwrap().key, odd);
    Ok(())
}
