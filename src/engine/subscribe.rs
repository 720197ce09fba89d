//! SUBSCRIBE: a relation's rows, then its changes, as they come.
//!
//! The subscriber is registered with the driver between two epochs and gets the published epoch in return: the
//! snapshot is that epoch's, and every later epoch's change comes through a bounded queue. Who does not keep up is
//! disconnected when the queue is full; the engine never waits for a subscriber.

use super::command::{Command, EpochChange, Subscription};
use super::published::Published;
use super::session::Session;
use super::{Outcome, ResultColumn, RowStream};
use crate::catalog::{Relation, RelationKind};
use crate::delta::{Batch, Delta, Weights, batch_of};
use crate::error::{Error, Result};
use crate::sql::statement::{Parsed, Subscribe};
use crate::types::{Nullability, Type};
use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use futures::StreamExt;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The epochs that a subscriber may be behind before it is disconnected.
const EPOCHS_BEHIND_MAX: usize = 4096;

impl Session {
    /// The relation that a subscription is to.
    fn subscribed(&mut self, subscribe: &Subscribe) -> Result<Arc<Relation>> {
        let Some(name) = &subscribe.relation else {
            return Err(Error::unsupported("SUBSCRIBE TO a query is not supported")
                .with_hint("Create a materialized view of the query, and subscribe to that."));
        };
        let relation = self.find_any(name)?;
        match relation.kind {
            RelationKind::Stream(_) | RelationKind::Table { .. } | RelationKind::MaterializedView(_) => Ok(relation),
            _ => Err(Error::unsupported(format!(
                "SUBSCRIBE TO {} \"{}\" is not supported",
                relation.noun(),
                relation.name
            ))
            .with_hint("Create a materialized view of it, and subscribe to that.")),
        }
    }

    pub(super) fn subscribe_columns(&mut self, _parsed: &Parsed, subscribe: &Subscribe) -> Result<Vec<ResultColumn>> {
        Ok(columns_of(self.subscribed(subscribe)?.as_ref()))
    }

    pub(super) async fn subscribe(&mut self, _parsed: &Parsed, subscribe: &Subscribe) -> Result<Outcome> {
        let relation = self.subscribed(subscribe)?;
        let (sender, receiver) = mpsc::channel(EPOCHS_BEHIND_MAX);
        let request = Subscription {
            relation: relation.id,
            sender,
        };
        let published = self
            .engine
            .shared()
            .commands
            .ask(|reply| Command::Subscribe(request, reply))
            .await?;
        if let Some(epoch) = subscribe.as_of_epoch
            && epoch != published.epoch.0
        {
            let error = Error::semantic("55000", format!("the changes after epoch {epoch} are no longer kept"))
                .with_detail(format!("The current epoch is {}.", published.epoch.0))
                .with_hint("Subscribe with a snapshot instead.");
            return Err(error);
        }
        let columns = columns_of(&relation);
        let shape = Shape {
            schema: schema_of(&columns),
            progress: subscribe.progress,
        };
        let first = if subscribe.snapshot && subscribe.as_of_epoch.is_none() {
            snapshot(published.clone(), relation, shape.clone())?
        } else {
            futures::stream::empty().boxed()
        };
        let later = changes(receiver, shape);
        Ok(Outcome::Subscribe {
            columns,
            rows: first.chain(later).boxed(),
        })
    }
}

/// How a subscription's rows look.
#[derive(Clone)]
struct Shape {
    schema: SchemaRef,
    progress: bool,
}

fn columns_of(relation: &Relation) -> Vec<ResultColumn> {
    let own = relation.columns.iter().map(|column| ResultColumn {
        name: column.name.clone(),
        kind: column.kind.clone(),
    });
    ["epoch", "diff"]
        .iter()
        .map(|name| ResultColumn {
            name: (*name).to_owned(),
            kind: Type::Int8,
        })
        .chain(own)
        .collect()
}

