//! `connector = 'file'`: rows from a CSV, JSON or Parquet file, once or as it grows.
//!
//! Text formats go through a [`Window`](window::Window) on the decompressed bytes, in which the format finds one
//! record after another; Parquet is read a row group at a time. Every position is one between two rows, kept with a
//! fingerprint of the file, so that a file that was replaced is noticed rather than read from its middle.

mod csv;
mod follow;
mod json;
mod parquet;
mod text;
mod window;

#[cfg(test)]
mod tests;

use super::{Connector, ConnectorOption, Options, Role, Source, SourceRequest, file_sink};
use crate::error::{Error, Result};
use std::fs::File;
use std::io;
use std::path::Path;

/// Its entry.
pub(super) const CONNECTOR: Connector = Connector {
    name: "file",
    summary: "A file on the server: CSV, JSON lines or Parquet. As a source it is read from the start, each row exactly \
              once also over restarts, and, with `follow`, on and on as it grows. As a sink it holds each change of \
              the view exactly once.",
    options: OPTIONS,
    source: Some(open),
    sink: Some(file_sink::open),
};

const fn source_option(name: &'static str, default: &'static str, doc: &'static str) -> ConnectorOption {
    ConnectorOption {
        name,
        default: Some(default),
        role: Some(Role::Source),
        doc,
    }
}

const fn shared_option(name: &'static str, default: &'static str, doc: &'static str) -> ConnectorOption {
    ConnectorOption {
        name,
        default: Some(default),
        role: None,
        doc,
    }
}

const OPTIONS: &[ConnectorOption] = &[
    ConnectorOption {
        name: "path",
        default: None,
        role: None,
        doc: "the file; a Parquet sink makes it a directory of numbered files",
    },
    shared_option(
        "format",
        "(by the file's ending)",
        "`csv`, `json` (one object per line) or `parquet`",
    ),
    source_option(
        "compression",
        "(by the file's ending)",
        "`none`, `gzip` (`.gz`) or `zstd` (`.zst`); for csv and json",
    ),
    shared_option(
        "header",
        "true",
        "csv: the first line names the columns; without one they are taken by position",
    ),
    shared_option("delimiter", ",", "csv: the character between values; `\\t` for a tab"),
    shared_option(
        "quote",
        "\"",
        "csv: the character around values that contain delimiters, quotes or line ends",
    ),
    shared_option("null", "", "csv: the unquoted text that means NULL"),
    source_option(
        "follow",
        "false",
        "csv and json: go on reading as the file grows; only whole lines are taken",
    ),
    source_option(
        "rate",
        "(as fast as they are taken)",
        "rows per second, to replay a file as if it were live",
    ),
    ConnectorOption {
        name: "roll_seconds",
        default: Some("10"),
        role: Some(Role::Sink),
        doc: "parquet: how long changes are gathered for a file, unless there are a million before",
    },
    ConnectorOption {
        name: "append_only",
        default: Some("false"),
        role: Some(Role::Sink),
        doc: "leave out the columns `epoch` and `diff`; refused when the view can take rows back",
    },
];

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Comma-separated values, as RFC 4180 has them.
    Csv,
    /// One JSON object per line.
    Json,
    /// Apache Parquet.
    Parquet,
}

/// How a file is compressed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstd,
}

/// How CSV is written.
#[derive(Debug, Clone)]
pub(super) struct CsvForm {
    pub(super) header: Header,
    pub(super) delimiter: u8,
    pub(super) quote: u8,
    pub(super) null: String,
}

/// Whether the first line names the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// It does.
    Names,
    /// It is a row like the others.
    Absent,
}

impl Format {
    /// The format that the options or the ending of the path name.
    pub(super) fn of(options: &Options<'_>) -> Result<Self> {
        let given = options.choice(
            "format",
            &[("csv", Self::Csv), ("json", Self::Json), ("parquet", Self::Parquet)],
        )?;
        let path = options.text("path").to_ascii_lowercase();
        let bare = path.trim_end_matches(".gz").trim_end_matches(".zst");
        let by_ending = [
            (".csv", Self::Csv),
            (".json", Self::Json),
            (".jsonl", Self::Json),
            (".ndjson", Self::Json),
            (".parquet", Self::Parquet),
        ];
        let format = given.or_else(|| {
            by_ending
                .iter()
                .find(|(ending, _)| bare.ends_with(ending))
                .map(|(_, format)| *format)
        });
        let format = format.ok_or_else(|| {
            Error::syntax("option \"format\" of connector \"file\" is missing")
                .with_hint("The file's ending does not tell it. It can be: csv, json, parquet.")
        })?;
        if format != Self::Csv {
            let stray = ["header", "delimiter", "quote", "null"]
                .into_iter()
                .find(|name| options.given(name).is_some());
            if let Some(name) = stray {
                return Err(Error::semantic(
                    "22023",
                    format!("option \"{name}\" is for format csv only"),
                ));
            }
        }
        Ok(format)
    }
}

