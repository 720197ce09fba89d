//! CREATE STREAM, TABLE and INDEX: what keeps rows that are given to it.

use super::{New, named_columns};
use crate::catalog::{Column, RelationKind, Retention, Stream};
use crate::engine::session::{Session, done};
use crate::engine::{Outcome, Parameters};
use crate::error::{Error, Result};
use crate::sql::bind::ParameterTypes;
use crate::sql::statement::{ColumnDefinition, IfExists, Name, Options, Parsed, QueryText};
use crate::types::Type;

impl Session {
    pub(super) fn create_stream(
        &mut self,
        name: &Name,
        columns: &[ColumnDefinition],
        watermark: Option<&(String, String)>,
        options: &Options,
        if_exists: IfExists,
    ) -> Result<Outcome> {
        if self.is_taken(name, if_exists, "stream")? {
            return done("CREATE STREAM");
        }
        let columns = columns_of(columns)?;
        let watermark = watermark
            .map(|(column, expression)| {
                let index = columns.iter().position(|known| known.name == *column).ok_or_else(|| {
                    Error::semantic(
                        "42703",
                        format!("column \"{column}\" named in WATERMARK does not exist"),
                    )
                })?;
                if !matches!(columns[index].kind, Type::Timestamp(_) | Type::Timestamptz(_)) {
                    return Err(Error::semantic(
                        "42804",
                        format!("the watermark column \"{column}\" must be a timestamp"),
                    ));
                }
                Ok((index, expression.clone()))
            })
            .transpose()?;
        let stream = stream_options(watermark, options)?;
        if !stream.connector.is_empty() {
            crate::engine::source::check(&stream.connector, &columns)?;
        }
        self.check_expressions(&columns, stream.watermark.as_ref())?;
        self.add(New {
            name,
            columns,
            kind: RelationKind::Stream(stream),
            depends_on: Vec::new(),
        })?;
        done("CREATE STREAM")
    }

    pub(super) fn create_table(
        &mut self,
        name: &Name,
        columns: &[ColumnDefinition],
        primary_key: &[String],
        if_exists: IfExists,
    ) -> Result<Outcome> {
        if self.is_taken(name, if_exists, "table")? {
            return done("CREATE TABLE");
        }
        let mut columns = columns_of(columns)?;
        let mut key = Vec::new();
        for part in primary_key {
            let index = columns
                .iter()
                .position(|column| column.name == *part)
                .ok_or_else(|| Error::semantic("42703", format!("column \"{part}\" named in key does not exist")))?;
            if key.contains(&index) {
                return Err(Error::semantic(
                    "42701",
                    format!("column \"{part}\" appears twice in primary key constraint"),
                ));
            }
            columns[index].not_null = true;
            key.push(index);
        }
        self.check_expressions(&columns, None)?;
        self.add(New {
            name,
            columns,
            kind: RelationKind::Table { primary_key: key },
            depends_on: Vec::new(),
        })?;
        done("CREATE TABLE")
    }

    pub(super) async fn create_table_as(
        &mut self,
        parsed: &Parsed,
        name: &Name,
        names: &[String],
        query: &QueryText,
        if_exists: IfExists,
    ) -> Result<Outcome> {
        if self.is_taken(name, if_exists, "table")? {
            return done("CREATE TABLE AS");
        }
        let view = self.view();
        let bound = self.bind_query(&view, parsed, &query.query, &mut ParameterTypes::default())?;
        let columns = named_columns(&bound.columns, names)?;
        let plan = self.with_parameters(bound.plan, &Parameters::default())?;
        let zone = self.settings.zone().name();
        let rows = crate::engine::query::collect(&view, plan, &zone).await?;
        let new = New {
            name,
            columns,
            kind: RelationKind::Table {
                primary_key: Vec::new(),
            },
            depends_on: Vec::new(),
        };
        let relation = self.add(new)?;
        let rows = crate::engine::query::shaped(&rows, &crate::engine::published::schema_of(&relation))?;
        let count = rows.num_rows();
        self.work()?
            .overlay
            .insert(relation.id, crate::delta::Batch::inserts(rows).into());
        done(&format!("SELECT {count}"))
    }

