//! Outer, semi and anti joins with a residual: the number of each row's partners is kept.
//!
//! A pair of rows (l, r) that belong together has the weight L(l) * R(r). The partners of l are the sum of R(r) over
//! all r that belong to it; l is without a partner when that is 0. A change touches the pairs in which a changed row
//! stands; each of these is looked at once, with both weights before and after:
//!
//! - the pair changes by `L_new R_new - L_old R_old`;
//! - the partners of a left row that stays change by `R_new - R_old`, those of one that comes begin at `R_new`;
//! - and so for the right row, the other way round.

use super::pairs::residual_rows;
use super::side::{Arrivals, Part, Side, SideChange, beside};
use super::{Join, JoinKind};
use crate::delta::{Batch, Delta, Weights};
use crate::error::{Error, Result};
use crate::expr::Compiled;
use crate::operator::groups::{Groups, not_there};
use crate::operator::{Faults, Operator, Output, Spec, StepContext};
use crate::state::{Arranged, Table};
use ahash::RandomState;
use arrow::array::Int64Array;
use arrow::datatypes::SchemaRef;
use hashbrown::HashMap;

/// The pairs that are looked at together.
const PAIRS_MAX: usize = 8192;

pub(super) struct Running {
    spec: Join,
    left: Side,
    right: Side,
    residual: Compiled,
    /// Of left ++ right.
    pair_schema: SchemaRef,
    schema: SchemaRef,
}

/// A row of a key, and its weight before and after.
#[derive(Debug, Clone, Copy)]
struct Row<'a> {
    key: u32,
    bytes: &'a [u8],
    old: i64,
    new: i64,
}

/// The rows of a side that change.
#[derive(Default)]
struct Changes<'a> {
    amounts: HashMap<(u32, &'a [u8]), i64, RandomState>,
    by_key: HashMap<u32, Vec<&'a [u8]>, RandomState>,
}

/// How the partners of rows change, by key and bytes.
type Partners<'a> = HashMap<(u32, &'a [u8]), i64, RandomState>;

/// Pairs that wait to be looked at.
#[derive(Default)]
struct Candidates<'a> {
    left: Vec<Row<'a>>,
    right: Vec<Row<'a>>,
}

/// What was found out about pairs.
#[derive(Default)]
struct Found<'a> {
    left: Partners<'a>,
    right: Partners<'a>,
}

impl Running {
    pub(super) fn new(spec: &Join, inputs: &[SchemaRef]) -> Result<Self> {
        let Some(residual) = &spec.residual else {
            return Err(Error::internal("a join without a residual counts no partners"));
        };
        let (left, right): (Vec<usize>, Vec<usize>) = spec.on.iter().copied().unzip();
        let pair_schema = Join {
            kind: JoinKind::Inner,
            ..spec.clone()
        }
        .schema(inputs)?;
        Ok(Self {
            left: Side::new(left, &inputs[0])?,
            right: Side::new(right, &inputs[1])?,
            residual: residual.compile(&pair_schema)?,
            pair_schema,
            schema: spec.schema(inputs)?,
            spec: spec.clone(),
        })
    }

    fn shows_pairs(&self) -> bool {
        !self.spec.kind.is_filter()
    }

