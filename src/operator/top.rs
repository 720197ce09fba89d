//! The first rows of each partition: ORDER BY with LIMIT and OFFSET, DISTINCT ON, `row_number() <= n`.
//!
//! A partition is kept in its order, all of it, so that a row that leaves is replaced by the next. A change walks
//! through the partition as it was and as it will be at once, puts out where the two differ, and stops where both are
//! beyond the last rank or run alike: only the first `offset + limit` rows are read.

use super::changes::put_out_rows;
use super::ordered::{Ordered, Place};
use super::{Keys, Operator, Output, Spec, StepContext, TableSpec};
use crate::delta::{Batch, Delta, RowOrder, Weights, batch_of};
use crate::error::Result;
use crate::state::{Arranged, Shape};
use crate::types::{Nullability, Type};
use arrow::array::Int64Array;
use arrow::datatypes::{Field, Schema, SchemaRef};
use std::sync::Arc;

/// Keeps the rows with `offset < rank <= offset + limit` of each partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Top {
    /// The columns that make a partition; NULLs are equal. None: all rows are one.
    pub partition: Vec<usize>,
    /// The order; ties beyond it are broken by row order.
    pub order: Vec<(usize, RowOrder)>,
    /// How rows are numbered.
    pub ranking: Ranking,
    /// The ranks that are left out.
    pub offset: u64,
    /// How many ranks are kept; `None` for all.
    pub limit: Option<u64>,
    /// Whether the rank is put out.
    pub number: Number,
    /// What becomes of the rows beyond the last.
    pub rest: Rest,
}

/// What becomes of the rows beyond the last that is put out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Rest {
    /// They are kept, to move up when others go.
    #[default]
    Kept,
    /// None ever goes: they are forgotten.
    Forgotten,
}

/// How rows are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ranking {
    /// One after another.
    RowNumber,
    /// Rows equal in the order share the number of the first.
    Rank,
    /// Rows equal in the order share a number; no number is left out.
    DenseRank,
}

/// Whether the rank is put out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Number {
    /// The rows alone.
    Hidden,
    /// The rank is appended as a bigint.
    Shown,
}

impl Spec for Top {
    fn name(&self) -> &'static str {
        "Top"
    }

    fn schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        let number = Type::Int8.field("", Nullability::NotNull);
        let shown = (self.number == Number::Shown).then_some(&number);
        let fields: Vec<Field> = inputs[0]
            .fields()
            .iter()
            .map(|field| field.as_ref())
            .chain(shown)
            .enumerate()
            .map(|(index, field)| super::output_field(field, index))
            .collect();
        Ok(Arc::new(Schema::new(fields)))
    }

    fn keys(&self) -> Keys {
        if self.partition.is_empty() {
            return Keys::Single;
        }
        Keys::By(vec![self.partition.clone()])
    }

    fn tables(&self) -> Vec<TableSpec> {
        vec![TableSpec {
            name: "rows",
            shape: Shape::Arranged,
        }]
    }

    fn build(&self, inputs: &[SchemaRef]) -> Result<Box<dyn Operator>> {
        Ok(Box::new(Running {
            ordered: Ordered::new(&self.partition, &self.order, &inputs[0])?,
            schema: self.schema(inputs)?,
            spec: self.clone(),
        }))
    }
}

struct Running {
    spec: Top,
    ordered: Ordered,
    schema: SchemaRef,
}

/// Where a walk through a partition stands, before or after the change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Walk {
    /// Rows passed.
    rows: u64,
    /// Rows passed before the peers at hand.
    before_peers: u64,
    /// Peer groups passed or at hand.
    groups: u64,
    /// Whether a row of the peers at hand was passed.
    in_peers: bool,
}

/// Copies of a row, and the number of the first of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ranked {
    first: u64,
    copies: u64,
}

impl Walk {
    /// Other peers begin.
    fn next_peers(&mut self) {
        self.before_peers = self.rows;
        self.in_peers = false;
    }

    /// Passes copies of a row and numbers them.
    fn pass(&mut self, ranking: Ranking, copies: i64) -> Ranked {
        let copies = copies.max(0) as u64;
        if copies > 0 && !self.in_peers {
            self.in_peers = true;
            self.groups += 1;
        }
        let first = match ranking {
            Ranking::RowNumber => self.rows + 1,
            Ranking::Rank => self.before_peers + 1,
            Ranking::DenseRank => self.groups,
        };
        self.rows += copies;
        Ranked { first, copies }
    }

