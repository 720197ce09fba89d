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

mod compare;
mod from;
mod literal;

use super::frame;
use super::label::label;
use super::object_name::NAMED;
use super::rows;
use super::subquery::ARRAY_SUBQUERY;
use crate::sql::parser::fold;
pub(super) use compare::row_parts;
pub(super) use from::{SET_FUNCTIONS, SET_OPERATION, argument_expression, bare_query, select_all_from};
use from::{bag_operations, fold_from, fold_joins, is_ours};
use literal::{extract_name, field_name, interval_literal, is_type_of_literal, number, plain_string, unary};
use sqlparser::ast::{
    BinaryOperator, CastKind, CeilFloorKind, DataType, DateTimeField, DuplicateTreatment, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentList, FunctionArguments, GroupByExpr, Ident, LimitClause, NamedWindowExpr,
    ObjectName, OrderByKind, Query, Select, Spanned, TableFactor, TrimWhereField, Value, ValueWithSpan, VisitMut,
    VisitorMut, WindowFrameBound, WindowSpec,
};
use sqlparser::tokenizer::Span;
use std::ops::ControlFlow;

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
            // One join that is ours is what `relation` plans.
            TableFactor::NestedJoin { table_with_joins, .. } if !matches!(table_with_joins.joins.as_slice(), [join] if is_ours(join)) =>
            {
                fold_joins(table_with_joins);
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

/// An expression whose parts are rewritten already, in the one spelling.
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
        other => spelled_call(compare::rewrite(other, span), span),
    }
}

/// A call that the grammar spells with words of its own: `SUBSTRING(a FROM b FOR c)`.
fn spelled_call(expr: Expr, span: Span) -> Expr {
    match expr {
        Expr::Extract { field, expr, .. } => {
            let field = field_name(&field);
            call(extract_name(&field), vec![string(field), *expr], span)
        }
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
        _ => {
            if name == "count" {
                count_all(&mut function.args);
            }
            Expr::Function(function)
        }
    }
}

/// `count(1)` is `count(*)`: DataFusion would compute both, under one name.
fn count_all(args: &mut FunctionArguments) {
    let FunctionArguments::List(list) = args else {
        return;
    };
    if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
        return;
    }
    if let [FunctionArg::Unnamed(arg @ FunctionArgExpr::Expr(_))] = list.args.as_mut_slice()
        && matches!(&*arg, FunctionArgExpr::Expr(expr) if literal::is_number(expr))
    {
        *arg = FunctionArgExpr::Wildcard;
    }
}