    pub(super) fn create_index(
        &mut self,
        name: Option<&str>,
        on: &Name,
        columns: &[String],
        if_exists: IfExists,
    ) -> Result<Outcome> {
        let relation = self.find_any(on)?;
        let name = Name {
            schema: Some(relation.schema.clone()),
            name: name.map_or_else(|| format!("{}_{}_idx", relation.name, columns.join("_")), str::to_owned),
            position: None,
        };
        if self.is_taken(&name, if_exists, "index")? {
            return done("CREATE INDEX");
        }
        let columns = columns
            .iter()
            .map(|column| {
                relation
                    .column(column)
                    .ok_or_else(|| Error::semantic("42703", format!("column \"{column}\" does not exist")))
            })
            .collect::<Result<Vec<_>>>()?;
        let kind = RelationKind::Index {
            on: relation.id,
            columns,
        };
        self.add(New {
            name: &name,
            columns: Vec::new(),
            kind,
            depends_on: vec![relation.id],
        })?;
        done("CREATE INDEX")
    }

    /// Binds the texts of defaults, computed columns and the watermark, so that a wrong one is refused now.
    fn check_expressions(&mut self, columns: &[Column], watermark: Option<&(usize, String)>) -> Result<()> {
        let settings = self.bind_settings();
        let view = self.view();
        let system = crate::engine::system::System::new(&self.engine, &view, &settings);
        let binder = crate::sql::bind::Binder::new(&view.catalog, &settings, &system);
        let plain: Vec<(String, Type)> = columns
            .iter()
            .filter(|column| column.generated.is_none())
            .map(|column| (column.name.clone(), column.kind.clone()))
            .collect();
        for column in columns {
            if let Some(text) = &column.default {
                binder.bind_expression(text, &[], Some(&column.kind))?;
            }
            if let Some(text) = &column.generated {
                binder.bind_expression(text, &plain, Some(&column.kind))?;
            }
        }
        if let Some((index, text)) = watermark {
            let all: Vec<(String, Type)> = columns
                .iter()
                .map(|column| (column.name.clone(), column.kind.clone()))
                .collect();
            binder.bind_expression(text, &all, Some(&columns[*index].kind))?;
        }
        Ok(())
    }
}

fn columns_of(definitions: &[ColumnDefinition]) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = Vec::with_capacity(definitions.len());
    for definition in definitions {
        if columns.iter().any(|known| known.name == definition.name) {
            return Err(Error::semantic(
                "42701",
                format!("column \"{}\" specified more than once", definition.name),
            ));
        }
        columns.push(Column {
            name: definition.name.clone(),
            kind: definition.kind.clone(),
            not_null: definition.not_null,
            default: definition.default.clone(),
            generated: definition.generated.clone(),
        });
    }
    Ok(columns)
}

fn stream_options(watermark: Option<(usize, String)>, options: &Options) -> Result<Stream> {
    let mut stream = Stream {
        watermark,
        ..Stream::default()
    };
    let mut rest = options.clone();
    if let Some(text) = rest.remove("retention") {
        stream.retention = match text.as_str() {
            "forever" => Retention::Forever,
            "none" => Retention::None,
            other => Retention::Millis(millis(other, "retention")?),
        };
    }
    if let Some(text) = rest.remove("idle_timeout") {
        stream.idle_timeout_ms = Some(millis(&text, "idle_timeout")?);
    }
    if let Some(text) = rest.remove("max_future_skew") {
        stream.max_future_skew_ms = Some(millis(&text, "max_future_skew")?);
    }
    if !rest.is_empty() && !rest.contains_key("connector") {
        let names: Vec<&str> = rest.keys().map(String::as_str).collect();
        return Err(
            Error::semantic("42601", format!("unrecognized option \"{}\"", names[0]))
                .with_hint("A stream takes retention, idle_timeout, max_future_skew, and connector with its options."),
        );
    }
    stream.connector = rest;
    Ok(stream)
}

/// An interval as milliseconds.
fn millis(text: &str, option: &str) -> Result<u64> {
    let interval = crate::types::interval::read_interval(text)
        .map_err(|_| Error::semantic("22023", format!("invalid value for option \"{option}\": \"{text}\"")))?;
    let micros = i128::from(interval.nanoseconds / 1000)
        + i128::from(interval.days) * 86_400_000_000
        + i128::from(interval.months) * 30 * 86_400_000_000;
    u64::try_from(micros / 1000)
        .ok()
        .filter(|millis| *millis > 0)
        .ok_or_else(|| Error::semantic("22023", format!("option \"{option}\" must be positive")))
}
