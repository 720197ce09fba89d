//! Subqueries over the system's relations, as functions of what they take from around them.
//!
//! Clients ask the catalog with correlated subqueries that no optimizer turns into joins: conditions other than
//! equality, values that are single only because a number is, `ARRAY(SELECT ...)`. Catalogs are small: such a
//! subquery becomes a function that [`SystemRelations`](super::SystemRelations) provide, which runs it once for each
//! different set of arguments. Subqueries that read anything else stay as they are.

use super::relation::RelationSource;
use super::{Binder, analyse, object_name};
use crate::error::{Error, Result};
use crate::sql::error::{external, from_datafusion};
use crate::sql::function::special;
use crate::types::{Nullability, Type};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::expr::{FieldMetadata, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Subquery, TypeSignature, Volatility,
};
use std::sync::{Arc, LazyLock};

/// The function that `ARRAY(SELECT ...)` is a call of, until its subquery is replaced.
pub(super) const ARRAY_SUBQUERY: &str = "__subquery_array";

/// What a subquery gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SubqueryForm {
    /// Its one row's value; NULL without a row.
    Value,
    /// The array of its rows' values.
    Array,
}

/// A subquery that reads only the system's relations.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SystemSubquery {
    /// The plan.
    plan: LogicalPlan,
    /// What it takes from around it: outer columns and parameters. These are the function's arguments, in order.
    taken: Vec<Expr>,
    /// What it gives.
    pub form: SubqueryForm,
}

impl SystemSubquery {
    /// The number of its arguments.
    pub fn arity(&self) -> usize {
        self.taken.len()
    }

    /// The type of its rows' values.
    pub fn element(&self) -> Type {
        match self.plan.schema().fields().first().map(|field| Type::of_field(field)) {
            None | Some(Type::Unknown) => Type::Text,
            Some(kind) => kind,
        }
    }

    /// The plan with the arguments' values put in.
    pub fn with_values(&self, values: &[ScalarValue]) -> Result<LogicalPlan> {
        let put = |expr: Expr| -> DataFusionResult<Transformed<Expr>> {
            let Some(index) = self.taken.iter().position(|taken| *taken == expr) else {
                return Ok(Transformed::no(expr));
            };
            let (Expr::OuterReferenceColumn(field, _), Some(value)) = (&expr, values.get(index)) else {
                return Ok(match (&expr, values.get(index)) {
                    (Expr::Placeholder(placeholder), Some(value)) => {
                        Transformed::yes(literal(value, placeholder.field.as_ref())?)
                    }
                    _ => Transformed::no(expr),
                });
            };
            Ok(Transformed::yes(literal(value, Some(field))?))
        };
        self.plan
            .clone()
            .transform_up_with_subqueries(|node| {
                let preserver = NamePreserver::new(&node);
                node.map_expressions(|expr| {
                    let name = preserver.save(&expr);
                    Ok(expr.transform_up(put)?.update_data(|expr| name.restore(expr)))
                })?
                .map_data(|plan| plan.recompute_schema())
            })
            .map(|transformed| transformed.data)
            .map_err(from_datafusion)
    }
}

/// A value as a literal of the type that stands in its place.
fn literal(value: &ScalarValue, field: Option<&FieldRef>) -> DataFusionResult<Expr> {
    let Some(field) = field else {
        return Ok(Expr::Literal(value.clone(), None));
    };
    let metadata = (!field.metadata().is_empty()).then(|| FieldMetadata::from(field.as_ref()));
    Ok(Expr::Literal(value.cast_to(field.data_type())?, metadata))
}

/// The value of a subquery, which is NULL where it has no row, also where its column is never NULL.
fn without_row(expr: Expr) -> Transformed<Expr> {
    match &expr {
        Expr::ScalarSubquery(subquery) if !subquery.subquery.schema().field(0).is_nullable() => {
            Transformed::new(special::nullable(expr), true, TreeNodeRecursion::Jump)
        }
        _ => Transformed::no(expr),
    }
}

