//! One epoch of an aggregate: which groups are touched, what they were, what they are.

use super::{Aggregate, Call};
use crate::aggregate::bag::{self, Layout, Reader};
use crate::aggregate::fold::{self, Fold, Input, Results};
use crate::aggregate::state::{VERSION, damaged, put_i64, take_i64};
use crate::delta::{Batch, Delta, KeyCodec, Weights, batch_of};
use crate::error::{Error, Result};
use crate::operator::changes::differs;
use crate::operator::groups::{Groups, columns_of, encode_keys, not_there};
use crate::operator::{First, Operator, Output, RowError, Spec, StepContext};
use crate::state::{Arranged, Group, Keyed, Table};
use crate::time::{Timestamp, Watermark};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, SchemaRef};

pub(super) struct Running {
    name: &'static str,
    keys: Vec<usize>,
    codec: KeyCodec,
    calls: Vec<Computed>,
    bags: Vec<Bag>,
    schema: SchemaRef,
    key_schema: SchemaRef,
    /// The folds' state over nothing, to which a group without rows must have come back.
    nothing: Vec<u8>,
    closing: Option<Closing>,
}

/// Which groups a watermark closes.
struct Closing {
    shift_us: i64,
    kind: DataType,
    codec: KeyCodec,
}

impl Closing {
    /// The beginning of the keys that are open at a watermark.
    fn bound(&self, Watermark(Timestamp(micros)): Watermark) -> Result<Vec<u8>> {
        let open = micros.saturating_add(self.shift_us).saturating_add(1);
        let time: ArrayRef = std::sync::Arc::new(Int64Array::from(vec![open]));
        let time = arrow::compute::cast(&time, &self.kind)?;
        Ok(self.codec.encode_one(&[time])?.as_ref().to_vec())
    }
}

/// How a call is computed.
enum Computed {
    /// From numbers that rows are added to.
    Fold {
        fold: Box<dyn Fold>,
        arguments: Vec<usize>,
        filter: Option<usize>,
        /// For DISTINCT: the bag that says which arguments come and go.
        bag: Option<usize>,
    },
    /// From a bag.
    Read { reader: Reader, bag: usize },
}

/// A bag and its encoding.
struct Bag {
    layout: Layout,
    columns: Vec<usize>,
    codec: KeyCodec,
}

/// The groups that an epoch touches.
struct Touched {
    groups: Groups,
    /// The group of each row of each batch.
    rows: Vec<Vec<u32>>,
}

/// What the groups are at one moment.
struct Moment {
    rows: Vec<i64>,
    values: Vec<ArrayRef>,
    failures: Vec<Option<Error>>,
}

impl Running {
    pub(super) fn new(spec: &Aggregate, input: &SchemaRef) -> Result<Self> {
        let type_of = |column: &usize| input.field(*column).data_type().clone();
        let layouts = bag::layouts(&spec.calls);
        let mut bags = Vec::with_capacity(layouts.len());
        for layout in &layouts {
            let (columns, orders): (Vec<usize>, Vec<_>) = layout.columns.iter().copied().unzip();
            let codec = KeyCodec::ordered(columns.iter().map(type_of).collect(), &orders)?;
            bags.push(Bag {
                layout: layout.clone(),
                columns,
                codec,
            });
        }
        let calls = spec
            .calls
            .iter()
            .map(|call| compute(call, &layouts, call.arguments.iter().map(type_of).collect()))
            .collect::<Result<Vec<_>>>()?;
        let schema = spec.schema(std::slice::from_ref(input))?;
        let key_places: Vec<usize> = (0..spec.keys.len()).collect();
        let mut running = Self {
            name: spec.name(),
            codec: KeyCodec::keys(spec.keys.iter().map(type_of).collect())?,
            keys: spec.keys.clone(),
            calls,
            bags,
            key_schema: std::sync::Arc::new(schema.project(&key_places)?),
            schema,
            nothing: Vec::new(),
            closing: match (spec.closing, spec.keys.first()) {
                (Some(shift_us), Some(key)) => Some(Closing {
                    shift_us,
                    kind: type_of(key),
                    codec: KeyCodec::keys(vec![type_of(key)])?,
                }),
                _ => None,
            },
        };
        running.begin(1);
        let mut nothing = Vec::new();
        running.write_state(0, 0, &mut nothing);
        running.nothing = nothing;
        Ok(running)
    }

