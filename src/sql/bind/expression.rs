//! Operators in expressions, resolved as PostgreSQL resolves them.
//!
//! DataFusion's planner hands over every binary operator with its operands planned. Here their types are known, so a
//! literal takes the type that its neighbour needs, a parameter gets its type, operands are cast, and the operator is
//! chosen; or there is none, which is `42883`.

use super::mark::{self, Over, Written};
use crate::error::{Error, Result};
use crate::sql::error::external;
use crate::sql::function::cast::{Context, cast_expression, is_float, is_integer, is_numeric, is_text};
use crate::sql::function::operator::{Operator, is_swappable, resolve};
use crate::sql::function::special;
use crate::types::Type;
use datafusion::common::{
    DFSchema, DataFusionError, Diagnostic, Location as SpanLocation, Result as DataFusionResult, ScalarValue, Span,
};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawAggregateExpr, RawBinaryExpr, RawFieldAccessExpr, RawWindowExpr,
};
use datafusion::logical_expr::{Expr, ExprSchemable, GetFieldAccess, Operator as Native};
use sqlparser::ast::BinaryOperator;
use sqlparser::tokenizer::Location;

/// Plans operators.
#[derive(Debug)]
pub(super) struct Operators {
    /// The session's time zone.
    pub(super) zone: String,
}

/// The type of an expression; unknown for a bare literal text, NULL, and a parameter of no type yet.
pub(crate) fn type_of(expr: &Expr, schema: &DFSchema) -> DataFusionResult<Type> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(_), None) | Expr::Literal(ScalarValue::Null, _) => Ok(Type::Unknown),
        Expr::Placeholder(placeholder) => Ok(match &placeholder.field {
            Some(field) => Type::of_field(field),
            None => Type::Unknown,
        }),
        Expr::Alias(alias) => type_of(&alias.expr, schema),
        other => Ok(Type::of_field(&other.to_field(schema)?.1)),
    }
}

fn comparison(symbol: &str) -> Option<Native> {
    Some(match symbol {
        "=" => Native::Eq,
        "<>" => Native::NotEq,
        "<" => Native::Lt,
        "<=" => Native::LtEq,
        ">" => Native::Gt,
        ">=" => Native::GtEq,
        _ => return None,
    })
}

/// An error about an operator, with the place behind which the operator stands.
fn about_operator(error: Error, after: Option<Location>) -> DataFusionError {
    let is_missing = error.code() == "42883";
    let error = external(error);
    match after {
        Some(after) if is_missing => {
            let place = SpanLocation {
                line: after.line,
                column: after.column,
            };
            error.with_diagnostic(Diagnostic::new_error("operator", Some(Span::new(place, place))))
        }
        _ => error,
    }
}

impl ExprPlanner for Operators {
    fn plan_aggregate(&self, expr: RawAggregateExpr) -> DataFusionResult<PlannerResult<RawAggregateExpr>> {
        Ok(PlannerResult::Original(self.aggregate(expr)?))
    }

    fn plan_window(&self, expr: RawWindowExpr) -> DataFusionResult<PlannerResult<RawWindowExpr>> {
        Ok(PlannerResult::Original(self.window_aggregate(expr)?))
    }

    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> DataFusionResult<PlannerResult<RawBinaryExpr>> {
        if matches!(expr.op, BinaryOperator::And | BinaryOperator::Or) {
            return Ok(PlannerResult::Original(self.logical(expr, schema)?));
        }
        let left_type = type_of(&expr.left, schema)?;
        let right_type = type_of(&expr.right, schema)?;
        let (left, right) = ((expr.left, left_type), (expr.right, right_type));
        let Written { symbol, over, after } = mark::read(&expr.op);
        let planned = match (over, comparison(&symbol)) {
            (Over::One, Some(op)) => self.compare(op, left, right),
            (Over::One, None) => self.operate(&symbol, left, right),
            (over, _) => self.quantify(&symbol, over, left, right),
        };
        planned
            .map(PlannerResult::Planned)
            .map_err(|error| about_operator(error, after))
    }

