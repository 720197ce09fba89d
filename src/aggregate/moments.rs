//! Variance, covariance, correlation and the fitted line, from exact sums.
//!
//! With n rows, `A = n * sum(x^2) - sum(x)^2` and `C = n * sum(x * y) - sum(x) * sum(y)` hold everything that these
//! functions need. All sums are exact integers, so A is never negative, is exactly 0 for equal values, and nothing is
//! lost to cancellation; only the last division rounds.

use super::exact::{Exact, FLOAT_UNIT, float_overflow, scale_by_power};
use super::fold::{Fold, Input, Results, collect, no_such_function};
use super::state::{put_i64, take_i64};
use super::{Function, decimal};
use crate::error::Result;
use arrow::array::{Array, AsArray, Decimal256Array, Float64Array};
use arrow::datatypes::{DataType, Decimal256Type, Float64Type, i256};

/// The fold of a function of moments.
pub(crate) fn fold_of(function: Function, arguments: &[DataType], output: &DataType) -> Result<Box<dyn Fold>> {
    let unit = match (&arguments[0], arguments.len()) {
        (DataType::Float32 | DataType::Float64, _) | (_, 2) => Unit::Binary,
        (DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64, _) => Unit::Decimal(0),
        (DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale), _) => Unit::Decimal(*scale),
        (other, _) => return Err(no_such_function(function, other)),
    };
    if !matches!(output, DataType::Float64 | DataType::Float32 | DataType::Decimal256(..)) {
        return Err(no_such_function(function, output));
    }
    Ok(Box::new(Moments {
        function,
        unit,
        output: output.clone(),
        cells: Vec::new(),
    }))
}

/// What the sums count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Powers of two, as floats do.
    Binary,
    /// Powers of ten: 10^-scale.
    Decimal(i8),
}

#[derive(Debug)]
struct Moments {
    function: Function,
    unit: Unit,
    output: DataType,
    cells: Vec<Cell>,
}

/// The sums of one group. With one argument that is x.
#[derive(Debug, Clone, Default)]
struct Cell {
    rows: i64,
    /// Rows in which one of them is NaN or infinite.
    strange: i64,
    x: Exact,
    xx: Exact,
    y: Exact,
    yy: Exact,
    xy: Exact,
}

impl Fold for Moments {
    fn resize(&mut self, groups: usize) {
        self.cells.resize(groups, Cell::default());
    }

    fn read(&mut self, group: usize, state: &mut &[u8]) -> Result<()> {
        let pair = self.is_pair();
        let cell = &mut self.cells[group];
        cell.rows += take_i64(state)?;
        cell.strange += take_i64(state)?;
        for sum in cell.sums(pair) {
            sum.add(&Exact::read(state)?);
        }
        Ok(())
    }

    fn add(&mut self, input: &Input<'_>) -> Result<()> {
        match (self.unit, input.arguments) {
            (Unit::Binary, [x]) => self.add_floats(input, x, None),
            (Unit::Binary, [y, x, ..]) => self.add_floats(input, x, Some(y)),
            (Unit::Decimal(_), [x, ..]) => self.add_decimals(input, x),
            (_, []) => Ok(()),
        }
    }

    fn results(&self) -> Result<Results> {
        match &self.output {
            DataType::Decimal256(precision, scale) => {
                let plain = DataType::Decimal256(76, 10);
                let mut results = collect::<_, Decimal256Array>(self.cells.len(), &plain, |group| {
                    self.decimal(group, *precision, *scale)
                })?;
                results.values = decimal::retyped(&results.values, &self.output);
                Ok(results)
            }
            output => collect::<_, Float64Array>(self.cells.len(), output, |group| self.float(group)),
        }
    }

    fn write(&self, group: usize, state: &mut Vec<u8>) {
        let mut cell = self.cells[group].clone();
        put_i64(state, cell.rows);
        put_i64(state, cell.strange);
        cell.sums(self.is_pair()).iter().for_each(|sum| sum.write(state));
    }