fn schema_of(columns: &[ResultColumn]) -> SchemaRef {
    let fields: Vec<Field> = columns
        .iter()
        .map(|column| column.kind.field(&column.name, Nullability::Nullable))
        .collect();
    Arc::new(Schema::new(fields))
}

/// The rows as of the epoch in which the subscription began.
fn snapshot(published: Arc<Published>, relation: Arc<Relation>, shape: Shape) -> Result<RowStream> {
    let stored = published
        .relations
        .get(&relation.id)
        .ok_or_else(|| Error::semantic("42P01", format!("relation \"{}\" does not exist", relation.name)))?;
    let mut scan = stored.readable(&relation)?.scan(&published.snapshot);
    let epoch = published.epoch.0;
    let (sender, receiver) = mpsc::channel(2);
    tokio::task::spawn_blocking(move || {
        loop {
            let next = match scan.next_batch() {
                Ok(Some(batch)) => shaped(epoch, &batch, &shape.schema),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            let failed = next.is_err();
            if sender.blocking_send(next).is_err() || failed {
                return;
            }
        }
    });
    Ok(stream_of(receiver))
}

fn changes(receiver: mpsc::Receiver<EpochChange>, shape: Shape) -> RowStream {
    futures::stream::unfold((receiver, shape, Open::Yes), |(mut receiver, shape, open)| async move {
        if open == Open::No {
            return None;
        }
        loop {
            let Some(change) = receiver.recv().await else {
                let error = Error::limit(
                    "53000",
                    "the subscription has ended: its client did not keep up, or the relation was dropped",
                )
                .with_hint("Subscribe again, and read faster.");
                return Some((Err(error), (receiver, shape, Open::No)));
            };
            if change.delta.is_empty() && !shape.progress {
                continue;
            }
            let rows = epoch_rows(&change, &shape);
            return Some((rows, (receiver, shape, Open::Yes)));
        }
    })
    .boxed()
}

#[derive(PartialEq, Eq)]
enum Open {
    Yes,
    No,
}

/// An epoch's change as rows: deletes before inserts; an epoch without change is one row of NULLs with diff 0.
fn epoch_rows(change: &EpochChange, shape: &Shape) -> Result<RecordBatch> {
    if change.delta.is_empty() {
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![change.epoch.0 as i64])),
            Arc::new(Int64Array::from(vec![0])),
        ];
        columns.extend(
            shape.schema.fields()[2..]
                .iter()
                .map(|field| arrow::array::new_null_array(field.data_type(), 1)),
        );
        return batch_of(shape.schema.clone(), columns, 1);
    }
    let whole = ordered(&change.delta)?;
    shaped(change.epoch.0, &whole, &shape.schema)
}

fn ordered(delta: &Delta) -> Result<Batch> {
    let schema = delta.batches[0].rows.schema();
    let all = delta.concat(&schema)?;
    let mut order: Vec<u32> = (0..all.len() as u32).collect();
    order.sort_by_key(|row| all.weights.at(*row as usize) > 0);
    all.take(&arrow::array::UInt32Array::from(order))
}

fn shaped(epoch: u64, batch: &Batch, schema: &SchemaRef) -> Result<RecordBatch> {
    let count = batch.len();
    let diffs: Int64Array = match &batch.weights {
        Weights::Ones => Int64Array::from_value(1, count),
        Weights::Each(weights) => weights.clone(),
    };
    let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_value(epoch as i64, count)), Arc::new(diffs)];
    for (column, field) in batch.rows.columns().iter().zip(&schema.fields()[2..]) {
        columns.push(if column.data_type() == field.data_type() {
            column.clone()
        } else {
            arrow::compute::cast(column, field.data_type())?
        });
    }
    debug_assert!(
        columns.iter().all(|column| column.len() == count),
        "all columns are equally long"
    );
    batch_of(schema.clone(), columns, count)
}

/// The items of a channel as a stream.
pub(super) fn stream_of(receiver: mpsc::Receiver<Result<RecordBatch>>) -> RowStream {
    futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|item| (item, receiver))
    })
    .boxed()
}
