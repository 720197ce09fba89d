//! Spellings become calls: what PostgreSQL's grammar says in many ways is said in one, before names are resolved.
//!
//! DataFusion's planner asks a [`ContextProvider`](datafusion::sql::planner::ContextProvider) for functions by name
//! but plans `EXTRACT`, `AT TIME ZONE`, `BETWEEN` and their like by itself, with its own meaning. Here they become
//! calls of functions of ours (or of operators, which go through `expression`). Besides:
//!
//! - integer literals get the type that PostgreSQL gives them;
//! - long chains of AND and OR become balanced trees, so that nothing after this recurses deeply;
//! - INTERSECT and EXCEPT, which DataFusion plans wrongly for bags, become a relation that `relation` plans;
//! - ASOF joins and functions in FROM that look at what is left of them become nested joins that `relation` plans.

use super::frame;
use super::label::label;
use super::object_name::NAMED;
use super::subquery::ARRAY_SUBQUERY;
use super::{mark, rows};
use crate::sql::parser::fold;
use sqlparser::ast::{
    BinaryOperator, CastKind, CeilFloorKind, DataType, DateTimeField, ExactNumberInfo, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentList, FunctionArguments, GroupByExpr, Ident, Join, JoinConstraint, JoinOperator,
    LimitClause, NamedWindowExpr, ObjectName, OrderByKind, Query, Select, SelectItem, SetExpr, SetOperator,
    SetQuantifier, Spanned, TableFactor, TableWithJoins, TrimWhereField, UnaryOperator, Value, ValueWithSpan, VisitMut,
    VisitorMut, WindowFrameBound, WindowSpec,
};
use sqlparser::tokenizer::Span;
use std::ops::ControlFlow;

/// The relation that INTERSECT and EXCEPT become.
pub(super) const SET_OPERATION: &str = "__set_operation";

/// Chains of AND and OR longer than this are balanced.
const CHAIN_MAX: usize = 8;

/// Rewrites a query in place.
pub(super) fn query(query: &mut Query) {
    let _ = query.visit(&mut Desugar);
}

/// Rewrites an expression in place.
pub(super) fn expression(expr: &mut Expr) {
    let _ = expr.visit(&mut Desugar);
}

struct Desugar;

