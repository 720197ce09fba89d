//! One window function over the rows of a partition.

use super::frame::{Edges, Peers, excluded, range};
use super::{NullTreatment, OverCall, OverFunction};
use crate::error::{Error, Result};
use crate::operator::aggregate::moving::Moving;
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, new_null_array};
use arrow::compute::{concat, interleave};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use std::ops::Range;
use std::sync::Arc;

/// A call that runs.
pub(super) struct Computed {
    call: OverCall,
    moving: Option<Moving>,
}

/// The rows of a partition, in their order.
pub(super) struct Partition<'a> {
    pub(super) columns: &'a [ArrayRef],
    pub(super) peers: &'a Peers,
    pub(super) edges: &'a Edges<'a>,
}

/// A row for which a call fails.
pub(super) type Failure = (usize, Error);

impl Computed {
    pub(super) fn new(call: &OverCall, input: &SchemaRef) -> Result<Self> {
        call.frame.check()?;
        let moving = match call.function {
            OverFunction::Aggregate(function) => {
                Some(Moving::new(function, &call.arguments, call.filter, &call.field, input)?)
            }
            _ => None,
        };
        Ok(Self {
            call: call.clone(),
            moving,
        })
    }

    /// The call.
    pub(super) fn spec(&self) -> &OverCall {
        &self.call
    }

    /// The results for all rows, and the rows for which it fails.
    pub(super) fn evaluate(&mut self, partition: &Partition<'_>) -> Result<(ArrayRef, Vec<Failure>)> {
        let rows = partition.peers.rows();
        let mut failures = Vec::new();
        let values = match self.call.function {
            OverFunction::Aggregate(_) => self.aggregate(partition, &mut failures)?,
            OverFunction::Ntile => self.buckets(partition, &mut failures)?,
            OverFunction::Lag | OverFunction::Lead => self.neighbours(partition)?,
            OverFunction::FirstValue | OverFunction::LastValue | OverFunction::NthValue => {
                self.in_frame(partition, &mut failures)?
            }
            _ => ranks(self.call.function, partition.peers),
        };
        let output = self.call.field.data_type();
        let values = if values.data_type() == output {
            values
        } else {
            arrow::compute::cast(&values, output)?
        };
        debug_assert_eq!(values.len(), rows, "one result per row");
        Ok((values, failures))
    }

    fn argument<'a>(&self, partition: &'a Partition<'_>, index: usize) -> Option<&'a ArrayRef> {
        self.call.arguments.get(index).map(|column| &partition.columns[*column])
    }

    /// An argument that is a bigint.
    fn number(&self, partition: &Partition<'_>, index: usize) -> Result<Option<Int64Array>> {
        let column = self
            .argument(partition, index)
            .map(|column| arrow::compute::cast(column, &DataType::Int64));
        Ok(column
            .transpose()?
            .map(|column| column.as_primitive::<Int64Type>().clone()))
    }

