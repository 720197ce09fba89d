//! Result rows as DataRow messages, written straight into the buffer that is sent.

use super::report::format_of;
use crate::engine::ResultColumn;
use crate::error::{Error, Result};
use crate::types::binary::BinaryWriter;
use crate::types::text::{Settings, TextWriter};
use arrow::array::RecordBatch;
use bytes::{BufMut, BytesMut};

/// Writes the rows of one batch.
pub(super) struct RowWriter {
    cells: Vec<Cell>,
    rows: usize,
}

enum Cell {
    Text(TextWriter),
    Binary(BinaryWriter),
}

impl RowWriter {
    /// A writer for a batch whose columns are `columns`, in the formats that were asked for.
    pub(super) fn new(
        columns: &[ResultColumn],
        batch: &RecordBatch,
        formats: &[i16],
        settings: &Settings,
    ) -> Result<Self> {
        if columns.len() != batch.num_columns() {
            return Err(Error::internal(format!(
                "a result of {} columns came with {}",
                columns.len(),
                batch.num_columns()
            )));
        }
        let cells = columns.iter().zip(batch.columns()).enumerate();
        let cells = cells.map(|(index, (column, array))| {
            Ok(match format_of(formats, index) {
                0 => Cell::Text(TextWriter::for_column(&column.kind, array, settings)?),
                _ => Cell::Binary(BinaryWriter::for_column(&column.kind, array)?),
            })
        });
        Ok(Self {
            cells: cells.collect::<Result<_>>()?,
            rows: batch.num_rows(),
        })
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Appends the message of one row. On an error nothing of it is left.
    pub(super) fn write(&self, row: usize, out: &mut BytesMut) -> Result<()> {
        let start = out.len();
        out.put_u8(b'D');
        out.put_u32(0);
        out.put_u16(self.cells.len() as u16);
        for cell in &self.cells {
            if let Err(error) = write_cell(cell, row, out) {
                out.truncate(start);
                return Err(error);
            }
        }
        patch_length(out, start + 1, 0);
        Ok(())
    }
}

fn write_cell(cell: &Cell, row: usize, out: &mut BytesMut) -> Result<()> {
    let null = match cell {
        Cell::Text(writer) => writer.is_null(row),
        Cell::Binary(writer) => writer.is_null(row),
    };
    if null {
        out.put_i32(-1);
        return Ok(());
    }
    let start = out.len();
    out.put_u32(0);
    match cell {
        Cell::Text(writer) => writer.write(row, out),
        Cell::Binary(writer) => writer.write(row, out)?,
    }
    patch_length(out, start, 4);
    Ok(())
}

/// Puts the length of what follows into the four bytes at `at`; `less` bytes of it are not counted.
pub(super) fn patch_length(out: &mut BytesMut, at: usize, less: usize) {
    let length = (out.len() - at - less) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Type;
    use std::sync::Arc;

    #[test]
    fn a_row_is_a_message() {
        let columns = [
            ResultColumn {
                name: "a".to_owned(),
                kind: Type::Int4,
            },
            ResultColumn {
                name: "b".to_owned(),
                kind: Type::Int4,
            },
        ];
        let array: arrow::array::ArrayRef = Arc::new(arrow::array::Int32Array::from(vec![Some(7), None]));
        let batch = RecordBatch::try_from_iter([("a", array.clone()), ("b", array)]).unwrap();
        let writer = RowWriter::new(&columns, &batch, &[0, 1], &Settings::default()).unwrap();
        let mut out = BytesMut::new();
        writer.write(0, &mut out).unwrap();
        assert_eq!(
            &out[..],
            [b'D', 0, 0, 0, 19, 0, 2, 0, 0, 0, 1, b'7', 0, 0, 0, 4, 0, 0, 0, 7]
        );
        out.clear();
        writer.write(1, &mut out).unwrap();
        assert_eq!(
            &out[..],
            [b'D', 0, 0, 0, 14, 0, 2, 255, 255, 255, 255, 255, 255, 255, 255]
        );
    }
}
