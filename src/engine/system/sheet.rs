//! Rows of system relations, written by column name.
//!
//! A row says only what it has to say: a column that it does not name is NULL, or, where it may not be NULL, false,
//! zero or empty.

use super::definition::SystemRelation;
use crate::delta::batch_of;
use crate::error::Result;
use crate::types::{ColumnBuilder, Nullability, Type};
use arrow::array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use std::borrow::Cow;
use std::sync::Arc;

/// A value of a system relation, or of a function's argument or result.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    /// NULL.
    Null,
    /// A truth.
    Bool(bool),
    /// A whole number, or an object's.
    Int(i64),
    /// A number.
    Float(f64),
    /// A text, or anything else as its text.
    Text(Cow<'static, str>),
    /// An array of whole numbers.
    Ints(Vec<i64>),
    /// An array of texts.
    Texts(Vec<String>),
    /// A moment in microseconds since 1970.
    Micros(i64),
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<i32> for Cell {
    fn from(value: i32) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<u32> for Cell {
    fn from(value: u32) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<usize> for Cell {
    fn from(value: usize) -> Self {
        Self::Int(value as i64)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Self {
        Self::Int(value as i64)
    }
}

impl From<&'static str> for Cell {
    fn from(value: &'static str) -> Self {
        Self::Text(Cow::Borrowed(value))
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Self::Text(Cow::Owned(value))
    }
}

impl From<&String> for Cell {
    fn from(value: &String) -> Self {
        Self::Text(Cow::Owned(value.clone()))
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl Cell {
    /// The number, if it is one.
    pub(super) fn int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            Self::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn written(&self) -> Option<String> {
        Some(match self {
            Self::Null => return None,
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
            Self::Text(text) => text.clone().into_owned(),
            Self::Micros(_) => return None,
            Self::Ints(values) => {
                let parts: Vec<String> = values.iter().map(ToString::to_string).collect();
                format!("{{{}}}", parts.join(","))
            }
            Self::Texts(values) => {
                let parts: Vec<String> = values
                    .iter()
                    .map(|value| format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")))
                    .collect();
                format!("{{{}}}", parts.join(","))
            }
        })
    }
}

/// A column of cells as Arrow carries the type.
pub(super) fn column(kind: &Type, cells: &[Cell]) -> Result<ArrayRef> {
    let ints = || cells.iter().map(Cell::int);
    Ok(match kind {
        Type::Bool => Arc::new(
            cells
                .iter()
                .map(|cell| match cell {
                    Cell::Bool(value) => Some(*value),
                    _ => None,
                })
                .collect::<BooleanArray>(),
        ),
        Type::Int2 => Arc::new(
            ints()
                .map(|value| value.map(|value| value as i16))
                .collect::<Int16Array>(),
        ),
        Type::Int4 => Arc::new(
            ints()
                .map(|value| value.map(|value| value as i32))
                .collect::<Int32Array>(),
        ),
        Type::Int8 | Type::Oid(_) => Arc::new(ints().collect::<Int64Array>()),
        Type::Float4 => Arc::new(
            cells
                .iter()
                .map(|cell| float(cell).map(|value| value as f32))
                .collect::<Float32Array>(),
        ),
        Type::Float8 => Arc::new(cells.iter().map(float).collect::<Float64Array>()),
        Type::Timestamp(_) => {
            let micros = cells.iter().map(|cell| match cell {
                Cell::Micros(value) => Some(*value),
                _ => None,
            });
            Arc::new(micros.collect::<TimestampMicrosecondArray>())
        }
        Type::Timestamptz(_) => {
            let values: TimestampMicrosecondArray = cells
                .iter()
                .map(|cell| match cell {
                    Cell::Micros(value) => Some(*value),
                    _ => None,
                })
                .collect();
            Arc::new(values.with_timezone("+00:00"))
        }
        Type::Text | Type::Name | Type::InternalChar | Type::Varchar(_) => Arc::new(
            cells
                .iter()
                .map(|cell| match cell {
                    Cell::Text(text) => Some(Cow::Borrowed(text.as_ref())),
                    other => other.written().map(Cow::Owned),
                })
                .collect::<StringArray>(),
        ),
        other => {
            let mut builder = ColumnBuilder::new(other);
            for cell in cells {
                builder.push_text(cell.written().as_deref())?;
            }
            builder.finish()
        }
    })
}

fn float(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Float(value) => Some(*value),
        other => other.int().map(|value| value as f64),
    }
}

/// The rows of one system relation as they are written.
pub(super) struct Sheet {
    relation: &'static SystemRelation,
    columns: Vec<Vec<Cell>>,
    rows: usize,
}

impl Sheet {
    /// No rows yet.
    pub(super) fn new(relation: &'static SystemRelation) -> Self {
        Self {
            relation,
            columns: vec![Vec::new(); relation.columns.len()],
            rows: 0,
        }
    }

    /// Adds a row.
    pub(super) fn row<const N: usize>(&mut self, cells: [(&'static str, Cell); N]) {
        self.rows += 1;
        for (name, cell) in cells {
            let column = &mut self.columns[self.relation.position(name)];
            if column.len() < self.rows {
                column.push(cell);
            }
        }
        for (column, known) in self.columns.iter_mut().zip(&self.relation.columns) {
            if column.len() < self.rows {
                column.push(absent(&known.kind, known.nullability));
            }
        }
    }

    /// The rows as a batch.
    pub(super) fn batch(self) -> Result<RecordBatch> {
        let columns = self
            .columns
            .iter()
            .zip(&self.relation.columns)
            .map(|(cells, known)| column(&known.kind, cells))
            .collect::<Result<Vec<_>>>()?;
        batch_of(self.relation.arrow.clone(), columns, self.rows)
    }
}

/// What stands in a column of which a row says nothing.
fn absent(kind: &Type, nullability: Nullability) -> Cell {
    match (nullability, kind) {
        (Nullability::Nullable, _) => Cell::Null,
        (_, Type::Bool) => Cell::Bool(false),
        (_, Type::Int2 | Type::Int4 | Type::Int8 | Type::Oid(_) | Type::Float4 | Type::Float8) => Cell::Int(0),
        (_, Type::Array(_)) => Cell::Ints(Vec::new()),
        (_, Type::Timestamptz(_)) => Cell::Micros(0),
        _ => Cell::Text(Cow::Borrowed("")),
    }
}
