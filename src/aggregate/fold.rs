//! Functions whose state is a few numbers per group, to which rows are added and from which they are taken.
//!
//! Each is linear in its state: state(A + dA) = state(A) + state(dA), where taking a row away is adding it with a
//! negative weight. So a retraction is nothing special, and the order of rows does not matter.

use super::state::{put_i64, take_i64};
use super::{Call, Function};
use crate::delta::Weights;
use crate::error::{Error, Result};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, new_null_array};
use arrow::datatypes::{DataType, Int64Type};
use std::fmt::Debug;
use std::sync::Arc;

/// Rows for a fold, each with its group.
pub(crate) struct Input<'a> {
    /// The arguments.
    pub(crate) arguments: &'a [ArrayRef],
    /// The group of each row.
    pub(crate) groups: &'a [u32],
    /// The weight of each row.
    pub(crate) weights: &'a Weights,
    /// Which rows count.
    pub(crate) filter: Option<&'a BooleanArray>,
}

impl Input<'_> {
    /// Calls `each` with row, group and weight of the rows that count: they pass the filter and none of the
    /// arguments is NULL.
    pub(crate) fn for_each(&self, mut each: impl FnMut(usize, usize, i64)) {
        let plain = self.filter.is_none() && self.arguments.iter().all(|argument| argument.null_count() == 0);
        if plain && let Weights::Ones = self.weights {
            self.groups
                .iter()
                .enumerate()
                .for_each(|(row, group)| each(row, *group as usize, 1));
            return;
        }
        for (row, group) in self.groups.iter().enumerate() {
            let counts = plain
                || (self
                    .filter
                    .is_none_or(|filter| filter.is_valid(row) && filter.value(row))
                    && self.arguments.iter().all(|argument| argument.is_valid(row)));
            if counts {
                each(row, *group as usize, self.weights.at(row));
            }
        }
    }
}

/// The results of all groups, NULL where a group failed.
pub(crate) struct Results {
    /// One value per group.
    pub(crate) values: ArrayRef,
    /// The groups that failed, in order.
    pub(crate) failures: Vec<(usize, Error)>,
}

impl Results {
    /// Results without failure.
    pub(crate) fn of(values: ArrayRef) -> Self {
        Self {
            values,
            failures: Vec::new(),
        }
    }
}

/// The states of some groups, for one call.
pub(crate) trait Fold: Debug + Send + Sync {
    /// Makes it so many groups; new ones are over nothing.
    fn resize(&mut self, groups: usize);
    /// Starts anew with so many groups, each over nothing.
    fn begin(&mut self, groups: usize) {
        self.resize(0);
        self.resize(groups);
    }
    /// Adds what is stored of a group.
    fn read(&mut self, group: usize, state: &mut &[u8]) -> Result<()>;
    /// Adds rows.
    fn add(&mut self, input: &Input<'_>) -> Result<()>;
    /// The results as they are now.
    fn results(&self) -> Result<Results>;
    /// Appends a group's state to what is stored.
    fn write(&self, group: usize, state: &mut Vec<u8>);
    /// Whether more was taken from a group than had been added.
    fn is_overdrawn(&self, group: usize) -> bool;
}

/// The fold of a call, if its function has one; `arguments` are the types of its arguments.
pub(crate) fn fold_of(call: &Call, arguments: &[DataType]) -> Result<Option<Box<dyn Fold>>> {
    let output = call.field.data_type().clone();
    Ok(Some(match call.function {
        Function::Count | Function::RegrCount => Box::new(Count::default()),
        Function::Sum | Function::Avg => super::sum::fold_of(call.function, &arguments[0], &output)?,
        Function::LeastSoFar | Function::GreatestSoFar => {
            super::extreme::fold_of(call.function, &arguments[0], &output)?
        }
        Function::BoolAnd | Function::BoolOr => Box::new(Truths {
            function: call.function,
            trues: Vec::new(),
            falses: Vec::new(),
        }),
        Function::BitAnd | Function::BitOr | Function::BitXor => Box::new(Bits {
            function: call.function,
            output,
            bits: Vec::new(),
            rows: Vec::new(),
        }),
        Function::VarPop
        | Function::VarSamp
        | Function::StddevPop
        | Function::StddevSamp
        | Function::CovarPop
        | Function::CovarSamp
        | Function::Corr
        | Function::RegrAvgx
        | Function::RegrAvgy
        | Function::RegrSxx
        | Function::RegrSyy
        | Function::RegrSxy
        | Function::RegrSlope
        | Function::RegrIntercept
        | Function::RegrR2 => super::moments::fold_of(call.function, arguments, &output)?,
        _ => return Ok(None),
    }))
}

/// The error for an aggregate over a type that it does not take.
pub(crate) fn no_such_function(function: Function, argument: &DataType) -> Error {
    let kind = crate::types::Type::of_arrow(argument);
    Error::unsupported(format!(
        "{function:?} of {kind} in a maintained view is not supported yet"
    ))
    .with_hint("Cast the argument to a numeric type.")
}

/// `count`.
#[derive(Debug, Default)]
struct Count {
    counts: Vec<i64>,
}

impl Fold for Count {
    fn resize(&mut self, groups: usize) {
        self.counts.resize(groups, 0);
    }

