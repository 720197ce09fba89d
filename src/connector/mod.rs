//! "Where do rows come from and go to?" Sources, sinks, their formats, and the one list of what there is.
//!
//! A *source* is pulled: the driver calls [`Source::poll`] with a [`Budget`], gets at most so many rows, and is never
//! made to wait. What the budget does not allow stays where it is; that is all the backpressure there is. With each
//! epoch the driver stores [`Source::position`]; a source that is opened again from a stored position goes on with
//! exactly the next row. **A position is valid between any two rows**, so how the input was cut into epochs does not
//! matter, and a source that cannot prove that it stands before the same bytes as then refuses to start.
//!
//! A *sink* is pushed: [`SinkWriter::write`] takes the changes of one epoch after another, [`SinkWriter::flush`] makes
//! what was written durable and says up to where. A sink opened from an older position cuts away what came after it.
//!
//! ```text
//! bytes -> Window (decompress, find the record) -> csv | json (find the fields) -> decode (text to Arrow) -> Delta
//! ```
//!
//! [`CONNECTORS`] describes every connector with all its options. Checks, error messages and the reference page come
//! from it: adding a connector is a file and an entry.

mod blackhole;
mod decode;
mod file;
mod file_sink;
pub mod nexmark;
mod options;
mod pace;

pub use options::{ConnectorOption, Options, Role};

use crate::catalog::Column;
use crate::delta::Delta;
use crate::error::{Error, Result};
use crate::types::Nullability;
use arrow::datatypes::{Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest record, in bytes, that a source reads; a longer one is listed as undecodable.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// The most bytes that one poll returns, whatever the budget: offsets within a batch are 32 bits wide.
pub const POLL_BYTES_MAX: usize = 256 << 20;

/// How many bytes of an undecodable record are kept to show.
pub const SHOWN_RECORD_BYTES_MAX: usize = 1024;

/// How much a source may return at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// At most so many rows, undecodable records counted too.
    pub rows_max: usize,
    /// No further row once so many bytes were taken; one row is always allowed.
    pub bytes_max: usize,
}

/// Where a source or sink stands: bytes that only it reads, stored with the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position(pub Vec<u8>);

impl Position {
    /// The position that holds `value`.
    fn of<T: Serialize>(value: &T) -> Self {
        Self(serde_json::to_vec(value).expect("a position holds numbers and flags only"))
    }

    /// What [`Position::of`] was given.
    fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T> {
        serde_json::from_slice(&self.0)
            .map_err(|error| Error::corrupt(format!("a connector's position cannot be read: {error}")))
    }
}

/// What one poll returned.
#[derive(Debug)]
pub struct Polled {
    /// The new rows: the stream's columns that are not generated, in their order (or those of the projection).
    pub delta: Delta,
    /// The records that could not be decoded.
    pub errors: Vec<DecodeError>,
    /// What is next.
    pub state: SourceState,
}

/// What a source has after a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceState {
    /// Probably more: poll again.
    More,
    /// Nothing now. Poll again when the waker rang, or at `retry_at` at the latest.
    Idle {
        /// The next moment at which there may be something even if the waker stays silent.
        retry_at: Option<Instant>,
    },
    /// Nothing, ever.
    Finished,
}

/// A record that a source could not decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// Where it is, as a user would look for it: `line 17`.
    pub position: String,
    /// Its text, cut to [`SHOWN_RECORD_BYTES_MAX`].
    pub record: String,
    /// What is wrong with it.
    pub message: String,
}

/// How far a source or sink is, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Where it stands, such as `line 17`.
    pub position: String,
    /// How much there is in all, in `unit`, if that is known.
    pub total: Option<u64>,
    /// How much of it is not read yet, in `unit`, if that is known.
    pub lag: Option<u64>,
    /// What `total` and `lag` count: `bytes`, `rows` or `events`.
    pub unit: &'static str,
    /// The rows delivered since it was opened.
    pub rows: u64,
}

/// Rung by a source, from any thread, when it may have something again.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// Where rows come from. Pulled, never blocks.
pub trait Source: Send {
    /// The next rows, at most `budget` of them. An error stops the source; rows read before it came with earlier polls.
    fn poll(&mut self, budget: Budget) -> Result<Polled>;
    /// Where it stands after all rows that were returned.
    fn position(&self) -> Position;
    /// How far it is.
    fn progress(&self) -> Progress;
    /// Says what to ring when an idle source may have something again.
    fn wake_by(&mut self, _waker: Waker) {}
}

