//! The extended protocol: Parse, Bind, Describe, Execute, Close; and the statements that it prepares.
//!
//! What is run between two Syncs is one transaction. Where a single Execute is followed by Sync, which is the common
//! case, the statement is run on its own instead: a client that has sent Execute is owed nothing before it sends Sync or
//! Flush, so waiting for the next message's kind delays nobody.

use super::channel::Broken;
use super::connection::{Connection, Pipeline};
use super::frontend::{Bind, Target};
use super::portal::{Cursor, Pace, Piece, Portal, Progress};
use super::report;
use crate::config::PREPARED_STATEMENTS_MAX;
use crate::engine::{Outcome, Parameters, ResultColumn, TransactionStatus};
use crate::error::{Error, Result};
use crate::sql::statement::{Discard, OneOrAll, Parsed, Statement};
use crate::types::text::Settings;
use crate::types::{ColumnBuilder, Nullability, Type};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::Schema;
use bytes::Bytes;
use pgwire::messages::PgWireBackendMessage as Backend;
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{BindComplete, CloseComplete, ParseComplete, PortalSuspended};
use pgwire::messages::response::EmptyQueryResponse;
use std::collections::HashMap;
use std::sync::Arc;

/// The prepared statements of a session, by name; the unnamed one's is empty.
#[derive(Default)]
pub(super) struct Statements(HashMap<String, Arc<Prepared>>);

/// A prepared statement.
pub(super) struct Prepared {
    /// The statement; `None` for an empty text.
    statement: Option<Arc<Parsed>>,
    /// The types of its parameters.
    parameters: Vec<Type>,
    /// The columns of its result, if it has any.
    columns: Option<Vec<ResultColumn>>,
}

impl Statements {
    fn get(&self, name: &str) -> Result<Arc<Prepared>> {
        self.0.get(name).cloned().ok_or_else(|| {
            let message = if name.is_empty() {
                "unnamed prepared statement does not exist".to_owned()
            } else {
                format!("prepared statement \"{name}\" does not exist")
            };
            Error::semantic("26000", message)
        })
    }

    fn check_free(&self, name: &str) -> Result<()> {
        if !name.is_empty() && self.0.contains_key(name) {
            return Err(Error::semantic(
                "42P05",
                format!("prepared statement \"{name}\" already exists"),
            ));
        }
        if self.0.len() >= PREPARED_STATEMENTS_MAX {
            return Err(
                Error::limit("54000", "too many prepared statements").with_detail(format!(
                    "The limit is {PREPARED_STATEMENTS_MAX} (prepared_statements_max)."
                )),
            );
        }
        Ok(())
    }

    /// Forgets the unnamed statement.
    pub(super) fn forget_unnamed(&mut self) {
        self.0.remove("");
    }

    /// Forgets a statement; whether there was one.
    pub(super) fn forget(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }
}

impl Connection {
    /// Answers a `Parse`.
    pub(super) fn parse(&mut self, name: String, text: &str, kinds: &[u32]) -> Result<()> {
        let mut parsed = self.session.parse(text)?;
        if parsed.len() > 1 {
            return Err(Error::syntax(
                "cannot insert multiple commands into a prepared statement",
            ));
        }
        let prepared = match parsed.pop() {
            None => Prepared {
                statement: None,
                parameters: Vec::new(),
                columns: None,
            },
            Some(statement) => {
                let kinds = kinds
                    .iter()
                    .map(|oid| parameter_type(*oid))
                    .collect::<Result<Vec<_>>>()?;
                let description = self.session.describe(&statement, &kinds)?;
                Prepared {
                    statement: Some(Arc::new(statement)),
                    parameters: description.parameters,
                    columns: description.columns,
                }
            }
        };
        self.statements.check_free(&name)?;
        self.statements.0.insert(name, Arc::new(prepared));
        self.output.put(&Backend::ParseComplete(ParseComplete::new()));
        Ok(())
    }

    /// Answers a `Bind`.
    pub(super) fn bind(&mut self, bind: Bind) -> Result<()> {
        let prepared = self.statements.get(&bind.statement)?;
        let settings = self.session.settings();
        let parameters = bound(&prepared, &bind, settings)?;
        let width = prepared.columns.as_ref().map_or(0, Vec::len);
        let formats = bind.result_formats;
        if formats.len() > 1 && formats.len() != width {
            return Err(super::frontend::violation(format!(
                "bind message has {} result formats but query has {width} columns",
                formats.len()
            )));
        }
        check_formats(&formats)?;
        let portal = Portal {
            statement: prepared.statement.clone(),
            parameters,
            formats,
            columns: prepared.columns.clone(),
            progress: Progress::New,
        };
        self.portals.insert(bind.portal, portal)?;
        self.output.put(&Backend::BindComplete(BindComplete::new()));
        Ok(())
    }

