//! Telling what changed: values before and after, and rows that come and go in one epoch.

use super::Output;
use crate::delta::{Batch, Delta, KeyCodec, Weights, batch_of};
use crate::error::Result;
use arrow::array::{Array, ArrayRef, make_comparator};
use arrow::compute::SortOptions;
use arrow::compute::kernels::cmp::distinct;
use arrow::datatypes::SchemaRef;
use std::cmp::Ordering;

/// The rows of a batch that is made from encodings.
const BATCH_ROWS: usize = 8192;

/// Marks the places at which two arrays of a type and length differ.
pub(super) fn differs(before: &ArrayRef, after: &ArrayRef, changed: &mut [bool]) -> Result<()> {
    if before.data_type().is_nested() || before.data_type().is_null() {
        let compare = make_comparator(before, after, SortOptions::default())?;
        for (place, changed) in changed.iter_mut().enumerate() {
            *changed |= compare(place, place) != Ordering::Equal;
        }
        return Ok(());
    }
    let different = distinct(before, after)?;
    for place in different.values().set_indices() {
        changed[place] = true;
    }
    Ok(())
}

/// The rows of a change, each at most once where rows are taken away at all; where all rows are added, as they come.
pub(super) fn net(delta: &Delta, schema: &SchemaRef) -> Result<Vec<Batch>> {
    if delta.is_inserts() {
        return Ok(delta.batches.clone());
    }
    Ok(delta.consolidate(schema)?.batches)
}

/// Puts out encoded rows: those that are taken away, then those that are added.
pub(super) fn put_out_rows(
    schema: &SchemaRef,
    codec: &KeyCodec,
    rows: &[&[u8]],
    weights: &[i64],
    output: &mut Output,
) -> Result<()> {
    for sign in [-1, 1] {
        let chosen = rows.iter().zip(weights).filter(|(_, weight)| weight.signum() == sign);
        let (bytes, own): (Vec<&[u8]>, Vec<i64>) = chosen.map(|(row, weight)| (*row, *weight)).unzip();
        for (bytes, own) in bytes.chunks(BATCH_ROWS).zip(own.chunks(BATCH_ROWS)) {
            let rows = batch_of(schema.clone(), codec.decode(bytes.iter().copied())?, bytes.len())?;
            output.push(Batch {
                rows,
                weights: Weights::from(own.to_vec()),
            })?;
        }
    }
    Ok(())
}
