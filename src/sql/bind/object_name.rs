//! Objects shown by name: `regclass` and its like are numbers in a plan, and names to whoever reads them.
//!
//! Two places show a value: a cast to text, and the result itself. In both the number goes through the type's output
//! function (`regclassout`, ...), which the [`SystemRelations`] have. A result's column then is text: a client can
//! read it in either format. The other way, `'name'::regclass` is a call of `regclass`, put in by `desugar`.

use super::SystemRelations;
use crate::sql::function::cast::{CastTo, is_text};
use crate::types::Type;
use datafusion::common::Result as DataFusionResult;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

/// The types whose values are shown as names.
pub(super) const NAMED: &[&str] = &["regclass", "regtype", "regproc", "regnamespace", "regrole"];

/// The name of a type whose values are shown as names.
fn named(kind: &Type) -> Option<&str> {
    match kind {
        Type::Oid(name) if NAMED.contains(&name.as_str()) => Some(name),
        _ => None,
    }
}

/// Puts the output functions into casts.
pub(super) fn show_casts(plan: LogicalPlan, system: &dyn SystemRelations) -> DataFusionResult<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let preserver = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = preserver.save(&expr);
            let shown = expr.transform_up(|expr| Ok(cast_shown(expr, system)))?;
            Ok(shown.update_data(|expr| name.restore(expr)))
        })
    })
    .map(|transformed| transformed.data)
}

/// Puts in the output functions.
pub(super) fn show(plan: LogicalPlan, system: &dyn SystemRelations) -> DataFusionResult<LogicalPlan> {
    let plan = show_casts(plan, system)?;
    let shown: Vec<Option<Expr>> = plan
        .schema()
        .iter()
        .map(|(qualifier, field)| {
            let kind = Type::of_field(field);
            let column = Expr::from((qualifier, field));
            let out = output(named(&kind)?, column, system)?;
            Some(out.alias_qualified(qualifier.cloned(), field.name()))
        })
        .collect();
    if shown.iter().all(Option::is_none) {
        return Ok(plan);
    }
    let columns: Vec<Expr> = plan
        .schema()
        .iter()
        .zip(shown)
        .map(|(column, shown)| shown.unwrap_or_else(|| Expr::from(column)))
        .collect();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

fn output(name: &str, argument: Expr, system: &dyn SystemRelations) -> Option<Expr> {
    let function = system.scalar_function(&format!("{name}out"))?;
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![argument])))
}

/// A cast of a named object to text, through its output function.
fn cast_shown(expr: Expr, system: &dyn SystemRelations) -> Transformed<Expr> {
    if let Expr::ScalarFunction(function) = &expr
        && let Some(cast) = function.func.inner().downcast_ref::<CastTo>()
        && is_text(&cast.target)
        && let Some(name) = named(&cast.source)
        && let [argument] = function.args.as_slice()
        && let Some(shown) = output(name, argument.clone(), system)
    {
        return Transformed::yes(shown);
    }
    Transformed::no(expr)
}
