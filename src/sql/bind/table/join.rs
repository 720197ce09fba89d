//! Joins of ours: ASOF, and with a table as it is at the time of the row.

use super::{Relations, fold_name, literal_text, refuse};
use crate::error::Error;
use crate::sql::bind::analyse;
use crate::sql::bind::desugar::argument_expression;
use crate::sql::bind::node::{self, AsOfJoin, TemporalTable, Unmatched};
use crate::sql::error::external;
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlannerContext};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};
use sqlparser::ast::{self, JoinConstraint, JoinOperator, TableFactor, TableWithJoins};
use std::sync::Arc;

impl Relations {
    /// `t FOR SYSTEM_TIME AS OF now()`.
    pub(super) fn temporal(
        &self,
        relation: &TableFactor,
        version: &ast::TableVersion,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<Option<PlannedRelation>> {
        let ast::TableVersion::ForSystemTimeAsOf(instant) = version else {
            return refuse(Error::unsupported(
                "this way to name a version of a table is not supported",
            ));
        };
        let is_now = matches!(instant, ast::Expr::Function(function) if fold_name(&function.name) == "now");
        if !is_now {
            return refuse(
                Error::unsupported("FOR SYSTEM_TIME AS OF anything but now() is not supported")
                    .with_hint("Past versions of a table are not kept."),
            );
        }
        let mut plain = relation.clone();
        let mut outer = None;
        if let TableFactor::Table { version, alias, .. } = &mut plain {
            *version = None;
            outer = alias.take();
        }
        let input = context.plan(plain)?;
        Ok(Some(PlannedRelation::new(node::plan(TemporalTable { input }), outer)))
    }

    /// A nested join whose one join is ours.
    pub(super) fn nested(
        &self,
        table: &TableWithJoins,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<Option<LogicalPlan>> {
        let [join] = table.joins.as_slice() else {
            return Ok(None);
        };
        match &join.join_operator {
            JoinOperator::AsOf {
                match_condition,
                constraint,
            } => {
                let left = context.plan(table.relation.clone())?;
                let right = context.plan(join.relation.clone())?;
                self.asof(left, right, match_condition, constraint, context).map(Some)
            }
            JoinOperator::CrossApply => {
                let left = context.plan(table.relation.clone())?;
                let (name, args, alias, ordinality) = match &join.relation {
                    TableFactor::UNNEST {
                        array_exprs,
                        alias,
                        with_ordinality,
                        ..
                    } => (
                        "unnest".to_owned(),
                        array_exprs.iter().collect::<Vec<_>>(),
                        alias,
                        *with_ordinality,
                    ),
                    TableFactor::Table {
                        name,
                        args: Some(args),
                        alias,
                        with_ordinality,
                        ..
                    } => (
                        fold_name(name),
                        args.args.iter().filter_map(argument_expression).collect(),
                        alias,
                        *with_ordinality,
                    ),
                    TableFactor::Function {
                        name,
                        args,
                        alias,
                        with_ordinality,
                        ..
                    } => (
                        fold_name(name),
                        args.iter().filter_map(argument_expression).collect(),
                        alias,
                        *with_ordinality,
                    ),
                    _ => return Ok(None),
                };
                let planned = self.set(&name, &args, alias, ordinality, Some(left), context)?;
                Ok(Some(planned.plan))
            }
            _ => Ok(None),
        }
    }

    fn asof(
        &self,
        left: LogicalPlan,
        right: LogicalPlan,
        kind: &ast::Expr,
        constraint: &JoinConstraint,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<LogicalPlan> {
        let unmatched = match literal_text(kind) {
            Some("inner") => Unmatched::Dropped,
            Some("left") => Unmatched::Padded,
            _ => return refuse(Error::unsupported("ASOF RIGHT and FULL JOIN are not supported")),
        };
        let JoinConstraint::On(condition) = constraint else {
            return refuse(Error::syntax("ASOF JOIN needs ON"));
        };
        let schema = left.schema().join(right.schema())?;
        let condition = context.sql_to_expr(condition.clone(), &schema)?;
        let condition = analyse::expression(condition, &schema, &self.zone).map_err(external)?;
        let mut on = Vec::new();
        let mut order = None;
        for term in split_conjunction(&condition) {
            let Some((a, operator, b)) = sides(term, left.schema(), right.schema()) else {
                return refuse(asof_condition());
            };
            match operator {
                Operator::Eq => on.push((a, b)),
                Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq if order.is_none() => {
                    order = Some((a, operator, b));
                }
                _ => return refuse(asof_condition()),
            }
        }
        let Some((left_order, operator, right_order)) = order else {
            return refuse(asof_condition());
        };
        let padded = unmatched == Unmatched::Padded;
        let fields = left
            .schema()
            .iter()
            .map(|(qualifier, field)| (qualifier.cloned(), field.clone()))
            .chain(right.schema().iter().map(|(qualifier, field)| {
                let nullable = field.is_nullable() || padded;
                (
                    qualifier.cloned(),
                    Arc::new(field.as_ref().clone().with_nullable(nullable)),
                )
            }))
            .collect();
        let schema = Arc::new(DFSchema::new_with_metadata(fields, Default::default())?);
        Ok(node::plan(AsOfJoin {
            left,
            right,
            on,
            left_order,
            operator,
            right_order,
            unmatched,
            schema,
        }))
    }
}

pub(super) fn asof_condition() -> Error {
    Error::unsupported("this condition of an ASOF JOIN is not supported")
        .with_hint("It is equalities and one of >=, >, <=, < between the two sides, joined by AND.")
}

/// A comparison with the left side's expression on its left.
pub(super) fn sides(term: &Expr, left: &DFSchema, right: &DFSchema) -> Option<(Expr, Operator, Expr)> {
    let Expr::BinaryExpr(BinaryExpr { left: a, op, right: b }) = term else {
        return None;
    };
    let of = |expr: &Expr, schema: &DFSchema| {
        let columns = expr.column_refs();
        !columns.is_empty() && columns.iter().all(|column| schema.has_column(column))
    };
    if of(a, left) && of(b, right) {
        return Some(((**a).clone(), *op, (**b).clone()));
    }
    if of(b, left) && of(a, right) {
        return Some(((**b).clone(), op.swap()?, (**a).clone()));
    }
    None
}
