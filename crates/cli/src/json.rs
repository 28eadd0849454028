//! Items as JSON, one object a line: what `ebbtide export` writes and `ebbtide import` reads.
//!
//! A value that is a JSON object stands in the line as it is, behind what the engine knows of the item; any other value
//! is a member of its own:
//!
//! ```text
//! {"_key":"s-1","_ts":1772366400,"_ts_ms":1772366400123,"ttl":1800,"user":"ada"}    the value is {"user":"ada"}
//! {"_key":"s-2","_ts":1772366400,"_ts_ms":1772366400123,"_value":"plain text"}      the value is text
//! {"_key_base64":"/w==","_ts":1772366400, ... ,"_value_base64":"AP8="}              neither key nor value is UTF-8
//!
//! _key        the key
//! _ts         when the item was last written: seconds since the Unix epoch, rounded down
//! _ts_ms      the same in milliseconds
//! ttl         the item's own ttl: -1 for never, or whole seconds from 1 to 2 147 483 647; absent where it inherits
//! _ttl_ms     the same in milliseconds, only where that is no whole second: `ttl` is the next one then
//! _remaining  seconds until the item expires, null when it does not: for who reads one item, ignored when read
//! ```
//!
//! Reading a line is a write, and restarts the countdown; [`from_json`] ignores when an item was written, and
//! [`from_json_with_time`] asks for it.
//!
//! In a line of an export these members belong to the item, not to its value: reading takes them out, and leaves every other
//! byte of the object as it was, with its order, its spaces, repeated names and numbers of any size. So a line that was
//! written here is read back to the same key, value and ttl. An object that would not come back so (it has a member of one
//! of these names, or a line break) is shown as text in `_value`.
//!
//! A line tells that it is one of an export: it begins with its key, `_ts` and `_ts_ms`, which agree. So it stays one where
//! others are sorted in, or left out. Any other line is an object of the caller's own, of which a member of his choice is
//! the key: a string, a number, whose digits as they are written are the key, or MongoDB's `{"$oid":"..."}`. It loses its
//! `ttl` alone: many programs have members of the other names, of their own meaning. Lines that are an export's and do not
//! say so, as older builds wrote them or others changed them, are so by the caller's word, [`LineFormat::from_export`].
//!
//! Nothing here recurses: the depth of an object is limited by the length of its line alone.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::BASE64;
use ebbtide::{DefaultTtl, Error, Item, MAX_KEY_LEN, MAX_VALUE_LEN, Result, Ttl};
use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// The member that holds the key in an exported line.
pub const KEY: &str = "_key";
const KEY_BASE64: &str = "_key_base64";
const WRITTEN_AT: &str = "_ts";
const WRITTEN_AT_MS: &str = "_ts_ms";
const TTL: &str = "ttl";
const TTL_MS: &str = "_ttl_ms";
const REMAINING: &str = "_remaining";
const VALUE: &str = "_value";
const VALUE_BASE64: &str = "_value_base64";

/// The members that belong to the item and not to its value.
const OWN: [&str; 9] = [
    KEY,
    KEY_BASE64,
    WRITTEN_AT,
    WRITTEN_AT_MS,
    TTL,
    TTL_MS,
    REMAINING,
    VALUE,
    VALUE_BASE64,
];

/// An item to be written, as a line of JSON describes it. Key and value are within the limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// 1 to 65 535 bytes.
    pub key: Vec<u8>,
    /// Up to 64 MiB.
    pub value: Vec<u8>,
    /// [`Ttl::Inherit`], [`Ttl::Never`], or [`Ttl::After`] whole milliseconds.
    pub ttl: Ttl,
}

/// An item as one line of JSON, without the line's end.
pub fn to_json(item: &Item) -> String {
    line(item, "")
}

/// A key alone, as a line of JSON.
pub fn key_to_json(key: &[u8]) -> String {
    let mut line = "{".to_owned();
    push_bytes(&mut line, key, KEY, KEY_BASE64);
    line + "}"
}

