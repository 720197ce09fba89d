//! Relations, their columns, keys, defaults and rules.

use super::kind;
use crate::catalog::{Relation, RelationKind};
use crate::engine::system::Facts;
use crate::engine::system::definition::{self, SystemColumn};
use crate::engine::system::object::{self, BTREE, CLASS, HEAP, OWNER, REWRITE};
use crate::engine::system::sheet::{Cell, Sheet};
use crate::types::{Nullability, Type};

/// A line of `pg_class`, of which the rest is the same for all.
struct Class<'a> {
    oid: i64,
    name: &'a str,
    schema: &'a str,
    letter: &'static str,
    method: i64,
    columns: usize,
    indexed: bool,
    ruled: bool,
    populated: bool,
    options: Option<Vec<String>>,
}

fn class(sheet: &mut Sheet, class: Class<'_>) {
    sheet.row([
        ("oid", class.oid.into()),
        ("relname", class.name.to_owned().into()),
        ("relnamespace", object::schema_oid(class.schema).into()),
        ("relowner", OWNER.into()),
        ("relam", class.method.into()),
        (
            "relfilenode",
            if matches!(class.letter, "v") { 0 } else { class.oid }.into(),
        ),
        ("reltuples", Cell::Int(-1)),
        ("relhasindex", class.indexed.into()),
        ("relpersistence", "p".into()),
        ("relkind", class.letter.into()),
        ("relnatts", class.columns.into()),
        ("relhasrules", class.ruled.into()),
        ("relispopulated", class.populated.into()),
        (
            "relreplident",
            if matches!(class.letter, "r" | "m") { "d" } else { "n" }.into(),
        ),
        ("reloptions", class.options.map_or(Cell::Null, Cell::Texts)),
    ]);
}

/// `pg_class`: the system's relations, the user's, and the indexes.
pub(super) fn classes(facts: &Facts, sheet: &mut Sheet) {
    for relation in definition::all() {
        class(
            sheet,
            Class {
                oid: relation.oid,
                name: relation.name,
                schema: relation.schema,
                letter: relation.kind,
                method: if relation.kind == "r" { HEAP } else { 0 },
                columns: relation.columns.len(),
                indexed: false,
                ruled: relation.kind == "v",
                populated: true,
                options: None,
            },
        );
    }
    let indexes = object::indexes(&facts.catalog);
    for (relation, letter) in object::readable(&facts.catalog) {
        class(
            sheet,
            Class {
                oid: i64::from(relation.id.0),
                name: &relation.name,
                schema: &relation.schema,
                letter,
                method: if letter == "v" { 0 } else { HEAP },
                columns: relation.columns.len(),
                indexed: indexes.iter().any(|index| index.on.id == relation.id),
                ruled: matches!(letter, "v" | "m"),
                populated: facts.live.fare(relation.id).status != "building",
                options: options(relation),
            },
        );
    }
    for index in &indexes {
        class(
            sheet,
            Class {
                oid: index.oid,
                name: &index.name,
                schema: &index.on.schema,
                letter: "i",
                method: BTREE,
                columns: index.columns.len(),
                indexed: false,
                ruled: false,
                populated: true,
                options: None,
            },
        );
    }
}

/// What a relation was made `WITH`.
fn options(relation: &Relation) -> Option<Vec<String>> {
    let given = match &relation.kind {
        RelationKind::Stream(stream) => &stream.connector,
        RelationKind::MaterializedView(view) => &view.options,
        _ => return None,
    };
    let options: Vec<String> = given
        .iter()
        .filter(|(name, _)| *name != "time_zone")
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    (!options.is_empty()).then_some(options)
}

/// A column, as `pg_attribute` describes it.
struct Attribute<'a> {
    relation: i64,
    number: usize,
    name: &'a str,
    kind: &'a Type,
    nullability: Nullability,
    has_default: bool,
    generated: bool,
}

fn attribute(sheet: &mut Sheet, attribute: Attribute<'_>) {
    let oid = i64::from(attribute.kind.oid());
    let known = kind::find(oid);
    sheet.row([
        ("attrelid", attribute.relation.into()),
        ("attname", attribute.name.to_owned().into()),
        ("atttypid", oid.into()),
        ("attstattarget", Cell::Int(-1)),
        ("attlen", Cell::Int(i64::from(attribute.kind.length()))),
        ("attnum", attribute.number.into()),
        (
            "attndims",
            Cell::Int(i64::from(matches!(attribute.kind, Type::Array(_)))),
        ),
        ("attcacheoff", Cell::Int(-1)),
        ("atttypmod", attribute.kind.modifier().into()),
        ("attbyval", known.is_some_and(|known| known.by_value).into()),
        ("attalign", known.map_or("i", |known| known.align).into()),
        ("attstorage", known.map_or("x", |known| known.storage).into()),
        ("attnotnull", (attribute.nullability == Nullability::NotNull).into()),
        ("atthasdef", attribute.has_default.into()),
        ("attgenerated", if attribute.generated { "s" } else { "" }.into()),
        ("attislocal", true.into()),
        ("attcollation", known.map_or(0, |known| known.collation).into()),
    ]);
}