impl VisitorMut for Desugar {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        bag_operations(&mut query.body);
        rows::calls_of_values(&mut query.body);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(order_by) = &mut query.order_by
            && let OrderByKind::Expressions(expressions) = &mut order_by.kind
        {
            for ordered in expressions {
                plain_number(&mut ordered.expr);
            }
        }
        match &mut query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, .. }) => {
                if let Some(limit) = limit {
                    plain_number(limit);
                }
                if let Some(offset) = offset {
                    plain_number(&mut offset.value);
                }
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
                plain_number(offset);
                plain_number(limit);
            }
            None => {}
        }
        fetch_as_limit(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        label(&mut select.projection);
        for table in &mut select.from {
            fold_joins(table);
        }
        fold_from(&mut select.from);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        frame::of_clause(&mut select.named_window);
        if let GroupByExpr::Expressions(expressions, _) = &mut select.group_by {
            for expression in expressions {
                plain_number(expression);
            }
        }
        for window in &mut select.named_window {
            if let NamedWindowExpr::WindowSpec(spec) = &mut window.1 {
                plain_frame(spec);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::NestedJoin { table_with_joins, .. } => {
                // One join that is ours is what `relation` plans.
                if !matches!(table_with_joins.joins.as_slice(), [join] if is_ours(join)) {
                    fold_joins(table_with_joins);
                }
            }
            // The standard's TABLE(f(...)) is f(...).
            TableFactor::TableFunction {
                expr: Expr::Function(function),
                alias,
            } => {
                if let FunctionArguments::List(list) = &function.args {
                    *factor = TableFactor::Function {
                        lateral: false,
                        name: function.name.clone(),
                        args: list.args.clone(),
                        with_ordinality: false,
                        alias: alias.clone(),
                    };
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::BinaryOp {
            op: op @ (BinaryOperator::And | BinaryOperator::Or),
            ..
        } = expr
        {
            let op = op.clone();
            balance(expr, &op);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let span = expr.span();
        if let Expr::Function(call) = expr {
            frame::of_call(call);
        }
        let taken = std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()));
        *expr = rewrite(taken, span);
        ControlFlow::Continue(())
    }
}

/// `FETCH FIRST n ROWS ONLY` is LIMIT n.
fn fetch_as_limit(query: &mut Query) {
    let Some(fetch) = &query.fetch else {
        return;
    };
    if fetch.percent || fetch.with_ties {
        return;
    }
    let count = fetch
        .quantity
        .clone()
        .unwrap_or_else(|| Expr::Value(Value::Number("1".to_owned(), false).with_empty_span()));
    let mut count = count;
    plain_number(&mut count);
    match &mut query.limit_clause {
        Some(LimitClause::LimitOffset {
            limit: limit @ None, ..
        }) => *limit = Some(count),
        None => {
            query.limit_clause = Some(LimitClause::LimitOffset {
                limit: Some(count),
                offset: None,
                limit_by: Vec::new(),
            });
        }
        _ => return,
    }
    query.fetch = None;
}

/// Takes back the type of a literal that stands for a position or a count.
fn plain_number(expr: &mut Expr) {
    if let Expr::Cast {
        expr: inner,
        data_type: DataType::Integer(None),
        ..
    } = expr
        && let Expr::Value(ValueWithSpan {
            value: Value::Number(..),
            ..
        }) = inner.as_ref()
    {
        *expr = (**inner).clone();
    }
}

/// A frame whose bounds are the plain numbers and texts that DataFusion reads.
fn plain_frame(spec: &mut WindowSpec) {
    let Some(frame) = &mut spec.window_frame else {
        return;
    };
    for bound in std::iter::once(&mut frame.start_bound).chain(&mut frame.end_bound) {
        let (WindowFrameBound::Preceding(Some(expr)) | WindowFrameBound::Following(Some(expr))) = bound else {
            continue;
        };
        plain_number(expr);
        if let Expr::Cast {
            expr: inner,
            data_type: DataType::Interval { .. },
            ..
        } = expr.as_ref()
            && matches!(inner.as_ref(), Expr::Value(_))
        {
            *expr = inner.clone();
        }
    }
}

/// A chain of one operator as a tree of logarithmic depth.
fn balance(expr: &mut Expr, op: &BinaryOperator) {
    let mut length = 1;
    let mut next = &*expr;
    while let Expr::BinaryOp { left, op: own, .. } = next
        && own == op
    {
        length += 1;
        next = left;
    }
    if length <= CHAIN_MAX {
        return;
    }
    let mut terms = Vec::with_capacity(length);
    let mut rest = std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()));
    loop {
        match rest {
            Expr::BinaryOp { left, op: own, right } if own == *op => {
                terms.push(*right);
                rest = *left;
            }
            first => {
                terms.push(first);
                break;
            }
        }
    }
    terms.reverse();
    *expr = tree(terms, op);
}

fn tree(mut terms: Vec<Expr>, op: &BinaryOperator) -> Expr {
    if terms.len() <= 1 {
        return terms
            .pop()
            .unwrap_or(Expr::Value(Value::Boolean(true).with_empty_span()));
    }
    let right = terms.split_off(terms.len() / 2);
    binary(tree(terms, op), op.clone(), tree(right, op))
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
}

pub(super) fn string(text: impl Into<String>) -> Expr {
    Expr::Value(Value::SingleQuotedString(text.into()).with_empty_span())
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(expr),
        data_type,
        array: false,
        format: None,
    }
}

