//! Functions on arrays, and the lists that set-returning functions give.

use super::definition::{Call, Definition, Kind, Overload};
use crate::error::{Error, Result};
use crate::types::calendar::Zone;
use crate::types::{Nullability, Type};
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, Int32Builder, ListArray, ListBuilder, UInt32Array,
    make_comparator,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{SortOptions, take};
use arrow::datatypes::{Int32Type, Int64Type, IntervalMonthDayNanoType, TimestampMicrosecondType, i256};
use std::cmp::Ordering;
use std::sync::Arc;

/// The most rows that a series may have.
const SERIES_ROWS_MAX: usize = 50_000_000;

const fn takes(
    arguments: &'static [Kind],
    result: fn(&[Type]) -> Type,
    kernel: fn(&Call<'_>) -> Result<ArrayRef>,
) -> Overload {
    Overload {
        arguments,
        rest: None,
        result,
        kernel,
        of_constants: None,
    }
}

const fn named(name: &'static str, doc: &'static str, overloads: &'static [Overload]) -> Definition {
    Definition { name, doc, overloads }
}

fn element(types: &[Type]) -> Type {
    match types.first() {
        Some(Type::Array(element)) => element.as_ref().clone(),
        _ => Type::Text,
    }
}

fn same(types: &[Type]) -> Type {
    types.first().cloned().unwrap_or(Type::Unknown)
}

fn list_of_first(types: &[Type]) -> Type {
    Type::Array(Box::new(same(types)))
}

fn int4(_: &[Type]) -> Type {
    Type::Int4
}

fn integers(_: &[Type]) -> Type {
    Type::Array(Box::new(Type::Int4))
}

fn boolean(_: &[Type]) -> Type {
    Type::Bool
}

fn text(_: &[Type]) -> Type {
    Type::Text
}

fn lists_of_texts(_: &[Type]) -> Type {
    Type::Array(Box::new(Type::Array(Box::new(Type::Text))))
}

use Kind::{Any, Array as List, Int4, Int8, Interval, Numeric, Text, Timestamp, Timestamptz};

/// The functions of this file.
pub(super) const FUNCTIONS: &[Definition] = &[
    named(
        "__array",
        "ARRAY[...].",
        &[Overload {
            arguments: &[Any],
            rest: Some(Any),
            result: list_of_first,
            kernel: make,
            of_constants: None,
        }],
    ),
    named(
        "__subscript",
        "An element of an array, counted from 1.",
        &[takes(&[List, Int4], element, subscript)],
    ),
    named(
        "__slice",
        "A part of an array.",
        &[takes(&[List, Any, Any], same, slice)],
    ),
    named(
        "__subscripts",
        "The positions of an array's elements.",
        &[
            takes(&[List, Int4], integers, subscripts),
            takes(&[List], integers, subscripts),
        ],
    ),
    named(
        "__series",
        "The numbers or times from one to another.",
        &[
            takes(&[Int4, Int4], list_of_first, series32),
            takes(&[Int4, Int4, Int4], list_of_first, series32),
            takes(&[Int8, Int8], list_of_first, series64),
            takes(&[Int8, Int8, Int8], list_of_first, series64),
            takes(&[Numeric, Numeric], list_of_first, series_numeric),
            takes(&[Numeric, Numeric, Numeric], list_of_first, series_numeric),
            takes(&[Timestamp, Timestamp, Interval], list_of_first, |call| {
                series_times(call, None)
            }),
            takes(&[Timestamptz, Timestamptz, Interval], list_of_first, |call| {
                series_times(call, Some(call.time_zone()?))
            }),
        ],
    ),
    named(
        "__any",
        "x = ANY (array).",
        &[takes(&[Any, List, Text], boolean, |call| {
            quantified(call, Quantity::Any)
        })],
    ),
    named(
        "__all",
        "x = ALL (array).",
        &[takes(&[Any, List, Text], boolean, |call| {
            quantified(call, Quantity::All)
        })],
    ),
    named(
        "__regexp_matches",
        "The groups of the matches of a pattern.",
        &[
            takes(&[Text, Text], lists_of_texts, super::text::regexp_matches),
            takes(&[Text, Text, Text], lists_of_texts, super::text::regexp_matches),
        ],
    ),
    named(
        "array_length",
        "The length of a dimension.",
        &[takes(&[List, Int4], int4, length)],
    ),
    named(
        "array_upper",
        "The upper bound of a dimension.",
        &[takes(&[List, Int4], int4, length)],
    ),
    named(
        "array_lower",
        "The lower bound of a dimension: 1.",
        &[takes(&[List, Int4], int4, |call| {
            let lengths = length(call)?;
            let ones: Int32Array = lengths
                .as_primitive::<Int32Type>()
                .iter()
                .map(|length| length.map(|_| 1))
                .collect();
            Ok(Arc::new(ones))
        })],
    ),
    named(
        "array_ndims",
        "The number of dimensions.",
        &[takes(&[List], int4, |call| {
            let lists = call.arguments[0].as_list::<i32>();
            let dims: Int32Array = (0..lists.len())
                .map(|row| (lists.is_valid(row) && lists.value_length(row) > 0).then_some(1))
                .collect();
            Ok(Arc::new(dims))
        })],
    ),
    named(
        "cardinality",
        "The number of elements.",
        &[takes(&[List], int4, |call| {
            let lists = call.arguments[0].as_list::<i32>();
            let counts: Int32Array = (0..lists.len())
                .map(|row| lists.is_valid(row).then(|| lists.value_length(row)))
                .collect();
            Ok(Arc::new(counts))
        })],
    ),
    named(
        "array_append",
        "An array with an element at its end.",
        &[takes(&[List, Any], same, |call| {
            super::array::concat(
                &call.arguments[0],
                &call.arguments[1],
                super::operator::Sides::Left,
                call.result,
            )
        })],
    ),
    named(
        "array_prepend",
        "An array with an element at its start.",
        &[takes(
            &[Any, List],
            |types| types.get(1).cloned().unwrap_or(Type::Unknown),
            |call| {
                super::array::concat(
                    &call.arguments[0],
                    &call.arguments[1],
                    super::operator::Sides::Right,
                    call.result,
                )
            },
        )],
    ),
    named(
        "array_cat",
        "Two arrays, one after the other.",
        &[takes(&[List, List], same, |call| {
            super::array::concat(
                &call.arguments[0],
                &call.arguments[1],
                super::operator::Sides::Both,
                call.result,
            )
        })],
    ),
    named(
        "array_position",
        "The position of an element, NULL if there is none.",
        &[takes(&[List, Any], int4, position)],
    ),
    named(
        "array_positions",
        "The positions of an element.",
        &[takes(&[List, Any], integers, positions)],
    ),
    named(
        "array_remove",
        "An array without an element.",
        &[takes(&[List, Any], same, |call| {
            keep(call, |compare, list, row, at| {
                !(compare.is_some_and(|compare| compare(at, row) == Ordering::Equal) && list.is_valid(at))
            })
        })],
    ),
    named(
        "array_dims",
        "The bounds of the dimensions.",
        &[takes(&[List], text, |call| {
            let lists = call.arguments[0].as_list::<i32>();
            let dims: arrow::array::StringArray = (0..lists.len())
                .map(|row| {
                    (lists.is_valid(row) && lists.value_length(row) > 0)
                        .then(|| format!("[1:{}]", lists.value_length(row)))
                })
                .collect();
            Ok(Arc::new(dims))
        })],
    ),
];

/// A list column of parts of one column.
fn build(values: ArrayRef, offsets: Vec<i32>, valid: Option<Vec<bool>>, result: &Type) -> Result<ArrayRef> {
    let element = match result {
        Type::Array(element) => element.as_ref().clone(),
        other => other.clone(),
    };
    Ok(Arc::new(ListArray::try_new(
        Arc::new(element.field("item", Nullability::Nullable)),
        OffsetBuffer::new(offsets.into()),
        values,
        valid.map(NullBuffer::from),
    )?))
}

/// Elements side by side, row by row.
fn make(call: &Call<'_>) -> Result<ArrayRef> {
    let count = call.arguments.len();
    let parts: Vec<&dyn Array> = call
        .arguments
        .iter()
        .map(|array| array.as_ref() as &dyn Array)
        .collect();
    let all = arrow::compute::concat(&parts)?;
    let indices: Vec<u32> = (0..call.rows)
        .flat_map(|row| (0..count).map(move |part| (part * call.rows + row) as u32))
        .collect();
    let values = take(&all, &UInt32Array::from(indices), None)?;
    let offsets = (0..=call.rows).map(|row| (row * count) as i32).collect();
    build(values, offsets, None, call.result)
}

fn subscript(call: &Call<'_>) -> Result<ArrayRef> {
    let lists = call.arguments[0].as_list::<i32>();
    let keys = call.arguments[1].as_primitive::<Int32Type>();
    let offsets = lists.value_offsets();
    let indices: UInt32Array = (0..call.rows)
        .map(|row| {
            if lists.is_null(row) || keys.is_null(row) {
                return None;
            }
            let key = keys.value(row);
            (1..=lists.value_length(row))
                .contains(&key)
                .then(|| (offsets[row] + key - 1) as u32)
        })
        .collect();
    Ok(take(lists.values(), &indices, None)?)
}

fn slice(call: &Call<'_>) -> Result<ArrayRef> {
    let lists = call.arguments[0].as_list::<i32>();
    let wide = |array: &ArrayRef| arrow::compute::cast(array, &arrow::datatypes::DataType::Int64);
    let (from, to) = (wide(&call.arguments[1])?, wide(&call.arguments[2])?);
    let (from, to) = (from.as_primitive::<Int64Type>(), to.as_primitive::<Int64Type>());
    let starts = lists.value_offsets();
    let mut indices: Vec<u32> = Vec::new();
    let mut offsets = vec![0];
    let mut valid = Vec::with_capacity(call.rows);
    for (row, &start) in starts.iter().enumerate().take(call.rows) {
        let known = lists.is_valid(row) && from.is_valid(row) && to.is_valid(row);
        valid.push(known);
        if known {
            let length = i64::from(lists.value_length(row));
            let first = from.value(row).max(1);
            let last = to.value(row).min(length);
            indices.extend((first..=last).map(|position| (i64::from(start) + position - 1) as u32));
        }
        offsets.push(indices.len() as i32);
    }
    let values = take(lists.values(), &UInt32Array::from(indices), None)?;
    build(values, offsets, Some(valid), call.result)
}

fn length(call: &Call<'_>) -> Result<ArrayRef> {
    let lists = call.arguments[0].as_list::<i32>();
    let dimensions = call.arguments[1].as_primitive::<Int32Type>();
    let lengths: Int32Array = (0..call.rows)
        .map(|row| {
            let known = lists.is_valid(row) && dimensions.is_valid(row) && dimensions.value(row) == 1;
            (known && lists.value_length(row) > 0).then(|| lists.value_length(row))
        })
        .collect();
    Ok(Arc::new(lengths))
}

fn subscripts(call: &Call<'_>) -> Result<ArrayRef> {
    let lists = call.arguments[0].as_list::<i32>();
    let mut builder = ListBuilder::new(Int32Builder::new());
    for row in 0..call.rows {
        if lists.is_null(row) {
            builder.append(false);
            continue;
        }
        for position in 1..=lists.value_length(row) {
            builder.values().append_value(position);
        }
        builder.append(true);
    }
    Ok(Arc::new(builder.finish()))
}

fn position(call: &Call<'_>) -> Result<ArrayRef> {
    let lists = call.arguments[0].as_list::<i32>();
    let wanted = &call.arguments[1];
    let mut found = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        found.push(if lists.is_null(row) {
            None
        } else {
            all_positions(lists, wanted, row)?.first().copied()
        });
    }
    Ok(Arc::new(Int32Array::from(found)))
}

