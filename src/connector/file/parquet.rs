//! The source of Parquet files, a row group at a time.
//!
//! Columns are found by name and brought to the declared types, exactly or not at all: which of the file's types go
//! to which of ours is decided when the file is opened ([`plan`]); a value that does not fit makes its
//! row undecodable.

use super::window::{Fingerprint, foot};
use super::{changed_error, open_file, read_error};
use crate::catalog::Column;
use crate::connector::decode::keep;
use crate::connector::pace::Pace;
use crate::connector::{
    Budget, DecodeError, Polled, Position, Progress, Source, SourceRequest, SourceState, delivered, schema_of,
};
use crate::delta::{Batch, Delta, batch_of};
use crate::error::{Error, Result};
use crate::types::ColumnBuilder;
use crate::types::Type;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

/// How many rows are decoded at once.
const BATCH_ROWS: usize = 8192;

/// The stored position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    /// The row group, from 0.
    group: usize,
    /// The next row in it.
    row: usize,
    /// The length of the file, which never changes.
    bytes: u64,
    /// The rows of the file.
    rows: i64,
    /// What the file ends with.
    foot: Fingerprint,
}

/// Where a delivered column comes from.
struct Origin {
    column: Column,
    /// Its place in the batches that are read; `None` if the file does not have it.
    place: Option<usize>,
}

struct ParquetSource {
    path: String,
    file: File,
    metadata: ArrowReaderMetadata,
    mask: ProjectionMask,
    origins: Vec<Origin>,
    schema: SchemaRef,
    reader: Option<ParquetRecordBatchReader>,
    /// What was read and not delivered, from the mark on.
    waiting: Option<RecordBatch>,
    mark: Mark,
    pace: Option<Pace>,
    delivered: u64,
}

/// Opens a Parquet file.
pub(super) fn open(path: &str, rate: Option<f64>, request: &SourceRequest<'_>) -> Result<Box<dyn Source>> {
    let file = open_file(path)?;
    let bytes = file.metadata().map_err(|error| read_error(path, &error))?.len();
    let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new().with_skip_arrow_metadata(true))
        .map_err(|error| parquet_error(path, &error))?;
    let fresh = Mark {
        group: 0,
        row: 0,
        bytes,
        rows: metadata.metadata().file_metadata().num_rows(),
        foot: foot(path, &file)?,
    };
    let mark = match request.position {
        None => fresh,
        Some(position) => {
            let stored: Mark = position.read()?;
            if (stored.bytes, stored.rows, stored.foot) != (fresh.bytes, fresh.rows, fresh.foot) {
                return Err(changed_error(path, "was replaced"));
            }
            stored
        }
    };
    let columns = delivered(request)?;
    let (origins, mask) = plan(&columns, &metadata)?;
    Ok(Box::new(ParquetSource {
        path: path.to_owned(),
        file,
        metadata,
        mask,
        origins,
        schema: schema_of(&columns),
        reader: None,
        waiting: None,
        mark,
        pace: rate.map(Pace::new),
        delivered: 0,
    }))
}

