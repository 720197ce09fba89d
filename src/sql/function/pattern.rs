//! LIKE, SIMILAR TO and regular expressions.
//!
//! PostgreSQL's regular expressions are translated to the `regex` crate's, which runs in linear time; what that
//! cannot do (back references, look-around) is refused by name. One compiled pattern is kept per call, since a
//! pattern is nearly always a constant.

use crate::error::{Error, Result};
use arrow::array::{ArrayRef, AsArray, BooleanArray};
use regex::{Regex, RegexBuilder};
use std::sync::Arc;

/// How a pattern is matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Match {
    /// It must match.
    Matches,
    /// It must match, in any case of letters.
    MatchesAnyCase,
    /// It must not match.
    Differs,
    /// It must not match, in any case of letters.
    DiffersAnyCase,
}

impl Match {
    /// What an operator's symbol asks for.
    pub(crate) fn of(symbol: &str) -> Option<Self> {
        Some(match symbol {
            "~" | "~~" => Self::Matches,
            "~*" | "~~*" => Self::MatchesAnyCase,
            "!~" | "!~~" => Self::Differs,
            "!~*" | "!~~*" => Self::DiffersAnyCase,
            _ => return None,
        })
    }

    fn case(self) -> Case {
        match self {
            Self::Matches | Self::Differs => Case::Sensitive,
            _ => Case::Insensitive,
        }
    }

    fn is_wanted(self, found: bool) -> bool {
        match self {
            Self::Matches | Self::MatchesAnyCase => found,
            _ => !found,
        }
    }
}

/// Whether upper and lower case differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Case {
    /// They do.
    Sensitive,
    /// They do not.
    Insensitive,
}

/// The flags of the `regexp_` functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags {
    /// Upper and lower case.
    pub(crate) case: Case,
    /// `g`: all matches and not only the first.
    pub(crate) all: bool,
    newline: Newline,
    expanded: bool,
    literal: bool,
}

/// What line breaks mean in a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Newline {
    /// Nothing special.
    Plain,
    /// `.` stops at them, `^` and `$` match at them.
    Sensitive,
    /// `.` stops at them.
    Dot,
    /// `^` and `$` match at them.
    Anchors,
}

impl Flags {
    /// No flags.
    pub(crate) const NONE: Self = Self {
        case: Case::Sensitive,
        all: false,
        newline: Newline::Plain,
        expanded: false,
        literal: false,
    };

    /// Reads flags such as `gi`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut flags = Self::NONE;
        for flag in text.chars() {
            match flag {
                'g' => flags.all = true,
                'i' => flags.case = Case::Insensitive,
                'c' => flags.case = Case::Sensitive,
                'n' | 'm' => flags.newline = Newline::Sensitive,
                'p' => flags.newline = Newline::Dot,
                'w' => flags.newline = Newline::Anchors,
                's' => flags.newline = Newline::Plain,
                'x' => flags.expanded = true,
                't' => flags.expanded = false,
                'q' => flags.literal = true,
                'b' | 'e' => {}
                other => {
                    return Err(Error::semantic(
                        "22023",
                        format!("invalid regular expression option: \"{other}\""),
                    ));
                }
            }
        }
        Ok(flags)
    }
}

/// A regular expression of PostgreSQL's, compiled.
pub(crate) fn compile(pattern: &str, flags: Flags) -> Result<Regex> {
    let translated = if flags.literal {
        regex::escape(pattern)
    } else {
        translate(pattern)?
    };
    RegexBuilder::new(&translated)
        .case_insensitive(flags.case == Case::Insensitive)
        .dot_matches_new_line(!matches!(flags.newline, Newline::Sensitive | Newline::Dot))
        .multi_line(matches!(flags.newline, Newline::Sensitive | Newline::Anchors))
        .ignore_whitespace(flags.expanded)
        .build()
        .map_err(|error| {
            let reason = error.to_string();
            let reason = reason.lines().last().unwrap_or("").trim().trim_start_matches("error: ");
            let reason = FAULTS
                .iter()
                .find(|(theirs, _)| reason.contains(theirs))
                .map_or(reason, |(_, postgres)| *postgres);
            Error::semantic("2201B", format!("invalid regular expression: {reason}"))
        })
}

/// What is wrong with a regular expression, in the crate's words and in PostgreSQL's.
const FAULTS: &[(&str, &str)] = &[
    ("unclosed group", "parentheses () not balanced"),
    ("unopened group", "parentheses () not balanced"),
    ("unclosed character class", "brackets [] not balanced"),
    ("missing expression", "quantifier operand invalid"),
    ("invalid repetition count range", "invalid repetition count(s)"),
    ("repetition quantifier", "invalid repetition count(s)"),
    ("POSIX character class", "invalid character class"),
    ("class range", "invalid character range"),
    ("escape sequence", "invalid escape \\ sequence"),
    ("compiled regex exceeds", "regular expression is too complex"),
];