/// An item as [`to_json`] has it, with the time that it has left; `None`: it does not expire.
pub fn to_json_with_remaining(item: &Item, remaining: Option<Duration>) -> String {
    let seconds = remaining.map_or("null".to_owned(), |left| {
        format!("{}.{:03}", left.as_secs(), left.subsec_millis())
    });
    line(item, &format!(",\"{REMAINING}\":{seconds}"))
}

/// How lines are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineFormat<'a> {
    /// The member that holds the key of an object of the caller's own; without it there is none, but lines of an export.
    pub key: Option<&'a str>,
    /// All lines are an export's.
    pub from_export: bool,
}

/// The item that a line of JSON describes.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::Ttl;
/// use ebbtide_cli::json::{self, LineFormat};
///
/// let own = LineFormat { key: Some("id"), from_export: false };
/// let entry = json::from_json(br#"{"id": "s-1", "user": "ada", "ttl": 1800}"#, own)?;
/// assert_eq!(entry.key, b"s-1");
/// assert_eq!(entry.value, br#"{"id": "s-1", "user": "ada"}"#);
/// assert_eq!(entry.ttl, Ttl::After(Duration::from_secs(1_800)));
/// # Ok::<(), ebbtide::Error>(())
/// ```
///
/// # Errors
/// [`Error::InvalidArgument`]: no JSON object, no key, a ttl, key or value out of range, a member that is asked for and stands
/// there twice, or a line that may be meant as one of an export or not.
pub fn from_json(line: &[u8], reading: LineFormat<'_>) -> Result<Entry> {
    Object::of_line(line)?.entry(reading)
}

/// The same, and when the item was written: `_ts_ms`, or else `_ts`.
///
/// # Errors
/// Those of [`from_json`], and [`Error::InvalidArgument`] where neither is a whole number of 0 or more.
pub fn from_json_with_time(line: &[u8], reading: LineFormat<'_>) -> Result<(Entry, SystemTime)> {
    let object = Object::of_line(line)?;
    Ok((object.entry(reading)?, object.written_at()?))
}

/// The ttl by which an item that is written now expires when it would have, had it been written at that moment, into a
/// container of this default. A moment that is yet to come counts as now.
pub fn ttl_since(written_at: SystemTime, now: SystemTime, ttl: Ttl, default: DefaultTtl) -> Ttl {
    let lifetime = match (ttl, default) {
        (Ttl::After(time), _) | (Ttl::Inherit, DefaultTtl::After(time)) => time,
        _ => return ttl,
    };
    Ttl::Until(written_at.min(now) + lifetime)
}

/// An item's ttl in a line: `-1`, or whole seconds.
fn parse_ttl(text: &str) -> Result<Ttl> {
    match text.parse::<i64>() {
        Ok(-1) => Ok(Ttl::Never),
        Ok(seconds @ 1..=MAX_SECONDS) => Ok(Ttl::After(Duration::from_secs(seconds as u64))),
        _ => Err(invalid(
            "ttl",
            shortened(text),
            "-1 (never), or whole seconds from 1 to 2147483647",
        )),
    }
}

const MAX_SECONDS: i64 = 2_147_483_647;

/// `more` stands behind what the engine knows of the item.
fn line(item: &Item, more: &str) -> String {
    let times = times(item.written_at(), item.ttl()) + more;
    members(item.key(), &times, item.value())
}

/// When an item was written, and its ttl.
fn times(written_at: SystemTime, ttl: Ttl) -> String {
    let since = written_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since.as_secs(), since.as_millis());
    let mut times = format!(",\"{WRITTEN_AT}\":{seconds},\"{WRITTEN_AT_MS}\":{millis}");
    match ttl {
        Ttl::Never => times.push_str(&format!(",\"{TTL}\":-1")),
        Ttl::After(time) => {
            times.push_str(&format!(",\"{TTL}\":{}", whole_seconds(time)));
            if time.subsec_millis() != 0 {
                times.push_str(&format!(",\"{TTL_MS}\":{}", time.as_millis()));
            }
        }
        // It inherits: a stored ttl is of no other kind.
        _ => {}
    }
    times
}

