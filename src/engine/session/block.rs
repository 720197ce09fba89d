//! BEGIN, COMMIT, ROLLBACK and savepoints: where a transaction begins and how it ends.

use super::watch::cancellable;
use super::{ImplicitEnd, Session, done};
use crate::engine::command::{Command, Define, Duplicate};
use crate::engine::transaction::{Access, Begun, Health, Transaction};
use crate::engine::{Notice, Outcome};
use crate::error::{Error, Result};
use crate::sql::statement::{Chain, Statement, TransactionModes};

impl Session {
    pub(super) fn check_health(&self, statement: &Statement) -> Result<()> {
        let failed = self
            .transaction
            .as_ref()
            .is_some_and(|transaction| transaction.health == Health::Failed);
        let ends = matches!(
            statement,
            Statement::Commit(_) | Statement::Rollback(_) | Statement::RollbackToSavepoint(_)
        );
        if failed && !ends {
            return Err(Error::semantic(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
            ));
        }
        Ok(())
    }

    pub(in crate::engine) fn check_writable(&self, what: &str) -> Result<()> {
        let read_only = match &self.transaction {
            Some(transaction) => transaction.access == Access::ReadOnly,
            None => self.default_access() == Access::ReadOnly,
        };
        if read_only {
            return Err(Error::semantic(
                "25006",
                format!("cannot execute {what} in a read-only transaction"),
            ));
        }
        Ok(())
    }

    fn default_access(&self) -> Access {
        match self.settings.get("default_transaction_read_only") {
            Some("on") => Access::ReadOnly,
            _ => Access::ReadWrite,
        }
    }

