//! "What exists?" Streams, tables, views, sinks, users: definitions as pure data.
//!
//! A [`Catalog`] is an immutable value: the driver makes a new one for each definition statement and publishes it with
//! the epoch in which it became true. It is stored as one JSON document per relation. Nothing here runs anything.

use crate::types::Type;
use arrow::datatypes::{DataType, Field};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of a relation; never reused. Doubles as its `pg_class` oid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RelationId(pub u32);

/// The first id that a user's relation gets, as in PostgreSQL.
pub const FIRST_RELATION_ID: u32 = 16384;

/// A column of a relation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Its name, folded as PostgreSQL folds it.
    pub name: String,
    /// Its type.
    pub kind: Type,
    /// Whether NULL is refused.
    pub not_null: bool,
    /// The text of its DEFAULT expression.
    pub default: Option<String>,
    /// The text of the expression that computes it (`AS (expr)`).
    pub generated: Option<String>,
}

/// What a relation is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RelationKind {
    /// An append-only relation with event time.
    Stream(Stream),
    /// A mutable relation: keyed, or a bag when `primary_key` is empty.
    Table {
        /// The columns of the key, by position.
        primary_key: Vec<usize>,
    },
    /// A name for a query.
    View {
        /// The text of the query.
        query: String,
    },
    /// A maintained query.
    MaterializedView(MaterializedView),
    /// A place to which a query's changes go.
    Sink(Sink),
    /// A secondary index on a view.
    Index {
        /// The relation that it is on.
        on: RelationId,
        /// The indexed columns, by position.
        columns: Vec<usize>,
    },
}

/// The definition of a stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// The event-time column, by position, and the text of the watermark's expression.
    pub watermark: Option<(usize, String)>,
    /// How long rows can be read by SELECT and by views created later.
    pub retention: Retention,
    /// After how many milliseconds without a row the stream no longer holds others back.
    pub idle_timeout_ms: Option<u64>,
    /// How many milliseconds ahead of the wall clock a row may be and still move the watermark.
    pub max_future_skew_ms: Option<u64>,
    /// The options of its connector; empty for a stream that is fed by INSERT and COPY alone.
    pub connector: BTreeMap<String, String>,
}

/// How long a stream's rows are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retention {
    /// For good.
    #[default]
    Forever,
    /// For so many milliseconds of wall clock.
    Millis(u64),
    /// Not at all: rows go to the views that exist, and are gone.
    None,
}

/// When a view shows what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Emit {
    /// Every window, open or closed, always current.
    #[default]
    OnUpdate,
    /// A window's rows once, when the watermark reaches its end.
    OnWindowClose,
}

/// A column that follows the event time of the streams below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EventColumn {
    /// Which column.
    pub column: usize,
    /// How far it is shifted: its watermark is the streams' plus so many microseconds.
    pub shift_us: i64,
    /// What the watermark says of it.
    pub finality: Finality,
}

/// What a watermark says of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Finality {
    /// No earlier time is expected, but one may come.
    Expected,
    /// Nothing changes any more at or before it: what came later was refused.
    Closed,
}

/// A window of a view that refuses what comes too late.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LateList {
    /// The number under which refused rows are listed.
    pub label: i64,
    /// The columns of the rows that the window is over.
    pub columns: Vec<(String, Type)>,
    /// How far the window's time is shifted from the streams' event time, in microseconds.
    pub shift_us: i64,
}

/// What a view does with a row whose expression fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OnError {
    /// The row is left out and listed in `row_errors(view)`.
    #[default]
    Skip,
    /// The failing expression is NULL.
    Null,
    /// The view stops.
    Fail,
}

/// The definition of a maintained view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MaterializedView {
    /// The text of the query.
    pub query: String,
    /// When it shows what.
    pub emit: Emit,
    /// What it does with a row that fails.
    pub on_error: OnError,
    /// Its `WITH` options as they were given.
    pub options: BTreeMap<String, String>,
    /// Its columns that follow event time.
    #[serde(default)]
    pub events: Vec<EventColumn>,
    /// Its windows that refuse late rows.
    #[serde(default)]
    pub late: Vec<LateList>,
    /// Whether its rows never go away.
    #[serde(default)]
    pub append_only: bool,
}

/// The definition of a sink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sink {
    /// The text of the query (`SELECT * FROM v` for `FROM v`).
    pub query: String,
    /// Its connector's options.
    pub options: BTreeMap<String, String>,
}

/// Anything with a name that can stand in FROM or be dropped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Relation {
    /// Its number.
    pub id: RelationId,
    /// The schema that it lives in.
    pub schema: String,
    /// Its name within the schema.
    pub name: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// What it is.
    pub kind: RelationKind,
    /// What it reads, directly.
    pub depends_on: Vec<RelationId>,
    /// The statement that made it, normalised, as SHOW CREATE prints it.
    pub sql: String,
    /// The `search_path` under which its texts are to be read.
    pub search_path: Vec<String>,
}

/// Everything that exists, as of one epoch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Catalog {
    /// Grows with each definition statement.
    pub version: u64,
    /// The next free relation id.
    pub next_id: u32,
    /// The user-made schemas, beside `public`.
    pub schemas: Vec<String>,
    /// All relations by id.
    pub relations: BTreeMap<RelationId, Arc<Relation>>,
    /// Users and their SCRAM verifiers.
    pub users: BTreeMap<String, String>,
    /// The settings that ALTER SYSTEM changed.
    pub settings: BTreeMap<String, String>,
}

/// The column in which the log of a stream with a watermark keeps, beside each row, the watermark just before it, in
/// microseconds. It stands behind the stream's own columns, and no query sees it.
pub fn judge_field() -> Field {
    Field::new("__watermark", DataType::Int64, true)
}

impl Catalog {
    /// The relation of that name in that schema.
    pub fn find(&self, schema: &str, name: &str) -> Option<&Arc<Relation>> {
        self.relations
            .values()
            .find(|relation| relation.name == name && relation.schema == schema)
    }

    /// The relation of that name in the first schema of the path that has one.
    pub fn resolve(&self, search_path: &[String], name: &str) -> Option<&Arc<Relation>> {
        search_path.iter().find_map(|schema| self.find(schema, name))
    }

    /// The relations that read `id` directly.
    pub fn users_of(&self, id: RelationId) -> Vec<Arc<Relation>> {
        self.relations
            .values()
            .filter(|relation| relation.depends_on.contains(&id))
            .cloned()
            .collect()
    }

    /// The streams that a relation reads, directly or through others.
    pub fn streams_below(&self, id: RelationId) -> Vec<RelationId> {
        let mut streams = Vec::new();
        let mut next = vec![id];
        while let Some(id) = next.pop() {
            let Some(relation) = self.relations.get(&id) else {
                continue;
            };
            if matches!(relation.kind, RelationKind::Stream(_)) && !streams.contains(&id) {
                streams.push(id);
            }
            next.extend(&relation.depends_on);
        }
        streams
    }

    /// Whether a schema of that name exists.
    pub fn has_schema(&self, name: &str) -> bool {
        name == "public" || self.schemas.iter().any(|known| known == name)
    }
}

impl Relation {
    /// The word for what it is, as messages use it: `stream`, `table`, `view`, `materialized view`, `sink`, `index`.
    pub fn noun(&self) -> &'static str {
        match self.kind {
            RelationKind::Stream(_) => "stream",
            RelationKind::Table { .. } => "table",
            RelationKind::View { .. } => "view",
            RelationKind::MaterializedView(_) => "materialized view",
            RelationKind::Sink(_) => "sink",
            RelationKind::Index { .. } => "index",
        }
    }

    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}