impl CsvForm {
    /// The form that the options describe.
    pub(super) fn of(options: &Options<'_>) -> Result<Self> {
        let form = Self {
            header: if options.flag("header")? {
                Header::Names
            } else {
                Header::Absent
            },
            delimiter: options.byte("delimiter")?,
            quote: options.byte("quote")?,
            null: options.text("null").to_owned(),
        };
        if form.delimiter == form.quote {
            return Err(options.wrong("quote", "The quote and the delimiter must be different characters."));
        }
        let text = form.null.as_bytes();
        if text
            .iter()
            .any(|byte| *byte == form.delimiter || *byte == form.quote || matches!(byte, b'\n' | b'\r'))
        {
            return Err(options.wrong(
                "null",
                "It contains neither the delimiter, nor the quote, nor a line end.",
            ));
        }
        Ok(form)
    }
}

fn compression_of(options: &Options<'_>, format: Format) -> Result<Compression> {
    let choices = [
        ("none", Compression::None),
        ("gzip", Compression::Gzip),
        ("zstd", Compression::Zstd),
    ];
    let given = options.choice("compression", &choices)?;
    let path = options.text("path").to_ascii_lowercase();
    let by_ending = if path.ends_with(".gz") {
        Compression::Gzip
    } else if path.ends_with(".zst") {
        Compression::Zstd
    } else {
        Compression::None
    };
    let compression = given.unwrap_or(by_ending);
    if format == Format::Parquet && compression != Compression::None {
        return Err(
            Error::semantic("22023", "option \"compression\" is for the formats csv and json only")
                .with_hint("Parquet compresses its pages itself."),
        );
    }
    Ok(compression)
}

/// Opens the file that the options name.
fn open(options: &Options<'_>, request: &SourceRequest<'_>) -> Result<Box<dyn Source>> {
    let format = Format::of(options)?;
    let compression = compression_of(options, format)?;
    let follow = options.flag("follow")?;
    let rate = options.rate("rate")?;
    if follow && (format == Format::Parquet || compression != Compression::None) {
        return Err(
            Error::unsupported("option \"follow\" is not supported for compressed and Parquet files")
                .with_hint("Only a plain csv or json file can be read while it grows."),
        );
    }
    match format {
        Format::Parquet => parquet::open(options.text("path"), rate, request),
        Format::Csv | Format::Json => {
            let form = if format == Format::Csv {
                Some(CsvForm::of(options)?)
            } else {
                None
            };
            let settings = text::Settings {
                path: options.text("path").to_owned(),
                compression,
                form,
                follow,
                rate,
            };
            text::open(settings, request)
        }
    }
}

/// Opens a regular file for reading, with PostgreSQL's errors.
fn open_file(path: &str) -> Result<File> {
    let metadata = std::fs::metadata(path).map_err(|error| open_error(path, &error))?;
    if metadata.is_dir() {
        return Err(Error::semantic("42809", format!("\"{path}\" is a directory")));
    }
    if !metadata.is_file() {
        return Err(Error::semantic("42809", format!("\"{path}\" is not a regular file")));
    }
    File::open(Path::new(path)).map_err(|error| open_error(path, &error))
}

/// The error for a file that cannot be opened.
pub(super) fn open_error(path: &str, error: &io::Error) -> Error {
    let code = match error.kind() {
        io::ErrorKind::NotFound => "58P01",
        io::ErrorKind::PermissionDenied => "42501",
        io::ErrorKind::AlreadyExists => "58P02",
        _ => "58030",
    };
    Error::external(code, format!("could not open file \"{path}\": {}", reason(error)))
        .with_hint("The path is one of the server's, relative to the directory in which it was started.")
}

/// The error for a file that cannot be read further.
fn read_error(path: &str, error: &io::Error) -> Error {
    let code = match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => "58000",
        _ => "58030",
    };
    Error::external(code, format!("could not read file \"{path}\": {}", reason(error)))
}

/// The error for a file that is not the one, or not as long, as when a position was taken.
fn changed_error(path: &str, how: &str) -> Error {
    Error::external("58000", format!("file \"{path}\" {how} since it was last read"))
        .with_hint("Put the file back, or drop the stream and create it again to read the new file from its start.")
}

/// What the system says, in PostgreSQL's words where it has some.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "No such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "Permission denied".to_owned(),
        _ => {
            let text = error.to_string();
            text.split(" (os error").next().unwrap_or(&text).to_owned()
        }
    }
}
