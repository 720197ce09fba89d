//! Batch queries: a bound plan over one epoch's rows, executed by DataFusion.
//!
//! The plan's scans of relations get providers that read the epoch's snapshot, plus the transaction's own changes.
//! Rows stream; nothing is collected.

use super::published::{Published, Stored};
use super::{ResultColumn, RowStream};
use crate::catalog::{Catalog, Relation, RelationId};
use crate::delta::{Batch, Delta, Weights, batch_of};
use crate::error::{Error, Result};
use crate::expr::from_datafusion;
use crate::sql::bind::{RelationSource, node};
use crate::state::relation::{RowScan, Rows, expand};
use ahash::RandomState;
use arrow::array::{RecordBatch, UInt32Array};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session as DataFusionSession, TableProvider};
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::datasource::provider_as_source;
use datafusion::execution::context::{SessionContext, SessionState};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, TableScan, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::prelude::SessionConfig;
use futures::{StreamExt, TryStreamExt};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The rows of a batch that a query hands on.
const BATCH_ROWS: usize = 8192;

/// What a query reads: an epoch, and a transaction's own changes.
#[derive(Debug, Clone)]
pub struct View {
    /// The epoch.
    pub published: Arc<Published>,
    /// The definitions, which may be ahead of the epoch's.
    pub catalog: Arc<Catalog>,
    /// The transaction's changes.
    pub overlay: BTreeMap<RelationId, Delta>,
    /// Rows that stand for all of one relation: what RETURNING is about.
    pub only: Option<(RelationId, RecordBatch)>,
}

impl View {
    /// A provider of a relation's rows.
    fn provider(&self, relation: &Arc<Relation>, schema: SchemaRef) -> Result<RelationRows> {
        if let Some((id, rows)) = &self.only
            && *id == relation.id
        {
            let overlay = Batch::inserts(rows.clone()).into();
            return Ok(RelationRows {
                published: self.published.clone(),
                stored: None,
                overlay,
                schema,
            });
        }
        let stored = match self.published.relations.get(&relation.id) {
            Some(stored) => {
                stored.readable(relation)?;
                Some(stored.clone())
            }
            None if matches!(relation.kind, crate::catalog::RelationKind::MaterializedView(_)) => {
                return Err(Error::semantic(
                    "55000",
                    format!("materialized view \"{}\" has not been populated", relation.name),
                )
                .with_hint("It can be read once the transaction that makes it is committed."));
            }
            None => None,
        };
        Ok(RelationRows {
            published: self.published.clone(),
            stored,
            overlay: self.overlay.get(&relation.id).cloned().unwrap_or_default(),
            schema,
        })
    }

    /// The plan with its relations bound to their rows.
    pub fn attach(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            if let Some(window) = node::extension::<node::WindowClause>(&node)
                && let Some(stream) = window.stream
            {
                let time = self.published.times.streams.get(&stream);
                let told = node::WindowClause {
                    latest: Some(time.and_then(|time| time.highest).unwrap_or(i64::MIN)),
                    ..window.clone()
                };
                return Ok(Transformed::yes(LogicalPlan::Extension(Extension {
                    node: Arc::new(told),
                })));
            }
            let LogicalPlan::TableScan(scan) = &node else {
                return Ok(Transformed::no(node));
            };
            let Some(source) = RelationSource::of(&scan.source) else {
                return Ok(Transformed::no(node));
            };
            let provider = self
                .provider(&source.relation, scan.source.schema())
                .map_err(|error| datafusion::error::DataFusionError::External(Box::new(error)))?;
            let attached = TableScan {
                source: provider_as_source(Arc::new(provider)),
                ..scan.clone()
            };
            Ok(Transformed::yes(LogicalPlan::TableScan(attached)))
        })
        .data()
        .map_err(from_datafusion)
    }
}

/// A DataFusion session for one statement.
pub fn session_state(time_zone: &str) -> SessionState {
    let mut config = SessionConfig::new()
        .with_batch_size(BATCH_ROWS)
        .with_target_partitions(1)
        .with_collect_statistics(false);
    config.options_mut().execution.time_zone = Some(time_zone.to_owned());
    let state = SessionContext::new_with_config(config).state();
    super::batch::prepare(state)
}

/// Runs a bound plan and streams its rows, named and typed as the columns say.
pub async fn run(view: &View, plan: LogicalPlan, columns: &[ResultColumn], time_zone: &str) -> Result<RowStream> {
    let physical = plan_physical(view, plan, time_zone).await?;
    let stream = super::executor::run(physical, session_state(time_zone).task_ctx())?;
    let schema: SchemaRef = Arc::new(arrow::datatypes::Schema::new(
        columns
            .iter()
            .map(|column| column.kind.field(&column.name, crate::types::Nullability::Nullable))
            .collect::<Vec<_>>(),
    ));
    Ok(stream
        .map_err(from_datafusion)
        .map(move |batch| shaped(&batch?, &schema))
        .boxed())
}

async fn plan_physical(view: &View, plan: LogicalPlan, time_zone: &str) -> Result<Arc<dyn ExecutionPlan>> {
    let attached = view.attach(plan)?;
    let optimised = super::batch::optimise(attached)?;
    let state = session_state(time_zone);
    state
        .query_planner()
        .create_physical_plan(&optimised, &state)
        .await
        .map_err(from_datafusion)
}

