//! Values of the engine as the model has them, as text, and compared.

use super::*;

pub(super) fn put(container: &str, key: &[u8], value: &[u8], life: Life) -> Write {
    Write::Put {
        container: container.to_owned(),
        key: key.to_vec(),
        value: value.to_vec(),
        ttl: Given::Life(life),
    }
}

pub(super) fn decide(change: &Change, item: Option<&Item>, given: Ttl) -> Update {
    match change {
        Change::Keep => Update::Keep,
        Change::Delete => Update::Delete,
        Change::Put(v, _) => Update::Put(v.clone(), given),
        Change::Append(v) => {
            let before = item.map(|item| item.value().to_vec()).unwrap_or_default();
            let ttl = match item.map(Item::ttl) {
                None | Some(Ttl::After(Duration::ZERO)) => Ttl::Inherit,
                Some(ttl) => ttl,
            };
            Update::Put([before, v.clone()].concat(), ttl)
        }
    }
}

pub(super) fn out_of_range(ttl: StepTtl) -> bool {
    matches!(ttl, StepTtl::Life(Life::Own(n)) if n == 0 || n > MAX_TTL)
}

pub(super) fn refused(error: Option<Error>) -> Outcome {
    match error {
        Some(error @ Error::InvalidArgument { .. }) => Ok(format!("refused: {error}")),
        other => Err(format!("a ttl out of range is answered with {other:?}")),
    }
}

/// Milliseconds since the epoch.
pub(crate) fn at(moment: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(moment)
}

pub(super) fn default_ttl(standard: Standard) -> DefaultTtl {
    match standard {
        Standard::Off => DefaultTtl::Off,
        Standard::NoDefault => DefaultTtl::NoDefault,
        Standard::After(n) => DefaultTtl::After(Duration::from_millis(n)),
    }
}

/// The range of a step, with a prefix turned into one.
pub fn bounds(span: &Span) -> (Bytes, Option<Bytes>) {
    if !span.prefix {
        return (span.from.clone(), span.to.clone());
    }
    let mut to = span.from.clone();
    while let Some(last) = to.pop() {
        if last < 0xff {
            to.push(last + 1);
            return (span.from.clone(), Some(to));
        }
    }
    (span.from.clone(), None)
}

pub fn millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .expect("after the epoch")
        .as_millis() as u64
}

pub(super) fn seen(item: &Item) -> Seen {
    Seen {
        key: item.key().to_vec(),
        value: item.value().to_vec(),
        written_at: millis(item.written_at()),
        life: match item.ttl() {
            Ttl::Inherit => Life::Inherit,
            Ttl::Never => Life::Never,
            Ttl::After(time) => Life::Own(time.as_millis() as u64),
            other => panic!("no item has the ttl {other:?}"),
        },
        expires_at: item.expires_at().map(millis),
    }
}

pub(crate) fn all(iter: impl Iterator<Item = ebbtide::Result<Item>>) -> Result<Vec<Seen>, String> {
    iter.map(|item| item.map(|item| seen(&item)).map_err(failed))
        .collect()
}

pub(super) fn show_moment(millis: u64) -> String {
    let offset = millis as i64 - START as i64;
    format!(
        "{}{}",
        if offset < 0 { "-" } else { "" },
        show_duration(offset.unsigned_abs())
    )
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_item(self))
    }
}

pub(super) fn show_item(seen: &Seen) -> String {
    let expires = seen.expires_at.map_or("never".into(), show_moment);
    format!(
        "{} = {} written {} ttl {} expires {expires}",
        shorten(&seen.key),
        shorten(&seen.value),
        show_moment(seen.written_at),
        seen.life
    )
}

pub(super) fn show_items(items: &[Seen]) -> String {
    if items.is_empty() {
        return "nothing".into();
    }
    let items: Vec<String> = items
        .iter()
        .map(|s| format!("{}={}", shorten(&s.key), shorten(&s.value)))
        .collect();
    items.join(" ")
}

pub(crate) fn same<T: PartialEq + fmt::Debug>(
    what: &str,
    found: &T,
    expected: &T,
) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!(
        "{what}:\n   engine {found:?}\n   model  {expected:?}"
    ))
}

/// Lists what only one of them has.
pub(super) fn same_items(what: &str, found: &[Seen], expected: &[Seen]) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    let only = |a: &[Seen], b: &[Seen]| {
        a.iter()
            .filter(|item| !b.contains(item))
            .cloned()
            .collect::<Vec<_>>()
    };
    let (engine, model) = (only(found, expected), only(expected, found));
    let order = if engine.is_empty() && model.is_empty() {
        "\n   in another order, or twice"
    } else {
        ""
    };
    Err(format!(
        "{what}:\n   only the engine {engine:?}\n   only the model  {model:?}{order}"
    ))
}

/// The path of the database on its simulated disk.
pub fn path() -> &'static Path {
    Path::new(PATH)
}
