//! Which columns of a node follow event time, and how a view waits for its windows to close.
//!
//! A column follows event time if its watermark is that of the streams below, shifted by a constant: the stream's own
//! column, that column plus an interval, a window's bounds. Behind an operator that refuses late rows a window's end
//! is even *closed*: nothing with an end at or before the watermark comes, goes or changes any more.

use super::{Node, NodeId, Plan};
use crate::catalog::{EventColumn, Finality};
use crate::error::{Error, Result};
use crate::expr::Expression;
use crate::operator::close::Close;
use crate::operator::join::JoinKind;
use crate::operator::map::{MapFilter, OnError};
use crate::operator::set::SetKind;

/// The columns of each node that follow event time, by id.
pub fn all(plan: &Plan) -> Vec<Vec<EventColumn>> {
    let mut known: Vec<Vec<EventColumn>> = Vec::new();
    for id in plan.ids() {
        let inputs: Vec<&[EventColumn]> = plan.inputs(id).iter().map(|input| known[input.0].as_slice()).collect();
        let widths: Vec<usize> = plan.inputs(id).iter().map(|input| plan.width(*input)).collect();
        known.push(of_node(plan.node(id), &inputs, &widths, plan.width(id)));
    }
    known
}

/// The columns of one node that follow event time.
pub fn of(plan: &Plan, id: NodeId) -> Vec<EventColumn> {
    all(plan).swap_remove(id.0)
}

fn of_node(node: &Node, inputs: &[&[EventColumn]], widths: &[usize], width: usize) -> Vec<EventColumn> {
    match node {
        Node::Input(input) => input.events.clone(),
        Node::Values(_) => Vec::new(),
        Node::MapFilter(map) => {
            let shifted = map.projection.iter().enumerate().filter_map(|(place, expr)| {
                let (column, shift_us) = expr.as_shifted_column()?;
                let event = inputs[0].iter().find(|event| event.column == column)?;
                Some(EventColumn {
                    column: place,
                    shift_us: event.shift_us.saturating_add(shift_us),
                    ..*event
                })
            });
            shifted.collect()
        }
        // Rows go by the clock, whatever a watermark says.
        Node::ClockFilter(_) | Node::InWindow(_) => partitioned(inputs[0], &[]),
        Node::Stamp(_) => inputs[0].to_vec(),
        Node::Union(_) => united(inputs),
        Node::SetOperation(set) => match set.kind {
            SetKind::Intersect | SetKind::Except => united(inputs),
        },
        Node::Aggregate(aggregate) => {
            let keys = aggregate.keys.iter().enumerate();
            moved(inputs[0], keys.map(|(place, key)| (*key, place)))
        }
        Node::Join(join) => joined(join.kind, &join.on, inputs, widths[0]),
        Node::Top(top) => partitioned(inputs[0], &top.partition),
        Node::Over(over) => partitioned(inputs[0], &over.partition),
        Node::SessionWindow(session) => {
            let own = session.width(widths[0]);
            let mut events = partitioned(inputs[0], &session.partition);
            events.retain(|event| event.column < own);
            if let Some(late) = session.lateness {
                events.push(EventColumn {
                    column: own + 1,
                    shift_us: late.shift_us,
                    finality: Finality::Closed,
                });
            }
            events
        }
        Node::Unnest(unnest) => {
            let kept = inputs[0].iter().filter(|event| !unnest.columns.contains(&event.column));
            kept.copied().collect()
        }
        Node::Lateness(lateness) => {
            let mut events: Vec<EventColumn> = inputs[0].iter().filter(|e| e.column + 2 < width).copied().collect();
            let mut closed = |column: usize, shift_us: i64| {
                events.push(EventColumn {
                    column,
                    shift_us,
                    finality: Finality::Closed,
                });
            };
            closed(width - 1, lateness.shift_us);
            if let Some(size) = lateness.size_us {
                closed(width - 2, lateness.shift_us.saturating_sub(size));
            }
            events
        }
        Node::Close(_) => inputs[0].to_vec(),
    }
}

/// The columns at other places.
fn moved(events: &[EventColumn], places: impl Iterator<Item = (usize, usize)>) -> Vec<EventColumn> {
    let found = places.filter_map(|(from, to)| {
        let event = events.iter().find(|event| event.column == from)?;
        Some(EventColumn { column: to, ..*event })
    });
    found.collect()
}

/// Columns that follow event time in all inputs; the least of their shifts holds for all.
fn united(inputs: &[&[EventColumn]]) -> Vec<EventColumn> {
    let Some((first, rest)) = inputs.split_first() else {
        return Vec::new();
    };
    let mut events = Vec::new();
    'columns: for event in *first {
        let mut event = *event;
        for other in rest {
            let Some(other) = other.iter().find(|other| other.column == event.column) else {
                continue 'columns;
            };
            event.shift_us = event.shift_us.min(other.shift_us);
            event.finality = weaker(event.finality, other.finality);
        }
        events.push(event);
    }
    events
}

