//! Push filters: s(A * B) = s(A) * B where the filter reads columns of A alone.
//!
//! Only filters that cannot fail move, and only below an operator that has no other user and cannot fail itself, so
//! that no row error comes or goes.

use super::users;
use crate::error::Result;
use crate::expr::Expression;
use crate::operator::join::{Join, JoinKind};
use crate::operator::map::MapFilter;
use crate::plan::{Node, NodeId, Plan};

/// Pushes every filter one operator down.
pub(super) fn apply(plan: &Plan, root: NodeId) -> Result<Option<(Plan, NodeId)>> {
    let users = users(plan, root);
    let made = plan.rebuild(root, |new, id, inputs| {
        let node = plan.node(id);
        if let Node::MapFilter(map) = node
            && users[plan.inputs(id)[0].0] == 1
            && let Some(pushed) = push(new, map, inputs[0])?
        {
            return Ok(pushed);
        }
        new.add(node.clone(), inputs)
    })?;
    Ok(Some(made))
}

/// A place below an operator where a predicate can go: one of its inputs, and the predicate as it reads there.
type Place = (usize, Expression);

fn push(new: &mut Plan, map: &MapFilter, below: NodeId) -> Result<Option<NodeId>> {
    let Some(predicate) = &map.predicate else {
        return Ok(None);
    };
    let node = new.node(below).clone();
    let mut inputs = new.inputs(below).to_vec();
    let mut moved: Vec<Vec<Expression>> = vec![Vec::new(); inputs.len()];
    let mut stay = Vec::new();
    for conjunct in predicate.conjuncts() {
        let places = if conjunct.can_fail() || conjunct.columns().is_empty() {
            Vec::new()
        } else {
            places(new, &node, &inputs, &conjunct)
        };
        if places.is_empty() {
            stay.push(conjunct);
        }
        for (input, pushed) in places {
            moved[input].push(pushed);
        }
    }
    if moved.iter().all(Vec::is_empty) {
        return Ok(None);
    }
    for (input, predicates) in inputs.iter_mut().zip(moved) {
        if let Some(predicate) = Expression::all(predicates) {
            let schema = new.schema(*input).clone();
            let projection = schema.fields().iter().enumerate();
            let filter = MapFilter {
                predicate: Some(predicate),
                projection: projection
                    .map(|(index, field)| Expression::column(index, field))
                    .collect(),
                on_error: map.on_error,
            };
            *input = new.add(Node::MapFilter(filter), vec![*input])?;
        }
    }
    let below = new.add(node, inputs)?;
    let rest = MapFilter {
        predicate: Expression::all(stay),
        ..map.clone()
    };
    new.add(Node::MapFilter(rest), vec![below]).map(Some)
}

/// Where a predicate over a node's output can go below it. All of the places together stand for it.
fn places(plan: &Plan, node: &Node, inputs: &[NodeId], predicate: &Expression) -> Vec<Place> {
    let columns = predicate.columns();
    let within = |keys: &[usize]| columns.iter().all(|column| keys.contains(column));
    let as_is = |fits: bool| if fits { vec![(0, predicate.clone())] } else { Vec::new() };
    match node {
        Node::Union(_) => (0..inputs.len()).map(|input| (input, predicate.clone())).collect(),
        // A row is kept or dropped alike on both sides.
        Node::SetOperation(_) => (0..2).map(|input| (input, predicate.clone())).collect(),
        // The row of a global aggregate is there over nothing, too.
        Node::Aggregate(aggregate)
            if !aggregate.keys.is_empty() && columns.iter().all(|c| *c < aggregate.keys.len()) =>
        {
            vec![(0, predicate.remap(|column| aggregate.keys[column]))]
        }
        Node::ClockFilter(_) => as_is(true),
        Node::Top(top) => as_is(within(&top.partition)),
        Node::Over(over) => as_is(within(&over.partition)),
        Node::SessionWindow(session) => as_is(session.lateness.is_none() && within(&session.partition)),
        Node::Unnest(unnest) => as_is(columns.iter().all(|column| !unnest.columns.contains(column))),
        Node::Join(join) => joined(join, plan.width(inputs[0]), predicate, &columns),
        // What is late is told of all rows, and what is held back is held for all.
        Node::Lateness(_) | Node::Close(_) => Vec::new(),
        // What is in a window depends on all rows.
        Node::InWindow(_) | Node::Stamp(_) => Vec::new(),
        Node::Input(_) | Node::Values(_) | Node::MapFilter(_) | Node::Aggregate(_) => Vec::new(),
    }
}

fn joined(join: &Join, width: usize, predicate: &Expression, columns: &[usize]) -> Vec<Place> {
    if join.residual.as_ref().is_some_and(Expression::can_fail) {
        return Vec::new();
    }
    // Rows of a side that is padded cannot be told apart from padding below the join.
    let (left, right) = match join.kind {
        JoinKind::Inner => (true, true),
        JoinKind::Right => (false, true),
        JoinKind::Full => (false, false),
        _ => (true, false),
    };
    if left && columns.iter().all(|column| *column < width) {
        vec![(0, predicate.clone())]
    } else if right && columns.iter().all(|column| *column >= width) {
        vec![(1, predicate.remap(|column| column - width))]
    } else {
        Vec::new()
    }
}
