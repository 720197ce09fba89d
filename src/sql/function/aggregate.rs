//! `sum` and `avg` with PostgreSQL's types, for the batch side.
//!
//! | argument | `sum` | `avg` |
//! |---|---|---|
//! | smallint, integer | bigint | quotient |
//! | bigint | numeric(38,0) | quotient |
//! | numeric(p,s) | numeric(76,s) | quotient |
//! | numeric | numeric | quotient |
//! | real | real | double precision |
//! | double precision | double precision | double precision |
//! | interval | interval | interval |
//!
//! Sums of exact numbers never wrap: what does not fit is `22003`. Floats in a window's frame are summed afresh each
//! time, so that what has left leaves no trace.

use super::cast::out_of_range;
use super::decimal::{Exacts, Number, divide, overflow};
use super::interval;
use crate::error::{Error, Result};
use crate::sql::error::external;
use crate::types::{Nullability, QUOTIENT_SCALE, Type};
use arrow::array::{Array, ArrayRef, AsArray, ListArray};
use arrow::datatypes::{
    DataType, Field, FieldRef, Float32Type, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, i256,
};
use datafusion::common::{HashSet, Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use std::collections::VecDeque;
use std::sync::Arc;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Which {
    Sum,
    Average,
}

/// `sum` or `avg`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Total {
    which: Which,
    signature: Signature,
}

/// The aggregates of ours.
pub(super) fn all() -> Vec<Arc<AggregateUDF>> {
    [Which::Sum, Which::Average]
        .into_iter()
        .map(|which| {
            Arc::new(AggregateUDF::new_from_impl(Total {
                which,
                signature: Signature::user_defined(Volatility::Immutable),
            }))
        })
        .collect()
}

impl Total {
    /// The type of the result.
    fn result(&self, argument: &Type) -> Option<Type> {
        Some(match (self.which, argument) {
            (Which::Sum, Type::Int2 | Type::Int4) => Type::Int8,
            (Which::Sum, Type::Int8) => Type::Numeric(Some((38, 0))),
            (Which::Sum, Type::Numeric(Some((_, scale)))) => Type::Numeric(Some((76, *scale))),
            (Which::Sum, Type::Numeric(None)) => Type::Numeric(None),
            (_, Type::Quotient) => Type::Quotient,
            (Which::Sum, Type::Float4) => Type::Float4,
            (_, Type::Float4 | Type::Float8) => Type::Float8,
            (_, Type::Interval) => Type::Interval,
            (Which::Average, Type::Int2 | Type::Int4 | Type::Int8 | Type::Numeric(_)) => Type::Quotient,
            _ => return None,
        })
    }

    fn missing(&self, argument: &Type) -> Error {
        super::missing(self.name(), &[argument.to_string()])
    }

    fn result_of(&self, types: &[DataType]) -> DataFusionResult<Type> {
        let argument = types.first().map_or(Type::Unknown, Type::of_arrow);
        self.result(&argument).ok_or_else(|| external(self.missing(&argument)))
    }
}

