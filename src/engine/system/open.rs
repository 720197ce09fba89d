//! The system of a running engine: what it tells beside the catalog.

use super::{Fare, Live, SessionFact, SettingFact, SourceFact, System};
use crate::catalog::{LateList, RelationId};
use crate::engine::Engine;
use crate::engine::command::{Command, Inspection};
use crate::engine::late::{self, Listed};
use crate::engine::published::{Published, Status};
use crate::engine::query::View;
use crate::engine::settings::{Change, SETTINGS};
use crate::engine::sink::SinkReport;
use crate::engine::watermark::Times;
use crate::error::Result;
use crate::sql::bind::BindSettings;
use crate::state::relation::expand;
use arrow::array::RecordBatch;
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;

impl System {
    /// What a statement of a session sees.
    pub fn new(engine: &Engine, view: &View, settings: &BindSettings) -> Self {
        let running = Running {
            engine: engine.clone(),
            published: view.published.clone(),
        };
        Self::of(view.catalog.clone(), settings.clone(), Box::new(running))
    }
}

/// An engine at the epoch that a statement reads.
struct Running {
    engine: Engine,
    published: Arc<Published>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}", self.published.epoch.0)
    }
}

#[async_trait]
impl Live for Running {
    fn epoch(&self) -> (u64, i64) {
        (self.published.epoch.0, self.published.clock.0)
    }

    fn started_micros(&self) -> i64 {
        let shared = self.engine.shared();
        shared.clock.now().0 - i64::try_from(shared.started.elapsed().as_micros()).unwrap_or(0)
    }

    fn fare(&self, relation: RelationId) -> Fare {
        match self
            .published
            .relations
            .get(&relation)
            .map(|stored| &stored.record.status)
        {
            None | Some(Status::Live) => Fare {
                status: "live",
                reason: None,
            },
            Some(Status::Building) => Fare {
                status: "building",
                reason: None,
            },
            Some(Status::Stopped(reason)) => Fare {
                status: "stopped",
                reason: Some(reason.clone()),
            },
        }
    }

    fn sources(&self) -> Vec<SourceFact> {
        let reports = self.engine.shared().sources.reports().into_iter();
        reports
            .map(|(relation, report)| SourceFact {
                relation: Some(relation),
                position: report.position,
                total: report.total,
                lag: report.lag,
                unit: report.unit,
                rows: report.rows,
                rows_per_second: report.rows_per_second,
                backpressured: report.backpressured,
                state: report.state,
            })
            .collect()
    }

    fn sink(&self, relation: RelationId) -> Option<SinkReport> {
        self.engine.shared().sinks.report(relation)
    }

    fn sessions(&self) -> Vec<SessionFact> {
        let sessions = self.engine.shared().sessions().into_iter();
        sessions
            .map(|(id, entry)| SessionFact { id, user: entry.user })
            .collect()
    }

    fn cancel(&self, session: i32) -> bool {
        let sessions = self.engine.shared().sessions();
        let found = sessions.into_iter().find(|(id, _)| *id == session);
        found.inspect(|(_, entry)| entry.canceller.cancel()).is_some()
    }

    fn settings(&self) -> Vec<SettingFact> {
        SETTINGS
            .iter()
            .map(|setting| SettingFact {
                name: setting.name,
                default: setting.default,
                description: setting.description,
                context: match setting.change {
                    Change::Fixed => "internal",
                    Change::Reported | Change::Session => "user",
                },
            })
            .collect()
    }

    async fn inspect(&self) -> Result<Inspection> {
        let shared = self.engine.shared();
        let mut told = shared.commands.ask(Command::Inspect).await?;
        // What is written but not in memory counts as well.
        for node in told.flows.iter_mut().flat_map(|flow| &mut flow.nodes) {
            let stored: u64 = node.tables.iter().map(|table| shared.store.table_bytes(*table)).sum();
            node.resident_bytes = node.resident_bytes.max(usize::try_from(stored).unwrap_or(usize::MAX));
        }
        Ok(told)
    }

    fn times(&self) -> Arc<Times> {
        self.published.times.clone()
    }

    fn late(&self, relation: RelationId, list: &LateList) -> Result<Option<Listed>> {
        let stored = self.published.relations.get(&relation);
        stored
            .map(|stored| late::read(stored, list, &self.published.snapshot))
            .transpose()
    }

    fn faults(&self, relation: RelationId) -> Result<Option<RecordBatch>> {
        let stored = self.published.relations.get(&relation);
        let Some(faults) = stored.and_then(|stored| stored.faults.as_ref()) else {
            return Ok(None);
        };
        let mut scan = faults.scan(&self.published.snapshot);
        let mut batches = Vec::new();
        while let Some(batch) = scan.next_batch()? {
            batches.push(expand(&batch)?);
        }
        match batches.first() {
            Some(first) => Ok(Some(arrow::compute::concat_batches(&first.schema(), &batches)?)),
            None => Ok(None),
        }
    }
}
