//! Expressions that can fail stay where they were written.
//!
//! DataFusion's rules take it that computing an expression does no harm: they push `a / b > 1` below a join, turn
//! `CASE WHEN b = 0 THEN false ELSE a / b > 1 END` into ANDs and ORs, and evaluate both sides of an AND. Where the
//! expression can fail on a row, that row then fails a query that would not have looked at it.
//!
//! [`protect`] puts what can fail behind nodes and calls that the rules do not look into, [`expose`] takes those away
//! again once the rules have run:
//!
//! | written | protected as |
//! |---|---|
//! | a filter's condition that can fail | a [`Fence`] above the filter's other conditions |
//! | `p AND q`, q can fail | `CASE WHEN p IS FALSE THEN false ELSE p AND q END` |
//! | `p OR q`, q can fail | `CASE WHEN p IS TRUE THEN true ELSE p OR q END` |
//! | a boolean CASE of parts that can fail | the same over integers, so that it is not taken for logic |
//! | a projection that can fail | a call that may not be inlined into a filter |
//! | a group's key that can fail | a projection below |

use super::node::{self, extension};
use crate::error::Result;
use crate::sql::error::from_datafusion;
use crate::sql::function::can_fail;
use arrow::array::{ArrayRef, AsArray, BooleanArray, Int8Array};
use arrow::datatypes::{DataType, FieldRef, Int8Type};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result as DataFusionResult};
use datafusion::logical_expr::expr::{BinaryExpr, Case, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction_owned};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, UserDefinedLogicalNodeCore, Volatility,
    lit,
};
use std::cmp::Ordering;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// A filter that nothing passes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Fence {
    input: LogicalPlan,
    predicate: Expr,
}

impl PartialOrd for Fence {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for Fence {
    fn name(&self) -> &str {
        "Fence"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![self.predicate.clone()]
    }

    fn prevent_predicate_push_down_columns(&self) -> std::collections::HashSet<String> {
        self.input
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Fence: {}", self.predicate)
    }

    fn with_exprs_and_inputs(&self, mut exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> DataFusionResult<Self> {
        Ok(Self {
            input: inputs.pop().unwrap_or_else(|| self.input.clone()),
            predicate: exprs.pop().unwrap_or_else(|| self.predicate.clone()),
        })
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![output_columns.to_vec()])
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }
}

/// What a call stands for while the rules run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Veil {
    /// A boolean as an integer.
    Flag,
    /// An integer as a boolean.
    Truth,
    /// The value itself; volatile, so that it is not inlined or repeated.
    Fragile,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Veiled {
    veil: Veil,
    signature: Signature,
}

static FLAG: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| veiled(Veil::Flag));
static TRUTH: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| veiled(Veil::Truth));
static FRAGILE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| veiled(Veil::Fragile));

fn veiled(veil: Veil) -> Arc<ScalarUDF> {
    let volatility = if veil == Veil::Fragile {
        Volatility::Volatile
    } else {
        Volatility::Immutable
    };
    Arc::new(ScalarUDF::new_from_impl(Veiled {
        veil,
        signature: Signature::new(TypeSignature::Any(1), volatility),
    }))
}

fn call(function: &Arc<ScalarUDF>, expr: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(function.clone(), vec![expr]))
}

