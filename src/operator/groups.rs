//! The keys that an epoch touches, each once, numbered from 0 in the order in which they first came.
//!
//! Keys are encoded a column at a time and looked up once per row; everything after works on numbers.

use crate::delta::{Batch, KeyCodec};
use crate::error::{Error, Result};
use ahash::RandomState;
use arrow::array::ArrayRef;
use arrow::row::Rows;
use arrow::util::display::array_value_to_string;
use hashbrown::HashTable;

/// Different byte strings, numbered.
#[derive(Debug, Default)]
pub(super) struct Groups {
    table: HashTable<u32>,
    hasher: RandomState,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Groups {
    /// The number of a key, a new one if it was not there.
    pub(super) fn intern(&mut self, key: &[u8]) -> u32 {
        let Self {
            table,
            hasher,
            bytes,
            ends,
        } = self;
        let hash = hasher.hash_one(key);
        let next = ends.len() as u32;
        let slice = |number: &u32| slice_of(bytes, ends, *number as usize);
        let entry = table.entry(
            hash,
            |number| slice(number) == key,
            |number| hasher.hash_one(slice(number)),
        );
        match entry {
            hashbrown::hash_table::Entry::Occupied(known) => *known.get(),
            hashbrown::hash_table::Entry::Vacant(place) => {
                place.insert(next);
                bytes.extend_from_slice(key);
                ends.push(bytes.len());
                next
            }
        }
    }

    /// The numbers of a batch's keys.
    pub(super) fn intern_all(&mut self, keys: &Rows) -> Vec<u32> {
        keys.iter().map(|key| self.intern(key.data())).collect()
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The key of that number.
    pub(super) fn key(&self, number: usize) -> &[u8] {
        slice_of(&self.bytes, &self.ends, number)
    }

    /// All keys, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|number| self.key(number))
    }
}

fn slice_of<'a>(bytes: &'a [u8], ends: &[usize], number: usize) -> &'a [u8] {
    let start = if number == 0 { 0 } else { ends[number - 1] };
    &bytes[start..ends[number]]
}

/// The columns of a batch at these positions.
pub(super) fn columns_of(batch: &Batch, columns: &[usize]) -> Vec<ArrayRef> {
    columns
        .iter()
        .map(|column| batch.rows.column(*column).clone())
        .collect()
}

/// The keys of a batch.
pub(super) fn encode_keys(codec: &KeyCodec, batch: &Batch, columns: &[usize]) -> Result<Rows> {
    codec.encode(&columns_of(batch, columns), batch.len())
}

/// The error for a row that is retracted but not there, naming the operator and the key.
pub(super) fn not_there(operator: &str, codec: &KeyCodec, key: &[u8]) -> Error {
    Error::internal(format!("operator {operator}: a row was retracted that is not there"))
        .with_detail(format!("The key is {}.", show(codec, key)))
}

/// An encoded key as text.
pub(super) fn show(codec: &KeyCodec, key: &[u8]) -> String {
    let values = match codec.decode([key]) {
        Ok(columns) => columns
            .iter()
            .map(|column| {
                if column.is_null(0) {
                    "NULL".to_owned()
                } else {
                    array_value_to_string(column, 0).unwrap_or_else(|_| "?".to_owned())
                }
            })
            .collect::<Vec<_>>(),
        Err(_) => vec!["?".to_owned()],
    };
    format!("({})", values.join(", "))
}
