//! Sessions under a watermark: closed ones never change, and what comes too late is refused.
//!
//! Rows are taken one after another, each under the watermark that judges it. What that watermark has closed is closed
//! first. Then the row joins the open sessions that it touches, which may make one of two; if there is none it begins
//! a session of its own, or is refused where the watermark has passed even that. A row that touches only a closed
//! session thus begins a new one. So what a session is depends on the log alone, not on how it was cut into epochs.
//!
//! ```text
//!   gap 5, watermark 12:   closed [1 .. 10)      open [11 .. 18)
//!   a row at 9:                                  joins the open one: [9 .. 18)
//!   a row at 5:            refused: its own [5 .. 10) has passed, and it touches no open session
//! ```
//!
//! Only open sessions are kept: a closed one's rows are dropped, and found by the time at which it ends.

use super::super::ordered::{Place, merge};
use super::super::timers::{Timers, sortable};
use super::{SessionLateness, SessionWindow};
use crate::delta::{Batch, Delta, KeyCodec, Weights, batch_of};
use crate::error::Result;
use crate::operator::changes::net;
use crate::operator::groups::{Groups, encode_keys, not_there};
use crate::operator::lateness::Judged;
use crate::operator::{LateRows, Operator, Output, Spec, StepContext};
use crate::state::Group;
use crate::time::{Timestamp, Watermark};
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The table of the rows of open sessions.
const ROWS: usize = 0;

/// The table of the times at which open sessions end.
pub(super) const ENDS: usize = 1;

pub(super) struct Running {
    name: &'static str,
    partition: Vec<usize>,
    time: usize,
    gap_us: i64,
    late: SessionLateness,
    keys: KeyCodec,
    rows: KeyCodec,
    own: SchemaRef,
    schema: SchemaRef,
    kind: DataType,
    timers: Timers,
}

/// A row that comes or goes.
#[derive(Debug, Clone, Copy)]
struct Event {
    /// The number of its place among those of the partition that change.
    place: usize,
    amount: i64,
    /// The watermark that judges it, in the stream's time.
    mark: Option<i64>,
}

/// What comes and goes in a partition.
#[derive(Default)]
struct Changing {
    /// Places, the event's number among them to be found later.
    events: Vec<(Vec<u8>, i64, Option<i64>)>,
}

/// A session: its first and its last time.
type Session = (i64, i64);

/// A place of a stretch: the rows of a time that are equal, and how many of them are in which session.
struct Slot<'a> {
    bytes: &'a [u8],
    row: &'a [u8],
    time: i64,
    old: i64,
    open: i64,
    closed: Vec<(Session, i64)>,
}

/// A stretch of a partition around what changes, being simulated.
struct Stretch<'a> {
    slots: Vec<Slot<'a>>,
    /// Open sessions by their first time: their last one.
    open: BTreeMap<i64, i64>,
    gap_us: i64,
    shift_us: i64,
}

/// Why a row was not taken.
enum Refusal {
    /// It came too late.
    Late,
    /// It is to be taken away and is not there.
    NotThere,
}

/// What a step finds.
#[derive(Default)]
struct Found {
    rows: Vec<Vec<u8>>,
    sessions: Vec<Session>,
    weights: Vec<i64>,
    refused: Vec<(Vec<u8>, i64, i64)>,
    /// Changes of the rows that are kept: the key's number, the place, the amount.
    kept: Vec<(u32, Vec<u8>, i64)>,
    /// Changes of the ends of sessions.
    ends: Vec<(u32, i64, i64)>,
}

impl<'a> Stretch<'a> {
    /// The end of a session that closes with that last time, in the watermark's time.
    fn closes(&self, last: i64) -> i64 {
        last.saturating_add(self.gap_us).saturating_sub(self.shift_us)
    }

