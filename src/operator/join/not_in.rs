//! `x NOT IN (subquery)`, with SQL's NULLs.
//!
//! The right rows of a correlation key are one bag of values Y. A left row is shown when Y is empty; else when x is
//! not NULL, Y holds no NULL, and Y does not hold x. Left rows are kept by key in the order of x, so that a value that
//! enters or leaves Y finds the rows that it hides; only when Y begins or ends to be empty, or to hold a NULL, are all
//! rows of the key looked at.

use super::side::{Arrivals, Part, Side, SideChange, beside};
use super::{Join, NullEquality};
use crate::delta::{Batch, Delta, KeyCodec, RowOrder, Weights, batch_of};
use crate::error::{Error, Result};
use crate::operator::groups::{Groups, columns_of, not_there};
use crate::operator::{Operator, Output, Spec, StepContext};
use crate::state::{Arranged, Group};
use ahash::RandomState;
use arrow::array::new_null_array;
use arrow::datatypes::SchemaRef;
use arrow::row::Rows;
use hashbrown::HashMap;

pub(super) struct Running {
    name: &'static str,
    nulls: NullEquality,
    left: Side,
    right: Side,
    /// Of x and of the values that it is looked for in.
    values: KeyCodec,
    columns: (usize, usize),
    /// The encoding of a NULL value.
    null: Box<[u8]>,
    schema: SchemaRef,
}

/// What matters of Y beside its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Empty,
    Plain,
    WithNull,
}

/// The rows that come and go, by key and by x and row.
type Changes = HashMap<(u32, Vec<u8>), i64, RandomState>;

/// The values of Y that came or went, and whether they were there before.
type Flips<'a> = HashMap<(u32, &'a [u8]), bool, RandomState>;

impl Running {
    pub(super) fn new(spec: &Join, inputs: &[SchemaRef]) -> Result<Self> {
        let Some(((x, y), correlation)) = spec.on.split_first().map(|(first, rest)| (*first, rest)) else {
            return Err(Error::internal("NOT IN without a column"));
        };
        let (left, right): (Vec<usize>, Vec<usize>) = correlation.iter().copied().unzip();
        let kind = inputs[0].field(x).data_type().clone();
        let values = KeyCodec::ordered(vec![kind.clone()], &[RowOrder::ASCENDING])?;
        let null = values.encode_one(&[new_null_array(&kind, 1)])?.row().data().into();
        Ok(Self {
            name: spec.name(),
            nulls: spec.null_equality,
            left: Side::new(left, &inputs[0])?,
            right: Side::new(right, &inputs[1])?,
            values,
            columns: (x, y),
            null,
            schema: spec.schema(inputs)?,
        })
    }

    fn kind(&self, group: &Group) -> Kind {
        if group.is_empty() {
            Kind::Empty
        } else if group.weight(&self.null) > 0 {
            Kind::WithNull
        } else {
            Kind::Plain
        }
    }

    fn is_shown(&self, kind: Kind, x: &[u8], found: bool) -> bool {
        match kind {
            Kind::Empty => true,
            Kind::WithNull => false,
            Kind::Plain => x != self.null.as_ref() && !found,
        }
    }

    /// Puts out left rows, given as x and row.
    fn put_out(&self, rows: &[(Vec<u8>, i64)], output: &mut Output) -> Result<()> {
        for wanted in [-1, 1] {
            let chosen: Vec<&(Vec<u8>, i64)> = rows.iter().filter(|(_, weight)| weight.signum() == wanted).collect();
            if chosen.is_empty() {
                continue;
            }
            let bytes: Vec<&[u8]> = chosen.iter().map(|(row, _)| row.as_slice()).collect();
            let weights: Vec<i64> = chosen.iter().map(|(_, weight)| *weight).collect();
            let rows = beside(&self.schema, (&self.left, &Part::Decoded(&bytes)), None, bytes.len())?;
            output.push(Batch {
                rows,
                weights: Weights::from(weights),
            })?;
        }
        Ok(())
    }
}

/// What the right side of an epoch did.
struct Turn<'a> {
    groups: &'a Groups,
    old: Vec<Kind>,
    new: Vec<Kind>,
    flips: Flips<'a>,
}

