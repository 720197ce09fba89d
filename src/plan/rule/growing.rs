//! Least and greatest so far: where rows are only ever added, `min` and `max` need no other value than their result, and
//! the first n rows no other row.

use crate::error::Result;
use crate::operator::aggregate::Function;
use crate::operator::top::{Ranking, Rest};
use crate::plan::{Node, NodeId, Plan, property};

/// Replaces `min`, `max` and the first rows over input that only grows.
pub(super) fn apply(plan: &Plan, root: NodeId) -> Result<Option<(Plan, NodeId)>> {
    let known = property::all(plan);
    let made = plan.rebuild(root, |new, id, inputs| {
        let mut node = plan.node(id).clone();
        if let Node::Aggregate(aggregate) = &mut node
            && known[plan.inputs(id)[0].0].is_append_only()
        {
            for call in &mut aggregate.calls {
                call.function = match call.function {
                    Function::Min => Function::LeastSoFar,
                    Function::Max => Function::GreatestSoFar,
                    other => other,
                };
            }
        }
        if let Node::Top(top) = &mut node
            && known[plan.inputs(id)[0].0].is_append_only()
            && top.ranking == Ranking::RowNumber
            && top.limit.is_some()
        {
            top.rest = Rest::Forgotten;
        }
        new.add(node, inputs)
    })?;
    Ok(Some(made))
}
