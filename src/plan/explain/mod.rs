//! Plans for people: EXPLAIN as text, JSON and a graph, what each operator keeps, and which rules were at work.
//!
//! Columns are shown under the names that they have in the relations they come from; a computed one under its
//! expression.

mod label;
mod state;

pub use state::{state, unbounded};

use super::property::Property;
use super::rule::{Firing, RULES};
use super::{Node, NodeId, Plan, property};
use label::Label;
use std::collections::HashMap;
use std::fmt::Write;

/// The plan as a tree, the root first. A node with several users is shown under the first and named to the others.
pub fn text(plan: &Plan, root: NodeId) -> String {
    tree(plan, root, &|_| String::new())
}

/// The plan as a tree, with what each node has done.
pub fn analysed(plan: &Plan, root: NodeId, done: &dyn Fn(NodeId) -> String) -> String {
    tree(plan, root, done)
}

/// What tells a plan from every other one, whatever relations and columns are called: a digest of all of it. State
/// that was kept for a plan may be used again by one of the same fingerprint only.
pub fn fingerprint(plan: &Plan, root: NodeId) -> String {
    let mut all = format!("{FORMAT} {root:?}");
    for id in plan.reachable(root) {
        let _ = match plan.node(id) {
            Node::Input(input) => {
                let types: Vec<_> = input.schema.fields().iter().map(|field| field.data_type()).collect();
                write!(all, "\n{id:?} input {:?} {types:?}", input.relation)
            }
            node => write!(all, "\n{id:?} {node:?} {:?}", plan.inputs(id)),
        };
    }
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(all.as_bytes()))
}

/// Changes when the state of an operator changes its form, so that older state is not taken for the new one.
const FORMAT: u32 = 1;

/// The tree with something more said of each node.
fn tree(plan: &Plan, root: NodeId, more: &dyn Fn(NodeId) -> String) -> String {
    let labels = label::labels(plan);
    let mut users: HashMap<NodeId, usize> = HashMap::new();
    for id in plan.reachable(root) {
        for input in plan.inputs(id) {
            *users.entry(*input).or_default() += 1;
        }
    }
    let mut tree = Tree {
        plan,
        labels: &labels,
        users,
        numbers: HashMap::new(),
        more,
        out: String::new(),
    };
    tree.node(root, 0);
    tree.out
}

struct Tree<'a> {
    plan: &'a Plan,
    labels: &'a [Label],
    users: HashMap<NodeId, usize>,
    /// The numbers of shared nodes that were shown.
    numbers: HashMap<NodeId, usize>,
    more: &'a dyn Fn(NodeId) -> String,
    out: String,
}

impl Tree<'_> {
    fn node(&mut self, id: NodeId, depth: usize) {
        let indent = "  ".repeat(depth);
        if let Some(number) = self.numbers.get(&id) {
            let _ = writeln!(self.out, "{indent}[{number}] again");
            return;
        }
        let mut line = format!("{indent}{}", self.labels[id.0].line());
        if self.users.get(&id).is_some_and(|users| *users > 1) && !matches!(self.plan.node(id), Node::Input(_)) {
            let number = self.numbers.len() + 1;
            self.numbers.insert(id, number);
            let _ = write!(line, "  [{number}]");
        }
        let _ = writeln!(self.out, "{line}{}", (self.more)(id));
        for input in self.plan.inputs(id) {
            self.node(*input, depth + 1);
        }
    }
}

/// The plan as JSON: an array of nodes, inputs before their users, the root last.
pub fn json(plan: &Plan, root: NodeId) -> String {
    let labels = label::labels(plan);
    let properties = property::all(plan);
    let states = state::all(plan);
    let nodes: Vec<serde_json::Value> = plan
        .reachable(root)
        .into_iter()
        .map(|id| {
            let label = &labels[id.0];
            let details: serde_json::Map<String, serde_json::Value> = label
                .details
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.clone().into()))
                .collect();
            serde_json::json!({
                "id": id.0,
                "operator": label.operator,
                "details": details,
                "columns": label.columns,
                "inputs": plan.inputs(id).iter().map(|input| input.0).collect::<Vec<_>>(),
                "append_only": properties[id.0].is_append_only(),
                "unique": properties[id.0].is_unique(),
                "state": states[id.0].to_string(),
            })
        })
        .collect();
    serde_json::to_string_pretty(&nodes).unwrap_or_default()
}

/// The plan as a graph in the DOT language.
pub fn dot(plan: &Plan, root: NodeId) -> String {
    let labels = label::labels(plan);
    let mut out = String::from("digraph plan {\n  rankdir = BT;\n  node [shape = box];\n");
    for id in plan.reachable(root) {
        let text = labels[id.0]
            .line()
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace("  ", "\\n");
        let _ = writeln!(out, "  n{} [label = \"{text}\"];", id.0);
        for input in plan.inputs(id) {
            let _ = writeln!(out, "  n{} -> n{};", input.0, id.0);
        }
    }
    out.push_str("}\n");
    out
}

/// Which rules changed the plan, with the plan before the first and after each.
pub fn rules(firings: &[Firing]) -> String {
    let mut out = String::new();
    let Some(first) = firings.first() else {
        return "no rule applies\n".to_owned();
    };
    let _ = write!(out, "lowered:\n{}", indented(&first.before));
    for firing in firings {
        let summary = RULES
            .iter()
            .find(|rule| rule.name == firing.rule)
            .map_or("", |rule| rule.summary);
        let _ = write!(out, "{}: {summary}\n{}", firing.rule, indented(&firing.after));
    }
    out
}

fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |mut out, line| {
        let _ = writeln!(out, "  {line}");
        out
    })
}

/// What is known of a node's rows, in a few words.
pub fn facts(property: &Property) -> String {
    let growth = if property.is_append_only() {
        "append-only"
    } else {
        "changing"
    };
    let unique = if property.is_unique() { ", no row twice" } else { "" };
    format!("{growth}{unique}")
}