    /// Looks at the pairs in which a changed row stands, each once.
    fn meet<'a>(&self, epoch: &Epoch<'a>, faults: &mut Faults, output: &mut Output) -> Result<Found<'a>> {
        let mut found = Found::default();
        let mut waiting = Candidates::default();
        for ((key, bytes), change) in &epoch.dl.amounts {
            let left = epoch.row(epoch.left, *key, bytes, *change);
            for right in epoch.rows(epoch.right, &epoch.dr, *key) {
                if waiting.add(left, right) {
                    self.look(&mut waiting, &mut found, faults, output)?;
                }
            }
        }
        for ((key, bytes), change) in &epoch.dr.amounts {
            let right = epoch.row(epoch.right, *key, bytes, *change);
            for left in epoch
                .rows(epoch.left, &epoch.dl, *key)
                .filter(|left| left.old == left.new)
            {
                if waiting.add(left, right) {
                    self.look(&mut waiting, &mut found, faults, output)?;
                }
            }
        }
        self.look(&mut waiting, &mut found, faults, output)?;
        Ok(found)
    }

    /// Puts out the pairs that hold and counts partners.
    fn look<'a>(
        &self,
        waiting: &mut Candidates<'a>,
        found: &mut Found<'a>,
        faults: &mut Faults,
        output: &mut Output,
    ) -> Result<()> {
        let Candidates { left, right } = std::mem::take(waiting);
        if left.is_empty() {
            return Ok(());
        }
        let lefts: Vec<&[u8]> = left.iter().map(|row| row.bytes).collect();
        let rights: Vec<&[u8]> = right.iter().map(|row| row.bytes).collect();
        let parts = (Part::Decoded(&lefts), Part::Decoded(&rights));
        let rows = beside(
            &self.pair_schema,
            (&self.left, &parts.0),
            Some((&self.right, &parts.1)),
            left.len(),
        )?;
        let weigh = |(l, r): (&Row<'_>, &Row<'_>)| l.new * r.new - l.old * r.old;
        let weights: Vec<i64> = left.iter().zip(&right).map(weigh).collect();
        // The places of the pairs ride along as weights, to see which of them hold.
        let places = Int64Array::from_iter_values(0..left.len() as i64);
        let all = Batch {
            rows,
            weights: Weights::Each(places),
        };
        let mut failures = Faults::default();
        let held = residual_rows(&self.residual, &all, &mut failures)?;
        for mut failure in failures.row_errors {
            failure.weight = weights[failure.weight as usize];
            if failure.weight != 0 {
                faults.row_errors.push(failure);
            }
        }
        let held_places: Vec<usize> = (0..held.len()).map(|row| held.weights.at(row) as usize).collect();
        for place in &held_places {
            let (l, r) = (left[*place], right[*place]);
            *found.left.entry((l.key, l.bytes)).or_insert(0) += r.new - if l.old > 0 { r.old } else { 0 };
            *found.right.entry((r.key, r.bytes)).or_insert(0) += l.new - if r.old > 0 { l.old } else { 0 };
        }
        if self.shows_pairs() {
            let pairs = Batch {
                rows: held.rows,
                weights: Weights::Ones,
            };
            self.put_out_pairs(
                &pairs,
                held_places.iter().map(|place| weights[*place]).collect(),
                output,
            )?;
        }
        Ok(())
    }

    fn put_out_pairs(&self, pairs: &Batch, weights: Vec<i64>, output: &mut Output) -> Result<()> {
        for sign in [-1, 1] {
            let rows = (0..pairs.len() as u32).filter(|row| weights[*row as usize].signum() == sign);
            let rows: Vec<u32> = rows.collect();
            if !rows.is_empty() {
                let own = rows.iter().map(|row| weights[*row as usize]).collect::<Vec<_>>();
                let taken = pairs.take(&rows.into())?;
                output.push(Batch {
                    rows: taken.rows,
                    weights: Weights::from(own),
                })?;
            }
        }
        Ok(())
    }

    /// Brings the partners of one side's rows up to date and puts out the rows that turn.
    fn settle(
        &self,
        which: Which,
        epoch: &Epoch<'_>,
        partners: &Partners<'_>,
        table: &mut Arranged,
        output: &mut Output,
    ) -> Result<()> {
        let (rows, changes, side) = match which {
            Which::Left => (epoch.left, &epoch.dl, &self.left),
            Which::Right => (epoch.right, &epoch.dr, &self.right),
        };
        let (mut out, mut weights) = (Vec::new(), Vec::new());
        let unchanged = partners.keys().filter(|place| !changes.amounts.contains_key(*place));
        for (key, bytes) in changes.amounts.keys().chain(unchanged) {
            let place = (*key, *bytes);
            let change = changes.amounts.get(&place).copied().unwrap_or(0);
            let row = epoch.row(rows, *key, bytes, change);
            let name = epoch.groups.key(*key as usize);
            if row.new < 0 {
                return Err(not_there(self.spec.name(), &side.keys, name));
            }
            let before = table.group(name).weight(bytes);
            let after = if row.new == 0 {
                0
            } else {
                before + partners.get(&place).copied().unwrap_or(0)
            };
            if before != after {
                table
                    .update(name, bytes, after - before)
                    .map_err(|_| not_there(self.spec.name(), &side.keys, name))?;
            }
            let shown = |weight: i64, partners: i64| match self.spec.kind {
                JoinKind::LeftSemi if partners > 0 => weight,
                JoinKind::LeftSemi => 0,
                _ if partners == 0 => weight,
                _ => 0,
            };
            let weight = shown(row.new, after) - shown(row.old, before);
            if weight != 0 {
                out.push(*bytes);
                weights.push(weight);
            }
        }
        self.put_out_alone(which, &out, weights, output)
    }

    /// Puts out rows of one side, beside NULLs unless the join shows left rows alone.
    fn put_out_alone(&self, which: Which, rows: &[&[u8]], weights: Vec<i64>, output: &mut Output) -> Result<()> {
        for sign in [-1, 1] {
            let chosen = (0..rows.len()).filter(|row| weights[*row].signum() == sign);
            let (bytes, own): (Vec<&[u8]>, Vec<i64>) = chosen.map(|row| (rows[row], weights[row])).unzip();
            if !bytes.is_empty() {
                let part = Part::Decoded(&bytes);
                self.put_out_part(which, &part, Weights::from(own), bytes.len(), output)?;
            }
        }
        Ok(())
    }

    fn put_out_part(
        &self,
        which: Which,
        part: &Part<'_>,
        weights: Weights,
        count: usize,
        output: &mut Output,
    ) -> Result<()> {
        let nulls = Part::Nulls(count);
        let (left, right) = match which {
            Which::Left => (part, &nulls),
            Which::Right => (&nulls, part),
        };
        let right = self.shows_pairs().then_some((&self.right, right));
        let rows = beside(&self.schema, (&self.left, left), right, count)?;
        output.push(Batch { rows, weights })
    }

    /// Rows of one side whose key is NULL: they have no partner.
    fn put_out_keyless(&self, which: Which, change: &SideChange, output: &mut Output) -> Result<()> {
        for batch in &change.alone {
            let rows: Vec<u32> = (0..batch.len() as u32).collect();
            let part = Part::Taken(&batch.rows, &rows);
            self.put_out_part(which, &part, batch.weights.clone(), batch.len(), output)?;
        }
        Ok(())
    }
}

