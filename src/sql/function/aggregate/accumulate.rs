//! [`Tally`]s as DataFusion's accumulators.
//!
//! A state in the making is one binary value, which [`Tally::write`] writes.

use crate::aggregate::Call;
use crate::aggregate::tally::Tally;
use crate::delta::Weights;
use crate::error::Result;
use crate::sql::error::external;
use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, BooleanArray, Int64Array};
use arrow::datatypes::DataType;
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use std::sync::Arc;

/// What the order of a bag's rows comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The values, and the columns of the order.
    Given,
    /// The order in which they come, as the last column; they leave in the same.
    Arrival,
}

/// The accumulator of one group, or of a window's frame.
#[derive(Debug)]
pub(super) struct One {
    tally: Tally,
    order: Order,
    came: i64,
    left: i64,
}

impl One {
    pub(super) fn new(call: &Call, types: &[DataType], order: Order) -> Result<Self> {
        let mut tally = Tally::new(call, types)?;
        tally.resize(1);
        Ok(Self {
            tally,
            order,
            came: 0,
            left: 0,
        })
    }

    fn change(&mut self, values: &[ArrayRef], from: i64, weights: &Weights) -> DataFusionResult<()> {
        let rows = values.first().map_or(0, |column| column.len());
        let mut columns = values.to_vec();
        if self.order == Order::Arrival {
            columns.push(Arc::new(Int64Array::from_iter_values(from..from + rows as i64)));
        }
        self.tally
            .add(&columns, &vec![0; rows], weights, None)
            .map_err(external)
    }
}

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.change(values, self.came, &Weights::Ones)?;
        self.came += values.first().map_or(0, |column| column.len()) as i64;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        let rows = values.first().map_or(0, |column| column.len());
        self.change(values, self.left, &Weights::from(vec![-1; rows]))?;
        self.left += rows as i64;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        let results = self.tally.results().map_err(external)?;
        match results.failures.into_iter().next() {
            Some((_, error)) => Err(external(error)),
            None => ScalarValue::try_from_array(&results.values, 0),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.tally.bytes()
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        let mut state = Vec::new();
        self.tally.write(0, &mut state);
        Ok(vec![ScalarValue::Binary(Some(state))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        let states = states[0].as_binary::<i32>();
        for mut state in states.iter().flatten() {
            self.tally.read(0, &mut state).map_err(external)?;
        }
        Ok(())
    }
}

/// The accumulator of many groups.
pub(super) struct Groups {
    call: Call,
    types: Vec<DataType>,
    tally: Tally,
}

impl Groups {
    pub(super) fn new(call: Call, types: Vec<DataType>) -> Result<Self> {
        Ok(Self {
            tally: Tally::new(&call, &types)?,
            call,
            types,
        })
    }

    /// Forgets the groups that were given out; the others move up.
    fn forget(&mut self, emitted: EmitTo) -> Result<()> {
        let kept = match emitted {
            EmitTo::All => Vec::new(),
            EmitTo::First(count) => states(&self.tally, count..self.tally.groups()),
        };
        self.tally.resize(0);
        self.tally.resize(kept.len());
        for (group, state) in kept.iter().enumerate() {
            self.tally.read(group, &mut state.as_slice())?;
        }
        Ok(())
    }

    fn emitted(&self, emit_to: EmitTo) -> usize {
        match emit_to {
            EmitTo::All => self.tally.groups(),
            EmitTo::First(count) => count,
        }
    }

    fn results(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let count = self.emitted(emit_to);
        let results = self.tally.results()?;
        if let Some((_, error)) = results.failures.into_iter().find(|(group, _)| *group < count) {
            return Err(error);
        }
        self.forget(emit_to)?;
        Ok(results.values.slice(0, count))
    }
}

fn states(tally: &Tally, groups: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    groups
        .map(|group| {
            let mut state = Vec::new();
            tally.write(group, &mut state);
            state
        })
        .collect()
}

fn state_column(states: &[Vec<u8>]) -> ArrayRef {
    let mut column = BinaryBuilder::new();
    states.iter().for_each(|state| column.append_value(state));
    Arc::new(column.finish())
}

fn numbers(groups: &[usize]) -> Vec<u32> {
    groups.iter().map(|group| *group as u32).collect()
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> DataFusionResult<()> {
        self.tally.resize(total);
        self.tally
            .add(values, &numbers(groups), &Weights::Ones, filter)
            .map_err(external)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> DataFusionResult<ArrayRef> {
        self.results(emit_to).map_err(external)
    }

    fn state(&mut self, emit_to: EmitTo) -> DataFusionResult<Vec<ArrayRef>> {
        let states = states(&self.tally, 0..self.emitted(emit_to));
        self.forget(emit_to).map_err(external)?;
        Ok(vec![state_column(&states)])
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> DataFusionResult<()> {
        self.tally.resize(total);
        let states: &BinaryArray = values[0].as_binary::<i32>();
        for (row, group) in groups.iter().enumerate() {
            if states.is_valid(row) {
                self.tally.read(*group, &mut states.value(row)).map_err(external)?;
            }
        }
        Ok(())
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> DataFusionResult<Vec<ArrayRef>> {
        let rows = values.first().map_or(0, |column| column.len());
        let mut single = Tally::new(&self.call, &self.types).map_err(external)?;
        single.resize(rows);
        let own: Vec<u32> = (0..rows as u32).collect();
        single.add(values, &own, &Weights::Ones, filter).map_err(external)?;
        Ok(vec![state_column(&states(&single, 0..rows))])
    }

    fn size(&self) -> usize {
        self.tally.bytes()
    }
}
