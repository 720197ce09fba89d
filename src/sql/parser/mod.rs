//! Text becomes statements.
//!
//! The text is cut into tokens once, for all its statements, so that every token knows its place in what the client
//! sent. Names are folded and cut on tokens, our clauses are rewritten into shapes that sqlparser knows
//! ([`rewrite`]), and then each statement is read: its frame by hand, its queries, expressions and types by
//! sqlparser. Whatever cannot be read is `42601`, `syntax error at or near "..."`, at its place.

mod define;
mod dialect;
mod manipulate;
pub(crate) mod rewrite;
mod session;

use crate::error::{Error, Result};
use crate::sql::data_type::type_of;
use crate::sql::statement::{Name, Options, Parsed, QueryText, Source, Statement, position_of};
use crate::types::Type;
use dialect::HeadwaterDialect;
use rewrite::word;
use sqlparser::ast::{self, Ident, ObjectName};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer, Whitespace};
use std::sync::Arc;

/// How deep expressions and queries may nest: more is `54001`.
const NESTING_MAX: usize = 2000;

/// The stack that reading such a depth may need, in bytes.
const STACK_BYTES: usize = 256 << 20;

/// The bytes of a name that are kept.
const NAME_BYTES_MAX: usize = 63;

/// The statements of a text, in order; none for a text of white space and comments.
pub fn parse(text: &str) -> Result<Vec<Parsed>> {
    on_deep_stack(|| parse_here(text))
}

/// Runs `work` where deep trees have room. The pages are only reserved: what is not touched costs nothing.
pub(crate) fn on_deep_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK_BYTES / 2, STACK_BYTES, work)
}

/// Reads one query of our dialect, as views keep it.
pub fn parse_query(text: &str) -> Result<QueryText> {
    on_deep_stack(|| {
        let (whole, tokens, _) = tokenize(text)?;
        let mut reader = Reader::new(&whole, tokens);
        let query = reader.query_text()?;
        reader.end()?;
        Ok(query)
    })
}