    fn read(&mut self, group: usize, state: &mut &[u8]) -> Result<()> {
        self.counts[group] += take_i64(state)?;
        Ok(())
    }

    fn add(&mut self, input: &Input<'_>) -> Result<()> {
        input.for_each(|_, group, weight| self.counts[group] += weight);
        Ok(())
    }

    fn results(&self) -> Result<Results> {
        Ok(Results::of(Arc::new(Int64Array::from(self.counts.clone()))))
    }

    fn write(&self, group: usize, state: &mut Vec<u8>) {
        put_i64(state, self.counts[group]);
    }

    fn is_overdrawn(&self, group: usize) -> bool {
        self.counts[group] < 0
    }
}

/// `bool_and` and `bool_or`.
#[derive(Debug)]
struct Truths {
    function: Function,
    trues: Vec<i64>,
    falses: Vec<i64>,
}

impl Fold for Truths {
    fn resize(&mut self, groups: usize) {
        self.trues.resize(groups, 0);
        self.falses.resize(groups, 0);
    }

    fn read(&mut self, group: usize, state: &mut &[u8]) -> Result<()> {
        self.trues[group] += take_i64(state)?;
        self.falses[group] += take_i64(state)?;
        Ok(())
    }

    fn add(&mut self, input: &Input<'_>) -> Result<()> {
        let values = input.arguments[0].as_boolean();
        let (trues, falses) = (&mut self.trues, &mut self.falses);
        input.for_each(|row, group, weight| {
            let counts = if values.value(row) { &mut *trues } else { &mut *falses };
            counts[group] += weight;
        });
        Ok(())
    }

    fn results(&self) -> Result<Results> {
        let value = |(trues, falses): (&i64, &i64)| match (trues, falses) {
            (0, 0) => None,
            _ if self.function == Function::BoolAnd => Some(*falses == 0),
            _ => Some(*trues > 0),
        };
        let values: BooleanArray = self.trues.iter().zip(&self.falses).map(value).collect();
        Ok(Results::of(Arc::new(values)))
    }

    fn write(&self, group: usize, state: &mut Vec<u8>) {
        put_i64(state, self.trues[group]);
        put_i64(state, self.falses[group]);
    }

    fn is_overdrawn(&self, group: usize) -> bool {
        self.trues[group] < 0 || self.falses[group] < 0
    }
}

/// `bit_and`, `bit_or`, `bit_xor`: how many rows have each bit set.
#[derive(Debug)]
struct Bits {
    function: Function,
    output: DataType,
    bits: Vec<[i64; 64]>,
    rows: Vec<i64>,
}

impl Fold for Bits {
    fn resize(&mut self, groups: usize) {
        self.bits.resize(groups, [0; 64]);
        self.rows.resize(groups, 0);
    }

    fn read(&mut self, group: usize, state: &mut &[u8]) -> Result<()> {
        self.rows[group] += take_i64(state)?;
        for count in &mut self.bits[group] {
            *count += take_i64(state)?;
        }
        Ok(())
    }

    fn add(&mut self, input: &Input<'_>) -> Result<()> {
        let values = arrow::compute::cast(&input.arguments[0], &DataType::Int64)?;
        let values = values.as_primitive::<Int64Type>();
        let (bits, rows) = (&mut self.bits, &mut self.rows);
        input.for_each(|row, group, weight| {
            rows[group] += weight;
            let mut rest = values.value(row) as u64;
            while rest != 0 {
                bits[group][rest.trailing_zeros() as usize] += weight;
                rest &= rest - 1;
            }
        });
        Ok(())
    }

    fn results(&self) -> Result<Results> {
        let value = |(bits, rows): (&[i64; 64], &i64)| {
            let holds = |count: i64| match self.function {
                Function::BitAnd => count == *rows,
                Function::BitOr => count > 0,
                _ => count % 2 == 1,
            };
            let set = bits.iter().enumerate().filter(|(_, count)| holds(**count));
            (*rows > 0).then(|| set.fold(0_u64, |value, (bit, _)| value | 1 << bit) as i64)
        };
        let values: Int64Array = self.bits.iter().zip(&self.rows).map(value).collect();
        Ok(Results::of(arrow::compute::cast(&values, &self.output)?))
    }

    fn write(&self, group: usize, state: &mut Vec<u8>) {
        put_i64(state, self.rows[group]);
        self.bits[group].iter().for_each(|count| put_i64(state, *count));
    }

    fn is_overdrawn(&self, group: usize) -> bool {
        self.rows[group] < 0 || self.bits[group].iter().any(|count| *count < 0)
    }
}

/// Builds an array of `output` from one value or failure per group.
pub(crate) fn collect<T, A: Array + FromIterator<Option<T>> + 'static>(
    groups: usize,
    output: &DataType,
    value: impl Fn(usize) -> Result<Option<T>>,
) -> Result<Results> {
    if groups == 0 {
        return Ok(Results::of(new_null_array(output, 0)));
    }
    let mut failures = Vec::new();
    let values: A = (0..groups)
        .map(|group| {
            value(group).unwrap_or_else(|error| {
                failures.push((group, error));
                None
            })
        })
        .collect();
    let values: ArrayRef = Arc::new(values);
    let values = if values.data_type() == output {
        values
    } else {
        arrow::compute::cast(&values, output)?
    };
    Ok(Results { values, failures })
}
