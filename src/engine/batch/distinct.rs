//! DISTINCT for the batch side.

use crate::error::Result;
use crate::sql::error::from_datafusion;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{Distinct, Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, col, lit};

/// The plan with DISTINCT as grouping, and DISTINCT ON as the first row of each group. DataFusion's own rule takes each column's
/// first value by itself, which mixes rows that the order does not tell apart.
pub(super) fn without_distinct(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let on = match node {
            LogicalPlan::Distinct(Distinct::On(on)) => on,
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
                let groups = LogicalPlanBuilder::from(input).aggregate(columns, Vec::<Expr>::new())?;
                return Ok(Transformed::yes(groups.build()?));
            }
            other => return Ok(Transformed::no(other)),
        };
        let number = row_number()
            .partition_by(on.on_expr.clone())
            .order_by(on.sort_expr.clone().unwrap_or_default())
            .build()?
            .alias("__first");
        let plan = LogicalPlanBuilder::from(on.input.as_ref().clone())
            .window(vec![number])?
            .filter(col("__first").eq(lit(1_u64)))?
            .project(on.select_expr.clone())?
            .build()?;
        Ok(Transformed::yes(plan))
    })
    .data()
    .map_err(from_datafusion)
}