    /// The open sessions that the places make without simulation.
    fn sessions_of(&self, weight: impl Fn(&Slot<'a>) -> i64) -> Vec<Session> {
        let mut sessions: Vec<Session> = Vec::new();
        for slot in self.slots.iter().filter(|slot| weight(slot) > 0) {
            match sessions.last_mut() {
                Some(last) if slot.time.saturating_sub(last.1) < self.gap_us => last.1 = slot.time,
                _ => sessions.push((slot.time, slot.time)),
            }
        }
        sessions
    }

    /// The slots of a span of time.
    fn range(&self, from: i64, to: i64) -> std::ops::Range<usize> {
        let start = self.slots.partition_point(|slot| slot.time < from);
        let end = self.slots.partition_point(|slot| slot.time <= to);
        start..end
    }

    /// Closes the sessions that a watermark has passed.
    fn close(&mut self, mark: Option<i64>) {
        let Some(mark) = mark else {
            return;
        };
        while let Some((first, last)) = self.open.first_key_value().map(|(first, last)| (*first, *last)) {
            if self.closes(last) > mark {
                return;
            }
            self.open.remove(&first);
            let range = self.range(first, last);
            for slot in &mut self.slots[range] {
                if slot.open > 0 {
                    slot.closed.push(((first, last), slot.open));
                    slot.open = 0;
                }
            }
        }
    }

    /// A row comes.
    fn add(&mut self, place: usize, amount: i64, mark: Option<i64>) -> Result<(), Refusal> {
        let time = self.slots[place].time;
        let touches =
            |from: i64, to: i64| time.saturating_sub(to) < self.gap_us && from.saturating_sub(time) < self.gap_us;
        let before = self.open.range(..=time).next_back().map(|(from, to)| (*from, *to));
        let after = self
            .open
            .range(time.saturating_add(1)..)
            .next()
            .map(|(from, to)| (*from, *to));
        let before = before.filter(|(from, to)| touches(*from, *to));
        let after = after.filter(|(from, to)| touches(*from, *to));
        if before.is_none() && after.is_none() && mark.is_some_and(|mark| self.closes(time) <= mark) {
            return Err(Refusal::Late);
        }
        let (mut first, mut last) = (time, time);
        for (from, to) in [before, after].into_iter().flatten() {
            self.open.remove(&from);
            (first, last) = (first.min(from), last.max(to));
        }
        self.open.insert(first, last);
        self.slots[place].open += amount;
        Ok(())
    }

    /// A row goes that may be in a closed session, which keeps it.
    fn refuses(&self, place: usize, mark: Option<i64>) -> Refusal {
        let passed = mark.is_some_and(|mark| self.closes(self.slots[place].time) <= mark);
        if passed { Refusal::Late } else { Refusal::NotThere }
    }

    /// A row of an open session goes: its session may part, or end to be.
    fn remove(&mut self, place: usize, amount: i64) {
        let time = self.slots[place].time;
        self.slots[place].open -= amount;
        if self.slots[place].open > 0 {
            return;
        }
        let (first, last) = self.session(time);
        self.open.remove(&first);
        let range = self.range(first, last);
        let there = |slot: &&Slot<'_>| slot.open > 0;
        let before = self.slots[range.start..place]
            .iter()
            .rev()
            .find(there)
            .map(|slot| slot.time);
        let after = self.slots[place + 1..range.end]
            .iter()
            .find(there)
            .map(|slot| slot.time);
        match (before, after) {
            (Some(before), Some(after)) if after.saturating_sub(before) >= self.gap_us => {
                self.open.insert(first, before);
                self.open.insert(after, last);
            }
            (Some(_), Some(_)) => {
                self.open.insert(first, last);
            }
            (Some(before), None) => {
                self.open.insert(first, before);
            }
            (None, Some(after)) => {
                self.open.insert(after, last);
            }
            (None, None) => {}
        }
    }

    /// The open session of a time.
    fn session(&self, time: i64) -> Session {
        let found = self.open.range(..=time).next_back();
        found.map_or((time, time), |(first, last)| (*first, *last))
    }
}

impl Running {
    pub(super) fn new(spec: &SessionWindow, late: SessionLateness, input: &SchemaRef, kind: DataType) -> Result<Self> {
        let own = super::super::unnamed(input, late.width(input.fields().len()));
        let type_of = |column: &usize| input.field(*column).data_type().clone();
        Ok(Self {
            name: spec.name(),
            keys: KeyCodec::keys(spec.partition.iter().map(type_of).collect())?,
            rows: KeyCodec::rows(&own)?,
            schema: spec.schema(std::slice::from_ref(input))?,
            partition: spec.partition.clone(),
            time: spec.time,
            gap_us: spec.gap_us,
            late,
            own,
            kind,
            timers: Timers::new(ENDS),
        })
    }