/// A call of a function, standing where the spelling stood.
fn call(name: &str, args: Vec<Expr>, span: Span) -> Expr {
    let mut ident = Ident::new(name);
    ident.span = span;
    Expr::Function(Function {
        name: ObjectName::from(vec![ident]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args
                .into_iter()
                .map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)))
                .collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

fn rewrite(expr: Expr, span: Span) -> Expr {
    match expr {
        Expr::Value(ValueWithSpan {
            value: Value::Number(text, long),
            span,
        }) => number(text, long, span),
        Expr::Value(ValueWithSpan { value, span }) => Expr::Value(plain_string(value).with_span(span)),
        Expr::Identifier(ident)
            if ident.quote_style.is_none() && matches!(ident.value.as_str(), "current_schema" | "current_role") =>
        {
            call(&ident.value, Vec::new(), span)
        }
        Expr::UnaryOp { op, expr } => unary(op, *expr, span),
        Expr::Interval(interval) => interval_literal(interval),
        Expr::AtTimeZone { timestamp, time_zone } => call("timezone", vec![*time_zone, *timestamp], span),
        Expr::Extract { field, expr, .. } => {
            let field = field_name(&field);
            call(extract_name(&field), vec![string(field), *expr], span)
        }
        Expr::Between {
            expr,
            negated,
            low,
            high,
        } => between(*expr, negated, *low, *high),
        Expr::Position { expr, r#in } => call("position", vec![*r#in, *expr], span),
        Expr::Substring {
            expr,
            substring_from,
            substring_for,
            ..
        } => {
            let from = substring_from.map_or_else(|| number("1".to_owned(), false, span), |from| *from);
            let mut args = vec![*expr, from];
            args.extend(substring_for.map(|length| *length));
            call("substring", args, span)
        }
        Expr::Overlay {
            expr,
            overlay_what,
            overlay_from,
            overlay_for,
        } => {
            let mut args = vec![*expr, *overlay_what, *overlay_from];
            args.extend(overlay_for.map(|length| *length));
            call("overlay", args, span)
        }
        Expr::Trim {
            expr,
            trim_where,
            trim_what,
            trim_characters,
        } => {
            let name = match trim_where {
                Some(TrimWhereField::Leading) => "ltrim",
                Some(TrimWhereField::Trailing) => "rtrim",
                _ => "btrim",
            };
            let mut args = vec![*expr];
            args.extend(trim_what.map(|what| *what));
            args.extend(trim_characters.into_iter().flatten());
            call(name, args, span)
        }
        Expr::Ceil {
            expr,
            field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime),
        } => call("ceil", vec![*expr], span),
        Expr::Floor {
            expr,
            field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime),
        } => call("floor", vec![*expr], span),
        Expr::Like {
            negated,
            any: false,
            expr,
            pattern,
            escape_char,
        } => like("__like", negated, *expr, *pattern, escape_char, span),
        Expr::ILike {
            negated,
            any: false,
            expr,
            pattern,
            escape_char,
        } => like("__ilike", negated, *expr, *pattern, escape_char, span),
        Expr::SimilarTo {
            negated,
            expr,
            pattern,
            escape_char,
        } => like("__similar", negated, *expr, *pattern, escape_char, span),
        Expr::BinaryOp { left, op, right } => {
            let after = left.span().end;
            match binary_rows(*left, op, *right) {
                Expr::BinaryOp { left, op, right } => binary(*left, mark::at(op, after), *right),
                other => other,
            }
        }
        Expr::InList { expr, list, negated } => in_list(*expr, list, negated),
        Expr::AnyOp {
            left,
            compare_op,
            right,
            ..
        } if !matches!(*right, Expr::Subquery(_)) => binary(*left, mark::quantified("any", &compare_op), *right),
        Expr::AllOp {
            left,
            compare_op,
            right,
        } if !matches!(*right, Expr::Subquery(_)) => binary(*left, mark::quantified("all", &compare_op), *right),
        Expr::Collate { expr, .. } => *expr,
        Expr::Cast {
            kind: CastKind::Cast | CastKind::DoubleColon,
            expr,
            data_type,
            ..
        } if named_object(&data_type).is_some() => {
            call(named_object(&data_type).unwrap_or_default(), vec![*expr], span)
        }
        Expr::Tuple(values) => call("row", values, span),
        Expr::Function(Function {
            name,
            args: FunctionArguments::Subquery(query),
            ..
        }) if name.to_string().eq_ignore_ascii_case("array") => call(ARRAY_SUBQUERY, vec![Expr::Subquery(query)], span),
        Expr::Function(function) if is_type_of_literal(&function) => string("unknown"),
        Expr::Function(function) => set_function(bare_function(function, span), span),
        other => other,
    }
}

