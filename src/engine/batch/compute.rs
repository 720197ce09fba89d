//! What the twins compute, on whole inputs.

use super::Range;
use crate::delta::{Batch, Delta, batch_of};
use crate::error::{Error, Result};
use crate::sql::bind::node::{Quantifier, Refused, SetKind, Unmatched};
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, TimestampMicrosecondArray, UInt32Array, make_comparator,
};
use arrow::compute::{SortOptions, cast, filter_record_batch, take};
use arrow::datatypes::{DataType, Int64Type, SchemaRef, TimestampMicrosecondType};
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::logical_expr::Operator;
use std::cmp::Ordering;
use std::collections::HashMap;

/// Ascending, NULLs last: the order of rows wherever one breaks a tie.
const ROW_ORDER: SortOptions = SortOptions {
    descending: false,
    nulls_first: false,
};

/// Rows as bytes that are equal when the rows are.
fn encoded(columns: &[ArrayRef], rows: usize) -> Result<Vec<OwnedRow>> {
    // No columns: all rows are equal.
    let nothing: ArrayRef = std::sync::Arc::new(BooleanArray::from(vec![true; rows]));
    let columns = if columns.is_empty() {
        std::slice::from_ref(&nothing)
    } else {
        columns
    };
    let fields = columns
        .iter()
        .map(|column| SortField::new_with_options(column.data_type().clone(), ROW_ORDER))
        .collect();
    let all = RowConverter::new(fields)?.convert_columns(columns)?;
    Ok(all.iter().map(|row| row.owned()).collect())
}

/// The rows less those that were refused, of windows that are shown.
pub(super) fn without_late(input: &RecordBatch, refused: &Refused, schema: &SchemaRef) -> Result<RecordBatch> {
    closed(&less(input, refused, schema)?, refused.closed_until)
}

/// The rows less those that were refused, before they get windows.
pub(super) fn without_refused(input: &RecordBatch, refused: &Refused) -> Result<RecordBatch> {
    less(input, refused, &input.schema())
}

/// The rows of windows that end by a time, all of them where it is not given.
pub(super) fn closed(rows: &RecordBatch, until: Option<i64>) -> Result<RecordBatch> {
    let Some(until) = until else {
        return Ok(rows.clone());
    };
    let ends = cast(rows.column(rows.num_columns() - 1), &DataType::Int64)?;
    let ends = ends.as_primitive::<Int64Type>();
    let shown: BooleanArray = ends
        .iter()
        .map(|end| Some(end.is_some_and(|end| end <= until)))
        .collect();
    let kept = filter_record_batch(rows, &shown)?;
    batch_of(rows.schema(), kept.columns().to_vec(), kept.num_rows())
}

/// The rows less those that were refused, which may have windows behind the same columns.
fn less(input: &RecordBatch, refused: &Refused, schema: &SchemaRef) -> Result<RecordBatch> {
    let width = schema.fields().len();
    let named = |rows: &RecordBatch| batch_of(schema.clone(), rows.columns()[..width].to_vec(), rows.num_rows());
    let mut all = Delta::from(Batch::inserts(named(input)?));
    for batch in &refused.rows.batches {
        all.push(
            Batch {
                rows: named(&batch.rows)?,
                weights: batch.weights.clone(),
            }
            .negate(),
        );
    }
    let left = all.consolidate(schema)?.concat(schema)?;
    let indices = (0..left.len()).flat_map(|row| std::iter::repeat_n(row as u32, left.weights.at(row).max(0) as usize));
    taken(&left.rows, &indices.collect::<Vec<_>>(), schema, Vec::new())
}

fn taken(batch: &RecordBatch, indices: &[u32], schema: &SchemaRef, extra: Vec<ArrayRef>) -> Result<RecordBatch> {
    let indices = UInt32Array::from(indices.to_vec());
    let mut columns = batch
        .columns()
        .iter()
        .map(|column| take(column, &indices, None))
        .collect::<Result<Vec<_>, _>>()?;
    columns.extend(extra);
    let columns = columns
        .into_iter()
        .zip(schema.fields())
        .map(|(column, field)| {
            if column.data_type() == field.data_type() {
                Ok(column)
            } else {
                cast(&column, field.data_type())
            }
        })
        .collect::<Result<Vec<_>, _>>()?;
    batch_of(schema.clone(), columns, indices.len())
}

