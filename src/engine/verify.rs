//! VERIFY MATERIALIZED VIEW: the view against its query, recomputed in batch by DataFusion.
//!
//! Both are read as of one epoch and compared as bags. A row of the answer is a row that differs, with `diff`: how
//! many copies more (or, negative, fewer) the view has than the query. No row: the view is right.

use super::query::View;
use super::session::{Session, rows_of};
use super::{Outcome, ResultColumn, RowsTag};
use crate::catalog::{Emit, MaterializedView, OnError, Relation, RelationKind};
use crate::delta::{Batch, Delta, batch_of};
use crate::error::{Error, Result};
use crate::expr::from_datafusion;
use crate::operator::lateness::Judged;
use crate::plan::Node;
use crate::sql::bind::{BindSettings, Binder, NoSystemRelations, ParameterTypes, node};
use crate::sql::statement::{Name, ObjectKind};
use crate::types::{Nullability, Type};
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::logical_expr::{
    Expr, Extension, Limit, LogicalPlan, LogicalPlanBuilder, SortExpr, UserDefinedLogicalNode,
};
use std::sync::Arc;

/// The rows that differ which are told at most.
const DIFFERENCES_MAX: usize = 1000;

impl Session {
    pub(super) fn verify_columns(&mut self, name: &Name) -> Result<Vec<ResultColumn>> {
        Ok(columns_of(self.find(ObjectKind::MaterializedView, name)?.as_ref()))
    }

    pub(super) async fn verify(&mut self, name: &Name) -> Result<Outcome> {
        let relation = self.find(ObjectKind::MaterializedView, name)?;
        let RelationKind::MaterializedView(definition) = &relation.kind else {
            return Err(Error::internal("a materialized view without a query"));
        };
        let view = View {
            overlay: std::collections::BTreeMap::new(),
            ..self.view()
        };
        let stored = view
            .published
            .relations
            .get(&relation.id)
            .ok_or_else(|| Error::semantic("55000", "the view has not been populated"))?;
        let rows = stored.readable(&relation)?;
        check_provable(&view, &relation)?;
        check_arrivals(&view, &relation)?;
        let times = view
            .published
            .times
            .views
            .get(&relation.id)
            .copied()
            .unwrap_or_default();
        super::late::check_whole(times.late, &relation.name, definition)?;
        let failed = match &stored.faults {
            Some(faults) => faults.scan(&view.published.snapshot).next_batch()?.is_some(),
            None => false,
        };
        let replayed = match judged_sessions(&view, &relation)? {
            None => false,
            Some(Judged::ByRow) => true,
            Some(Judged::ByEpoch) if times.late.seams == 0 => false,
            Some(Judged::ByEpoch) => return Err(seams(&relation.name)),
        };
        let expected = if failed || replayed || definition.on_error == OnError::Null {
            super::recompute::without_failures(view.published.clone(), relation.clone()).await?
        } else {
            self.recompute(&view, &relation, definition).await?
        };
        let mut difference = Delta::new();
        let mut scan = rows.scan(&view.published.snapshot);
        while let Some(batch) = scan.next_batch()? {
            difference.push(batch);
        }
        let expected = super::query::shaped(&expected, &rows.schema)?;
        difference.push(Batch::inserts(expected).negate());
        let difference = difference.consolidate(&rows.schema)?;
        let columns = columns_of(&relation);
        let answer = answer(&difference, &columns, &rows.schema)?;
        Ok(Outcome::Rows {
            columns,
            rows: rows_of(answer),
            tag: RowsTag::Bare("VERIFY".to_owned()),
        })
    }

    /// The query's rows, in batch, under the view's own settings.
    async fn recompute(
        &mut self,
        view: &View,
        relation: &Arc<Relation>,
        definition: &MaterializedView,
    ) -> Result<RecordBatch> {
        let time_zone = definition
            .options
            .get("time_zone")
            .cloned()
            .unwrap_or_else(|| "UTC".to_owned());
        let settings = BindSettings {
            search_path: relation.search_path.clone(),
            time_zone: time_zone.clone(),
            ..BindSettings::default()
        };
        let plan = {
            let binder = Binder::new(&view.catalog, &settings, &NoSystemRelations);
            let query = crate::sql::parse_query(&definition.query)?;
            binder.bind_query(&query.query, &mut ParameterTypes::default())?.plan
        };
        let plan = crate::sql::bind::fix_now(ordered_limits(plan)?, view.published.clock.0)?;
        let plan = without_late(view, relation, definition, plan)?;
        super::query::collect(view, plan, &time_zone).await
    }
}

/// Refuses where the view depends on when rows arrived.
fn check_arrivals(view: &View, relation: &Arc<Relation>) -> Result<()> {
    let planned = super::plan::plan_relation(&view.catalog, relation)?;
    if planned
        .plan
        .ids()
        .any(|id| matches!(planned.plan.node(id), Node::Stamp(_)))
    {
        return Err(
            Error::semantic("55000", format!("view \"{}\" cannot be verified", relation.name))
                .with_detail("It has a window over the arrival of rows, which rows do not keep.")
                .with_hint("Only windows over event time can be proved."),
        );
    }
    Ok(())
}

