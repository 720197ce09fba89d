//! A session's conversation: message by message, until one side ends it.
//!
//! After an error in the extended protocol everything up to the next Sync is skipped, as the protocol demands. While a
//! statement runs, [`Watch`] listens for the client's end and for the order to stop, and cancels the statement.

use super::super::Shutdown;
use super::channel::{Broken, Incoming, Outgoing};
use super::extended::Statements;
use super::frontend::Message;
use super::portal::Portals;
use super::report::{self, Severity};
use crate::config::ABANDON_TIMEOUT_MS;
use crate::engine::{Canceller, ImplicitEnd, Session, TransactionStatus};
use crate::error::Error;
use std::future::Future;
use std::time::Duration;

/// A session and its client.
pub(super) struct Connection {
    pub(super) session: Session,
    pub(super) watch: Watch,
    pub(super) output: Outgoing,
    pub(super) statements: Statements,
    pub(super) portals: Portals,
    pub(super) pipeline: Pipeline,
}

/// Where the extended protocol stands between two Syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pipeline {
    /// Nothing has been run since the last Sync.
    Fresh,
    /// Statements have been run in an implicit transaction.
    Open,
    /// An error happened; messages are skipped.
    Failed {
        /// Whether an implicit transaction waits to be rolled back.
        implicit: Implicit,
    },
}

/// Whether the server has begun an implicit transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Implicit {
    /// It has.
    Begun,
    /// It has not.
    None,
}

/// What is listened to while a statement runs.
pub(super) struct Watch {
    pub(super) input: Incoming,
    shutdown: Shutdown,
    canceller: Canceller,
}

impl Watch {
    /// Waits for a step of a statement. If the client goes away meanwhile, the statement is cancelled at once and the
    /// step's result is dropped; if the server is to stop, it is cancelled and its error is the result.
    pub(super) async fn over<T>(&mut self, step: impl Future<Output = T>) -> Result<T, Broken> {
        tokio::pin!(step);
        tokio::select! {
            biased;
            result = &mut step => return Ok(result),
            () = self.input.vanished() => {}
            () = self.shutdown.ordered() => {
                self.canceller.cancel();
                return Ok(step.await);
            }
        }
        self.canceller.cancel();
        // The statement is given time to undo what it has begun; then it is dropped.
        let patience = Duration::from_millis(ABANDON_TIMEOUT_MS);
        let _ = tokio::time::timeout(patience, step).await;
        Err(Broken::Gone)
    }

    /// The kind of the next message, which is left where it is.
    pub(super) async fn peek_kind(&mut self) -> Result<u8, Broken> {
        tokio::select! {
            biased;
            kind = self.input.peek_kind() => kind,
            () = self.shutdown.ordered() => Err(stopping()),
        }
    }

    /// The next message, unless the server is to stop first.
    pub(super) async fn message(&mut self) -> Result<Message, Broken> {
        tokio::select! {
            biased;
            message = self.input.message() => message,
            () = self.shutdown.ordered() => Err(stopping()),
        }
    }
}

fn stopping() -> Broken {
    Broken::Fatal(Error::semantic(
        "57P01",
        "terminating connection due to administrator command",
    ))
}

impl Connection {
    /// A conversation that has been opened.
    pub(super) fn new(session: Session, mut input: Incoming, output: Outgoing, shutdown: Shutdown) -> Self {
        let canceller = session.canceller();
        input.trust();
        Self {
            session,
            watch: Watch {
                input,
                shutdown,
                canceller,
            },
            output,
            statements: Statements::default(),
            portals: Portals::default(),
            pipeline: Pipeline::Fresh,
        }
    }