/// INTERSECT and EXCEPT: how many copies of each row there are on either side decides.
pub(super) fn set(
    left: &RecordBatch,
    right: &RecordBatch,
    kind: SetKind,
    quantifier: Quantifier,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let mut counts: HashMap<OwnedRow, usize> = HashMap::new();
    for row in encoded(right.columns(), right.num_rows())? {
        *counts.entry(row).or_default() += 1;
    }
    let mut given: HashMap<OwnedRow, usize> = HashMap::new();
    let mut kept = Vec::new();
    for (index, row) in encoded(left.columns(), left.num_rows())?.into_iter().enumerate() {
        let others = counts.get(&row).copied().unwrap_or(0);
        let copy = given.entry(row).or_default();
        *copy += 1;
        let keep = match (kind, quantifier) {
            (SetKind::Intersect, Quantifier::All) => *copy <= others,
            (SetKind::Except, Quantifier::All) => *copy > others,
            (SetKind::Intersect, Quantifier::Distinct) => *copy == 1 && others > 0,
            (SetKind::Except, Quantifier::Distinct) => *copy == 1 && others == 0,
        };
        if keep {
            kept.push(index as u32);
        }
    }
    taken(left, &kept, schema, Vec::new())
}

fn micros(time: &ArrayRef) -> Result<&TimestampMicrosecondArray> {
    time.as_primitive_opt::<TimestampMicrosecondType>()
        .ok_or_else(|| Error::internal("a window's time is a timestamp"))
}

/// Rows with the start and end of their session: rows of one key closer than the gap are in one.
pub(super) fn session(
    batch: &RecordBatch,
    keys: &[ArrayRef],
    time: &ArrayRef,
    gap_micros: i64,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let times = micros(time)?;
    let keys = encoded(keys, batch.num_rows())?;
    let mut order: Vec<usize> = (0..batch.num_rows()).filter(|row| times.is_valid(*row)).collect();
    order.sort_by(|a, b| keys[*a].cmp(&keys[*b]).then(times.value(*a).cmp(&times.value(*b))));
    let mut bounds = vec![(0, 0); batch.num_rows()];
    let mut from = 0;
    while from < order.len() {
        let mut to = from + 1;
        while to < order.len()
            && keys[order[to]] == keys[order[from]]
            && times.value(order[to]).saturating_sub(times.value(order[to - 1])) < gap_micros
        {
            to += 1;
        }
        let start = times.value(order[from]);
        let end = times.value(order[to - 1]).saturating_add(gap_micros);
        for row in &order[from..to] {
            bounds[*row] = (start, end);
        }
        from = to;
    }
    let mut kept: Vec<u32> = order.iter().map(|row| *row as u32).collect();
    kept.sort_unstable();
    let column = |pick: fn(&(i64, i64)) -> i64| -> ArrayRef {
        let values: Vec<i64> = kept.iter().map(|row| pick(&bounds[*row as usize])).collect();
        std::sync::Arc::new(TimestampMicrosecondArray::from(values).with_data_type(time.data_type().clone()))
    };
    let extra = vec![column(|bounds| bounds.0), column(|bounds| bounds.1)];
    taken(batch, &kept, schema, extra)
}

/// The rows that are in the window now, now being the highest time that is not beyond the latest.
pub(super) fn range(
    batch: &RecordBatch,
    time: &ArrayRef,
    range: Range,
    latest: Option<i64>,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let times = micros(time)?;
    let finite = |value: i64| value != i64::MIN && value != i64::MAX;
    let held = |value: i64| latest.is_none_or(|latest| value <= latest);
    let now = times
        .iter()
        .flatten()
        .filter(|value| finite(*value) && held(*value))
        .max();
    let keep: BooleanArray = times
        .iter()
        .map(|value| {
            let (Some(value), Some(now)) = (value.filter(|value| finite(*value)), now) else {
                return Some(false);
            };
            Some(match range {
                Range::Last {
                    length_micros,
                    slide_micros,
                } => {
                    let now = slide_micros.map_or(now, |slide| now - now.rem_euclid(slide));
                    value > now.saturating_sub(length_micros) && value <= now
                }
                Range::Now => value == now,
                Range::All => value <= now,
            })
        })
        .collect();
    let kept = filter_record_batch(batch, &keep)?;
    batch_of(schema.clone(), kept.columns().to_vec(), kept.num_rows())
}