    /// Whether every number from here on is beyond `last`. To be asked between peers.
    fn is_beyond(&self, ranking: Ranking, last: u64) -> bool {
        match ranking {
            Ranking::RowNumber | Ranking::Rank => self.rows >= last,
            Ranking::DenseRank => self.groups >= last,
        }
    }
}

/// What is put out: rows, their numbers and weights.
#[derive(Default)]
struct Found<'a> {
    rows: Vec<&'a [u8]>,
    numbers: Vec<i64>,
    weights: Vec<i64>,
}

impl Running {
    fn last(&self) -> u64 {
        self.spec
            .limit
            .map_or(u64::MAX, |limit| self.spec.offset.saturating_add(limit))
    }

    /// The copies whose numbers are kept.
    fn clip(&self, ranked: Ranked) -> Ranked {
        let (offset, last) = (self.spec.offset, self.last());
        if self.spec.ranking != Ranking::RowNumber {
            let kept = ranked.first > offset && ranked.first <= last;
            return Ranked {
                copies: if kept { ranked.copies } else { 0 },
                ..ranked
            };
        }
        let from = ranked.first.max(offset + 1);
        let to = (ranked.first + ranked.copies).min(last.saturating_add(1));
        Ranked {
            first: from,
            copies: to.saturating_sub(from),
        }
    }

    /// Walks through a partition as it was and as it will be, as far as it matters.
    fn walk<'a>(&self, places: impl Iterator<Item = Place<'a>>, changes: usize, found: &mut Found<'a>) {
        let (mut old, mut new) = (Walk::default(), Walk::default());
        let mut order: Option<&[u8]> = None;
        let mut left = changes;
        for place in places {
            if order != Some(place.order) {
                order = Some(place.order);
                old.next_peers();
                new.next_peers();
                let last = self.last();
                let beyond = old.is_beyond(self.spec.ranking, last) && new.is_beyond(self.spec.ranking, last);
                if beyond || (left == 0 && old == new) {
                    return;
                }
            } else if self.spec.ranking == Ranking::RowNumber
                && ((left == 0 && old.rows == new.rows) || old.rows.min(new.rows) >= self.last())
            {
                return;
            }
            left -= usize::from(place.old != place.new);
            let was = self.clip(old.pass(self.spec.ranking, place.old));
            let is = self.clip(new.pass(self.spec.ranking, place.new));
            self.compare(place.row, was, is, found);
        }
    }

    /// Puts out how a row differs.
    fn compare<'a>(&self, row: &'a [u8], was: Ranked, is: Ranked, found: &mut Found<'a>) {
        let mut put = |number: u64, weight: i64| {
            if weight != 0 {
                found.rows.push(row);
                found.numbers.push(number as i64);
                found.weights.push(weight);
            }
        };
        let (had, has) = (was.copies as i64, is.copies as i64);
        if self.spec.number == Number::Hidden {
            return put(0, has - had);
        }
        if self.spec.ranking != Ranking::RowNumber {
            if was.first == is.first {
                return put(is.first, has - had);
            }
            put(was.first, -had);
            return put(is.first, has);
        }
        // Each copy has a number of its own: those that only one of both has.
        let inside = |number: u64, range: Ranked| number >= range.first && number < range.first + range.copies;
        (was.first..was.first + was.copies)
            .filter(|number| !inside(*number, is))
            .for_each(|number| put(number, -1));
        (is.first..is.first + is.copies)
            .filter(|number| !inside(*number, was))
            .for_each(|number| put(number, 1));
    }

    fn put_out(&self, found: &Found<'_>, output: &mut Output) -> Result<()> {
        if self.spec.number == Number::Hidden {
            return put_out_rows(&self.schema, &self.ordered.rows, &found.rows, &found.weights, output);
        }
        for sign in [-1, 1] {
            let places: Vec<usize> = (0..found.rows.len())
                .filter(|place| found.weights[*place].signum() == sign)
                .collect();
            if places.is_empty() {
                continue;
            }
            let mut columns = self
                .ordered
                .rows
                .decode(places.iter().map(|place| found.rows[*place]))?;
            let numbers = places.iter().map(|place| found.numbers[*place]);
            columns.push(Arc::new(Int64Array::from_iter_values(numbers)));
            let weights: Vec<i64> = places.iter().map(|place| found.weights[*place]).collect();
            let rows = batch_of(self.schema.clone(), columns, places.len())?;
            output.push(Batch {
                rows,
                weights: Weights::from(weights),
            })?;
        }
        Ok(())
    }
}

