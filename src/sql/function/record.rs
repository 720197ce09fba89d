//! Records: `ROW(a, b)`, and a table's row as one value.

use super::definition::{Call, Definition, Kind, Overload};
use crate::error::Result;
use crate::types::Type;
use arrow::array::{ArrayRef, StructArray};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use std::sync::Arc;

/// The function that makes a record of names and values in turn.
pub(crate) const RECORD: &str = "__record";

/// The functions of this file.
pub(super) const FUNCTIONS: &[Definition] = &[
    Definition {
        name: "row",
        doc: "A record of the values.",
        overloads: &[Overload {
            arguments: &[],
            rest: Some(Kind::Any),
            result: |types| {
                let fields = types.iter().enumerate();
                Type::Record(
                    fields
                        .map(|(index, kind)| (format!("f{}", index + 1), kind.clone()))
                        .collect(),
                )
            },
            kernel: |call| record(call, call.arguments.to_vec()),
            of_constants: None,
        }],
    },
    Definition {
        name: RECORD,
        doc: "A record of names and values in turn.",
        overloads: &[Overload {
            arguments: &[],
            rest: Some(Kind::Any),
            result: |types| {
                let values = types.iter().skip(1).step_by(2);
                Type::Record(values.map(|kind| (String::new(), kind.clone())).collect())
            },
            kernel: |call| record(call, call.arguments.iter().skip(1).step_by(2).cloned().collect()),
            of_constants: Some(named),
        }],
    },
];

/// The type of a record with its fields' names.
fn named(kind: Type, constants: &[Option<&ScalarValue>]) -> Type {
    let Type::Record(fields) = kind else {
        return kind;
    };
    let names = constants.iter().step_by(2).map(|name| match name {
        Some(ScalarValue::Utf8(Some(name))) => name.clone(),
        _ => String::new(),
    });
    Type::Record(names.zip(fields).map(|(name, (_, kind))| (name, kind)).collect())
}

fn record(call: &Call<'_>, values: Vec<ArrayRef>) -> Result<ArrayRef> {
    let DataType::Struct(fields) = call.result.arrow() else {
        return Err(crate::error::Error::internal("a record's type is none"));
    };
    if values.is_empty() {
        return Ok(Arc::new(StructArray::new_empty_fields(call.rows, None)));
    }
    Ok(Arc::new(StructArray::try_new(fields, values, None)?))
}