    /// `ntile`: the number of buckets is that of the first row.
    fn buckets(&self, partition: &Partition<'_>, failures: &mut Vec<Failure>) -> Result<ArrayRef> {
        let rows = partition.peers.rows();
        let count = self.number(partition, 0)?.filter(|count| rows > 0 && count.is_valid(0));
        let Some(count) = count.map(|count| count.value(0)) else {
            return Ok(new_null_array(&DataType::Int64, rows));
        };
        let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0) else {
            let error = Error::semantic("22014", "argument of ntile must be greater than zero");
            failures.extend((0..rows).map(|row| (row, error.clone())));
            return Ok(new_null_array(&DataType::Int64, rows));
        };
        // The first `larger` buckets have one row more.
        let (size, larger) = (rows / count, rows % count);
        let bucket = |row: usize| {
            let edge = larger * (size + 1);
            if row < edge {
                row / (size + 1)
            } else {
                larger + (row - edge) / size.max(1)
            }
        };
        Ok(Arc::new(Int64Array::from_iter_values(
            (0..rows).map(|row| bucket(row) as i64 + 1),
        )))
    }

    /// `lag` and `lead`.
    fn neighbours(&self, partition: &Partition<'_>) -> Result<ArrayRef> {
        let rows = partition.peers.rows();
        let values = self
            .argument(partition, 0)
            .ok_or_else(|| Error::internal("lag without a value"))?;
        let offsets = self.number(partition, 1)?;
        let default = match self.argument(partition, 2) {
            Some(column) => arrow::compute::cast(column, values.data_type())?,
            None => new_null_array(values.data_type(), rows),
        };
        let nothing = new_null_array(values.data_type(), 1);
        let back = self.call.function == OverFunction::Lag;
        let place = |row: usize| {
            let offset = match &offsets {
                None => 1,
                Some(offsets) if offsets.is_null(row) => return (2, 0),
                Some(offsets) => offsets.value(row),
            };
            let offset = if back { offset.saturating_neg() } else { offset };
            let found = match self.call.nulls {
                NullTreatment::Respect => usize::try_from((row as i64).saturating_add(offset)).ok(),
                NullTreatment::Ignore => nth_valid_from(values, row, offset),
            };
            found.filter(|found| *found < rows).map_or((1, row), |found| (0, found))
        };
        let places: Vec<(usize, usize)> = (0..rows).map(place).collect();
        Ok(interleave(
            &[values.as_ref(), default.as_ref(), nothing.as_ref()],
            &places,
        )?)
    }

    /// `first_value`, `last_value`, `nth_value`.
    fn in_frame(&self, partition: &Partition<'_>, failures: &mut Vec<Failure>) -> Result<ArrayRef> {
        let rows = partition.peers.rows();
        let values = self
            .argument(partition, 0)
            .ok_or_else(|| Error::internal("first_value without a value"))?;
        let positions = self.number(partition, 1)?;
        let nothing = new_null_array(values.data_type(), 1);
        let counts = |row: &usize| self.call.nulls == NullTreatment::Respect || values.is_valid(*row);
        let mut places = Vec::with_capacity(rows);
        for row in 0..rows {
            let [first, second, third] = self.parts(partition, row)?;
            let mut seen = first.chain(second).chain(third).filter(counts);
            let found = match self.call.function {
                OverFunction::FirstValue => seen.next(),
                OverFunction::LastValue => seen.next_back(),
                _ => match positions.as_ref().filter(|positions| positions.is_valid(row)) {
                    None => None,
                    Some(positions) => match usize::try_from(positions.value(row)) {
                        Ok(position) if position > 0 => seen.nth(position - 1),
                        _ => {
                            let text = "argument of nth_value must be greater than zero";
                            failures.push((row, Error::semantic("22016", text)));
                            None
                        }
                    },
                },
            };
            places.push(found.map_or((1, 0), |found| (0, found)));
        }
        Ok(interleave(&[values.as_ref(), nothing.as_ref()], &places)?)
    }

    /// The rows of a row's frame, in order.
    fn parts(&self, partition: &Partition<'_>, row: usize) -> Result<[Range<usize>; 3]> {
        let whole = range(&self.call.frame, partition.peers, partition.edges, row)?;
        let [first, second] = excluded(&self.call.frame, partition.peers, &whole, row);
        if first.is_empty() && second.is_empty() {
            return Ok([whole, 0..0, 0..0]);
        }
        if second.is_empty() {
            return Ok([whole.start..first.start, first.end..whole.end, 0..0]);
        }
        if first.is_empty() {
            return Ok([whole.start..second.start, second.end..whole.end, 0..0]);
        }
        Ok([whole.start..first.start, first.end..second.start, second.end..whole.end])
    }

    /// Aggregates: the frame moves from row to row.
    fn aggregate(&mut self, partition: &Partition<'_>, failures: &mut Vec<Failure>) -> Result<ArrayRef> {
        let rows = partition.peers.rows();
        let frame = self.call.frame;
        let output = self.call.field.data_type().clone();
        let Some(moving) = &mut self.moving else {
            return Err(Error::internal("an aggregate without its state"));
        };
        moving.begin(partition.columns, rows)?;
        let mut at = 0..0;
        let mut results: Vec<ArrayRef> = Vec::new();
        let mut last: Option<Framed> = None;
        let mut places: Vec<(usize, usize)> = Vec::with_capacity(rows);
        for row in 0..rows {
            let whole = range(&frame, partition.peers, partition.edges, row)?;
            let out = excluded(&frame, partition.peers, &whole, row);
            let same = last
                .as_ref()
                .is_some_and(|last| last.frame == whole && last.excluded == out);
            if !same {
                slide(moving, &at, &whole)?;
                at = whole.clone();
                out.iter().cloned().try_for_each(|range| moving.remove(range))?;
                let (value, error) = moving.result()?;
                out.iter().cloned().try_for_each(|range| moving.add(range))?;
                results.push(value);
                last = Some(Framed {
                    frame: whole,
                    excluded: out,
                    error,
                });
            }
            if let Some(error) = last.as_ref().and_then(|last| last.error.as_ref()) {
                failures.push((row, error.clone()));
            }
            places.push((results.len() - 1, 0));
        }
        if results.is_empty() {
            return Ok(new_null_array(&output, 0));
        }
        let parts: Vec<&dyn Array> = results.iter().map(AsRef::as_ref).collect();
        if parts.len() == rows {
            return Ok(concat(&parts)?);
        }
        Ok(interleave(&parts, &places)?)
    }
}