fn all_positions(lists: &ListArray, wanted: &ArrayRef, row: usize) -> Result<Vec<i32>> {
    let list = lists.value(row);
    let compare = make_comparator(&list, wanted, SortOptions::default())?;
    Ok((0..list.len())
        .filter(|at| list.is_valid(*at) == wanted.is_valid(row) && compare(*at, row) == Ordering::Equal)
        .map(|at| at as i32 + 1)
        .collect())
}

fn positions(call: &Call<'_>) -> Result<ArrayRef> {
    let lists = call.arguments[0].as_list::<i32>();
    let mut builder = ListBuilder::new(Int32Builder::new());
    for row in 0..call.rows {
        if lists.is_null(row) {
            builder.append(false);
            continue;
        }
        for position in all_positions(lists, &call.arguments[1], row)? {
            builder.values().append_value(position);
        }
        builder.append(true);
    }
    Ok(Arc::new(builder.finish()))
}

type Comparator<'a> = &'a arrow::array::DynComparator;

/// Arrays with those elements that a test keeps.
fn keep(call: &Call<'_>, test: impl Fn(Option<Comparator<'_>>, &ArrayRef, usize, usize) -> bool) -> Result<ArrayRef> {
    let lists = call.arguments[0].as_list::<i32>();
    let wanted = &call.arguments[1];
    let starts = lists.value_offsets();
    let mut indices: Vec<u32> = Vec::new();
    let mut offsets = vec![0];
    let mut valid = Vec::with_capacity(call.rows);
    for (row, &start) in starts.iter().enumerate().take(call.rows) {
        valid.push(lists.is_valid(row));
        if lists.is_valid(row) {
            let list = lists.value(row);
            let compare = make_comparator(&list, wanted, SortOptions::default())?;
            let compare = wanted.is_valid(row).then_some(&compare);
            indices.extend(
                (0..list.len())
                    .filter(|at| test(compare, &list, row, *at))
                    .map(|at| (start as usize + at) as u32),
            );
        }
        offsets.push(indices.len() as i32);
    }
    let values = take(lists.values(), &UInt32Array::from(indices), None)?;
    build(values, offsets, Some(valid), call.result)
}

