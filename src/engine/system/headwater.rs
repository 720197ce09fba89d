//! The rows of the schema `headwater`: streams, views and what they do, in SQL.

use super::function::SESSION;
use super::sheet::{Cell, Sheet};
use super::{Facts, Fare};
use crate::catalog::{Emit, OnError, Relation, RelationKind, Retention};

/// Writes the rows of a relation.
pub(super) fn fill(facts: &Facts, name: &str, sheet: &mut Sheet) {
    match name {
        "streams" => streams(facts, sheet),
        "tables" => tables(facts, sheet),
        "views" => views(facts, sheet),
        "sinks" => sinks(facts, sheet),
        "epochs" => {
            let (epoch, clock_micros) = facts.live.epoch();
            sheet.row([("epoch", epoch.into()), ("clock", Cell::Micros(clock_micros))]);
        }
        "sources" => sources(facts, sheet),
        "sessions" => {
            for session in facts.live.sessions() {
                let current = Some(session.id.to_string()) == own_session(facts);
                sheet.row([
                    ("id", session.id.into()),
                    ("user", session.user.into()),
                    ("current", current.into()),
                ]);
            }
        }
        "settings" => settings(facts, sheet),
        "operators" => operators(facts, sheet),
        "subscriptions" => subscriptions(facts, sheet),
        "watermarks" => watermarks(facts, sheet),
        // Nothing is known of these yet.
        _ => {}
    }
}

/// The number of the statement's session, if the session says.
fn own_session(facts: &Facts) -> Option<String> {
    facts.settings.variables.get(SESSION).cloned()
}

fn streams(facts: &Facts, sheet: &mut Sheet) {
    for relation in facts.catalog.relations.values() {
        let RelationKind::Stream(stream) = &relation.kind else {
            continue;
        };
        let watermark = stream.watermark.as_ref().and_then(|(column, text)| {
            let column = relation.columns.get(*column)?;
            Some(format!("{} AS {text}", column.name))
        });
        let retention = match stream.retention {
            Retention::Forever => "forever".to_owned(),
            Retention::None => "none".to_owned(),
            Retention::Millis(millis) => format!("{millis} ms"),
        };
        let refused = facts
            .live
            .faults(relation.id)
            .ok()
            .flatten()
            .map_or(0, |faults| faults.num_rows());
        sheet.row([
            ("id", relation.id.0.into()),
            ("schema", (&relation.schema).into()),
            ("name", (&relation.name).into()),
            ("columns", relation.columns.len().into()),
            ("watermark", watermark.into()),
            ("retention", retention.into()),
            ("connector", stream.connector.get("connector").into()),
            ("rows_refused", refused.into()),
            ("sql", (&relation.sql).into()),
        ]);
    }
}

fn watermarks(facts: &Facts, sheet: &mut Sheet) {
    for report in crate::engine::watermark::reports(&facts.catalog, &facts.live.times()) {
        sheet.row([
            ("name", report.name.into()),
            ("kind", report.kind.into()),
            ("column", report.column.into()),
            ("watermark", report.watermark.map_or(Cell::Null, Cell::Micros)),
            ("highest", report.highest.map_or(Cell::Null, Cell::Micros)),
            ("held_back_by", report.held_back_by.into()),
            ("late_rows", report.late_rows.into()),
            ("state", report.state.into()),
        ]);
    }
}

fn tables(facts: &Facts, sheet: &mut Sheet) {
    for relation in facts.catalog.relations.values() {
        let RelationKind::Table { primary_key } = &relation.kind else {
            continue;
        };
        let key = primary_key
            .iter()
            .filter_map(|column| Some(relation.columns.get(*column)?.name.clone()));
        sheet.row([
            ("id", relation.id.0.into()),
            ("schema", (&relation.schema).into()),
            ("name", (&relation.name).into()),
            ("columns", relation.columns.len().into()),
            ("primary_key", Cell::Texts(key.collect())),
            ("sql", (&relation.sql).into()),
        ]);
    }
}

fn views(facts: &Facts, sheet: &mut Sheet) {
    for relation in facts.catalog.relations.values() {
        let (materialized, emit, on_error) = match &relation.kind {
            RelationKind::View { .. } => (false, None, None),
            RelationKind::MaterializedView(view) => {
                let emit = match view.emit {
                    Emit::OnUpdate => "update",
                    Emit::OnWindowClose => "window close",
                };
                let on_error = match view.on_error {
                    OnError::Skip => "skip",
                    OnError::Null => "null",
                    OnError::Fail => "fail",
                };
                (true, Some(emit), Some(on_error))
            }
            _ => continue,
        };
        let fare = facts.live.fare(relation.id);
        sheet.row([
            ("id", relation.id.0.into()),
            ("schema", (&relation.schema).into()),
            ("name", (&relation.name).into()),
            ("materialized", materialized.into()),
            ("status", fare.status.into()),
            ("reason", fare.reason.into()),
            ("emit", emit.into()),
            ("on_error", on_error.into()),
            ("reads", Cell::Texts(reads(facts, relation))),
            ("sql", (&relation.sql).into()),
        ]);
    }
}

