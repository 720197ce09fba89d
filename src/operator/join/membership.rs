//! Semi and anti joins whose condition is equality alone: left rows by whether their group on the right is empty.
//!
//! Of the right side only the number of rows of each key is kept. A left row is shown before and after by what its
//! right group was and is; with `s` for shown, `d(s * L) = s_new * L_new - s_old * L_old`, which is dL where s stays
//! and the whole group where it turns.

use super::side::{Arrivals, Part, Side, beside, emptiness};
use super::{Join, JoinKind};
use crate::delta::{Batch, Delta, Weights};
use crate::error::Result;
use crate::operator::groups::{Groups, not_there};
use crate::operator::{Operator, Output, Spec, StepContext};
use crate::state::Arranged;
use arrow::datatypes::SchemaRef;

pub(super) struct Running {
    spec: Join,
    left: Side,
    right: Side,
    schema: SchemaRef,
}

impl Running {
    pub(super) fn new(spec: &Join, inputs: &[SchemaRef]) -> Result<Self> {
        let (left, right): (Vec<usize>, Vec<usize>) = spec.on.iter().copied().unzip();
        Ok(Self {
            left: Side::new(left, &inputs[0])?,
            right: Side::new(right, &inputs[1])?,
            schema: spec.schema(inputs)?,
            spec: spec.clone(),
        })
    }

    fn put_out(&self, part: &Part<'_>, weights: Weights, count: usize, output: &mut Output) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let rows = beside(&self.schema, (&self.left, part), None, count)?;
        output.push(Batch { rows, weights })
    }

    /// Puts out the whole groups that are marked.
    fn put_out_groups(
        &self,
        groups: &Groups,
        table: &Arranged,
        marked: impl Fn(usize) -> bool,
        sign: i64,
        output: &mut Output,
    ) -> Result<()> {
        let (mut rows, mut weights) = (Vec::new(), Vec::new());
        for number in (0..groups.len()).filter(|number| marked(*number)) {
            for (row, weight) in table.group(groups.key(number)).iter() {
                rows.push(row);
                weights.push(sign * weight);
            }
        }
        self.put_out(&Part::Decoded(&rows), Weights::from(weights), rows.len(), output)
    }
}

impl Operator for Running {
    fn step(&mut self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        let mut groups = Groups::default();
        let dl = self.left.take(
            &inputs[0],
            Arrivals::of(&inputs[0..=0]),
            self.spec.null_equality,
            &mut groups,
        )?;
        let dr = self.right.take(
            &inputs[1],
            Arrivals::of(&inputs[1..=1]),
            self.spec.null_equality,
            &mut groups,
        )?;
        let (left, right) = context.tables.arranged_pair(0, 1);
        left.load(groups.iter())?;
        right.load(groups.iter())?;
        let when_empty = self.spec.kind == JoinKind::LeftAnti;
        let shown = |empty: Vec<bool>| -> Vec<bool> { empty.iter().map(|empty| *empty == when_empty).collect() };
        let was_shown = shown(emptiness(right, &groups, groups.len()));
        let mut change = vec![0_i64; groups.len()];
        for part in &dr.parts {
            for (row, number) in part.groups.iter().enumerate() {
                change[*number as usize] += part.batch.weights.at(row);
            }
        }
        for (number, amount) in change.iter().enumerate().filter(|(_, amount)| **amount != 0) {
            let key = groups.key(number);
            let missing = |_| not_there(self.spec.name(), &self.right.keys, key);
            right.update(key, &[], *amount).map_err(missing)?;
        }
        let is_shown = shown(emptiness(right, &groups, groups.len()));
        self.put_out_groups(
            &groups,
            left,
            |number| was_shown[number] && !is_shown[number],
            -1,
            output,
        )?;
        self.left.apply(self.spec.name(), &dl, &groups, left)?;
        for part in &dl.parts {
            let stays = |number: usize| was_shown[number] && is_shown[number];
            let rows = part
                .groups
                .iter()
                .enumerate()
                .filter(|(_, number)| stays(**number as usize));
            let rows: Vec<u32> = rows.map(|(row, _)| row as u32).collect();
            let weights: Vec<i64> = rows.iter().map(|row| part.batch.weights.at(*row as usize)).collect();
            self.put_out(
                &Part::Taken(&part.batch.rows, &rows),
                Weights::from(weights),
                rows.len(),
                output,
            )?;
        }
        if when_empty {
            for batch in &dl.alone {
                let rows: Vec<u32> = (0..batch.len() as u32).collect();
                self.put_out(
                    &Part::Taken(&batch.rows, &rows),
                    batch.weights.clone(),
                    batch.len(),
                    output,
                )?;
            }
        }
        self.put_out_groups(
            &groups,
            left,
            |number| !was_shown[number] && is_shown[number],
            1,
            output,
        )
    }
}
