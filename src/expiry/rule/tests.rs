//! The rule against its examples, and by brute force against its definition.

use super::*;
use crate::base::record::Kind;
use proptest::prelude::*;

fn put(seq: u64, written_at: u64, ttl: ItemTtl) -> Header {
    Header {
        kind: Kind::Put,
        seq: Seq(seq),
        written_at: Timestamp(written_at),
        ttl,
    }
}

/// The first example of the head of rule.rs.
#[test]
fn what_was_gone_stays_gone_when_the_default_goes_off() {
    let at = |seconds: u64| Timestamp(1_000 * seconds);
    let items = [
        put(1, 0, ItemTtl::Absent),
        put(2, 50_000, ItemTtl::Millis(30_000)),
        put(3, 70_000, ItemTtl::Absent),
    ];
    let before = Settings::new(DefaultMillis::Millis(60_000));
    let after = before.change(DefaultMillis::Off, at(100), Seq(4));
    let floors = (after.inherit_floor, after.override_floor, after.floor_seq);
    assert_eq!(floors, (Timestamp(40_001), Timestamp(100_001), Seq(4)));
    let gone = |settings: &Settings, now| items.map(|item| settings.gone(&item, now));
    assert_eq!(gone(&before, at(100)), [true, true, false]);
    assert_eq!(gone(&after, at(100)), [true, true, false]);
    assert_eq!(gone(&after, at(200)), [true, true, false]);
}

/// The second one.
#[test]
fn a_glance_reads_the_clock_once_and_only_where_it_must() {
    let at = |now| ExpiryView::at(Timestamp(now), || Settings::new(DefaultMillis::NoDefault));
    let readings = std::cell::Cell::new(0);
    let read = || {
        readings.set(readings.get() + 1);
        ExpiryViews::at(Timestamp(10_001), Timestamp(10_001), || at(0).settings)
    };
    let (later, mut settled) = (at(13_000), at(9_000));
    let mut check = ExpiryCheck::new(&later, &mut settled, Timestamp(13_000), read);
    let ends_at = |end| put(1, 0, ItemTtl::Millis(end));
    assert!(!check.dead(&ends_at(20_000)));
    assert_eq!(readings.get(), 0);
    assert!(check.dead(&ends_at(3_000)));
    assert!(!check.dead(&ends_at(12_000)));
    assert_eq!(readings.get(), 1);
    assert_eq!(settled.now, Timestamp(10_001));
}

#[test]
fn settings_read_back() {
    for default in [
        DefaultMillis::Off,
        DefaultMillis::NoDefault,
        DefaultMillis::Millis(1),
        DefaultMillis::Millis(MAX_TTL_MILLIS),
    ] {
        let settings = Settings {
            default,
            inherit_floor: Timestamp(1_000),
            override_floor: Timestamp(u64::MAX),
            floor_seq: Seq(7),
            ..Settings::default()
        };
        let mut bytes = vec![];
        settings.encode(&mut bytes);
        let mut reader = ByteReader::new(&bytes);
        assert_eq!(Settings::decode(&mut reader), Ok(settings));
        assert!(reader.is_empty());
    }
}

#[test]
fn lifetimes_are_rounded_up_and_bounded() {
    assert_eq!(ttl_millis(Duration::from_nanos(1)).unwrap(), 1);
    assert_eq!(ttl_millis(Duration::from_micros(1_001)).unwrap(), 2);
    assert_eq!(
        ttl_millis(Duration::from_secs(2_147_483_647)).unwrap(),
        MAX_TTL_MILLIS
    );
    assert!(ttl_millis(Duration::ZERO).is_err());
    assert!(ttl_millis(Duration::from_secs(2_147_483_648)).is_err());
    assert!(ttl_millis(Duration::MAX).is_err());
}

#[test]
fn what_is_stored_is_what_was_set() {
    for default in [
        DefaultTtl::Off,
        DefaultTtl::NoDefault,
        DefaultTtl::After(Duration::from_millis(1_500)),
    ] {
        let stored = DefaultMillis::from_public(default).unwrap();
        assert_eq!(stored.to_public(), default);
    }
    let refused = DefaultMillis::from_public(DefaultTtl::After(Duration::ZERO));
    assert!(refused.is_err());
}

