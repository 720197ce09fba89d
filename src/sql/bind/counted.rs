//! IN and EXISTS where they are values: in an OR, a CASE, a SELECT's list.
//!
//! DataFusion makes joins of those that are whole conditions of a WHERE. Anywhere else it knows only "there is a
//! partner" and "there is none", which is wrong for an IN that is NULL, and in a SELECT's list it knows nothing. Here
//! they become counts, scalar subqueries that it does make joins of:
//!
//! ```text
//! EXISTS (S)             (SELECT count(*) FROM S) > 0
//! x IN (SELECT y ...)    CASE WHEN (SELECT count(*) ... WHERE y = x) > 0 THEN true
//!                             WHEN x IS NULL AND (SELECT count(*) ...) > 0 THEN NULL
//!                             WHEN (SELECT count(*) ... WHERE y IS NULL) > 0 THEN NULL
//!                             ELSE false END
//! ```
//!
//! A NOT IN that looks at the row besides, or looks for a constant, goes the same way: the join that DataFusion has for
//! it takes one pair of columns and nothing else.

use super::expression::type_of;
use crate::sql::function::special;
use crate::types::Type;
use datafusion::common::ExprSchema as _;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Case, Expr, Filter, LogicalPlan, LogicalPlanBuilder, Subquery, lit, not};
use std::sync::Arc;

/// The plan with counts in place of such subqueries.
pub(super) fn count_where_values(plan: LogicalPlan) -> Result<LogicalPlan> {
    let counted = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Filter(filter) => in_filter(filter),
        LogicalPlan::Projection(projection) => in_list(LogicalPlan::Projection(projection)),
        other => Ok(Transformed::no(other)),
    })?;
    if !counted.transformed {
        return Ok(counted.data);
    }
    // A count is never NULL, where what it replaces may have been.
    let plan = counted
        .data
        .transform_up_with_subqueries(|node| node.recompute_schema().map(Transformed::yes))?;
    Ok(plan.data)
}

/// A SELECT's list: every one is a value.
fn in_list(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let Some(schema) = plan.inputs().first().map(|input| input.schema().as_ref().clone()) else {
        return Ok(Transformed::no(plan));
    };
    let preserver = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = preserver.save(&expr);
        Ok(values(expr, &schema, Existence::Counted)?.update_data(|expr| name.restore(expr)))
    })
}

/// A WHERE: conditions that DataFusion makes joins of stay.
fn in_filter(filter: Filter) -> Result<Transformed<LogicalPlan>> {
    let schema = filter.input.schema().as_ref().clone();
    let mut changed = false;
    let mut parts = Vec::new();
    for part in split_conjunction_owned(filter.predicate.clone()) {
        if is_joined(&part) {
            parts.push(part);
            continue;
        }
        let part = values(part, &schema, Existence::Marked)?;
        changed |= part.transformed;
        parts.push(part.data);
    }
    match conjunction(parts) {
        Some(predicate) if changed => Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(
            predicate,
            filter.input,
        )?))),
        _ => Ok(Transformed::no(LogicalPlan::Filter(filter))),
    }
}

/// Whether DataFusion makes the right join of a condition.
fn is_joined(part: &Expr) -> bool {
    let (inner, turned) = match part {
        Expr::Not(inner) => (inner.as_ref(), true),
        other => (other, false),
    };
    match inner {
        Expr::Exists(_) => true,
        Expr::InSubquery(InSubquery {
            expr,
            subquery,
            negated,
        }) => {
            // x IN (...) is as good as false where it is NULL.
            *negated == turned || (subquery.outer_ref_columns.is_empty() && !expr.column_refs().is_empty())
        }
        _ => false,
    }
}

/// What becomes of an EXISTS that is a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Existence {
    /// It becomes a count.
    Counted,
    /// DataFusion's join that marks rows with a partner is right for it: it is never NULL.
    Marked,
}

fn values(expr: Expr, schema: &DFSchema, existence: Existence) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| match expr {
        Expr::Exists(Exists { subquery, negated }) if existence == Existence::Counted => {
            let rows = counted(&subquery.subquery, None)?;
            Ok(Transformed::yes(if negated {
                rows.eq(lit(0_i64))
            } else {
                rows.gt(lit(0_i64))
            }))
        }
        Expr::InSubquery(contained) if !has_subquery(&contained.expr)? => {
            let negated = contained.negated;
            let value = contained_value(contained, schema)?;
            Ok(Transformed::yes(if negated { not(value) } else { value }))
        }
        other => Ok(Transformed::no(other)),
    })
}

fn has_subquery(expr: &Expr) -> Result<bool> {
    expr.exists(|node| {
        Ok(matches!(
            node,
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_)
        ))
    })
}

fn contained_value(contained: InSubquery, schema: &DFSchema) -> Result<Expr> {
    let InSubquery {
        expr: sought, subquery, ..
    } = contained;
    let (mut plan, mut looked_for) = (subquery.subquery.as_ref().clone(), (*sought).clone());
    if matches!(type_of(&sought, schema)?, Type::Float4 | Type::Float8) {
        let value = special::float_key(first_column(&plan)).alias("value");
        plan = LogicalPlanBuilder::from(plan).project([value])?.build()?;
        looked_for = special::float_key(looked_for);
    }
    let value = first_column(&plan);
    let same = value.clone().eq(outer(looked_for, schema)?);
    let some = |rows: Expr| Box::new(rows.gt(lit(0_i64)));
    let null = || Box::new(Expr::Literal(ScalarValue::Boolean(None), None));
    Ok(Expr::Case(Case::new(
        None,
        vec![
            (some(counted(&plan, Some(same))?), Box::new(lit(true))),
            (Box::new(sought.is_null().and(*some(counted(&plan, None)?))), null()),
            (some(counted(&plan, Some(value.is_null()))?), null()),
        ],
        Some(Box::new(lit(false))),
    )))
}

fn first_column(plan: &LogicalPlan) -> Expr {
    let (table, field) = plan.schema().qualified_field(0);
    Expr::Column(Column::new(table.cloned(), field.name()))
}

/// An expression over the rows around a subquery, as it reads inside.
fn outer(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    Ok(expr
        .transform_up(|node| match node {
            Expr::Column(column) => {
                let field = schema.field_from_column(&column)?.clone();
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
            }
            other => Ok(Transformed::no(other)),
        })?
        .data)
}

/// `(SELECT count(*) FROM plan WHERE condition)`
fn counted(plan: &LogicalPlan, condition: Option<Expr>) -> Result<Expr> {
    let mut builder = LogicalPlanBuilder::from(plan.clone());
    if let Some(condition) = condition {
        builder = builder.filter(condition)?;
    }
    let plan = builder.aggregate(Vec::<Expr>::new(), [count(lit(1_i64))])?.build()?;
    let mut outer_ref_columns = Vec::new();
    plan.apply_with_subqueries(|node| {
        for expr in node.all_out_ref_exprs() {
            if !outer_ref_columns.contains(&expr) {
                outer_ref_columns.push(expr);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(Expr::ScalarSubquery(Subquery {
        subquery: Arc::new(plan),
        outer_ref_columns,
        spans: Default::default(),
    }))
}
