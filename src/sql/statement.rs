//! The whole statement language on one page: what a client can ask for, as plain data.
//!
//! A [`Parsed`] is a [`Statement`] and the [`Source`] it was read from, so that the position of an error is counted
//! in the text that the client sent, also when that text held several statements. Queries and expressions inside are
//! sqlparser's trees, which only `sql` looks into; names are folded and cut as PostgreSQL does.

use crate::catalog::Emit;
use crate::types::Type;
use sqlparser::ast;
use sqlparser::tokenizer::Location;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Where a statement stands in what the client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    whole: Arc<str>,
    start: usize,
    end: usize,
}

impl Source {
    /// The bytes `start..end` of `whole`.
    pub fn new(whole: Arc<str>, start: usize, end: usize) -> Self {
        Self { whole, start, end }
    }

    /// The text of this statement alone, without the semicolon.
    pub fn text(&self) -> &str {
        &self.whole[self.start..self.end]
    }

    /// All that the client sent.
    pub fn whole(&self) -> &Arc<str> {
        &self.whole
    }

    /// The 1-based index of the character at `location` in all that the client sent.
    pub fn position(&self, location: Location) -> Option<usize> {
        position_of(&self.whole, location)
    }
}

/// The 1-based index of the character at a 1-based line and column; `None` for the location of nothing.
pub(crate) fn position_of(text: &str, location: Location) -> Option<usize> {
    if location.line == 0 {
        return None;
    }
    let before: usize = text
        .split_inclusive('\n')
        .take(location.line as usize - 1)
        .map(|line| line.chars().count())
        .sum();
    Some(before + (location.column.max(1) as usize))
}

/// A statement and where it came from.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// What is asked for.
    pub statement: Statement,
    /// Its text.
    pub source: Source,
    /// What the user is told along the way, such as names that were cut.
    pub notices: Vec<String>,
}

/// The name of a relation as it was written, with its schema if one was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The schema.
    pub schema: Option<String>,
    /// The name proper.
    pub name: String,
    /// Where it stands: the 1-based index of its first character.
    pub position: Option<usize>,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The options of a `WITH (...)`, by name in lower case.
pub type Options = BTreeMap<String, String>;

/// A query and its text, normalised: comments dropped, white space single.
#[derive(Debug, Clone)]
pub struct QueryText {
    /// The tree.
    pub query: Box<ast::Query>,
    /// The text, which parses to the tree again.
    pub text: String,
}

/// A column of CREATE STREAM or CREATE TABLE.
#[derive(Debug, Clone)]
pub struct ColumnDefinition {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Type,
    /// Whether NULL is refused.
    pub not_null: bool,
    /// The text of its DEFAULT.
    pub default: Option<String>,
    /// The text of `AS (expr)` or `GENERATED ALWAYS AS (expr) STORED`.
    pub generated: Option<String>,
    /// Where its name stands.
    pub position: Option<usize>,
}

/// The kinds of thing that DROP, ALTER and SHOW CREATE name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// `STREAM`
    Stream,
    /// `TABLE`
    Table,
    /// `VIEW`
    View,
    /// `MATERIALIZED VIEW`
    MaterializedView,
    /// `SINK`
    Sink,
    /// `INDEX`
    Index,
    /// `SCHEMA`
    Schema,
    /// `USER`
    User,
}

impl ObjectKind {
    /// The word for it in messages.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Table => "table",
            Self::View => "view",
            Self::MaterializedView => "materialized view",
            Self::Sink => "sink",
            Self::Index => "index",
            Self::Schema => "schema",
            Self::User => "role",
        }
    }
}

/// Whether what already exists is an error or a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    /// An error.
    Fail,
    /// A notice (`IF NOT EXISTS`; for DROP, `IF EXISTS`).
    Notice,
    /// The old one goes (`OR REPLACE`).
    Replace,
}

/// What becomes of those that use a dropped thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropBehavior {
    /// They forbid it.
    Restrict,
    /// They go too.
    Cascade,
}

/// What a sink drains.
#[derive(Debug, Clone)]
pub enum SinkInput {
    /// A relation.
    Relation(Name),
    /// A query.
    Query(QueryText),
}

/// What COPY reads or writes.
#[derive(Debug, Clone)]
pub enum CopyTarget {
    /// A relation and the chosen columns (none: all).
    Relation(Name, Vec<String>),
    /// A query (only out).
    Query(Box<ast::Query>),
    /// A subscription (only out).
    Subscribe(Subscribe),
}

