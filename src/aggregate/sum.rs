//! `sum` and `avg`: exact, whatever came and went.
//!
//! Integers and decimals are summed as integers wide enough for any number of rows; floats as [`Exact`] integers, with
//! NaN and the infinities counted apart. A result that does not fit its type fails its group, and only as long as it
//! does not fit.

use super::exact::{Exact, float_overflow};
use super::fold::{Fold, Input, Results, collect, no_such_function};
use super::state::{damaged, put_i64, put_i128, take_i64, take_i128};
use super::{Function, decimal};
use crate::error::{Error, Result};
use crate::types::interval::scaled_by;
use arrow::array::IntervalMonthDayNanoArray;
use arrow::array::{AsArray, Decimal128Array, Decimal256Array, Float64Array, Int64Array};
use arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit, i256,
};

/// The fold of `sum` or `avg` over arguments of a type.
pub(crate) fn fold_of(function: Function, argument: &DataType, output: &DataType) -> Result<Box<dyn Fold>> {
    let cells = match argument {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Cells::Integer(Vec::new()),
        DataType::Decimal128(..) => Cells::Decimal(Vec::new()),
        DataType::Decimal256(..) => Cells::Wide(Vec::new()),
        DataType::Float32 | DataType::Float64 => {
            return Ok(Box::new(FloatSum {
                function,
                output: output.clone(),
                cells: Vec::new(),
            }));
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            return Ok(Box::new(IntervalSum {
                function,
                cells: Vec::new(),
            }));
        }
        other => return Err(no_such_function(function, other)),
    };
    Ok(Box::new(ExactSum {
        function,
        scale: decimal::scale_of(argument),
        output: output.clone(),
        cells,
        counts: Vec::new(),
    }))
}

/// Sums of integers and of decimals, in units of the argument's scale.
#[derive(Debug)]
struct ExactSum {
    function: Function,
    scale: i8,
    output: DataType,
    cells: Cells,
    counts: Vec<i64>,
}

/// One sum per group.
#[derive(Debug)]
enum Cells {
    /// Of integers of up to 64 bits: 2^63 rows of them fit.
    Integer(Vec<i128>),
    /// Of decimals of up to 128 bits: as many fit.
    Decimal(Vec<i256>),
    /// Of decimals of up to 256 bits.
    Wide(Vec<Exact>),
}

impl Fold for ExactSum {
    fn resize(&mut self, groups: usize) {
        self.counts.resize(groups, 0);
        match &mut self.cells {
            Cells::Integer(sums) => sums.resize(groups, 0),
            Cells::Decimal(sums) => sums.resize(groups, i256::ZERO),
            Cells::Wide(sums) => sums.resize(groups, Exact::default()),
        }
    }

    fn read(&mut self, group: usize, state: &mut &[u8]) -> Result<()> {
        self.counts[group] += take_i64(state)?;
        match &mut self.cells {
            Cells::Integer(sums) => sums[group] += take_i128(state)?,
            Cells::Decimal(sums) => {
                let sum = Exact::read(state)?.to_i256().ok_or_else(damaged)?;
                sums[group] = sums[group].wrapping_add(sum);
            }
            Cells::Wide(sums) => sums[group].add(&Exact::read(state)?),
        }
        Ok(())
    }

    fn add(&mut self, input: &Input<'_>) -> Result<()> {
        let counts = &mut self.counts;
        match &mut self.cells {
            Cells::Integer(sums) => {
                let values = arrow::compute::cast(&input.arguments[0], &DataType::Int64)?;
                let values = values.as_primitive::<Int64Type>().values();
                input.for_each(|row, group, weight| {
                    counts[group] += weight;
                    sums[group] += i128::from(values[row]) * i128::from(weight);
                });
            }
            Cells::Decimal(sums) => {
                let values = input.arguments[0].as_primitive::<Decimal128Type>().values();
                input.for_each(|row, group, weight| {
                    counts[group] += weight;
                    let value = i256::from_i128(values[row]);
                    let value = match weight {
                        1 => value,
                        -1 => value.wrapping_neg(),
                        other => value.wrapping_mul(i256::from_i128(i128::from(other))),
                    };
                    sums[group] = sums[group].wrapping_add(value);
                });
            }
            Cells::Wide(sums) => {
                let values = input.arguments[0].as_primitive::<Decimal256Type>().values();
                input.for_each(|row, group, weight| {
                    counts[group] += weight;
                    let mut value = Exact::default();
                    value.add_i256(values[row]);
                    if weight == 1 {
                        sums[group].add(&value);
                    } else {
                        sums[group].add(&value.times(weight));
                    }
                });
            }
        }
        Ok(())
    }

