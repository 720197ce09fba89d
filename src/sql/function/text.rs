//! Functions on text. Lengths and positions count characters.

use super::definition::{Call, Definition, Kind, Overload};
use super::pattern::{Cache, Case, Flags, compile, compile_like, compile_similar};
use crate::error::{Error, Result};
use crate::types::Type;
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Int32Array, ListBuilder, StringArray, StringBuilder,
};
use arrow::datatypes::{Int32Type, Int64Type};
use std::sync::Arc;

fn text(_: &[Type]) -> Type {
    Type::Text
}

fn int4(_: &[Type]) -> Type {
    Type::Int4
}

fn boolean(_: &[Type]) -> Type {
    Type::Bool
}

fn texts(_: &[Type]) -> Type {
    Type::Array(Box::new(Type::Text))
}

fn bytea(_: &[Type]) -> Type {
    Type::Bytea
}

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

const fn named(name: &'static str, doc: &'static str, overloads: &'static [Overload]) -> Definition {
    Definition { name, doc, overloads }
}

use Kind::{Any, Bytea, Int4, Int8, Text, Texts};

/// The functions of this file.
pub(super) const FUNCTIONS: &[Definition] = &[
    named(
        "length",
        "The number of characters, or of bytes of bytea.",
        &[
            takes(&[Text], int4, |call| lengths(call, |text| text.chars().count())),
            takes(&[Bytea], int4, byte_lengths),
        ],
    ),
    named(
        "char_length",
        "The number of characters.",
        &[takes(&[Text], int4, |call| lengths(call, |text| text.chars().count()))],
    ),
    named(
        "character_length",
        "The number of characters.",
        &[takes(&[Text], int4, |call| lengths(call, |text| text.chars().count()))],
    ),
    named(
        "octet_length",
        "The number of bytes.",
        &[
            takes(&[Text], int4, |call| lengths(call, str::len)),
            takes(&[Bytea], int4, byte_lengths),
        ],
    ),
    named(
        "bit_length",
        "The number of bits.",
        &[takes(&[Text], int4, |call| lengths(call, |text| text.len() * 8))],
    ),
    named(
        "ascii",
        "The code of the first character.",
        &[takes(&[Text], int4, |call| {
            lengths(call, |text| text.chars().next().map_or(0, |c| c as usize))
        })],
    ),
    named("chr", "The character of a code.", &[takes(&[Int4], text, chr)]),
    named(
        "lower",
        "The text in lower case.",
        &[takes(&[Text], text, |call| {
            map(call, |text| in_case(text, str::to_ascii_lowercase, char::to_lowercase))
        })],
    ),
    named(
        "upper",
        "The text in upper case.",
        &[takes(&[Text], text, |call| {
            map(call, |text| in_case(text, str::to_ascii_uppercase, char::to_uppercase))
        })],
    ),
    named(
        "initcap",
        "Each word with a capital first letter.",
        &[takes(&[Text], text, |call| map(call, initcap))],
    ),
    named(
        "reverse",
        "The characters in reverse order.",
        &[takes(&[Text], text, |call| {
            map(call, |text| text.chars().rev().collect())
        })],
    ),
    named(
        "replace",
        "A text with all occurrences of a part replaced.",
        &[takes(&[Text, Text, Text], text, replace)],
    ),
    named(
        "translate",
        "A text with characters replaced one by one.",
        &[takes(&[Text, Text, Text], text, translate)],
    ),
    named(
        "btrim",
        "A text without certain characters at both ends.",
        &[
            takes(&[Text], text, |call| trim(call, End::Both)),
            takes(&[Text, Text], text, |call| trim(call, End::Both)),
        ],
    ),
    named(
        "ltrim",
        "A text without certain characters at its start.",
        &[
            takes(&[Text], text, |call| trim(call, End::Start)),
            takes(&[Text, Text], text, |call| trim(call, End::Start)),
        ],
    ),
    named(
        "rtrim",
        "A text without certain characters at its end.",
        &[
            takes(&[Text], text, |call| trim(call, End::Finish)),
            takes(&[Text, Text], text, |call| trim(call, End::Finish)),
        ],
    ),
    named(
        "lpad",
        "A text filled up on the left to a length.",
        &[
            takes(&[Text, Int4], text, |call| pad(call, End::Start)),
            takes(&[Text, Int4, Text], text, |call| pad(call, End::Start)),
        ],
    ),
    named(
        "rpad",
        "A text filled up on the right to a length.",
        &[
            takes(&[Text, Int4], text, |call| pad(call, End::Finish)),
            takes(&[Text, Int4, Text], text, |call| pad(call, End::Finish)),
        ],
    ),
    named(
        "left",
        "The first n characters; without the last n if negative.",
        &[takes(&[Text, Int4], text, |call| side(call, End::Start))],
    ),
    named(
        "right",
        "The last n characters; without the first n if negative.",
        &[takes(&[Text, Int4], text, |call| side(call, End::Finish))],
    ),
    named("repeat", "A text so many times.", &[takes(&[Text, Int4], text, repeat)]),
    named("substr", "A part of a text, from a position, of a length.", SUBSTRING),
    named("substring", "A part of a text, by position or by pattern.", SUBSTRING),
    named(
        "overlay",
        "A text with a part put over it.",
        &[
            takes(&[Text, Text, Int4], text, overlay),
            takes(&[Text, Text, Int4, Int4], text, overlay),
        ],
    ),
    named(
        "strpos",
        "The position of a part, 0 if there is none.",
        &[takes(&[Text, Text], int4, strpos)],
    ),
    named(
        "position",
        "The position of a part, 0 if there is none.",
        &[takes(&[Text, Text], int4, strpos)],
    ),
    named(
        "split_part",
        "The n-th field between delimiters.",
        &[takes(&[Text, Text, Int4], text, split_part)],
    ),
    named(
        "string_to_array",
        "The fields between delimiters.",
        &[
            takes(&[Text, Text], texts, string_to_array),
            takes(&[Text, Text, Text], texts, string_to_array),
        ],
    ),
    named(
        "array_to_string",
        "The elements joined by a delimiter.",
        &[
            takes(&[Texts, Text], text, array_to_string),
            takes(&[Texts, Text, Text], text, array_to_string),
            takes(&[Kind::Array, Text], text, array_to_string),
            takes(&[Kind::Array, Text, Text], text, array_to_string),
        ],
    ),
    named(
        "regexp_match",
        "The groups of the first match of a pattern.",
        &[
            takes(&[Text, Text], texts, regexp_match),
            takes(&[Text, Text, Text], texts, regexp_match),
        ],
    ),
    named(
        "regexp_replace",
        "A text with matches of a pattern replaced.",
        &[
            takes(&[Text, Text, Text], text, regexp_replace),
            takes(&[Text, Text, Text, Text], text, regexp_replace),
        ],
    ),
    named(
        "regexp_like",
        "Whether a pattern matches.",
        &[
            takes(&[Text, Text], boolean, regexp_like),
            takes(&[Text, Text, Text], boolean, regexp_like),
        ],
    ),
    named(
        "regexp_count",
        "How often a pattern matches.",
        &[takes(&[Text, Text], int4, regexp_count)],
    ),
    named(
        "regexp_substr",
        "The first match of a pattern.",
        &[takes(&[Text, Text], text, regexp_substr)],
    ),
    named(
        "regexp_split_to_array",
        "The parts between matches of a pattern.",
        &[takes(&[Text, Text], texts, regexp_split)],
    ),
    named(
        "__like",
        "LIKE with an escape character.",
        &[
            takes(&[Text, Text], boolean, |call| {
                like(call, |p, e| compile_like(p, e, Case::Sensitive))
            }),
            takes(&[Text, Text, Text], boolean, |call| {
                like(call, |p, e| compile_like(p, e, Case::Sensitive))
            }),
        ],
    ),
    named(
        "__ilike",
        "ILIKE with an escape character.",
        &[
            takes(&[Text, Text], boolean, |call| {
                like(call, |p, e| compile_like(p, e, Case::Insensitive))
            }),
            takes(&[Text, Text, Text], boolean, |call| {
                like(call, |p, e| compile_like(p, e, Case::Insensitive))
            }),
        ],
    ),
    named(
        "__similar",
        "SIMILAR TO.",
        &[
            takes(&[Text, Text], boolean, |call| like(call, compile_similar)),
            takes(&[Text, Text, Text], boolean, |call| like(call, compile_similar)),
        ],
    ),
    named(
        "md5",
        "The MD5 of a text, in hexadecimal.",
        &[takes(&[Text], text, |call| {
            map(call, |text| super::math::md5(text.as_bytes()))
        })],
    ),
    named(
        "to_hex",
        "A number in hexadecimal.",
        &[takes(&[Int4], text, to_hex4), takes(&[Int8], text, to_hex8)],
    ),
    named(
        "quote_ident",
        "A text as an identifier, quoted if need be.",
        &[takes(&[Text], text, |call| map(call, quote_ident))],
    ),
    named(
        "quote_literal",
        "A text as a literal.",
        &[takes(&[Text], text, |call| map(call, quote_literal))],
    ),
    named(
        "quote_nullable",
        "A text as a literal, or NULL.",
        &[takes(&[Text], text, quote_nullable)],
    ),
    named(
        "format",
        "A text with others put in, as by printf.",
        &[Overload {
            arguments: &[Text],
            rest: Some(Any),
            result: text,
            kernel: format,
            of_constants: None,
        }],
    ),
    named(
        "encode",
        "Bytes as hex, base64 or escape text.",
        &[takes(&[Bytea, Text], text, encode)],
    ),
    named(
        "decode",
        "Bytes of hex, base64 or escape text.",
        &[takes(&[Text, Text], bytea, decode)],
    ),
    named(
        "convert_from",
        "Bytes as text.",
        &[takes(&[Bytea, Text], text, convert_from)],
    ),
    named(
        "convert_to",
        "Text as bytes.",
        &[takes(&[Text, Text], bytea, convert_to)],
    ),
    named(
        "unistr",
        "A text with Unicode escapes resolved.",
        &[takes(&[Text], text, |call| map(call, str::to_owned))],
    ),
];

