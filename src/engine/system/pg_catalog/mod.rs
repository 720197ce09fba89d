//! The rows of `pg_catalog`.
//!
//! A relation that is not listed here is empty: there is nothing of its kind.

mod class;
pub(super) mod kind;
mod monitor;
pub(super) mod procedure;
mod shared;
mod view;

use super::Facts;
use super::sheet::Sheet;

/// Writes the rows of a relation.
pub(super) fn fill(facts: &Facts, name: &str, sheet: &mut Sheet) {
    match name {
        "pg_class" => class::classes(facts, sheet),
        "pg_attribute" => class::attributes(facts, sheet),
        "pg_attrdef" => class::defaults(facts, sheet),
        "pg_index" => class::indexes(facts, sheet),
        "pg_constraint" => class::constraints(facts, sheet),
        "pg_rewrite" => class::rules(facts, sheet),
        "pg_depend" => class::dependencies(facts, sheet),
        "pg_type" => kind::types(sheet),
        "pg_proc" => procedure::procedures(sheet),
        "pg_description" => procedure::descriptions(sheet),
        "pg_namespace" => shared::schemas(facts, sheet),
        "pg_database" => shared::databases(facts, sheet),
        "pg_roles" | "pg_user" | "pg_shadow" | "pg_authid" => shared::users(facts, name, sheet),
        "pg_am" => shared::access_methods(sheet),
        "pg_collation" => shared::collations(sheet),
        "pg_language" => shared::languages(sheet),
        "pg_extension" => shared::extensions(sheet),
        "pg_tablespace" => shared::tablespaces(sheet),
        "pg_opclass" => shared::operator_classes(sheet),
        "pg_tables" => view::tables(facts, sheet),
        "pg_views" => view::views(facts, sheet),
        "pg_matviews" => view::materialized_views(facts, sheet),
        "pg_indexes" => view::indexes(facts, sheet),
        "pg_rules" => {}
        "pg_settings" => monitor::settings(facts, sheet),
        "pg_stat_activity" => monitor::activity(facts, sheet),
        "pg_stat_user_tables" | "pg_stat_all_tables" => monitor::tables(facts, sheet),
        "pg_stat_database" => monitor::database(facts, sheet),
        "pg_timezone_names" => monitor::time_zones(sheet),
        _ => {}
    }
}
