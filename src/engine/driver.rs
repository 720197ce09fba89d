//! The driver: one thread that turns what has arrived into epochs.
//!
//! It stays a loop of five calls: *receive* what has arrived (waiting for it), *apply* writes to the base relations,
//! *step* the views, *commit* everything in one atomic write, *publish* it and answer. An epoch takes whatever has
//! arrived meanwhile, one row or a million, so concurrent writers share one sync. Control (definitions, subscriptions)
//! happens between epochs.

use super::base::{Base, Pending};
use super::build::{Build, BuildContext};
use super::command::{
    Command, Define, End, FlowReport, Ingest, Inspection, Intact, Reply, Subscribed, ViewPlan, Write,
};
use super::feed::{Feeds, Subscription};
use super::published::{Published, Status, Stored};
use super::record;
use super::sink::Sinks;
use super::view::ViewFlow;
use super::watermark::{StreamTime, Times, standing, watermark};
use crate::catalog::{Catalog, RelationId};
use crate::config::Config;
use crate::dataflow::{Advances, Changes, FlowOptions};
use crate::delta::Delta;
use crate::error::{Error, Result};
use crate::operator::{Advance, First, StepTime};
use crate::state::{Commit, Durability, Store};
use crate::time::{Clock, Epoch, Timestamp};
use arc_swap::ArcSwap;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long written epochs may wait for a sync when nobody waits for them.
const SYNC_INTERVAL_MS: u64 = 1000;

/// How often the watermark of a stream without rows moves on with the clock while a view waits for it.
const IDLE_TICK_US: i64 = 1_000_000;

/// The commands that one epoch takes at most.
const COMMANDS_PER_EPOCH_MAX: usize = 4096;

/// The epoch maker.
pub struct Driver {
    pub(super) store: Store,
    pub(super) config: Arc<Config>,
    pub(super) clock: Clock,
    pub(super) epoch: Epoch,
    pub(super) next_table: u32,
    pub(super) catalog: Arc<Catalog>,
    pub(super) relations: Arc<HashMap<RelationId, Arc<Stored>>>,
    pub(super) views: BTreeMap<RelationId, ViewFlow>,
    pub(super) builds: HashMap<RelationId, Build>,
    /// Builds that begin when the views that they read are live, and who waits for them.
    pub(super) queued: Vec<(ViewPlan, Option<Arc<super::install::Waiting>>)>,
    pub(super) published: Arc<ArcSwap<Published>>,
    pub(super) commands: super::command::Commands,
    pub(super) feeds: Feeds,
    pub(super) sinks: Sinks,
    pub(super) times: Times,
    inbox: Receiver<Command>,
    unsynced_since: Option<Instant>,
    stopping: Option<Reply<()>>,
}

/// A source that waits for its rows to be in an epoch.
struct Credit {
    reply: Reply<()>,
    intact: Intact,
}

impl Credit {
    fn answer(self, result: Result<()>) {
        if result.is_err() {
            self.intact.breaks();
        }
        let _ = self.reply.send(result);
    }
}

/// What an epoch has changed, for those who are told once it is written.
pub(super) struct Stepped {
    pub(super) changes: Changes,
    advances: Advances,
}

/// An epoch in the making.
#[derive(Default)]
pub(super) struct Making {
    pub(super) pending: Pending,
    pub(super) commit: Commit,
    answers: Vec<Reply<Arc<Published>>>,
    credits: Vec<Credit>,
    /// How far the epoch moves the event time of streams.
    pub(super) times: HashMap<RelationId, StreamTime>,
    /// The epoch's clock, once somebody has asked for it.
    clock: Option<Timestamp>,
    /// Whether somebody waits for the epoch to be on the disk.
    synced: bool,
    /// Whether anything happened.
    touched: bool,
}

