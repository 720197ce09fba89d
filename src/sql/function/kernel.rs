//! What the functions of ours share: arguments as columns, results as columns or one value.

use crate::error::Error;
use crate::sql::error::external;
use arrow::array::{Array, ArrayRef};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

/// How many values a call gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One, because all arguments are constants.
    One,
    /// One per row.
    PerRow,
}

/// The arguments as columns of equal length: of one row if all are constants.
pub(crate) fn expand(args: &ScalarFunctionArgs) -> DataFusionResult<(Vec<ArrayRef>, Shape)> {
    let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let (rows, shape) = if constant {
        (1, Shape::One)
    } else {
        (args.number_rows, Shape::PerRow)
    };
    let arrays = args
        .args
        .iter()
        .map(|arg| match arg {
            ColumnarValue::Array(array) => Ok(array.clone()),
            ColumnarValue::Scalar(value) => value.to_array_of_size(rows),
        })
        .collect::<DataFusionResult<Vec<_>>>()?;
    Ok((arrays, shape))
}

/// The result of a call whose arguments had that shape.
pub(crate) fn columnar(array: ArrayRef, shape: Shape) -> DataFusionResult<ColumnarValue> {
    match shape {
        Shape::PerRow => Ok(ColumnarValue::Array(array)),
        Shape::One if array.is_empty() => Err(external(Error::internal("a call gave no value"))),
        Shape::One => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)),
    }
}