/// The next whole second; what expired from the start has one, too.
fn whole_seconds(ttl: Duration) -> u64 {
    let begun = u64::from(ttl.subsec_nanos() > 0);
    (ttl.as_secs() + begun).max(1)
}

fn members(key: &[u8], times: &str, value: &[u8]) -> String {
    let mut line = String::with_capacity(key.len() + times.len() + value.len() + 48);
    line.push('{');
    push_bytes(&mut line, key, KEY, KEY_BASE64);
    line.push_str(times);
    match members_in_place(value) {
        Some("") => line.push('}'),
        Some(members) => {
            line.push(',');
            line.push_str(members);
            line.push('}');
        }
        None => {
            line.push(',');
            push_bytes(&mut line, value, VALUE, VALUE_BASE64);
            line.push('}');
        }
    }
    line
}

/// The text between the braces of a value that is the same after it was shown in place and read back.
fn members_in_place(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    let members = text.strip_prefix('{')?.strip_suffix('}')?;
    let object = Object::parse(text).ok()?;
    let taken = object
        .members
        .iter()
        .any(|member| OWN.contains(&member.name.as_str()));
    let in_place = !taken && !text.contains(['\n', '\r']);
    // Of an object without members, the braces alone come back.
    (in_place && (members.is_empty() || !object.members.is_empty())).then_some(members)
}

fn push_bytes(line: &mut String, bytes: &[u8], as_text: &str, as_base64: &str) {
    let (name, text) = match std::str::from_utf8(bytes) {
        Ok(text) => (as_text, serde_json::Value::from(text)),
        Err(_) => (as_base64, BASE64.encode(bytes).into()),
    };
    line.push_str(&format!("\"{name}\":{text}"));
}

/// A JSON object, cut at the commas between its members.
struct Object<'a> {
    members: Vec<Member<'a>>,
}

struct Member<'a> {
    name: String,
    /// The value's text.
    value: &'a str,
    /// The text from the comma (or brace) before the member to the one behind it.
    whole: &'a str,
}

