//! The rows of `information_schema`.
//!
//! As in PostgreSQL, with one difference: materialized views are listed, as `MATERIALIZED VIEW`, since they are what
//! there is to look at. A relation that is not listed here is empty.

use super::Facts;
use super::definition;
use super::describe;
use super::object::{self, OWNER_NAME};
use super::pg_catalog::{kind, procedure};
use super::sheet::{Cell, Sheet};
use crate::catalog::Relation;
use crate::types::{Nullability, Type};

/// Writes the rows of a relation.
pub(super) fn fill(facts: &Facts, name: &str, sheet: &mut Sheet) {
    match name {
        "information_schema_catalog_name" => sheet.row([("catalog_name", (&facts.settings.database).into())]),
        "schemata" => schemata(facts, sheet),
        "tables" => tables(facts, sheet),
        "columns" => columns(facts, sheet),
        "views" => views(facts, sheet),
        "table_constraints" => table_constraints(facts, sheet),
        "key_column_usage" => key_column_usage(facts, sheet),
        "constraint_column_usage" => constraint_column_usage(facts, sheet),
        "constraint_table_usage" => constraint_table_usage(facts, sheet),
        "view_table_usage" => view_table_usage(facts, sheet),
        "routines" => routines(facts, sheet),
        "enabled_roles" | "applicable_roles" => {
            for (_, user) in object::users(facts) {
                match name {
                    "enabled_roles" => sheet.row([("role_name", user.into())]),
                    _ => sheet.row([("grantee", user.clone().into()), ("role_name", user.into())]),
                }
            }
        }
        "character_sets" => sheet.row([
            ("character_set_name", "UTF8".into()),
            ("character_repertoire", "UCS".into()),
            ("form_of_use", "UTF8".into()),
            ("default_collate_catalog", (&facts.settings.database).into()),
            ("default_collate_schema", "pg_catalog".into()),
            ("default_collate_name", "C".into()),
        ]),
        "collations" => {
            for collation in ["default", "C", "POSIX"] {
                sheet.row([
                    ("collation_catalog", (&facts.settings.database).into()),
                    ("collation_schema", "pg_catalog".into()),
                    ("collation_name", collation.into()),
                    ("pad_attribute", "NO PAD".into()),
                ]);
            }
        }
        _ => {}
    }
}

fn schemata(facts: &Facts, sheet: &mut Sheet) {
    for (_, name) in object::schemas(&facts.catalog) {
        sheet.row([
            ("catalog_name", (&facts.settings.database).into()),
            ("schema_name", name.into()),
            ("schema_owner", OWNER_NAME.into()),
        ]);
    }
}

fn table_type(letter: &str) -> &'static str {
    match letter {
        "r" => "BASE TABLE",
        "m" => "MATERIALIZED VIEW",
        _ => "VIEW",
    }
}

fn tables(facts: &Facts, sheet: &mut Sheet) {
    let mut table = |schema: String, name: String, letter: &str| {
        sheet.row([
            ("table_catalog", (&facts.settings.database).into()),
            ("table_schema", schema.into()),
            ("table_name", name.into()),
            ("table_type", table_type(letter).into()),
            ("is_insertable_into", if letter == "r" { "YES" } else { "NO" }.into()),
            ("is_typed", "NO".into()),
        ]);
    };
    for relation in definition::all() {
        table(relation.schema.to_owned(), relation.name.to_owned(), relation.kind);
    }
    for (relation, letter) in object::readable(&facts.catalog) {
        table(relation.schema.clone(), relation.name.clone(), letter);
    }
}

/// A column, as `information_schema.columns` describes it.
struct Described<'a> {
    schema: &'a str,
    table: &'a str,
    name: &'a str,
    position: usize,
    kind: &'a Type,
    nullability: Nullability,
    default: Option<&'a String>,
    generated: Option<&'a String>,
    updatable: bool,
}

/// Digits, their base and the digits after the point of a number's type.
fn digits(kind: &Type) -> (Option<i64>, Option<i64>, Option<i64>) {
    match kind {
        Type::Int2 => (Some(16), Some(2), Some(0)),
        Type::Int4 => (Some(32), Some(2), Some(0)),
        Type::Int8 => (Some(64), Some(2), Some(0)),
        Type::Float4 => (Some(24), Some(2), None),
        Type::Float8 => (Some(53), Some(2), None),
        Type::Numeric(Some((precision, scale))) => (Some(i64::from(*precision)), Some(10), Some(i64::from(*scale))),
        Type::Numeric(None) | Type::Quotient => (None, Some(10), None),
        _ => (None, None, None),
    }
}

