//! The laws that every operator keeps, in one checker for tests.
//!
//! For an operator and random changes of its inputs (with NULLs, duplicates, skew and retractions) it checks
//! *oracle* (after each epoch, the sum of all outputs is what a naive function says of all input), *net* (no epoch
//! puts out a row and takes it away), *batching* (cutting the input into other epochs gives the same sum),
//! *sharding* (four shards by [`Keys`] agree with one), *restart* (rebuilding from the tables between any two epochs
//! changes nothing) and *inverse* (input and then its negation leaves nothing, in the state too).
//!
//! Rows are texts here: each value as Arrow shows it, `None` for NULL.

use super::{Advance, Faults, First, Keys, Operator, Output, Spec, StepContext, StepMetrics, StepTime};
use crate::delta::{Batch, Delta, KEY_GROUPS, KeyCodec, Weights, batch_of, key_group};
use crate::state::{Commit, Durability, Origin, Part, Store, Table, TableId, Tables};
use crate::time::{Epoch, Timestamp};
use arrow::array::{Array, ArrayRef, Int64Builder, ListBuilder, StringArray, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use proptest::prelude::{BoxedStrategy, Just, Strategy, any, prop, prop_oneof};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// A row: its values as texts.
pub(super) type Row = Vec<Option<String>>;

/// A row that is added to, or taken from, an input.
#[derive(Debug, Clone)]
pub(super) struct Action {
    pub(super) input: usize,
    pub(super) row: Row,
    pub(super) weight: i64,
    /// Whether the epoch ends after it.
    pub(super) cut: bool,
}

/// An operator and what it should do.
pub(super) struct Law<'a> {
    pub(super) spec: &'a dyn Spec,
    pub(super) inputs: Vec<SchemaRef>,
    /// What is put out for all rows of the inputs (copies repeated, sorted).
    pub(super) oracle: &'a dyn Fn(&[Vec<Row>]) -> Vec<Row>,
}

pub(super) type Sum = BTreeMap<Row, i64>;

/// A schema of these types.
pub(super) fn schema_of(types: &[DataType]) -> SchemaRef {
    let fields: Vec<Field> = types
        .iter()
        .enumerate()
        .map(|(index, kind)| Field::new(format!("#{index}"), kind.clone(), true))
        .collect();
    Arc::new(Schema::new(fields))
}

/// A row from texts, in which "-" is NULL.
pub(super) fn row(values: &[&str]) -> Row {
    values
        .iter()
        .map(|value| (*value != "-").then(|| (*value).to_owned()))
        .collect()
}

/// Random changes: rows of `inputs`, about a third of them retractions of rows that are there.
pub(super) fn actions(inputs: Vec<BoxedStrategy<Row>>, length: usize) -> BoxedStrategy<Vec<Action>> {
    let count = inputs.len();
    let step = (0..count).prop_flat_map(move |input| {
        (
            Just(input),
            inputs[input].clone(),
            any::<prop::sample::Index>(),
            0..3_u8,
            0..5_u8,
        )
    });
    prop::collection::vec(step, 1..length)
        .prop_map(move |steps| {
            let mut there: Vec<Vec<Row>> = vec![Vec::new(); count];
            let mut actions = Vec::new();
            for (input, row, index, choice, cut) in steps {
                let rows = &mut there[input];
                let (row, weight) = if choice == 0 && !rows.is_empty() {
                    let place = index.index(rows.len());
                    (rows.swap_remove(place), -1)
                } else {
                    rows.push(row.clone());
                    (row, 1)
                };
                actions.push(Action {
                    input,
                    row,
                    weight,
                    cut: cut == 0,
                });
            }
            actions
        })
        .boxed()
}

/// One of these texts, "-" being NULL, the first ones more often.
pub(super) fn one_of(values: &'static [&'static str]) -> BoxedStrategy<Option<String>> {
    let skewed = prop_oneof![2 => 0..values.len(), 1 => Just(0)];
    skewed
        .prop_map(|index| (values[index] != "-").then(|| values[index].to_owned()))
        .boxed()
}

