//! VALUES: rows of expressions whose columns get PostgreSQL's common types.
//!
//! DataFusion types the cells of a column by its own rules and refuses a literal beside a date. So VALUES becomes a
//! call in FROM ([`ROWS`], a row per argument) which is planned here, where the types of all cells are known.

use super::desugar::{argument_expression, bare_query, row_parts, select_all_from};
use super::expression::{type_of, value_type};
use super::schema_of;
use crate::error::{Error, Result};
use crate::sql::error::{external, from_datafusion};
use crate::sql::function::cast::{Context, cast_expression};
use crate::types::Type;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Values};
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, Ident, ObjectName, SetExpr, TableFactor};
use std::sync::Arc;

/// The function that VALUES becomes.
pub(super) const ROWS: &str = "__rows";

/// VALUES as a call in FROM, also on the sides of a set operation.
pub(super) fn calls_of_values(body: &mut SetExpr) {
    match body {
        SetExpr::SetOperation { left, right, .. } => {
            calls_of_values(left);
            calls_of_values(right);
        }
        SetExpr::Values(values) => {
            let rows = std::mem::take(&mut values.rows)
                .into_iter()
                .map(|row| FunctionArg::Unnamed(FunctionArgExpr::Expr(ast::Expr::Tuple(row.content))))
                .collect();
            *body = select_all_from(TableFactor::Function {
                lateral: false,
                name: ObjectName::from(vec![Ident::new(ROWS)]),
                args: rows,
                with_ordinality: false,
                alias: None,
            });
        }
        _ => {}
    }
}

/// A query over such a call, as a set operation takes it.
pub(super) fn query_of(body: &SetExpr) -> ast::Query {
    match body {
        SetExpr::Query(query) => (**query).clone(),
        other => bare_query(other.clone()),
    }
}

/// The rows that a call of [`ROWS`] stands for.
pub(super) fn plan(
    args: &[FunctionArg],
    zone: &str,
    context: &mut dyn RelationPlannerContext,
) -> DataFusionResult<LogicalPlan> {
    let empty = DFSchema::empty();
    let mut rows: Vec<Vec<(Expr, Type)>> = Vec::with_capacity(args.len());
    for arg in args {
        let cells = argument_expression(arg).and_then(row_parts).unwrap_or_default();
        let mut row = Vec::with_capacity(cells.len());
        for cell in cells {
            let expr = context.sql_to_expr(cell, &empty)?;
            let kind = type_of(&expr, &empty)?;
            row.push((expr, kind));
        }
        if rows.first().is_some_and(|first| first.len() != row.len()) {
            return Err(external(Error::syntax("VALUES lists must all be the same length")));
        }
        rows.push(row);
    }
    let mut columns = Vec::new();
    for index in 0..rows.first().map_or(0, Vec::len) {
        let cells: Vec<(&Expr, &Type)> = rows.iter().map(|row| (&row[index].0, &row[index].1)).collect();
        let kind = value_type("VALUES", &cells).map_err(external)?;
        columns.push((format!("column{}", index + 1), kind));
    }
    let values = rows
        .into_iter()
        .map(|row| {
            row.into_iter()
                .zip(&columns)
                .map(|((expr, kind), (_, target))| cast_expression(expr, &kind, target, Context::Implicit, zone))
                .collect::<Result<Vec<_>>>()
        })
        .collect::<Result<Vec<_>>>()
        .map_err(external)?;
    rows_plan(values, &columns).map_err(external)
}

fn has_subquery(expr: &Expr) -> bool {
    expr.exists(|expr| {
        Ok(matches!(
            expr,
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::OuterReferenceColumn(..)
        ))
    })
    .unwrap_or(true)
}

/// Rows of expressions as a plan.
pub(super) fn rows_plan(values: Vec<Vec<Expr>>, columns: &[(String, Type)]) -> Result<LogicalPlan> {
    if columns.is_empty() {
        return LogicalPlanBuilder::empty(true).build().map_err(from_datafusion);
    }
    if !values.iter().flatten().any(has_subquery) {
        let schema = Arc::new(schema_of(columns, None)?);
        return Ok(LogicalPlan::Values(Values { schema, values }));
    }
    let mut rows = Vec::with_capacity(values.len());
    for row in values {
        let exprs = row.into_iter().zip(columns).map(|(expr, (name, _))| expr.alias(name));
        let plan = LogicalPlanBuilder::empty(true)
            .project(exprs)
            .and_then(LogicalPlanBuilder::build)
            .map_err(from_datafusion)?;
        rows.push(plan);
    }
    let mut rows = rows.into_iter();
    let first = rows.next().ok_or_else(|| Error::internal("VALUES without a row"))?;
    rows.try_fold(first, |all, row| {
        LogicalPlanBuilder::from(all)
            .union(row)
            .and_then(LogicalPlanBuilder::build)
            .map_err(from_datafusion)
    })
}
