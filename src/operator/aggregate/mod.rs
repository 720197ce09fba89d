//! Aggregates: one row per group. The state of a group is kept; a change takes back the group's old row and puts out
//! the new one, if they differ.
//!
//! Two kinds of state serve all functions. A *fold* is a few numbers to which rows are added and from which they are
//! taken (`count`, `sum`, variance): the folds of all calls and the number of rows are the one value of the group in
//! the first table. A *bag* is an arrangement of the arguments of the group's rows, in the order of the call (`min`,
//! `array_agg`, DISTINCT); calls over the same arguments share it. A group lives as long as it has rows.

mod bag;
mod decimal;
mod exact;
mod extreme;
mod fold;
mod moments;
pub(super) mod moving;
mod state;
mod step;
mod sum;

use super::{Keys, Operator, Spec, TableSpec};
use crate::delta::RowOrder;
use crate::error::Result;
use crate::state::Shape;
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
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
}

/// One call of an aggregate function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Call {
    /// The function.
    pub function: Function,
    /// The columns of its arguments.
    pub arguments: Vec<usize>,
    /// Whether equal arguments count once.
    pub distinct: Distinct,
    /// The boolean column that says which rows count.
    pub filter: Option<usize>,
    /// The order in which rows are taken; row order of the arguments breaks ties.
    pub order: Vec<(usize, RowOrder)>,
    /// The field of the result.
    pub field: FieldRef,
}

/// Whether equal arguments count once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Distinct {
    /// Each row counts.
    No,
    /// Equal arguments count once.
    Yes,
}

/// An aggregate function. NULL arguments are left out, except where it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Function {
    /// The number of rows whose first argument is not NULL, or of all rows when there is no argument.
    Count,
    /// The sum.
    Sum,
    /// The mean.
    Avg,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// `Min` of input that is proven to only grow.
    LeastSoFar,
    /// `Max` of input that is proven to only grow.
    GreatestSoFar,
    /// Whether all are true.
    BoolAnd,
    /// Whether one is true.
    BoolOr,
    /// The bitwise and of integers.
    BitAnd,
    /// The bitwise or of integers.
    BitOr,
    /// The bitwise exclusive or of integers.
    BitXor,
    /// The texts one after another, each but the first after its separator, which is the second argument.
    StringAgg,
    /// All values, NULLs too, in an array.
    ArrayAgg,
    /// The first value in the order, even if it is NULL.
    FirstValue,
    /// The last value in the order, even if it is NULL.
    LastValue,
    /// Some value that is not NULL: the first in row order.
    AnyValue,
    /// The value of the only row; a group with more fails with `21000`.
    SingleValue,
    /// The variance of the population.
    VarPop,
    /// The variance of the sample.
    VarSamp,
    /// The standard deviation of the population.
    StddevPop,
    /// The standard deviation of the sample.
    StddevSamp,
    /// The covariance of the population; the arguments are Y, X.
    CovarPop,
    /// The covariance of the sample; Y, X.
    CovarSamp,
    /// The correlation; Y, X.
    Corr,
    /// The number of rows in which neither is NULL; Y, X.
    RegrCount,
    /// The mean of X; Y, X.
    RegrAvgx,
    /// The mean of Y; Y, X.
    RegrAvgy,
    /// The sum of squares of X; Y, X.
    RegrSxx,
    /// The sum of squares of Y; Y, X.
    RegrSyy,
    /// The sum of products; Y, X.
    RegrSxy,
    /// The slope of the fitted line; Y, X.
    RegrSlope,
    /// Where the fitted line meets the Y axis; Y, X.
    RegrIntercept,
    /// The square of the correlation; Y, X.
    RegrR2,
    /// The value at a fraction of the order, interpolated. The argument is the fraction (the same in all rows); the
    /// value is the column of `order`.
    PercentileCont,
    /// The first value at or after a fraction of the order. Arguments as of `PercentileCont`.
    PercentileDisc,
    /// The most frequent value, of several the first in the order; the value is the column of `order`.
    Mode,
}

impl Aggregate {
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
            shape: Shape::Keyed,
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
