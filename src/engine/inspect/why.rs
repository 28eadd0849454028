//! Why a key reads as it does: each stored version of it, in the order in which reads look for them. Reads a block of
//! each run that has the key; decides nothing.

use std::sync::Arc;

use crate::base::record::{Header, RecordRef};
use crate::base::{ItemTtl, Result, Timestamp, Ttl, file_name};
use crate::compact::deadline;
use crate::data::cursor::{Cursor, Position, Seek};
use crate::data::explanation::{Explanation, Fate, StoredIn, StoredVersion};
use crate::data::version::Version;
use crate::engine::Engine;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::state::ContainerState;
use crate::expiry::{Cause, Census, ExpiryView, Reason};
use crate::table::RunCursor;

/// A version as it was found.
struct FoundVersion {
    header: Header,
    bytes: u64,
    place: StoredIn,
    /// When its bytes leave.
    leaves_by: Timestamp,
}

impl Engine {
    /// Explains a key.
    pub fn explain_key(&self, state: &Arc<ContainerState>, key: &[u8]) -> Result<Explanation> {
        self.check_open(state)?;
        let (read_state, view) = (state.pin(), self.expiry_view(state));
        let mut found = self.versions_of(state, &read_state, key, &view)?;
        found.sort_by_key(|found| std::cmp::Reverse(found.header.seq));
        // While a memtable is flushed it is in the read state once; a repair may have left a record twice.
        found.dedup_by_key(|found| found.header.seq);
        let mut newer = None;
        let versions = found.into_iter().map(|found| {
            let header = found.header;
            let fate = match newer.replace(Version::of(header.seq)) {
                Some(by) => Fate::Hidden { by },
                None => fate(&read_state, key, &header, &view),
            };
            let by = Some(found.leaves_by).filter(|by| *by < Timestamp::MAX);
            StoredVersion {
                version: Version::of(header.seq),
                written_at: header.written_at.to_system_time(),
                ttl: (!header.is_tombstone()).then(|| ttl(header.ttl)),
                bytes: found.bytes,
                place: found.place,
                fate,
                leaves_by: by.map(Timestamp::to_system_time),
            }
        });
        Ok(Explanation {
            versions: versions.collect(),
            now: view.now.to_system_time(),
        })
    }

    fn versions_of(
        &self,
        state: &ContainerState,
        read_state: &ReadState,
        key: &[u8],
        view: &ExpiryView,
    ) -> Result<Vec<FoundVersion>> {
        let (goals, held) = (self.goals_of(state), self.held_for_readers(state));
        let leaves_by = |header: &Header, census: &Census, end: Timestamp| {
            let by = match expiry(header, view) {
                Timestamp::MAX => Timestamp::MAX,
                expiry => deadline(expiry, census, view, &goals),
            };
            match by.min(end) {
                Timestamp::MAX => Timestamp::MAX,
                by => by.after(held),
            }
        };
        let mut all = vec![];
        for flushable in read_state.flushables() {
            let (memtable, segments) = (&flushable.memtable, flushable.segments());
            let census = memtable.census();
            each_of(memtable.cursor(), key, |record| {
                all.push(FoundVersion {
                    header: record.header,
                    bytes: bytes(record),
                    place: StoredIn::Memory {
                        segments: (!segments.is_empty())
                            .then_some((*segments.start(), *segments.end())),
                    },
                    leaves_by: leaves_by(&record.header, &census, Timestamp::MAX),
                });
            })?;
        }
        for run in &read_state.version.runs {
            let end = match run.end_is_trusted(&view.settings) {
                true => run.end,
                false => Timestamp::MAX,
            };
            let Some(table) = run.table_for(key) else {
                continue;
            };
            let one: Arc<[_]> = [table.clone()].into();
            each_of(RunCursor::new(one), key, |record| {
                all.push(FoundVersion {
                    header: record.header,
                    bytes: bytes(record),
                    place: StoredIn::Table {
                        path: self.tables_dir().join(file_name::table(table.id())),
                        run: run.id.0,
                    },
                    leaves_by: leaves_by(&record.header, &table.statistics().census, end),
                });
            })?;
        }
        Ok(all)
    }
}

fn bytes(record: &RecordRef<'_>) -> u64 {
    (record.key.len() + record.value_len) as u64
}

/// The fate of the newest version.
fn fate(read_state: &ReadState, key: &[u8], header: &Header, view: &ExpiryView) -> Fate {
    let covering = read_state
        .range_deletes()
        .map(|ranges| ranges.newest_over(key));
    let by = covering.max().unwrap_or_default();
    if by > header.seq {
        return Fate::RangeDeleted {
            by: Version::of(by),
        };
    }
    if header.is_tombstone() {
        return Fate::Delete;
    }
    match view.settings.reason(header, view.now) {
        None => {
            let end = view.settings.expires_at(header);
            let end = Some(end).filter(|end| *end < Timestamp::MAX);
            Fate::Live {
                ends_at: end.map(Timestamp::to_system_time),
            }
        }
        Some(Reason::Clock(ending)) => {
            let at = ending.at.to_system_time();
            match ending.cause {
                Cause::Default => Fate::ExpiredByDefault { at },
                _ => Fate::ExpiredByTtl { at },
            }
        }
        Some(Reason::Floor(seq, _)) => Fate::ExpiredBeforeChange {
            change: Version::of(seq),
        },
        Some(Reason::Command(command)) => Fate::ExpiredByCommand {
            command: Version::of(command.seq),
            at: command.at.to_system_time(),
        },
    }
}

/// When a put ends or has ended; [`Timestamp::MAX`]: never, or it is a delete.
fn expiry(header: &Header, view: &ExpiryView) -> Timestamp {
    if header.is_tombstone() {
        return Timestamp::MAX;
    }
    match view.settings.reason(header, view.now) {
        None | Some(Reason::Clock(_)) => view.settings.expires_at(header),
        Some(Reason::Floor(_, at)) => at,
        Some(Reason::Command(command)) => command.at,
    }
}

fn ttl(ttl: ItemTtl) -> Ttl {
    match ttl {
        ItemTtl::Absent => Ttl::Inherit,
        ItemTtl::Never => Ttl::Never,
        ItemTtl::Millis(millis) => Ttl::After(std::time::Duration::from_millis(millis)),
    }
}

/// Visits every version of a key.
fn each_of(
    mut cursor: impl Cursor,
    key: &[u8],
    mut visit: impl FnMut(&RecordRef<'_>),
) -> Result<()> {
    cursor.seek(Seek::AtOrAfter(key), None)?;
    while let Position::Record(record) = cursor.position() {
        if record.key != key {
            break;
        }
        visit(&record);
        cursor.advance(None)?;
    }
    Ok(())
}
