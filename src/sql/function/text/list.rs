//! Texts as lists of fields, and back.

use super::{strings, text_lists};
use crate::error::Result;
use crate::sql::function::definition::Call;
use crate::types::Type;
use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use std::sync::Arc;

pub(super) fn string_to_array(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, delimiters) = (strings(&call.arguments[0]), strings(&call.arguments[1]));
    let nulls = call.arguments.get(2).map(strings);
    let mut builder = text_lists();
    for row in 0..call.rows {
        if texts.is_null(row) {
            builder.append(false);
            continue;
        }
        let text = texts.value(row);
        let null = nulls.filter(|nulls| nulls.is_valid(row)).map(|nulls| nulls.value(row));
        let mut push = |field: &str| {
            if null == Some(field) {
                builder.values().append_null();
            } else {
                builder.values().append_value(field);
            }
        };
        if delimiters.is_null(row) {
            for c in text.chars() {
                push(c.encode_utf8(&mut [0; 4]));
            }
        } else if !text.is_empty() {
            match delimiters.value(row) {
                "" => push(text),
                delimiter => text.split(delimiter).for_each(push),
            }
        }
        builder.append(true);
    }
    Ok(Arc::new(builder.finish()))
}

pub(super) fn array_to_string(call: &Call<'_>) -> Result<ArrayRef> {
    let lists = call.arguments[0].as_list::<i32>();
    let element = match &call.types[0] {
        Type::Array(element) => element.as_ref().clone(),
        other => other.clone(),
    };
    let delimiters = strings(&call.arguments[1]);
    let nulls = call.arguments.get(2).map(strings);
    let settings = crate::types::text::Settings {
        time_zone: call.time_zone()?,
        ..Default::default()
    };
    let mut builder = StringBuilder::new();
    for row in 0..call.rows {
        if lists.is_null(row) || delimiters.is_null(row) {
            builder.append_null();
            continue;
        }
        let values = crate::types::text::column_to_text(&element, &lists.value(row), &settings)?;
        let null = nulls.filter(|nulls| nulls.is_valid(row)).map(|nulls| nulls.value(row));
        let parts: Vec<&str> = values.iter().filter_map(|value| value.or(null)).collect();
        builder.append_value(parts.join(delimiters.value(row)));
    }
    Ok(Arc::new(builder.finish()))
}