/// The last so many rows of each partition, by time and then in row order.
pub(super) fn rows(
    batch: &RecordBatch,
    time: Option<&ArrayRef>,
    keys: &[ArrayRef],
    count: usize,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let Some(time) = time else {
        return batch_of(schema.clone(), batch.columns().to_vec(), batch.num_rows());
    };
    let times = micros(time)?;
    let all = encoded(batch.columns(), batch.num_rows())?;
    let keys = encoded(keys, batch.num_rows())?;
    let finite = |value: i64| value != i64::MIN && value != i64::MAX;
    let placed = |row: &usize| times.is_valid(*row) && finite(times.value(*row));
    let mut order: Vec<usize> = (0..batch.num_rows()).filter(placed).collect();
    order.sort_by(|a, b| {
        keys[*a]
            .cmp(&keys[*b])
            .then(times.value(*b).cmp(&times.value(*a)))
            .then(all[*b].cmp(&all[*a]))
    });
    let mut kept = Vec::new();
    let mut seen = 0;
    for (at, row) in order.iter().enumerate() {
        seen = if at > 0 && keys[order[at - 1]] == keys[*row] {
            seen + 1
        } else {
            1
        };
        if seen <= count {
            kept.push(*row as u32);
        }
    }
    kept.sort_unstable();
    taken(batch, &kept, schema, Vec::new())
}

/// Each row of the left side with the nearest of the right side; the last of each side's columns is its order.
pub(super) fn asof(
    (left, left_columns): (&RecordBatch, &[ArrayRef]),
    (right, right_columns): (&RecordBatch, &[ArrayRef]),
    operator: Operator,
    unmatched: Unmatched,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let (Some((left_order, left_keys)), Some((right_order, right_keys))) =
        (left_columns.split_last(), right_columns.split_last())
    else {
        return Err(Error::internal("an ASOF join has an order"));
    };
    let right_rows = encoded(right.columns(), right.num_rows())?;
    let mut partners: HashMap<OwnedRow, Vec<usize>> = HashMap::new();
    for (row, key) in encoded(right_keys, right.num_rows())?.into_iter().enumerate() {
        let known = right_order.is_valid(row) && right_keys.iter().all(|key| key.is_valid(row));
        if known {
            partners.entry(key).or_default().push(row);
        }
    }
    let across = make_comparator(left_order, right_order, ROW_ORDER)?;
    let within = make_comparator(right_order, right_order, ROW_ORDER)?;
    let backward = matches!(operator, Operator::GtEq | Operator::Gt);
    let matches = |ordering: Ordering| match operator {
        Operator::GtEq => ordering != Ordering::Less,
        Operator::Gt => ordering == Ordering::Greater,
        Operator::LtEq => ordering != Ordering::Greater,
        _ => ordering == Ordering::Less,
    };
    let mut lefts: Vec<u32> = Vec::new();
    let mut rights: Vec<Option<u32>> = Vec::new();
    for (row, key) in encoded(left_keys, left.num_rows())?.into_iter().enumerate() {
        let known = left_order.is_valid(row) && left_keys.iter().all(|key| key.is_valid(row));
        let candidates = partners.get(&key).filter(|_| known);
        // The nearest; of several equally near, the last in row order.
        let nearest = candidates
            .into_iter()
            .flatten()
            .filter(|other| matches(across(row, **other)))
            .max_by(|a, b| {
                let near = within(**a, **b);
                let near = if backward { near } else { near.reverse() };
                near.then_with(|| right_rows[**a].cmp(&right_rows[**b]))
            });
        if nearest.is_some() || unmatched == Unmatched::Padded {
            lefts.push(row as u32);
            rights.push(nearest.map(|row| *row as u32));
        }
    }
    let indices = UInt32Array::from(rights);
    let extra = right
        .columns()
        .iter()
        .map(|column| take(column, &indices, None))
        .collect::<Result<Vec<_>, _>>()?;
    taken(left, &lefts, schema, extra)
}
