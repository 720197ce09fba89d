//! Filters on `now()`: rows that come and go as the clock passes.
//!
//! A comparison with the clock can be maintained where it turns at most once for a row. That is so where the difference
//! of its sides only ever rises, or only falls: `now()` rises, and so does what is made of it by adding and taking away
//! what the row or a constant says, by a cast, or by cutting it to a unit. Anywhere else the clock is refused.

use super::Lowering;
use crate::error::{Error, Result};
use crate::operator::clock::{ClockFilter, Truth, Turning};
use crate::plan::{Node, NodeId};
use crate::sql::bind::is_now;
use crate::types::{Nullability, Type};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Case, Expr, ExprSchemable, Operator};
use std::sync::Arc;

/// The name of the column that holds the clock.
const CLOCK: &str = "__clock";

/// Whether the view's time zone has days of one length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Zone {
    /// It is UTC.
    #[default]
    Utc,
    /// It may not.
    Other,
}

/// How a value changes as the clock passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slope {
    Flat,
    Rises,
    Falls,
}

impl Slope {
    fn turned(self) -> Self {
        match self {
            Self::Flat => Self::Flat,
            Self::Rises => Self::Falls,
            Self::Falls => Self::Rises,
        }
    }

    /// That of a sum; `None` where one part rises and the other falls.
    fn plus(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Flat, slope) | (slope, Self::Flat) => Some(slope),
            (a, b) => (a == b).then_some(a),
        }
    }
}

/// Whether an expression asks the clock.
pub(super) fn asks_clock(expr: &Expr) -> bool {
    expr.exists(|node| Ok(is_now(node))).unwrap_or(true)
}

impl Lowering {
    /// The rows for which all of the conditions, each of which asks the clock, are true.
    pub(super) fn keep_by_clock(&mut self, input: NodeId, conditions: &[Expr], schema: &DFSchema) -> Result<NodeId> {
        let clock = Arc::new(Type::Timestamptz(None).field(CLOCK, Nullability::NotNull));
        let fields = schema.iter().map(|(table, field)| (table.cloned(), field.clone()));
        let fields = fields.chain([(None, clock)]).collect();
        let clocked = DFSchema::new_with_metadata(fields, Default::default()).map_err(crate::expr::from_datafusion)?;
        let parts = conditions.iter().map(|condition| self.truth(condition, &clocked));
        let mut parts = parts.collect::<Result<Vec<_>>>()?;
        let predicate = match parts.pop() {
            Some(only) if parts.is_empty() => only,
            last => Truth::All(parts.into_iter().chain(last).collect()),
        };
        self.add(Node::ClockFilter(ClockFilter { predicate }), vec![input])
    }

    fn truth(&self, expr: &Expr, schema: &DFSchema) -> Result<Truth> {
        if !asks_clock(expr) {
            let timeless = self.bind(expr, schema)?;
            // Whether it is asked at all may depend on the clock.
            if timeless.can_fail() {
                return Err(Error::unsupported(
                    "a condition that can fail beside one on now() is not supported in a maintained view",
                )
                .with_hint("Compute it in a subquery below."));
            }
            return Ok(Truth::Always(timeless));
        }
        match expr {
            Expr::Case(case) if guarded(case).is_some() => match guarded(case) {
                Some(inner) => self.truth(inner, schema),
                None => Err(refused()),
            },
            Expr::Alias(alias) => self.truth(&alias.expr, schema),
            Expr::Not(inner) => Ok(Truth::Not(Box::new(self.truth(inner, schema)?))),
            Expr::Between(between) => {
                let edge = |op, edge: &Expr| {
                    Expr::BinaryExpr(BinaryExpr::new(between.expr.clone(), op, Box::new(edge.clone())))
                };
                let within = Truth::All(vec![
                    self.truth(&edge(Operator::GtEq, &between.low), schema)?,
                    self.truth(&edge(Operator::LtEq, &between.high), schema)?,
                ]);
                Ok(if between.negated {
                    Truth::Not(Box::new(within))
                } else {
                    within
                })
            }
            Expr::BinaryExpr(binary) => match binary.op {
                Operator::And | Operator::Or => {
                    let parts = vec![self.truth(&binary.left, schema)?, self.truth(&binary.right, schema)?];
                    Ok(if binary.op == Operator::And {
                        Truth::All(parts)
                    } else {
                        Truth::Any(parts)
                    })
                }
                _ => self.comparison(binary, schema),
            },
            _ => Err(refused()),
        }
    }

