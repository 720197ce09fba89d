//! Sources: the threads that pull rows from connectors and hand them to the driver.
//!
//! A stream with a connector has one thread. It polls, completes the rows, and sends them as an [`Ingest`] with the
//! position after them; the driver answers when the epoch is written, and that answer is the credit for the next
//! poll but one. An idle source waits for its connector's waker or for the time that the connector named: nothing is
//! polled for its own sake.

use super::command::{Command, Commands, End, Ingest, Intact};
use super::complete::Completion;
use crate::catalog::{Catalog, Relation, RelationId, RelationKind};
use crate::connector::{Budget, Position, Source, SourceRequest, SourceState, open_source};
use crate::delta::{Batch, Delta};
use crate::error::{Error, Kind, Result};
use crate::sql::bind::BindSettings;
use crate::state::Store;
use arrow::array::{ArrayRef, UInt32Array};
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The rows of one poll.
const POLL_ROWS_MAX: usize = 32_768;

/// The bytes of one poll.
const POLL_BYTES_MAX: usize = 16 << 20;

/// The polls that may be on their way to the driver.
const CREDITS: usize = 2;

/// How long a source waits after the store has failed once, and many times.
const RETRY_MS_MIN: u64 = 500;
const RETRY_MS_MAX: u64 = 30_000;

/// All sources that run.
#[derive(Clone)]
pub struct Sources {
    store: Store,
    commands: Commands,
    running: Arc<Mutex<HashMap<RelationId, Arc<Handle>>>>,
}

/// A source as others see it.
#[derive(Default)]
pub struct Handle {
    state: Mutex<HandleState>,
    wake: Condvar,
    report: Mutex<SourceReport>,
}

#[derive(Default)]
struct HandleState {
    stopped: bool,
    rung: bool,
}

/// Opens a source where its stream stands.
pub(super) type Open = Box<dyn FnMut(Option<&Position>) -> Result<Box<dyn Source>> + Send>;

/// How far a source is, for `headwater.sources`.
#[derive(Debug, Clone, Default)]
pub struct SourceReport {
    /// Where it stands.
    pub position: String,
    /// How much there is in all.
    pub total: Option<u64>,
    /// How much is not read yet.
    pub lag: Option<u64>,
    /// What these count.
    pub unit: &'static str,
    /// The rows delivered since it was opened.
    pub rows: u64,
    /// Rows per second since it was opened.
    pub rows_per_second: f64,
    /// Whether it waits for the driver.
    pub backpressured: bool,
    /// `running`, `idle`, `finished`, `retrying:` or `stopped:` and why.
    pub state: String,
}

impl Sources {
    /// No source yet.
    pub fn new(store: Store, commands: Commands) -> Self {
        Self {
            store,
            commands,
            running: Arc::default(),
        }
    }

    /// Starts the sources of new streams and stops those of dropped ones.
    pub fn follow(&self, catalog: &Arc<Catalog>) {
        let mut running = self.running.lock();
        running.retain(|id, handle| {
            let stays = catalog.relations.contains_key(id);
            if !stays {
                handle.stop();
            }
            stays
        });
        for relation in catalog.relations.values() {
            let RelationKind::Stream(stream) = &relation.kind else {
                continue;
            };
            if stream.connector.is_empty() || running.contains_key(&relation.id) {
                continue;
            }
            let opened = relation.clone();
            let open: Open = Box::new(move |position| open_connector(&opened, position));
            if let Err(error) = self.start(&mut running, relation, catalog, open) {
                tracing::error!(stream = relation.name, %error, "no thread could be started for a source");
            }
        }
    }

    /// Starts a source that somebody in this process gives a stream.
    pub(super) fn attach(&self, relation: &Arc<Relation>, catalog: &Arc<Catalog>, open: Open) -> Result<()> {
        let mut running = self.running.lock();
        if running.contains_key(&relation.id) {
            let text = format!("stream \"{}\" has a source already", relation.name);
            return Err(Error::semantic("55006", text));
        }
        self.start(&mut running, relation, catalog, open)
    }

