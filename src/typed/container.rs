//! Typed containers, as users meet them.

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::time::SystemTime;

use crate::api::container::Container;
use crate::api::database::Database;
use crate::api::iter::Iter;
use crate::api::writing::{Waiting, Writes, Writing};
use crate::base::{Result, Ttl};
use crate::data::item::Item;
use crate::data::version::Version;
use crate::data::write::{PutIf, Upserted, Written};
use crate::typed::item::{TypedItem, TypedUpdate, TypedUpdated};
use crate::typed::key::{self, TypedKey, TypedPrefix};
use crate::typed::read::{
    TypedIter, TypedKeys, encoded_range, typed_handle_traits, typed_reading_methods,
};
use crate::typed::value::{self, TypedValue};
use crate::typed::write::{turn, typed_writing_methods};

/// A [`Container`] with keys and values of the program's types: keys by an encoding that keeps their order ([`TypedKey`]),
/// values by serde ([`TypedValue`]; [`Json`](crate::Json) on request). Cheap to clone; clones, and the untyped container, are
/// the same container. With the feature `typed`.
///
/// A key is given as its borrowed form: `&str` where it is a `String`, `(&str, u64)` where it is a `(String, u64)`.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::Database;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Session {
///     user: String,
///     visits: u32,
/// }
///
/// let folder = tempfile::tempdir()?;
/// let db = Database::open(folder.path())?;
/// let sessions = db.typed::<String, Session>("sessions")?;
/// let session = Session { user: "ada".into(), visits: 1 };
/// sessions.put_with_ttl("s-1", &session, Duration::from_secs(1_800))?;
/// assert_eq!(sessions.get("s-1")?, Some(session));
///
/// let by_user = db.typed::<(String, u64), String>("sessions by user")?;
/// by_user.put(("ada", 17), &"s-1".into())?;
/// for item in by_user.prefix(("ada",)) {
///     let item = item?;
///     assert_eq!((item.key.1, &item.value[..]), (17, "s-1"));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What is stored
/// Items like any others, which [`TypedContainer::untyped`] and the command line read: a `String` is its own bytes, and
/// [`Json`](crate::Json) its text. Other keys, and values in postcard's format, are shown by `ebbtide get --hex` or `--base64`.
/// Nothing on disk says of which types they are: another type may read them as other values.
///
/// # Errors
/// All methods have the errors of [`Container`]. Reading also returns [`Error::Decode`](crate::Error::Decode) for stored bytes that
/// are not of the types; writing also returns [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a value that its format
/// cannot encode.
pub struct TypedContainer<K, V> {
    untyped: Container,
    types: PhantomData<fn() -> (K, V)>,
}

impl Database {
    /// Opens a container, or creates it as [`Database::container`] does, with keys and values of these types. With the feature
    /// `typed`.
    pub fn typed<K: TypedKey, V: TypedValue>(
        &self,
        name: impl AsRef<str>,
    ) -> Result<TypedContainer<K, V>> {
        self.container(name).map(|container| container.typed())
    }
}

impl Container {
    /// The same container, with keys and values of these types. With the feature `typed`.
    ///
    /// ```
    /// use ebbtide::{Compression, ContainerOptions, Database, Json};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let options = ContainerOptions::new().compression(Compression::Lz4);
    /// let pages = db.container_with("pages", options)?.typed::<u64, Json<Vec<String>>>();
    /// pages.put(7, &vec!["a line".to_owned()])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn typed<K: TypedKey, V: TypedValue>(&self) -> TypedContainer<K, V> {
        TypedContainer {
            untyped: self.clone(),
            types: PhantomData,
        }
    }
}

impl<K: TypedKey, V: TypedValue> TypedContainer<K, V> {
    /// The same container with keys and values as bytes; settings and statistics are there.
    #[must_use]
    pub fn untyped(&self) -> &Container {
        &self.untyped
    }

    fn writing(&self) -> Writing<'_, Waiting> {
        self.untyped.writing()
    }

    /// Loads items whose keys ascend straight into tables, as one write, as [`Container::bulk_load`] does. Each value is
    /// encoded when its turn comes; one that cannot be is the load's error, and nothing is loaded.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let squares = Database::open(folder.path())?.typed::<i32, i64>("squares")?;
    /// squares.bulk_load((-500..500).map(|n| (n, i64::from(n) * i64::from(n))))?;
    /// assert_eq!(squares.get(-499)?, Some(249_001));
    /// assert_eq!(squares.first()?.unwrap().key, -500); // the order of keys is that of the type
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bulk_load<D: Borrow<V::Data>>(
        &self,
        items: impl IntoIterator<Item = (K, D)>,
    ) -> Result<Written> {
        let items = items.into_iter();
        self.bulk_load_with_ttl(items.map(|(key, value)| Ok((key, value, Ttl::Inherit))))
    }

    /// Like [`TypedContainer::bulk_load`], of items with a ttl each, as [`Container::bulk_load_with_ttl`] does.
    pub fn bulk_load_with_ttl<D: Borrow<V::Data>>(
        &self,
        items: impl IntoIterator<Item = Result<(K, D, Ttl)>>,
    ) -> Result<Written> {
        let items = items.into_iter().map(|item| {
            let (key, value, ttl) = item?;
            let value = value::encoded::<V>(value.borrow())?;
            Ok((key::encoded::<K>(&key.as_borrowed()), value, ttl))
        });
        self.untyped.bulk_load_with_ttl(items)
    }
}

typed_reading_methods!(TypedContainer<K, V>, Iter);
typed_writing_methods!(TypedContainer<K, V>);
typed_handle_traits!(TypedContainer);