impl<'a> Object<'a> {
    fn of_line(line: &'a [u8]) -> Result<Object<'a>> {
        let text = std::str::from_utf8(line).map_err(|error| broken(&error))?;
        Object::parse(text.trim_ascii())
    }

    fn entry(&self, reading: LineFormat<'_>) -> Result<Entry> {
        let entry = match (reading.from_export || self.says_export(), reading.key) {
            (true, key) => self.exported(key.unwrap_or(KEY), reading.from_export)?,
            (false, Some(key)) => Entry {
                key: self.key(key)?.ok_or_else(|| no_key(key))?,
                value: self.without(&[TTL]),
                ttl: self.ttl()?,
            },
            (false, None) => {
                return Err(invalid(
                    "line",
                    format!("that does not begin with {KEY:?}, {WRITTEN_AT:?}, {WRITTEN_AT_MS:?}"),
                    "one of an export, as this begins; --key FIELD takes objects of your own, and --from-export takes others \
                     as an export's",
                ));
            }
        };
        check_item(&entry.key, &entry.value)?;
        Ok(entry)
    }

    /// Whether this line begins as [`line`] writes it.
    fn says_export(&self) -> bool {
        let [key, seconds, millis, ..] = self.members.as_slice() else {
            return false;
        };
        let number = |member: &Member<'_>| member.value.parse::<u64>().ok();
        [KEY, KEY_BASE64].contains(&key.name.as_str())
            && (seconds.name.as_str(), millis.name.as_str()) == (WRITTEN_AT, WRITTEN_AT_MS)
            && number(seconds).is_some()
            && number(seconds) == number(millis).map(|millis| millis / 1_000)
    }

    /// Of a line of an export. Another key than its own is taken by the caller's word alone.
    fn exported(&self, key_field: &str, is_told: bool) -> Result<Entry> {
        if key_field != KEY && !is_told {
            return Err(invalid(
                "line",
                format!("that begins with {KEY:?}, {WRITTEN_AT:?}, {WRITTEN_AT_MS:?}"),
                "an object of your own; this is a line of an export, which --from-export takes",
            ));
        }
        let own = match key_field {
            KEY_BASE64 => None,
            _ => self.key(key_field)?,
        };
        let key = match own {
            Some(key) => key,
            None => match self.key(KEY)? {
                Some(key) => key,
                None => self.base64(KEY_BASE64)?.ok_or_else(|| no_key(key_field))?,
            },
        };
        Ok(Entry {
            key,
            value: self.exported_value(key_field)?,
            ttl: self.exported_ttl()?,
        })
    }

    /// The object without the members of these names.
    fn without(&self, names: &[&str]) -> Vec<u8> {
        let kept = self.members.iter();
        let kept = kept.filter(|member| !names.contains(&member.name.as_str()));
        let wholes: Vec<_> = kept.map(|member| member.whole).collect();
        format!("{{{}}}", wholes.join(",")).into_bytes()
    }

    /// `text` has no spaces around it.
    fn parse(text: &'a str) -> Result<Object<'a>> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let values = deserializer
            .deserialize_map(Members)
            .and_then(|values| deserializer.end().map(|()| values))
            .map_err(|error| broken(&error))?;
        let count = values.len();
        let mut members = Vec::with_capacity(count);
        let mut from = 1;
        for (i, (name, value)) in values.into_iter().enumerate() {
            let value = value.get();
            let end = value.as_ptr() as usize - text.as_ptr() as usize + value.len();
            // Nothing but spaces stands between a value and the comma behind it, or the object's last brace.
            let behind = if i + 1 == count { '}' } else { ',' };
            let to = end + text[end..].find(behind).expect("serde_json has seen it");
            let whole = &text[from..to];
            members.push(Member { name, value, whole });
            from = to + 1;
        }
        Ok(Object { members })
    }

    /// The value of the member of this name, in JSON.
    fn only(&self, name: &str) -> Result<Option<&'a str>> {
        let mut found = self.members.iter().filter(|member| member.name == name);
        let first = found.next().map(|member| member.value);
        match found.next() {
            None => Ok(first),
            Some(_) => Err(invalid(
                "line",
                format!("with {name:?} twice"),
                "the members that make the item stand there once",
            )),
        }
    }

    fn ttl(&self) -> Result<Ttl> {
        self.only(TTL)?.map_or(Ok(Ttl::Inherit), parse_ttl)
    }

    fn exported_ttl(&self) -> Result<Ttl> {
        let ttl = self.ttl()?;
        let Some(text) = self.only(TTL_MS)? else {
            return Ok(ttl);
        };
        // Where a user has changed one of the two and not the other, it is not guessed which is meant.
        let exact = text.parse().ok().map(Duration::from_millis);
        match (ttl, exact) {
            (Ttl::After(whole), Some(exact))
                if !exact.is_zero() && whole.as_secs() == whole_seconds(exact) =>
            {
                Ok(Ttl::After(exact))
            }
            _ => Err(invalid(
                TTL_MS,
                shortened(text),
                "milliseconds of which \"ttl\" is the next whole second",
            )),
        }
    }

    fn written_at(&self) -> Result<SystemTime> {
        let (name, text, unit) = match (self.only(WRITTEN_AT_MS)?, self.only(WRITTEN_AT)?) {
            (Some(millis), _) => (WRITTEN_AT_MS, millis, 1),
            (None, Some(seconds)) => (WRITTEN_AT, seconds, 1_000),
            (None, None) => {
                return Err(invalid(
                    "line",
                    format!("without {WRITTEN_AT_MS:?} and {WRITTEN_AT:?}"),
                    "an object that says when the item was written",
                ));
            }
        };
        let millis = text.parse::<u64>().ok();
        let since = millis.and_then(|millis| millis.checked_mul(unit));
        since
            .and_then(|millis| UNIX_EPOCH.checked_add(Duration::from_millis(millis)))
            .ok_or_else(|| invalid(name, shortened(text), "a time since the Unix epoch"))
    }

