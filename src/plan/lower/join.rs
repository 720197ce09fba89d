//! Joins of every kind.

use super::Lowering;
use crate::error::{Error, Result};
use crate::expr::Expression;
use crate::operator::join::{Join, JoinKind, NullEquality};
use crate::operator::union::Union;
use crate::plan::{Node, NodeId};
use datafusion::common::{JoinType, NullEquality as LogicalNullEquality, ScalarValue};
use datafusion::logical_expr;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Expr, Operator};

impl Lowering {
    pub(super) fn join(&mut self, join: &logical_expr::Join) -> Result<NodeId> {
        let kind = match join.join_type {
            JoinType::Inner => JoinKind::Inner,
            JoinType::Left => JoinKind::Left,
            JoinType::Right => JoinKind::Right,
            JoinType::Full => JoinKind::Full,
            JoinType::LeftSemi => JoinKind::LeftSemi,
            JoinType::LeftAnti if join.null_aware => JoinKind::NullAwareAnti,
            JoinType::LeftAnti => JoinKind::LeftAnti,
            JoinType::RightSemi => return self.swapped(join, JoinType::LeftSemi),
            JoinType::RightAnti => return self.swapped(join, JoinType::LeftAnti),
            JoinType::LeftMark => return self.mark(join),
            JoinType::RightMark => return self.swapped(join, JoinType::LeftMark),
        };
        self.join_as(join, kind)
    }

    /// The same join with its sides exchanged; only for kinds whose output is one side.
    fn swapped(&mut self, join: &logical_expr::Join, join_type: JoinType) -> Result<NodeId> {
        let turned = logical_expr::Join {
            left: join.right.clone(),
            right: join.left.clone(),
            on: join
                .on
                .iter()
                .map(|(left, right)| (right.clone(), left.clone()))
                .collect(),
            join_type,
            ..join.clone()
        };
        self.join(&turned)
    }

    /// Each left row with whether it has a partner: the semi join's rows with true and the anti join's with false.
    fn mark(&mut self, join: &logical_expr::Join) -> Result<NodeId> {
        let mut parts = Vec::new();
        for (kind, mark) in [(JoinKind::LeftSemi, true), (JoinKind::LeftAnti, false)] {
            let side = self.join_as(join, kind)?;
            let mut columns = self.columns(side);
            let literal = Expr::Literal(ScalarValue::Boolean(Some(mark)), None);
            columns.push(Expression::bind(&literal, &datafusion::common::DFSchema::empty())?);
            parts.push(self.map(side, None, columns)?);
        }
        self.add(Node::Union(Union), parts)
    }

    fn join_as(&mut self, join: &logical_expr::Join, kind: JoinKind) -> Result<NodeId> {
        let left = self.node(&join.left)?;
        let right = self.node(&join.right)?;
        let left_width = self.plan.schema(left).fields().len();
        let right_width = self.plan.schema(right).fields().len();
        let mut left_keys = Vec::new();
        let mut right_keys = Vec::new();
        let (pairs, filter) = if kind == JoinKind::NullAwareAnti {
            not_in(join)?
        } else {
            (join.on.clone(), join.filter.clone())
        };
        for (left_key, right_key) in &pairs {
            let left_key = self.bind(left_key, join.left.schema())?;
            let right_key = self.bind(right_key, join.right.schema())?;
            let (left_key, right_key) = alike(left_key, right_key)?;
            left_keys.push(left_key);
            right_keys.push(right_key);
        }
        let (left, left_places) = self.with_columns(left, left_keys)?;
        let (right, right_places) = self.with_columns(right, right_keys)?;
        let left_extended = self.plan.schema(left).fields().len();
        let residual = filter
            .as_ref()
            .map(|filter| {
                let both = join
                    .left
                    .schema()
                    .join(join.right.schema())
                    .map_err(crate::expr::from_datafusion)?;
                let bound = self.bind(filter, &both)?;
                Ok::<_, Error>(bound.remap(|index| {
                    if index < left_width {
                        index
                    } else {
                        index - left_width + left_extended
                    }
                }))
            })
            .transpose()?;
        let null_equality = match join.null_equality {
            LogicalNullEquality::NullEqualsNothing => NullEquality::NullsDiffer,
            LogicalNullEquality::NullEqualsNull => NullEquality::NullsMatch,
        };
        let on = left_places.into_iter().zip(right_places).collect();
        let spec = Join {
            kind,
            on,
            null_equality,
            residual,
        };
        let node = self.add(Node::Join(spec), vec![left, right])?;
        // What was added for the keys goes again.
        let columns = self.columns(node);
        let kept: Vec<Expression> = match kind {
            JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::NullAwareAnti => columns[..left_width].to_vec(),
            _ => {
                let right_columns = &columns[left_extended..left_extended + right_width];
                columns[..left_width].iter().chain(right_columns).cloned().collect()
            }
        };
        self.map(node, None, kept)
    }
}

/// Two expressions that must be equal, of the left and of the right side.
type Pair = (Expr, Expr);

/// The pairs of `x NOT IN (subquery)`, x and what it is looked for in first, and what else must hold.
///
/// DataFusion makes pairs of equalities between columns of both sides only: an x without a column is left in the
/// filter. No other equality there has a side without a column, since a subquery's own filters stay in it.
fn not_in(join: &logical_expr::Join) -> Result<(Vec<Pair>, Option<Expr>)> {
    let mut pairs = join.on.clone();
    let mut rest = Vec::new();
    let mut constant = None;
    for part in join.filter.iter().flat_map(|filter| split_conjunction(filter)) {
        match part {
            Expr::BinaryExpr(binary) if binary.op == Operator::Eq && constant.is_none() => {
                let (left, right) = (binary.left.as_ref(), binary.right.as_ref());
                if left.column_refs().is_empty() {
                    constant = Some((left.clone(), right.clone()));
                } else if right.column_refs().is_empty() {
                    constant = Some((right.clone(), left.clone()));
                } else {
                    rest.push(part.clone());
                }
            }
            _ => rest.push(part.clone()),
        }
    }
    if let Some(pair) = constant {
        pairs.insert(0, pair);
    } else if pairs.is_empty() {
        return Err(
            Error::unsupported("this form of NOT IN is not supported in a maintained view")
                .with_hint("Use NOT EXISTS."),
        );
    }
    Ok((pairs, conjunction(rest)))
}

/// Keys of one type: equal values must encode alike.
fn alike(left: Expression, right: Expression) -> Result<(Expression, Expression)> {
    let (left_type, right_type) = (left.field().data_type().clone(), right.field().data_type().clone());
    if left_type == right_type {
        return Ok((left, right));
    }
    let common = datafusion::logical_expr::type_coercion::binary::comparison_coercion(&left_type, &right_type)
        .ok_or_else(|| {
            Error::semantic(
                "42883",
                format!("operator does not exist: {} = {}", left.kind(), right.kind()),
            )
        })?;
    let field = arrow::datatypes::Field::new("", common, true);
    Ok((left.cast(&field), right.cast(&field)))
}
