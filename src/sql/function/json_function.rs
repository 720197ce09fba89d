//! Functions on json and jsonb.

use super::definition::{Call, Definition, Kind, Overload};
use super::json::{as_text, at_path, elements, members};
use crate::error::{Error, Result};
use crate::types::json::{normalize, write_string};
use crate::types::text::{Settings, column_to_text};
use crate::types::{Nullability, Type};
use arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, StringArray, StringBuilder, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use std::sync::Arc;

const fn takes(
    arguments: &'static [Kind],
    result: fn(&[Type]) -> Type,
    kernel: fn(&Call<'_>) -> Result<ArrayRef>,
) -> Overload {
    Overload {
        arguments,
        rest: None,
        result,
        kernel,
        of_constants: None,
    }
}

const fn variadic(
    arguments: &'static [Kind],
    rest: Kind,
    result: fn(&[Type]) -> Type,
    kernel: fn(&Call<'_>) -> Result<ArrayRef>,
) -> Overload {
    Overload {
        arguments,
        rest: Some(rest),
        result,
        kernel,
        of_constants: None,
    }
}

const fn named(name: &'static str, doc: &'static str, overloads: &'static [Overload]) -> Definition {
    Definition { name, doc, overloads }
}

fn json(_: &[Type]) -> Type {
    Type::Json
}

fn jsonb(_: &[Type]) -> Type {
    Type::Jsonb
}

fn text(_: &[Type]) -> Type {
    Type::Text
}

fn int4(_: &[Type]) -> Type {
    Type::Int4
}

fn texts(_: &[Type]) -> Type {
    Type::Array(Box::new(Type::Text))
}

fn jsons(_: &[Type]) -> Type {
    Type::Array(Box::new(Type::Json))
}

fn jsonbs(_: &[Type]) -> Type {
    Type::Array(Box::new(Type::Jsonb))
}

fn pairs(_: &[Type]) -> Type {
    Type::Array(Box::new(Type::Record(vec![
        ("key".to_owned(), Type::Text),
        ("value".to_owned(), Type::Json),
    ])))
}

fn pairs_b(_: &[Type]) -> Type {
    Type::Array(Box::new(Type::Record(vec![
        ("key".to_owned(), Type::Text),
        ("value".to_owned(), Type::Jsonb),
    ])))
}

fn text_pairs(_: &[Type]) -> Type {
    Type::Array(Box::new(Type::Record(vec![
        ("key".to_owned(), Type::Text),
        ("value".to_owned(), Type::Text),
    ])))
}

use Kind::{Any, Text};

const OBJECT: &[Overload] = &[variadic(&[], Any, json, build_object)];
const OBJECT_B: &[Overload] = &[variadic(&[], Any, jsonb, |call| normal(&build_object(call)?))];

/// The functions of this file.
pub(super) const FUNCTIONS: &[Definition] = &[
    named("to_json", "A value as json.", &[takes(&[Any], json, to_json)]),
    named(
        "to_jsonb",
        "A value as jsonb.",
        &[takes(&[Any], jsonb, |call| normal(&to_json(call)?))],
    ),
    named("__json_element", "", &[takes(&[Any], json, to_element)]),
    named("row_to_json", "A row as json.", &[takes(&[Any], json, to_json)]),
    named("array_to_json", "An array as json.", &[takes(&[Any], json, to_json)]),
    named("json_build_object", "An object of keys and values in turn.", OBJECT),
    named("jsonb_build_object", "An object of keys and values in turn.", OBJECT_B),
    named(
        "json_build_array",
        "An array of values.",
        &[variadic(&[], Any, json, build_array)],
    ),
    named(
        "jsonb_build_array",
        "An array of values.",
        &[variadic(&[], Any, jsonb, |call| normal(&build_array(call)?))],
    ),
    named(
        "json_typeof",
        "The type of a json value.",
        &[takes(&[Text], text, type_of)],
    ),
    named(
        "jsonb_typeof",
        "The type of a jsonb value.",
        &[takes(&[Text], text, type_of)],
    ),
    named(
        "json_array_length",
        "The number of elements.",
        &[takes(&[Text], int4, array_length)],
    ),
    named(
        "jsonb_array_length",
        "The number of elements.",
        &[takes(&[Text], int4, array_length)],
    ),
    named(
        "json_extract_path",
        "What stands at a path.",
        &[variadic(&[Text], Text, json, |call| extract(call, Form::Json))],
    ),
    named(
        "jsonb_extract_path",
        "What stands at a path.",
        &[variadic(&[Text], Text, jsonb, |call| extract(call, Form::Json))],
    ),
    named(
        "json_extract_path_text",
        "What stands at a path, as text.",
        &[variadic(&[Text], Text, text, |call| extract(call, Form::Text))],
    ),
    named(
        "jsonb_extract_path_text",
        "What stands at a path, as text.",
        &[variadic(&[Text], Text, text, |call| extract(call, Form::Text))],
    ),
    named(
        "json_strip_nulls",
        "An object without null members.",
        &[takes(&[Text], json, strip_nulls)],
    ),
    named(
        "jsonb_strip_nulls",
        "An object without null members.",
        &[takes(&[Text], jsonb, |call| normal(&strip_nulls(call)?))],
    ),
    named(
        "jsonb_pretty",
        "jsonb with line breaks and indentation.",
        &[takes(&[Text], text, pretty)],
    ),
    named(
        "jsonb_set",
        "jsonb with a value put at a path.",
        &[
            takes(&[Text, Kind::Texts, Text], jsonb, set),
            takes(&[Text, Kind::Texts, Text, Kind::Bool], jsonb, set),
        ],
    ),
    named(
        "__json_array_elements",
        "The elements of an array.",
        &[takes(&[Text], jsons, |call| list_elements(call, Form::Json))],
    ),
    named(
        "__jsonb_array_elements",
        "The elements of an array.",
        &[takes(&[Text], jsonbs, |call| list_elements(call, Form::Json))],
    ),
    named(
        "__json_array_elements_text",
        "The elements of an array.",
        &[takes(&[Text], texts, |call| list_elements(call, Form::Text))],
    ),
    named(
        "__jsonb_array_elements_text",
        "The elements of an array.",
        &[takes(&[Text], texts, |call| list_elements(call, Form::Text))],
    ),
    named(
        "__json_object_keys",
        "The keys of an object.",
        &[takes(&[Text], texts, keys)],
    ),
    named(
        "__json_each",
        "The members of an object.",
        &[takes(&[Text], pairs, |call| each(call, Form::Json))],
    ),
    named(
        "__jsonb_each",
        "The members of an object.",
        &[takes(&[Text], pairs_b, |call| each(call, Form::Json))],
    ),
    named(
        "__json_each_text",
        "The members of an object.",
        &[takes(&[Text], text_pairs, |call| each(call, Form::Text))],
    ),
    named(
        "__jsonb_each_text",
        "The members of an object.",
        &[takes(&[Text], text_pairs, |call| each(call, Form::Text))],
    ),
];

/// Whether values come as json or as text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Text,
}

/// Texts of json in normal form.
fn normal(array: &ArrayRef) -> Result<ArrayRef> {
    let mut builder = StringBuilder::new();
    for value in array.as_string::<i32>() {
        match value {
            Some(value) => builder.append_value(normalize(value)?),
            None => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// Writes one value of a column as json.
fn write_value(kind: &Type, array: &ArrayRef, row: usize, settings: &Settings, output: &mut String) -> Result<()> {
    if array.is_null(row) {
        output.push_str("null");
        return Ok(());
    }
    match kind {
        Type::Json | Type::Jsonb => output.push_str(array.as_string::<i32>().value(row)),
        Type::Bool => output.push_str(if array.as_boolean().value(row) { "true" } else { "false" }),
        Type::Array(element) => {
            let values = array.as_list::<i32>().value(row);
            output.push('[');
            for at in 0..values.len() {
                if at > 0 {
                    output.push(',');
                }
                write_value(element, &values, at, settings, output)?;
            }
            output.push(']');
        }
        Type::Record(fields) => {
            let record = array.as_struct();
            output.push('{');
            for (at, ((name, kind), column)) in fields.iter().zip(record.columns()).enumerate() {
                if at > 0 {
                    output.push(',');
                }
                write_string(name, output);
                output.push(':');
                write_value(kind, column, row, settings, output)?;
            }
            output.push('}');
        }
        _ => {
            let one = array.slice(row, 1);
            let text = if super::cast::is_textual(kind) {
                one.as_string::<i32>().clone()
            } else {
                column_to_text(kind, &one, settings)?
            };
            let text = text.value(0);
            let number = matches!(
                kind,
                Type::Int2 | Type::Int4 | Type::Int8 | Type::Numeric(_) | Type::Quotient | Type::Float4 | Type::Float8
            );
            if number && !text.contains(['N', 'I', 'n']) {
                output.push_str(text);
            } else if matches!(kind, Type::Timestamp(_) | Type::Timestamptz(_)) {
                // ISO 8601 has a T between date and time.
                let mut iso = text.replacen(' ', "T", 1);
                if matches!(kind, Type::Timestamptz(_)) && iso.len() > 3 && !iso[iso.len() - 3..].contains(':') {
                    iso.push_str(":00");
                }
                write_string(&iso, output);
            } else {
                write_string(text, output);
            }
        }
    }
    Ok(())
}

fn settings(call: &Call<'_>) -> Result<Settings> {
    Ok(Settings {
        time_zone: call.time_zone()?,
        ..Settings::default()
    })
}

fn to_json(call: &Call<'_>) -> Result<ArrayRef> {
    let settings = settings(call)?;
    let mut builder = StringBuilder::new();
    for row in 0..call.rows {
        if call.arguments[0].is_null(row) {
            builder.append_null();
            continue;
        }
        let mut output = String::new();
        write_value(&call.types[0], &call.arguments[0], row, &settings, &mut output)?;
        builder.append_value(output);
    }
    Ok(Arc::new(builder.finish()))
}

/// A value as an element of `json_agg`: an array or a row stands on a line of its own.
fn to_element(call: &Call<'_>) -> Result<ArrayRef> {
    let values = to_json(call)?;
    if !matches!(call.types[0], Type::Array(_) | Type::Record(_)) {
        return Ok(values);
    }
    let lines = values.as_string::<i32>().iter();
    let lines: arrow::array::StringArray = lines.map(|value| value.map(|value| format!("\n {value}"))).collect();
    Ok(Arc::new(lines))
}

fn build_object(call: &Call<'_>) -> Result<ArrayRef> {
    if !call.arguments.len().is_multiple_of(2) {
        return Err(
            Error::semantic("22023", "argument list must have even number of elements")
                .with_hint("The arguments of json_build_object() must consist of alternating keys and values."),
        );
    }
    let settings = settings(call)?;
    let mut builder = StringBuilder::new();
    for row in 0..call.rows {
        let mut output = String::from("{");
        for pair in 0..call.arguments.len() / 2 {
            if pair > 0 {
                output.push_str(", ");
            }
            let key = &call.arguments[pair * 2];
            if key.is_null(row) {
                return Err(
                    Error::semantic("22004", format!("argument {} cannot be null", pair * 2 + 1))
                        .with_hint("Object keys should be text."),
                );
            }
            let one = key.slice(row, 1);
            let kind = &call.types[pair * 2];
            let text = if super::cast::is_textual(kind) {
                one.as_string::<i32>().clone()
            } else {
                column_to_text(kind, &one, &settings)?
            };
            write_string(text.value(0), &mut output);
            output.push_str(" : ");
            write_value(
                &call.types[pair * 2 + 1],
                &call.arguments[pair * 2 + 1],
                row,
                &settings,
                &mut output,
            )?;
        }
        output.push('}');
        builder.append_value(output);
    }
    Ok(Arc::new(builder.finish()))
}

fn build_array(call: &Call<'_>) -> Result<ArrayRef> {
    let settings = settings(call)?;
    let mut builder = StringBuilder::new();
    for row in 0..call.rows {
        let mut output = String::from("[");
        for (at, (array, kind)) in call.arguments.iter().zip(call.types).enumerate() {
            if at > 0 {
                output.push_str(", ");
            }
            write_value(kind, array, row, &settings, &mut output)?;
        }
        output.push(']');
        builder.append_value(output);
    }
    Ok(Arc::new(builder.finish()))
}

fn kind_of(document: &str) -> &'static str {
    match document.trim_start().as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        _ => "number",
    }
}

fn type_of(call: &Call<'_>) -> Result<ArrayRef> {
    let kinds: StringArray = call.arguments[0]
        .as_string::<i32>()
        .iter()
        .map(|value| value.map(kind_of))
        .collect();
    Ok(Arc::new(kinds))
}

fn array_length(call: &Call<'_>) -> Result<ArrayRef> {
    let mut lengths = Vec::with_capacity(call.rows);
    for value in call.arguments[0].as_string::<i32>() {
        lengths.push(match value {
            Some(document) => match elements(document) {
                Some(elements) => Some(elements.len() as i32),
                None => {
                    let what = if kind_of(document) == "object" {
                        "a non-array"
                    } else {
                        "a scalar"
                    };
                    return Err(Error::semantic("22023", format!("cannot get array length of {what}")));
                }
            },
            None => None,
        });
    }
    Ok(Arc::new(Int32Array::from(lengths)))
}

fn extract(call: &Call<'_>, form: Form) -> Result<ArrayRef> {
    let documents = call.arguments[0].as_string::<i32>();
    let steps: Vec<&StringArray> = call.arguments[1..]
        .iter()
        .map(|array| array.as_string::<i32>())
        .collect();
    let mut builder = StringBuilder::new();
    for row in 0..call.rows {
        if documents.is_null(row) {
            builder.append_null();
            continue;
        }
        let path: Vec<Option<&str>> = steps
            .iter()
            .map(|step| step.is_valid(row).then(|| step.value(row)))
            .collect();
        match (at_path(documents.value(row), &path), form) {
            (Some(value), Form::Text) => builder.append_option(as_text(value)?),
            (value, _) => builder.append_option(value),
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn without_nulls(document: &str) -> String {
    if let Some(members) = members(document) {
        let mut output = String::from("{");
        for (key, value) in members.into_iter().filter(|(_, value)| *value != "null") {
            if output.len() > 1 {
                output.push(',');
            }
            write_string(&key, &mut output);
            output.push(':');
            output.push_str(&without_nulls(value));
        }
        output.push('}');
        return output;
    }
    match elements(document) {
        Some(elements) => format!(
            "[{}]",
            elements.into_iter().map(without_nulls).collect::<Vec<_>>().join(",")
        ),
        None => document.to_owned(),
    }
}

fn strip_nulls(call: &Call<'_>) -> Result<ArrayRef> {
    let stripped: StringArray = call.arguments[0]
        .as_string::<i32>()
        .iter()
        .map(|value| value.map(without_nulls))
        .collect();
    Ok(Arc::new(stripped))
}

fn write_pretty(document: &str, depth: usize, output: &mut String) {
    let indent = |output: &mut String, depth: usize| {
        output.push('\n');
        output.push_str(&"    ".repeat(depth));
    };
    if let Some(members) = members(document) {
        output.push('{');
        for (at, (key, value)) in members.iter().enumerate() {
            if at > 0 {
                output.push(',');
            }
            indent(output, depth + 1);
            write_string(key, output);
            output.push_str(": ");
            write_pretty(value, depth + 1, output);
        }
        indent(output, depth);
        output.push('}');
    } else if let Some(elements) = elements(document) {
        output.push('[');
        for (at, value) in elements.iter().enumerate() {
            if at > 0 {
                output.push(',');
            }
            indent(output, depth + 1);
            write_pretty(value, depth + 1, output);
        }
        indent(output, depth);
        output.push(']');
    } else {
        output.push_str(document);
    }
}

fn pretty(call: &Call<'_>) -> Result<ArrayRef> {
    let texts: StringArray = call.arguments[0]
        .as_string::<i32>()
        .iter()
        .map(|value| {
            value.map(|document| {
                let mut output = String::new();
                write_pretty(document, 0, &mut output);
                output
            })
        })
        .collect();
    Ok(Arc::new(texts))
}

/// A document with a value put at a path; unchanged where the path leads nowhere.
fn put(document: &str, path: &[Option<String>], value: &str, create: bool) -> Option<String> {
    let (step, rest) = path.split_first()?;
    let step = step.as_deref()?;
    if let Some(members) = members(document) {
        let mut found = false;
        let mut output = String::from("{");
        for (key, own) in &members {
            if output.len() > 1 {
                output.push(',');
            }
            write_string(key, &mut output);
            output.push(':');
            if key == step {
                found = true;
                if rest.is_empty() {
                    output.push_str(value);
                } else {
                    output.push_str(&put(own, rest, value, create).unwrap_or_else(|| (*own).to_owned()));
                }
            } else {
                output.push_str(own);
            }
        }
        if !found && create && rest.is_empty() {
            if output.len() > 1 {
                output.push(',');
            }
            write_string(step, &mut output);
            output.push(':');
            output.push_str(value);
        }
        output.push('}');
        return Some(output);
    }
    let elements = elements(document)?;
    let position: i64 = step.trim().parse().ok()?;
    let index = if position < 0 {
        elements.len() as i64 + position
    } else {
        position
    };
    let mut output: Vec<String> = elements.iter().map(|value| (*value).to_owned()).collect();
    match usize::try_from(index).ok().filter(|index| *index < output.len()) {
        Some(index) if rest.is_empty() => output[index] = value.to_owned(),
        Some(index) => {
            if let Some(changed) = put(&output[index], rest, value, create) {
                output[index] = changed;
            }
        }
        None if create && rest.is_empty() && index < 0 => output.insert(0, value.to_owned()),
        None if create && rest.is_empty() => output.push(value.to_owned()),
        None => {}
    }
    Some(format!("[{}]", output.join(",")))
}

fn set(call: &Call<'_>) -> Result<ArrayRef> {
    let documents = call.arguments[0].as_string::<i32>();
    let paths = call.arguments[1].as_list::<i32>();
    let values = call.arguments[2].as_string::<i32>();
    let creates = call.arguments.get(3).map(|array| array.as_boolean());
    let mut builder = StringBuilder::new();
    for row in 0..call.rows {
        if call.arguments.iter().any(|array| array.is_null(row)) {
            builder.append_null();
            continue;
        }
        let path = paths.value(row);
        let path: Vec<Option<String>> = path
            .as_string::<i32>()
            .iter()
            .map(|step| step.map(str::to_owned))
            .collect();
        let create = creates.is_none_or(|creates| creates.value(row));
        let document = documents.value(row);
        let changed = put(document, &path, values.value(row), create);
        builder.append_value(normalize(changed.as_deref().unwrap_or(document))?);
    }
    Ok(Arc::new(builder.finish()))
}

fn string_list(rows: Vec<Option<Vec<Option<String>>>>, result: &Type) -> Result<ArrayRef> {
    let mut builder = StringBuilder::new();
    let mut offsets = vec![0];
    let mut count = 0;
    let valid: Vec<bool> = rows.iter().map(Option::is_some).collect();
    for row in rows {
        for value in row.into_iter().flatten() {
            builder.append_option(value);
            count += 1;
        }
        offsets.push(count);
    }
    let element = match result {
        Type::Array(element) => element.as_ref().clone(),
        other => other.clone(),
    };
    Ok(Arc::new(ListArray::try_new(
        Arc::new(element.field("item", Nullability::Nullable)),
        OffsetBuffer::new(offsets.into()),
        Arc::new(builder.finish()),
        Some(NullBuffer::from(valid)),
    )?))
}

fn list_elements(call: &Call<'_>, form: Form) -> Result<ArrayRef> {
    let mut rows = Vec::with_capacity(call.rows);
    for value in call.arguments[0].as_string::<i32>() {
        let Some(document) = value else {
            rows.push(None);
            continue;
        };
        let Some(elements) = elements(document) else {
            let what = if kind_of(document) == "object" {
                "an object"
            } else {
                "a scalar"
            };
            return Err(Error::semantic("22023", format!("cannot extract elements from {what}")));
        };
        let values = elements
            .into_iter()
            .map(|value| match form {
                Form::Json => Ok(Some(value.to_owned())),
                Form::Text => as_text(value),
            })
            .collect::<Result<Vec<_>>>()?;
        rows.push(Some(values));
    }
    string_list(rows, call.result)
}

fn object_members(document: &str) -> Result<Vec<(String, &str)>> {
    members(document).ok_or_else(|| {
        let what = if kind_of(document) == "array" {
            "an array"
        } else {
            "a scalar"
        };
        Error::semantic("22023", format!("cannot call json_each on {what}"))
    })
}

fn keys(call: &Call<'_>) -> Result<ArrayRef> {
    let mut rows = Vec::with_capacity(call.rows);
    for value in call.arguments[0].as_string::<i32>() {
        rows.push(match value {
            Some(document) => Some(
                object_members(document)?
                    .into_iter()
                    .map(|(key, _)| Some(key))
                    .collect(),
            ),
            None => None,
        });
    }
    string_list(rows, call.result)
}

fn each(call: &Call<'_>, form: Form) -> Result<ArrayRef> {
    let (mut keys, mut values) = (StringBuilder::new(), StringBuilder::new());
    let mut offsets = vec![0];
    let mut count = 0;
    let mut valid = Vec::with_capacity(call.rows);
    for value in call.arguments[0].as_string::<i32>() {
        valid.push(value.is_some());
        if let Some(document) = value {
            for (key, value) in object_members(document)? {
                keys.append_value(key);
                match form {
                    Form::Json => values.append_value(value),
                    Form::Text => values.append_option(as_text(value)?),
                }
                count += 1;
            }
        }
        offsets.push(count);
    }
    let Type::Array(element) = call.result else {
        return Err(Error::internal("members come as a list"));
    };
    let arrow::datatypes::DataType::Struct(fields) = element.arrow() else {
        return Err(Error::internal("members are records"));
    };
    let records = StructArray::try_new(fields, vec![Arc::new(keys.finish()), Arc::new(values.finish())], None)?;
    Ok(Arc::new(ListArray::try_new(
        Arc::new(element.field("item", Nullability::Nullable)),
        OffsetBuffer::new(offsets.into()),
        Arc::new(records),
        Some(NullBuffer::from(valid)),
    )?))
}