    fn touch(&self, input: &Delta, first: First) -> Result<Touched> {
        let mut groups = Groups::default();
        let mut rows = Vec::with_capacity(input.batches.len());
        if self.keys.is_empty() {
            if first == First::Yes || !input.is_empty() {
                groups.intern(&[]);
            }
            rows.extend(input.batches.iter().map(|batch| vec![0; batch.len()]));
            return Ok(Touched { groups, rows });
        }
        for batch in &input.batches {
            let keys = encode_keys(&self.codec, batch, &self.keys)?;
            rows.push(groups.intern_all(&keys));
        }
        Ok(Touched { groups, rows })
    }

    fn begin(&mut self, groups: usize) {
        for call in &mut self.calls {
            if let Computed::Fold { fold, .. } = call {
                fold.begin(groups);
            }
        }
    }

    fn write_state(&self, group: usize, rows: i64, state: &mut Vec<u8>) {
        state.push(VERSION);
        put_i64(state, rows);
        for call in &self.calls {
            if let Computed::Fold { fold, .. } = call {
                fold.write(group, state);
            }
        }
    }

    /// Reads the stored states; returns the number of rows of each group.
    fn read_states(&mut self, groups: &Groups, table: &mut Keyed) -> Result<Vec<i64>> {
        table.load(groups.iter())?;
        self.begin(groups.len());
        let mut rows = vec![0; groups.len()];
        for (group, key) in groups.iter().enumerate() {
            let Some(mut state) = table.get(key) else {
                continue;
            };
            if state.split_off_first() != Some(&VERSION) {
                return Err(damaged());
            }
            rows[group] = take_i64(&mut state)?;
            for call in &mut self.calls {
                if let Computed::Fold { fold, .. } = call {
                    fold.read(group, &mut state)?;
                }
            }
        }
        Ok(rows)
    }

    fn moment(&self, groups: &Groups, rows: Vec<i64>, tables: &[Table]) -> Result<Moment> {
        let mut values = Vec::with_capacity(self.calls.len());
        let mut failures = vec![None; groups.len()];
        for call in &self.calls {
            let results = match call {
                Computed::Fold { fold, .. } => fold.results()?,
                Computed::Read { reader, bag } => match &tables[*bag] {
                    Table::Arranged(table) => {
                        let bags: Vec<&Group> = groups.iter().map(|key| table.group(key)).collect();
                        reader.results(&self.bags[*bag].codec, &bags)?
                    }
                    Table::Keyed(_) => return Err(damaged()),
                },
            };
            let Results {
                values: column,
                failures: failed,
            } = results;
            values.push(column);
            for (group, error) in failed {
                failures[group].get_or_insert(error);
            }
        }
        Ok(Moment { rows, values, failures })
    }