#[test]
fn every_cell_of_the_table() {
    let at = |default, ttl, now| Settings::new(default).gone(&put(1, 1_000, ttl), Timestamp(now));
    let far = u64::MAX;
    for (default, ttl, first_gone) in [
        (DefaultMillis::Off, ItemTtl::Absent, None),
        (DefaultMillis::Off, ItemTtl::Never, None),
        (DefaultMillis::Off, ItemTtl::Millis(50), None),
        (DefaultMillis::NoDefault, ItemTtl::Absent, None),
        (DefaultMillis::NoDefault, ItemTtl::Never, None),
        (DefaultMillis::NoDefault, ItemTtl::Millis(50), Some(1_050)),
        (DefaultMillis::Millis(20), ItemTtl::Absent, Some(1_020)),
        (DefaultMillis::Millis(20), ItemTtl::Never, None),
        (DefaultMillis::Millis(20), ItemTtl::Millis(50), Some(1_050)),
        (DefaultMillis::Millis(20), ItemTtl::Millis(0), Some(1_000)),
    ] {
        let life = Settings::new(default).life(&put(1, 1_000, ttl));
        let end = Timestamp(first_gone.unwrap_or(u64::MAX));
        assert_eq!((life.ttl(), life.end(Timestamp(1_000))), (ttl, end));
        assert_eq!(
            Settings::new(default).expires_at(&put(1, 1_000, ttl)),
            Timestamp(first_gone.unwrap_or(u64::MAX)),
            "{default:?} {ttl:?}"
        );
        match first_gone {
            None => assert!(!at(default, ttl, far), "{default:?} {ttl:?}"),
            Some(moment) => {
                assert!(
                    !at(default, ttl, moment - 1),
                    "{default:?} {ttl:?} too early"
                );
                assert!(
                    at(default, ttl, moment),
                    "{default:?} {ttl:?} equality counts"
                );
            }
        }
    }
}

#[test]
fn trust_follows_the_strictness_of_settings() {
    use DefaultMillis::{Millis, NoDefault, Off};
    for (now, then, trusted) in [
        (Off, Off, true),
        (Off, NoDefault, false),
        (Off, Millis(5), false),
        (NoDefault, Off, true),
        (NoDefault, Millis(5), false),
        (Millis(5), Off, true),
        (Millis(5), NoDefault, true),
        (Millis(5), Millis(5), true),
        (Millis(6), Millis(5), false),
        (Millis(4), Millis(5), true),
    ] {
        assert_eq!(
            now.is_as_strict_as(then),
            trusted,
            "{now:?} against {then:?}"
        );
        let both = now.strictest(then);
        assert!(both.is_as_strict_as(now) && both.is_as_strict_as(then));
        assert!(!trusted || both == now, "stricter than both: {both:?}");
    }
}

#[test]
fn floors_concern_what_was_written_before_the_change() {
    let before = Settings::new(DefaultMillis::Millis(10));
    let settings = before.change(DefaultMillis::Off, Timestamp(100), Seq(7));
    for ttl in [ItemTtl::Absent, ItemTtl::Millis(10)] {
        let gone = |seq| settings.gone(&put(seq, 90, ttl), Timestamp(100));
        assert_eq!([6, 7, 8].map(gone), [true, false, false], "{ttl:?}");
    }
}

#[test]
fn removal_is_measured_from_expiry_or_from_the_change_that_ended_it() {
    let before = Settings::new(DefaultMillis::NoDefault);
    let settings = before.change(DefaultMillis::Off, Timestamp(100), Seq(7));
    let since = |expiry, is_older, command: Option<u64>| {
        let command = command.map(Timestamp);
        let since = settings.overdue_since(Timestamp(expiry), is_older, command);
        since.0
    };
    assert_eq!((since(40, true, None), since(40, false, None)), (100, 40));
    assert_eq!(
        (since(140, true, None), since(140, false, None)),
        (140, 140)
    );
    assert_eq!(
        (since(40, false, Some(90)), since(140, true, Some(90))),
        (40, 90)
    );
}