fn sinks(facts: &Facts, sheet: &mut Sheet) {
    for relation in facts.catalog.relations.values() {
        let RelationKind::Sink(sink) = &relation.kind else {
            continue;
        };
        let mut fare = facts.live.fare(relation.id);
        let report = facts.live.sink(relation.id);
        if let (None, Some(error)) = (&fare.reason, report.as_ref().and_then(|report| report.error.clone())) {
            fare = Fare {
                status: "retrying",
                reason: Some(error),
            };
        }
        let report = report.as_ref();
        sheet.row([
            ("id", relation.id.0.into()),
            ("schema", (&relation.schema).into()),
            ("name", (&relation.name).into()),
            ("status", fare.status.into()),
            ("reason", fare.reason.into()),
            ("connector", sink.options.get("connector").into()),
            ("position", report.map(|report| report.position.clone()).into()),
            ("rows", report.map(|report| report.rows).into()),
            ("outbox_rows", report.map(|report| report.outbox_rows).into()),
            ("sql", (&relation.sql).into()),
        ]);
    }
}

/// What a relation reads, by name.
fn reads(facts: &Facts, relation: &Relation) -> Vec<String> {
    relation
        .depends_on
        .iter()
        .filter_map(|id| facts.catalog.relations.get(id))
        .map(|other| super::name::shown(facts, &other.schema, &other.name))
        .collect()
}

fn sources(facts: &Facts, sheet: &mut Sheet) {
    for source in facts.live.sources() {
        let Some(relation) = source.relation.and_then(|id| facts.catalog.relations.get(&id)) else {
            continue;
        };
        let connector = match &relation.kind {
            RelationKind::Stream(stream) => stream.connector.get("connector"),
            _ => None,
        };
        sheet.row([
            (
                "stream",
                super::name::shown(facts, &relation.schema, &relation.name).into(),
            ),
            ("connector", connector.into()),
            ("state", source.state.into()),
            ("position", source.position.into()),
            ("total", source.total.into()),
            ("lag", source.lag.into()),
            ("unit", source.unit.into()),
            ("rows", source.rows.into()),
            ("rows_per_second", Cell::Float(source.rows_per_second)),
            ("backpressured", source.backpressured.into()),
        ]);
    }
}

fn operators(facts: &Facts, sheet: &mut Sheet) {
    for flow in &facts.inspected().flows {
        let Some(relation) = facts.catalog.relations.get(&flow.relation) else {
            continue;
        };
        let view = super::name::shown(facts, &relation.schema, &relation.name);
        for node in &flow.nodes {
            sheet.row([
                ("view", view.clone().into()),
                ("node", node.node.0.into()),
                ("operator", node.name.into()),
                ("rows_in", node.counters.rows_in.into()),
                ("rows_out", node.counters.rows_out.into()),
                ("busy_seconds", Cell::Float(node.counters.busy.as_secs_f64())),
                ("state_rows", node.resident_keys.into()),
                ("state_bytes", node.resident_bytes.into()),
                ("shared_with", Cell::Texts(Vec::new())),
            ]);
        }
    }
}

fn subscriptions(facts: &Facts, sheet: &mut Sheet) {
    for subscription in &facts.inspected().subscriptions {
        let Some(relation) = facts.catalog.relations.get(&subscription.relation) else {
            continue;
        };
        sheet.row([
            ("session", subscription.session.into()),
            (
                "relation",
                super::name::shown(facts, &relation.schema, &relation.name).into(),
            ),
            ("since_epoch", subscription.since.0.into()),
        ]);
    }
}

fn settings(facts: &Facts, sheet: &mut Sheet) {
    let variables = &facts.settings.variables;
    for setting in facts.live.settings() {
        let value = variables
            .get(&setting.name.to_lowercase())
            .or_else(|| variables.get(setting.name));
        sheet.row([
            ("name", setting.name.into()),
            (
                "value",
                value.map_or_else(|| setting.default.to_owned(), Clone::clone).into(),
            ),
            ("default", setting.default.into()),
            ("description", setting.description.into()),
        ]);
    }
    for (name, value) in &facts.catalog.settings {
        sheet.row([
            ("name", name.into()),
            ("value", value.into()),
            ("default", "".into()),
            ("description", "Set by ALTER SYSTEM.".into()),
        ]);
    }
}
