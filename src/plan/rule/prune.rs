//! Prune columns: what nobody reads is dropped where it comes from.
//!
//! From the root down it is found which columns of each node are read, by all of its users together; then the plan is
//! made anew from the inputs up, each node with those columns only. An expression that can fail stays although nobody
//! reads it: it decides which rows there are. So does every column of an input whose rows are told apart as a whole
//! (set operations) or ordered by it where the order leaves a tie (top, window functions).

use crate::error::Result;
use crate::expr::{Expression, positional_schema};
use crate::operator::aggregate::{Aggregate, Call, Function};
use crate::operator::clock::ClockFilter;
use crate::operator::in_window::InWindow;
use crate::operator::join::Join;
use crate::operator::map::{MapFilter, OnError};
use crate::operator::over::Over;
use crate::operator::top::{Number, Top};
use crate::operator::values::Values;
use crate::plan::{Node, NodeId, Plan};
use arrow::datatypes::Schema;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

type Columns = BTreeSet<usize>;

/// Prunes the whole plan.
pub(super) fn apply(plan: &Plan, root: NodeId) -> Result<Option<(Plan, NodeId)>> {
    let read = find_read(plan, root);
    let mut new = Plan::new();
    let mut made: HashMap<NodeId, Pruned> = HashMap::new();
    for id in plan.reachable(root) {
        let pruned = make(&mut new, plan, id, &read[id.0], &made)?;
        made.insert(id, pruned);
    }
    let root = made[&root].id;
    Ok(Some((new, root)))
}

/// A node of the new plan, and which columns of the old one it puts out, in order.
struct Pruned {
    id: NodeId,
    columns: Vec<usize>,
}

impl Pruned {
    /// Where a column of the old node is now. Only columns that are read are asked for.
    fn place(&self, column: usize) -> usize {
        self.columns
            .iter()
            .position(|known| *known == column)
            .unwrap_or(usize::MAX)
    }

    fn places(&self, columns: &[usize]) -> Vec<usize> {
        columns.iter().map(|column| self.place(*column)).collect()
    }
}

/// The columns of each node that are read, by id.
fn find_read(plan: &Plan, root: NodeId) -> Vec<Columns> {
    let mut read: Vec<Columns> = vec![Columns::new(); plan.ids().count()];
    read[root.0] = (0..plan.width(root)).collect();
    for id in plan.reachable(root).into_iter().rev() {
        let output = kept(plan.node(id), &read[id.0], plan.width(id));
        read[id.0].clone_from(&output);
        let widths: Vec<usize> = plan.inputs(id).iter().map(|input| plan.width(*input)).collect();
        let needed = needed(plan.node(id), &output, &widths);
        for (input, columns) in plan.inputs(id).iter().zip(needed) {
            read[input.0].extend(columns);
        }
    }
    read
}

/// The columns that a node puts out if these are read.
fn kept(node: &Node, read: &Columns, width: usize) -> Columns {
    let mut kept = read.clone();
    match node {
        Node::Input(_) | Node::SetOperation(_) | Node::Lateness(_) | Node::Close(_) => kept.extend(0..width),
        Node::Top(top) => kept.extend(0..width - usize::from(top.number == Number::Shown)),
        Node::Values(values) => {
            for row in &values.rows {
                kept.extend(fallible(row));
            }
        }
        Node::MapFilter(map) => kept.extend(fallible(&map.projection)),
        Node::Union(_) | Node::Join(_) => {}
        Node::Stamp(_) => kept.extend(0..width),
        Node::InWindow(window) => {
            kept.insert(window.time);
        }
        Node::ClockFilter(filter) => {
            let columns = filter.predicate.expressions().into_iter().flat_map(Expression::columns);
            kept.extend(columns.filter(|column| *column < width));
        }
        Node::Aggregate(aggregate) => {
            kept.extend(0..aggregate.keys.len());
            for (index, call) in aggregate.calls.iter().enumerate() {
                // A subquery of more than one row is an error, read or not; and a group needs a result to be shown.
                if call.function == Function::SingleValue
                    || (aggregate.keys.is_empty() && index == 0 && read.is_empty())
                {
                    kept.insert(aggregate.keys.len() + index);
                }
            }
        }
        // Beside the input's columns, which break ties, the results that are read.
        Node::Over(over) => kept.extend(0..width - over.calls.len()),
        Node::SessionWindow(session) if session.lateness.is_some() => kept.extend(0..width),
        Node::SessionWindow(session) => {
            kept.extend(session.partition.iter().copied());
            kept.extend([session.time, width - 2, width - 1]);
        }
        Node::Unnest(unnest) => kept.extend(unnest.columns.iter().copied()),
    }
    kept
}

