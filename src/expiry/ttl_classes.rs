//! Answers from the two ttl classes of a census under the settings of today: which records are dead, since when, and
//! until when others live.
//!
//! The inheriting ttl class is counted by `written_at`, so its expiries are these moments plus the default; the
//! overriding ttl class is counted by expiry. Floors and commands apply only to records below their sequence numbers,
//! and a census does not tell which these are, nor when records were written that do not inherit: an answer is certain
//! in the direction that its name says, and may be conservative in the other.
//!
//! Example: items written at 100 and 200 without a ttl of their own, and one that expires at 600 by its own. Under a default
//! of 50 ms they expire at 150, 250 and 600: from 150 on some are dead, from 600 on all are. Under `Off` none ever is.

use crate::base::record::Header;
use crate::base::{Seq, Timestamp};
use crate::expiry::census::{Census, Tally, is_oversized};
use crate::expiry::command::{Command, Reach};
use crate::expiry::histogram::ExpiryHistograms;
use crate::expiry::rule::{DefaultMillis, ExpiryView, Settings};

impl Census {
    /// Whether certainly every record is a tombstone or gone. False may be conservative, if there are records on both
    /// sides of a floor or a command, or if a command is about the time of writing.
    pub fn all_dead(&self, view: &ExpiryView) -> bool {
        let (reach, default) = (view.settings.reach(self.seq_max), view.settings.default);
        if reach.is_all() || self.never.count > 0 {
            return reach.is_all();
        }
        let inheriting_gone = self.inheriting.tally.count == 0
            || self.inheriting.max < reach.inherit
            || matches!(default, DefaultMillis::Millis(n) if self.inheriting.max.after(n) <= view.now);
        let overriding_gone = self.overriding.tally.count == 0
            || self.overriding.max < reach.own
            || (default.is_on() && self.overriding.max <= view.now);
        inheriting_gone && overriding_gone
    }

    /// Whether possibly one of the records is reached, if all have lower sequence numbers. False is certain.
    pub fn may_be_reached(&self, reach: &Reach) -> bool {
        let puts = self.total().count > self.tombstones.count;
        let first_written = self.overriding.min.before(self.longest_ttl);
        let written_before = self.never.count > 0 && reach.written > Timestamp(0)
            || self.overriding.tally.count > 0 && first_written < reach.written;
        // An empty ttl class's earliest moment is the maximum, which never comes.
        self.inheriting.min < reach.inherit
            || self.overriding.min < reach.own
            || written_before
            || (puts && reach.is_all())
    }

    /// The joint reach of floors and commands over the records, if the expiry histograms can tell which these are;
    /// floors are applied to all, because records written after a change end after them. `None`: a command lies between
    /// the records, or is about the time of writing.
    fn even_reach(&self, settings: &Settings) -> Option<Reach> {
        let of_oldest = settings.commands.reach(self.seq_min);
        let of_newest = settings.commands.reach(self.seq_max);
        let is_even = of_oldest == of_newest && of_oldest.written == Timestamp(0);
        (is_even || of_newest.is_all()).then(|| settings.reach(self.seq_min))
    }

    /// Whether possibly some record is a tombstone or gone. False is certain.
    pub fn any_dead(&self, view: &ExpiryView) -> bool {
        let settings = &view.settings;
        self.tombstones.count > 0
            || matches!(settings.default, DefaultMillis::Millis(n) if self.inheriting.min.after(n) <= view.now)
            || (settings.default.is_on() && self.overriding.min <= view.now)
            || self.may_be_reached(&settings.reach(self.seq_min))
    }

    /// When the last of the records expires if the settings stay: [`Timestamp::MAX`] if one never does. Ignores floors
    /// and commands, so the answer may be later than the truth.
    pub fn last_expiry(&self, settings: &Settings) -> Timestamp {
        if self.never.count > 0 {
            return Timestamp::MAX;
        }
        let mut last = Timestamp(0);
        if self.inheriting.tally.count > 0 {
            last = last.max(match settings.default {
                DefaultMillis::Millis(n) => self.inheriting.max.after(n),
                _ => Timestamp::MAX,
            });
        }
        if self.overriding.tally.count > 0 {
            last = last.max(if settings.default.is_on() {
                self.overriding.max
            } else {
                Timestamp::MAX
            });
        }
        last
    }

