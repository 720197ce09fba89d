//! "How does a change become a change?" One file per operator.
//!
//! An operator is a struct and one method. Its fields are parameters and caches: **all that must last is in its state
//! tables**, and rebuilding the operator from them between any two epochs changes nothing. So there is no method to
//! checkpoint, restore, clear or rescale. Every operator accepts retractions.
//!
//! Beside each operator stands its *spec*: what it is in a plan (schema, keys, state tables, how to build it). Specs
//! compare, hash and print; [`Spec`] is what `plan::Node` asks of each.

pub mod aggregate;
mod changes;
pub mod clock;
pub mod close;
mod groups;
#[cfg(test)]
mod harness;
pub mod in_window;
pub mod join;
pub mod lateness;
pub mod map;
mod ordered;
pub mod over;
pub mod session;
pub mod set;
pub mod stamp;
mod timers;
pub mod top;
pub mod union;
pub mod unnest;
pub mod values;

use crate::delta::{Batch, Delta};
use crate::error::{Error, Result};
use crate::state::{Shape, Tables};
use crate::time::{Epoch, Timestamp, Watermark};
use arrow::datatypes::{Field, SchemaRef};
use arrow::record_batch::RecordBatch;

/// What decides to which shard a row of an input goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keys {
    /// Any: the operator has no state.
    Stateless,
    /// One shard does all the work.
    Single,
    /// The key group of the columns at these positions, one list per input. All lists encode alike, so that equal
    /// keys of different inputs meet.
    By(Vec<Vec<usize>>),
}

/// One state table that an operator needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSpec {
    /// What it holds, in a word or two, as EXPLAIN (STATE) shows it.
    pub name: &'static str,
    /// Its shape.
    pub shape: Shape,
}

/// What an operator is, in a plan.
pub trait Spec {
    /// The operator's name in EXPLAIN and metrics.
    fn name(&self) -> &'static str;
    /// The schema of what it puts out, from those of its inputs.
    fn schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef>;
    /// How its inputs are spread over shards.
    fn keys(&self) -> Keys;
    /// The state tables that it needs.
    fn tables(&self) -> Vec<TableSpec>;
    /// Makes one that runs.
    fn build(&self, inputs: &[SchemaRef]) -> Result<Box<dyn Operator>>;
}

/// A column of what an operator puts out: named by position, so that names never make equal nodes differ.
fn output_field(field: &Field, index: usize) -> Field {
    field.clone().with_name(format!("#{index}")).with_nullable(true)
}

/// The first columns of a schema, named by position.
fn unnamed(schema: &SchemaRef, width: usize) -> SchemaRef {
    let fields = schema.fields().iter().take(width).enumerate();
    let fields: Vec<Field> = fields.map(|(index, field)| output_field(field, index)).collect();
    SchemaRef::new(arrow::datatypes::Schema::new(fields))
}

/// What an operator does.
pub trait Operator: Send {
    /// Takes the changes of its inputs in one epoch and puts out its own.
    fn step(&mut self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()>;

    /// The next clock time at which it wants a step without input.
    fn due(&self) -> Option<Timestamp> {
        None
    }
}

/// What a step may look at: five things, and no sixth.
#[derive(Debug)]
pub struct StepContext<'a> {
    /// The epoch and its clock, which is read once.
    pub time: StepTime,
    /// How far event time is in each input.
    pub watermarks: &'a [Advance],
    /// The operator's state tables, in the order of its spec.
    pub tables: &'a mut Tables,
    /// Where rows go that fail or come too late.
    pub faults: &'a mut Faults,
    /// What the operator counts beside rows in and out.
    pub metrics: &'a mut StepMetrics,
}

/// When a step happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepTime {
    /// The epoch.
    pub epoch: Epoch,
    /// Its clock.
    pub clock: Timestamp,
    /// Whether this is the operator's first step ever, in which an operator with a row over nothing puts it out.
    pub first: First,
}