/// A frame over which an aggregate was taken, and why it failed if it did.
struct Framed {
    frame: Range<usize>,
    excluded: [Range<usize>; 2],
    error: Option<Error>,
}

/// Moves an aggregate's rows from one range to another.
fn slide(moving: &mut Moving, from: &Range<usize>, to: &Range<usize>) -> Result<()> {
    let overlaps = to.start < from.end && from.start < to.end;
    if !overlaps {
        moving.clear();
        return moving.add(to.clone());
    }
    if to.start < from.start {
        moving.add(to.start..from.start)?;
    } else {
        moving.remove(from.start..to.start)?;
    }
    if to.end > from.end {
        moving.add(from.end..to.end)
    } else {
        moving.remove(to.end..from.end)
    }
}

/// The n-th row after (or before, for a negative n) a row whose value is not NULL.
fn nth_valid_from(values: &ArrayRef, row: usize, n: i64) -> Option<usize> {
    let left = usize::try_from(n.unsigned_abs()).ok()?;
    match n.signum() {
        0 => Some(row),
        1 => (row + 1..values.len())
            .filter(|row| values.is_valid(*row))
            .nth(left - 1),
        _ => (0..row).rev().filter(|row| values.is_valid(*row)).nth(left - 1),
    }
}

/// The functions of a row's place alone.
fn ranks(function: OverFunction, peers: &Peers) -> ArrayRef {
    let rows = peers.rows();
    let integers = |value: &dyn Fn(usize) -> usize| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values((0..rows).map(|row| value(row) as i64)))
    };
    let floats =
        |value: &dyn Fn(usize) -> f64| -> ArrayRef { Arc::new(Float64Array::from_iter_values((0..rows).map(value))) };
    match function {
        OverFunction::Rank => integers(&|row| peers.peers(row).start + 1),
        OverFunction::DenseRank => integers(&|row| peers.group(row) + 1),
        OverFunction::PercentRank => floats(&|row| match rows {
            1 => 0.0,
            _ => peers.peers(row).start as f64 / (rows - 1) as f64,
        }),
        OverFunction::CumeDist => floats(&|row| peers.peers(row).end as f64 / rows as f64),
        _ => integers(&|row| row + 1),
    }
}
