//! `percentile_cont` and `percentile_disc`: the values at fractions of a group's order.

use super::Function;
use super::bag::Reader;
use super::fold::Results;
use crate::delta::KeyCodec;
use crate::error::{Error, Result};
use crate::state::Group;
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, ListArray, new_empty_array, new_null_array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Float64Type};
use std::sync::Arc;

/// The fractions of a group: one, or an array of them.
type Fractions = Option<Vec<Option<f64>>>;

impl Reader {
    /// The value, or the array of values, of each group.
    pub(super) fn percentiles(&self, codec: &KeyCodec, groups: &[&Group]) -> Result<Results> {
        let item = match &self.output {
            DataType::List(item) => item.data_type(),
            single => single,
        };
        let mut failures = Vec::new();
        let mut values: Vec<ArrayRef> = Vec::with_capacity(groups.len());
        let mut counts: Vec<Option<usize>> = Vec::with_capacity(groups.len());
        for (number, group) in groups.iter().enumerate() {
            let fractions = self.fractions(codec, group).unwrap_or_else(|error| {
                failures.push((number, error));
                None
            });
            counts.push(fractions.as_ref().map(Vec::len));
            for fraction in fractions.unwrap_or_default() {
                values.push(match fraction {
                    Some(fraction) => self.at(codec, group, fraction, item)?,
                    None => new_null_array(item, 1),
                });
            }
            if counts[number].is_none() && !matches!(self.output, DataType::List(_)) {
                values.push(new_null_array(item, 1));
            }
        }
        let parts: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
        let values = if parts.is_empty() {
            new_empty_array(item)
        } else {
            concat(&parts)?
        };
        let DataType::List(item) = &self.output else {
            return Ok(Results { values, failures });
        };
        let nulls = NullBuffer::from_iter(counts.iter().map(Option::is_some));
        let offsets = OffsetBuffer::from_lengths(counts.into_iter().map(Option::unwrap_or_default));
        let lists = ListArray::try_new(item.clone(), offsets, values, Some(nulls))?;
        Ok(Results {
            values: Arc::new(lists),
            failures,
        })
    }

    /// The fractions, from any row; `None` for a group without a row, or if they are NULL.
    fn fractions(&self, codec: &KeyCodec, group: &Group) -> Result<Fractions> {
        let (Some((row, _)), Some(place)) = (group.first(), self.arguments.get(1)) else {
            return Ok(None);
        };
        let column = codec.decode([row])?.swap_remove(*place);
        if column.is_null(0) {
            return Ok(None);
        }
        let column = match column.data_type() {
            DataType::List(_) => column.as_list::<i32>().value(0),
            _ => column,
        };
        let column = arrow::compute::cast(&column, &DataType::Float64)?;
        let fractions: Vec<Option<f64>> = column.as_primitive::<Float64Type>().iter().collect();
        match fractions
            .iter()
            .flatten()
            .find(|fraction| !(0.0..=1.0).contains(*fraction))
        {
            Some(outside) => Err(Error::semantic(
                "22003",
                format!("percentile value {outside} is not between 0 and 1"),
            )),
            None => Ok(Some(fractions)),
        }
    }

    /// The value at a fraction, as an array of one.
    fn at(&self, codec: &KeyCodec, group: &Group, fraction: f64, item: &DataType) -> Result<ArrayRef> {
        let rows = self.rows(group);
        let value = self.arguments[0];
        if self.function == Function::PercentileDisc {
            let place = (fraction * rows as f64).ceil() as i64;
            return match self.nth(group, place.max(1) - 1) {
                Some(row) => Ok(codec.decode([row])?.swap_remove(value)),
                None => Ok(new_null_array(item, 1)),
            };
        }
        let place = fraction * (rows - 1) as f64;
        let around = [place.floor() as i64, place.ceil() as i64].map(|place| self.nth(group, place));
        let [Some(low), Some(high)] = around else {
            return Ok(new_null_array(item, 1));
        };
        let pair = arrow::compute::cast(&codec.decode([low, high])?.swap_remove(value), &DataType::Float64)?;
        let pair = pair.as_primitive::<Float64Type>();
        let (low, high) = (pair.value(0), pair.value(1));
        let between = if low == high {
            low
        } else {
            low + place.fract() * (high - low)
        };
        Ok(Arc::new(Float64Array::from(vec![between])))
    }
}
