//! Inner joins, and outer joins whose condition is equality alone.
//!
//! Bilinear: `d(L * R) = L * dR + dL * (R + dR)`. The change of the right side meets the old left side, then the
//! change of the left side meets the new right side; each probe reads only the rows of its key.
//!
//! ```text
//!             R old      dR
//!          +---------+--------+
//!    L old |   is    |  1st   |      1st: right rows drive, over L old
//!          +---------+--------+
//!       dL |        2nd       |      2nd: left rows drive, over R new
//!          +---------+--------+
//! ```
//!
//! A pair whose rows both change may be put out by one probe and taken back by the other. That needs a retraction
//! and a key that both sides touch; the pairs of such *mixed* keys get their whole weight in the first probe that
//! meets them.
//!
//! A row of an outer join has no partner when the other side's group is empty, so its padded form changes when the
//! row does or when the other group begins or ends to be empty.

use super::side::{Arrivals, Changed, Part, Side, SideChange, beside, emptiness};
use super::{Join, JoinKind, NullEquality};
use crate::delta::{Batch, Delta, Weights};
use crate::error::Result;
use crate::expr::Compiled;
use crate::operator::groups::Groups;
use crate::operator::map::keep_rows;
use crate::operator::{Faults, Operator, Output, RowError, Spec, StepContext};
use crate::state::{Arranged, Group};
use ahash::RandomState;
use arrow::datatypes::SchemaRef;
use hashbrown::HashMap;

/// The pairs after which a batch is put out.
const PAIRS_MAX: usize = 8192;

pub(super) struct Running {
    spec: Join,
    left: Side,
    right: Side,
    residual: Option<Compiled>,
    schema: SchemaRef,
}

/// Which side's rows drive a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    Left,
    Right,
}

/// Changes of keys that both sides touch while something is taken away.
#[derive(Default)]
struct Mixed<'a> {
    keys: Vec<bool>,
    left: HashMap<(u32, &'a [u8]), i64, RandomState>,
    right: HashMap<(u32, &'a [u8]), i64, RandomState>,
}

/// Pairs of one sign that wait to be put out: the driving rows' places and the other rows.
#[derive(Default)]
struct Waiting<'a> {
    rows: Vec<u32>,
    others: Vec<&'a [u8]>,
    weights: Vec<i64>,
}

/// Pairs that wait, by sign.
#[derive(Default)]
struct Pairs<'a> {
    gains: Waiting<'a>,
    losses: Waiting<'a>,
}

impl<'a> Pairs<'a> {
    fn add(&mut self, row: u32, other: &'a [u8], weight: i64) -> bool {
        if weight == 0 {
            return false;
        }
        let waiting = if weight > 0 { &mut self.gains } else { &mut self.losses };
        waiting.rows.push(row);
        waiting.others.push(other);
        waiting.weights.push(weight);
        waiting.rows.len() >= PAIRS_MAX
    }
}

/// What an epoch touches: its keys and the tables.
struct Epoch<'a> {
    groups: &'a Groups,
    left: &'a Arranged,
    right: &'a Arranged,
    mixed: &'a Mixed<'a>,
}

impl Mixed<'_> {
    /// The weight that the first probe gives to a pair: L(l) dR(r) and, if l changes too, dL(l) * R(r) after.
    fn first(&self, epoch: &Epoch<'_>, key: u32, left: &[u8], copies: i64, right: &[u8], change: i64) -> i64 {
        let own = self.left.get(&(key, left)).copied().unwrap_or(0);
        // The right table has not taken its change yet.
        let before = epoch.right.group(epoch.groups.key(key as usize)).weight(right);
        copies * change + own * (before + change)
    }

    /// The weight that the second probe gives: nothing if the first has met the pair.
    fn second(&self, epoch: &Epoch<'_>, key: u32, left: &[u8], change: i64, right: &[u8], copies: i64) -> i64 {
        let met =
            self.right.contains_key(&(key, right)) && epoch.left.group(epoch.groups.key(key as usize)).weight(left) > 0;
        if met { 0 } else { change * copies }
    }
}

impl Running {
    pub(super) fn new(spec: &Join, inputs: &[SchemaRef]) -> Result<Self> {
        let (left, right): (Vec<usize>, Vec<usize>) = spec.on.iter().copied().unzip();
        let schema = spec.schema(inputs)?;
        Ok(Self {
            left: Side::new(left, &inputs[0])?,
            right: Side::new(right, &inputs[1])?,
            residual: spec
                .residual
                .as_ref()
                .map(|residual| residual.compile(&schema))
                .transpose()?,
            schema,
            spec: spec.clone(),
        })
    }

    fn pads(&self, driver: Driver) -> bool {
        match driver {
            Driver::Left => matches!(self.spec.kind, JoinKind::Left | JoinKind::Full),
            Driver::Right => matches!(self.spec.kind, JoinKind::Right | JoinKind::Full),
        }
    }