/// `pg_attribute`.
pub(super) fn attributes(facts: &Facts, sheet: &mut Sheet) {
    for relation in definition::all() {
        for (
            index,
            SystemColumn {
                name,
                kind,
                nullability,
            },
        ) in relation.columns.iter().enumerate()
        {
            attribute(
                sheet,
                Attribute {
                    relation: relation.oid,
                    number: index + 1,
                    name,
                    kind,
                    nullability: *nullability,
                    has_default: false,
                    generated: false,
                },
            );
        }
    }
    for (relation, _) in object::readable(&facts.catalog) {
        let key = object::key_of(relation);
        for (index, column) in relation.columns.iter().enumerate() {
            let not_null = column.not_null || key.contains(&index);
            attribute(
                sheet,
                Attribute {
                    relation: i64::from(relation.id.0),
                    number: index + 1,
                    name: &column.name,
                    kind: &column.kind,
                    nullability: if not_null {
                        Nullability::NotNull
                    } else {
                        Nullability::Nullable
                    },
                    has_default: column.default.is_some() || column.generated.is_some(),
                    generated: column.generated.is_some(),
                },
            );
        }
    }
    for index in object::indexes(&facts.catalog) {
        for (position, column) in index.columns.iter().enumerate() {
            let Some(column) = index.on.columns.get(*column) else {
                continue;
            };
            attribute(
                sheet,
                Attribute {
                    relation: index.oid,
                    number: position + 1,
                    name: &column.name,
                    kind: &column.kind,
                    nullability: Nullability::Nullable,
                    has_default: false,
                    generated: false,
                },
            );
        }
    }
}

/// `pg_attrdef`: an expression is its text, which `pg_get_expr` gives back.
pub(super) fn defaults(facts: &Facts, sheet: &mut Sheet) {
    for relation in facts.catalog.relations.values() {
        for (index, column) in relation.columns.iter().enumerate() {
            if let Some(text) = column.generated.as_ref().or(column.default.as_ref()) {
                sheet.row([
                    ("oid", object::default(relation.id, index + 1).into()),
                    ("adrelid", relation.id.0.into()),
                    ("adnum", (index + 1).into()),
                    ("adbin", text.into()),
                ]);
            }
        }
    }
}

fn numbers(columns: &[usize]) -> Cell {
    Cell::Ints(columns.iter().map(|column| *column as i64 + 1).collect())
}

/// `pg_index`.
pub(super) fn indexes(facts: &Facts, sheet: &mut Sheet) {
    for index in object::indexes(&facts.catalog) {
        let kinds: Vec<&Type> = index
            .columns
            .iter()
            .filter_map(|column| Some(&index.on.columns.get(*column)?.kind))
            .collect();
        let collation = |kind: &&Type| kind::find(i64::from(kind.oid())).map_or(0, |known| known.collation);
        sheet.row([
            ("indexrelid", index.oid.into()),
            ("indrelid", index.on.id.0.into()),
            ("indnatts", index.columns.len().into()),
            ("indnkeyatts", index.columns.len().into()),
            ("indisunique", index.is_key.into()),
            ("indisprimary", index.is_key.into()),
            ("indimmediate", true.into()),
            ("indisvalid", true.into()),
            ("indisready", true.into()),
            ("indislive", true.into()),
            ("indkey", numbers(&index.columns)),
            ("indcollation", Cell::Ints(kinds.iter().map(collation).collect())),
            (
                "indclass",
                Cell::Ints(kinds.iter().map(|kind| kind::operator_class(kind)).collect()),
            ),
            ("indoption", Cell::Ints(vec![0; index.columns.len()])),
        ]);
    }
}

/// `pg_constraint`: the keys.
pub(super) fn constraints(facts: &Facts, sheet: &mut Sheet) {
    for relation in facts.catalog.relations.values() {
        let key = object::key_of(relation);
        if key.is_empty() {
            continue;
        }
        sheet.row([
            ("oid", object::key_constraint(relation.id).into()),
            ("conname", object::key_name(relation).into()),
            ("connamespace", object::schema_oid(&relation.schema).into()),
            ("contype", "p".into()),
            ("convalidated", true.into()),
            ("conrelid", relation.id.0.into()),
            ("conindid", object::key_index(relation.id).into()),
            ("confupdtype", " ".into()),
            ("confdeltype", " ".into()),
            ("confmatchtype", " ".into()),
            ("conislocal", true.into()),
            ("connoinherit", true.into()),
            ("conkey", numbers(key)),
        ]);
    }
}

/// `pg_rewrite`: the rule that makes each view a view.
pub(super) fn rules(facts: &Facts, sheet: &mut Sheet) {
    for (relation, letter) in object::readable(&facts.catalog) {
        if matches!(letter, "v" | "m") {
            sheet.row([
                ("oid", object::rule(relation.id).into()),
                ("rulename", "_RETURN".into()),
                ("ev_class", relation.id.0.into()),
                ("ev_type", "1".into()),
                ("ev_enabled", "O".into()),
                ("is_instead", true.into()),
            ]);
        }
    }
}

/// `pg_depend`: a view's rule depends on what the view reads, and belongs to the view.
pub(super) fn dependencies(facts: &Facts, sheet: &mut Sheet) {
    let mut depend = |rule: i64, on: u32, how: &'static str| {
        sheet.row([
            ("classid", REWRITE.into()),
            ("objid", rule.into()),
            ("refclassid", CLASS.into()),
            ("refobjid", on.into()),
            ("deptype", how.into()),
        ]);
    };
    for (relation, letter) in object::readable(&facts.catalog) {
        if matches!(letter, "v" | "m") {
            depend(object::rule(relation.id), relation.id.0, "i");
            for on in &relation.depends_on {
                depend(object::rule(relation.id), on.0, "n");
            }
        }
    }
}
