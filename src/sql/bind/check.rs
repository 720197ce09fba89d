//! What PostgreSQL checks in a query before any type is known, and where it says that the fault is.
//!
//! DataFusion finds most of these faults too, but later, in its own words and without a place. Here each has
//! PostgreSQL's code, wording and position.

use super::part;
use crate::error::{Error, Result};
use crate::sql::function;
use crate::sql::parser::fold;
use crate::types::Type;
use sqlparser::ast::{
    Expr, Function, FunctionArguments, GroupByExpr, Ident, JoinConstraint, JoinOperator, LimitClause, OrderByKind,
    Query, Select, SelectItem, SetExpr, Spanned, TableFactor, TableWithJoins, Value, ValueWithSpan, Visit, Visitor,
};
use sqlparser::tokenizer::{Location, Span};
use std::ops::ControlFlow;

/// A fault and where it is.
pub(super) type Fault = Box<(Error, Option<Location>)>;

/// Finds the first fault of a query.
pub(super) fn query(query: &Query) -> Result<(), Fault> {
    match query.visit(&mut Check) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(fault) => Err(fault),
    }
}

/// Visits queries; each level is checked by itself.
struct Check;

impl Visitor for Check {
    type Break = Fault;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Fault> {
        flow(order_by(query).and_then(|()| counts(query)))
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Fault> {
        flow(match expr {
            Expr::Function(call) => self::call(call),
            Expr::BinaryOp { left, right, .. } => widths(left, right),
            _ => Ok(()),
        })
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Fault> {
        flow(self::select(select))
    }
}

fn flow(result: Result<(), Fault>) -> ControlFlow<Fault> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(fault) => ControlFlow::Break(fault),
    }
}

fn fault(code: &'static str, message: String, span: Span) -> Fault {
    let place = (span.start.line > 0).then_some(span.start);
    Box::new((Error::semantic(code, message), place))
}

fn select(select: &Select) -> Result<(), Fault> {
    tables(&select.from)?;
    if let Some(condition) = &select.selection {
        plain(condition, "WHERE")?;
    }
    for join in select.from.iter().flat_map(|table| &table.joins) {
        if let Some(condition) = condition_of(&join.join_operator) {
            plain(condition, "JOIN conditions")?;
            boolean(condition, "JOIN/ON")?;
        }
    }
    if let Some(having) = &select.having {
        no_windows(having, "HAVING")?;
        no_nested(having)?;
        boolean(having, "HAVING")?;
    }
    if let GroupByExpr::Expressions(keys, _) = &select.group_by {
        for key in keys {
            plain(key, "GROUP BY")?;
            position(key, select, "GROUP BY")?;
        }
    }
    for item in &select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            no_nested(expr)?;
        }
    }
    Ok(())
}

/// A condition that shows by itself what it is must be a boolean.
fn boolean(condition: &Expr, clause: &str) -> Result<(), Fault> {
    match part::apparent(condition) {
        None | Some(Type::Bool | Type::Unknown) => Ok(()),
        Some(kind) => Err(fault(
            "42804",
            format!("argument of {clause} must be type boolean, not type {kind}"),
            condition.span(),
        )),
    }
}

/// Rows are compared with rows of their width.
fn widths(left: &Expr, right: &Expr) -> Result<(), Fault> {
    match (left, right) {
        (Expr::Tuple(left), Expr::Tuple(right)) if left.len() != right.len() => Err(fault(
            "42601",
            "unequal number of entries in row expressions".to_owned(),
            Span::empty(),
        )),
        _ => Ok(()),
    }
}

/// What a call needs besides its arguments.
fn call(call: &Function) -> Result<(), Fault> {
    let Some(ident) = call.name.0.last().and_then(|part| part.as_ident()) else {
        return Ok(());
    };
    let name = fold(ident);
    if call.over.is_none() && call.within_group.is_empty() && WINDOW_ONLY.contains(&name.as_str()) {
        return Err(fault(
            "42809",
            format!("window function {name} requires an OVER clause"),
            ident.span,
        ));
    }
    if name == "count" && matches!(&call.args, FunctionArguments::List(list) if list.args.is_empty()) {
        return Err(fault(
            "42809",
            "count(*) must be used to call a parameterless aggregate function".to_owned(),
            ident.span,
        ));
    }
    if let Some(filter) = &call.filter {
        boolean(filter, "FILTER")?;
    }
    if is_aggregate_call(call) {
        for argument in part::arguments(call) {
            if let Some((_, span)) = find(argument, |call| call.over.is_some()) {
                return Err(fault(
                    "42803",
                    "aggregate function calls cannot contain window function calls".to_owned(),
                    span,
                ));
            }
        }
    }
    Ok(())
}

