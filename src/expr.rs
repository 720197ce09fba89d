//! Scalar expressions: the only home of DataFusion's.
//!
//! A plan holds an [`Expression`]: a logical expression whose columns are positions (`#0`, `#1`, ...), so that two
//! views that name their columns differently still have equal expressions. [`Expression::compile`] makes it run, and
//! [`Compiled::evaluate`] is where **row errors are born**: when a batch fails, it is split until each failing row
//! stands alone, and those rows are reported instead of failing the rest.

use crate::error::{Error, Result};
use crate::types::Type;
use arrow::array::{Array, ArrayRef, BooleanArray, new_null_array};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, DataFusionError, ScalarValue};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, Operator, Volatility};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use std::sync::Arc;

/// A scalar expression over a relation's columns by position.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Expression {
    expr: Expr,
    field: FieldRef,
}

impl Expression {
    /// Binds a logical expression to the positions of `input`'s columns.
    pub fn bind(expr: &Expr, input: &DFSchema) -> Result<Self> {
        let field = expr.to_field(input).map_err(from_datafusion)?.1;
        let bound = expr
            .clone()
            .transform(|node| match node {
                Expr::Column(column) => {
                    let index = input.index_of_column(&column)?;
                    Ok(Transformed::yes(position(index)))
                }
                Expr::Alias(alias) => Ok(Transformed::yes(*alias.expr)),
                other => Ok(Transformed::no(other)),
            })
            .data()
            .map_err(from_datafusion)?;
        Ok(Self {
            expr: bound,
            field: strip_name(&field),
        })
    }

    /// The expression that is the column at `index`.
    pub fn column(index: usize, field: &Field) -> Self {
        Self {
            expr: position(index),
            field: strip_name(&Arc::new(field.clone())),
        }
    }

    /// The position, if the expression is just a column.
    pub fn as_column(&self) -> Option<usize> {
        match &self.expr {
            Expr::Column(column) => index_of(column),
            _ => None,
        }
    }

    /// The logical expression, its columns named by position.
    pub fn logical(&self) -> &Expr {
        &self.expr
    }

    /// The Arrow field of the result, without a name.
    pub fn field(&self) -> &FieldRef {
        &self.field
    }

    /// The type of the result.
    pub fn kind(&self) -> Type {
        Type::of_field(&self.field)
    }