    /// When the first of the records expires, or has expired, if the settings stay; `None` when none ever does.
    pub fn first_expiry(&self, settings: &Settings) -> Option<Timestamp> {
        let inheriting = match settings.default {
            DefaultMillis::Millis(n) if self.inheriting.tally.count > 0 => {
                Some(self.inheriting.min.after(n))
            }
            _ => None,
        };
        let overriding = (settings.default.is_on() && self.overriding.tally.count > 0)
            .then_some(self.overriding.min);
        inheriting.into_iter().chain(overriding).min()
    }

    /// Whether possibly one of the records expires from `from` on and before `to`, if the settings stay. False is certain.
    pub fn may_end_within(&self, settings: &Settings, from: Timestamp, to: Timestamp) -> bool {
        let within = |first: Timestamp, last: Timestamp| first < to && last >= from;
        let (inheriting, overriding) = (&self.inheriting, &self.overriding);
        let inherits = match settings.default {
            DefaultMillis::Millis(n) if inheriting.tally.count > 0 => {
                within(inheriting.min.after(n), inheriting.max.after(n))
            }
            _ => false,
        };
        inherits
            || settings.default.is_on()
                && overriding.tally.count > 0
                && within(overriding.min, overriding.max)
    }

    /// The longest lifetime of a dated record under these settings, in milliseconds.
    pub fn longest_life(&self, settings: &Settings) -> u64 {
        match settings.default {
            DefaultMillis::Millis(n) if self.inheriting.tally.count > 0 => n.max(self.longest_ttl),
            DefaultMillis::Off => 0,
            _ => self.longest_ttl,
        }
    }

    /// When the oldest dead item expired; `None` if none is dead. Items below a floor count from the change that set
    /// it, and those that a command reaches from the command at the latest; `judged_up_to` is the sequence number of the
    /// last of these after which dead records were already removed. In a memtable that is none: if it has writes on
    /// both sides of one, the answer may be about an item that is not dead.
    pub fn oldest_dead(&self, judged_up_to: Seq, view: &ExpiryView) -> Option<Timestamp> {
        let settings = &view.settings;
        let by_clock = self
            .first_expiry(settings)
            .filter(|expiry| *expiry <= view.now);
        // An empty ttl class's earliest moment is the maximum, which never comes.
        let by_floor = judged_up_to < settings.floor_seq
            && self.seq_min < settings.floor_seq
            && (self.inheriting.min < settings.inherit_floor
                || self.overriding.min < settings.override_floor);
        let mut commands = settings.commands.iter();
        let by_command = commands.find(|command| self.may_fall_to(command, judged_up_to));
        by_clock
            .into_iter()
            .chain(by_floor.then(|| settings.override_floor.before(1)))
            .chain(by_command.map(|command| command.at))
            .min()
    }

    /// Whether possibly a record is there that a command reaches, if dead records were removed by all up to
    /// `judged_up_to`. False is certain.
    pub fn may_fall_to(&self, command: &Command, judged_up_to: Seq) -> bool {
        judged_up_to.max(self.seq_min) < command.seq && self.may_be_reached(&command.reach)
    }
}

impl ExpiryHistograms {
    /// An estimate of the gone ones of these `puts`, which `census` describes. `sample`: weight and header of some of
    /// them. It is asked where a command reaches only a part that the histograms do not tell.
    pub fn gone<'a>(
        &self,
        view: &ExpiryView,
        census: &Census,
        puts: Tally,
        sample: impl Iterator<Item = (u64, &'a Header)>,
    ) -> Tally {
        match census.even_reach(&view.settings) {
            Some(reach) if reach.is_all() => puts,
            Some(reach) => self.gone_below(view, reach),
            None => gone_of_sample(view, puts, census.total().bytes, sample),
        }
    }

    fn gone_below(&self, view: &ExpiryView, reach: Reach) -> Tally {
        let settings = &view.settings;
        let below = |bound: Timestamp| bound.0.checked_sub(1).map(Timestamp);
        let written_by = match settings.default {
            DefaultMillis::Millis(n) => view.now.0.checked_sub(n).map(Timestamp),
            _ => None,
        };
        let over_by = settings.default.is_on().then_some(view.now);
        let inheriting = written_by.max(below(reach.inherit));
        let overriding = over_by.max(below(reach.own));
        let mut gone = inheriting.map_or(Tally::default(), |at| self.inheriting.up_to(at));
        gone.add(overriding.map_or(Tally::default(), |at| self.overriding.up_to(at)));
        gone
    }