/// Where changes go.
pub trait SinkWriter: Send {
    /// Takes (a part of) the changes of an epoch. Epochs come in order; one that [`SinkWriter::position`] already
    /// covers is left out, so that delivering again after a restart does no harm.
    fn write(&mut self, epoch: u64, delta: &Delta) -> Result<()>;
    /// Makes durable what was written, which must be whole epochs; the position to store.
    fn flush(&mut self) -> Result<Position>;
    /// The position of the last flush. **The one of a new sink must be stored before anything is written**: a sink
    /// that is opened without a position takes nothing that exists for its own.
    fn position(&self) -> Position;
    /// How far it is.
    fn progress(&self) -> Progress;
    /// How long changes are gathered before they are written, where each flush makes a file of its own.
    fn gathers(&self) -> Duration {
        Duration::ZERO
    }
}

/// What a source is opened with.
pub struct SourceRequest<'a> {
    /// The options of the WITH clause that are the connector's, `connector` among them.
    pub options: &'a BTreeMap<String, String>,
    /// All columns of the stream.
    pub columns: &'a [Column],
    /// Where to go on; `None` for the beginning.
    pub position: Option<&'a Position>,
    /// Which columns are needed, counted without the generated ones; `None` for all. The others are not decoded, hence
    /// not checked either.
    pub projection: Option<&'a [usize]>,
}

/// What a sink is opened with.
pub struct SinkRequest<'a> {
    /// The options of the WITH clause that are the connector's, `connector` among them.
    pub options: &'a BTreeMap<String, String>,
    /// The columns of the query.
    pub columns: &'a [Column],
    /// Where to go on; `None` for a new sink.
    pub position: Option<&'a Position>,
}

/// Opens a source from its checked options.
pub type OpenSource = fn(&Options<'_>, &SourceRequest<'_>) -> Result<Box<dyn Source>>;

/// Opens a sink from its checked options.
pub type OpenSink = fn(&Options<'_>, &SinkRequest<'_>) -> Result<Box<dyn SinkWriter>>;

/// A connector, describing itself.
pub struct Connector {
    /// Its name in `connector = '...'`.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// All its options.
    pub options: &'static [ConnectorOption],
    /// Opens it as a source, if it can be one.
    pub source: Option<OpenSource>,
    /// Opens it as a sink, if it can be one.
    pub sink: Option<OpenSink>,
}

/// Every connector.
pub const CONNECTORS: &[Connector] = &[file::CONNECTOR, nexmark::CONNECTOR, blackhole::CONNECTOR];

/// Opens a source. Reports unknown, missing and wrong options with the list of the known ones.
pub fn open_source(request: &SourceRequest<'_>) -> Result<Box<dyn Source>> {
    let connector = find(request.options, Role::Source)?;
    let open = connector.source.expect("find returns connectors of the role");
    open(&Options::check(connector, Role::Source, request.options)?, request)
}

/// Opens a sink. Reports unknown, missing and wrong options with the list of the known ones.
pub fn open_sink(request: &SinkRequest<'_>) -> Result<Box<dyn SinkWriter>> {
    let connector = find(request.options, Role::Sink)?;
    let open = connector.sink.expect("find returns connectors of the role");
    open(&Options::check(connector, Role::Sink, request.options)?, request)
}

/// The connector that the options name.
fn find(options: &BTreeMap<String, String>, role: Role) -> Result<&'static Connector> {
    let fits = |connector: &&Connector| match role {
        Role::Source => connector.source.is_some(),
        Role::Sink => connector.sink.is_some(),
    };
    let known: Vec<&str> = CONNECTORS.iter().filter(fits).map(|connector| connector.name).collect();
    let hint = format!("The connectors for a {} are: {}.", role.noun(), known.join(", "));
    let Some(name) = options.get(options::CONNECTOR_KEY) else {
        return Err(Error::syntax("option \"connector\" is missing").with_hint(hint));
    };
    match CONNECTORS
        .iter()
        .find(|connector| connector.name.eq_ignore_ascii_case(name))
    {
        Some(connector) if fits(&connector) => Ok(connector),
        Some(connector) => Err(Error::unsupported(format!(
            "connector \"{}\" cannot be used for a {}",
            connector.name,
            role.noun()
        ))
        .with_hint(hint)),
        None => Err(Error::unsupported(format!("connector \"{name}\" is not supported")).with_hint(hint)),
    }
}

