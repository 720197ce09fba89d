//! The engine's own records in the store: the epoch, the definitions, source positions.
//!
//! Keys in the system table: `e` the epoch and the next free table id; `c` the catalog without its relations;
//! `r<id>` a relation and what belongs to it; `p<id>` the position of a stream's source.

use super::published::Record;
use crate::catalog::{Catalog, Relation, RelationId};
use crate::error::{Error, Result};
use crate::state::{Commit, SYSTEM_TABLE, Store};
use crate::time::Epoch;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// What the store knows at the start.
#[derive(Debug, Default)]
pub struct Opened {
    /// The last epoch.
    pub epoch: Epoch,
    /// The next free state table.
    pub next_table: u32,
    /// The definitions.
    pub catalog: Catalog,
    /// What belongs to each relation.
    pub records: HashMap<RelationId, Record>,
}

#[derive(Serialize, Deserialize)]
struct Progress {
    epoch: u64,
    next_table: u32,
}

#[derive(Serialize, Deserialize)]
struct RelationRecord {
    relation: Arc<Relation>,
    record: Record,
}

/// Reads everything back.
pub fn read(store: &Store) -> Result<Opened> {
    let mut opened = Opened {
        next_table: SYSTEM_TABLE.0 + 1,
        ..Opened::default()
    };
    if let Some(progress) = get::<Progress>(store, b"e")? {
        opened.epoch = Epoch(progress.epoch);
        opened.next_table = progress.next_table;
    }
    if let Some(catalog) = get::<Catalog>(store, b"c")? {
        opened.catalog = catalog;
    }
    let (from, to) = (key(b"r"), key(b"s"));
    let mut scan = store.scan(&from, &to);
    while let Some((_, value)) = scan.next_entry()? {
        let found: RelationRecord = parse(value)?;
        opened.records.insert(found.relation.id, found.record);
        opened.catalog.relations.insert(found.relation.id, found.relation);
    }
    Ok(opened)
}

/// Writes how far the engine is.
pub fn write_progress(commit: &mut Commit, epoch: Epoch, next_table: u32) -> Result<()> {
    put(
        commit,
        b"e",
        &Progress {
            epoch: epoch.0,
            next_table,
        },
    )
}

/// Writes the catalog without its relations.
pub fn write_catalog(commit: &mut Commit, catalog: &Catalog) -> Result<()> {
    let mut bare = catalog.clone();
    bare.relations.clear();
    put(commit, b"c", &bare)
}

/// Writes a relation and what belongs to it.
pub fn write_relation(commit: &mut Commit, relation: &Arc<Relation>, record: &Record) -> Result<()> {
    let document = RelationRecord {
        relation: relation.clone(),
        record: record.clone(),
    };
    put(commit, &relation_key(relation.id), &document)
}

/// Removes a relation.
pub fn delete_relation(commit: &mut Commit, id: RelationId) {
    commit.delete(&key(&relation_key(id)));
    commit.delete(&key(&position_key(id)));
}

/// Writes the position of a stream's source.
pub fn write_position(commit: &mut Commit, id: RelationId, position: &[u8]) {
    let mut value = vec![1];
    value.extend_from_slice(position);
    commit.put(&key(&position_key(id)), &value);
}

/// The position of a stream's source.
pub fn read_position(store: &Store, id: RelationId) -> Result<Option<Vec<u8>>> {
    Ok(store.get(&key(&position_key(id)))?.map(|value| value[1..].to_vec()))
}

fn relation_key(id: RelationId) -> Vec<u8> {
    let mut name = vec![b'r'];
    name.extend_from_slice(&id.0.to_be_bytes());
    name
}

fn position_key(id: RelationId) -> Vec<u8> {
    let mut name = vec![b'p'];
    name.extend_from_slice(&id.0.to_be_bytes());
    name
}

fn key(name: &[u8]) -> Vec<u8> {
    let mut key = SYSTEM_TABLE.prefix().to_vec();
    key.extend_from_slice(name);
    key
}

fn get<T: DeserializeOwned>(store: &Store, name: &[u8]) -> Result<Option<T>> {
    store.get(&key(name))?.map(|value| parse(&value)).transpose()
}

fn put<T: Serialize>(commit: &mut Commit, name: &[u8], value: &T) -> Result<()> {
    let bytes =
        serde_json::to_vec(value).map_err(|error| Error::internal(format!("a record cannot be written: {error}")))?;
    commit.put(&key(name), &bytes);
    Ok(())
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::corrupt(format!("a record of the store cannot be read: {error}")))
}
