//! Joins. Bilinear: d(A * B) = dA * B + A * dB + dA * dB; outer, semi and anti joins add what depends on whether a row
//! has a partner.
//!
//! Both sides are kept as arrangements by key. Whether a row has a partner is whether the other side's group is empty,
//! where equality is all that is asked (`pairs`, `membership`), and the number of its partners, kept for each row,
//! where there is a residual (`counted`). `NOT IN` has its own rules for NULL (`not_in`).

mod counted;
mod membership;
mod not_in;
mod pairs;
mod side;

use super::{Keys, Operator, Spec, TableSpec};
use crate::error::{Error, Result};
use crate::expr::Expression;
use crate::state::Shape;
use arrow::datatypes::{Field, Schema, SchemaRef};
use std::sync::Arc;

/// Pairs of rows that belong together, and what becomes of rows without a partner.
///
/// Puts out the columns of the left input, then (except semi and anti joins) those of the right one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Join {
    /// Which rows are put out.
    pub kind: JoinKind,
    /// The columns, left and right, that must be equal. Both of a pair have the same Arrow type. Without a pair,
    /// every row meets every other.
    pub on: Vec<(usize, usize)>,
    /// Whether NULL equals NULL in `on`.
    pub null_equality: NullEquality,
    /// What must hold beside, over the columns of left ++ right.
    pub residual: Option<Expression>,
}

/// Which rows a join puts out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinKind {
    /// The pairs.
    Inner,
    /// The pairs, and left rows without a partner beside NULLs.
    Left,
    /// The pairs, and right rows without a partner beside NULLs.
    Right,
    /// The pairs, and rows of both sides without a partner beside NULLs.
    Full,
    /// The left rows that have a partner.
    LeftSemi,
    /// The left rows that have none.
    LeftAnti,
    /// The left rows for which `x NOT IN (right)` is true, with SQL's NULLs. The first pair of `on` is x and the
    /// column that it is looked for in; further pairs say which right rows the subquery returns for the left row.
    NullAwareAnti,
}

/// Whether NULL equals NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NullEquality {
    /// A NULL has no partner: `=`.
    NullsDiffer,
    /// NULLs are partners: `IS NOT DISTINCT FROM`.
    NullsMatch,
}

impl JoinKind {
    /// Whether only left rows are put out.
    pub fn is_filter(self) -> bool {
        matches!(self, Self::LeftSemi | Self::LeftAnti | Self::NullAwareAnti)
    }
}

impl Spec for Join {
    fn name(&self) -> &'static str {
        match self.kind {
            JoinKind::Inner => "Join",
            JoinKind::Left => "LeftJoin",
            JoinKind::Right => "RightJoin",
            JoinKind::Full => "FullJoin",
            JoinKind::LeftSemi => "SemiJoin",
            JoinKind::LeftAnti => "AntiJoin",
            JoinKind::NullAwareAnti => "NotIn",
        }
    }

    fn schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        let taken = if self.kind.is_filter() { 1 } else { 2 };
        let fields: Vec<Field> = inputs[..taken]
            .iter()
            .flat_map(|schema| schema.fields())
            .enumerate()
            .map(|(index, field)| super::output_field(field, index))
            .collect();
        Ok(Arc::new(Schema::new(fields)))
    }

    fn keys(&self) -> Keys {
        let on = match self.kind {
            JoinKind::NullAwareAnti => self.on.get(1..).unwrap_or_default(),
            _ => &self.on,
        };
        if on.is_empty() {
            return Keys::Single;
        }
        let (left, right) = on.iter().copied().unzip();
        Keys::By(vec![left, right])
    }

    fn tables(&self) -> Vec<TableSpec> {
        let table = |name| TableSpec {
            name,
            shape: Shape::Arranged,
        };
        let mut tables = vec![table("left rows"), table("right rows")];
        if self.is_counted() {
            if self.kind != JoinKind::Right {
                tables.push(table("left partners"));
            }
            if matches!(self.kind, JoinKind::Right | JoinKind::Full) {
                tables.push(table("right partners"));
            }
        }
        tables
    }

    fn build(&self, inputs: &[SchemaRef]) -> Result<Box<dyn Operator>> {
        Ok(match self.kind {
            JoinKind::NullAwareAnti if self.residual.is_some() => {
                return Err(Error::unsupported(
                    "NOT IN with a further condition in a maintained view is not supported",
                )
                .with_hint("Use NOT EXISTS."));
            }
            JoinKind::NullAwareAnti => Box::new(not_in::Running::new(self, inputs)?),
            _ if self.is_counted() => Box::new(counted::Running::new(self, inputs)?),
            JoinKind::LeftSemi | JoinKind::LeftAnti => Box::new(membership::Running::new(self, inputs)?),
            _ => Box::new(pairs::Running::new(self, inputs)?),
        })
    }
}

impl Join {
    /// Whether the number of each row's partners is kept.
    fn is_counted(&self) -> bool {
        self.residual.is_some() && !matches!(self.kind, JoinKind::Inner | JoinKind::NullAwareAnti)
    }
}

#[cfg(test)]
mod tests;