    /// Answers a `Describe`.
    pub(super) fn describe(&mut self, target: &Target) -> Result<()> {
        let (columns, formats) = match target {
            Target::Statement(name) => {
                let prepared = self.statements.get(name)?;
                let oids = prepared.parameters.iter().map(Type::oid).collect();
                self.output
                    .put(&Backend::ParameterDescription(ParameterDescription::new(oids)));
                (prepared.columns.clone(), Vec::new())
            }
            Target::Portal(name) => {
                let portal = self.portals.get(name)?;
                (portal.columns.clone(), portal.formats.clone())
            }
        };
        let message = match columns {
            Some(columns) => report::row_description(&columns, &formats),
            None => Backend::NoData(NoData::new()),
        };
        self.output.put(&message);
        Ok(())
    }

    /// Answers a `Close`; closing what is not there is no error.
    pub(super) fn close(&mut self, target: &Target) {
        match target {
            Target::Statement(name) => {
                self.statements.forget(name);
            }
            Target::Portal(name) => self.portals.remove(name),
        }
        self.output.put(&Backend::CloseComplete(CloseComplete::new()));
    }

    /// Answers an `Execute`. The outer error ends the connection, the inner one the pipeline.
    pub(super) async fn execute(&mut self, name: &str, rows_max: usize) -> std::result::Result<Result<()>, Broken> {
        let portal = match self.portals.get(name) {
            Ok(portal) => portal,
            Err(error) => return Ok(Err(error)),
        };
        match &portal.progress {
            Progress::New => {
                if let Err(error) = self.start_portal(name).await? {
                    return Ok(Err(error));
                }
            }
            Progress::NoMoreRows(tag) => {
                self.output.put(&report::complete(report::tag_text(tag, 0)));
                return Ok(Ok(()));
            }
            Progress::Done if portal.statement.is_none() => {}
            Progress::Done => {
                let problem = format!("portal \"{name}\" cannot be run");
                return Ok(Err(Error::semantic("55000", problem)));
            }
            Progress::Rows(_) => {}
        }
        self.put_piece(name, rows_max).await
    }

