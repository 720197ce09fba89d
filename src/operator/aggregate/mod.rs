//! Aggregates: one row per group. The state of a group is kept; a change takes back the group's old row and puts out
//! the new one, if they differ.
//!
//! What a function keeps of a group's rows is [`crate::aggregate`]'s: the folds of all calls and the number of rows are
//! the one value of the group in the first table; each bag is an arrangement of its own, which calls over the same
//! arguments share. A group lives as long as it has rows.

pub(super) mod moving;
mod step;

pub use crate::aggregate::{Call, Distinct, Function};

use super::{Keys, Operator, Spec, TableSpec};
use crate::aggregate::bag;
use crate::error::Result;
use crate::state::Shape;
use arrow::datatypes::{Field, Schema, SchemaRef};
use std::sync::Arc;

/// One row for each group: the key columns, then the results of the calls.
///
/// Without keys there is one global group, which always has exactly one row, also over nothing. Without calls it is
/// DISTINCT.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Aggregate {
    /// The columns whose values make a group; NULLs are equal.
    pub keys: Vec<usize>,
    /// What is computed of each group.
    pub calls: Vec<Call>,
    /// If the first key is a time that the watermark closes: how far it is shifted, in microseconds. Groups of closed
    /// times are forgotten.
    pub closing: Option<i64>,
}

impl Aggregate {
    /// Whether all that it keeps of a group is a few numbers.
    pub fn keeps_no_bags(&self) -> bool {
        bag::layouts(&self.calls).is_empty()
    }

    /// The same aggregate over columns at other places.
    #[must_use]
    pub fn remap(&self, to: impl Fn(usize) -> usize) -> Self {
        let moved = |call: &Call| Call {
            arguments: call.arguments.iter().map(|column| to(*column)).collect(),
            filter: call.filter.map(&to),
            order: call.order.iter().map(|(column, order)| (to(*column), *order)).collect(),
            ..call.clone()
        };
        Self {
            keys: self.keys.iter().map(|column| to(*column)).collect(),
            calls: self.calls.iter().map(moved).collect(),
            closing: self.closing,
        }
    }
}

impl Spec for Aggregate {
    fn name(&self) -> &'static str {
        if self.calls.is_empty() { "Distinct" } else { "Aggregate" }
    }

    fn schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        let keys = self.keys.iter().map(|key| inputs[0].field(*key));
        let results = self.calls.iter().map(|call| call.field.as_ref());
        let fields: Vec<Field> = keys
            .chain(results)
            .enumerate()
            .map(|(index, field)| super::output_field(field, index))
            .collect();
        Ok(Arc::new(Schema::new(fields)))
    }

    fn keys(&self) -> Keys {
        if self.keys.is_empty() {
            return Keys::Single;
        }
        Keys::By(vec![self.keys.clone()])
    }

    fn tables(&self) -> Vec<TableSpec> {
        let mut tables = vec![TableSpec {
            name: "groups",
            shape: match self.closing {
                Some(_) => Shape::KeyedByTime,
                None => Shape::Keyed,
            },
        }];
        let bags = bag::layouts(&self.calls);
        tables.extend(bags.iter().map(|_| TableSpec {
            name: "values",
            shape: Shape::Arranged,
        }));
        tables
    }

    fn build(&self, inputs: &[SchemaRef]) -> Result<Box<dyn Operator>> {
        Ok(Box::new(step::Running::new(self, &inputs[0])?))
    }
}

#[cfg(test)]
mod tests;
