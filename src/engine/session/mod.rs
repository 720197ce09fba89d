//! One client's view of the engine: its settings, its transaction, what it has prepared.
//!
//! [`Session::execute`] runs one statement. Outside a transaction a statement that writes is one epoch of its own; in
//! a transaction it waits for COMMIT. A statement that fails in a transaction leaves only ROLLBACK.
//!
//! - `block`: how a transaction begins and ends; `watch`: how a statement is cancelled

mod block;
mod watch;

use super::command::Command;
use super::cursor::{Cursor, Prepared};
use super::query::View;
use super::settings::SessionSettings;
use super::transaction::{Begun, Health, Transaction, Work};
use super::{Description, Engine, Notice, Outcome, Parameters, ResultColumn, RowStream, RowsTag};
use crate::catalog::{Catalog, RelationId};
use crate::delta::Delta;
use crate::error::Result;
use crate::sql::bind::{BindSettings, Binder, Bound, ParameterTypes};
use crate::sql::statement::{Parsed, Statement};
use crate::types::Type;
use futures::StreamExt;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use watch::{cancellable, watched};

/// Where a session stands, as ReadyForQuery tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStatus {
    /// No transaction.
    Idle,
    /// In a transaction.
    InTransaction,
    /// In a transaction that failed.
    Failed,
}

/// How an implicit transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImplicitEnd {
    /// Its work becomes an epoch.
    Commit,
    /// Its work is dropped.
    Rollback,
}

/// Cancels what a session runs.
#[derive(Debug, Clone, Default)]
pub struct Canceller {
    current: Arc<Mutex<CancellationToken>>,
}

impl Canceller {
    /// Cancels the running statement; nothing happens when none runs.
    pub fn cancel(&self) {
        self.current.lock().cancel();
    }

    /// The token of the next statement.
    fn start(&self) -> CancellationToken {
        let token = CancellationToken::new();
        *self.current.lock() = token.clone();
        token
    }
}

/// One client's view of the engine.
pub struct Session {
    pub(super) engine: Engine,
    process_id: i32,
    secret: i32,
    pub(super) user: String,
    pub(super) database: String,
    pub(super) settings: SessionSettings,
    pub(super) transaction: Option<Transaction>,
    /// Settings as they were before the transaction and at SET LOCAL.
    pub(super) saved_settings: Option<SessionSettings>,
    pub(super) prepared: HashMap<String, Prepared>,
    pub(super) cursors: HashMap<String, Cursor>,
    /// The rows of a COPY in this transaction, once it has ended.
    pub(super) pending_copy: Option<tokio::sync::oneshot::Receiver<(RelationId, Delta)>>,
    notices: Vec<Notice>,
    parameter_changes: Vec<(String, String)>,
    canceller: Canceller,
    pub(super) token: CancellationToken,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.engine.forget(self.process_id);
    }
}

impl Session {
    pub(super) fn open(
        engine: Engine,
        process_id: i32,
        user: &str,
        database: &str,
        parameters: &[(String, String)],
    ) -> Result<Self> {
        let mut settings = SessionSettings::new(user);
        for (name, value) in parameters {
            if SessionSettings::find(name).is_some() {
                settings.set(name, value)?;
            }
        }
        settings.set_initial();
        Ok(Self {
            engine,
            process_id,
            secret: i32::from_ne_bytes(rand_bytes()),
            user: user.to_owned(),
            database: database.to_owned(),
            settings,
            transaction: None,
            saved_settings: None,
            prepared: HashMap::new(),
            cursors: HashMap::new(),
            pending_copy: None,
            notices: Vec::new(),
            parameter_changes: Vec::new(),
            canceller: Canceller::default(),
            token: CancellationToken::new(),
        })
    }

    /// The number by which others cancel what it runs.
    pub fn process_id(&self) -> i32 {
        self.process_id
    }

    /// The secret that goes with the number.
    pub fn secret(&self) -> i32 {
        self.secret
    }

    /// Cancels what it runs, from elsewhere.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// Where it stands.
    pub fn status(&self) -> TransactionStatus {
        match &self.transaction {
            None => TransactionStatus::Idle,
            Some(transaction) if transaction.begun == Begun::Implicitly => TransactionStatus::Idle,
            Some(transaction) if transaction.health == Health::Failed => TransactionStatus::Failed,
            Some(_) => TransactionStatus::InTransaction,
        }
    }

