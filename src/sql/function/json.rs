//! Operators on json and jsonb.
//!
//! Values are texts (jsonb's in normal form), and a part of a text is a part of the value: access cuts slices out
//! and never builds a tree. A slice of a normal form is a normal form.

use crate::error::{Error, Result};
use crate::types::Type;
use crate::types::json::{normalize, unescape, write_string};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringBuilder};
use arrow::datatypes::Int32Type;
use std::sync::Arc;

/// What `->` and its relatives look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Get {
    /// A field by name.
    Field,
    /// An element by position; negative: from the end.
    Element,
    /// A path of both.
    Path,
}

/// The tests on jsonb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Test {
    /// `@>`
    Contains,
    /// `<@`
    Contained,
    /// `?`
    Exists,
    /// `?|`
    ExistsAny,
    /// `?&`
    ExistsAll,
}

impl Test {
    /// The test that a symbol means.
    pub(crate) fn of(symbol: &str) -> Option<Self> {
        Some(match symbol {
            "@>" => Self::Contains,
            "<@" => Self::Contained,
            "?" => Self::Exists,
            "?|" => Self::ExistsAny,
            "?&" => Self::ExistsAll,
            _ => return None,
        })
    }
}

/// What `-` takes out of jsonb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delete {
    /// A field, or equal strings of an array.
    Field,
    /// An element by position.
    Element,
    /// Several fields.
    Fields,
    /// What stands at a path (`#-`).
    Path,
}

fn blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn skip_blanks(text: &str, mut at: usize) -> usize {
    while text.as_bytes().get(at).copied().is_some_and(blank) {
        at += 1;
    }
    at
}

/// The end of the value that begins at `at`; the text is known to be JSON.
fn skip_value(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let mut depth = 0usize;
    let mut at = at;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
                if depth == 0 {
                    return at;
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return at,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            b',' if depth == 0 => return at,
            byte if depth == 0 && blank(byte) => return at,
            _ => {}
        }
        at += 1;
    }
    at
}

/// The members of an object: keys without their escapes, values as they stand. `None` if it is no object.
pub(crate) fn members(text: &str) -> Option<Vec<(String, &str)>> {
    let mut at = skip_blanks(text, 0);
    if text.as_bytes().get(at) != Some(&b'{') {
        return None;
    }
    at += 1;
    let mut found = Vec::new();
    loop {
        at = skip_blanks(text, at);
        match text.as_bytes().get(at)? {
            b'}' => return Some(found),
            b',' => at += 1,
            _ => {
                let end = skip_value(text, at);
                let key = unescape(text.get(at + 1..end - 1)?).ok()?;
                at = skip_blanks(text, end) + 1;
                at = skip_blanks(text, at);
                let end = skip_value(text, at);
                found.push((key, &text[at..end]));
                at = end;
            }
        }
    }
}

/// The elements of an array. `None` if it is no array.
pub(crate) fn elements(text: &str) -> Option<Vec<&str>> {
    let mut at = skip_blanks(text, 0);
    if text.as_bytes().get(at) != Some(&b'[') {
        return None;
    }
    at += 1;
    let mut found = Vec::new();
    loop {
        at = skip_blanks(text, at);
        match text.as_bytes().get(at)? {
            b']' => return Some(found),
            b',' => at += 1,
            _ => {
                let end = skip_value(text, at);
                found.push(&text[at..end]);
                at = end;
            }
        }
    }
}

/// The field of a name; the last one if there are several.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    members(text)?
        .into_iter()
        .rev()
        .find(|(key, _)| key == name)
        .map(|(_, value)| value)
}

/// The element at a position, counted from 0, or from -1 at the end.
pub(crate) fn element(text: &str, position: i64) -> Option<&str> {
    let elements = elements(text)?;
    let index = if position < 0 {
        elements.len() as i64 + position
    } else {
        position
    };
    elements.get(usize::try_from(index).ok()?).copied()
}

/// What stands at a path.
pub(crate) fn at_path<'a>(text: &'a str, path: &[Option<&str>]) -> Option<&'a str> {
    let mut value = text.trim_matches(|c: char| c.is_ascii() && blank(c as u8));
    for step in path {
        let step = (*step)?;
        value = match value.as_bytes().first()? {
            b'{' => field(value, step)?,
            b'[' => element(value, step.trim().parse().ok()?)?,
            _ => return None,
        };
    }
    Some(value)
}

/// A value as text: a string without quotes and escapes, NULL for null.
pub(crate) fn as_text(value: &str) -> Result<Option<String>> {
    let value = value.trim_matches(|c: char| c.is_ascii() && blank(c as u8));
    if value == "null" {
        return Ok(None);
    }
    match value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(raw) => unescape(raw).map(Some),
        None => Ok(Some(value.to_owned())),
    }
}

