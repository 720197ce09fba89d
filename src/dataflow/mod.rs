//! "Who runs, in which order, on which thread?"
//!
//! A [`Flow`] is the running form of one plan: its nodes in topological order, each as one operator per shard with
//! its state tables. Stepping a flow takes the changes of its inputs in one epoch through all nodes that have
//! something to do, and gives the change of its root. A flow is the unit of failure: when a step fails, the flow is
//! dropped with all that it had not written, and nothing else notices.

mod shard;

use crate::delta::Delta;
use crate::error::{Error, Result};
use crate::operator::{Advance, Faults, First, Keys, Output, StepMetrics, StepTime};
use crate::plan::{Node, NodeId, Plan};
use crate::state::{Commit, Origin, Part, Store, Table, TableId, Tables};
use crate::time::Timestamp;
use arrow::datatypes::SchemaRef;
use shard::Shard;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::catalog::RelationId;

/// How a flow runs.
#[derive(Debug, Clone, Copy)]
pub struct FlowOptions {
    /// The number of shards of every operator with keys.
    pub workers: usize,
    /// The most bytes that one operator may put out in one step.
    pub output_bytes_max: usize,
}

/// The changes of relations in one epoch.
pub type Changes = HashMap<RelationId, Delta>;

/// How far event time is in relations that have one, before an epoch and after it.
pub type Advances = HashMap<RelationId, Advance>;

/// The running form of one plan.
pub struct Flow {
    nodes: Vec<Running>,
    root: NodeId,
    options: FlowOptions,
    first: First,
}

/// One node that runs.
struct Running {
    node: Node,
    inputs: Vec<NodeId>,
    schemas: Vec<SchemaRef>,
    keys: Keys,
    shards: Vec<Shard>,
    users: usize,
    /// Whether there is event time in it.
    timed: Timed,
    counters: NodeCounters,
    tables: Vec<TableId>,
}

/// Whether a node's rows have an event time with a watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timed {
    Yes,
    No,
}

/// What a node has done since it was installed in this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeCounters {
    /// Rows taken in.
    pub rows_in: u64,
    /// Rows put out.
    pub rows_out: u64,
    /// Time spent.
    pub busy: Duration,
}

/// What a node is and does, for those who look inside.
#[derive(Debug, Clone)]
pub struct NodeStatus {
    /// Its operator's name.
    pub name: &'static str,
    /// Its place in the plan.
    pub node: NodeId,
    /// Where it takes its input from.
    pub inputs: Vec<NodeId>,
    /// What it has done.
    pub counters: NodeCounters,
    /// The keys of its state in memory.
    pub resident_keys: usize,
    /// The bytes of its state in memory.
    pub resident_bytes: usize,
    /// Its state tables.
    pub tables: Vec<TableId>,
}

impl Flow {
    /// The number of state tables that each node of a plan needs, in the order of its nodes.
    pub fn tables_needed(plan: &Plan) -> Vec<usize> {
        plan.ids().map(|id| plan.node(id).tables().len()).collect()
    }

