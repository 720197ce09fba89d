//! Session windows: rows of a partition that follow one another closer than the gap.
//!
//! Partitions are kept by time. A change touches the sessions that it falls into and those that it joins or parts:
//! in the rows before and after taken together, the stretch around a changed row in which no two neighbours are the
//! gap apart. Outside of it nothing changes, so only the stretch is read.
//!
//! ```text
//!   before   *  *        *  *  *             * *
//!   change            +                               (joins the first two)
//!   stretch  <--------------->
//! ```
//!
//! Where a watermark closes sessions, only open ones are kept, and what comes too late is refused (`late`).

mod late;

use super::lateness::Judged;
use super::ordered::{Ordered, OrderedChanges, Partition, Place, merge};
use super::{Keys, Operator, Output, Spec, StepContext, TableSpec};
use crate::delta::{Batch, Delta, Weights, batch_of};
use crate::error::{Error, Result};
use crate::state::{Group, Shape};
use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use std::sync::Arc;

/// The rows, each with `window_start` and `window_end` of its session. A row whose time is NULL is in no session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionWindow {
    /// The columns that make a partition; NULLs are equal. None: all rows are one.
    pub partition: Vec<usize>,
    /// The column of the time: a timestamp in microseconds.
    pub time: usize,
    /// Rows at least so many microseconds apart are in different sessions.
    pub gap_us: i64,
    /// What a watermark does to them, where there is one on the time.
    pub lateness: Option<SessionLateness>,
}

/// What a watermark does to sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionLateness {
    /// The number under which refused rows are listed.
    pub label: i64,
    /// How far the time is ahead of the streams' event time, in microseconds.
    pub shift_us: i64,
    /// By which watermark rows are judged.
    pub judged: Judged,
    /// How many of the input's columns, from the first, are listed.
    pub listed: usize,
}

impl SessionLateness {
    /// The number of an input's columns that are rows of it, without what judges them.
    pub fn width(&self, input: usize) -> usize {
        match self.judged {
            Judged::ByRow => input - 1,
            Judged::ByEpoch => input,
        }
    }
}

impl SessionWindow {
    /// The number of an input's columns that are put out.
    pub fn width(&self, input: usize) -> usize {
        self.lateness.map_or(input, |late| late.width(input))
    }
}

impl Spec for SessionWindow {
    fn name(&self) -> &'static str {
        "SessionWindow"
    }

    fn schema(&self, inputs: &[SchemaRef]) -> Result<SchemaRef> {
        let time = &inputs[0].fields()[self.time];
        let fields: Vec<Field> = inputs[0]
            .fields()
            .iter()
            .take(self.width(inputs[0].fields().len()))
            .chain([time, time])
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
        let table = |name| TableSpec {
            name,
            shape: Shape::Arranged,
        };
        match self.lateness {
            None => vec![table("rows")],
            Some(_) => vec![table("rows of open sessions"), table("ends of open sessions")],
        }
    }

    fn build(&self, inputs: &[SchemaRef]) -> Result<Box<dyn Operator>> {
        let kind = inputs[0].field(self.time).data_type().clone();
        if !matches!(kind, DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, _)) {
            return Err(Error::unsupported(format!("sessions over {kind} are not supported"))
                .with_hint("Use a column of type timestamp or timestamptz."));
        }
        if let Some(late) = self.lateness {
            return Ok(Box::new(late::Running::new(self, late, &inputs[0], kind)?));
        }
        Ok(Box::new(Running {
            ordered: Ordered::by_time(&self.partition, self.time, &inputs[0])?,
            schema: self.schema(inputs)?,
            kind,
            spec: self.clone(),
        }))
    }
}

struct Running {
    spec: SessionWindow,
    ordered: Ordered,
    kind: DataType,
    schema: SchemaRef,
}

/// Rows with their sessions and weights.
#[derive(Default)]
struct Found<'a> {
    rows: Vec<&'a [u8]>,
    starts: Vec<i64>,
    ends: Vec<i64>,
    weights: Vec<i64>,
}

impl<'a> Found<'a> {
    fn put(&mut self, row: &'a [u8], session: (i64, i64), weight: i64) {
        if weight != 0 {
            self.rows.push(row);
            self.starts.push(session.0);
            self.ends.push(session.1);
            self.weights.push(weight);
        }
    }
}

impl Running {
    fn apart(&self, earlier: i64, later: i64) -> bool {
        later.saturating_sub(earlier) >= self.spec.gap_us
    }