/// Runs a bound plan and gathers all its rows in one batch of its own schema.
pub async fn collect(view: &View, plan: LogicalPlan, time_zone: &str) -> Result<RecordBatch> {
    let physical = plan_physical(view, plan, time_zone).await?;
    let schema = physical.schema();
    let rows = super::executor::run(physical, session_state(time_zone).task_ctx())?;
    let batches: Vec<RecordBatch> = rows.try_collect().await.map_err(from_datafusion)?;
    Ok(arrow::compute::concat_batches(&schema, &batches)?)
}

/// The batch with these columns' Arrow types.
pub fn shaped(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch
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
    batch_of(schema.clone(), columns, batch.num_rows())
}

/// A relation's rows as of an epoch, with a transaction's changes.
#[derive(Debug, Clone)]
struct RelationRows {
    published: Arc<Published>,
    stored: Option<Arc<Stored>>,
    overlay: Delta,
    schema: SchemaRef,
}

#[async_trait]
impl TableProvider for RelationRows {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn DataFusionSession,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        let partition: Arc<dyn PartitionStream> = Arc::new(self.clone());
        Ok(Arc::new(StreamingTableExec::try_new(
            self.schema.clone(),
            vec![partition],
            projection,
            None,
            false,
            limit,
        )?))
    }
}

impl PartitionStream for RelationRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStreamBuilder::new(self.schema.clone(), 2);
        let sender = builder.tx();
        let source = self.clone();
        builder.spawn_blocking(move || {
            let mut reader = match source.open() {
                Ok(reader) => reader,
                Err(error) => {
                    let _ = sender.blocking_send(Err(external(error)));
                    return Ok(());
                }
            };
            loop {
                let next = reader.next_rows().transpose();
                let Some(next) = next else {
                    return Ok(());
                };
                // The receiver is gone: nobody reads on.
                if sender.blocking_send(next.map_err(external)).is_err() {
                    return Ok(());
                }
            }
        });
        builder.build()
    }
}

fn external(error: Error) -> datafusion::error::DataFusionError {
    datafusion::error::DataFusionError::External(Box::new(error))
}

impl RelationRows {
    fn open(&self) -> Result<Reader> {
        let rows = self.stored.as_ref().and_then(|stored| stored.rows.clone());
        let mut removed: HashMap<Vec<u8>, i64, RandomState> = HashMap::default();
        let mut added = Vec::new();
        for batch in &self.overlay.batches {
            let negative: Vec<u32> = (0..batch.len())
                .filter(|row| batch.weights.at(*row) < 0)
                .map(|row| row as u32)
                .collect();
            if negative.is_empty() {
                added.push(expand(batch)?);
                continue;
            }
            if let Some(rows) = &rows {
                let encoded = rows.encode(&batch.rows)?;
                for row in &negative {
                    let row = *row as usize;
                    *removed.entry(encoded.row(row).data().to_vec()).or_insert(0) -= batch.weights.at(row);
                }
            }
            added.push(expand(batch)?);
        }
        added.reverse();
        Ok(Reader {
            scan: rows.as_ref().map(|rows| rows.scan(&self.published.snapshot)),
            rows,
            removed,
            added,
            schema: self.schema.clone(),
        })
    }
}

/// Reads a relation's rows: the snapshot's without those that the transaction removed, then those it added.
struct Reader {
    rows: Option<Rows>,
    scan: Option<RowScan>,
    removed: HashMap<Vec<u8>, i64, RandomState>,
    added: Vec<RecordBatch>,
    schema: SchemaRef,
}

impl Reader {
    fn next_rows(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(scan) = &mut self.scan {
            match scan.next_batch()? {
                Some(batch) => {
                    let left = self.without_removed(batch)?;
                    if left.num_rows() > 0 {
                        return shaped(&left, &self.schema).map(Some);
                    }
                }
                None => self.scan = None,
            }
        }
        while let Some(batch) = self.added.pop() {
            if batch.num_rows() > 0 {
                return shaped(&batch, &self.schema).map(Some);
            }
        }
        Ok(None)
    }

    fn without_removed(&mut self, batch: Batch) -> Result<RecordBatch> {
        let Some(rows) = self.rows.as_ref().filter(|_| !self.removed.is_empty()) else {
            return expand(&batch);
        };
        let encoded = rows.encode(&batch.rows)?;
        let mut weights: Vec<i64> = (0..batch.len()).map(|row| batch.weights.at(row)).collect();
        for (row, weight) in weights.iter_mut().enumerate() {
            if let Some(removed) = self.removed.get_mut(encoded.row(row).data()) {
                let taken = (*removed).min(*weight);
                *removed -= taken;
                *weight -= taken;
            }
        }
        let kept: Vec<u32> = (0..batch.len() as u32)
            .filter(|row| weights[*row as usize] > 0)
            .collect();
        let kept_weights: Vec<i64> = kept.iter().map(|row| weights[*row as usize]).collect();
        let mut left = Batch::inserts(batch.rows).take(&UInt32Array::from(kept))?;
        left.weights = Weights::from(kept_weights);
        expand(&left)
    }
}
