//! Fuse maps: g(f(x)) in one step.
//!
//! Two steps become one only where the rows that fail, and so what is listed of them, stay the same:
//!
//! - an inner expression that can fail stays if it is put out as it is, and nothing is filtered after it;
//! - an outer predicate that can fail must not see rows that an inner one would have dropped.
//!
//! And only where nothing is computed twice: an inner expression that is more than a column or a constant is put into
//! one place at most, and a map with several users stays by itself unless it only picks columns.

use super::users;
use crate::error::Result;
use crate::expr::Expression;
use crate::operator::aggregate::Aggregate;
use crate::operator::map::MapFilter;
use crate::plan::{Node, NodeId, Plan};

/// Fuses all that can be.
pub(super) fn apply(plan: &Plan, root: NodeId) -> Result<Option<(Plan, NodeId)>> {
    let users = users(plan, root);
    let made = plan.rebuild(root, |new, id, inputs| {
        let node = plan.node(id);
        let map = match node {
            Node::MapFilter(map) => map,
            Node::Aggregate(aggregate) => return add_aggregate(new, aggregate, inputs[0]),
            _ => return new.add(node.clone(), inputs),
        };
        add_map(new, map.clone(), inputs[0], Users::of(users[plan.inputs(id)[0].0]))
    })?;
    Ok(Some(made))
}

/// Whether a node has other users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Users {
    One,
    Several,
}

impl Users {
    fn of(count: usize) -> Self {
        if count > 1 { Self::Several } else { Self::One }
    }
}

/// Adds a map over a node, fused with it if that is one too.
fn add_map(new: &mut Plan, map: MapFilter, input: NodeId, inner_users: Users) -> Result<NodeId> {
    if map.is_identity(new.width(input)) {
        return Ok(input);
    }
    if let Node::MapFilter(inner) = new.node(input) {
        let inner = inner.clone();
        if inner_users == Users::One || inner.only_picks() {
            let below = new.inputs(input)[0];
            if let Some(fused) = fuse(&map, &inner) {
                // Whoever else uses what is below was not counted.
                return add_map(new, fused, below, Users::Several);
            }
        }
    }
    new.add(Node::MapFilter(map), vec![input])
}

/// Adds an aggregate, which can pick its columns itself.
fn add_aggregate(new: &mut Plan, aggregate: &Aggregate, input: NodeId) -> Result<NodeId> {
    if let Node::MapFilter(map) = new.node(input)
        && map.only_picks()
    {
        let picked: Vec<usize> = map.projection.iter().filter_map(Expression::as_column).collect();
        let below = new.inputs(input)[0];
        return new.add(Node::Aggregate(aggregate.remap(|column| picked[column])), vec![below]);
    }
    new.add(Node::Aggregate(aggregate.clone()), vec![input])
}

/// The map that is `outer` after `inner`.
fn fuse(outer: &MapFilter, inner: &MapFilter) -> Option<MapFilter> {
    let on_error = match (outer.can_fail(), inner.can_fail()) {
        (true, true) if outer.on_error != inner.on_error => return None,
        (true, _) => outer.on_error,
        (false, _) => inner.on_error,
    };
    let outer_fails = outer.predicate.as_ref().is_some_and(Expression::can_fail);
    if outer_fails && inner.predicate.is_some() {
        return None;
    }
    for (index, expr) in inner.projection.iter().enumerate() {
        let is_cheap = expr.as_column().is_some() || expr.columns().is_empty() && !expr.can_fail();
        if is_cheap {
            continue;
        }
        let within = |outer: &&Expression| outer.columns().contains(&index);
        let alone = outer
            .projection
            .iter()
            .filter(|expr| expr.as_column() == Some(index))
            .count();
        let uses = outer.projection.iter().filter(within).count() + outer.predicate.iter().filter(within).count();
        if uses > 1 {
            return None;
        }
        if expr.can_fail() && (alone != 1 || outer.predicate.is_some()) {
            return None;
        }
        // Within one expression a column may stand several times.
        if uses == 1 && alone == 0 {
            let place = outer.projection.iter().chain(&outer.predicate).find(within)?;
            if place.count_column(index) > 1 {
                return None;
            }
        }
    }
    let predicate = outer.predicate.as_ref().map(|expr| expr.compose(&inner.projection));
    Some(MapFilter {
        predicate: Expression::all(inner.predicate.iter().cloned().chain(predicate)),
        projection: outer
            .projection
            .iter()
            .map(|expr| expr.compose(&inner.projection))
            .collect(),
        on_error,
    })
}
