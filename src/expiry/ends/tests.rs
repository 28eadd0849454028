use super::*;
use crate::base::ItemTtl;
use crate::base::record::Kind;
use crate::expiry::command::Expire;
use crate::expiry::past::MOST;
use proptest::prelude::*;

fn put(seq: u64, written_at: u64, ttl: ItemTtl) -> Header {
    Header {
        kind: Kind::Put,
        seq: Seq(seq),
        written_at: Timestamp(written_at),
        ttl,
    }
}

fn default_ttl() -> impl Strategy<Value = DefaultMillis> {
    prop_oneof![
        Just(DefaultMillis::Off),
        Just(DefaultMillis::NoDefault),
        (1..60u64).prop_map(DefaultMillis::Millis),
    ]
}

fn change() -> impl Strategy<Value = SettingsChange> {
    let moment = || (0..200u64).prop_map(Timestamp);
    prop_oneof![
        4 => default_ttl().prop_map(SettingsChange::Default),
        1 => moment().prop_map(|at| SettingsChange::Expire(Expire::Before(at))),
        1 => moment().prop_map(|at| SettingsChange::Expire(Expire::WrittenBefore(at))),
        1 => Just(SettingsChange::Expire(Expire::All)),
    ]
}

fn ttl() -> impl Strategy<Value = ItemTtl> {
    prop_oneof![
        Just(ItemTtl::Absent),
        Just(ItemTtl::Never),
        (0..60u64).prop_map(ItemTtl::Millis),
    ]
}

