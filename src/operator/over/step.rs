//! One epoch of window functions: the partitions that change, as they were and as they will be.

use super::call::{Computed, Partition};
use super::frame::{Edges, Peers};
use super::{Bound, Over};
use crate::delta::{Batch, Delta, Weights, batch_of};
use crate::error::Result;
use crate::operator::ordered::{Ordered, OrderedChanges, Partition as Changing, Place};
use crate::operator::{Faults, Operator, Output, RowError, Spec, StepContext};
use crate::state::Group;
use arrow::array::{ArrayRef, BooleanArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

pub(super) struct Running {
    name: &'static str,
    ordered: Ordered,
    calls: Vec<Computed>,
    input: SchemaRef,
    schema: SchemaRef,
}

/// The distinct rows of a partition before and after, decoded.
struct Merged<'a> {
    places: Vec<Place<'a>>,
    columns: Vec<ArrayRef>,
}

impl Running {
    pub(super) fn new(spec: &Over, input: &SchemaRef) -> Result<Self> {
        Ok(Self {
            name: spec.name(),
            ordered: Ordered::new(&spec.partition, &spec.order, input)?,
            calls: spec
                .calls
                .iter()
                .map(|call| Computed::new(call, input))
                .collect::<Result<_>>()?,
            input: input.clone(),
            schema: spec.schema(std::slice::from_ref(input))?,
        })
    }

    /// The change of one partition's results; not net yet.
    fn partition(
        &mut self,
        changes: &OrderedChanges,
        changing: &Changing,
        group: &Group,
        all: &mut Delta,
        faults: &mut Faults,
    ) -> Result<()> {
        let places: Vec<Place<'_>> = changes.merge(changing, group).collect();
        let columns = self.ordered.rows.decode(places.iter().map(|place| place.row))?;
        let merged = Merged { places, columns };
        for (sign, weight_of) in [
            (-1, (|place| place.old) as fn(&Place<'_>) -> i64),
            (1, |place| place.new),
        ] {
            let copies = merged.places.iter().enumerate().flat_map(|(index, place)| {
                std::iter::repeat_n(index as u32, usize::try_from(weight_of(place)).unwrap_or(0))
            });
            let rows: Vec<u32> = copies.collect();
            if !rows.is_empty() {
                self.moment(&merged, rows, sign, all, faults)?;
            }
        }
        Ok(())
    }

    /// The results of a partition at one moment, with the weight `sign`.
    fn moment(
        &mut self,
        merged: &Merged<'_>,
        rows: Vec<u32>,
        sign: i64,
        all: &mut Delta,
        faults: &mut Faults,
    ) -> Result<()> {
        let orders: Vec<&[u8]> = rows.iter().map(|row| merged.places[*row as usize].order).collect();
        let peers = Peers::of(&orders);
        let rows = UInt32Array::from(rows);
        let mut columns: Vec<ArrayRef> = merged
            .columns
            .iter()
            .map(|column| take(column, &rows, None))
            .collect::<Result<_, _>>()?;
        let mut results = Vec::with_capacity(self.calls.len());
        let mut failures = Vec::new();
        for call in &mut self.calls {
            let frame = call.spec().frame;
            let edges = Edges {
                orders: &orders,
                start: edge(&self.ordered, frame.start, &columns, rows.len())?,
                end: edge(&self.ordered, frame.end, &columns, rows.len())?,
            };
            let partition = Partition {
                columns: &columns,
                peers: &peers,
                edges: &edges,
            };
            let (values, failed) = call.evaluate(&partition)?;
            results.push(values);
            failures.extend(failed);
        }
        let mut keep = vec![true; rows.len()];
        let own = batch_of(self.input.clone(), columns.clone(), rows.len())?;
        for (row, error) in failures {
            if std::mem::replace(&mut keep[row], false) {
                faults.row_errors.push(RowError {
                    row: own.slice(row, 1),
                    weight: sign,
                    error,
                });
            }
        }
        columns.extend(results);
        let mut batch: RecordBatch = batch_of(self.schema.clone(), columns, rows.len())?;
        if keep.contains(&false) {
            batch = arrow::compute::filter_record_batch(&batch, &BooleanArray::from(keep))?;
        }
        let weights = Weights::from(vec![sign; batch.num_rows()]);
        all.push(Batch { rows: batch, weights });
        Ok(())
    }
}

/// The encodings of a bound's edge values.
fn edge(ordered: &Ordered, bound: Bound, columns: &[ArrayRef], rows: usize) -> Result<Option<Vec<Vec<u8>>>> {
    let Bound::Value(column) = bound else {
        return Ok(None);
    };
    ordered.encode_order(&columns[column..=column], rows).map(Some)
}

impl Operator for Running {
    fn step(&mut self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        let changes = self.ordered.take(&inputs[0])?;
        let table = context.tables.arranged(0);
        table.load(changes.groups.iter())?;
        let mut all = Delta::new();
        let mut faults = Faults::default();
        for changing in changes.partitions() {
            let group = table.group(changes.groups.key(changing.number));
            self.partition(&changes, &changing, group, &mut all, &mut faults)?;
        }
        output.append(all.consolidate(&self.schema)?)?;
        cancel(&mut faults.row_errors);
        context.faults.row_errors.append(&mut faults.row_errors);
        context.metrics.state_reads += changes.groups.len() as u64;
        context.metrics.state_writes += changes.len() as u64;
        changes.apply(self.name, &self.ordered, table)
    }
}

/// Drops errors that are taken back and listed again.
fn cancel(errors: &mut Vec<RowError>) {
    let mut kept: Vec<RowError> = Vec::new();
    for error in errors.drain(..) {
        let other = kept
            .iter()
            .position(|known| known.weight == -error.weight && known.error == error.error && known.row == error.row);
        match other {
            Some(place) => {
                kept.swap_remove(place);
            }
            None => kept.push(error),
        }
    }
    *errors = kept;
}