    /// How many bytes expire when under these settings, in no order; leaves out those that never do.
    pub fn forecast(
        &self,
        settings: &Settings,
    ) -> impl Iterator<Item = (Timestamp, u64)> + use<'_> {
        self.ends(settings).map(|(at, tally)| (at, tally.bytes))
    }

    /// The same in records and bytes.
    pub fn ends(&self, settings: &Settings) -> impl Iterator<Item = (Timestamp, Tally)> + use<'_> {
        let life = match settings.default {
            DefaultMillis::Millis(n) => Some(n),
            _ => None,
        };
        let inheriting = life.into_iter().flat_map(|life| {
            let parts = self.inheriting.iter();
            parts.map(move |(at, tally)| (at.after(life), tally))
        });
        let overriding = settings.default.is_on().then(|| self.overriding.iter());
        let overriding = overriding.into_iter().flatten();
        inheriting.chain(overriding)
    }
}

/// An estimate of the gone ones of these puts by the share of a sample; those in it that are oversized beside so many
/// bytes count for themselves.
fn gone_of_sample<'a>(
    view: &ExpiryView,
    puts: Tally,
    bytes_beside: u64,
    sample: impl Iterator<Item = (u64, &'a Header)>,
) -> Tally {
    let (mut oversized, mut others) = ([Tally::default(); 2], [Tally::default(); 2]);
    for (bytes, header) in sample.filter(|(_, header)| !header.is_tombstone()) {
        let [all, gone] = match is_oversized(bytes, bytes_beside) {
            true => &mut oversized,
            false => &mut others,
        };
        all.add(Tally { count: 1, bytes });
        if view.dead(header) {
            gone.add(Tally { count: 1, bytes });
        }
    }
    let ([all, mut sum], [asked, gone]) = (oversized, others);
    let rest = puts.less(all);
    let share = |of: u64, gone: u64, asked: u64| {
        let part = u128::from(of) * u128::from(gone) / u128::from(asked.max(1));
        part as u64
    };
    sum.add(Tally {
        count: share(rest.count, gone.count, asked.count),
        bytes: share(rest.bytes, gone.bytes, asked.bytes),
    });
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ItemTtl;
    use crate::base::coding::ByteReader;
    use crate::base::record::{Kind, RecordRef};
    use crate::expiry::command::Commands;
    use proptest::prelude::*;

    fn record(seq: u64, written_at: u64, ttl: ItemTtl) -> RecordRef<'static> {
        let header = Header {
            kind: Kind::Put,
            seq: Seq(seq),
            written_at: Timestamp(written_at),
            ttl,
        };
        RecordRef {
            header,
            key: b"key",
            value_len: 81,
        }
    }

    fn any_record() -> impl Strategy<Value = RecordRef<'static>> {
        let ttl = prop_oneof![
            3 => Just(Some(ItemTtl::Absent)),
            3 => (0u64..12).prop_map(|millis| Some(ItemTtl::Millis(millis))),
            1 => Just(Some(ItemTtl::Never)),
            1 => Just(None),
        ];
        (0u64..8, 0u64..12, ttl).prop_map(|(seq, written_at, ttl)| match ttl {
            Some(ttl) => record(seq, written_at, ttl),
            None => RecordRef {
                header: Header::tombstone(Seq(seq), Timestamp(written_at)),
                key: b"key",
                value_len: 0,
            },
        })
    }

    fn any_judge() -> impl Strategy<Value = ExpiryView> {
        let default = prop_oneof![
            Just(DefaultMillis::Off),
            Just(DefaultMillis::NoDefault),
            (1u64..12).prop_map(DefaultMillis::Millis)
        ];
        (
            default,
            0u64..16,
            0u64..24,
            0u64..9,
            0u64..24,
            any_commands(),
        )
            .prop_map(
                |(default, inherit_floor, override_floor, floor_seq, now, commands)| {
                    ExpiryView::at(Timestamp(now), || Settings {
                        default,
                        inherit_floor: Timestamp(inherit_floor),
                        override_floor: Timestamp(override_floor),
                        floor_seq: Seq(floor_seq),
                        commands,
                        ..Settings::default()
                    })
                },
            )
    }

    fn any_commands() -> impl Strategy<Value = Commands> {
        let bound = || (0u64..24).prop_map(Timestamp);
        let reach = prop_oneof![
            (bound(), bound()).prop_map(|(inherit, own)| Reach {
                inherit,
                own,
                written: Timestamp(0)
            }),
            bound().prop_map(Reach::written_before),
            Just(Reach::written_before(Timestamp::MAX)),
        ];
        let command = (1u64..4, reach);
        prop::collection::vec(command, 0..3).prop_map(|commands| {
            let seqs = commands.iter().scan(0, |seq, (step, _)| {
                *seq += step;
                Some(*seq)
            });
            let all = seqs
                .zip(&commands)
                .map(|(seq, (_, reach))| Command::given(Seq(seq), Timestamp(0), *reach));
            all.collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]
        /// Goal: a census's answers are true of its records. Method: each record is asked; where floors apply only to
        /// some, the census may be conservative.
        #[test]
        fn a_census_says_what_its_records_say(
            records in prop::collection::vec(any_record(), 0..5),
            more in prop::collection::vec(any_record(), 0..3),
            view in any_judge(),
        ) {
            let count = |records: &[RecordRef<'_>]| {
                let mut census = Census::default();
                records.iter().for_each(|record| census.add(record));
                census
            };
            let mut census = count(&records);
            census.merge(&count(&more));
            let records = [records, more].concat();
            prop_assert_eq!(census, count(&records));
            let mut bytes = vec![];
            census.encode(&mut bytes);
            prop_assert_eq!(Census::decode(&mut ByteReader::new(&bytes)), Ok(census));

            let bytes = records.iter().map(RecordRef::weight).sum();
            prop_assert_eq!(census.total(), Tally { count: records.len() as u64, bytes });
            let settings = &view.settings;
            let (all, any) = (census.all_dead(&view), census.any_dead(&view));
            let all_are = records.iter().all(|record| view.dead(&record.header));
            let any_is = records.iter().any(|record| view.dead(&record.header));
            prop_assert!(!all || all_are, "{:?} under {:?}", records, view);
            prop_assert!(any || !any_is, "{:?} under {:?}", records, view);
            let before = records.iter().filter(|record| record.header.seq < settings.floor_seq).count();
            if (before == 0 || before == records.len()) && settings.commands.is_empty() {
                prop_assert_eq!((all, any), (all_are, any_is), "{:?} under {:?}", records, view);
            }

            let puts = || records.iter().map(|record| &record.header).filter(|header| !header.is_tombstone());
            for command in settings.commands.iter() {
                let reached = puts().any(|header| command.holds(header));
                prop_assert!(!reached || census.may_fall_to(command, Seq(0)), "{:?} under {:?}", records, command);
            }
            if census.even_reach(settings).is_some_and(|reach| reach.is_all()) {
                prop_assert!(all_are, "{:?} under {:?}", records, view);
            }
            let expiries = || puts().map(|header| settings.expires_at(header));
            prop_assert_eq!(census.last_expiry(settings), expiries().max().unwrap_or_default());
            prop_assert_eq!(census.first_expiry(settings), expiries().filter(|at| *at < Timestamp::MAX).min());
            let lives = puts().filter(|header| settings.expires_at(header) < Timestamp::MAX);
            let longest = lives.map(|header| settings.expires_at(header).since(header.written_at)).max();
            prop_assert_eq!(census.longest_life(settings), longest.unwrap_or(0));
        }
    }

    #[test]
    fn both_ttl_classes_are_judged_by_the_settings_of_today() {
        let mut census = Census::default();
        for (seq, written_at, ttl) in [
            (3, 100, ItemTtl::Absent),
            (5, 200, ItemTtl::Absent),
            (4, 100, ItemTtl::Millis(500)),
        ] {
            census.add(&record(seq, written_at, ttl));
        }
        let view = |default, now| ExpiryView::at(Timestamp(now), || Settings::new(default));
        assert!(!census.all_dead(&view(DefaultMillis::Off, u64::MAX)));
        assert!(!census.all_dead(&view(DefaultMillis::NoDefault, 10_000)));
        assert!(!census.all_dead(&view(DefaultMillis::Millis(50), 599)));
        assert!(census.all_dead(&view(DefaultMillis::Millis(50), 600)));
        assert!(census.any_dead(&view(DefaultMillis::Millis(50), 150)));
        assert!(!census.any_dead(&view(DefaultMillis::Millis(50), 149)));
        let floors = view(DefaultMillis::Millis(50), 700).settings.change(
            DefaultMillis::Off,
            Timestamp(700),
            Seq(6),
        );
        assert!(census.all_dead(&ExpiryView::at(Timestamp(0), || floors)));
        assert_eq!(
            census.total(),
            Tally {
                count: 3,
                bytes: 300
            }
        );
        let mut bytes = vec![];
        census.encode(&mut bytes);
        assert_eq!(Census::decode(&mut ByteReader::new(&bytes)), Ok(census));
    }
}
