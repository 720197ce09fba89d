//! Operators on arrays.

use super::operator::Sides;
use crate::error::Result;
use crate::types::{Nullability, Type};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray, UInt32Array, make_comparator};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::SortOptions;
use std::cmp::Ordering;
use std::sync::Arc;

/// The tests on two arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Test {
    /// `@>`: every element of the right one is in the left one.
    Contains,
    /// `<@`: the other way.
    Contained,
    /// `&&`: some element is in both.
    Overlaps,
}

impl Test {
    /// The test that a symbol means.
    pub(crate) fn of(symbol: &str) -> Option<Self> {
        Some(match symbol {
            "@>" => Self::Contains,
            "<@" => Self::Contained,
            "&&" => Self::Overlaps,
            _ => return None,
        })
    }
}

/// Arrays and elements put together; a NULL array counts as empty unless both are NULL.
pub(crate) fn concat(left: &ArrayRef, right: &ArrayRef, sides: Sides, result: &Type) -> Result<ArrayRef> {
    let element = match result {
        Type::Array(element) => element.as_ref().clone(),
        other => other.clone(),
    };
    let rows = left.len();
    let (left_values, left_ranges) = parts(left, sides != Sides::Right);
    let (right_values, right_ranges) = parts(right, sides != Sides::Left);
    // Both sides' elements one after the other, then taken in the order of the rows.
    let all = arrow::compute::concat(&[&left_values, &right_values])?;
    let shift = left_values.len();
    let mut indices: Vec<u32> = Vec::new();
    let mut offsets: Vec<i32> = vec![0];
    let mut valid = Vec::with_capacity(rows);
    for row in 0..rows {
        let (left_range, right_range) = (&left_ranges[row], &right_ranges[row]);
        valid.push(left_range.is_some() || right_range.is_some());
        indices.extend(
            left_range
                .iter()
                .flat_map(|range| range.clone())
                .map(|index| index as u32),
        );
        indices.extend(
            right_range
                .iter()
                .flat_map(|range| range.clone())
                .map(|index| (index + shift) as u32),
        );
        offsets.push(indices.len() as i32);
    }
    let values = arrow::compute::take(&all, &UInt32Array::from(indices), None)?;
    let field = Arc::new(element.field("item", Nullability::Nullable));
    Ok(Arc::new(ListArray::try_new(
        field,
        OffsetBuffer::new(offsets.into()),
        values,
        Some(NullBuffer::from(valid)),
    )?))
}

type Ranges = Vec<Option<std::ops::Range<usize>>>;

/// The elements of a side, and which of them belong to each row.
fn parts(side: &ArrayRef, is_array: bool) -> (ArrayRef, Ranges) {
    if !is_array {
        return (side.clone(), (0..side.len()).map(|row| Some(row..row + 1)).collect());
    }
    let list = side.as_list::<i32>();
    let offsets = list.value_offsets();
    let ranges = (0..list.len())
        .map(|row| {
            list.is_valid(row)
                .then(|| offsets[row] as usize..offsets[row + 1] as usize)
        })
        .collect();
    (list.values().clone(), ranges)
}

/// `@>`, `<@`, `&&`; a NULL element equals nothing.
pub(crate) fn test(left: &ArrayRef, right: &ArrayRef, test: Test) -> Result<ArrayRef> {
    let (lefts, rights) = (left.as_list::<i32>(), right.as_list::<i32>());
    let mut found = Vec::with_capacity(left.len());
    for row in 0..left.len() {
        if lefts.is_null(row) || rights.is_null(row) {
            found.push(None);
            continue;
        }
        let (a, b) = (lefts.value(row), rights.value(row));
        found.push(Some(match test {
            Test::Contains => contains(&a, &b)?,
            Test::Contained => contains(&b, &a)?,
            Test::Overlaps => overlaps(&a, &b)?,
        }));
    }
    Ok(Arc::new(BooleanArray::from(found)))
}

fn contains(outer: &ArrayRef, inner: &ArrayRef) -> Result<bool> {
    let compare = make_comparator(outer, inner, SortOptions::default())?;
    Ok((0..inner.len())
        .all(|j| inner.is_valid(j) && (0..outer.len()).any(|i| outer.is_valid(i) && compare(i, j) == Ordering::Equal)))
}

fn overlaps(a: &ArrayRef, b: &ArrayRef) -> Result<bool> {
    let compare = make_comparator(a, b, SortOptions::default())?;
    Ok((0..a.len()).any(|i| a.is_valid(i) && (0..b.len()).any(|j| b.is_valid(j) && compare(i, j) == Ordering::Equal)))
}
