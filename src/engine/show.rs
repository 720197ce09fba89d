//! SHOW, SET, RESET, DISCARD: what a session is told and may change about itself.

use super::session::{Session, done, rows_of};
use super::settings::{SETTINGS, SessionSettings};
use super::{Notice, Outcome, ResultColumn, RowsTag};
use crate::catalog::{Relation, RelationId, RelationKind, Retention};
use crate::delta::batch_of;
use crate::error::{Error, Result};
use crate::sql::statement::{Discard, OneOrAll, SetScope, SetValue, Show, TransactionModes};
use crate::types::{Nullability, Type};
use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::Schema;
use std::fmt::Write as _;
use std::sync::Arc;

impl Session {
    pub(super) fn show_columns(&self, show: &Show) -> Result<Vec<ResultColumn>> {
        Ok(self.shown(show)?.0)
    }

    pub(super) fn show(&mut self, show: &Show) -> Result<Outcome> {
        let (columns, lines) = self.shown(show)?;
        let schema = Arc::new(Schema::new(
            columns
                .iter()
                .map(|column| column.kind.field(&column.name, Nullability::Nullable))
                .collect::<Vec<_>>(),
        ));
        let arrays = (0..columns.len())
            .map(|index| {
                let values: Vec<Option<&str>> = lines.iter().map(|line| line[index].as_deref()).collect();
                Arc::new(StringArray::from(values)) as ArrayRef
            })
            .collect();
        let batch = batch_of(schema, arrays, lines.len())?;
        Ok(Outcome::Rows {
            columns,
            rows: rows_of(batch),
            tag: RowsTag::Bare("SHOW".to_owned()),
        })
    }

    #[expect(clippy::type_complexity, reason = "columns and lines of a small table")]
    fn shown(&self, show: &Show) -> Result<(Vec<ResultColumn>, Vec<Vec<Option<String>>>)> {
        let text = |name: &str| ResultColumn {
            name: name.to_owned(),
            kind: Type::Text,
        };
        let list = |noun: &str| {
            let catalog = self.catalog();
            let lines = catalog
                .relations
                .values()
                .filter(|relation| relation.noun() == noun)
                .map(|relation| vec![Some(relation.schema.clone()), Some(relation.name.clone())])
                .collect();
            (vec![text("schema"), text("name")], lines)
        };
        Ok(match show {
            Show::Setting(name) => {
                let known = SessionSettings::find(name).map_or(name.as_str(), |setting| setting.name);
                let value = self.settings.get(name).ok_or_else(|| {
                    Error::semantic("42704", format!("unrecognized configuration parameter \"{name}\""))
                })?;
                (vec![text(known)], vec![vec![Some(value.to_owned())]])
            }
            Show::All => {
                let lines = SETTINGS
                    .iter()
                    .map(|setting| {
                        let value = self.settings.get(setting.name).unwrap_or_default().to_owned();
                        vec![
                            Some(setting.name.to_owned()),
                            Some(value),
                            Some(setting.description.to_owned()),
                        ]
                    })
                    .collect();
                (vec![text("name"), text("setting"), text("description")], lines)
            }
            Show::Streams => list("stream"),
            Show::Tables => list("table"),
            Show::Views => list("view"),
            Show::MaterializedViews => list("materialized view"),
            Show::Sinks => list("sink"),
            Show::Indexes => list("index"),
            Show::Schemas => {
                let catalog = self.catalog();
                let names = std::iter::once("public").chain(catalog.schemas.iter().map(String::as_str));
                (
                    vec![text("name")],
                    names.map(|name| vec![Some(name.to_owned())]).collect(),
                )
            }
            Show::Watermarks => {
                let published = self.engine.shared().published.load_full();
                let shown = |micros: Option<i64>| micros.map(super::watermark::time_text);
                let lines = super::watermark::reports(&published.catalog, &published.times)
                    .into_iter()
                    .map(|report| {
                        vec![
                            Some(report.name),
                            Some(report.kind.to_owned()),
                            shown(report.watermark),
                            shown(report.highest),
                            report.held_back_by,
                            Some(report.late_rows.to_string()),
                            Some(report.state),
                        ]
                    })
                    .collect();
                let columns = [
                    "name",
                    "kind",
                    "watermark",
                    "highest",
                    "held_back_by",
                    "late_rows",
                    "state",
                ];
                (columns.map(text).to_vec(), lines)
            }
            Show::Create(kind, name) => {
                let relation = match kind {
                    Some(kind) => self.find(*kind, name)?,
                    None => self.find_any(name)?,
                };
                let columns = vec![text("name"), text("create_statement")];
                (
                    columns,
                    vec![vec![Some(relation.name.clone()), Some(relation.sql.clone())]],
                )
            }
        })
    }