    /// Converses to the end.
    pub(super) async fn run(mut self) {
        let end = loop {
            let message = match self.watch.message().await {
                Ok(message) => message,
                Err(end) => break end,
            };
            if matches!(message, Message::Terminate) {
                break Broken::Gone;
            }
            if let Err(end) = self.handle(message).await {
                break end;
            }
        };
        // Dropping portals and session ends their statements and rolls back what is open.
        if let Broken::Fatal(error) = end {
            self.output.put(&report::error(&error, Severity::Fatal));
            self.output.close().await;
        }
    }

    async fn handle(&mut self, message: Message) -> Result<(), Broken> {
        if matches!(self.pipeline, Pipeline::Failed { .. }) && !matches!(message, Message::Sync) {
            return Ok(());
        }
        match message {
            Message::Query(text) => self.query(&text).await,
            Message::Sync => self.sync().await,
            Message::Flush => self.output.flush().await,
            Message::Parse { name, text, kinds } => {
                let result = self.parse(name, &text, &kinds);
                self.answer(result)
            }
            Message::Bind(bind) => {
                let result = self.bind(bind);
                self.answer(result)
            }
            Message::Describe(target) => {
                let result = self.describe(&target);
                self.answer(result)
            }
            Message::Close(target) => {
                self.close(&target);
                Ok(())
            }
            Message::Execute { portal, rows_max } => {
                let result = self.execute(&portal, rows_max).await?;
                self.answer(result)
            }
            Message::FunctionCall => {
                let refused = Error::unsupported("function calls by OID are not supported").with_hint("Use SELECT.");
                self.report(&refused);
                self.ready().await
            }
            // What is left of a COPY that failed.
            Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => Ok(()),
            Message::Password(_) | Message::Terminate => {
                Err(Broken::Fatal(super::frontend::violation("unexpected message")))
            }
        }
    }

    /// Reports the error of a step of the extended protocol, after which everything is skipped up to Sync.
    fn answer(&mut self, result: Result<(), Error>) -> Result<(), Broken> {
        if let Err(error) = result {
            self.report(&error);
            let implicit = match self.pipeline {
                Pipeline::Open => Implicit::Begun,
                Pipeline::Fresh | Pipeline::Failed { .. } => Implicit::None,
            };
            self.pipeline = Pipeline::Failed { implicit };
        }
        Ok(())
    }

    /// Tells the client of an error, and the session, whose open transaction has failed with it.
    pub(super) fn report(&mut self, error: &Error) {
        self.session.fail();
        report::put_asides(&mut self.session, &mut self.output);
        self.output.put(&report::error(error, Severity::Error));
    }

    async fn sync(&mut self) -> Result<(), Broken> {
        let ending = std::mem::replace(&mut self.pipeline, Pipeline::Fresh);
        let end = match ending {
            Pipeline::Fresh
            | Pipeline::Failed {
                implicit: Implicit::None,
            } => None,
            Pipeline::Open => Some(ImplicitEnd::Commit),
            Pipeline::Failed {
                implicit: Implicit::Begun,
            } => Some(ImplicitEnd::Rollback),
        };
        if let Some(end) = end {
            // What a commit waits for must not be waited for by open result streams.
            self.portals.clear();
            if let Err(error) = self.end_implicit(end).await? {
                self.report(&error);
            }
        }
        self.ready().await
    }

    /// Ends the implicit transaction.
    pub(super) async fn end_implicit(&mut self, end: ImplicitEnd) -> Result<Result<(), Error>, Broken> {
        let ended = self.watch.over(self.session.end_implicit(end)).await?;
        report::put_asides(&mut self.session, &mut self.output);
        Ok(ended)
    }

    /// Says that the next query may come. Outside a transaction, no portal outlives this.
    pub(super) async fn ready(&mut self) -> Result<(), Broken> {
        if self.session.status() == TransactionStatus::Idle {
            self.portals.clear();
        }
        report::put_asides(&mut self.session, &mut self.output);
        self.output.put(&report::ready(&self.session));
        // A client that has sent more already is not waiting yet, but it may stop reading: send.
        self.output.flush().await
    }
}