/// Which way COPY goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyDirection {
    /// `FROM STDIN`
    In,
    /// `TO STDOUT`
    Out,
}

/// The format of COPY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyFormat {
    /// Tab-separated, with backslashes.
    Text,
    /// Comma-separated.
    Csv,
    /// PostgreSQL's binary format.
    Binary,
}

/// How COPY reads and writes rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOptions {
    /// The format.
    pub format: CopyFormat,
    /// Whether the first line holds names.
    pub header: bool,
    /// Between two values.
    pub delimiter: char,
    /// What stands for NULL.
    pub null: String,
    /// Around a value, in csv.
    pub quote: char,
    /// Before a quote inside quotes, in csv.
    pub escape: char,
    /// Columns that are quoted always, in csv output: `None` none, empty all.
    pub force_quote: Option<Vec<String>>,
    /// Columns in which the NULL string is not NULL, in csv input.
    pub force_not_null: Vec<String>,
    /// Columns in which the quoted NULL string is NULL too, in csv input.
    pub force_null: Vec<String>,
    /// Commit every so many rows.
    pub batch_rows: Option<usize>,
}

/// COPY.
#[derive(Debug, Clone)]
pub struct Copy {
    /// What is read or written.
    pub target: CopyTarget,
    /// Which way.
    pub direction: CopyDirection,
    /// How.
    pub options: CopyOptions,
}

/// SUBSCRIBE.
#[derive(Debug, Clone)]
pub struct Subscribe {
    /// The query; `SELECT * FROM v` for a view.
    pub query: QueryText,
    /// The view, if it was named and not queried.
    pub relation: Option<Name>,
    /// Whether the snapshot comes first.
    pub snapshot: bool,
    /// Whether epochs without a change are told as well.
    pub progress: bool,
    /// Start after this epoch.
    pub as_of_epoch: Option<u64>,
}

/// How EXPLAIN prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExplainFormat {
    /// An indented tree.
    Text,
    /// JSON.
    Json,
    /// Graphviz.
    Dot,
}

/// What EXPLAIN shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainOptions {
    /// How it prints.
    pub format: ExplainFormat,
    /// The rules that changed the plan.
    pub rules: bool,
    /// What each operator keeps.
    pub state: bool,
    /// What each operator did.
    pub analyze: bool,
    /// Names of output columns.
    pub verbose: bool,
}

/// What EXPLAIN explains.
#[derive(Debug, Clone)]
pub enum ExplainTarget {
    /// A statement: a query, CREATE MATERIALIZED VIEW, INSERT, ...
    Statement(Box<Statement>),
    /// A view that runs.
    MaterializedView(Name),
}

/// The value of SET.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetValue {
    /// `DEFAULT`
    Default,
    /// The values, as text.
    Values(Vec<String>),
}

/// For how long SET holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetScope {
    /// To the end of the session.
    Session,
    /// To the end of the transaction (`LOCAL`).
    Transaction,
}

/// What SHOW shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Show {
    /// One setting.
    Setting(String),
    /// All settings.
    All,
    /// `STREAMS`
    Streams,
    /// `TABLES`
    Tables,
    /// `VIEWS`
    Views,
    /// `MATERIALIZED VIEWS`
    MaterializedViews,
    /// `SINKS`
    Sinks,
    /// `INDEXES`
    Indexes,
    /// `WATERMARKS`
    Watermarks,
    /// `SCHEMAS`
    Schemas,
    /// The statement that makes a relation; the kind if it was said.
    Create(Option<ObjectKind>, Name),
}

/// What a transaction was asked to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransactionModes {
    /// The isolation level, in lower case.
    pub isolation: Option<String>,
    /// `READ ONLY` or `READ WRITE`.
    pub read_only: Option<bool>,
}

/// Whether a transaction's end starts the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chain {
    /// It does not.
    No,
    /// `AND CHAIN`
    Yes,
}

/// How far FETCH and MOVE go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchDirection {
    /// So many rows on; negative: back; zero: the same row.
    Count(i64),
    /// All that are left.
    All,
    /// The row of that number; negative: from the end.
    Absolute(i64),
    /// The row so far away.
    Relative(i64),
    /// All before.
    BackwardAll,
}

/// One of a kind by name, or all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OneOrAll {
    /// The one of that name.
    One(String),
    /// All.
    All,
}