/// How far event time is in an input, before an epoch and after it; `None` where nothing is known yet, or ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Advance {
    /// Before the epoch's rows.
    pub before: Option<Watermark>,
    /// After them.
    pub after: Option<Watermark>,
    /// The highest event time that has moved it, after the epoch's rows.
    pub latest: Option<Timestamp>,
}

impl Advance {
    /// Whether event time moves in the epoch.
    pub fn moves(self) -> bool {
        self.before != self.after
    }

    /// The least of two, in which an unknown one holds the other back.
    #[must_use]
    pub fn least(self, other: Self) -> Self {
        Self {
            before: self.before.min(other.before),
            after: self.after.min(other.after),
            latest: self.latest.max(other.latest),
        }
    }
}

/// Whether a step is the first of an operator's life (not of a process).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// It is.
    Yes,
    /// It is not.
    No,
}

/// Rows that an operator could not take.
#[derive(Debug, Default)]
pub struct Faults {
    /// Rows whose expression failed, with the weight they came with: -1 takes an earlier entry back.
    pub row_errors: Vec<RowError>,
    /// Rows that came after their windows had closed.
    pub late_rows: Vec<LateRows>,
    /// How many rows came to sessions, judged by the epoch's watermark, from before it: they may lie beside a session
    /// that is closed, and where sessions begin and end then depends on when they came.
    pub seams: u64,
}

/// A row whose expression failed.
#[derive(Debug, Clone)]
pub struct RowError {
    /// The row, alone in its batch.
    pub row: RecordBatch,
    /// Its weight: +n or -n.
    pub weight: i64,
    /// What went wrong.
    pub error: Error,
}

/// Rows that some windows refused, one for each of the windows; those of one row stand together.
#[derive(Debug, Clone)]
pub struct LateRows {
    /// The number under which the windows list them.
    pub label: i64,
    /// The rows, the window's start and end last.
    pub rows: RecordBatch,
    /// Their weights.
    pub weights: Vec<i64>,
    /// The watermark when each arrived.
    pub watermarks: Vec<Watermark>,
}

/// What an operator counts beside rows in and out.
#[derive(Debug, Default, Clone, Copy)]
pub struct StepMetrics {
    /// State rows read.
    pub state_reads: u64,
    /// State rows written.
    pub state_writes: u64,
}

/// Where an operator puts its changes.
#[derive(Debug)]
pub struct Output {
    /// Batches that take rows away, or do both in no order.
    deletes: Delta,
    /// Batches that add rows.
    inserts: Delta,
    bytes: usize,
    bytes_max: usize,
}

impl Output {
    /// An empty output that holds at most so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            deletes: Delta::new(),
            inserts: Delta::new(),
            bytes: 0,
            bytes_max,
        }
    }

    /// An empty output with the same limit.
    fn like(&self) -> Self {
        Self::new(self.bytes_max)
    }

    /// Takes a batch.
    pub fn push(&mut self, batch: Batch) -> Result<()> {
        self.bytes += batch.rows.get_array_memory_size();
        if self.bytes > self.bytes_max {
            return Err(Error::limit(
                "54000",
                format!("one change puts out more than {} bytes in one operator", self.bytes_max),
            )
            .with_hint("Change fewer rows at once, raise epoch_bytes_max, or make the join more selective."));
        }
        match batch.deletes_before_inserts() {
            Some(0) => self.inserts.push(batch),
            Some(deletes) if deletes < batch.len() => {
                self.deletes.push(batch.slice(0, deletes));
                self.inserts.push(batch.slice(deletes, batch.len() - deletes));
            }
            _ => self.deletes.push(batch),
        }
        Ok(())
    }

    /// Takes a change.
    pub fn append(&mut self, delta: Delta) -> Result<()> {
        delta.batches.into_iter().try_for_each(|batch| self.push(batch))
    }

    /// What was put out: deletes, then inserts.
    pub fn into_delta(self) -> Delta {
        let mut delta = self.deletes;
        delta.append(self.inserts);
        delta
    }
}
