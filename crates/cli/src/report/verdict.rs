//! The verdict of a report: whether space comes back on time, the largest part of the disk that is no live item, and by when how
//! much of it comes back.

use std::time::{Duration, SystemTime};

use super::facts::Facts;
use crate::{moment, show};

/// A part of the disk is worth a word from this share on.
const WORTH_A_WORD: f64 = 0.1;
/// The word is by when so much of that which comes back has done so.
const MOST: f64 = 0.9;

/// Some sentences.
pub fn verdict(facts: &Facts) -> String {
    let mut said = vec![punctuality(facts)];
    said.extend(largest(facts));
    said.extend(coming_back(facts));
    said.join(" ")
}

fn punctuality(facts: &Facts) -> String {
    if let Some(trouble) = facts.trouble.first() {
        return format!("In trouble: {}.", trouble.trim_end_matches('.'));
    }
    match facts.stats.overdue {
        Duration::ZERO => "On time.".to_owned(),
        overdue => format!(
            "Late: what has expired should have been given back {} ago.",
            show::time(overdue)
        ),
    }
}

fn largest(facts: &Facts) -> Option<String> {
    let all: u64 = facts.disk.iter().map(|part| part.bytes).sum();
    let parts = facts.disk.iter().filter(|part| part.what != "live items");
    let most = parts.max_by_key(|part| part.bytes)?;
    let is_worth = most.bytes as f64 >= all as f64 * WORTH_A_WORD;
    let (part, all) = (show::bytes(most.bytes), show::bytes(all));
    is_worth.then(|| format!("{part} of {all} on disk: {}.", most.what))
}

fn coming_back(facts: &Facts) -> Option<String> {
    let due = facts.containers.iter().flat_map(|of| &of.due);
    let mut steps: Vec<(SystemTime, u64)> = due
        .filter(|due| due.disk_bytes > 0)
        .map(|due| (due.until.max(facts.now), due.disk_bytes))
        .collect();
    steps.sort_unstable();
    let all: u64 = steps.iter().map(|(_, bytes)| bytes).sum();
    let mut so_far = 0;
    let (until, bytes) = steps.into_iter().find_map(|(until, bytes)| {
        so_far += bytes;
        (so_far as f64 >= all as f64 * MOST).then_some((until, so_far))
    })?;
    Some(format!(
        "{} come back by {}.",
        show::bytes(show::about(bytes)),
        by(until, facts.now)
    ))
}

/// `14:05`, or with the date where it is not today's; UTC, as all of the report.
fn by(until: SystemTime, now: SystemTime) -> String {
    let (until, now) = (moment::date_and_time(until), moment::date_and_time(now));
    let (date, time) = (&until[..10], &until[11..16]);
    match date == &now[..10] {
        true => format!("{time} UTC"),
        false => format!("{date} {time} UTC"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ebbtide::{ManualClock, Options};

    use super::super::facts::Privacy;
    use super::*;

    #[test]
    fn the_verdict_says_what_and_by_when() {
        let clock = ManualClock::new(1_800_000_000_000);
        let db = Options::new()
            .clock(clock.clone())
            .open_temporary()
            .unwrap();
        let c = db.container("c").unwrap();
        for n in 0..20_000u32 {
            let ttl = Duration::from_secs(300);
            c.put_with_ttl(n.to_be_bytes(), [7; 100], ttl).unwrap();
        }
        db.flush().unwrap();
        let privacy = Privacy {
            hide_names: false,
            key_bytes: 0,
        };
        let facts = Facts::of(&db, Path::new("db"), 9, privacy).ok().unwrap();
        let said = verdict(&facts);
        assert!(said.starts_with("On time. "), "{said}");
        assert!(said.contains(" come back by 08:"), "{said}");
        let day = by(db.now() + Duration::from_secs(86_400), db.now());
        assert_eq!(day, "2027-01-16 08:00 UTC");
    }
}