    /// What comes and goes, by partition.
    fn take(&self, input: &Delta, full: &SchemaRef, epoch: Option<i64>) -> Result<(Groups, Vec<Changing>)> {
        let mut groups = Groups::default();
        let mut changing: Vec<Changing> = Vec::new();
        let width = self.own.fields().len();
        for batch in net(input, full)? {
            let marks: Option<&Int64Array> = match self.late.judged {
                Judged::ByRow => Some(batch.rows.column(width).as_primitive::<Int64Type>()),
                Judged::ByEpoch => None,
            };
            let times = arrow::compute::cast(batch.rows.column(self.time), &DataType::Int64)?;
            let times = times.as_primitive::<Int64Type>();
            let keys = encode_keys(&self.keys, &batch, &self.partition)?;
            let rows = self.rows.encode(&batch.rows.columns()[..width], batch.len())?;
            for row in (0..batch.len()).filter(|row| times.is_valid(*row)) {
                let group = groups.intern(keys.row(row).data()) as usize;
                if changing.len() <= group {
                    changing.resize_with(group + 1, Changing::default);
                }
                let mark = marks.map_or(epoch, |marks| marks.is_valid(row).then(|| marks.value(row)));
                let place = [
                    &sortable(times.value(row))[..],
                    rows.row(row).data(),
                    &8_u32.to_le_bytes(),
                ]
                .concat();
                changing[group].events.push((place, batch.weights.at(row), mark));
            }
        }
        Ok((groups, changing))
    }

    /// The changes of one partition.
    fn partition(&self, number: u32, changing: Changing, group: &Group, found: &mut Found) -> Result<(), Refusal> {
        let mut events = changing.events;
        if self.late.judged == Judged::ByEpoch {
            // All of them meet one watermark: what comes, from the last time on, then what goes. So a row finds every
            // session that the epoch makes for it, whatever the order in which they came.
            events.sort_by(|a, b| b.1.signum().cmp(&a.1.signum()).then_with(|| b.0.cmp(&a.0)));
        }
        let mut places: Vec<&[u8]> = events.iter().map(|(place, ..)| place.as_slice()).collect();
        places.sort_unstable();
        places.dedup();
        let number_of = |place: &[u8]| places.binary_search(&place).unwrap_or_default();
        let events: Vec<Event> = events
            .iter()
            .map(|(place, amount, mark)| Event {
                place: number_of(place),
                amount: *amount,
                mark: *mark,
            })
            .collect();
        // The stretches, and where each changed place is: its stretch and its slot.
        let mut stretches: Vec<Stretch<'_>> = Vec::new();
        let mut at: Vec<(usize, usize)> = vec![(0, 0); places.len()];
        let mut next = 0;
        while next < places.len() {
            let first = next;
            let stretch = self.stretch(&places, &mut next, group);
            for (place, at) in at[first..next].iter_mut().enumerate() {
                let slot = stretch.slots.partition_point(|slot| slot.bytes < places[first + place]);
                *at = (stretches.len(), slot);
            }
            stretches.push(stretch);
        }
        for event in events {
            let (stretch, slot) = at[event.place];
            let stretch = &mut stretches[stretch];
            stretch.close(event.mark);
            let mut left = event.amount;
            let refusal = if left > 0 {
                stretch.add(slot, left, event.mark).err()
            } else {
                let there = stretch.slots[slot].open.min(-left);
                if there > 0 {
                    stretch.remove(slot, there);
                    left += there;
                }
                (left < 0).then(|| stretch.refuses(slot, event.mark))
            };
            match refusal {
                None => {}
                Some(Refusal::Late) => {
                    let row = stretch.slots[slot].row.to_vec();
                    found.refused.push((row, left, event.mark.unwrap_or_default()));
                }
                Some(Refusal::NotThere) => return Err(Refusal::NotThere),
            }
        }
        stretches.iter().for_each(|stretch| compare(number, stretch, found));
        Ok(())
    }