fn weaker(a: Finality, b: Finality) -> Finality {
    if a == Finality::Closed && b == Finality::Closed {
        Finality::Closed
    } else {
        Finality::Expected
    }
}

/// A row of one partition may take others of it away: a time stays closed only where it tells partitions apart.
fn partitioned(events: &[EventColumn], partition: &[usize]) -> Vec<EventColumn> {
    let with = |event: &EventColumn| EventColumn {
        finality: if partition.contains(&event.column) {
            event.finality
        } else {
            Finality::Expected
        },
        ..*event
    };
    events.iter().map(with).collect()
}

/// A row of one side finds old rows of the other: a time stays closed only where it must be equal on both sides.
fn joined(kind: JoinKind, on: &[(usize, usize)], inputs: &[&[EventColumn]], width: usize) -> Vec<EventColumn> {
    let closed = |column: usize, other: &[EventColumn], left: bool, event: &EventColumn| {
        let partner = on.iter().find_map(|(l, r)| match left {
            true if *l == column => Some(*r),
            false if *r == column => Some(*l),
            _ => None,
        });
        let same = |other: &EventColumn| {
            Some(other.column) == partner && other.finality == Finality::Closed && other.shift_us == event.shift_us
        };
        event.finality == Finality::Closed && other.iter().any(same)
    };
    // The side whose rows are padded with NULLs has no time where they are.
    let (left_whole, right_whole) = match kind {
        JoinKind::Inner => (true, true),
        JoinKind::Right => (false, true),
        JoinKind::Full => (false, false),
        _ => (true, false),
    };
    let mut events = Vec::new();
    for event in inputs[0] {
        let closed = left_whole && closed(event.column, inputs[1], true, event);
        let finality = if closed { Finality::Closed } else { Finality::Expected };
        events.push(EventColumn { finality, ..*event });
    }
    if !kind.is_filter() {
        for event in inputs[1] {
            let closed = right_whole && closed(event.column, inputs[0], false, event);
            let finality = if closed { Finality::Closed } else { Finality::Expected };
            let column = event.column + width;
            events.push(EventColumn {
                column,
                finality,
                ..*event
            });
        }
    }
    events
}

/// The plan with its rows held back until the watermark closes them, and its root.
///
/// Maps above what closes are carried out on what is put out.
pub fn emit_on_close(plan: &Plan, root: NodeId) -> Result<(Plan, NodeId)> {
    let known = all(plan);
    let mut place = root;
    let event = loop {
        if let Some(event) = known[place.0].iter().find(|event| event.finality == Finality::Closed) {
            break *event;
        }
        match plan.node(place) {
            Node::MapFilter(_) => place = plan.inputs(place)[0],
            _ => {
                return Err(Error::unsupported(
                    "EMIT ON WINDOW CLOSE needs rows that belong to a window which a watermark closes",
                )
                .with_hint(
                    "Declare a WATERMARK on the window's time column, and group, join or partition by window_start and \
                     window_end.",
                ));
            }
        }
    };
    let close = Node::Close(Close {
        column: event.column,
        shift_us: event.shift_us,
    });
    plan.rebuild(root, |new, id, inputs| {
        let made = new.add(plan.node(id).clone(), inputs)?;
        if id == place {
            return new.add(close.clone(), vec![made]);
        }
        Ok(made)
    })
}

/// The plan in which aggregates forget the groups that the watermark closes, and its root.
///
/// The time comes first among an aggregate's keys, so that what is closed is one range of its state.
pub fn forget_closed(plan: &Plan, root: NodeId) -> Result<(Plan, NodeId)> {
    let known = all(plan);
    plan.rebuild(root, |new, id, inputs| {
        let Node::Aggregate(aggregate) = plan.node(id) else {
            return new.add(plan.node(id).clone(), inputs);
        };
        let events = &known[plan.inputs(id)[0].0];
        let closed = aggregate.keys.iter().enumerate().find_map(|(place, key)| {
            let closed = |event: &&EventColumn| event.column == *key && event.finality == Finality::Closed;
            Some((place, events.iter().find(closed)?.shift_us))
        });
        let Some((place, shift_us)) = closed.filter(|_| aggregate.keeps_no_bags()) else {
            return new.add(plan.node(id).clone(), inputs);
        };
        let mut first = aggregate.clone();
        first.closing = Some(shift_us);
        let key = first.keys.remove(place);
        first.keys.insert(0, key);
        let made = new.add(Node::Aggregate(first), inputs)?;
        let schema = new.schema(made).clone();
        let moved = |column: usize| match column {
            column if column == place => 0,
            column if column < place => column + 1,
            column => column,
        };
        let projection = (0..schema.fields().len()).map(|column| {
            let from = moved(column);
            Expression::column(from, schema.field(from))
        });
        let map = MapFilter {
            predicate: None,
            projection: projection.collect(),
            on_error: OnError::default(),
        };
        if map.is_identity(schema.fields().len()) {
            return Ok(made);
        }
        new.add(Node::MapFilter(map), vec![made])
    })
}
