//! Plans that run once: the batch twins of the nodes that DataFusion does not have (see [`crate::sql::bind::node`]).
//!
//! Each gathers its inputs and computes its result in one go, in the plainest way there is: what a maintained view
//! does step by step is verified against this. [`prepare`] teaches a DataFusion session to plan them.

mod compute;
mod distinct;

use crate::error::Error;
use crate::sql::bind::node::{
    AsOfJoin, Clause, Quantifier, RefuseLate, Refused, SessionWindow, SetKind, SetOperation, TemporalTable, Unmatched,
    WindowClause,
};
use crate::sql::error::external;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, Result};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, UserDefinedLogicalNode};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, PlanProperties,
};
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use futures::TryStreamExt;
use std::fmt;
use std::sync::Arc;

/// A session that plans the nodes of ours too.
///
/// Its physical rules leave filters where they are: a condition that can fail must not be merged with the one that
/// keeps it from failing.
pub(crate) fn prepare(state: SessionState) -> SessionState {
    let rules = PhysicalOptimizer::new()
        .rules
        .into_iter()
        .filter(|rule| !rule.name().starts_with("FilterPushdown"))
        .collect();
    SessionStateBuilder::new_from_existing(state)
        .with_query_planner(Arc::new(Planner))
        .with_physical_optimizer_rules(rules)
        .build()
}

/// Simplifies a plan that is to be run in batch.
pub(crate) fn optimise(plan: LogicalPlan) -> crate::error::Result<LogicalPlan> {
    crate::sql::optimise(distinct::without_distinct(plan)?)
}

#[derive(Debug)]
struct Planner;

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        logical_plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(Twins)])
            .create_physical_plan(logical_plan, session)
            .await
    }
}

struct Twins;

/// What a twin computes.
#[derive(Debug, Clone)]
enum Twin {
    Set(SetKind, Quantifier),
    Session {
        keys: Vec<Arc<dyn PhysicalExpr>>,
        time: Arc<dyn PhysicalExpr>,
        gap_micros: i64,
        refused: Option<Refused>,
    },
    Range {
        time: Arc<dyn PhysicalExpr>,
        range: Range,
        latest: Option<i64>,
    },
    Rows {
        latest: Option<i64>,
        time: Option<Arc<dyn PhysicalExpr>>,
        keys: Vec<Arc<dyn PhysicalExpr>>,
        count: usize,
    },
    /// The rows without those that a view has refused.
    Late(Refused),
    AsOf {
        left: Vec<Arc<dyn PhysicalExpr>>,
        right: Vec<Arc<dyn PhysicalExpr>>,
        operator: Operator,
        unmatched: Unmatched,
    },
}

/// Which times are in a window that ends now.
#[derive(Debug, Clone, Copy)]
enum Range {
    /// The last so many microseconds, now floored to a multiple of the slide.
    Last {
        length_micros: i64,
        slide_micros: Option<i64>,
    },
    /// Exactly now.
    Now,
    /// Up to now.
    All,
}

#[async_trait]
impl ExtensionPlanner for Twins {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let physical = |expr: &Expr, schema: &DFSchema| planner.create_physical_expr(expr, schema, session, context);
        let all = |exprs: &[Expr], schema: &DFSchema| {
            exprs
                .iter()
                .map(|expr| physical(expr, schema))
                .collect::<Result<Vec<_>>>()
        };
        let node_any = node.as_any();
        let twin = if let Some(set) = node_any.downcast_ref::<SetOperation>() {
            Twin::Set(set.kind, set.quantifier)
        } else if let Some(window) = node_any.downcast_ref::<SessionWindow>() {
            let schema = logical_inputs[0].schema();
            Twin::Session {
                keys: all(&window.keys, schema)?,
                time: physical(&window.time, schema)?,
                gap_micros: window.gap_micros,
                refused: window.refused.clone(),
            }
        } else if let Some(window) = node_any.downcast_ref::<WindowClause>() {
            let schema = logical_inputs[0].schema();
            let time = window.time.as_ref().map(|time| physical(time, schema)).transpose()?;
            clause(window, time, |exprs| all(exprs, schema))?
        } else if let Some(join) = node_any.downcast_ref::<AsOfJoin>() {
            let (mut left, mut right): (Vec<Expr>, Vec<Expr>) = join.on.iter().cloned().unzip();
            left.push(join.left_order.clone());
            right.push(join.right_order.clone());
            Twin::AsOf {
                left: all(&left, logical_inputs[0].schema())?,
                right: all(&right, logical_inputs[1].schema())?,
                operator: join.operator,
                unmatched: join.unmatched,
            }
        } else if let Some(late) = node_any.downcast_ref::<RefuseLate>() {
            match &late.refused {
                Some(refused) => Twin::Late(refused.clone()),
                // A query that runs once sees every row.
                None => return Ok(physical_inputs.first().cloned()),
            }
        } else if node_any.is::<TemporalTable>() {
            // A query that runs once meets the table as it is.
            return Ok(physical_inputs.first().cloned());
        } else {
            return Ok(None);
        };
        let schema: SchemaRef = Arc::new(node.schema().as_arrow().clone());
        Ok(Some(Arc::new(Gathered::new(twin, physical_inputs.to_vec(), schema))))
    }
}

