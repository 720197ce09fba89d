//! Numbers to names and back, as `regclass`, `regtype`, `regproc`, `regnamespace` and `regrole` do.

use super::describe::quoted;
use super::pg_catalog::{kind, procedure};
use super::{Facts, definition, object};
use crate::error::{Error, Result};
use crate::types::{Type, oid};
use datafusion::error::DataFusionError;

/// The parts of a name as it is written: folded unless quoted.
pub(super) fn parts(text: &str) -> Result<Vec<String>> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut quotes = false;
    let mut chars = text.trim().chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quotes) {
            ('"', true) if chars.peek() == Some(&'"') => {
                chars.next();
                part.push('"');
            }
            ('"', _) => quotes = !quotes,
            ('.', false) => parts.push(std::mem::take(&mut part)),
            (c, true) => part.push(c),
            (c, false) => part.extend(c.to_lowercase()),
        }
    }
    parts.push(part);
    if quotes || parts.iter().any(String::is_empty) {
        return Err(Error::semantic("42602", "invalid name syntax"));
    }
    Ok(parts)
}

/// The schemas in which a bare name is looked for.
pub(super) fn path(facts: &Facts) -> impl Iterator<Item = &str> {
    let own = &facts.settings.search_path;
    let first = (!own.iter().any(|schema| schema == "pg_catalog")).then_some("pg_catalog");
    first.into_iter().chain(own.iter().map(String::as_str))
}

/// Every relation that has a number: number, schema, name.
fn find_relation(facts: &Facts, schema: &str, name: &str) -> Option<i64> {
    if let Some(relation) = definition::find(schema, name) {
        return Some(relation.oid);
    }
    if let Some(relation) = facts
        .catalog
        .find(schema, name)
        .filter(|relation| object::letter(relation).is_some())
    {
        return Some(i64::from(relation.id.0));
    }
    let mut indexes = object::indexes(&facts.catalog).into_iter();
    indexes
        .find(|index| index.on.schema == schema && index.name == name)
        .map(|index| index.oid)
}

/// The relation of a name, if there is one.
pub(super) fn relation_oid(facts: &Facts, text: &str) -> Result<Option<i64>> {
    if let Ok(number) = text.trim().parse::<i64>() {
        return Ok(Some(number));
    }
    Ok(match parts(text)?.as_slice() {
        [name] => path(facts).find_map(|schema| find_relation(facts, schema, name)),
        [.., schema, name] => find_relation(facts, schema, name),
        [] => None,
    })
}

/// The schema and name of a relation's number.
pub(super) fn relation_name(facts: &Facts, number: i64) -> Option<(String, String)> {
    if let Some(relation) = definition::all().iter().find(|relation| relation.oid == number) {
        return Some((relation.schema.to_owned(), relation.name.to_owned()));
    }
    let relation = facts
        .catalog
        .relations
        .values()
        .find(|relation| i64::from(relation.id.0) == number);
    if let Some(relation) = relation {
        return Some((relation.schema.clone(), relation.name.clone()));
    }
    let index = object::indexes(&facts.catalog)
        .into_iter()
        .find(|index| index.oid == number)?;
    Some((index.on.schema.clone(), index.name))
}

/// Whether a bare name finds the relation of that number.
pub(super) fn is_visible(facts: &Facts, number: i64) -> Option<bool> {
    let (_, name) = relation_name(facts, number)?;
    Some(path(facts).find_map(|schema| find_relation(facts, schema, &name)) == Some(number))
}

/// A name as it must be written here: with its schema if it is not found without.
pub(super) fn shown(facts: &Facts, schema: &str, name: &str) -> String {
    let found = path(facts).find(|candidate| find_relation(facts, candidate, name).is_some());
    if found == Some(schema) {
        quoted(name)
    } else {
        format!("{}.{}", quoted(schema), quoted(name))
    }
}

