//! `connector = 'file'` as a sink: a view's changes in a file, each exactly once.
//!
//! The position is the length up to which the file is durable, and the last epoch in it. A sink that is opened from a
//! position first cuts the file back to that length: what a crash left behind it comes again. Parquet cannot grow in
//! place, so there every flush is a part of its own in a directory, written aside and renamed; the position is the
//! number of parts, and later ones are removed.
//!
//! A change is a row with the columns `epoch` and `diff` before the view's (`diff` is the weight), or, for a view
//! that never takes rows back (`append_only`), just the row, as often as its weight says.
//!
//! After an error a sink is of no further use; it is opened again from its last position.

mod encode;

#[cfg(test)]
mod tests;

use super::file::{CsvForm, Format, Header, open_error, reason};
use super::{Options, Position, Progress, SinkRequest, SinkWriter, schema_of};
use crate::catalog::Column;
use crate::delta::{Batch, Delta};
use crate::error::{Error, Result};
use crate::types::text::{Settings, column_to_text};
use crate::types::{Nullability, Type};
use arrow::array::{ArrayRef, Int64Array, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use bytes::BytesMut;
use encode::Encoder;
use parquet::arrow::ArrowWriter;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How many bytes are gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// How long a Parquet sink gathers changes for a part, unless told otherwise.
const ROLL_SECONDS: u64 = 10;

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// A change: epoch, diff, row.
    Changes,
    /// A row; there are only additions.
    Rows,
}

/// The stored position.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    /// Durable bytes; for Parquet, parts.
    length: u64,
    /// The last epoch within.
    epoch: Option<u64>,
}

/// Opens or makes the file that the options name.
pub(super) fn open(options: &Options<'_>, request: &SinkRequest<'_>) -> Result<Box<dyn SinkWriter>> {
    let path = options.text("path");
    let lower = path.to_ascii_lowercase();
    if lower.ends_with(".gz") || lower.ends_with(".zst") {
        return Err(Error::unsupported("compressed file sinks are not supported")
            .with_hint("Give the file an ending other than .gz and .zst; Parquet compresses by itself."));
    }
    let format = Format::of(options)?;
    let content = if options.flag("append_only")? {
        Content::Rows
    } else {
        Content::Changes
    };
    let mark: Option<Mark> = request.position.map(Position::read).transpose()?;
    let changes = Changes {
        columns: request.columns.to_vec(),
        content,
        written: None,
    };
    match format {
        Format::Parquet => {
            let seconds = options.whole("roll_seconds", 0)?.unwrap_or(ROLL_SECONDS);
            Ok(Box::new(Parts::open(
                path,
                changes,
                mark,
                Duration::from_secs(seconds),
            )?))
        }
        Format::Csv => {
            let form = CsvForm::of(options)?;
            Ok(Box::new(Text::open(path, Encoder::csv(form), changes, mark)?))
        }
        Format::Json => Ok(Box::new(Text::open(path, Encoder::json(), changes, mark)?)),
    }
}

/// What both kinds of file need to know of what is written.
struct Changes {
    columns: Vec<Column>,
    content: Content,
    written: Option<u64>,
}

impl Changes {
    /// Whether the changes of an epoch are to be written, after `durable`.
    fn admit(&mut self, epoch: u64, durable: Option<u64>) -> bool {
        if durable.is_some_and(|durable| epoch <= durable) {
            return false;
        }
        self.written = Some(epoch);
        true
    }

    /// The batch as it is to be written: for [`Content::Rows`], each row as often as its weight says.
    fn unfold(&self, batch: &Batch) -> Result<Batch> {
        if self.content == Content::Changes || (0..batch.len()).all(|row| batch.weights.at(row) == 1) {
            return Ok(batch.clone());
        }
        let mut indices = Vec::with_capacity(batch.len());
        for row in 0..batch.len() {
            let weight = batch.weights.at(row);
            if weight < 0 {
                return Err(
                    Error::semantic("55000", "a row was taken back from an append-only sink")
                        .with_hint("Create the sink without append_only."),
                );
            }
            indices.extend(std::iter::repeat_n(row as u32, weight as usize));
        }
        let taken = batch.take(&UInt32Array::from(indices))?;
        Ok(Batch::inserts(taken.rows))
    }
}

/// A file at whose end is written.
struct Output {
    path: PathBuf,
    file: File,
    waiting: BytesMut,
    written: u64,
}

impl Output {
    fn drain(&mut self) -> Result<()> {
        self.file
            .write_all(&self.waiting)
            .map_err(|error| write_error(&self.path, &error))?;
        self.written += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }

    fn sync(&mut self) -> Result<u64> {
        self.drain()?;
        self.file.sync_data().map_err(|error| write_error(&self.path, &error))?;
        Ok(self.written)
    }
}

