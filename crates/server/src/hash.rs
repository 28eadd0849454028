//! Effective partition keys: the places of partition keys in the range from "" to "FF" that SDKs divide.
//!
//! SDKs name a partition, the documents below a prefix, or any part of a container by a range of them.
//!
//! ```text
//! version 2, one path      murmur3_128(values as bytes), its bytes turned around, the two top bits cleared, in hex
//! version 2, more paths    the same of each value, one after another
//! version 1                murmur3_32 as a number, then the values, each in an encoding that keeps its order, in hex
//! ```

use serde_json::Value;

/// Version 1 hashes so many characters of a string, and appends it whole where it has at most so many bytes, else one
/// byte more of it.
const STRING_LENGTH: usize = 100;

/// The effective partition key, in capital hex, of a key as the header has it: `{}` is an absent value.
pub(crate) fn effective(values: &[Value], paths: usize, version: u64) -> String {
    if paths > 1 {
        values
            .iter()
            .map(|value| hashed(std::slice::from_ref(value)))
            .collect()
    } else if version == 1 {
        first_version(values)
    } else {
        hashed(values)
    }
}

/// The place that has so many of so many equal parts of the range before it.
pub(crate) fn boundary(number: u64, of: u64, version: u64) -> String {
    if version == 1 {
        let mut place = Vec::new();
        write_number(((number << 32) / of) as f64, &mut place);
        return hex(&place);
    }
    // Of 128 bits the two top ones are cleared.
    let place = (1u128 << 126) / u128::from(of) * u128::from(number);
    hex(&place.to_be_bytes())
}

/// A number that tells texts apart.
pub(crate) fn digest(bytes: &[u8]) -> u32 {
    murmur3_32(bytes)
}

fn hashed(values: &[Value]) -> String {
    let mut bytes = Vec::new();
    values
        .iter()
        .for_each(|value| write_value(value, 0xff, &mut bytes));
    let (low, high) = murmur3_128(&bytes);
    let mut place = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
    place[0] &= 0x3f;
    hex(&place)
}

fn first_version(values: &[Value]) -> String {
    let values: Vec<Value> = values.iter().map(cut).collect();
    let mut bytes = Vec::new();
    values
        .iter()
        .for_each(|value| write_value(value, 0, &mut bytes));
    let mut place = Vec::new();
    write_number(f64::from(murmur3_32(&bytes)), &mut place);
    values
        .iter()
        .for_each(|value| write_in_order(value, &mut place));
    hex(&place)
}

fn cut(value: &Value) -> Value {
    match value {
        Value::String(text) => text.chars().take(STRING_LENGTH).collect::<String>().into(),
        other => other.clone(),
    }
}

/// The tags of the kinds of values.
const UNDEFINED: u8 = 0;
const NULL: u8 = 1;
const FALSE: u8 = 2;
const TRUE: u8 = 3;
const NUMBER: u8 = 5;
const STRING: u8 = 8;

fn write_value(value: &Value, end_of_string: u8, bytes: &mut Vec<u8>) {
    match value {
        Value::Null => bytes.push(NULL),
        Value::Bool(true) => bytes.push(TRUE),
        Value::Bool(false) => bytes.push(FALSE),
        Value::Number(number) => {
            bytes.push(NUMBER);
            bytes.extend(number.as_f64().unwrap_or_default().to_le_bytes());
        }
        Value::String(text) => {
            bytes.push(STRING);
            bytes.extend(text.as_bytes());
            bytes.push(end_of_string);
        }
        Value::Array(_) | Value::Object(_) => bytes.push(UNDEFINED),
    }
}

fn write_in_order(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Null => bytes.push(NULL),
        Value::Bool(true) => bytes.push(TRUE),
        Value::Bool(false) => bytes.push(FALSE),
        Value::Number(number) => write_number(number.as_f64().unwrap_or_default(), bytes),
        Value::String(text) => {
            bytes.push(STRING);
            let appended = text.bytes().take(STRING_LENGTH + 1);
            bytes.extend(appended.map(|byte| byte.saturating_add(1)));
            if text.len() <= STRING_LENGTH {
                bytes.push(0);
            }
        }
        Value::Array(_) | Value::Object(_) => bytes.push(UNDEFINED),
    }
}

/// Eight bits of the number, then seven at a time; the last bit of a byte says whether another follows.
fn write_number(number: f64, bytes: &mut Vec<u8>) {
    bytes.push(NUMBER);
    let sign = 1 << 63;
    let bits = number.to_bits();
    let mut left = if bits & sign == 0 {
        bits ^ sign
    } else {
        (!bits).wrapping_add(1)
    };
    bytes.push((left >> 56) as u8);
    left <<= 8;
    let mut last = None;
    while left != 0 {
        bytes.extend(last);
        last = Some((left >> 56) as u8 | 1);
        left <<= 7;
    }
    bytes.push(last.unwrap_or_default() & 0xfe);
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXUPPER.encode(bytes)
}

