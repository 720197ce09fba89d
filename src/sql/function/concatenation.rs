//! `concat` and `concat_ws`: values as they are printed, one after the other.

use super::definition::{Call, Definition, Kind, Overload};
use crate::error::Result;
use crate::types::Type;
use crate::types::text::{Settings, column_to_text};
use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use std::sync::Arc;

/// The functions of this file.
pub(super) const FUNCTIONS: &[Definition] = &[
    Definition {
        name: "concat",
        doc: "The values as one text, NULLs left out.",
        overloads: &[Overload {
            arguments: &[],
            rest: Some(Kind::Any),
            result: |_| Type::Text,
            kernel: |call| concat(call, None),
            of_constants: None,
        }],
    },
    Definition {
        name: "concat_ws",
        doc: "The values as one text with a separator between them, NULLs left out.",
        overloads: &[Overload {
            arguments: &[Kind::Text],
            rest: Some(Kind::Any),
            result: |_| Type::Text,
            kernel: |call| concat(call, Some(call.arguments[0].as_string::<i32>())),
            of_constants: None,
        }],
    },
];

fn concat(call: &Call<'_>, separators: Option<&StringArray>) -> Result<ArrayRef> {
    let settings = Settings {
        time_zone: call.time_zone()?,
        ..Settings::default()
    };
    let first = usize::from(separators.is_some());
    let columns = call.arguments[first..]
        .iter()
        .zip(&call.types[first..])
        .map(|(array, kind)| column_to_text(kind, array, &settings))
        .collect::<Result<Vec<_>>>()?;
    let mut builder = StringBuilder::with_capacity(call.rows, 0);
    let mut scratch = String::new();
    for row in 0..call.rows {
        let separator = match separators {
            Some(separators) if separators.is_null(row) => {
                builder.append_null();
                continue;
            }
            Some(separators) => separators.value(row),
            None => "",
        };
        scratch.clear();
        let values = columns.iter().filter(|column| column.is_valid(row));
        for (index, column) in values.enumerate() {
            if index > 0 {
                scratch.push_str(separator);
            }
            scratch.push_str(column.value(row));
        }
        builder.append_value(&scratch);
    }
    Ok(Arc::new(builder.finish()))
}
