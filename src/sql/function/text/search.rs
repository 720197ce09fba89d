//! Patterns in a text: regular expressions, LIKE and SIMILAR TO.

use super::{strings, text_lists};
use crate::error::{Error, Result};
use crate::sql::function::definition::Call;
use crate::sql::function::pattern::{Cache, Flags, compile};
use arrow::array::{Array, ArrayRef, BooleanArray, Int32Array, ListBuilder, StringBuilder};
use std::sync::Arc;

/// The flags of each row; none where there is no such argument.
fn flags_of(call: &Call<'_>, index: usize) -> Result<Vec<Option<Flags>>> {
    match call.arguments.get(index) {
        Some(array) => strings(array)
            .iter()
            .map(|flags| flags.map(Flags::parse).transpose())
            .collect(),
        None => Ok(vec![Some(Flags::NONE); call.rows]),
    }
}

/// Goes through the rows with their compiled patterns.
fn each_match(
    call: &Call<'_>,
    flags_at: usize,
    mut visit: impl FnMut(usize, Option<(&str, &regex::Regex, Flags)>) -> Result<()>,
) -> Result<()> {
    let (texts, patterns) = (strings(&call.arguments[0]), strings(&call.arguments[1]));
    let flags = flags_of(call, flags_at)?;
    let mut current = Flags::NONE;
    let fresh = |flags: Flags| Cache::new(move |pattern: &str| compile(pattern, flags));
    let mut cache = fresh(current);
    for (row, flags) in flags.into_iter().enumerate() {
        let Some(row_flags) = flags.filter(|_| texts.is_valid(row) && patterns.is_valid(row)) else {
            visit(row, None)?;
            continue;
        };
        if row_flags != current {
            current = row_flags;
            cache = fresh(current);
        }
        let regex = cache.get(patterns.value(row))?;
        visit(row, Some((texts.value(row), regex, row_flags)))?;
    }
    Ok(())
}

pub(super) fn regexp_match(call: &Call<'_>) -> Result<ArrayRef> {
    let mut builder = text_lists();
    each_match(call, 2, |_, found| {
        let captures = found.and_then(|(text, regex, _)| regex.captures(text));
        let Some(captures) = captures else {
            builder.append(false);
            return Ok(());
        };
        append_groups(&mut builder, &captures);
        Ok(())
    })?;
    Ok(Arc::new(builder.finish()))
}

/// The groups of the first match, or of all with the flag `g`, as a list of lists.
pub(crate) fn regexp_matches(call: &Call<'_>) -> Result<ArrayRef> {
    let mut builder = ListBuilder::new(text_lists());
    each_match(call, 2, |_, row| {
        let Some((text, regex, flags)) = row else {
            builder.append(false);
            return Ok(());
        };
        let most = if flags.all { usize::MAX } else { 1 };
        for captures in regex.captures_iter(text).take(most) {
            append_groups(builder.values(), &captures);
        }
        builder.append(true);
        Ok(())
    })?;
    Ok(Arc::new(builder.finish()))
}

/// The groups of a match; the whole of it if the pattern has none.
pub(crate) fn append_groups(builder: &mut ListBuilder<StringBuilder>, captures: &regex::Captures<'_>) {
    let first = usize::from(captures.len() > 1);
    for group in first..captures.len() {
        builder
            .values()
            .append_option(captures.get(group).map(|found| found.as_str()));
    }
    builder.append(true);
}

pub(super) fn regexp_replace(call: &Call<'_>) -> Result<ArrayRef> {
    let replacements = strings(&call.arguments[2]);
    let mut builder = StringBuilder::new();
    each_match(call, 3, |row, found| {
        let Some((text, regex, flags)) = found.filter(|_| replacements.is_valid(row)) else {
            builder.append_null();
            return Ok(());
        };
        let replacement = replacement(replacements.value(row));
        let replaced = if flags.all {
            regex.replace_all(text, replacement.as_str())
        } else {
            regex.replace(text, replacement.as_str())
        };
        builder.append_value(replaced);
        Ok(())
    })?;
    Ok(Arc::new(builder.finish()))
}

