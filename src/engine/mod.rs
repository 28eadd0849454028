//! stub
use crate::batch::*;
use crate::counters::*;
use crate::error::*;
use crate::expiry::*;
use crate::options::*;
use crate::record::*;
use crate::types::*;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
pub struct Engine;
pub struct ContainerState;
pub struct SnapshotPin;
pub struct Scan;
#[derive(Clone, Default)]
pub struct Writes;
pub struct Found {
    pub key: Bytes,
    pub value: Bytes,
    pub header: Header,
    pub expires_at: Timestamp,
}
pub struct Reader<'a> {
    pub state: &'a Arc<ContainerState>,
    pub snapshot: Option<&'a Arc<SnapshotPin>>,
}
pub enum Verdict {
    Keep,
    Put(Vec<u8>, WriteTtl),
    Delete,
}
impl ContainerState {
    pub fn name(&self) -> &str {
        todo!()
    }
    pub fn id(&self) -> ContainerId {
        todo!()
    }
    pub fn settings(&self) -> Settings {
        todo!()
    }
}
impl Writes {
    pub fn push(&mut self, _: &Arc<Engine>, _: &Arc<ContainerState>, _: Op<'_>) -> Result<()> {
        todo!()
    }
    pub fn len(&self) -> usize {
        todo!()
    }
    pub fn clear(&mut self) {
        todo!()
    }
}
impl Scan {
    pub fn next(&mut self) -> Result<Option<Found>> {
        todo!()
    }
    pub fn next_back(&mut self) -> Result<Option<Found>> {
        todo!()
    }
}
impl Engine {
    pub fn open(_: &Path, _: &Options) -> Result<Arc<Engine>> {
        todo!()
    }
    pub fn path(&self) -> &Path {
        todo!()
    }
    pub fn set_default(&self, _: &Arc<ContainerState>, _: DefaultMillis) -> Result<()> {
        todo!()
    }
    pub fn write_one(&self, _: &Arc<ContainerState>, _: Op<'_>) -> Result<()> {
        todo!()
    }
    pub fn write(&self, _: &Writes) -> Result<()> {
        todo!()
    }
    pub fn update(
        &self,
        _: &Arc<ContainerState>,
        _: &[u8],
        _: &mut dyn FnMut(Option<Found>) -> Verdict,
    ) -> Result<bool> {
        todo!()
    }
    pub fn check_open(&self, _: &Arc<ContainerState>) -> Result<()> {
        todo!()
    }
    pub fn container_stats(&self, _: &Arc<ContainerState>) -> ContainerStats {
        todo!()
    }
    pub fn until(&self, _: Timestamp) -> Result<WriteTtl> {
        todo!()
    }
    pub fn get(&self, _: &Reader<'_>, _: &[u8]) -> Result<Option<Bytes>> {
        todo!()
    }
    pub fn item(&self, _: &Reader<'_>, _: &[u8]) -> Result<Option<Found>> {
        todo!()
    }
    pub fn contains(&self, _: &Reader<'_>, _: &[u8]) -> Result<bool> {
        todo!()
    }
    pub fn scan(_: &Arc<Engine>, _: &Reader<'_>, _: KeyRange) -> Result<Scan> {
        todo!()
    }
    pub fn existing_container(&self, _: &str, _: &SnapshotPin) -> Result<Arc<ContainerState>> {
        todo!()
    }
    pub fn container(&self, _: &str, _: &ContainerOptions) -> Result<Arc<ContainerState>> {
        todo!()
    }
    pub fn containers(&self) -> Vec<String> {
        todo!()
    }
    pub fn drop_container(&self, _: &str) -> Result<bool> {
        todo!()
    }
    pub fn snapshot(&self) -> SnapshotPin {
        todo!()
    }
    pub fn sync(&self) -> Result<()> {
        todo!()
    }
    pub fn flush(&self) -> Result<()> {
        todo!()
    }
    pub fn compact(&self) -> Result<()> {
        todo!()
    }
    pub fn checkpoint(&self, _: &Path) -> Result<()> {
        todo!()
    }
    pub fn stats(&self) -> Stats {
        todo!()
    }
    pub fn close(&self) -> Result<()> {
        todo!()
    }
    pub fn confirm_clock(&self) {
        todo!()
    }
    pub fn set_background_rate(&self, _: u64) {
        todo!()
    }
    pub fn step(&self) -> Result<bool> {
        todo!()
    }
    pub fn describe(&self) -> String {
        todo!()
    }
}

pub struct VerifyReport {
    pub files: u64,
    pub bytes: u64,
    pub records: u64,
    pub faults: Vec<Error>,
}
pub fn verify(
    _: impl AsRef<Path>,
    _: &mut dyn FnMut(u64 /*done*/, u64 /*total bytes*/),
) -> Result<VerifyReport> {
    todo!()
}