/// The side whose rows are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Left,
    Right,
}

/// What an epoch touches.
struct Epoch<'a> {
    groups: &'a Groups,
    left: &'a Arranged,
    right: &'a Arranged,
    dl: Changes<'a>,
    dr: Changes<'a>,
}

impl<'a> Epoch<'a> {
    fn row(&self, table: &Arranged, key: u32, bytes: &'a [u8], change: i64) -> Row<'a> {
        let old = table.group(self.groups.key(key as usize)).weight(bytes);
        Row {
            key,
            bytes,
            old,
            new: old + change,
        }
    }

    /// The rows that a key has in a table, and those that come, with their changes.
    fn rows<'b>(
        &'b self,
        table: &'a Arranged,
        changes: &'b Changes<'a>,
        key: u32,
    ) -> impl Iterator<Item = Row<'a>> + 'b {
        let there = table
            .group(self.groups.key(key as usize))
            .iter()
            .map(move |(bytes, old)| {
                let change = changes.amounts.get(&(key, bytes)).copied().unwrap_or(0);
                Row {
                    key,
                    bytes,
                    old,
                    new: old + change,
                }
            });
        let changing = changes.by_key.get(&key).into_iter().flatten();
        let coming = changing.map(move |bytes| self.row(table, key, bytes, changes.amounts[&(key, *bytes)]));
        there.chain(coming.filter(|row| row.old == 0))
    }
}

impl<'a> Changes<'a> {
    fn of(change: &'a SideChange) -> Self {
        let mut changes = Self::default();
        for part in &change.parts {
            for (row, number) in part.groups.iter().enumerate() {
                let place = (*number, part.rows.row(row).data());
                *changes.amounts.entry(place).or_insert(0) += part.batch.weights.at(row);
            }
        }
        changes.amounts.retain(|_, amount| *amount != 0);
        for (key, bytes) in changes.amounts.keys() {
            changes.by_key.entry(*key).or_default().push(bytes);
        }
        changes
    }
}

impl<'a> Candidates<'a> {
    /// Adds a pair; whether there are enough to look at.
    fn add(&mut self, left: Row<'a>, right: Row<'a>) -> bool {
        self.left.push(left);
        self.right.push(right);
        self.left.len() >= PAIRS_MAX
    }
}

impl Running {
    fn run(&self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
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
        for table in context.tables.all() {
            if let Table::Arranged(table) = table {
                table.load(groups.iter())?;
            }
        }
        let [Table::Arranged(left), Table::Arranged(right), counts @ ..] = context.tables.all() else {
            return Err(Error::internal("a join without its tables"));
        };
        let epoch = Epoch {
            groups: &groups,
            left,
            right,
            dl: Changes::of(&dl),
            dr: Changes::of(&dr),
        };
        let found = self.meet(&epoch, context.faults, output)?;
        if self.spec.kind != JoinKind::Right
            && let Some(Table::Arranged(partners)) = counts.first_mut()
        {
            self.settle(Which::Left, &epoch, &found.left, partners, output)?;
            if self.spec.kind != JoinKind::LeftSemi {
                self.put_out_keyless(Which::Left, &dl, output)?;
            }
        }
        if matches!(self.spec.kind, JoinKind::Right | JoinKind::Full)
            && let Some(Table::Arranged(partners)) = counts.last_mut()
        {
            self.settle(Which::Right, &epoch, &found.right, partners, output)?;
            self.put_out_keyless(Which::Right, &dr, output)?;
        }
        drop((epoch, found));
        self.left.apply(self.spec.name(), &dl, &groups, left)?;
        self.right.apply(self.spec.name(), &dr, &groups, right)
    }
}

impl Operator for Running {
    fn step(&mut self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        // A padded row may equal a pair, or a row padded on the other side.
        let mut all = output.like();
        self.run(context, inputs, &mut all)?;
        output.append(all.into_delta().consolidate(&self.schema)?)
    }
}