    fn results(&self) -> Result<Results> {
        let groups = self.counts.len();
        match (&self.output, self.function) {
            (DataType::Int64, _) => collect::<_, Int64Array>(groups, &self.output, |group| self.integer(group)),
            (DataType::Float64 | DataType::Float32, _) => {
                collect::<_, Float64Array>(groups, &self.output, |group| Ok(self.float(group)))
            }
            (DataType::Decimal128(precision, scale), _) => {
                let plain = DataType::Decimal128(38, 10);
                let mut results = collect::<_, Decimal128Array>(groups, &plain, |group| {
                    let value = self.decimal(group, *precision, *scale)?;
                    value
                        .map(|value| value.to_i128().ok_or_else(decimal::overflow))
                        .transpose()
                })?;
                results.values = decimal::retyped(&results.values, &self.output);
                Ok(results)
            }
            (DataType::Decimal256(precision, scale), _) => {
                let plain = DataType::Decimal256(76, 10);
                let mut results =
                    collect::<_, Decimal256Array>(groups, &plain, |group| self.decimal(group, *precision, *scale))?;
                results.values = decimal::retyped(&results.values, &self.output);
                Ok(results)
            }
            (other, _) => Err(no_such_function(self.function, other)),
        }
    }

    fn write(&self, group: usize, state: &mut Vec<u8>) {
        put_i64(state, self.counts[group]);
        match &self.cells {
            Cells::Integer(sums) => put_i128(state, sums[group]),
            Cells::Decimal(sums) => {
                let mut sum = Exact::default();
                sum.add_i256(sums[group]);
                sum.write(state);
            }
            Cells::Wide(sums) => sums[group].write(state),
        }
    }

    fn is_overdrawn(&self, group: usize) -> bool {
        self.counts[group] < 0
    }
}

impl ExactSum {
    /// The sum of a group, `None` when it does not fit 256 bits.
    fn sum(&self, group: usize) -> Option<i256> {
        match &self.cells {
            Cells::Integer(sums) => Some(i256::from_i128(sums[group])),
            Cells::Decimal(sums) => Some(sums[group]),
            Cells::Wide(sums) => sums[group].to_i256(),
        }
    }

    fn integer(&self, group: usize) -> Result<Option<i64>> {
        if self.counts[group] == 0 {
            return Ok(None);
        }
        let sum = self.sum(group).and_then(i256::to_i128);
        let sum = sum.and_then(|sum| i64::try_from(sum).ok());
        sum.map(Some)
            .ok_or_else(|| Error::semantic("22003", "bigint out of range"))
    }

    fn float(&self, group: usize) -> Option<f64> {
        let count = self.counts[group];
        if count == 0 {
            return None;
        }
        let sum = match &self.cells {
            Cells::Integer(sums) => sums[group] as f64,
            _ => self.sum(group).map_or(f64::NAN, decimal::to_float) / 10.0_f64.powi(i32::from(self.scale)),
        };
        Some(if self.function == Function::Avg {
            sum / count as f64
        } else {
            sum
        })
    }

    fn decimal(&self, group: usize, precision: u8, scale: i8) -> Result<Option<i256>> {
        let count = self.counts[group];
        if count == 0 {
            return Ok(None);
        }
        if self.function == Function::Avg
            && let Cells::Integer(sums) = &self.cells
            && let Some(mean) = decimal::mean_of_integers(sums[group], count, scale)
        {
            return Ok(Some(mean));
        }
        let value = match self.function {
            Function::Avg => {
                let mut sum = Exact::default();
                match &self.cells {
                    Cells::Wide(sums) => sum.add(&sums[group]),
                    _ => sum.add_i256(self.sum(group).ok_or_else(decimal::overflow)?),
                }
                decimal::quotient(&sum, self.scale, &[count as u64], 0, scale)
            }
            _ => self.sum(group).and_then(|sum| decimal::rescale(sum, self.scale, scale)),
        };
        let value = value.ok_or_else(decimal::overflow)?;
        decimal::check(value, precision)?;
        Ok(Some(value))
    }
}

/// Sums of floats.
#[derive(Debug)]
struct FloatSum {
    function: Function,
    output: DataType,
    cells: Vec<FloatCell>,
}

/// The sum of one group, and the values that no sum can hold, counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct FloatCell {
    sum: Exact,
    finite: i64,
    nans: i64,
    rising: i64,
    falling: i64,
}

impl FloatCell {
    /// Adds a value so many times.
    pub(crate) fn add(&mut self, value: f64, weight: i64) {
        if value.is_finite() {
            self.sum.add_float(value, weight);
            self.finite += weight;
        } else if value.is_nan() {
            self.nans += weight;
        } else if value > 0.0 {
            self.rising += weight;
        } else {
            self.falling += weight;
        }
    }

    fn count(&self) -> i64 {
        self.finite + self.nans + self.rising + self.falling
    }

    fn is_overdrawn(&self) -> bool {
        self.finite < 0 || self.nans < 0 || self.rising < 0 || self.falling < 0
    }

