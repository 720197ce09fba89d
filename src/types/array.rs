//! The text form of arrays: `{1,NULL,"a b",{...}}`.

use crate::error::{Error, Result};
use std::borrow::Cow;

/// How deep arrays may be nested, as in PostgreSQL.
const DIMENSIONS_MAX: usize = 6;

/// An element of an array's text.
#[derive(Debug, PartialEq)]
pub(super) enum Element<'a> {
    /// An unquoted `NULL`.
    Null,
    /// A value's text, without quotes and escapes.
    Text(Cow<'a, str>),
    /// An array within the array.
    List(Vec<Element<'a>>),
}

/// Reads an array's text: the elements of its outermost dimension.
pub(super) fn parse(text: &str) -> Result<Vec<Element<'_>>> {
    let start = text.trim_start();
    let malformed = |detail: &str| {
        let error = Error::semantic("22P02", format!("malformed array literal: \"{text}\""));
        if detail.is_empty() {
            error
        } else {
            error.with_detail(detail)
        }
    };
    if start.starts_with('[') {
        return Err(Error::unsupported("arrays with explicit bounds are not supported")
            .with_hint("Leave out the bounds: elements are counted from 1."));
    }
    if !start.starts_with('{') {
        return Err(malformed("Array value must start with \"{\" or dimension information."));
    }
    let mut reader = Reader { rest: &start[1..] };
    let elements = reader.list(1).map_err(malformed)?;
    if !reader.rest.trim().is_empty() {
        return Err(malformed("Junk after closing right brace."));
    }
    if depths_differ(&elements) {
        return Err(malformed(
            "Multidimensional arrays must have sub-arrays with matching dimensions.",
        ));
    }
    Ok(elements)
}

/// Whether parts of an array have different lengths, or stand beside values.
fn depths_differ(elements: &[Element<'_>]) -> bool {
    let length = |element: &Element<'_>| match element {
        Element::List(list) => Some(list.len()),
        _ => None,
    };
    let first = elements.first().and_then(length);
    elements
        .iter()
        .any(|element| length(element) != first || matches!(element, Element::List(list) if depths_differ(list)))
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    /// Reads what follows a `{` up to its `}`.
    fn list(&mut self, depth: usize) -> Result<Vec<Element<'a>>, &'static str> {
        const UNEXPECTED_END: &str = "Unexpected end of input.";
        if depth > DIMENSIONS_MAX {
            return Err("The number of dimensions exceeds 6.");
        }
        let mut elements = Vec::new();
        self.skip_blanks();
        if let Some(rest) = self.rest.strip_prefix('}') {
            self.rest = rest;
            return Ok(elements);
        }
        loop {
            self.skip_blanks();
            let element = match self.rest.chars().next().ok_or(UNEXPECTED_END)? {
                '{' => {
                    self.rest = &self.rest[1..];
                    Element::List(self.list(depth + 1)?)
                }
                '"' => Element::Text(self.quoted()?),
                ',' => return Err("Unexpected \",\" character."),
                '}' => return Err("Unexpected \"}\" character."),
                _ => self.bare()?,
            };
            elements.push(element);
            self.skip_blanks();
            let mut after = self.rest.chars();
            match after.next().ok_or(UNEXPECTED_END)? {
                ',' => self.rest = after.as_str(),
                '}' => {
                    self.rest = after.as_str();
                    return Ok(elements);
                }
                _ => return Err("Unexpected array element."),
            }
        }
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
    }

    fn quoted(&mut self) -> Result<Cow<'a, str>, &'static str> {
        let body = &self.rest[1..];
        let mut text = String::new();
        let mut characters = body.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    self.rest = &body[at + 1..];
                    return Ok(Cow::Owned(text));
                }
                '\\' => match characters.next() {
                    Some((_, escaped)) => text.push(escaped),
                    None => break,
                },
                other => text.push(other),
            }
        }
        Err("Unexpected end of input.")
    }

    fn bare(&mut self) -> Result<Element<'a>, &'static str> {
        let mut end = None;
        let mut escaped = false;
        let mut skip = false;
        for (at, character) in self.rest.char_indices() {
            if std::mem::take(&mut skip) {
                continue;
            }
            match character {
                '\\' => {
                    escaped = true;
                    skip = true;
                }
                ',' | '}' => {
                    end = Some(at);
                    break;
                }
                '{' => return Err("Unexpected \"{\" character."),
                '"' => return Err("Unexpected array element."),
                _ => {}
            }
        }
        let (word, rest) = self.rest.split_at(end.ok_or("Unexpected end of input.")?);
        self.rest = rest;
        let word = word.trim_end_matches(|c: char| c.is_ascii_whitespace());
        if !escaped {
            return Ok(if word.eq_ignore_ascii_case("null") {
                Element::Null
            } else {
                Element::Text(Cow::Borrowed(word))
            });
        }
        let mut text = String::new();
        let mut characters = word.chars();
        while let Some(character) = characters.next() {
            text.push(match character {
                '\\' => characters.next().unwrap_or(' '),
                other => other,
            });
        }
        Ok(Element::Text(Cow::Owned(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Element<'_> {
        Element::Text(Cow::Borrowed(value))
    }

    #[test]
    fn elements_are_read_with_quotes_escapes_and_nulls() {
        assert_eq!(
            parse(r#" { a , NULL, "NULL", "q\"", c d } "#).unwrap(),
            vec![text("a"), Element::Null, text("NULL"), text("q\""), text("c d")]
        );
        assert_eq!(parse("{}").unwrap(), vec![]);
        assert_eq!(
            parse("{{1},{2}}").unwrap(),
            vec![Element::List(vec![text("1")]), Element::List(vec![text("2")])]
        );
    }

    #[test]
    fn malformed_arrays_are_refused() {
        for literal in [
            "",
            "1,2",
            "{1,2",
            "{1,,2}",
            "{1}x",
            "{1,}",
            "{{1},2}",
            "{{1},{2,3}}",
            "{\"a}",
        ] {
            assert_eq!(parse(literal).unwrap_err().code(), "22P02", "{literal}");
        }
        assert_eq!(parse("[0:1]={1,2}").unwrap_err().code(), "0A000");
    }
}
