//! Nodes of a plan that DataFusion does not have.
//!
//! Each is a `LogicalPlan::Extension`; the lowering of plans and the batch engine find them by downcasting
//! ([`extension`]). Their output columns are their input's, with what they add at the end.

use crate::catalog::RelationId;
use crate::delta::Delta;
use datafusion::common::{DFSchema, DFSchemaRef, Result};
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, Operator, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// INTERSECT or EXCEPT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SetKind {
    /// Rows that are in both.
    Intersect,
    /// Rows of the left one that are not in the right one.
    Except,
}

/// Whether copies count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quantifier {
    /// `ALL`: `min(l, r)` copies of a row for INTERSECT, `max(l - r, 0)` for EXCEPT.
    All,
    /// One copy: if `l > 0` and `r > 0` for INTERSECT, if `l > 0` and `r = 0` for EXCEPT.
    Distinct,
}

/// INTERSECT and EXCEPT over bags. NULLs are equal. Both inputs have the same types; the left one's names count.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SetOperation {
    /// The left input.
    pub left: LogicalPlan,
    /// The right input.
    pub right: LogicalPlan,
    /// Which of the two.
    pub kind: SetKind,
    /// Whether copies count.
    pub quantifier: Quantifier,
    /// The output: the left one's columns, nullable where either is.
    pub schema: DFSchemaRef,
}

/// SESSION windows: the input's rows with a time, and the start and end of their session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionWindow {
    /// The input.
    pub input: LogicalPlan,
    /// What sessions are kept apart by.
    pub keys: Vec<Expr>,
    /// The time, an expression on the input.
    pub time: Expr,
    /// Rows so far apart are in two sessions, in microseconds.
    pub gap_micros: i64,
    /// The number under which refused rows are listed, where there may be a watermark.
    pub label: Option<i64>,
    /// What a view has refused.
    pub refused: Option<Refused>,
    /// The input's columns, `window_start`, `window_end`.
    pub schema: DFSchemaRef,
}

/// Windows over event time: the input's rows, each with the bounds of a window that it is in, without those that came
/// after their window had closed.
///
/// A batch query knows no lateness and leaves the input as it is, unless it is told what a view has refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RefuseLate {
    /// The input: rows with `window_start` and `window_end` in the last columns.
    pub input: LogicalPlan,
    /// The time that the windows are over, an expression on the input.
    pub time: Expr,
    /// The length of the windows, if all have the same.
    pub size_us: Option<i64>,
    /// The number under which refused rows are listed: the same for the same windows over the same input.
    pub label: i64,
    /// What a view has refused.
    pub refused: Option<Refused>,
}

/// What a view has refused, and how far it shows windows.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Pairs of rows and windows, with their weights.
    pub rows: Arc<Delta>,
    /// The end of the last window that is shown, in microseconds; `None` where open ones are shown too.
    pub closed_until: Option<i64>,
}

impl PartialEq for Refused {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.rows, &other.rows) && self.closed_until == other.closed_until
    }
}

impl Eq for Refused {}

impl std::hash::Hash for Refused {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.closed_until.hash(state);
    }
}

/// What is in a window now.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Clause {
    /// `[RANGE r SLIDE d]`: now - r < time <= now, now floored to a multiple of the slide.
    Range {
        /// The length in microseconds.
        length_micros: i64,
        /// The slide in microseconds.
        slide_micros: Option<i64>,
    },
    /// `[PARTITION BY k ROWS n]`: the last n rows of each partition.
    Rows {
        /// How many.
        count: usize,
        /// What rows are partitioned by; nothing: all together.
        partition_by: Vec<Expr>,
    },
    /// `[NOW]`: time = now.
    Now,
    /// `[UNBOUNDED]`: all rows up to now.
    Unbounded,
}