/// By which watermark the view's sessions are judged, if it has any that a watermark closes.
///
/// Those that are judged row by row are computed anew from the log, in its order: where sessions begin and end may depend
/// on what was closed when a row came.
fn judged_sessions(view: &View, relation: &Arc<Relation>) -> Result<Option<Judged>> {
    let RelationKind::MaterializedView(definition) = &relation.kind else {
        return Ok(None);
    };
    if definition.late.is_empty() {
        return Ok(None);
    }
    let planned = super::plan::plan_relation(&view.catalog, relation)?;
    let nodes = || planned.plan.ids().map(|id| planned.plan.node(id));
    let sessions = nodes().filter_map(|node| match node {
        Node::SessionWindow(session) => session.lateness.map(|late| late.judged),
        _ => None,
    });
    let others = nodes().filter_map(|node| match node {
        Node::Lateness(lateness) => Some(lateness.judged),
        _ => None,
    });
    let sessions: Vec<Judged> = sessions.collect();
    let all_by_row = sessions
        .iter()
        .copied()
        .chain(others)
        .all(|judged| judged == Judged::ByRow);
    Ok(match (sessions.is_empty(), all_by_row) {
        (true, _) => None,
        (false, true) => Some(Judged::ByRow),
        (false, false) => Some(Judged::ByEpoch),
    })
}

fn seams(name: &str) -> Error {
    Error::semantic("55000", format!("view \"{name}\" cannot be verified"))
        .with_detail("Rows from before the watermark came to sessions over several relations.")
        .with_hint("Where such sessions begin and end depends on when the rows came, which no log tells.")
}

/// The plan in which a LIMIT without an order keeps the first rows in row order, as a maintained view does.
fn ordered_limits(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Limit(limit) = node else {
            return Ok(Transformed::no(node));
        };
        if is_ordered(&limit.input) {
            return Ok(Transformed::no(LogicalPlan::Limit(limit)));
        }
        let order: Vec<SortExpr> = limit
            .input
            .schema()
            .columns()
            .into_iter()
            .map(|column| Expr::Column(column).sort(true, false))
            .collect();
        let sorted = LogicalPlanBuilder::from(limit.input.as_ref().clone())
            .sort(order)?
            .build()?;
        Ok(Transformed::yes(LogicalPlan::Limit(Limit {
            input: Arc::new(sorted),
            ..limit
        })))
    })
    .data()
    .map_err(from_datafusion)
}

fn is_ordered(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(projection) => is_ordered(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_ordered(&alias.input),
        _ => false,
    }
}

/// The query told what the view has refused and, where it shows closed windows only, which windows are closed.
fn without_late(
    view: &View,
    relation: &Relation,
    definition: &MaterializedView,
    plan: LogicalPlan,
) -> Result<LogicalPlan> {
    let Some(stored) = view.published.relations.get(&relation.id) else {
        return Ok(plan);
    };
    let time = view
        .published
        .times
        .views
        .get(&relation.id)
        .copied()
        .unwrap_or_default();
    let told = plan.transform_up_with_subqueries(|logical| {
        let windows = node::extension::<node::RefuseLate>(&logical);
        let sessions = node::extension::<node::SessionWindow>(&logical);
        let (label, schema) = match (windows, sessions) {
            (Some(late), _) => (Some(late.label), late.input.schema()),
            (_, Some(window)) => (window.label, &window.schema),
            _ => return Ok(Transformed::no(logical)),
        };
        let Some(list) = definition.late.iter().find(|list| Some(list.label) == label) else {
            return Ok(Transformed::no(logical));
        };
        let schema = Arc::new(schema.as_arrow().clone());
        let rows = super::late::refused_pairs(stored, list, &view.published.snapshot, &schema)
            .map_err(|error| datafusion::error::DataFusionError::External(Box::new(error)))?;
        let closed_until = match definition.emit {
            Emit::OnUpdate => None,
            Emit::OnWindowClose => Some(
                time.watermark
                    .map_or(i64::MIN, |mark| mark.saturating_add(list.shift_us)),
            ),
        };
        let refused = Some(node::Refused {
            rows: Arc::new(rows),
            closed_until,
        });
        let told: Arc<dyn UserDefinedLogicalNode> = match (windows, sessions) {
            (Some(late), _) => Arc::new(node::RefuseLate {
                refused,
                ..late.clone()
            }),
            (_, Some(window)) => Arc::new(node::SessionWindow {
                refused,
                ..window.clone()
            }),
            _ => return Ok(Transformed::no(logical)),
        };
        Ok(Transformed::yes(LogicalPlan::Extension(Extension { node: told })))
    });
    told.data().map_err(crate::expr::from_datafusion)
}

/// Refuses where what the view was computed from is no longer there.
fn check_provable(view: &View, relation: &Relation) -> Result<()> {
    for id in &relation.depends_on {
        if let Some(input) = view.catalog.relations.get(id)
            && let RelationKind::Stream(stream) = &input.kind
            && stream.retention != crate::catalog::Retention::Forever
        {
            return Err(
                Error::semantic("55000", format!("view \"{}\" cannot be verified", relation.name))
                    .with_detail(format!("Stream \"{}\" does not keep all its rows.", input.name))
                    .with_hint("Only views over streams with retention = 'forever', tables and views can be proved."),
            );
        }
    }
    Ok(())
}

fn columns_of(relation: &Relation) -> Vec<ResultColumn> {
    let own = relation.columns.iter().map(|column| ResultColumn {
        name: column.name.clone(),
        kind: column.kind.clone(),
    });
    std::iter::once(ResultColumn {
        name: "diff".to_owned(),
        kind: Type::Int8,
    })
    .chain(own)
    .collect()
}

fn answer(difference: &Delta, columns: &[ResultColumn], schema: &SchemaRef) -> Result<RecordBatch> {
    let all = difference.concat(schema)?;
    let count = all.len().min(DIFFERENCES_MAX);
    let diffs: Int64Array = (0..count).map(|row| Some(all.weights.at(row))).collect();
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(diffs)];
    arrays.extend(all.rows.columns().iter().map(|column| column.slice(0, count)));
    let fields: Vec<Field> = columns
        .iter()
        .map(|column| column.kind.field(&column.name, Nullability::Nullable))
        .collect();
    batch_of(Arc::new(Schema::new(fields)), arrays, count)
}
