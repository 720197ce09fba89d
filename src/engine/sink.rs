//! Sinks: where a query's changes go.
//!
//! A sink runs like a view that nobody can read. Its change of an epoch goes into its [`Outbox`] in the epoch's own
//! atomic write. A thread per sink delivers from there, whole epochs in order, and stores the position after them in
//! the write that forgets them:
//!
//! ```text
//! epoch: state + outbox --one write--> store --read--> file, synced --> position + outbox forgotten, one write
//! ```
//!
//! A crash anywhere leaves either the epochs in the outbox and the old position, to which the file is cut back, or
//! neither the one nor the other. A disk that fails holds up its sink alone: the error is shown, delivery is tried
//! again after a while, and the outbox grows meanwhile. The `blackhole` takes the changes and forgets them: it has no
//! outbox and no thread.

use super::published::{Status, Stored};
use super::record;
use crate::catalog::{Catalog, Column, Relation, RelationId, RelationKind};
use crate::connector::{Position, SinkRequest, SinkWriter, open_sink};
use crate::dataflow::Changes;
use crate::delta::Delta;
use crate::error::{Error, Result};
use crate::state::outbox::Outbox;
use crate::state::{Commit, Durability, Store};
use crate::time::Epoch;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The bytes of changes after which what was written is synced, at the end of an epoch.
const DELIVERY_BYTES: u64 = 16 << 20;

/// The changed rows that a sink which gathers them does not wait for more with.
const GATHERED_ROWS_MAX: u64 = 1_000_000;

/// How long a sink waits after its first failure, and after many.
const RETRY_MS_MIN: u64 = 500;
const RETRY_MS_MAX: u64 = 30_000;

/// All sinks that deliver.
#[derive(Clone)]
pub struct Sinks {
    store: Store,
    running: Arc<Mutex<HashMap<RelationId, Arc<Handle>>>>,
}

/// How a sink fares, for `headwater.sinks`.
#[derive(Debug, Clone, Default)]
pub struct SinkReport {
    /// Where it stands.
    pub position: String,
    /// The changed rows delivered since the start.
    pub rows: u64,
    /// The changed rows that wait.
    pub outbox_rows: u64,
    /// The last epoch that was delivered since the start.
    pub epoch: Option<u64>,
    /// Why it cannot deliver, while it cannot.
    pub error: Option<String>,
}

/// A delivery as others see it.
#[derive(Default)]
struct Handle {
    state: Mutex<State>,
    wake: Condvar,
    report: Mutex<SinkReport>,
}

#[derive(Default)]
struct State {
    order: Order,
    /// The last epoch whose changes may be delivered.
    epoch: Epoch,
    /// The changed rows that wait.
    waiting: u64,
    /// Since when any of them waits.
    since: Option<Instant>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Run,
    Stop,
}

/// What a connector is there for.
fn is_delivered(options: &BTreeMap<String, String>) -> bool {
    options.get("connector").map(String::as_str) != Some("blackhole")
}

/// Whether the options say that there are rows only, and no changes.
pub fn is_append_only(options: &BTreeMap<String, String>) -> bool {
    let given = options.get("append_only").map(|text| text.to_ascii_lowercase());
    given.is_some_and(|text| matches!(text.as_str(), "true" | "on" | "yes" | "1" | "t"))
}

/// Whether a relation is a sink with something to deliver.
pub fn has_outbox(relation: &Relation) -> bool {
    matches!(&relation.kind, RelationKind::Sink(sink) if is_delivered(&sink.options))
}

/// Opens a sink once, to refuse wrong options when it is made.
pub fn check(catalog: &Catalog, options: &BTreeMap<String, String>, columns: &[Column]) -> Result<()> {
    if !is_delivered(options) {
        return Ok(());
    }
    for relation in catalog.relations.values() {
        let RelationKind::Sink(other) = &relation.kind else {
            continue;
        };
        if options.contains_key("path") && other.options.get("path") == options.get("path") {
            let text = format!("sink \"{}\" writes to that file already", relation.name);
            return Err(Error::external("58P02", text).with_hint("Give each sink a file of its own."));
        }
    }
    open_sink(&SinkRequest {
        options,
        columns,
        position: None,
    })
    .map(drop)
}