/// The example of the head of command.rs.
#[test]
fn a_command_ends_what_was_written_before_it() {
    let second = |seconds: u64| Timestamp(1_000 * seconds);
    let before = Settings::new(DefaultMillis::Millis(60_000));
    let settings = before.expire(Expire::Before(second(80)), second(50), Seq(7));
    let at = |seq, written_at, ttl| {
        let item = put(seq, written_at, ttl);
        settings.gone(&item, second(51))
    };
    assert!(at(1, 19_999, ItemTtl::Absent) && !at(2, 20_000, ItemTtl::Absent));
    assert!(at(3, 50_000, ItemTtl::Millis(29_999)) && !at(4, 50_000, ItemTtl::Millis(30_000)));
    assert!(!at(5, 0, ItemTtl::Never));
    assert!(!at(8, 51_000, ItemTtl::Millis(10_000)));
    // A later change of the default does not have it reach what was written in between.
    let later = settings.change(DefaultMillis::Off, second(52), Seq(9));
    assert!(!later.gone(&put(8, 51_000, ItemTtl::Millis(10_000)), second(52)));
    assert!(later.gone(&put(1, 19_999, ItemTtl::Absent), second(52)));
}

/// The load has a sequence number above the change that lifted the default, and began before the floor of that change.
#[test]
fn a_floor_does_not_come_to_cover_a_later_load() {
    let lifted = before_the_load();
    let (old, loaded) = (put(5, 100, ItemTtl::Absent), put(9, 100, ItemTtl::Absent));
    let settings = lifted.loaded(loaded.written_at);
    assert_eq!(
        settings,
        settings.loaded(loaded.written_at),
        "nothing is left to set apart"
    );
    assert_eq!(
        lifted,
        lifted.loaded(Timestamp(111)),
        "the load began after the floor"
    );
    let again = settings.change(DefaultMillis::NoDefault, Timestamp(121), Seq(11));
    let told = again.expire(Expire::Before(Timestamp(5)), Timestamp(122), Seq(12));
    let off = told.change(DefaultMillis::Off, Timestamp(123), Seq(13));
    for settings in [&settings, &again, &told, &off] {
        let gone = [old, loaded].map(|item| settings.gone(&item, Timestamp(200)));
        assert_eq!(gone, [true, false], "{settings:?}");
        assert_eq!(settings.commands.iter().len(), 1);
    }
    // A floor that reaches as far takes its place.
    let shorter = again.change(DefaultMillis::Millis(10), Timestamp(130), Seq(14));
    let lifted = shorter.change(DefaultMillis::NoDefault, Timestamp(131), Seq(15));
    assert!(lifted.commands.is_empty(), "{lifted:?}");
    // An older copy has seen the floor, which no longer stands where nothing below it is stored.
    let pruned = settings.without_commands(|_| true);
    assert!(
        pruned
            .with_commands_of(&settings)
            .gone(&old, Timestamp(200))
    );
    assert!(
        pruned
            .with_commands_of(&before_the_load())
            .gone(&old, Timestamp(200))
    );
}

fn before_the_load() -> Settings {
    let before = Settings::new(DefaultMillis::Millis(10));
    before.change(DefaultMillis::NoDefault, Timestamp(120), Seq(7))
}

