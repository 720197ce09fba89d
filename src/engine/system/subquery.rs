//! Subqueries over system relations: run once for each different set of arguments.

use super::name::external;
use crate::error::{Error, Result};
use crate::expr::from_datafusion;
use crate::sql::bind::{SubqueryForm, SystemSubquery};
use crate::types::{Nullability, Type};
use arrow::array::{Array, ArrayRef, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use std::collections::HashMap;
use std::sync::Arc;

/// A subquery as a function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    subquery: SystemSubquery,
    zone: String,
    signature: Signature,
}

/// The function that runs a subquery.
pub(super) fn function(subquery: SystemSubquery, zone: &str) -> Arc<ScalarUDF> {
    let signature = match subquery.arity() {
        0 => TypeSignature::Nullary,
        arity => TypeSignature::Any(arity),
    };
    Arc::new(ScalarUDF::new_from_impl(Function {
        subquery,
        zone: zone.to_owned(),
        signature: Signature::new(signature, Volatility::Stable),
    }))
}

impl Function {
    fn kind(&self) -> Type {
        let element = self.subquery.element();
        match self.subquery.form {
            SubqueryForm::Value => element,
            SubqueryForm::Array => Type::Array(Box::new(element)),
        }
    }

    /// The value for some arguments.
    async fn value(&self, arguments: &[ScalarValue]) -> Result<ScalarValue> {
        let plan = crate::engine::batch::optimise(self.subquery.with_values(arguments)?)?;
        let state = crate::engine::query::session_state(&self.zone);
        let physical = state
            .query_planner()
            .create_physical_plan(&plan, &state)
            .await
            .map_err(from_datafusion)?;
        let schema = physical.schema();
        let batches = datafusion::physical_plan::collect(physical, state.task_ctx())
            .await
            .map_err(from_datafusion)?;
        let rows = arrow::compute::concat_batches(&schema, &batches)?;
        let values = arrow::compute::cast(rows.column(0), &self.subquery.element().arrow())?;
        match self.subquery.form {
            SubqueryForm::Array => array_of(&self.subquery.element(), values),
            SubqueryForm::Value if values.len() > 1 => Err(Error::semantic(
                "21000",
                "more than one row returned by a subquery used as an expression",
            )),
            SubqueryForm::Value if values.is_empty() => {
                ScalarValue::try_from(values.data_type()).map_err(from_datafusion)
            }
            SubqueryForm::Value => ScalarValue::try_from_array(&values, 0).map_err(from_datafusion),
        }
    }

    /// The values for the arguments of each row.
    async fn values(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let mut known: HashMap<Vec<ScalarValue>, ScalarValue> = HashMap::new();
        let mut values = Vec::with_capacity(rows);
        for row in 0..rows {
            let arguments = columns
                .iter()
                .map(|column| ScalarValue::try_from_array(column, row))
                .collect::<DataFusionResult<Vec<_>>>()
                .map_err(from_datafusion)?;
            let value = match known.get(&arguments) {
                Some(value) => value.clone(),
                None => {
                    let value = self.value(&arguments).await?;
                    known.insert(arguments, value.clone());
                    value
                }
            };
            values.push(value);
        }
        if values.is_empty() {
            return Ok(arrow::array::new_empty_array(&self.kind().arrow()));
        }
        let array = ScalarValue::iter_to_array(values).map_err(from_datafusion)?;
        Ok(arrow::compute::cast(&array, &self.kind().arrow())?)
    }
}

fn array_of(element: &Type, values: ArrayRef) -> Result<ScalarValue> {
    let item = Arc::new(element.field("item", Nullability::Nullable));
    let offsets = OffsetBuffer::from_lengths([values.len()]);
    Ok(ScalarValue::List(Arc::new(ListArray::try_new(
        item, offsets, values, None,
    )?)))
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        "subquery"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(self.kind().arrow())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        Ok(Arc::new(self.kind().field("subquery", Nullability::Nullable)))
    }

    /// Plans run on a thread of their own: the one that asks may be one that must not wait.
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let columns = args
            .args
            .iter()
            .map(|arg| arg.to_array(rows))
            .collect::<DataFusionResult<Vec<_>>>()?;
        let run = || -> Result<ArrayRef> {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .map_err(|error| Error::io(format!("no thread could be started: {error}")))?;
            runtime.block_on(self.values(&columns, rows))
        };
        let ran = std::thread::scope(|scope| scope.spawn(run).join());
        let array = ran
            .unwrap_or_else(|_| Err(Error::internal("a subquery ended early")))
            .map_err(external)?;
        Ok(if constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)
        } else {
            ColumnarValue::Array(array)
        })
    }
}