fn path_of(list: &arrow::array::ListArray, row: usize) -> Vec<Option<String>> {
    let values = list.value(row);
    values
        .as_string::<i32>()
        .iter()
        .map(|step| step.map(str::to_owned))
        .collect()
}

/// `-> ->> #> #>>`.
pub(crate) fn get(left: &ArrayRef, right: &ArrayRef, get: Get, kind: &Type, result: &Type) -> Result<ArrayRef> {
    let documents = left.as_string::<i32>();
    let text = *result == Type::Text;
    let mut builder = StringBuilder::new();
    for row in 0..documents.len() {
        if documents.is_null(row) || right.is_null(row) {
            builder.append_null();
            continue;
        }
        let document = documents.value(row);
        let found = match get {
            Get::Field => field(document, right.as_string::<i32>().value(row)),
            Get::Element => {
                let position = right.as_primitive::<Int32Type>().value(row);
                // A bare scalar of jsonb is kept as an array of one.
                if *kind == Type::Jsonb && matches!(position, 0 | -1) && !document.starts_with(['{', '[']) {
                    Some(document)
                } else {
                    element(document, i64::from(position))
                }
            }
            Get::Path => {
                let path = path_of(right.as_list::<i32>(), row);
                let path: Vec<Option<&str>> = path.iter().map(Option::as_deref).collect();
                at_path(document, &path)
            }
        };
        match found {
            Some(value) if text => builder.append_option(as_text(value)?),
            Some(value) => builder.append_value(value),
            None => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// Whether one jsonb value contains another.
pub(crate) fn contains(outer: &str, inner: &str) -> bool {
    match (members(outer), members(inner), elements(outer), elements(inner)) {
        (Some(outer), Some(inner), _, _) => inner.iter().all(|(key, value)| {
            outer
                .iter()
                .any(|(known, other)| known == key && contains(other, value))
        }),
        (_, _, Some(outer), Some(inner)) => inner
            .iter()
            .all(|value| outer.iter().any(|other| contains(other, value))),
        // An array contains a bare scalar that is one of its elements.
        (None, None, Some(outer), None) => outer.iter().any(|other| same_scalar(other, inner)),
        (None, None, None, None) => same_scalar(outer, inner),
        _ => false,
    }
}

/// A jsonb value in which equal numbers are written alike: 1.0 and 1 are one number.
pub(crate) fn comparable(value: &str) -> String {
    let mut output = String::with_capacity(value.len());
    let bytes = value.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'"' => skip_value(value, at),
            b'-' | b'0'..=b'9' => skip_value(value, at).max(at + 1),
            _ => at + 1,
        };
        let part = &value[at..end];
        if bytes[at] != b'"' && part.contains('.') && !part.contains(['e', 'E']) {
            output.push_str(part.trim_end_matches('0').trim_end_matches('.'));
        } else {
            output.push_str(part);
        }
        at = end;
    }
    output
}

fn same_scalar(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    // 1.0 and 1 are one number.
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(x), Ok(y)) => x == y,
        _ => false,
    }
}

fn exists(document: &str, key: &str) -> bool {
    if let Some(members) = members(document) {
        return members.iter().any(|(known, _)| known == key);
    }
    let is_string = |value: &str| value.starts_with('"') && as_text(value).ok().flatten().as_deref() == Some(key);
    match elements(document) {
        Some(elements) => elements.into_iter().any(is_string),
        None => is_string(document),
    }
}

/// `@> <@ ? ?| ?&`.
pub(crate) fn test(left: &ArrayRef, right: &ArrayRef, test: Test) -> Result<ArrayRef> {
    let documents = left.as_string::<i32>();
    let mut found = Vec::with_capacity(documents.len());
    for row in 0..documents.len() {
        if documents.is_null(row) || right.is_null(row) {
            found.push(None);
            continue;
        }
        let document = documents.value(row);
        let keys = || path_of(right.as_list::<i32>(), row).into_iter().flatten();
        found.push(Some(match test {
            Test::Contains => contains(document, right.as_string::<i32>().value(row)),
            Test::Contained => contains(right.as_string::<i32>().value(row), document),
            Test::Exists => exists(document, right.as_string::<i32>().value(row)),
            Test::ExistsAny => keys().any(|key| exists(document, &key)),
            Test::ExistsAll => keys().all(|key| exists(document, &key)),
        }));
    }
    Ok(Arc::new(BooleanArray::from(found)))
}

/// An object of these members, in normal form.
fn object(members: &[(String, &str)]) -> Result<String> {
    let mut text = String::from("{");
    for (index, (key, value)) in members.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        write_string(key, &mut text);
        text.push(':');
        text.push_str(value);
    }
    text.push('}');
    normalize(&text)
}