const SUBSTRING: &[Overload] = &[
    takes(&[Text, Int4], text, substring),
    takes(&[Text, Int4, Int4], text, substring),
    takes(&[Text, Text], text, regexp_substring),
];

fn strings(array: &ArrayRef) -> &StringArray {
    array.as_string::<i32>()
}

fn map(call: &Call<'_>, change: impl Fn(&str) -> String) -> Result<ArrayRef> {
    let result: StringArray = strings(&call.arguments[0])
        .iter()
        .map(|text| text.map(&change))
        .collect();
    Ok(Arc::new(result))
}

fn lengths(call: &Call<'_>, measure: impl Fn(&str) -> usize) -> Result<ArrayRef> {
    let result: Int32Array = strings(&call.arguments[0])
        .iter()
        .map(|text| text.map(|text| measure(text) as i32))
        .collect();
    Ok(Arc::new(result))
}

fn byte_lengths(call: &Call<'_>) -> Result<ArrayRef> {
    let result: Int32Array = call.arguments[0]
        .as_binary::<i32>()
        .iter()
        .map(|bytes| bytes.map(|bytes| bytes.len() as i32))
        .collect();
    Ok(Arc::new(result))
}

fn chr(call: &Call<'_>) -> Result<ArrayRef> {
    let mut builder = StringBuilder::new();
    for code in call.arguments[0].as_primitive::<Int32Type>() {
        match code {
            None => builder.append_null(),
            Some(0) => return Err(Error::semantic("54000", "null character not permitted")),
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
fn in_case<C: Iterator<Item = char>>(text: &str, ascii: fn(&str) -> String, change: fn(char) -> C) -> String {
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

fn initcap(text: &str) -> String {
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

/// Each row's arguments, all texts; NULL if any is.
fn rows3(call: &Call<'_>, change: impl Fn(&str, &str, &str) -> Result<String>) -> Result<ArrayRef> {
    let (a, b, c) = (
        strings(&call.arguments[0]),
        strings(&call.arguments[1]),
        strings(&call.arguments[2]),
    );
    let mut builder = StringBuilder::new();
    for ((a, b), c) in a.iter().zip(b).zip(c) {
        match (a, b, c) {
            (Some(a), Some(b), Some(c)) => builder.append_value(change(a, b, c)?),
            _ => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn replace(call: &Call<'_>) -> Result<ArrayRef> {
    rows3(call, |text, from, to| {
        Ok(if from.is_empty() {
            text.to_owned()
        } else {
            text.replace(from, to)
        })
    })
}

fn translate(call: &Call<'_>) -> Result<ArrayRef> {
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

/// Which end of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Start,
    Finish,
    Both,
}

fn trim(call: &Call<'_>, end: End) -> Result<ArrayRef> {
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
const VALUE_BYTES_MAX: usize = 256 << 20;

fn too_large() -> Error {
    Error::limit("54000", "requested length too large")
}

fn pad(call: &Call<'_>, end: End) -> Result<ArrayRef> {
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

fn side(call: &Call<'_>, end: End) -> Result<ArrayRef> {
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

fn repeat(call: &Call<'_>) -> Result<ArrayRef> {
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

fn substring(call: &Call<'_>) -> Result<ArrayRef> {
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

fn overlay(call: &Call<'_>) -> Result<ArrayRef> {
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

fn strpos(call: &Call<'_>) -> Result<ArrayRef> {
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

fn split_part(call: &Call<'_>) -> Result<ArrayRef> {
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

pub(super) fn text_lists() -> ListBuilder<StringBuilder> {
    ListBuilder::new(StringBuilder::new())
}

fn string_to_array(call: &Call<'_>) -> Result<ArrayRef> {
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

fn array_to_string(call: &Call<'_>) -> Result<ArrayRef> {
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
    for row in 0..call.rows {
        let Some(row_flags) = flags[row].filter(|_| texts.is_valid(row) && patterns.is_valid(row)) else {
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

fn regexp_match(call: &Call<'_>) -> Result<ArrayRef> {
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
pub(super) fn regexp_matches(call: &Call<'_>) -> Result<ArrayRef> {
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
pub(super) fn append_groups(builder: &mut ListBuilder<StringBuilder>, captures: &regex::Captures<'_>) {
    let first = usize::from(captures.len() > 1);
    for group in first..captures.len() {
        builder
            .values()
            .append_option(captures.get(group).map(|found| found.as_str()));
    }
    builder.append(true);
}

fn regexp_replace(call: &Call<'_>) -> Result<ArrayRef> {
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

fn regexp_like(call: &Call<'_>) -> Result<ArrayRef> {
    let mut found = Vec::with_capacity(call.rows);
    each_match(call, 2, |_, row| {
        found.push(row.map(|(text, regex, _)| regex.is_match(text)));
        Ok(())
    })?;
    Ok(Arc::new(BooleanArray::from(found)))
}

fn regexp_count(call: &Call<'_>) -> Result<ArrayRef> {
    let mut counts = Vec::with_capacity(call.rows);
    each_match(call, 2, |_, row| {
        counts.push(row.map(|(text, regex, _)| regex.find_iter(text).count() as i32));
        Ok(())
    })?;
    Ok(Arc::new(Int32Array::from(counts)))
}

fn regexp_substr(call: &Call<'_>) -> Result<ArrayRef> {
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
fn regexp_substring(call: &Call<'_>) -> Result<ArrayRef> {
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

fn regexp_split(call: &Call<'_>) -> Result<ArrayRef> {
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

fn like(call: &Call<'_>, compile: impl Fn(&str, Option<char>) -> Result<regex::Regex>) -> Result<ArrayRef> {
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
            return Err(Error::semantic("22019", "invalid escape string")
                .with_hint("Escape string must be empty or one character."));
        }
        let regex = compile(patterns.value(row), first)?;
        found.push(Some(regex.is_match(texts.value(row))));
    }
    Ok(Arc::new(BooleanArray::from(found)))
}

fn to_hex4(call: &Call<'_>) -> Result<ArrayRef> {
    let result: StringArray = call.arguments[0]
        .as_primitive::<Int32Type>()
        .iter()
        .map(|value| value.map(|value| format!("{value:x}")))
        .collect();
    Ok(Arc::new(result))
}

fn to_hex8(call: &Call<'_>) -> Result<ArrayRef> {
    let result: StringArray = call.arguments[0]
        .as_primitive::<Int64Type>()
        .iter()
        .map(|value| value.map(|value| format!("{value:x}")))
        .collect();
    Ok(Arc::new(result))
}

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

fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        format!(" E'{}'", quoted.replace('\\', "\\\\")).trim_start().to_owned()
    } else {
        format!("'{quoted}'")
    }
}

fn quote_nullable(call: &Call<'_>) -> Result<ArrayRef> {
    let result: StringArray = strings(&call.arguments[0])
        .iter()
        .map(|text| Some(text.map_or_else(|| "NULL".to_owned(), quote_literal)))
        .collect();
    Ok(Arc::new(result))
}

fn format(call: &Call<'_>) -> Result<ArrayRef> {
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

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn encode_one(bytes: &[u8], form: &str) -> Result<String> {
    match form.to_lowercase().as_str() {
        "hex" => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        "base64" => {
            let mut output = String::new();
            for (index, chunk) in bytes.chunks(3).enumerate() {
                if index > 0 && index % 19 == 0 {
                    output.push('\n');
                }
                let word = (u32::from(chunk[0]) << 16)
                    | (u32::from(chunk.get(1).copied().unwrap_or(0)) << 8)
                    | u32::from(chunk.get(2).copied().unwrap_or(0));
                for position in 0..4 {
                    if position <= chunk.len() {
                        output.push(char::from(BASE64[(word >> (18 - 6 * position)) as usize & 63]));
                    } else {
                        output.push('=');
                    }
                }
            }
            Ok(output)
        }
        "escape" => Ok(bytes
            .iter()
            .map(|byte| match byte {
                0 | 0x80.. => format!("\\{byte:03o}"),
                b'\\' => "\\\\".to_owned(),
                other => char::from(*other).to_string(),
            })
            .collect()),
        _ => Err(Error::semantic("22023", format!("unrecognized encoding: \"{form}\""))),
    }
}

fn decode_one(text: &str, form: &str) -> Result<Vec<u8>> {
    let invalid = |what: &str| Error::semantic("22023", format!("invalid {what}"));
    match form.to_lowercase().as_str() {
        "hex" => {
            let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
            if digits.len() % 2 != 0 {
                return Err(invalid("hexadecimal data: odd number of digits"));
            }
            digits
                .chunks(2)
                .map(|pair| {
                    std::str::from_utf8(pair)
                        .ok()
                        .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                        .ok_or_else(|| invalid("hexadecimal digit"))
                })
                .collect()
        }
        "base64" => {
            let mut output = Vec::new();
            let (mut word, mut bits) = (0u32, 0);
            for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=') {
                let value = BASE64
                    .iter()
                    .position(|known| *known == byte)
                    .ok_or_else(|| invalid("symbol found while decoding base64 sequence"))?;
                word = (word << 6) | value as u32;
                bits += 6;
                if bits >= 8 {
                    bits -= 8;
                    output.push((word >> bits) as u8);
                }
            }
            Ok(output)
        }
        "escape" => {
            let mut output = Vec::new();
            let bytes = text.as_bytes();
            let mut at = 0;
            while at < bytes.len() {
                if bytes[at] != b'\\' {
                    output.push(bytes[at]);
                    at += 1;
                } else if bytes.get(at + 1) == Some(&b'\\') {
                    output.push(b'\\');
                    at += 2;
                } else {
                    let octal = text
                        .get(at + 1..at + 4)
                        .and_then(|digits| u8::from_str_radix(digits, 8).ok());
                    output.push(octal.ok_or_else(|| Error::semantic("22P02", "invalid input syntax for type bytea"))?);
                    at += 4;
                }
            }
            Ok(output)
        }
        _ => Err(Error::semantic("22023", format!("unrecognized encoding: \"{form}\""))),
    }
}

fn encode(call: &Call<'_>) -> Result<ArrayRef> {
    let mut builder = StringBuilder::new();
    for (bytes, form) in call.arguments[0]
        .as_binary::<i32>()
        .iter()
        .zip(strings(&call.arguments[1]))
    {
        match (bytes, form) {
            (Some(bytes), Some(form)) => builder.append_value(encode_one(bytes, form)?),
            _ => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn decode(call: &Call<'_>) -> Result<ArrayRef> {
    let mut values = Vec::with_capacity(call.rows);
    for (text, form) in strings(&call.arguments[0]).iter().zip(strings(&call.arguments[1])) {
        values.push(match (text, form) {
            (Some(text), Some(form)) => Some(decode_one(text, form)?),
            _ => None,
        });
    }
    let result: BinaryArray = values.into_iter().collect();
    Ok(Arc::new(result))
}

fn convert_from(call: &Call<'_>) -> Result<ArrayRef> {
    let mut builder = StringBuilder::new();
    for bytes in call.arguments[0].as_binary::<i32>() {
        match bytes {
            Some(bytes) => builder.append_value(
                std::str::from_utf8(bytes)
                    .map_err(|_| Error::semantic("22021", "invalid byte sequence for encoding \"UTF8\""))?,
            ),
            None => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn convert_to(call: &Call<'_>) -> Result<ArrayRef> {
    let result: BinaryArray = strings(&call.arguments[0])
        .iter()
        .map(|text| text.map(str::as_bytes))
        .collect();
    Ok(Arc::new(result))
}