/// A function that returns a set, where a value stands: the list of its values, unnested.
fn set_function(expr: Expr, span: Span) -> Expr {
    let Expr::Function(Function {
        name,
        args: FunctionArguments::List(list),
        ..
    }) = &expr
    else {
        return expr;
    };
    let last = name
        .0
        .last()
        .and_then(|part| part.as_ident())
        .map(fold)
        .unwrap_or_default();
    let lists = match last.as_str() {
        "generate_subscripts" => "__subscripts",
        "_pg_expandarray" => "_pg_expandarray",
        _ => return expr,
    };
    let args = list.args.iter().filter_map(argument_expression).cloned().collect();
    call("unnest", vec![call(lists, args, span)], span)
}

/// The function that reads a type's objects from their names, if they have any.
fn named_object(data_type: &DataType) -> Option<&'static str> {
    let name = match data_type {
        DataType::Regclass => "regclass".to_owned(),
        DataType::Custom(name, _) => name.0.last()?.as_ident().map(fold)?,
        _ => return None,
    };
    NAMED.iter().find(|known| **known == name).copied()
}

/// The ways to write a text, in one.
fn plain_string(value: Value) -> Value {
    match value {
        Value::EscapedStringLiteral(text)
        | Value::UnicodeStringLiteral(text)
        | Value::NationalStringLiteral(text)
        | Value::DollarQuotedString(sqlparser::ast::DollarQuotedString { value: text, .. }) => {
            Value::SingleQuotedString(text)
        }
        other => other,
    }
}

/// `pg_typeof('a')`: what a literal is before anything has given it a type.
fn is_type_of_literal(function: &Function) -> bool {
    let FunctionArguments::List(list) = &function.args else {
        return false;
    };
    function
        .name
        .0
        .last()
        .and_then(|part| part.as_ident())
        .map(fold)
        .as_deref()
        == Some("pg_typeof")
        && matches!(
            list.args.as_slice(),
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(
                ValueWithSpan {
                    value: Value::SingleQuotedString(_),
                    ..
                }
            )))]
        )
}

/// A number without its exponent, if it then has no more digits than a numeric.
fn without_exponent(number: &str) -> Option<String> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let exponent: i32 = exponent.parse().ok()?;
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let point = i32::try_from(whole.len()).ok()?.checked_add(exponent)?;
    let mut digits = format!("{whole}{fraction}");
    if point.unsigned_abs() as usize > digits.len() + 2 * NUMERIC_DIGITS_MAX {
        return None;
    }
    if point <= 0 {
        digits.insert_str(0, &"0".repeat(point.unsigned_abs() as usize + 1));
    }
    let point = point.max(1) as usize;
    while digits.len() < point {
        digits.push('0');
    }
    let (whole, fraction) = digits.split_at(point);
    let whole = whole.trim_start_matches('0');
    if whole.len() + fraction.len() > NUMERIC_DIGITS_MAX {
        return None;
    }
    let whole = if whole.is_empty() { "0" } else { whole };
    let dot = if fraction.is_empty() { "" } else { "." };
    Some(format!("{sign}{whole}{dot}{fraction}"))
}

/// The digits that a numeric holds.
const NUMERIC_DIGITS_MAX: usize = 76;

/// The type of a number's literal: integer, bigint or numeric, whichever is the first to hold it.
fn number(text: String, long: bool, span: Span) -> Expr {
    let value = |text: String| Expr::Value(Value::Number(text, long).with_span(span));
    let digits = text.replace('_', "");
    if digits.parse::<i32>().is_ok() {
        return cast(value(digits), DataType::Integer(None));
    }
    if digits.parse::<i64>().is_ok() {
        return value(digits);
    }
    let unsigned = digits.trim_start_matches('-').trim_start_matches('0');
    let is_whole = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if is_whole(unsigned) && unsigned.len() <= NUMERIC_DIGITS_MAX {
        let info = ExactNumberInfo::PrecisionAndScale(unsigned.len() as u64, 0);
        return cast(string(digits), DataType::Numeric(info));
    }
    match without_exponent(&digits) {
        Some(plain) => {
            let unsigned = plain.trim_start_matches('-');
            if is_whole(unsigned) {
                let info = ExactNumberInfo::PrecisionAndScale(unsigned.len() as u64, 0);
                return cast(string(plain), DataType::Numeric(info));
            }
            value(plain)
        }
        // Beyond a numeric's digits, an exponent makes a float; plain digits are refused when they are read.
        None if digits.contains(['e', 'E']) => cast(string(digits), DataType::DoublePrecision),
        None => cast(string(digits), DataType::Numeric(ExactNumberInfo::None)),
    }
}

