//! Functions on the characters of a text one by one: their codes, case, order and replacements.

use super::rows3;
use crate::error::{Error, Result};
use crate::sql::function::definition::Call;
use arrow::array::{ArrayRef, AsArray, StringBuilder};
use arrow::datatypes::Int32Type;
use std::sync::Arc;

pub(super) fn chr(call: &Call<'_>) -> Result<ArrayRef> {
    let mut builder = StringBuilder::new();
    for code in call.arguments[0].as_primitive::<Int32Type>() {
        match code {
            None => builder.append_null(),
            Some(0) => return Err(Error::semantic("54000", "null character not permitted")),
            Some(..0) => return Err(Error::semantic("22023", "character number must be positive")),
            Some(code) => match u32::try_from(code).ok().and_then(char::from_u32) {
                Some(c) => builder.append_value(c.encode_utf8(&mut [0; 4])),
                None => {
                    return Err(Error::semantic("54000", "requested character too large for encoding"));
                }
            },
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// A text with its letters in another case, where that is one letter: `ß` has none.
pub(super) fn in_case<C: Iterator<Item = char>>(
    text: &str,
    ascii: fn(&str) -> String,
    change: fn(char) -> C,
) -> String {
    if text.is_ascii() {
        return ascii(text);
    }
    text.chars()
        .map(|c| {
            let mut changed = change(c);
            match (changed.next(), changed.next()) {
                (Some(one), None) => one,
                _ => c,
            }
        })
        .collect()
}

pub(super) fn initcap(text: &str) -> String {
    let mut output = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        if inside {
            output.extend(c.to_lowercase());
        } else {
            output.extend(c.to_uppercase());
        }
        inside = c.is_alphanumeric();
    }
    output
}

pub(super) fn replace(call: &Call<'_>) -> Result<ArrayRef> {
    rows3(call, |text, from, to| {
        Ok(if from.is_empty() {
            text.to_owned()
        } else {
            text.replace(from, to)
        })
    })
}

pub(super) fn translate(call: &Call<'_>) -> Result<ArrayRef> {
    rows3(call, |text, from, to| {
        let to: Vec<char> = to.chars().collect();
        let from: Vec<char> = from.chars().collect();
        Ok(text
            .chars()
            .filter_map(|c| match from.iter().position(|known| *known == c) {
                Some(index) => to.get(index).copied(),
                None => Some(c),
            })
            .collect())
    })
}