/// Functions that mean nothing without a window. `first_value` and its like are aggregates of ours too.
const WINDOW_ONLY: &[&str] = &[
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
];

/// LIMIT and OFFSET look at no row.
fn counts(query: &Query) -> Result<(), Fault> {
    let (limit, offset) = match &query.limit_clause {
        Some(LimitClause::LimitOffset { limit, offset, .. }) => {
            (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
        }
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => (Some(limit), Some(offset)),
        None => return Ok(()),
    };
    for (expr, clause) in [(limit, "LIMIT"), (offset, "OFFSET")] {
        if let Some(Expr::Identifier(_) | Expr::CompoundIdentifier(_)) = expr {
            return Err(fault(
                "42P10",
                format!("argument of {clause} must not contain variables"),
                expr.map_or_else(Span::empty, Spanned::span),
            ));
        }
    }
    Ok(())
}

/// No two tables of one FROM have one name.
fn tables(from: &[TableWithJoins]) -> Result<(), Fault> {
    let mut seen = Vec::new();
    for table in from {
        names(table, &mut seen)?;
    }
    Ok(())
}

fn names(table: &TableWithJoins, seen: &mut Vec<String>) -> Result<(), Fault> {
    let factors = std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation));
    for factor in factors {
        match factor {
            TableFactor::NestedJoin {
                table_with_joins,
                alias: None,
            } => names(table_with_joins, seen)?,
            factor => {
                let Some((ident, is_qualified)) = name_of(factor) else {
                    continue;
                };
                let name = fold(ident);
                // `a.t` and `b.t` are told apart by their schemas.
                if is_qualified {
                    continue;
                }
                if seen.contains(&name) {
                    let message = format!("table name \"{name}\" specified more than once");
                    return Err(Box::new((Error::semantic("42712", message), None)));
                }
                seen.push(name);
            }
        }
    }
    Ok(())
}

/// The name that a table goes by in its FROM, and whether it stands behind a schema.
fn name_of(factor: &TableFactor) -> Option<(&Ident, bool)> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            Some((&alias.name, false))
        }
        TableFactor::Table {
            name,
            alias: None,
            args: None,
            ..
        } => name.0.last()?.as_ident().map(|ident| (ident, name.0.len() > 1)),
        _ => None,
    }
}

fn condition_of(operator: &JoinOperator) -> Option<&Expr> {
    let constraint = match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::CrossJoin(constraint) => constraint,
        _ => return None,
    };
    match constraint {
        JoinConstraint::On(condition) => Some(condition),
        _ => None,
    }
}

/// No aggregate and no window function: they come after this clause.
fn plain(expr: &Expr, clause: &str) -> Result<(), Fault> {
    if let Some((_, span)) = find(expr, is_aggregate_call) {
        return Err(fault(
            "42803",
            format!("aggregate functions are not allowed in {clause}"),
            span,
        ));
    }
    no_windows(expr, clause)
}

fn no_windows(expr: &Expr, clause: &str) -> Result<(), Fault> {
    match find(expr, |call| call.over.is_some()) {
        Some((_, span)) => Err(fault(
            "42P20",
            format!("window functions are not allowed in {clause}"),
            span,
        )),
        None => Ok(()),
    }
}

/// No aggregate within an aggregate.
fn no_nested(expr: &Expr) -> Result<(), Fault> {
    let mut search = Search {
        wanted: is_aggregate_call,
        depth: 0,
        found: None,
        nested: NestedOnly::Yes,
    };
    let _ = expr.visit(&mut search);
    match search.found {
        Some((_, span)) => Err(fault(
            "42803",
            "aggregate function calls cannot be nested".to_owned(),
            span,
        )),
        None => Ok(()),
    }
}

