//! Filters on the clock: rows come and go as time passes, without input.
//!
//! Each comparison with `now()` turns at most once for a row: `ts > now() - INTERVAL '1 minute'` is true until the
//! clock reaches `ts` plus a minute. So a row's truth changes at a few moments that the row alone decides, and what is
//! kept is each row that will change again, under the moment at which it does.
//!
//! ```text
//!   ts <= now() AND ts > now() - 1 min      row of 10:00       9:59     10:00       10:01
//!                                                              out       in          out, and forgotten
//! ```
//!
//! The flow is told when the next moment comes ([`Operator::due`]) and steps then; nothing is asked in between.

use super::map::keep_rows;
use super::timers::{sortable, time_of};
use super::{Faults, Keys, Operator, Output, RowError, Spec, StepContext, TableSpec};
use crate::delta::{Batch, Delta, KeyCodec, Weights, batch_of};
use crate::error::{Error, Result};
use crate::expr::{Compiled, Expression, RowFailure, positional_schema};
use crate::state::Shape;
use crate::time::Timestamp;
use crate::types::{Nullability, Type};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{Schema, SchemaRef};
use std::sync::Arc;

/// The one key under which all rows are that will change, in the order in which they do.
const CHANGING: &[u8] = b"changing";

/// The first moment that a clock may show: 1970.
const CLOCK_MIN: i64 = 0;

/// The last: in 2255.
const CLOCK_MAX: i64 = 1 << 53;

/// The rows of a batch that is put out.
const BATCH_ROWS: usize = 8192;

/// Keep the rows for which a predicate on the clock is true.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClockFilter {
    /// Which rows.
    pub predicate: Truth,
}

/// A predicate of which each part is true or false for a row from one moment on. NULL as in SQL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Truth {
    /// It does not ask the clock.
    Always(Expression),
    /// A comparison over the row's columns and, behind them, the clock.
    Turns(Expression, Turning),
    /// All are true.
    All(Vec<Truth>),
    /// One is true.
    Any(Vec<Truth>),
    /// It is false.
    Not(Box<Truth>),
}

/// What a comparison becomes as time passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Turning {
    /// False, then true.
    True,
    /// True, then false.
    False,
}

impl Truth {
    /// Its expressions, each over the columns of the row and the clock behind them.
    pub fn expressions(&self) -> Vec<&Expression> {
        match self {
            Self::Always(expr) | Self::Turns(expr, _) => vec![expr],
            Self::All(parts) | Self::Any(parts) => parts.iter().flat_map(Self::expressions).collect(),
            Self::Not(part) => part.expressions(),
        }
    }

    /// The same with other expressions.
    #[must_use]
    pub fn map(&self, change: &impl Fn(&Expression) -> Expression) -> Self {
        let all = |parts: &[Self]| parts.iter().map(|part| part.map(change)).collect();
        match self {
            Self::Always(expr) => Self::Always(change(expr)),
            Self::Turns(expr, turning) => Self::Turns(change(expr), *turning),
            Self::All(parts) => Self::All(all(parts)),
            Self::Any(parts) => Self::Any(all(parts)),
            Self::Not(part) => Self::Not(Box::new(part.map(change))),
        }
    }

    /// Whether every row that is in goes in the end.
    pub fn ends(&self) -> bool {
        match self {
            Self::Always(_) => false,
            Self::Turns(_, turning) => *turning == Turning::False,
            Self::All(parts) => parts.iter().any(Self::ends),
            Self::Any(parts) => parts.iter().all(Self::ends),
            Self::Not(part) => part.begins(),
        }
    }

    /// Whether it becomes true in the end, for every row.
    fn begins(&self) -> bool {
        match self {
            Self::Always(_) => false,
            Self::Turns(_, turning) => *turning == Turning::True,
            Self::All(parts) => parts.iter().all(Self::begins),
            Self::Any(parts) => parts.iter().any(Self::begins),
            Self::Not(part) => part.ends(),
        }
    }

    /// Its text, the row's columns under these names.
    pub fn text(&self, names: &[String]) -> String {
        let list = |parts: &[Self], word: &str| {
            let texts: Vec<String> = parts.iter().map(|part| part.text(names)).collect();
            texts.join(word)
        };
        match self {
            Self::Always(expr) | Self::Turns(expr, _) => expr.text(names),
            Self::All(parts) => list(parts, " AND "),
            Self::Any(parts) => format!("({})", list(parts, " OR ")),
            Self::Not(part) => format!("NOT ({})", part.text(names)),
        }
    }