    fn is_overdrawn(&self, group: usize) -> bool {
        let cell = &self.cells[group];
        cell.rows < 0 || cell.strange < 0 || cell.strange > cell.rows || cell.xx.is_negative()
    }
}

impl Moments {
    fn is_pair(&self) -> bool {
        !matches!(
            self.function,
            Function::VarPop | Function::VarSamp | Function::StddevPop | Function::StddevSamp
        )
    }

    fn is_sample(&self) -> bool {
        matches!(
            self.function,
            Function::VarSamp | Function::StddevSamp | Function::CovarSamp
        )
    }

    fn add_floats(&mut self, input: &Input<'_>, x: &dyn Array, y: Option<&arrow::array::ArrayRef>) -> Result<()> {
        let x = arrow::compute::cast(x, &DataType::Float64)?;
        let x = x.as_primitive::<Float64Type>().values();
        let y = y.map(|y| arrow::compute::cast(y, &DataType::Float64)).transpose()?;
        let y = y.as_ref().map(|y| y.as_primitive::<Float64Type>().values());
        input.for_each(|row, group, weight| {
            let cell = &mut self.cells[group];
            cell.rows += weight;
            let (x, y) = (x[row], y.map(|y| y[row]));
            if !x.is_finite() || y.is_some_and(|y| !y.is_finite()) {
                cell.strange += weight;
                return;
            }
            cell.x.add_float(x, weight);
            cell.xx.add_product(x, x, weight);
            if let Some(y) = y {
                cell.y.add_float(y, weight);
                cell.yy.add_product(y, y, weight);
                cell.xy.add_product(x, y, weight);
            }
        });
        Ok(())
    }

    fn add_decimals(&mut self, input: &Input<'_>, x: &dyn Array) -> Result<()> {
        let scale = match self.unit {
            Unit::Decimal(scale) => scale,
            Unit::Binary => 0,
        };
        let x = arrow::compute::cast(x, &DataType::Decimal256(76, scale))?;
        let x = x.as_primitive::<Decimal256Type>().values();
        input.for_each(|row, group, weight| {
            let cell = &mut self.cells[group];
            cell.rows += weight;
            let mut value = Exact::default();
            value.add_i256(x[row]);
            let weighted = if weight == 1 {
                value.clone()
            } else {
                value.times(weight)
            };
            cell.xx.add(&weighted.product(&value));
            cell.x.add(&weighted);
        });
        Ok(())
    }

    /// What variances are divided by, or `None` when there are too few rows.
    fn divisors(&self, rows: i64) -> Option<[u64; 2]> {
        let rows = u64::try_from(rows).ok()?;
        if self.is_sample() {
            (rows > 1).then(|| [rows, rows - 1])
        } else {
            (rows > 0).then_some([rows, rows])
        }
    }

    fn decimal(&self, group: usize, precision: u8, to: i8) -> Result<Option<i256>> {
        let cell = &self.cells[group];
        let Some(divisors) = self.divisors(cell.rows) else {
            return Ok(None);
        };
        let scale = match self.unit {
            Unit::Decimal(scale) => scale,
            Unit::Binary => 0,
        };
        let spread = cell.spread(&cell.x, &cell.x, &cell.xx);
        let variance = decimal::quotient(&spread, 2 * scale, &divisors, scale, to);
        let value = match self.function {
            Function::StddevPop | Function::StddevSamp => variance.and_then(|variance| {
                let shown = decimal::quotient_scale(variance, to).max(scale);
                let variance = decimal::rescale(variance, to, shown)?;
                decimal::rescale(decimal::square_root(variance, shown)?, shown, to)
            }),
            _ => variance,
        };
        let value = value.ok_or_else(decimal::overflow)?;
        decimal::check(value, precision)?;
        Ok(Some(value))
    }

