//! Which expressions can fail on a row.
//!
//! What is not known to be safe can fail. Arithmetic that cannot leave its type's range, divisions by a constant that
//! is not zero, and functions of constants that were tried are safe.

use super::cast::{CastTo, Context, is_plain, is_same, is_text};
use super::decimal::Exact;
use super::operator::{Op, Operator, Sign};
use super::window::WindowFunction;
use crate::types::Type;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, Operator as PlainOperator};

/// Functions that never fail, whatever they are given.
const SAFE: &[&str] = &[
    "length",
    "char_length",
    "character_length",
    "octet_length",
    "bit_length",
    "ascii",
    "initcap",
    "reverse",
    "replace",
    "translate",
    "btrim",
    "ltrim",
    "rtrim",
    "left",
    "right",
    "strpos",
    "position",
    "string_to_array",
    "array_to_string",
    "md5",
    "to_hex",
    "quote_ident",
    "quote_literal",
    "quote_nullable",
    "greatest",
    "least",
    "lower",
    "upper",
    "concat",
    "concat_ws",
    "starts_with",
    "sha224",
    "sha256",
    "sha384",
    "sha512",
    "float_key",
    "interval_key",
    "json_key",
    "isfinite",
    "justify_hours",
    "justify_days",
    "justify_interval",
    "sign",
    "atan",
    "cos",
    "sin",
    "pi",
    "__subscript",
    "__array",
    "array_length",
    "array_upper",
    "array_lower",
    "array_ndims",
    "cardinality",
    "array_append",
    "array_prepend",
    "array_cat",
    "array_position",
    "array_positions",
    "array_remove",
    "array_dims",
    "to_json",
    "to_jsonb",
    "json_typeof",
    "jsonb_typeof",
    "now",
    "version",
    "current_user",
    "session_user",
    "current_role",
    "user",
    "current_database",
    "current_catalog",
    "current_schema",
    "current_schemas",
    "pg_typeof",
    "random",
    "clock_timestamp",
    "gen_random_uuid",
    "get_field",
    "row",
    "__record",
    "__any",
    "__all",
    "ceil",
    "ceiling",
    "floor",
    "__flag",
    "__truth",
];

/// Functions that fail only for some values of the arguments at these positions: constants there were checked when
/// they were folded with a sample, or are plain enough to see.
const SAFE_WITH_CONSTANTS: &[(&str, &[usize])] = &[
    ("split_part", &[2]),
    ("to_char", &[1]),
    ("date_trunc", &[0]),
    ("date_part", &[0]),
    ("extract", &[0]),
    ("__extract0", &[0]),
    ("__extract3", &[0]),
    ("__extract6", &[0]),
    ("timezone", &[0]),
    ("regexp_match", &[1]),
    ("regexp_replace", &[1]),
    ("regexp_like", &[1]),
    ("regexp_count", &[1]),
    ("regexp_substr", &[1]),
    ("substr", &[1, 2]),
    ("substring", &[1, 2]),
    ("lpad", &[1]),
    ("rpad", &[1]),
    ("round", &[1]),
    ("trunc", &[1]),
];

