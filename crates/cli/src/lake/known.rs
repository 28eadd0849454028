//! The contents of a copy: the newest row of each key, in memory and without values while all are compared.

use std::collections::BTreeMap;
use std::fs::File;

use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{BoolType, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};

use super::folder::Folder;
use super::rows::Row;
use super::state::State;
use super::{Error, Result};

/// A row without its value.
pub struct Newest {
    pub version: u64,
    expires_at: Option<u64>,
    is_deleted: bool,
}

impl Newest {
    /// Whether a row says the same.
    pub fn is_of(&self, row: &Row) -> bool {
        !self.is_deleted && self.version == row.version && self.expires_at == row.expires_at
    }
}

/// See the file's head.
#[derive(Default)]
pub struct Known(BTreeMap<Vec<u8>, Newest>);

impl Known {
    /// Of all the files of a state.
    pub fn read(folder: &Folder<'_>, state: &State) -> Result<Known> {
        let mut known = Known::default();
        for file in &state.files {
            let path = folder.path(&file.path);
            let opened = File::open(&path).map_err(|error| Error::of("read", &path, error))?;
            let added = known.add(opened);
            added.map_err(|error| Error::of("read", &path, error))?;
        }
        Ok(known)
    }

    /// Of a file of a later run than those before.
    fn add(&mut self, file: File) -> std::result::Result<(), ParquetError> {
        let reader = SerializedFileReader::new(file)?;
        for at in 0..reader.num_row_groups() {
            let group = reader.get_row_group(at)?;
            let rows = group.metadata().num_rows() as usize;
            let (keys, _) = column::<ByteArrayType>(&*group, 0, rows)?;
            let (expires_at, levels) = column::<Int64Type>(&*group, 3, rows)?;
            let (versions, _) = column::<Int64Type>(&*group, 4, rows)?;
            let (deleted, _) = column::<BoolType>(&*group, 6, rows)?;
            let mut ends = expires_at.into_iter().map(|at| at as u64);
            let ends = levels
                .iter()
                .map(|level| (*level == 1).then(|| ends.next())?);
            let columns = keys.iter().zip(versions).zip(deleted).zip(ends);
            for (((key, version), is_deleted), expires_at) in columns {
                let newest = Newest {
                    version: version as u64,
                    expires_at,
                    is_deleted,
                };
                self.0.insert(key.data().to_vec(), newest);
            }
        }
        Ok(())
    }

    /// Takes out the newest row of a key, which is asked for once.
    pub fn take(&mut self, key: &[u8]) -> Option<Newest> {
        self.0.remove(key)
    }

    /// The others that are not deleted and have not expired by then, in the order of keys.
    pub fn live(self, now: u64) -> impl Iterator<Item = (Vec<u8>, Newest)> {
        let is_live = move |newest: &Newest| {
            !newest.is_deleted && newest.expires_at.is_none_or(|end| end > now)
        };
        self.0
            .into_iter()
            .filter(move |(_, newest)| is_live(newest))
    }
}

/// The values of a column, and for each row whether there is one, where it may have none.
fn column<T: DataType>(
    group: &dyn RowGroupReader,
    at: usize,
    rows: usize,
) -> std::result::Result<(Vec<T::T>, Vec<i16>), ParquetError> {
    let mut reader = get_typed_column_reader::<T>(group.get_column_reader(at)?);
    let (mut values, mut levels, mut read) = (vec![], vec![], 0);
    while read < rows {
        let (records, ..) =
            reader.read_records(rows - read, Some(&mut levels), None, &mut values)?;
        if records == 0 {
            return Err(ParquetError::EOF(format!("{read} rows of {rows}")));
        }
        read += records;
    }
    Ok((values, levels))
}