impl Driver {
    /// A driver over an opened store; [`Self::run`] makes it go.
    pub fn new(
        store: Store,
        config: Arc<Config>,
        clock: Clock,
        published: Arc<ArcSwap<Published>>,
        opened: record::Opened,
        (commands, inbox): (super::command::Commands, Receiver<Command>),
        sinks: Sinks,
    ) -> Self {
        let current = published.load_full();
        Self {
            store,
            config,
            clock,
            epoch: opened.epoch,
            next_table: opened.next_table,
            catalog: current.catalog.clone(),
            relations: current.relations.clone(),
            views: BTreeMap::new(),
            builds: HashMap::new(),
            queued: Vec::new(),
            published,
            commands,
            feeds: Feeds::new(opened.epoch),
            sinks,
            times: current.times.as_ref().clone(),
            inbox,
            unsynced_since: None,
            stopping: None,
        }
    }

    /// Makes epochs until it is told to stop.
    pub fn run(mut self) {
        while self.stopping.is_none() {
            let batch = self.receive();
            if let Err(error) = self.turn(batch) {
                tracing::error!(%error, detail = error.detail(), "an epoch could not be made");
            }
        }
        for build in self.builds.values() {
            build.cancel();
        }
        let synced = self.store.sync();
        if let Some(reply) = self.stopping.take() {
            let _ = reply.send(synced);
        }
    }

    /// Waits for something to do and takes what has arrived.
    fn receive(&mut self) -> Vec<Command> {
        let first = match self.wait() {
            None => self.inbox.recv().ok(),
            Some(wait) => match self.inbox.recv_timeout(wait) {
                Ok(command) => Some(command),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => None,
            },
        };
        let mut batch: Vec<Command> = first.into_iter().collect();
        if !batch.is_empty() {
            let more = COMMANDS_PER_EPOCH_MAX - 1;
            batch.extend(self.inbox.try_iter().take(more));
        }
        batch
    }

    /// How long to wait at most: until the next sync or the next time an operator wants.
    fn wait(&self) -> Option<Duration> {
        let sync = self
            .unsynced_since
            .map(|since| Duration::from_millis(SYNC_INTERVAL_MS).saturating_sub(since.elapsed()));
        let now = self.clock.now();
        let due = self
            .views
            .values()
            .filter_map(ViewFlow::due)
            .min()
            .map(|Timestamp(due)| Duration::from_micros(u64::try_from(due.saturating_sub(now.0)).unwrap_or(0)));
        let idle = self
            .next_idle()
            .map(|Timestamp(at)| Duration::from_micros(u64::try_from(at - now.0).unwrap_or(0)));
        sync.into_iter().chain(due).chain(idle).min()
    }

    /// One turn of the loop: the commands in their order, cut into epochs by those that need to stand between two.
    fn turn(&mut self, batch: Vec<Command>) -> Result<()> {
        let mut making = Making::default();
        let mut bytes = 0;
        for command in batch {
            match command {
                Command::Write(write, reply) => {
                    bytes += write.changes.iter().map(|(_, delta)| delta.bytes()).sum::<usize>();
                    self.write(&mut making, write, reply);
                }
                Command::Ingest(ingest, reply) => {
                    bytes += ingest.delta.bytes();
                    self.ingest(&mut making, ingest, reply);
                }
                Command::Flush(reply) => {
                    making.synced = true;
                    making.answers.push(reply);
                }
                control => {
                    self.make(std::mem::take(&mut making));
                    bytes = 0;
                    self.control(control);
                }
            }
            if bytes > self.config.epoch_bytes_max() {
                self.make(std::mem::take(&mut making));
                bytes = 0;
            }
        }
        self.make(making);
        let overdue = self
            .unsynced_since
            .is_some_and(|since| since.elapsed() >= Duration::from_millis(SYNC_INTERVAL_MS));
        if overdue {
            self.store.sync()?;
            self.unsynced_since = None;
        }
        Ok(())
    }

    fn control(&mut self, command: Command) {
        match command {
            Command::Define(define, reply) => self.define(*define, reply),
            Command::Built(relation, result) => self.built(relation, *result),
            Command::CancelBuild(relation) => self.cancel_build(relation),
            Command::Subscribe(subscription, reply) => self.subscribe(subscription, reply),
            Command::DropTemporary(relation) => self.take_back(relation),
            Command::Inspect(reply) => {
                let _ = reply.send(Ok(self.inspect()));
            }
            Command::Stop(reply) => self.stopping = Some(reply),
            Command::Write(..) | Command::Ingest(..) | Command::Flush(_) => {}
        }
    }

