//! Definitions: how what exists changes, between two epochs.
//!
//! A definition comes as the whole new catalog, made from a version that must still be the current one. The driver
//! gives new relations their tables, takes dropped ones away with all their bytes, starts the flows of new views, and
//! makes all of it true in one epoch.

use super::build::Build;
use super::command::{Answer, Define, Reply, ViewPlan};
use super::driver::{Driver, Making};
use super::published::{Published, Record, Status, Stored};
use super::record;
use super::view::{Moves, ViewFlow};
use super::watermark::LateCount;
use crate::catalog::{Catalog, Relation, RelationId, RelationKind};
use crate::dataflow::{Changes, Flow};
use crate::error::{Error, Result};
use crate::operator::{First, StepTime};
use crate::plan::Node;
use crate::state::{Commit, Origin, SYSTEM_TABLE, Store, TableId};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

impl Driver {
    /// Carries out a definition.
    pub(super) fn define(&mut self, define: Define, reply: Reply<Arc<Published>>) {
        let Some(reply) = self.refuse(&define, reply) else {
            return;
        };
        if let Err((error, Some(reply))) = self.try_define(define, reply) {
            let _ = reply.send(Err(error));
        }
    }

    #[expect(clippy::type_complexity, reason = "the reply goes back with the error")]
    fn try_define(
        &mut self,
        define: Define,
        reply: Reply<Arc<Published>>,
    ) -> Result<(), (Error, Option<Reply<Arc<Published>>>)> {
        let Define {
            catalog,
            plans,
            write,
            answer,
            ..
        } = define;
        let before = (self.catalog.clone(), self.relations.clone());
        let mut making = Making::default();
        making.touch();
        let done = self
            .change(&mut making, catalog, &plans)
            .and_then(|()| self.apply(&mut making, write));
        if let Err(error) = done {
            (self.catalog, self.relations) = before;
            return Err((error, Some(reply)));
        }
        let time = self.time_of(&making);
        let stepped = self.step(time, &mut making);
        let published = match self.commit_made(time, &mut making) {
            Ok(published) => published,
            Err(error) => {
                (self.catalog, self.relations) = before;
                self.reload();
                return Err((error, Some(reply)));
            }
        };
        self.tell(time, stepped);
        self.drop_flows();
        if answer != Answer::WhenBuilt || plans.is_empty() {
            let _ = reply.send(Ok(published));
            plans.into_iter().for_each(|plan| self.start_build(plan, None));
            return Ok(());
        }
        let waiting = Waiting::new(reply, plans.len());
        for plan in plans {
            self.start_build(plan, Some(waiting.clone()));
        }
        Ok(())
    }

    /// Makes the new catalog the current one, in the commit.
    fn change(&mut self, making: &mut Making, catalog: Catalog, plans: &[ViewPlan]) -> Result<()> {
        let mut relations = self.relations.as_ref().clone();
        for (id, relation) in &self.catalog.relations {
            if !catalog.relations.contains_key(id) {
                if let Some(stored) = relations.remove(id) {
                    delete_tables(&stored.record.all_tables(), &mut making.commit);
                }
                record::delete_relation(&mut making.commit, *id);
                tracing::debug!(relation = relation.name, "dropped");
            }
        }
        for (id, relation) in &catalog.relations {
            match self.catalog.relations.get(id) {
                Some(known) if known == relation => {}
                Some(_) => {
                    let record = relations
                        .get(id)
                        .map(|stored| stored.record.clone())
                        .unwrap_or_default();
                    record::write_relation(&mut making.commit, relation, &record)?;
                    relations.insert(*id, Arc::new(Stored::open(relation, record)?));
                }
                None => {
                    let record = self.new_record(relation, plans.iter().find(|plan| plan.relation == *id));
                    record::write_relation(&mut making.commit, relation, &record)?;
                    relations.insert(*id, Arc::new(Stored::open(relation, record)?));
                }
            }
        }
        record::write_catalog(&mut making.commit, &catalog)?;
        self.catalog = Arc::new(catalog);
        self.relations = Arc::new(relations);
        Ok(())
    }