fn column(facts: &Facts, sheet: &mut Sheet, column: Described<'_>) {
    let kind = column.kind;
    let (precision, radix, scale) = digits(kind);
    let (length, octets) = match kind {
        Type::Varchar(Some(length)) | Type::Char(Some(length)) => {
            (Some(i64::from(*length)), Some(i64::from(*length) * 4))
        }
        Type::Text | Type::Varchar(None) => (None, Some(1 << 30)),
        _ => (None, None),
    };
    let fraction = match kind {
        Type::Timestamp(digits) | Type::Timestamptz(digits) => Some(i64::from(digits.unwrap_or(6))),
        Type::Time | Type::Interval => Some(6),
        Type::Date => Some(0),
        _ => None,
    };
    // Of an array only that it is one; the element is found by `udt_name`.
    let data_type = match kind {
        Type::Array(_) => "ARRAY".to_owned(),
        other => super::name::type_name(i64::from(other.oid()), None),
    };
    let yes_no = |yes: bool| Cell::from(if yes { "YES" } else { "NO" });
    sheet.row([
        ("table_catalog", (&facts.settings.database).into()),
        ("table_schema", column.schema.to_owned().into()),
        ("table_name", column.table.to_owned().into()),
        ("column_name", column.name.to_owned().into()),
        ("ordinal_position", column.position.into()),
        ("column_default", column.default.into()),
        ("is_nullable", yes_no(column.nullability == Nullability::Nullable)),
        ("data_type", data_type.into()),
        ("character_maximum_length", length.into()),
        ("character_octet_length", octets.into()),
        ("numeric_precision", precision.into()),
        ("numeric_precision_radix", radix.into()),
        ("numeric_scale", scale.into()),
        ("datetime_precision", fraction.into()),
        ("udt_catalog", (&facts.settings.database).into()),
        ("udt_schema", "pg_catalog".into()),
        (
            "udt_name",
            kind::find(i64::from(kind.oid())).map(|known| known.name).into(),
        ),
        ("dtd_identifier", column.position.to_string().into()),
        ("is_self_referencing", "NO".into()),
        ("is_identity", "NO".into()),
        ("identity_cycle", "NO".into()),
        (
            "is_generated",
            if column.generated.is_some() { "ALWAYS" } else { "NEVER" }.into(),
        ),
        ("generation_expression", column.generated.into()),
        ("is_updatable", yes_no(column.updatable)),
    ]);
}

fn columns(facts: &Facts, sheet: &mut Sheet) {
    for relation in definition::all() {
        for (index, own) in relation.columns.iter().enumerate() {
            column(
                facts,
                sheet,
                Described {
                    schema: relation.schema,
                    table: relation.name,
                    name: own.name,
                    position: index + 1,
                    kind: &own.kind,
                    nullability: own.nullability,
                    default: None,
                    generated: None,
                    updatable: false,
                },
            );
        }
    }
    for (relation, letter) in object::readable(&facts.catalog) {
        let key = object::key_of(relation);
        for (index, own) in relation.columns.iter().enumerate() {
            let not_null = own.not_null || key.contains(&index);
            column(
                facts,
                sheet,
                Described {
                    schema: &relation.schema,
                    table: &relation.name,
                    name: &own.name,
                    position: index + 1,
                    kind: &own.kind,
                    nullability: if not_null {
                        Nullability::NotNull
                    } else {
                        Nullability::Nullable
                    },
                    default: own.default.as_ref(),
                    generated: own.generated.as_ref(),
                    updatable: letter == "r",
                },
            );
        }
    }
}

fn views(facts: &Facts, sheet: &mut Sheet) {
    for (relation, letter) in object::readable(&facts.catalog) {
        if letter == "v" {
            sheet.row([
                ("table_catalog", (&facts.settings.database).into()),
                ("table_schema", (&relation.schema).into()),
                ("table_name", (&relation.name).into()),
                ("view_definition", describe::view_text(relation).into()),
                ("check_option", "NONE".into()),
                ("is_updatable", "NO".into()),
                ("is_insertable_into", "NO".into()),
                ("is_trigger_updatable", "NO".into()),
                ("is_trigger_deletable", "NO".into()),
                ("is_trigger_insertable_into", "NO".into()),
            ]);
        }
    }
}