/// Rows of such values.
pub(super) fn rows_of(columns: &[&'static [&'static str]]) -> BoxedStrategy<Row> {
    columns.iter().map(|values| one_of(values)).collect::<Vec<_>>().boxed()
}

impl Law<'_> {
    /// Checks all laws on these actions.
    pub(super) fn check(&self, actions: &[Action]) {
        let epochs = cut(actions, |action| action.cut);
        let straight = self.run(&epochs, 1, Restart::No);
        let singly = self.run(&cut(actions, |_| true), 1, Restart::No);
        assert_eq!(straight, singly, "batching: an epoch per row differs");
        let at_once = self.run(&cut(actions, |_| false), 1, Restart::No);
        assert_eq!(straight, at_once, "batching: one epoch for all differs");
        let sharded = self.run(&epochs, 4, Restart::No);
        assert_eq!(straight, sharded, "sharding: four shards differ");
        let restarted = self.run(&epochs, 1, Restart::EveryEpoch);
        assert_eq!(straight, restarted, "restart: rebuilding differs");
    }

    /// Runs the epochs, checks each, takes everything back; returns the sum before that.
    fn run(&self, epochs: &[Vec<Action>], shards: usize, restart: Restart) -> Sum {
        let mut bench = Bench::new(self, shards);
        let mut there: Vec<Sum> = vec![Sum::new(); self.inputs.len()];
        let mut sum = Sum::new();
        for epoch in epochs {
            for action in epoch {
                add(&mut there[action.input], &action.row, action.weight);
            }
            bench.step(epoch, &mut sum);
            assert_eq!(sum, self.expected(&there), "oracle: after {epoch:?}");
            if restart == Restart::EveryEpoch {
                bench.restart();
            }
        }
        let before = sum.clone();
        let undo: Vec<Action> = there
            .iter()
            .enumerate()
            .flat_map(|(input, rows)| {
                rows.iter().map(move |(row, weight)| Action {
                    input,
                    row: row.clone(),
                    weight: -weight,
                    cut: false,
                })
            })
            .collect();
        bench.step(&undo, &mut sum);
        there.iter_mut().for_each(Sum::clear);
        assert_eq!(sum, self.expected(&there), "inverse: something is left");
        bench.flush();
        assert_eq!(bench.stored_entries(), 0, "inverse: state is left");
        before
    }

    fn expected(&self, there: &[Sum]) -> Sum {
        let rows: Vec<Vec<Row>> = there
            .iter()
            .map(|rows| {
                rows.iter()
                    .flat_map(|(row, weight)| std::iter::repeat_n(row.clone(), *weight as usize))
                    .collect()
            })
            .collect();
        let mut sum = Sum::new();
        for row in (self.oracle)(&rows) {
            add(&mut sum, &row, 1);
        }
        sum
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Restart {
    No,
    EveryEpoch,
}

fn cut(actions: &[Action], ends: impl Fn(&Action) -> bool) -> Vec<Vec<Action>> {
    let mut epochs = vec![Vec::new()];
    for action in actions {
        epochs.last_mut().expect("there is an epoch").push(action.clone());
        if ends(action) {
            epochs.push(Vec::new());
        }
    }
    epochs
}

fn add(sum: &mut Sum, row: &Row, weight: i64) {
    let entry = sum.entry(row.clone()).or_insert(0);
    *entry += weight;
    if *entry == 0 {
        sum.remove(row);
    }
}

/// The running copies of an operator.
pub(super) struct Bench<'a> {
    spec: &'a dyn Spec,
    inputs: Vec<SchemaRef>,
    tables: Vec<TableId>,
    shards: Vec<(Box<dyn Operator>, Tables)>,
    epoch: u64,
    /// What the last step could not take.
    pub(super) faults: Faults,
    /// How far event time is in all inputs.
    pub(super) advance: Advance,
    /// The clock of the next step.
    pub(super) clock: i64,
}

