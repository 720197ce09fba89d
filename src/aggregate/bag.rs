//! Functions of the bag of a group's values: the least, the greatest, all of them in order.
//!
//! A bag is an arrangement: group -> (order columns ++ arguments), with weights. It is kept in the order of the call,
//! so that `min`, `max`, `first_value` read one row, and a value that leaves is replaced by the next. DISTINCT reads
//! the same bag and looks at each row once.

use super::fold::Results;
use super::{Call, Distinct, Function};
use crate::delta::{KeyCodec, RowOrder};
use crate::error::{Error, Result};
use crate::state::Group;
use arrow::array::{Array, ArrayRef, AsArray, BinaryBuilder, ListArray, UInt32Array, new_null_array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::take;
use arrow::datatypes::DataType;
use std::sync::Arc;

/// What a bag holds of each row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The columns, in the order in which rows are kept.
    pub(crate) columns: Vec<(usize, RowOrder)>,
    /// The boolean column that says which rows count.
    pub(crate) filter: Option<usize>,
    /// A row in which one of these is NULL does not count.
    pub(crate) required: Vec<usize>,
}

/// The bag that a call needs, if it needs one.
pub(crate) fn layout_of(call: &Call) -> Option<Layout> {
    let ascending = |columns: &[usize]| columns.iter().map(|column| (*column, RowOrder::ASCENDING)).collect();
    let ordered = || -> Vec<(usize, RowOrder)> {
        let mut columns = call.order.clone();
        for argument in &call.arguments {
            if columns.iter().all(|(column, _)| column != argument) {
                columns.push((*argument, RowOrder::ASCENDING));
            }
        }
        columns
    };
    let (columns, required) = match call.function {
        Function::Min | Function::Max | Function::AnyValue => (ascending(&call.arguments), call.arguments.clone()),
        Function::SingleValue => (ascending(&call.arguments), Vec::new()),
        Function::FirstValue
        | Function::LastValue
        | Function::ArrayAgg
        | Function::JsonAgg
        | Function::JsonbAgg
        | Function::JsonObjectAgg
        | Function::JsonbObjectAgg => (ordered(), Vec::new()),
        Function::StringAgg | Function::PercentileCont | Function::PercentileDisc | Function::Mode => {
            (ordered(), call.arguments[..1].to_vec())
        }
        _ if call.is_distinct_fold() => (ascending(&call.arguments), call.arguments.clone()),
        _ => return None,
    };
    Some(Layout {
        columns,
        filter: call.filter,
        required,
    })
}

/// The bags of all calls, each once.
pub(crate) fn layouts(calls: &[Call]) -> Vec<Layout> {
    let mut layouts: Vec<Layout> = Vec::new();
    for layout in calls.iter().filter_map(layout_of) {
        if !layouts.contains(&layout) {
            layouts.push(layout);
        }
    }
    layouts
}

impl Call {
    /// Whether equal arguments make a difference to a function that is a fold.
    pub(crate) fn is_distinct_fold(&self) -> bool {
        let indifferent = matches!(
            self.function,
            Function::BoolAnd
                | Function::BoolOr
                | Function::BitAnd
                | Function::BitOr
                | Function::LeastSoFar
                | Function::GreatestSoFar
        );
        self.distinct == Distinct::Yes && !self.arguments.is_empty() && !indifferent
    }
}

/// Reads the result of a call from its bag.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(super) function: Function,
    distinct: Distinct,
    /// The places of the arguments among the bag's columns.
    pub(super) arguments: Vec<usize>,
    pub(super) output: DataType,
}

impl Reader {
    /// The reader of a call.
    pub(crate) fn new(call: &Call) -> Result<Self> {
        let output = call.field.data_type().clone();
        let fits = match call.function {
            Function::StringAgg => matches!(output, DataType::Utf8 | DataType::Binary),
            Function::ArrayAgg => matches!(output, DataType::List(_)),
            _ => true,
        };
        let columns = layout_of(call).map(|layout| layout.columns).unwrap_or_default();
        let place = |argument: &usize| columns.iter().position(|(column, _)| column == argument);
        let arguments: Option<Vec<usize>> = call.arguments.iter().map(place).collect();
        match arguments {
            Some(arguments) if fits && !arguments.is_empty() => Ok(Self {
                function: call.function,
                distinct: call.distinct,
                arguments,
                output,
            }),
            _ => Err(super::fold::no_such_function(call.function, &output)),
        }
    }

    /// The results of all groups.
    pub(crate) fn results(&self, codec: &KeyCodec, groups: &[&Group]) -> Result<Results> {
        match self.function {
            Function::ArrayAgg => self.arrays(codec, groups),
            Function::StringAgg => self.texts(codec, groups),
            Function::PercentileCont | Function::PercentileDisc => self.percentiles(codec, groups),
            Function::JsonAgg | Function::JsonbAgg | Function::JsonObjectAgg | Function::JsonbObjectAgg => {
                self.documents(codec, groups)
            }
            Function::SingleValue => {
                let mut results = self.picked(codec, groups)?;
                for (number, group) in groups.iter().enumerate() {
                    if self.rows(group) > 1 {
                        let text = "more than one row returned by a subquery used as an expression";
                        results.failures.push((number, Error::semantic("21000", text)));
                    }
                }
                Ok(results)
            }
            _ => self.picked(codec, groups),
        }
    }