    /// Runs a portal's statement, and answers it unless it has rows.
    async fn start_portal(&mut self, name: &str) -> std::result::Result<Result<()>, Broken> {
        let portal = match self.portals.get_mut(name) {
            Ok(portal) => portal,
            Err(error) => return Ok(Err(error)),
        };
        portal.progress = Progress::Done;
        let Some(statement) = portal.statement.clone() else {
            self.output.put(&Backend::EmptyQueryResponse(EmptyQueryResponse::new()));
            return Ok(Ok(()));
        };
        let parameters = portal.parameters.clone();
        self.begin_if_needed().await?;
        if self.forget_prepared(&statement) {
            self.output.put(&report::complete("DEALLOCATE"));
            return Ok(Ok(()));
        }
        let execution = self.session.execute(&statement, &parameters);
        let outcome = match self.watch.over(execution).await? {
            Ok(outcome) => outcome,
            Err(error) => return Ok(Err(error)),
        };
        report::put_asides(&mut self.session, &mut self.output);
        let (columns, cursor) = match outcome {
            Outcome::Empty => {
                self.output.put(&Backend::EmptyQueryResponse(EmptyQueryResponse::new()));
                return Ok(Ok(()));
            }
            Outcome::Done { tag } => return Ok(self.put_tag_or_error(Ok(tag))),
            Outcome::CopyIn(copy) => {
                let result = self.copy_in(*copy).await?;
                return Ok(self.put_tag_or_error(result));
            }
            Outcome::CopyOut { columns, rows, format } => {
                let result = self.copy_out(columns, rows, format).await?;
                return Ok(self.put_tag_or_error(result));
            }
            Outcome::Rows { columns, rows, tag } => (columns, Cursor::new(rows, tag, Pace::Bulk)),
            Outcome::Subscribe { columns, rows } => {
                (columns, Cursor::new(rows, crate::engine::RowsTag::Select, Pace::Live))
            }
        };
        let portal = match self.portals.get_mut(name) {
            Ok(portal) => portal,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(promised) = &portal.columns
            && !same_shape(promised, &columns)
        {
            return Ok(Err(Error::unsupported("cached plan must not change result type")));
        }
        portal.columns = Some(columns);
        portal.progress = Progress::Rows(cursor);
        Ok(Ok(()))
    }

    fn put_tag_or_error(&mut self, result: Result<String>) -> Result<()> {
        let tag = result?;
        report::put_asides(&mut self.session, &mut self.output);
        self.output.put(&report::complete(tag));
        Ok(())
    }

    /// What DEALLOCATE and DISCARD mean for the statements that were prepared by messages, of which the engine does not
    /// know. Whether that is all there is to do.
    pub(super) fn forget_prepared(&mut self, parsed: &Parsed) -> bool {
        if self.session.status() == TransactionStatus::Failed {
            return false;
        }
        match &parsed.statement {
            Statement::Deallocate(OneOrAll::One(name)) => self.statements.forget(name),
            Statement::Deallocate(OneOrAll::All) | Statement::Discard(Discard::All) => {
                self.statements.0.clear();
                false
            }
            _ => false,
        }
    }

    /// Sends the next rows of a portal that has some.
    async fn put_piece(&mut self, name: &str, rows_max: usize) -> std::result::Result<Result<()>, Broken> {
        let settings = self.session.settings();
        let Ok(portal) = self.portals.get_mut(name) else {
            return Ok(Ok(()));
        };
        let columns = portal.columns.as_deref().unwrap_or(&[]);
        let Progress::Rows(cursor) = &mut portal.progress else {
            return Ok(Ok(()));
        };
        let piece = cursor
            .put(
                &mut self.watch,
                &mut self.output,
                columns,
                &portal.formats,
                &settings,
                rows_max,
            )
            .await?;
        match piece {
            Err(error) => {
                portal.progress = Progress::Done;
                return Ok(Err(error));
            }
            Ok(Piece::Suspended) => {
                self.output.put(&Backend::PortalSuspended(PortalSuspended::new()));
            }
            Ok(Piece::Ended(count)) => {
                let tag = cursor.tag().clone();
                portal.progress = Progress::NoMoreRows(tag.clone());
                report::put_asides(&mut self.session, &mut self.output);
                self.output.put(&report::complete(report::tag_text(&tag, count)));
            }
        }
        Ok(Ok(()))
    }

    /// Begins the pipeline's transaction, unless one is open or this statement is all of it.
    async fn begin_if_needed(&mut self) -> std::result::Result<(), Broken> {
        if self.pipeline != Pipeline::Fresh || self.session.status() != TransactionStatus::Idle {
            return Ok(());
        }
        if self.watch.peek_kind().await? == b'S' {
            return Ok(());
        }
        self.session.begin_implicit();
        self.pipeline = Pipeline::Open;
        Ok(())
    }
}

fn parameter_type(oid: u32) -> Result<Option<Type>> {
    if oid == 0 || oid == crate::types::oid::UNKNOWN {
        return Ok(None);
    }
    Type::of_oid(oid).map(Some).ok_or_else(|| {
        Error::semantic("42704", format!("type with OID {oid} does not exist"))
            .with_hint("Leave the parameter's type open, or cast it in the statement.")
    })
}

/// Whether rows of `actual` columns can be sent to a client that was promised others.
fn same_shape(promised: &[ResultColumn], actual: &[ResultColumn]) -> bool {
    promised.len() == actual.len()
        && promised
            .iter()
            .zip(actual)
            .all(|(promised, actual)| promised.kind.oid() == actual.kind.oid())
}

fn check_formats(formats: &[i16]) -> Result<()> {
    match formats.iter().find(|format| !matches!(format, 0 | 1)) {
        None => Ok(()),
        Some(format) => Err(Error::semantic("22023", format!("unsupported format code: {format}"))),
    }
}

/// The values of a `Bind` as a row.
fn bound(prepared: &Prepared, bind: &Bind, settings: Settings) -> Result<Parameters> {
    let kinds = &prepared.parameters;
    if bind.parameters.len() != kinds.len() {
        return Err(super::frontend::violation(format!(
            "bind message supplies {} parameters, but prepared statement \"{}\" requires {}",
            bind.parameters.len(),
            bind.statement,
            kinds.len()
        )));
    }
    let formats = &bind.parameter_formats;
    if formats.len() > 1 && formats.len() != kinds.len() {
        return Err(super::frontend::violation(format!(
            "bind message has {} parameter formats but {} parameters",
            formats.len(),
            kinds.len()
        )));
    }
    check_formats(formats)?;
    if kinds.is_empty() {
        return Ok(Parameters::default());
    }
    let mut fields = Vec::with_capacity(kinds.len());
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(kinds.len());
    for (index, (kind, value)) in kinds.iter().zip(&bind.parameters).enumerate() {
        let format = report::format_of(formats, index);
        let column =
            one_value(kind, value.as_ref(), format, settings).map_err(|error| place(error, &bind.portal, index + 1))?;
        fields.push(kind.field(format!("${}", index + 1), Nullability::Nullable));
        columns.push(column);
    }
    let row = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
    Ok(Parameters {
        types: kinds.clone(),
        values: Some(row),
    })
}

fn one_value(kind: &Type, value: Option<&Bytes>, format: i16, settings: Settings) -> Result<ArrayRef> {
    let mut builder = ColumnBuilder::new(kind).with_settings(settings);
    match (value, format) {
        (None, _) => builder.push_null(),
        (Some(bytes), 0) => builder.push_text(Some(crate::types::text::utf8(bytes)?))?,
        (Some(bytes), _) => builder.push_binary(Some(bytes))?,
    }
    Ok(builder.finish())
}

/// Says which parameter an error is about, as PostgreSQL does.
fn place(error: Error, portal: &str, number: usize) -> Error {
    let place = if portal.is_empty() {
        format!("unnamed portal parameter ${number}")
    } else {
        format!("portal \"{portal}\" parameter ${number}")
    };
    error.with_context(place)
}
