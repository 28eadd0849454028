//! A request is done as the process itself would do it.

use std::time::{SystemTime, UNIX_EPOCH};

use ebbtide::{DefaultTtl, ManualClock, Quota, Ttl, WhenFull};
use ebbtide_control::{Change, Key, NewItem, perform};

use super::*;

const START: u64 = 1_800_000_000_000;

fn moment(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis)
}

fn item(key: &str, ttl: Ttl) -> NewItem {
    NewItem {
        key: key.as_bytes().to_vec(),
        value: vec![0, 255, b'\n'],
        ttl,
    }
}

/// One request of each kind, in an order in which each has something to do.
fn requests() -> Vec<Request> {
    let key = |key: &str| key.as_bytes().to_vec();
    let hour = Duration::from_secs(3_600);
    let items = vec![
        item("a", Ttl::Inherit),
        item("b", Ttl::After(hour)),
        item("c", Ttl::Until(moment(START + 250))),
        item("d", Ttl::Never),
        item("e", Ttl::Inherit),
    ];
    let quota = Quota {
        max_live_bytes: 1 << 30,
        when_full: WhenFull::ExpireSoonest,
    };
    let range = Change::DeleteRange {
        from: key("d"),
        to: Some(Key(key("e"))),
    };
    let changes = [
        Change::Put(items.clone()),
        Change::DefaultTtl(DefaultTtl::After(hour)),
        Change::Touch { key: key("b") },
        Change::Touch {
            key: key("missing"),
        },
        Change::Quota(Some(quota)),
        Change::ExpireBefore(moment(START + 1_000)),
        range,
        Change::Delete { key: key("a") },
        Change::Delete { key: key("a") },
        Change::Quota(None),
        Change::ExpireWrittenBefore(moment(START)),
        Change::Clear,
        Change::Put(items),
        Change::ExpireAll,
        Change::Put(vec![item("", Ttl::Inherit)]),
        Change::Drop,
        Change::Drop,
    ];
    let mut requests = vec![];
    for change in changes {
        requests.push(Request::preview("c", change.clone()));
        requests.push(Request::change("c", change));
        requests.push(Request::State {
            container: "c".to_owned(),
        });
    }
    requests
}

type IsOfKind = fn(&Result<Answer, Failed>) -> bool;

#[test]
fn by_the_socket_all_is_answered_as_by_the_process_itself() {
    let clock = || ebbtide::Options::new().clock(ManualClock::new(START));
    let service = Service::with(clock(), Options::new());
    let own = clock().open(service.folder.path().join("own")).unwrap();
    let mut answers = vec![];
    for request in requests() {
        let answer = perform(&own, &request, &|| true);
        assert_eq!(service.ask(&request), answer, "{request}");
        answers.push(answer);
    }
    let kinds: [IsOfKind; 6] = [
        |answer| matches!(answer, Ok(Answer::Ended(ending)) if ending.items > 0),
        |answer| matches!(answer, Ok(Answer::Until(Some(_)))),
        |answer| matches!(answer, Ok(Answer::NoItem)),
        |answer| matches!(answer, Ok(Answer::Quota { live_bytes: 1.. })),
        |answer| matches!(answer, Err(Failed::NotFound(_))),
        |answer| matches!(answer, Err(Failed::Refused(_))),
    ];
    for (number, kind) in kinds.iter().enumerate() {
        assert!(answers.iter().any(kind), "{number}");
    }
    assert!(service.db.containers().is_empty());
}

#[test]
fn a_change_counts_at_once_for_the_service() {
    let service = Service::new();
    let c = service.container();
    c.put("k", "v").unwrap();
    let off = Change::DefaultTtl(DefaultTtl::Off);
    service.ask(&Request::change("c", off)).unwrap();
    assert_eq!(c.default_ttl(), DefaultTtl::Off);
    service
        .ask(&Request::change(
            "c",
            Change::DefaultTtl(DefaultTtl::NoDefault),
        ))
        .unwrap();
    service
        .ask(&Request::change("c", Change::ExpireAll))
        .unwrap();
    assert!(c.get("k").unwrap().is_none());
    let written = Change::Put(vec![item("k", Ttl::Never)]);
    service.ask(&Request::change("new", written)).unwrap();
    assert_eq!(
        service
            .db
            .container("new")
            .unwrap()
            .get("k")
            .unwrap()
            .unwrap(),
        b"\0\xff\n".as_slice()
    );
}