    /// Tables for a new relation.
    fn new_record(&mut self, relation: &Relation, plan: Option<&ViewPlan>) -> Record {
        let mut table = || {
            self.next_table += 1;
            self.next_table - 1
        };
        let mut record = Record::default();
        match &relation.kind {
            RelationKind::Stream(_) => {
                record.rows = Some(table());
                record.faults = Some(table());
            }
            RelationKind::Table { .. } => record.rows = Some(table()),
            RelationKind::MaterializedView(_) | RelationKind::Sink(_) => {
                // What goes into a sink is not kept here, but until it is delivered.
                if let RelationKind::MaterializedView(_) = &relation.kind {
                    record.rows = Some(table());
                }
                if super::sink::has_outbox(relation) {
                    record.outbox = Some(table());
                }
                record.faults = Some(table());
                record.late = Some(table());
                if let Some(plan) = plan {
                    let needed = Flow::tables_needed(&plan.plan);
                    record.tables = needed
                        .into_iter()
                        .map(|count| (0..count).map(|_| table()).collect())
                        .collect();
                    record.plan.clone_from(&plan.text);
                }
                record.status = Status::Building;
            }
            RelationKind::View { .. } | RelationKind::Index { .. } => {}
        }
        record
    }

    /// Ends the flows and builds of relations that are gone.
    fn drop_flows(&mut self) {
        let catalog = self.catalog.clone();
        self.times.streams.retain(|id, _| catalog.relations.contains_key(id));
        self.times.views.retain(|id, _| catalog.relations.contains_key(id));
        self.views.retain(|id, _| catalog.relations.contains_key(id));
        self.feeds.retain(|id| catalog.relations.contains_key(&id));
        self.follow_sinks();
        self.queued.retain(|(plan, waiting)| {
            let stays = catalog.relations.contains_key(&plan.relation);
            if !stays {
                tell(waiting.as_ref(), Err(dropped()));
            }
            stays
        });
        self.builds.retain(|id, build| {
            let stays = catalog.relations.contains_key(id);
            if !stays {
                build.cancel();
                tell(build.waiting.as_ref(), Err(dropped()));
            }
            stays
        });
    }

    /// Starts filling a new view.
    pub(super) fn start_build(&mut self, plan: ViewPlan, waiting: Option<Arc<Waiting>>) {
        let id = plan.relation;
        let found = self.catalog.relations.get(&id).zip(self.relations.get(&id));
        let Some((relation, stored)) = found else {
            return;
        };
        let filling = |input: &RelationId| {
            let stored = self.relations.get(input);
            stored.is_some_and(|stored| stored.record.status == Status::Building)
        };
        if inputs_of(&plan).iter().any(filling) {
            self.queued.push((plan, waiting));
            return;
        }
        let context = self.build_context();
        match Build::start(relation.clone(), stored.clone(), plan, context, waiting.clone()) {
            Ok(build) => {
                self.builds.insert(id, build);
            }
            Err(error) => {
                self.take_back(id);
                tell(waiting.as_ref(), Err(error));
            }
        }
    }

    /// Starts the builds whose inputs have become live; the others go on waiting.
    fn start_queued(&mut self) {
        for (plan, waiting) in std::mem::take(&mut self.queued) {
            self.start_build(plan, waiting);
        }
    }

    /// Takes over the flow of a view that has caught up.
    pub(super) fn built(&mut self, id: RelationId, result: Result<Flow>) {
        let Some(build) = self.builds.remove(&id) else {
            self.sweep_cancelled(id);
            return;
        };
        match result.and_then(|flow| self.go_live(&build, flow)) {
            Ok(published) => {
                tracing::debug!(view = build.relation.name, rows = build.rows(), "the view is live");
                tell(build.waiting.as_ref(), Ok(published));
                self.start_queued();
            }
            Err(error) if build.waiting.is_some() => {
                tracing::debug!(view = build.relation.name, %error, "the view could not be filled");
                self.take_back(id);
                tell(build.waiting.as_ref(), Err(error));
            }
            // Nobody waits: it was made in the background, or is filled anew. Its definition must not get lost.
            Err(error) => {
                let mut commit = Commit::new();
                self.stop_view(id, &error, &mut commit);
                if let Err(error) = self.commit(self.next_time(), commit, true) {
                    tracing::error!(%error, "a view's stop could not be written");
                }
            }
        }
    }

    /// Runs the last epochs through the flow and makes the view readable.
    fn go_live(&mut self, build: &Build, mut flow: Flow) -> Result<Arc<Published>> {
        let id = build.relation.id;
        let mut commit = Commit::new();
        let mut late = record::read_late(&self.store, id)?;
        for next in build.rest() {
            let moves = Moves {
                time: next.time,
                changes: &next.changes,
                advances: &next.advances,
            };
            super::view::step(&mut flow, &build.stored, moves, &mut late, &mut commit)?;
        }
        let time = self.standing_time();
        if flow.due().is_some_and(|due| due <= time.clock) {
            let moves = Moves {
                time,
                changes: &Changes::new(),
                advances: &self.standing(),
            };
            super::view::step(&mut flow, &build.stored, moves, &mut late, &mut commit)?;
        }
        let view = ViewFlow::new(flow, build.stored.clone(), late);
        let standing = self.standing();
        self.times.views.insert(id, view.time(view.advance(&standing)));
        let mut stored = build.stored.as_ref().clone();
        stored.record.status = Status::Live;
        let relation = self.catalog.relations.get(&id).unwrap_or(&build.relation).clone();
        record::write_relation(&mut commit, &relation, &stored.record)?;
        let stored = Arc::new(Stored::open(&relation, stored.record.clone())?);
        let mut relations = self.relations.as_ref().clone();
        relations.insert(id, stored.clone());
        self.relations = Arc::new(relations);
        let published = self.commit(self.standing_time(), commit, true)?;
        self.views.insert(id, view.over(stored));
        self.feeds.begin(id, published.epoch);
        self.follow_sinks();
        Ok(published)
    }

