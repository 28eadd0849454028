//! Writes that are ready for the commit lock: encoded, checksummed, weighed, and hashed if it is one, outside it.
//!
//! ```text
//! one write   Op ──> encode ──> payload ──> log
//!              └──────────────────────────> memtable
//! a batch     Op ──> encode ──> payload ──> log
//!                                  └decode> memtable
//! ```
//!
//! A write is charged to quotas before it is prepared (quota.rs).
//!
//! Invariant: memtables get the records that a replay decodes from the log. A batch is decoded from the logged bytes
//! themselves. A single write is not decoded, because [`Engine::prepare_one`], the only place that makes one, encodes
//! it from the same [`Op`].

use std::cell::Cell;
use std::sync::Arc;

use crate::base::Error;
use crate::base::hash::RecordHash;
use crate::data::batch::{Op, Ops};
use crate::engine::Engine;
use crate::engine::jobs::relog::make_room;
use crate::engine::options::Durability;
use crate::engine::parts::allowance::Charge;
use crate::engine::parts::state::ContainerState;
use crate::engine::write::writes::{Writes, weight};
use crate::wal::PayloadCrc;

/// See the file's head.
pub(in crate::engine) struct Prepared<'a> {
    /// The write and its hashes, if it is a single one.
    one: Option<(&'a Op<'a>, RecordHash)>,
    payload: &'a [u8],
    crc: PayloadCrc,
    len: u64,
    weight: u64,
    states: &'a [Arc<ContainerState>],
    durability: Durability,
    /// Given back when the write is done, or has failed.
    _charge: Charge<'a>,
}

impl<'a> Prepared<'a> {
    /// The bytes for the log.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The checksum of these bytes.
    pub fn crc(&self) -> PayloadCrc {
        self.crc
    }

    /// The number of writes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of keys and values.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// The containers written to.
    pub fn states(&self) -> &'a [Arc<ContainerState>] {
        self.states
    }

    /// When the writes are acknowledged.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// The write, its hashes, and its container, if it is a single one.
    #[inline]
    pub fn single(&self) -> Option<(&'a Op<'a>, RecordHash, &'a Arc<ContainerState>)> {
        let (op, hash) = self.one?;
        debug_assert!(
            Ops::new(self.payload).eq([Ok(*op)]) && op.container() == self.states[0].id()
        );
        Some((op, hash, &self.states[0]))
    }

    /// The writes, decoded, in order.
    pub fn decoded(&self) -> impl Iterator<Item = Op<'a>> {
        Ops::new(self.payload).map(|op| op.expect("a batch was encoded by this program"))
    }

    /// The container of one of them.
    pub fn state_of(&self, op: &Op<'_>) -> &'a Arc<ContainerState> {
        let (id, mut states) = (op.container(), self.states.iter());
        let state = states.find(|state| state.id() == id);
        state.expect("a batch names its containers")
    }
}

impl Engine {
    /// A single write.
    #[inline(always)]
    pub(in crate::engine) fn prepare_one<T, E: From<Error>>(
        &self,
        state: &Arc<ContainerState>,
        op: &Op<'_>,
        charge: Charge<'_>,
        use_it: impl FnOnce(&Prepared<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let weight = weight(op);
        with_payload(op, weight, |payload| {
            use_it(&Prepared {
                one: Some((op, op.hash())),
                payload,
                crc: PayloadCrc::of(payload),
                len: 1,
                weight,
                states: std::slice::from_ref(state),
                durability: self.options.durability,
                _charge: charge,
            })
        })
    }

    /// A batch, as its walk has encoded it: these bytes, so many writes, of this weight.
    pub(in crate::engine) fn prepare<'w>(
        &self,
        writes: &'w Writes,
        payload: &'w [u8],
        len: usize,
        weight: u64,
        charge: Charge<'w>,
    ) -> Prepared<'w> {
        debug_assert_eq!(weight, weight_of(payload));
        Prepared {
            one: None,
            payload,
            crc: PayloadCrc::of(payload),
            len: len as u64,
            weight,
            states: writes.states(),
            durability: self.durability_of(writes),
            _charge: charge,
        }
    }
}

/// Bytes of all keys and values.
pub(in crate::engine) fn weight_of(payload: &[u8]) -> u64 {
    Ops::new(payload).flatten().map(|op| weight(&op)).sum()
}

/// Encodes one write into a buffer that the thread keeps for reuse.
#[inline(always)]
fn with_payload<T, E: From<Error>>(
    op: &Op<'_>,
    weight: u64,
    use_it: impl FnOnce(&[u8]) -> Result<T, E>,
) -> Result<T, E> {
    /// A buffer that grew beyond this is freed.
    const KEPT_BYTES: usize = 64 << 10;
    thread_local!(static PAYLOAD: Cell<Vec<u8>> = const { Cell::new(vec![]) });
    let mut payload = PAYLOAD.take();
    payload.clear();
    make_room(&mut payload, weight)?;
    op.encode(&mut payload);
    let result = use_it(&payload);
    if payload.capacity() <= KEPT_BYTES {
        PAYLOAD.set(payload);
    }
    result
}
