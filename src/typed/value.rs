//! Values as bytes, by serde.

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::{Error, Result as Answer};

/// How the values of a [`TypedContainer`](crate::TypedContainer) are stored.
///
/// A serde type is stored in [postcard's format](https://postcard.jamesmunns.com), which is short and has no field names: after a
/// field is added or moved, older values cannot be decoded, or decode to other values. [`Json`] of the type is stored as JSON.
/// Types that ask the format what it holds (`#[serde(untagged)]`, `#[serde(flatten)]`) are written and never decoded: use
/// [`Json`] for them.
/// For another format, implement this trait for a type that is not a serde type:
///
/// ```
/// use ebbtide::{Database, TypedValue};
///
/// struct Hex; // numbers as hexadecimal digits
///
/// impl TypedValue for Hex {
///     type Data = u64;
///
///     fn encode(data: &u64) -> Result<Vec<u8>, String> {
///         Ok(format!("{data:x}").into_bytes())
///     }
///
///     fn decode(bytes: &[u8]) -> Result<u64, String> {
///         let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
///         u64::from_str_radix(text, 16).map_err(|error| error.to_string())
///     }
/// }
///
/// let folder = tempfile::tempdir()?;
/// let colours = Database::open(folder.path())?.typed::<String, Hex>("colours")?;
/// colours.put("orange", &0xffa500)?;
/// assert_eq!(colours.untyped().get("orange")?.unwrap(), "ffa500");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait TypedValue {
    /// The values themselves.
    type Data;

    /// The bytes to store.
    ///
    /// # Errors
    /// Why this value has none.
    fn encode(data: &Self::Data) -> Result<Vec<u8>, String>;

    /// The value that these bytes are, all of them.
    ///
    /// # Errors
    /// The fault of the bytes, in words.
    fn decode(bytes: &[u8]) -> Result<Self::Data, String>;
}

impl<T: Serialize + DeserializeOwned> TypedValue for T {
    type Data = T;

    fn encode(data: &T) -> Result<Vec<u8>, String> {
        postcard::to_extend(data, vec![]).map_err(|error| error.to_string())
    }

    fn decode(bytes: &[u8]) -> Result<T, String> {
        match postcard::take_from_bytes(bytes) {
            Ok((data, [])) => Ok(data),
            Ok((_, rest)) => Err(format!("there are {} bytes behind it", rest.len())),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Values of a serde type, stored as JSON text. It is longer than postcard's format, and readable without the type; fields can be
/// added and moved as serde's attributes allow.
///
/// ```
/// use ebbtide::{Database, Json};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Session {
///     user: String,
/// }
///
/// let folder = tempfile::tempdir()?;
/// let sessions = Database::open(folder.path())?.typed::<String, Json<Session>>("sessions")?;
/// sessions.put("s-1", &Session { user: "ada".into() })?;
/// assert_eq!(sessions.get("s-1")?.unwrap().user, "ada");
/// assert_eq!(sessions.untyped().get("s-1")?.unwrap(), r#"{"user":"ada"}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Json<T>(PhantomData<fn() -> T>);

/// No value has this type: it is only the name of a format.
impl<T> fmt::Debug for Json<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Json")
    }
}

impl<T: Serialize + DeserializeOwned> TypedValue for Json<T> {
    type Data = T;

    fn encode(data: &T) -> Result<Vec<u8>, String> {
        serde_json::to_vec(data).map_err(|error| error.to_string())
    }

    fn decode(bytes: &[u8]) -> Result<T, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
}

/// A value's bytes.
pub fn encoded<V: TypedValue>(data: &V::Data) -> Answer<Vec<u8>> {
    V::encode(data).map_err(|what| {
        let given = format!("that cannot be encoded ({what})");
        Error::invalid("value", given, "what its format can hold")
    })
}

/// The value that these bytes of a container are.
pub fn decoded<V: TypedValue>(container: &str, key: &[u8], stored: &[u8]) -> Answer<V::Data> {
    V::decode(stored).map_err(|what| Error::decode(container, key, format!("its value: {what}")))
}
