//! The windows that a time belongs to.
//!
//! A window is half-open and aligned to 1970-01-01 plus an offset. Which one a time is in is a floor division, so that
//! times before 1970 come out right; NULL and infinite times are in none.
//!
//! ```text
//! HOP slide 2, size 5:   [0    5)
//!                          [2    7)
//!                            [4    9)      a time at 4 is in three
//! ```

use super::cast::is_infinite;
use super::kernel::{columnar, expand};
use crate::error::{Error, Result};
use crate::sql::error::external;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray, StructArray, TimestampMicrosecondArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, IntervalMonthDayNano, TimestampMicrosecondType};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use std::sync::Arc;

/// The most windows that one row may be in.
pub const WINDOWS_PER_ROW_MAX: i64 = 10_000;

/// What is asked about a time. All lengths are microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Windows {
    /// Whether it is in a window at all: it is neither NULL nor infinite.
    Exists,
    /// The start of its tumbling window.
    TumbleStart {
        /// The window's length.
        size: i64,
        /// The shift from 1970-01-01.
        offset: i64,
    },
    /// The end of its tumbling window.
    TumbleEnd {
        /// The window's length.
        size: i64,
        /// The shift from 1970-01-01.
        offset: i64,
    },
    /// The starts of its hopping windows, in order, as a list.
    HopStarts {
        /// From one window's start to the next one's.
        slide: i64,
        /// The window's length.
        size: i64,
        /// The shift from 1970-01-01.
        offset: i64,
    },
    /// The end of a hopping window that starts at the time.
    HopEnd {
        /// The window's length.
        size: i64,
    },
    /// Its cumulating windows, in order, as a list of starts and ends.
    CumulateWindows {
        /// From one window's end to the next one's.
        step: i64,
        /// The longest window's length.
        size: i64,
        /// The shift from 1970-01-01.
        offset: i64,
    },
}

/// A question about windows as a function that DataFusion calls.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct WindowFunction {
    /// What is asked.
    pub windows: Windows,
    signature: Signature,
}

impl WindowFunction {
    /// The call that asks about a time.
    pub fn call(windows: Windows, time: Expr) -> Expr {
        let function = Self {
            windows,
            signature: Signature::new(TypeSignature::Any(1), Volatility::Immutable),
        };
        Expr::ScalarFunction(ScalarFunction::new_udf(
            Arc::new(ScalarUDF::new_from_impl(function)),
            vec![time],
        ))
    }

    /// The question that an expression asks, and about which time.
    pub fn of(expr: &Expr) -> Option<(Windows, &Expr)> {
        let Expr::ScalarFunction(function) = expr else {
            return None;
        };
        let own = function.func.inner().downcast_ref::<Self>()?;
        Some((own.windows, function.args.first()?))
    }
}

/// The length of a window in microseconds: positive, and without months, whose length varies.
pub(crate) fn length_micros(interval: IntervalMonthDayNano, what: &str) -> Result<i64> {
    let micros = offset_micros(interval, what)?;
    if micros <= 0 {
        return Err(Error::semantic("22023", format!("{what} must be positive")));
    }
    Ok(micros)
}

/// A shift in microseconds: any sign, without months.
pub(crate) fn offset_micros(interval: IntervalMonthDayNano, what: &str) -> Result<i64> {
    if interval.months != 0 {
        return Err(
            Error::semantic("22023", format!("{what} must not contain months or years"))
                .with_hint("A month has no fixed length; use days."),
        );
    }
    let days = i64::from(interval.days).checked_mul(86_400_000_000);
    days.and_then(|days| days.checked_add(interval.nanoseconds / 1000))
        .ok_or_else(|| Error::semantic("22008", format!("{what} is out of range")))
}

/// The start of the window of that size that a time is in.
pub fn window_start(micros: i64, size: i64, offset: i64) -> i64 {
    let shifted = micros.saturating_sub(offset);
    micros.saturating_sub(shifted.rem_euclid(size))
}

/// The starts of the windows of that size and slide that a time is in, in order.
pub fn hop_starts(micros: i64, slide: i64, size: i64, offset: i64) -> impl Iterator<Item = i64> {
    let last = window_start(micros, slide, offset);
    // Windows that start at last - k * slide hold the time as long as micros - start < size.
    let since = micros - last;
    let count = if since >= size {
        0
    } else {
        (size - since - 1) / slide + 1
    };
    (0..count).rev().map(move |k| last.saturating_sub(k * slide))
}

/// The start and the ends of the cumulating windows that a time is in.
pub fn cumulate_ends(micros: i64, step: i64, size: i64, offset: i64) -> (i64, impl Iterator<Item = i64>) {
    let start = window_start(micros, size, offset);
    let first = (micros - start) / step + 1;
    let count = (size + step - 1) / step;
    (
        start,
        (first..=count).map(move |k| start.saturating_add((k * step).min(size))),
    )
}

impl ScalarUDFImpl for WindowFunction {
    fn name(&self) -> &str {
        match self.windows {
            Windows::Exists => "has_window",
            Windows::TumbleStart { .. } => "tumble_start",
            Windows::TumbleEnd { .. } => "tumble_end",
            Windows::HopStarts { .. } => "hop_starts",
            Windows::HopEnd { .. } => "hop_end",
            Windows::CumulateWindows { .. } => "cumulate_windows",
        }
    }