/// Whether one element or all must pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quantity {
    Any,
    All,
}

/// For `~~` and its like, whether each element matches the value beside its list; `None` for comparisons.
fn pattern_matches(
    symbol: &str,
    needles: &ArrayRef,
    values: &ArrayRef,
    starts: &[i32],
) -> Result<Option<BooleanArray>> {
    let Some(kind) = super::pattern::Match::of(symbol) else {
        return Ok(None);
    };
    let mut rows = Vec::with_capacity(values.len());
    rows.resize(starts.first().map_or(0, |start| *start as usize), 0_u32);
    for (row, bounds) in starts.windows(2).enumerate() {
        rows.resize(bounds[1] as usize, row as u32);
    }
    rows.resize(values.len(), 0);
    let beside = arrow::compute::take(needles, &arrow::array::UInt32Array::from(rows), None)?;
    let found = if symbol.contains("~~") {
        super::pattern::like(&beside, values, kind)?
    } else {
        super::pattern::regex(&beside, values, kind)?
    };
    Ok(Some(found.as_boolean().clone()))
}

fn quantified(call: &Call<'_>, quantity: Quantity) -> Result<ArrayRef> {
    let lists = call.arguments[1].as_list::<i32>();
    let symbols = call.arguments[2].as_string::<i32>();
    let needle_type = &call.types[0];
    let element_type = element(&call.types[1..]);
    let common = crate::sql::bind::expression::common_type(needle_type, &element_type).ok_or_else(|| {
        Error::semantic(
            "42883",
            format!("operator does not exist: {needle_type} = {element_type}"),
        )
    })?;
    let settings = crate::types::text::Settings {
        time_zone: call.time_zone()?,
        ..Default::default()
    };
    let context = super::cast::Context::Implicit;
    let needles = super::cast::convert(&call.arguments[0], needle_type, &common, context, &settings)?;
    let values = super::cast::convert(lists.values(), &element_type, &common, context, &settings)?;
    let starts = lists.value_offsets();
    let symbol = symbols.iter().flatten().next().unwrap_or("=");
    let matches = pattern_matches(symbol, &needles, &values, starts)?;
    let compare = make_comparator(&needles, &values, SortOptions::default())?;
    let mut results = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        if lists.is_null(row) {
            results.push(None);
            continue;
        }
        let symbol = symbols.value(row);
        let passes = |ordering: Ordering| match symbol {
            "=" => ordering == Ordering::Equal,
            "<>" | "!=" => ordering != Ordering::Equal,
            "<" => ordering == Ordering::Less,
            "<=" => ordering != Ordering::Greater,
            ">" => ordering == Ordering::Greater,
            _ => ordering != Ordering::Less,
        };
        let range = starts[row] as usize..starts[row + 1] as usize;
        if range.is_empty() {
            results.push(Some(quantity == Quantity::All));
            continue;
        }
        let mut unknown = needles.is_null(row);
        let mut decided = false;
        for at in range {
            if needles.is_null(row) || values.is_null(at) {
                unknown = true;
            } else if matches
                .as_ref()
                .map_or_else(|| passes(compare(row, at)), |matches| matches.value(at))
                == (quantity == Quantity::Any)
            {
                decided = true;
                break;
            }
        }
        results.push(if decided {
            Some(quantity == Quantity::Any)
        } else if unknown {
            None
        } else {
            Some(quantity == Quantity::All)
        });
    }
    Ok(Arc::new(BooleanArray::from(results)))
}

