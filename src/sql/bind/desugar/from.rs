//! FROM: bags, joins of ours, and functions that look at what is left of them, as relations that `relation` plans.

use super::string;
use crate::sql::bind::rows;
use crate::sql::parser::fold;
use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, GroupByExpr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, Query,
    Select, SelectItem, SetExpr, SetOperator, SetQuantifier, TableFactor, TableWithJoins, Value, ValueWithSpan,
};
use std::ops::ControlFlow;

/// The relation that INTERSECT and EXCEPT become.
pub(crate) const SET_OPERATION: &str = "__set_operation";

/// `a EXCEPT ALL b` becomes `SELECT * FROM __set_operation((a), (b), 'except all')`.
pub(super) fn bag_operations(body: &mut Box<SetExpr>) {
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

pub(crate) fn bare_query(body: SetExpr) -> Query {
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
pub(crate) fn select_all_from(factor: TableFactor) -> SetExpr {
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
pub(super) fn is_ours(join: &Join) -> bool {
    matches!(join.join_operator, JoinOperator::AsOf { .. } | JoinOperator::CrossApply)
}

/// Functions in FROM that return sets, and may use the columns of what stands left of them.
pub(crate) const SET_FUNCTIONS: &[&str] = &[
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

pub(crate) fn is_set_function(name: &ObjectName) -> bool {
    name.0
        .last()
        .and_then(|part| part.as_ident())
        .is_some_and(|ident| SET_FUNCTIONS.contains(&fold(ident).as_str()))
}

pub(crate) fn argument_expression(arg: &FunctionArg) -> Option<&Expr> {
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
pub(super) fn fold_joins(table: &mut TableWithJoins) {
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
pub(super) fn fold_from(from: &mut Vec<TableWithJoins>) {
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
