//! Statements that are run at the start, before clients are served: `--init` and the demonstration.

use crate::engine::{CopyIn, Engine, Outcome, Parameters, Session};
use crate::error::{Error, Result};
use crate::sql::statement::Parsed;
use bytes::Bytes;
use futures::StreamExt as _;

/// The user in whose name scripts run.
const USER: &str = "headwater";
/// The bytes of a COPY that are given to the engine at once.
const COPY_CHUNK_BYTES: usize = 1 << 20;

/// Runs scripts.
pub struct Script {
    session: Session,
}

impl Script {
    /// A session to run scripts in.
    pub fn open(engine: &Engine) -> Result<Self> {
        let session = engine.connect(USER, "headwater", &[])?;
        Ok(Self { session })
    }

    /// Runs statements one by one; the first that fails ends it.
    pub async fn run(&mut self, text: &str) -> Result<()> {
        for statement in &self.session.parse(text)? {
            self.execute(statement).await?;
        }
        Ok(())
    }

    /// Runs the statements whose relations are not there yet, each with its data as one transaction: what was cut
    /// short is completed, what is there stays as it is.
    pub async fn complete(&mut self, text: &str, data: &impl Data) -> Result<()> {
        for statement in &self.session.parse(text)? {
            self.run("BEGIN").await?;
            match self.execute(statement).await {
                Ok(()) => {}
                Err(error) if error.code() == "42P07" => {
                    self.run("ROLLBACK").await?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if let Some((copy, rows)) = data.of(statement) {
                self.copy(&copy, rows).await?;
            }
            self.run("COMMIT").await?;
        }
        Ok(())
    }

    async fn execute(&mut self, statement: &Parsed) -> Result<()> {
        let outcome = self.session.execute(statement, &Parameters::default()).await?;
        drained(outcome).await
    }

    async fn copy(&mut self, copy: &str, data: &'static [u8]) -> Result<()> {
        for statement in &self.session.parse(copy)? {
            let outcome = self.session.execute(statement, &Parameters::default()).await?;
            let Outcome::CopyIn(mut copy) = outcome else {
                return Err(Error::internal("COPY FROM STDIN asked for no data"));
            };
            feed(&mut copy, data).await?;
            copy.finish().await?;
        }
        Ok(())
    }
}

/// The rows that belong to what statements make.
pub trait Data {
    /// The COPY to run after a statement, and its data.
    fn of(&self, statement: &Parsed) -> Option<(String, &'static [u8])>;
}

async fn feed(copy: &mut CopyIn, data: &'static [u8]) -> Result<()> {
    for chunk in data.chunks(COPY_CHUNK_BYTES) {
        copy.write(Bytes::from_static(chunk)).await?;
    }
    Ok(())
}

/// Takes an outcome to its end.
async fn drained(outcome: Outcome) -> Result<()> {
    match outcome {
        Outcome::Done { .. } | Outcome::Empty => Ok(()),
        Outcome::Rows { mut rows, .. } => {
            while let Some(batch) = rows.next().await {
                batch?;
            }
            Ok(())
        }
        Outcome::CopyIn(_) | Outcome::CopyOut { .. } | Outcome::Subscribe { .. } => Err(Error::unsupported(
            "a script cannot COPY from or to a client, or subscribe",
        )),
    }
}
