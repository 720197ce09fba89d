//! Portals: statements with their values, run a piece at a time.

use super::channel::{Broken, Outgoing};
use super::connection::Watch;
use super::rows::RowWriter;
use crate::config::PORTALS_MAX;
use crate::engine::{Parameters, ResultColumn, RowStream, RowsTag};
use crate::error::{Error, Result};
use crate::sql::statement::Parsed;
use crate::types::text::Settings;
use futures::StreamExt as _;
use std::collections::HashMap;
use std::sync::Arc;

/// The portals of a session, by name; the unnamed one's is empty.
#[derive(Default)]
pub(super) struct Portals(HashMap<String, Portal>);

/// A statement and the values for its parameters.
pub(super) struct Portal {
    /// The statement; `None` for an empty text.
    pub(super) statement: Option<Arc<Parsed>>,
    /// The values.
    pub(super) parameters: Parameters,
    /// The formats of the result's columns.
    pub(super) formats: Vec<i16>,
    /// The result's columns, if it has any.
    pub(super) columns: Option<Vec<ResultColumn>>,
    /// How far it has been run.
    pub(super) progress: Progress,
}

/// How far a portal has been run.
pub(super) enum Progress {
    /// Not at all.
    New,
    /// Rows are left.
    Rows(Cursor),
    /// To the end of its rows.
    NoMoreRows(RowsTag),
    /// To its end; it had no rows, and cannot be run again.
    Done,
}

/// Rows that are sent a piece at a time.
pub(super) struct Cursor {
    stream: RowStream,
    tag: RowsTag,
    batch: Option<RowWriter>,
    next: usize,
    pace: Pace,
}

/// When rows are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// When there are enough of them.
    Bulk,
    /// As they come: a subscription's.
    Live,
}

impl Portals {
    /// The portal of a name.
    pub(super) fn get_mut(&mut self, name: &str) -> Result<&mut Portal> {
        self.0.get_mut(name).ok_or_else(|| unknown(name))
    }

    /// The portal of a name, to be looked at.
    pub(super) fn get(&self, name: &str) -> Result<&Portal> {
        self.0.get(name).ok_or_else(|| unknown(name))
    }

    /// Adds a portal. Only the unnamed one may be replaced.
    pub(super) fn insert(&mut self, name: String, portal: Portal) -> Result<()> {
        if !name.is_empty() && self.0.contains_key(&name) {
            return Err(Error::semantic("42P03", format!("cursor \"{name}\" already exists")));
        }
        if self.0.len() >= PORTALS_MAX {
            return Err(Error::limit("54000", "too many open portals")
                .with_detail(format!("The limit is {PORTALS_MAX} (portals_max).")));
        }
        self.0.insert(name, portal);
        Ok(())
    }

    /// Forgets a portal, if there is one.
    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Forgets the unnamed portal.
    pub(super) fn forget_unnamed(&mut self) {
        self.0.remove("");
    }

    /// Forgets all portals.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

fn unknown(name: &str) -> Error {
    Error::semantic("34000", format!("portal \"{name}\" does not exist"))
}

/// How a piece of a portal's rows ended.
pub(super) enum Piece {
    /// The limit was reached.
    Suspended,
    /// So many rows, and no more.
    Ended(u64),
}

impl Cursor {
    /// The rows of a stream.
    pub(super) fn new(stream: RowStream, tag: RowsTag, pace: Pace) -> Self {
        Self {
            stream,
            tag,
            batch: None,
            next: 0,
            pace,
        }
    }

    /// The tag of its end.
    pub(super) fn tag(&self) -> &RowsTag {
        &self.tag
    }

    /// Sends at most `rows_max` rows; 0 for all that are left.
    pub(super) async fn put(
        &mut self,
        watch: &mut Watch,
        output: &mut Outgoing,
        columns: &[ResultColumn],
        formats: &[i16],
        settings: &Settings,
        rows_max: usize,
    ) -> std::result::Result<Result<Piece>, Broken> {
        let mut sent = 0_u64;
        loop {
            if let Some(batch) = &self.batch {
                while self.next < batch.rows() {
                    if let Err(error) = batch.write(self.next, &mut output.buffer) {
                        return Ok(Err(error));
                    }
                    self.next += 1;
                    sent += 1;
                    output.flush_if_full().await?;
                    if rows_max > 0 && sent >= rows_max as u64 {
                        return Ok(Ok(Piece::Suspended));
                    }
                }
                self.batch = None;
                if self.pace == Pace::Live {
                    output.flush().await?;
                }
            }
            match watch.over(self.stream.next()).await? {
                None => return Ok(Ok(Piece::Ended(sent))),
                Some(Err(error)) => return Ok(Err(error)),
                Some(Ok(batch)) => match RowWriter::new(columns, &batch, formats, settings) {
                    Ok(writer) => {
                        self.batch = Some(writer);
                        self.next = 0;
                    }
                    Err(error) => return Ok(Err(error)),
                },
            }
        }
    }
}

/// Sends all rows as text; their number.
pub(super) async fn put_rows(
    watch: &mut Watch,
    output: &mut Outgoing,
    columns: &[ResultColumn],
    rows: RowStream,
    settings: &Settings,
) -> std::result::Result<Result<u64>, Broken> {
    let mut cursor = Cursor::new(rows, RowsTag::Select, Pace::Bulk);
    let piece = cursor.put(watch, output, columns, &[], settings, 0).await?;
    Ok(piece.map(|piece| match piece {
        Piece::Ended(count) => count,
        Piece::Suspended => 0,
    }))
}