    fn key(&self, field: &str) -> Result<Option<Vec<u8>>> {
        let Some(json) = self.only(field)? else {
            return Ok(None);
        };
        let text = match json.as_bytes()[0] {
            b'-' | b'0'..=b'9' => return Ok(Some(json.into())),
            b'"' => Some(json),
            b'{' => object_id(json),
            _ => None,
        };
        let key = text.and_then(|text| serde_json::from_str::<String>(text).ok());
        let allowed = "a JSON string or a JSON number, or {\"$oid\": \"...\"}";
        key.map(|key| Some(key.into_bytes()))
            .ok_or_else(|| invalid("key", shortened(json), allowed))
    }

    fn exported_value(&self, key_field: &str) -> Result<Vec<u8>> {
        let text = self.only(VALUE)?.map(|json| {
            serde_json::from_str::<String>(json)
                .map(String::into_bytes)
                .map_err(|_| invalid(VALUE, shortened(json), "a JSON string"))
        });
        let Some(value) = text.or_else(|| self.base64(VALUE_BASE64).transpose()) else {
            return Ok(self.without(&OWN));
        };
        let is_other = |name: &str| !OWN.contains(&name) && name != key_field;
        let mut others = self.members.iter();
        match others.find(|member| is_other(&member.name)) {
            None => value,
            Some(member) => Err(invalid(
                "line",
                format!("with {VALUE:?} beside {:?}", shortened(&member.name)),
                "the value as text, or as the object's other members, not both",
            )),
        }
    }

    fn base64(&self, name: &'static str) -> Result<Option<Vec<u8>>> {
        let Some(json) = self.only(name)? else {
            return Ok(None);
        };
        let text = serde_json::from_str::<String>(json).ok();
        // Of several texts that stand for the same bytes, one alone is written, and read.
        let bytes = text.and_then(|text| {
            let bytes = BASE64.decode(text.as_bytes()).ok()?;
            (BASE64.encode(&bytes) == text).then_some(bytes)
        });
        match bytes {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(invalid(
                name,
                shortened(json),
                "a JSON string of padded base64",
            )),
        }
    }
}

/// The text in JSON that MongoDB's exports have as an id.
fn object_id(json: &str) -> Option<&str> {
    match Object::parse(json).ok()?.members.as_slice() {
        [id] if id.name == "$oid" => Some(id.value),
        _ => None,
    }
}

fn no_key(field: &str) -> Error {
    invalid(
        "line",
        format!("without {field:?}"),
        "an object whose member of this name, a string or a number, is the key",
    )
}

/// Collects the members of an object, in their order, each value as its text.
struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(
        self,
        mut map: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let mut members = vec![];
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}

/// Refuses what the database would refuse on the write, in the database's words.
fn check_item(key: &[u8], value: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > MAX_KEY_LEN {
        let given = format!("of {} bytes", key.len());
        return Err(invalid("key", given, "1 to 65535 bytes"));
    }
    if value.len() > MAX_VALUE_LEN {
        let given = format!("of {} bytes", value.len());
        return Err(invalid("value", given, "up to 67108864 bytes (64 MiB)"));
    }
    Ok(())
}

fn invalid(what: &'static str, given: impl Into<String>, allowed: &'static str) -> Error {
    Error::InvalidArgument {
        what,
        given: given.into(),
        allowed,
    }
}

fn broken(error: &dyn fmt::Display) -> Error {
    invalid("line", format!("({error})"), "one JSON object a line")
}

/// The part of a text of any length that an error repeats.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests;