    fn plan_field_access(
        &self,
        expr: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> DataFusionResult<PlannerResult<RawFieldAccessExpr>> {
        let RawFieldAccessExpr {
            field_access,
            expr: root,
        } = expr;
        let planned = match field_access {
            GetFieldAccess::NamedStructField { name } => special::field(root, &name),
            GetFieldAccess::ListIndex { key } => {
                let key_type = type_of(&key, schema)?;
                let root_type = type_of(&root, schema)?;
                let key = *key;
                if matches!(root_type, Type::Jsonb) {
                    let symbol = "->";
                    return Ok(PlannerResult::Planned(
                        self.operate(symbol, (root, root_type), (key, key_type))
                            .map_err(external)?,
                    ));
                }
                let key =
                    cast_expression(key, &key_type, &Type::Int4, Context::Assignment, &self.zone).map_err(external)?;
                special::subscript(root, key)
            }
            GetFieldAccess::ListRange { start, stop, .. } => special::slice(root, *start, *stop),
        };
        Ok(PlannerResult::Planned(planned))
    }

    fn plan_array_literal(&self, exprs: Vec<Expr>, schema: &DFSchema) -> DataFusionResult<PlannerResult<Vec<Expr>>> {
        let types = exprs
            .iter()
            .map(|expr| type_of(expr, schema))
            .collect::<DataFusionResult<Vec<_>>>()?;
        let values: Vec<(&Expr, &Type)> = exprs.iter().zip(&types).collect();
        let element = value_type("ARRAY", &values).map_err(external)?;
        let elements = exprs
            .into_iter()
            .zip(&types)
            .map(|(expr, kind)| cast_expression(expr, kind, &element, Context::Implicit, &self.zone))
            .collect::<Result<Vec<_>>>()
            .map_err(external)?;
        Ok(PlannerResult::Planned(special::array(elements, element)))
    }
}

impl Operators {
    /// AND and OR take booleans, and literals that mean one.
    fn logical(&self, expr: RawBinaryExpr, schema: &DFSchema) -> DataFusionResult<RawBinaryExpr> {
        let RawBinaryExpr { op, left, right } = expr;
        let side = |expr: Expr| -> DataFusionResult<Expr> {
            // Deep chains are never typed again at every level: only what may not be boolean is.
            if matches!(
                expr,
                Expr::BinaryExpr(_) | Expr::Not(_) | Expr::IsNull(_) | Expr::IsNotNull(_)
            ) {
                return Ok(expr);
            }
            match type_of(&expr, schema)? {
                Type::Bool => Ok(expr),
                kind @ Type::Unknown => {
                    cast_expression(expr, &kind, &Type::Bool, Context::Implicit, &self.zone).map_err(external)
                }
                kind => Err(external(Error::semantic(
                    "42804",
                    format!("argument of {op} must be type boolean, not type {kind}"),
                ))),
            }
        };
        Ok(RawBinaryExpr {
            left: side(left)?,
            right: side(right)?,
            op: op.clone(),
        })
    }

    /// A comparison of two operands in a common type.
    pub(crate) fn compare(&self, op: Native, left: (Expr, Type), right: (Expr, Type)) -> Result<Expr> {
        let common = common_type(&left.1, &right.1)
            .filter(|kind| is_comparable(kind, op))
            .ok_or_else(|| no_operator(&op.to_string(), &left.1, &right.1))?;
        let common = if common == Type::Unknown { Type::Text } else { common };
        let side = |(expr, kind): (Expr, Type)| -> Result<Expr> {
            let expr = cast_expression(expr, &kind, &common, Context::Implicit, &self.zone)?;
            Ok(match &common {
                Type::Float4 | Type::Float8 => special::float_key(expr),
                Type::Interval => special::interval_key(expr),
                Type::Jsonb => special::json_key(expr),
                Type::Numeric(None) | Type::Quotient => expr,
                _ => expr,
            })
        };
        Ok(Expr::BinaryExpr(BinaryExpr::new(
            Box::new(side(left)?),
            op,
            Box::new(side(right)?),
        )))
    }