    fn comparison(&self, binary: &BinaryExpr, schema: &DFSchema) -> Result<Truth> {
        let with = |op| BinaryExpr { op, ..binary.clone() };
        let equal = || {
            Ok::<_, Error>(Truth::All(vec![
                self.comparison(&with(Operator::GtEq), schema)?,
                self.comparison(&with(Operator::LtEq), schema)?,
            ]))
        };
        let greater = match binary.op {
            Operator::Gt | Operator::GtEq => true,
            Operator::Lt | Operator::LtEq => false,
            Operator::Eq => return equal(),
            Operator::NotEq => return Ok(Truth::Not(Box::new(equal()?))),
            _ => return Err(refused()),
        };
        let left = self.slope(&binary.left, schema).ok_or_else(refused)?;
        let right = self.slope(&binary.right, schema).ok_or_else(refused)?;
        let turning = match (left.plus(right.turned()).ok_or_else(refused)?, greater) {
            (Slope::Rises, true) | (Slope::Falls, false) => Turning::True,
            (Slope::Falls, true) | (Slope::Rises, false) => Turning::False,
            (Slope::Flat, _) => return Err(refused()),
        };
        let clock = Expr::Column(Column::new_unqualified(CLOCK));
        let clocked = Expr::BinaryExpr(binary.clone())
            .transform(|node| {
                Ok(if is_now(&node) {
                    Transformed::yes(clock.clone())
                } else {
                    Transformed::no(node)
                })
            })
            .data()
            .map_err(crate::expr::from_datafusion)?;
        Ok(Truth::Turns(self.bind(&clocked, schema)?, turning))
    }

    /// How an expression changes as the clock passes; `None` where that is not known.
    fn slope(&self, expr: &Expr, schema: &DFSchema) -> Option<Slope> {
        if is_now(expr) {
            return Some(Slope::Rises);
        }
        if !asks_clock(expr) {
            return Some(Slope::Flat);
        }
        match expr {
            Expr::Alias(alias) => self.slope(&alias.expr, schema),
            Expr::Cast(cast) => self.slope(&cast.expr, schema),
            Expr::BinaryExpr(binary) => self.sum(binary.op == Operator::Plus, &binary.left, &binary.right, schema),
            Expr::ScalarFunction(ScalarFunction { func, args }) => match (func.name(), args.as_slice()) {
                ("+", [left, right]) => self.sum(true, left, right, schema),
                ("-", [left, right]) => self.sum(false, left, right, schema),
                ("interval_key", [inner]) => self.slope(inner, schema),
                ("date_trunc", [unit, inner]) if !asks_clock(unit) => self.slope(inner, schema),
                ("cast", [inner, ..]) => {
                    // Where clocks are put back, local time comes twice.
                    let local = |expr: &Expr| {
                        let kind = expr.get_type(schema).ok()?;
                        Some(!matches!(kind, DataType::Timestamp(_, Some(_))))
                    };
                    let becomes_local = !local(inner)? && local(expr)?;
                    if becomes_local && self.options.zone == Zone::Other {
                        return None;
                    }
                    self.slope(inner, schema)
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn sum(&self, adds: bool, left: &Expr, right: &Expr, schema: &DFSchema) -> Option<Slope> {
        let (left, right) = (self.slope(left, schema)?, self.slope(right, schema)?);
        left.plus(if adds { right } else { right.turned() })
    }
}

/// What `CASE WHEN a IS TRUE THEN true ELSE a OR b END`, and the same with AND, stands for: it keeps b from failing
/// where a decides.
fn guarded(case: &Case) -> Option<&Expr> {
    let ([(when, then)], Some(otherwise), None) = (case.when_then_expr.as_slice(), &case.else_expr, &case.expr) else {
        return None;
    };
    let Expr::BinaryExpr(binary) = otherwise.as_ref() else {
        return None;
    };
    let decided = match (when.as_ref(), binary.op) {
        (Expr::IsTrue(first), Operator::Or) => Some((first, true)),
        (Expr::IsFalse(first), Operator::And) => Some((first, false)),
        _ => None,
    };
    let (first, value) = decided?;
    let literal = Expr::Literal(ScalarValue::Boolean(Some(value)), None);
    (*first == binary.left && **then == literal).then_some(otherwise)
}

/// The error for the clock where it cannot be maintained.
pub(super) fn refused() -> Error {
    Error::unsupported("now() is not supported in this place of a maintained view").with_hint(
        "Compare it with a time in WHERE, each side changing in one direction: WHERE ts > now() - INTERVAL '1 hour'.",
    )
}
