//! Statements that are run at the start, before clients are served: `--init` and the demonstration.

use crate::engine::{CopyIn, Engine, Outcome, Parameters, Session};
use crate::error::{Error, Result};
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

    /// Runs statements one by one; the first that fails ends it. `after` is told each command's tag, and may copy data
    /// in before the next is run.
    pub async fn run(&mut self, text: &str, after: &mut impl AfterStatement) -> Result<()> {
        for statement in &self.session.parse(text)? {
            let outcome = self.session.execute(statement, &Parameters::default()).await?;
            let tag = drained(outcome).await?;
            if let Some((copy, data)) = after.after(&tag) {
                self.copy(&copy, data).await?;
            }
        }
        Ok(())
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

/// What happens between two statements of a script.
pub trait AfterStatement {
    /// A COPY to run and its data, after the statement whose tag this is.
    fn after(&mut self, tag: &str) -> Option<(String, &'static [u8])>;
}

/// Nothing happens between statements.
pub struct Nothing;

impl AfterStatement for Nothing {
    fn after(&mut self, _: &str) -> Option<(String, &'static [u8])> {
        None
    }
}

async fn feed(copy: &mut CopyIn, data: &'static [u8]) -> Result<()> {
    for chunk in data.chunks(COPY_CHUNK_BYTES) {
        copy.write(Bytes::from_static(chunk)).await?;
    }
    Ok(())
}

/// Takes an outcome to its end; its tag, empty for rows.
async fn drained(outcome: Outcome) -> Result<String> {
    match outcome {
        Outcome::Done { tag } => Ok(tag),
        Outcome::Empty => Ok(String::new()),
        Outcome::Rows { mut rows, .. } => {
            while let Some(batch) = rows.next().await {
                batch?;
            }
            Ok(String::new())
        }
        Outcome::CopyIn(_) | Outcome::CopyOut { .. } | Outcome::Subscribe { .. } => Err(Error::unsupported(
            "a script cannot COPY from or to a client, or subscribe",
        )),
    }
}