    pub(super) fn times(&self, weight: i64) -> i64 {
        if self.distinct == Distinct::Yes { 1 } else { weight }
    }

    pub(super) fn rows(&self, group: &Group) -> i64 {
        let mut rows = 0;
        group.for_each(|_, weight| rows += self.times(weight));
        rows
    }

    /// One row of each group.
    fn picked(&self, codec: &KeyCodec, groups: &[&Group]) -> Result<Results> {
        let mut rows: Vec<&[u8]> = Vec::with_capacity(groups.len());
        let mut places: Vec<Option<u32>> = Vec::with_capacity(groups.len());
        for group in groups {
            let row = self.pick(group);
            places.push(row.map(|_| rows.len() as u32));
            rows.extend(row);
        }
        if rows.is_empty() {
            return Ok(Results::of(new_null_array(&self.output, groups.len())));
        }
        let full = rows.len() == groups.len();
        let values = codec.decode(rows)?.swap_remove(self.arguments[0]);
        let values = if full {
            values
        } else {
            take(&values, &UInt32Array::from(places), None)?
        };
        Ok(Results::of(self.cast(values)?))
    }

    pub(super) fn cast(&self, values: ArrayRef) -> Result<ArrayRef> {
        if values.data_type() == &self.output {
            return Ok(values);
        }
        Ok(arrow::compute::cast(&values, &self.output)?)
    }

    fn pick<'a>(&self, group: &'a Group) -> Option<&'a [u8]> {
        let found = match self.function {
            Function::Max | Function::LastValue => group.last(),
            Function::Mode => {
                let mut best: Option<(&[u8], i64)> = None;
                // Of several as frequent, the first in the order.
                for (row, weight) in group.iter() {
                    if best.is_none_or(|(_, most)| weight > most) {
                        best = Some((row, weight));
                    }
                }
                best
            }
            _ => group.first(),
        };
        found.map(|(row, _)| row)
    }

    /// The row at a place of the order, copies counted.
    pub(super) fn nth<'a>(&self, group: &'a Group, place: i64) -> Option<&'a [u8]> {
        let mut passed = 0;
        let found = group.iter().find(|(_, weight)| {
            passed += self.times(*weight);
            passed > place
        });
        found.map(|(row, _)| row)
    }

    /// All rows of all groups, copies repeated, and where each group ends.
    pub(super) fn flat(&self, codec: &KeyCodec, groups: &[&Group]) -> Result<(Vec<ArrayRef>, Vec<usize>)> {
        let mut rows: Vec<&[u8]> = Vec::new();
        let mut lengths = Vec::with_capacity(groups.len());
        for group in groups {
            let before = rows.len();
            for (row, weight) in group.iter() {
                let times = usize::try_from(self.times(weight)).unwrap_or(0);
                rows.extend(std::iter::repeat_n(row, times));
            }
            lengths.push(rows.len() - before);
        }
        Ok((codec.decode(rows)?, lengths))
    }

    /// `array_agg`.
    fn arrays(&self, codec: &KeyCodec, groups: &[&Group]) -> Result<Results> {
        let (mut columns, lengths) = self.flat(codec, groups)?;
        let DataType::List(item) = &self.output else {
            return Err(super::fold::no_such_function(self.function, &self.output));
        };
        let mut values = columns.swap_remove(self.arguments[0]);
        if values.data_type() != item.data_type() {
            values = arrow::compute::cast(&values, item.data_type())?;
        }
        let nulls = NullBuffer::from_iter(lengths.iter().map(|length| *length > 0));
        let offsets = OffsetBuffer::from_lengths(lengths);
        let lists = ListArray::try_new(item.clone(), offsets, values, Some(nulls))?;
        Ok(Results::of(Arc::new(lists)))
    }

    /// `string_agg`, of texts or of byte strings.
    fn texts(&self, codec: &KeyCodec, groups: &[&Group]) -> Result<Results> {
        let (columns, lengths) = self.flat(codec, groups)?;
        let bytes = |place: &usize| arrow::compute::cast(&columns[*place], &DataType::Binary);
        let parts: Vec<ArrayRef> = self.arguments.iter().map(bytes).collect::<Result<_, _>>()?;
        let values = parts[0].as_binary::<i32>();
        let separators = parts.get(1).map(|column| column.as_binary::<i32>());
        let mut joined = BinaryBuilder::new();
        let mut row = 0;
        for length in lengths {
            if length == 0 {
                joined.append_null();
                continue;
            }
            let mut whole = Vec::new();
            for place in 0..length {
                if let Some(separators) = separators
                    && place > 0
                    && separators.is_valid(row)
                {
                    whole.extend_from_slice(separators.value(row));
                }
                whole.extend_from_slice(values.value(row));
                row += 1;
            }
            joined.append_value(whole);
        }
        Ok(Results::of(self.cast(Arc::new(joined.finish()))?))
    }
}
