//! What is in a window of event time now: `[RANGE r]`, `[RANGE r SLIDE d]`, `[NOW]`, `[UNBOUNDED]`.
//!
//! *Now* is the highest event time among the rows, those left out that are held to be too far in the future. Rows are only
//! ever added, so now only moves on: what the window has passed never comes back and is forgotten; what lies beyond
//! its edge waits.
//!
//! ```text
//!   RANGE 10 SLIDE 5, now 23:   forgotten ... 10] (10 ..in the window.. 20] (20 ..waiting.. 23]
//! ```

use super::timers::{sortable, time_of};
use super::{Keys, Operator, Output, Spec, StepContext, TableSpec};
use crate::delta::{Batch, Delta, KeyCodec, Weights, batch_of};
use crate::error::{Error, Result};
use crate::state::{Arranged, Shape};
use crate::time::Timestamp;
use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};

/// The one key under which all rows are, in the order of their times.
const ROWS: &[u8] = b"rows";

/// The table of the rows that are in the window.
const INSIDE: usize = 0;

/// The table of the rows that the window has not reached.
const WAITING: usize = 1;

/// The rows of a batch that is put out.
const BATCH_ROWS: usize = 8192;

/// Keep the rows that are in the window now. A row without a time, or with an infinite one, is in none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InWindow {
    /// The column of the time.
    pub time: usize,
    /// Which times are in the window.
    pub extent: Extent,
    /// What now may be.
    pub latest: Latest,
}

/// Which times are in the window. All lengths are microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extent {
    /// The last ones up to now, which is floored to a multiple of the slide if there is one.
    Last {
        /// The window's length.
        length_us: i64,
        /// The slide.
        slide_us: Option<i64>,
    },
    /// Now alone.
    Now,
    /// All up to now.
    UpToNow,
}

/// What now may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Latest {
    /// The highest time.
    Highest,
    /// The highest time that is not beyond what has moved the stream's event time.
    Held,
}

impl Spec for InWindow {
    fn name(&self) -> &'static str {
        "InWindow"
    }

    fn schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        Ok(super::unnamed(&inputs[0], inputs[0].fields().len()))
    }

    fn keys(&self) -> Keys {
        Keys::Single
    }

    fn tables(&self) -> Vec<TableSpec> {
        let table = |name| TableSpec {
            name,
            shape: Shape::Arranged,
        };
        vec![table("rows in the window"), table("rows that wait")]
    }

    fn build(&self, inputs: &[SchemaRef]) -> Result<Box<dyn Operator>> {
        let schema = self.schema(inputs)?;
        Ok(Box::new(Running {
            spec: self.clone(),
            codec: KeyCodec::rows(&schema)?,
            schema,
        }))
    }
}

struct Running {
    spec: InWindow,
    codec: KeyCodec,
    schema: SchemaRef,
}

/// A row with its time before it, and its weight.
type Placed = (Box<[u8]>, i64);

/// The times that are in the window: after the first, up to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    after: i64,
    until: i64,
}

impl Running {
    /// The window when it is that time.
    fn span(&self, now: i64) -> Span {
        match self.spec.extent {
            Extent::Last { length_us, slide_us } => {
                let until = slide_us.map_or(now, |slide| now - now.rem_euclid(slide));
                Span {
                    after: until.saturating_sub(length_us),
                    until,
                }
            }
            Extent::Now => Span {
                after: now.saturating_sub(1),
                until: now,
            },
            Extent::UpToNow => Span {
                after: i64::MIN,
                until: now,
            },
        }
    }

    /// Puts new rows to those that wait.
    fn take(&self, input: &Delta, context: &mut StepContext<'_>) -> Result<()> {
        for batch in &input.batches {
            let times = arrow::compute::cast(batch.rows.column(self.spec.time), &DataType::Int64)?;
            let times = times.as_primitive::<Int64Type>();
            let rows = self.codec.encode(batch.rows.columns(), batch.len())?;
            for row in (0..batch.len()).filter(|row| times.is_valid(*row)) {
                let time = times.value(row);
                if time == i64::MIN || time == i64::MAX {
                    continue;
                }
                if batch.weights.at(row) < 0 {
                    return Err(Error::internal("operator InWindow: a row was taken away"));
                }
                let place = [&sortable(time)[..], rows.row(row).data()].concat();
                context
                    .tables
                    .arranged(WAITING)
                    .update(ROWS, &place, batch.weights.at(row))?;
                context.metrics.state_writes += 1;
            }
        }
        Ok(())
    }

    /// Now: the highest time of all rows that are kept; the row that it is of always is.
    fn now(&self, context: &mut StepContext<'_>) -> Option<i64> {
        let highest = |table: &Arranged, to: Option<i64>| {
            let rows = table.group(ROWS);
            let last = match to.and_then(|to| to.checked_add(1)) {
                Some(end) => rows
                    .range_to(&sortable(end))
                    .next_back()
                    .map(|(place, _)| time_of(place)),
                None => rows.last().map(|(place, _)| time_of(place)),
            };
            last
        };
        let waiting = match (self.spec.latest, context.watermarks[0].latest) {
            (Latest::Highest, _) => highest(context.tables.arranged(WAITING), None),
            (Latest::Held, Some(Timestamp(latest))) => highest(context.tables.arranged(WAITING), Some(latest)),
            (Latest::Held, None) => None,
        };
        waiting.max(highest(context.tables.arranged(INSIDE), None))
    }

