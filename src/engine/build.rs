//! Backfill: filling a new view with what existed before it, while everything else goes on.
//!
//! A new view gets a flow of its own, over new state tables that nobody else knows. A thread runs the rows of its
//! inputs *as of one epoch* through it, a part at a time. Meanwhile the driver puts each later epoch's changes of
//! those inputs into the build's queue, so the thread catches up epoch by epoch. When it has, it hands the flow to the
//! driver, which runs the last epochs between two of its own: from then on the view is live. No timing decides what
//! is seen: every input row is either in the snapshot or in exactly one queued epoch.
//!
//! Nothing that a build writes is visible before the hand-over; after a crash its tables are swept and it starts anew.

use super::command::{Command, Commands, ViewPlan};
use super::install::Waiting;
use super::published::{Published, Stored};
use super::view::{self, Moves};
use super::watermark::{LateCount, arrived, arriving};
use crate::catalog::{Relation, RelationId};
use crate::dataflow::{Advances, Changes, Flow, FlowOptions};
use crate::delta::Delta;
use crate::error::{Error, Result};
use crate::operator::{First, StepTime};
use crate::state::{Commit, Durability, Origin, Store};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The rows that a build takes through its flow in one step.
const ROWS_PER_STEP: usize = 65_536;

/// The epochs behind which a build hands over.
const HAND_OVER_EPOCHS: usize = 1;

/// A view that is being filled, as the driver sees it.
pub struct Build {
    /// The view.
    pub relation: Arc<Relation>,
    /// Where its rows and state go.
    pub stored: Arc<Stored>,
    /// Who waits for it.
    pub waiting: Option<Arc<Waiting>>,
    inputs: Vec<RelationId>,
    shared: Arc<Shared>,
}

/// What the driver and the build's thread share.
#[derive(Default)]
struct Shared {
    queue: Mutex<VecDeque<Queued>>,
    cancelled: AtomicBool,
    rows: AtomicU64,
}

/// An epoch that a build has not taken yet.
pub struct Queued {
    /// The epoch.
    pub time: StepTime,
    /// The changes of the view's inputs.
    pub changes: Changes,
    /// How far event time is in them.
    pub advances: Advances,
}

/// What a build needs to know of the driver.
pub struct BuildContext {
    /// The store.
    pub store: Store,
    /// The way back to the driver.
    pub commands: Commands,
    /// The epoch as of which the inputs are read.
    pub published: Arc<Published>,
    /// How flows run.
    pub options: FlowOptions,
}

impl Build {
    /// Starts filling a view.
    pub fn start(
        relation: Arc<Relation>,
        stored: Arc<Stored>,
        plan: ViewPlan,
        context: BuildContext,
        waiting: Option<Arc<Waiting>>,
    ) -> Result<Self> {
        let tables = stored.record.flow_tables();
        let flow = Flow::build(
            &plan.plan,
            plan.root,
            &context.store,
            &tables,
            Origin::Fresh,
            context.options,
        )?;
        let inputs = flow.inputs();
        let shared = Arc::new(Shared::default());
        let work = Work {
            id: relation.id,
            flow,
            stored: stored.clone(),
            shared: shared.clone(),
            context,
            late: LateCount::default(),
        };
        std::thread::Builder::new()
            .name("build".to_owned())
            .spawn(move || work.run())
            .map_err(|error| Error::io(format!("no thread could be started: {error}")))?;
        Ok(Self {
            relation,
            stored,
            waiting,
            inputs,
            shared,
        })
    }

    /// Puts an epoch's changes of the view's inputs into the queue.
    pub fn feed(&self, time: StepTime, changes: &Changes, advances: &Advances) {
        let own: Changes = self
            .inputs
            .iter()
            .filter_map(|input| changes.get(input).map(|delta| (*input, delta.clone())))
            .collect();
        let advances: Advances = self
            .inputs
            .iter()
            .filter_map(|input| advances.get(input).map(|advance| (*input, *advance)))
            .collect();
        if !own.is_empty() || advances.values().any(|advance| advance.moves()) {
            self.shared.queue.lock().push_back(Queued {
                time,
                changes: own,
                advances,
            });
        }
    }

    /// The epochs that the thread has not taken.
    pub fn rest(&self) -> Vec<Queued> {
        self.shared.queue.lock().drain(..).collect()
    }

    /// The rows that went through so far.
    pub fn rows(&self) -> u64 {
        self.shared.rows.load(Ordering::Relaxed)
    }

    /// Tells the thread to give up.
    pub fn cancel(&self) {
        self.shared.cancelled.store(true, Ordering::SeqCst);
    }
}

/// The build's thread.
struct Work {
    id: RelationId,
    flow: Flow,
    stored: Arc<Stored>,
    shared: Arc<Shared>,
    context: BuildContext,
    late: LateCount,
}

impl Work {
    fn run(mut self) {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            self.snapshot().and_then(|()| self.catch_up())
        }))
        .unwrap_or_else(|_| Err(Error::internal("filling the view failed")));
        let id = self.id;
        let commands = self.context.commands.clone();
        let _ = commands.send(Command::Built(id, Box::new(result.map(|()| self.flow))));
    }

    /// Runs the inputs, as they were when the build began, through the flow.
    fn snapshot(&mut self) -> Result<()> {
        let published = self.context.published.clone();
        let time = StepTime {
            epoch: published.epoch,
            clock: published.clock,
            first: First::No,
        };
        let arriving = arriving(&published.times, &self.flow.inputs());
        // Each row of a stream carries the watermark that it is judged by; nothing is final before all rows are there.
        for input in self.flow.inputs() {
            let Some((relation, stored)) = published
                .catalog
                .relations
                .get(&input)
                .zip(published.relations.get(&input))
            else {
                // It was made in the same transaction: whatever it holds comes through the queue.
                continue;
            };
            let mut scan = stored.readable(relation)?.scan(&published.snapshot);
            let mut part = Delta::new();
            while let Some(batch) = scan.next_batch()? {
                part.push(batch);
                if part.len() >= ROWS_PER_STEP {
                    let changes = Changes::from([(input, std::mem::take(&mut part))]);
                    self.step(time, &changes, &arriving)?;
                }
            }
            if !part.is_empty() {
                self.step(time, &Changes::from([(input, part)]), &arriving)?;
            }
        }
        let advances = arrived(&published.times, &self.flow.inputs());
        self.step(time, &Changes::new(), &advances)
    }

    /// Takes the queued epochs until only a few are left.
    fn catch_up(&mut self) -> Result<()> {
        loop {
            let next = {
                let mut queue = self.shared.queue.lock();
                if queue.len() <= HAND_OVER_EPOCHS {
                    return Ok(());
                }
                queue.pop_front()
            };
            if let Some(next) = next {
                self.step(next.time, &next.changes, &next.advances)?;
            }
        }
    }

    fn step(&mut self, time: StepTime, changes: &Changes, advances: &Advances) -> Result<()> {
        if self.shared.cancelled.load(Ordering::SeqCst) {
            return Err(Error::cancelled());
        }
        let mut commit = Commit::new();
        let rows: usize = changes.values().map(Delta::len).sum();
        let moves = Moves {
            time,
            changes,
            advances,
        };
        view::step(&mut self.flow, &self.stored, moves, &mut self.late, &mut commit)?;
        self.context.store.commit(commit, Durability::Buffered)?;
        self.shared.rows.fetch_add(rows as u64, Ordering::Relaxed);
        Ok(())
    }
}