    fn start(
        &self,
        running: &mut HashMap<RelationId, Arc<Handle>>,
        relation: &Arc<Relation>,
        catalog: &Arc<Catalog>,
        open: Open,
    ) -> Result<()> {
        let handle = Arc::new(Handle::default());
        running.insert(relation.id, handle.clone());
        let work = Work {
            relation: relation.clone(),
            catalog: catalog.clone(),
            store: self.store.clone(),
            commands: self.commands.clone(),
            handle,
        };
        std::thread::Builder::new()
            .name("source".to_owned())
            .spawn(move || work.run(open))
            .map_err(|error| Error::io(format!("no thread could be started: {error}")))?;
        Ok(())
    }

    /// Stops all sources.
    pub fn stop(&self) {
        self.running.lock().values().for_each(|handle| handle.stop());
    }

    /// How far each source is.
    pub fn reports(&self) -> Vec<(RelationId, SourceReport)> {
        let running = self.running.lock();
        let mut reports: Vec<_> = running
            .iter()
            .map(|(id, handle)| (*id, handle.report.lock().clone()))
            .collect();
        reports.sort_by_key(|(id, _)| *id);
        reports
    }
}

impl Handle {
    fn stop(&self) {
        self.state.lock().stopped = true;
        self.wake.notify_all();
    }

    fn ring(&self) {
        self.state.lock().rung = true;
        self.wake.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Waits until somebody rings, the source is stopped, or the time has come.
    fn sleep(&self, until: Option<Instant>) {
        let mut state = self.state.lock();
        while !state.stopped && !state.rung {
            match until {
                None => self.wake.wait(&mut state),
                Some(until) => {
                    if self.wake.wait_until(&mut state, until).timed_out() {
                        break;
                    }
                }
            }
        }
        state.rung = false;
    }
}

struct Work {
    relation: Arc<Relation>,
    catalog: Arc<Catalog>,
    store: Store,
    commands: Commands,
    handle: Arc<Handle>,
}

impl Work {
    /// Pulls until the source has ended. What the store could not take is read again, from the stored position.
    fn run(self, mut open: Open) {
        let mut pause_ms = RETRY_MS_MIN;
        while !self.handle.is_stopped() {
            let (stream, begun) = (&self.relation.name, Instant::now());
            match self.pull(&mut open) {
                Ok(()) => return,
                Err(error) if error.kind() == Kind::Io => {
                    if begun.elapsed() > Duration::from_millis(RETRY_MS_MAX) {
                        pause_ms = RETRY_MS_MIN;
                    }
                    tracing::warn!(stream, %error, retry_ms = pause_ms, "rows of a source could not be stored");
                    self.handle.report.lock().state = format!("retrying: {error}");
                    self.handle
                        .sleep(Some(Instant::now() + Duration::from_millis(pause_ms)));
                    pause_ms = (pause_ms * 2).min(RETRY_MS_MAX);
                }
                Err(error) => {
                    tracing::error!(stream, %error, "a source has stopped");
                    self.handle.report.lock().state = format!("stopped: {error}");
                    return;
                }
            }
        }
    }

