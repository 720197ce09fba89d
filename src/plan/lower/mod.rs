//! From a logical plan to the DAG of operators.
//!
//! One file per relational family. The columns of a lowered node stand in the order of the logical plan's schema, so
//! names are gone from here on: expressions are bound by position, aliases leave no trace, and a sub-plan that occurs
//! twice is one node.

mod aggregate;
mod clock;
mod join;
mod lateness;
mod map;
mod over;
mod scan;
mod set;
mod subquery;
mod top;
mod unnest;
mod window_clause;

#[cfg(test)]
mod tests;

pub use clock::Zone;

use super::{Node, NodeId, Plan};
use crate::error::{Error, Result};
use crate::expr::Expression;
use crate::operator::map::OnError;
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Distinct, LogicalPlan};

/// What decides how a plan is lowered beside the plan.
#[derive(Debug, Clone, Copy, Default)]
pub struct LowerOptions {
    /// What becomes of a row whose expression fails.
    pub on_error: OnError,
    /// The view's time zone.
    pub zone: Zone,
}

/// A lowered plan.
#[derive(Debug, Clone)]
pub struct Lowered {
    /// The DAG.
    pub plan: Plan,
    /// The node that gives the result.
    pub root: NodeId,
}

/// Lowers an optimised logical plan. What cannot be maintained is refused (`0A000`).
pub fn lower(plan: &LogicalPlan, options: &LowerOptions) -> Result<Lowered> {
    let mut lowering = Lowering {
        plan: Plan::new(),
        options: *options,
    };
    let root = lowering.node(plan)?;
    let (plan, root) = lowering.plan.compact(root)?;
    Ok(Lowered { plan, root })
}

/// The DAG in the making.
struct Lowering {
    plan: Plan,
    options: LowerOptions,
}

impl Lowering {
    /// The node that gives what a logical plan gives, column for column.
    fn node(&mut self, plan: &LogicalPlan) -> Result<NodeId> {
        let node = match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan)?,
            LogicalPlan::EmptyRelation(empty) => self.empty(empty)?,
            LogicalPlan::Values(values) => self.values(values)?,
            LogicalPlan::Projection(projection) => self.projection(projection)?,
            LogicalPlan::Filter(filter) => self.filter(filter)?,
            LogicalPlan::SubqueryAlias(alias) => self.node(&alias.input)?,
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate)?,
            LogicalPlan::Distinct(Distinct::All(input)) => self.distinct(input)?,
            LogicalPlan::Distinct(Distinct::On(on)) => self.distinct_on(on)?,
            LogicalPlan::Join(join) => self.join(join)?,
            LogicalPlan::Union(union) => self.union(union)?,
            LogicalPlan::Window(window) => self.window(window)?,
            // A view has no order of its own; under LIMIT the sort is part of the limit.
            LogicalPlan::Sort(sort) => match sort.fetch {
                None => self.node(&sort.input)?,
                Some(fetch) => self.limit(plan, 0, Some(fetch as u64))?,
            },
            LogicalPlan::Limit(limit) => {
                let (skip, fetch) = top::bounds(limit)?;
                self.limit(&limit.input, skip, fetch)?
            }
            LogicalPlan::Repartition(repartition) => self.node(&repartition.input)?,
            LogicalPlan::Unnest(unnest) => self.unnest(unnest)?,
            LogicalPlan::Extension(_) => self.extension(plan)?,
            LogicalPlan::RecursiveQuery(_) => {
                return Err(
                    Error::unsupported("WITH RECURSIVE is not supported in a maintained view")
                        .with_hint("Run the recursive query as a plain SELECT."),
                );
            }
            other => {
                let what = other.display().to_string();
                let what = what.split(':').next().unwrap_or("this").to_owned();
                return Err(
                    Error::unsupported(format!("{what} is not supported in a maintained view"))
                        .with_hint("Run it as a plain SELECT."),
                );
            }
        };
        self.conform(node, plan.schema())
    }

    /// Gives a node's columns the types of the logical schema where an operator's differ.
    fn conform(&mut self, node: NodeId, schema: &DFSchema) -> Result<NodeId> {
        let own = self.plan.schema(node).clone();
        if own.fields().len() != schema.fields().len() {
            return Err(Error::internal(format!(
                "an operator gives {} columns where {} are expected",
                own.fields().len(),
                schema.fields().len()
            )));
        }
        let differs = own
            .fields()
            .iter()
            .zip(schema.fields())
            .any(|(own, wanted)| own.data_type() != wanted.data_type());
        if !differs {
            return Ok(node);
        }
        let projection = own
            .fields()
            .iter()
            .zip(schema.fields())
            .enumerate()
            .map(|(index, (own, wanted))| {
                let column = Expression::column(index, own);
                if own.data_type() == wanted.data_type() {
                    column
                } else {
                    column.cast(wanted)
                }
            })
            .collect();
        self.map(node, None, projection)
    }

    /// The node's columns, as expressions.
    fn columns(&self, node: NodeId) -> Vec<Expression> {
        self.plan
            .schema(node)
            .fields()
            .iter()
            .enumerate()
            .map(|(index, field)| Expression::column(index, field))
            .collect()
    }

    fn add(&mut self, node: Node, inputs: Vec<NodeId>) -> Result<NodeId> {
        self.plan.add(node, inputs)
    }
}
