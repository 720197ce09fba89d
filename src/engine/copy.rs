//! COPY: rows in bulk, in and out.

use super::command::{Command, Duplicate, Write};
use super::complete::Completion;
use super::session::{Session, result_columns};
use super::{Outcome, Parameters};
use crate::catalog::{Relation, RelationId};
use crate::delta::{Batch, Delta};
use crate::error::{Error, Result};
use crate::sql::bind::{BindSettings, ParameterTypes};
use crate::sql::statement::{self, Copy, CopyDirection, CopyTarget, Parsed};
use crate::types::copy::{Chosen, CopyFormat, CopyReader, Form, Header};
use crate::types::{Type, text::Settings};
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The rows after which COPY turns what it has read into whole rows.
const ROWS_PER_PART: usize = 65_536;

/// The bytes after which it does so, however few rows they are: so that what is too much is noticed in time.
const BYTES_PER_PART: usize = 8 << 20;

/// A COPY that takes rows from the client. Dropped before its end, it leaves nothing.
pub struct CopyIn {
    reader: CopyReader,
    completion: Completion,
    relation: Arc<Relation>,
    columns: usize,
    form: Form,
    parts: Delta,
    bytes: usize,
    bytes_max: usize,
    rows: u64,
    batch_rows: Option<usize>,
    commands: super::command::Commands,
    /// In a transaction the rows go there.
    transaction: Option<oneshot::Sender<(RelationId, Delta)>>,
}

impl CopyIn {
    /// The number of columns that the client sends.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Whether they come in binary.
    pub fn binary(&self) -> bool {
        self.form == Form::Binary
    }

    /// Takes a chunk of the client's data, cut anywhere.
    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.reader.feed(&bytes)?;
        let rows_per_part = self.batch_rows.unwrap_or(ROWS_PER_PART).min(ROWS_PER_PART);
        if self.reader.rows() >= rows_per_part || self.reader.bytes() >= BYTES_PER_PART {
            self.take()?;
        }
        if let Some(batch_rows) = self.batch_rows
            && self.parts.len() >= batch_rows
        {
            self.commit().await?;
        }
        Ok(())
    }

    /// Ends the COPY: the rows are there, in every view, when it returns.
    pub async fn finish(mut self) -> Result<u64> {
        self.reader.finish()?;
        self.take()?;
        match self.transaction.take() {
            Some(transaction) => {
                let delta = std::mem::take(&mut self.parts);
                let _ = transaction.send((self.relation.id, delta));
            }
            None => self.commit().await?,
        }
        Ok(self.rows)
    }

    /// Turns what was read into whole rows.
    fn take(&mut self) -> Result<()> {
        let count = self.reader.rows();
        let arrays = self.reader.take();
        if count == 0 {
            return Ok(());
        }
        let rows = self.completion.complete(&arrays, count)?;
        self.rows += count as u64;
        self.bytes += rows.get_array_memory_size();
        if self.bytes > self.bytes_max {
            return Err(Error::limit(
                "54000",
                format!("COPY is larger than epoch_bytes_max ({} bytes)", self.bytes_max),
            )
            .with_hint("Use COPY ... WITH (batch_rows = n), which commits every n rows, or raise --memory-limit."));
        }
        self.parts.push(Batch::inserts(rows));
        Ok(())
    }

    async fn commit(&mut self) -> Result<()> {
        let delta = std::mem::take(&mut self.parts);
        self.bytes = 0;
        if delta.is_empty() {
            return Ok(());
        }
        let write = Write {
            changes: vec![(self.relation.id, delta)],
            duplicate: Duplicate::Error,
        };
        self.commands.ask(|reply| Command::Write(write, reply)).await?;
        Ok(())
    }
}

impl Session {
    pub(super) async fn copy(&mut self, parsed: &Parsed, copy: &Copy) -> Result<Outcome> {
        match copy.direction {
            CopyDirection::In => {
                self.check_writable("COPY FROM")?;
                self.copy_in(copy)
            }
            CopyDirection::Out => self.copy_out(parsed, copy).await,
        }
    }

