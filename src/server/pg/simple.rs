//! The simple protocol: a text of statements, answered in order.
//!
//! Several statements in one text are one transaction: all of them count, or none.

use super::channel::Broken;
use super::connection::{Connection, Pipeline};
use super::portal::put_rows;
use super::report;
use crate::engine::{ImplicitEnd, Outcome, Parameters, TransactionStatus};
use crate::error::Error;
use crate::sql::statement::Parsed;
use futures::StreamExt as _;
use pgwire::messages::PgWireBackendMessage as Backend;
use pgwire::messages::response::EmptyQueryResponse;

impl Connection {
    /// Answers a `Query`.
    pub(super) async fn query(&mut self, text: &str) -> Result<(), Broken> {
        self.statements.forget_unnamed();
        self.portals.forget_unnamed();
        match self.session.parse(text) {
            Err(error) => self.report(&error),
            Ok(statements) if statements.is_empty() => {
                self.output.put(&Backend::EmptyQueryResponse(EmptyQueryResponse::new()));
            }
            Ok(statements) => self.run_all(&statements).await?,
        }
        if self.pipeline == Pipeline::Open {
            // Statements of a pipeline that no Sync has ended were waiting for this.
            self.pipeline = Pipeline::Fresh;
        }
        self.ready().await
    }

    async fn run_all(&mut self, statements: &[Parsed]) -> Result<(), Broken> {
        let idle = self.session.status() == TransactionStatus::Idle;
        let implicit = self.pipeline == Pipeline::Open || (idle && statements.len() > 1);
        if implicit && self.pipeline != Pipeline::Open {
            self.session.begin_implicit();
        }
        let mut last_tag = None;
        for statement in statements {
            self.put_tag(last_tag.take());
            match self.run_one(statement).await? {
                Ok(tag) => last_tag = Some(tag),
                Err(error) => {
                    self.report(&error);
                    if implicit && let Err(error) = self.end_implicit(ImplicitEnd::Rollback).await? {
                        tracing::error!(%error, "an implicit transaction could not be rolled back");
                    }
                    return Ok(());
                }
            }
        }
        // The last statement is complete when the transaction is, so that its tag is never a false promise.
        if implicit && let Err(error) = self.end_implicit(ImplicitEnd::Commit).await? {
            self.report(&error);
            return Ok(());
        }
        self.put_tag(last_tag);
        Ok(())
    }

    fn put_tag(&mut self, tag: Option<Tag>) {
        match tag {
            None => {}
            Some(Tag::Empty) => self.output.put(&Backend::EmptyQueryResponse(EmptyQueryResponse::new())),
            Some(Tag::Complete(tag)) => self.output.put(&report::complete(tag)),
        }
    }

    /// Runs one statement and answers it up to its tag.
    async fn run_one(&mut self, statement: &Parsed) -> Result<Result<Tag, Error>, Broken> {
        if self.forget_prepared(statement) {
            return Ok(Ok(Tag::Complete("DEALLOCATE".to_owned())));
        }
        let parameters = Parameters::default();
        let execution = self.session.execute(statement, &parameters);
        let outcome = match self.watch.over(execution).await? {
            Ok(outcome) => outcome,
            Err(error) => return Ok(Err(error)),
        };
        report::put_asides(&mut self.session, &mut self.output);
        let answered = match outcome {
            Outcome::Empty => return Ok(Ok(Tag::Empty)),
            Outcome::Done { tag } => Ok(tag),
            Outcome::Rows { columns, rows, tag } => {
                let mut rows = rows.fuse();
                // What fails before the first row, constants among it, fails before the rows are described.
                let first = match self.watch.over(rows.next()).await? {
                    Some(Err(error)) => return Ok(Err(error)),
                    other => other,
                };
                let rows = futures::stream::iter(first).chain(rows).boxed();
                self.output.put(&report::row_description(&columns, &[]));
                let settings = self.session.settings();
                put_rows(&mut self.watch, &mut self.output, &columns, rows, &settings)
                    .await?
                    .map(|count| report::tag_text(&tag, count))
            }
            Outcome::CopyIn(copy) => self.copy_in(*copy).await?,
            Outcome::CopyOut { columns, rows, format } => self.copy_out(columns, rows, format).await?,
            Outcome::Subscribe { columns, rows } => self.subscribe(columns, rows).await?,
        };
        report::put_asides(&mut self.session, &mut self.output);
        Ok(answered.map(Tag::Complete))
    }
}

/// How a statement ended well.
enum Tag {
    /// There was none.
    Empty,
    /// It is complete.
    Complete(String),
}