/// What a cursor runs over.
#[derive(Debug, Clone)]
pub enum CursorQuery {
    /// A query.
    Query(Box<ast::Query>),
    /// A subscription.
    Subscribe(Subscribe),
}

/// What DISCARD drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// All that a session holds.
    All,
    /// Cached plans.
    Plans,
    /// Sequences' cached values.
    Sequences,
    /// Temporary tables.
    Temporary,
}

/// A statement.
#[derive(Debug, Clone)]
pub enum Statement {
    /// `CREATE STREAM s (...) WITH (...)`: an append-only relation with event time.
    CreateStream {
        /// Its name.
        name: Name,
        /// Its columns.
        columns: Vec<ColumnDefinition>,
        /// `WATERMARK FOR column AS expr`: the column and the text of the expression.
        watermark: Option<(String, String)>,
        /// Its options.
        options: Options,
        /// What if it exists.
        if_exists: IfExists,
    },
    /// `CREATE TABLE t (...)`: a mutable relation, keyed or a bag.
    CreateTable {
        /// Its name.
        name: Name,
        /// Its columns.
        columns: Vec<ColumnDefinition>,
        /// The names of the key's columns; none for a bag.
        primary_key: Vec<String>,
        /// Its options.
        options: Options,
        /// What if it exists.
        if_exists: IfExists,
    },
    /// `CREATE TABLE t AS query`: a bag with the query's rows, once.
    CreateTableAs {
        /// Its name.
        name: Name,
        /// Its columns' names where they are not the query's.
        columns: Vec<String>,
        /// The query.
        query: QueryText,
        /// What if it exists.
        if_exists: IfExists,
    },
    /// `CREATE VIEW v AS query`: a name for a query.
    CreateView {
        /// Its name.
        name: Name,
        /// Its columns' names where they are not the query's.
        columns: Vec<String>,
        /// The query.
        query: QueryText,
        /// What if it exists.
        if_exists: IfExists,
    },
    /// `CREATE MATERIALIZED VIEW v AS query EMIT ...`: a maintained query.
    CreateMaterializedView {
        /// Its name.
        name: Name,
        /// Its columns' names where they are not the query's.
        columns: Vec<String>,
        /// The query.
        query: QueryText,
        /// When it shows what.
        emit: Emit,
        /// Its options.
        options: Options,
        /// What if it exists.
        if_exists: IfExists,
    },
    /// `CREATE SINK k FROM v WITH (...)`: a place to which changes go.
    CreateSink {
        /// Its name.
        name: Name,
        /// What it drains.
        input: SinkInput,
        /// Its options.
        options: Options,
        /// What if it exists.
        if_exists: IfExists,
    },
    /// `CREATE INDEX i ON v (cols)`.
    CreateIndex {
        /// Its name; made up if not given.
        name: Option<String>,
        /// What it is on.
        on: Name,
        /// The columns.
        columns: Vec<String>,
        /// What if it exists.
        if_exists: IfExists,
    },
    /// `CREATE USER u PASSWORD '...'`.
    CreateUser {
        /// Its name.
        name: String,
        /// Its password.
        password: Option<String>,
        /// What if it exists.
        if_exists: IfExists,
    },
    /// `ALTER USER u PASSWORD '...'`.
    AlterUser {
        /// Its name.
        name: String,
        /// The new password; `None` takes it away.
        password: Option<String>,
    },
    /// `CREATE SCHEMA s`.
    CreateSchema {
        /// Its name.
        name: String,
        /// What if it exists.
        if_exists: IfExists,
    },
    /// `DROP kind [IF EXISTS] names [CASCADE]`.
    Drop {
        /// The kind.
        kind: ObjectKind,
        /// The names.
        names: Vec<Name>,
        /// What if one does not exist.
        if_exists: IfExists,
        /// What becomes of users.
        behavior: DropBehavior,
    },
    /// `ALTER kind x RENAME TO y`.
    AlterRename {
        /// The kind.
        kind: ObjectKind,
        /// The old name.
        name: Name,
        /// The new name.
        to: String,
        /// What if it does not exist.
        if_exists: IfExists,
    },
    /// `ALTER SYSTEM SET name = value` or `RESET name`.
    AlterSystem {
        /// The setting; `None` for all (`RESET ALL`).
        name: Option<String>,
        /// Its value.
        value: SetValue,
    },
    /// `REFRESH MATERIALIZED VIEW v`: views are always fresh, so this only looks whether it is there.
    Refresh(Name),
    /// `INSERT INTO t ...`.
    Insert {
        /// Into what.
        target: Name,
        /// The tree, for the binder.
        insert: Box<ast::Insert>,
    },
    /// `UPDATE t SET ...`.
    Update {
        /// Of what.
        target: Name,
        /// The tree, for the binder.
        update: Box<ast::Update>,
    },
    /// `DELETE FROM t ...`.
    Delete {
        /// From what.
        target: Name,
        /// The tree, for the binder.
        delete: Box<ast::Delete>,
    },
    /// `TRUNCATE t`: DELETE without a condition.
    Truncate {
        /// The tables.
        names: Vec<Name>,
        /// What becomes of users: there are no foreign keys, so it changes nothing.
        behavior: DropBehavior,
    },
    /// `COPY`.
    Copy(Copy),
    /// `SELECT`, `VALUES`, `TABLE`, `WITH`.
    Query(Box<ast::Query>),
    /// `SUBSCRIBE TO`.
    Subscribe(Subscribe),
    /// `EXPLAIN`.
    Explain {
        /// What is shown.
        options: ExplainOptions,
        /// Of what.
        target: ExplainTarget,
    },
    /// `VERIFY MATERIALIZED VIEW v`: the rows that differ from batch recomputation.
    Verify(Name),
    /// `BEGIN`, `START TRANSACTION`.
    Begin(TransactionModes),
    /// `COMMIT`, `END`.
    Commit(Chain),
    /// `ROLLBACK`, `ABORT`.
    Rollback(Chain),
    /// `SAVEPOINT s`.
    Savepoint(String),
    /// `RELEASE s`.
    ReleaseSavepoint(String),
    /// `ROLLBACK TO s`.
    RollbackToSavepoint(String),
    /// `SET TRANSACTION ...`; `SET SESSION CHARACTERISTICS AS TRANSACTION ...` when of the session.
    SetTransaction {
        /// For how long.
        scope: SetScope,
        /// What.
        modes: TransactionModes,
    },
    /// `SET name = value`, `SET TIME ZONE`, `SET NAMES`, `SET ROLE`...
    Set {
        /// The setting, in lower case.
        name: String,
        /// Its value.
        value: SetValue,
        /// For how long.
        scope: SetScope,
    },
    /// `RESET name`, `RESET ALL`.
    Reset(OneOrAll),
    /// `SHOW`.
    Show(Show),
    /// `PREPARE p (types) AS statement`.
    Prepare {
        /// Its name.
        name: String,
        /// The types that were given.
        types: Vec<Type>,
        /// The statement.
        statement: Box<Statement>,
    },
    /// `EXECUTE p (values)`.
    Execute {
        /// Its name.
        name: String,
        /// The parameters, constant expressions.
        parameters: Vec<ast::Expr>,
    },
    /// `DEALLOCATE p`.
    Deallocate(OneOrAll),
    /// `DECLARE c CURSOR FOR query`.
    Declare {
        /// Its name.
        name: String,
        /// What it runs over.
        query: CursorQuery,
        /// Whether it goes backward too.
        scroll: bool,
        /// Whether it outlives its transaction.
        hold: bool,
        /// Whether rows come in binary.
        binary: bool,
    },
    /// `FETCH n FROM c`.
    Fetch {
        /// How far.
        direction: FetchDirection,
        /// The cursor.
        cursor: String,
    },
    /// `MOVE n FROM c`.
    Move {
        /// How far.
        direction: FetchDirection,
        /// The cursor.
        cursor: String,
    },
    /// `CLOSE c`.
    Close(OneOrAll),
    /// `DISCARD ALL` and relatives.
    Discard(Discard),
    /// `FLUSH`: returns when all that connectors had delivered is in the views.
    Flush,
    /// `LISTEN c`.
    Listen(String),
    /// `UNLISTEN c`.
    Unlisten(OneOrAll),
    /// `NOTIFY c, 'payload'`.
    Notify {
        /// The channel.
        channel: String,
        /// The payload.
        payload: String,
    },
    /// `COMMENT ON ...`, `ANALYZE`, `VACUUM`, `CHECKPOINT`, `LOCK`: accepted, and nothing to do. Holds the command tag.
    Nothing(&'static str),
}
