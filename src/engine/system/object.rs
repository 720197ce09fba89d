//! The numbers of objects that have none of their own, and what stands beside a relation: key indexes, owners.
//!
//! A relation's number is its own. What hangs on it is numbered from it, in ranges that do not meet: the index of a
//! key, its constraint, the rule of a view, the default of a column. Schemas and users are numbered by their names.

use super::Facts;
use crate::catalog::{Catalog, Relation, RelationId, RelationKind};
use std::sync::Arc;

/// The owner of everything.
pub(super) const OWNER: i64 = 10;
/// The owner's name.
pub(super) const OWNER_NAME: &str = "headwater";
/// The one database's number.
pub(super) const DATABASE: i64 = 5;
/// `pg_class`.
pub(super) const CLASS: i64 = 1259;
/// `pg_rewrite`.
pub(super) const REWRITE: i64 = 2618;
/// `pg_proc`.
pub(super) const PROCEDURE: i64 = 1255;
/// The schema `pg_catalog`.
pub(super) const PG_CATALOG: i64 = 11;
/// The access method of tables.
pub(super) const HEAP: i64 = 2;
/// The access method of indexes.
pub(super) const BTREE: i64 = 403;

const KEY_INDEXES: i64 = 1 << 30;
const KEY_CONSTRAINTS: i64 = KEY_INDEXES + (1 << 28);
const RULES: i64 = KEY_INDEXES + (2 << 28);
const DEFAULTS: i64 = 2 << 30;
const NAMED: i64 = 3 << 30;

/// The index of a table's key.
pub(super) fn key_index(table: RelationId) -> i64 {
    KEY_INDEXES + i64::from(table.0)
}

/// The constraint of a table's key.
pub(super) fn key_constraint(table: RelationId) -> i64 {
    KEY_CONSTRAINTS + i64::from(table.0)
}

/// The rule that makes a view a view.
pub(super) fn rule(view: RelationId) -> i64 {
    RULES + i64::from(view.0)
}

/// The default of a column.
pub(super) fn default(relation: RelationId, number: usize) -> i64 {
    (DEFAULTS + i64::from(relation.0) * 2048 + number as i64) & 0xbfff_ffff
}

/// The number of something that has only a name: FNV-1a in the last quarter of the numbers.
fn named(name: &str) -> i64 {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    NAMED + i64::from(hash >> 2)
}

/// The schemas: number and name.
pub(super) fn schemas(catalog: &Catalog) -> Vec<(i64, String)> {
    let fixed = [
        (PG_CATALOG, "pg_catalog"),
        (2200, "public"),
        (13207, "information_schema"),
        (13900, "headwater"),
    ];
    let own = catalog.schemas.iter().map(|name| (named(name), name.clone()));
    fixed
        .into_iter()
        .map(|(oid, name)| (oid, name.to_owned()))
        .chain(own)
        .collect()
}

/// The number of a schema.
pub(super) fn schema_oid(name: &str) -> i64 {
    match name {
        "pg_catalog" => PG_CATALOG,
        "public" => 2200,
        "information_schema" => 13207,
        "headwater" => 13900,
        other => named(other),
    }
}

/// The users: number and name. The session's is among them, and the owner of everything.
pub(super) fn users(facts: &Facts) -> Vec<(i64, String)> {
    let mut names: Vec<&str> = facts.catalog.users.keys().map(String::as_str).collect();
    if !names.contains(&facts.settings.user.as_str()) {
        names.push(&facts.settings.user);
    }
    let mut users = vec![(OWNER, OWNER_NAME.to_owned())];
    users.extend(
        names
            .into_iter()
            .filter(|name| *name != OWNER_NAME)
            .map(|name| (named(name), name.to_owned())),
    );
    users
}

/// The columns of a table's key; none for a bag and for what is no table.
pub(super) fn key_of(relation: &Relation) -> &[usize] {
    match &relation.kind {
        RelationKind::Table { primary_key } => primary_key,
        _ => &[],
    }
}

/// The name of the index and of the constraint of a table's key, in the 63 bytes of a name.
pub(super) fn key_name(table: &Relation) -> String {
    let mut end = table.name.len().min(58);
    while !table.name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}_pkey", &table.name[..end])
}

/// An index: that of a key, or one that was made.
pub(super) struct Index {
    /// Its number.
    pub(super) oid: i64,
    /// Its name.
    pub(super) name: String,
    /// The relation that it is on.
    pub(super) on: Arc<Relation>,
    /// The columns of that, by position.
    pub(super) columns: Vec<usize>,
    /// Whether it is a key's.
    pub(super) is_key: bool,
}

/// All indexes.
pub(super) fn indexes(catalog: &Catalog) -> Vec<Index> {
    let mut indexes = Vec::new();
    for relation in catalog.relations.values() {
        let key = key_of(relation);
        if !key.is_empty() {
            indexes.push(Index {
                oid: key_index(relation.id),
                name: key_name(relation),
                on: relation.clone(),
                columns: key.to_vec(),
                is_key: true,
            });
        }
        if let RelationKind::Index { on, columns } = &relation.kind
            && let Some(on) = catalog.relations.get(on)
        {
            indexes.push(Index {
                oid: i64::from(relation.id.0),
                name: relation.name.clone(),
                on: on.clone(),
                columns: columns.clone(),
                is_key: false,
            });
        }
    }
    indexes
}

/// The letter of a relation in `pg_class`; none for what has no rows.
pub(super) fn letter(relation: &Relation) -> Option<&'static str> {
    match relation.kind {
        RelationKind::Stream(_) | RelationKind::Table { .. } => Some("r"),
        RelationKind::View { .. } => Some("v"),
        RelationKind::MaterializedView(_) => Some("m"),
        RelationKind::Index { .. } | RelationKind::Sink(_) => None,
    }
}

/// The relations that have rows, with their letters.
pub(super) fn readable(catalog: &Catalog) -> impl Iterator<Item = (&Arc<Relation>, &'static str)> {
    catalog
        .relations
        .values()
        .filter_map(|relation| Some((relation, letter(relation)?)))
}

/// The text of a view's query.
pub(super) fn query_of(relation: &Relation) -> Option<&str> {
    match &relation.kind {
        RelationKind::View { query } => Some(query),
        RelationKind::MaterializedView(view) => Some(&view.query),
        _ => None,
    }
}
