//! Rows and keys as bytes whose order is the order of the rows.
//!
//! A [`KeyCodec`] encodes columns, a column at a time, into Arrow's row format: comparing two encodings byte by byte
//! compares the rows. *Row order* is ORDER BY all columns ascending, NULLS LAST. Keys compare equal where SQL's
//! grouping does: -0 is 0, and all NaN are one.

use crate::error::Result;
use arrow::array::{ArrayRef, AsArray, Float32Array, Float64Array};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Float32Type, Float64Type, SchemaRef};
use arrow::row::{OwnedRow, RowConverter, Rows, SortField};
use std::sync::Arc;

/// The number of key groups, the unit in which keys are spread over shards.
pub const KEY_GROUPS: usize = 256;

/// The direction of one column in an encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowOrder {
    /// Greatest first.
    pub descending: bool,
    /// NULL before everything else.
    pub nulls_first: bool,
}

impl RowOrder {
    /// Ascending, NULLS LAST: how row order breaks ties.
    pub const ASCENDING: Self = Self {
        descending: false,
        nulls_first: false,
    };
}

/// Encodes and decodes rows of fixed column types.
#[derive(Debug)]
pub struct KeyCodec {
    converter: RowConverter,
    types: Vec<DataType>,
    floats: FloatForm,
}

/// What becomes of -0 and NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FloatForm {
    /// They stay as they are: the encoding is a row.
    AsIs,
    /// -0 becomes 0 and every NaN the same one: the encoding is a key.
    Canonical,
}

impl KeyCodec {
    /// A codec for grouping and joining keys of these types, ascending.
    pub fn keys(types: Vec<DataType>) -> Result<Self> {
        let orders = vec![RowOrder::ASCENDING; types.len()];
        Self::new(types, &orders, FloatForm::Canonical)
    }

    /// A codec for sort keys: equal where SQL's ORDER BY finds no difference.
    pub fn ordered(types: Vec<DataType>, orders: &[RowOrder]) -> Result<Self> {
        Self::new(types, orders, FloatForm::Canonical)
    }

    /// A codec for whole rows in row order; decoding gives back exactly what was encoded.
    pub fn rows(schema: &SchemaRef) -> Result<Self> {
        let types: Vec<_> = schema.fields().iter().map(|field| field.data_type().clone()).collect();
        let orders = vec![RowOrder::ASCENDING; types.len()];
        Self::new(types, &orders, FloatForm::AsIs)
    }

    fn new(types: Vec<DataType>, orders: &[RowOrder], floats: FloatForm) -> Result<Self> {
        let fields = types
            .iter()
            .zip(orders)
            .map(|(data_type, order)| {
                let options = SortOptions {
                    descending: order.descending,
                    nulls_first: order.nulls_first,
                };
                SortField::new_with_options(data_type.clone(), options)
            })
            .collect();
        Ok(Self {
            converter: RowConverter::new(fields)?,
            types,
            floats,
        })
    }

    /// The types of the columns.
    pub fn types(&self) -> &[DataType] {
        &self.types
    }

    /// Encodes `rows` rows, given as columns.
    pub fn encode(&self, columns: &[ArrayRef], rows: usize) -> Result<Rows> {
        if columns.is_empty() {
            return self.encode_nothing(rows);
        }
        if self.floats == FloatForm::Canonical && self.types.iter().any(DataType::is_floating) {
            let canonical: Vec<ArrayRef> = columns.iter().map(canonical_floats).collect();
            return Ok(self.converter.convert_columns(&canonical)?);
        }
        Ok(self.converter.convert_columns(columns)?)
    }

    /// `rows` empty encodings, for keys without a column (one global group).
    fn encode_nothing(&self, rows: usize) -> Result<Rows> {
        let mut encoded = self.converter.empty_rows(rows, 0);
        let parser = self.converter.parser();
        for _ in 0..rows {
            encoded.push(parser.parse(&[]));
        }
        Ok(encoded)
    }

    /// Decodes rows that [`Self::encode`] made, into columns.
    pub fn decode<'a>(&self, rows: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>> {
        if self.types.is_empty() {
            return Ok(Vec::new());
        }
        let parser = self.converter.parser();
        Ok(self
            .converter
            .convert_rows(rows.into_iter().map(|bytes| parser.parse(bytes)))?)
    }

    /// The encoding of one row, on its own.
    pub fn encode_one(&self, columns: &[ArrayRef]) -> Result<OwnedRow> {
        Ok(self.encode(columns, 1)?.row(0).owned())
    }
}

/// The key group of an encoded key. Stable across restarts and versions: it is part of every state key.
pub fn key_group(key: &[u8]) -> u8 {
    (xxhash_rust::xxh3::xxh3_64(key) % KEY_GROUPS as u64) as u8
}

fn canonical_floats(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>();
            let canonical: Float64Array = values.unary(|value| if value.is_nan() { f64::NAN } else { value + 0.0 });
            Arc::new(canonical)
        }
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>();
            let canonical: Float32Array = values.unary(|value| if value.is_nan() { f32::NAN } else { value + 0.0 });
            Arc::new(canonical)
        }
        _ => column.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Int32Array;

    #[test]
    fn keys_treat_minus_zero_as_zero_and_all_nan_as_one() -> Result<()> {
        let codec = KeyCodec::keys(vec![DataType::Float64])?;
        let column: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, -f64::NAN]));
        let rows = codec.encode(&[column], 4)?;
        assert_eq!(rows.row(0), rows.row(1));
        assert_eq!(rows.row(2), rows.row(3));
        assert!(rows.row(0) < rows.row(2));
        Ok(())
    }

    #[test]
    fn nulls_come_last() -> Result<()> {
        let codec = KeyCodec::keys(vec![DataType::Int32])?;
        let column: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
        let rows = codec.encode(&[column], 2)?;
        assert!(rows.row(0) < rows.row(1));
        Ok(())
    }

    #[test]
    fn a_key_without_columns_is_one_group() -> Result<()> {
        let codec = KeyCodec::keys(vec![])?;
        let rows = codec.encode(&[], 3)?;
        assert_eq!(rows.num_rows(), 3);
        assert!(rows.row(0).data().is_empty());
        Ok(())
    }
}
