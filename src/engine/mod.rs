//! "What is the system, seen from inside?"
//!
//! An [`Engine`] is the handle that everybody shares; a [`Session`] is one client's view of it. Statements that read
//! run against the [`Published`] epoch, as batch queries (`query`); statements that change anything become commands to
//! the [`driver`], which makes epochs of them.
//!
//! - `session`, `transaction`, `settings`, `cursor`: what a client has open
//! - `query`, `change`, `copy`, `definition`, `show`, `explain`, `subscribe`, `verify`: the statements by family
//! - `batch`, `executor`: how a query runs once
//! - `driver`, `base`, `view`, `build`, `install`: how an epoch is made, and how views come to life
//! - `source`, `entrance`: how rows come in that no client sends
//! - `published`, `record`: what readers see, and what is written about it

pub(crate) mod base;
pub(crate) mod batch;
pub(crate) mod build;
pub(crate) mod change;
pub(crate) mod command;
mod complete;
mod copy;
mod cursor;
pub(crate) mod definition;
pub(crate) mod driver;
mod entrance;
mod executor;
mod explain;
mod feed;
pub(crate) mod install;
mod late;
pub(crate) mod plan;
pub(crate) mod published;
pub(crate) mod query;
mod recompute;
pub(crate) mod record;
pub(crate) mod session;
mod settings;
mod show;
mod sink;
pub(crate) mod source;
pub(crate) mod subscribe;
mod system;
mod transaction;
pub(crate) mod verify;
pub(crate) mod view;
pub mod watermark;

pub use copy::CopyIn;
pub use published::Published;
pub use session::{Canceller, ImplicitEnd, Session, TransactionStatus};
pub use source::SourceReport;

use crate::catalog::{Catalog, FIRST_RELATION_ID};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::state::Store;
use crate::time::Clock;
use crate::types::Type;
use arc_swap::ArcSwap;
use arrow::array::RecordBatch;
use command::{Command, Commands};
use futures::stream::BoxStream;
use parking_lot::Mutex;
use published::Stored;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;

/// The system, shared by all sessions.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Clock,
    pub(crate) store: Store,
    pub(crate) published: Arc<ArcSwap<Published>>,
    pub(crate) commands: Commands,
    pub(crate) sources: source::Sources,
    pub(crate) sinks: sink::Sinks,
    sessions: Mutex<HashMap<i32, SessionEntry>>,
    next_process_id: AtomicI32,
    pub(crate) started: Instant,
}

/// A session as others see it.
#[derive(Clone)]
pub(crate) struct SessionEntry {
    pub(crate) secret: i32,
    pub(crate) user: String,
    pub(crate) canceller: Canceller,
}

/// A column of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Type,
}

/// What a statement needs and gives.
#[derive(Debug, Clone, Default)]
pub struct Description {
    /// The types of `$1`, `$2`, ...
    pub parameters: Vec<Type>,
    /// The columns of its result, if it has one.
    pub columns: Option<Vec<ResultColumn>>,
}

/// The values for a statement's parameters.
#[derive(Debug, Clone, Default)]
pub struct Parameters {
    /// Their types.
    pub types: Vec<Type>,
    /// One row, a column per parameter; `None` without parameters.
    pub values: Option<RecordBatch>,
}

/// Something the user is told beside the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// `NOTICE` or `WARNING`.
    pub severity: &'static str,
    /// The SQLSTATE.
    pub code: &'static str,
    /// What.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Notice {
    /// A notice with SQLSTATE `00000`.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            severity: "NOTICE",
            code: "00000",
            message: message.into(),
            detail: None,
            hint: None,
        }
    }

    /// A warning.
    pub fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            severity: "WARNING",
            code,
            ..Self::new(message)
        }
    }

    /// The same with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Rows as they come.
pub type RowStream = BoxStream<'static, Result<RecordBatch>>;

/// What the command tag of a result with rows says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowsTag {
    /// `SELECT n`
    Select,
    /// `FETCH n`
    Fetch,
    /// Some words, then the number of rows: `INSERT 0 n`.
    Prefix(String),
    /// These words alone: `SHOW`, `EXPLAIN`.
    Bare(String),
}

/// What a statement gives.
pub enum Outcome {
    /// Nothing: there was no statement.
    Empty,
    /// A command was carried out.
    Done {
        /// The command tag.
        tag: String,
    },
    /// Rows.
    Rows {
        /// Their columns.
        columns: Vec<ResultColumn>,
        /// The rows.
        rows: RowStream,
        /// The command tag.
        tag: RowsTag,
    },
    /// The client is to send rows.
    CopyIn(Box<CopyIn>),
    /// The client is sent rows in COPY's form.
    CopyOut {
        /// Their columns.
        columns: Vec<ResultColumn>,
        /// The rows.
        rows: RowStream,
        /// How they are written.
        format: crate::types::copy::CopyFormat,
    },
    /// Rows that come as they change, until the client has had enough.
    Subscribe {
        /// Their columns.
        columns: Vec<ResultColumn>,
        /// The rows.
        rows: RowStream,
    },
}

impl Engine {
    /// Opens the store, brings the views to life, and starts the driver.
    pub fn open(config: &Config) -> Result<Self> {
        Self::open_with(config, Clock::System)
    }