fn unary(op: UnaryOperator, expr: Expr, span: Span) -> Expr {
    match (op, expr) {
        (UnaryOperator::Plus, expr) => expr,
        (
            UnaryOperator::Minus,
            Expr::Cast {
                expr: inner, data_type, ..
            },
        ) if matches!(inner.as_ref(), Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) if !text.starts_with('-'))
            && matches!(data_type, DataType::Integer(None)) =>
        {
            match *inner {
                Expr::Value(ValueWithSpan {
                    value: Value::Number(text, long),
                    span,
                }) => number(format!("-{text}"), long, span),
                other => other,
            }
        }
        (
            UnaryOperator::Minus,
            Expr::Value(ValueWithSpan {
                value: Value::Number(text, long),
                span,
            }),
        ) if !text.starts_with('-') => number(format!("-{text}"), long, span),
        (UnaryOperator::Minus, expr) => call("__negative", vec![expr], span),
        (UnaryOperator::BitwiseNot, expr) => call("__bitnot", vec![expr], span),
        (UnaryOperator::PGAbs, expr) => call("abs", vec![expr], span),
        (UnaryOperator::PGSquareRoot, expr) => call("sqrt", vec![expr], span),
        (UnaryOperator::PGCubeRoot, expr) => call("cbrt", vec![expr], span),
        (UnaryOperator::PGPrefixFactorial | UnaryOperator::PGPostfixFactorial, expr) => {
            call("factorial", vec![expr], span)
        }
        (op, expr) => Expr::UnaryOp {
            op,
            expr: Box::new(expr),
        },
    }
}

/// `INTERVAL '5' DAY` is a text read as an interval.
fn interval_literal(interval: sqlparser::ast::Interval) -> Expr {
    let value = match *interval.value {
        Expr::Value(ValueWithSpan {
            value: Value::SingleQuotedString(text),
            ..
        }) => text,
        Expr::Cast { expr, .. } => match *expr {
            Expr::Value(ValueWithSpan {
                value: Value::Number(text, _),
                ..
            }) => text,
            other => {
                return cast(
                    other,
                    DataType::Interval {
                        fields: None,
                        precision: None,
                    },
                );
            }
        },
        other => {
            return cast(
                other,
                DataType::Interval {
                    fields: None,
                    precision: None,
                },
            );
        }
    };
    let bare = value.trim().trim_start_matches(['-', '+']);
    let is_number = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let text = match &interval.leading_field {
        Some(field) if is_number => format!("{value} {}", field_name(field)),
        _ => value,
    };
    cast(
        string(text),
        DataType::Interval {
            fields: None,
            precision: None,
        },
    )
}

/// EXTRACT by how many digits after the point its result has.
fn extract_name(field: &str) -> &'static str {
    match field {
        "epoch" | "second" | "seconds" | "sec" | "secs" => "__extract6",
        "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => "__extract3",
        "julian" => "__extract_free",
        _ => "__extract0",
    }
}

fn field_name(field: &DateTimeField) -> String {
    match field {
        DateTimeField::Custom(ident) => ident.value.to_lowercase(),
        other => other.to_string().trim_matches('\'').to_lowercase(),
    }
}

fn between(expr: Expr, negated: bool, low: Expr, high: Expr) -> Expr {
    let (below, above, op) = if negated {
        (BinaryOperator::Lt, BinaryOperator::Gt, BinaryOperator::Or)
    } else {
        (BinaryOperator::GtEq, BinaryOperator::LtEq, BinaryOperator::And)
    };
    binary(binary(expr.clone(), below, low), op, binary(expr, above, high))
}