fn fallible(row: &[Expression]) -> impl Iterator<Item = usize> {
    row.iter()
        .enumerate()
        .filter(|(_, expr)| expr.can_fail())
        .map(|(index, _)| index)
}

/// The columns of each input that a node reads to put out these.
fn needed(node: &Node, output: &Columns, widths: &[usize]) -> Vec<Columns> {
    let every = |width: &usize| (0..*width).collect::<Columns>();
    match node {
        Node::Input(_) | Node::Values(_) => Vec::new(),
        Node::MapFilter(map) => {
            let exprs = output.iter().map(|index| &map.projection[*index]).chain(&map.predicate);
            vec![exprs.flat_map(Expression::columns).collect()]
        }
        Node::Union(_) | Node::ClockFilter(_) | Node::InWindow(_) => vec![output.clone(); widths.len()],
        Node::Aggregate(aggregate) => {
            let mut columns: Columns = aggregate.keys.iter().copied().collect();
            for call in kept_calls(aggregate, output) {
                columns.extend(call.arguments.iter().copied());
                columns.extend(call.filter);
                columns.extend(call.order.iter().map(|(column, _)| *column));
            }
            vec![columns]
        }
        Node::Join(join) => {
            let residual = join.residual.iter().flat_map(Expression::columns);
            let all: Columns = output.iter().copied().chain(residual).collect();
            let left = all.iter().copied().filter(|column| *column < widths[0]);
            let right = all
                .iter()
                .filter(|column| **column >= widths[0])
                .map(|column| column - widths[0]);
            vec![
                left.chain(join.on.iter().map(|(left, _)| *left)).collect(),
                right.chain(join.on.iter().map(|(_, right)| *right)).collect(),
            ]
        }
        Node::Top(_) | Node::SetOperation(_) | Node::Over(_) | Node::Lateness(_) | Node::Close(_) | Node::Stamp(_) => {
            widths.iter().map(every).collect()
        }
        Node::SessionWindow(session) if session.lateness.is_some() => widths.iter().map(every).collect(),
        Node::SessionWindow(_) | Node::Unnest(_) => {
            vec![output.iter().copied().filter(|column| *column < widths[0]).collect()]
        }
    }
}

fn kept_calls<'a>(aggregate: &'a Aggregate, output: &'a Columns) -> impl Iterator<Item = &'a Call> {
    let first = aggregate.keys.len();
    let is_kept = move |(index, _): &(usize, &Call)| output.contains(&(first + index));
    aggregate.calls.iter().enumerate().filter(is_kept).map(|(_, call)| call)
}

/// Makes a node anew with the columns that are read.
fn make(new: &mut Plan, plan: &Plan, id: NodeId, output: &Columns, made: &HashMap<NodeId, Pruned>) -> Result<Pruned> {
    let inputs: Vec<&Pruned> = plan.inputs(id).iter().map(|input| &made[input]).collect();
    let columns: Vec<usize> = output.iter().copied().collect();
    let node = plan.node(id);
    let (node, inputs, columns) = match node {
        Node::Input(_) => (node.clone(), Vec::new(), columns),
        Node::Values(values) => (Node::Values(pruned_values(values, &columns)), Vec::new(), columns),
        Node::MapFilter(map) => {
            let projection = columns.iter().map(|index| moved(&map.projection[*index], inputs[0]));
            let map = MapFilter {
                predicate: map.predicate.as_ref().map(|expr| moved(expr, inputs[0])),
                projection: projection.collect(),
                on_error: map.on_error,
            };
            (Node::MapFilter(map), vec![inputs[0].id], columns)
        }
        Node::Aggregate(aggregate) => {
            let aggregate = pruned_aggregate(aggregate, output, inputs[0]);
            (Node::Aggregate(aggregate), vec![inputs[0].id], columns)
        }
        Node::Join(join) => {
            let width = plan.width(plan.inputs(id)[0]);
            let widths = [width, plan.width(plan.inputs(id)[1])];
            let needed = needed(node, output, &widths);
            let left = narrow(new, inputs[0], &needed[0])?;
            let right = narrow(new, inputs[1], &needed[1])?;
            let (join, columns) = pruned_join(join, width, &left, &right);
            (Node::Join(join), vec![left.id, right.id], columns)
        }
        Node::Union(_)
        | Node::ClockFilter(_)
        | Node::InWindow(_)
        | Node::Stamp(_)
        | Node::Unnest(_)
        | Node::Over(_)
        | Node::SessionWindow(_)
        | Node::Top(_)
        | Node::Lateness(_)
        | Node::Close(_)
        | Node::SetOperation(_) => {
            let widths: Vec<usize> = plan.inputs(id).iter().map(|input| plan.width(*input)).collect();
            let needed = needed(node, output, &widths);
            let mut narrowed = Vec::new();
            for (input, columns) in inputs.iter().zip(&needed) {
                narrowed.push(narrow(new, input, columns)?);
            }
            let ids: Vec<NodeId> = narrowed.iter().map(|input| input.id).collect();
            if matches!(node, Node::Over(_)) && columns.len() == widths[0] {
                return Ok(Pruned { id: ids[0], columns });
            }
            (pruned_in_place(node, output, &narrowed[0], widths[0]), ids, columns)
        }
    };
    let id = new.add(node, inputs)?;
    debug_assert_eq!(new.width(id), columns.len(), "a pruned node puts out what it says");
    Ok(Pruned { id, columns })
}