impl Operator for Running {
    fn step(&mut self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        let changes = self.ordered.take(&inputs[0])?;
        let table = context.tables.arranged(0);
        table.load(changes.groups.iter())?;
        let mut found = Found::default();
        for partition in changes.partitions() {
            let group = table.group(changes.groups.key(partition.number));
            self.walk(changes.merge(&partition, group), partition.len(), &mut found);
        }
        self.put_out(&found, output)?;
        drop(found);
        context.metrics.state_reads += changes.groups.len() as u64;
        context.metrics.state_writes += changes.len() as u64;
        changes.apply(self.spec.name(), &self.ordered, table)?;
        if self.spec.rest == Rest::Forgotten {
            for partition in changes.partitions() {
                self.forget(changes.groups.key(partition.number), table)?;
            }
        }
        Ok(())
    }
}

impl Running {
    /// Forgets the rows of a partition beyond the last.
    fn forget(&self, key: &[u8], table: &mut Arranged) -> Result<()> {
        let group = table.group(key);
        let beyond = group
            .len()
            .saturating_sub(usize::try_from(self.last()).unwrap_or(usize::MAX));
        let gone = group
            .iter()
            .rev()
            .take(beyond)
            .map(|(place, weight)| (place.into(), weight));
        let gone: Vec<(Box<[u8]>, i64)> = gone.collect();
        for (place, weight) in gone {
            table.update(key, &place, -weight)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::harness::{Law, Row, actions, rows_of, schema_of};
    use arrow::datatypes::DataType;
    use proptest::prelude::*;

    const KEYS: &[&str] = &["a", "b", "-"];
    const NUMBERS: &[&str] = &["1", "2", "-", "3"];

    fn naive(spec: &Top, rows: &[Row]) -> Vec<Row> {
        let descending = spec.order.first().is_some_and(|(_, order)| order.descending);
        let sort_key = |row: &Row| {
            // NULL last when ascending, first when descending.
            let value = row[1]
                .as_ref()
                .map_or(i64::MAX, |value| value.parse().expect("a number"));
            let rest: Vec<(bool, Option<String>)> = row.iter().map(|value| (value.is_none(), value.clone())).collect();
            (
                if spec.order.is_empty() {
                    0
                } else if descending {
                    -value
                } else {
                    value
                },
                rest,
            )
        };
        let mut out = Vec::new();
        let mut partitions: Vec<Option<String>> = rows
            .iter()
            .map(|row| {
                if spec.partition.is_empty() {
                    None
                } else {
                    row[0].clone()
                }
            })
            .collect();
        partitions.sort();
        partitions.dedup();
        for partition in partitions {
            let mut own: Vec<&Row> = rows
                .iter()
                .filter(|row| spec.partition.is_empty() || row[0] == partition)
                .collect();
            own.sort_by_key(|row| sort_key(row));
            let (mut rank, mut dense, mut last) = (0, 0, None);
            for (place, row) in own.iter().enumerate() {
                let key = sort_key(row).0;
                if last != Some(key) {
                    (rank, dense, last) = (place as u64 + 1, dense + 1, Some(key));
                }
                let number = match spec.ranking {
                    Ranking::RowNumber => place as u64 + 1,
                    Ranking::Rank => rank,
                    Ranking::DenseRank => dense,
                };
                if number > spec.offset && spec.limit.is_none_or(|limit| number <= spec.offset + limit) {
                    let mut row = (*row).clone();
                    if spec.number == Number::Shown {
                        row.push(Some(number.to_string()));
                    }
                    out.push(row);
                }
            }
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn laws(
            changes in actions(vec![rows_of(&[KEYS, NUMBERS])], 40),
            partitioned in any::<bool>(),
            descending in any::<bool>(),
            shown in any::<bool>(),
            ranking in prop::sample::select(vec![Ranking::RowNumber, Ranking::Rank, Ranking::DenseRank]),
            offset in 0..3_u64,
            limit in prop::option::of(0..4_u64),
        ) {
            let spec = Top {
                partition: if partitioned { vec![0] } else { vec![] },
                order: vec![(1, RowOrder { descending, nulls_first: descending })],
                ranking,
                offset,
                limit,
                number: if shown { Number::Shown } else { Number::Hidden },
                rest: Rest::Kept,
            };
            let oracle = |inputs: &[Vec<Row>]| naive(&spec, &inputs[0]);
            let schema = schema_of(&[DataType::Utf8, DataType::Int64]);
            Law { spec: &spec, inputs: vec![schema], oracle: &oracle }.check(&changes);
        }
    }
}