    fn compile(&self, input: &SchemaRef) -> Result<Running> {
        let all = |parts: &[Self]| parts.iter().map(|part| part.compile(input)).collect::<Result<_>>();
        Ok(match self {
            Self::Always(expr) => Running::Always(expr.compile(input)?),
            Self::Turns(expr, turning) => Running::Turns(expr.compile(input)?, *turning),
            Self::All(parts) => Running::All(all(parts)?),
            Self::Any(parts) => Running::Any(all(parts)?),
            Self::Not(part) => Running::Not(Box::new(part.compile(input)?)),
        })
    }
}

/// The schema of rows with the clock behind them.
pub fn with_clock(input: &SchemaRef) -> SchemaRef {
    let clock = Type::Timestamptz(None).field("", Nullability::NotNull);
    let fields = input.fields().iter().map(|field| field.as_ref().clone());
    let fields: Vec<_> = fields.chain([clock]).collect();
    positional_schema(&Arc::new(Schema::new(fields)))
}

impl Spec for ClockFilter {
    fn name(&self) -> &'static str {
        "FilterByClock"
    }

    fn schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        Ok(super::unnamed(&inputs[0], inputs[0].fields().len()))
    }

    fn keys(&self) -> Keys {
        Keys::Single
    }

    fn tables(&self) -> Vec<TableSpec> {
        vec![TableSpec {
            name: "rows that will come or go",
            shape: Shape::Arranged,
        }]
    }

    fn build(&self, inputs: &[SchemaRef]) -> Result<Box<dyn Operator>> {
        let schema = self.schema(inputs)?;
        let clocked = with_clock(&inputs[0]);
        Ok(Box::new(Filter {
            predicate: self.predicate.compile(&clocked)?,
            codec: KeyCodec::rows(&schema)?,
            due: Due::Unknown,
            schema,
            clocked,
        }))
    }
}

/// A truth that runs.
enum Running {
    Always(Compiled),
    Turns(Compiled, Turning),
    All(Vec<Running>),
    Any(Vec<Running>),
    Not(Box<Running>),
}

/// The truth of the rows of a batch, at any moment.
enum Course {
    Always(BooleanArray),
    /// What it becomes, and when; NULL where it never has a value.
    Turns(Turning, Vec<Option<i64>>),
    All(Vec<Course>),
    Any(Vec<Course>),
    Not(Box<Course>),
}

impl Course {
    fn at(&self, row: usize, clock: i64) -> Option<bool> {
        match self {
            Self::Always(values) => values.is_valid(row).then(|| values.value(row)),
            Self::Turns(turning, moments) => moments[row].map(|at| (clock >= at) == (*turning == Turning::True)),
            Self::All(parts) => fold(parts.iter().map(|part| part.at(row, clock)), false),
            Self::Any(parts) => fold(parts.iter().map(|part| part.at(row, clock)), true),
            Self::Not(part) => part.at(row, clock).map(|value| !value),
        }
    }

    /// The next moment after `clock` at which a part of it turns; `i64::MAX` if there is none.
    fn next(&self, row: usize, clock: i64) -> i64 {
        match self {
            Self::Always(_) => i64::MAX,
            Self::Turns(_, moments) => moments[row].filter(|at| *at > clock).unwrap_or(i64::MAX),
            Self::All(parts) | Self::Any(parts) => {
                let all = parts.iter().map(|part| part.next(row, clock));
                all.min().unwrap_or(i64::MAX)
            }
            Self::Not(part) => part.next(row, clock),
        }
    }
}

/// AND, which one false decides, or OR, which one true decides.
fn fold(values: impl Iterator<Item = Option<bool>>, decides: bool) -> Option<bool> {
    let mut result = Some(!decides);
    for value in values {
        if value == Some(decides) {
            return value;
        }
        if value.is_none() {
            result = None;
        }
    }
    result
}