impl ScalarUDFImpl for Veiled {
    fn name(&self) -> &str {
        match self.veil {
            Veil::Flag => "__flag",
            Veil::Truth => "__truth",
            Veil::Fragile => "__fragile",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        Ok(match self.veil {
            Veil::Flag => DataType::Int8,
            Veil::Truth => DataType::Boolean,
            Veil::Fragile => types.first().cloned().unwrap_or(DataType::Null),
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let given = args
            .arg_fields
            .first()
            .cloned()
            .unwrap_or_else(|| Arc::new(arrow::datatypes::Field::new("value", DataType::Null, true)));
        let data_type = self.return_type(&[given.data_type().clone()])?;
        Ok(Arc::new(given.as_ref().clone().with_data_type(data_type)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (arrays, shape) = crate::sql::function::kernel::expand(&args)?;
        let array: ArrayRef = match (self.veil, arrays.first()) {
            (Veil::Flag, Some(array)) if array.data_type() == &DataType::Boolean => Arc::new(
                array
                    .as_boolean()
                    .iter()
                    .map(|value| value.map(i8::from))
                    .collect::<Int8Array>(),
            ),
            (Veil::Truth, Some(array)) if array.data_type() == &DataType::Int8 => Arc::new(
                array
                    .as_primitive::<Int8Type>()
                    .iter()
                    .map(|value| value.map(|value| value != 0))
                    .collect::<BooleanArray>(),
            ),
            (Veil::Flag, _) => arrow::array::new_null_array(&DataType::Int8, args.number_rows.max(1)),
            (Veil::Truth, _) => arrow::array::new_null_array(&DataType::Boolean, args.number_rows.max(1)),
            (Veil::Fragile, Some(array)) => array.clone(),
            (Veil::Fragile, None) => arrow::array::new_null_array(&DataType::Null, args.number_rows.max(1)),
        };
        crate::sql::function::kernel::columnar(array, shape)
    }
}

/// A CASE of booleans that is not taken for logic.
fn opaque_case(case: Case) -> Expr {
    let flag = |expr: Box<Expr>| Box::new(call(&FLAG, *expr));
    let hidden = Case {
        expr: case.expr,
        when_then_expr: case
            .when_then_expr
            .into_iter()
            .map(|(when, then)| (when, flag(then)))
            .collect(),
        else_expr: case.else_expr.map(flag),
    };
    call(&TRUTH, Expr::Case(hidden))
}

fn is_boolean_case(case: &Case, schema: &DFSchema) -> bool {
    case.when_then_expr
        .iter()
        .map(|(_, then)| then.as_ref())
        .chain(case.else_expr.as_deref())
        .any(|result| matches!(result.get_type(schema), Ok(DataType::Boolean)))
}

/// An expression whose parts are guarded already.
fn guard(expr: Expr, schema: &DFSchema) -> Expr {
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::And | Operator::Or),
            right,
        }) if can_fail(&right) => {
            let (when, then) = match op {
                Operator::And => (Expr::IsFalse(left.clone()), lit(false)),
                _ => (Expr::IsTrue(left.clone()), lit(true)),
            };
            opaque_case(Case {
                expr: None,
                when_then_expr: vec![(Box::new(when), Box::new(then))],
                else_expr: Some(Box::new(Expr::BinaryExpr(BinaryExpr { left, op, right }))),
            })
        }
        Expr::Case(case) if is_boolean_case(&case, schema) && can_fail(&Expr::Case(case.clone())) => opaque_case(case),
        other => other,
    }
}

fn looks_outside(expr: &Expr) -> bool {
    let mut found = false;
    let _ = expr.apply(|expr| {
        found |= matches!(
            expr,
            Expr::OuterReferenceColumn(..)
                | Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
        );
        Ok(if found {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    });
    found
}

/// Guards the parts of an expression that only some rows may reach.
fn guarded(expr: Expr, schema: &DFSchema) -> DataFusionResult<Expr> {
    if !can_fail(&expr) {
        return Ok(expr);
    }
    Ok(expr
        .transform_up(|expr| Ok(Transformed::yes(guard(expr, schema))))?
        .data)
}

/// Puts what can fail out of the rules' reach.
pub(super) fn protect(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let preserver = NamePreserver::new(&node);
        let filter = matches!(node, LogicalPlan::Filter(_));
        let schema = merge_schema(&node.inputs());
        let node = node
            .map_expressions(|expr| {
                let name = preserver.save(&expr);
                // A filter's conditions are taken apart before they are guarded.
                let guarded = if filter { expr } else { guarded(expr, &schema)? };
                Ok(Transformed::yes(name.restore(guarded)))
            })?
            .data;
        let node = match node {
            LogicalPlan::Filter(filter) => fenced(filter)?,
            LogicalPlan::Projection(projection) => {
                let exprs = projection.expr.into_iter().map(fragile).collect::<Vec<_>>();
                LogicalPlanBuilder::from(projection.input).project(exprs)?.build()?
            }
            LogicalPlan::Aggregate(aggregate) => keys_below(aggregate)?,
            other => other,
        };
        Ok(Transformed::yes(node))
    })
    .map(|transformed| transformed.data)
    .map_err(from_datafusion)
}

fn fenced(filter: Filter) -> DataFusionResult<LogicalPlan> {
    let (failing, safe): (Vec<Expr>, Vec<Expr>) = split_conjunction_owned(filter.predicate)
        .into_iter()
        .partition(|term| can_fail(term) && !looks_outside(term));
    let mut plan = Arc::unwrap_or_clone(filter.input);
    let schema = plan.schema().clone();
    if let Some(predicate) = conjunction(safe) {
        let predicate = guarded(predicate, &schema)?;
        plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(plan))?);
    }
    if let Some(predicate) = conjunction(failing) {
        let predicate = guarded(predicate, &schema)?;
        plan = node::plan(Fence { input: plan, predicate });
    }
    Ok(plan)
}

