//! What each operator keeps, how that grows, and what cleans it: EXPLAIN (STATE), and the NOTICE at CREATE.
//!
//! State grows *without bound* if its size follows the rows of a stream, which nothing ever takes away. A table's
//! rows are the user's to delete, and state that follows them shrinks with them.

use super::label;
use crate::operator::aggregate::{Aggregate, Function};
use crate::operator::in_window::Extent;
use crate::operator::join::JoinKind;
use crate::operator::stamp::Memory;
use crate::operator::top::Rest;
use crate::plan::{Growth, Node, NodeId, Plan};
use std::fmt;

/// How large something gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Size {
    /// It never grows.
    Constant,
    /// It follows tables and views, and shrinks as they do.
    Tables,
    /// It follows a stream.
    Streams,
}

/// What an operator keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    /// What: `nothing`, `one row per (auction)`, ...; `None` for nothing.
    what: Option<String>,
    size: Size,
    cleaned: Option<&'static str>,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(what) = &self.what else {
            return f.write_str("nothing");
        };
        let growth = match self.size {
            Size::Constant => "constant",
            Size::Tables => "as large as its tables and views",
            Size::Streams => "grows without bound",
        };
        write!(f, "{what}; {growth}")?;
        match self.cleaned {
            Some(cleaned) => write!(f, "; cleaned by {cleaned}"),
            None => Ok(()),
        }
    }
}

/// What is known of a column for the purpose of bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Time {
    /// It is no time of interest.
    Other,
    /// The event time of a stream with a watermark.
    Event,
    /// A window's start or end over such a time.
    Window,
    /// A window's start or end over a time without a watermark.
    WindowWithout,
}

/// What is known of a node: how many rows there are, and its columns.
struct Flow {
    rows: Size,
    times: Vec<Time>,
    streams: Vec<String>,
}

fn flows(plan: &Plan) -> Vec<Flow> {
    let mut flows: Vec<Flow> = Vec::new();
    for id in plan.ids() {
        let inputs: Vec<&Flow> = plan.inputs(id).iter().map(|input| &flows[input.0]).collect();
        let mut streams: Vec<String> = inputs.iter().flat_map(|input| input.streams.clone()).collect();
        streams.sort();
        streams.dedup();
        let node = plan.node(id);
        if let Node::Input(input) = node
            && input.growth == Growth::AppendOnly
        {
            streams.push(input.name.clone());
        }
        let times = times(node, &inputs, plan.width(id));
        flows.push(Flow {
            rows: rows(node, &inputs),
            times,
            streams,
        });
    }
    flows
}

fn rows(node: &Node, inputs: &[&Flow]) -> Size {
    let largest = inputs.iter().map(|input| input.rows).max().unwrap_or(Size::Constant);
    match node {
        Node::Input(input) if input.growth == Growth::AppendOnly => Size::Streams,
        Node::Input(_) => Size::Tables,
        Node::Values(_) => Size::Constant,
        Node::Aggregate(aggregate) if aggregate.keys.is_empty() => Size::Constant,
        Node::Top(top) if top.partition.is_empty() && top.limit.is_some() => Size::Constant,
        Node::ClockFilter(filter) if filter.predicate.ends() => Size::Constant,
        Node::InWindow(window) if window.extent != Extent::UpToNow => Size::Constant,
        Node::Join(join) if join.kind.is_filter() => inputs[0].rows,
        _ => largest,
    }
}

fn times(node: &Node, inputs: &[&Flow], width: usize) -> Vec<Time> {
    let mut times = match node {
        Node::Input(input) => {
            let mut times = vec![Time::Other; width];
            if let Some(column) = input.watermark {
                times[column] = Time::Event;
            }
            times
        }
        Node::MapFilter(map) => {
            let of = |expr: &crate::expr::Expression| {
                if let Some(column) = expr.as_column() {
                    return inputs[0].times[column];
                }
                let columns = expr.columns();
                match columns.as_slice() {
                    [column] if label::is_window(expr) => match inputs[0].times[*column] {
                        Time::Event | Time::Window => Time::Window,
                        Time::Other | Time::WindowWithout => Time::WindowWithout,
                    },
                    // A part of the record that holds both ends of a window.
                    [column] if expr.function() == Some("get_field") => inputs[0].times[*column],
                    _ => Time::Other,
                }
            };
            map.projection.iter().map(of).collect()
        }
        Node::Aggregate(aggregate) => aggregate.keys.iter().map(|key| inputs[0].times[*key]).collect(),
        Node::Join(_) => inputs.iter().flat_map(|input| input.times.clone()).collect(),
        Node::SessionWindow(session) => {
            let window = match inputs[0].times[session.time] {
                Time::Event => Time::Window,
                _ => Time::WindowWithout,
            };
            [&inputs[0].times[..], &[window, window]].concat()
        }
        _ => inputs.first().map(|input| input.times.clone()).unwrap_or_default(),
    };
    times.resize(width, Time::Other);
    times
}

/// What every node keeps, by id.
pub(super) fn all(plan: &Plan) -> Vec<Kept> {
    let labels = label::labels(plan);
    let flows = flows(plan);
    plan.ids()
        .map(|id| {
            let inputs: Vec<NodeId> = plan.inputs(id).to_vec();
            let named = |columns: &[usize]| {
                let names: Vec<&str> = columns
                    .iter()
                    .map(|c| labels[inputs[0].0].columns[*c].as_str())
                    .collect();
                names.join(", ")
            };
            let largest = inputs
                .iter()
                .map(|input| flows[input.0].rows)
                .max()
                .unwrap_or(Size::Constant);
            kept(plan.node(id), &named, largest)
        })
        .collect()
}