impl AggregateUDFImpl for Total {
    fn name(&self) -> &str {
        match self.which {
            Which::Sum => "sum",
            Which::Average => "avg",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let [given] = types else {
            let names: Vec<String> = types.iter().map(|kind| Type::of_arrow(kind).to_string()).collect();
            return Err(external(super::missing(self.name(), &names)));
        };
        if given == &DataType::Null {
            return Ok(vec![DataType::Float64]);
        }
        self.result_of(types)?;
        Ok(types.to_vec())
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        Ok(self.result_of(types)?.arrow())
    }

    fn return_field(&self, fields: &[FieldRef]) -> DataFusionResult<FieldRef> {
        let types: Vec<DataType> = fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(Arc::new(
            self.result_of(&types)?.field(self.name(), Nullability::Nullable),
        ))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DataFusionResult<Box<dyn Accumulator>> {
        let plain = self.plain(&args)?;
        if args.is_distinct {
            let kind = args.expr_fields[0].data_type().clone();
            return Ok(Box::new(Distinct {
                inner: plain,
                seen: HashSet::default(),
                kind,
            }));
        }
        Ok(Box::new(plain))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> DataFusionResult<Box<dyn Accumulator>> {
        let mut plain = self.plain(&args)?;
        plain.window = Some(VecDeque::new());
        Ok(Box::new(plain))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> DataFusionResult<Vec<FieldRef>> {
        if args.is_distinct {
            let item = Field::new("item", args.input_fields[0].data_type().clone(), true);
            return Ok(vec![Arc::new(Field::new("seen", DataType::List(Arc::new(item)), true))]);
        }
        let sum = state_type(args.input_fields[0].data_type());
        Ok(vec![
            Arc::new(Field::new("sum", sum, true)),
            Arc::new(Field::new("count", DataType::Int64, true)),
        ])
    }
}

/// The type in which a sum in the making is kept.
fn state_type(argument: &DataType) -> DataType {
    match argument {
        DataType::Int16 | DataType::Int32 | DataType::Int64 => DataType::Decimal256(76, 0),
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => DataType::Decimal256(76, *scale),
        DataType::Float32 => DataType::Float64,
        other => other.clone(),
    }
}

impl Total {
    fn plain(&self, args: &AccumulatorArgs) -> DataFusionResult<Sum> {
        let argument = args.expr_fields[0].data_type().clone();
        let result = self.result_of(std::slice::from_ref(&argument))?;
        let total = match &argument {
            DataType::Float32 | DataType::Float64 => Running::Float(0.0),
            DataType::Interval(_) => Running::Interval(IntervalMonthDayNano::new(0, 0, 0)),
            DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => Running::Exact(i256::ZERO, *scale),
            _ => Running::Exact(i256::ZERO, 0),
        };
        Ok(Sum {
            which: self.which,
            argument,
            result,
            total,
            count: 0,
            window: None,
        })
    }
}

/// A sum in the making.
#[derive(Debug, Clone, Copy)]
enum Running {
    Exact(i256, i8),
    Float(f64),
    Interval(IntervalMonthDayNano),
}

#[derive(Debug)]
struct Sum {
    which: Which,
    argument: DataType,
    result: Type,
    total: Running,
    count: i64,
    /// The floats in a window's frame, oldest first.
    window: Option<VecDeque<f64>>,
}

/// Which way a value goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

impl Sum {
    fn change(&mut self, array: &ArrayRef, way: Way) -> Result<()> {
        match &mut self.total {
            Running::Exact(total, _) => {
                let (numbers, _) = Exacts::of(array)?;
                for row in 0..array.len() {
                    if numbers.is_null(row) {
                        continue;
                    }
                    let value = numbers.value(row);
                    let next = if way == Way::In {
                        total.checked_add(value)
                    } else {
                        total.checked_sub(value)
                    };
                    *total = next.ok_or_else(|| overflow(&Type::Numeric(None)))?;
                    self.count += if way == Way::In { 1 } else { -1 };
                }
            }
            Running::Float(total) => {
                let values: Vec<f64> = match array.as_primitive_opt::<Float64Type>() {
                    Some(values) => values.iter().flatten().collect(),
                    None => array
                        .as_primitive::<Float32Type>()
                        .iter()
                        .flatten()
                        .map(f64::from)
                        .collect(),
                };
                self.count += if way == Way::In {
                    values.len() as i64
                } else {
                    -(values.len() as i64)
                };
                match (&mut self.window, way) {
                    (Some(window), Way::In) => window.extend(values),
                    (Some(window), Way::Out) => {
                        window.drain(..values.len().min(window.len()));
                    }
                    (None, _) => values.into_iter().for_each(|value| *total += value),
                }
            }
            Running::Interval(total) => {
                for value in array.as_primitive::<IntervalMonthDayNanoType>().iter().flatten() {
                    let value = if way == Way::In {
                        value
                    } else {
                        interval::negated(value)?
                    };
                    *total = interval::add(*total, value)?;
                    self.count += if way == Way::In { 1 } else { -1 };
                }
            }
        }
        Ok(())
    }

    fn finish(&self) -> Result<ScalarValue> {
        if self.count == 0 {
            return ScalarValue::try_from(&self.result.arrow()).map_err(crate::sql::error::from_datafusion);
        }
        match (self.which, self.total) {
            (Which::Sum, Running::Exact(total, _)) => exact(total, &self.result),
            (Which::Average, Running::Exact(total, scale)) => {
                let count = Number {
                    value: i256::from_i128(i128::from(self.count)),
                    scale: 0,
                };
                let quotient = divide(Number { value: total, scale }, count)?;
                let value = quotient.ok_or_else(|| overflow(&self.result))?;
                Ok(ScalarValue::Decimal256(Some(value), 76, QUOTIENT_SCALE))
            }
            (which, Running::Float(total)) => {
                let total = self.window.as_ref().map_or(total, |window| window.iter().sum());
                let value = if which == Which::Average {
                    total / self.count as f64
                } else {
                    total
                };
                self.float(value)
            }
            (Which::Sum, Running::Interval(total)) => Ok(ScalarValue::IntervalMonthDayNano(Some(total))),
            (Which::Average, Running::Interval(total)) => {
                let count = self.count as f64;
                let value = interval::scaled_by(total, |part| part / count)?;
                Ok(ScalarValue::IntervalMonthDayNano(Some(value)))
            }
        }
    }

    fn float(&self, value: f64) -> Result<ScalarValue> {
        Ok(match self.result {
            Type::Float4 => ScalarValue::Float32(Some(value as f32)),
            _ => ScalarValue::Float64(Some(value)),
        })
    }
}

/// An exact sum in the type of the result.
fn exact(total: i256, result: &Type) -> Result<ScalarValue> {
    match result.arrow() {
        DataType::Int64 => {
            let value = total.to_i128().and_then(|value| i64::try_from(value).ok());
            Ok(ScalarValue::Int64(Some(
                value.ok_or_else(|| out_of_range(&Type::Int8))?,
            )))
        }
        DataType::Decimal128(precision, scale) => {
            let value = total
                .to_i128()
                .filter(|value| value.unsigned_abs() < 10_u128.pow(u32::from(precision)))
                .ok_or_else(|| overflow(&Type::Numeric(None)))?;
            Ok(ScalarValue::Decimal128(Some(value), precision, scale))
        }
        DataType::Decimal256(precision, scale) => {
            let limit = super::decimal::power_of_ten(i32::from(precision)).unwrap_or(i256::MAX);
            if total >= limit || total <= limit.wrapping_neg() {
                return Err(overflow(&Type::Numeric(None)));
            }
            Ok(ScalarValue::Decimal256(Some(total), precision, scale))
        }
        other => Err(Error::internal(format!("a sum is no {other}"))),
    }
}

impl Accumulator for Sum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.change(&values[0], Way::In).map_err(external)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.change(&values[0], Way::Out).map_err(external)
    }

    fn supports_retract_batch(&self) -> bool {
        self.window.is_some() || !matches!(self.total, Running::Float(_))
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        self.finish().map_err(external)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.window.as_ref().map_or(0, |window| window.capacity() * 8)
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        let sum = match self.total {
            Running::Exact(total, scale) => ScalarValue::Decimal256(Some(total), 76, scale),
            Running::Float(total) => ScalarValue::Float64(Some(total)),
            Running::Interval(total) => ScalarValue::IntervalMonthDayNano(Some(total)),
        };
        Ok(vec![sum, ScalarValue::Int64(Some(self.count))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        let counts = states[1].as_primitive::<arrow::datatypes::Int64Type>();
        let before = self.count;
        self.change(&states[0], Way::In).map_err(external)?;
        self.count = before + counts.iter().flatten().sum::<i64>();
        Ok(())
    }
}

/// A sum of distinct values.
#[derive(Debug)]
struct Distinct {
    inner: Sum,
    seen: HashSet<ScalarValue>,
    kind: DataType,
}

impl Distinct {
    fn add(&mut self, array: &ArrayRef) -> DataFusionResult<()> {
        for row in 0..array.len() {
            if array.is_valid(row) {
                self.seen.insert(ScalarValue::try_from_array(array, row)?);
            }
        }
        Ok(())
    }
}

impl Accumulator for Distinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.add(&values[0])
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        let mut fresh = Sum {
            window: None,
            ..copy(&self.inner)
        };
        for value in &self.seen {
            fresh.change(&value.to_array()?, Way::In).map_err(external)?;
        }
        fresh.finish().map_err(external)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.seen.len() * size_of::<ScalarValue>() * 2
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        let values: Vec<ScalarValue> = self.seen.iter().cloned().collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(
            &values, &self.kind,
        ))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        let lists: &ListArray = states[0].as_list::<i32>();
        for row in 0..lists.len() {
            if lists.is_valid(row) {
                self.add(&lists.value(row))?;
            }
        }
        Ok(())
    }
}

/// A sum of the same kind with nothing in it.
fn copy(sum: &Sum) -> Sum {
    let total = match sum.total {
        Running::Exact(_, scale) => Running::Exact(i256::ZERO, scale),
        Running::Float(_) => Running::Float(0.0),
        Running::Interval(_) => Running::Interval(IntervalMonthDayNano::new(0, 0, 0)),
    };
    Sum {
        which: sum.which,
        argument: sum.argument.clone(),
        result: sum.result.clone(),
        total,
        count: 0,
        window: None,
    }
}