/// The columns of a stream that its source delivers: those that are not generated, or the projection of them.
fn delivered<'a>(request: &SourceRequest<'a>) -> Result<Vec<&'a Column>> {
    let all: Vec<&Column> = request
        .columns
        .iter()
        .filter(|column| column.generated.is_none())
        .collect();
    match request.projection {
        None => Ok(all),
        Some(wanted) => wanted
            .iter()
            .map(|index| all.get(*index).copied())
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| Error::internal("a projection names a column that the stream does not have")),
    }
}

/// The Arrow schema of these columns.
fn schema_of(columns: &[&Column]) -> SchemaRef {
    let fields = columns.iter().map(|column| {
        let nullability = if column.not_null {
            Nullability::NotNull
        } else {
            Nullability::Nullable
        };
        column.kind.field(&column.name, nullability)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The reference of all connectors and options, in Markdown.
pub fn reference() -> String {
    let mut page = String::new();
    for connector in CONNECTORS {
        page.push_str(&format!(
            "## `connector = '{}'`\n\n{}\n\n",
            connector.name, connector.summary
        ));
        if connector.options.is_empty() {
            continue;
        }
        page.push_str("| option | for | default | meaning |\n|---|---|---|---|\n");
        for option in connector.options {
            page.push_str(&option.table_row());
        }
        page.push('\n');
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

/// The start of a record, as text that can be shown.
fn shown(record: &[u8]) -> String {
    let cut = &record[..record.len().min(SHOWN_RECORD_BYTES_MAX)];
    let mut text = String::from_utf8_lossy(cut).replace('\0', "\\0");
    if cut.len() < record.len() {
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn source_error(pairs: &[(&str, &str)]) -> Error {
        let options = options(pairs);
        let request = SourceRequest {
            options: &options,
            columns: &[],
            position: None,
            projection: None,
        };
        open_source(&request).err().expect("these options are wrong")
    }

    #[test]
    fn wrong_options_are_refused_with_the_known_ones() {
        let error = source_error(&[("path", "x")]);
        assert_eq!(
            (error.code(), error.message()),
            ("42601", "option \"connector\" is missing")
        );
        assert_eq!(error.hint(), Some("The connectors for a source are: file, nexmark."));

        let error = source_error(&[("connector", "kafka")]);
        assert_eq!(
            (error.code(), error.message()),
            ("0A000", "connector \"kafka\" is not supported")
        );

        let error = source_error(&[("connector", "blackhole")]);
        assert_eq!(error.message(), "connector \"blackhole\" cannot be used for a source");

        let error = source_error(&[("connector", "file"), ("path", "x"), ("pth", "y")]);
        assert_eq!(
            (error.code(), error.message()),
            ("42601", "option \"pth\" is not known to connector \"file\"")
        );
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("path, format, compression"))
        );

        let error = source_error(&[("connector", "file")]);
        assert_eq!(
            (error.code(), error.message()),
            ("42601", "option \"path\" of connector \"file\" is missing")
        );

        let error = source_error(&[("connector", "file"), ("path", "x.csv"), ("format", "xml")]);
        assert_eq!(
            (error.code(), error.message()),
            ("22023", "invalid value for option \"format\": \"xml\"")
        );
        assert_eq!(error.hint(), Some("It can be: csv, json, parquet."));

        let error = source_error(&[("connector", "file"), ("path", "x.csv"), ("rate", "fast")]);
        assert_eq!(error.code(), "22023");
        let error = source_error(&[("connector", "file"), ("path", "x.csv"), ("append_only", "true")]);
        assert_eq!(
            error.message(),
            "option \"append_only\" of connector \"file\" is for a sink"
        );
    }

    #[test]
    fn the_reference_names_every_option() {
        let page = reference();
        for connector in CONNECTORS {
            assert!(page.contains(&format!("connector = '{}'", connector.name)));
            for option in connector.options {
                assert!(page.contains(&format!("| `{}` |", option.name)), "{}", option.name);
            }
        }
        assert!(
            include_str!("../../docs/connectors.md").ends_with(&page),
            "docs/connectors.md is behind the registry:\n{page}"
        );
    }

    #[test]
    fn long_records_are_shown_cut() {
        assert_eq!(shown(b"a\0b"), "a\\0b");
        assert_eq!(shown(&vec![b'x'; 5000]).len(), SHOWN_RECORD_BYTES_MAX + 3);
    }
}
