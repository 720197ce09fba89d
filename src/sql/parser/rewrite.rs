//! Our clauses, rewritten on tokens into shapes that sqlparser reads.
//!
//! | written | read as |
//! |---|---|
//! | `s [RANGE 10 MINUTES SLIDE 1 MINUTE]` | `__window(s, 'range', '10 minutes', '1 minute')` |
//! | `s [PARTITION BY k ROWS 10]` | `__window(s, 'rows', '10', k)` |
//! | `(SELECT ...) [NOW]` | `__window((SELECT ...), 'now')` |
//! | `TUMBLE(TABLE s, DESCRIPTOR(ts), ...)` | `TUMBLE(s, DESCRIPTOR(ts), ...)` |
//! | `SESSION(s PARTITION BY k, ts, ...)` | `SESSION(s, k, ts, ...)` |
//! | `t ASOF LEFT JOIN q ON c` | `t ASOF JOIN q MATCH_CONDITION('left') ON c` |
//! | `TABLE t` | `SELECT * FROM t` |
//! | `trim(LEADING FROM x)` | `trim(LEADING ' ' FROM x)` |
//!
//! Tokens keep the place at which they stand in the text, so that errors still point there; invented ones take their
//! neighbour's. Nothing is decided on strings: white space and comments are gone by now.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Word};

/// The name of the table function that stands for a window clause.
pub(crate) const WINDOW_CLAUSE: &str = "__window";

/// The functions that assign windows.
pub(crate) const WINDOW_FUNCTIONS: &[&str] = &["tumble", "hop", "cumulate", "session"];

/// All rewrites, in order.
pub(crate) fn rewrite(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let tokens = window_function_arguments(tokens);
    let tokens = window_clauses(tables(tokens));
    blanks_to_trim(asof_joins(tokens))
}

/// The text of an unquoted word, in lower case.
pub(crate) fn word(token: &Token) -> Option<&str> {
    match token {
        Token::Word(word) if word.quote_style.is_none() => Some(&word.value),
        _ => None,
    }
}

fn is_word(token: Option<&TokenWithSpan>, text: &str) -> bool {
    token.and_then(|token| word(&token.token)) == Some(text)
}

fn is_any_word(token: Option<&TokenWithSpan>) -> bool {
    matches!(token.map(|token| &token.token), Some(Token::Word(_)))
}

fn token(token: Token, span: Span) -> TokenWithSpan {
    TokenWithSpan { token, span }
}

fn string(text: impl Into<String>, span: Span) -> TokenWithSpan {
    token(Token::SingleQuotedString(text.into()), span)
}

fn keyword(text: &str, keyword: Keyword, span: Span) -> TokenWithSpan {
    let word = Word {
        value: text.to_owned(),
        quote_style: None,
        keyword,
    };
    token(Token::Word(word), span)
}

/// `TABLE t` as the query that it is.
fn tables(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut output: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for index in 0..tokens.len() {
        let current = &tokens[index];
        let starts = match output.last().map(|before| &before.token) {
            None | Some(Token::LParen | Token::SemiColon) => true,
            Some(before) => word(before).is_some_and(|word| BEFORE_QUERY.contains(&word)),
        };
        if starts && is_word(Some(current), "table") && is_any_word(tokens.get(index + 1)) {
            output.push(keyword("select", Keyword::SELECT, current.span));
            output.push(token(Token::Mul, current.span));
            output.push(keyword("from", Keyword::FROM, current.span));
        } else {
            output.push(current.clone());
        }
    }
    output
}

/// Words that a query may stand behind.
const BEFORE_QUERY: &[&str] = &[
    "as",
    "union",
    "intersect",
    "except",
    "all",
    "distinct",
    "explain",
    "verbose",
];

/// Drops `TABLE` before a name, and turns SESSION's `PARTITION BY` into further arguments.
fn window_function_arguments(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut output = Vec::with_capacity(tokens.len());
    // For each open parenthesis, whether it holds the arguments of a window function.
    let mut open: Vec<bool> = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        let current = &tokens[index];
        let inside = open.last().copied().unwrap_or(false);
        match &current.token {
            Token::LParen => {
                let function = index
                    .checked_sub(1)
                    .and_then(|before| word(&tokens[before].token))
                    .is_some_and(|name| WINDOW_FUNCTIONS.contains(&name));
                open.push(function);
            }
            Token::RParen => {
                open.pop();
            }
            Token::Word(_) if inside && is_word(Some(current), "table") && is_any_word(tokens.get(index + 1)) => {
                index += 1;
                continue;
            }
            Token::Word(_) if inside && is_word(Some(current), "partition") && is_word(tokens.get(index + 1), "by") => {
                output.push(token(Token::Comma, current.span));
                index += 2;
                continue;
            }
            _ => {}
        }
        output.push(current.clone());
        index += 1;
    }
    output
}