    fn schema_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        let time = args.first().map(ToString::to_string).unwrap_or_default();
        Ok(match self.windows {
            Windows::Exists => format!("has_window({time})"),
            Windows::TumbleStart { size, offset } => format!("tumble_start({time}, {size}, {offset})"),
            Windows::TumbleEnd { size, offset } => format!("tumble_end({time}, {size}, {offset})"),
            Windows::HopStarts { slide, size, offset } => {
                format!("hop_starts({time}, {slide}, {size}, {offset})")
            }
            Windows::HopEnd { size } => format!("hop_end({time}, {size})"),
            Windows::CumulateWindows { step, size, offset } => {
                format!("cumulate_windows({time}, {step}, {size}, {offset})")
            }
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        let time = types.first().cloned().unwrap_or(DataType::Null);
        Ok(match self.windows {
            Windows::Exists => DataType::Boolean,
            Windows::HopStarts { .. } => DataType::List(item(time)),
            Windows::CumulateWindows { .. } => DataType::List(item(DataType::Struct(bounds(&time)))),
            _ => time,
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let nullable = self.windows != Windows::Exists;
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (arrays, shape) = expand(&args)?;
        let Some(times) = arrays.first() else {
            return Err(external(Error::internal("a window needs a time")));
        };
        columnar(self.evaluate(times).map_err(external)?, shape)
    }
}

fn item(data_type: DataType) -> FieldRef {
    Arc::new(Field::new("item", data_type, true))
}

fn bounds(time: &DataType) -> Fields {
    Fields::from(vec![
        Field::new("window_start", time.clone(), true),
        Field::new("window_end", time.clone(), true),
    ])
}

impl WindowFunction {
    fn evaluate(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let kind = array.data_type().clone();
        let times = array.as_primitive::<TimestampMicrosecondType>();
        let finite = |row: usize| times.is_valid(row) && !is_infinite(times.value(row));
        let each = |change: &dyn Fn(i64) -> i64| -> ArrayRef {
            let values: TimestampMicrosecondArray = (0..times.len())
                .map(|row| finite(row).then(|| change(times.value(row))))
                .collect();
            Arc::new(values.with_data_type(kind.clone()))
        };
        Ok(match self.windows {
            Windows::Exists => {
                let found: BooleanArray = (0..times.len()).map(|row| Some(finite(row))).collect();
                Arc::new(found)
            }
            Windows::TumbleStart { size, offset } => each(&|micros| window_start(micros, size, offset)),
            Windows::TumbleEnd { size, offset } => {
                each(&|micros| window_start(micros, size, offset).saturating_add(size))
            }
            Windows::HopEnd { size } => each(&|micros| micros.saturating_add(size)),
            Windows::HopStarts { slide, size, offset } => {
                let mut starts = Vec::new();
                let mut offsets = vec![0];
                for row in 0..times.len() {
                    if finite(row) {
                        starts.extend(hop_starts(times.value(row), slide, size, offset));
                    }
                    offsets.push(starts.len() as i32);
                }
                let values = TimestampMicrosecondArray::from(starts).with_data_type(kind.clone());
                list(offsets, Arc::new(values), kind)?
            }
            Windows::CumulateWindows { step, size, offset } => {
                let (mut starts, mut ends) = (Vec::new(), Vec::new());
                let mut offsets = vec![0];
                for row in 0..times.len() {
                    if finite(row) {
                        let (start, all) = cumulate_ends(times.value(row), step, size, offset);
                        for end in all {
                            starts.push(start);
                            ends.push(end);
                        }
                    }
                    offsets.push(starts.len() as i32);
                }
                let column = |values: Vec<i64>| -> ArrayRef {
                    Arc::new(TimestampMicrosecondArray::from(values).with_data_type(kind.clone()))
                };
                let fields = bounds(&kind);
                let structs = StructArray::try_new(fields.clone(), vec![column(starts), column(ends)], None)?;
                list(offsets, Arc::new(structs), DataType::Struct(fields))?
            }
        })
    }
}

fn list(offsets: Vec<i32>, values: ArrayRef, element: DataType) -> Result<ArrayRef> {
    Ok(Arc::new(ListArray::try_new(
        item(element),
        OffsetBuffer::new(offsets.into()),
        values,
        None,
    )?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_floor_for_negative_times() {
        assert_eq!(window_start(-1, 10, 0), -10);
        assert_eq!(window_start(0, 10, 0), 0);
        assert_eq!(window_start(-10, 10, 0), -10);
        assert_eq!(window_start(5, 10, 3), 3);
        assert_eq!(window_start(2, 10, 3), -7);
        assert_eq!(window_start(2, 10, -7), -7);
        assert_eq!(window_start(2, 10, 1003), -7);
    }

    #[test]
    fn hops_hold_their_times() {
        for (slide, size) in [(2, 10), (3, 10), (10, 10), (10, 3), (7, 8)] {
            for time in -40..40 {
                let starts: Vec<i64> = hop_starts(time, slide, size, 1).collect();
                let naive: Vec<i64> = (-100..100)
                    .filter(|start| (start - 1i64).rem_euclid(slide) == 0 && *start <= time && time < start + size)
                    .collect();
                assert_eq!(starts, naive, "slide {slide} size {size} time {time}");
            }
        }
    }

    #[test]
    fn cumulating_windows_grow() {
        let (start, ends) = cumulate_ends(25, 10, 60, 0);
        assert_eq!((start, ends.collect::<Vec<_>>()), (0, vec![30, 40, 50, 60]));
        let (start, ends) = cumulate_ends(-1, 10, 25, 0);
        assert_eq!((start, ends.collect::<Vec<_>>()), (-25, vec![0]));
        let (_, ends) = cumulate_ends(0, 10, 25, 0);
        assert_eq!(ends.collect::<Vec<_>>(), vec![10, 20, 25]);
    }
}