    /// A statement failed: an open transaction becomes a failed one.
    pub fn fail(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.health = Health::Failed;
        }
    }

    /// Begins the transaction that a text with several statements is.
    pub fn begin_implicit(&mut self) {
        if self.transaction.is_none() {
            let access = self.default_access();
            self.saved_settings = Some(self.settings.clone());
            self.transaction = Some(Transaction::new(Begun::Implicitly, access, self.now_micros()));
        }
    }

    /// Ends it. An explicit transaction that was begun meanwhile goes on.
    pub async fn end_implicit(&mut self, end: ImplicitEnd) -> Result<()> {
        let implicit = self
            .transaction
            .as_ref()
            .is_some_and(|transaction| transaction.begun == Begun::Implicitly);
        if !implicit {
            return Ok(());
        }
        let failed = self
            .transaction
            .as_ref()
            .is_some_and(|transaction| transaction.health == Health::Failed);
        if end == ImplicitEnd::Rollback || failed {
            self.undo();
            return Ok(());
        }
        self.settle_copy()?;
        let token = self.canceller.start();
        let work = self.finish();
        cancellable(token, None, work).await
    }

    pub(super) fn begin(&mut self, modes: &TransactionModes) -> Result<Outcome> {
        if let Some(level) = &modes.isolation {
            crate::engine::settings::isolation(level)?;
        }
        let access = match modes.read_only {
            Some(true) => Access::ReadOnly,
            Some(false) => Access::ReadWrite,
            None => self.default_access(),
        };
        match &mut self.transaction {
            None => {
                self.saved_settings = Some(self.settings.clone());
                self.transaction = Some(Transaction::new(Begun::Explicitly, access, self.now_micros()));
            }
            Some(transaction) if transaction.begun == Begun::Implicitly => {
                transaction.begun = Begun::Explicitly;
                transaction.access = access;
            }
            Some(_) => self.notice(Notice::warning("25001", "there is already a transaction in progress")),
        }
        done("BEGIN")
    }

    pub(super) async fn commit(&mut self, chain: Chain) -> Result<Outcome> {
        let Some(transaction) = &self.transaction else {
            self.notice(Notice::warning("25P01", "there is no transaction in progress"));
            return done("COMMIT");
        };
        let (failed, access) = (transaction.health == Health::Failed, transaction.access);
        if failed {
            self.undo();
        } else {
            self.finish().await?;
        }
        self.chain(chain, access);
        done(if failed { "ROLLBACK" } else { "COMMIT" })
    }

    pub(super) fn rollback(&mut self, chain: Chain) -> Result<Outcome> {
        let Some(transaction) = &self.transaction else {
            self.notice(Notice::warning("25P01", "there is no transaction in progress"));
            return done("ROLLBACK");
        };
        let access = transaction.access;
        self.undo();
        self.chain(chain, access);
        done("ROLLBACK")
    }

    fn chain(&mut self, chain: Chain, access: Access) {
        if chain == Chain::Yes {
            self.saved_settings = Some(self.settings.clone());
            self.transaction = Some(Transaction::new(Begun::Explicitly, access, self.now_micros()));
        }
    }

    /// Drops the transaction's work, and takes back its settings.
    fn undo(&mut self) {
        self.transaction = None;
        if let Some(saved) = self.saved_settings.take() {
            for setting in crate::engine::settings::SETTINGS {
                if saved.get(setting.name) != self.settings.get(setting.name)
                    && let Some(value) = saved.get(setting.name)
                    && setting.change == crate::engine::settings::Change::Reported
                {
                    self.parameter_changes.push((setting.name.to_owned(), value.to_owned()));
                }
            }
            self.settings = saved;
        }
        self.close_transaction_cursors();
    }

    /// Makes the transaction's work an epoch.
    async fn finish(&mut self) -> Result<()> {
        let Some(transaction) = self.transaction.take() else {
            return Ok(());
        };
        self.close_transaction_cursors();
        if let Some(saved) = self.saved_settings.take() {
            self.end_local_settings(&saved, &transaction.local_settings);
        }
        let work = transaction.work;
        if work.is_empty() {
            return Ok(());
        }
        let commands = &self.engine.shared().commands;
        match work.catalog.clone() {
            None => {
                let write = work.write(Duplicate::Conflict);
                commands.ask(|reply| Command::Write(write, reply)).await?;
            }
            Some(catalog) => {
                let base_version = match &transaction.published {
                    Some(published) => published.catalog.version,
                    None => catalog.version.saturating_sub(1),
                };
                let define = Define {
                    base_version,
                    catalog: catalog.as_ref().clone(),
                    write: work.write(Duplicate::Conflict),
                    answer: crate::engine::definition::answer_of(&catalog, &work.plans),
                    plans: work.plans,
                };
                self.carry_out(define).await?;
            }
        }
        Ok(())
    }

    pub(super) fn savepoint(&mut self, name: &str) -> Result<Outcome> {
        let transaction = self.in_block("SAVEPOINT")?;
        let work = transaction.work.clone();
        transaction.savepoints.push((name.to_owned(), work));
        done("SAVEPOINT")
    }

    pub(super) fn release_savepoint(&mut self, name: &str) -> Result<Outcome> {
        let transaction = self.in_block("RELEASE SAVEPOINT")?;
        let at = find_savepoint(transaction, name)?;
        transaction.savepoints.truncate(at);
        done("RELEASE")
    }

    pub(super) fn rollback_to_savepoint(&mut self, name: &str) -> Result<Outcome> {
        let transaction = self.in_block("ROLLBACK TO SAVEPOINT")?;
        let at = find_savepoint(transaction, name)?;
        transaction.work = transaction.savepoints[at].1.clone();
        transaction.savepoints.truncate(at + 1);
        transaction.health = Health::Good;
        done("ROLLBACK")
    }

    fn in_block(&mut self, what: &str) -> Result<&mut Transaction> {
        match &mut self.transaction {
            Some(transaction) if transaction.begun == Begun::Explicitly => Ok(transaction),
            _ => Err(Error::semantic(
                "25P01",
                format!("{what} can only be used in transaction blocks"),
            )),
        }
    }
}

fn find_savepoint(transaction: &Transaction, name: &str) -> Result<usize> {
    transaction
        .savepoints
        .iter()
        .rposition(|(known, _)| known == name)
        .ok_or_else(|| Error::semantic("3B001", format!("savepoint \"{name}\" does not exist")))
}