    pub(super) fn set(&mut self, name: &str, value: &SetValue, scope: SetScope) -> Result<Outcome> {
        if scope == SetScope::Transaction && self.transaction.is_none() {
            self.notice(Notice::warning(
                "25P01",
                "SET LOCAL can only be used in transaction blocks",
            ));
            return done("SET");
        }
        let change = match value {
            SetValue::Default => self.settings.reset(name)?,
            SetValue::Values(values) => {
                let text = if name == "search_path" {
                    quoted_list(values)
                } else {
                    values.join(", ")
                };
                self.settings.set(name, &text)?
            }
        };
        if scope == SetScope::Transaction
            && let Some(transaction) = &mut self.transaction
        {
            let canonical = SessionSettings::find(name).map_or(name, |setting| setting.name);
            transaction.local_settings.push(canonical.to_owned());
        }
        self.report(change);
        done("SET")
    }

    /// Takes back what SET LOCAL changed, when the transaction has become an epoch.
    pub(super) fn end_local_settings(&mut self, saved: &SessionSettings, local: &[String]) {
        for name in local {
            if let Some(value) = saved.get(name).map(str::to_owned)
                && let Ok(change) = self.settings.set(name, &value)
            {
                self.report(change);
            }
        }
    }

    pub(super) fn reset(&mut self, which: &OneOrAll) -> Result<Outcome> {
        match which {
            OneOrAll::One(name) => {
                let change = self.settings.reset(name)?;
                self.report(change);
            }
            OneOrAll::All => {
                for change in self.settings.reset_all() {
                    self.report(Some(change));
                }
            }
        }
        done("RESET")
    }

    pub(super) fn set_transaction(&mut self, scope: SetScope, modes: &TransactionModes) -> Result<Outcome> {
        if let Some(level) = &modes.isolation {
            super::settings::isolation(level)?;
        }
        if let Some(read_only) = modes.read_only {
            use super::transaction::Access;
            match (scope, &mut self.transaction) {
                (SetScope::Transaction, Some(transaction)) => {
                    transaction.access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
                }
                (SetScope::Transaction, None) => {
                    self.notice(Notice::warning(
                        "25P01",
                        "SET TRANSACTION can only be used in transaction blocks",
                    ));
                }
                (SetScope::Session, _) => {
                    let value = if read_only { "on" } else { "off" };
                    let change = self.settings.set("default_transaction_read_only", value)?;
                    self.report(change);
                }
            }
        }
        done("SET")
    }

    pub(super) fn discard(&mut self, what: Discard) -> Result<Outcome> {
        let tag = match what {
            Discard::All => {
                if self.status() == super::TransactionStatus::InTransaction {
                    return Err(Error::semantic(
                        "25001",
                        "DISCARD ALL cannot run inside a transaction block",
                    ));
                }
                self.prepared.clear();
                self.cursors.clear();
                for change in self.settings.reset_all() {
                    self.report(Some(change));
                }
                "DISCARD ALL"
            }
            Discard::Plans => "DISCARD PLANS",
            Discard::Sequences => "DISCARD SEQUENCES",
            Discard::Temporary => "DISCARD TEMP",
        };
        done(tag)
    }
}

fn quoted_list(values: &[String]) -> String {
    let quoted: Vec<String> = values
        .iter()
        .map(|value| {
            let plain = value
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            if plain { value.clone() } else { format!("\"{value}\"") }
        })
        .collect();
    quoted.join(", ")
}