impl Binder<'_> {
    /// The plan with the subqueries that can be functions as functions.
    pub(super) fn replace_subqueries(&self, plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
        plan.transform_down_with_subqueries(|node| {
            let schema = merge_schema(&node.inputs());
            let preserver = NamePreserver::new(&node);
            let replaced = node.map_expressions(|expr| {
                let name = preserver.save(&expr);
                let replaced = expr.transform_down(|expr| self.replace_subquery(expr, &schema))?;
                Ok(replaced.update_data(|expr| name.restore(expr)))
            })?;
            if replaced.transformed {
                replaced.map_data(|plan| plan.recompute_schema())
            } else {
                Ok(replaced)
            }
        })
        .map(|transformed| transformed.data)
    }

    fn replace_subquery(&self, expr: Expr, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
        let (subquery, form) = match &expr {
            Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == ARRAY_SUBQUERY => {
                match args.as_slice() {
                    [Expr::ScalarSubquery(subquery)] => (subquery, SubqueryForm::Array),
                    _ => return Ok(Transformed::no(expr)),
                }
            }
            Expr::ScalarSubquery(subquery) if subquery.outer_ref_columns.is_empty() => {
                return Ok(without_row(expr));
            }
            Expr::ScalarSubquery(subquery) => (subquery, SubqueryForm::Value),
            _ => return Ok(Transformed::no(expr)),
        };
        match self.as_function(subquery, form, schema)? {
            Some(call) => Ok(Transformed::new(call, true, TreeNodeRecursion::Jump)),
            None if form == SubqueryForm::Array => Err(external(
                Error::unsupported("ARRAY(SELECT ...) over streams, tables and views is not supported")
                    .with_hint("Write (SELECT array_agg(...) FROM ...)."),
            )),
            None => Ok(without_row(expr)),
        }
    }

    fn as_function(
        &self,
        subquery: &Subquery,
        form: SubqueryForm,
        schema: &DFSchema,
    ) -> DataFusionResult<Option<Expr>> {
        if !reads_only_the_system(&subquery.subquery)? {
            return Ok(None);
        }
        let plan = self.replace_subqueries(subquery.subquery.as_ref().clone())?;
        let plan = analyse::analyse(plan, &self.config, &self.settings.time_zone)?;
        let plan = object_name::show_casts(plan, self.system)?;
        let mut taken = plan.all_out_ref_exprs();
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                expr.apply(|expr| {
                    if matches!(expr, Expr::Placeholder(_)) && !taken.contains(expr) {
                        taken.push(expr.clone());
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        let args = taken
            .iter()
            .map(|taken| match taken {
                Expr::OuterReferenceColumn(_, column) if schema.has_column(column) => Expr::Column(column.clone()),
                other => other.clone(),
            })
            .collect();
        let function = self.system.subquery(SystemSubquery { plan, taken, form });
        Ok(function.map(|function| Expr::ScalarFunction(ScalarFunction::new_udf(function, args))))
    }
}

fn reads_only_the_system(plan: &LogicalPlan) -> DataFusionResult<bool> {
    let mut only = true;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && RelationSource::of(&scan.source).is_some()
        {
            only = false;
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(only)
}

/// What `ARRAY(SELECT ...)` is a call of.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ArrayOf {
    signature: Signature,
}

static ARRAY_OF: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let signature = Signature::new(TypeSignature::Any(1), Volatility::Stable);
    Arc::new(ScalarUDF::new_from_impl(ArrayOf { signature }))
});

/// The function that `ARRAY(SELECT ...)` is a call of, if that is the name.
pub(super) fn marker(name: &str) -> Option<Arc<ScalarUDF>> {
    (name == ARRAY_SUBQUERY).then(|| ARRAY_OF.clone())
}

impl ScalarUDFImpl for ArrayOf {
    fn name(&self) -> &str {
        ARRAY_SUBQUERY
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        let element = types.first().map_or(Type::Text, Type::of_arrow);
        Ok(Type::Array(Box::new(element)).arrow())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let element = match args.arg_fields.first().map(|field| Type::of_field(field)) {
            None | Some(Type::Unknown) => Type::Text,
            Some(kind) => kind,
        };
        Ok(Arc::new(
            Type::Array(Box::new(element)).field(ARRAY_SUBQUERY, Nullability::Nullable),
        ))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        Err(external(Error::internal("ARRAY(SELECT ...) was not replaced")))
    }
}