/// What PostgreSQL spells differently.
fn translate(pattern: &str) -> Result<String> {
    let unsupported = |what: &str| Error::unsupported(format!("{what} in regular expressions are not supported"));
    let body = pattern.strip_prefix("***=").map(regex::escape);
    if let Some(literal) = body {
        return Ok(literal);
    }
    let pattern = pattern.strip_prefix("***:").unwrap_or(pattern);
    let mut output = String::with_capacity(pattern.len());
    let mut chars = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('m' | 'M' | 'y') if !in_class => output.push_str("\\b"),
                Some('Y') if !in_class => output.push_str("\\B"),
                Some('Z') if !in_class => output.push_str("\\z"),
                Some(digit @ '1'..='9') => {
                    let _ = digit;
                    return Err(unsupported("back references"));
                }
                Some('e') => output.push_str("\\x1B"),
                Some(escaped) => {
                    output.push('\\');
                    output.push(escaped);
                }
                None => {
                    return Err(Error::semantic(
                        "2201B",
                        "invalid regular expression: invalid escape \\ sequence",
                    ));
                }
            },
            '(' if !in_class && chars.peek() == Some(&'?') => {
                output.push(c);
                let mut ahead = chars.clone();
                ahead.next();
                if matches!(ahead.next(), Some('=' | '!' | '<')) {
                    return Err(unsupported("look-around constraints"));
                }
            }
            '[' if in_class => {
                // `[:alpha:]` goes as it is; a bare bracket must be escaped.
                if chars.peek() == Some(&':') {
                    output.push(c);
                } else {
                    output.push_str("\\[");
                }
            }
            '[' => {
                in_class = true;
                output.push(c);
                if chars.peek() == Some(&'^') {
                    output.push('^');
                    chars.next();
                }
                if chars.peek() == Some(&']') {
                    output.push_str("\\]");
                    chars.next();
                }
            }
            ']' if in_class => {
                // The end of `[:alpha:]` is not the end of the class.
                in_class =
                    output.ends_with(':') && output.rfind("[:").is_some_and(|open| !output[open..].contains(":]"));
                output.push(c);
            }
            '&' | '~' | '-' if in_class && chars.peek() == Some(&c) => {
                output.push('\\');
                output.push(c);
            }
            _ => output.push(c),
        }
    }
    Ok(output)
}

/// Compiles a pattern again only when it changes.
pub(crate) struct Cache<F> {
    compile: F,
    last: Option<(String, Regex)>,
}

impl<F: Fn(&str) -> Result<Regex>> Cache<F> {
    pub(crate) fn new(compile: F) -> Self {
        Self { compile, last: None }
    }

    pub(crate) fn get(&mut self, pattern: &str) -> Result<&Regex> {
        if self.last.as_ref().is_none_or(|(known, _)| known != pattern) {
            let compiled = (self.compile)(pattern)?;
            self.last = Some((pattern.to_owned(), compiled));
        }
        match &self.last {
            Some((_, regex)) => Ok(regex),
            None => Err(Error::internal("a pattern was not kept")),
        }
    }
}

fn each(left: &ArrayRef, right: &ArrayRef, kind: Match, compile: impl Fn(&str) -> Result<Regex>) -> Result<ArrayRef> {
    let mut cache = Cache::new(compile);
    let mut found = Vec::with_capacity(left.len());
    for (text, pattern) in left.as_string::<i32>().iter().zip(right.as_string::<i32>()) {
        found.push(match (text, pattern) {
            (Some(text), Some(pattern)) => Some(kind.is_wanted(cache.get(pattern)?.is_match(text))),
            _ => None,
        });
    }
    Ok(Arc::new(BooleanArray::from(found)))
}

/// `text ~ pattern`.
pub(crate) fn regex(left: &ArrayRef, right: &ArrayRef, kind: Match) -> Result<ArrayRef> {
    let flags = Flags {
        case: kind.case(),
        ..Flags::NONE
    };
    each(left, right, kind, |pattern| compile(pattern, flags))
}

/// `text ~~ pattern`: LIKE as an operator.
pub(crate) fn like(left: &ArrayRef, right: &ArrayRef, kind: Match) -> Result<ArrayRef> {
    each(left, right, kind, |pattern| {
        compile_like(pattern, Some('\\'), kind.case())
    })
}

/// LIKE's pattern as a regular expression.
pub(crate) fn compile_like(pattern: &str, escape: Option<char>, case: Case) -> Result<Regex> {
    let mut translated = String::from("(?s)\\A");
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if Some(c) == escape {
            let Some(next) = chars.next() else {
                return Err(Error::semantic(
                    "22025",
                    "LIKE pattern must not end with escape character",
                ));
            };
            translated.push_str(&regex::escape(next.encode_utf8(&mut [0; 4])));
            continue;
        }
        match c {
            '%' => translated.push_str(".*"),
            '_' => translated.push('.'),
            other => translated.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
        }
    }
    translated.push_str("\\z");
    RegexBuilder::new(&translated)
        .case_insensitive(case == Case::Insensitive)
        .build()
        .map_err(|_| Error::semantic("22025", "invalid LIKE pattern"))
}

/// SIMILAR TO's pattern as a regular expression.
pub(crate) fn compile_similar(pattern: &str, escape: Option<char>) -> Result<Regex> {
    let mut translated = String::from("(?s)\\A(?:");
    let mut chars = pattern.chars();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        if Some(c) == escape {
            let Some(next) = chars.next() else {
                return Err(Error::semantic("22025", "invalid escape sequence"));
            };
            translated.push_str(&regex::escape(next.encode_utf8(&mut [0; 4])));
            continue;
        }
        match c {
            '%' if !in_class => translated.push_str(".*"),
            '_' if !in_class => translated.push('.'),
            '.' | '^' | '$' if !in_class => {
                translated.push('\\');
                translated.push(c);
            }
            '\\' => translated.push_str("\\\\"),
            '(' if !in_class => translated.push_str("(?:"),
            other => {
                in_class = (in_class || other == '[') && other != ']';
                translated.push(other);
            }
        }
    }
    translated.push_str(")\\z");
    Regex::new(&translated).map_err(|_| Error::semantic("2201B", "invalid regular expression"))
}
