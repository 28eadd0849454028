//! A range delete in the manifest: its keys are hexadecimal.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::Seq;
use crate::data::batch::KeyRange;
use crate::data::range_delete::RangeDelete;

/// A range delete as it is written in the manifest.
#[derive(Serialize, Deserialize)]
struct RangeRecord<'a> {
    seq: Seq,
    /// The first key.
    #[serde(with = "hex")]
    from: Cow<'a, [u8]>,
    /// The first key after the range.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hex_option")]
    to: Option<Cow<'a, [u8]>>,
}

impl Serialize for RangeDelete {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let KeyRange { from, to } = &self.range;
        let record = RangeRecord {
            seq: self.seq,
            from: from.into(),
            to: to.as_ref().map(Cow::from),
        };
        record.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RangeDelete {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let record = RangeRecord::deserialize(deserializer)?;
        let range = KeyRange {
            from: record.from.into_owned(),
            to: record.to.map(Cow::into_owned),
        };
        Ok(RangeDelete {
            range,
            seq: record.seq,
        })
    }
}

/// Bytes in JSON.
mod hex {
    use std::borrow::Cow;

    use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn decode<E: Error>(text: &str) -> Result<Vec<u8>, E> {
        HEXLOWER_PERMISSIVE
            .decode(text.as_bytes())
            .map_err(|error| E::custom(format_args!("not hexadecimal: {error}")))
    }

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&HEXLOWER.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Cow<'static, [u8]>, D::Error> {
        decode(&String::deserialize(deserializer)?).map(Cow::Owned)
    }
}

mod hex_option {
    use std::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(
        bytes: &Option<Cow<'_, [u8]>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => super::hex::serialize(bytes, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Cow<'static, [u8]>>, D::Error> {
        Option::<String>::deserialize(deserializer)?
            .map(|text| super::hex::decode(&text).map(Cow::Owned))
            .transpose()
    }
}