/// A window clause after a relation: the input's rows that are in the window now.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WindowClause {
    /// The input.
    pub input: LogicalPlan,
    /// Which rows.
    pub clause: Clause,
    /// The event time, where the input has one; otherwise rows are ordered by arrival.
    pub time: Option<Expr>,
    /// The stream whose rows may be held to be too far in the future.
    pub stream: Option<RelationId>,
    /// The highest event time that now can be, in microseconds, for a query that is run.
    pub latest: Option<i64>,
}

/// Whether rows of the left side without a partner are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unmatched {
    /// They are dropped (`ASOF JOIN`).
    Dropped,
    /// They are padded with NULLs (`ASOF LEFT JOIN`).
    Padded,
}

/// Each row of the left side with the nearest row of the right side among those of equal keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AsOfJoin {
    /// The left input.
    pub left: LogicalPlan,
    /// The right input.
    pub right: LogicalPlan,
    /// Pairs of expressions, on the left and on the right, that must be equal.
    pub on: Vec<(Expr, Expr)>,
    /// The left side's order.
    pub left_order: Expr,
    /// `>=`, `>`, `<=` or `<` between the left order and the right one: the nearest on that side is met.
    pub operator: Operator,
    /// The right side's order.
    pub right_order: Expr,
    /// What becomes of rows without a partner.
    pub unmatched: Unmatched,
    /// The left one's columns, then the right one's.
    pub schema: DFSchemaRef,
}

/// `t FOR SYSTEM_TIME AS OF now()`: marks the right input of a join as a table that is met as of the row's epoch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TemporalTable {
    /// The table.
    pub input: LogicalPlan,
}

/// The node of type `T` in a plan's extension.
pub fn extension<T: UserDefinedLogicalNode + 'static>(plan: &LogicalPlan) -> Option<&T> {
    match plan {
        LogicalPlan::Extension(Extension { node }) => node.as_any().downcast_ref::<T>(),
        _ => None,
    }
}

/// A plan of one of these nodes.
pub(super) fn plan(node: impl UserDefinedLogicalNode + 'static) -> LogicalPlan {
    LogicalPlan::Extension(Extension { node: Arc::new(node) })
}

/// Nodes are not ordered.
macro_rules! unordered {
    ($($name:ident),*) => {
        $(impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                (self == other).then_some(Ordering::Equal)
            }
        })*
    };
}

unordered!(
    SetOperation,
    SessionWindow,
    RefuseLate,
    WindowClause,
    AsOfJoin,
    TemporalTable
);

fn one(mut inputs: Vec<LogicalPlan>) -> Result<LogicalPlan> {
    inputs
        .pop()
        .ok_or_else(|| datafusion::common::DataFusionError::Internal("an input is missing".to_owned()))
}

fn two(mut inputs: Vec<LogicalPlan>) -> Result<(LogicalPlan, LogicalPlan)> {
    let right = one(inputs.split_off(inputs.len().saturating_sub(1)))?;
    Ok((one(inputs)?, right))
}

impl UserDefinedLogicalNodeCore for SetOperation {
    fn name(&self) -> &str {
        "SetOperation"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "SetOperation: {:?} {:?}", self.kind, self.quantifier)
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let (left, right) = two(inputs)?;
        Ok(Self {
            left,
            right,
            ..self.clone()
        })
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }
}

impl UserDefinedLogicalNodeCore for SessionWindow {
    fn name(&self) -> &str {
        "SessionWindow"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        let mut expressions = self.keys.clone();
        expressions.push(self.time.clone());
        expressions
    }

