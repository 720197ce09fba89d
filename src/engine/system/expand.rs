//! `information_schema._pg_expandarray(array)`: each element with its place, as records `(x, n)`.

use super::name::external;
use crate::error::Error;
use crate::types::{Nullability, Type};
use arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, StructArray};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use std::sync::Arc;

const NAME: &str = "_pg_expandarray";

#[derive(Debug, PartialEq, Eq, Hash)]
struct Expand {
    signature: Signature,
}

/// The function, if that is the name: it gives the list of records, which the binder unnests.
pub(super) fn find(name: &str) -> Option<Arc<ScalarUDF>> {
    let signature = Signature::new(TypeSignature::Any(1), Volatility::Immutable);
    (name == NAME).then(|| Arc::new(ScalarUDF::new_from_impl(Expand { signature })))
}

fn result(array: &Type) -> Type {
    let element = match array {
        Type::Array(element) => element.as_ref().clone(),
        other => other.clone(),
    };
    Type::Array(Box::new(Type::Record(vec![
        ("x".to_owned(), element),
        ("n".to_owned(), Type::Int4),
    ])))
}

impl ScalarUDFImpl for Expand {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        Ok(result(&types.first().map_or(Type::Unknown, Type::of_arrow)).arrow())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let array = args
            .arg_fields
            .first()
            .map_or(Type::Unknown, |field| Type::of_field(field));
        Ok(Arc::new(result(&array).field(NAME, Nullability::Nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let Some(array) = args.args.first().map(|arg| arg.to_array(rows)).transpose()? else {
            return Err(external(Error::internal("an array is expanded")));
        };
        let Some(lists) = array.as_list_opt::<i32>() else {
            let message = "function _pg_expandarray() takes an array";
            return Err(external(Error::semantic("42883", message)));
        };
        let kind = Type::of_field(&args.arg_fields[0]);
        let DataType::List(item) = result(&kind).arrow() else {
            return Err(external(Error::internal("an array's expansion is an array")));
        };
        let DataType::Struct(fields) = item.data_type().clone() else {
            return Err(external(Error::internal("an array's expansion is of records")));
        };
        let offsets = lists.offsets();
        let mut places = vec![0; lists.values().len()];
        for row in 0..lists.len() {
            let range = offsets[row] as usize..offsets[row + 1] as usize;
            places[range]
                .iter_mut()
                .zip(1..)
                .for_each(|(place, number)| *place = number);
        }
        let columns: Vec<ArrayRef> = vec![lists.values().clone(), Arc::new(Int32Array::from(places))];
        let records = StructArray::try_new(fields, columns, None)?;
        let expanded: ArrayRef = Arc::new(ListArray::try_new(
            item,
            offsets.clone(),
            Arc::new(records),
            lists.nulls().cloned(),
        )?);
        Ok(if constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&expanded, 0)?)
        } else {
            ColumnarValue::Array(expanded)
        })
    }
}
