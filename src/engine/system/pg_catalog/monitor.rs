//! What is going on: settings, sessions, statistics.

use crate::engine::system::Facts;
use crate::engine::system::object::{self, DATABASE, OWNER};
use crate::engine::system::sheet::{Cell, Sheet};
use crate::types::Zone;

/// `pg_settings`.
pub(super) fn settings(facts: &Facts, sheet: &mut Sheet) {
    for setting in facts.live.settings() {
        let variables = &facts.settings.variables;
        let value = variables
            .get(&setting.name.to_lowercase())
            .or_else(|| variables.get(setting.name));
        let value = value.map_or_else(|| setting.default.to_owned(), Clone::clone);
        let kind = match value.as_str() {
            "on" | "off" => "bool",
            number if number.parse::<i64>().is_ok() => "integer",
            _ => "string",
        };
        let source = match (setting.context, value == setting.default) {
            ("internal", _) => "override",
            (_, true) => "default",
            (_, false) => "session",
        };
        sheet.row([
            ("name", setting.name.into()),
            ("setting", value.into()),
            ("category", "Headwater".into()),
            ("short_desc", setting.description.into()),
            ("context", setting.context.into()),
            ("vartype", kind.into()),
            ("source", source.into()),
            ("boot_val", setting.default.into()),
            ("reset_val", setting.default.into()),
            ("pending_restart", false.into()),
        ]);
    }
}

/// `pg_stat_activity`.
pub(super) fn activity(facts: &Facts, sheet: &mut Sheet) {
    let users = object::users(facts);
    for session in facts.live.sessions() {
        let user = users
            .iter()
            .find(|(_, name)| *name == session.user)
            .map_or(OWNER, |(oid, _)| *oid);
        sheet.row([
            ("datid", DATABASE.into()),
            ("datname", (&facts.settings.database).into()),
            ("pid", session.id.into()),
            ("usesysid", user.into()),
            ("usename", session.user.into()),
            ("backend_type", "client backend".into()),
        ]);
    }
}

/// `pg_stat_user_tables` and `pg_stat_all_tables`: which there are. Rows are not counted.
pub(super) fn tables(facts: &Facts, sheet: &mut Sheet) {
    for (relation, letter) in object::readable(&facts.catalog) {
        if letter != "v" {
            sheet.row([
                ("relid", relation.id.0.into()),
                ("schemaname", (&relation.schema).into()),
                ("relname", (&relation.name).into()),
            ]);
        }
    }
}

/// `pg_stat_database`.
pub(super) fn database(facts: &Facts, sheet: &mut Sheet) {
    sheet.row([
        ("datid", DATABASE.into()),
        ("datname", (&facts.settings.database).into()),
        ("numbackends", facts.live.sessions().len().into()),
        ("xact_commit", facts.live.epoch().0.into()),
        ("stats_reset", Cell::Micros(facts.live.started_micros())),
    ]);
}

/// `pg_timezone_names`: where the zones stand now is for `timezone()` to say.
pub(super) fn time_zones(sheet: &mut Sheet) {
    for name in Zone::names() {
        sheet.row([("name", name.into())]);
    }
}
