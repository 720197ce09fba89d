//! How far event time is: a stream's watermark, kept by the driver as it takes rows into epochs.
//!
//! The watermark is the highest value of the stream's expression among the rows so far. Each row gets, in a column of
//! its own in the log, the watermark just before it: by that it is judged late or not, today and in every view that is
//! made later, however rows were cut into epochs.

use crate::catalog::{Catalog, Relation, RelationId, RelationKind, judge_field};
use crate::dataflow::Advances;
use crate::delta::{Batch, Delta, batch_of};
use crate::error::Result;
use crate::expr::{Compiled, Expression, from_datafusion};
use crate::operator::Advance;
use crate::sql::bind::{BindSettings, Binder, NoSystemRelations};
use crate::time::{Timestamp, Watermark};
use crate::types::{Nullability, Type};
use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::common::DFSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// How far a stream's event time is. All times are microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamTime {
    /// The watermark.
    pub watermark: Option<i64>,
    /// The highest event time of the rows that moved it.
    pub highest: Option<i64>,
    /// The clock of the last epoch with a row.
    pub last_row: Option<i64>,
    /// The rows that were too far ahead of the clock to move it.
    pub ahead: u64,
    /// The clock up to which it has moved for lack of rows; `None` while rows come.
    pub idle_since: Option<i64>,
    /// Whether its source has come to its end: every window is closed.
    pub finished: bool,
}

/// How far a view's event time is, and what it has refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ViewTime {
    /// The least of its inputs' watermarks, in microseconds.
    pub watermark: Option<i64>,
    /// What came too late.
    pub late: LateCount,
}

/// The rows that a view's windows have refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateCount {
    /// All of them.
    pub refused: u64,
    /// Those that are listed.
    pub listed: u64,
    /// Rows of sessions over several relations that came from before the epoch's watermark.
    #[serde(default)]
    pub seams: u64,
}

/// How far event time is everywhere, as of an epoch.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// In streams with a watermark.
    pub streams: HashMap<RelationId, StreamTime>,
    /// In views.
    pub views: HashMap<RelationId, ViewTime>,
}

/// What moves a stream's watermark.
#[derive(Debug, Clone)]
pub struct Marker {
    column: usize,
    expression: Compiled,
    ahead_us: Option<i64>,
    /// After how many microseconds without a row it moves with the clock.
    pub idle_us: Option<i64>,
    schema: SchemaRef,
}

/// The columns that a relation's rows are stored with: its own, and the watermark before each row where it has one.
pub fn stored_schema(relation: &Relation) -> SchemaRef {
    let own = super::published::schema_of(relation);
    match &relation.kind {
        RelationKind::Stream(stream) if stream.watermark.is_some() => {
            let fields = own.fields().iter().map(|field| field.as_ref().clone());
            let fields: Vec<Field> = fields.chain([judge_field()]).collect();
            Arc::new(Schema::new(fields))
        }
        _ => own,
    }
}

impl Marker {
    /// What moves the watermark of a relation; `None` if it has none.
    pub fn of(relation: &Relation) -> Result<Option<Self>> {
        let RelationKind::Stream(stream) = &relation.kind else {
            return Ok(None);
        };
        let Some((column, text)) = &stream.watermark else {
            return Ok(None);
        };
        let settings = BindSettings {
            search_path: relation.search_path.clone(),
            ..BindSettings::default()
        };
        let catalog = Catalog::default();
        let binder = Binder::new(&catalog, &settings, &NoSystemRelations);
        let columns: Vec<(String, Type)> = relation
            .columns
            .iter()
            .map(|column| (column.name.clone(), column.kind.clone()))
            .collect();
        let expression = binder.bind_expression(text, &columns, Some(&relation.columns[*column].kind))?;
        let fields: Vec<Field> = columns
            .iter()
            .map(|(name, kind)| kind.field(name, Nullability::Nullable))
            .collect();
        let input = Arc::new(Schema::new(fields));
        let logical = DFSchema::try_from(input.as_ref().clone()).map_err(from_datafusion)?;
        let micros = |millis: Option<u64>| millis.map(|millis| i64::try_from(millis).unwrap_or(i64::MAX / 1000) * 1000);
        Ok(Some(Self {
            column: *column,
            expression: Expression::bind(&expression, &logical)?.compile(&input)?,
            ahead_us: micros(stream.max_future_skew_ms),
            idle_us: micros(stream.idle_timeout_ms),
            schema: stored_schema(relation),
        }))
    }

