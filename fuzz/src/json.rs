//! Lines of JSON: what is read is written again as a line that reads the same.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use ebbtide::internals::Sim;
use ebbtide::{Container, Database, DefaultTtl, ManualClock, Options, Ttl};
use ebbtide_cli::given;
use ebbtide_cli::json::{LineFormat, from_json, from_json_with_time, to_json};

/// A line, behind it the name of its key's field: `name`, line feed, line. A line that can be read is stored, shown,
/// and read again.
pub fn json(data: &[u8]) {
    let split = data.iter().position(|&byte| byte == b'\n');
    let (field, line) = split.map_or((&b"id"[..], data), |at| (&data[..at], &data[at + 1..]));
    let field = String::from_utf8_lossy(field);
    typed(&field);
    for from_export in [false, true] {
        let key = Some(&*field);
        read(line, LineFormat { key, from_export });
    }
}

fn read(line: &[u8], reading: LineFormat<'_>) {
    let timed = from_json_with_time(line, reading);
    let Ok(entry) = from_json(line, reading) else {
        assert!(timed.is_err(), "what asks for more takes no more lines");
        return;
    };
    assert!(timed.is_err() || timed.is_ok_and(|(timed, _)| timed == entry));
    let (db, container) = store();
    let stored = container.put_with_ttl(&entry.key, &entry.value, entry.ttl);
    stored.expect("what was read is within the limits");
    let item = container.item(&entry.key).expect("it can be read");
    let item = item.expect("nothing expires here");
    let shown = to_json(&item);
    assert!(!shown.contains('\n'));
    let again = from_json_with_time(shown.as_bytes(), LineFormat::default());
    let (again, at) = again.expect("what is shown can be read");
    assert_eq!(again, entry, "{shown}");
    assert_eq!(at, item.written_at(), "{shown}");
    while db.step().expect("nothing fails here") {}
}

/// A typed lifetime or time is read or refused; a lifetime is of whole seconds, and a time from now is that long.
fn typed(text: &str) {
    let now = UNIX_EPOCH + Duration::from_secs(1_772_366_400);
    let (span, moment) = (given::span(text), given::moment(text, now));
    if let Ok(Ttl::After(time)) = given::ttl(text) {
        assert_eq!((time.subsec_nanos(), span.as_ref().ok()), (0, Some(&time)));
        let default = given::default_ttl(text);
        assert_eq!(default.ok(), Some(DefaultTtl::After(time)));
    }
    if let Ok(span) = span {
        let later = given::moment(&format!("+{text}"), now);
        assert_eq!(later.ok(), now.checked_add(span));
    }
    assert!(moment.is_err() || moment.is_ok_and(|moment| moment >= UNIX_EPOCH));
    let _ = given::size(text);
}

/// A database for all inputs: to open one for each would take most of the time.
fn store() -> &'static (Database, Container) {
    static STORE: OnceLock<(Database, Container)> = OnceLock::new();
    STORE.get_or_init(|| {
        let options = Options::new()
            .fs(Arc::new(Sim::new(1)))
            .clock(ManualClock::new(1_772_366_400_000))
            .memtable_bytes(1 << 20)
            .sizes(4096, 1 << 20, 1 << 20)
            .stepped();
        let db = options.open(Path::new("/db")).expect("an empty folder");
        let container = db.container("items").expect("a good name");
        (db, container)
    })
}