    /// Gives up a build that nobody waits for any more.
    pub(super) fn cancel_build(&mut self, id: RelationId) {
        if let Some(build) = self.builds.get_mut(&id) {
            build.cancel();
        }
    }

    /// Takes back a view that could not be filled: its name is free again, and nothing of it is left.
    pub(super) fn take_back(&mut self, id: RelationId) {
        let mut catalog = self.catalog.as_ref().clone();
        let mut gone = vec![id];
        while let Some(next) = gone.pop() {
            gone.extend(catalog.users_of(next).iter().map(|user| user.id));
            catalog.relations.remove(&next);
        }
        catalog.version += 1;
        let mut making = Making::default();
        let done = self
            .change(&mut making, catalog, &[])
            .and_then(|()| self.commit(self.standing_time(), std::mem::take(&mut making.commit), true));
        if let Err(error) = done {
            tracing::error!(%error, "a half-made view could not be taken back");
        }
        self.drop_flows();
    }

    /// The tables of a dropped view may have been written to until its build noticed: delete them again.
    fn sweep_cancelled(&mut self, _id: RelationId) {
        if let Err(error) = sweep(&self.store, &self.relations) {
            tracing::error!(%error, "tables of a dropped view could not be swept");
        }
    }

    /// Opens the flows of all live views over their stored state, and starts anew what was being filled.
    pub(super) fn open_views(&mut self) {
        let relations: Vec<Arc<Relation>> = self.catalog.relations.values().cloned().collect();
        for relation in relations {
            if !matches!(relation.kind, RelationKind::MaterializedView(_) | RelationKind::Sink(_)) {
                continue;
            }
            let Some(stored) = self.relations.get(&relation.id).cloned() else {
                continue;
            };
            let queued = self.queued.iter().any(|(plan, _)| plan.relation == relation.id);
            if queued || self.builds.contains_key(&relation.id) {
                continue;
            }
            if matches!(stored.record.status, Status::Stopped(_)) {
                continue;
            }
            if let Err(error) = self.open_view(&relation, &stored) {
                let mut commit = Commit::new();
                self.stop_view(relation.id, &error, &mut commit);
                let time = self.standing_time();
                if let Err(error) = self.commit(time, commit, true) {
                    tracing::error!(%error, "a view's stop could not be written");
                }
            }
        }
        let time = StepTime {
            epoch: self.epoch,
            clock: self.published.load().clock,
            first: First::No,
        };
        self.publish(time);
        self.follow_sinks();
    }

    /// Starts and ends the deliveries of sinks as they come and go.
    pub(super) fn follow_sinks(&self) {
        self.sinks.follow(self.epoch, &self.catalog, &self.relations);
    }

    fn open_view(&mut self, relation: &Arc<Relation>, stored: &Arc<Stored>) -> Result<()> {
        let plan = super::plan::plan_relation(&self.catalog, relation)?;
        if stored.record.status == Status::Live && plan.text == stored.record.plan {
            return self.open_flow(relation, stored, &plan);
        }
        if stored.record.status == Status::Live && stored.outbox.is_some() {
            return self.open_sink_otherwise(relation, stored, plan);
        }
        if stored.record.status == Status::Live {
            tracing::warn!(
                view = relation.name,
                "the view is planned otherwise than its state: filling it anew"
            );
        }
        self.rebuild(relation, stored, plan)
    }