    /// The positions of the columns that it reads.
    pub fn columns(&self) -> Vec<usize> {
        let mut found: Vec<usize> = self.expr.column_refs().into_iter().filter_map(index_of).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// How many times the column stands in it.
    pub fn count_column(&self, wanted: usize) -> usize {
        let mut count = 0;
        let _ = self.expr.apply(|node| {
            if matches!(node, Expr::Column(column) if index_of(column) == Some(wanted)) {
                count += 1;
            }
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        });
        count
    }

    /// The same expression over columns at other positions.
    #[must_use]
    pub fn remap(&self, to: impl Fn(usize) -> usize) -> Self {
        let expr = self
            .expr
            .clone()
            .transform(|node| match &node {
                Expr::Column(column) => match index_of(column) {
                    Some(index) => Ok(Transformed::yes(position(to(index)))),
                    None => Ok(Transformed::no(node)),
                },
                _ => Ok(Transformed::no(node)),
            })
            .data()
            .unwrap_or_else(|_| self.expr.clone());
        Self {
            expr,
            field: self.field.clone(),
        }
    }

    /// The same expression with each column replaced by an expression: `self` after `inputs`.
    #[must_use]
    pub fn compose(&self, inputs: &[Self]) -> Self {
        let expr = self
            .expr
            .clone()
            .transform(|node| match &node {
                Expr::Column(column) => match index_of(column) {
                    // Jump: what was put in already speaks of the input's columns.
                    Some(index) => Ok(Transformed::new(
                        inputs[index].expr.clone(),
                        true,
                        datafusion::common::tree_node::TreeNodeRecursion::Jump,
                    )),
                    None => Ok(Transformed::no(node)),
                },
                _ => Ok(Transformed::no(node)),
            })
            .data()
            .unwrap_or_else(|_| self.expr.clone());
        Self {
            expr,
            field: self.field.clone(),
        }
    }

    /// The fields of a struct, each an expression of its own.
    pub fn fields(&self) -> Result<Vec<Self>> {
        let DataType::Struct(fields) = self.field.data_type() else {
            return Err(Error::internal("fields of what is no struct"));
        };
        Ok(fields
            .iter()
            .map(|field| Self {
                expr: datafusion::functions::core::expr_ext::FieldAccessor::field(
                    self.expr.clone(),
                    field.name().as_str(),
                ),
                field: strip_name(field),
            })
            .collect())
    }

    /// Whether the result depends on the columns alone.
    pub fn is_deterministic(&self) -> bool {
        let mut deterministic = true;
        let _ = self.expr.apply(|node| {
            if let Expr::ScalarFunction(call) = node
                && call.func.signature().volatility == Volatility::Volatile
            {
                deterministic = false;
            }
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        });
        deterministic
    }

    /// The constant of that value; the field says its type, which the value's must be.
    pub fn literal(value: ScalarValue, field: &Field) -> Self {
        Self {
            expr: Expr::Literal(
                value,
                Some(FieldMetadata::from(field)).filter(|metadata| !metadata.is_empty()),
            ),
            field: strip_name(&Arc::new(field.clone())),
        }
    }

    /// NULL, of the type of a field.
    pub fn null(field: &Field) -> Result<Self> {
        let value = ScalarValue::try_from(field.data_type()).map_err(from_datafusion)?;
        Ok(Self::literal(value, field))
    }

    /// The expression cast, by Arrow, to a field's type.
    #[must_use]
    pub fn cast(self, field: &Field) -> Self {
        if self.field.data_type() == field.data_type() {
            return Self {
                expr: self.expr,
                field: strip_name(&Arc::new(field.clone())),
            };
        }
        Self {
            expr: Expr::Cast(Cast::new(Box::new(self.expr), field.data_type().clone())),
            field: strip_name(&Arc::new(field.clone())),
        }
    }

    /// What must all be true, if the expression is a conjunction; else itself.
    pub fn conjuncts(&self) -> Vec<Self> {
        split_conjunction(&self.expr)
            .into_iter()
            .map(|expr| Self {
                expr: expr.clone(),
                field: self.field.clone(),
            })
            .collect()
    }

    /// All of the predicates at once, the first of them first; `None` if there is none.
    pub fn all(predicates: impl IntoIterator<Item = Self>) -> Option<Self> {
        predicates.into_iter().reduce(|first, second| Self {
            expr: first.expr.and(second.expr),
            field: first.field,
        })
    }

    /// Whether there may be a row for which it fails. Where nothing is known it says yes.
    pub fn can_fail(&self) -> bool {
        self.expr.exists(|node| Ok(!never_fails(node))).unwrap_or(true)
    }

    /// If it compares a column with an integer: the column, how, and the integer.
    pub fn comparison(&self) -> Option<(usize, Operator, i64)> {
        let Expr::BinaryExpr(binary) = &self.expr else {
            return None;
        };
        let column = |expr: &Expr| match expr {
            Expr::Column(column) => index_of(column),
            _ => None,
        };
        match (column(&binary.left), column(&binary.right)) {
            (Some(index), None) => Some((index, binary.op, integer(&binary.right)?)),
            (None, Some(index)) => Some((index, binary.op.swap()?, integer(&binary.left)?)),
            _ => None,
        }
    }

    /// The name of the function that it calls, if it is a call.
    pub fn function(&self) -> Option<&str> {
        match &self.expr {
            Expr::ScalarFunction(call) => Some(call.func.name()),
            _ => None,
        }
    }

    /// The column and the shift in microseconds, if it is a time's column plus or minus a constant interval.
    pub fn as_shifted_column(&self) -> Option<(usize, i64)> {
        if let Some(column) = self.as_column() {
            return Some((column, 0));
        }
        let Expr::ScalarFunction(call) = &self.expr else {
            return None;
        };
        let sign = match call.func.name() {
            "+" => 1,
            "-" => -1,
            _ => return None,
        };
        let [
            Expr::Column(column),
            Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _),
        ] = call.args.as_slice()
        else {
            return None;
        };
        if interval.months != 0 || !matches!(self.field.data_type(), DataType::Timestamp(..)) {
            return None;
        }
        let days = i64::from(interval.days).checked_mul(86_400_000_000)?;
        let micros = days.checked_add(interval.nanoseconds / 1000)?.checked_mul(sign)?;
        Some((index_of(column)?, micros))
    }

