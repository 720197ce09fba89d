//! The threads that batch queries run on.
//!
//! A query computes for as long as it takes, and a thread that computes serves nobody else. So queries have threads of
//! their own, apart from those that read and answer the network: whatever a query does, others can connect, write,
//! read and cancel it. A query ends when its rows are dropped, at the next batch that one of its operators hands on.

use crate::error::{Error, Result};
use arrow::array::RecordBatch;
use datafusion::common::Result as DataFusionResult;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use std::sync::{Arc, OnceLock};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The batches that a query may be ahead of its reader.
const BATCHES_AHEAD: usize = 2;

/// Operators that put out many rows for one row of their input, and so may run long without asking for input.
const MULTIPLIERS: &[&str] = &[
    "CrossJoinExec",
    "HashJoinExec",
    "NestedLoopJoinExec",
    "SortMergeJoinExec",
    "PiecewiseMergeJoinExec",
    "UnnestExec",
];

static THREADS: OnceLock<Runtime> = OnceLock::new();

/// The threads, which are started by the first query.
fn threads() -> Result<&'static Handle> {
    if THREADS.get().is_none() {
        let started = Builder::new_multi_thread().thread_name("query").enable_all().build();
        let started =
            started.map_err(|error| Error::external("58000", format!("no thread could be started: {error}")))?;
        // Another query may have been first: its threads serve both.
        if let Err(second) = THREADS.set(started) {
            second.shutdown_background();
        }
    }
    THREADS
        .get()
        .map(Runtime::handle)
        .ok_or_else(|| Error::internal("the query threads are not there"))
}

/// A query that runs. Dropping it ends the query.
struct Running {
    rows: mpsc::Receiver<DataFusionResult<RecordBatch>>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    async fn next(&mut self) -> Option<DataFusionResult<RecordBatch>> {
        if let Some(batch) = self.rows.recv().await {
            return Some(batch);
        }
        // The end of the rows is the end of the query only if it did not break off.
        match (&mut self.task).await {
            Ok(()) => None,
            Err(error) => Some(Err(DataFusionError::External(Box::new(Error::internal(format!(
                "the query ended early: {error}"
            )))))),
        }
    }
}

/// Starts a plan and streams its rows.
pub fn run(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> Result<BoxStream<'static, DataFusionResult<RecordBatch>>> {
    let plan = yielding(plan).map_err(crate::expr::from_datafusion)?;
    let (sender, rows) = mpsc::channel(BATCHES_AHEAD);
    let task = threads()?.spawn(async move {
        match execute_stream(plan, context) {
            Ok(stream) => forward(stream, &sender).await,
            Err(error) => {
                let _ = sender.send(Err(error)).await;
            }
        }
    });
    let running = Some(Running { rows, task });
    let rows = futures::stream::unfold(running, |running| async move {
        let mut running = running?;
        let next = running.next().await?;
        let more = next.is_ok().then_some(running);
        Some((next, more))
    });
    Ok(rows.boxed())
}

async fn forward(
    mut stream: impl Stream<Item = DataFusionResult<RecordBatch>> + Unpin,
    sender: &mpsc::Sender<DataFusionResult<RecordBatch>>,
) {
    while let Some(batch) = stream.next().await {
        // Nobody reads on.
        if sender.send(batch).await.is_err() {
            return;
        }
    }
}

/// The plan with a place to stop after each batch of an operator that may run long.
fn yielding(plan: Arc<dyn ExecutionPlan>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        if MULTIPLIERS.contains(&node.name()) {
            return Ok(Transformed::yes(
                Arc::new(CooperativeExec::new(node)) as Arc<dyn ExecutionPlan>
            ));
        }
        Ok(Transformed::no(node))
    })
    .data()
}
