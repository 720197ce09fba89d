//! What a session keeps by name: prepared statements and cursors.

use super::session::{Session, done};
use super::{Outcome, Parameters, ResultColumn, RowStream, RowsTag};
use crate::error::{Error, Result};
use crate::sql::statement::{CursorQuery, FetchDirection, OneOrAll, Parsed, Statement};
use crate::types::Type;
use arrow::array::RecordBatch;
use futures::StreamExt;

/// A statement of PREPARE.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The statement.
    pub parsed: Parsed,
    /// The types of its parameters.
    pub types: Vec<Type>,
}

/// An open cursor.
pub struct Cursor {
    columns: Vec<ResultColumn>,
    rows: RowStream,
    /// Rows that came but were not fetched.
    left: Option<RecordBatch>,
    lifetime: Lifetime,
}

/// How long a cursor stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lifetime {
    /// To the end of its transaction.
    Transaction,
    /// To the end of the session (`WITH HOLD`).
    Session,
}

impl Session {
    pub(super) fn prepared_statement(&self, name: &str) -> Result<&Prepared> {
        self.prepared
            .get(name)
            .ok_or_else(|| Error::semantic("26000", format!("prepared statement \"{name}\" does not exist")))
    }

    /// PREPARE, EXECUTE, DEALLOCATE.
    pub(super) async fn prepared(&mut self, parsed: &Parsed, statement: &Statement) -> Result<Outcome> {
        match statement {
            Statement::Prepare { name, types, statement } => {
                if self.prepared.contains_key(name) {
                    return Err(Error::semantic(
                        "42P05",
                        format!("prepared statement \"{name}\" already exists"),
                    ));
                }
                let inner = Parsed {
                    statement: (**statement).clone(),
                    ..parsed.clone()
                };
                let given: Vec<Option<Type>> = types.iter().cloned().map(Some).collect();
                let description = self.describe(&inner, &given)?;
                self.prepared.insert(
                    name.clone(),
                    Prepared {
                        parsed: inner,
                        types: description.parameters,
                    },
                );
                done("PREPARE")
            }
            Statement::Execute { name, parameters } => {
                let prepared = self.prepared_statement(name)?.clone();
                if prepared.types.len() != parameters.len() {
                    return Err(Error::semantic(
                        "42601",
                        format!("wrong number of parameters for prepared statement \"{name}\""),
                    )
                    .with_detail(format!(
                        "Expected {} parameters but got {}.",
                        prepared.types.len(),
                        parameters.len()
                    )));
                }
                let values = self.constant_row(parameters, &prepared.types).await?;
                let given = Parameters {
                    types: prepared.types,
                    values,
                };
                let inner = prepared.parsed;
                Box::pin(self.dispatch_inner(&inner, &given)).await
            }
            Statement::Deallocate(OneOrAll::All) => {
                self.prepared.clear();
                done("DEALLOCATE ALL")
            }
            Statement::Deallocate(OneOrAll::One(name)) => {
                self.prepared_statement(name)?;
                self.prepared.remove(name);
                done("DEALLOCATE")
            }
            _ => Err(Error::internal("not a statement about prepared statements")),
        }
    }

    /// The values of constant expressions, as one row.
    async fn constant_row(
        &mut self,
        expressions: &[crate::sql::ast::Expr],
        types: &[Type],
    ) -> Result<Option<RecordBatch>> {
        if expressions.is_empty() {
            return Ok(None);
        }
        let view = self.view();
        let plan = {
            let settings = self.bind_settings();
            let system = super::system::System::new(&self.engine, &view, &settings);
            let binder = crate::sql::bind::Binder::new(&view.catalog, &settings, &system);
            crate::sql::constant_plan(&binder, expressions, types)?
        };
        let plan = self.with_parameters(plan, &Parameters::default())?;
        let zone = self.settings.zone().name();
        super::query::collect(&view, plan, &zone).await.map(Some)
    }

