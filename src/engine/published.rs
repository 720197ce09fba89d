//! What readers see: everything as of one epoch.
//!
//! After each epoch the driver publishes a new [`Published`]; a reader takes the current one and keeps it as long as
//! its statement (or transaction) lasts. Readers never see the middle of an epoch and never block one.

use super::watermark::{Marker, Times, stored_schema};
use crate::catalog::{Catalog, Relation, RelationId, RelationKind};
use crate::delta::KeyCodec;
use crate::error::{Error, Result};
use crate::state::outbox::Outbox;
use crate::state::relation::{Form, Rows};
use crate::state::{Snapshot, TableId};
use crate::time::{Epoch, Timestamp};
use crate::types::Nullability;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// The database as of one epoch.
#[derive(Debug)]
pub struct Published {
    /// The epoch.
    pub epoch: Epoch,
    /// Its clock.
    pub clock: Timestamp,
    /// The rows.
    pub snapshot: Snapshot,
    /// The definitions.
    pub catalog: Arc<Catalog>,
    /// Where the rows of each relation are.
    pub relations: Arc<HashMap<RelationId, Arc<Stored>>>,
    /// How far event time is.
    pub times: Arc<Times>,
}

/// Where a relation's rows and state are, and how it fares.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Whose they are.
    pub relation: RelationId,
    /// Its columns.
    pub schema: SchemaRef,
    /// Its rows; none for plain views, indexes and sinks.
    pub rows: Option<Rows>,
    /// What it has still to deliver (sinks).
    pub outbox: Option<Outbox>,
    /// The columns of the key of a keyed table and their encoding.
    pub key: Option<Arc<Key>>,
    /// Rows that failed in it (views and sinks).
    pub faults: Option<Rows>,
    /// Rows that came too late for its windows (views).
    pub late: Option<Rows>,
    /// What moves its watermark (streams).
    pub marker: Option<Arc<Marker>>,
    /// What is written about it.
    pub record: Record,
}

/// The key of a table.
#[derive(Debug)]
pub struct Key {
    /// The columns, by position.
    pub columns: Vec<usize>,
    codec: KeyCodec,
}

impl Key {
    /// Encodes the keys of rows.
    pub fn encode(&self, rows: &RecordBatch) -> Result<arrow::row::Rows> {
        let columns: Vec<ArrayRef> = self.columns.iter().map(|index| rows.column(*index).clone()).collect();
        self.codec.encode(&columns, rows.num_rows())
    }
}

/// What the store says of a relation beside its definition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The table of its rows.
    pub rows: Option<u32>,
    /// The table of what it has to deliver.
    #[serde(default)]
    pub outbox: Option<u32>,
    /// The table of its failed rows.
    pub faults: Option<u32>,
    /// The table of the rows that came too late.
    #[serde(default)]
    pub late: Option<u32>,
    /// The state tables of its flow, per node.
    pub tables: Vec<Vec<u32>>,
    /// The plan that the state belongs to, as text.
    pub plan: String,
    /// How it fares.
    pub status: Status,
}

/// How a relation fares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// It is there and current.
    #[default]
    Live,
    /// It is being filled with what existed before it.
    Building,
    /// It stopped, for a reason.
    Stopped(String),
}

impl Record {
    /// All tables that belong to the relation.
    pub fn all_tables(&self) -> Vec<TableId> {
        let own = self
            .rows
            .iter()
            .chain(&self.outbox)
            .chain(&self.faults)
            .chain(&self.late)
            .copied();
        own.chain(self.tables.iter().flatten().copied()).map(TableId).collect()
    }

    /// The state tables of the flow.
    pub fn flow_tables(&self) -> Vec<Vec<TableId>> {
        self.tables
            .iter()
            .map(|node| node.iter().copied().map(TableId).collect())
            .collect()
    }
}

impl Stored {
    /// Opens the places that a record names.
    pub fn open(relation: &Relation, record: Record) -> Result<Self> {
        let schema = schema_of(relation);
        let (form, key) = match &relation.kind {
            RelationKind::Stream(_) => (Form::Log, None),
            RelationKind::Table { primary_key } if !primary_key.is_empty() => {
                let types = primary_key
                    .iter()
                    .map(|index| schema.field(*index).data_type().clone())
                    .collect();
                let key = Key {
                    columns: primary_key.clone(),
                    codec: KeyCodec::keys(types)?,
                };
                (Form::Keyed, Some(Arc::new(key)))
            }
            _ => (Form::Bag, None),
        };
        let rows = record
            .rows
            .map(|table| Rows::new(TableId(table), form, stored_schema(relation)))
            .transpose()?;
        let outbox = record
            .outbox
            .map(|table| Outbox::new(TableId(table), schema.clone()))
            .transpose()?;
        let faults = record
            .faults
            .map(|table| Rows::new(TableId(table), Form::Bag, faults_schema()))
            .transpose()?;
        let late = record
            .late
            .map(|table| Rows::new(TableId(table), Form::Bag, super::late::schema()))
            .transpose()?;
        Ok(Self {
            relation: relation.id,
            schema,
            rows,
            outbox,
            key,
            faults,
            late,
            marker: Marker::of(relation)?.map(Arc::new),
            record,
        })
    }

    /// The rows, or why they cannot be read.
    pub fn readable(&self, relation: &Relation) -> Result<&Rows> {
        match &self.record.status {
            Status::Live => {}
            Status::Building => {
                return Err(Error::semantic(
                    "55000",
                    format!("{} \"{}\" is still being filled", relation.noun(), relation.name),
                )
                .with_hint("Wait until it has caught up; headwater.views shows its progress."));
            }
            Status::Stopped(reason) => {
                return Err(Error::semantic(
                    "55000",
                    format!("{} \"{}\" has stopped: {reason}", relation.noun(), relation.name),
                )
                .with_hint("Drop it and create it anew once the reason is gone."));
            }
        }
        self.rows.as_ref().ok_or_else(|| {
            Error::semantic(
                "42809",
                format!("{} \"{}\" keeps no rows", relation.noun(), relation.name),
            )
        })
    }
}

/// The Arrow schema of a relation's rows.
pub fn schema_of(relation: &Relation) -> SchemaRef {
    let fields = relation.columns.iter().map(|column| {
        let nullability = if column.not_null {
            Nullability::NotNull
        } else {
            Nullability::Nullable
        };
        column.kind.field(&column.name, nullability).with_nullable(true)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The columns of `row_errors(view)`.
pub fn faults_schema() -> SchemaRef {
    use crate::types::Type;
    Arc::new(Schema::new(vec![
        Type::Text.field("message", Nullability::Nullable),
        Type::Text.field("row", Nullability::Nullable),
    ]))
}