/// A CSV or JSON file.
struct Text {
    output: Output,
    encoder: Encoder,
    changes: Changes,
    durable: Mark,
    rows: u64,
}

impl Text {
    fn open(path: &str, encoder: Encoder, changes: Changes, mark: Option<Mark>) -> Result<Self> {
        let path = PathBuf::from(path);
        let (file, written) = match mark {
            None => (create(&path)?, 0),
            Some(mark) => (reopen(&path, mark.length)?, mark.length),
        };
        let mut output = Output {
            path,
            file,
            waiting: BytesMut::new(),
            written,
        };
        if written == 0 {
            encoder.header(&changes.columns, changes.content, &mut output.waiting);
        }
        Ok(Self {
            output,
            encoder,
            changes,
            durable: mark.unwrap_or_default(),
            rows: 0,
        })
    }
}

impl SinkWriter for Text {
    fn write(&mut self, epoch: u64, delta: &Delta) -> Result<()> {
        if !self.changes.admit(epoch, self.durable.epoch) {
            return Ok(());
        }
        for batch in &delta.batches {
            let batch = self.changes.unfold(batch)?;
            let mut lines = self
                .encoder
                .lines(&self.changes.columns, self.changes.content, epoch, &batch)?;
            for row in 0..batch.len() {
                lines.write(row, &mut self.output.waiting);
                if self.output.waiting.len() >= WRITE_BYTES {
                    self.output.drain()?;
                }
            }
            self.rows += batch.len() as u64;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<Position> {
        let length = self.output.sync()?;
        self.durable = Mark {
            length,
            epoch: self.changes.written.or(self.durable.epoch),
        };
        Ok(self.position())
    }

    fn position(&self) -> Position {
        Position::of(&self.durable)
    }

    fn progress(&self) -> Progress {
        progress(format!("byte {}", self.output.written), self.rows)
    }
}

/// A directory of Parquet files.
struct Parts {
    directory: PathBuf,
    schema: SchemaRef,
    changes: Changes,
    part: Option<ArrowWriter<File>>,
    durable: Mark,
    rows: u64,
    roll: Duration,
}

impl Parts {
    fn open(path: &str, changes: Changes, mark: Option<Mark>, roll: Duration) -> Result<Self> {
        let directory = PathBuf::from(path);
        match mark {
            None => create_directory(&directory)?,
            Some(mark) => keep_parts(&directory, mark.length)?,
        }
        let schema = part_schema(&changes.columns, changes.content);
        Ok(Self {
            directory,
            schema,
            changes,
            part: None,
            durable: mark.unwrap_or_default(),
            rows: 0,
            roll,
        })
    }

    fn aside(&self) -> PathBuf {
        self.directory.join(".part.unfinished")
    }

    fn part(&mut self) -> Result<&mut ArrowWriter<File>> {
        if self.part.is_none() {
            let path = self.aside();
            let file = File::create(&path).map_err(|error| open_error(&path.to_string_lossy(), &error))?;
            let compression = parquet::basic::Compression::ZSTD(parquet::basic::ZstdLevel::default());
            let properties = parquet::file::properties::WriterProperties::builder()
                .set_compression(compression)
                .build();
            let writer = ArrowWriter::try_new(file, self.schema.clone(), Some(properties));
            self.part = Some(writer.map_err(|error| part_error(&path, &error))?);
        }
        Ok(self.part.as_mut().expect("it was just made"))
    }
}

impl SinkWriter for Parts {
    fn write(&mut self, epoch: u64, delta: &Delta) -> Result<()> {
        if !self.changes.admit(epoch, self.durable.epoch) {
            return Ok(());
        }
        for batch in &delta.batches {
            let batch = self.changes.unfold(batch)?;
            let rows = part_rows(&self.changes, epoch, &batch, &self.schema)?;
            let path = self.aside();
            self.part()?.write(&rows).map_err(|error| part_error(&path, &error))?;
            self.rows += batch.len() as u64;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<Position> {
        if let Some(part) = self.part.take() {
            let aside = self.aside();
            let file = part.into_inner().map_err(|error| part_error(&aside, &error))?;
            let place = self.directory.join(part_name(self.durable.length + 1));
            let done = file
                .sync_all()
                .and_then(|()| fs::rename(&aside, &place))
                .and_then(|()| sync_directory(&self.directory));
            done.map_err(|error| write_error(&place, &error))?;
            self.durable.length += 1;
        }
        self.durable.epoch = self.changes.written.or(self.durable.epoch);
        Ok(self.position())
    }

    fn position(&self) -> Position {
        Position::of(&self.durable)
    }

    fn progress(&self) -> Progress {
        progress(format!("part {}", self.durable.length), self.rows)
    }

    fn gathers(&self) -> Duration {
        self.roll
    }
}

fn progress(position: String, rows: u64) -> Progress {
    Progress {
        position,
        total: None,
        lag: None,
        unit: "rows",
        rows,
    }
}

fn part_name(number: u64) -> String {
    format!("part-{number:08}.parquet")
}

/// Whether values of the type go to Parquet as text.
fn is_text_in_parquet(kind: &Type) -> bool {
    match kind {
        Type::Interval | Type::Unknown | Type::Record(_) => true,
        Type::Array(element) => is_text_in_parquet(element),
        _ => false,
    }
}

fn part_schema(columns: &[Column], content: Content) -> SchemaRef {
    let mut fields = Vec::new();
    if content == Content::Changes {
        fields.push(Type::Int8.field("epoch", Nullability::NotNull));
        fields.push(Type::Int8.field("diff", Nullability::NotNull));
    }
    for (column, field) in columns
        .iter()
        .zip(schema_of(&columns.iter().collect::<Vec<_>>()).fields())
    {
        if is_text_in_parquet(&column.kind) {
            fields.push(Field::new(&column.name, DataType::Utf8, true));
        } else {
            fields.push(field.as_ref().clone());
        }
    }
    Arc::new(Schema::new(fields))
}

fn part_rows(changes: &Changes, epoch: u64, batch: &Batch, schema: &SchemaRef) -> Result<RecordBatch> {
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
    if changes.content == Content::Changes {
        arrays.push(Arc::new(Int64Array::from_value(epoch as i64, batch.len())));
        arrays.push(Arc::new(Int64Array::from_iter_values(
            (0..batch.len()).map(|row| batch.weights.at(row)),
        )));
    }
    for (column, array) in changes.columns.iter().zip(batch.rows.columns()) {
        if is_text_in_parquet(&column.kind) {
            arrays.push(Arc::new(column_to_text(&column.kind, array, &Settings::default())?));
        } else {
            arrays.push(array.clone());
        }
    }
    crate::delta::batch_of(schema.clone(), arrays, batch.len())
}

/// Makes a file that does not exist; an empty one is taken too, as a crash right after making it leaves it.
fn create(path: &Path) -> Result<File> {
    if let Ok(metadata) = fs::metadata(path)
        && metadata.len() > 0
    {
        return Err(exists(path));
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| open_error(&path.to_string_lossy(), &error))?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    sync_directory(parent).map_err(|error| write_error(path, &error))?;
    Ok(file)
}

fn create_directory(path: &Path) -> Result<()> {
    match fs::read_dir(path) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                Err(exists(path))
            } else {
                Ok(())
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir(path).map_err(|error| open_error(&path.to_string_lossy(), &error))
        }
        Err(_) if path.exists() => Err(exists(path)),
        Err(error) => Err(open_error(&path.to_string_lossy(), &error)),
    }
}

/// Removes the parts after the `count`th, all of which must be there.
fn keep_parts(directory: &Path, count: u64) -> Result<()> {
    let failed = |error: io::Error| write_error(directory, &error);
    if (1..=count).any(|number| !directory.join(part_name(number)).is_file()) || !directory.is_dir() {
        return Err(changed(directory));
    }
    for number in count + 1.. {
        match fs::remove_file(directory.join(part_name(number))) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(failed(error)),
        }
    }
    sync_directory(directory).map_err(failed)
}

/// Opens a file of the sink's and cuts it back to `length`.
fn reopen(path: &Path, length: u64) -> Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|error| open_error(&path.to_string_lossy(), &error))?;
    let failed = |error: io::Error| write_error(path, &error);
    if file.metadata().map_err(failed)?.len() < length {
        return Err(changed(path));
    }
    file.set_len(length).map_err(failed)?;
    file.seek(SeekFrom::End(0)).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    Ok(file)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn exists(path: &Path) -> Error {
    Error::external("58P02", format!("file \"{}\" already exists", path.display()))
        .with_hint("A sink starts a new file: choose another path, or move what is there away.")
}

fn changed(path: &Path) -> Error {
    Error::external(
        "58000",
        format!("file \"{}\" is shorter than what the sink has written", path.display()),
    )
    .with_hint("Put the file back, or drop the sink and create it again.")
}

fn write_error(path: &Path, error: &io::Error) -> Error {
    Error::io(format!(
        "could not write file \"{}\": {}",
        path.display(),
        reason(error)
    ))
}

fn part_error(path: &Path, error: &parquet::errors::ParquetError) -> Error {
    Error::io(format!("could not write file \"{}\": {error}", path.display()))
}

impl CsvForm {
    /// Whether there is a line that names the columns.
    fn has_header(&self) -> bool {
        self.header == Header::Names
    }
}
