//! Relogging: appends a memtable's records to the log again, so that it needs no earlier segment.

use crate::base::record::Header;
use crate::base::{Error, Result, Seq};
use crate::data::cursor::{Cursor, Position, Seek};
use crate::data::relogged::Relogged;
use crate::engine::parts::state::ContainerState;
use crate::wal::{Appender, FrameHeader, PayloadCrc, Position as LogPosition};

/// Makes room in a payload for one more write of this weight.
#[inline]
pub(in crate::engine) fn make_room(payload: &mut Vec<u8>, weight: u64) -> Result<()> {
    /// The header of a write takes fewer bytes.
    const HEAD_MOST: usize = 64;
    let bytes = weight as usize + HEAD_MOST;
    payload
        .try_reserve(bytes)
        .map_err(|_| Error::out_of_memory(bytes))
}

/// A relog frame is cut at this size.
const RELOG_FRAME_BYTES: usize = 256 << 10;

/// Relogs a container's active memtable; from then on it needs no earlier segment.
pub(in crate::engine) fn relog(
    state: &ContainerState,
    header: &FrameHeader,
    appender: &mut Appender,
) -> Result<()> {
    relog_with(state, header, appender, |log| {
        let mut cursor = state.read_state().active.memtable.checked_cursor();
        cursor.seek(Seek::First, None)?;
        while let Position::Record(record) = cursor.position() {
            log(record.header, record.key, cursor.value()?)?;
            cursor.advance(None)?;
        }
        Ok(())
    })
}

/// Called with records: header, key, value.
pub(in crate::engine) type Show<'a> = dyn FnMut(Header, &[u8], &[u8]) -> Result<()> + 'a;

/// Relogs the records for which `show` calls its argument, without those that the memtable's range deletes cover:
/// replay applies these first, and has no snapshot.
pub(in crate::engine) fn relog_with(
    state: &ContainerState,
    header: &FrameHeader,
    appender: &mut Appender,
    show: impl FnOnce(&mut Show<'_>) -> Result<()>,
) -> Result<()> {
    let flushable = state.read_state().active.clone();
    let container = state.id();
    let (mut payload, mut first_segment, mut end) = (vec![], None, LogPosition(0));
    let mut write = |payload: &mut Vec<u8>, least: usize| -> Result<()> {
        if payload.len() > least {
            end = appender.append(header, payload, PayloadCrc::of(payload))?;
            flushable.logged_in(appender.segment());
            first_segment.get_or_insert(appender.segment());
            payload.clear();
        }
        Ok(())
    };
    let ranges = flushable.memtable.range_deletes();
    for delete in ranges.iter() {
        let (from, to) = (
            delete.range.from.as_slice(),
            delete.range.to.as_deref().unwrap_or_default(),
        );
        Relogged::Range {
            container,
            seq: delete.seq,
            from,
            to,
        }
        .encode(&mut payload);
        write(&mut payload, RELOG_FRAME_BYTES)?;
    }
    show(&mut |header, key, value| {
        if ranges.covers(key, header.seq, Seq::MAX) {
            return Ok(());
        }
        let entry = Relogged::Record {
            container,
            header,
            key,
            value,
        };
        make_room(&mut payload, (key.len() + value.len()) as u64)?;
        entry.encode(&mut payload);
        write(&mut payload, RELOG_FRAME_BYTES)
    })?;
    write(&mut payload, 0)?;
    if let Some(segment) = first_segment {
        flushable.relogged_in(segment, end);
    }
    Ok(())
}