    fn pull(&self, open: &mut Open) -> Result<()> {
        let position = super::record::read_position(&self.store, self.relation.id)?.map(Position);
        let mut source = open(position.as_ref())?;
        let handle = self.handle.clone();
        source.wake_by(Arc::new(move || handle.ring()));
        let settings = BindSettings {
            search_path: self.relation.search_path.clone(),
            ..BindSettings::default()
        };
        let given: Vec<usize> = (0..self.relation.columns.len())
            .filter(|index| self.relation.columns[*index].generated.is_none())
            .collect();
        let completion = Completion::new(&self.catalog, &settings, &self.relation, &given, 0)?;
        let started = Instant::now();
        let intact = Intact::default();
        let mut flying: VecDeque<oneshot::Receiver<Result<()>>> = VecDeque::new();
        let budget = Budget {
            rows_max: POLL_ROWS_MAX,
            bytes_max: POLL_BYTES_MAX,
        };
        while !self.handle.is_stopped() {
            let polled = source.poll(budget)?;
            let progress = source.progress();
            {
                let mut report = self.handle.report.lock();
                report.position.clone_from(&progress.position);
                report.total = progress.total;
                report.lag = progress.lag;
                report.unit = progress.unit;
                report.rows = progress.rows;
                report.rows_per_second = progress.rows as f64 / started.elapsed().as_secs_f64().max(1e-9);
                report.state = match polled.state {
                    SourceState::More => "running",
                    SourceState::Idle { .. } => "idle",
                    SourceState::Finished => "finished",
                }
                .to_owned();
            }
            let end = match polled.state {
                SourceState::Finished => End::Reached,
                SourceState::More | SourceState::Idle { .. } => End::Open,
            };
            let ingest = self.ingest(
                &completion,
                polled.delta,
                polled.errors,
                source.position(),
                (end, &intact),
            )?;
            if let Some(ingest) = ingest {
                let (reply, answer) = oneshot::channel();
                self.commands.send(Command::Ingest(ingest, reply))?;
                flying.push_back(answer);
            }
            while flying.len() >= CREDITS {
                self.wait(&mut flying)?;
            }
            match polled.state {
                SourceState::More => {}
                SourceState::Idle { retry_at } => self.handle.sleep(retry_at),
                SourceState::Finished => break,
            }
        }
        while !flying.is_empty() {
            self.wait(&mut flying)?;
        }
        Ok(())
    }

    fn wait(&self, flying: &mut VecDeque<oneshot::Receiver<Result<()>>>) -> Result<()> {
        let Some(answer) = flying.pop_front() else {
            return Ok(());
        };
        self.handle.report.lock().backpressured = true;
        let result = answer.blocking_recv();
        self.handle.report.lock().backpressured = false;
        match result {
            Ok(result) => result,
            // The driver is gone: the server stops.
            Err(_) => {
                self.handle.stop();
                Ok(())
            }
        }
    }

    /// Whole rows from what the connector gave; rows that cannot be join the undecodable ones.
    fn ingest(
        &self,
        completion: &Completion,
        delta: Delta,
        errors: Vec<crate::connector::DecodeError>,
        position: Position,
        (end, intact): (End, &Intact),
    ) -> Result<Option<Ingest>> {
        let mut errors: Vec<(String, String, String)> = errors
            .into_iter()
            .map(|error| (error.position, error.message, error.record))
            .collect();
        let mut whole = Delta::new();
        for batch in delta.batches {
            let columns: Vec<ArrayRef> = batch.rows.columns().to_vec();
            let (rows, failures) = completion.complete_all(&columns, batch.len())?;
            if failures.is_empty() {
                whole.push(Batch::inserts(rows));
                continue;
            }
            let bad: std::collections::HashSet<usize> = failures.iter().map(|(row, _)| *row).collect();
            errors.extend(failures.into_iter().map(|(row, error)| {
                let values: Vec<String> = columns
                    .iter()
                    .map(|column| arrow::util::display::array_value_to_string(column, row).unwrap_or_default())
                    .collect();
                ("row".to_owned(), error.message().to_owned(), values.join(","))
            }));
            let good = (0..rows.num_rows() as u32).filter(|row| !bad.contains(&(*row as usize)));
            whole.push(Batch::inserts(rows).take(&UInt32Array::from_iter_values(good))?);
        }
        if whole.is_empty() && errors.is_empty() && end == End::Open {
            return Ok(None);
        }
        Ok(Some(Ingest {
            relation: self.relation.id,
            delta: whole,
            position: position.0,
            errors,
            end,
            intact: intact.clone(),
        }))
    }
}

/// Opens the source that a stream's options name.
fn open_connector(relation: &Relation, position: Option<&Position>) -> Result<Box<dyn Source>> {
    let RelationKind::Stream(stream) = &relation.kind else {
        return Err(Error::internal(format!("\"{}\" is not a stream", relation.name)));
    };
    open_source(&SourceRequest {
        options: &stream.connector,
        columns: &relation.columns,
        position,
        projection: None,
    })
}

/// Opens a source once, to refuse wrong options when the stream is made.
pub fn check(options: &std::collections::BTreeMap<String, String>, columns: &[crate::catalog::Column]) -> Result<()> {
    open_source(&SourceRequest {
        options,
        columns,
        position: None,
        projection: None,
    })
    .map(drop)
}