    /// Its text, with the columns under these names.
    pub fn text(&self, names: &[String]) -> String {
        let named = self.expr.clone().transform(|node| match &node {
            Expr::Column(column) => Ok(match index_of(column).and_then(|index| names.get(index)) {
                Some(name) => Transformed::yes(Expr::Column(Column::new_unqualified(name.clone()))),
                None => Transformed::no(node),
            }),
            _ => Ok(Transformed::no(node)),
        });
        named
            .data()
            .map_or_else(|_| self.to_string(), |expr| expr.human_display().to_string())
    }

    /// Makes it ready to run over batches of the input's schema.
    pub fn compile(&self, input: &SchemaRef) -> Result<Compiled> {
        let named = positional_schema(input);
        let schema = DFSchema::try_from(named.as_ref().clone()).map_err(from_datafusion)?;
        let physical = create_physical_expr(
            &self.expr,
            &schema,
            &ExecutionProps::new(),
            &PhysicalPlanningContext::default(),
        )
        .map_err(from_datafusion)?;
        Ok(Compiled {
            physical,
            input: named,
            output: self.field.data_type().clone(),
        })
    }
}

impl std::fmt::Display for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.expr)
    }
}

/// An expression that runs.
#[derive(Debug, Clone)]
pub struct Compiled {
    physical: Arc<dyn PhysicalExpr>,
    input: SchemaRef,
    output: DataType,
}

/// A row for which an expression failed.
#[derive(Debug, Clone, PartialEq)]
pub struct RowFailure {
    /// The row's position in the batch.
    pub row: usize,
    /// What went wrong.
    pub error: Error,
}

impl Compiled {
    /// The results for all rows; rows that fail are NULL in the result and listed.
    pub fn evaluate(&self, rows: &RecordBatch) -> Result<(ArrayRef, Vec<RowFailure>)> {
        let named = rename(rows, &self.input)?;
        match self.run(&named) {
            Ok(values) => Ok((values, Vec::new())),
            Err(_) => {
                let mut failures = Vec::new();
                let values = self.isolate(&named, 0, &mut failures)?;
                Ok((values, failures))
            }
        }
    }

    /// The rows for which the predicate is true, and those for which it failed.
    pub fn filter(&self, rows: &RecordBatch) -> Result<(BooleanArray, Vec<RowFailure>)> {
        let (values, failures) = self.evaluate(rows)?;
        let values = arrow::array::AsArray::as_boolean(&values).clone();
        let values = if values.null_count() == 0 {
            values
        } else {
            arrow::compute::prep_null_mask_filter(&values)
        };
        Ok((values, failures))
    }

    fn run(&self, rows: &RecordBatch) -> Result<ArrayRef> {
        let value = self
            .physical
            .evaluate(rows)
            .and_then(|value| value.into_array(rows.num_rows()))
            .map_err(from_datafusion)?;
        if value.data_type() == &self.output {
            return Ok(value);
        }
        Ok(arrow::compute::cast(&value, &self.output)?)
    }

    /// Halves the batch until the failing rows stand alone.
    fn isolate(&self, rows: &RecordBatch, offset: usize, failures: &mut Vec<RowFailure>) -> Result<ArrayRef> {
        match self.run(rows) {
            Ok(values) => Ok(values),
            Err(error) if rows.num_rows() == 1 => {
                failures.push(RowFailure { row: offset, error });
                Ok(new_null_array(&self.output, 1))
            }
            Err(_) => {
                let half = rows.num_rows() / 2;
                let left = self.isolate(&rows.slice(0, half), offset, failures)?;
                let rest = rows.slice(half, rows.num_rows() - half);
                let right = self.isolate(&rest, offset + half, failures)?;
                Ok(concat(&[left.as_ref(), right.as_ref()])?)
            }
        }
    }
}