/// Finds the columns in the file, and refuses types that do not fit.
fn plan(columns: &[&Column], metadata: &ArrowReaderMetadata) -> Result<(Vec<Origin>, ProjectionMask)> {
    let fields = metadata.schema().fields();
    let found: Vec<Option<usize>> = columns
        .iter()
        .map(|column| {
            let exact = fields.iter().position(|field| *field.name() == column.name);
            exact.or_else(|| {
                fields
                    .iter()
                    .position(|field| field.name().eq_ignore_ascii_case(&column.name))
            })
        })
        .collect();
    if !columns.is_empty() && found.iter().all(Option::is_none) {
        let names: Vec<&str> = fields.iter().take(20).map(|field| field.name().as_str()).collect();
        return Err(Error::semantic("42703", "the file has none of the columns")
            .with_detail(format!("Its columns are: {}.", names.join(", "))));
    }
    for (column, root) in columns.iter().zip(&found) {
        let Some(root) = root else { continue };
        let from = fields[*root].data_type();
        if !fits(from, &column.kind) {
            return Err(Error::semantic(
                "42804",
                format!(
                    "column \"{}\" is of type {} but the file has {from}",
                    column.name, column.kind
                ),
            )
            .with_hint("Declare the column with the type that the file has."));
        }
    }
    let mut read: Vec<usize> = found.iter().copied().flatten().collect();
    read.sort_unstable();
    read.dedup();
    let mask = ProjectionMask::roots(metadata.parquet_schema(), read.iter().copied());
    let origins = columns.iter().zip(&found).map(|(column, root)| Origin {
        column: (*column).clone(),
        place: root.and_then(|root| read.binary_search(&root).ok()),
    });
    Ok((origins.collect(), mask))
}

fn is_whole(from: &DataType) -> bool {
    from.is_integer()
}

/// Whether values of a file's type can become values of ours without loss, row by row.
fn fits(from: &DataType, to: &Type) -> bool {
    use DataType::{
        Binary, Boolean, Date32, Date64, Decimal128, Decimal256, Dictionary, FixedSizeBinary, Float16, Float32,
        Float64, LargeBinary, LargeUtf8, List, Null, Time32, Time64, Timestamp, Utf8,
    };
    match (from, to) {
        (Null, _) => true,
        (Dictionary(_, value), _) => fits(value, to),
        // Text is read as any other text is.
        (Utf8 | LargeUtf8, Type::Record(_)) => false,
        (Utf8 | LargeUtf8, _) => true,
        (Boolean, Type::Bool) => true,
        (Float16 | Float32 | Float64, Type::Float4 | Type::Float8) => true,
        (Decimal128(..) | Decimal256(..), Type::Numeric(_)) => true,
        (Date32 | Date64, Type::Date) => true,
        (Time32(_) | Time64(_), Type::Time) => true,
        (Timestamp(_, _), Type::Timestamp(_) | Type::Timestamptz(_)) => true,
        (Binary | LargeBinary | FixedSizeBinary(_), Type::Bytea) => true,
        (FixedSizeBinary(16), Type::Uuid) => true,
        (List(item), Type::Array(element)) => fits(item.data_type(), element) && element.arrow() == *item.data_type(),
        (_, Type::Int2 | Type::Int4 | Type::Int8 | Type::Numeric(_)) => is_whole(from),
        _ => false,
    }
}

impl ParquetSource {
    /// Reads on until rows wait; `false` at the end of the file.
    fn fill(&mut self) -> Result<bool> {
        loop {
            if self.waiting.as_ref().is_some_and(|batch| batch.num_rows() > 0) {
                return Ok(true);
            }
            if self.reader.is_none() {
                let groups = self.metadata.metadata().num_row_groups();
                if self.mark.group >= groups {
                    return Ok(false);
                }
                let file = self.file.try_clone().map_err(|error| read_error(&self.path, &error))?;
                let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
                    .with_row_groups(vec![self.mark.group])
                    .with_projection(self.mask.clone())
                    .with_batch_size(BATCH_ROWS)
                    .with_offset(self.mark.row)
                    .build()
                    .map_err(|error| parquet_error(&self.path, &error))?;
                self.reader = Some(reader);
            }
            match self.reader.as_mut().and_then(Iterator::next) {
                Some(batch) => {
                    let batch = batch.map_err(|error| {
                        Error::external("58000", format!("could not read file \"{}\": {error}", self.path))
                    })?;
                    self.waiting = Some(batch);
                }
                None => {
                    self.reader = None;
                    self.mark = Mark {
                        group: self.mark.group + 1,
                        row: 0,
                        ..self.mark
                    };
                }
            }
        }
    }

