//! The names that PostgreSQL gives to columns which the query does not name.
//!
//! DataFusion's columns need names that differ, PostgreSQL's need not: equal names are kept apart by a suffix after
//! [`MARK`], which is never shown (see `error::shown`).

use crate::sql::data_type::type_of;
use crate::sql::parser::fold;
use crate::types::Type;
use sqlparser::ast::{AccessExpr, Expr, Ident, SelectItem, SetExpr, Subscript, TrimWhereField, Value};
use std::collections::HashSet;

/// Between a name and what keeps it apart from its equals.
pub(crate) const MARK: char = '\u{1}';

/// The label of an expression with nothing to go by.
const NOTHING: &str = "?column?";

/// Gives every expression of a select list the name that PostgreSQL shows, made different where equal.
pub(super) fn label(projection: &mut [SelectItem]) {
    let mut known: HashSet<String> = HashSet::new();
    for item in projection.iter_mut() {
        match item {
            SelectItem::UnnamedExpr(expr) => {
                let name = figure(expr).unwrap_or_else(|| NOTHING.to_owned());
                let plain = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
                if known.insert(name.clone()) {
                    if !plain {
                        alias(item, &name);
                    }
                } else {
                    let apart = apart(&name, &mut known);
                    alias(item, &apart);
                }
            }
            SelectItem::ExprWithAlias { alias, .. } => {
                let name = fold(alias);
                if !known.insert(name.clone()) {
                    alias.value = apart(&name, &mut known);
                    alias.quote_style = Some('"');
                }
            }
            _ => {}
        }
    }
}

/// Keeps the columns of the outermost select list apart from those that `*` stands for.
pub(super) fn label_beside_wildcard(body: &mut SetExpr) {
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::SetOperation { left, .. } => return label_beside_wildcard(left),
        _ => return,
    };
    let wildcards = select
        .projection
        .iter()
        .filter(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
    if wildcards.count() == 0 || select.projection.len() == 1 {
        return;
    }
    for (index, item) in select.projection.iter_mut().enumerate() {
        let name = match item {
            SelectItem::UnnamedExpr(expr) => figure(expr).unwrap_or_else(|| NOTHING.to_owned()),
            SelectItem::ExprWithAlias { alias, .. } => fold(alias),
            _ => continue,
        };
        let marked = format!("{name}{MARK}w{index}");
        alias(item, &marked);
    }
}

fn apart(name: &str, known: &mut HashSet<String>) -> String {
    let mut number = 1;
    loop {
        let candidate = format!("{name}{MARK}{number}");
        if known.insert(candidate.clone()) {
            return candidate;
        }
        number += 1;
    }
}

fn alias(item: &mut SelectItem, name: &str) {
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = &*item else {
        return;
    };
    *item = SelectItem::ExprWithAlias {
        expr: expr.clone(),
        alias: Ident::with_quote('"', name),
    };
}

/// The name that PostgreSQL figures out; `None` for `?column?`.
pub(super) fn figure(expr: &Expr) -> Option<String> {
    let fixed = |name: &str| Some(name.to_owned());
    match expr {
        Expr::Identifier(ident) => Some(fold(ident)),
        Expr::CompoundIdentifier(idents) => idents.last().map(fold),
        Expr::CompoundFieldAccess { root, access_chain } => access_chain
            .iter()
            .rev()
            .find_map(|access| match access {
                AccessExpr::Dot(Expr::Identifier(ident)) => Some(fold(ident)),
                AccessExpr::Subscript(Subscript::Index { .. } | Subscript::Slice { .. }) | AccessExpr::Dot(_) => None,
            })
            .or_else(|| figure(root)),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => figure(inner),
        Expr::Function(function) => function.name.0.last().and_then(|part| part.as_ident()).map(fold),
        Expr::Cast { expr, data_type, .. } => match figure(expr) {
            Some(name) if !is_weak(expr) => Some(name),
            _ => type_of(data_type).ok().map(|kind| internal_name(&kind)),
        },
        Expr::TypedString(typed) => type_of(&typed.data_type).ok().map(|kind| internal_name(&kind)),
        Expr::Interval(_) => fixed("interval"),
        Expr::Value(value) => match value.value {
            Value::Boolean(_) => fixed("bool"),
            _ => None,
        },
        Expr::Case { else_result, .. } => else_result
            .as_ref()
            .filter(|result| !is_weak(result))
            .and_then(|result| figure(result))
            .or_else(|| fixed("case")),
        Expr::Exists { .. } => fixed("exists"),
        Expr::Subquery(query) => match query.body.as_ref() {
            SetExpr::Select(select) => match select.projection.first() {
                Some(SelectItem::UnnamedExpr(expr)) => figure(expr),
                Some(SelectItem::ExprWithAlias { alias, .. }) => Some(fold(alias)),
                _ => None,
            },
            SetExpr::Values(_) => fixed("column1"),
            _ => None,
        },
        Expr::Array(_) => fixed("array"),
        Expr::Tuple(_) => fixed("row"),
        Expr::AtTimeZone { .. } => fixed("timezone"),
        Expr::Extract { .. } => fixed("extract"),
        Expr::Position { .. } => fixed("position"),
        Expr::Substring { .. } => fixed("substring"),
        Expr::Overlay { .. } => fixed("overlay"),
        Expr::Ceil { .. } => fixed("ceil"),
        Expr::Floor { .. } => fixed("floor"),
        Expr::Trim { trim_where, .. } => fixed(match trim_where {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        }),
        _ => None,
    }
}

/// Whether a name is only a guess that a cast around it overrules.
fn is_weak(expr: &Expr) -> bool {
    match expr {
        Expr::Value(_) | Expr::TypedString(_) | Expr::Interval(_) | Expr::Case { .. } => true,
        Expr::Cast { expr, .. } | Expr::Nested(expr) => is_weak(expr),
        _ => figure(expr).is_none(),
    }
}

/// A type's name in the catalog, as it labels columns.
pub(crate) fn internal_name(kind: &Type) -> String {
    match kind {
        Type::Bool => "bool".to_owned(),
        Type::Int2 => "int2".to_owned(),
        Type::Int4 => "int4".to_owned(),
        Type::Int8 => "int8".to_owned(),
        Type::Float4 => "float4".to_owned(),
        Type::Float8 => "float8".to_owned(),
        Type::Numeric(_) | Type::Quotient => "numeric".to_owned(),
        Type::Varchar(_) => "varchar".to_owned(),
        Type::Char(_) => "bpchar".to_owned(),
        Type::Time => "time".to_owned(),
        Type::Timestamp(_) => "timestamp".to_owned(),
        Type::Timestamptz(_) => "timestamptz".to_owned(),
        Type::InternalChar => "char".to_owned(),
        Type::Array(element) => internal_name(element),
        other => other.to_string(),
    }
}
