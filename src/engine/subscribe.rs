//! SUBSCRIBE: a relation's rows, then its changes, as they come.
//!
//! The subscriber is registered with the driver between two epochs and gets the published epoch in return: the
//! snapshot is that epoch's, and every later epoch's change comes through a bounded queue. Who does not keep up is
//! disconnected when the queue is full; the engine never waits for a subscriber.

use super::command::{Command, Commands, Subscribed};
use super::feed::{EpochChange, Subscription};
use super::published::Published;
use super::record::{self, Opened};
use super::session::Session;
use super::{ImplicitEnd, Outcome, ResultColumn, RowStream};
use crate::catalog::{Catalog, Relation, RelationId, RelationKind};
use crate::delta::{Batch, Delta, Weights, batch_of};
use crate::error::{Error, Kind, Result};
use crate::sql::bind::ParameterTypes;
use crate::sql::statement::{Parsed, Subscribe};
use crate::state::{Commit, Durability, Store};
use crate::time::Epoch;
use crate::types::{Nullability, Type};
use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use futures::StreamExt;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The epochs that a subscriber may be behind before it is disconnected.
const EPOCHS_BEHIND_MAX: usize = 4096;

/// The schema of the views that live as long as a subscription. It is in no list of schemas, so nobody can name it.
const TEMPORARY_SCHEMA: &str = "pg_temp";

/// How often a temporary view is tried when definitions change meanwhile.
const TRIES_MAX: usize = 10;

impl Session {
    /// The relation that a subscription is to; `None` if a view must be made for it.
    fn subscribed(&mut self, subscribe: &Subscribe) -> Result<Option<Arc<Relation>>> {
        let Some(name) = &subscribe.relation else {
            return Ok(None);
        };
        let relation = self.find_any(name)?;
        match relation.kind {
            RelationKind::Stream(_) | RelationKind::Table { .. } | RelationKind::MaterializedView(_) => {
                Ok(Some(relation))
            }
            RelationKind::View { .. } => Ok(None),
            _ => Err(Error::semantic(
                "42809",
                format!("cannot subscribe to {} \"{}\"", relation.noun(), relation.name),
            )),
        }
    }

    pub(super) fn subscribe_columns(&mut self, parsed: &Parsed, subscribe: &Subscribe) -> Result<Vec<ResultColumn>> {
        if let Some(relation) = self.subscribed(subscribe)? {
            return Ok(columns_of(relation.as_ref()));
        }
        let view = self.view();
        let bound = self.bind_query(&view, parsed, &subscribe.query.query, &mut ParameterTypes::default())?;
        Ok(with_change_columns(super::session::result_columns(&bound.columns)))
    }

    pub(super) async fn subscribe(&mut self, parsed: &Parsed, subscribe: &Subscribe) -> Result<Outcome> {
        let (relation, temporary) = match self.subscribed(subscribe)? {
            Some(relation) => (relation, None),
            None => {
                if subscribe.as_of_epoch.is_some() {
                    return Err(Error::semantic(
                        "55000",
                        "the changes of a query are not kept once its subscription has ended",
                    )
                    .with_hint("Create a materialized view of the query, and subscribe to that."));
                }
                let relation = self.temporary_view(parsed, subscribe).await?;
                let commands = self.engine.shared().commands.clone();
                let id = relation.id;
                (relation, Some(Temporary { id, commands }))
            }
        };
        let (sender, receiver) = mpsc::channel(EPOCHS_BEHIND_MAX);
        let request = Subscription {
            relation: relation.id,
            session: self.process_id(),
            after: subscribe.as_of_epoch.map(Epoch),
            sender,
        };
        let Subscribed { published, past } = self
            .engine
            .shared()
            .commands
            .ask(|reply| Command::Subscribe(request, reply))
            .await?;
        let columns = columns_of(&relation);
        let shape = Shape {
            schema: schema_of(&columns),
            progress: subscribe.progress,
        };
        let first = if subscribe.snapshot && subscribe.as_of_epoch.is_none() {
            snapshot(published.clone(), relation, shape.clone())?
        } else {
            past_changes(past, shape.clone())
        };
        let later = changes(receiver, shape, temporary);
        Ok(Outcome::Subscribe {
            columns,
            rows: first.chain(later).boxed(),
        })
    }

    /// Makes a maintained view of a subscription's query, outside the session's own transaction.
    async fn temporary_view(&mut self, parsed: &Parsed, subscribe: &Subscribe) -> Result<Arc<Relation>> {
        let mut own = self.engine.connect(&self.user, &self.database, &[])?;
        own.settings = self.settings.clone();
        own.token = self.token.clone();
        for _ in 0..TRIES_MAX {
            own.begin_implicit();
            let name = format!("subscription_{}", own.process_id());
            let relation = own.define_temporary(parsed, (TEMPORARY_SCHEMA, name), &subscribe.query)?;
            match own.end_implicit(ImplicitEnd::Commit).await {
                Ok(()) => return Ok(relation),
                Err(error) if error.kind() == Kind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::conflict("the definitions change too fast to subscribe"))
    }
}

/// A view that is dropped when its subscription ends.
struct Temporary {
    id: RelationId,
    commands: Commands,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // A driver that has stopped forgets it at the next start.
        let _ = self.commands.send(Command::DropTemporary(self.id));
    }
}

/// Takes out of the catalog what subscriptions of an earlier process left.
pub(super) fn forget_temporary(store: &Store, opened: &mut Opened) -> Result<()> {
    let ids: Vec<RelationId> = temporary_of(&opened.catalog);
    if ids.is_empty() {
        return Ok(());
    }
    let mut commit = Commit::new();
    for id in ids {
        opened.catalog.relations.remove(&id);
        opened.records.remove(&id);
        record::delete_relation(&mut commit, id);
    }
    store.commit(commit, Durability::Synced)
}

fn temporary_of(catalog: &Catalog) -> Vec<RelationId> {
    let all = catalog.relations.values();
    all.filter(|relation| relation.schema == TEMPORARY_SCHEMA)
        .map(|relation| relation.id)
        .collect()
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
    with_change_columns(own.collect())
}

fn with_change_columns(own: Vec<ResultColumn>) -> Vec<ResultColumn> {
    let change = ["epoch", "diff"].map(|name| ResultColumn {
        name: name.to_owned(),
        kind: Type::Int8,
    });
    change.into_iter().chain(own).collect()
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

/// The changes that were made while the subscriber was away.
fn past_changes(past: Vec<EpochChange>, shape: Shape) -> RowStream {
    let told = past
        .into_iter()
        .filter(move |change| !change.delta.is_empty() || shape.progress)
        .map({
            let shape = shape.clone();
            move |change| epoch_rows(&change, &shape)
        });
    futures::stream::iter(told).boxed()
}

/// The changes as they come. The temporary view, if there is one, lives as long as the stream.
fn changes(receiver: mpsc::Receiver<EpochChange>, shape: Shape, temporary: Option<Temporary>) -> RowStream {
    let start = (receiver, shape, Open::Yes, temporary);
    futures::stream::unfold(start, |(mut receiver, shape, open, temporary)| async move {
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
                return Some((Err(error), (receiver, shape, Open::No, temporary)));
            };
            if change.delta.is_empty() && !shape.progress {
                continue;
            }
            let rows = epoch_rows(&change, &shape);
            return Some((rows, (receiver, shape, Open::Yes, temporary)));
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

/// A change as one batch, deletes before inserts.
pub(super) fn ordered(delta: &Delta) -> Result<Batch> {
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