    /// Brings rows to the declared columns. `first` is the place of the first of them in the row group.
    fn convert(&self, rows: &RecordBatch, first: usize, errors: &mut Vec<DecodeError>) -> Result<Batch> {
        let count = rows.num_rows();
        let mut problems: Vec<Option<String>> = vec![None; count];
        let mut arrays = Vec::with_capacity(self.origins.len());
        for Origin { column, place } in &self.origins {
            let array = match place {
                None => new_null_array(&column.kind.arrow(), count),
                Some(place) => bring(rows.column(*place), column, &mut problems)?,
            };
            if column.not_null {
                for row in (0..count).filter(|row| array.is_null(*row)) {
                    problems[row].get_or_insert_with(|| {
                        format!("null value in column \"{}\" violates not-null constraint", column.name)
                    });
                }
            }
            arrays.push(array);
        }
        if problems.iter().all(Option::is_none) {
            return Ok(Batch::inserts(batch_of(self.schema.clone(), arrays, count)?));
        }
        let kept: BooleanArray = problems.iter().map(|problem| Some(problem.is_none())).collect();
        for (row, problem) in problems.into_iter().enumerate() {
            let Some(message) = problem else { continue };
            let position = format!("row group {}, row {}", self.mark.group, first + row + 1);
            errors.push(DecodeError {
                position,
                record: String::new(),
                message,
            });
        }
        keep(&self.schema, arrays, kept)
    }
}

/// Values of a file's type as values of the column's. What does not fit is NULL, with the problem noted for its row.
fn bring(from: &ArrayRef, column: &Column, problems: &mut [Option<String>]) -> Result<ArrayRef> {
    let target = column.kind.arrow();
    let from = match from.data_type() {
        DataType::Dictionary(_, value) => cast(from, value)?,
        DataType::Float16 => cast(from, &DataType::Float32)?,
        _ => from.clone(),
    };
    if matches!(from.data_type(), DataType::Utf8 | DataType::LargeUtf8) {
        if column.kind == Type::Text && *from.data_type() == target {
            return Ok(from);
        }
        return read_text(&cast(&from, &DataType::Utf8)?, column, problems);
    }
    if let (DataType::FixedSizeBinary(16), Type::Uuid) = (from.data_type(), &column.kind) {
        return Ok(uuid_text(&from));
    }
    let from = match from.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => round_nanos(&cast(&from, &DataType::Int64)?),
        _ => from,
    };
    let array = cast(&from, &target)?;
    let is_narrowed = matches!(
        column.kind,
        Type::Float4 | Type::Timestamp(Some(_)) | Type::Timestamptz(Some(_))
    );
    for (row, problem) in problems.iter_mut().enumerate() {
        let is_lost = from.is_valid(row) && (array.is_null(row) || (is_narrowed && is_overflow(&from, &array, row)));
        if is_lost {
            problem.get_or_insert_with(|| {
                format!(
                    "column \"{}\": value out of range for type {}",
                    column.name, column.kind
                )
            });
        }
    }
    Ok(array)
}

/// A cast in which what does not fit becomes NULL.
fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    Ok(cast_with_options(
        array,
        to,
        &CastOptions {
            safe: true,
            ..CastOptions::default()
        },
    )?)
}

/// Whether a finite double became an infinite real.
fn is_overflow(from: &ArrayRef, to: &ArrayRef, row: usize) -> bool {
    let (Some(from), Some(to)) = (
        from.as_primitive_opt::<arrow::datatypes::Float64Type>(),
        to.as_primitive_opt::<arrow::datatypes::Float32Type>(),
    ) else {
        return false;
    };
    from.value(row).is_finite() && !to.value(row).is_finite()
}