/// A command is dropped if and only if another covers it.
#[test]
fn few_commands_stand() {
    use DefaultMillis::{Millis, NoDefault, Off};
    let before = Settings::new(Millis(10));
    let told = |settings: &Settings, what, at| settings.expire(what, Timestamp(at), Seq(at));
    let standing = |settings: &Settings| {
        settings
            .commands
            .iter()
            .map(|command| command.seq.0)
            .collect::<Vec<_>>()
    };
    let first = told(&before, Expire::Before(Timestamp(130)), 100);
    let second = told(&first, Expire::Before(Timestamp(120)), 101);
    assert_eq!(standing(&second), [100, 101]);
    assert_eq!(
        standing(&told(&second, Expire::Before(Timestamp(125)), 102)),
        [100, 102]
    );
    assert_eq!(
        standing(&told(&second, Expire::Before(Timestamp(130)), 102)),
        [102]
    );
    assert_eq!(
        standing(&told(&second, Expire::WrittenBefore(Timestamp(130)), 102)),
        [102]
    );
    assert_eq!(standing(&told(&second, Expire::All, 102)), [102]);
    // A moment that has passed needs no command, and takes with it those whose moment has passed.
    assert_eq!(
        standing(&told(&before, Expire::Before(Timestamp(101)), 100)),
        [0; 0]
    );
    assert_eq!(
        standing(&told(&before, Expire::Before(Timestamp(102)), 100)),
        [100]
    );
    assert_eq!(
        standing(&told(&second, Expire::Before(Timestamp(1)), 119)),
        [100]
    );
    assert_eq!(
        standing(&told(&second, Expire::Before(Timestamp(1)), 129)),
        [0; 0]
    );
    // So does a change of the default, but for what the floors do not know.
    assert_eq!(
        standing(&second.change(Off, Timestamp(129), Seq(129))),
        [0; 0]
    );
    assert_eq!(
        standing(&second.change(Off, Timestamp(119), Seq(119))),
        [100]
    );
    let off = second.change(Off, Timestamp(110), Seq(110));
    assert_eq!(
        standing(&off.change(NoDefault, Timestamp(200), Seq(200))),
        [100, 101]
    );
    let all = told(&second, Expire::All, 102);
    assert_eq!(standing(&all.change(Off, Timestamp(200), Seq(200))), [102]);
    assert_eq!(
        standing(&told(
            &Settings::new(Off),
            Expire::Before(Timestamp(200)),
            100
        )),
        [0; 0]
    );
}

#[test]
fn commands_read_back() {
    let settings = Settings::new(DefaultMillis::Millis(10));
    let settings = settings.expire(Expire::Before(Timestamp(130)), Timestamp(100), Seq(7));
    let settings = settings.expire(Expire::WrittenBefore(Timestamp(90)), Timestamp(101), Seq(8));
    let text = serde_json::to_string(&settings).unwrap();
    assert_eq!(
        text,
        r#"{"default":{"millis":10},"inherit_floor":0,"override_floor":0,"floor_seq":0,"command_seq":8,"commands":[{"seq":7,"at":100,"inherit":120,"override":130,"written":0},{"seq":8,"at":101,"inherit":90,"override":90,"written":90}]}"#
    );
    assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings);
    let disordered = text.replace("\"seq\":7", "\"seq\":9");
    assert!(serde_json::from_str::<Settings>(&disordered).is_err());
    let of_a_table = settings.of_a_table();
    assert_eq!(
        (of_a_table.floor_seq, of_a_table.commands),
        (Seq(8), Commands::NONE)
    );
}

/// Every step of a history: time passes, the default changes, items are expired by a command, an item is written, a live
/// item is replaced by one that keeps its lifetime, or a load ends that began so many milliseconds ago.
#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Change(DefaultMillis),
    Expire(Expire),
    Write(ItemTtl),
    Keep(usize),
    Load(u64, ItemTtl),
}

fn any_ttl() -> impl Strategy<Value = ItemTtl> {
    prop_oneof![
        Just(ItemTtl::Absent),
        Just(ItemTtl::Never),
        (0u64..12).prop_map(ItemTtl::Millis)
    ]
}

fn any_default() -> impl Strategy<Value = DefaultMillis> {
    prop_oneof![
        Just(DefaultMillis::Off),
        Just(DefaultMillis::NoDefault),
        (1u64..12).prop_map(DefaultMillis::Millis)
    ]
}

fn any_command() -> impl Strategy<Value = Expire> {
    let moment = || (0u64..60).prop_map(Timestamp);
    prop_oneof![
        4 => moment().prop_map(Expire::Before),
        2 => moment().prop_map(Expire::WrittenBefore),
        1 => Just(Expire::All),
    ]
}