/// The input with just these columns.
fn narrow(new: &mut Plan, input: &Pruned, columns: &Columns) -> Result<Pruned> {
    let columns: Vec<usize> = columns.iter().copied().collect();
    if input.columns == columns {
        return Ok(Pruned { id: input.id, columns });
    }
    let schema = new.schema(input.id).clone();
    let pick = |place: usize| Expression::column(place, schema.field(place));
    let map = MapFilter {
        predicate: None,
        projection: input.places(&columns).into_iter().map(pick).collect(),
        on_error: OnError::default(),
    };
    let id = new.add(Node::MapFilter(map), vec![input.id])?;
    Ok(Pruned { id, columns })
}

fn moved(expr: &Expression, input: &Pruned) -> Expression {
    expr.remap(|column| input.place(column))
}

fn pruned_values(values: &Values, columns: &[usize]) -> Values {
    let fields: Vec<_> = columns
        .iter()
        .map(|index| values.schema.field(*index).clone())
        .collect();
    let pick = |row: &Vec<Expression>| columns.iter().map(|index| row[*index].clone()).collect();
    Values {
        rows: values.rows.iter().map(pick).collect(),
        schema: positional_schema(&Arc::new(Schema::new(fields))),
    }
}

fn pruned_aggregate(aggregate: &Aggregate, output: &Columns, input: &Pruned) -> Aggregate {
    let calls = kept_calls(aggregate, output).cloned().collect();
    Aggregate {
        keys: aggregate.keys.clone(),
        calls,
        closing: aggregate.closing,
    }
    .remap(|column| input.place(column))
}

fn pruned_join(join: &Join, width: usize, left: &Pruned, right: &Pruned) -> (Join, Vec<usize>) {
    let place = |column: usize| {
        if column < width {
            left.place(column)
        } else {
            left.columns.len() + right.place(column - width)
        }
    };
    let mut columns = left.columns.clone();
    if !join.kind.is_filter() {
        columns.extend(right.columns.iter().map(|column| column + width));
    }
    let pruned = Join {
        on: join.on.iter().map(|(l, r)| (left.place(*l), right.place(*r))).collect(),
        residual: join.residual.as_ref().map(|expr| expr.remap(place)),
        ..join.clone()
    };
    (pruned, columns)
}

/// A node that puts out its input's columns, perhaps with more behind them.
fn pruned_in_place(node: &Node, output: &Columns, input: &Pruned, width: usize) -> Node {
    match node.clone() {
        Node::ClockFilter(filter) => {
            let place = |column: usize| match column {
                clock if clock == width => input.columns.len(),
                column => input.place(column),
            };
            let predicate = filter.predicate.map(&|expr| expr.remap(place));
            Node::ClockFilter(ClockFilter { predicate })
        }
        Node::InWindow(window) => Node::InWindow(InWindow {
            time: input.place(window.time),
            ..window
        }),
        Node::Unnest(mut unnest) => {
            unnest.columns = input.places(&unnest.columns);
            Node::Unnest(unnest)
        }
        Node::SessionWindow(mut session) => {
            session.partition = input.places(&session.partition);
            session.time = input.place(session.time);
            Node::SessionWindow(session)
        }
        Node::Top(top) => {
            let number = if output.contains(&width) {
                top.number
            } else {
                Number::Hidden
            };
            Node::Top(Top { number, ..top })
        }
        Node::Over(over) => {
            let calls = over.calls.iter().enumerate();
            let calls = calls.filter(|(index, _)| output.contains(&(width + index)));
            Node::Over(Over {
                calls: calls.map(|(_, call)| call.clone()).collect(),
                ..over.clone()
            })
        }
        other => other,
    }
}