/// Patterns whose escape is the usual one stay as they are, which DataFusion does fast.
fn like(name: &str, negated: bool, expr: Expr, pattern: Expr, escape: Option<ValueWithSpan>, span: Span) -> Expr {
    if escape.is_none() && name != "__similar" {
        let (expr, pattern) = (Box::new(expr), Box::new(pattern));
        return if name == "__like" {
            Expr::Like {
                negated,
                any: false,
                expr,
                pattern,
                escape_char: None,
            }
        } else {
            Expr::ILike {
                negated,
                any: false,
                expr,
                pattern,
                escape_char: None,
            }
        };
    }
    let mut args = vec![expr, pattern];
    args.extend(escape.map(Expr::Value));
    let call = call(name, args, span);
    if negated {
        Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr: Box::new(call),
        }
    } else {
        call
    }
}

/// The parts of `(a, b)` or `ROW(a, b)`, which is a call of `row` by now.
pub(super) fn row_parts(expr: &Expr) -> Option<Vec<Expr>> {
    match expr {
        Expr::Tuple(values) => Some(values.clone()),
        Expr::Function(function) if function.name.to_string() == "row" => match &function.args {
            FunctionArguments::List(list) => list
                .args
                .iter()
                .map(|arg| match arg {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                    _ => None,
                })
                .collect(),
            _ => None,
        },
        Expr::Nested(inner) => row_parts(inner),
        _ => None,
    }
}

/// Comparisons of rows, column by column.
fn binary_rows(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    if let (Some(lefts), Some(rights)) = (row_parts(&left), row_parts(&right))
        && lefts.len() == rights.len()
        && !lefts.is_empty()
    {
        let pairs: Vec<(Expr, Expr)> = lefts.into_iter().zip(rights).collect();
        match op {
            BinaryOperator::Eq => return all_equal(pairs),
            BinaryOperator::NotEq => {
                let terms = pairs
                    .into_iter()
                    .map(|(left, right)| binary(left, BinaryOperator::NotEq, right))
                    .collect();
                return tree(terms, &BinaryOperator::Or);
            }
            BinaryOperator::Lt | BinaryOperator::LtEq | BinaryOperator::Gt | BinaryOperator::GtEq => {
                return lexicographic(pairs, op);
            }
            _ => {}
        }
    }
    binary(left, op, right)
}

fn all_equal(pairs: Vec<(Expr, Expr)>) -> Expr {
    let terms = pairs
        .into_iter()
        .map(|(left, right)| binary(left, BinaryOperator::Eq, right))
        .collect();
    tree(terms, &BinaryOperator::And)
}

/// `(a, b) < (c, d)` is `a < c OR (a = c AND b < d)`.
fn lexicographic(pairs: Vec<(Expr, Expr)>, op: BinaryOperator) -> Expr {
    let strict = match op {
        BinaryOperator::LtEq => BinaryOperator::Lt,
        BinaryOperator::GtEq => BinaryOperator::Gt,
        ref other => other.clone(),
    };
    let mut pairs = pairs.into_iter().rev();
    let mut result = match pairs.next() {
        Some((left, right)) => binary(left, op, right),
        None => Expr::Value(Value::Boolean(true).with_empty_span()),
    };
    for (left, right) in pairs {
        let equal = binary(left.clone(), BinaryOperator::Eq, right.clone());
        result = binary(
            binary(left, strict.clone(), right),
            BinaryOperator::Or,
            Expr::Nested(Box::new(binary(equal, BinaryOperator::And, result))),
        );
    }
    Expr::Nested(Box::new(result))
}