#[test]
fn a_copy_and_a_compaction_are_made_while_it_is_in_use() {
    let service = Service::new();
    let c = service.container();
    for _ in 0..3 {
        c.put("k", "v").unwrap();
        service.db.flush().unwrap();
    }
    let Ok(Answer::Compacted { before, after }) = service.ask(&Request::Compact) else {
        panic!("it was to compact");
    };
    // The service may have merged some by itself.
    assert!((1..=3).contains(&before["runs"].as_u64().unwrap()));
    assert_eq!(after["runs"], 1);
    let to = service.folder.path().join("copy \u{fffd}");
    let checkpoint = Request::Checkpoint { to: to.clone() };
    assert_eq!(service.ask(&checkpoint), Ok(Answer::Done));
    assert!(
        Database::open(&to)
            .unwrap()
            .container("c")
            .unwrap()
            .contains("k")
            .unwrap()
    );
    // It has no socket, and takes no part in the other's.
    assert!(!to.join(NAME).exists());
    let again = service.ask(&checkpoint).unwrap_err().to_string();
    assert!(again.contains("copy"), "{again}");
    // The folder is not foreign, and nothing in it is damaged.
    service.db.close().unwrap();
    assert!(
        ebbtide::verify(service.dir(), &mut |_, _| ())
            .unwrap()
            .faults
            .is_empty()
    );
}

#[test]
fn the_listener_is_told_of_every_request() {
    let service = Service::new();
    service
        .ask(&Request::change(
            "c",
            Change::Put(vec![item("secret", Ttl::Never)]),
        ))
        .unwrap();
    let told = service.told_of("put c (1)");
    assert_eq!((told.process, told.error), (Some(std::process::id()), None));
    service.ask(&Request::preview("c", Change::Clear)).unwrap();
    service.told_of("clear c (preview)");
    service
        .ask(&Request::change("sea", Change::Clear))
        .unwrap_err();
    let failed = service.told_of("clear sea").error.unwrap();
    assert_eq!(failed, "there is no container \"sea\"");
    service.ask(&Request::Compact).unwrap();
    service.told_of("compact");
}

#[test]
fn what_is_asked_of_a_closed_database_is_refused() {
    let service = Service::new();
    service.container();
    service.db.close().unwrap();
    let why = service
        .ask(&Request::change("c", Change::ExpireAll))
        .unwrap_err();
    let why = why.to_string();
    assert!(why.contains("is closing it"), "{why}");
}

/// Merging is slow, so that the client leaves in its midst.
#[test]
fn a_compaction_ends_when_nobody_waits_for_it() {
    let slow = ebbtide::Options::new()
        .background_rate(1 << 20)
        .max_runs(100);
    let service = Service::with(slow, Options::new());
    for number in 0..40 {
        let c = service.db.container(format!("{number}")).unwrap();
        for _ in 0..2 {
            c.put("k", vec![7; 64 << 10]).unwrap();
            c.put(vec![number; 9], vec![7; 64 << 10]).unwrap();
            service.db.flush().unwrap();
        }
    }
    let mut stream = service.connection();
    stream
        .write_all(b"{\"version\":1,\"request\":\"compact\"}\n")
        .unwrap();
    let mut some = [0; 16];
    stream.read_exact(&mut some).unwrap();
    assert_eq!(&some, b"{\"progress\":{\"by");
    drop(stream);
    let told = service.told_of("compact");
    assert_eq!(told.error.unwrap(), "the compaction was interrupted");
}