/// A projected expression that may not be inlined where it would see other rows.
fn fragile(expr: Expr) -> Expr {
    if !can_fail(&expr) || looks_outside(&expr) {
        return expr;
    }
    let preserver = NamePreserver::new_for_projection();
    let name = preserver.save(&expr);
    name.restore(call(&FRAGILE, expr.unalias()))
}

/// Keys that can fail are computed in a projection of their own, past which no filter goes.
fn keys_below(aggregate: datafusion::logical_expr::Aggregate) -> DataFusionResult<LogicalPlan> {
    let plain = |expr: &Expr| !matches!(expr, Expr::GroupingSet(_)) && can_fail(expr);
    if !aggregate.group_expr.iter().any(plain) {
        return Ok(LogicalPlan::Aggregate(aggregate));
    }
    let mut below: Vec<Expr> = aggregate
        .input
        .schema()
        .columns()
        .into_iter()
        .map(Expr::Column)
        .collect();
    let mut keys = Vec::with_capacity(aggregate.group_expr.len());
    for (index, key) in aggregate.group_expr.iter().enumerate() {
        if !plain(key) {
            keys.push(key.clone());
            continue;
        }
        let name = format!("__key{index}");
        let (qualifier, shown) = key.qualified_name();
        below.push(call(&FRAGILE, key.clone().unalias()).alias(&name));
        keys.push(Expr::Column(Column::from_name(name)).alias_qualified(qualifier, shown));
    }
    LogicalPlanBuilder::from(aggregate.input)
        .project(below)?
        .aggregate(keys, aggregate.aggr_expr)?
        .build()
}

fn unveil(expr: Expr) -> Transformed<Expr> {
    if let Expr::ScalarFunction(function) = &expr
        && let Some(veiled) = function.func.inner().downcast_ref::<Veiled>()
        && let [inner] = function.args.as_slice()
    {
        match veiled.veil {
            Veil::Fragile => return Transformed::yes(inner.clone()),
            Veil::Truth => {
                if let Expr::Case(case) = inner
                    && let Some(plain) = unflagged(case)
                {
                    return Transformed::yes(plain);
                }
                if let Expr::ScalarFunction(flag) = inner
                    && flag
                        .func
                        .inner()
                        .downcast_ref::<Veiled>()
                        .is_some_and(|veiled| veiled.veil == Veil::Flag)
                    && let [plain] = flag.args.as_slice()
                {
                    return Transformed::yes(plain.clone());
                }
            }
            Veil::Flag => {}
        }
    }
    Transformed::no(expr)
}

/// The CASE of booleans that a CASE of flags stands for.
fn unflagged(case: &Case) -> Option<Expr> {
    let plain = |expr: &Expr| -> Option<Box<Expr>> {
        match expr {
            Expr::ScalarFunction(function)
                if function
                    .func
                    .inner()
                    .downcast_ref::<Veiled>()
                    .is_some_and(|veiled| veiled.veil == Veil::Flag) =>
            {
                function.args.first().map(|inner| Box::new(inner.clone()))
            }
            // A constant flag was folded.
            Expr::Literal(datafusion::common::ScalarValue::Int8(value), _) => {
                let value = datafusion::common::ScalarValue::Boolean(value.map(|value| value != 0));
                Some(Box::new(Expr::Literal(value, None)))
            }
            _ => None,
        }
    };
    Some(Expr::Case(Case {
        expr: case.expr.clone(),
        when_then_expr: case
            .when_then_expr
            .iter()
            .map(|(when, then)| Some((when.clone(), plain(then)?)))
            .collect::<Option<Vec<_>>>()?,
        else_expr: match &case.else_expr {
            Some(otherwise) => Some(plain(otherwise)?),
            None => None,
        },
    }))
}

/// Takes away what [`protect`] put in.
pub(super) fn expose(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let node = match extension::<Fence>(&node) {
            Some(fence) => {
                LogicalPlan::Filter(Filter::try_new(fence.predicate.clone(), Arc::new(fence.input.clone()))?)
            }
            None => node,
        };
        let preserver = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = preserver.save(&expr);
            let plain = expr.transform_up(|expr| Ok(unveil(expr)))?;
            Ok(plain.update_data(|expr| name.restore(expr)))
        })?
        .map_data(LogicalPlan::recompute_schema)
    })
    .map(|transformed| transformed.data)
    .map_err(from_datafusion)
}