impl Sinks {
    /// No sink yet.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            running: Arc::default(),
        }
    }

    /// Starts the delivery of sinks that have come to life, and ends that of dropped ones. Whatever is in
    /// the outboxes is of `epoch` or before it.
    pub fn follow(&self, epoch: Epoch, catalog: &Catalog, relations: &HashMap<RelationId, Arc<Stored>>) {
        let mut running = self.running.lock();
        let live = |id: &RelationId| {
            // One that has stopped still delivers what came before.
            let stored = relations
                .get(id)
                .filter(|stored| stored.record.status != Status::Building)?;
            let outbox = stored.outbox.clone()?;
            Some((catalog.relations.get(id)?.clone(), outbox))
        };
        running.retain(|id, handle| {
            let stays = live(id).is_some();
            if !stays {
                handle.stop();
            }
            stays
        });
        for id in relations
            .keys()
            .filter(|id| !running.contains_key(id))
            .collect::<Vec<_>>()
        {
            let Some((relation, outbox)) = live(id) else {
                continue;
            };
            let handle = Arc::new(Handle::default());
            handle.state.lock().epoch = epoch;
            running.insert(*id, handle.clone());
            let delivery = Delivery {
                relation,
                outbox,
                store: self.store.clone(),
                handle,
                writer: None,
            };
            let name = delivery.relation.name.clone();
            let started = std::thread::Builder::new()
                .name("sink".to_owned())
                .spawn(move || delivery.run());
            if let Err(error) = started {
                tracing::error!(sink = name, %error, "no thread could be started for a sink");
            }
        }
    }

    /// Tells the sinks of an epoch that was written.
    pub fn ring(&self, epoch: Epoch, changes: &Changes) {
        for (id, handle) in self.running.lock().iter() {
            if let Some(delta) = changes.get(id).filter(|delta| !delta.is_empty()) {
                handle.ring(epoch, delta.len() as u64);
            }
        }
    }

    /// Ends all deliveries; what waits is delivered after the next start.
    pub fn stop(&self) {
        self.running.lock().values().for_each(|handle| handle.stop());
    }

    /// How a sink fares; `None` while it delivers nothing.
    pub fn report(&self, id: RelationId) -> Option<SinkReport> {
        let handle = self.running.lock().get(&id).cloned()?;
        let outbox_rows = handle.state.lock().waiting;
        let report = handle.report.lock().clone();
        Some(SinkReport { outbox_rows, ..report })
    }
}

impl Handle {
    fn stop(&self) {
        self.state.lock().order = Order::Stop;
        self.wake.notify_all();
    }

    fn ring(&self, epoch: Epoch, rows: u64) {
        let mut state = self.state.lock();
        state.epoch = epoch;
        state.waiting += rows;
        state.since.get_or_insert_with(Instant::now);
        self.wake.notify_all();
    }

    /// Waits until there are changes to deliver, for `gather` at least; the last epoch, or `None` to end.
    fn next(&self, gather: Duration) -> Option<Epoch> {
        let mut state = self.state.lock();
        loop {
            if state.order == Order::Stop {
                return None;
            }
            let Some(due) = state.since.map(|since| since + gather) else {
                self.wake.wait(&mut state);
                continue;
            };
            if gather.is_zero() || state.waiting >= GATHERED_ROWS_MAX || Instant::now() >= due {
                return Some(state.epoch);
            }
            self.wake.wait_until(&mut state, due);
        }
    }

    /// Waits before the next attempt, or until it is told to stop.
    fn pause(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut state = self.state.lock();
        while state.order == Order::Run && !self.wake.wait_until(&mut state, until).timed_out() {}
    }
}

/// The thread of a sink.
struct Delivery {
    relation: Arc<Relation>,
    outbox: Outbox,
    store: Store,
    handle: Arc<Handle>,
    writer: Option<Box<dyn SinkWriter>>,
}

