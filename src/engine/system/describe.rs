//! Definitions as text: what `pg_get_viewdef`, `pg_get_indexdef` and their like give.

use super::object::{self, Index};
use super::pg_catalog::procedure::Procedure;
use super::{Facts, name};
use crate::catalog::Relation;

/// The words that must be quoted to be names, as PostgreSQL has them.
fn is_reserved(word: &str) -> bool {
    include_str!("pg_catalog/keywords.txt")
        .lines()
        .filter_map(|line| line.split_once(' '))
        .any(|(known, rest)| known == word && !rest.starts_with('U'))
}

/// A name as it must be written.
pub(super) fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !is_reserved(name);
    if plain {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// A view's query as PostgreSQL gives it: after a blank, ending in a semicolon.
pub(super) fn view_text(relation: &Relation) -> Option<String> {
    object::query_of(relation).map(|query| format!(" {};", query.trim().trim_end_matches(';')))
}

/// The columns of an index, in parentheses.
fn columns_text(index: &Index) -> String {
    let names: Vec<String> = index
        .columns
        .iter()
        .filter_map(|column| Some(quoted(&index.on.columns.get(*column)?.name)))
        .collect();
    format!("({})", names.join(", "))
}

/// The statement that makes an index.
pub(super) fn index_text(index: &Index) -> String {
    format!(
        "CREATE {}INDEX {} ON {}.{} USING btree {}",
        if index.is_key { "UNIQUE " } else { "" },
        quoted(&index.name),
        quoted(&index.on.schema),
        quoted(&index.on.name),
        columns_text(index),
    )
}

/// An index by its number: all of it for column 0, else the column of that number.
pub(super) fn index_by_number(facts: &Facts, number: i64, column: i64) -> Option<String> {
    let index = object::indexes(&facts.catalog)
        .into_iter()
        .find(|index| index.oid == number)?;
    if column == 0 {
        return Some(index_text(&index));
    }
    let position = usize::try_from(column - 1).ok()?;
    let name = index
        .columns
        .get(position)
        .and_then(|column| index.on.columns.get(*column))
        .map(|column| &column.name);
    Some(name.map_or_else(String::new, |name| quoted(name)))
}

/// A constraint by its number.
pub(super) fn constraint_text(facts: &Facts, number: i64) -> Option<String> {
    let relation = facts
        .catalog
        .relations
        .values()
        .find(|relation| object::key_constraint(relation.id) == number)?;
    let key = object::key_of(relation);
    let names: Vec<String> = key
        .iter()
        .filter_map(|column| Some(quoted(&relation.columns.get(*column)?.name)))
        .collect();
    (!names.is_empty()).then(|| format!("PRIMARY KEY ({})", names.join(", ")))
}

/// The rule of a view by its number.
pub(super) fn rule_text(facts: &Facts, number: i64) -> Option<String> {
    let relation = facts
        .catalog
        .relations
        .values()
        .find(|relation| object::rule(relation.id) == number && object::query_of(relation).is_some())?;
    Some(format!(
        "CREATE RULE \"_RETURN\" AS\n    ON SELECT TO {}.{} DO INSTEAD {}",
        quoted(&relation.schema),
        quoted(&relation.name),
        view_text(relation)?,
    ))
}

/// The types of a function's arguments.
pub(super) fn arguments_text(procedure: &Procedure) -> String {
    let names: Vec<String> = procedure
        .arguments
        .iter()
        .map(|kind| name::type_name(*kind, None))
        .collect();
    names.join(", ")
}

/// The type of a function's result.
pub(super) fn result_text(procedure: &Procedure) -> String {
    let kind = name::type_name(procedure.result, None);
    if procedure.set { format!("SETOF {kind}") } else { kind }
}

/// Bytes as `pg_size_pretty` shows them.
pub(super) fn size_text(bytes: i64) -> String {
    if bytes.unsigned_abs() < 10 * 1024 {
        return format!("{bytes} bytes");
    }
    // One bit more than a unit's is kept, to round once, at the end.
    let mut halves = bytes / 512;
    let mut units = ["kB", "MB", "GB", "TB", "PB"].into_iter().peekable();
    while let Some(unit) = units.next() {
        if halves.unsigned_abs() < 20 * 1024 - 1 || units.peek().is_none() {
            return format!("{} {unit}", (halves + halves.signum()) / 2);
        }
        halves /= 1024;
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_postgresql() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (10239, "10239 bytes"),
            (10240, "10 kB"),
            (-10240, "-10 kB"),
            (1_048_576, "1024 kB"),
            (10_485_247, "10239 kB"),
            (10_485_760, "10 MB"),
            (123_456_789_012, "115 GB"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
    }

    #[test]
    fn names_are_quoted_when_they_must_be() {
        assert_eq!(quoted("bids"), "bids");
        assert_eq!(quoted("Bids"), "\"Bids\"");
        assert_eq!(quoted("select"), "\"select\"");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}