    /// What of the settings decides the text form of values.
    pub fn settings(&self) -> crate::types::text::Settings {
        use crate::types::text::{DateOrder, Settings};
        let date_order = match self.settings.get("DateStyle") {
            Some("ISO, DMY") => DateOrder::Dmy,
            Some("ISO, YMD") => DateOrder::Ymd,
            _ => DateOrder::Mdy,
        };
        Settings {
            time_zone: self.settings.zone(),
            date_order,
            now_micros: self.now_micros(),
        }
    }

    /// The value of a setting, as SHOW prints it.
    pub fn setting(&self, name: &str) -> Option<String> {
        self.settings.get(name).map(str::to_owned)
    }

    /// What the user is to be told, once.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// The settings whose new values the client is to be told, once.
    pub fn take_parameter_changes(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.parameter_changes)
    }

    pub(super) fn notice(&mut self, notice: Notice) {
        self.notices.push(notice);
    }

    pub(super) fn report(&mut self, change: Option<(String, String)>) {
        self.parameter_changes.extend(change);
    }

    /// Splits and parses a query text.
    pub fn parse(&self, text: &str) -> Result<Vec<Parsed>> {
        crate::sql::parse(text)
    }

    /// When the transaction began, or the statement outside one.
    pub(super) fn now_micros(&self) -> i64 {
        match &self.transaction {
            Some(transaction) => transaction.started_micros,
            None => self.engine.shared().clock.now().0,
        }
    }

    /// What names mean for this session.
    pub(super) fn bind_settings(&self) -> BindSettings {
        let mut variables: BTreeMap<String, String> = super::settings::SETTINGS
            .iter()
            .filter_map(|setting| {
                Some((
                    setting.name.to_ascii_lowercase(),
                    self.settings.get(setting.name)?.to_owned(),
                ))
            })
            .collect();
        variables.insert(
            "search_path".to_owned(),
            self.settings.get("search_path").unwrap_or("public").to_owned(),
        );
        variables.insert(super::system::SESSION.to_owned(), self.process_id.to_string());
        BindSettings {
            search_path: self.search_path(),
            time_zone: self.settings.zone().name(),
            user: self.user.clone(),
            database: self.database.clone(),
            variables,
        }
    }

    /// The schemas that names are looked up in: those that exist.
    pub(super) fn search_path(&self) -> Vec<String> {
        let catalog = self.catalog();
        let mut path = self.settings.search_path(&self.user);
        path.retain(|schema| catalog.has_schema(schema) || super::system::is_schema(schema));
        path
    }

    /// The definitions as this session sees them.
    pub(super) fn catalog(&self) -> Arc<Catalog> {
        match &self.transaction {
            Some(Transaction {
                work: Work {
                    catalog: Some(catalog), ..
                },
                ..
            }) => catalog.clone(),
            Some(Transaction {
                published: Some(published),
                ..
            }) => published.catalog.clone(),
            _ => self.engine.shared().published.load().catalog.clone(),
        }
    }

    /// What a statement reads. In a transaction the first read settles the epoch.
    pub(super) fn view(&mut self) -> View {
        let current = self.engine.shared().published.load_full();
        match &mut self.transaction {
            None => View {
                catalog: current.catalog.clone(),
                published: current,
                overlay: BTreeMap::new(),
                only: None,
            },
            Some(transaction) => {
                let published = transaction.published.get_or_insert(current).clone();
                let catalog = transaction
                    .work
                    .catalog
                    .clone()
                    .unwrap_or_else(|| published.catalog.clone());
                View {
                    published,
                    catalog,
                    overlay: transaction.work.overlay.clone(),
                    only: None,
                }
            }
        }
    }

    /// Binds a query of a statement.
    pub(super) fn bind_query(
        &mut self,
        view: &View,
        statement: &Parsed,
        query: &crate::sql::ast::Query,
        parameters: &mut ParameterTypes,
    ) -> Result<Bound> {
        let settings = self.bind_settings();
        let system = super::system::System::new(&self.engine, view, &settings);
        Binder::new(&view.catalog, &settings, &system)
            .with_source(&statement.source)
            .bind_query(query, parameters)
    }

    /// What a statement needs and gives.
    pub fn describe(&mut self, statement: &Parsed, parameters: &[Option<Type>]) -> Result<Description> {
        let result = self.try_describe(statement, parameters);
        if result.is_err() {
            self.fail();
        }
        result
    }

    fn try_describe(&mut self, statement: &Parsed, parameters: &[Option<Type>]) -> Result<Description> {
        self.check_health(&statement.statement)?;
        let mut types = ParameterTypes::given(parameters.to_vec());
        let columns = self.describe_columns(statement, &statement.statement, &mut types)?;
        types.settle();
        Ok(Description {
            parameters: types.types.into_iter().map(|kind| kind.unwrap_or(Type::Text)).collect(),
            columns,
        })
    }

    fn describe_columns(
        &mut self,
        parsed: &Parsed,
        statement: &Statement,
        types: &mut ParameterTypes,
    ) -> Result<Option<Vec<ResultColumn>>> {
        Ok(match statement {
            Statement::Query(query) => {
                let view = self.view();
                Some(result_columns(&self.bind_query(&view, parsed, query, types)?.columns))
            }
            Statement::Insert { .. } | Statement::Update { .. } | Statement::Delete { .. } => {
                self.describe_change(parsed, statement, types)?
            }
            Statement::Show(show) => Some(self.show_columns(show)?),
            Statement::Explain { .. } => Some(vec![ResultColumn {
                name: "QUERY PLAN".to_owned(),
                kind: Type::Text,
            }]),
            Statement::Verify(name) => Some(self.verify_columns(name)?),
            Statement::Subscribe(subscribe) => Some(self.subscribe_columns(parsed, subscribe)?),
            Statement::Execute { name, .. } => {
                let prepared = self.prepared_statement(name)?;
                let mut given = ParameterTypes::given(prepared.types.iter().cloned().map(Some).collect());
                self.describe_columns(&prepared.parsed.clone(), &prepared.parsed.statement.clone(), &mut given)?
            }
            Statement::Fetch { cursor, .. } => Some(self.cursor_columns(cursor)?),
            _ => None,
        })
    }

    /// Runs a statement.
    pub async fn execute(&mut self, statement: &Parsed, parameters: &Parameters) -> Result<Outcome> {
        for text in &statement.notices {
            self.notice(Notice {
                code: "42622",
                ..Notice::new(text.clone())
            });
        }
        self.token = self.canceller.start();
        let token = self.token.clone();
        let timeout = self.settings.statement_timeout();
        let result = {
            let work = self.dispatch(statement, &statement.statement, parameters);
            cancellable(token.clone(), timeout, work).await
        };
        match result {
            Ok(outcome) => Ok(watched(outcome, token, timeout)),
            Err(error) => {
                self.fail();
                Err(error)
            }
        }
    }

    async fn dispatch(&mut self, parsed: &Parsed, statement: &Statement, parameters: &Parameters) -> Result<Outcome> {
        self.settle_copy()?;
        self.check_health(statement)?;
        match statement {
            Statement::Query(query) => self.query(parsed, query, parameters).await,
            Statement::Insert { .. }
            | Statement::Update { .. }
            | Statement::Delete { .. }
            | Statement::Truncate { .. } => {
                self.check_writable(statement_word(statement))?;
                self.change(parsed, statement, parameters).await
            }
            Statement::Copy(copy) => self.copy(parsed, copy).await,
            Statement::Subscribe(subscribe) => self.subscribe(parsed, subscribe).await,
            Statement::Explain { options, target } => self.explain(parsed, options, target, parameters).await,
            Statement::Verify(name) => self.verify(name).await,
            Statement::Show(show) => self.show(show),
            Statement::Begin(modes) => self.begin(modes),
            Statement::Commit(chain) => self.commit(*chain).await,
            Statement::Rollback(chain) => self.rollback(*chain),
            Statement::Savepoint(name) => self.savepoint(name),
            Statement::ReleaseSavepoint(name) => self.release_savepoint(name),
            Statement::RollbackToSavepoint(name) => self.rollback_to_savepoint(name),
            Statement::SetTransaction { scope, modes } => self.set_transaction(*scope, modes),
            Statement::Set { name, value, scope } => self.set(name, value, *scope),
            Statement::Reset(which) => self.reset(which),
            Statement::Prepare { .. } | Statement::Execute { .. } | Statement::Deallocate(_) => {
                Box::pin(self.prepared(parsed, statement)).await
            }
            Statement::Declare { .. } | Statement::Fetch { .. } | Statement::Move { .. } | Statement::Close(_) => {
                self.cursor(parsed, statement, parameters).await
            }
            Statement::Discard(what) => self.discard(*what),
            Statement::Flush => {
                self.engine.shared().commands.ask(Command::Flush).await?;
                done("FLUSH")
            }
            Statement::Listen(_) => done("LISTEN"),
            Statement::Unlisten(_) => done("UNLISTEN"),
            Statement::Notify { .. } => done("NOTIFY"),
            Statement::Nothing(tag) => done(tag),
            _ => {
                self.check_writable(statement_word(statement))?;
                self.define(parsed, statement).await
            }
        }
    }

    /// Runs the statement inside another one (EXECUTE).
    pub(super) async fn dispatch_inner(&mut self, parsed: &Parsed, parameters: &Parameters) -> Result<Outcome> {
        let statement = parsed.statement.clone();
        self.dispatch(parsed, &statement, parameters).await
    }

    async fn query(
        &mut self,
        parsed: &Parsed,
        query: &crate::sql::ast::Query,
        parameters: &Parameters,
    ) -> Result<Outcome> {
        let view = self.view();
        let (columns, rows) = self.run_query(&view, parsed, query, parameters).await?;
        Ok(Outcome::Rows {
            columns,
            rows,
            tag: RowsTag::Select,
        })
    }

    /// Binds and starts a query.
    pub(super) async fn run_query(
        &mut self,
        view: &View,
        parsed: &Parsed,
        query: &crate::sql::ast::Query,
        parameters: &Parameters,
    ) -> Result<(Vec<ResultColumn>, RowStream)> {
        let mut types = ParameterTypes::given(parameters.types.iter().cloned().map(Some).collect());
        let bound = self.bind_query(view, parsed, query, &mut types)?;
        let plan = self.with_parameters(bound.plan, parameters)?;
        let columns = result_columns(&bound.columns);
        let zone = self.settings.zone().name();
        let rows = super::query::run(view, plan, &columns, &zone).await?;
        Ok((columns, rows))
    }

    /// The plan with the parameters' values and the transaction's time put in.
    pub(super) fn with_parameters(
        &self,
        plan: datafusion::logical_expr::LogicalPlan,
        parameters: &Parameters,
    ) -> Result<datafusion::logical_expr::LogicalPlan> {
        let plan = crate::sql::bind::fix_now(plan, self.now_micros())?;
        match &parameters.values {
            None => Ok(plan),
            Some(values) => crate::sql::with_parameter_values(plan, values),
        }
    }
}

/// A command that was carried out.
pub(super) fn done(tag: &str) -> Result<Outcome> {
    Ok(Outcome::Done { tag: tag.to_owned() })
}

/// Columns as clients see them.
pub(super) fn result_columns(columns: &[(String, Type)]) -> Vec<ResultColumn> {
    columns
        .iter()
        .map(|(name, kind)| ResultColumn {
            name: name.clone(),
            kind: kind.clone(),
        })
        .collect()
}

/// A stream of one batch.
pub(super) fn rows_of(batch: arrow::array::RecordBatch) -> RowStream {
    futures::stream::iter([Ok(batch)]).boxed()
}

fn statement_word(statement: &Statement) -> &'static str {
    match statement {
        Statement::Insert { .. } => "INSERT",
        Statement::Update { .. } => "UPDATE",
        Statement::Delete { .. } => "DELETE",
        Statement::Truncate { .. } => "TRUNCATE TABLE",
        Statement::Drop { .. } => "DROP",
        _ => "a definition",
    }
}

/// Bytes that cannot be guessed, for the secret of a session.
fn rand_bytes() -> [u8; 4] {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u8(0);
    (hasher.finish() as u32).to_ne_bytes()
}
