//! Where the part of a statement stands that is of the wrong type or number.
//!
//! Such errors name a clause or two types and no name. The first part of that kind that does not look right is taken:
//! what a comparison gives is a boolean, what `1` gives is none, and what a column gives is not known here.

use crate::error::Error;
use crate::sql::data_type::type_of;
use crate::types::Type;
use sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, JoinConstraint, JoinOperator,
    Query, Select, SelectItem, SetExpr, SetOperator, Spanned, UnaryOperator, Value, Visit, Visitor,
};
use sqlparser::tokenizer::{Location, Span};
use std::ops::ControlFlow;

/// What is looked for.
enum Wanted<'a> {
    /// The first column of the right side of a set operation of another width.
    Width(&'a str),
    /// The first row of VALUES of another width.
    Row,
    /// What a clause takes for a condition.
    Condition(&'a str),
    /// One of several values, of a type.
    Value { word: &'a str, kind: &'a str },
    /// The left operand of an operator.
    Operator(&'a str),
}

/// The place of the part that an error is about.
pub(super) fn place<T: Visit>(error: &Error, tree: &T) -> Option<Location> {
    let message = error.message();
    let wanted = if let Some(rest) = message.strip_prefix("each ") {
        Wanted::Width(rest.strip_suffix(" query must have the same number of columns")?)
    } else if message == "VALUES lists must all be the same length" {
        Wanted::Row
    } else if let Some(rest) = message.strip_prefix("argument of ") {
        Wanted::Condition(rest.split_once(" must be type boolean")?.0)
    } else if let Some(rest) = message.strip_suffix(" cannot be matched") {
        let (word, types) = rest.split_once(" types ")?;
        Wanted::Value {
            word,
            kind: types.rsplit_once(" and ")?.1,
        }
    } else {
        Wanted::Operator(operator(error)?)
    };
    let mut search = Search { wanted, found: None };
    let _ = tree.visit(&mut search);
    search.found
}

/// The symbol that `operator does not exist: integer + text` names.
pub(super) fn operator(error: &Error) -> Option<&str> {
    let named = error.message().strip_prefix("operator does not exist: ")?;
    named
        .split(' ')
        .find(|word| word.chars().all(|c| "+-*/<>=~!@#%^&|?".contains(c)))
}

struct Search<'a> {
    wanted: Wanted<'a>,
    found: Option<Location>,
}

impl Search<'_> {
    fn find(&mut self, span: Span) -> ControlFlow<()> {
        if span.start.line == 0 {
            return ControlFlow::Continue(());
        }
        self.found = Some(span.start);
        ControlFlow::Break(())
    }

    fn find_first(&mut self, candidates: Vec<&Expr>, fits: impl Fn(&Expr) -> bool) -> ControlFlow<()> {
        match candidates.into_iter().find(|expr| !fits(expr)) {
            Some(expr) => self.find(expr.span()),
            None => ControlFlow::Continue(()),
        }
    }

    /// A value of the wanted type among several; one whose type is not known, if there is no other.
    fn find_value(&mut self, values: Vec<&Expr>) -> ControlFlow<()> {
        let Wanted::Value { kind, .. } = self.wanted else {
            return ControlFlow::Continue(());
        };
        let typed: Vec<(&Expr, Option<String>)> = values
            .into_iter()
            .map(|expr| (expr, apparent(expr).map(|kind| kind.to_string())))
            .collect();
        let known = typed.iter().find(|(_, own)| own.as_deref() == Some(kind));
        match known.or_else(|| typed.iter().skip(1).find(|(_, own)| own.is_none())) {
            Some((expr, _)) => {
                let span = expr.span();
                self.find(span)
            }
            None => ControlFlow::Continue(()),
        }
    }

    fn set_operation(&mut self, body: &SetExpr) -> ControlFlow<()> {
        let SetExpr::SetOperation { op, left, right, .. } = body else {
            return ControlFlow::Continue(());
        };
        self.set_operation(left)?;
        self.set_operation(right)?;
        let is_word = |word: &str| {
            word == match op {
                SetOperator::Union => "UNION",
                SetOperator::Intersect => "INTERSECT",
                _ => "EXCEPT",
            }
        };
        match self.wanted {
            Wanted::Width(word) if is_word(word) => {
                let (lefts, rights) = (columns(left), columns(right));
                let same = matches!((lefts, &rights), (Some(a), Some(b)) if a.len() == b.len());
                match rights.and_then(|rights| rights.first().map(|expr| expr.span())) {
                    Some(span) if !same => self.find(span),
                    _ => ControlFlow::Continue(()),
                }
            }
            Wanted::Value { word, .. } if is_word(word) => self.find_value(columns(right).unwrap_or_default()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn condition(&mut self, expr: &Expr) -> ControlFlow<()> {
        let Wanted::Condition(clause) = self.wanted else {
            return ControlFlow::Continue(());
        };
        match (clause, expr) {
            (
                "NOT",
                Expr::UnaryOp {
                    op: UnaryOperator::Not,
                    expr,
                },
            ) => self.find_first(vec![expr], is_condition),
            (
                "AND",
                Expr::BinaryOp {
                    left,
                    op: BinaryOperator::And,
                    right,
                },
            )
            | (
                "OR",
                Expr::BinaryOp {
                    left,
                    op: BinaryOperator::Or,
                    right,
                },
            ) => self.find_first(vec![left, right], is_condition),
            (
                "CASE/WHEN",
                Expr::Case {
                    operand: None,
                    conditions,
                    ..
                },
            ) => self.find_first(conditions.iter().map(|when| &when.condition).collect(), is_condition),
            ("FILTER", Expr::Function(function)) => {
                self.find_first(function.filter.as_deref().into_iter().collect(), is_condition)
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// The expressions of a query's columns, unless a wildcard hides them.
fn columns(body: &SetExpr) -> Option<Vec<&Expr>> {
    match body {
        SetExpr::Select(select) => select
            .projection
            .iter()
            .map(|item| match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
                _ => None,
            })
            .collect(),
        SetExpr::Values(values) => Some(values.rows.first()?.content.iter().collect()),
        SetExpr::SetOperation { left, .. } => columns(left),
        SetExpr::Query(query) => columns(&query.body),
        _ => None,
    }
}

/// Whether an expression can only be a boolean.
fn is_condition(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_condition(inner),
        Expr::Value(value) => matches!(value.value, Value::Boolean(_) | Value::Null),
        Expr::UnaryOp { op, .. } => *op == UnaryOperator::Not,
        Expr::BinaryOp { op, .. } => matches!(
            op,
            BinaryOperator::And
                | BinaryOperator::Or
                | BinaryOperator::Eq
                | BinaryOperator::NotEq
                | BinaryOperator::Lt
                | BinaryOperator::LtEq
                | BinaryOperator::Gt
                | BinaryOperator::GtEq
        ),
        Expr::Cast { .. } | Expr::TypedString(_) => apparent(expr) == Some(Type::Bool),
        Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsNotTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsNotFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotUnknown(_)
        | Expr::IsDistinctFrom(..)
        | Expr::IsNotDistinctFrom(..)
        | Expr::InList { .. }
        | Expr::InSubquery { .. }
        | Expr::Between { .. }
        | Expr::Like { .. }
        | Expr::ILike { .. }
        | Expr::SimilarTo { .. }
        | Expr::AnyOp { .. }
        | Expr::AllOp { .. }
        | Expr::Exists { .. } => true,
        _ => false,
    }
}

/// The type that an expression shows by itself.
pub(super) fn apparent(expr: &Expr) -> Option<Type> {
    match expr {
        Expr::Nested(inner) => apparent(inner),
        Expr::Cast { data_type, .. } => type_of(data_type).ok(),
        Expr::TypedString(typed) => type_of(&typed.data_type).ok(),
        Expr::Interval(_) => Some(Type::Interval),
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) if text.parse::<i32>().is_ok() => Some(Type::Int4),
            Value::Number(text, _) if text.parse::<i64>().is_ok() => Some(Type::Int8),
            Value::Number(..) => Some(Type::Numeric(None)),
            Value::Boolean(_) => Some(Type::Bool),
            _ => Some(Type::Unknown),
        },
        other if is_condition(other) => Some(Type::Bool),
        _ => None,
    }
}

/// The arguments of a call that are expressions.
pub(super) fn arguments(function: &Function) -> Vec<&Expr> {
    let FunctionArguments::List(list) = &function.args else {
        return Vec::new();
    };
    list.args
        .iter()
        .filter_map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
            _ => None,
        })
        .collect()
}

fn join_conditions(select: &Select) -> Vec<&Expr> {
    let joins = select.from.iter().flat_map(|table| &table.joins);
    joins
        .filter_map(|join| match &join.join_operator {
            JoinOperator::Join(JoinConstraint::On(on))
            | JoinOperator::Inner(JoinConstraint::On(on))
            | JoinOperator::Left(JoinConstraint::On(on))
            | JoinOperator::LeftOuter(JoinConstraint::On(on))
            | JoinOperator::Right(JoinConstraint::On(on))
            | JoinOperator::RightOuter(JoinConstraint::On(on))
            | JoinOperator::FullOuter(JoinConstraint::On(on)) => Some(on),
            _ => None,
        })
        .collect()
}

impl Visitor for Search<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.set_operation(&query.body)?;
        let SetExpr::Values(values) = query.body.as_ref() else {
            return ControlFlow::Continue(());
        };
        let width = values.rows.first().map_or(0, |row| row.content.len());
        match self.wanted {
            Wanted::Row => {
                let other = values.rows.iter().find(|row| row.content.len() != width);
                match other.and_then(|row| row.content.first()) {
                    Some(cell) => self.find(cell.span()),
                    None => ControlFlow::Continue(()),
                }
            }
            Wanted::Value { word: "VALUES", .. } => {
                for column in 0..width {
                    self.find_value(values.rows.iter().filter_map(|row| row.content.get(column)).collect())?;
                }
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        match self.wanted {
            Wanted::Condition("WHERE") => self.find_first(select.selection.iter().collect(), is_condition),
            Wanted::Condition("HAVING") => self.find_first(select.having.iter().collect(), is_condition),
            Wanted::Condition("JOIN/ON") => self.find_first(join_conditions(select), is_condition),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match (&self.wanted, expr) {
            (Wanted::Condition(_), expr) => self.condition(expr),
            (Wanted::Operator(symbol), Expr::BinaryOp { left, op, .. })
                if op.to_string() == *symbol || (*symbol == "<>" && *op == BinaryOperator::NotEq) =>
            {
                let end = left.span().end;
                self.find(Span::new(end, end))
            }
            (
                Wanted::Operator(_),
                Expr::InList { expr, .. }
                | Expr::InSubquery { expr, .. }
                | Expr::Between { expr, .. }
                | Expr::Like { expr, .. }
                | Expr::ILike { expr, .. },
            ) => {
                let end = expr.span().end;
                self.find(Span::new(end, end))
            }
            (Wanted::Value { word: "ARRAY", .. }, Expr::Array(array)) => self.find_value(array.elem.iter().collect()),
            (
                Wanted::Value { word: "CASE", .. },
                Expr::Case {
                    conditions,
                    else_result,
                    ..
                },
            ) => {
                let results = else_result.iter().map(|result| result.as_ref());
                self.find_value(results.chain(conditions.iter().map(|when| &when.result)).collect())
            }
            (Wanted::Value { word, .. }, Expr::Function(function))
                if function.name.to_string().eq_ignore_ascii_case(word) =>
            {
                self.find_value(arguments(function))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}
