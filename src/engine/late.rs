//! The list of rows that came too late for a view's windows.
//!
//! Each entry is a row that one or more of a window function's windows refused: the number of the window function, the
//! row (encoded), +1 or -1 as it was to be added or taken away, the watermark that it met, and the windows. Up to
//! [`LISTED_ROWS_MAX`] are kept; beyond that they are counted. VERIFY needs the list to be whole.

use super::published::Stored;
use super::watermark::LateCount;
use crate::catalog::{LateList, MaterializedView};
use crate::delta::{Batch, Delta, KeyCodec, Weights, batch_of};
use crate::error::{Error, Result};
use crate::operator::LateRows;
use crate::state::{Commit, Snapshot};
use crate::time::{Timestamp, Watermark};
use crate::types::Nullability;
use arrow::array::{ArrayRef, AsArray, BinaryArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use std::sync::Arc;

/// The rows that are listed at most.
pub const LISTED_ROWS_MAX: u64 = 100_000;

/// The columns of the stored list.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("label", DataType::Int64, true),
        Field::new("row", DataType::Binary, true),
        Field::new("weight", DataType::Int64, true),
        Field::new("watermark", DataType::Int64, true),
        Field::new("windows", DataType::Binary, true),
    ]))
}

/// A row that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    label: i64,
    row: Vec<u8>,
    weight: i64,
    watermark: i64,
    /// Pairs of start and end, eight bytes each.
    windows: Vec<u8>,
}

/// Lists what a step has refused.
pub fn write(stored: &Stored, refused: &[LateRows], count: &mut LateCount, commit: &mut Commit) -> Result<()> {
    let mut entries = Vec::new();
    for late in refused {
        entries.extend(entries_of(late)?);
    }
    count.refused += entries.iter().map(|entry| entry.weight.unsigned_abs()).sum::<u64>();
    let Some(rows) = &stored.late else {
        return Ok(());
    };
    let left = usize::try_from(LISTED_ROWS_MAX.saturating_sub(count.listed)).unwrap_or(usize::MAX);
    entries.truncate(left);
    count.listed += entries.len() as u64;
    let bytes =
        |of: fn(&Entry) -> &[u8]| -> ArrayRef { Arc::new(BinaryArray::from_iter_values(entries.iter().map(of))) };
    let numbers =
        |of: fn(&Entry) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(entries.iter().map(of))) };
    let columns = vec![
        numbers(|entry| entry.label),
        bytes(|entry| &entry.row),
        numbers(|entry| entry.weight.signum()),
        numbers(|entry| entry.watermark),
        bytes(|entry| &entry.windows),
    ];
    let copies: Vec<i64> = entries.iter().map(|entry| entry.weight.abs()).collect();
    let batch = Batch {
        rows: batch_of(schema(), columns, entries.len())?,
        weights: Weights::from(copies),
    };
    rows.write_bag(&Delta::from(batch), commit)
}

/// The refused rows, each once with all of its windows, which stand together and in order.
fn entries_of(late: &LateRows) -> Result<Vec<Entry>> {
    let width = late.rows.num_columns() - 2;
    let fields = late.rows.schema();
    let own = Arc::new(Schema::new(fields.fields()[..width].to_vec()));
    let encoded = KeyCodec::rows(&own)?.encode(&late.rows.columns()[..width], late.rows.num_rows())?;
    let bounds = [width, width + 1].map(|column| arrow::compute::cast(late.rows.column(column), &DataType::Int64));
    let [starts, ends] = bounds;
    let (starts, ends) = (starts?, ends?);
    let (starts, ends) = (starts.as_primitive::<Int64Type>(), ends.as_primitive::<Int64Type>());
    let mut entries: Vec<Entry> = Vec::new();
    for row in 0..late.rows.num_rows() {
        let window = [starts.value(row).to_be_bytes(), ends.value(row).to_be_bytes()].concat();
        let bytes = encoded.row(row).data();
        let Watermark(Timestamp(watermark)) = late.watermarks[row];
        let after = |known: &Entry| {
            let end = &known.windows[known.windows.len() - 8..];
            i64::from_be_bytes(end.try_into().unwrap_or_default()) < ends.value(row)
        };
        match entries.last_mut() {
            Some(known)
                if known.row == bytes
                    && known.watermark == watermark
                    && known.weight == late.weights[row]
                    && after(known) =>
            {
                known.windows.extend(window);
            }
            _ => entries.push(Entry {
                label: late.label,
                row: bytes.to_vec(),
                weight: late.weights[row],
                watermark,
                windows: window,
            }),
        }
    }
    Ok(entries)
}