    /// Builds the operators of a plan over their state tables, one list of ids per node.
    pub fn build(
        plan: &Plan,
        root: NodeId,
        store: &Store,
        tables: &[Vec<TableId>],
        origin: Origin,
        options: FlowOptions,
    ) -> Result<Self> {
        let mut nodes = Vec::new();
        for id in plan.ids() {
            let node = plan.node(id).clone();
            let inputs = plan.inputs(id).to_vec();
            let schemas: Vec<SchemaRef> = inputs.iter().map(|input| plan.schema(*input).clone()).collect();
            let keys = node.keys();
            let count = match keys {
                Keys::Single => 1,
                Keys::Stateless | Keys::By(_) => options.workers,
            };
            let mut shards = Vec::new();
            if !matches!(node, Node::Input(_)) {
                for shard in 0..count {
                    let own = tables[id.0].iter().zip(node.tables());
                    let own = own.map(|(table, spec)| Table::open(store, *table, spec.shape, origin));
                    let operator = node
                        .build(&schemas)?
                        .ok_or_else(|| Error::internal("an operator cannot be built"))?;
                    let part = Part { shard, shards: count };
                    shards.push(Shard::new(operator, Tables(own.collect(), part)));
                }
            }
            nodes.push(Running {
                node,
                inputs,
                schemas,
                keys,
                shards,
                users: 0,
                timed: Timed::No,
                counters: NodeCounters::default(),
                tables: tables[id.0].clone(),
            });
        }
        for index in 0..nodes.len() {
            for input in nodes[index].inputs.clone() {
                nodes[input.0].users += 1;
            }
        }
        nodes[root.0].users += 1;
        for index in 0..nodes.len() {
            let timed = match &nodes[index].node {
                Node::Input(input) => !input.events.is_empty(),
                _ => nodes[index]
                    .inputs
                    .iter()
                    .any(|input| nodes[input.0].timed == Timed::Yes),
            };
            nodes[index].timed = if timed { Timed::Yes } else { Timed::No };
        }
        let first = match origin {
            Origin::Fresh => First::Yes,
            Origin::Stored => First::No,
        };
        Ok(Self {
            nodes,
            root,
            options,
            first,
        })
    }

    /// The relations that it reads.
    pub fn inputs(&self) -> Vec<RelationId> {
        let mut inputs: Vec<RelationId> = self
            .nodes
            .iter()
            .filter_map(|running| match &running.node {
                Node::Input(input) => Some(input.relation),
                _ => None,
            })
            .collect();
        inputs.sort_unstable();
        inputs.dedup();
        inputs
    }

    /// Whether a step with these changes would do anything.
    pub fn wants(&self, changes: &Changes, advances: &Advances, clock: Timestamp) -> bool {
        self.first == First::Yes
            || (self.follows_watermark() && self.advance(advances).moves())
            || self.inputs().iter().any(|input| changes.contains_key(input))
            || self.due().is_some_and(|due| due <= clock)
    }

    /// Whether one of its nodes has something to do when a watermark moves.
    pub fn follows_watermark(&self) -> bool {
        self.nodes.iter().any(|running| running.node.follows_watermark())
    }

    /// How far event time is in what it puts out.
    pub fn advance(&self, advances: &Advances) -> Advance {
        self.node_advances(advances)[self.root.0]
    }

    /// How far event time is in each node: as far as in the last of its inputs. Inputs without event time hold
    /// nothing back.
    fn node_advances(&self, advances: &Advances) -> Vec<Advance> {
        let mut known: Vec<Advance> = Vec::with_capacity(self.nodes.len());
        for running in &self.nodes {
            let own = match &running.node {
                Node::Input(input) if running.timed == Timed::Yes => {
                    advances.get(&input.relation).copied().unwrap_or_default()
                }
                _ => {
                    let timed = running
                        .inputs
                        .iter()
                        .filter(|input| self.nodes[input.0].timed == Timed::Yes);
                    timed
                        .map(|input| known[input.0])
                        .reduce(Advance::least)
                        .unwrap_or_default()
                }
            };
            known.push(own);
        }
        known
    }

    /// The next clock time at which it wants a step without input.
    pub fn due(&self) -> Option<Timestamp> {
        self.nodes
            .iter()
            .flat_map(|running| running.shards.iter().filter_map(Shard::due))
            .min()
    }

