//! Functions on text. Lengths and positions count characters.

mod encode;
mod letters;
mod list;
mod piece;
mod quote;
mod search;

use super::definition::{Call, Definition, Kind, Overload};
use super::pattern::{Case, compile_like, compile_similar};
use crate::error::Result;
use crate::types::Type;
use arrow::array::{ArrayRef, AsArray, Int32Array, ListBuilder, StringArray, StringBuilder};
use encode::{convert_from, convert_to, decode, encode, md5, to_hex4, to_hex8};
use letters::{chr, in_case, initcap, replace, translate};
use list::{array_to_string, string_to_array};
use piece::{End, overlay, pad, repeat, side, split_part, strpos, substring, trim};
pub(crate) use quote::quote_ident;
use quote::{format, quote_literal, quote_nullable};
pub(super) use search::regexp_matches;
use search::{
    like, regexp_count, regexp_like, regexp_match, regexp_replace, regexp_split, regexp_substr, regexp_substring,
};
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
        &[takes(&[Text], text, |call| map(call, |text| md5(text.as_bytes())))],
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

pub(super) fn text_lists() -> ListBuilder<StringBuilder> {
    ListBuilder::new(StringBuilder::new())
}