/// Whether an expression can fail on some row; its subqueries are not looked into.
pub fn can_fail(expr: &Expr) -> bool {
    let mut found = false;
    let _ = expr.apply(|expr| {
        found |= fails_itself(expr);
        Ok(if found {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    });
    found
}

fn fails_itself(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(function) => function_fails(function),
        Expr::Cast(cast) => !cast_is_safe(cast.field.data_type()),
        Expr::Negative(_) => true,
        Expr::BinaryExpr(binary) => !(compares(binary.op) || binary.op.is_logic_operator()),
        _ => false,
    }
}

/// Whether an operator only compares. A regular expression can be malformed, so matching one may fail.
fn compares(op: PlainOperator) -> bool {
    use PlainOperator as O;
    matches!(
        op,
        O::Eq | O::NotEq | O::Lt | O::LtEq | O::Gt | O::GtEq | O::IsDistinctFrom | O::IsNotDistinctFrom
    )
}

/// Plain casts are put in where Arrow widens, or comes to text.
fn cast_is_safe(target: &arrow::datatypes::DataType) -> bool {
    use arrow::datatypes::DataType as D;
    matches!(
        target,
        D::Int32 | D::Int64 | D::Float32 | D::Float64 | D::Utf8 | D::Null
    )
}

fn is_constant(expr: Option<&Expr>) -> bool {
    matches!(expr, None | Some(Expr::Literal(..)))
}

fn function_fails(function: &ScalarFunction) -> bool {
    let inner = function.func.inner();
    if inner.is::<WindowFunction>() {
        return false;
    }
    if let Some(cast) = inner.downcast_ref::<CastTo>() {
        return !is_safe_cast(cast);
    }
    if let Some(operator) = inner.downcast_ref::<Operator>() {
        return !is_safe_operator(operator, function.args.get(1));
    }
    let name = function.func.name();
    if SAFE.contains(&name) {
        return false;
    }
    match SAFE_WITH_CONSTANTS.iter().find(|(known, _)| *known == name) {
        Some((_, positions)) => !positions
            .iter()
            .all(|position| is_constant(function.args.get(*position))),
        None => true,
    }
}

fn is_safe_cast(cast: &CastTo) -> bool {
    let (source, target) = (&cast.source, &cast.target);
    if is_plain(source, target) || is_same(source, target) {
        return true;
    }
    if is_text(target) {
        // Only an assignment refuses what is too long.
        return cast.context != Context::Assignment || matches!(target, Type::Text | Type::Varchar(None));
    }
    match (source, target) {
        (Type::Date, Type::Timestamp(_) | Type::Timestamptz(_)) => true,
        (Type::Timestamp(_) | Type::Timestamptz(_), Type::Timestamp(_) | Type::Timestamptz(_) | Type::Date) => true,
        (Type::Json, Type::Jsonb) | (Type::Jsonb, Type::Json) => true,
        (Type::Numeric(_) | Type::Quotient, Type::Float8) => true,
        (source, target) => match (Exact::of(source), Exact::of(target)) {
            // Every number of the one is a number of the other.
            (Some(Exact::Fixed(p1, s1)), Some(Exact::Fixed(p2, s2))) => {
                s2 >= s1 && i32::from(p2) - i32::from(s2) >= i32::from(p1) - i32::from(s1)
            }
            (Some(Exact::Fixed(p1, s1)), Some(Exact::Free | Exact::Quotient)) => i32::from(p1) - i32::from(s1) <= 38,
            _ => false,
        },
    }
}

fn nonzero(expr: Option<&Expr>) -> bool {
    match expr {
        Some(Expr::Literal(value, _)) => match value {
            ScalarValue::Int16(Some(value)) => *value != 0 && *value != -1,
            ScalarValue::Int32(Some(value)) => *value != 0 && *value != -1,
            ScalarValue::Int64(Some(value)) => *value != 0 && *value != -1,
            ScalarValue::Float32(Some(value)) => value.abs() >= 1.0,
            ScalarValue::Float64(Some(value)) => value.abs() >= 1.0,
            _ => false,
        },
        _ => false,
    }
}

/// Whether exact arithmetic always fits the type of its result.
fn fits(operator: &Operator, sign: Sign) -> bool {
    let resolved = &operator.resolved;
    let (Some(Exact::Fixed(p1, s1)), Some(Exact::Fixed(p2, s2))) =
        (Exact::of(&resolved.left), Exact::of(&resolved.right))
    else {
        return false;
    };
    let Some(Exact::Fixed(precision, scale)) = Exact::of(&resolved.result) else {
        return false;
    };
    let (p1, s1, p2, s2) = (i32::from(p1), i32::from(s1), i32::from(p2), i32::from(s2));
    let whole = i32::from(precision) - i32::from(scale);
    match sign {
        Sign::Times => whole >= (p1 - s1) + (p2 - s2) && i32::from(scale) == s1 + s2,
        Sign::Plus | Sign::Minus => whole > (p1 - s1).max(p2 - s2),
        _ => false,
    }
}

fn is_safe_operator(operator: &Operator, right: Option<&Expr>) -> bool {
    match operator.resolved.op {
        Op::Integer(Sign::Over | Sign::Modulo) => nonzero(right),
        Op::Float(Sign::Over) => nonzero(right),
        Op::Numeric(sign) => fits(operator, sign),
        Op::Concat
        | Op::ConcatBytes
        | Op::ConcatArray(_)
        | Op::ConcatJson
        | Op::Bits(_)
        | Op::JsonGet(_)
        | Op::JsonTest(_)
        | Op::ArrayTest(_)
        | Op::StartsWith
        | Op::DateTime
        | Op::TimeInterval(_)
        | Op::TimeDifference => true,
        // A constant pattern was compiled when it was first used, or fails every row alike.
        Op::Regex(_) | Op::Like(_) => is_constant(right),
        _ => false,
    }
}