    fn put_out(&self, rows: &[Placed], sign: i64, output: &mut Output) -> Result<()> {
        for part in rows.chunks(BATCH_ROWS) {
            let columns = self.codec.decode(part.iter().map(|(place, _)| &place[8..]))?;
            let weights: Vec<i64> = part.iter().map(|(_, weight)| sign * weight).collect();
            output.push(Batch {
                rows: batch_of(self.schema.clone(), columns, part.len())?,
                weights: Weights::from(weights),
            })?;
        }
        Ok(())
    }
}

/// Takes the rows up to and including a time out of a table.
fn taken(table: &mut Arranged, until: i64) -> Result<Vec<Placed>> {
    let rows = table.group(ROWS);
    let placed = |(place, weight): (&[u8], i64)| (Box::from(place), weight);
    let gone: Vec<Placed> = match until.checked_add(1).map(sortable) {
        Some(end) => rows.range_to(&end).map(placed).collect(),
        None => rows.iter().map(placed).collect(),
    };
    for (place, weight) in &gone {
        table.update(ROWS, place, -weight)?;
    }
    Ok(gone)
}

impl Operator for Running {
    fn step(&mut self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        for table in [INSIDE, WAITING] {
            context.tables.arranged(table).load([ROWS])?;
        }
        self.take(&inputs[0], context)?;
        let Some(now) = self.now(context) else {
            return Ok(());
        };
        let span = self.span(now);
        let (inside, waiting) = context.tables.arranged_pair(INSIDE, WAITING);
        let passed = taken(inside, span.after)?;
        self.put_out(&passed, -1, output)?;
        let mut come = taken(waiting, span.until)?;
        come.retain(|(place, _)| time_of(place) > span.after);
        self.put_out(&come, 1, output)?;
        // All up to now: what is in stays in, and only the last row tells when now is.
        let forgets = self.spec.extent == Extent::UpToNow;
        for (place, weight) in come.iter().filter(|(place, _)| !forgets || time_of(place) == now) {
            inside.update(ROWS, place, *weight)?;
        }
        if forgets {
            taken(inside, now.saturating_sub(1))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Advance;
    use crate::operator::harness::{Action, Bench, Law, Row, Sum, schema_of};
    use arrow::datatypes::TimeUnit;
    use proptest::prelude::*;

    const SECOND: i64 = 1_000_000;

    fn shown(seconds: i64) -> Option<String> {
        let since = seconds + 120;
        Some(match since {
            0.. if seconds >= 0 => format!("1970-01-01T00:00:{seconds:02}"),
            _ => format!("1969-12-31T23:{:02}:{:02}", 58 + since / 60, since % 60),
        })
    }

    fn expected(times: &[i64], latest: i64, extent: Extent) -> Sum {
        let mut sum = Sum::new();
        let Some(now) = times.iter().copied().filter(|time| *time <= latest).max() else {
            return sum;
        };
        let inside = |time: i64| match extent {
            Extent::Last { length_us, slide_us } => {
                let edge = slide_us.map_or(now, |slide| now - now.rem_euclid(slide / SECOND));
                time > edge - length_us / SECOND && time <= edge
            }
            Extent::Now => time == now,
            Extent::UpToNow => time <= now,
        };
        for time in times.iter().filter(|time| inside(**time)) {
            let row: Row = vec![shown(*time)];
            *sum.entry(row).or_insert(0) += 1;
        }
        sum
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

        /// After each epoch what is out is what a plain account says of all rows, whatever the epochs were.
        #[test]
        fn what_is_in_the_window(
            epochs in prop::collection::vec(prop::collection::vec(-30..30_i64, 0..6), 1..12),
            length in 1..15_i64,
            slide in prop::option::of(1..9_i64),
            which in 0..4_u8,
            held in any::<bool>(),
            anew in any::<bool>(),
        ) {
            let extent = match which {
                0 => Extent::Now,
                1 => Extent::UpToNow,
                _ => Extent::Last { length_us: length * SECOND, slide_us: slide.map(|slide| slide * SECOND) },
            };
            let latest = if held { Latest::Held } else { Latest::Highest };
            let spec = InWindow { time: 0, extent, latest };
            let schema = schema_of(&[DataType::Timestamp(TimeUnit::Microsecond, None)]);
            let law = Law { spec: &spec, inputs: vec![schema], oracle: &|_| Vec::new() };
            let mut bench = Bench::new(&law, 1);
            let (mut sum, mut there) = (Sum::new(), Vec::new());
            let mut highest = i64::MIN;
            for times in &epochs {
                there.extend(times.iter().copied());
                // A row beyond 20 is too far in the future until others are there.
                let near = times.iter().copied().filter(|time| !held || *time <= 20).max();
                highest = highest.max(near.unwrap_or(i64::MIN));
                bench.advance = Advance {
                    latest: (highest > i64::MIN).then(|| Timestamp(highest * SECOND)),
                    ..Advance::default()
                };
                let actions: Vec<Action> = times
                    .iter()
                    .map(|time| Action { input: 0, row: vec![shown(*time)], weight: 1, cut: false })
                    .collect();
                bench.step(&actions, &mut sum);
                prop_assert_eq!(&sum, &expected(&there, highest, extent));
                if anew {
                    bench.restart();
                }
            }
        }
    }
}