    /// The same with a clock of the caller's.
    pub fn open_with(config: &Config, clock: Clock) -> Result<Self> {
        let config = Arc::new(config.clone());
        let store = match &config.data_dir {
            Some(directory) => Store::open(directory, config.memory_limit_bytes / 4)?,
            None => Store::memory()?,
        };
        let mut opened = record::read(&store)?;
        if opened.catalog.next_id < FIRST_RELATION_ID {
            opened.catalog.next_id = FIRST_RELATION_ID;
        }
        subscribe::forget_temporary(&store, &mut opened)?;
        let relations = open_relations(&opened.catalog, &opened.records)?;
        install::sweep(&store, &relations)?;
        let published = Arc::new(ArcSwap::from_pointee(Published {
            epoch: opened.epoch,
            clock: match opened.clock {
                0 => clock.now(),
                clock => crate::time::Timestamp(clock),
            },
            times: Arc::new(record::read_times(&store, &opened.catalog)?),
            snapshot: store.snapshot(),
            catalog: Arc::new(opened.catalog.clone()),
            relations: Arc::new(relations),
        }));
        let (sender, inbox) = std::sync::mpsc::channel();
        let commands = Commands::new(sender);
        let sinks = sink::Sinks::new(store.clone());
        let mut driver = driver::Driver::new(
            store.clone(),
            config.clone(),
            clock.clone(),
            published.clone(),
            opened,
            (commands.clone(), inbox),
            sinks.clone(),
        );
        driver.open_views();
        std::thread::Builder::new()
            .name("driver".to_owned())
            .spawn(move || driver.run())
            .map_err(|error| Error::io(format!("no thread could be started: {error}")))?;
        let sources = source::Sources::new(store.clone(), commands.clone());
        sources.follow(&published.load().catalog);
        Ok(Self {
            shared: Arc::new(Shared {
                config,
                clock,
                store,
                published,
                commands,
                sources,
                sinks,
                sessions: Mutex::default(),
                next_process_id: AtomicI32::new(1),
                started: Instant::now(),
            }),
        })
    }

    /// Opens a session.
    pub fn connect(&self, user: &str, database: &str, parameters: &[(String, String)]) -> Result<Session> {
        let process_id = self.shared.next_process_id.fetch_add(1, Ordering::Relaxed);
        let session = Session::open(self.clone(), process_id, user, database, parameters)?;
        self.shared.sessions.lock().insert(
            process_id,
            SessionEntry {
                secret: session.secret(),
                user: user.to_owned(),
                canceller: session.canceller(),
            },
        );
        Ok(session)
    }

    /// Cancels what a session runs; nothing happens when the secret is wrong.
    pub fn cancel(&self, process_id: i32, secret: i32) {
        let entry = self.shared.sessions.lock().get(&process_id).cloned();
        if let Some(entry) = entry.filter(|entry| entry.secret == secret) {
            entry.canceller.cancel();
        }
    }

    /// The SCRAM verifier of a user.
    pub fn scram_verifier(&self, user: &str) -> Option<String> {
        let verifier = self.shared.published.load().catalog.users.get(user).cloned();
        verifier.filter(|verifier| !verifier.is_empty())
    }

    /// The metrics in Prometheus' text form.
    pub fn metrics_text(&self) -> String {
        let published = self.shared.published.load();
        let store = &self.shared.store;
        format!(
            "# HELP headwater_epoch The last epoch.\n# TYPE headwater_epoch counter\nheadwater_epoch {}\n\
             # HELP headwater_syncs_total Syncs of the log.\n# TYPE headwater_syncs_total counter\nheadwater_syncs_total {}\n\
             # HELP headwater_written_bytes_total Bytes given to the log.\n# TYPE headwater_written_bytes_total counter\nheadwater_written_bytes_total {}\n\
             # HELP headwater_sessions Open sessions.\n# TYPE headwater_sessions gauge\nheadwater_sessions {}\n\
             # HELP headwater_uptime_seconds Time since the start.\n# TYPE headwater_uptime_seconds gauge\nheadwater_uptime_seconds {:.0}\n",
            published.epoch.0,
            store.syncs(),
            store.bytes_written(),
            self.shared.sessions.lock().len(),
            self.shared.started.elapsed().as_secs_f64(),
        )
    }

    /// How far the source of a stream is; `None` without such a stream.
    pub fn source_report(&self, stream: &str) -> Option<SourceReport> {
        let published = self.shared.published.load();
        let mut relations = published.catalog.relations.values();
        let id = relations.find(|relation| relation.name == stream)?.id;
        let mut reports = self.shared.sources.reports().into_iter();
        reports.find(|(other, _)| *other == id).map(|(_, report)| report)
    }

    /// Stops after everything that was accepted is on the disk.
    pub async fn shutdown(&self) {
        self.shared.sources.stop();
        if let Err(error) = self.shared.commands.ask(Command::Stop).await {
            tracing::error!(%error, "the engine did not stop cleanly");
        }
        self.shared.sinks.stop();
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    fn forget(&self, process_id: i32) {
        self.shared.sessions.lock().remove(&process_id);
    }
}

impl Shared {
    /// The sessions that are open.
    pub(crate) fn sessions(&self) -> Vec<(i32, SessionEntry)> {
        let sessions = self.sessions.lock();
        let mut open: Vec<_> = sessions.iter().map(|(id, entry)| (*id, entry.clone())).collect();
        open.sort_by_key(|(id, _)| *id);
        open
    }
}

fn open_relations(
    catalog: &Catalog,
    records: &HashMap<crate::catalog::RelationId, published::Record>,
) -> Result<HashMap<crate::catalog::RelationId, Arc<Stored>>> {
    catalog
        .relations
        .values()
        .map(|relation| {
            let record = records.get(&relation.id).cloned().unwrap_or_default();
            Ok((relation.id, Arc::new(Stored::open(relation, record)?)))
        })
        .collect()
}
