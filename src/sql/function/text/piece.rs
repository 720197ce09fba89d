//! Parts of a text by position and length, and texts made longer: `substring`, `left`, `lpad`, `trim` and their like.

use super::strings;
use crate::error::{Error, Result};
use crate::sql::function::definition::Call;
use arrow::array::{Array, ArrayRef, AsArray, Int32Array, StringBuilder};
use arrow::datatypes::Int32Type;
use std::sync::Arc;

/// Which end of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Start,
    Finish,
    Both,
}

pub(super) fn trim(call: &Call<'_>, end: End) -> Result<ArrayRef> {
    let texts = strings(&call.arguments[0]);
    let sets = call.arguments.get(1).map(strings);
    let mut builder = StringBuilder::with_capacity(texts.len(), texts.value_data().len());
    for (row, text) in texts.iter().enumerate() {
        let set = match sets {
            Some(sets) if sets.is_null(row) => None,
            Some(sets) => Some(sets.value(row)),
            None => Some(" "),
        };
        let (Some(text), Some(set)) = (text, set) else {
            builder.append_null();
            continue;
        };
        let unwanted = |c: char| set.contains(c);
        builder.append_value(match end {
            End::Start => text.trim_start_matches(unwanted),
            End::Finish => text.trim_end_matches(unwanted),
            End::Both => text.trim_matches(unwanted),
        });
    }
    Ok(Arc::new(builder.finish()))
}

/// The most bytes that a function may make of one value.
pub(super) const VALUE_BYTES_MAX: usize = 256 << 20;

fn too_large() -> Error {
    Error::limit("54000", "requested length too large")
}

pub(super) fn pad(call: &Call<'_>, end: End) -> Result<ArrayRef> {
    let texts = strings(&call.arguments[0]);
    let lengths = call.arguments[1].as_primitive::<Int32Type>();
    let fills = call.arguments.get(2).map(strings);
    let mut builder = StringBuilder::new();
    for row in 0..call.rows {
        let fill_null = fills.is_some_and(|fills| fills.is_null(row));
        if texts.is_null(row) || lengths.is_null(row) || fill_null {
            builder.append_null();
            continue;
        }
        let text = texts.value(row);
        let fill: Vec<char> = fills.map_or(" ", |fills| fills.value(row)).chars().collect();
        let wanted = lengths.value(row).max(0) as usize;
        if wanted > VALUE_BYTES_MAX / 4 {
            return Err(too_large());
        }
        let have = text.chars().count();
        if have >= wanted || fill.is_empty() {
            builder.append_value(text.chars().take(wanted).collect::<String>());
            continue;
        }
        let filling: String = fill.iter().cycle().take(wanted - have).collect();
        builder.append_value(if end == End::Start {
            filling + text
        } else {
            text.to_owned() + &filling
        });
    }
    Ok(Arc::new(builder.finish()))
}

pub(super) fn side(call: &Call<'_>, end: End) -> Result<ArrayRef> {
    let counts = call.arguments[1].as_primitive::<Int32Type>();
    let mut builder = StringBuilder::new();
    for (text, count) in strings(&call.arguments[0]).iter().zip(counts) {
        let (Some(text), Some(count)) = (text, count) else {
            builder.append_null();
            continue;
        };
        let length = text.chars().count() as i64;
        let count = i64::from(count);
        let kept = if count < 0 {
            (length + count).max(0)
        } else {
            count.min(length)
        } as usize;
        let taken: String = match end {
            End::Start => text.chars().take(kept).collect(),
            _ => text.chars().skip(length as usize - kept).collect(),
        };
        builder.append_value(taken);
    }
    Ok(Arc::new(builder.finish()))
}

