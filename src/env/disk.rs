use super::fs::*;
use crate::error::Result;
use bytes::Bytes;
use std::path::Path;
#[derive(Clone)]
pub struct Disk;
impl Fs for Disk {
    fn create_dir_all(&self, _: &Path) -> Result<()> {
        todo!()
    }
    fn remove_dir(&self, _: &Path) -> Result<()> {
        todo!()
    }
    fn list(&self, _: &Path) -> Result<Vec<String>> {
        todo!()
    }
    fn len(&self, _: &Path) -> Result<Option<u64>> {
        todo!()
    }
    fn is_dir(&self, _: &Path) -> bool {
        todo!()
    }
    fn create(&self, _: &Path) -> Result<Box<dyn File>> {
        todo!()
    }
    fn open(&self, _: &Path) -> Result<Box<dyn File>> {
        todo!()
    }
    fn map(&self, _: &Path) -> Result<Bytes> {
        todo!()
    }
    fn read(&self, _: &Path) -> Result<Vec<u8>> {
        todo!()
    }
    fn ring(&self, _: &Path, _: usize) -> Result<Box<dyn Ring>> {
        todo!()
    }
    fn rename(&self, _: &Path, _: &Path) -> Result<()> {
        todo!()
    }
    fn remove(&self, _: &Path) -> Result<()> {
        todo!()
    }
    fn hard_link(&self, _: &Path, _: &Path) -> Result<()> {
        todo!()
    }
    fn sync_dir(&self, _: &Path) -> Result<()> {
        todo!()
    }
    fn lock(&self, _: &Path, _: LockKind) -> Result<Option<Box<dyn Lock>>> {
        todo!()
    }
    fn allocated(&self, _: &Path) -> Result<u64> {
        todo!()
    }
    fn available(&self, _: &Path) -> Result<u64> {
        todo!()
    }
}