fn in_list(expr: Expr, list: Vec<Expr>, negated: bool) -> Expr {
    let Some(parts) = row_parts(&expr) else {
        return Expr::InList {
            expr: Box::new(expr),
            list,
            negated,
        };
    };
    let terms: Option<Vec<Expr>> = list
        .iter()
        .map(|item| {
            let rights = row_parts(item)?;
            (rights.len() == parts.len()).then(|| all_equal(parts.iter().cloned().zip(rights).collect()))
        })
        .collect();
    match terms {
        Some(terms) => {
            let any = Expr::Nested(Box::new(tree(terms, &BinaryOperator::Or)));
            if negated {
                Expr::UnaryOp {
                    op: UnaryOperator::Not,
                    expr: Box::new(any),
                }
            } else {
                any
            }
        }
        None => Expr::InList {
            expr: Box::new(expr),
            list,
            negated,
        },
    }
}

/// `CURRENT_DATE` and the others that PostgreSQL calls without parentheses, and schema-qualified built-ins.
fn bare_function(mut function: Function, span: Span) -> Expr {
    if function.name.0.len() > 1
        && let Some(last) = function.name.0.last().and_then(|part| part.as_ident()).cloned()
        && function
            .name
            .0
            .first()
            .and_then(|part| part.as_ident())
            .map(fold)
            .as_deref()
            == Some("pg_catalog")
    {
        function.name = ObjectName::from(vec![last]);
    }
    let name = match function.name.0.as_slice() {
        [part] => part.as_ident().map(fold).unwrap_or_default(),
        _ => return Expr::Function(function),
    };
    let now = || call("now", Vec::new(), span);
    let time_zone_none = sqlparser::ast::TimezoneInfo::None;
    match (name.as_str(), &function.args) {
        ("current_timestamp" | "transaction_timestamp" | "statement_timestamp", _) => now(),
        ("current_date", _) => cast(now(), DataType::Date),
        ("current_time", _) | ("localtime", _) => cast(now(), DataType::Time(None, time_zone_none)),
        ("localtimestamp", _) => cast(now(), DataType::Timestamp(None, time_zone_none)),
        (
            "current_user" | "session_user" | "user" | "current_role" | "current_catalog" | "current_schema",
            FunctionArguments::None,
        ) => call(&name, Vec::new(), span),
        _ => Expr::Function(function),
    }
}

/// `a EXCEPT ALL b` becomes `SELECT * FROM __set_operation((a), (b), 'except all')`.
fn bag_operations(body: &mut Box<SetExpr>) {
    let SetExpr::SetOperation {
        op,
        set_quantifier,
        left,
        right,
    } = body.as_mut()
    else {
        return;
    };
    bag_operations(left);
    bag_operations(right);
    let name = match op {
        SetOperator::Intersect => "intersect",
        SetOperator::Except | SetOperator::Minus => "except",
        SetOperator::Union => return,
    };
    let all = match set_quantifier {
        SetQuantifier::All => " all",
        SetQuantifier::None | SetQuantifier::Distinct => "",
        _ => return,
    };
    let argument =
        |body: &SetExpr| FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Subquery(Box::new(rows::query_of(body)))));
    let factor = TableFactor::Function {
        lateral: false,
        name: ObjectName::from(vec![Ident::new(SET_OPERATION)]),
        args: vec![
            argument(left),
            argument(right),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(string(format!("{name}{all}")))),
        ],
        with_ordinality: false,
        alias: None,
    };
    **body = select_all_from(factor);
}