/// PostgreSQL's `\1` and `\&` in the regex crate's spelling.
fn replacement(text: &str) -> String {
    let mut output = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '$' => output.push_str("$$"),
            '\\' => match chars.next() {
                Some(digit @ '0'..='9') => output.push_str(&format!("${{{digit}}}")),
                Some('&') => output.push_str("${0}"),
                Some('\\') => output.push('\\'),
                Some(other) => {
                    output.push('\\');
                    output.push(other);
                }
                None => output.push('\\'),
            },
            other => output.push(other),
        }
    }
    output
}

pub(super) fn regexp_like(call: &Call<'_>) -> Result<ArrayRef> {
    let mut found = Vec::with_capacity(call.rows);
    each_match(call, 2, |_, row| {
        found.push(row.map(|(text, regex, _)| regex.is_match(text)));
        Ok(())
    })?;
    Ok(Arc::new(BooleanArray::from(found)))
}

pub(super) fn regexp_count(call: &Call<'_>) -> Result<ArrayRef> {
    let mut counts = Vec::with_capacity(call.rows);
    each_match(call, 2, |_, row| {
        counts.push(row.map(|(text, regex, _)| regex.find_iter(text).count() as i32));
        Ok(())
    })?;
    Ok(Arc::new(Int32Array::from(counts)))
}

pub(super) fn regexp_substr(call: &Call<'_>) -> Result<ArrayRef> {
    let mut builder = StringBuilder::new();
    each_match(call, 2, |_, row| {
        builder.append_option(
            row.and_then(|(text, regex, _)| regex.find(text))
                .map(|found| found.as_str()),
        );
        Ok(())
    })?;
    Ok(Arc::new(builder.finish()))
}

/// `substring(text FROM pattern)`: the first group, or the whole match.
pub(super) fn regexp_substring(call: &Call<'_>) -> Result<ArrayRef> {
    let mut builder = StringBuilder::new();
    each_match(call, 2, |_, row| {
        let captures = row.and_then(|(text, regex, _)| regex.captures(text));
        let found = captures
            .as_ref()
            .and_then(|captures| captures.get(usize::from(captures.len() > 1)));
        builder.append_option(found.map(|found| found.as_str()));
        Ok(())
    })?;
    Ok(Arc::new(builder.finish()))
}

pub(super) fn regexp_split(call: &Call<'_>) -> Result<ArrayRef> {
    let mut builder = text_lists();
    each_match(call, 2, |_, row| {
        let Some((text, regex, _)) = row else {
            builder.append(false);
            return Ok(());
        };
        for part in regex.split(text) {
            builder.values().append_value(part);
        }
        builder.append(true);
        Ok(())
    })?;
    Ok(Arc::new(builder.finish()))
}

pub(super) fn like(call: &Call<'_>, compile: impl Fn(&str, Option<char>) -> Result<regex::Regex>) -> Result<ArrayRef> {
    let (texts, patterns) = (strings(&call.arguments[0]), strings(&call.arguments[1]));
    let escapes = call.arguments.get(2).map(strings);
    let mut found = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        let escape_null = escapes.is_some_and(|escapes| escapes.is_null(row));
        if texts.is_null(row) || patterns.is_null(row) || escape_null {
            found.push(None);
            continue;
        }
        let mut escape = escapes.map_or("\\", |escapes| escapes.value(row)).chars();
        let (first, second) = (escape.next(), escape.next());
        if second.is_some() {
            return Err(Error::semantic("22025", "invalid escape string")
                .with_hint("Escape string must be empty or one character."));
        }
        let regex = compile(patterns.value(row), first)?;
        found.push(Some(regex.is_match(texts.value(row))));
    }
    Ok(Arc::new(BooleanArray::from(found)))
}