/// The relations that a query names, with their schemas where they were given; names of its own WITH included.
pub fn relation_names(query: &ast::Query) -> Vec<(Option<String>, String)> {
    let mut names = Vec::new();
    let mut add = |name: &ObjectName| {
        if let Ok(name) = name_of("", name) {
            names.push((name.schema, name.name));
        }
    };
    let _ = ast::visit_relations(query, |name: &ObjectName| {
        add(name);
        std::ops::ControlFlow::<()>::Continue(())
    });
    // What a window function is over is an argument to the parser.
    let _ = ast::visit_expressions(query, |expr: &ast::Expr| {
        match expr {
            ast::Expr::Identifier(ident) => add(&ObjectName::from(vec![ident.clone()])),
            ast::Expr::CompoundIdentifier(idents) if idents.len() == 2 => add(&ObjectName::from(idents.clone())),
            _ => {}
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
    names
}

/// Reads one expression, as defaults and generated columns keep it.
pub fn parse_expression(text: &str) -> Result<ast::Expr> {
    on_deep_stack(|| {
        let (whole, tokens, _) = tokenize(text)?;
        let mut reader = Reader::new(&whole, tokens);
        let expression = reader.expression()?;
        reader.end()?;
        Ok(expression)
    })
}

/// Reads the name of a type, such as `numeric(10,2)`.
pub fn parse_type(text: &str) -> Result<Type> {
    let (whole, tokens, _) = tokenize(text)?;
    let mut reader = Reader::new(&whole, tokens);
    let kind = reader.data_type()?;
    reader.end()?;
    Ok(kind)
}

fn parse_here(text: &str) -> Result<Vec<Parsed>> {
    let (whole, tokens, notices) = tokenize(text)?;
    let mut statements = Vec::new();
    for segment in tokens.split(|token| token.token == Token::SemiColon) {
        let (Some(first), Some(last)) = (segment.first(), segment.last()) else {
            continue;
        };
        let start = byte_of(&whole, first.span.start);
        let end = byte_of(&whole, last.span.end);
        let source = Source::new(whole.clone(), start, end.max(start));
        let mut reader = Reader::new(&whole, segment.to_vec());
        let statement = reader.statement()?;
        reader.end()?;
        let notices = if statements.is_empty() {
            notices.clone()
        } else {
            Vec::new()
        };
        statements.push(Parsed {
            statement,
            source,
            notices,
        });
    }
    Ok(statements)
}

type Tokens = (Arc<str>, Vec<TokenWithSpan>, Vec<String>);

/// Tokens without white space, names folded and cut, and what to tell about the cuts.
fn tokenize(text: &str) -> Result<Tokens> {
    let whole: Arc<str> = Arc::from(text);
    if let Some(at) = text.chars().position(|c| c == '\0') {
        return Err(
            Error::semantic("22021", "invalid byte sequence for encoding \"UTF8\": 0x00").with_position(at + 1),
        );
    }
    let raw = Tokenizer::new(&HeadwaterDialect::default(), text)
        .tokenize_with_location()
        .map_err(|error| lexical_error(text, &error.message, error.location))?;
    let mut notices = Vec::new();
    let mut tokens: Vec<TokenWithSpan> = Vec::with_capacity(raw.len());
    // Whether nothing but white space with a line break came since the last token.
    let mut line_break = false;
    let is_string = |token: &Token| matches!(token, Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_));
    for mut token in raw {
        match &mut token.token {
            Token::Whitespace(white) => {
                line_break |= matches!(white, Whitespace::Newline | Whitespace::SingleLineComment { .. });
                continue;
            }
            Token::EOF => continue,
            Token::Word(word) => {
                if word.quote_style.is_none() {
                    word.value.make_ascii_lowercase();
                } else if word.value.is_empty() {
                    let position = position_of(text, token.span.start);
                    return Err(at(Error::syntax("zero-length delimited identifier"), position));
                }
                if word.value.len() > NAME_BYTES_MAX {
                    let kept = cut(&word.value);
                    notices.push(format!("identifier \"{}\" will be truncated to \"{kept}\"", word.value));
                    word.value = kept;
                }
            }
            Token::SingleQuotedString(next) if line_break => {
                if let Some(TokenWithSpan {
                    token: Token::SingleQuotedString(previous),
                    span,
                }) = tokens.last_mut()
                {
                    previous.push_str(next);
                    *span = Span::new(span.start, token.span.end);
                    line_break = false;
                    continue;
                }
            }
            Token::SingleQuotedString(_) if tokens.last().is_some_and(|last| is_string(&last.token)) => {
                let shown = &text[byte_of(text, token.span.start)..byte_of(text, token.span.end)];
                let error = Error::syntax(format!("syntax error at or near \"{shown}\""));
                return Err(at(error, position_of(text, token.span.start)));
            }
            _ => {}
        }
        line_break = false;
        tokens.push(token);
    }
    Ok((whole, rewrite::rewrite(tokens), notices))
}

/// The longest prefix of at most 63 bytes.
pub(crate) fn cut(name: &str) -> String {
    let mut end = NAME_BYTES_MAX.min(name.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

fn at(error: Error, position: Option<usize>) -> Error {
    match position {
        Some(position) => error.with_position(position),
        None => error,
    }
}

/// The byte at which a location stands.
fn byte_of(text: &str, location: Location) -> usize {
    let Some(position) = position_of(text, location) else {
        return text.len();
    };
    text.char_indices()
        .nth(position - 1)
        .map_or(text.len(), |(byte, _)| byte)
}

/// A text that cannot even be cut into tokens, in PostgreSQL's words.
fn lexical_error(text: &str, message: &str, location: Location) -> Error {
    let start = byte_of(text, location);
    let rest = &text[start..];
    let message = if message.contains("multi-line comment") {
        let open = text.rfind("/*").unwrap_or(0);
        let position = text[..open].chars().count() + 1;
        return Error::syntax(format!("unterminated /* comment at or near \"{}\"", &text[open..]))
            .with_position(position);
    } else if message.contains("close delimiter") {
        format!("unterminated quoted identifier at or near \"{rest}\"")
    } else if message.contains("dollar-quoted") {
        "unterminated dollar-quoted string at or near end of input".to_owned()
    } else if message.contains("nterminated") {
        format!("unterminated quoted string at or near \"{rest}\"")
    } else if rest.is_empty() {
        "syntax error at end of input".to_owned()
    } else {
        format!("syntax error at or near \"{}\"", rest.chars().next().unwrap_or(' '))
    };
    at(Error::syntax(message), position_of(text, location))
}

/// Words that cannot be a relation's name unless they are quoted.
const RESERVED: &[&str] = &[
    "all",
    "and",
    "any",
    "as",
    "asc",
    "case",
    "check",
    "cross",
    "default",
    "desc",
    "distinct",
    "else",
    "end",
    "except",
    "fetch",
    "for",
    "from",
    "full",
    "group",
    "having",
    "ilike",
    "in",
    "inner",
    "intersect",
    "into",
    "is",
    "join",
    "left",
    "like",
    "limit",
    "natural",
    "not",
    "null",
    "offset",
    "on",
    "or",
    "order",
    "outer",
    "returning",
    "right",
    "select",
    "then",
    "union",
    "using",
    "when",
    "where",
    "window",
    "with",
];

/// Where a token that reads so stands, at or after a place.
pub(crate) fn place_of(text: &str, wanted: &str, after: Location) -> Option<Location> {
    let tokens = Tokenizer::new(&*DIALECT, text).tokenize_with_location().ok()?;
    let behind = |place: Location| (place.line, place.column) >= (after.line, after.column);
    tokens
        .into_iter()
        .find(|token| behind(token.span.start) && token.token.to_string().eq_ignore_ascii_case(wanted))
        .map(|token| token.span.start)
}

/// Reads one statement from its tokens.
pub(crate) struct Reader<'a> {
    whole: &'a Arc<str>,
    tokens: Vec<TokenWithSpan>,
    parser: Parser<'a>,
    /// The byte at which a clause begins that was cut off the end.
    stop: Option<usize>,
}

/// There is one dialect, and it holds nothing.
static DIALECT: std::sync::LazyLock<HeadwaterDialect> = std::sync::LazyLock::new(HeadwaterDialect::default);

impl<'a> Reader<'a> {
    fn new(whole: &'a Arc<str>, tokens: Vec<TokenWithSpan>) -> Self {
        let parser = Parser::new(&*DIALECT)
            .with_recursion_limit(NESTING_MAX)
            .with_tokens_with_locations(tokens.clone());
        Self {
            whole,
            tokens,
            parser,
            stop: None,
        }
    }

    /// Runs a part of sqlparser's grammar.
    fn read<T>(&mut self, part: impl FnOnce(&mut Parser<'a>) -> Result<T, ParserError>) -> Result<T> {
        part(&mut self.parser).map_err(|error| self.failure(&error))
    }

    fn query(&mut self) -> Result<Box<ast::Query>> {
        let query = self.read(|parser| parser.parse_query())?;
        // `FROM WHERE`: to sqlparser, any word is a relation's name.
        let reserved = ast::visit_relations(&query, |name: &ObjectName| {
            match name.0.first().and_then(|p| p.as_ident()) {
                Some(ident) if ident.quote_style.is_none() && RESERVED.contains(&ident.value.as_str()) => {
                    std::ops::ControlFlow::Break(ident.span.start)
                }
                _ => std::ops::ControlFlow::Continue(()),
            }
        });
        if let std::ops::ControlFlow::Break(place) = reserved
            && let Some(token) = self.tokens.iter().find(|token| token.span.start == place)
        {
            return Err(self.syntax_error_at(token));
        }
        Ok(query)
    }

    fn expression(&mut self) -> Result<ast::Expr> {
        self.read(|parser| parser.parse_expr())
    }

    fn data_type(&mut self) -> Result<Type> {
        let position = self.position();
        let data_type = self.read(|parser| parser.parse_data_type())?;
        type_of(&data_type).map_err(|error| at(error, position))
    }

    /// The query up to here and its text, as views keep it.
    fn query_text(&mut self) -> Result<QueryText> {
        let start = self.parser.index();
        let query = self.query()?;
        let end = self.parser.index();
        Ok(QueryText {
            query,
            text: self.text_of(start, end),
        })
    }

    /// The text of the tokens `start..end`, white space single and comments dropped.
    ///
    /// Rewritten tokens share the place of what they replaced, so the text is taken from the source between places.
    fn text_of(&self, start: usize, end: usize) -> String {
        let (Some(first), Some(last)) = (
            self.tokens.get(start),
            end.checked_sub(1).and_then(|last| self.tokens.get(last)),
        ) else {
            return String::new();
        };
        let from = byte_of(self.whole, first.span.start);
        // An invented closing token stands at its `[`: the text then goes on to the matching bracket.
        let mut to = byte_of(self.whole, last.span.end);
        if let Some(next) = self.tokens.get(end) {
            to = to.max(last_text_byte(self.whole, byte_of(self.whole, next.span.start)));
        } else if let Some(stop) = self.stop {
            to = to.max(last_text_byte(self.whole, stop));
        } else {
            to = to.max(self.statement_end(to));
        }
        normalise(&self.whole[from..to])
    }

    /// Where this statement's text ends: at the next semicolon or the end of all.
    fn statement_end(&self, from: usize) -> usize {
        let rest = &self.whole[from..];
        let mut offset = 0;
        if let Ok(tokens) = Tokenizer::new(&*DIALECT, rest).tokenize_with_location() {
            for token in tokens {
                if token.token == Token::SemiColon {
                    break;
                }
                if !matches!(token.token, Token::Whitespace(_) | Token::EOF) {
                    offset = byte_of(rest, token.span.end);
                }
            }
        }
        from + offset
    }

    fn peek_word(&self) -> Option<String> {
        word(&self.parser.peek_token_ref().token).map(str::to_owned)
    }

    fn peek_nth_word(&self, n: usize) -> Option<String> {
        word(&self.parser.peek_nth_token_ref(n).token).map(str::to_owned)
    }

    /// Takes the word if it is next.
    fn take(&mut self, text: &str) -> bool {
        let there = word(&self.parser.peek_token_ref().token) == Some(text);
        if there {
            self.parser.advance_token();
        }
        there
    }

    /// Takes the words if they are next, all of them.
    fn take_all(&mut self, words: &[&str]) -> bool {
        let there = words
            .iter()
            .enumerate()
            .all(|(n, text)| word(&self.parser.peek_nth_token_ref(n).token) == Some(*text));
        if there {
            for _ in words {
                self.parser.advance_token();
            }
        }
        there
    }

    fn expect(&mut self, text: &str) -> Result<()> {
        if self.take(text) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    fn take_token(&mut self, token: &Token) -> bool {
        self.parser.consume_token(token)
    }

    fn expect_token(&mut self, token: &Token) -> Result<()> {
        if self.take_token(token) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    fn at_end(&self) -> bool {
        self.parser.peek_token_ref().token == Token::EOF
    }

    fn end(&mut self) -> Result<()> {
        if self.at_end() { Ok(()) } else { Err(self.unexpected()) }
    }

    /// Where the next token stands.
    fn position(&self) -> Option<usize> {
        position_of(self.whole, self.parser.peek_token_ref().span.start)
    }

    fn identifier(&mut self) -> Result<String> {
        let ident = self.read(|parser| parser.parse_identifier())?;
        Ok(fold(&ident))
    }

    fn name(&mut self) -> Result<Name> {
        let name = self.read(|parser| parser.parse_object_name(false))?;
        name_of(self.whole, &name)
    }

    fn names(&mut self) -> Result<Vec<Name>> {
        let mut names = vec![self.name()?];
        while self.take_token(&Token::Comma) {
            names.push(self.name()?);
        }
        Ok(names)
    }

    /// `(a, b)`, if it is there.
    fn column_list(&mut self) -> Result<Vec<String>> {
        let mut columns = Vec::new();
        if self.take_token(&Token::LParen) {
            loop {
                columns.push(self.identifier()?);
                if !self.take_token(&Token::Comma) {
                    break;
                }
            }
            self.expect_token(&Token::RParen)?;
        }
        Ok(columns)
    }

    /// A string, a number, a word: the value of an option or a setting.
    fn literal(&mut self) -> Result<String> {
        let sign = if self.take_token(&Token::Minus) {
            "-"
        } else {
            let _ = self.take_token(&Token::Plus);
            ""
        };
        let token = self.parser.peek_token_ref().token.clone();
        let text = match token {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) if sign.is_empty() => text,
            Token::DollarQuotedString(quoted) if sign.is_empty() => quoted.value,
            Token::Number(number, _) => number,
            Token::Word(word) if sign.is_empty() => word.value,
            _ => return Err(self.unexpected()),
        };
        self.parser.advance_token();
        Ok(format!("{sign}{text}"))
    }

    /// `WITH (name = value, name)`, if it is there.
    fn options(&mut self) -> Result<Options> {
        let mut options = Options::new();
        if !self.take("with") {
            return Ok(options);
        }
        self.expect_token(&Token::LParen)?;
        if self.take_token(&Token::RParen) {
            return Ok(options);
        }
        loop {
            let mut name = self.literal()?.to_lowercase();
            while self.take_token(&Token::Period) {
                name = format!("{name}.{}", self.literal()?.to_lowercase());
            }
            let value = if self.take_token(&Token::Eq) {
                self.literal()?
            } else {
                "true".to_owned()
            };
            if options.insert(name.clone(), value).is_some() {
                return Err(Error::syntax("conflicting or redundant options")
                    .with_detail(format!("The option \"{name}\" is given twice.")));
            }
            if !self.take_token(&Token::Comma) {
                break;
            }
        }
        self.expect_token(&Token::RParen)?;
        Ok(options)
    }

    fn boolean(&mut self, name: &str) -> Result<bool> {
        let text = self.literal()?;
        boolean_of(name, &text)
    }

    fn integer(&mut self) -> Result<i64> {
        let error = self.unexpected();
        self.literal()?.parse().map_err(|_| error)
    }

    /// `syntax error at or near` the next token.
    fn unexpected(&self) -> Error {
        self.syntax_error_at(self.parser.peek_token_ref())
    }

    /// What PostgreSQL has and we do not, at the next token.
    fn unsupported(&self, what: &str) -> Error {
        at(Error::unsupported(format!("{what} is not supported")), self.position())
    }

    fn syntax_error_at(&self, token: &TokenWithSpan) -> Error {
        if token.token == Token::EOF || token.span.start.line == 0 {
            let end = self
                .tokens
                .last()
                .map_or(self.whole.len(), |last| byte_of(self.whole, last.span.end));
            return Error::syntax("syntax error at end of input").with_position(self.whole[..end].chars().count() + 1);
        }
        let start = byte_of(self.whole, token.span.start);
        let end = byte_of(self.whole, token.span.end).max(start);
        let error = Error::syntax(format!("syntax error at or near \"{}\"", &self.whole[start..end]));
        at(error, position_of(self.whole, token.span.start))
    }

    /// sqlparser's error in our words. It says where only inside its text.
    fn failure(&self, error: &ParserError) -> Error {
        let text = match error {
            ParserError::RecursionLimitExceeded => {
                return Error::limit("54001", "stack depth limit exceeded")
                    .with_hint(format!("A statement may nest {NESTING_MAX} levels deep."));
            }
            ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
        };
        match location_in(text) {
            Some(location) => match self.tokens.iter().find(|token| token.span.start == location) {
                Some(token) => self.syntax_error_at(token),
                None => self.unexpected(),
            },
            // `found: EOF` has no place.
            None if text.contains("found: EOF") => self.syntax_error_at(&TokenWithSpan::wrap(Token::EOF)),
            None => self.unexpected(),
        }
    }
}

/// The place that sqlparser's message ends with: ` at Line: 1, Column: 5`.
fn location_in(message: &str) -> Option<Location> {
    let (_, place) = message.rsplit_once(" at Line: ")?;
    let (line, column) = place.split_once(", Column: ")?;
    Some(Location::new(line.parse().ok()?, column.trim().parse().ok()?))
}

/// Whether a text means yes, as PostgreSQL reads booleans.
pub(crate) fn boolean_of(name: &str, text: &str) -> Result<bool> {
    match text.to_lowercase().as_str() {
        "true" | "on" | "1" | "yes" | "t" | "y" => Ok(true),
        "false" | "off" | "0" | "no" | "f" | "n" => Ok(false),
        _ => Err(Error::syntax(format!("{name} requires a Boolean value"))),
    }
}

/// An identifier as PostgreSQL folds it.
pub(crate) fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    }
}

/// A relation's name; the database before the schema is dropped.
pub(crate) fn name_of(whole: &str, name: &ObjectName) -> Result<Name> {
    let parts: Vec<&Ident> = name.0.iter().filter_map(|part| part.as_ident()).collect();
    let position = parts.first().and_then(|ident| position_of(whole, ident.span.start));
    match parts.as_slice() {
        [] => Err(at(Error::syntax("a name is missing"), position)),
        [name] => Ok(Name {
            schema: None,
            name: fold(name),
            position,
        }),
        [.., schema, name] if parts.len() <= 3 => Ok(Name {
            schema: Some(fold(schema)),
            name: fold(name),
            position,
        }),
        _ => Err(at(
            Error::syntax(format!("improper qualified name (too many dotted names): {name}")),
            position,
        )),
    }
}

/// The end of the last text before `end` that is neither white space nor comment.
fn last_text_byte(text: &str, end: usize) -> usize {
    let mut last = 0;
    if let Ok(tokens) = Tokenizer::new(&*DIALECT, &text[..end]).tokenize_with_location() {
        for token in tokens {
            if !matches!(token.token, Token::Whitespace(_) | Token::EOF) {
                last = byte_of(&text[..end], token.span.end);
            }
        }
    }
    last
}

/// A text with its comments dropped and its white space single, quoted parts untouched.
fn normalise(text: &str) -> String {
    let Ok(tokens) = Tokenizer::new(&*DIALECT, text).tokenize_with_location() else {
        return text.to_owned();
    };
    let mut output = String::with_capacity(text.len());
    let mut space = false;
    for token in tokens {
        if matches!(token.token, Token::Whitespace(_) | Token::EOF) {
            space = true;
            continue;
        }
        if space && !output.is_empty() {
            output.push(' ');
        }
        space = false;
        let start = byte_of(text, token.span.start);
        let end = byte_of(text, token.span.end).max(start);
        output.push_str(&text[start..end]);
    }
    output
}

impl Reader<'_> {
    fn statement(&mut self) -> Result<Statement> {
        let Some(first) = self.peek_word() else {
            if self.parser.peek_token_ref().token == Token::LParen {
                return Ok(Statement::Query(self.query()?));
            }
            return Err(self.unexpected());
        };
        match first.as_str() {
            "select" | "values" | "with" | "table" => self.query_statement(),
            "create" => self.create(),
            "drop" => self.drop_statement(),
            "alter" => self.alter(),
            "refresh" => self.refresh(),
            "insert" => self.insert(),
            "update" => self.update(),
            "delete" => self.delete(),
            "truncate" => self.truncate(),
            "copy" => self.copy(),
            "subscribe" => Ok(Statement::Subscribe(self.subscribe()?)),
            "explain" => self.explain(),
            "verify" => self.verify(),
            _ => self.session_statement(&first),
        }
    }
}

#[cfg(test)]
mod tests;