fn array(elements: &[&str]) -> String {
    format!("[{}]", elements.join(", "))
}

/// `jsonb || jsonb`.
pub(crate) fn concat(left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
    let mut builder = StringBuilder::new();
    for (a, b) in left.as_string::<i32>().iter().zip(right.as_string::<i32>()) {
        let (Some(a), Some(b)) = (a, b) else {
            builder.append_null();
            continue;
        };
        builder.append_value(match (members(a), members(b)) {
            (Some(mut first), Some(second)) => {
                first.extend(second);
                object(&first)?
            }
            _ => {
                let mut all = elements(a).unwrap_or_else(|| vec![a]);
                all.extend(elements(b).unwrap_or_else(|| vec![b]));
                array(&all)
            }
        });
    }
    Ok(Arc::new(builder.finish()))
}

/// `jsonb - key`, `#-`.
pub(crate) fn delete(left: &ArrayRef, right: &ArrayRef, delete: Delete) -> Result<ArrayRef> {
    let documents = left.as_string::<i32>();
    let mut builder = StringBuilder::new();
    for row in 0..documents.len() {
        if documents.is_null(row) || right.is_null(row) {
            builder.append_null();
            continue;
        }
        let document = documents.value(row);
        builder.append_value(match delete {
            Delete::Field => without(document, &[right.as_string::<i32>().value(row).to_owned()])?,
            Delete::Fields => {
                let keys: Vec<String> = path_of(right.as_list::<i32>(), row).into_iter().flatten().collect();
                without(document, &keys)?
            }
            Delete::Element => without_element(document, i64::from(right.as_primitive::<Int32Type>().value(row)))?,
            Delete::Path => {
                let path: Vec<String> = path_of(right.as_list::<i32>(), row).into_iter().flatten().collect();
                without_path(document, &path)?
            }
        });
    }
    Ok(Arc::new(builder.finish()))
}

fn without(document: &str, keys: &[String]) -> Result<String> {
    if let Some(members) = members(document) {
        let kept: Vec<_> = members.into_iter().filter(|(key, _)| !keys.contains(key)).collect();
        return object(&kept);
    }
    let Some(elements) = elements(document) else {
        return Err(Error::semantic("22023", "cannot delete from scalar"));
    };
    let kept: Vec<&str> = elements
        .into_iter()
        .filter(|value| {
            let text = if value.starts_with('"') {
                as_text(value).ok().flatten()
            } else {
                None
            };
            text.is_none_or(|text| !keys.contains(&text))
        })
        .collect();
    Ok(array(&kept))
}

fn without_element(document: &str, position: i64) -> Result<String> {
    let Some(mut elements) = elements(document) else {
        let what = if document.starts_with('{') {
            "object using integer index"
        } else {
            "scalar"
        };
        return Err(Error::semantic("22023", format!("cannot delete from {what}")));
    };
    let index = if position < 0 {
        elements.len() as i64 + position
    } else {
        position
    };
    if let Ok(index) = usize::try_from(index)
        && index < elements.len()
    {
        elements.remove(index);
    }
    Ok(array(&elements))
}

fn without_path(document: &str, path: &[String]) -> Result<String> {
    let Some((first, rest)) = path.split_first() else {
        return Ok(document.to_owned());
    };
    if rest.is_empty() {
        return match first.trim().parse::<i64>() {
            Ok(position) if document.starts_with('[') => without_element(document, position),
            _ if document.starts_with('{') => without(document, std::slice::from_ref(first)),
            _ => Ok(document.to_owned()),
        };
    }
    if let Some(members) = members(document) {
        let mut changed = Vec::with_capacity(members.len());
        for (key, value) in &members {
            let value = if key == first {
                without_path(value, rest)?
            } else {
                (*value).to_owned()
            };
            changed.push((key.clone(), value));
        }
        let borrowed: Vec<(String, &str)> = changed
            .iter()
            .map(|(key, value)| (key.clone(), value.as_str()))
            .collect();
        return object(&borrowed);
    }
    let (Some(elements), Ok(position)) = (elements(document), first.trim().parse::<i64>()) else {
        return Ok(document.to_owned());
    };
    let index = if position < 0 {
        elements.len() as i64 + position
    } else {
        position
    };
    let mut changed = Vec::with_capacity(elements.len());
    for (at, value) in elements.iter().enumerate() {
        changed.push(if at as i64 == index {
            without_path(value, rest)?
        } else {
            (*value).to_owned()
        });
    }
    let borrowed: Vec<&str> = changed.iter().map(String::as_str).collect();
    Ok(array(&borrowed))
}