    /// The stretches around the changes of a partition.
    fn stretches<'a>(
        &self,
        changes: &'a OrderedChanges,
        partition: &Partition,
        group: &'a Group,
        found: &mut Found<'a>,
    ) {
        let places: Vec<(&[u8], i64)> = changes.places(partition).collect();
        let mut next = 0;
        while let Some((first, _)) = places.get(next) {
            // Back to where the stretch begins; changes before it ended the stretch before.
            let mut from = *first;
            let mut time = Place::of(from, 0, 0).time();
            for (place, _) in group.range_to(first).rev() {
                let earlier = Place::of(place, 0, 0).time();
                if self.apart(earlier, time) {
                    break;
                }
                (from, time) = (place, earlier);
            }
            let mut stretch: Vec<Place<'_>> = Vec::new();
            for place in merge(group.range_from(from), places[next..].iter().copied()) {
                if stretch.last().is_some_and(|last| self.apart(last.time(), place.time())) {
                    break;
                }
                next += usize::from(place.old != place.new);
                stretch.push(place);
            }
            self.compare(&stretch, found);
        }
    }

    /// Puts out how the sessions of a stretch differ.
    fn compare<'a>(&self, stretch: &[Place<'a>], found: &mut Found<'a>) {
        let old = self.sessions(stretch, |place| place.old);
        let new = self.sessions(stretch, |place| place.new);
        for ((place, old), new) in stretch.iter().zip(old).zip(new) {
            if old == new {
                found.put(place.row, new, place.new - place.old);
            } else {
                found.put(place.row, old, -place.old);
                found.put(place.row, new, place.new);
            }
        }
    }

    /// The session of each row that is there, start and end.
    fn sessions(&self, stretch: &[Place<'_>], weight: impl Fn(&Place<'_>) -> i64) -> Vec<(i64, i64)> {
        let mut sessions = vec![(0, 0); stretch.len()];
        let there: Vec<usize> = (0..stretch.len()).filter(|row| weight(&stretch[*row]) > 0).collect();
        for session in there.chunk_by(|a, b| !self.apart(stretch[*a].time(), stretch[*b].time())) {
            let (first, last) = (session[0], session[session.len() - 1]);
            let end = stretch[last].time().saturating_add(self.spec.gap_us);
            session
                .iter()
                .for_each(|row| sessions[*row] = (stretch[first].time(), end));
        }
        sessions
    }

    fn put_out(&self, found: &Found<'_>, output: &mut Output) -> Result<()> {
        for sign in [-1, 1] {
            let rows = (0..found.rows.len()).filter(|row| found.weights[*row].signum() == sign);
            let rows: Vec<usize> = rows.collect();
            if rows.is_empty() {
                continue;
            }
            let mut columns = self.ordered.rows.decode(rows.iter().map(|row| found.rows[*row]))?;
            for times in [&found.starts, &found.ends] {
                let times: ArrayRef =
                    std::sync::Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| times[*row])));
                columns.push(arrow::compute::cast(&times, &self.kind)?);
            }
            let weights: Vec<i64> = rows.iter().map(|row| found.weights[*row]).collect();
            let rows = batch_of(self.schema.clone(), columns, rows.len())?;
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
            self.stretches(&changes, &partition, group, &mut found);
        }
        self.put_out(&found, output)?;
        drop(found);
        context.metrics.state_reads += changes.groups.len() as u64;
        context.metrics.state_writes += changes.len() as u64;
        changes.apply(self.spec.name(), &self.ordered, table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::harness::{Law, Row, actions, rows_of, schema_of};
    use arrow::datatypes::TimeUnit;
    use proptest::prelude::*;

    const TIMES: &[&str] = &[
        "1970-01-01T00:00:01",
        "1970-01-01T00:00:02",
        "1970-01-01T00:00:04",
        "-",
        "1970-01-01T00:00:06",
        "1970-01-01T00:00:09",
        "1970-01-01T00:00:11",
        "1969-12-31T23:59:59",
    ];

    fn seconds(time: &str) -> i64 {
        match time.strip_prefix("1969-12-31T23:59:") {
            Some(rest) => rest.parse::<i64>().expect("seconds") - 60,
            None => time[17..].parse().expect("seconds"),
        }
    }

    fn shown(seconds: i64) -> Option<String> {
        Some(match seconds {
            0.. => format!("1970-01-01T00:00:{seconds:02}"),
            _ => format!("1969-12-31T23:59:{:02}", 60 + seconds),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn laws(changes in actions(vec![rows_of(&[&["a", "b"], TIMES])], 30), gap in 1..5_i64) {
            let spec = SessionWindow { partition: vec![0], time: 1, gap_us: gap * 1_000_000, lateness: None };
            let oracle = |inputs: &[Vec<Row>]| {
                let mut out: Vec<Row> = Vec::new();
                for row in &inputs[0] {
                    let Some(time) = row[1].as_deref().map(seconds) else {
                        continue;
                    };
                    let own = inputs[0].iter().filter(|other| other[0] == row[0]);
                    let times: Vec<i64> = own.filter_map(|other| other[1].as_deref().map(seconds)).collect();
                    let (mut start, mut last) = (time, time);
                    while let Some(earlier) = times.iter().find(|other| **other < start && start - **other < gap) {
                        start = *earlier;
                    }
                    while let Some(later) = times.iter().find(|other| **other > last && **other - last < gap) {
                        last = *later;
                    }
                    out.push([row.clone(), vec![shown(start), shown(last + gap)]].concat());
                }
                out
            };
            let schema = schema_of(&[DataType::Utf8, DataType::Timestamp(TimeUnit::Microsecond, None)]);
            Law { spec: &spec, inputs: vec![schema], oracle: &oracle }.check(&changes);
        }
    }
}