fn murmur3_128(bytes: &[u8]) -> (u64, u64) {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let mix_1 = |k: u64| k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let mix_2 = |k: u64| k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let (mut h1, mut h2) = (0u64, 0u64);
    let mut chunks = bytes.chunks_exact(16);
    for chunk in &mut chunks {
        h1 = (h1 ^ mix_1(word(&chunk[..8])))
            .rotate_left(27)
            .wrapping_add(h2);
        h1 = h1.wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 = (h2 ^ mix_2(word(&chunk[8..])))
            .rotate_left(31)
            .wrapping_add(h1);
        h2 = h2.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let rest = chunks.remainder();
    let (first, second) = rest.split_at(rest.len().min(8));
    h1 ^= mix_1(word(first));
    h2 ^= mix_2(word(second));
    h1 ^= bytes.len() as u64;
    h2 ^= bytes.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    (h1, h2) = (finish_64(h1), finish_64(h2));
    h1 = h1.wrapping_add(h2);
    (h1, h2.wrapping_add(h1))
}

/// Up to eight bytes, the lowest first.
fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn finish_64(mut h: u64) -> u64 {
    h = (h ^ h >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ h >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ h >> 33
}

fn murmur3_32(bytes: &[u8]) -> u32 {
    let mix = |k: u32| {
        k.wrapping_mul(0xcc9e_2d51)
            .rotate_left(15)
            .wrapping_mul(0x1b87_3593)
    };
    let mut chunks = bytes.chunks_exact(4);
    let mut h = 0u32;
    for chunk in &mut chunks {
        h = (h ^ mix(word(chunk) as u32))
            .rotate_left(13)
            .wrapping_mul(5)
            .wrapping_add(0xe654_6b64);
    }
    h ^= mix(word(chunks.remainder()) as u32);
    h ^= bytes.len() as u32;
    h = (h ^ h >> 16).wrapping_mul(0x85eb_ca6b);
    h = (h ^ h >> 13).wrapping_mul(0xc2b2_ae35);
    h ^ h >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As azure-cosmos 4.17.1 for Python computes them.
    #[test]
    fn places_are_those_that_an_sdk_computes() {
        let [wide, long] = ["é".repeat(70), "x".repeat(101)];
        for (value, first, second) in [
            (
                Value::from(""),
                "05C1CF33970FF80800",
                "32E9366E637A71B4E710384B2F4970A0",
            ),
            (
                Value::from("partition key"),
                "05C1ED41F7A98208716273756A756A706F216C667A00",
                "21EB91DD75ADDEE85AE82360441A8FA6",
            ),
            (
                Value::from("0123456789abcde"),
                "05C1DFDF2F01B0083132333435363738393A626364656600",
                "33B036E0CA3C82ED9D82B976C140D5D7",
            ),
            (
                Value::from(&*wide),
                &format!("05C1D97FD1F13408C4{}", "AAC4".repeat(50)),
                "0068BD3F132F24F73A0F9FC54135CCEB",
            ),
            (
                Value::from(&*long),
                &format!("05C1DD45A3938C08{}00", "79".repeat(100)),
                "300C91B3A88EBBFFE4DB4541EA0875FC",
            ),
        ] {
            let value = [value];
            assert_eq!(effective(&value, 1, 1), first, "{value:?}");
            assert_eq!(effective(&value, 1, 2), second, "{value:?}");
        }
    }

    #[test]
    fn so_are_those_of_other_values() {
        for (value, first, second) in [
            (
                Value::from(true),
                "05C1D7C5A903D803",
                "0E711127C5B5A8E4726AC6DD306A3E59",
            ),
            (
                Value::from(false),
                "05C1DB857D857C02",
                "2FE1BE91E90A3439635E0E9E37361EF2",
            ),
            (
                Value::Null,
                "05C1ED45D7475601",
                "378867E4430E67857ACE5C908374FE16",
            ),
            (
                Value::from(5),
                "05C1D9C1C5517C05C014",
                "19C08621B135968252FB34B4CF66F811",
            ),
            (
                Value::from(-5.5),
                "05C1DD6DDFADE8053FEA",
                "2DFA8CD7B541DC1A816FAAEEABD25F03",
            ),
            (
                Value::from(0.0),
                "05C1BF6DA11560058000",
                "155B95BEDAC4B1E9EC1CDC9BB0DDDE58",
            ),
            (
                Value::from(1e300),
                "05C1AB5FCFAF8005FE37F30F918103D738",
                "1234CB21048B20039B22F11DBB13CD7B",
            ),
            (
                serde_json::json!({}),
                "05C1D529E345DC00",
                "11622DAA78F835834610ABE56EFF5CB5",
            ),
        ] {
            let value = [value];
            assert_eq!(effective(&value, 1, 1), first, "{value:?}");
            assert_eq!(effective(&value, 1, 2), second, "{value:?}");
        }
    }

    #[test]
    fn a_prefix_of_a_key_is_a_prefix_of_its_place() {
        let key = [Value::from("a"), Value::from("b"), Value::Null];
        let places = [
            "3A5381E1114EB8D3FCC90795045B49B7",
            "195644569A78B1E22D200348AF9416CE",
            "378867E4430E67857ACE5C908374FE16",
        ];
        for length in 1..=3 {
            assert_eq!(effective(&key[..length], 3, 2), places[..length].concat());
        }
    }
}