impl Delivery {
    fn run(mut self) {
        let mut pause = RETRY_MS_MIN;
        let mut counted = false;
        while self.handle.state.lock().order == Order::Run {
            let result = if counted { Ok(()) } else { self.count() };
            counted = counted || result.is_ok();
            match result.and_then(|()| self.turn()) {
                Ok(()) => {
                    pause = RETRY_MS_MIN;
                    self.handle.report.lock().error = None;
                }
                Err(error) => {
                    self.writer = None;
                    tracing::warn!(sink = self.relation.name, %error, retry_ms = pause, "a sink cannot deliver");
                    self.handle.report.lock().error = Some(error.to_string());
                    self.handle.pause(Duration::from_millis(pause));
                    pause = (pause * 2).min(RETRY_MS_MAX);
                }
            }
        }
    }

    /// Counts what an earlier process, or the filling of the sink, has left in the outbox.
    fn count(&self) -> Result<()> {
        let first = self.handle.state.lock().epoch;
        // Later epochs than the first are counted as they come.
        let waiting = self.outbox.waiting(&self.store, first)?;
        if waiting.rows > 0 {
            let mut state = self.handle.state.lock();
            state.waiting += waiting.rows;
            state.since.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    /// Opens the sink if it is not open, waits for changes and delivers them.
    fn turn(&mut self) -> Result<()> {
        let gather = self.writer()?.gathers();
        let Some(last) = self.handle.next(gather) else {
            return Ok(());
        };
        // What is in the file has happened, whatever becomes of the power.
        self.store.sync()?;
        let (outbox, store) = (self.outbox.clone(), self.store.clone());
        let writer = self.writer()?;
        let given = outbox.read(&store, last, DELIVERY_BYTES, |portion| {
            writer.write(portion.epoch.0, &portion.delta)
        })?;
        let Some((epoch, taken)) = given else {
            let mut state = self.handle.state.lock();
            if state.epoch == last {
                (state.waiting, state.since) = (0, None);
            }
            return Ok(());
        };
        let position = writer.flush()?;
        let mut commit = Commit::new();
        self.outbox.forget(epoch, &mut commit);
        self.keep(&position, commit)?;
        let mut state = self.handle.state.lock();
        state.waiting = state.waiting.saturating_sub(taken.rows);
        state.since = (state.waiting > 0).then(Instant::now);
        drop(state);
        let mut report = self.handle.report.lock();
        report.rows += taken.rows;
        report.epoch = Some(epoch.0);
        Ok(())
    }

    /// The open sink. A new one's position is stored before anything is written.
    fn writer(&mut self) -> Result<&mut Box<dyn SinkWriter>> {
        if self.writer.is_none() {
            let RelationKind::Sink(sink) = &self.relation.kind else {
                return Err(Error::internal("a relation that is no sink delivers"));
            };
            let position = record::read_position(&self.store, self.relation.id)?.map(Position);
            let mut writer = open_sink(&SinkRequest {
                options: &sink.options,
                columns: &self.relation.columns,
                position: position.as_ref(),
            })?;
            if position.is_none() {
                self.keep(&writer.position(), Commit::new())?;
                let begun = writer.flush()?;
                self.keep(&begun, Commit::new())?;
            }
            self.handle.report.lock().position = writer.progress().position;
            self.writer = Some(writer);
        }
        self.writer
            .as_mut()
            .ok_or_else(|| Error::internal("a sink that was just opened is not there"))
    }

    /// Stores a position, and what goes with it, unless the sink is no more.
    fn keep(&self, position: &Position, mut commit: Commit) -> Result<()> {
        let state = self.handle.state.lock();
        if state.order == Order::Run {
            record::write_position(&mut commit, self.relation.id, &position.0);
            self.store.commit(commit, Durability::Buffered)?;
        }
        if let Some(writer) = &self.writer {
            self.handle.report.lock().position = writer.progress().position;
        }
        Ok(())
    }
}

/// A change with the rows that go before those that come.
pub(super) fn deletes_first(delta: Delta) -> Result<Delta> {
    if delta.is_inserts() {
        return Ok(delta);
    }
    super::subscribe::ordered(&delta).map(Delta::from)
}
