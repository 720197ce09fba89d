//! A system relation as DataFusion reads it: its rows are written when it is scanned.

use super::definition::SystemRelation;
use super::sheet::Sheet;
use super::{Facts, headwater, information_schema, pg_catalog};
use crate::error::{Error, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as DataFusionResult;
use datafusion::datasource::{MemTable, TableType};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use std::fmt;
use std::sync::Arc;

type Write = Box<dyn Fn() -> Result<RecordBatch> + Send + Sync>;

/// A relation whose rows are written when they are asked for.
pub(super) struct Provider {
    name: String,
    schema: SchemaRef,
    write: Write,
    /// Whom to ask what runs before the rows are written; `None` where they do not show it.
    inspects: Option<Arc<Facts>>,
}

/// The relations that show what runs.
const INSPECTING: &[&str] = &["operators", "subscriptions"];

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Provider {
    /// A system relation.
    pub(super) fn of_relation(facts: Arc<Facts>, relation: &'static SystemRelation) -> Self {
        Self {
            name: format!("{}.{}", relation.schema, relation.name),
            schema: relation.arrow.clone(),
            inspects: (relation.schema == "headwater" && INSPECTING.contains(&relation.name)).then(|| facts.clone()),
            write: Box::new(move || rows(&facts, relation)),
        }
    }

    /// The rows that a function gives.
    pub(super) fn of_function(
        name: &str,
        schema: SchemaRef,
        write: impl Fn() -> Result<RecordBatch> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.to_owned(),
            schema,
            inspects: None,
            write: Box::new(write),
        }
    }
}

/// The rows of a system relation; of one that nothing here fills, none.
fn rows(facts: &Facts, relation: &'static SystemRelation) -> Result<RecordBatch> {
    let key = (relation.schema, relation.name);
    if let Some(written) = facts.written.lock().get(&key) {
        return Ok(written.clone());
    }
    let mut sheet = Sheet::new(relation);
    match relation.schema {
        "pg_catalog" => pg_catalog::fill(facts, relation.name, &mut sheet),
        "information_schema" => information_schema::fill(facts, relation.name, &mut sheet),
        "headwater" => headwater::fill(facts, relation.name, &mut sheet),
        other => return Err(Error::internal(format!("no system schema is called {other}"))),
    }
    let written = sheet.batch()?;
    facts.written.lock().insert(key, written.clone());
    Ok(written)
}

#[async_trait]
impl TableProvider for Provider {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        if let Some(facts) = &self.inspects {
            let told = facts.inspect().await;
            told.map_err(|error| DataFusionError::External(Box::new(error)))?;
        }
        let batch = (self.write)().map_err(|error| DataFusionError::External(Box::new(error)))?;
        let table = MemTable::try_new(self.schema.clone(), vec![vec![batch]])?;
        table.scan(state, projection, filters, limit).await
    }
}