fn kept(node: &Node, named: &dyn Fn(&[usize]) -> String, largest: Size) -> Kept {
    const LEAVING: Option<&str> = Some("rows that are taken away");
    let keep = |what: String, size: Size| Kept {
        what: Some(what),
        size,
        cleaned: if size == Size::Tables { LEAVING } else { None },
    };
    match node {
        Node::Input(_)
        | Node::Values(_)
        | Node::MapFilter(_)
        | Node::Union(_)
        | Node::Unnest(_)
        | Node::Lateness(_) => Kept {
            what: None,
            size: Size::Constant,
            cleaned: None,
        },
        Node::Aggregate(aggregate) => {
            let values = if keeps_values(aggregate) { " and its values" } else { "" };
            if aggregate.keys.is_empty() {
                let size = if keeps_values(aggregate) {
                    largest
                } else {
                    Size::Constant
                };
                return keep(format!("one group{values}"), size);
            }
            if aggregate.closing.is_some() {
                return Kept {
                    what: Some(format!(
                        "a group{values} per ({}) of open windows",
                        named(&aggregate.keys)
                    )),
                    size: Size::Constant,
                    cleaned: Some("the watermark"),
                };
            }
            keep(format!("a group{values} per ({})", named(&aggregate.keys)), largest)
        }
        Node::Join(join) => match join.kind {
            JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::NullAwareAnti => {
                keep("the left rows, and the right ones' keys".to_owned(), largest)
            }
            _ => keep("the rows of both sides".to_owned(), largest),
        },
        Node::SessionWindow(session) if session.lateness.is_some() => Kept {
            what: Some("the rows of open sessions".to_owned()),
            size: Size::Constant,
            cleaned: Some("the watermark"),
        },
        Node::InWindow(_) => Kept {
            what: Some("the rows of the window".to_owned()),
            size: Size::Constant,
            cleaned: Some("event time"),
        },
        Node::Stamp(stamp) => match stamp.memory {
            Memory::None => keep("a number".to_owned(), Size::Constant),
            Memory::Rows => keep("when each row arrived".to_owned(), largest),
        },
        Node::Top(top) if top.rest == Rest::Forgotten && top.partition.is_empty() => {
            keep("the first rows".to_owned(), Size::Constant)
        }
        Node::Top(top) if top.rest == Rest::Forgotten => keep("the first rows of each partition".to_owned(), largest),
        Node::Top(_) | Node::Over(_) | Node::SessionWindow(_) => keep("the rows of each partition".to_owned(), largest),
        Node::ClockFilter(_) => Kept {
            what: Some("the rows that will come or go".to_owned()),
            size: Size::Constant,
            cleaned: Some("the clock"),
        },
        Node::Close(_) => Kept {
            what: Some("the rows of open windows".to_owned()),
            size: Size::Constant,
            cleaned: Some("the watermark"),
        },
        Node::SetOperation(_) => keep("the rows of both sides, each once".to_owned(), largest),
    }
}

/// Whether a group's state is more than a few numbers.
fn keeps_values(aggregate: &Aggregate) -> bool {
    aggregate.calls.iter().any(|call| {
        let counts = matches!(
            call.function,
            Function::Count | Function::Sum | Function::Avg | Function::LeastSoFar | Function::GreatestSoFar
        );
        !counts || call.distinct == crate::operator::aggregate::Distinct::Yes
    })
}

/// The plan with what each operator keeps.
pub fn state(plan: &Plan, root: NodeId) -> String {
    let kept = all(plan);
    super::tree(plan, root, &|id| match &kept[id.0].what {
        Some(_) => format!("  [keeps {}]", kept[id.0]),
        None => String::new(),
    })
}

/// Why the state of a view grows without bound, and what would bound it; `None` if it does not.
pub fn unbounded(plan: &Plan, root: NodeId) -> Option<String> {
    let kept = all(plan);
    let flows = flows(plan);
    let labels = label::labels(plan);
    for id in plan.reachable(root) {
        if kept[id.0].what.is_none() || kept[id.0].size != Size::Streams {
            continue;
        }
        let input = plan.inputs(id)[0];
        let times = |columns: &[usize]| columns.iter().map(|c| flows[input.0].times[*c]).collect::<Vec<_>>();
        let keys = match plan.node(id) {
            Node::Aggregate(aggregate) => times(&aggregate.keys),
            Node::Top(top) => times(&top.partition),
            Node::Over(over) => times(&over.partition),
            Node::Join(join) => times(&join.on.iter().map(|(left, _)| *left).collect::<Vec<_>>()),
            Node::SessionWindow(session) => times(&[session.time]),
            _ => Vec::new(),
        };
        if keys.iter().any(|time| matches!(time, Time::Window | Time::Event)) {
            continue;
        }
        let streams = flows[id.0]
            .streams
            .iter()
            .map(|name| format!("\"{name}\""))
            .collect::<Vec<_>>()
            .join(", ");
        let bound = if keys.contains(&Time::WindowWithout) {
            "declare a WATERMARK on the window's time column"
        } else {
            "use a window (TUMBLE, HOP, ...) over a column with a WATERMARK, or a filter on now()"
        };
        return Some(format!(
            "the view's state grows without bound: {} keeps {} of stream {streams}; to bound it, {bound}",
            labels[id.0].operator,
            kept[id.0].what.as_deref().unwrap_or_default(),
        ));
    }
    None
}