    fn copy_in(&mut self, copy: &Copy) -> Result<Outcome> {
        let CopyTarget::Relation(name, names) = &copy.target else {
            return Err(Error::semantic("42601", "COPY FROM needs a relation"));
        };
        let view = self.view();
        let relation = self.find_any(name)?;
        super::change::check_target(&relation, "copy to")?;
        let given = given_columns(&relation, names)?;
        let settings: BindSettings = self.bind_settings();
        let completion = Completion::new(&view.catalog, &settings, &relation, &given, self.now_micros())?;
        let columns: Vec<(String, Type)> = given
            .iter()
            .map(|index| {
                (
                    relation.columns[*index].name.clone(),
                    relation.columns[*index].kind.clone(),
                )
            })
            .collect();
        let format = format_of(&copy.options)?;
        let text: Settings = self.settings();
        let transaction = self.transaction.is_some().then(|| {
            let (sender, receiver) = oneshot::channel();
            self.pending_copy = Some(receiver);
            sender
        });
        let shared = self.engine.shared();
        Ok(Outcome::CopyIn(Box::new(CopyIn {
            reader: CopyReader::new(&relation.name, &columns, format.clone(), text),
            completion,
            columns: columns.len(),
            form: format.form,
            relation,
            parts: Delta::new(),
            bytes: 0,
            bytes_max: shared.config.epoch_bytes_max(),
            rows: 0,
            batch_rows: copy.options.batch_rows,
            commands: shared.commands.clone(),
            transaction,
        })))
    }

    /// Takes over the rows of a COPY that has ended in this transaction.
    pub(super) fn settle_copy(&mut self) -> Result<()> {
        let Some(mut receiver) = self.pending_copy.take() else {
            return Ok(());
        };
        match receiver.try_recv() {
            Ok((relation, delta)) => self.overlay(relation, delta),
            Err(_) => Ok(()),
        }
    }

    async fn copy_out(&mut self, parsed: &Parsed, copy: &Copy) -> Result<Outcome> {
        let format = format_of(&copy.options)?;
        let (columns, rows) = match &copy.target {
            CopyTarget::Subscribe(subscribe) => match self.subscribe(parsed, subscribe).await? {
                Outcome::Subscribe { columns, rows } => (columns, rows),
                _ => return Err(Error::internal("a subscription gives no rows")),
            },
            CopyTarget::Query(query) => {
                let view = self.view();
                self.run_query(&view, parsed, query, &Parameters::default()).await?
            }
            CopyTarget::Relation(name, names) => {
                let relation = self.find_any(name)?;
                let list: Vec<String> = if names.is_empty() {
                    relation
                        .columns
                        .iter()
                        .map(|column| super::show::quoted(&column.name))
                        .collect()
                } else {
                    given_columns(&relation, names)?;
                    names.iter().map(|name| super::show::quoted(name)).collect()
                };
                let text = format!(
                    "SELECT {} FROM {}.{}",
                    list.join(", "),
                    super::show::quoted(&relation.schema),
                    super::show::quoted(&relation.name)
                );
                let query = crate::sql::parse_query(&text)?;
                let view = self.view();
                let bound = self.bind_query(&view, parsed, &query.query, &mut ParameterTypes::default())?;
                let columns = result_columns(&bound.columns);
                let zone = self.settings.zone().name();
                let plan = self.with_parameters(bound.plan, &Parameters::default())?;
                let rows = super::query::run(&view, plan, &columns, &zone).await?;
                (columns, rows)
            }
        };
        Ok(Outcome::CopyOut { columns, rows, format })
    }
}

/// The columns that a COPY gives, by position: those named, or all that are not computed.
fn given_columns(relation: &Relation, names: &[String]) -> Result<Vec<usize>> {
    if names.is_empty() {
        return Ok((0..relation.columns.len())
            .filter(|index| relation.columns[*index].generated.is_none())
            .collect());
    }
    let mut given = Vec::with_capacity(names.len());
    for name in names {
        let index = relation.column(name).ok_or_else(|| {
            Error::semantic(
                "42703",
                format!("column \"{name}\" of relation \"{}\" does not exist", relation.name),
            )
        })?;
        if given.contains(&index) {
            return Err(Error::semantic(
                "42701",
                format!("column \"{name}\" specified more than once"),
            ));
        }
        given.push(index);
    }
    Ok(given)
}

fn format_of(options: &statement::CopyOptions) -> Result<CopyFormat> {
    let form = match options.format {
        statement::CopyFormat::Text => Form::Text,
        statement::CopyFormat::Csv => Form::Csv,
        statement::CopyFormat::Binary => Form::Binary,
    };
    let byte = |what: &str, c: char| {
        u8::try_from(c)
            .map_err(|_| Error::semantic("0A000", format!("COPY {what} must be a single one-byte character")))
    };
    let chosen = |names: &[String]| match names {
        [] => Chosen::None,
        names => Chosen::Named(names.to_vec()),
    };
    Ok(CopyFormat {
        form,
        delimiter: byte("delimiter", options.delimiter)?,
        null: options.null.clone(),
        header: if options.header { Header::Names } else { Header::None },
        quote: byte("quote", options.quote)?,
        escape: byte("escape", options.escape)?,
        force_quote: match &options.force_quote {
            None => Chosen::None,
            Some(names) if names.is_empty() => Chosen::All,
            Some(names) => Chosen::Named(names.clone()),
        },
        force_not_null: chosen(&options.force_not_null),
        force_null: chosen(&options.force_null),
    })
}