/// Whether the tokens from a `[` on can only be a window clause and not a subscript.
fn starts_window_clause(rest: &[TokenWithSpan]) -> bool {
    let first = rest.get(1).and_then(|token| word(&token.token));
    let second = rest.get(2);
    match first {
        Some("range") => {
            matches!(
                second.map(|t| &t.token),
                Some(Token::Number(..) | Token::SingleQuotedString(_))
            ) || is_word(second, "interval")
        }
        Some("rows") => matches!(second.map(|t| &t.token), Some(Token::Number(..))),
        Some("partition") => is_word(second, "by"),
        Some("now" | "unbounded") => matches!(second.map(|t| &t.token), Some(Token::RBracket)),
        Some("tumble" | "hop" | "cumulate" | "session") => {
            matches!(
                second.map(|t| &t.token),
                Some(Token::Number(..) | Token::SingleQuotedString(_))
            ) || is_word(second, "interval")
        }
        _ => false,
    }
}

/// The index in `output` at which the relation before a `[` begins, if there is one in FROM.
fn relation_start(output: &[TokenWithSpan]) -> Option<usize> {
    let mut start = output.len().checked_sub(1)?;
    match &output[start].token {
        Token::RParen => {
            let mut depth = 0usize;
            loop {
                match output[start].token {
                    Token::RParen => depth += 1,
                    Token::LParen => {
                        depth -= 1;
                        if depth == 0 {
                            break;
                        }
                    }
                    _ => {}
                }
                start = start.checked_sub(1)?;
            }
            // A function call's name belongs to it.
            if start > 0
                && matches!(&output[start - 1].token, Token::Word(word) if !is_clause(&word.value) || word.quote_style.is_some())
            {
                start -= 1;
            }
        }
        Token::Word(_) => {
            while start >= 2
                && output[start - 1].token == Token::Period
                && matches!(output[start - 2].token, Token::Word(_))
            {
                start -= 2;
            }
        }
        _ => return None,
    }
    is_relation_place(&output[..start]).then_some(start)
}

/// Whether a relation may come after these tokens: behind FROM, JOIN or TO, or in their lists and parentheses.
fn is_relation_place(before: &[TokenWithSpan]) -> bool {
    let mut depth = 0usize;
    for (index, current) in before.iter().enumerate().rev() {
        match &current.token {
            Token::RParen => depth += 1,
            Token::LParen if depth > 0 => depth -= 1,
            Token::LParen => {
                let name = index.checked_sub(1).and_then(|at| word(&before[at].token));
                // A parenthesis behind a name holds arguments; only those of window functions are relations.
                if let Some(name) = name.filter(|name| !is_clause(name) && *name != "to") {
                    return index + 1 == before.len() && WINDOW_FUNCTIONS.contains(&name);
                }
            }
            token if depth == 0 => match word(token) {
                Some("from" | "join" | "lateral" | "to") => return true,
                Some("select" | "where" | "by" | "on" | "having" | "values" | "set" | "returning" | "distinct") => {
                    return false;
                }
                _ => {}
            },
            _ => {}
        }
    }
    // A relation in parentheses at the start of a statement.
    false
}

fn is_clause(text: &str) -> bool {
    matches!(text, "from" | "join" | "lateral" | "in" | "exists" | "as" | "on")
}

fn window_clauses(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut output: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut index = 0;
    while index < tokens.len() {
        if tokens[index].token == Token::LBracket
            && starts_window_clause(&tokens[index..])
            && let Some(close) = closing_bracket(&tokens, index)
            && let Some(arguments) = clause_arguments(&tokens[index + 1..close])
            && let Some(start) = relation_start(&output)
        {
            let span = tokens[index].span;
            let relation = output.split_off(start);
            let at = relation.first().map_or(span, |token| token.span);
            output.push(keyword(WINDOW_CLAUSE, Keyword::NoKeyword, at));
            output.push(token(Token::LParen, at));
            output.extend(relation);
            for argument in arguments {
                output.push(token(Token::Comma, span));
                output.extend(argument);
            }
            output.push(token(Token::RParen, span));
            index = close + 1;
            continue;
        }
        output.push(tokens[index].clone());
        index += 1;
    }
    output
}

