//! A maintained view that runs: its flow, and where its rows and its failed rows go.

use super::published::{Stored, faults_schema};
use super::watermark::{LateCount, ViewTime};
use crate::catalog::RelationId;
use crate::dataflow::{Advances, Changes, Flow, NodeStatus};
use crate::delta::{Batch, Delta, Weights, batch_of};
use crate::error::Result;
use crate::operator::{Advance, Faults, StepTime};
use crate::state::Commit;
use crate::time::{Timestamp, Watermark};
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use std::sync::Arc;

/// A view's flow and its place in the store.
pub struct ViewFlow {
    flow: Flow,
    stored: Arc<Stored>,
    late: LateCount,
}

impl ViewFlow {
    /// A view that is up to date with its inputs.
    pub fn new(flow: Flow, stored: Arc<Stored>, late: LateCount) -> Self {
        Self { flow, stored, late }
    }

    /// The same with its rows at their new place.
    #[must_use]
    pub fn over(self, stored: Arc<Stored>) -> Self {
        Self { stored, ..self }
    }

    /// Whether a step with these changes would do anything.
    pub fn wants(&self, changes: &Changes, advances: &Advances, clock: Timestamp) -> bool {
        self.flow.wants(changes, advances, clock)
    }

    /// How far event time is in its rows.
    pub fn advance(&self, advances: &Advances) -> Advance {
        self.flow.advance(advances)
    }

    /// How far event time is in its rows, and what it has refused.
    pub fn time(&self, advance: Advance) -> ViewTime {
        ViewTime {
            watermark: advance.after.map(|Watermark(Timestamp(micros))| micros),
            late: self.late,
        }
    }

    /// Whether it holds rows back until a relation's watermark moves.
    pub fn waits_for(&self, relation: RelationId) -> bool {
        self.flow.follows_watermark() && self.flow.inputs().contains(&relation)
    }

    /// The next clock time at which it wants a step without input.
    pub fn due(&self) -> Option<Timestamp> {
        self.flow.due()
    }

    /// Takes the changes of its inputs, writes its own and its state, and returns its own.
    pub fn step(
        &mut self,
        time: StepTime,
        changes: &Changes,
        advances: &Advances,
        commit: &mut Commit,
    ) -> Result<Delta> {
        let moves = Moves {
            time,
            changes,
            advances,
        };
        step(&mut self.flow, &self.stored, moves, &mut self.late, commit)
    }

    /// The bytes of state in memory.
    pub fn resident_bytes(&self) -> usize {
        self.flow.resident_bytes()
    }

    /// Forgets about half of the state in memory.
    pub fn shrink(&mut self) {
        self.flow.shrink();
    }

    /// What its nodes are and do.
    pub fn status(&self) -> Vec<NodeStatus> {
        self.flow.status()
    }
}

/// What a step is about: when, what changes, and how far event time moves.
#[derive(Clone, Copy)]
pub struct Moves<'a> {
    /// The epoch and its clock.
    pub time: StepTime,
    /// The changes of relations.
    pub changes: &'a Changes,
    /// How far event time is in them.
    pub advances: &'a Advances,
}

/// One step of a view's flow into a commit.
pub fn step(
    flow: &mut Flow,
    stored: &Stored,
    moves: Moves<'_>,
    late: &mut LateCount,
    commit: &mut Commit,
) -> Result<Delta> {
    let mut faults = Faults::default();
    let mut delta = flow.step(moves.time, moves.changes, moves.advances, &mut faults)?;
    // Nobody reads what goes into a black hole.
    if stored.rows.is_some() || stored.outbox.is_some() {
        if !delta.is_inserts() {
            delta = delta.consolidate(&stored.schema)?;
        }
        // Flows name columns by position; the view has names.
        delta = renamed(delta, &stored.schema)?;
    }
    if let Some(rows) = &stored.rows {
        rows.write_bag(&delta, commit)?;
    }
    if let Some(outbox) = &stored.outbox {
        outbox.write(moves.time.epoch, &super::sink::deletes_first(delta.clone())?, commit)?;
    }
    flow.flush(commit)?;
    write_faults(stored, &faults, commit)?;
    if !faults.late_rows.is_empty() || faults.seams > 0 {
        late.seams += faults.seams;
        super::late::write(stored, &faults.late_rows, late, commit)?;
        super::record::write_late(commit, stored.relation, late)?;
    }
    Ok(delta)
}

fn renamed(delta: Delta, schema: &SchemaRef) -> Result<Delta> {
    let mut named = Delta::new();
    for batch in delta.batches {
        let columns = batch
            .rows
            .columns()
            .iter()
            .zip(schema.fields())
            .map(|(column, field)| {
                if column.data_type() == field.data_type() {
                    Ok(column.clone())
                } else {
                    arrow::compute::cast(column, field.data_type())
                }
            })
            .collect::<Result<Vec<_>, _>>()?;
        named.push(Batch {
            rows: batch_of(schema.clone(), columns, batch.rows.num_rows())?,
            weights: batch.weights,
        });
    }
    Ok(named)
}

fn write_faults(stored: &Stored, faults: &Faults, commit: &mut Commit) -> Result<()> {
    let Some(rows) = stored.faults.as_ref() else {
        return Ok(());
    };
    if faults.row_errors.is_empty() {
        return Ok(());
    }
    let listed = faults
        .row_errors
        .iter()
        .map(|failed| (failed.error.message().to_owned(), row_text(&failed.row), failed.weight));
    rows.write_bag(&faults_delta(listed)?, commit)
}

/// A row as PostgreSQL prints a row value.
fn row_text(row: &RecordBatch) -> String {
    let values: Vec<String> = row
        .columns()
        .iter()
        .map(|column| arrow::util::display::array_value_to_string(column, 0).unwrap_or_default())
        .collect();
    format!("({})", values.join(","))
}

/// Failed rows as a change of the list of them.
pub fn faults_delta(faults: impl Iterator<Item = (String, String, i64)>) -> Result<Delta> {
    let (mut messages, mut rows, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    for (message, row, weight) in faults {
        messages.push(message);
        rows.push(row);
        weights.push(weight);
    }
    let count = weights.len();
    let columns: Vec<ArrayRef> = vec![Arc::new(StringArray::from(messages)), Arc::new(StringArray::from(rows))];
    Ok(Delta::from(Batch {
        rows: batch_of(faults_schema(), columns, count)?,
        weights: Weights::from(weights),
    }))
}
