//! The small decoders: writes, relogged entries, record headers, life statistics.
//!
//! A write, an entry and a header have one spelling each, so what was decoded must encode to the very bytes it came from.

use ebbtide::internals::{
    Base, ByteReader, Census, DefaultMillis, ExpiryHistogram, ExpiryView, Header, ItemTtl, Kind,
    Ops, RecordRef, Seq, Settings, Tally, Timestamp, relogged,
};

use super::input::Input;

/// The writes of a batch.
pub fn batch(data: &[u8]) {
    let mut again = vec![];
    for op in Ops::new(data).map_while(Result::ok) {
        op.encode(&mut again);
    }
    assert!(data.starts_with(&again));
}

/// The entries of a relog frame.
pub fn relog(data: &[u8]) {
    let mut again = vec![];
    for entry in relogged(data).map_while(Result::ok) {
        entry.encode(&mut again);
    }
    assert!(data.starts_with(&again));
}

/// A record's header, counted from any base.
pub fn header(data: &[u8]) {
    let mut input = Input::new(data);
    let base = Base {
        seq: Seq(input.any_size()),
        written_at: Timestamp(input.any_size()),
    };
    let bytes = input.rest();
    let mut reader = ByteReader::new(bytes);
    if let Ok(header) = Header::decode(base, &mut reader) {
        let mut again = vec![];
        header.encode(base, &mut again);
        assert_eq!(again, bytes[..reader.offset()]);
        settings_of(&mut Input::new(bytes)).gone(&header, Timestamp(0));
    }
}

/// Census and histogram: decoded from any bytes, and gathered from records.
pub fn census(data: &[u8]) {
    let mut input = Input::new(data);
    let settings = settings_of(&mut input);
    let view = ExpiryView::at(Timestamp(input.any_size()), || settings);
    match input.below(3) {
        0 => decoded_census(input.rest(), &view),
        1 => decoded_histogram(input.rest(), view.now),
        _ => gathered_census(&mut input, &view),
    }
}

fn settings_of(input: &mut Input<'_>) -> Settings {
    Settings {
        default: match input.below(3) {
            0 => DefaultMillis::Off,
            1 => DefaultMillis::NoDefault,
            _ => DefaultMillis::Millis(input.any_size()),
        },
        inherit_floor: Timestamp(input.any_size()),
        override_floor: Timestamp(input.any_size()),
        floor_seq: Seq(input.any_size()),
        ..Settings::default()
    }
}

fn decoded_census(bytes: &[u8], view: &ExpiryView) {
    let Ok(census) = Census::decode(&mut ByteReader::new(bytes)) else {
        return;
    };
    let mut again = vec![];
    census.encode(&mut again);
    assert_eq!(Census::decode(&mut ByteReader::new(&again)), Ok(census));
    ask(&census, view);
    let mut sum = Census::default();
    sum.merge(&census);
    assert_eq!(sum.total(), census.total());
    sum.merge(&census);
    ask(&sum, view);
}

/// Answers that must not contradict each other.
fn ask(census: &Census, view: &ExpiryView) {
    if census.all_dead(view) && census.total().count > 0 {
        assert!(census.any_dead(view));
    }
    if let Some(first) = census.first_expiry(&view.settings) {
        assert!(first <= census.last_expiry(&view.settings));
    }
    census.longest_life(&view.settings);
}

fn decoded_histogram(bytes: &[u8], moment: Timestamp) {
    let Ok(histogram) = ExpiryHistogram::decode(&mut ByteReader::new(bytes)) else {
        return;
    };
    let mut again = vec![];
    histogram.encode(&mut again);
    assert_eq!(
        ExpiryHistogram::decode(&mut ByteReader::new(&again)).as_ref(),
        Ok(&histogram)
    );
    let all = histogram.up_to(Timestamp::MAX);
    let part = histogram.up_to(moment);
    assert!(part.count <= all.count && part.bytes <= all.bytes);
    let counts = histogram.iter().map(|(_, tally)| tally.count);
    assert_eq!(counts.fold(0, u64::saturating_add), all.count);
    let mut sum = ExpiryHistogram::default();
    histogram.iter().for_each(|(at, tally)| sum.add(at, tally));
    assert_eq!(sum.up_to(Timestamp::MAX), all);
    let half = Tally {
        count: 1,
        bytes: moment.0 / 2,
    };
    sum.add(moment, half);
}

/// A census must be true of each of its records where it says something of all.
fn gathered_census(input: &mut Input<'_>, view: &ExpiryView) {
    let (mut census, mut headers) = (Census::default(), vec![]);
    while !input.is_empty() {
        let (kind, ttl) = match input.below(4) {
            0 => (Kind::Tombstone, ItemTtl::Absent),
            1 => (Kind::Put, ItemTtl::Never),
            2 => (Kind::Put, ItemTtl::Absent),
            _ => (Kind::Put, ItemTtl::Millis(input.any_size())),
        };
        let header = Header {
            kind,
            seq: Seq(input.any_size()),
            written_at: Timestamp(input.any_size()),
            ttl,
        };
        census.add(&RecordRef {
            header,
            key: b"key",
            value_len: input.below(256),
        });
        headers.push(header);
    }
    assert_eq!(census.total().count, headers.len() as u64);
    let dead = headers.iter().filter(|header| view.dead(header)).count();
    assert!(!census.all_dead(view) || dead == headers.len());
    assert!(census.any_dead(view) || dead == 0);
    let last = census.last_expiry(&view.settings);
    let puts = || headers.iter().filter(|header| !header.is_tombstone());
    assert!(puts().all(|header| view.settings.expires_at(header) <= last));
    ask(&census, view);
}
