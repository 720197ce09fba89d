//! An aggregate of rows that move: what a window function's frame needs.
//!
//! The rows of a partition are laid out once; a frame that moves adds the rows that enter and takes away those that
//! leave, which every fold and every bag can do.

use crate::aggregate::bag::{Layout, Reader, layout_of};
use crate::aggregate::fold::{Fold, Input, Results, fold_of};
use crate::aggregate::{Call, Distinct, Function};
use crate::delta::{KeyCodec, RowOrder, Weights};
use crate::error::{Error, Result};
use crate::state::Group;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use arrow::row::Rows;
use std::ops::Range;
use std::sync::Arc;

/// An aggregate of some of the rows of a partition.
pub(in crate::operator) struct Moving {
    call: Call,
    kind: Kind,
    /// The arguments of all rows of the partition.
    arguments: Vec<ArrayRef>,
    filter: Option<BooleanArray>,
    groups: Vec<u32>,
    minus: Int64Array,
}

enum Kind {
    Fold(Box<dyn Fold>),
    Bag(Box<Bag>),
}

/// The arguments in the frame, where results cannot be taken from folds.
struct Bag {
    layout: Layout,
    codec: KeyCodec,
    reader: Reader,
    /// The arguments of all rows of the partition, encoded.
    rows: Option<Rows>,
    /// Which rows of the partition count.
    counts: Vec<bool>,
    group: Group,
}

impl Moving {
    /// The aggregate of a function over columns of `input`, taken in the order of the partition.
    pub(in crate::operator) fn new(
        function: Function,
        arguments: &[usize],
        filter: Option<usize>,
        field: &FieldRef,
        input: &SchemaRef,
    ) -> Result<Self> {
        // The place in the partition is one more column, which orders what has an order.
        let place = input.fields().len();
        let type_of = |column: &usize| match *column == place {
            true => DataType::Int64,
            false => input.field(*column).data_type().clone(),
        };
        let call = Call {
            function,
            arguments: arguments.to_vec(),
            distinct: Distinct::No,
            filter,
            order: vec![(place, RowOrder::ASCENDING)],
            field: field.clone(),
        };
        let kinds: Vec<DataType> = arguments.iter().map(type_of).collect();
        let kind = match (fold_of(&call, &kinds)?, layout_of(&call)) {
            (Some(fold), _) => Kind::Fold(fold),
            (None, Some(layout)) => {
                let (columns, orders): (Vec<usize>, Vec<RowOrder>) = layout.columns.iter().copied().unzip();
                Kind::Bag(Box::new(Bag {
                    codec: KeyCodec::ordered(columns.iter().map(type_of).collect(), &orders)?,
                    reader: Reader::new(&call)?,
                    layout,
                    rows: None,
                    counts: Vec::new(),
                    group: Group::Empty,
                }))
            }
            (None, None) => return Err(Error::internal(format!("{function:?} has no state"))),
        };
        Ok(Self {
            call,
            kind,
            arguments: Vec::new(),
            filter: None,
            groups: Vec::new(),
            minus: Int64Array::from(Vec::<i64>::new()),
        })
    }

    /// Lays out the rows of a partition; none of them is in the frame yet.
    pub(in crate::operator) fn begin(&mut self, columns: &[ArrayRef], rows: usize) -> Result<()> {
        self.groups = vec![0; rows];
        self.minus = Int64Array::from_value(-1, rows);
        self.arguments = self
            .call
            .arguments
            .iter()
            .map(|column| columns[*column].clone())
            .collect();
        self.filter = self.call.filter.map(|column| columns[column].as_boolean().clone());
        if let Kind::Bag(bag) = &mut self.kind {
            let places: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
            let column = |index: usize| columns.get(index).unwrap_or(&places).clone();
            let all: Vec<ArrayRef> = bag.layout.columns.iter().map(|(index, _)| column(*index)).collect();
            bag.rows = Some(bag.codec.encode(&all, rows)?);
            let required: Vec<ArrayRef> = bag.layout.required.iter().map(|index| column(*index)).collect();
            let passes = |row: usize| {
                self.filter
                    .as_ref()
                    .is_none_or(|filter| filter.is_valid(row) && filter.value(row))
            };
            bag.counts = (0..rows)
                .map(|row| passes(row) && required.iter().all(|column| column.is_valid(row)))
                .collect();
        }
        self.clear();
        Ok(())
    }

    /// Takes all rows away.
    pub(in crate::operator) fn clear(&mut self) {
        match &mut self.kind {
            Kind::Fold(fold) => fold.begin(1),
            Kind::Bag(bag) => bag.group = Group::Empty,
        }
    }

    /// Adds rows.
    pub(in crate::operator) fn add(&mut self, rows: Range<usize>) -> Result<()> {
        self.change(rows, Weights::Ones)
    }

    /// Takes rows away that were added.
    pub(in crate::operator) fn remove(&mut self, rows: Range<usize>) -> Result<()> {
        let weights = Weights::Each(self.minus.slice(0, rows.len()));
        self.change(rows, weights)
    }

    fn change(&mut self, range: Range<usize>, weights: Weights) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        match &mut self.kind {
            Kind::Fold(fold) => {
                let arguments: Vec<ArrayRef> = self
                    .arguments
                    .iter()
                    .map(|column| column.slice(range.start, range.len()))
                    .collect();
                let filter = self
                    .filter
                    .as_ref()
                    .map(|filter| filter.slice(range.start, range.len()));
                fold.add(&Input {
                    arguments: &arguments,
                    groups: &self.groups[range],
                    weights: &weights,
                    filter: filter.as_ref(),
                })
            }
            Kind::Bag(bag) => {
                let amount = weights.at(0);
                for row in range.filter(|row| bag.counts[*row]) {
                    if let Some(rows) = &bag.rows {
                        bag.group.add(rows.row(row).data(), amount);
                    }
                }
                Ok(())
            }
        }
    }

    /// The result, as an array of one value, or why there is none.
    pub(in crate::operator) fn result(&self) -> Result<(ArrayRef, Option<Error>)> {
        let Results { values, failures } = match &self.kind {
            Kind::Fold(fold) => fold.results()?,
            Kind::Bag(bag) => bag.reader.results(&bag.codec, &[&bag.group])?,
        };
        Ok((values, failures.into_iter().next().map(|(_, error)| error)))
    }
}
