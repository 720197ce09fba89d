//! Errors, notices, row descriptions and the like as messages.

use super::channel::Outgoing;
use crate::config::ERROR_TEXT_BYTES_MAX;
use crate::engine::{Notice, ResultColumn, RowsTag, Session, TransactionStatus};
use crate::error::Error;
use pgwire::messages::PgWireBackendMessage as Backend;
use pgwire::messages::data::{FieldDescription, RowDescription};
use pgwire::messages::response::{
    CommandComplete, ErrorResponse, NoticeResponse, ReadyForQuery, TransactionStatus as WireStatus,
};
use pgwire::messages::startup::ParameterStatus;

/// What an error does to the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    /// It goes on.
    Error,
    /// It ends.
    Fatal,
}

/// An error as a message.
pub(super) fn error(error: &Error, severity: Severity) -> Backend {
    let severity = match severity {
        Severity::Error => "ERROR",
        Severity::Fatal => "FATAL",
    };
    let mut fields = head(severity, error.code(), error.message());
    let mut add = |code: u8, value: Option<&str>| {
        if let Some(value) = value {
            fields.push((code, bounded(value)));
        }
    };
    add(b'D', error.detail());
    add(b'H', error.hint());
    let position = error.position().map(|position| position.to_string());
    add(b'P', position.as_deref());
    add(b'W', error.context());
    Backend::ErrorResponse(ErrorResponse::new(fields))
}

fn notice(notice: &Notice) -> Backend {
    let mut fields = head(notice.severity, notice.code, &notice.message);
    if let Some(detail) = &notice.detail {
        fields.push((b'D', bounded(detail)));
    }
    if let Some(hint) = &notice.hint {
        fields.push((b'H', bounded(hint)));
    }
    Backend::NoticeResponse(NoticeResponse::new(fields))
}

fn head(severity: &str, code: &str, message: &str) -> Vec<(u8, String)> {
    vec![
        (b'S', severity.to_owned()),
        (b'V', severity.to_owned()),
        (b'C', code.to_owned()),
        (b'M', bounded(message)),
    ]
}

/// A text as it may be sent: without the NUL that ends it on the wire, and not endless.
fn bounded(text: &str) -> String {
    let mut text = text.replace('\0', "");
    if text.len() > ERROR_TEXT_BYTES_MAX {
        let end = (0..=ERROR_TEXT_BYTES_MAX)
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// The description of a result's columns, in the formats that were asked for.
pub(super) fn row_description(columns: &[ResultColumn], formats: &[i16]) -> Backend {
    let fields = columns.iter().enumerate().map(|(index, column)| {
        FieldDescription::new(
            column.name.clone(),
            0,
            0,
            column.kind.oid(),
            column.kind.length(),
            column.kind.modifier(),
            format_of(formats, index),
        )
    });
    Backend::RowDescription(RowDescription::new(fields.collect()))
}

/// The format of a column: none given means text, one is for all.
pub(super) fn format_of(formats: &[i16], index: usize) -> i16 {
    match formats {
        [] => 0,
        [all] => *all,
        each => each.get(index).copied().unwrap_or(0),
    }
}

/// The end of a statement.
pub(super) fn complete(tag: impl Into<String>) -> Backend {
    Backend::CommandComplete(CommandComplete::new(tag.into()))
}

/// The tag of a result of so many rows.
pub(super) fn tag_text(tag: &RowsTag, rows: u64) -> String {
    match tag {
        RowsTag::Select => format!("SELECT {rows}"),
        RowsTag::Fetch => format!("FETCH {rows}"),
        RowsTag::Prefix(words) => format!("{words} {rows}"),
        RowsTag::Bare(words) => words.clone(),
    }
}

/// What the session has to say beside its answer: notices, and settings that clients follow.
pub(super) fn put_asides(session: &mut Session, out: &mut Outgoing) {
    for told in session.take_notices() {
        out.put(&notice(&told));
    }
    for (name, value) in session.take_parameter_changes() {
        out.put(&parameter(name, value));
    }
}

/// A setting that the client follows.
pub(super) fn parameter(name: impl Into<String>, value: impl Into<String>) -> Backend {
    Backend::ParameterStatus(ParameterStatus::new(name.into(), value.into()))
}

/// The session waits for the next query.
pub(super) fn ready(session: &Session) -> Backend {
    let status = match session.status() {
        TransactionStatus::Idle => WireStatus::Idle,
        TransactionStatus::InTransaction => WireStatus::Transaction,
        TransactionStatus::Failed => WireStatus::Error,
    };
    Backend::ReadyForQuery(ReadyForQuery::new(status))
}