    /// DECLARE, FETCH, MOVE, CLOSE.
    pub(super) async fn cursor(
        &mut self,
        parsed: &Parsed,
        statement: &Statement,
        parameters: &Parameters,
    ) -> Result<Outcome> {
        match statement {
            Statement::Declare {
                name,
                query,
                scroll,
                hold,
                binary,
            } => {
                if *scroll {
                    return Err(Error::unsupported("SCROLL cursors are not supported").with_hint("Use NO SCROLL."));
                }
                if *binary {
                    return Err(Error::unsupported("BINARY cursors are not supported")
                        .with_hint("The extended protocol gives binary results."));
                }
                let lifetime = if *hold {
                    Lifetime::Session
                } else {
                    Lifetime::Transaction
                };
                if lifetime == Lifetime::Transaction
                    && self.status() == super::TransactionStatus::Idle
                    && self.transaction.is_none()
                {
                    return Err(Error::semantic(
                        "25P01",
                        "DECLARE CURSOR can only be used in transaction blocks",
                    ));
                }
                if self.cursors.contains_key(name) {
                    return Err(Error::semantic("42P03", format!("cursor \"{name}\" already exists")));
                }
                let (columns, rows) = match query {
                    CursorQuery::Query(query) => {
                        let view = self.view();
                        self.run_query(&view, parsed, query, parameters).await?
                    }
                    CursorQuery::Subscribe(subscribe) => match self.subscribe(parsed, subscribe).await? {
                        Outcome::Subscribe { columns, rows } => (columns, rows),
                        _ => return Err(Error::internal("a subscription gives no rows")),
                    },
                };
                self.cursors.insert(
                    name.clone(),
                    Cursor {
                        columns,
                        rows,
                        left: None,
                        lifetime,
                    },
                );
                done("DECLARE CURSOR")
            }
            Statement::Fetch { direction, cursor } => {
                let (columns, batches) = self.fetch(cursor, *direction).await?;
                let rows = futures::stream::iter(batches.into_iter().map(Ok)).boxed();
                Ok(Outcome::Rows {
                    columns,
                    rows,
                    tag: RowsTag::Fetch,
                })
            }
            Statement::Move { direction, cursor } => {
                let (_, batches) = self.fetch(cursor, *direction).await?;
                let moved: usize = batches.iter().map(RecordBatch::num_rows).sum();
                done(&format!("MOVE {moved}"))
            }
            Statement::Close(OneOrAll::All) => {
                self.cursors.clear();
                done("CLOSE CURSOR ALL")
            }
            Statement::Close(OneOrAll::One(name)) => match self.cursors.remove(name) {
                Some(_) => done("CLOSE CURSOR"),
                None => Err(no_cursor(name)),
            },
            _ => Err(Error::internal("not a statement about cursors")),
        }
    }

    pub(super) fn cursor_columns(&self, name: &str) -> Result<Vec<ResultColumn>> {
        self.cursors
            .get(name)
            .map(|cursor| cursor.columns.clone())
            .ok_or_else(|| no_cursor(name))
    }

    async fn fetch(&mut self, name: &str, direction: FetchDirection) -> Result<(Vec<ResultColumn>, Vec<RecordBatch>)> {
        let wanted = match direction {
            FetchDirection::All => usize::MAX,
            FetchDirection::Count(count) if count >= 0 => usize::try_from(count).unwrap_or(usize::MAX),
            FetchDirection::Relative(1) => 1,
            _ => {
                return Err(Error::semantic("55000", "cursor can only scan forward")
                    .with_hint("Declare it anew to read it again."));
            }
        };
        let cursor = self.cursors.get_mut(name).ok_or_else(|| no_cursor(name))?;
        let mut batches = Vec::new();
        let mut missing = wanted;
        while missing > 0 {
            let next = match cursor.left.take() {
                Some(batch) => Some(batch),
                None => cursor.rows.next().await.transpose()?,
            };
            let Some(batch) = next else {
                break;
            };
            let taken = batch.num_rows().min(missing);
            if taken < batch.num_rows() {
                cursor.left = Some(batch.slice(taken, batch.num_rows() - taken));
            }
            missing -= taken;
            if taken > 0 {
                batches.push(batch.slice(0, taken));
            }
        }
        Ok((cursor.columns.clone(), batches))
    }

    /// Closes the cursors that end with their transaction.
    pub(super) fn close_transaction_cursors(&mut self) {
        self.cursors.retain(|_, cursor| cursor.lifetime == Lifetime::Session);
    }
}

fn no_cursor(name: &str) -> Error {
    Error::semantic("34000", format!("cursor \"{name}\" does not exist"))
}