    /// `x = ANY (array)`: the elements and what they are compared with in a common type.
    fn quantify(&self, symbol: &str, over: Over, left: (Expr, Type), right: (Expr, Type)) -> Result<Expr> {
        let element = match &right.1 {
            Type::Array(element) => element.as_ref().clone(),
            Type::Unknown => left.1.clone(),
            _ => {
                return Err(Error::semantic(
                    "42809",
                    "op ANY/ALL (array) requires array on right side",
                ));
            }
        };
        let missing = || no_operator(symbol, &left.1, &element);
        let (from, to) = match comparison(symbol) {
            Some(_) => {
                let common = common_type(&left.1, &element).ok_or_else(missing)?;
                (common.clone(), common)
            }
            None => {
                let resolved = resolve(symbol, &left.1, &element)
                    .filter(|resolved| resolved.result == Type::Bool)
                    .ok_or_else(missing)?;
                (resolved.left, resolved.right)
            }
        };
        let known = |kind: Type| if kind == Type::Unknown { Type::Text } else { kind };
        let (from, to) = (known(from), Type::Array(Box::new(known(to))));
        let value = cast_expression(left.0, &left.1, &from, Context::Implicit, &self.zone)?;
        let array = cast_expression(right.0, &right.1, &to, Context::Implicit, &self.zone)?;
        let name = if over == Over::Any { "__any" } else { "__all" };
        let symbol = Expr::Literal(ScalarValue::Utf8(Some(symbol.to_owned())), None);
        Ok(crate::sql::function::call_in_zone(
            name,
            vec![value, array, symbol],
            &self.zone,
        ))
    }