fn closing_bracket(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (index, current) in tokens.iter().enumerate().skip(open) {
        match current.token {
            Token::LBracket => depth += 1,
            Token::RBracket => {
                depth -= 1;
                if depth == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
    }
    None
}

/// The arguments of `__window` after the relation; `None` if the clause cannot be read.
fn clause_arguments(clause: &[TokenWithSpan]) -> Option<Vec<Vec<TokenWithSpan>>> {
    let span = clause.first()?.span;
    let kind = word(&clause.first()?.token)?.to_owned();
    let mut rest = &clause[1..];
    let mut arguments = Vec::new();
    match kind.as_str() {
        "now" | "unbounded" => arguments.push(vec![string(kind, span)]),
        "range" => {
            arguments.push(vec![string("range", span)]);
            arguments.push(vec![duration(&mut rest)?]);
            if is_word(rest.first(), "slide") {
                rest = &rest[1..];
                arguments.push(vec![duration(&mut rest)?]);
            }
        }
        "rows" => {
            arguments.push(vec![string("rows", span)]);
            arguments.push(vec![rest.first()?.clone()]);
            rest = &rest[1..];
        }
        "partition" => {
            let rows = rest.iter().position(|token| is_word(Some(token), "rows"))?;
            let keys = rest.get(1..rows)?;
            arguments.push(vec![string("rows", span)]);
            arguments.push(vec![rest.get(rows + 1)?.clone()]);
            arguments.push(keys.to_vec());
            rest = &rest[rows + 2..];
        }
        "tumble" | "session" => {
            arguments.push(vec![string(kind, span)]);
            arguments.push(vec![duration(&mut rest)?]);
        }
        "hop" | "cumulate" => {
            arguments.push(vec![string(kind, span)]);
            arguments.push(vec![duration(&mut rest)?]);
            arguments.push(vec![duration(&mut rest)?]);
        }
        _ => return None,
    }
    rest.is_empty().then_some(arguments)
}

/// `10 MINUTES`, `'10 minutes'`, `INTERVAL '10' MINUTE`, as one string token.
fn duration(rest: &mut &[TokenWithSpan]) -> Option<TokenWithSpan> {
    if is_word(rest.first(), "interval") {
        *rest = &rest[1..];
    }
    let first = rest.first()?;
    let mut text = match &first.token {
        Token::Number(number, _) => number.clone(),
        Token::SingleQuotedString(text) => text.clone(),
        _ => return None,
    };
    *rest = &rest[1..];
    if let Some(unit) = rest.first().and_then(|token| word(&token.token))
        && unit != "slide"
    {
        text = format!("{text} {unit}");
        *rest = &rest[1..];
    }
    Some(string(text, first.span))
}

fn asof_joins(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut output = Vec::with_capacity(tokens.len());
    // The kind of each ASOF join that still waits for its ON, and the depth at which it stands.
    let mut waiting: Vec<(&'static str, usize)> = Vec::new();
    let mut depth = 0usize;
    let mut index = 0;
    while index < tokens.len() {
        let current = &tokens[index];
        match &current.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            Token::Word(_) if is_word(Some(current), "asof") => {
                let kind = match tokens.get(index + 1).and_then(|token| word(&token.token)) {
                    Some("join") => Some(("inner", 1)),
                    Some("inner") => Some(("inner", 2)),
                    Some("left") if is_word(tokens.get(index + 2), "outer") => Some(("left", 3)),
                    Some("left") => Some(("left", 2)),
                    Some("right") => Some(("right", 2)),
                    Some("full") => Some(("full", 2)),
                    _ => None,
                };
                if let Some((kind, skip)) = kind
                    && is_word(tokens.get(index + skip), "join")
                {
                    waiting.push((kind, depth));
                    output.push(current.clone());
                    output.push(tokens[index + skip].clone());
                    index += skip + 1;
                    continue;
                }
            }
            Token::Word(_) if is_word(Some(current), "on") => {
                if waiting.last().is_some_and(|(_, at)| *at == depth)
                    && let Some((kind, _)) = waiting.pop()
                {
                    let span = current.span;
                    output.push(keyword("match_condition", Keyword::MATCH_CONDITION, span));
                    output.push(token(Token::LParen, span));
                    output.push(string(kind, span));
                    output.push(token(Token::RParen, span));
                }
            }
            _ => {}
        }
        output.push(current.clone());
        index += 1;
    }
    output
}

/// What `trim` takes away when it is not said.
fn blanks_to_trim(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut output: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for (index, current) in tokens.iter().enumerate() {
        if is_word(Some(current), "from") {
            let before = |count: usize| index.checked_sub(count).and_then(|at| tokens.get(at));
            let is_open = |token: Option<&TokenWithSpan>| token.is_some_and(|token| token.token == Token::LParen);
            let has_side = ["leading", "trailing", "both"]
                .iter()
                .any(|side| is_word(before(1), side));
            let span = current.span;
            if has_side && is_open(before(2)) && is_word(before(3), "trim") {
                output.push(string(" ", span));
            } else if is_open(before(1)) && is_word(before(2), "trim") {
                output.push(keyword("both", Keyword::BOTH, span));
                output.push(string(" ", span));
            }
        }
        output.push(current.clone());
    }
    output
}
