//! What is known of the rows that a node puts out: whether they ever go away, and what identifies one.
//!
//! These are facts that the planner proves, never restrictions: where nothing is known a row may come and go and be
//! there any number of times. Rules and the engine use them to choose cheaper work and cheaper state.

use super::node::{Growth, Node};
use super::{NodeId, Plan};
use crate::operator::in_window::Extent;
use crate::operator::join::{Join, JoinKind};
use crate::operator::map::MapFilter;
use crate::operator::over::OverFunction;
use crate::operator::set::{All, SetKind};
use crate::operator::top::{Number, Ranking, Top};

/// How many keys of one node are remembered.
const KEYS_MAX: usize = 8;

/// What is known of a node's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// Whether rows are only ever added.
    pub growth: Growth,
    /// Sets of columns, each of which identifies a row: no two rows agree on all of them, not even two copies of one.
    /// An empty set says that there is one row at most. At the end of an epoch; within a change, a row may be put
    /// out before the one that it replaces is taken away.
    pub keys: Vec<Vec<usize>>,
}

impl Property {
    /// Whether no row is ever taken away.
    pub fn is_append_only(&self) -> bool {
        self.growth == Growth::AppendOnly
    }

    /// Whether no row is ever there twice.
    pub fn is_unique(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whether these columns identify a row.
    pub fn identifies(&self, columns: &[usize]) -> bool {
        self.keys
            .iter()
            .any(|key| key.iter().all(|column| columns.contains(column)))
    }
}

/// What is known of one node's rows.
pub fn of(plan: &Plan, id: NodeId) -> Property {
    all(plan).swap_remove(id.0)
}

/// What is known of all nodes' rows, by id.
pub fn all(plan: &Plan) -> Vec<Property> {
    let mut known: Vec<Property> = Vec::new();
    for id in plan.ids() {
        let inputs: Vec<&Property> = plan.inputs(id).iter().map(|input| &known[input.0]).collect();
        let width = plan.inputs(id).first().map_or(0, |input| plan.width(*input));
        let property = Property {
            growth: growth(plan.node(id), &inputs),
            keys: minimal(keys(plan.node(id), &inputs, width)),
        };
        known.push(property);
    }
    known
}

fn growth(node: &Node, inputs: &[&Property]) -> Growth {
    // What puts out more as it sees more, and never less.
    let monotone = match node {
        Node::Input(input) => return input.growth,
        Node::Values(_)
        | Node::MapFilter(_)
        | Node::Union(_)
        | Node::Unnest(_)
        | Node::Lateness(_)
        | Node::Stamp(_) => true,
        Node::InWindow(window) => window.extent == Extent::UpToNow,
        // What is put out was final, whatever came and went before.
        Node::Close(_) => return Growth::AppendOnly,
        Node::Aggregate(aggregate) => aggregate.calls.is_empty(),
        Node::Join(join) => matches!(join.kind, JoinKind::Inner | JoinKind::LeftSemi),
        Node::SetOperation(set) => set.kind == SetKind::Intersect,
        Node::Top(_) | Node::Over(_) | Node::SessionWindow(_) | Node::ClockFilter(_) => false,
    };
    if monotone && inputs.iter().all(|input| input.is_append_only()) {
        Growth::AppendOnly
    } else {
        Growth::Changing
    }
}

fn keys(node: &Node, inputs: &[&Property], width: usize) -> Vec<Vec<usize>> {
    match node {
        Node::Input(input) => input.key.iter().cloned().collect(),
        Node::Values(values) => {
            if values.rows.len() <= 1 {
                vec![Vec::new()]
            } else {
                Vec::new()
            }
        }
        Node::MapFilter(map) => mapped(map, &inputs[0].keys),
        Node::Union(_) if inputs.len() == 1 => inputs[0].keys.clone(),
        Node::Union(_) | Node::Unnest(_) => Vec::new(),
        Node::Aggregate(aggregate) => vec![(0..aggregate.keys.len()).collect()],
        Node::Join(join) => joined(join, inputs[0], inputs[1], width),
        Node::Top(top) => topped(top, &inputs[0].keys, width),
        Node::SetOperation(set) => match (set.all, set.kind) {
            (All::No, _) => vec![(0..set.width).collect()],
            (All::Yes, SetKind::Except) => inputs[0].keys.clone(),
            (All::Yes, SetKind::Intersect) => [&inputs[0].keys[..], &inputs[1].keys].concat(),
        },
        Node::Over(over) => {
            let mut keys = inputs[0].keys.clone();
            for (index, call) in over.calls.iter().enumerate() {
                if call.function == OverFunction::RowNumber {
                    keys.push([&over.partition[..], &[width + index]].concat());
                }
            }
            keys
        }
        Node::SessionWindow(_) | Node::Lateness(_) | Node::Close(_) | Node::ClockFilter(_) | Node::InWindow(_) => {
            inputs[0].keys.clone()
        }
        Node::Stamp(_) => vec![vec![width + 1]],
    }
}

/// The keys whose columns are all put out as they are.
fn mapped(map: &MapFilter, keys: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let place = |column: &usize| map.projection.iter().position(|expr| expr.as_column() == Some(*column));
    keys.iter().filter_map(|key| key.iter().map(place).collect()).collect()
}

fn joined(join: &Join, left: &Property, right: &Property, width: usize) -> Vec<Vec<usize>> {
    if join.kind.is_filter() {
        return left.keys.clone();
    }
    let (left_on, right_on): (Vec<usize>, Vec<usize>) = join.on.iter().copied().unzip();
    let shift = |key: &Vec<usize>| key.iter().map(|column| column + width).collect::<Vec<_>>();
    let one_right = right.identifies(&right_on);
    let one_left = left.identifies(&left_on);
    // Rows without a partner have NULL where the other side's key would be, and several may have. So a side's key
    // stays one if the other side adds no row of its own.
    let (left_adds, right_adds) = match join.kind {
        JoinKind::Inner => (false, false),
        JoinKind::Left => (true, false),
        JoinKind::Right => (false, true),
        _ => (true, true),
    };
    let mut keys = Vec::new();
    if one_right && !right_adds {
        keys.extend(left.keys.iter().cloned());
    }
    if one_left && !left_adds {
        keys.extend(right.keys.iter().map(shift));
    }
    if !(left_adds && right_adds) {
        for first in &left.keys {
            keys.extend(right.keys.iter().map(|second| [&first[..], &shift(second)].concat()));
        }
    }
    keys
}

fn topped(top: &Top, keys: &[Vec<usize>], width: usize) -> Vec<Vec<usize>> {
    let mut keys = keys.to_vec();
    if top.ranking == Ranking::RowNumber {
        if top.limit == Some(1) {
            keys.push(top.partition.clone());
        }
        if top.number == Number::Shown {
            keys.push([&top.partition[..], &[width]].concat());
        }
    }
    keys
}

/// The keys without those that hold another one.
fn minimal(mut keys: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    for key in &mut keys {
        key.sort_unstable();
        key.dedup();
    }
    keys.sort_by_key(Vec::len);
    let mut kept: Vec<Vec<usize>> = Vec::new();
    for key in keys {
        if !kept.iter().any(|known| known.iter().all(|column| key.contains(column))) {
            kept.push(key);
        }
    }
    kept.truncate(KEYS_MAX);
    kept
}
