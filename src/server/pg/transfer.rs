//! COPY over the wire, and subscriptions, which the simple protocol sends as an endless COPY.

use super::channel::Broken;
use super::connection::Connection;
use super::frontend::{Message, violation};
use super::rows::patch_length;
use crate::engine::{CopyIn, ResultColumn, RowStream};
use crate::error::{Error, Result};
use crate::types::copy::{CopyFormat, CopyRows, CopyWriter, Form};
use bytes::BufMut as _;
use futures::StreamExt as _;
use pgwire::messages::PgWireBackendMessage as Backend;
use pgwire::messages::copy::{CopyDone, CopyInResponse, CopyOutResponse};
use std::task::Poll;

impl Connection {
    /// Takes the data of `COPY ... FROM STDIN`; the tag of its end.
    pub(super) async fn copy_in(&mut self, mut copy: CopyIn) -> std::result::Result<Result<String>, Broken> {
        let format = i16::from(copy.binary());
        let formats = vec![format; copy.columns()];
        self.output.put(&Backend::CopyInResponse(CopyInResponse::new(
            format as i8,
            formats.len() as i16,
            formats,
        )));
        self.output.flush().await?;
        loop {
            match self.watch.message().await? {
                Message::CopyData(data) => {
                    if let Err(error) = self.watch.over(copy.write(data)).await? {
                        return Ok(Err(error));
                    }
                }
                Message::CopyDone => {
                    let finished = self.watch.over(copy.finish()).await?;
                    return Ok(finished.map(|rows| format!("COPY {rows}")));
                }
                Message::CopyFail(reason) => {
                    return Ok(Err(Error::semantic(
                        "57014",
                        format!("COPY from stdin failed: {reason}"),
                    )));
                }
                // Clients may have sent these before they knew that data was asked for.
                Message::Flush | Message::Sync => {}
                Message::Terminate => return Err(Broken::Gone),
                _ => return Ok(Err(violation("unexpected message type during COPY from stdin"))),
            }
        }
    }

    /// Sends a subscription's rows line by line as they come, until it is cancelled.
    pub(super) async fn subscribe(
        &mut self,
        columns: Vec<ResultColumn>,
        rows: RowStream,
    ) -> std::result::Result<Result<String>, Broken> {
        self.copy_out(columns, rows, CopyFormat::default()).await
    }

    /// Sends the rows of `COPY ... TO STDOUT`; the tag of their end. What there is goes out before more is waited for.
    pub(super) async fn copy_out(
        &mut self,
        columns: Vec<ResultColumn>,
        mut rows: RowStream,
        format: CopyFormat,
    ) -> std::result::Result<Result<String>, Broken> {
        let binary = i16::from(format.form == Form::Binary);
        let formats = vec![binary; columns.len()];
        self.output.put(&Backend::CopyOutResponse(CopyOutResponse::new(
            binary as i8,
            formats.len() as i16,
            formats,
        )));
        let columns = columns.into_iter().map(|column| (column.name, column.kind)).collect();
        let writer = CopyWriter::new(columns, format, self.session.settings());
        self.put_data(|out| writer.start(out));
        let mut count = 0_u64;
        loop {
            let ready = std::future::poll_fn(|context| Poll::Ready(rows.poll_next_unpin(context)));
            let next = match self.watch.over(ready).await? {
                Poll::Ready(next) => next,
                Poll::Pending => {
                    self.output.flush().await?;
                    self.watch.over(rows.next()).await?
                }
            };
            let batch = match next {
                None => break,
                Some(Err(error)) => return Ok(Err(error)),
                Some(Ok(batch)) => batch,
            };
            let mut lines = match writer.rows(&batch) {
                Ok(lines) => lines,
                Err(error) => return Ok(Err(error)),
            };
            for row in 0..batch.num_rows() {
                if let Err(error) = self.put_line(&mut lines, row) {
                    return Ok(Err(error));
                }
                self.output.flush_if_full().await?;
            }
            count += batch.num_rows() as u64;
        }
        self.put_data(|out| writer.end(out));
        self.output.put(&Backend::CopyDone(CopyDone::new()));
        Ok(Ok(format!("COPY {count}")))
    }

    /// Adds a row as a message. On an error nothing of it is left.
    fn put_line(&mut self, lines: &mut CopyRows<'_>, row: usize) -> Result<()> {
        let out = &mut self.output.buffer;
        let start = out.len();
        out.put_u8(b'd');
        out.put_u32(0);
        if let Err(error) = lines.write(row, out) {
            out.truncate(start);
            return Err(error);
        }
        patch_length(out, start + 1, 0);
        Ok(())
    }

    /// Adds what a writer puts as a message, if it is anything.
    fn put_data(&mut self, write: impl FnOnce(&mut bytes::BytesMut)) {
        let out = &mut self.output.buffer;
        let start = out.len();
        out.put_u8(b'd');
        out.put_u32(0);
        write(out);
        if out.len() == start + 5 {
            out.truncate(start);
        } else {
            patch_length(out, start + 1, 0);
        }
    }
}