    /// Moves the watermark over new rows, and gives each the one just before it.
    pub fn mark(&self, delta: &Delta, clock: Timestamp, time: &mut StreamTime) -> Result<Delta> {
        let mut marked = Delta::new();
        for batch in &delta.batches {
            let (values, _) = self.expression.evaluate(&batch.rows)?;
            let values = micros(&values)?;
            let times = micros(batch.rows.column(self.column))?;
            let latest = self.ahead_us.map(|ahead| clock.0.saturating_add(ahead));
            let mut before = Vec::with_capacity(batch.len());
            for row in 0..batch.len() {
                before.push(time.watermark);
                // An infinite time is in no window and says nothing of others.
                if times.is_null(row) || matches!(times.value(row), i64::MIN | i64::MAX) {
                    continue;
                }
                if latest.is_some_and(|latest| times.value(row) > latest) {
                    time.ahead += 1;
                    continue;
                }
                time.highest = time.highest.max(Some(times.value(row)));
                if values.is_valid(row) {
                    time.watermark = time.watermark.max(Some(values.value(row)));
                }
            }
            let mut columns = batch.rows.columns().to_vec();
            columns.push(Arc::new(Int64Array::from(before)));
            marked.push(Batch {
                rows: batch_of(self.schema.clone(), columns, batch.len())?,
                weights: batch.weights.clone(),
            });
        }
        if !delta.is_empty() {
            time.last_row = Some(clock.0);
            time.idle_since = None;
        }
        Ok(marked)
    }

    /// When the stream is idle, if no row comes until then.
    pub fn idle_at(&self, time: &StreamTime) -> Option<i64> {
        if time.finished {
            return None;
        }
        time.watermark?;
        Some(time.last_row?.saturating_add(self.idle_us?))
    }

    /// Moves the watermark of a stream without rows with the clock: by as much as has passed since it became idle.
    pub fn pass_idle_time(&self, time: &StreamTime, clock: Timestamp) -> Option<StreamTime> {
        let idle_at = self.idle_at(time)?;
        if clock.0 < idle_at {
            return None;
        }
        let passed = clock.0 - time.idle_since.unwrap_or(idle_at);
        (passed > 0 || time.idle_since.is_none()).then(|| StreamTime {
            watermark: time.watermark.map(|watermark| watermark.saturating_add(passed.max(0))),
            idle_since: Some(clock.0),
            ..*time
        })
    }
}

/// A column of times in microseconds.
fn micros(times: &ArrayRef) -> Result<Int64Array> {
    let times = arrow::compute::cast(times, &DataType::Int64)?;
    Ok(times.as_primitive::<Int64Type>().clone())
}