fn step_is_zero() -> Error {
    Error::semantic("22023", "step size cannot equal zero")
}

fn too_long() -> Error {
    Error::limit("54000", format!("a series of more than {SERIES_ROWS_MAX} rows"))
}

/// The numbers of a series of integers.
fn numbers(start: i64, stop: i64, step: i64, output: &mut Vec<i64>) -> Result<()> {
    if step == 0 {
        return Err(step_is_zero());
    }
    let mut next = Some(start);
    while let Some(value) = next.filter(|value| if step > 0 { *value <= stop } else { *value >= stop }) {
        if output.len() >= SERIES_ROWS_MAX {
            return Err(too_long());
        }
        output.push(value);
        next = value.checked_add(step);
    }
    Ok(())
}

fn integer_series(call: &Call<'_>) -> Result<(Vec<i64>, Vec<i32>, Vec<bool>)> {
    let wide = call
        .arguments
        .iter()
        .map(|array| arrow::compute::cast(array, &arrow::datatypes::DataType::Int64))
        .collect::<Result<Vec<_>, _>>()?;
    let column = |index: usize| wide[index].as_primitive::<Int64Type>();
    let mut values = Vec::new();
    let mut offsets = vec![0];
    let mut valid = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        let known = wide.iter().all(|array| array.is_valid(row));
        valid.push(known);
        if known {
            let step = if wide.len() > 2 { column(2).value(row) } else { 1 };
            numbers(column(0).value(row), column(1).value(row), step, &mut values)?;
        }
        offsets.push(values.len() as i32);
    }
    Ok((values, offsets, valid))
}

