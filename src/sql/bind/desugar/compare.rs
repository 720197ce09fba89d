//! Comparisons spelled in words: BETWEEN, LIKE, IN, and rows compared with rows.

use super::{binary, call, tree};
use crate::sql::bind::mark;
use sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Spanned, UnaryOperator, Value, ValueWithSpan,
};
use sqlparser::tokenizer::Span;

/// A comparison whose sides are rewritten already; any other expression as it is.
pub(super) fn rewrite(expr: Expr, span: Span) -> Expr {
    match expr {
        Expr::Between {
            expr,
            negated,
            low,
            high,
        } => between(*expr, negated, *low, *high),
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
        other => other,
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
pub(crate) fn row_parts(expr: &Expr) -> Option<Vec<Expr>> {
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
