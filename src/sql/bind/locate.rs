//! Where in a statement the name stands that an error is about.
//!
//! DataFusion knows the places of some names and loses those of others. Errors about names carry the name in their
//! message, so the tree is searched for it; of several places the first is taken, as PostgreSQL meets it first too.

use super::part;
use crate::error::Error;
use crate::sql::parser::fold;
use sqlparser::ast::{
    DataType, Expr, Ident, ObjectName, Select, SelectItem, SelectItemQualifiedWildcardKind, TableFactor, Value,
    ValueWithSpan, Visit, Visitor,
};
use sqlparser::tokenizer::{Location, Span};
use std::ops::ControlFlow;

/// What is looked for.
enum Wanted<'a> {
    Relation(&'a str),
    Column {
        table: Option<&'a str>,
        name: &'a str,
    },
    /// A column that goes by its name alone.
    Bare(&'a str),
    Table(&'a str),
    Function(&'a str),
    Type(&'a str),
    Parameter(&'a str),
}

/// The place of what an error is about.
pub(super) fn place<T: Visit>(error: &Error, tree: &T) -> Option<Location> {
    let message = error.message();
    let wanted = match error.code() {
        "42P01" if message.starts_with("relation ") => Wanted::Relation(quoted(message)?),
        "42P01" => Wanted::Table(quoted(message)?),
        "42702" => Wanted::Bare(quoted(message)?),
        "42703" | "42803" => column(message)?,
        "42704" if message.starts_with("type ") => Wanted::Type(quoted(message)?),
        "42P02" => Wanted::Parameter(message.strip_prefix("there is no parameter ")?),
        "42883" if message.starts_with("function ") => {
            Wanted::Function(message.strip_prefix("function ")?.split(['(', ' ']).next()?)
        }
        _ => return part::place(error, tree),
    };
    let mut search = Search { wanted, found: None };
    let _ = tree.visit(&mut search);
    let span = search.found?;
    (span.start.line > 0).then_some(span.start)
}

fn quoted(message: &str) -> Option<&str> {
    message.split('"').nth(1)
}

/// `column "x" ...`, `column t.x ...`, `column reference "x" ...`.
fn column(message: &str) -> Option<Wanted<'_>> {
    let name = match quoted(message) {
        Some(name) => name,
        None => message.strip_prefix("column ")?.split(' ').next()?,
    };
    Some(match name.rsplit_once('.') {
        Some((table, name)) => Wanted::Column {
            table: Some(table),
            name,
        },
        None => Wanted::Column { table: None, name },
    })
}

struct Search<'a> {
    wanted: Wanted<'a>,
    found: Option<Span>,
}

impl Search<'_> {
    fn find(&mut self, span: Span) -> ControlFlow<()> {
        self.found = Some(span);
        ControlFlow::Break(())
    }

    fn names_relation(&self, name: &ObjectName) -> Option<Span> {
        let Wanted::Relation(wanted) = &self.wanted else {
            return None;
        };
        let parts: Vec<&Ident> = name.0.iter().filter_map(|part| part.as_ident()).collect();
        let full = parts.iter().map(|part| fold(part)).collect::<Vec<_>>().join(".");
        let last = parts.last().map(|part| fold(part)).unwrap_or_default();
        (full == *wanted || last == *wanted)
            .then(|| parts.first().map(|part| part.span))
            .flatten()
    }
}

impl Visitor for Search<'_> {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
        match self.names_relation(name) {
            Some(span) => self.find(span),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        let (
            Wanted::Function(wanted),
            TableFactor::Table {
                name, args: Some(_), ..
            }
            | TableFactor::Function { name, .. },
        ) = (&self.wanted, factor)
        else {
            return ControlFlow::Continue(());
        };
        match name.0.last().and_then(|part| part.as_ident()) {
            Some(ident) if fold(ident) == *wanted => self.find(ident.span),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        let Wanted::Table(wanted) = &self.wanted else {
            return ControlFlow::Continue(());
        };
        let found = select.projection.iter().find_map(|item| match item {
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let last = name.0.last()?.as_ident()?;
                (fold(last) == *wanted).then_some(last.span)
            }
            _ => None,
        });
        found.map_or(ControlFlow::Continue(()), |span| self.find(span))
    }

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<()> {
        match (&self.wanted, &value.value) {
            (Wanted::Parameter(wanted), Value::Placeholder(name)) if name == wanted => self.find(value.span),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let span = match (&self.wanted, expr) {
            (Wanted::Column { name, .. } | Wanted::Bare(name), Expr::Identifier(ident)) if fold(ident) == *name => {
                Some(ident.span)
            }
            (Wanted::Column { table, name }, Expr::CompoundIdentifier(parts)) => match parts.as_slice() {
                [.., before, last] if fold(last) == *name && table.is_none_or(|table| fold(before) == table) => {
                    parts.first().map(|part| part.span)
                }
                _ => None,
            },
            (Wanted::Table(wanted), Expr::CompoundIdentifier(parts)) => match parts.as_slice() {
                [.., before, _] if fold(before) == *wanted => parts.first().map(|part| part.span),
                _ => None,
            },
            (
                Wanted::Type(wanted),
                Expr::Cast {
                    data_type: DataType::Custom(name, _),
                    ..
                },
            ) => name
                .0
                .last()
                .and_then(|part| part.as_ident())
                .filter(|ident| fold(ident) == *wanted)
                .map(|ident| ident.span),
            (Wanted::Function(wanted), Expr::Function(function)) => function
                .name
                .0
                .last()
                .and_then(|part| part.as_ident())
                .filter(|ident| fold(ident) == *wanted)
                .and_then(|_| {
                    function
                        .name
                        .0
                        .first()
                        .and_then(|part| part.as_ident())
                        .map(|ident| ident.span)
                }),
            // `f(FROM t)`: a relation given to a window function is an expression to the parser.
            (Wanted::Relation(wanted), Expr::Identifier(ident)) if fold(ident) == *wanted => Some(ident.span),
            _ => None,
        };
        match span {
            Some(span) => self.find(span),
            None => ControlFlow::Continue(()),
        }
    }
}

/// The error with `unknown` for the types of literals: `function f(integer, unknown) does not exist`.
pub(super) fn with_unknown_types<T: Visit>(error: Error, tree: &T) -> Error {
    let message = error.message();
    let Some((name, types)) = message
        .strip_prefix("function ")
        .and_then(|rest| rest.strip_suffix(") does not exist"))
        .and_then(|rest| rest.split_once('('))
    else {
        return error;
    };
    let types: Vec<&str> = types.split(", ").collect();
    let found = sqlparser::ast::visit_expressions(tree, |expr: &Expr| match expr {
        Expr::Function(function) => match literals_among(function, name) {
            Some(literals) if literals.len() == types.len() => ControlFlow::Break(literals),
            _ => ControlFlow::Continue(()),
        },
        _ => ControlFlow::Continue(()),
    });
    let ControlFlow::Break(literals) = found else {
        return error;
    };
    let types: Vec<&str> = types
        .into_iter()
        .zip(literals)
        .map(|(kind, is_literal)| if is_literal { "unknown" } else { kind })
        .collect();
    let changed = Error::semantic("42883", format!("function {name}({}) does not exist", types.join(", ")));
    let changed = match error.hint() {
        Some(hint) => changed.with_hint(hint),
        None => changed,
    };
    match error.position() {
        Some(position) => changed.with_position(position),
        None => changed,
    }
}

/// Which arguments of a function of that name are literals without a type.
fn literals_among(function: &sqlparser::ast::Function, name: &str) -> Option<Vec<bool>> {
    use sqlparser::ast::{FunctionArg, FunctionArgExpr, FunctionArguments};
    let last = function.name.0.last().and_then(|part| part.as_ident())?;
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    (fold(last) == name).then(|| {
        let is_literal = |arg: &FunctionArg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) => matches!(
                value.value,
                Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_) | Value::Null
            ),
            _ => false,
        };
        list.args.iter().map(is_literal).collect()
    })
}
