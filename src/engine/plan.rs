//! From a view's definition to what computes it: parse, bind, optimise, lower.

use super::command::ViewPlan;
use crate::catalog::{Catalog, OnError, Relation, RelationKind};
use crate::error::{Error, Result};
use crate::plan::lower::{LowerOptions, lower};
use crate::sql::bind::{BindSettings, Binder, NoSystemRelations, ParameterTypes};
use std::sync::Arc;

/// How a materialized view or a sink is computed.
///
/// The result depends on the definition and the catalog alone, not on the session: a restart plans the same.
pub fn plan_relation(catalog: &Catalog, relation: &Arc<Relation>) -> Result<ViewPlan> {
    let (text, on_error, time_zone) = match &relation.kind {
        RelationKind::MaterializedView(view) => {
            if view.emit == crate::catalog::Emit::OnWindowClose {
                return Err(Error::unsupported("EMIT ON WINDOW CLOSE is not supported")
                    .with_hint("Use EMIT ON UPDATE: the view shows every window, always current."));
            }
            (&view.query, view.on_error, view.options.get("time_zone"))
        }
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
        },
    )?;
    let rewritten = crate::plan::rule::rewrite(&lowered.plan, lowered.root)?;
    let text = crate::plan::explain::fingerprint(&rewritten.plan, rewritten.root);
    Ok(ViewPlan {
        relation: relation.id,
        plan: rewritten.plan,
        root: rewritten.root,
        text,
        firings: rewritten.firings,
    })
}

fn on_error_of(on_error: OnError) -> crate::operator::map::OnError {
    match on_error {
        OnError::Skip => crate::operator::map::OnError::Skip,
        OnError::Null => crate::operator::map::OnError::Null,
        OnError::Fail => crate::operator::map::OnError::Fail,
    }
}
