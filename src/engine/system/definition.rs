//! Which system relations there are, and their columns: read from two lists of facts, once.
//!
//! `pg_catalog/columns.txt` holds PostgreSQL 15's, `headwater.txt` ours. A line `= schema name oid kind` begins a
//! relation; a line `column type` follows for each of its columns, with `!` behind the type of one that is never NULL.

use crate::types::{Nullability, Type, oid};
use arrow::datatypes::{Schema, SchemaRef};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// A relation of the system.
#[derive(Debug)]
pub(super) struct SystemRelation {
    /// The schema that it is in.
    pub(super) schema: &'static str,
    /// Its name.
    pub(super) name: &'static str,
    /// Its number in `pg_class`.
    pub(super) oid: i64,
    /// `r` for a table, `v` for a view.
    pub(super) kind: &'static str,
    /// Its columns.
    pub(super) columns: Vec<SystemColumn>,
    /// The same for Arrow.
    pub(super) arrow: SchemaRef,
    positions: HashMap<&'static str, usize>,
}

/// A column of a system relation.
#[derive(Debug)]
pub(super) struct SystemColumn {
    /// Its name.
    pub(super) name: &'static str,
    /// Its type.
    pub(super) kind: Type,
    /// Whether it may be NULL.
    pub(super) nullability: Nullability,
}

impl SystemRelation {
    /// The position of a column.
    pub(super) fn position(&self, column: &str) -> usize {
        *self
            .positions
            .get(column)
            .expect("rows name columns that the relation has")
    }
}

static RELATIONS: LazyLock<Vec<SystemRelation>> = LazyLock::new(|| {
    let mut relations = Vec::new();
    parse(include_str!("pg_catalog/columns.txt"), &mut relations);
    parse(include_str!("headwater.txt"), &mut relations);
    relations
});

static BY_NAME: LazyLock<HashMap<(&'static str, &'static str), &'static SystemRelation>> = LazyLock::new(|| {
    RELATIONS
        .iter()
        .map(|relation| ((relation.schema, relation.name), relation))
        .collect()
});

/// All system relations.
pub(super) fn all() -> &'static [SystemRelation] {
    &RELATIONS
}

/// The system relation of that name.
pub(super) fn find(schema: &str, name: &str) -> Option<&'static SystemRelation> {
    BY_NAME.get(&(schema, name)).copied()
}

fn parse(text: &'static str, relations: &mut Vec<SystemRelation>) {
    for block in text.split("= ").filter(|block| !block.is_empty()) {
        let mut lines = block.lines();
        let mut head = lines.next().unwrap_or_default().split(' ');
        let mut word = || head.next().unwrap_or_default();
        let (schema, name, number, kind) = (word(), word(), word(), word());
        let columns: Vec<SystemColumn> = lines
            .filter_map(|line| line.split_once(' '))
            .map(|(name, kind)| match kind.strip_suffix('!') {
                Some(kind) => SystemColumn {
                    name,
                    kind: kind_of(kind),
                    nullability: Nullability::NotNull,
                },
                None => SystemColumn {
                    name,
                    kind: kind_of(kind),
                    nullability: Nullability::Nullable,
                },
            })
            .collect();
        let fields: Vec<_> = columns
            .iter()
            .map(|column| column.kind.field(column.name, Nullability::Nullable))
            .collect();
        relations.push(SystemRelation {
            schema,
            name,
            oid: number.parse().unwrap_or_default(),
            kind,
            positions: columns
                .iter()
                .enumerate()
                .map(|(position, column)| (column.name, position))
                .collect(),
            arrow: Arc::new(Schema::new(fields)),
            columns,
        });
    }
}

/// The type of ours that carries a catalog column's: what has no type of ours is text.
fn kind_of(name: &str) -> Type {
    let array = |element: Type| Type::Array(Box::new(element));
    match name {
        "oidvector" => array(Type::Oid("oid".to_owned())),
        "int2vector" => array(Type::Int2),
        "cid" => Type::Oid("xid".to_owned()),
        "sql_identifier" => Type::Name,
        "cardinal_number" => Type::Int4,
        "character_data" => Type::Varchar(None),
        "yes_or_no" => Type::Varchar(Some(3)),
        "time_stamp" => Type::Timestamptz(None),
        _ => match name.strip_prefix('_') {
            Some(element) => array(kind_of(element)),
            None => oid::TYPES
                .iter()
                .find(|known| known.name == name)
                .and_then(|known| Type::of_oid(known.oid))
                .unwrap_or(Type::Text),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_hold_what_clients_ask_for() {
        let class = find("pg_catalog", "pg_class").unwrap();
        assert_eq!((class.oid, class.kind, class.columns.len()), (1259, "r", 33));
        assert_eq!(class.columns[class.position("relkind")].kind, Type::InternalChar);
        let index = find("pg_catalog", "pg_index").unwrap();
        assert_eq!(
            index.columns[index.position("indkey")].kind,
            Type::Array(Box::new(Type::Int2))
        );
        assert!(find("information_schema", "columns").is_some());
        assert!(find("headwater", "views").is_some());
        assert!(find("pg_catalog", "pg_nothing").is_none());
    }
}