fn store() -> &'static Store {
    static STORE: OnceLock<Store> = OnceLock::new();
    STORE.get_or_init(|| Store::memory().expect("memory opens"))
}

impl<'a> Bench<'a> {
    pub(super) fn new(law: &Law<'a>, shards: usize) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1000);
        let count = if law.spec.keys() == Keys::Single { 1 } else { shards };
        let tables = law
            .spec
            .tables()
            .iter()
            .map(|_| TableId(NEXT.fetch_add(1, Ordering::Relaxed)))
            .collect();
        let mut bench = Self {
            spec: law.spec,
            inputs: law.inputs.clone(),
            tables,
            shards: Vec::new(),
            epoch: 0,
            faults: Faults::default(),
            advance: Advance::default(),
            clock: 0,
        };
        bench.open(Origin::Fresh, count);
        bench
    }

    fn open(&mut self, origin: Origin, count: usize) {
        self.shards.clear();
        for shard in 0..count {
            let specs = self.spec.tables();
            let tables = self.tables.iter().zip(&specs);
            let tables = tables
                .map(|(id, spec)| Table::open(store(), *id, spec.shape, origin))
                .collect();
            let operator = self.spec.build(&self.inputs).expect("the operator builds");
            self.shards
                .push((operator, Tables(tables, Part { shard, shards: count })));
        }
    }

    pub(super) fn restart(&mut self) {
        self.flush();
        self.open(Origin::Stored, self.shards.len());
    }

    pub(super) fn flush(&mut self) {
        let mut commit = Commit::new();
        for (_, tables) in &mut self.shards {
            tables.flush(&mut commit).expect("tables flush");
        }
        store().commit(commit, Durability::Buffered).expect("memory takes it");
    }

    pub(super) fn stored_entries(&self) -> usize {
        let mut entries = 0;
        for table in &self.tables {
            let (from, to) = table.range();
            let mut scan = store().scan(&from, &to);
            while scan.next_entry().expect("memory reads").is_some() {
                entries += 1;
            }
        }
        entries
    }

    /// One epoch; adds what is put out to `sum` and checks that it is net.
    pub(super) fn step(&mut self, actions: &[Action], sum: &mut Sum) {
        let output = self.try_step(actions).expect("the step succeeds");
        let mut signs: BTreeMap<Row, i64> = BTreeMap::new();
        let mut inserted = false;
        for (row, weight) in output {
            let first = *signs.entry(row.clone()).or_insert(weight.signum());
            assert_eq!(first, weight.signum(), "net: {row:?} comes and goes in one epoch");
            assert!(weight != 0, "net: a weight of 0");
            if self.shards.len() == 1 {
                assert!(!(inserted && weight < 0), "order: a delete after an insert");
            }
            inserted |= weight > 0;
            add(sum, &row, weight);
        }
        let negative = sum.iter().find(|(_, weight)| **weight < 0);
        assert!(negative.is_none(), "oracle: a negative weight: {negative:?}");
    }

    /// One epoch; returns what is put out.
    pub(super) fn try_step(&mut self, actions: &[Action]) -> crate::error::Result<Vec<(Row, i64)>> {
        let time = StepTime {
            epoch: Epoch(self.epoch),
            clock: Timestamp(self.clock),
            first: if self.epoch == 0 { First::Yes } else { First::No },
        };
        self.epoch += 1;
        self.faults = Faults::default();
        let mut rows = Vec::new();
        for (index, part) in self.split(actions).iter().enumerate() {
            let mut output = Output::new(1 << 30);
            let (operator, tables) = &mut self.shards[index];
            let mut context = StepContext {
                time,
                watermarks: &vec![self.advance; self.inputs.len()],
                tables,
                faults: &mut self.faults,
                metrics: &mut StepMetrics::default(),
            };
            operator.step(&mut context, part, &mut output)?;
            let schema = self.spec.schema(&self.inputs)?;
            for batch in output.into_delta().batches {
                assert_eq!(batch.rows.schema(), schema, "the schema is the spec's");
                rows.extend(texts(&batch));
            }
        }
        Ok(rows)
    }

