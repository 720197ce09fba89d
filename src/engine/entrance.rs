//! The entrance of programs that have the engine inside them: rows as Arrow, without a client, a socket or a text.
//!
//! What comes in here takes the same way as everything else: through the driver, into an epoch, durable and in every
//! view when it is answered.

use super::Engine;
use super::command::{Command, Write};
use crate::catalog::{Relation, RelationKind};
use crate::connector::{Position, Source};
use crate::delta::{Batch, Delta, batch_of};
use crate::error::{Error, Result};
use crate::time::Epoch;
use std::sync::Arc;

impl Engine {
    /// Feeds a stream of the schema `public` from a source of the caller's, until that is finished or the stream is
    /// dropped. `open` gets the position of the last epoch that was written, as a connector would, and is called again
    /// when the store has failed; the source is to be attached again after each start.
    pub fn attach(
        &self,
        stream: &str,
        open: impl FnMut(Option<&Position>) -> Result<Box<dyn Source>> + Send + 'static,
    ) -> Result<()> {
        let catalog = self.shared().published.load().catalog.clone();
        let relation = self.relation(stream)?;
        match &relation.kind {
            RelationKind::Stream(kind) if kind.connector.is_empty() => {}
            _ => {
                return Err(Error::semantic(
                    "42809",
                    format!("\"{stream}\" is not a stream without a connector"),
                ));
            }
        }
        self.shared().sources.attach(&relation, &catalog, Box::new(open))
    }

    /// Changes tables and streams of the schema `public` in one epoch; it is on the disk when this returns. The rows
    /// have all columns of their relation, with any names.
    pub async fn write(&self, changes: Vec<(&str, Delta)>) -> Result<Epoch> {
        let mut write = Write::default();
        for (name, delta) in changes {
            let relation = self.relation(name)?;
            let schema = super::published::schema_of(&relation);
            let mut named = Delta::new();
            for Batch { rows, weights } in delta.batches {
                let rows = batch_of(schema.clone(), rows.columns().to_vec(), rows.num_rows())?;
                named.push(Batch { rows, weights });
            }
            write.changes.push((relation.id, named));
        }
        let commands = &self.shared().commands;
        let published = commands.ask(|reply| Command::Write(write, reply)).await?;
        Ok(published.epoch)
    }

    fn relation(&self, name: &str) -> Result<Arc<Relation>> {
        let published = self.shared().published.load();
        let found = published.catalog.find("public", name).cloned();
        found.ok_or_else(|| Error::semantic("42P01", format!("relation \"{name}\" does not exist")))
    }
}
