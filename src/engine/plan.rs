//! From a view's definition to what computes it: parse, bind, optimise, lower.

use super::command::ViewPlan;
use crate::catalog::{Catalog, Emit, LateList, OnError, Relation, RelationKind};
use crate::error::{Error, Result};
use crate::plan::lower::{LowerOptions, Zone, lower};
use crate::plan::{Node, Plan, event};
use crate::sql::bind::{BindSettings, Binder, NoSystemRelations, ParameterTypes, node};
use crate::types::Type;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use std::collections::HashMap;
use std::sync::Arc;

/// How a materialized view or a sink is computed.
///
/// The result depends on the definition and the catalog alone, not on the session: a restart plans the same.
pub fn plan_relation(catalog: &Catalog, relation: &Arc<Relation>) -> Result<ViewPlan> {
    let (text, on_error, time_zone) = match &relation.kind {
        RelationKind::MaterializedView(view) => (&view.query, view.on_error, view.options.get("time_zone")),
        RelationKind::Sink(sink) => (&sink.query, OnError::Skip, None),
        _ => {
            return Err(Error::internal(format!(
                "{} \"{}\" is not maintained",
                relation.noun(),
                relation.name
            )));
        }
    };
    let settings = BindSettings {
        search_path: relation.search_path.clone(),
        time_zone: time_zone.cloned().unwrap_or_else(|| "UTC".to_owned()),
        ..BindSettings::default()
    };
    let binder = Binder::new(catalog, &settings, &NoSystemRelations);
    let query = crate::sql::parse_query(text)?;
    let bound = binder.bind_query(&query.query, &mut ParameterTypes::default())?;
    let optimised = crate::sql::optimise(bound.plan)?;
    let lowered = lower(
        &optimised,
        &LowerOptions {
            on_error: on_error_of(on_error),
            zone: if settings.time_zone == "UTC" { Zone::Utc } else { Zone::Other },
        },
    )?;
    let rewritten = crate::plan::rule::rewrite(&lowered.plan, lowered.root)?;
    let (plan, root) = match &relation.kind {
        RelationKind::MaterializedView(view) if view.emit == Emit::OnWindowClose => {
            event::emit_on_close(&rewritten.plan, rewritten.root)?
        }
        _ => (rewritten.plan, rewritten.root),
    };
    let (plan, root) = event::forget_closed(&plan, root)?;
    let text = crate::plan::explain::fingerprint(&plan, root);
    Ok(ViewPlan {
        relation: relation.id,
        events: event::of(&plan, root),
        late: late_lists(&optimised, &plan),
        plan,
        root,
        text,
        firings: rewritten.firings,
    })
}

/// The windows of a plan that refuse late rows, each once.
fn late_lists(optimised: &LogicalPlan, plan: &Plan) -> Vec<LateList> {
    let mut lists: Vec<LateList> = Vec::new();
    let shifts = plan.ids().filter_map(|id| match plan.node(id) {
        Node::Lateness(lateness) => Some((lateness.label, lateness.shift_us)),
        Node::SessionWindow(session) => session.lateness.map(|late| (late.label, late.shift_us)),
        _ => None,
    });
    let shifts: HashMap<i64, i64> = shifts.collect();
    let walked = optimised.apply_with_subqueries(|logical| {
        let windows = node::extension::<node::RefuseLate>(logical).map(|late| (late.label, late.input.schema()));
        let sessions = node::extension::<node::SessionWindow>(logical);
        let sessions = sessions.and_then(|window| Some((window.label?, &window.schema)));
        if let Some((label, schema)) = windows.or(sessions)
            && let Some(shift_us) = shifts.get(&label)
            && lists.iter().all(|known| known.label != label)
        {
            let fields = schema.fields();
            let own = fields.iter().take(fields.len().saturating_sub(2));
            lists.push(LateList {
                label,
                columns: own.map(|field| (field.name().clone(), Type::of_field(field))).collect(),
                shift_us: *shift_us,
            });
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(walked.is_ok(), "a walk that finds fault with nothing");
    lists
}

fn on_error_of(on_error: OnError) -> crate::operator::map::OnError {
    match on_error {
        OnError::Skip => crate::operator::map::OnError::Skip,
        OnError::Null => crate::operator::map::OnError::Null,
        OnError::Fail => crate::operator::map::OnError::Fail,
    }
}