fn is_aggregate_call(call: &Function) -> bool {
    let name = call.name.0.last().and_then(|part| part.as_ident()).map(fold);
    call.over.is_none() && name.is_some_and(|name| function::aggregate(&name).is_some())
}

fn find(expr: &Expr, wanted: fn(&Function) -> bool) -> Option<(Function, Span)> {
    let mut search = Search {
        wanted,
        depth: 0,
        found: None,
        nested: NestedOnly::No,
    };
    let _ = expr.visit(&mut search);
    search.found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NestedOnly {
    Yes,
    No,
}

/// Looks for calls in an expression, but not in its subqueries, whose clauses are their own.
struct Search {
    wanted: fn(&Function) -> bool,
    /// How many wanted calls are around.
    depth: usize,
    found: Option<(Function, Span)>,
    nested: NestedOnly,
}

impl Visitor for Search {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        // Expressions are visited in order: what comes behind a subquery is not looked at. That a fault there goes
        // unnoticed here only costs its position, since DataFusion finds it again.
        ControlFlow::Break(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Function(call) = expr
            && (self.wanted)(call)
        {
            if self.nested == NestedOnly::No || self.depth > 0 {
                let span = call.name.0.first().and_then(|part| part.as_ident());
                self.found = Some((call.clone(), span.map_or_else(Span::empty, |ident| ident.span)));
                return ControlFlow::Break(());
            }
            self.depth += 1;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Function(call) = expr
            && (self.wanted)(call)
        {
            self.depth = self.depth.saturating_sub(1);
        }
        ControlFlow::Continue(())
    }
}

/// `GROUP BY 3` and `ORDER BY 3` name a column of the select list.
fn position(key: &Expr, select: &Select, clause: &str) -> Result<(), Fault> {
    let Some((number, span)) = number(key) else {
        return Ok(());
    };
    let has_wildcard = select
        .projection
        .iter()
        .any(|item| !matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }));
    let fits = number >= 1 && (has_wildcard || number as usize <= select.projection.len());
    if fits {
        return Ok(());
    }
    Err(fault(
        "42P10",
        format!("{clause} position {number} is not in select list"),
        span,
    ))
}

fn number(expr: &Expr) -> Option<(i64, Span)> {
    match expr {
        Expr::Value(ValueWithSpan {
            value: Value::Number(text, _),
            span,
        }) => text.parse().ok().map(|number| (number, *span)),
        _ => None,
    }
}

fn order_by(query: &Query) -> Result<(), Fault> {
    let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &query.order_by) else {
        return Ok(());
    };
    let OrderByKind::Expressions(keys) = &order.kind else {
        return Ok(());
    };
    for key in keys {
        position(&key.expr, select, "ORDER BY")?;
        no_nested(&key.expr)?;
    }
    Ok(())
}

/// The place of the text or number whose value an error shows: `invalid input syntax for type integer: "x"`.
pub(super) fn literal<T: Visit>(error: &Error, tree: &T) -> Option<Location> {
    if !matches!(error.code(), "22P02" | "22007" | "22008" | "22003" | "22P03") {
        return None;
    }
    let message = error.message();
    let shown = match message.split_once(": \"") {
        Some((_, rest)) => rest.strip_suffix('"')?,
        None if message == "invalid input syntax for type json" => JSON,
        None => message.split('"').nth(1)?,
    };
    let mut search = Literal { shown, found: None };
    let _ = tree.visit(&mut search);
    search.found
}

/// Stands for any text that is no JSON.
const JSON: &str = "\u{1}json";

struct Literal<'a> {
    shown: &'a str,
    found: Option<Location>,
}

impl Visitor for Literal<'_> {
    type Break = ();

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<()> {
        let same = match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => {
                text == self.shown || (self.shown == JSON && crate::types::json::normalize(text).is_err())
            }
            Value::Number(text, _) => text == self.shown,
            _ => false,
        };
        if same && value.span().start.line > 0 {
            self.found = Some(value.span().start);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}