/// The type of a name, as `regtype` reads it.
pub(super) fn type_oid(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(number) = text.parse::<i64>() {
        return Some(number);
    }
    if let Some(element) = text.strip_suffix("[]") {
        return kind::find(type_oid(element)?)
            .map(|known| known.array)
            .filter(|array| *array != 0);
    }
    let name = text.strip_prefix("pg_catalog.").unwrap_or(text);
    let bare = match name.split_once('(') {
        Some((before, after)) => {
            let rest = after.split_once(')').map_or("", |(_, rest)| rest);
            format!("{}{rest}", before.trim_end())
        }
        None => name.to_owned(),
    };
    let folded = match bare.strip_prefix('"').and_then(|bare| bare.strip_suffix('"')) {
        Some(exact) => exact.to_owned(),
        None => bare.to_lowercase(),
    };
    let alias = match folded.as_str() {
        "int" => "int4",
        "decimal" => "numeric",
        "character" if !bare.starts_with('"') => "bpchar",
        "char" if !bare.starts_with('"') => "bpchar",
        "float" => "float8",
        other => other,
    };
    if let Some(known) = kind::find_name(alias) {
        return Some(known.oid);
    }
    let known = oid::TYPES
        .iter()
        .find(|known| Type::of_oid(known.oid).is_some_and(|kind| kind.to_string() == alias))?;
    Some(i64::from(known.oid))
}

/// A type as `format_type` shows it.
pub(super) fn type_name(number: i64, modifier: Option<i64>) -> String {
    if number == 0 {
        return "-".to_owned();
    }
    let modifier = modifier.and_then(|modifier| i32::try_from(modifier).ok()).unwrap_or(-1);
    let ours = u32::try_from(number)
        .ok()
        .and_then(|number| Type::of_oid_and_modifier(number, modifier));
    match ours {
        // Without a modifier, char is not char(1).
        Some(Type::Char(None)) if modifier < 0 => "character".to_owned(),
        Some(Type::Record(_)) => "record".to_owned(),
        Some(kind) => kind.to_string(),
        None => match kind::find(number) {
            Some(known) if known.element != 0 && known.name.starts_with('_') => {
                format!("{}[]", type_name(known.element, None))
            }
            Some(known) if known.name == "any" => "\"any\"".to_owned(),
            Some(known) => known.name.to_owned(),
            None => "???".to_owned(),
        },
    }
}

/// The function of a name, as `regproc` reads it: `None` if there is none or more than one.
pub(super) fn procedure_oid(text: &str) -> Result<Option<i64>> {
    if let Ok(number) = text.trim().parse::<i64>() {
        return Ok(Some(number));
    }
    let bare = text.split_once('(').map_or(text, |(name, _)| name);
    let parts = parts(bare)?;
    let name = parts.last().map(String::as_str).unwrap_or_default();
    let mut found = procedure::named(name);
    Ok(found.next().map(|procedure| procedure.oid))
}

/// The schema of a name.
pub(super) fn schema_oid(facts: &Facts, text: &str) -> Result<Option<i64>> {
    if let Ok(number) = text.trim().parse::<i64>() {
        return Ok(Some(number));
    }
    let parts = parts(text)?;
    let name = parts.last().map(String::as_str).unwrap_or_default();
    Ok(object::schemas(&facts.catalog)
        .into_iter()
        .find(|(_, known)| known == name)
        .map(|(oid, _)| oid))
}

/// The user of a name.
pub(super) fn user_oid(facts: &Facts, text: &str) -> Result<Option<i64>> {
    if let Ok(number) = text.trim().parse::<i64>() {
        return Ok(Some(number));
    }
    let parts = parts(text)?;
    let name = parts.last().map(String::as_str).unwrap_or_default();
    Ok(object::users(facts)
        .into_iter()
        .find(|(_, known)| known == name)
        .map(|(oid, _)| oid))
}

/// What a value of one of the `reg*` types shows.
pub(super) fn out(facts: &Facts, kind: &str, number: i64) -> String {
    if number == 0 {
        return "-".to_owned();
    }
    let named = |list: Vec<(i64, String)>| {
        list.into_iter()
            .find(|(oid, _)| *oid == number)
            .map(|(_, name)| quoted(&name))
    };
    let name = match kind {
        "regclass" => relation_name(facts, number).map(|(schema, name)| shown(facts, &schema, &name)),
        "regtype" => kind::find(number).map(|_| type_name(number, None)),
        "regproc" => procedure::find(number).map(|procedure| procedure.name.to_owned()),
        "regnamespace" => named(object::schemas(&facts.catalog)),
        _ => named(object::users(facts)),
    };
    name.unwrap_or_else(|| number.to_string())
}

/// An error on its way through DataFusion.
pub(super) fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
