//! A client in the process: an engine on the disk or in memory, and statements.

use crate::Result;
use futures::StreamExt as _;
use headwater::config::Config;
use headwater::engine::{Engine, Outcome, Parameters, Session};
use std::path::Path;

/// An engine and a session of it.
pub(crate) struct Client {
    /// The engine.
    pub(crate) engine: Engine,
    session: Session,
}

impl Client {
    /// Opens an engine in a directory, or in memory.
    pub(crate) fn open(directory: Option<&Path>, workers: usize) -> Result<Self> {
        let config = Config {
            data_dir: directory.map(Path::to_owned),
            workers,
            memory_limit_bytes: 8 << 30,
            ..Config::default()
        };
        let engine = Engine::open(&config)?;
        let session = engine.connect("bench", "headwater", &[])?;
        Ok(Self { engine, session })
    }

    /// Runs statements; the number of rows that they return.
    pub(crate) async fn run(&mut self, text: &str) -> Result<usize> {
        let mut count = 0;
        for statement in &self.session.parse(text)? {
            let outcome = self.session.execute(statement, &Parameters::default()).await;
            if let Outcome::Rows { mut rows, .. } = outcome.map_err(|error| format!("{error}: {text}"))? {
                while let Some(batch) = rows.next().await {
                    count += batch?.num_rows();
                }
            }
        }
        Ok(count)
    }

    /// The rows of a query, as text.
    pub(crate) async fn lines(&mut self, text: &str) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        for statement in &self.session.parse(text)? {
            let outcome = self.session.execute(statement, &Parameters::default()).await?;
            if let Outcome::Rows { mut rows, .. } = outcome {
                while let Some(batch) = rows.next().await {
                    let shown = arrow::util::pretty::pretty_format_batches(&[batch?])?.to_string();
                    lines.extend(shown.lines().map(str::to_owned));
                }
            }
        }
        Ok(lines)
    }
}
