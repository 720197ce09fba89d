//! The views over the catalog that are easier to read than its tables.

use crate::catalog::Relation;
use crate::engine::system::Facts;
use crate::engine::system::definition;
use crate::engine::system::describe;
use crate::engine::system::object::{self, OWNER_NAME};
use crate::engine::system::sheet::Sheet;
use std::sync::Arc;

/// `pg_tables`: streams are tables.
pub(super) fn tables(facts: &Facts, sheet: &mut Sheet) {
    for relation in definition::all().iter().filter(|relation| relation.kind == "r") {
        sheet.row([
            ("schemaname", relation.schema.into()),
            ("tablename", relation.name.into()),
            ("tableowner", OWNER_NAME.into()),
        ]);
    }
    for relation in of_letter(facts, "r") {
        sheet.row([
            ("schemaname", (&relation.schema).into()),
            ("tablename", (&relation.name).into()),
            ("tableowner", OWNER_NAME.into()),
            ("hasindexes", (!object::key_of(relation).is_empty()).into()),
        ]);
    }
}

/// `pg_views`.
pub(super) fn views(facts: &Facts, sheet: &mut Sheet) {
    for relation in definition::all().iter().filter(|relation| relation.kind == "v") {
        sheet.row([
            ("schemaname", relation.schema.into()),
            ("viewname", relation.name.into()),
            ("viewowner", OWNER_NAME.into()),
        ]);
    }
    for relation in of_letter(facts, "v") {
        sheet.row([
            ("schemaname", (&relation.schema).into()),
            ("viewname", (&relation.name).into()),
            ("viewowner", OWNER_NAME.into()),
            ("definition", describe::view_text(relation).into()),
        ]);
    }
}

/// `pg_matviews`.
pub(super) fn materialized_views(facts: &Facts, sheet: &mut Sheet) {
    let indexes = object::indexes(&facts.catalog);
    for relation in of_letter(facts, "m") {
        sheet.row([
            ("schemaname", (&relation.schema).into()),
            ("matviewname", (&relation.name).into()),
            ("matviewowner", OWNER_NAME.into()),
            (
                "hasindexes",
                indexes.iter().any(|index| index.on.id == relation.id).into(),
            ),
            (
                "ispopulated",
                (facts.live.fare(relation.id).status != "building").into(),
            ),
            ("definition", describe::view_text(relation).into()),
        ]);
    }
}

/// `pg_indexes`.
pub(super) fn indexes(facts: &Facts, sheet: &mut Sheet) {
    for index in object::indexes(&facts.catalog) {
        sheet.row([
            ("schemaname", (&index.on.schema).into()),
            ("tablename", (&index.on.name).into()),
            ("indexname", (&index.name).into()),
            ("indexdef", describe::index_text(&index).into()),
        ]);
    }
}

fn of_letter<'a>(facts: &'a Facts, wanted: &'static str) -> impl Iterator<Item = &'a Arc<Relation>> {
    object::readable(&facts.catalog)
        .filter(move |(_, letter)| *letter == wanted)
        .map(|(relation, _)| relation)
}