    /// A filter on what is not a key would change the sessions, and any filter what is told of late rows.
    fn prevent_predicate_push_down_columns(&self) -> std::collections::HashSet<String> {
        let keys: Vec<String> = self
            .keys
            .iter()
            .filter(|_| self.label.is_none())
            .filter_map(|key| match key {
                Expr::Column(column) => Some(column.name.clone()),
                _ => None,
            })
            .collect();
        self.schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .filter(|name| !keys.contains(name))
            .collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "SessionWindow: keys={:?} time={} gap={}us",
            self.keys, self.time, self.gap_micros
        )
    }

    fn with_exprs_and_inputs(&self, mut expressions: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let time = expressions.pop().unwrap_or_else(|| self.time.clone());
        let input = one(inputs)?;
        // The input's columns that nobody asks for are left out; the two of the window stay.
        let own = self.schema.fields().len().saturating_sub(2);
        let fields = input
            .schema()
            .iter()
            .map(|(qualifier, field)| (qualifier.cloned(), field.clone()))
            .chain(self.schema.fields()[own..].iter().map(|field| (None, field.clone())))
            .collect();
        let schema = Arc::new(DFSchema::new_with_metadata(fields, Default::default())?);
        Ok(Self {
            input,
            keys: expressions,
            time,
            schema,
            ..self.clone()
        })
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let own = self.schema.fields().len().saturating_sub(2);
        if self.label.is_some() {
            return Some(vec![(0..own).collect()]);
        }
        Some(vec![
            output_columns.iter().copied().filter(|column| *column < own).collect(),
        ])
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }
}

impl UserDefinedLogicalNodeCore for RefuseLate {
    fn name(&self) -> &str {
        "RefuseLate"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![self.time.clone()]
    }

    /// All rows that are late are told, whatever is asked of the others.
    fn prevent_predicate_push_down_columns(&self) -> std::collections::HashSet<String> {
        let fields = self.input.schema().fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "RefuseLate: time={}", self.time)
    }

    fn with_exprs_and_inputs(&self, mut expressions: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self {
            input: one(inputs)?,
            time: expressions.pop().unwrap_or_else(|| self.time.clone()),
            ..self.clone()
        })
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }
}

impl UserDefinedLogicalNodeCore for WindowClause {
    fn name(&self) -> &str {
        "WindowClause"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        let mut expressions: Vec<Expr> = self.time.iter().cloned().collect();
        if let Clause::Rows { partition_by, .. } = &self.clause {
            expressions.extend(partition_by.iter().cloned());
        }
        expressions
    }

    /// What is in the window depends on all rows.
    fn prevent_predicate_push_down_columns(&self) -> std::collections::HashSet<String> {
        self.input
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "WindowClause: {:?}", self.clause)
    }

    fn with_exprs_and_inputs(&self, mut expressions: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let mut changed = Self {
            input: one(inputs)?,
            ..self.clone()
        };
        if changed.time.is_some() && !expressions.is_empty() {
            changed.time = Some(expressions.remove(0));
        }
        if let Clause::Rows { partition_by, .. } = &mut changed.clause {
            *partition_by = expressions;
        }
        Ok(changed)
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }
}

impl UserDefinedLogicalNodeCore for AsOfJoin {
    fn name(&self) -> &str {
        "AsOfJoin"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        let mut expressions: Vec<Expr> = self
            .on
            .iter()
            .flat_map(|(left, right)| [left.clone(), right.clone()])
            .collect();
        expressions.push(self.left_order.clone());
        expressions.push(self.right_order.clone());
        expressions
    }

    fn prevent_predicate_push_down_columns(&self) -> std::collections::HashSet<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "AsOfJoin: on={:?} {} {} {} {:?}",
            self.on, self.left_order, self.operator, self.right_order, self.unmatched
        )
    }

    fn with_exprs_and_inputs(&self, mut expressions: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let (left, right) = two(inputs)?;
        let right_order = expressions.pop().unwrap_or_else(|| self.right_order.clone());
        let left_order = expressions.pop().unwrap_or_else(|| self.left_order.clone());
        let on = expressions
            .chunks_exact(2)
            .map(|pair| (pair[0].clone(), pair[1].clone()))
            .collect();
        Ok(Self {
            left,
            right,
            on,
            left_order,
            right_order,
            ..self.clone()
        })
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }
}

impl UserDefinedLogicalNodeCore for TemporalTable {
    fn name(&self) -> &str {
        "TemporalTable"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("TemporalTable")
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self { input: one(inputs)? })
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![output_columns.to_vec()])
    }
}
