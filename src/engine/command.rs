//! What is asked of the driver, and what it answers.
//!
//! Sessions and sources talk to the driver through one channel. A command that changes something is answered when its
//! epoch is durable and published.

use super::feed::{EpochChange, Subscription, SubscriptionReport};
use super::published::Published;
use crate::catalog::{Catalog, RelationId};
use crate::dataflow::Flow;
use crate::delta::Delta;
use crate::error::{Error, Result};
use crate::plan::{NodeId, Plan};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::oneshot;

/// Where an answer goes.
pub type Reply<T> = oneshot::Sender<Result<T>>;

/// A request to the driver.
pub enum Command {
    /// A client's change: all of it in one epoch, or none.
    Write(Write, Reply<Arc<Published>>),
    /// A source's rows: taken in the next epoch.
    Ingest(Ingest, Reply<()>),
    /// A change of the definitions.
    Define(Box<Define>, Reply<Arc<Published>>),
    /// A view's flow has caught up with its inputs, or failed to.
    Built(RelationId, Box<Result<Flow>>),
    /// Somebody no longer waits for a view that is being filled.
    CancelBuild(RelationId),
    /// Send a relation's changes to somebody from now on.
    Subscribe(Subscription, Reply<Subscribed>),
    /// The subscription that a temporary view was made for has ended.
    DropTemporary(RelationId),
    /// What the flows and the subscribers do, for the `headwater` schema.
    Inspect(Reply<Inspection>),
    /// Answered when everything that came before is in the views.
    Flush(Reply<Arc<Published>>),
    /// Stop after what came before.
    Stop(Reply<()>),
}

/// A client's change.
#[derive(Debug, Clone, Default)]
pub struct Write {
    /// The changes of each relation, in the order in which they came.
    pub changes: Vec<(RelationId, Delta)>,
    /// What a key that is there already means.
    pub duplicate: Duplicate,
}

/// What it means that a key which is to be inserted is there already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Duplicate {
    /// The statement is wrong (`23505`).
    #[default]
    Error,
    /// Somebody else was first (`40001`).
    Conflict,
}

/// A source's rows.
#[derive(Debug)]
pub struct Ingest {
    /// The stream.
    pub relation: RelationId,
    /// The rows, in the stream's columns.
    pub delta: Delta,
    /// The position after them.
    pub position: Vec<u8>,
    /// Records that could not be decoded: position, message, record.
    pub errors: Vec<(String, String, String)>,
    /// Whether these are the last rows that there will ever be.
    pub end: End,
    /// Whether all that came before them was taken.
    pub intact: Intact,
}

/// What a source has sent since it was opened, all of it taken or not: once a part was refused, so are all later ones.
/// Otherwise the position after a later part would pass over the rows of the refused one.
#[derive(Debug, Clone, Default)]
pub struct Intact(Arc<AtomicBool>);

impl Intact {
    /// A part was not taken.
    pub fn breaks(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether every part so far was taken.
    pub fn is_whole(&self) -> bool {
        !self.0.load(Ordering::SeqCst)
    }
}

/// Whether a source has come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It has: a finite file was read.
    Reached,
    /// More may come.
    Open,
}

/// A change of the definitions.
#[derive(Debug)]
pub struct Define {
    /// The version of the catalog that the change was made from.
    pub base_version: u64,
    /// The catalog after the change.
    pub catalog: Catalog,
    /// How each new view is computed.
    pub plans: Vec<ViewPlan>,
    /// Writes of the same transaction, applied after the definitions.
    pub write: Write,
    /// When the answer is given.
    pub answer: Answer,
}

/// How a view is computed.
#[derive(Debug, Clone)]
pub struct ViewPlan {
    /// The view.
    pub relation: RelationId,
    /// Its DAG.
    pub plan: Plan,
    /// The node that gives the view's rows.
    pub root: NodeId,
    /// The DAG as text: the state belongs to it.
    pub text: String,
    /// The view's columns that follow event time.
    pub events: Vec<crate::catalog::EventColumn>,
    /// Its windows that refuse late rows.
    pub late: Vec<crate::catalog::LateList>,
    /// The rules that made it what it is, in order.
    pub firings: Vec<crate::plan::rule::Firing>,
}

/// When a definition is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// When new views hold all that existed before them.
    WhenBuilt,
    /// At once; new views fill in the background.
    AtOnce,
}

/// How a subscription begins.
#[derive(Debug)]
pub struct Subscribed {
    /// The epoch whose rows are its snapshot.
    pub published: Arc<Published>,
    /// The past changes that it asked for.
    pub past: Vec<EpochChange>,
}

/// What runs and who listens.
#[derive(Debug, Clone, Default)]
pub struct Inspection {
    /// The flows.
    pub flows: Vec<FlowReport>,
    /// The subscriptions.
    pub subscriptions: Vec<SubscriptionReport>,
}

/// What a view's flow does.
#[derive(Debug, Clone)]
pub struct FlowReport {
    /// The view.
    pub relation: RelationId,
    /// Its nodes.
    pub nodes: Vec<crate::dataflow::NodeStatus>,
}

/// Sends commands to the driver.
#[derive(Debug, Clone)]
pub struct Commands {
    sender: std::sync::mpsc::Sender<Command>,
}

impl Commands {
    /// Commands over a channel to the driver.
    pub fn new(sender: std::sync::mpsc::Sender<Command>) -> Self {
        Self { sender }
    }

    /// Sends without waiting for an answer.
    pub fn send(&self, command: Command) -> Result<()> {
        self.sender.send(command).map_err(|_| stopped())
    }

    /// Sends and waits for the answer.
    pub async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply))?;
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }
}

fn stopped() -> Error {
    Error::external("57P01", "the server is shutting down")
}