/// The end by the definition: the first moment at which the item is gone, and the write after which it is. At a moment with
/// changes it is gone if it is before the first of them, after the last, or between.
fn first_gone(
    history: &[(Timestamp, Settings)],
    header: &Header,
    born: u64,
) -> Option<(Timestamp, Seq)> {
    (born..400).map(Timestamp).find_map(|now| {
        let before = history.iter().rev().find(|(at, _)| *at < now);
        let before = before.map(|(_, settings)| (header.seq, settings));
        let then = history.iter().filter(|(at, _)| *at == now);
        let then = then.map(|(_, settings)| (settings.last_change_seq(), settings));
        let mut all = before.into_iter().chain(then);
        let (by, _) = all.find(|(_, settings)| settings.gone(header, now))?;
        Some((now, by.max(header.seq)))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    // The end is the first moment at which the rule says that the item is gone, by the write after which it says so, however
    // the settings changed before and after; and the settings of an earlier moment are those that were in force.
    #[test]
    fn the_end_is_when_the_rule_began_to_say_so(
        first in default_ttl(),
        steps in prop::collection::vec((0..20u64, change(), ttl(), 0..40u64, ttl()), 1..12),
    ) {
        let (mut settings, mut now, mut seq) = (Settings::new(first), 1, 1);
        let mut history = vec![(Timestamp(0), settings.clone())];
        let mut items = vec![];
        for (wait, change, ttl, ago, of_load) in steps {
            seq += 3;
            items.push((now, put(seq, now, ttl)));
            let load = put(seq + 1, now.saturating_sub(ago), of_load);
            if settings.must_be_apart_from(load.written_at) {
                let loaded = SettingsChange::Loaded(load.written_at);
                settings = settings.after(loaded, Timestamp(now), load.seq);
                history.push((Timestamp(now), settings.clone()));
            }
            if settings.expires_at(&load) > Timestamp(now) {
                items.push((now, load));
            }
            now += wait;
            settings = settings.after(change, Timestamp(now), Seq(seq + 2));
            history.push((Timestamp(now), settings.clone()));
        }
        for (born, header) in &items {
            let born_in = history.iter().filter(|(_, s)| s.last_change_seq() <= header.seq).count();
            let lived: Vec<_> = history[born_in.saturating_sub(1)..].to_vec();
            let ending = settings.ending(header).unwrap();
            let end = (ending.at < Timestamp(400)).then_some((ending.at, ending.by));
            prop_assert_eq!(end, first_gone(&lived, header, *born), "{:?} {:?}", header, settings);
        }
        for moment in 0..now {
            let then = history.iter().rev().find(|(at, _)| at.0 <= moment).unwrap();
            let at = settings.at(Timestamp(moment)).without_past();
            prop_assert_eq!(at, then.1.without_past());
            // A job that judges by that moment leaves alone what came since, however early that was stamped.
            let judged_by = settings.that_had_ended(Timestamp(moment));
            for (born, header) in &items {
                let ended = settings.ending(header).unwrap().at <= Timestamp(moment);
                let gone = judged_by.gone(header, Timestamp(moment));
                let just_before = judged_by.last_seq() <= header.seq;
                prop_assert!(!gone || ended, "{:?} of {} at {}", header, born, moment);
                prop_assert!(gone || !ended || just_before, "{:?} of {} at {}", header, born, moment);
            }
        }
    }
}

#[test]
fn says_by_what() {
    let settings = Settings::new(DefaultMillis::Millis(60));
    let inherits = put(1, 0, ItemTtl::Absent);
    let own = put(1, 0, ItemTtl::Millis(20));
    let of = |settings: &Settings, header| {
        let ending: Ending = settings.ending(header).unwrap();
        (ending.at.0, ending.cause)
    };
    assert_eq!(of(&settings, &inherits), (60, Cause::Default));
    assert_eq!(of(&settings, &own), (20, Cause::Own));
    let shorter = SettingsChange::Default(DefaultMillis::Millis(30));
    let shorter = settings.after(shorter, Timestamp(50), Seq(2));
    assert_eq!(of(&shorter, &inherits), (50, Cause::Change));
    let off = SettingsChange::Default(DefaultMillis::Off);
    let off = settings.after(off, Timestamp(70), Seq(2));
    assert_eq!(of(&off, &inherits), (60, Cause::Default));
    let told = SettingsChange::Expire(Expire::Before(Timestamp(80)));
    let told = settings.after(told, Timestamp(40), Seq(2));
    assert_eq!(of(&told, &inherits), (40, Cause::Command));
    assert_eq!(of(&told, &own), (20, Cause::Own));
    assert_eq!(
        of(&told, &put(3, 41, ItemTtl::Absent)),
        (101, Cause::Default)
    );
}

// After more changes than are kept, what the earlier ones ended is known to have ended, and nothing else is.
#[test]
fn what_is_too_long_ago_has_no_end() {
    let mut settings = Settings::new(DefaultMillis::Millis(5));
    let (old, lives) = (
        put(1, 0, ItemTtl::Absent),
        put(1, 0, ItemTtl::Millis(1_000)),
    );
    for n in 1..=MOST as u64 + 2 {
        let to = SettingsChange::Default(DefaultMillis::Millis(5 + n % 2));
        settings = settings.after(to, Timestamp(10 * n), Seq(n + 1));
    }
    assert_eq!(settings.known_from(), Timestamp(21));
    assert_eq!(settings.ending(&old), None);
    assert_eq!(settings.ending(&lives).unwrap().at, Timestamp(1_000));
    let json = serde_json::to_string(&settings).unwrap();
    assert_eq!(serde_json::from_str::<Settings>(&json).unwrap(), settings);
}

// A load that was apart from a floor stays so when the changes around it are kept one by one no longer.
#[test]
fn a_load_stays_apart_in_what_is_too_long_ago() {
    let to = |default| SettingsChange::Default(default);
    let settings = Settings::new(DefaultMillis::Millis(5));
    let settings = settings.after(to(DefaultMillis::NoDefault), Timestamp(50), Seq(2));
    let loaded = put(3, 10, ItemTtl::Absent);
    assert!(settings.must_be_apart_from(loaded.written_at));
    let began = SettingsChange::Loaded(loaded.written_at);
    let mut settings = settings.after(began, Timestamp(51), loaded.seq);
    for n in 4..=MOST as u64 + 8 {
        settings = settings.after(to(DefaultMillis::NoDefault), Timestamp(50 + n), Seq(n));
        assert!(!settings.gone(&loaded, Timestamp(1_000)), "{settings:?}");
        let end = settings.ending(&loaded).map(|ending| ending.at);
        assert_eq!(end, Some(Timestamp::MAX), "{settings:?}");
    }
    assert!(settings.gone(&put(1, 10, ItemTtl::Absent), Timestamp(1_000)));
    assert!(settings.known_from() > Timestamp(51));
}

// Settings that a build before this one stored do not tell how they came about.
#[test]
fn settings_without_a_past_know_ends_from_their_last_change_on() {
    let off = SettingsChange::Default(DefaultMillis::NoDefault);
    let told = SettingsChange::Expire(Expire::All);
    let stored = Settings::new(DefaultMillis::Millis(60));
    let stored = stored.after(off, Timestamp(70), Seq(2)).without_past();
    let stored = stored.after(told, Timestamp(90), Seq(4)).without_past();
    assert_eq!(stored.known_from(), Timestamp(91));
    let (old, new) = (put(1, 0, ItemTtl::Absent), put(5, 95, ItemTtl::Millis(9)));
    assert_eq!(stored.ending(&old), None);
    assert_eq!(stored.ending(&new).unwrap().at, Timestamp(104));
    let all = SettingsChange::Expire(Expire::All);
    let later = stored.after(all, Timestamp(100), Seq(6));
    assert_eq!(
        (later.known_from(), later.ending(&old)),
        (Timestamp(91), None)
    );
    assert_eq!(later.ending(&new).unwrap().at, Timestamp(100));
}
