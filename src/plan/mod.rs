//! "What must be computed?" A DAG of operators, in which equal nodes are one.
//!
//! ```text
//! LogicalPlan --lower--> Plan --rule--> Plan --> dataflow
//!                         |               |
//!                         +--- explain ---+---- property
//! ```
//!
//! [`lower`](lower::lower) makes a [`Plan`] from a bound and optimised logical plan; the [`rule`]s rewrite it;
//! [`property`] says what is known of each node's rows, and [`explain`] shows it all. Nodes are hash-consed: a node
//! with the same operator over the same inputs gets the same id, whatever its columns were called.

pub mod event;
pub mod explain;
pub mod lower;
mod node;
pub mod property;
pub mod rule;

pub use node::{Growth, Input, Node};

use crate::error::Result;
use arrow::datatypes::SchemaRef;
use std::collections::HashMap;

/// The place of a node in its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// A DAG of operators, inputs before their users.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    nodes: Vec<(Node, Vec<NodeId>)>,
    schemas: Vec<SchemaRef>,
    known: HashMap<(Node, Vec<NodeId>), NodeId>,
}

impl Plan {
    /// A plan without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The id of this node: a new one, or that of the equal node which is there already.
    pub fn add(&mut self, node: Node, inputs: Vec<NodeId>) -> Result<NodeId> {
        if let Some(id) = self.known.get(&(node.clone(), inputs.clone())) {
            return Ok(*id);
        }
        let schema = match &node {
            Node::Input(input) => input.schema.clone(),
            _ => {
                let schemas: Vec<SchemaRef> = inputs.iter().map(|id| self.schema(*id).clone()).collect();
                match node.spec() {
                    Some(spec) => spec.schema(&schemas)?,
                    None => schemas[0].clone(),
                }
            }
        };
        let id = NodeId(self.nodes.len());
        self.known.insert((node.clone(), inputs.clone()), id);
        self.nodes.push((node, inputs));
        self.schemas.push(schema);
        Ok(id)
    }

    /// The node of that id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0].0
    }

    /// The inputs of a node.
    pub fn inputs(&self, id: NodeId) -> &[NodeId] {
        &self.nodes[id.0].1
    }

    /// The schema of what a node puts out.
    pub fn schema(&self, id: NodeId) -> &SchemaRef {
        &self.schemas[id.0]
    }

    /// The number of columns that a node puts out.
    pub fn width(&self, id: NodeId) -> usize {
        self.schema(id).fields().len()
    }

    /// All ids, inputs before their users.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId)
    }

    /// The nodes that `root` needs, itself among them; inputs before their users.
    pub fn reachable(&self, root: NodeId) -> Vec<NodeId> {
        let mut needed = vec![false; self.nodes.len()];
        needed[root.0] = true;
        for id in self.ids().rev() {
            if needed[id.0] {
                for input in self.inputs(id) {
                    needed[input.0] = true;
                }
            }
        }
        self.ids().filter(|id| needed[id.0]).collect()
    }

    /// The same plan with each node made anew over its new inputs, and without what `root` does not need.
    ///
    /// `make` adds, to the new plan, what shall stand for a node of this one, which it is told beside its new inputs.
    pub fn rebuild(
        &self,
        root: NodeId,
        mut make: impl FnMut(&mut Self, NodeId, Vec<NodeId>) -> Result<NodeId>,
    ) -> Result<(Self, NodeId)> {
        let mut new = Self::new();
        let mut moved: HashMap<NodeId, NodeId> = HashMap::new();
        for id in self.reachable(root) {
            let inputs = self.inputs(id).iter().map(|input| moved[input]).collect();
            let made = make(&mut new, id, inputs)?;
            moved.insert(id, made);
        }
        Ok((new, moved[&root]))
    }

    /// The part of the plan that `root` needs, and where the root is in it.
    pub fn compact(&self, root: NodeId) -> Result<(Self, NodeId)> {
        let (new, new_root) = self.rebuild(root, |new, id, inputs| new.add(self.node(id).clone(), inputs))?;
        let unused = new.reachable(new_root).len() < new.nodes.len();
        if unused {
            new.compact(new_root)
        } else {
            Ok((new, new_root))
        }
    }
}
