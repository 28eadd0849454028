//! LMDB 1.0, as its users keep data with lifetimes in it: when an item expires stands in front of its value, and gets and
//! scans look at it. A program would delete what has expired by a sweep of its own; there is none here.
//!
//! ```text
//!   lmdb             a writable map (MDB_WRITEMAP) and no syncs; pages are trusted as they are
//!   lmdb-checksums   each page has an XXH3 that is verified when it is read; pages are written by calls, and mapped in
//!                    chunks (MDB_REMAP_CHUNKS): LMDB verifies in no other way
//! ```
//!
//! Every put is a transaction of its own, and so is every get and scan. Where puts are to survive a power cut, it syncs. It
//! has no compression, and no compaction in place. It is called through its C interface, because heed does not set
//! checksums.
//!
//! * A transaction is used by the thread that began it, and ends before the environment does.
//! * What a transaction lends is seen before it ends.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};

use lmdb_master3_sys as ffi;

use super::{Config, Engine, Life, OwnFigures, See, SeeMany, Transfer, stamped};
use crate::Result;

/// The map is a multiple of this, which every page size divides.
const MAP_UNIT: u64 = 1 << 20;
/// Bytes of a page's checksum.
const SUM_BYTES: usize = 8;
/// For the owner alone.
const MODE: u32 = 0o600;

struct Lmdb {
    env: *mut ffi::MDB_env,
    items: ffi::MDB_dbi,
}

// SAFETY: an environment and its handles of databases are for all threads, says its documentation.
unsafe impl Send for Lmdb {}
// SAFETY: as above.
unsafe impl Sync for Lmdb {}

pub fn open(folder: &Path, config: &Config, checksums: bool) -> Result<Box<dyn Engine>> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    let room = config.room_bytes.next_multiple_of(MAP_UNIT);
    let flags = match (config.sync, checksums) {
        (true, false) => 0,
        (true, true) => ffi::MDB_REMAP_CHUNKS,
        (false, false) => ffi::MDB_WRITEMAP | ffi::MDB_NOSYNC,
        (false, true) => ffi::MDB_REMAP_CHUNKS | ffi::MDB_NOSYNC,
    };
    let mut env = null_mut();
    // SAFETY: the environment is set up before it is opened, as it has to be, and closed when it is dropped. The folder is
    // the driver's own, so that nobody else changes the file below the map.
    let mut lmdb = unsafe {
        done(ffi::mdb_env_create(&mut env))?;
        let lmdb = Lmdb { env, items: 0 };
        done(ffi::mdb_env_set_mapsize(env, room as usize))?;
        if checksums {
            let sum: ffi::MDB_sum_func = Some(page_sum);
            done(ffi::mdb_env_set_checksum(env, sum, SUM_BYTES as u32))?;
        }
        done(ffi::mdb_env_open(env, path.as_ptr(), flags as u32, MODE))?;
        lmdb
    };
    let txn = lmdb.begin(0)?;
    // SAFETY: the transaction has just begun, in this thread.
    unsafe { done(ffi::mdb_dbi_open(txn.0, null(), 0, &mut lmdb.items))? };
    txn.commit()?;
    Ok(Box::new(lmdb))
}

/// Computes a page's checksum.
unsafe extern "C" fn page_sum(
    page: *const ffi::MDB_val,
    sum: *mut ffi::MDB_val,
    _key: *const ffi::MDB_val,
) {
    // SAFETY: LMDB gives a page that nobody writes meanwhile, and room for as many bytes as it was told.
    unsafe {
        let page = std::slice::from_raw_parts((*page).mv_data.cast::<u8>(), (*page).mv_size);
        let bytes = xxhash_rust::xxh3::xxh3_64(page).to_le_bytes();
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), (*sum).mv_data.cast(), SUM_BYTES);
    }
}

fn done(code: i32) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: what it returns is a string that stays.
    let text = unsafe { CStr::from_ptr(ffi::mdb_strerror(code)) };
    Err(text.to_string_lossy().into())
}

/// Whether what was asked for is there.
fn is_there(code: i32) -> Result<bool> {
    match code {
        ffi::MDB_NOTFOUND => Ok(false),
        code => done(code).map(|()| true),
    }
}

fn lent(bytes: &[u8]) -> ffi::MDB_val {
    ffi::MDB_val {
        mv_size: bytes.len(),
        mv_data: bytes.as_ptr().cast_mut().cast(),
    }
}

const NONE: ffi::MDB_val = ffi::MDB_val {
    mv_size: 0,
    mv_data: null_mut(),
};

/// # Safety
///
/// The value was lent by a transaction that lasts for `'t`.
unsafe fn bytes<'t>(value: ffi::MDB_val) -> &'t [u8] {
    // SAFETY: by the caller's promise; LMDB lends no null for what it found.
    unsafe { std::slice::from_raw_parts(value.mv_data.cast(), value.mv_size) }
}

/// A transaction, aborted unless it is committed.
struct Txn(*mut ffi::MDB_txn);