    /// The rows around a changed place in which no two neighbours are the gap apart; passes the changed places in it.
    fn stretch<'a>(&self, places: &[&'a [u8]], next: &mut usize, group: &'a Group) -> Stretch<'a> {
        let apart = |earlier: i64, later: i64| later.saturating_sub(earlier) >= self.gap_us;
        let first = places[*next];
        let mut from = first;
        let mut time = Place::of(from, 0, 0).time();
        for (place, _) in group.range_to(first).rev() {
            let earlier = Place::of(place, 0, 0).time();
            if apart(earlier, time) {
                break;
            }
            (from, time) = (place, earlier);
        }
        let mut slots: Vec<Slot<'a>> = Vec::new();
        let changes = places[*next..].iter().map(|place| (*place, 1));
        for place in merge(group.range_from(from), changes) {
            let time = place.time();
            if slots.last().is_some_and(|last| apart(last.time, time)) {
                break;
            }
            *next += usize::from(place.new != place.old);
            slots.push(Slot {
                bytes: place.bytes,
                row: place.row,
                time,
                old: place.old,
                open: place.old,
                closed: Vec::new(),
            });
        }
        let mut stretch = Stretch {
            slots,
            open: BTreeMap::new(),
            gap_us: self.gap_us,
            shift_us: self.late.shift_us,
        };
        stretch.open = stretch.sessions_of(|slot| slot.old).into_iter().collect();
        stretch
    }

    /// Drops the sessions that a watermark has closed.
    fn forget(&mut self, context: &mut StepContext<'_>) -> Result<()> {
        let Some(Watermark(Timestamp(mark))) = context.watermarks[0].after else {
            return Ok(());
        };
        let due = self
            .timers
            .take_due(context.tables, mark.saturating_add(self.late.shift_us))?;
        let table = context.tables.arranged(ROWS);
        table.load(due.iter().map(|(_, key)| key.as_slice()))?;
        for (end, key) in due {
            // Sessions before this one have ended before.
            let after = sortable(end.saturating_sub(self.gap_us).saturating_add(1));
            let gone: Vec<(Box<[u8]>, i64)> = table.group(&key).range_to(&after).map(|(p, w)| (p.into(), w)).collect();
            for (place, weight) in gone {
                table.update(&key, &place, -weight)?;
                context.metrics.state_writes += 1;
            }
        }
        Ok(())
    }

    fn put_out(&self, found: &Found, output: &mut Output) -> Result<()> {
        for sign in [-1, 1] {
            let rows: Vec<usize> = (0..found.rows.len())
                .filter(|row| found.weights[*row].signum() == sign)
                .collect();
            if rows.is_empty() {
                continue;
            }
            let bounds = rows.iter().map(|row| {
                let (first, last) = found.sessions[*row];
                (first, last.saturating_add(self.gap_us))
            });
            let columns = self.rows.decode(rows.iter().map(|row| found.rows[*row].as_slice()))?;
            let weights: Vec<i64> = rows.iter().map(|row| found.weights[*row]).collect();
            output.push(Batch {
                rows: self.with_bounds(&self.schema, columns, bounds)?,
                weights: Weights::from(weights),
            })?;
        }
        Ok(())
    }

    /// Rows with the start and the end of a window.
    fn with_bounds(
        &self,
        schema: &SchemaRef,
        mut columns: Vec<ArrayRef>,
        bounds: impl Iterator<Item = (i64, i64)>,
    ) -> Result<RecordBatch> {
        let (starts, ends): (Vec<i64>, Vec<i64>) = bounds.unzip();
        let count = starts.len();
        for times in [starts, ends] {
            let times: ArrayRef = Arc::new(Int64Array::from(times));
            columns.push(arrow::compute::cast(&times, &self.kind)?);
        }
        batch_of(schema.clone(), columns, count)
    }

