//! Small functions that the binder puts into plans itself.

use super::cast::cast_expression;
use super::kernel::{columnar, expand};
use crate::error::Error;
use crate::sql::error::external;
use crate::types::Type;
use arrow::array::{ArrayRef, AsArray, Decimal128Array, StringArray};
use arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type, IntervalMonthDayNanoType};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use std::sync::{Arc, LazyLock};

/// Values that compare as PostgreSQL compares the arguments.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    kind: KeyKind,
    signature: Signature,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum KeyKind {
    /// -0 becomes 0, and every NaN the same one.
    Float,
    /// An interval becomes its microseconds, a month being 30 days.
    Interval,
    /// Numbers in a jsonb value lose the zeros at their ends.
    Json,
}

static FLOAT_KEY: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| key(KeyKind::Float));
static INTERVAL_KEY: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| key(KeyKind::Interval));
static JSON_KEY: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| key(KeyKind::Json));

fn key(kind: KeyKind) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Key {
        kind,
        signature: Signature::new(TypeSignature::Any(1), Volatility::Immutable),
    }))
}

fn call(function: &Arc<ScalarUDF>, args: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(function.clone(), args))
}

/// A float in which -0 is 0: Arrow orders floats by their bits.
pub(crate) fn float_key(expr: Expr) -> Expr {
    match expr {
        Expr::Literal(ScalarValue::Float64(Some(value)), metadata) => {
            let value = if value == 0.0 { 0.0 } else { value };
            Expr::Literal(ScalarValue::Float64(Some(value)), metadata)
        }
        // An integer that became a float has no sign on its zero.
        Expr::Cast(cast) if !matches!(cast.field.data_type(), DataType::Float64) => {
            call(&FLOAT_KEY, vec![Expr::Cast(cast)])
        }
        other => call(&FLOAT_KEY, vec![other]),
    }
}

/// An interval as a number that orders it.
pub(crate) fn interval_key(expr: Expr) -> Expr {
    call(&INTERVAL_KEY, vec![expr])
}

/// A jsonb value as a text that is equal for equal values.
pub(crate) fn json_key(expr: Expr) -> Expr {
    call(&JSON_KEY, vec![expr])
}

/// Whether an expression is such a key already, or a literal that needs none.
pub(crate) fn is_key(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(function) => function.func.inner().is::<Key>(),
        Expr::Literal(ScalarValue::Float64(_) | ScalarValue::Float32(_), _) => true,
        _ => false,
    }
}

/// Whether an expression is a float's key already.
pub(crate) fn is_float_key(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(function) if function.func.as_ref() == FLOAT_KEY.as_ref())
}

/// What a key was made of.
pub(crate) fn without_key(expr: Expr) -> Expr {
    match expr {
        Expr::ScalarFunction(mut function) if function.func.inner().is::<Key>() => {
            function.args.pop().unwrap_or(Expr::Literal(ScalarValue::Null, None))
        }
        other => other,
    }
}

impl ScalarUDFImpl for Key {
    fn name(&self) -> &str {
        match self.kind {
            KeyKind::Float => "float_key",
            KeyKind::Interval => "interval_key",
            KeyKind::Json => "json_key",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        Ok(match self.kind {
            KeyKind::Float => types.first().cloned().unwrap_or(DataType::Null),
            KeyKind::Interval => DataType::Decimal128(38, 0),
            KeyKind::Json => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (arrays, shape) = expand(&args)?;
        let Some(array) = arrays.first() else {
            return Err(external(Error::internal("a key is made of a value")));
        };
        let result: ArrayRef = match (self.kind, array.data_type()) {
            (KeyKind::Float, DataType::Float64) => Arc::new(
                array
                    .as_primitive::<Float64Type>()
                    .unary::<_, Float64Type>(|value| if value.is_nan() { f64::NAN } else { value + 0.0 }),
            ),
            (KeyKind::Float, DataType::Float32) => Arc::new(
                array
                    .as_primitive::<Float32Type>()
                    .unary::<_, Float32Type>(|value| if value.is_nan() { f32::NAN } else { value + 0.0 }),
            ),
            (KeyKind::Interval, DataType::Interval(_)) => {
                let keys: Decimal128Array = array
                    .as_primitive::<IntervalMonthDayNanoType>()
                    .iter()
                    .map(|value| value.map(super::interval::comparable))
                    .collect();
                Arc::new(keys.with_precision_and_scale(38, 0)?)
            }
            (KeyKind::Json, DataType::Utf8) => {
                let values = array.as_string::<i32>().iter();
                let keys: StringArray = values.map(|value| value.map(super::json::comparable)).collect();
                Arc::new(keys)
            }
            (KeyKind::Json, _) => arrow::array::new_null_array(&DataType::Utf8, array.len()),
            (KeyKind::Interval, _) => arrow::array::new_null_array(&DataType::Decimal128(38, 0), array.len()),
            _ => array.clone(),
        };
        columnar(result, shape)
    }
}

/// `record.field`.
pub(crate) fn field(root: Expr, name: &ScalarValue) -> Expr {
    let name = match name {
        ScalarValue::Utf8(Some(name)) => name.clone(),
        other => other.to_string(),
    };
    datafusion::functions::core::expr_fn::get_field(root, name.as_str())
}

/// `array[n]`: counted from 1; NULL where there is none.
pub(crate) fn subscript(root: Expr, key: Expr) -> Expr {
    super::call("__subscript", vec![root, key])
}

/// `array[from:to]`.
pub(crate) fn slice(root: Expr, from: Expr, to: Expr) -> Expr {
    super::call("__slice", vec![root, from, to])
}

/// `ARRAY[a, b]`, its elements in one type already.
pub(crate) fn array(elements: Vec<Expr>, element: Type) -> Expr {
    if elements.is_empty() {
        let empty = cast_expression(
            Expr::Literal(ScalarValue::Utf8(Some("{}".to_owned())), None),
            &Type::Unknown,
            &Type::Array(Box::new(element)),
            super::cast::Context::Explicit,
            "UTC",
        );
        if let Ok(empty) = empty {
            return empty;
        }
        return Expr::Literal(ScalarValue::Null, None);
    }
    super::call("__array", elements)
}

/// A value as it is, which may be NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Nullable {
    signature: Signature,
}

static NULLABLE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::new_from_impl(Nullable {
        signature: Signature::new(TypeSignature::Any(1), Volatility::Immutable),
    }))
});

/// An expression that may be NULL, whatever its type says.
pub(crate) fn nullable(expr: Expr) -> Expr {
    call(&NULLABLE, vec![expr])
}

impl ScalarUDFImpl for Nullable {
    fn name(&self) -> &str {
        "nullable"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        Ok(types.first().cloned().unwrap_or(DataType::Null))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        match args.arg_fields {
            [field] => Ok(Arc::new(field.as_ref().clone().with_nullable(true))),
            _ => Err(external(Error::internal("one value may be NULL"))),
        }
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let value = args.args.pop();
        value.ok_or_else(|| external(Error::internal("one value may be NULL")))
    }
}
