//! A transaction: what one client has read, written and defined, before it is an epoch.
//!
//! A transaction reads the epoch of its first read. Its own writes are an *overlay*: changes of streams and tables
//! that its own reads add to the snapshot. COMMIT sends overlay and definitions to the driver as one epoch.

use super::command::{Duplicate, ViewPlan, Write};
use super::published::Published;
use crate::catalog::{Catalog, RelationId};
use crate::delta::Delta;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a transaction was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// By BEGIN.
    Explicitly,
    /// By a query text with several statements, or a pipeline.
    Implicitly,
}

/// Whether a transaction may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It may.
    ReadWrite,
    /// It may not.
    ReadOnly,
}

/// Whether a transaction can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It can.
    Good,
    /// A statement failed: only ROLLBACK goes on.
    Failed,
}

/// What a client has done that is not yet an epoch.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// How it was begun.
    pub begun: Begun,
    /// Whether it may write.
    pub access: Access,
    /// Whether it can go on.
    pub health: Health,
    /// The epoch that it reads, from its first read on.
    pub published: Option<Arc<Published>>,
    /// What it has done.
    pub work: Work,
    /// The work at each savepoint, oldest first.
    pub savepoints: Vec<(String, Work)>,
    /// When it began, in microseconds.
    pub started_micros: i64,
    /// The settings that SET LOCAL changed.
    pub local_settings: Vec<String>,
}

/// The work of a transaction.
#[derive(Debug, Clone, Default)]
pub struct Work {
    /// The definitions as the transaction sees them, once it has changed them.
    pub catalog: Option<Arc<Catalog>>,
    /// How the views are computed that it has defined.
    pub plans: Vec<ViewPlan>,
    /// Its changes by relation, each consolidated.
    pub overlay: BTreeMap<RelationId, Delta>,
    /// The bytes of the changes.
    pub bytes: usize,
}

impl Transaction {
    /// A transaction that has done nothing.
    pub fn new(begun: Begun, access: Access, started_micros: i64) -> Self {
        Self {
            begun,
            access,
            health: Health::Good,
            published: None,
            work: Work::default(),
            savepoints: Vec::new(),
            started_micros,
            local_settings: Vec::new(),
        }
    }
}

impl Work {
    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.catalog.is_none() && self.overlay.values().all(Delta::is_empty)
    }

    /// The changes as a request to the driver.
    pub fn write(&self, duplicate: Duplicate) -> Write {
        Write {
            changes: self.overlay.iter().map(|(id, delta)| (*id, delta.clone())).collect(),
            duplicate,
        }
    }
}