    fn value(&self, function: Function) -> Result<Option<f64>> {
        let count = self.count();
        if count == 0 {
            return Ok(None);
        }
        if self.nans > 0 || (self.rising > 0 && self.falling > 0) {
            return Ok(Some(f64::NAN));
        }
        if self.rising > 0 {
            return Ok(Some(f64::INFINITY));
        }
        if self.falling > 0 {
            return Ok(Some(f64::NEG_INFINITY));
        }
        if function == Function::Sum {
            return self.sum.to_float().map(Some).ok_or_else(float_overflow);
        }
        match self.sum.to_float() {
            Some(sum) => Ok(Some(sum / count as f64)),
            // The sum is no float, but the mean of floats is.
            None => {
                let (mantissa, exponent) = self.sum.to_scaled();
                let mean = super::exact::scale_by_power(mantissa / count as f64, exponent + super::exact::FLOAT_UNIT);
                Ok(Some(mean))
            }
        }
    }

    fn read(state: &mut &[u8]) -> Result<Self> {
        Ok(Self {
            sum: Exact::read(state)?,
            finite: take_i64(state)?,
            nans: take_i64(state)?,
            rising: take_i64(state)?,
            falling: take_i64(state)?,
        })
    }

    fn write(&self, state: &mut Vec<u8>) {
        self.sum.write(state);
        for count in [self.finite, self.nans, self.rising, self.falling] {
            put_i64(state, count);
        }
    }
}

impl Fold for FloatSum {
    fn resize(&mut self, groups: usize) {
        self.cells.resize(groups, FloatCell::default());
    }

    fn read(&mut self, group: usize, state: &mut &[u8]) -> Result<()> {
        let cell = &mut self.cells[group];
        let other = FloatCell::read(state)?;
        cell.sum.add(&other.sum);
        cell.finite += other.finite;
        cell.nans += other.nans;
        cell.rising += other.rising;
        cell.falling += other.falling;
        Ok(())
    }

    fn add(&mut self, input: &Input<'_>) -> Result<()> {
        let values = arrow::compute::cast(&input.arguments[0], &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>().values();
        input.for_each(|row, group, weight| self.cells[group].add(values[row], weight));
        Ok(())
    }

    fn results(&self) -> Result<Results> {
        let real = self.output == DataType::Float32;
        collect::<_, Float64Array>(self.cells.len(), &self.output, |group| {
            let value = self.cells[group].value(self.function)?;
            match value {
                Some(value) if real && value.is_finite() && (value as f32).is_infinite() => Err(float_overflow()),
                other => Ok(other),
            }
        })
    }

    fn write(&self, group: usize, state: &mut Vec<u8>) {
        self.cells[group].write(state);
    }

    fn is_overdrawn(&self, group: usize) -> bool {
        self.cells[group].is_overdrawn()
    }
}

/// Sums of intervals: months, days and nanoseconds apart.
#[derive(Debug)]
struct IntervalSum {
    function: Function,
    cells: Vec<[i128; 4]>,
}

impl Fold for IntervalSum {
    fn resize(&mut self, groups: usize) {
        self.cells.resize(groups, [0; 4]);
    }

    fn read(&mut self, group: usize, state: &mut &[u8]) -> Result<()> {
        for part in &mut self.cells[group] {
            *part += take_i128(state)?;
        }
        Ok(())
    }

    fn add(&mut self, input: &Input<'_>) -> Result<()> {
        let values = input.arguments[0].as_primitive::<IntervalMonthDayNanoType>().values();
        input.for_each(|row, group, weight| {
            let weight = i128::from(weight);
            let cell = &mut self.cells[group];
            cell[0] += weight;
            cell[1] += i128::from(values[row].months) * weight;
            cell[2] += i128::from(values[row].days) * weight;
            cell[3] += i128::from(values[row].nanoseconds) * weight;
        });
        Ok(())
    }

    fn results(&self) -> Result<Results> {
        let overflow = |_| Error::semantic("22008", "interval out of range");
        let output = DataType::Interval(IntervalUnit::MonthDayNano);
        collect::<_, IntervalMonthDayNanoArray>(self.cells.len(), &output, |group| {
            let [count, months, days, nanoseconds] = self.cells[group];
            if count == 0 {
                return Ok(None);
            }
            let sum = IntervalMonthDayNano::new(
                i32::try_from(months).map_err(overflow)?,
                i32::try_from(days).map_err(overflow)?,
                i64::try_from(nanoseconds).map_err(overflow)?,
            );
            if self.function == Function::Sum {
                return Ok(Some(sum));
            }
            let count = count as f64;
            scaled_by(sum, |part| part / count).map(Some)
        })
    }

    fn write(&self, group: usize, state: &mut Vec<u8>) {
        self.cells[group].iter().for_each(|part| put_i128(state, *part));
    }

    fn is_overdrawn(&self, group: usize) -> bool {
        self.cells[group][0] < 0
    }
}
