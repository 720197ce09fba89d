//! A view's rows computed anew from all of its input, in memory, row failures left out as the view leaves them out.
//!
//! The plan is the view's own, run in one pass over an empty state. That checks the state that was kept from epoch to
//! epoch, where a batch query cannot: it would fail on the first row that the view has left out.

use super::plan::plan_relation;
use super::published::Published;
use super::watermark::arrived;
use crate::catalog::Relation;
use crate::dataflow::{Changes, Flow, FlowOptions};
use crate::delta::{Delta, batch_of};
use crate::error::{Error, Result};
use crate::operator::{Faults, First, StepTime};
use crate::plan::Plan;
use crate::state::{Origin, Store, TableId};
use arrow::array::RecordBatch;
use std::sync::Arc;

/// The most bytes that an operator puts out: the result is compared in memory anyway.
const OUTPUT_BYTES_MAX: usize = usize::MAX;

/// The rows of a materialized view as of a published epoch, from its input alone.
pub async fn without_failures(published: Arc<Published>, relation: Arc<Relation>) -> Result<RecordBatch> {
    tokio::task::spawn_blocking(move || run(&published, &relation))
        .await
        .map_err(|error| Error::internal(format!("recomputing the view ended early: {error}")))?
}

fn run(published: &Published, relation: &Arc<Relation>) -> Result<RecordBatch> {
    let planned = plan_relation(&published.catalog, relation)?;
    let schema = planned.plan.schema(planned.root).clone();
    let options = FlowOptions {
        workers: 1,
        output_bytes_max: OUTPUT_BYTES_MAX,
    };
    let (store, tables) = (Store::memory()?, tables_of(&planned.plan));
    let mut flow = Flow::build(&planned.plan, planned.root, &store, &tables, Origin::Fresh, options)?;
    let mut changes = Changes::new();
    for input in flow.inputs() {
        changes.insert(input, rows_of(published, input)?);
    }
    let time = StepTime {
        epoch: published.epoch,
        clock: published.clock,
        first: First::Yes,
    };
    let advances = arrived(&published.times, &flow.inputs());
    let delta = flow.step(time, &changes, &advances, &mut Faults::default())?;
    let rows = delta.consolidate(&schema)?.concat(&schema)?;
    let mut copies = Vec::with_capacity(rows.len());
    for row in 0..rows.len() {
        let weight = usize::try_from(rows.weights.at(row))
            .map_err(|_| Error::internal("a row of the recomputed view has a negative weight"))?;
        copies.extend(std::iter::repeat_n(row as u32, weight));
    }
    let count = copies.len();
    let all = rows.take(&copies.into())?;
    batch_of(schema, all.rows.columns().to_vec(), count)
}

/// Tables for the nodes of a plan, numbered from one.
fn tables_of(plan: &Plan) -> Vec<Vec<TableId>> {
    let mut next = 0;
    Flow::tables_needed(plan)
        .into_iter()
        .map(|count| {
            let own = (next + 1..=next + count as u32).map(TableId).collect();
            next += count as u32;
            own
        })
        .collect()
}

/// All rows of an input.
fn rows_of(published: &Published, input: crate::catalog::RelationId) -> Result<Delta> {
    let (relation, stored) = published
        .catalog
        .relations
        .get(&input)
        .zip(published.relations.get(&input))
        .ok_or_else(|| Error::internal("an input of the view is gone"))?;
    let mut scan = stored.readable(relation)?.scan(&published.snapshot);
    let mut rows = Delta::new();
    while let Some(batch) = scan.next_batch()? {
        rows.push(batch);
    }
    Ok(rows)
}