impl Running {
    /// The truth of rows; those for which it fails are listed.
    fn course(&self, rows: &Rows<'_>, failed: &mut Vec<RowFailure>) -> Result<Course> {
        let all = |parts: &[Self], failed: &mut Vec<RowFailure>| {
            let each = parts.iter().map(|part| part.course(rows, failed));
            each.collect::<Result<Vec<_>>>()
        };
        Ok(match self {
            Self::Always(expr) => {
                let (values, failures) = expr.evaluate(&rows.at(&vec![rows.clock; rows.batch.len()])?)?;
                failed.extend(failures);
                Course::Always(values.as_boolean().clone())
            }
            Self::Turns(expr, turning) => Course::Turns(*turning, moments(expr, *turning, rows, failed)?),
            Self::All(parts) => Course::All(all(parts, failed)?),
            Self::Any(parts) => Course::Any(all(parts, failed)?),
            Self::Not(part) => Course::Not(Box::new(part.course(rows, failed)?)),
        })
    }
}

/// Rows that are put to the clock.
struct Rows<'a> {
    batch: &'a Batch,
    clocked: &'a SchemaRef,
    clock: i64,
}

impl Rows<'_> {
    /// The rows, each with a moment behind it.
    fn at(&self, moments: &[i64]) -> Result<arrow::array::RecordBatch> {
        let kind = self.clocked.field(self.batch.rows.num_columns()).data_type();
        let clock: ArrayRef = Arc::new(Int64Array::from(moments.to_vec()));
        let mut columns = self.batch.rows.columns().to_vec();
        columns.push(cast(&clock, kind)?);
        batch_of(self.clocked.clone(), columns, self.batch.len())
    }
}

/// The first moment at which the comparison has turned, for each row: found by halving, all rows at once.
fn moments(
    comparison: &Compiled,
    turning: Turning,
    rows: &Rows<'_>,
    failed: &mut Vec<RowFailure>,
) -> Result<Vec<Option<i64>>> {
    let count = rows.batch.len();
    let (values, failures) = comparison.evaluate(&rows.at(&vec![rows.clock; count])?)?;
    failed.extend(failures);
    let known = values.clone();
    // What has turned by now did so before, and what has not will not before now.
    let turned = |values: &ArrayRef, row: usize| values.as_boolean().value(row) == (turning == Turning::True);
    let mut low = vec![CLOCK_MIN; count];
    let mut high = vec![CLOCK_MAX; count];
    for row in 0..count {
        if turned(&known, row) {
            // It matters only that it is over: no moment before now is asked for again.
            high[row] = rows.clock.max(CLOCK_MIN);
            low[row] = high[row];
        } else {
            low[row] = rows.clock.saturating_add(1).clamp(CLOCK_MIN, CLOCK_MAX);
        }
    }
    while (0..count).any(|row| low[row] < high[row]) {
        let middle: Vec<i64> = (0..count).map(|row| low[row] + (high[row] - low[row]) / 2).collect();
        let (values, _) = comparison.evaluate(&rows.at(&middle)?)?;
        for row in 0..count {
            if low[row] >= high[row] {
                continue;
            }
            if turned(&values, row) {
                high[row] = middle[row];
            } else {
                low[row] = middle[row] + 1;
            }
        }
    }
    let moment = |row: usize| if low[row] >= CLOCK_MAX { i64::MAX } else { low[row] };
    Ok((0..count).map(|row| known.is_valid(row).then(|| moment(row))).collect())
}

/// When the operator wants a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// Not looked up yet.
    Unknown,
    /// No row will change.
    Never,
    /// Then.
    At(i64),
}

struct Filter {
    predicate: Running,
    codec: KeyCodec,
    schema: SchemaRef,
    clocked: SchemaRef,
    due: Due,
}

