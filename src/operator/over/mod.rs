//! Window functions: every row with what it sees of its partition.
//!
//! A partition is kept in its order. A change of a partition computes its calls over the rows as they were and as they
//! will be, and puts out where the two differ. That reads the whole partition; the common cases that need only its
//! beginning (`row_number() <= n` and relatives) are [`super::top`]'s.

mod call;
mod frame;
mod step;
#[cfg(test)]
mod tests;

use super::aggregate::Function;
use super::{Keys, Operator, Spec, TableSpec};
use crate::delta::RowOrder;
use crate::error::Result;
use crate::state::Shape;
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use std::sync::Arc;

/// The rows, each with the results of the calls.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Over {
    /// The columns that make a partition; NULLs are equal. None: all rows are one.
    pub partition: Vec<usize>,
    /// The order in the partition; rows equal in it are peers, and row order breaks the tie.
    pub order: Vec<(usize, RowOrder)>,
    /// What is computed for each row.
    pub calls: Vec<OverCall>,
}

/// One call of a window function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OverCall {
    /// The function.
    pub function: OverFunction,
    /// The columns of its arguments. Offsets, bucket counts and positions are columns too.
    pub arguments: Vec<usize>,
    /// The rows that it sees.
    pub frame: Frame,
    /// Whether `lag, lead, first_value, last_value, nth_value` pass over NULLs.
    pub nulls: NullTreatment,
    /// The boolean column that says which rows an aggregate counts.
    pub filter: Option<usize>,
    /// The field of the result.
    pub field: FieldRef,
}

/// A window function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OverFunction {
    /// The number of the row.
    RowNumber,
    /// The number of its first peer.
    Rank,
    /// The number of its peer group.
    DenseRank,
    /// (rank - 1) / (rows - 1).
    PercentRank,
    /// The share of rows up to its last peer.
    CumeDist,
    /// Its bucket of so many; the argument is their number.
    Ntile,
    /// The value some rows before: value, offset (1), default (NULL).
    Lag,
    /// The value some rows after: value, offset (1), default (NULL).
    Lead,
    /// The first value in the frame.
    FirstValue,
    /// The last value in the frame.
    LastValue,
    /// The n-th value in the frame: value, n.
    NthValue,
    /// An aggregate of the frame.
    Aggregate(Function),
}

/// Whether NULL values are passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NullTreatment {
    /// They are values.
    Respect,
    /// They are passed over.
    Ignore,
}

/// The rows that a call sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame {
    /// What its bounds count.
    pub unit: FrameUnit,
    /// Where it starts.
    pub start: Bound,
    /// Where it ends, inclusive.
    pub end: Bound,
    /// What is left out of it.
    pub exclusion: Exclusion,
}

/// What the bounds of a frame count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameUnit {
    /// Rows.
    Rows,
    /// Peer groups.
    Groups,
    /// Values of the only order column.
    Range,
}

/// One end of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bound {
    /// The partition's first row.
    UnboundedPreceding,
    /// So many rows or groups before.
    Preceding(u64),
    /// The row, or (for groups and range) its first or last peer.
    CurrentRow,
    /// So many rows or groups after.
    Following(u64),
    /// The partition's last row.
    UnboundedFollowing,
    /// For range: the column that holds the value of the frame's edge, computed beforehand from the order column and
    /// the offset, and of the order column's type. A NULL order value has its peers as edge.
    Value(usize),
}

/// What is left out of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exclusion {
    /// Nothing.
    NoOthers,
    /// The row itself.
    CurrentRow,
    /// The row and its peers.
    Group,
    /// The peers, but not the row.
    Ties,
}

impl Spec for Over {
    fn name(&self) -> &'static str {
        "Over"
    }

    fn schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        let results = self.calls.iter().map(|call| &call.field);
        let fields: Vec<Field> = inputs[0]
            .fields()
            .iter()
            .chain(results)
            .enumerate()
            .map(|(index, field)| super::output_field(field, index))
            .collect();
        Ok(Arc::new(Schema::new(fields)))
    }

    fn keys(&self) -> Keys {
        if self.partition.is_empty() {
            return Keys::Single;
        }
        Keys::By(vec![self.partition.clone()])
    }

    fn tables(&self) -> Vec<TableSpec> {
        vec![TableSpec {
            name: "rows",
            shape: Shape::Arranged,
        }]
    }

    fn build(&self, inputs: &[SchemaRef]) -> Result<Box<dyn Operator>> {
        Ok(Box::new(step::Running::new(self, &inputs[0])?))
    }
}