/// A time as PostgreSQL writes it.
pub fn time_text(micros: i64) -> String {
    let mut out = bytes::BytesMut::new();
    crate::types::datetime::write_timestamp(micros, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// A watermark from microseconds.
pub fn watermark(micros: Option<i64>) -> Option<Watermark> {
    micros.map(|micros| Watermark(Timestamp(micros)))
}

/// How far event time is in relations for who has just read all of their rows.
pub fn arrived(times: &Times, relations: &[RelationId]) -> Advances {
    let each = relations.iter().map(|id| {
        let stream = times.streams.get(id).map(|time| time.watermark);
        let view = || times.views.get(id).map(|time| time.watermark);
        let after = watermark(stream.or_else(view).flatten());
        let advance = Advance {
            before: None,
            after,
            latest: latest(times, *id),
        };
        (*id, advance)
    });
    each.collect()
}

/// The highest event time of a stream, of those that moved it.
fn latest(times: &Times, id: RelationId) -> Option<Timestamp> {
    let highest = times.streams.get(&id).and_then(|time| time.highest);
    highest.map(Timestamp)
}

/// What is known of event time in relations for who is still reading their rows: nothing is final yet.
pub fn arriving(times: &Times, relations: &[RelationId]) -> Advances {
    let each = relations.iter().map(|id| {
        let advance = Advance {
            latest: latest(times, *id),
            ..Advance::default()
        };
        (*id, advance)
    });
    each.collect()
}

/// How far event time is in streams when nothing moves.
pub fn standing(streams: &HashMap<RelationId, StreamTime>) -> Advances {
    let each = streams.iter().map(|(id, time)| {
        let mark = watermark(time.watermark);
        let advance = Advance {
            before: mark,
            after: mark,
            latest: time.highest.map(Timestamp),
        };
        (*id, advance)
    });
    each.collect()
}

/// What `SHOW WATERMARKS` tells of a stream or a view.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: &'static str,
    /// The column that carries event time.
    pub column: Option<String>,
    /// The watermark, in microseconds.
    pub watermark: Option<i64>,
    /// The highest event time among a stream's rows.
    pub highest: Option<i64>,
    /// The input whose watermark is the least.
    pub held_back_by: Option<String>,
    /// The rows that a view's windows have refused.
    pub late_rows: u64,
    /// Whether something is at work beside rows.
    pub state: String,
}

/// How far event time is in everything that has one.
pub fn reports(catalog: &Catalog, times: &Times) -> Vec<Report> {
    let mut reports = Vec::new();
    for relation in catalog.relations.values() {
        match &relation.kind {
            RelationKind::Stream(stream) => {
                if let Some((column, _)) = &stream.watermark {
                    let time = times.streams.get(&relation.id).copied().unwrap_or_default();
                    reports.push(Report {
                        name: relation.name.clone(),
                        kind: "stream",
                        column: relation.columns.get(*column).map(|column| column.name.clone()),
                        watermark: time.watermark,
                        highest: time.highest,
                        state: state_of(&time),
                        ..Report::default()
                    });
                }
            }
            RelationKind::MaterializedView(view) if !(view.events.is_empty() && view.late.is_empty()) => {
                let time = times.views.get(&relation.id).copied().unwrap_or_default();
                reports.push(Report {
                    name: relation.name.clone(),
                    kind: "materialized view",
                    watermark: time.watermark,
                    held_back_by: held_back_by(catalog, times, relation),
                    late_rows: time.late.refused,
                    state: if time.watermark.is_some() { "active" } else { "no data" }.to_owned(),
                    ..Report::default()
                });
            }
            _ => {}
        }
    }
    reports
}

fn state_of(time: &StreamTime) -> String {
    let mut state = if time.finished {
        "finished"
    } else if time.watermark.is_none() {
        "no data"
    } else if time.idle_since.is_some() {
        "idle"
    } else {
        "active"
    }
    .to_owned();
    if time.ahead > 0 {
        state.push_str(&format!(", {} rows too far ahead", time.ahead));
    }
    state
}

/// The input with the least watermark.
fn held_back_by(catalog: &Catalog, times: &Times, relation: &Relation) -> Option<String> {
    let inputs = relation.depends_on.iter().filter_map(|id| {
        let stream = times.streams.get(id).map(|time| time.watermark);
        let mark = stream.or_else(|| times.views.get(id).map(|time| time.watermark))?;
        Some((mark, catalog.relations.get(id)?.name.clone()))
    });
    inputs.min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests;