    /// Adds a batch to the folds and the bags.
    fn add(&mut self, batch: &Batch, groups: &Groups, numbers: &[u32], tables: &mut [Table]) -> Result<()> {
        let mut moves: Vec<(UInt32Array, Vec<i64>)> = Vec::with_capacity(self.bags.len());
        for (bag, table) in self.bags.iter().zip(tables) {
            let Table::Arranged(table) = table else {
                return Err(damaged());
            };
            let moved = bag.add(batch, groups, numbers, table);
            moves.push(moved.map_err(|key| match key {
                Failure::NotThere(group) => not_there(self.name, &self.codec, groups.key(group)),
                Failure::Other(error) => error,
            })?);
        }
        for call in &mut self.calls {
            let Computed::Fold {
                fold,
                arguments,
                filter,
                bag,
            } = call
            else {
                continue;
            };
            let columns = columns_of(batch, arguments);
            match bag {
                None => fold.add(&Input {
                    arguments: &columns,
                    groups: numbers,
                    weights: &batch.weights,
                    filter: filter.map(|column| batch.rows.column(column).as_boolean()),
                })?,
                Some(bag) => {
                    let (rows, weights) = &moves[*bag];
                    if rows.is_empty() {
                        continue;
                    }
                    let columns: Vec<ArrayRef> = columns
                        .iter()
                        .map(|column| take(column, rows, None))
                        .collect::<Result<_, _>>()?;
                    let moved: Vec<u32> = rows.values().iter().map(|row| numbers[*row as usize]).collect();
                    fold.add(&Input {
                        arguments: &columns,
                        groups: &moved,
                        weights: &Weights::from(weights.clone()),
                        filter: None,
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Writes the states; a group without rows leaves none behind.
    fn write_states(&self, groups: &Groups, old: &[i64], new: &[i64], table: &mut Keyed) -> Result<()> {
        let mut state = Vec::new();
        for (group, key) in groups.iter().enumerate() {
            let overdrawn = self.calls.iter().any(|call| match call {
                Computed::Fold { fold, .. } => fold.is_overdrawn(group),
                Computed::Read { .. } => false,
            });
            state.clear();
            self.write_state(group, new[group], &mut state);
            if new[group] < 0 || overdrawn || (new[group] == 0 && state != self.nothing) {
                return Err(not_there(self.name, &self.codec, key));
            }
            if new[group] > 0 {
                table.put(key, &state);
            } else if old[group] > 0 {
                table.remove(key);
            }
        }
        Ok(())
    }

    /// Puts out the rows that differ.
    fn emit(
        &self,
        groups: &Groups,
        old: &Moment,
        new: &Moment,
        context: &mut StepContext<'_>,
        output: &mut Output,
    ) -> Result<()> {
        let global = self.keys.is_empty();
        let stood = |group: usize| old.rows[group] > 0 || (global && context.time.first == First::No);
        let stands = |group: usize| new.rows[group] > 0 || global;
        let mut changed = vec![false; groups.len()];
        for (before, after) in old.values.iter().zip(&new.values) {
            differs(before, after, &mut changed)?;
        }
        let (mut deletes, mut inserts) = (Vec::new(), Vec::new());
        for (group, &changed) in changed.iter().enumerate() {
            let before = stood(group).then_some(old.failures[group].as_ref());
            let after = stands(group).then_some(new.failures[group].as_ref());
            let (shown, shows) = (before == Some(None), after == Some(None));
            if shown && (!shows || changed) {
                deletes.push(group as u32);
            }
            if shows && (!shown || changed) {
                inserts.push(group as u32);
            }
            let (failed, fails) = (before.flatten(), after.flatten());
            if failed != fails {
                for (error, weight) in [(failed, -1), (fails, 1)] {
                    if let Some(error) = error {
                        context
                            .faults
                            .row_errors
                            .push(self.fault(groups.key(group), weight, error)?);
                    }
                }
            }
        }
        for (rows, moment, weight) in [(deletes, old, -1), (inserts, new, 1)] {
            if !rows.is_empty() {
                let batch = self.rows(groups, &UInt32Array::from(rows), &moment.values)?;
                output.push(if weight < 0 {
                    Batch::deletes(batch)
                } else {
                    Batch::inserts(batch)
                })?;
            }
        }
        Ok(())
    }

    fn rows(
        &self,
        groups: &Groups,
        numbers: &UInt32Array,
        values: &[ArrayRef],
    ) -> Result<arrow::record_batch::RecordBatch> {
        let mut columns = self
            .codec
            .decode(numbers.values().iter().map(|number| groups.key(*number as usize)))?;
        let all = numbers.len() == groups.len();
        for column in values {
            columns.push(if all {
                column.clone()
            } else {
                take(column, numbers, None)?
            });
        }
        batch_of(self.schema.clone(), columns, numbers.len())
    }

    fn fault(&self, key: &[u8], weight: i64, error: &Error) -> Result<RowError> {
        Ok(RowError {
            row: batch_of(self.key_schema.clone(), self.codec.decode([key])?, 1)?,
            weight,
            error: error.clone(),
        })
    }
}

fn compute(call: &Call, layouts: &[Layout], arguments: Vec<DataType>) -> Result<Computed> {
    let layout = bag::layout_of(call);
    let bag = layout.and_then(|layout| layouts.iter().position(|known| *known == layout));
    if let Some(fold) = fold::fold_of(call, &arguments)? {
        return Ok(Computed::Fold {
            fold,
            arguments: call.arguments.clone(),
            filter: call.filter,
            bag,
        });
    }
    let bag = bag.ok_or_else(|| Error::internal(format!("{:?} has no state", call.function)))?;
    Ok(Computed::Read {
        reader: Reader::new(call)?,
        bag,
    })
}

/// Why a bag could not take a batch.
enum Failure {
    /// A row of this group was retracted that is not there.
    NotThere(usize),
    /// Something else.
    Other(Error),
}

impl Bag {
    /// Adds a batch; returns the rows whose values came (+1) or went (-1) altogether.
    fn add(
        &self,
        batch: &Batch,
        groups: &Groups,
        numbers: &[u32],
        table: &mut Arranged,
    ) -> Result<(UInt32Array, Vec<i64>), Failure> {
        let column = |index: &usize| batch.rows.column(*index);
        let encoded = self
            .codec
            .encode(&columns_of(batch, &self.columns), batch.len())
            .map_err(Failure::Other)?;
        let filter: Option<&BooleanArray> = self.layout.filter.as_ref().map(|index| column(index).as_boolean());
        let required: Vec<&ArrayRef> = self
            .layout
            .required
            .iter()
            .map(column)
            .filter(|column| column.null_count() > 0)
            .collect();
        let (mut rows, mut weights) = (Vec::new(), Vec::new());
        for (row, values) in encoded.iter().enumerate() {
            let counts = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
                && required.iter().all(|column| column.is_valid(row));
            if !counts {
                continue;
            }
            let group = numbers[row] as usize;
            let change = table
                .update(groups.key(group), values.data(), batch.weights.at(row))
                .map_err(|_| Failure::NotThere(group))?;
            if (change.old == 0) != (change.new == 0) {
                rows.push(row as u32);
                weights.push(if change.old == 0 { 1 } else { -1 });
            }
        }
        Ok((UInt32Array::from(rows), weights))
    }
}

impl Operator for Running {
    fn step(&mut self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        self.change(context, inputs, output)?;
        // What came is put out; now nothing of the closed groups will be asked again.
        if let (Some(closing), Some(watermark)) = (&self.closing, context.watermarks[0].after) {
            context.tables.keyed(0).drop_before(&closing.bound(watermark)?)?;
        }
        Ok(())
    }
}

impl Running {
    fn change(&mut self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        let input = &inputs[0];
        let Touched { groups, rows: numbers } = self.touch(input, context.time.first)?;
        if groups.len() == 0 {
            return Ok(());
        }
        let Some((Table::Keyed(states), bags)) = context.tables.all().split_first_mut() else {
            return Err(damaged());
        };
        let rows = self.read_states(&groups, states)?;
        for table in bags.iter_mut() {
            if let Table::Arranged(table) = table {
                table.load(groups.iter())?;
            }
        }
        let old = self.moment(&groups, rows.clone(), bags)?;
        let mut rows = rows;
        for (batch, numbers) in input.batches.iter().zip(&numbers) {
            for (row, number) in numbers.iter().enumerate() {
                rows[*number as usize] += batch.weights.at(row);
            }
            self.add(batch, &groups, numbers, bags)?;
        }
        self.write_states(&groups, &old.rows, &rows, states)?;
        let new = self.moment(&groups, rows, bags)?;
        context.metrics.state_reads += groups.len() as u64;
        context.metrics.state_writes += groups.len() as u64;
        self.emit(&groups, &old, &new, context, output)
    }
}