    /// An operator that is no comparison.
    pub(crate) fn operate(&self, symbol: &str, left: (Expr, Type), right: (Expr, Type)) -> Result<Expr> {
        let (left, right) = if is_swappable(symbol, &left.1, &right.1) && resolve(symbol, &left.1, &right.1).is_none() {
            (right, left)
        } else {
            (left, right)
        };
        let resolved = resolve(symbol, &left.1, &right.1).ok_or_else(|| no_operator(symbol, &left.1, &right.1))?;
        let context = if symbol == "||" {
            Context::Assignment
        } else {
            Context::Implicit
        };
        let lhs = cast_expression(left.0, &left.1, &resolved.left, context, &self.zone)?;
        let rhs = cast_expression(right.0, &right.1, &resolved.right, context, &self.zone)?;
        Ok(Operator::call(symbol, resolved, &self.zone, lhs, rhs))
    }
}

/// `operator does not exist: integer = text`.
pub(crate) fn no_operator(symbol: &str, left: &Type, right: &Type) -> Error {
    Error::semantic("42883", format!("operator does not exist: {left} {symbol} {right}"))
        .with_hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
}

/// Whether values of a type can be compared so.
fn is_comparable(kind: &Type, op: Native) -> bool {
    match kind {
        Type::Json => false,
        Type::Jsonb => matches!(op, Native::Eq | Native::NotEq),
        _ => true,
    }
}

/// The type of one of several values, as COALESCE, ARRAY and VALUES see it; text if none says more.
///
/// Literals keep their own digits where they differ: `ARRAY[1, 2.5]` is `{1,2.5}`.
pub(crate) fn value_type(word: &str, values: &[(&Expr, &Type)]) -> Result<Type> {
    let mut common = Type::Unknown;
    for (_, kind) in values {
        common = common_type(&common, kind)
            .ok_or_else(|| Error::semantic("42804", format!("{word} types {common} and {kind} cannot be matched")))?;
    }
    if common == Type::Unknown {
        return Ok(Type::Text);
    }
    let is_mixed = matches!(common, Type::Numeric(Some(_))) && values.iter().any(|(_, kind)| **kind != common);
    if is_mixed && values.iter().all(|(expr, _)| is_trimmed_number(expr)) {
        return Ok(Type::Numeric(None));
    }
    Ok(common)
}

/// Whether an expression is a number's literal without zeros at the end of its fraction, or NULL.
fn is_trimmed_number(expr: &Expr) -> bool {
    match expr {
        Expr::Cast(cast) => is_trimmed_number(&cast.expr),
        Expr::Literal(ScalarValue::Decimal128(Some(value), _, scale), _) => *scale <= 0 || value % 10 != 0,
        Expr::Literal(value, _) => value.is_null() || value.data_type().is_integer(),
        _ => false,
    }
}

/// The type in which values of two types meet, as UNION, CASE and comparisons see it.
pub(crate) fn common_type(left: &Type, right: &Type) -> Option<Type> {
    use Type as T;
    if left == right {
        return Some(left.clone());
    }
    Some(match (left, right) {
        (T::Unknown, T::Varchar(_) | T::Char(_) | T::Name | T::InternalChar)
        | (T::Varchar(_) | T::Char(_) | T::Name | T::InternalChar, T::Unknown) => T::Text,
        (T::Unknown, T::Timestamp(_)) | (T::Timestamp(_), T::Unknown) => T::Timestamp(None),
        (T::Unknown, T::Timestamptz(_)) | (T::Timestamptz(_), T::Unknown) => T::Timestamptz(None),
        // A literal beside a number of fixed scale keeps its own digits.
        (T::Unknown, T::Numeric(Some(_)) | T::Quotient) | (T::Numeric(Some(_)) | T::Quotient, T::Unknown) => {
            T::Numeric(None)
        }
        (T::Unknown, other) | (other, T::Unknown) => other.clone(),
        (a, b) if is_text(a) && is_text(b) => T::Text,
        (a, b) if is_integer(a) && is_integer(b) => wider(a, b),
        (a, b) if (is_float(a) && is_number(b)) || (is_number(a) && is_float(b)) => T::Float8,
        (a, b) if is_number(a) && is_number(b) => exact(a, b),
        (T::Date, T::Timestamp(_)) | (T::Timestamp(_), T::Date | T::Timestamp(_)) => T::Timestamp(None),
        (T::Date | T::Timestamp(_), T::Timestamptz(_))
        | (T::Timestamptz(_), T::Date | T::Timestamp(_) | T::Timestamptz(_)) => T::Timestamptz(None),
        (T::Array(a), T::Array(b)) => T::Array(Box::new(common_type(a, b)?)),
        (T::Record(a), T::Record(b)) if a.len() == b.len() => left.clone(),
        (T::Oid(_), T::Text | T::Name) | (T::Text | T::Name, T::Oid(_)) => return None,
        _ => return None,
    })
}

fn is_number(kind: &Type) -> bool {
    is_integer(kind) || is_float(kind) || is_numeric(kind)
}

fn wider(left: &Type, right: &Type) -> Type {
    for kind in [Type::Int8, Type::Int4] {
        if *left == kind || *right == kind {
            return kind;
        }
    }
    match (left, right) {
        (Type::Oid(_), _) | (_, Type::Oid(_)) => Type::Int8,
        _ => Type::Int2,
    }
}

/// The exact type that holds the values of both.
fn exact(left: &Type, right: &Type) -> Type {
    use crate::sql::function::decimal::Exact;
    match (Exact::of(left), Exact::of(right)) {
        (Some(Exact::Fixed(p1, s1)), Some(Exact::Fixed(p2, s2))) => {
            let scale = s1.max(s2);
            let whole = (i32::from(p1) - i32::from(s1)).max(i32::from(p2) - i32::from(s2));
            let precision = (whole + i32::from(scale)).clamp(1, 76);
            Type::Numeric(Some((precision as u8, scale)))
        }
        (Some(Exact::Quotient), Some(Exact::Quotient | Exact::Fixed(..)))
        | (Some(Exact::Fixed(..)), Some(Exact::Quotient)) => Type::Quotient,
        _ => Type::Numeric(None),
    }
}