/// The columns of the rows that a window function is over.
fn row_schema(list: &LateList) -> SchemaRef {
    let fields = list.columns.iter();
    let fields: Vec<Field> = fields
        .map(|(name, kind)| kind.field(name, Nullability::Nullable))
        .collect();
    Arc::new(Schema::new(fields))
}

/// What is listed for one of a view's window functions.
pub struct Listed {
    /// The rows.
    pub rows: RecordBatch,
    /// Their weights.
    pub weights: Vec<i64>,
    /// The watermarks that they met, in microseconds.
    pub watermarks: Vec<i64>,
    /// The windows that refused each: start and end in microseconds.
    pub windows: Vec<Vec<(i64, i64)>>,
}

/// Reads what is listed for one of a view's window functions.
pub fn read(stored: &Stored, list: &LateList, snapshot: &Snapshot) -> Result<Listed> {
    let mut encoded: Vec<Vec<u8>> = Vec::new();
    let (mut weights, mut watermarks, mut windows) = (Vec::new(), Vec::new(), Vec::new());
    if let Some(rows) = &stored.late {
        let mut scan = rows.scan(snapshot);
        while let Some(batch) = scan.next_batch()? {
            let number = |column: usize| batch.rows.column(column).as_primitive::<Int64Type>();
            let bytes = |column: usize| batch.rows.column(column).as_binary::<i32>();
            for row in (0..batch.len()).filter(|row| number(0).value(*row) == list.label) {
                encoded.push(bytes(1).value(row).to_vec());
                weights.push(number(2).value(row) * batch.weights.at(row));
                watermarks.push(number(3).value(row));
                windows.push(pairs(bytes(4).value(row)));
            }
        }
    }
    let schema = row_schema(list);
    let columns = KeyCodec::rows(&schema)?.decode(encoded.iter().map(Vec::as_slice))?;
    Ok(Listed {
        rows: batch_of(schema, columns, encoded.len())?,
        weights,
        watermarks,
        windows,
    })
}

fn pairs(bytes: &[u8]) -> Vec<(i64, i64)> {
    let number = |part: &[u8]| i64::from_be_bytes(part.try_into().unwrap_or_default());
    let pairs = bytes.chunks_exact(16);
    pairs.map(|pair| (number(&pair[..8]), number(&pair[8..]))).collect()
}

/// What one of a view's window functions has refused, as pairs of rows and windows whose times are of that type.
pub fn refused_pairs(stored: &Stored, list: &LateList, snapshot: &Snapshot, schema: &SchemaRef) -> Result<Delta> {
    let listed = read(stored, list, snapshot)?;
    let (mut places, mut starts, mut ends, mut weights) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (row, windows) in listed.windows.iter().enumerate() {
        for (start, end) in windows {
            places.push(row as u32);
            starts.push(*start);
            ends.push(*end);
            weights.push(listed.weights[row]);
        }
    }
    let rows = Batch::inserts(listed.rows).take(&places.into())?.rows;
    let mut columns = rows.columns().to_vec();
    for times in [starts, ends] {
        let kind = schema.field(columns.len()).data_type();
        let times: ArrayRef = Arc::new(Int64Array::from(times));
        columns.push(arrow::compute::cast(&times, kind)?);
    }
    Ok(Delta::from(Batch {
        rows: batch_of(schema.clone(), columns, weights.len())?,
        weights: Weights::from(weights),
    }))
}

/// Refuses what can only be done with a list that is whole.
pub fn check_whole(count: LateCount, name: &str, view: &MaterializedView) -> Result<()> {
    if count.refused == 0 || view.late.is_empty() || count.listed < LISTED_ROWS_MAX {
        return Ok(());
    }
    Err(Error::semantic("55000", format!("view \"{name}\" cannot be verified"))
        .with_detail(format!(
            "Its list late_rows('{name}') holds {} of the rows that came too late; {} did.",
            count.listed, count.refused
        ))
        .with_hint("What is not listed cannot be left out of the comparison."))
}