impl Filter {
    /// The rows whose moment has come: what they were until then and what they are.
    fn turn(&self, context: &mut StepContext<'_>, output: &mut Output) -> Result<()> {
        let Timestamp(clock) = context.time.clock;
        let table = context.tables.arranged(0);
        let to = sortable(clock.saturating_add(1));
        let come: Vec<(Box<[u8]>, i64)> = table
            .group(CHANGING)
            .range_to(&to)
            .map(|(p, w)| (p.into(), w))
            .collect();
        for (place, weight) in &come {
            table.update(CHANGING, place, -weight)?;
        }
        for part in come.chunks(BATCH_ROWS) {
            let columns = self.codec.decode(part.iter().map(|(place, _)| &place[8..]))?;
            let batch = Batch {
                rows: batch_of(self.schema.clone(), columns, part.len())?,
                weights: Weights::from(part.iter().map(|(_, weight)| *weight).collect::<Vec<_>>()),
            };
            // From before the first of these moments on, so that each is found again.
            let first = time_of(&part[0].0).saturating_sub(1);
            let course = self.course(&batch, first, context.faults)?.1;
            let was = |row: usize| course.at(row, time_of(&part[row].0).saturating_sub(1)) == Some(true);
            let is = |row: usize| course.at(row, clock) == Some(true);
            for (sign, comes) in [(-1, false), (1, true)] {
                let chosen: BooleanArray = (0..batch.len())
                    .map(|row| Some(was(row) != is(row) && is(row) == comes))
                    .collect();
                let chosen = keep_rows(&batch, &chosen)?;
                if !chosen.is_empty() {
                    output.push(if sign < 0 { chosen.negate() } else { chosen })?;
                }
            }
            for (row, (place, weight)) in part.iter().enumerate() {
                self.keep(context, course.next(row, clock), &place[8..], *weight)?;
            }
        }
        Ok(())
    }

    /// Rows that come or go at this moment.
    fn take(&self, batch: &Batch, context: &mut StepContext<'_>, output: &mut Output) -> Result<()> {
        let Timestamp(clock) = context.time.clock;
        let (batch, course) = self.course(batch, clock, context.faults)?;
        let shown: BooleanArray = (0..batch.len())
            .map(|row| Some(course.at(row, clock) == Some(true)))
            .collect();
        let rows = self.codec.encode(batch.rows.columns(), batch.len())?;
        for row in 0..batch.len() {
            self.keep(
                context,
                course.next(row, clock),
                rows.row(row).data(),
                batch.weights.at(row),
            )?;
        }
        let shown = keep_rows(&batch, &shown)?;
        if shown.is_empty() { Ok(()) } else { output.push(shown) }
    }

    /// The rows for which the predicate has a truth, and its course from a moment on.
    fn course(&self, batch: &Batch, clock: i64, faults: &mut Faults) -> Result<(Batch, Course)> {
        let mut failed = Vec::new();
        let course = self.predicate.course(&self.rows(batch, clock), &mut failed)?;
        if failed.is_empty() {
            return Ok((batch.clone(), course));
        }
        failed.sort_by_key(|failure| failure.row);
        failed.dedup_by_key(|failure| failure.row);
        let mut keep = vec![true; batch.len()];
        for failure in failed {
            keep[failure.row] = false;
            faults.row_errors.push(RowError {
                row: batch.rows.slice(failure.row, 1),
                weight: batch.weights.at(failure.row),
                error: failure.error,
            });
        }
        let kept = keep_rows(batch, &BooleanArray::from(keep))?;
        let course = self.predicate.course(&self.rows(&kept, clock), &mut Vec::new())?;
        Ok((kept, course))
    }

    fn rows<'a>(&'a self, batch: &'a Batch, clock: i64) -> Rows<'a> {
        Rows {
            batch,
            clocked: &self.clocked,
            clock,
        }
    }

    /// Keeps a row that will change.
    fn keep(&self, context: &mut StepContext<'_>, at: i64, row: &[u8], weight: i64) -> Result<()> {
        if at == i64::MAX {
            return Ok(());
        }
        let place = [&sortable(at)[..], row].concat();
        context.metrics.state_writes += 1;
        let table = context.tables.arranged(0);
        table
            .update(CHANGING, &place, weight)
            .map(|_| ())
            .map_err(|_| Error::internal("operator FilterByClock: a row was retracted that is not there"))
    }
}

impl Operator for Filter {
    fn step(&mut self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        context.tables.arranged(0).load([CHANGING])?;
        let mut all = output.like();
        self.turn(context, &mut all)?;
        let net = if inputs[0].is_inserts() {
            inputs[0].clone()
        } else {
            inputs[0].consolidate(&self.schema)?
        };
        for batch in &net.batches {
            self.take(batch, context, &mut all)?;
        }
        // A row may come by its moment and go by the input in one epoch.
        let all = all.into_delta();
        output.append(if all.is_inserts() {
            all
        } else {
            all.consolidate(&self.schema)?
        })?;
        let first = context.tables.arranged(0).group(CHANGING).first();
        self.due = first.map_or(Due::Never, |(place, _)| Due::At(time_of(place)));
        Ok(())
    }