    /// The next epoch and its clock. The clock never goes back, whatever the machine's does.
    pub(super) fn next_time(&self) -> StepTime {
        StepTime {
            epoch: self.epoch.next(),
            clock: self.clock.now().max(self.published.load().clock),
            first: First::No,
        }
    }

    /// The next epoch at the clock of the last one: for what steps no view, since what views show is as of a clock.
    pub(super) fn standing_time(&self) -> StepTime {
        StepTime {
            epoch: self.epoch.next(),
            clock: self.published.load().clock,
            first: First::No,
        }
    }

    /// Applies one client's write to the epoch in the making, or answers why not.
    fn write(&self, making: &mut Making, write: Write, reply: Reply<Arc<Published>>) {
        match self.apply(making, write) {
            Ok(()) => {
                making.synced = true;
                making.answers.push(reply);
            }
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    /// Checks all changes of a write, then applies them all.
    pub(super) fn apply(&self, making: &mut Making, mut write: Write) -> Result<()> {
        let changes = std::mem::take(&mut write.changes);
        let epoch = self.epoch.next();
        let base = |id: &RelationId| {
            let missing = || Error::conflict("a relation of this transaction was dropped meanwhile");
            let relation = self.catalog.relations.get(id).ok_or_else(missing)?;
            let stored = self.relations.get(id).ok_or_else(missing)?;
            Ok::<_, Error>(Base {
                store: &self.store,
                epoch,
                relation,
                stored,
            })
        };
        let mut checked = Vec::with_capacity(changes.len());
        for (id, delta) in &changes {
            checked.push(making.pending.check(&base(id)?, delta, &write)?);
        }
        for ((id, delta), checked) in changes.into_iter().zip(checked) {
            if !delta.is_empty() {
                let delta = self.mark(making, id, delta)?;
                making.pending.apply(&base(&id)?, delta, checked, &mut making.commit)?;
                making.touched = true;
            }
        }
        Ok(())
    }

    /// Gives a stream's rows the watermark just before each, and moves it.
    fn mark(&self, making: &mut Making, id: RelationId, delta: Delta) -> Result<Delta> {
        let marker = self.relations.get(&id).and_then(|stored| stored.marker.as_ref());
        let Some(marker) = marker else {
            return Ok(delta);
        };
        let clock = *making.clock.get_or_insert_with(|| self.next_time().clock);
        let mut time = making.time(&self.times, id);
        let marked = marker.mark(&delta, clock, &mut time)?;
        making.times.insert(id, time);
        Ok(marked)
    }

    /// Takes a source's rows into the epoch in the making.
    fn ingest(&self, making: &mut Making, ingest: Ingest, reply: Reply<()>) {
        let Ingest {
            relation,
            delta,
            position,
            errors,
            end,
            intact,
        } = ingest;
        let credit = Credit { reply, intact };
        if !credit.intact.is_whole() {
            return credit.answer(Err(Error::io("rows of the source that came before were not taken")));
        }
        let write = Write {
            changes: vec![(relation, delta)],
            ..Write::default()
        };
        match self
            .apply(making, write)
            .and_then(|()| self.decode_errors(making, relation, &errors))
        {
            Ok(()) => {
                record::write_position(&mut making.commit, relation, &position);
                if end == End::Reached {
                    self.close(making, relation);
                }
                making.touched = true;
                making.credits.push(credit);
            }
            Err(error) => credit.answer(Err(error)),
        }
    }

    fn decode_errors(
        &self,
        making: &mut Making,
        relation: RelationId,
        errors: &[(String, String, String)],
    ) -> Result<()> {
        let faults = self.relations.get(&relation).and_then(|stored| stored.faults.as_ref());
        if let (Some(faults), false) = (faults, errors.is_empty()) {
            let rows = errors
                .iter()
                .map(|(position, message, record)| (format!("{position}: {message}"), record.clone(), 1));
            faults.write_bag(&super::view::faults_delta(rows)?, &mut making.commit)?;
        }
        Ok(())
    }

    /// Steps the views, commits, publishes, answers.
    fn make(&mut self, mut making: Making) {
        let time = self.time_of(&making);
        self.pass_idle_time(time.clock, &mut making);
        let due = self
            .views
            .values()
            .any(|view| view.due().is_some_and(|due| due <= time.clock));
        if !making.touched && !due {
            self.answer_nothing(making);
            return;
        }
        let started = Instant::now();
        let stepped = self.step(time, &mut making);
        match self.commit_made(time, &mut making) {
            Ok(published) => {
                let touched = stepped.changes.len();
                self.tell(time, stepped);
                for reply in making.answers {
                    let _ = reply.send(Ok(published.clone()));
                }
                making.credits.into_iter().for_each(|credit| credit.answer(Ok(())));
                tracing::debug!(epoch = time.epoch.0, relations = touched, elapsed = ?started.elapsed(), "epoch");
                self.keep_memory();
            }
            Err(error) => {
                tracing::error!(%error, "an epoch could not be written; its changes are refused");
                for reply in making.answers {
                    let _ = reply.send(Err(error.clone()));
                }
                for credit in making.credits {
                    credit.answer(Err(error.clone()));
                }
                self.reload();
            }
        }
    }

    /// Tells builds, sinks and subscribers of an epoch that was written.
    pub(super) fn tell(&mut self, time: StepTime, stepped: Stepped) {
        let Stepped { changes, advances } = stepped;
        for build in self.builds.values() {
            build.feed(time, &changes, &advances);
        }
        self.sinks.ring(time.epoch, &changes);
        self.feeds.tell(time.epoch, changes, &self.relations);
    }

    fn answer_nothing(&mut self, making: Making) {
        if !making.answers.is_empty() && self.unsynced_since.is_some() {
            match self.store.sync() {
                Ok(()) => self.unsynced_since = None,
                Err(error) => tracing::error!(%error, "the log could not be synced"),
            }
        }
        let published = self.published.load_full();
        for reply in making.answers {
            let _ = reply.send(Ok(published.clone()));
        }
        making.credits.into_iter().for_each(|credit| credit.answer(Ok(())));
    }

    /// Takes the epoch's changes through all views, in the order of their ids: a view only reads older relations.
    pub(super) fn step(&mut self, time: StepTime, making: &mut Making) -> Stepped {
        let mut changes = std::mem::take(&mut making.pending.changes);
        let mut advances = self.advances(&making.times);
        let mut stopped = Vec::new();
        for (id, view) in &mut self.views {
            let advance = view.advance(&advances);
            advances.insert(*id, advance);
            let wants = view.wants(&changes, &advances, time.clock);
            let stepped = if wants {
                view.step(time, &changes, &advances, &mut making.commit)
            } else {
                Ok(crate::delta::Delta::new())
            };
            self.times.views.insert(*id, view.time(advance));
            match stepped {
                Ok(delta) if delta.is_empty() => {}
                Ok(delta) => {
                    changes.insert(*id, delta);
                }
                Err(error) => stopped.push((*id, error)),
            }
        }
        for (id, error) in stopped {
            self.stop_view(id, &error, &mut making.commit);
        }
        Stepped { changes, advances }
    }

    /// The time of the epoch in the making.
    pub(super) fn time_of(&self, making: &Making) -> StepTime {
        let time = self.next_time();
        StepTime {
            clock: making.clock.unwrap_or(time.clock),
            ..time
        }
    }

    /// How far event time is in streams and views between two epochs.
    pub(super) fn standing(&self) -> Advances {
        let mut advances = standing(&self.times.streams);
        for (id, time) in &self.times.views {
            let mark = watermark(time.watermark);
            let advance = Advance {
                before: mark,
                after: mark,
                latest: None,
            };
            advances.insert(*id, advance);
        }
        advances
    }

    /// How far an epoch moves event time in streams, and where it stands in the views.
    fn advances(&self, moved: &HashMap<RelationId, StreamTime>) -> Advances {
        let mut advances = standing(&self.times.streams);
        for (id, time) in moved {
            let before = self.times.streams.get(id).and_then(|known| watermark(known.watermark));
            let after = watermark(time.watermark);
            let latest = time.highest.map(Timestamp);
            advances.insert(*id, Advance { before, after, latest });
        }
        advances
    }

    /// Writes and publishes an epoch with the watermarks that it moves.
    pub(super) fn commit_made(&mut self, time: StepTime, making: &mut Making) -> Result<Arc<Published>> {
        let mut commit = std::mem::take(&mut making.commit);
        for (id, moved) in &making.times {
            record::write_time(&mut commit, *id, moved)?;
        }
        let before = self.times.streams.clone();
        self.times.streams.extend(making.times.drain());
        let committed = self.commit(time, commit, making.synced);
        if committed.is_err() {
            self.times.streams = before;
        }
        committed
    }

    /// A stream's source has come to its end: every window over it is closed.
    fn close(&self, making: &mut Making, id: RelationId) {
        if self.relations.get(&id).is_some_and(|stored| stored.marker.is_some()) {
            let time = making.time(&self.times, id);
            let closed = StreamTime {
                watermark: Some(i64::MAX),
                finished: true,
                ..time
            };
            making.times.insert(id, closed);
        }
    }

    /// Moves the watermarks of streams without rows on with the clock.
    fn pass_idle_time(&self, clock: Timestamp, making: &mut Making) {
        for (id, stored) in self.relations.iter() {
            let Some(marker) = &stored.marker else {
                continue;
            };
            if making.times.contains_key(id) {
                continue;
            }
            let known = self.times.streams.get(id).copied().unwrap_or_default();
            if marker.idle_at(&known).is_none_or(|at| clock.0 < at) {
                continue;
            }
            let moved = marker.pass_idle_time(&known, clock).unwrap_or(known);
            let time = StreamTime {
                watermark: moved.watermark.max(self.awaited(*id, clock, making)),
                ..moved
            };
            if time != known {
                making.times.insert(*id, time);
                making.touched = true;
            }
        }
    }

    /// How far the streams with rows are that share a view with a stream without: it must not hold them back.
    fn awaited(&self, id: RelationId, clock: Timestamp, making: &Making) -> Option<i64> {
        let mut partners: Vec<RelationId> = Vec::new();
        for view in self.views.keys() {
            let streams = self.catalog.streams_below(*view);
            if streams.contains(&id) {
                partners.extend(streams.iter().filter(|other| **other != id));
            }
        }
        let active = partners.into_iter().filter_map(|other| {
            let marker = self.relations.get(&other)?.marker.as_ref()?;
            let time = making.time(&self.times, other);
            let idle = marker.idle_at(&time).is_some_and(|at| clock.0 >= at);
            (!idle && !time.finished).then_some(time.watermark)
        });
        active.min().flatten()
    }

    /// When a stream without rows next moves its watermark, if a view waits for that.
    fn next_idle(&self) -> Option<Timestamp> {
        let awaited = |id: &RelationId| self.views.values().any(|view| view.waits_for(*id));
        let streams = self.relations.iter().filter_map(|(id, stored)| {
            let marker = stored.marker.as_ref()?;
            let time = self.times.streams.get(id)?;
            let at = marker.idle_at(time)?;
            let at = time.idle_since.map_or(at, |since| since.saturating_add(IDLE_TICK_US));
            Some((id, at))
        });
        streams.filter(|(id, _)| awaited(id)).map(|(_, at)| Timestamp(at)).min()
    }

    /// Writes the epoch and publishes it.
    pub(super) fn commit(&mut self, time: StepTime, mut commit: Commit, synced: bool) -> Result<Arc<Published>> {
        record::write_progress(&mut commit, time.epoch, self.next_table, time.clock)?;
        let durability = if synced {
            Durability::Synced
        } else {
            Durability::Buffered
        };
        self.store.commit(commit, durability)?;
        self.epoch = time.epoch;
        self.unsynced_since = match durability {
            Durability::Synced => None,
            Durability::Buffered => self.unsynced_since.or_else(|| Some(Instant::now())),
        };
        Ok(self.publish(time))
    }

    pub(super) fn publish(&mut self, time: StepTime) -> Arc<Published> {
        let published = Arc::new(Published {
            epoch: time.epoch,
            clock: time.clock,
            snapshot: self.store.snapshot(),
            catalog: self.catalog.clone(),
            relations: self.relations.clone(),
            times: Arc::new(self.times.clone()),
        });
        self.published.store(published.clone());
        published
    }

    fn subscribe(&mut self, subscription: Subscription, reply: Reply<Subscribed>) {
        if !self.relations.contains_key(&subscription.relation) {
            let _ = reply.send(Err(Error::semantic("42P01", "the relation was dropped meanwhile")));
            return;
        }
        let past = self.feeds.subscribe(subscription, self.epoch);
        let published = self.published.load_full();
        let _ = reply.send(past.map(|past| Subscribed { published, past }));
    }

    /// Stops a view and all that read it. The others run on.
    pub(super) fn stop_view(&mut self, id: RelationId, error: &Error, commit: &mut Commit) {
        let Some(relation) = self.catalog.relations.get(&id).cloned() else {
            return;
        };
        let reason = match error.detail() {
            Some(detail) => format!("{error} ({detail})"),
            None => error.to_string(),
        };
        tracing::error!(view = relation.name, reason, "a view has stopped");
        self.views.remove(&id);
        let mut relations = self.relations.as_ref().clone();
        if let Some(stored) = relations.get(&id) {
            let mut stopped = stored.as_ref().clone();
            stopped.record.status = Status::Stopped(reason);
            if let Err(error) = record::write_relation(commit, &relation, &stopped.record) {
                tracing::error!(%error, "a view's record could not be written");
            }
            relations.insert(id, Arc::new(stopped));
        }
        self.relations = Arc::new(relations);
        let above = Error::semantic(
            "55000",
            format!("{} \"{}\" has stopped", relation.noun(), relation.name),
        );
        for user in self.catalog.users_of(id) {
            if self.views.contains_key(&user.id) {
                self.stop_view(user.id, &above, commit);
            }
        }
    }

    /// How flows run.
    pub(super) fn flow_options(&self) -> FlowOptions {
        FlowOptions {
            workers: self.config.workers,
            output_bytes_max: self.config.epoch_bytes_max().saturating_mul(4),
        }
    }

    /// What a build needs to know of the driver.
    pub(super) fn build_context(&self) -> BuildContext {
        BuildContext {
            store: self.store.clone(),
            commands: self.commands.clone(),
            published: self.published.load_full(),
            options: self.flow_options(),
        }
    }

    /// Forgets cold state when the flows hold more than their share of memory.
    fn keep_memory(&mut self) {
        let limit = self.config.memory_limit_bytes / 2;
        let total: usize = self.views.values().map(ViewFlow::resident_bytes).sum();
        if total <= limit {
            return;
        }
        tracing::debug!(total, limit, "state in memory is over its share; forgetting cold keys");
        let mut by_size: Vec<_> = self.views.values_mut().collect();
        by_size.sort_by_key(|view| std::cmp::Reverse(view.resident_bytes()));
        let mut left = total;
        for view in by_size {
            if left <= limit / 2 {
                break;
            }
            let before = view.resident_bytes();
            view.shrink();
            left = left + view.resident_bytes() - before;
        }
    }

    /// After a failed write, what is in memory is ahead of the store: read the views' state back from it.
    pub(super) fn reload(&mut self) {
        self.views.clear();
        self.open_views();
    }

    fn inspect(&self) -> Inspection {
        let flows = self.views.iter().map(|(id, view)| FlowReport {
            relation: *id,
            nodes: view.status(),
        });
        Inspection {
            flows: flows.collect(),
            subscriptions: self.feeds.reports(),
        }
    }

    /// Answers a definition that cannot be carried out.
    pub(super) fn refuse(&self, define: &Define, reply: Reply<Arc<Published>>) -> Option<Reply<Arc<Published>>> {
        if define.base_version == self.catalog.version {
            return Some(reply);
        }
        let _ = reply.send(Err(Error::conflict("the definitions have changed meanwhile")));
        None
    }
}

impl Making {
    /// How far a stream's event time is, with what the epoch has done so far.
    fn time(&self, known: &Times, id: RelationId) -> StreamTime {
        let before = || known.streams.get(&id).copied().unwrap_or_default();
        self.times.get(&id).copied().unwrap_or_else(before)
    }

    /// Marks that something happened that must be written.
    pub(super) fn touch(&mut self) {
        self.touched = true;
        self.synced = true;
    }
}
