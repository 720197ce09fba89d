//! `json_agg`, `json_object_agg` and their jsonb twins, written as PostgreSQL writes them.

use super::Function;
use super::bag::Reader;
use super::fold::Results;
use crate::delta::KeyCodec;
use crate::error::{Error, Result};
use crate::state::Group;
use crate::types::json::{normalize, write_string};
use arrow::array::{Array, AsArray, StringArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use std::sync::Arc;

impl Reader {
    /// One document per group; NULL for a group without a row.
    pub(super) fn documents(&self, codec: &KeyCodec, groups: &[&Group]) -> Result<Results> {
        let (columns, lengths) = self.flat(codec, groups)?;
        let texts = self
            .arguments
            .iter()
            .map(|place| Ok(cast(&columns[*place], &DataType::Utf8)?.as_string::<i32>().clone()))
            .collect::<Result<Vec<StringArray>>>()?;
        let mut documents = StringBuilder::new();
        let mut failures = Vec::new();
        let mut row = 0;
        for (number, length) in lengths.into_iter().enumerate() {
            if length == 0 {
                documents.append_null();
                continue;
            }
            match self.document(&texts, row..row + length) {
                Ok(document) => documents.append_value(document),
                Err(error) => {
                    documents.append_null();
                    failures.push((number, error));
                }
            }
            row += length;
        }
        Ok(Results {
            values: Arc::new(documents.finish()),
            failures,
        })
    }

    fn document(&self, texts: &[StringArray], rows: std::ops::Range<usize>) -> Result<String> {
        let value = |column: &StringArray, row: usize| match column.is_valid(row) {
            true => column.value(row).to_owned(),
            false => "null".to_owned(),
        };
        if let [values] = texts {
            let elements: Vec<String> = rows.map(|row| value(values, row)).collect();
            // What stands on a line of its own begins with the line's end, but not as the first.
            let list = format!("[{}]", elements.join(", ").trim_start());
            return if self.function == Function::JsonbAgg {
                normalize(&list)
            } else {
                Ok(list)
            };
        }
        let [keys, values] = texts else {
            return Err(Error::internal("an object has keys and values"));
        };
        let mut members = Vec::with_capacity(rows.len());
        for row in rows {
            if keys.is_null(row) {
                return Err(Error::semantic("22023", "field name must not be null"));
            }
            let mut member = String::new();
            write_string(keys.value(row), &mut member);
            member.push_str(" : ");
            member.push_str(&value(values, row));
            members.push(member);
        }
        let object = format!("{{ {} }}", members.join(", "));
        if self.function == Function::JsonbObjectAgg {
            return normalize(&object);
        }
        Ok(object)
    }
}