/// Nanoseconds as microseconds, rounded to the nearest as PostgreSQL rounds text.
fn round_nanos(nanos: &ArrayRef) -> ArrayRef {
    let nanos = nanos.as_primitive::<arrow::datatypes::Int64Type>();
    let micros: Int64Array = nanos.unary(|nanos| {
        let (micros, rest) = (nanos.div_euclid(1000), nanos.rem_euclid(1000));
        micros + i64::from(rest > 500 || (rest == 500 && micros.rem_euclid(2) == 1))
    });
    Arc::new(micros)
}

fn uuid_text(bytes: &ArrayRef) -> ArrayRef {
    let bytes = bytes.as_fixed_size_binary();
    let text = bytes.iter().map(|value| {
        value.map(|value| {
            let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            format!(
                "{}-{}-{}-{}-{}",
                &digits[..8],
                &digits[8..12],
                &digits[12..16],
                &digits[16..20],
                &digits[20..]
            )
        })
    });
    Arc::new(text.collect::<arrow::array::StringArray>())
}

fn read_text(text: &ArrayRef, column: &Column, problems: &mut [Option<String>]) -> Result<ArrayRef> {
    let mut builder = ColumnBuilder::new(&column.kind);
    for (row, value) in text.as_string::<i32>().iter().enumerate() {
        if let Err(error) = builder.push_text(value) {
            builder.push_null();
            problems[row].get_or_insert_with(|| format!("column \"{}\": {}", column.name, error.message()));
        }
    }
    Ok(builder.finish())
}

fn parquet_error(path: &str, error: &ParquetError) -> Error {
    Error::external("58000", format!("could not read file \"{path}\" as Parquet: {error}"))
}

impl Source for ParquetSource {
    fn poll(&mut self, budget: Budget) -> Result<Polled> {
        let mut polled = Polled {
            delta: Delta::new(),
            errors: Vec::new(),
            state: SourceState::More,
        };
        let mut rows_left = budget.rows_max.max(1);
        if let Some(pace) = &mut self.pace {
            let allowed = pace.allowed(Instant::now());
            if allowed == 0 {
                polled.state = SourceState::Idle {
                    retry_at: Some(pace.next()),
                };
                return Ok(polled);
            }
            rows_left = rows_left.min(allowed);
        }
        let mut bytes_left = budget.bytes_max;
        let mut taken = 0;
        while rows_left > 0 && (taken == 0 || bytes_left > 0) {
            if !self.fill()? {
                polled.state = SourceState::Finished;
                break;
            }
            let Some(batch) = self.waiting.take() else {
                break;
            };
            let row_bytes = (batch.get_array_memory_size() / batch.num_rows()).max(1);
            let affordable = (bytes_left / row_bytes).max(1);
            let rows = batch.num_rows().min(rows_left).min(affordable);
            polled
                .delta
                .push(self.convert(&batch.slice(0, rows), self.mark.row, &mut polled.errors)?);
            self.waiting = (rows < batch.num_rows()).then(|| batch.slice(rows, batch.num_rows() - rows));
            self.mark.row += rows;
            rows_left -= rows;
            taken += rows;
            bytes_left = bytes_left.saturating_sub(rows * row_bytes);
        }
        self.delivered += polled.delta.len() as u64;
        if let Some(pace) = &mut self.pace {
            pace.took(taken);
            if polled.state == SourceState::More && taken < budget.rows_max {
                polled.state = SourceState::Idle {
                    retry_at: Some(pace.next()),
                };
            }
        }
        Ok(polled)
    }

    fn position(&self) -> Position {
        Position::of(&self.mark)
    }

    fn progress(&self) -> Progress {
        let groups = self.metadata.metadata().row_groups();
        let before: i64 = groups.iter().take(self.mark.group).map(|group| group.num_rows()).sum();
        let total = self.mark.rows.max(0) as u64;
        let read = before.max(0) as u64 + self.mark.row as u64;
        Progress {
            position: format!("row {read}"),
            total: Some(total),
            lag: Some(total.saturating_sub(read)),
            unit: "rows",
            rows: self.delivered,
        }
    }
}
