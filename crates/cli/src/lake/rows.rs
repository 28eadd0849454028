//! Rows, and the files that they are written to.
//!
//! Rows are gathered by partition, in columns. When all of them are [`MOST_BYTES`], the partition that has most becomes a file.
//! A file has one row group.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ebbtide::Item;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::folder::Folder;
use super::state::{self, Partition, State};
use super::{Error, Result};
use crate::calendar::date;

/// Of keys and values that are gathered.
const MOST_BYTES: usize = 128 << 20;

/// A row of a copy.
pub struct Row {
    pub key: Vec<u8>,
    /// None: it is deleted.
    pub value: Option<Vec<u8>>,
    /// Milliseconds since 1970, as all times here.
    pub written_at: u64,
    pub expires_at: Option<u64>,
    pub version: u64,
}

impl Row {
    pub fn put(item: &Item) -> Row {
        Row {
            key: item.key().to_vec(),
            value: Some(item.value().to_vec()),
            written_at: millis(item.written_at()),
            expires_at: item.expires_at().map(millis),
            version: item.version().as_u64(),
        }
    }

    pub fn deleted(key: Vec<u8>, version: u64, at: u64) -> Row {
        Row {
            key,
            value: None,
            written_at: at,
            expires_at: None,
            version,
        }
    }

    fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len) + 48
    }
}

fn millis(moment: SystemTime) -> u64 {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

/// The rows of a partition, a column each.
#[derive(Default)]
struct Columns {
    keys: Vec<ByteArray>,
    values: Vec<ByteArray>,
    value_levels: Vec<i16>,
    written_at: Vec<i64>,
    expires_at: Vec<i64>,
    expires_levels: Vec<i16>,
    versions: Vec<i64>,
    deleted: Vec<bool>,
    bytes: usize,
    written_max: u64,
}

impl Columns {
    fn push(&mut self, row: Row) {
        self.bytes += row.bytes();
        self.written_max = self.written_max.max(row.written_at);
        self.written_at.push(row.written_at as i64);
        self.versions.push(row.version as i64);
        self.deleted.push(row.value.is_none());
        self.value_levels.push(row.value.is_some().into());
        self.expires_levels.push(row.expires_at.is_some().into());
        self.keys.push(row.key.into());
        self.values.extend(row.value.map(ByteArray::from));
        self.expires_at.extend(row.expires_at.map(|at| at as i64));
    }

    /// As a file of one row group.
    fn write(&self, file: File, schema: &str, run: u64) -> std::result::Result<File, ParquetError> {
        let schema = Arc::new(parse_message_type(schema)?);
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(concat!("ebbtide ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        let runs = vec![run as i64; self.keys.len()];
        let (values, expires) = (Some(&self.value_levels[..]), Some(&self.expires_levels[..]));
        column::<ByteArrayType>(&mut group, &self.keys, None)?;
        column::<ByteArrayType>(&mut group, &self.values, values)?;
        column::<Int64Type>(&mut group, &self.written_at, None)?;
        column::<Int64Type>(&mut group, &self.expires_at, expires)?;
        column::<Int64Type>(&mut group, &self.versions, None)?;
        column::<Int64Type>(&mut group, &runs, None)?;
        column::<BoolType>(&mut group, &self.deleted, None)?;
        group.close()?;
        writer.into_inner()
    }
}

/// Writes the next column.
fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> std::result::Result<(), ParquetError> {
    let mut column = group.next_column()?.expect("the schema has it");
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

/// Writes the files of a run.
pub struct Writer<'f> {
    folder: &'f Folder<'f>,
    schema: String,
    partition: Partition,
    utf8_keys: bool,
    utf8_values: bool,
    run: u64,
    /// By the number of the day or hour.
    gathered: BTreeMap<u64, Columns>,
    bytes: usize,
    files: Vec<state::File>,
}

impl<'f> Writer<'f> {
    pub fn new(folder: &'f Folder<'f>, state: &State) -> Writer<'f> {
        let text = |is_text| if is_text { " (STRING)" } else { "" };
        Writer {
            folder,
            schema: format!(
                "message item {{
                    REQUIRED BYTE_ARRAY key{};
                    OPTIONAL BYTE_ARRAY value{};
                    REQUIRED INT64 written_at (TIMESTAMP(MILLIS,true));
                    OPTIONAL INT64 expires_at (TIMESTAMP(MILLIS,true));
                    REQUIRED INT64 version;
                    REQUIRED INT64 run;
                    REQUIRED BOOLEAN deleted;
                }}",
                text(state.utf8_keys),
                text(state.utf8_values),
            ),
            partition: state.partition,
            utf8_keys: state.utf8_keys,
            utf8_values: state.utf8_values,
            run: state.run,
            gathered: BTreeMap::new(),
            bytes: 0,
            files: vec![],
        }
    }

    pub fn push(&mut self, row: Row) -> Result<()> {
        self.check_text(&row)?;
        self.bytes += row.bytes();
        let period = row.written_at / self.partition.millis();
        self.gathered.entry(period).or_default().push(row);
        if self.bytes >= MOST_BYTES {
            let most = self.gathered.iter().max_by_key(|(_, rows)| rows.bytes);
            let most = *most.expect("there are some").0;
            self.spill(most)?;
        }
        Ok(())
    }

    fn check_text(&self, row: &Row) -> Result<()> {
        let value = row.value.as_deref().unwrap_or_default();
        for (what, bytes, is_text) in [
            ("key", &row.key[..], self.utf8_keys),
            ("value of key", value, self.utf8_values),
        ] {
            if is_text && std::str::from_utf8(bytes).is_err() {
                let key = row.key.escape_ascii();
                return Err(Error::new(format!(
                    "the {what} \"{key}\" is no UTF-8: the copy was begun with --utf8-keys or --utf8-values"
                )));
            }
        }
        Ok(())
    }

    /// Makes a file of a partition's rows.
    fn spill(&mut self, period: u64) -> Result<()> {
        let rows = self.gathered.remove(&period).expect("it has rows");
        self.bytes -= rows.bytes;
        let name = format!(
            "{}/r{:08}-{:04}.parquet",
            self.folder_of(period),
            self.run,
            self.files.len()
        );
        let file = self.folder.create(&name)?;
        let written = rows.write(file, &self.schema, self.run);
        let path = self.folder.path(&name);
        let file = written.map_err(|error| Error::of("write", &path, error))?;
        self.files.push(state::File {
            bytes: self.folder.finish(&file, &name)?,
            path: name,
            rows: rows.keys.len() as u64,
            written_max: rows.written_max,
        });
        Ok(())
    }

    fn folder_of(&self, period: u64) -> String {
        let hours = period * self.partition.millis() / 3_600_000;
        let (year, month, day) = date(hours / 24);
        let date = format!("date={year:04}-{month:02}-{day:02}");
        match self.partition {
            Partition::Day => date,
            Partition::Hour => format!("{date}/hour={:02}", hours % 24),
        }
    }

    /// The files that were written.
    pub fn finish(mut self) -> Result<Vec<state::File>> {
        while let Some((&period, _)) = self.gathered.first_key_value() {
            self.spill(period)?;
        }
        Ok(self.files)
    }
}