    fn float(&self, group: usize) -> Result<Option<f64>> {
        let cell = &self.cells[group];
        let Some([n, m]) = self.divisors(cell.rows) else {
            return Ok(None);
        };
        if cell.strange > 0 {
            return Ok(Some(f64::NAN));
        }
        let rows = whole(n);
        let over = rows.times(m as i64);
        let spread = cell.spread(&cell.x, &cell.x, &cell.xx);
        let value = match self.function {
            Function::VarPop | Function::VarSamp => Some(self.ratio(&spread, &over, 2)),
            Function::StddevPop | Function::StddevSamp => Some(self.ratio(&spread, &over, 2).sqrt()),
            _ => self.line(cell, &spread, &rows, &over),
        };
        match value {
            Some(value) if value.is_infinite() => Err(float_overflow()),
            other => Ok(other),
        }
    }

    /// The functions of two arguments.
    fn line(&self, cell: &Cell, spread: &Exact, rows: &Exact, over: &Exact) -> Option<f64> {
        let shared = cell.spread(&cell.x, &cell.y, &cell.xy);
        let other = cell.spread(&cell.y, &cell.y, &cell.yy);
        let correlation = || {
            let (a, b) = (self.ratio(&shared, spread, 0), self.ratio(&shared, &other, 0));
            // C / sqrt(A * B), as the geometric mean of both slopes.
            let size = (a.abs().sqrt() * b.abs().sqrt()).min(1.0);
            if shared.is_negative() { -size } else { size }
        };
        match self.function {
            Function::CovarPop | Function::CovarSamp => Some(self.ratio(&shared, over, 2)),
            Function::RegrAvgx => Some(self.ratio(&cell.x, rows, 1)),
            Function::RegrAvgy => Some(self.ratio(&cell.y, rows, 1)),
            Function::RegrSxx => Some(self.ratio(spread, rows, 2)),
            Function::RegrSyy => Some(self.ratio(&other, rows, 2)),
            Function::RegrSxy => Some(self.ratio(&shared, rows, 2)),
            Function::Corr if spread.is_zero() || other.is_zero() => None,
            Function::Corr => Some(correlation()),
            _ if spread.is_zero() => None,
            Function::RegrSlope => Some(self.ratio(&shared, spread, 0)),
            Function::RegrIntercept => {
                let mut top = cell.y.product(spread);
                top.add(&shared.product(&cell.x).negated());
                Some(self.ratio(&top, &spread.product(rows), 1))
            }
            Function::RegrR2 if other.is_zero() => Some(1.0),
            Function::RegrR2 => Some(correlation().powi(2)),
            _ => None,
        }
    }

    /// a / b, where a counts the unit to the power of `degree` more than b does.
    fn ratio(&self, a: &Exact, b: &Exact, degree: i64) -> f64 {
        let ((a, a_exponent), (b, b_exponent)) = (a.to_scaled(), b.to_scaled());
        let exponent = a_exponent - b_exponent;
        match self.unit {
            Unit::Binary => scale_by_power(a / b, exponent + degree * FLOAT_UNIT),
            Unit::Decimal(scale) => scale_by_power(a / b, exponent) / 10.0_f64.powi(i32::from(scale) * degree as i32),
        }
    }
}

impl Cell {
    fn sums(&mut self, pair: bool) -> Vec<&mut Exact> {
        let mut sums = vec![&mut self.x, &mut self.xx];
        if pair {
            sums.extend([&mut self.y, &mut self.yy, &mut self.xy]);
        }
        sums
    }

    /// n * sum(a * b) - sum(a) * sum(b).
    fn spread(&self, a: &Exact, b: &Exact, product: &Exact) -> Exact {
        let finite = self.rows - self.strange;
        let mut spread = product.times(finite);
        spread.add(&a.product(b).negated());
        spread
    }
}

fn whole(value: u64) -> Exact {
    let mut number = Exact::default();
    number.add_shifted(i128::from(value), 0);
    number
}