    fn due(&self) -> Option<Timestamp> {
        match self.due {
            Due::Unknown => Some(Timestamp(i64::MIN)),
            Due::Never => None,
            Due::At(at) => Some(Timestamp(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::harness::{Action, Bench, Law, Row, Sum, schema_of};
    use arrow::datatypes::DataType;
    use datafusion::common::{Column, DFSchema, ScalarValue};
    use datafusion::logical_expr::{Expr, lit};
    use proptest::prelude::*;

    const SECOND: i64 = 1_000_000;

    fn column(index: usize, schema: &SchemaRef) -> Expr {
        Expr::Column(Column::new_unqualified(schema.field(index).name()))
    }

    /// `ts > now() - 5 s AND ts <= now()`, or with OR `pinned`.
    fn predicate(schema: &SchemaRef, pinned: bool) -> Truth {
        let clocked = with_clock(schema);
        let named = DFSchema::try_from(clocked.as_ref().clone()).expect("a schema");
        let bind = |expr: Expr| Expression::bind(&expr, &named).expect("it binds");
        let (ts, now) = (column(0, &clocked), column(2, &clocked));
        let five = lit(ScalarValue::new_interval_mdn(0, 0, 5_000_000_000));
        let within = Truth::All(vec![
            Truth::Turns(bind(ts.clone().gt(now.clone() - five)), Turning::False),
            Truth::Turns(bind(ts.lt_eq(now)), Turning::True),
        ]);
        if pinned {
            Truth::Any(vec![within, Truth::Always(bind(column(1, &clocked)))])
        } else {
            within
        }
    }

    fn shown(seconds: i64) -> Option<String> {
        Some(format!("1970-01-01T00:{:02}:{:02}Z", seconds / 60, seconds % 60))
    }

    fn expected(rows: &[(Option<i64>, bool)], clock: i64, pinned: bool) -> Sum {
        let mut sum = Sum::new();
        for (time, pin) in rows {
            let within = time.is_some_and(|time| time > clock - 5 && time <= clock);
            if within || (pinned && *pin) {
                let row: Row = vec![time.and_then(shown), Some(pin.to_string())];
                *sum.entry(row).or_insert(0) += 1;
            }
        }
        sum
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        /// After every step the rows that are out are those for which the predicate is true at its clock, also when
        /// the operator is built anew in between; when all moments have passed nothing is kept.
        #[test]
        fn rows_come_and_go(
            steps in prop::collection::vec(
                (0..4_i64, prop::collection::vec((prop::option::weighted(0.9, 0..40_i64), any::<bool>(), 0..4_u8), 0..5)),
                1..15,
            ),
            pinned in any::<bool>(),
            anew in any::<bool>(),
        ) {
            let kind = Type::Timestamptz(None).field("", Nullability::Nullable).data_type().clone();
            let schema = schema_of(&[kind, DataType::Boolean]);
            let spec = ClockFilter { predicate: predicate(&schema, pinned) };
            let law = Law { spec: &spec, inputs: vec![schema], oracle: &|_| Vec::new() };
            let mut bench = Bench::new(&law, 1);
            let mut sum = Sum::new();
            let mut there: Vec<(Option<i64>, bool)> = Vec::new();
            let mut clock = 10;
            for (passes, rows) in &steps {
                clock += passes;
                let mut actions = Vec::new();
                for (time, pin, choice) in rows {
                    let gone = if *choice == 0 { there.pop() } else { None };
                    let (row, weight) = gone.map_or(((*time, *pin), 1), |gone| (gone, -1));
                    if weight > 0 {
                        there.push(row);
                    }
                    let texts = vec![row.0.and_then(shown), Some(row.1.to_string())];
                    actions.push(Action { input: 0, row: texts, weight, cut: false });
                }
                bench.clock = clock * SECOND;
                bench.step(&actions, &mut sum);
                prop_assert_eq!(&sum, &expected(&there, clock, pinned));
                if anew {
                    bench.restart();
                }
            }
            bench.clock = 100 * SECOND;
            bench.step(&[], &mut sum);
            prop_assert_eq!(&sum, &expected(&there, 100, pinned));
            bench.flush();
            prop_assert_eq!(bench.stored_entries(), 0);
        }
    }
}