/// The tables with keys.
fn keyed(facts: &Facts) -> impl Iterator<Item = &Relation> {
    facts
        .catalog
        .relations
        .values()
        .map(AsRef::as_ref)
        .filter(|relation| !object::key_of(relation).is_empty())
}

fn table_constraints(facts: &Facts, sheet: &mut Sheet) {
    for relation in keyed(facts) {
        sheet.row([
            ("constraint_catalog", (&facts.settings.database).into()),
            ("constraint_schema", (&relation.schema).into()),
            ("constraint_name", object::key_name(relation).into()),
            ("table_catalog", (&facts.settings.database).into()),
            ("table_schema", (&relation.schema).into()),
            ("table_name", (&relation.name).into()),
            ("constraint_type", "PRIMARY KEY".into()),
            ("is_deferrable", "NO".into()),
            ("initially_deferred", "NO".into()),
            ("enforced", "YES".into()),
        ]);
    }
}

fn key_column_usage(facts: &Facts, sheet: &mut Sheet) {
    for relation in keyed(facts) {
        for (index, column) in object::key_of(relation).iter().enumerate() {
            sheet.row([
                ("constraint_catalog", (&facts.settings.database).into()),
                ("constraint_schema", (&relation.schema).into()),
                ("constraint_name", object::key_name(relation).into()),
                ("table_catalog", (&facts.settings.database).into()),
                ("table_schema", (&relation.schema).into()),
                ("table_name", (&relation.name).into()),
                (
                    "column_name",
                    relation.columns.get(*column).map(|column| &column.name).into(),
                ),
                ("ordinal_position", (index + 1).into()),
            ]);
        }
    }
}

fn constraint_column_usage(facts: &Facts, sheet: &mut Sheet) {
    for relation in keyed(facts) {
        for column in object::key_of(relation) {
            sheet.row([
                ("table_catalog", (&facts.settings.database).into()),
                ("table_schema", (&relation.schema).into()),
                ("table_name", (&relation.name).into()),
                (
                    "column_name",
                    relation.columns.get(*column).map(|column| &column.name).into(),
                ),
                ("constraint_catalog", (&facts.settings.database).into()),
                ("constraint_schema", (&relation.schema).into()),
                ("constraint_name", object::key_name(relation).into()),
            ]);
        }
    }
}

fn constraint_table_usage(facts: &Facts, sheet: &mut Sheet) {
    for relation in keyed(facts) {
        sheet.row([
            ("table_catalog", (&facts.settings.database).into()),
            ("table_schema", (&relation.schema).into()),
            ("table_name", (&relation.name).into()),
            ("constraint_catalog", (&facts.settings.database).into()),
            ("constraint_schema", (&relation.schema).into()),
            ("constraint_name", object::key_name(relation).into()),
        ]);
    }
}

fn view_table_usage(facts: &Facts, sheet: &mut Sheet) {
    for (relation, letter) in object::readable(&facts.catalog) {
        for on in relation.depends_on.iter().filter(|_| letter == "v") {
            let Some(on) = facts.catalog.relations.get(on) else {
                continue;
            };
            sheet.row([
                ("view_catalog", (&facts.settings.database).into()),
                ("view_schema", (&relation.schema).into()),
                ("view_name", (&relation.name).into()),
                ("table_catalog", (&facts.settings.database).into()),
                ("table_schema", (&on.schema).into()),
                ("table_name", (&on.name).into()),
            ]);
        }
    }
}

fn routines(facts: &Facts, sheet: &mut Sheet) {
    for known in procedure::all() {
        let specific = format!("{}_{}", known.name, known.oid);
        sheet.row([
            ("specific_catalog", (&facts.settings.database).into()),
            ("specific_schema", "pg_catalog".into()),
            ("specific_name", specific.into()),
            ("routine_catalog", (&facts.settings.database).into()),
            ("routine_schema", "pg_catalog".into()),
            ("routine_name", known.name.into()),
            ("routine_type", "FUNCTION".into()),
            ("data_type", super::name::type_name(known.result, None).into()),
            ("routine_body", "EXTERNAL".into()),
            ("external_language", "INTERNAL".into()),
        ]);
    }
}