/// Whether a command is about an item that was written before it, under this default.
fn ends(what: Expire, default: DefaultMillis, item: &Header) -> bool {
    let end = Settings::new(default).expires_at(item);
    match what {
        Expire::Before(moment) => end != Timestamp::MAX && end < moment,
        Expire::WrittenBefore(moment) => item.written_at < moment,
        Expire::All => true,
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u64..6).prop_map(Step::Pass),
        any_default().prop_map(Step::Change),
        any_command().prop_map(Step::Expire),
        any_ttl().prop_map(Step::Write),
        (0usize..8).prop_map(Step::Keep),
        (0u64..20, any_ttl()).prop_map(|(ago, ttl)| Step::Load(ago, ttl)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]
    /// Goal: expiry is final, and nothing else is gone. Method: compared with the definition, millisecond by
    /// millisecond: the plain rule without floors, whose results are remembered for ever; `gone` must agree at every
    /// moment.
    #[test]
    fn floors_are_the_definition(start in any_default(), steps in prop::collection::vec(any_step(), 1..40)) {
        let plain = |default: DefaultMillis, item: &Header, now: u64| Settings::new(default).gone(item, Timestamp(now));
        let (mut now, mut seq, mut default, mut settings) = (20u64, 0u64, start, Settings::new(start));
        let mut items: Vec<(Header, bool)> = vec![];
        for step in steps {
            seq += 1;
            match step {
                Step::Pass(millis) => for _ in 0..millis {
                    now += 1;
                    for (item, gone) in &mut items { *gone |= plain(default, item, now) }
                },
                Step::Change(to) => {
                    settings = settings.change(to, Timestamp(now), Seq(seq));
                    default = to;
                    for (item, gone) in &mut items { *gone |= plain(default, item, now) }
                }
                Step::Expire(what) => {
                    settings = settings.expire(what, Timestamp(now), Seq(seq));
                    for (item, gone) in &mut items { *gone |= ends(what, default, item) }
                }
                Step::Write(ttl) => {
                    let item = put(seq, now, ttl);
                    let gone = plain(default, &item, now);
                    items.push((item, gone));
                }
                Step::Keep(nth) => {
                    if let Some((item, _)) = items.iter().filter(|(_, gone)| !gone).nth(nth) {
                        items.push((Header { seq: Seq(seq), ..*item }, false));
                    }
                }
                Step::Load(ago, ttl) => {
                    let item = put(seq, now - ago, ttl);
                    let gone = plain(default, &item, now);
                    settings = settings.loaded(item.written_at);
                    items.push((item, gone));
                }
            }
            for (item, gone) in &items {
                prop_assert_eq!(settings.gone(item, Timestamp(now)), *gone, "{:?} under {:?} at {}", item, settings, now);
            }
        }
    }

    /// Goal: opening at the mark counts as a change of every default to itself, and need not make that change, because
    /// time does not go back behind the mark. Method: settings with that change and without it are asked about every
    /// item ever after. Items that were written under a wrong clock have later times.
    #[test]
    fn a_default_may_be_changed_to_itself_at_any_moment(
        start in any_default(),
        steps in prop::collection::vec((any_step(), 0u64..6), 1..40),
        opened in 0usize..40,
    ) {
        let (mut now, mut settings) = (20u64, [Settings::new(start), Settings::new(start)]);
        let mut items: Vec<Header> = vec![];
        for (number, (step, lead)) in steps.into_iter().enumerate() {
            let seq = 2 * number as u64 + 1;
            if number == opened {
                settings[1] = settings[1].change(settings[1].default, Timestamp(now), Seq(seq));
            }
            match step {
                Step::Pass(millis) => now += millis,
                Step::Change(to) => {
                    settings = settings.map(|old| old.change(to, Timestamp(now), Seq(seq + 1)));
                }
                Step::Expire(what) => {
                    settings = settings.map(|old| old.expire(what, Timestamp(now), Seq(seq + 1)));
                }
                Step::Write(ttl) => items.push(put(seq + 1, now + lead, ttl)),
                Step::Keep(nth) => {
                    let mut live = items.iter().filter(|item| !settings[0].gone(item, Timestamp(now)));
                    if let Some(item) = live.nth(nth) {
                        items.push(Header { seq: Seq(seq + 1), ..*item });
                    }
                }
                Step::Load(ago, ttl) => {
                    let item = put(seq + 1, now - ago, ttl);
                    settings = settings.map(|old| old.loaded(item.written_at));
                    items.push(item);
                }
            }
            for item in &items {
                let gone = |settings: &Settings| settings.gone(item, Timestamp(now));
                let [plain, changed] = settings.each_ref().map(gone);
                prop_assert_eq!(plain, changed, "{:?} under {:?} at {}", item, settings, now);
            }
        }
    }
}
