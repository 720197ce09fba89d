//! Texts as identifiers and literals, and `format`, which puts such into a text.

use super::piece::VALUE_BYTES_MAX;
use super::strings;
use crate::error::{Error, Result};
use crate::sql::function::definition::Call;
use arrow::array::{Array, ArrayRef, StringArray, StringBuilder};
use std::sync::Arc;

/// Words that must be quoted to be identifiers.
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "between",
    "binary",
    "both",
    "case",
    "cast",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "natural",
    "none",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
];

pub(crate) fn quote_ident(text: &str) -> String {
    let plain = text.chars().next().is_some_and(|c| c.is_ascii_lowercase() || c == '_')
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !RESERVED.contains(&text);
    if plain {
        text.to_owned()
    } else {
        format!("\"{}\"", text.replace('"', "\"\""))
    }
}

pub(super) fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        format!(" E'{}'", quoted.replace('\\', "\\\\")).trim_start().to_owned()
    } else {
        format!("'{quoted}'")
    }
}

pub(super) fn quote_nullable(call: &Call<'_>) -> Result<ArrayRef> {
    let result: StringArray = strings(&call.arguments[0])
        .iter()
        .map(|text| Some(text.map_or_else(|| "NULL".to_owned(), quote_literal)))
        .collect();
    Ok(Arc::new(result))
}

pub(super) fn format(call: &Call<'_>) -> Result<ArrayRef> {
    let settings = crate::types::text::Settings {
        time_zone: call.time_zone()?,
        ..Default::default()
    };
    let values = call.arguments[1..]
        .iter()
        .zip(&call.types[1..])
        .map(|(array, kind)| {
            if crate::sql::function::cast::is_textual(kind) {
                Ok(strings(array).clone())
            } else {
                crate::types::text::column_to_text(kind, array, &settings)
            }
        })
        .collect::<Result<Vec<_>>>()?;
    let mut builder = StringBuilder::new();
    for (row, template) in strings(&call.arguments[0]).iter().enumerate() {
        match template {
            Some(template) => builder.append_value(format_row(template, &values, row)?),
            None => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn format_row(template: &str, values: &[StringArray], row: usize) -> Result<String> {
    let mut output = String::with_capacity(template.len());
    let mut chars = template.chars().peekable();
    let mut next = 0;
    while let Some(c) = chars.next() {
        if c != '%' {
            output.push(c);
            continue;
        }
        if chars.peek() == Some(&'%') {
            chars.next();
            output.push('%');
            continue;
        }
        let mut number = String::new();
        let mut left = false;
        let mut width = None;
        while let Some(digit) = chars
            .peek()
            .copied()
            .filter(|c| c.is_ascii_digit() || *c == '-' || *c == '$')
        {
            chars.next();
            match digit {
                '-' => left = true,
                '$' => {
                    next = number.parse::<usize>().unwrap_or(0).checked_sub(1).ok_or_else(|| {
                        Error::semantic(
                            "22023",
                            "format specifies argument 0, but arguments are numbered from 1",
                        )
                    })?;
                    number.clear();
                }
                digit => number.push(digit),
            }
        }
        if !number.is_empty() {
            width = number.parse::<usize>().ok().filter(|width| *width < VALUE_BYTES_MAX);
        }
        let Some(kind) = chars.next() else {
            return Err(Error::semantic("22023", "unterminated format() type specifier")
                .with_hint("For a single \"%\" use \"%%\"."));
        };
        let Some(column) = values.get(next) else {
            return Err(Error::semantic("22023", "too few arguments for format()"));
        };
        next += 1;
        let value = column.is_valid(row).then(|| column.value(row));
        let text = match kind {
            's' => value.unwrap_or("").to_owned(),
            'I' => quote_ident(
                value
                    .ok_or_else(|| Error::semantic("22004", "null values cannot be formatted as an SQL identifier"))?,
            ),
            'L' => value.map_or_else(|| "NULL".to_owned(), quote_literal),
            other => {
                return Err(
                    Error::semantic("22023", format!("unrecognized format() type specifier \"{other}\""))
                        .with_hint("For a single \"%\" use \"%%\"."),
                );
            }
        };
        let missing = width.unwrap_or(0).saturating_sub(text.chars().count());
        let filling = " ".repeat(missing);
        output.push_str(&if left { text + &filling } else { filling + &text });
    }
    Ok(output)
}