fn clause(
    window: &WindowClause,
    time: Option<Arc<dyn PhysicalExpr>>,
    all: impl Fn(&[Expr]) -> Result<Vec<Arc<dyn PhysicalExpr>>>,
) -> Result<Twin> {
    let needs_time = || {
        external(
            Error::unsupported("a window clause on a relation without event time can only be read from a view")
                .with_hint("Rows do not keep when they arrived; make a materialized view of it."),
        )
    };
    let latest = window.latest;
    Ok(match &window.clause {
        Clause::Rows { count, partition_by } => Twin::Rows {
            latest,
            time: Some(time.ok_or_else(needs_time)?),
            keys: all(partition_by)?,
            count: *count,
        },
        Clause::Range {
            length_micros,
            slide_micros,
        } => Twin::Range {
            latest,
            time: time.ok_or_else(needs_time)?,
            range: Range::Last {
                length_micros: *length_micros,
                slide_micros: *slide_micros,
            },
        },
        Clause::Now => Twin::Range {
            latest,
            time: time.ok_or_else(needs_time)?,
            range: Range::Now,
        },
        Clause::Unbounded => match time {
            Some(time) => Twin::Range {
                latest,
                time,
                range: Range::All,
            },
            None => Twin::Rows {
                latest,
                time: None,
                keys: Vec::new(),
                count: usize::MAX,
            },
        },
    })
}

/// A node that gathers its inputs before it computes.
#[derive(Debug)]
struct Gathered {
    twin: Twin,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl Gathered {
    fn new(twin: Twin, inputs: Vec<Arc<dyn ExecutionPlan>>, schema: SchemaRef) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self {
            twin,
            inputs,
            schema,
            properties: Arc::new(properties),
        }
    }
}

impl DisplayAs for Gathered {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Gathered: {:?}", self.twin)
    }
}

impl ExecutionPlan for Gathered {
    fn name(&self) -> &str {
        "Gathered"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition; self.inputs.len()])
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(self.twin.clone(), children, self.schema.clone())))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(self.twin.clone(), children, self.schema.clone())))
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let streams = self
            .inputs
            .iter()
            .map(|input| Ok((input.schema(), input.execute(0, context.clone())?)))
            .collect::<Result<Vec<_>>>()?;
        let (twin, schema) = (self.twin.clone(), self.schema.clone());
        let result = async move {
            let mut inputs = Vec::with_capacity(streams.len());
            for (schema, stream) in streams {
                let batches: Vec<RecordBatch> = stream.try_collect().await?;
                inputs.push(arrow::compute::concat_batches(&schema, &batches)?);
            }
            twin.compute(&inputs, &schema)
        };
        let stream = futures::stream::once(result);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream)))
    }
}

fn evaluate(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<ArrayRef> {
    expr.evaluate(batch)?.into_array(batch.num_rows())
}

impl Twin {
    fn compute(&self, inputs: &[RecordBatch], schema: &SchemaRef) -> Result<RecordBatch> {
        let columns = |exprs: &[Arc<dyn PhysicalExpr>], batch: &RecordBatch| {
            exprs
                .iter()
                .map(|expr| evaluate(expr, batch))
                .collect::<Result<Vec<_>>>()
        };
        let computed = match self {
            Self::Set(kind, quantifier) => compute::set(&inputs[0], &inputs[1], *kind, *quantifier, schema),
            Self::Session {
                keys,
                time,
                gap_micros,
                refused,
            } => {
                let input = match refused {
                    Some(refused) => compute::without_refused(&inputs[0], refused).map_err(external)?,
                    None => inputs[0].clone(),
                };
                let keys = columns(keys, &input)?;
                let time = evaluate(time, &input)?;
                let sessions = compute::session(&input, &keys, &time, *gap_micros, schema);
                let until = refused.as_ref().and_then(|refused| refused.closed_until);
                sessions.and_then(|sessions| compute::closed(&sessions, until))
            }
            Self::Range { time, range, latest } => {
                let time = evaluate(time, &inputs[0])?;
                compute::range(&inputs[0], &time, *range, *latest, schema)
            }
            Self::Rows {
                time,
                keys,
                count,
                latest,
            } => {
                let known = match (time, latest) {
                    (Some(time), Some(_)) => {
                        let times = evaluate(time, &inputs[0])?;
                        let schema = inputs[0].schema();
                        compute::range(&inputs[0], &times, Range::All, *latest, &schema).map_err(external)?
                    }
                    _ => inputs[0].clone(),
                };
                let keys = columns(keys, &known)?;
                let time = time.as_ref().map(|time| evaluate(time, &known)).transpose()?;
                compute::rows(&known, time.as_ref(), &keys, *count, schema)
            }
            Self::Late(refused) => compute::without_late(&inputs[0], refused, schema),
            Self::AsOf {
                left,
                right,
                operator,
                unmatched,
            } => {
                let left = columns(left, &inputs[0])?;
                let right = columns(right, &inputs[1])?;
                compute::asof((&inputs[0], &left), (&inputs[1], &right), *operator, *unmatched, schema)
            }
        };
        computed.map_err(external)
    }
}
