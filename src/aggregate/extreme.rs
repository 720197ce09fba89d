//! The least and the greatest value so far, of input that only grows.
//!
//! `min(A + dA) = min(min A, min dA)` where nothing is taken away, so the result is all the state. The planner uses
//! these where it has proven that; a retraction is an error.

use super::Function;
use super::fold::{Fold, Input, Results};
use super::state::{damaged, put_i64, put_u64, take_i64, take_u64};
use crate::delta::KeyCodec;
use crate::error::Result;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, UInt32Array, new_null_array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Int64Type};

/// The fold of the least or greatest value of a type.
pub(crate) fn fold_of(function: Function, argument: &DataType, output: &DataType) -> Result<Box<dyn Fold>> {
    let cells = match argument {
        DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Date32
        | DataType::Time64(_)
        | DataType::Timestamp(..) => Cells::Integers(Vec::new()),
        other => Cells::Encoded(KeyCodec::keys(vec![other.clone()])?, Vec::new()),
    };
    Ok(Box::new(Extreme {
        greatest: function == Function::GreatestSoFar,
        argument: argument.clone(),
        output: output.clone(),
        cells,
        retracted: Vec::new(),
    }))
}

#[derive(Debug)]
struct Extreme {
    greatest: bool,
    argument: DataType,
    output: DataType,
    cells: Cells,
    /// The groups of which something was taken away.
    retracted: Vec<u32>,
}

/// One value per group, if it has one.
#[derive(Debug)]
enum Cells {
    /// Of types that are integers inside.
    Integers(Vec<Option<i64>>),
    /// Of other types, encoded so that bytes sort as the values do.
    Encoded(KeyCodec, Vec<Option<Box<[u8]>>>),
}

impl Fold for Extreme {
    fn resize(&mut self, groups: usize) {
        self.retracted.retain(|group| (*group as usize) < groups);
        match &mut self.cells {
            Cells::Integers(values) => values.resize(groups, None),
            Cells::Encoded(_, values) => values.resize(groups, None),
        }
    }

    fn read(&mut self, group: usize, state: &mut &[u8]) -> Result<()> {
        let has_value = take_u64(state)? == 1;
        let greatest = self.greatest;
        match &mut self.cells {
            Cells::Integers(values) if has_value => {
                let value = take_i64(state)?;
                if values[group].is_none_or(|best| if greatest { value > best } else { value < best }) {
                    values[group] = Some(value);
                }
            }
            Cells::Encoded(_, values) if has_value => {
                let length = take_u64(state)? as usize;
                let value = state.split_off(..length).ok_or_else(damaged)?;
                let better = |best: &[u8]| if greatest { value > best } else { value < best };
                if values[group].as_deref().is_none_or(better) {
                    values[group] = Some(value.into());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, input: &Input<'_>) -> Result<()> {
        let greatest = self.greatest;
        let retracted = &mut self.retracted;
        match &mut self.cells {
            Cells::Integers(cells) => {
                let values = integers(&input.arguments[0])?;
                let values = values.values();
                input.for_each(|row, group, weight| {
                    let (cell, value) = (&mut cells[group], values[row]);
                    if cell.is_none_or(|best| if greatest { value > best } else { value < best }) {
                        *cell = Some(value);
                    }
                    if weight < 0 {
                        retracted.push(group as u32);
                    }
                });
            }
            Cells::Encoded(codec, cells) => {
                let values = codec.encode(&input.arguments[..1], input.groups.len())?;
                input.for_each(|row, group, weight| {
                    let (cell, value) = (&mut cells[group], values.row(row).data());
                    let better = |best: &[u8]| if greatest { value > best } else { value < best };
                    if cell.as_deref().is_none_or(better) {
                        *cell = Some(value.into());
                    }
                    if weight < 0 {
                        retracted.push(group as u32);
                    }
                });
            }
        }
        Ok(())
    }

    fn results(&self) -> Result<Results> {
        let values: ArrayRef = match &self.cells {
            Cells::Integers(values) => {
                let values = Int64Array::from(values.clone());
                match self.argument {
                    DataType::Date32 => {
                        let days = arrow::compute::cast(&values, &DataType::Int32)?;
                        arrow::compute::cast(&days, &DataType::Date32)?
                    }
                    _ => arrow::compute::cast(&values, &self.argument)?,
                }
            }
            Cells::Encoded(codec, values) => {
                let present: Vec<&[u8]> = values.iter().flatten().map(AsRef::as_ref).collect();
                if present.is_empty() {
                    new_null_array(&self.argument, values.len())
                } else {
                    let mut next = 0;
                    let places = values.iter().map(|value| {
                        value.as_ref().map(|_| {
                            next += 1;
                            next - 1
                        })
                    });
                    let places: UInt32Array = places.collect();
                    take(&codec.decode(present)?.swap_remove(0), &places, None)?
                }
            }
        };
        let fits = values.data_type() == &self.output;
        Ok(Results::of(if fits {
            values
        } else {
            arrow::compute::cast(&values, &self.output)?
        }))
    }

    fn write(&self, group: usize, state: &mut Vec<u8>) {
        match &self.cells {
            Cells::Integers(values) => {
                put_u64(state, u64::from(values[group].is_some()));
                if let Some(value) = values[group] {
                    put_i64(state, value);
                }
            }
            Cells::Encoded(_, values) => {
                put_u64(state, u64::from(values[group].is_some()));
                if let Some(value) = &values[group] {
                    put_u64(state, value.len() as u64);
                    state.extend_from_slice(value);
                }
            }
        }
    }

    fn is_overdrawn(&self, group: usize) -> bool {
        self.retracted.contains(&(group as u32))
    }
}

/// The integers inside of values.
fn integers(values: &ArrayRef) -> Result<Int64Array> {
    let values = match values.data_type() {
        DataType::Date32 => arrow::compute::cast(values, &DataType::Int32)?,
        _ => values.clone(),
    };
    Ok(arrow::compute::cast(&values, &DataType::Int64)?
        .as_primitive::<Int64Type>()
        .clone())
}