    /// Goes on with a sink that is planned otherwise than before, as after an upgrade. Filled anew it would deliver
    /// once more what it has delivered; without state there is nothing to fill.
    fn open_sink_otherwise(&mut self, relation: &Arc<Relation>, stored: &Arc<Stored>, plan: ViewPlan) -> Result<()> {
        let needed = Flow::tables_needed(&plan.plan);
        if needed.iter().any(|tables| *tables > 0) {
            return Err(
                Error::semantic("55000", "the sink is planned otherwise than what it has delivered")
                    .with_hint("Drop it and create it anew, with another file."),
            );
        }
        let record = Record {
            tables: needed.iter().map(|_| Vec::new()).collect(),
            plan: plan.text.clone(),
            ..stored.record.clone()
        };
        let mut commit = Commit::new();
        record::write_relation(&mut commit, relation, &record)?;
        let stored = Arc::new(Stored::open(relation, record)?);
        let mut relations = self.relations.as_ref().clone();
        relations.insert(relation.id, stored.clone());
        self.relations = Arc::new(relations);
        self.commit(self.next_time(), commit, true)?;
        self.open_flow(relation, &stored, &plan)
    }

    /// Opens the flow of a live view over its stored state.
    fn open_flow(&mut self, relation: &Arc<Relation>, stored: &Arc<Stored>, plan: &ViewPlan) -> Result<()> {
        let tables = stored.record.flow_tables();
        let (store, options) = (self.store.clone(), self.flow_options());
        let flow = Flow::build(&plan.plan, plan.root, &store, &tables, Origin::Stored, options)?;
        let late = record::read_late(&self.store, relation.id)?;
        let view = ViewFlow::new(flow, stored.clone(), late);
        let standing = self.standing();
        self.times.views.insert(relation.id, view.time(view.advance(&standing)));
        self.views.insert(relation.id, view);
        Ok(())
    }

    /// Fills a view anew, from its inputs.
    fn rebuild(&mut self, relation: &Arc<Relation>, stored: &Arc<Stored>, plan: ViewPlan) -> Result<()> {
        let mut commit = Commit::new();
        delete_tables(&stored.record.all_tables(), &mut commit);
        record::write_late(&mut commit, relation.id, &LateCount::default())?;
        let record = self.new_record(relation, Some(&plan));
        record::write_relation(&mut commit, relation, &record)?;
        let mut relations = self.relations.as_ref().clone();
        relations.insert(relation.id, Arc::new(Stored::open(relation, record)?));
        self.relations = Arc::new(relations);
        self.commit(self.standing_time(), commit, true)?;
        self.start_build(plan, None);
        Ok(())
    }
}

/// Who waits until all views of a definition are live.
pub struct Waiting {
    left: AtomicUsize,
    reply: Mutex<Option<Reply<Arc<Published>>>>,
}

impl Waiting {
    fn new(reply: Reply<Arc<Published>>, views: usize) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(views),
            reply: Mutex::new(Some(reply)),
        })
    }

    /// One of the views is live, or cannot be filled: the first failure is the answer, or else the last one's success.
    fn done(&self, result: Result<Arc<Published>>) {
        let last = self.left.fetch_sub(1, Ordering::SeqCst) == 1;
        if (last || result.is_err())
            && let Some(reply) = self.reply.lock().take()
        {
            let _ = reply.send(result);
        }
    }
}

fn tell(waiting: Option<&Arc<Waiting>>, result: Result<Arc<Published>>) {
    if let Some(waiting) = waiting {
        waiting.done(result);
    }
}

fn dropped() -> Error {
    Error::semantic("42P01", "the view was dropped while it was being filled")
}

/// The relations that a plan reads.
fn inputs_of(plan: &ViewPlan) -> Vec<RelationId> {
    let nodes = plan.plan.ids().map(|id| plan.plan.node(id));
    let inputs = nodes.filter_map(|node| match node {
        Node::Input(input) => Some(input.relation),
        _ => None,
    });
    inputs.collect()
}

fn delete_tables(tables: &[TableId], commit: &mut Commit) {
    for table in tables {
        let (from, to) = table.range();
        commit.delete_range(&from, &to);
    }
}

/// Deletes the tables that belong to nothing: what a crash left of half-made or half-dropped relations.
pub fn sweep(store: &Store, relations: &HashMap<RelationId, Arc<Stored>>) -> Result<()> {
    let known: HashSet<TableId> = relations
        .values()
        .flat_map(|stored| stored.record.all_tables())
        .chain([SYSTEM_TABLE])
        .collect();
    let mut commit = Commit::new();
    let mut from = Vec::new();
    loop {
        let mut scan = store.scan(&from, &[u8::MAX; 5]);
        let Some((key, _)) = scan.next_entry()? else {
            break;
        };
        let id = key
            .get(..4)
            .and_then(|prefix| prefix.try_into().ok())
            .map(u32::from_be_bytes);
        let table = TableId(id.ok_or_else(|| Error::corrupt("a key of the store names no table"))?);
        if !known.contains(&table) {
            delete_tables(&[table], &mut commit);
        }
        from = table.range().1;
    }
    if !commit.is_empty() {
        store.commit(commit, crate::state::Durability::Synced)?;
    }
    Ok(())
}
