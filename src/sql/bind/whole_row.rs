//! `SELECT t FROM t`: a table's name where a value stands is its row as one value.
//!
//! A column of that name comes first, so this is asked for only when there is none. The columns of the table are those
//! of `SELECT t.*` over the same FROM, and the name becomes a call that makes a record of them.

use super::desugar::{bare_query, select_all_from, string};
use crate::error::{Error, Result};
use crate::sql::function::RECORD;
use crate::sql::parser::fold;
use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName, Query,
    Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor, VisitMut, VisitorMut, With,
};
use std::ops::ControlFlow;

/// The name of a column that does not exist, which may be a table's.
pub(super) fn missing_column(error: &Error) -> Option<&str> {
    (error.code() == "42703").then_some(())?;
    error
        .message()
        .strip_prefix("column \"")?
        .strip_suffix("\" does not exist")
}

/// The query with the rows of the table `name` as records; nothing if no FROM has such a table.
pub(super) fn with_rows(
    query: &Query,
    name: &str,
    columns: &dyn Fn(&Query) -> Result<Vec<String>>,
) -> Result<Option<Query>> {
    let mut changed = query.clone();
    let mut rows = Rows {
        name,
        columns,
        with: Vec::new(),
        found: false,
        error: None,
    };
    let _ = changed.visit(&mut rows);
    match rows.error {
        Some(error) => Err(error),
        None => Ok(rows.found.then_some(changed)),
    }
}

struct Rows<'a> {
    name: &'a str,
    columns: &'a dyn Fn(&Query) -> Result<Vec<String>>,
    with: Vec<Option<With>>,
    found: bool,
    error: Option<Error>,
}

impl VisitorMut for Rows<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.with.push(query.with.clone());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.with.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let factors = select
            .from
            .iter()
            .flat_map(|table| std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation)));
        if !factors.into_iter().any(|factor| goes_by(factor, self.name)) {
            return ControlFlow::Continue(());
        }
        match self.columns_of(select) {
            Ok(columns) => {
                self.found = true;
                replace(select, self.name, &columns);
                ControlFlow::Continue(())
            }
            Err(error) => {
                self.error = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

impl Rows<'_> {
    fn columns_of(&self, select: &Select) -> Result<Vec<String>> {
        let table = ObjectName::from(vec![Ident::with_quote('"', self.name)]);
        // Any FROM: it is replaced.
        let mut body = select_all_from(TableFactor::NestedJoin {
            table_with_joins: Box::new(select.from[0].clone()),
            alias: None,
        });
        if let SetExpr::Select(inner) = &mut body {
            inner.from = select.from.clone();
            inner.projection = vec![SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(table),
                Default::default(),
            )];
        }
        let mut query = bare_query(body);
        let tables = self.with.iter().flatten();
        query.with = tables.cloned().reduce(|mut all, inner| {
            all.cte_tables.extend(inner.cte_tables);
            all
        });
        (self.columns)(&query)
    }
}

fn goes_by(factor: &TableFactor, name: &str) -> bool {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. } => fold(&alias.name) == name,
        TableFactor::Table {
            name: table,
            alias: None,
            ..
        } => table.0.last().and_then(|part| part.as_ident()).map(fold).as_deref() == Some(name),
        _ => false,
    }
}

fn replace(select: &mut Select, name: &str, columns: &[String]) {
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr @ Expr::Identifier(_)) = item
            && is_name(expr, name)
        {
            *item = SelectItem::ExprWithAlias {
                expr: expr.clone(),
                alias: Ident::with_quote('"', name),
            };
        }
    }
    let record = record(name, columns);
    let mut replacer = Replacer { name, record };
    let _ = select.projection.visit(&mut replacer);
    let _ = select.selection.visit(&mut replacer);
    let _ = select.group_by.visit(&mut replacer);
    let _ = select.having.visit(&mut replacer);
}

fn is_name(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Identifier(ident) if fold(ident) == name)
}

fn record(name: &str, columns: &[String]) -> Expr {
    let quoted = |text: &str| Ident::with_quote('"', text);
    let args = columns
        .iter()
        .flat_map(|column| {
            let value = Expr::CompoundIdentifier(vec![quoted(name), quoted(column)]);
            [string(column.as_str()), value]
        })
        .map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)))
        .collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(RECORD)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

struct Replacer<'a> {
    name: &'a str,
    record: Expr,
}

impl VisitorMut for Replacer<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if is_name(expr, self.name) {
            *expr = self.record.clone();
        }
        ControlFlow::Continue(())
    }
}