    /// Whether a padded row may equal a pair, or a row padded on the other side.
    fn may_collide(&self) -> bool {
        let outer = self.spec.kind != JoinKind::Inner;
        let nulls_in_pairs = self.spec.on.is_empty() || self.spec.null_equality == NullEquality::NullsMatch;
        self.spec.kind == JoinKind::Full || (outer && nulls_in_pairs)
    }

    /// Puts out the pairs of changed rows with the other side's rows.
    fn probe(
        &self,
        driver: Driver,
        part: &Changed,
        epoch: &Epoch<'_>,
        faults: &mut Faults,
        output: &mut Output,
    ) -> Result<()> {
        let other = if driver == Driver::Left {
            epoch.right
        } else {
            epoch.left
        };
        let mut pairs = Pairs::default();
        // The groups of the other side, looked up once for each key.
        let mut found: Vec<Option<&Group>> = vec![None; epoch.groups.len()];
        for (row, number) in part.groups.iter().enumerate() {
            let key = *number as usize;
            let group = *found[key].get_or_insert_with(|| other.group(epoch.groups.key(key)));
            let change = part.batch.weights.at(row);
            let is_mixed = epoch.mixed.keys.get(key) == Some(&true);
            let weigh = |bytes: &[u8], copies: i64| {
                if !is_mixed {
                    return change * copies;
                }
                let own = part.rows.row(row);
                match driver {
                    Driver::Right => epoch.mixed.first(epoch, *number, bytes, copies, own.data(), change),
                    Driver::Left => epoch.mixed.second(epoch, *number, own.data(), change, bytes, copies),
                }
            };
            match group {
                Group::Empty => {}
                Group::One(bytes, copies) => {
                    if pairs.add(row as u32, bytes, weigh(bytes, *copies)) {
                        self.put_out(driver, part, &mut pairs, faults, output)?;
                    }
                }
                Group::Many(rows) => {
                    for (bytes, copies) in rows {
                        if pairs.add(row as u32, bytes, weigh(bytes, *copies)) {
                            self.put_out(driver, part, &mut pairs, faults, output)?;
                        }
                    }
                }
            }
        }
        self.put_out(driver, part, &mut pairs, faults, output)
    }

    fn put_out(
        &self,
        driver: Driver,
        part: &Changed,
        pairs: &mut Pairs<'_>,
        faults: &mut Faults,
        output: &mut Output,
    ) -> Result<()> {
        for waiting in [&mut pairs.losses, &mut pairs.gains] {
            let count = waiting.rows.len();
            if count == 0 {
                continue;
            }
            let own = &Part::Taken(&part.batch.rows, &waiting.rows);
            let others = &Part::Decoded(&waiting.others);
            let (left, right) = match driver {
                Driver::Left => (own, others),
                Driver::Right => (others, own),
            };
            let rows = beside(&self.schema, (&self.left, left), Some((&self.right, right)), count)?;
            let batch = Batch {
                rows,
                weights: Weights::from(std::mem::take(&mut waiting.weights)),
            };
            waiting.rows.clear();
            waiting.others.clear();
            let kept = match &self.residual {
                None => batch,
                Some(residual) => residual_rows(residual, &batch, faults)?,
            };
            if !kept.is_empty() {
                output.push(kept)?;
            }
        }
        Ok(())
    }

    /// The changes of mixed keys.
    fn mixed<'a>(&self, groups: usize, left: &'a SideChange, right: &'a SideChange) -> Mixed<'a> {
        let mut mixed = Mixed::default();
        if left.parts.is_empty() || right.parts.is_empty() || (left.is_inserts() && right.is_inserts()) {
            return mixed;
        }
        mixed.keys = left
            .touched(groups)
            .into_iter()
            .zip(right.touched(groups))
            .map(|(a, b)| a && b)
            .collect();
        for (changes, side) in [(&mut mixed.left, left), (&mut mixed.right, right)] {
            for part in &side.parts {
                for (row, number) in part.groups.iter().enumerate() {
                    if mixed.keys[*number as usize] {
                        let change = part.batch.weights.at(row);
                        *changes.entry((*number, row_bytes(part, row))).or_insert(0) += change;
                    }
                }
            }
        }
        mixed
    }
}

fn row_bytes(part: &Changed, row: usize) -> &[u8] {
    part.rows.row(row).data()
}

/// The pairs for which the residual is true; those for which it fails are listed.
pub(super) fn residual_rows(residual: &Compiled, batch: &Batch, faults: &mut Faults) -> Result<Batch> {
    let (keep, failures) = residual.filter(&batch.rows)?;
    for failure in failures {
        faults.row_errors.push(RowError {
            row: batch.rows.slice(failure.row, 1),
            weight: batch.weights.at(failure.row),
            error: failure.error,
        });
    }
    if keep.true_count() == keep.len() {
        return Ok(batch.clone());
    }
    keep_rows(batch, &keep)
}