    /// The inputs of each shard.
    fn split(&self, actions: &[Action]) -> Vec<Vec<Delta>> {
        let mut whole = Vec::new();
        for (input, schema) in self.inputs.iter().enumerate() {
            let own: Vec<&Action> = actions.iter().filter(|action| action.input == input).collect();
            // Two batches, so that operators see that a delta is a list of them.
            let mut delta = Delta::new();
            let (first, second) = own.split_at(own.len() / 2);
            delta.push(batch(schema, first));
            delta.push(batch(schema, second));
            whole.push(delta);
        }
        let count = self.shards.len();
        let Keys::By(lists) = self.spec.keys() else {
            let mut parts = vec![vec![Delta::new(); whole.len()]; count];
            parts[0] = whole;
            return parts;
        };
        let mut parts = vec![vec![Delta::new(); whole.len()]; count];
        for (input, delta) in whole.iter().enumerate() {
            let kinds = lists[input]
                .iter()
                .map(|column| self.inputs[input].field(*column).data_type().clone());
            let codec = KeyCodec::keys(kinds.collect()).expect("keys encode");
            for batch in &delta.batches {
                let keys: Vec<ArrayRef> = lists[input]
                    .iter()
                    .map(|column| batch.rows.column(*column).clone())
                    .collect();
                let keys = codec.encode(&keys, batch.len()).expect("keys encode");
                for (shard, part) in parts.iter_mut().enumerate() {
                    let own = (0..batch.len())
                        .filter(|row| usize::from(key_group(keys.row(*row).data())) * count / KEY_GROUPS == shard);
                    let own = UInt32Array::from_iter_values(own.map(|row| row as u32));
                    part[input].push(batch.take(&own).expect("rows are taken"));
                }
            }
        }
        parts
    }
}

fn batch(schema: &SchemaRef, actions: &[&Action]) -> Batch {
    let columns = schema
        .fields()
        .iter()
        .enumerate()
        .map(|(index, field)| {
            array(
                field.data_type(),
                actions.iter().map(|action| action.row[index].as_deref()),
            )
        })
        .collect();
    Batch {
        rows: batch_of(schema.clone(), columns, actions.len()).expect("the columns fit"),
        weights: Weights::from(actions.iter().map(|action| action.weight).collect::<Vec<_>>()),
    }
}

fn array<'a>(kind: &DataType, values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    if matches!(kind, DataType::List(_)) {
        let mut lists = ListBuilder::new(Int64Builder::new());
        for value in values {
            match value {
                None => lists.append_null(),
                Some(text) => {
                    let items = text
                        .trim_matches(['[', ']'])
                        .split(", ")
                        .filter(|item| !item.is_empty());
                    items.for_each(|item| lists.values().append_option(item.parse().ok()));
                    lists.append(true);
                }
            }
        }
        return Arc::new(lists.finish());
    }
    let texts: StringArray = values.collect();
    arrow::compute::cast(&texts, kind).expect("the text is a value")
}

/// The rows of a batch as texts, with their weights.
fn texts(batch: &Batch) -> Vec<(Row, i64)> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<_> = batch
        .rows
        .columns()
        .iter()
        .map(|column| {
            (
                column,
                ArrayFormatter::try_new(column, &options).expect("the type is shown"),
            )
        })
        .collect();
    (0..batch.len())
        .map(|row| {
            let values = columns
                .iter()
                .map(|(column, formatter)| column.is_valid(row).then(|| formatter.value(row).to_string()));
            (values.collect(), batch.weights.at(row))
        })
        .collect()
}