fn series32(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, offsets, valid) = integer_series(call)?;
    let values = Int32Array::from_iter_values(values.into_iter().map(|value| value as i32));
    build(Arc::new(values), offsets, Some(valid), call.result)
}

fn series64(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, offsets, valid) = integer_series(call)?;
    build(
        Arc::new(arrow::array::Int64Array::from(values)),
        offsets,
        Some(valid),
        call.result,
    )
}

fn series_numeric(call: &Call<'_>) -> Result<ArrayRef> {
    let columns = call
        .arguments
        .iter()
        .map(super::decimal::Exacts::of)
        .collect::<Result<Vec<_>>>()?;
    let scale = columns.iter().map(|(_, scale)| *scale).max().unwrap_or(0);
    let at = |index: usize, row: usize| {
        columns
            .get(index)
            .and_then(|(values, own)| super::decimal::rescale(values.value(row), *own, scale))
    };
    let one = super::decimal::rescale(i256::ONE, 0, scale).unwrap_or(i256::ONE);
    let mut values = Vec::new();
    let mut offsets = vec![0];
    let mut valid = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        let known = call.arguments.iter().all(|array| array.is_valid(row));
        valid.push(known);
        if known && let (Some(start), Some(stop)) = (at(0, row), at(1, row)) {
            let step = if columns.len() > 2 {
                at(2, row).unwrap_or(one)
            } else {
                one
            };
            if step == i256::ZERO {
                return Err(step_is_zero());
            }
            let mut next = Some(start);
            while let Some(value) = next.filter(|value| {
                if step > i256::ZERO {
                    *value <= stop
                } else {
                    *value >= stop
                }
            }) {
                if values.len() >= SERIES_ROWS_MAX {
                    return Err(too_long());
                }
                values.push(Some(value));
                next = value.checked_add(step);
            }
        }
        offsets.push(values.len() as i32);
    }
    let element = element(std::slice::from_ref(call.result));
    let values = super::decimal::build(
        values
            .into_iter()
            .map(|value| value.and_then(|value| super::decimal::rescale(value, scale, scale_of(&element))))
            .collect(),
        &element,
    )?;
    build(values, offsets, Some(valid), call.result)
}

fn scale_of(kind: &Type) -> i8 {
    match kind.arrow() {
        arrow::datatypes::DataType::Decimal128(_, scale) | arrow::datatypes::DataType::Decimal256(_, scale) => scale,
        _ => 0,
    }
}

fn series_times(call: &Call<'_>, zone: Option<Zone>) -> Result<ArrayRef> {
    let starts = call.arguments[0].as_primitive::<TimestampMicrosecondType>();
    let stops = call.arguments[1].as_primitive::<TimestampMicrosecondType>();
    let steps = call.arguments[2].as_primitive::<IntervalMonthDayNanoType>();
    let mut values = Vec::new();
    let mut offsets = vec![0];
    let mut valid = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        let known = starts.is_valid(row) && stops.is_valid(row) && steps.is_valid(row);
        valid.push(known);
        if known {
            let (start, stop, step) = (starts.value(row), stops.value(row), steps.value(row));
            let sign = super::interval::comparable(step).signum();
            if sign == 0 {
                return Err(step_is_zero());
            }
            let mut next = start;
            while if sign > 0 { next <= stop } else { next >= stop } {
                if values.len() >= SERIES_ROWS_MAX {
                    return Err(too_long());
                }
                values.push(next);
                next = super::datetime::later(next, step, zone)?;
            }
        }
        offsets.push(values.len() as i32);
    }
    let element = element(std::slice::from_ref(call.result));
    let values = arrow::array::TimestampMicrosecondArray::from(values).with_data_type(element.arrow());
    build(Arc::new(values), offsets, Some(valid), call.result)
}