impl Txn {
    fn get(&self, items: ffi::MDB_dbi, key: &[u8]) -> Result<Option<&[u8]>> {
        let (mut key, mut value) = (lent(key), NONE);
        // SAFETY: the transaction lasts as long as what it lends is borrowed; nothing is put meanwhile by those who hold it.
        unsafe {
            let found = is_there(ffi::mdb_get(self.0, items, &mut key, &mut value))?;
            Ok(found.then(|| bytes(value)))
        }
    }

    fn put(&mut self, items: ffi::MDB_dbi, key: &[u8], stored: &[u8]) -> Result<()> {
        let (mut key, mut value) = (lent(key), lent(stored));
        // SAFETY: without MDB_RESERVE both are only read.
        unsafe { done(ffi::mdb_put(self.0, items, &mut key, &mut value, 0)) }
    }

    fn commit(self) -> Result<()> {
        let txn = self.0;
        std::mem::forget(self);
        // SAFETY: it frees the transaction, which nobody has any more.
        unsafe { done(ffi::mdb_txn_commit(txn)) }
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        // SAFETY: it has not ended, and nobody has it any more.
        unsafe { ffi::mdb_txn_abort(self.0) }
    }
}

/// A cursor, closed before its transaction ends.
struct Cursor<'t>(*mut ffi::MDB_cursor, PhantomData<&'t Txn>);

impl<'t> Cursor<'t> {
    fn new(txn: &'t Txn, items: ffi::MDB_dbi) -> Result<Cursor<'t>> {
        let mut cursor = null_mut();
        // SAFETY: the transaction lasts longer.
        unsafe { done(ffi::mdb_cursor_open(txn.0, items, &mut cursor))? };
        Ok(Cursor(cursor, PhantomData))
    }

    fn to(&mut self, key: ffi::MDB_val, op: ffi::MDB_cursor_op) -> Result<Option<(&[u8], &[u8])>> {
        let (mut key, mut value) = (key, NONE);
        // SAFETY: what it lends is borrowed from the cursor, and so gone before the next step.
        unsafe {
            let found = is_there(ffi::mdb_cursor_get(self.0, &mut key, &mut value, op))?;
            Ok(found.then(|| (bytes(key), bytes(value))))
        }
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: its transaction is still there.
        unsafe { ffi::mdb_cursor_close(self.0) }
    }
}

impl Lmdb {
    fn begin(&self, flags: u32) -> Result<Txn> {
        let mut txn = null_mut();
        // SAFETY: the environment is open, and a thread has one transaction at a time.
        unsafe { done(ffi::mdb_txn_begin(self.env, null_mut(), flags, &mut txn))? };
        Ok(Txn(txn))
    }

    fn read(&self) -> Result<Txn> {
        self.begin(ffi::MDB_RDONLY as u32)
    }

    fn get_each(
        &self,
        txn: &Txn,
        keys: &[&[u8]],
        now_ms: u64,
        see: &mut SeeMany<'_>,
    ) -> Result<()> {
        for (n, key) in keys.iter().enumerate() {
            let stored = txn.get(self.items, key)?;
            if let Some(value) = stored.and_then(|stored| stamped::live(stored, now_ms)) {
                see(n, value);
            }
        }
        Ok(())
    }
}

impl Drop for Lmdb {
    fn drop(&mut self) {
        // SAFETY: all transactions have ended, for each is borrowed within a call.
        unsafe { ffi::mdb_env_close(self.env) }
    }
}

impl Engine for Lmdb {
    fn put(&self, key: &[u8], value: &[u8], life: Option<Life>) -> Result<()> {
        let mut txn = self.begin(0)?;
        stamped::encoded(value, life, |stored| txn.put(self.items, key, stored))?;
        txn.commit()
    }

    fn get(&self, key: &[u8], now_ms: u64, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let txn = self.read()?;
        let stored = txn.get(self.items, key)?;
        if let Some(value) = stored.and_then(|stored| stamped::live(stored, now_ms)) {
            see(value);
        }
        Ok(())
    }

    fn scan(&self, from: &[u8], mut most: u64, now_ms: u64, see: &mut See<'_>) -> Result<()> {
        let txn = self.read()?;
        let mut cursor = Cursor::new(&txn, self.items)?;
        let mut step = (lent(from), ffi::MDB_SET_RANGE);
        while let Some((key, stored)) = cursor.to(step.0, step.1)? {
            step = (NONE, ffi::MDB_NEXT);
            if let Some(value) = stamped::live(stored, now_ms) {
                see(key, value);
                most -= 1;
                if most == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    fn get_many(&self, keys: &[&[u8]], now_ms: u64, see: &mut SeeMany<'_>) -> Result<()> {
        self.get_each(&self.read()?, keys, now_ms, see)
    }

    fn transact(&self, work: &Transfer<'_>, now_ms: u64, see: &mut SeeMany<'_>) -> Result<()> {
        let mut txn = self.begin(0)?;
        self.get_each(&txn, work.gets, now_ms, see)?;
        for (key, value) in work.puts {
            stamped::encoded(value, work.life, |stored| txn.put(self.items, key, stored))?;
        }
        txn.commit()
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn quiesce(&mut self) -> Result<()> {
        Ok(())
    }

    fn own(&self) -> OwnFigures {
        OwnFigures::default()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