impl Running {
    /// Puts out rows of one side beside NULLs.
    fn pad(&self, driver: Driver, rows: &Part<'_>, weights: Weights, count: usize, output: &mut Output) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let nulls = Part::Nulls(count);
        let (left, right) = match driver {
            Driver::Left => (rows, &nulls),
            Driver::Right => (&nulls, rows),
        };
        let rows = beside(&self.schema, (&self.left, left), Some((&self.right, right)), count)?;
        output.push(Batch { rows, weights })
    }

    /// Puts out all rows of the marked keys beside NULLs, taken away or added.
    fn pad_groups(
        &self,
        driver: Driver,
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
        for (rows, weights) in rows.chunks(PAIRS_MAX).zip(weights.chunks(PAIRS_MAX)) {
            self.pad(
                driver,
                &Part::Decoded(rows),
                Weights::from(weights.to_vec()),
                rows.len(),
                output,
            )?;
        }
        Ok(())
    }

    /// Puts out what changes of one side beside NULLs: rows without a partner before and after, and rows that cannot
    /// have one.
    fn pad_changes(
        &self,
        driver: Driver,
        change: &SideChange,
        marked: impl Fn(usize) -> bool,
        output: &mut Output,
    ) -> Result<()> {
        for part in &change.parts {
            let rows = part
                .groups
                .iter()
                .enumerate()
                .filter(|(_, number)| marked(**number as usize));
            let rows: Vec<u32> = rows.map(|(row, _)| row as u32).collect();
            let weights: Vec<i64> = rows.iter().map(|row| part.batch.weights.at(*row as usize)).collect();
            self.pad(
                driver,
                &Part::Taken(&part.batch.rows, &rows),
                Weights::from(weights),
                rows.len(),
                output,
            )?;
        }
        for batch in &change.alone {
            let rows: Vec<u32> = (0..batch.len() as u32).collect();
            self.pad(
                driver,
                &Part::Taken(&batch.rows, &rows),
                batch.weights.clone(),
                batch.len(),
                output,
            )?;
        }
        Ok(())
    }

    fn run(&self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        let mut groups = Groups::default();
        let (arrivals, nulls) = (Arrivals::of(inputs), self.spec.null_equality);
        let dl = self.left.take(&inputs[0], arrivals, nulls, &mut groups)?;
        let dr = self.right.take(&inputs[1], arrivals, nulls, &mut groups)?;
        let (left, right) = context.tables.arranged_pair(0, 1);
        left.load(groups.iter())?;
        right.load(groups.iter())?;
        let outer = self.spec.kind != JoinKind::Inner;
        let count = if outer { groups.len() } else { 0 };
        let (left_was_empty, right_was_empty) = (emptiness(left, &groups, count), emptiness(right, &groups, count));
        // A group that was empty and is touched is not empty any more.
        if self.pads(Driver::Left) {
            let touched = dr.touched(groups.len());
            let begins = |number: usize| right_was_empty[number] && touched[number];
            self.pad_groups(Driver::Left, &groups, left, begins, -1, output)?;
        }
        if self.pads(Driver::Right) {
            let touched = dl.touched(groups.len());
            let begins = |number: usize| left_was_empty[number] && touched[number];
            self.pad_groups(Driver::Right, &groups, right, begins, -1, output)?;
        }
        let mixed = self.mixed(groups.len(), &dl, &dr);
        let faults = &mut *context.faults;
        for part in &dr.parts {
            let epoch = Epoch {
                groups: &groups,
                left,
                right,
                mixed: &mixed,
            };
            self.probe(Driver::Right, part, &epoch, faults, output)?;
        }
        self.right.apply(self.spec.name(), &dr, &groups, right)?;
        for part in &dl.parts {
            let epoch = Epoch {
                groups: &groups,
                left,
                right,
                mixed: &mixed,
            };
            self.probe(Driver::Left, part, &epoch, faults, output)?;
        }
        self.left.apply(self.spec.name(), &dl, &groups, left)?;
        context.metrics.state_reads += 2 * groups.len() as u64;
        context.metrics.state_writes += (inputs[0].len() + inputs[1].len()) as u64;
        let sides = [
            (
                Driver::Left,
                &dl,
                &*left,
                &right_was_empty,
                emptiness(right, &groups, count),
            ),
            (
                Driver::Right,
                &dr,
                &*right,
                &left_was_empty,
                emptiness(left, &groups, count),
            ),
        ];
        for (driver, change, table, was_empty, is_empty) in sides {
            if self.pads(driver) {
                self.pad_changes(driver, change, |number| was_empty[number] && is_empty[number], output)?;
                let ends = |number: usize| !was_empty[number] && is_empty[number];
                self.pad_groups(driver, &groups, table, ends, 1, output)?;
            }
        }
        Ok(())
    }
}

impl Operator for Running {
    fn step(&mut self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        if !self.may_collide() {
            return self.run(context, inputs, output);
        }
        let mut all = output.like();
        self.run(context, inputs, &mut all)?;
        output.append(all.into_delta().consolidate(&self.schema)?)
    }
}