    /// Takes one epoch's changes through the nodes and returns the root's change.
    pub fn step(
        &mut self,
        mut time: StepTime,
        changes: &Changes,
        advances: &Advances,
        faults: &mut Faults,
    ) -> Result<Delta> {
        let advances = self.node_advances(advances);
        time.first = self.first;
        self.first = First::No;
        let mut deltas: Vec<Option<Delta>> = vec![None; self.nodes.len()];
        let mut uses: Vec<usize> = self.nodes.iter().map(|running| running.users).collect();
        for index in 0..self.nodes.len() {
            let running = &mut self.nodes[index];
            if let Node::Input(input) = &running.node {
                deltas[index] = changes.get(&input.relation).cloned();
                continue;
            }
            let mut inputs = Vec::with_capacity(running.inputs.len());
            for input in &running.inputs {
                uses[input.0] -= 1;
                let slot = &mut deltas[input.0];
                let delta = if uses[input.0] == 0 { slot.take() } else { slot.clone() };
                inputs.push(delta.unwrap_or_default());
            }
            let watermarks: Vec<Advance> = running.inputs.iter().map(|input| advances[input.0]).collect();
            let moved = running.node.follows_watermark() && watermarks.iter().any(|advance| advance.moves());
            let idle = inputs.iter().all(Delta::is_empty)
                && !moved
                && time.first == First::No
                && !running
                    .shards
                    .iter()
                    .any(|shard| shard.due().is_some_and(|due| due <= time.clock));
            if !idle {
                deltas[index] = Some(running.step(time, inputs, &watermarks, &self.options, faults)?);
            }
        }
        Ok(deltas[self.root.0].take().unwrap_or_default())
    }

    /// Writes what the operators have changed since the last flush.
    pub fn flush(&mut self, commit: &mut Commit) -> Result<()> {
        for running in &mut self.nodes {
            for shard in &mut running.shards {
                shard.tables.flush(commit)?;
            }
        }
        Ok(())
    }

    /// The bytes of state in memory.
    pub fn resident_bytes(&self) -> usize {
        self.nodes.iter().map(Running::resident_bytes).sum()
    }

    /// Forgets about half of the state in memory; it is read back when needed.
    pub fn shrink(&mut self) {
        for running in &mut self.nodes {
            for shard in &mut running.shards {
                shard.tables.all().iter_mut().for_each(Table::shrink);
            }
        }
    }

    /// What its nodes are and do.
    pub fn status(&self) -> Vec<NodeStatus> {
        self.nodes
            .iter()
            .enumerate()
            .map(|(index, running)| NodeStatus {
                name: running.node.name(),
                node: NodeId(index),
                inputs: running.inputs.clone(),
                counters: running.counters,
                resident_keys: running.tables().map(Table::resident_keys).sum(),
                resident_bytes: running.resident_bytes(),
                tables: running.tables.clone(),
            })
            .collect()
    }
}

impl Running {
    fn step(
        &mut self,
        time: StepTime,
        inputs: Vec<Delta>,
        watermarks: &[Advance],
        options: &FlowOptions,
        faults: &mut Faults,
    ) -> Result<Delta> {
        let started = Instant::now();
        self.counters.rows_in += inputs.iter().map(|delta| delta.len() as u64).sum::<u64>();
        let parts = shard::split(inputs, &self.keys, &self.schemas, self.shards.len())?;
        let results = shard::run(&mut self.shards, parts, &|shard, part| {
            let mut output = Output::new(options.output_bytes_max);
            let mut own_faults = Faults::default();
            let mut metrics = StepMetrics::default();
            let done = shard.step(time, watermarks, part, &mut own_faults, &mut metrics, &mut output);
            done.map(|()| (output.into_delta(), own_faults))
        });
        let mut out = Delta::new();
        for result in results {
            let (delta, own_faults) = result?;
            out.append(delta);
            faults.row_errors.extend(own_faults.row_errors);
            faults.late_rows.extend(own_faults.late_rows);
            faults.seams += own_faults.seams;
        }
        self.counters.rows_out += out.len() as u64;
        self.counters.busy += started.elapsed();
        Ok(out)
    }

    fn tables(&self) -> impl Iterator<Item = &Table> {
        self.shards.iter().flat_map(|shard| shard.tables.0.iter())
    }

    fn resident_bytes(&self) -> usize {
        self.tables().map(Table::resident_bytes).sum()
    }
}