pub(super) fn repeat(call: &Call<'_>) -> Result<ArrayRef> {
    let counts = call.arguments[1].as_primitive::<Int32Type>();
    let mut builder = StringBuilder::new();
    for (text, count) in strings(&call.arguments[0]).iter().zip(counts) {
        match (text, count) {
            (Some(text), Some(count)) => {
                let count = count.max(0) as usize;
                if text.len().saturating_mul(count) > VALUE_BYTES_MAX {
                    return Err(too_large());
                }
                builder.append_value(text.repeat(count));
            }
            _ => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// Characters `start..start+length` counted from 1, as far as they exist.
fn cut(text: &str, start: i32, length: Option<i32>) -> Result<&str> {
    let start = i64::from(start);
    let end = match length {
        Some(length) if length < 0 => {
            return Err(Error::semantic("22011", "negative substring length not allowed"));
        }
        Some(length) => start.saturating_add(i64::from(length)),
        None => i64::MAX,
    };
    let skip = (start - 1).max(0) as usize;
    let until = (end - 1).max(0) as usize;
    if text.is_ascii() {
        let until = until.min(text.len());
        return Ok(&text[skip.min(until)..until]);
    }
    let byte = |count: usize| text.char_indices().nth(count).map_or(text.len(), |(byte, _)| byte);
    let (from, to) = (byte(skip), byte(until));
    Ok(&text[from.min(to)..to])
}

pub(super) fn substring(call: &Call<'_>) -> Result<ArrayRef> {
    let texts = strings(&call.arguments[0]);
    let starts = call.arguments[1].as_primitive::<Int32Type>();
    let lengths = call.arguments.get(2).map(|array| array.as_primitive::<Int32Type>());
    let mut builder = StringBuilder::new();
    for row in 0..call.rows {
        let length_null = lengths.is_some_and(|lengths| lengths.is_null(row));
        if texts.is_null(row) || starts.is_null(row) || length_null {
            builder.append_null();
            continue;
        }
        let length = lengths.map(|lengths| lengths.value(row));
        builder.append_value(cut(texts.value(row), starts.value(row), length)?);
    }
    Ok(Arc::new(builder.finish()))
}

pub(super) fn overlay(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, over) = (strings(&call.arguments[0]), strings(&call.arguments[1]));
    let starts = call.arguments[2].as_primitive::<Int32Type>();
    let lengths = call.arguments.get(3).map(|array| array.as_primitive::<Int32Type>());
    let mut builder = StringBuilder::new();
    for row in 0..call.rows {
        let length_null = lengths.is_some_and(|lengths| lengths.is_null(row));
        if texts.is_null(row) || over.is_null(row) || starts.is_null(row) || length_null {
            builder.append_null();
            continue;
        }
        let (text, over, start) = (texts.value(row), over.value(row), starts.value(row));
        if start <= 0 {
            return Err(Error::semantic("22011", "negative substring length not allowed"));
        }
        let length = lengths.map_or(over.chars().count() as i32, |lengths| lengths.value(row));
        let before = cut(text, 1, Some(start - 1))?;
        let after = cut(text, start.saturating_add(length), None)?;
        builder.append_value(format!("{before}{over}{after}"));
    }
    Ok(Arc::new(builder.finish()))
}

pub(super) fn strpos(call: &Call<'_>) -> Result<ArrayRef> {
    let found: Int32Array = strings(&call.arguments[0])
        .iter()
        .zip(strings(&call.arguments[1]))
        .map(|(text, part)| {
            let (text, part) = (text?, part?);
            Some(
                text.find(part)
                    .map_or(0, |byte| text[..byte].chars().count() as i32 + 1),
            )
        })
        .collect();
    Ok(Arc::new(found))
}

pub(super) fn split_part(call: &Call<'_>) -> Result<ArrayRef> {
    let numbers = call.arguments[2].as_primitive::<Int32Type>();
    let texts = strings(&call.arguments[0]);
    let mut builder = StringBuilder::with_capacity(texts.len(), texts.value_data().len());
    for ((text, delimiter), number) in texts.iter().zip(strings(&call.arguments[1])).zip(numbers) {
        let (Some(text), Some(delimiter), Some(number)) = (text, delimiter, number) else {
            builder.append_null();
            continue;
        };
        if number == 0 {
            return Err(Error::semantic("22023", "field position must not be zero"));
        }
        let index = number.unsigned_abs() as usize - 1;
        let field = if delimiter.is_empty() {
            (index == 0).then_some(text)
        } else if number > 0 {
            text.split(delimiter).nth(index)
        } else {
            // From the end, but cut from the start: the two differ where delimiters overlap.
            let fields: Vec<&str> = text.split(delimiter).collect();
            fields.len().checked_sub(index + 1).map(|at| fields[at])
        };
        builder.append_value(field.unwrap_or(""));
    }
    Ok(Arc::new(builder.finish()))
}
