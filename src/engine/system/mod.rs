//! What the system says of itself in SQL: `pg_catalog`, `information_schema` and `headwater`.
//!
//! [`System`] is what a statement is bound with. It answers for relations, for table functions and for the functions
//! that look into the catalog. Nothing is computed before a plan that names it runs: a relation is a provider that
//! writes its rows when it is scanned, from the statement's catalog and from what the running engine
//! ([`Live`]) tells.
//!
//! - `definition`: which relations there are, with their columns, from lists of facts about PostgreSQL 15
//! - `sheet`: rows written by column name
//! - `pg_catalog`, `information_schema`, `headwater`: the rows
//! - `name`: objects' numbers to names and back, as `regclass` and its like do
//! - `function`, `describe`, `expand`, `table_function`: the functions
//! - `subquery`: correlated subqueries over all this

mod definition;
mod describe;
mod expand;
mod function;
mod headwater;
mod information_schema;
mod name;
mod object;
mod open;
mod pg_catalog;
mod provider;
mod sheet;
mod subquery;
mod table_function;
#[cfg(test)]
mod tests;

use super::command::Inspection;
use super::late::Listed;
use super::sink::SinkReport;
use super::watermark::Times;
use crate::catalog::{Catalog, LateList, RelationId};
use crate::error::Result;
use crate::sql::bind::{BindSettings, SystemRelations, SystemSubquery};
use arrow::array::RecordBatch;
use async_trait::async_trait;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, ScalarUDF, TableSource};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The variable of a statement that holds the number of its session.
pub(in crate::engine) use function::SESSION;

/// Whether a schema is one of the system's.
pub(super) fn is_schema(name: &str) -> bool {
    matches!(name, "pg_catalog" | "information_schema" | "headwater")
}

/// How a relation fares, as the `headwater` schema shows it.
#[derive(Debug, Clone, Default)]
pub(super) struct Fare {
    /// `live`, `building` or `stopped`; `retrying` for a sink that cannot deliver at the moment.
    pub(super) status: &'static str,
    /// What stopped it.
    pub(super) reason: Option<String>,
}

/// How far a stream's source is.
#[derive(Debug, Clone, Default)]
pub(super) struct SourceFact {
    /// The stream.
    pub(super) relation: Option<RelationId>,
    /// Where it stands.
    pub(super) position: String,
    /// How much there is in all.
    pub(super) total: Option<u64>,
    /// How much is not read yet.
    pub(super) lag: Option<u64>,
    /// What these count.
    pub(super) unit: &'static str,
    /// The rows delivered.
    pub(super) rows: u64,
    /// Rows per second.
    pub(super) rows_per_second: f64,
    /// Whether it waits for the driver.
    pub(super) backpressured: bool,
    /// `running`, `idle`, `finished`, or what stopped it.
    pub(super) state: String,
}

/// A session that is open.
#[derive(Debug, Clone)]
pub(super) struct SessionFact {
    /// Its number.
    pub(super) id: i32,
    /// Its user.
    pub(super) user: String,
}

/// A setting that there is.
#[derive(Debug, Clone)]
pub(super) struct SettingFact {
    /// Its name.
    pub(super) name: &'static str,
    /// Its value unless it is set.
    pub(super) default: &'static str,
    /// What it is for.
    pub(super) description: &'static str,
    /// Who may change it, as `pg_settings.context` has it.
    pub(super) context: &'static str,
}

/// What only the running engine knows.
#[async_trait]
pub(super) trait Live: fmt::Debug + Send + Sync {
    /// The epoch that the statement reads, and its clock in microseconds.
    fn epoch(&self) -> (u64, i64);
    /// When the engine started, in microseconds since 1970.
    fn started_micros(&self) -> i64;
    /// How a relation fares.
    fn fare(&self, relation: RelationId) -> Fare;
    /// How far the sources are.
    fn sources(&self) -> Vec<SourceFact>;
    /// How a sink fares that delivers; `None` for others.
    fn sink(&self, _relation: RelationId) -> Option<SinkReport> {
        None
    }
    /// The open sessions.
    fn sessions(&self) -> Vec<SessionFact>;
    /// Cancels what a session runs; whether there is such a session.
    fn cancel(&self, session: i32) -> bool;
    /// The settings.
    fn settings(&self) -> Vec<SettingFact>;
    /// What the operators and the subscribers do.
    async fn inspect(&self) -> Result<Inspection>;
    /// The rows that failed in a view or could not be decoded for a stream; `None` if it lists none.
    fn faults(&self, relation: RelationId) -> Result<Option<RecordBatch>>;
    /// How far event time is.
    fn times(&self) -> Arc<Times> {
        Arc::default()
    }
    /// What one of a view's window functions has refused; `None` if nothing is listed.
    fn late(&self, _relation: RelationId, _list: &LateList) -> Result<Option<Listed>> {
        Ok(None)
    }
}

/// What everything here is computed from.
#[derive(Debug)]
struct Facts {
    catalog: Arc<Catalog>,
    settings: BindSettings,
    live: Box<dyn Live>,
    /// The rows that were written already: a statement may scan a relation many times.
    written: Mutex<HashMap<(&'static str, &'static str), RecordBatch>>,
    /// What the driver told, if a relation that shows it is read.
    inspected: Mutex<Option<Arc<Inspection>>>,
}

impl Facts {
    /// Asks the driver what runs, once per statement.
    async fn inspect(&self) -> Result<()> {
        if self.inspected.lock().is_some() {
            return Ok(());
        }
        let told = self.live.inspect().await?;
        self.inspected.lock().get_or_insert_with(|| Arc::new(told));
        Ok(())
    }

    /// What the driver told.
    fn inspected(&self) -> Arc<Inspection> {
        self.inspected.lock().clone().unwrap_or_default()
    }
}

/// The system's relations and functions, for one statement.
#[derive(Debug, Clone)]
pub struct System {
    facts: Arc<Facts>,
}

impl System {
    fn of(catalog: Arc<Catalog>, settings: BindSettings, live: Box<dyn Live>) -> Self {
        Self {
            facts: Arc::new(Facts {
                catalog,
                settings,
                live,
                written: Mutex::default(),
                inspected: Mutex::default(),
            }),
        }
    }
}

impl SystemRelations for System {
    fn relation(&self, schema: &str, name: &str) -> Option<Arc<dyn TableSource>> {
        let relation = definition::find(schema, name)?;
        let provider = provider::Provider::of_relation(self.facts.clone(), relation);
        Some(provider_as_source(Arc::new(provider)))
    }

    fn function(&self, name: &str, arguments: &[Expr]) -> Option<Result<Arc<dyn TableSource>>> {
        table_function::call(&self.facts, name, arguments)
    }

    fn scalar_function(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        expand::find(name).or_else(|| function::find(&self.facts, name))
    }

    fn subquery(&self, subquery: SystemSubquery) -> Option<Arc<ScalarUDF>> {
        Some(subquery::function(subquery, &self.facts.settings.time_zone))
    }
}