    /// Lists what was refused: each row with the session that it would have been.
    fn list(&self, found: &Found, context: &mut StepContext<'_>) -> Result<()> {
        if found.refused.is_empty() {
            return Ok(());
        }
        let mut columns = self.rows.decode(found.refused.iter().map(|(row, ..)| row.as_slice()))?;
        let times = arrow::compute::cast(&columns[self.time], &DataType::Int64)?;
        let times = times.as_primitive::<Int64Type>();
        let bounds = times
            .values()
            .iter()
            .map(|time| (*time, time.saturating_add(self.gap_us)));
        columns.truncate(self.late.listed);
        let fields = self.schema.fields();
        let (first, last) = (&fields[..self.late.listed], &fields[fields.len() - 2..]);
        let schema = arrow::datatypes::Schema::new([first, last].concat());
        context.faults.late_rows.push(LateRows {
            label: self.late.label,
            rows: self.with_bounds(&Arc::new(schema), columns, bounds)?,
            weights: found.refused.iter().map(|(_, weight, _)| *weight).collect(),
            watermarks: found
                .refused
                .iter()
                .map(|(.., mark)| Watermark(Timestamp(*mark)))
                .collect(),
        });
        Ok(())
    }
}

/// Finds how a stretch differs from what it was.
fn compare(number: u32, stretch: &Stretch<'_>, found: &mut Found) {
    let old = stretch.sessions_of(|slot| slot.old);
    let end = |last: i64| last.saturating_add(stretch.gap_us);
    found.ends.extend(old.iter().map(|(_, last)| (number, end(*last), -1)));
    found
        .ends
        .extend(stretch.open.values().map(|last| (number, end(*last), 1)));
    for slot in &stretch.slots {
        let mut counts: Vec<(Session, i64)> = Vec::with_capacity(2);
        if slot.old > 0 {
            let before = old.partition_point(|(first, _)| *first <= slot.time);
            counts.push((old[before.saturating_sub(1)], -slot.old));
        }
        let open = (slot.open > 0).then(|| (stretch.session(slot.time), slot.open));
        for (session, weight) in slot.closed.iter().copied().chain(open) {
            match counts.iter_mut().find(|(known, _)| *known == session) {
                Some((_, known)) => *known += weight,
                None => counts.push((session, weight)),
            }
        }
        for (session, weight) in counts.into_iter().filter(|(_, weight)| *weight != 0) {
            found.rows.push(slot.row.to_vec());
            found.sessions.push(session);
            found.weights.push(weight);
        }
        if slot.open != slot.old {
            found.kept.push((number, slot.bytes.to_vec(), slot.open - slot.old));
        }
    }
}

impl Operator for Running {
    fn step(&mut self, context: &mut StepContext<'_>, inputs: &[Delta], output: &mut Output) -> Result<()> {
        let epoch = context.watermarks[0].before.map(|Watermark(Timestamp(micros))| micros);
        if let Some(full) = inputs[0].batches.first().map(|batch| batch.rows.schema()) {
            let (groups, changing) = self.take(&inputs[0], &full, epoch)?;
            let table = context.tables.arranged(ROWS);
            table.load(groups.iter())?;
            let mut found = Found::default();
            for (number, changing) in changing.into_iter().enumerate() {
                if self.late.judged == Judged::ByEpoch {
                    context.faults.seams += self.seams(&changing);
                }
                let key = groups.key(number);
                self.partition(number as u32, changing, table.group(key), &mut found)
                    .map_err(|_| not_there(self.name, &self.keys, key))?;
            }
            self.put_out(&found, output)?;
            self.list(&found, context)?;
            context.metrics.state_reads += groups.len() as u64;
            context.metrics.state_writes += found.kept.len() as u64;
            for (number, place, amount) in &found.kept {
                let key = groups.key(*number as usize);
                context.tables.arranged(ROWS).update(key, place, *amount)?;
            }
            for (number, end, sign) in &found.ends {
                self.timers
                    .change(context.tables, groups.key(*number as usize), *end, *sign)?;
            }
        }
        self.forget(context)
    }
}

impl Running {
    /// How many rows come that lie before the watermark, and so may lie beside a session that is closed.
    fn seams(&self, changing: &Changing) -> u64 {
        let before = |(place, amount, mark): &&(Vec<u8>, i64, Option<i64>)| {
            let time = Place::of(place, 0, 0).time().saturating_sub(self.late.shift_us);
            *amount > 0 && mark.is_some_and(|mark| time < mark)
        };
        changing.events.iter().filter(before).count() as u64
    }
}

#[cfg(test)]
mod tests;