impl Running {
    /// Applies the right side's change.
    fn turn<'a>(
        &self,
        groups: &'a Groups,
        change: &SideChange,
        encodings: &'a [Rows],
        right: &mut Arranged,
    ) -> Result<Turn<'a>> {
        let old = groups.iter().map(|key| self.kind(right.group(key))).collect();
        let mut flips: Flips<'_> = HashMap::default();
        for (part, encoded) in change.parts.iter().zip(encodings) {
            for (row, number) in part.groups.iter().enumerate() {
                let (key, value) = (groups.key(*number as usize), encoded.row(row).data());
                let change = right
                    .update(key, value, part.batch.weights.at(row))
                    .map_err(|_| not_there(self.name, &self.right.keys, key))?;
                flips.entry((*number, value)).or_insert(change.old > 0);
            }
        }
        let new = groups.iter().map(|key| self.kind(right.group(key))).collect();
        Ok(Turn {
            groups,
            old,
            new,
            flips,
        })
    }

    /// The left side's change, each row once.
    fn changes(&self, change: &SideChange) -> Result<Changes> {
        let mut changes = Changes::default();
        for part in &change.parts {
            let encoded = self
                .values
                .encode(&columns_of(&part.batch, &[self.columns.0]), part.batch.len())?;
            for (row, number) in part.groups.iter().enumerate() {
                let place = place_of(encoded.row(row).data(), part.rows.row(row).data());
                *changes.entry((*number, place)).or_insert(0) += part.batch.weights.at(row);
            }
        }
        Ok(changes)
    }

    /// Whether a left row was and is shown.
    fn shown(&self, turn: &Turn<'_>, number: u32, x: &[u8], right: &Arranged) -> (bool, bool) {
        let is_found = right.group(turn.groups.key(number as usize)).weight(x) > 0;
        let was_found = turn.flips.get(&(number, x)).copied().unwrap_or(is_found);
        let (old, new) = (turn.old[number as usize], turn.new[number as usize]);
        (self.is_shown(old, x, was_found), self.is_shown(new, x, is_found))
    }

    /// Left rows that stay, and are shown or hidden by what happened on the right.
    fn turned(&self, turn: &Turn<'_>, changes: &Changes, left: &Arranged, right: &Arranged) -> Vec<(Vec<u8>, i64)> {
        let mut out = Vec::new();
        let mut look = |number: u32, place: &[u8], weight: i64| {
            let (x, row) = parts_of(place);
            let (was, is) = self.shown(turn, number, x, right);
            if was != is && !changes.contains_key(&(number, place.to_vec())) {
                out.push((row.to_vec(), if is { weight } else { -weight }));
            }
        };
        for (number, key) in turn.groups.iter().enumerate() {
            if turn.old[number] != turn.new[number] {
                left.group(key)
                    .for_each(|place, weight| look(number as u32, place, weight));
            }
        }
        for (number, value) in turn.flips.keys() {
            let place = *number as usize;
            if turn.old[place] == turn.new[place] && turn.old[place] == Kind::Plain {
                let rows = left.group(turn.groups.key(place)).range_from(value);
                rows.take_while(|(row, _)| row.starts_with(value))
                    .for_each(|(row, weight)| look(*number, row, weight));
            }
        }
        out
    }
}

impl Operator for Running {
    fn step(&mut self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        let mut groups = Groups::default();
        let dl = self
            .left
            .take(&inputs[0], Arrivals::of(&inputs[0..=0]), self.nulls, &mut groups)?;
        let dr = self
            .right
            .take(&inputs[1], Arrivals::of(&inputs[1..=1]), self.nulls, &mut groups)?;
        let (left, right) = context.tables.arranged_pair(0, 1);
        left.load(groups.iter())?;
        right.load(groups.iter())?;
        let mut encodings = Vec::with_capacity(dr.parts.len());
        for part in &dr.parts {
            encodings.push(
                self.values
                    .encode(&columns_of(&part.batch, &[self.columns.1]), part.batch.len())?,
            );
        }
        let turn = self.turn(&groups, &dr, &encodings, right)?;
        let changes = self.changes(&dl)?;
        let mut out = self.turned(&turn, &changes, left, right);
        // Rows that change themselves.
        for ((number, place), amount) in changes.iter().filter(|(_, amount)| **amount != 0) {
            let key = groups.key(*number as usize);
            let change = left
                .update(key, place, *amount)
                .map_err(|_| not_there(self.name, &self.left.keys, key))?;
            let (x, row) = parts_of(place);
            let (was, is) = self.shown(&turn, *number, x, right);
            let weight = if is { change.new } else { 0 } - if was { change.old } else { 0 };
            if weight != 0 {
                out.push((row.to_vec(), weight));
            }
        }
        // A left row whose correlation is NULL meets no right row.
        for batch in &dl.alone {
            let columns = batch.rows.columns().to_vec();
            let rows = batch_of(self.schema.clone(), columns, batch.len())?;
            output.push(Batch {
                rows,
                weights: batch.weights.clone(),
            })?;
        }
        self.put_out(&out, output)
    }
}

/// How a left row is kept: x, the row, and the length of x.
fn place_of(x: &[u8], row: &[u8]) -> Vec<u8> {
    let length = (x.len() as u32).to_le_bytes();
    [x, row, &length].concat()
}

/// x and the row of a place.
fn parts_of(place: &[u8]) -> (&[u8], &[u8]) {
    let (rest, length) = place.split_last_chunk::<4>().expect("a place ends with a length");
    rest.split_at(u32::from_le_bytes(*length) as usize)
}