/// Our error behind a DataFusion error: ours if one travelled inside, else one by what happened.
pub fn from_datafusion(error: DataFusionError) -> Error {
    match error {
        DataFusionError::External(inner) => match inner.downcast::<Error>() {
            Ok(own) => *own,
            Err(inner) => match inner.downcast::<DataFusionError>() {
                Ok(nested) => from_datafusion(*nested),
                Err(other) => Error::internal(other.to_string()),
            },
        },
        DataFusionError::ArrowError(inner, _) => Error::from(*inner),
        DataFusionError::Context(_, inner) => from_datafusion(*inner),
        DataFusionError::Diagnostic(_, inner) => from_datafusion(*inner),
        DataFusionError::Shared(inner) => match Arc::try_unwrap(inner) {
            Ok(inner) => from_datafusion(inner),
            Err(shared) => find_own(&shared).unwrap_or_else(|| Error::internal(shared.to_string())),
        },
        DataFusionError::ResourcesExhausted(text) => Error::limit("53200", text),
        DataFusionError::NotImplemented(text) => Error::unsupported(text),
        DataFusionError::Execution(text) if text.contains("Scalar subquery returned more than one row") => {
            Error::semantic(
                "21000",
                "more than one row returned by a subquery used as an expression",
            )
        }
        DataFusionError::Execution(text) => match text
            .strip_prefix("Placeholder '")
            .and_then(|rest| rest.split_once('\''))
        {
            Some((name, _)) => Error::semantic("42P02", format!("there is no parameter {name}")),
            None => Error::semantic("22000", text),
        },
        other => Error::internal(other.strip_backtrace()),
    }
}

fn find_own(error: &DataFusionError) -> Option<Error> {
    match error {
        DataFusionError::External(inner) => inner.downcast_ref::<Error>().cloned(),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => find_own(inner),
        DataFusionError::Shared(inner) => find_own(inner),
        _ => None,
    }
}

/// Functions that give a value for every argument of their types.
const NEVER_FAIL: &[&str] = &[
    "float_key",
    "interval_key",
    "has_window",
    "tumble_start",
    "tumble_end",
    "hop_starts",
    "hop_end",
    "cumulate_windows",
    "coalesce",
    "nullif",
    "greatest",
    "least",
    "lower",
    "upper",
    "concat",
    "concat_ws",
    "starts_with",
    "get_field",
    "length",
    "char_length",
    "character_length",
    "octet_length",
    "md5",
    "sha256",
    "trim",
    "btrim",
    "ltrim",
    "rtrim",
    "replace",
    "strpos",
    "position",
    "now",
];

/// Whether a node of an expression gives a value whatever its parts give.
fn never_fails(node: &Expr) -> bool {
    match node {
        Expr::Column(_)
        | Expr::Literal(..)
        | Expr::Alias(_)
        | Expr::Not(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotUnknown(_)
        | Expr::Between(_)
        | Expr::InList(_)
        | Expr::Case(_) => true,
        Expr::BinaryExpr(binary) => {
            use Operator::{And, Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq, Or};
            matches!(
                binary.op,
                And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom
            )
        }
        Expr::Like(like) => match like.pattern.as_ref() {
            Expr::Literal(ScalarValue::Utf8(Some(pattern)), _) => !pattern.ends_with('\\'),
            _ => false,
        },
        // Of Arrow's own casts the binder leaves those alone to a wider number.
        Expr::Cast(cast) => {
            use DataType::{Float32, Float64, Int32, Int64};
            let is_null = matches!(cast.expr.as_ref(), Expr::Literal(value, _) if value.is_null());
            is_null || matches!(cast.field.data_type(), Int32 | Int64 | Float32 | Float64)
        }
        Expr::ScalarFunction(call) => NEVER_FAIL.contains(&call.func.name()),
        _ => false,
    }
}

fn integer(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::Int16(value), _) => value.map(i64::from),
        Expr::Literal(ScalarValue::Int32(value), _) => value.map(i64::from),
        Expr::Literal(ScalarValue::Int64(value), _) => *value,
        Expr::Literal(ScalarValue::UInt64(value), _) => value.and_then(|value| i64::try_from(value).ok()),
        _ => None,
    }
}

fn position(index: usize) -> Expr {
    Expr::Column(Column::new_unqualified(format!("#{index}")))
}

fn index_of(column: &Column) -> Option<usize> {
    column.name.strip_prefix('#')?.parse().ok()
}

fn strip_name(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_name(""))
}

/// The schema with columns named by position.
pub fn positional_schema(schema: &SchemaRef) -> SchemaRef {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .enumerate()
        .map(|(index, field)| {
            field
                .as_ref()
                .clone()
                .with_name(format!("#{index}"))
                .with_nullable(true)
        })
        .collect();
    Arc::new(Schema::new(fields))
}

fn rename(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    crate::delta::batch_of(schema.clone(), rows.columns().to_vec(), rows.num_rows())
}