pub(super) fn bare_query(body: SetExpr) -> Query {
    Query {
        with: None,
        body: Box::new(body),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

/// `SELECT * FROM factor`.
pub(super) fn select_all_from(factor: TableFactor) -> SetExpr {
    SetExpr::Select(Box::new(Select {
        select_token: sqlparser::ast::helpers::attached_token::AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection: vec![SelectItem::Wildcard(Default::default())],
        exclude: None,
        into: None,
        from: vec![TableWithJoins {
            relation: factor,
            joins: Vec::new(),
        }],
        lateral_views: Vec::new(),
        prewhere: None,
        selection: None,
        connect_by: Vec::new(),
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: sqlparser::ast::SelectFlavor::Standard,
    }))
}

/// Whether a join must be planned by `relation`: an ASOF join, or a function that may look left.
fn is_ours(join: &Join) -> bool {
    match &join.join_operator {
        JoinOperator::AsOf { .. } | JoinOperator::CrossApply => true,
        _ => false,
    }
}

/// Functions in FROM that return sets, and may use the columns of what stands left of them.
pub(super) const SET_FUNCTIONS: &[&str] = &[
    "unnest",
    "generate_series",
    "generate_subscripts",
    "regexp_split_to_table",
    "string_to_table",
    "json_array_elements",
    "json_array_elements_text",
    "jsonb_array_elements",
    "jsonb_array_elements_text",
    "json_each",
    "json_each_text",
    "jsonb_each",
    "jsonb_each_text",
    "json_object_keys",
    "jsonb_object_keys",
    "regexp_matches",
];

/// Whether a factor is a call of a function that returns a set, with arguments that name columns.
fn looks_left(factor: &TableFactor) -> bool {
    let args: Vec<&Expr> = match factor {
        TableFactor::UNNEST { array_exprs, .. } => array_exprs.iter().collect(),
        TableFactor::Function { name, args, .. } if is_set_function(name) => {
            args.iter().filter_map(argument_expression).collect()
        }
        TableFactor::Table {
            name, args: Some(args), ..
        } if is_set_function(name) => args.args.iter().filter_map(argument_expression).collect(),
        _ => return false,
    };
    args.into_iter().any(names_column)
}

pub(super) fn is_set_function(name: &ObjectName) -> bool {
    name.0
        .last()
        .and_then(|part| part.as_ident())
        .is_some_and(|ident| SET_FUNCTIONS.contains(&fold(ident).as_str()))
}

pub(super) fn argument_expression(arg: &FunctionArg) -> Option<&Expr> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))
        | FunctionArg::Named {
            arg: FunctionArgExpr::Expr(expr),
            ..
        }
        | FunctionArg::ExprNamed {
            arg: FunctionArgExpr::Expr(expr),
            ..
        } => Some(expr),
        _ => None,
    }
}

fn names_column(expr: &Expr) -> bool {
    let found = sqlparser::ast::visit_expressions(expr, |expr: &Expr| match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Wraps the joins up to each one that is ours into a nested join, whose one join that one is.
fn fold_joins(table: &mut TableWithJoins) {
    for join in &mut table.joins {
        let always = match &join.join_operator {
            JoinOperator::CrossJoin(JoinConstraint::None) => true,
            JoinOperator::Inner(JoinConstraint::On(on)) | JoinOperator::Join(JoinConstraint::On(on)) => {
                matches!(
                    on,
                    Expr::Value(ValueWithSpan {
                        value: Value::Boolean(true),
                        ..
                    })
                )
            }
            _ => false,
        };
        if always && looks_left(&join.relation) {
            join.join_operator = JoinOperator::CrossApply;
        }
    }
    let nothing = TableFactor::NestedJoin {
        table_with_joins: Box::new(TableWithJoins {
            relation: table.relation.clone(),
            joins: Vec::new(),
        }),
        alias: None,
    };
    let mut relation = std::mem::replace(&mut table.relation, nothing);
    let mut plain: Vec<Join> = Vec::new();
    for join in std::mem::take(&mut table.joins) {
        if !is_ours(&join) {
            plain.push(join);
            continue;
        }
        let left = if plain.is_empty() {
            relation
        } else {
            nested(relation, std::mem::take(&mut plain))
        };
        relation = nested(left, vec![join]);
    }
    table.relation = relation;
    table.joins = plain;
}

fn nested(relation: TableFactor, joins: Vec<Join>) -> TableFactor {
    TableFactor::NestedJoin {
        table_with_joins: Box::new(TableWithJoins { relation, joins }),
        alias: None,
    }
}

/// `FROM a, f(a.x)`: the comma is a join that looks left.
fn fold_from(from: &mut Vec<TableWithJoins>) {
    let mut index = 1;
    while index < from.len() {
        if looks_left(&from[index].relation) {
            let table = from.remove(index);
            let mut left = std::mem::replace(&mut from[index - 1], table.clone());
            left.joins.push(Join {
                relation: table.relation,
                global: false,
                join_operator: JoinOperator::CrossApply,
            });
            fold_joins(&mut left);
            left.joins.extend(table.joins);
            from[index - 1] = left;
        } else {
            index += 1;
        }
    }
}