/// An identifier as it must be written.
pub fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn with_options<'a>(options: impl Iterator<Item = (&'a str, String)>) -> String {
    let parts: Vec<String> = options
        .map(|(name, value)| format!("{name} = {}", literal(&value)))
        .collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!(" WITH ({})", parts.join(", "))
    }
}

/// The statement that makes a relation.
pub fn create_statement(relation: &Relation) -> String {
    let name = if relation.schema == "public" {
        quoted(&relation.name)
    } else {
        format!("{}.{}", quoted(&relation.schema), quoted(&relation.name))
    };
    match &relation.kind {
        RelationKind::Stream(stream) => {
            let mut parts = column_texts(relation);
            if let Some((index, expression)) = &stream.watermark {
                parts.push(format!(
                    "WATERMARK FOR {} AS {expression}",
                    quoted(&relation.columns[*index].name)
                ));
            }
            let mut options: Vec<(&str, String)> = Vec::new();
            match stream.retention {
                Retention::Forever => {}
                Retention::None => options.push(("retention", "none".to_owned())),
                Retention::Millis(millis) => options.push(("retention", millis_text(millis))),
            }
            if let Some(millis) = stream.idle_timeout_ms {
                options.push(("idle_timeout", millis_text(millis)));
            }
            if let Some(millis) = stream.max_future_skew_ms {
                options.push(("max_future_skew", millis_text(millis)));
            }
            options.extend(
                stream
                    .connector
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.clone())),
            );
            format!(
                "CREATE STREAM {name} (\n    {}\n){}",
                parts.join(",\n    "),
                with_options(options.into_iter())
            )
        }
        RelationKind::Table { primary_key } => {
            let mut parts = column_texts(relation);
            if !primary_key.is_empty() {
                let key: Vec<String> = primary_key
                    .iter()
                    .map(|index| quoted(&relation.columns[*index].name))
                    .collect();
                parts.push(format!("PRIMARY KEY ({})", key.join(", ")));
            }
            format!("CREATE TABLE {name} (\n    {}\n)", parts.join(",\n    "))
        }
        RelationKind::View { query } => format!("CREATE VIEW {name}{} AS\n{query}", names_text(relation)),
        RelationKind::MaterializedView(view) => {
            let shown = view.options.iter().filter(|(option, _)| *option != "time_zone");
            let options = with_options(shown.map(|(option, value)| (option.as_str(), value.clone())));
            let emit = match view.emit {
                crate::catalog::Emit::OnUpdate => "",
                crate::catalog::Emit::OnWindowClose => "\nEMIT ON WINDOW CLOSE",
            };
            format!(
                "CREATE MATERIALIZED VIEW {name}{}{options} AS\n{}{emit}",
                names_text(relation),
                view.query
            )
        }
        RelationKind::Sink(sink) => {
            let options = with_options(
                sink.options
                    .iter()
                    .map(|(option, value)| (option.as_str(), value.clone())),
            );
            format!("CREATE SINK {name} AS\n{}{options}", sink.query)
        }
        RelationKind::Index { on: RelationId(on), .. } => format!("CREATE INDEX {name} ON {on}"),
    }
}

fn names_text(relation: &Relation) -> String {
    let names: Vec<String> = relation.columns.iter().map(|column| quoted(&column.name)).collect();
    format!(" ({})", names.join(", "))
}

fn column_texts(relation: &Relation) -> Vec<String> {
    relation
        .columns
        .iter()
        .map(|column| {
            let mut text = format!("{} {}", quoted(&column.name), column.kind);
            if column.not_null {
                text.push_str(" NOT NULL");
            }
            if let Some(default) = &column.default {
                let _ = write!(text, " DEFAULT {default}");
            }
            if let Some(generated) = &column.generated {
                let _ = write!(text, " AS ({generated})");
            }
            text
        })
        .collect()
}

fn millis_text(millis: u64) -> String {
    match millis {
        millis if millis % 86_400_000 == 0 => format!("{} days", millis / 86_400_000),
        millis if millis % 3_600_000 == 0 => format!("{} hours", millis / 3_600_000),
        millis if millis % 60_000 == 0 => format!("{} minutes", millis / 60_000),
        millis if millis % 1000 == 0 => format!("{} seconds", millis / 1000),
        millis => format!("{millis} milliseconds"),
    }
}
