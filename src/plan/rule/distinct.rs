//! Distinct of distinct: rows that are never there twice are distinct already.

use crate::error::Result;
use crate::expr::Expression;
use crate::operator::map::{MapFilter, OnError};
use crate::plan::{Node, NodeId, Plan, property};

/// Replaces every such distinct by a map that picks its keys.
pub(super) fn apply(plan: &Plan, root: NodeId) -> Result<Option<(Plan, NodeId)>> {
    let known = property::all(plan);
    let made = plan.rebuild(root, |new, id, inputs| {
        let node = plan.node(id);
        if let Node::Aggregate(aggregate) = node
            && aggregate.calls.is_empty()
            && known[plan.inputs(id)[0].0].identifies(&aggregate.keys)
        {
            let schema = new.schema(inputs[0]).clone();
            let pick = |key: &usize| Expression::column(*key, schema.field(*key));
            let map = MapFilter {
                predicate: None,
                projection: aggregate.keys.iter().map(pick).collect(),
                on_error: OnError::default(),
            };
            if map.is_identity(new.width(inputs[0])) {
                return Ok(inputs[0]);
            }
            return new.add(Node::MapFilter(map), inputs);
        }
        new.add(node.clone(), inputs)
    })?;
    Ok(Some(made))
}
