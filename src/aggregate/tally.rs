//! The groups of one call in a query that runs once.
//!
//! What maintained views keep in state tables is here in memory: folds and bags are the same, so that both give the
//! same results. States can be written and added to others: a query may count in parts.

use super::Call;
use super::bag::{Layout, Reader, layout_of};
use super::fold::{Fold, Input, Results, fold_of, no_such_function};
use super::state::{damaged, put_i64, put_u64, take_i64, take_u64};
use crate::delta::{KeyCodec, Weights};
use crate::error::Result;
use crate::state::Group;
use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::datatypes::DataType;

/// What a value in a bag costs beside its bytes, about.
const VALUE_OVERHEAD: usize = 64;

/// What a group of a fold costs, about.
const FOLD_BYTES: usize = 64;

/// The states of the groups of a call.
#[derive(Debug)]
pub(crate) struct Tally {
    kind: Kind,
    arguments: Vec<usize>,
    groups: usize,
}

#[derive(Debug)]
enum Kind {
    Fold(Box<dyn Fold>),
    Bag(Box<Bags>),
}

#[derive(Debug)]
struct Bags {
    layout: Layout,
    codec: KeyCodec,
    result: Outcome,
    groups: Vec<Group>,
    bytes: usize,
}

/// How results come from bags.
#[derive(Debug)]
enum Outcome {
    /// Read from the bag.
    Read(Reader),
    /// A fold of its different values; with the places of the arguments in the bag.
    Distinct(Box<dyn Fold>, Vec<usize>),
}

impl Tally {
    /// No group yet. `types` are those of the columns that the call counts by.
    pub(crate) fn new(call: &Call, types: &[DataType]) -> Result<Self> {
        let arguments: Vec<DataType> = call.arguments.iter().map(|column| types[*column].clone()).collect();
        let fold = fold_of(call, &arguments)?;
        let kind = match (fold, layout_of(call)) {
            (Some(fold), None) => Kind::Fold(fold),
            (fold, Some(layout)) => {
                let (columns, orders): (Vec<usize>, Vec<_>) = layout.columns.iter().copied().unzip();
                let codec = KeyCodec::ordered(columns.iter().map(|column| types[*column].clone()).collect(), &orders)?;
                let place = |argument: &usize| columns.iter().position(|column| column == argument).unwrap_or(0);
                let result = match fold {
                    Some(fold) => Outcome::Distinct(fold, call.arguments.iter().map(place).collect()),
                    None => Outcome::Read(Reader::new(call)?),
                };
                Kind::Bag(Box::new(Bags {
                    layout,
                    codec,
                    result,
                    groups: Vec::new(),
                    bytes: 0,
                }))
            }
            (None, None) => return Err(no_such_function(call.function, call.field.data_type())),
        };
        Ok(Self {
            kind,
            arguments: call.arguments.clone(),
            groups: 0,
        })
    }

    /// The number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    /// Makes it so many groups; new ones are over nothing.
    pub(crate) fn resize(&mut self, groups: usize) {
        self.groups = groups;
        match &mut self.kind {
            Kind::Fold(fold) => fold.resize(groups),
            Kind::Bag(bags) => {
                bags.groups.resize_with(groups, Group::default);
                if groups == 0 {
                    bags.bytes = 0;
                }
            }
        }
    }

    /// Adds rows, given as columns, each to its group.
    pub(crate) fn add(
        &mut self,
        columns: &[ArrayRef],
        groups: &[u32],
        weights: &Weights,
        filter: Option<&BooleanArray>,
    ) -> Result<()> {
        match &mut self.kind {
            Kind::Fold(fold) => {
                let arguments: Vec<ArrayRef> = self.arguments.iter().map(|column| columns[*column].clone()).collect();
                fold.add(&Input {
                    arguments: &arguments,
                    groups,
                    weights,
                    filter,
                })
            }
            Kind::Bag(bags) => bags.add(columns, groups, weights, filter),
        }
    }

    /// The results as they are now.
    pub(crate) fn results(&mut self) -> Result<Results> {
        match &mut self.kind {
            Kind::Fold(fold) => fold.results(),
            Kind::Bag(bags) => bags.results(),
        }
    }

    /// Appends a group's state.
    pub(crate) fn write(&self, group: usize, state: &mut Vec<u8>) {
        match &self.kind {
            Kind::Fold(fold) => fold.write(group, state),
            Kind::Bag(bags) => {
                put_u64(state, bags.groups[group].len() as u64);
                bags.groups[group].for_each(|row, weight| {
                    put_i64(state, weight);
                    put_u64(state, row.len() as u64);
                    state.extend_from_slice(row);
                });
            }
        }
    }

    /// Adds a state that was written to a group.
    pub(crate) fn read(&mut self, group: usize, state: &mut &[u8]) -> Result<()> {
        match &mut self.kind {
            Kind::Fold(fold) => fold.read(group, state),
            Kind::Bag(bags) => {
                for _ in 0..take_u64(state)? {
                    let weight = take_i64(state)?;
                    let length = take_u64(state)? as usize;
                    let row = state.split_off(..length).ok_or_else(damaged)?;
                    bags.bytes += row.len() + VALUE_OVERHEAD;
                    bags.groups[group].add(row, weight);
                }
                Ok(())
            }
        }
    }

    /// The bytes that it holds, about.
    pub(crate) fn bytes(&self) -> usize {
        let kept = match &self.kind {
            Kind::Fold(_) => 0,
            Kind::Bag(bags) => bags.bytes,
        };
        kept + self.groups * FOLD_BYTES
    }
}

impl Bags {
    fn add(
        &mut self,
        columns: &[ArrayRef],
        groups: &[u32],
        weights: &Weights,
        filter: Option<&BooleanArray>,
    ) -> Result<()> {
        let kept: Vec<ArrayRef> = self
            .layout
            .columns
            .iter()
            .map(|(column, _)| columns[*column].clone())
            .collect();
        let rows = self.codec.encode(&kept, groups.len())?;
        let required: Vec<&ArrayRef> = self.layout.required.iter().map(|column| &columns[*column]).collect();
        for (row, group) in groups.iter().enumerate() {
            let counts = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
                && required.iter().all(|column| column.is_valid(row));
            if counts {
                let bytes = rows.row(row);
                self.bytes += bytes.data().len() + VALUE_OVERHEAD;
                self.groups[*group as usize].add(bytes.data(), weights.at(row));
            }
        }
        Ok(())
    }

    fn results(&mut self) -> Result<Results> {
        match &mut self.result {
            Outcome::Read(reader) => {
                let groups: Vec<&Group> = self.groups.iter().collect();
                reader.results(&self.codec, &groups)
            }
            Outcome::Distinct(fold, places) => {
                fold.begin(self.groups.len());
                let mut rows: Vec<&[u8]> = Vec::new();
                let mut numbers = Vec::new();
                for (number, group) in self.groups.iter().enumerate() {
                    for (row, _) in group.iter() {
                        rows.push(row);
                        numbers.push(number as u32);
                    }
                }
                if !rows.is_empty() {
                    let columns = self.codec.decode(rows)?;
                    let arguments: Vec<ArrayRef> = places.iter().map(|place| columns[*place].clone()).collect();
                    fold.add(&Input {
                        arguments: &arguments,
                        groups: &numbers,
                        weights: &Weights::Ones,
                        filter: None,
                    })?;
                }
                fold.results()
            }
        }
    }
}
