//! What concerns a session: settings, transactions, prepared statements, cursors, notifications.

use super::Reader;
use crate::error::{Error, Result};
use crate::sql::statement::{
    Chain, CursorQuery, Discard, FetchDirection, OneOrAll, SetScope, SetValue, Show, Statement, TransactionModes,
};
use sqlparser::tokenizer::Token;

impl Reader<'_> {
    pub(super) fn session_statement(&mut self, first: &str) -> Result<Statement> {
        match first {
            "begin" | "start" => self.begin(),
            "commit" | "end" => self.commit(),
            "rollback" | "abort" => self.rollback(),
            "savepoint" => {
                self.expect("savepoint")?;
                Ok(Statement::Savepoint(self.identifier()?))
            }
            "release" => {
                self.expect("release")?;
                let _ = self.take("savepoint");
                Ok(Statement::ReleaseSavepoint(self.identifier()?))
            }
            "set" => self.set(),
            "reset" => self.reset(),
            "show" => self.show(),
            "prepare" => self.prepare(),
            "execute" => self.execute(),
            "deallocate" => {
                self.expect("deallocate")?;
                let _ = self.take("prepare");
                Ok(Statement::Deallocate(self.one_or_all()?))
            }
            "declare" => self.declare(),
            "fetch" => {
                let (direction, cursor) = self.fetch()?;
                Ok(Statement::Fetch { direction, cursor })
            }
            "move" => {
                let (direction, cursor) = self.fetch()?;
                Ok(Statement::Move { direction, cursor })
            }
            "close" => {
                self.expect("close")?;
                Ok(Statement::Close(self.one_or_all()?))
            }
            "discard" => self.discard(),
            "flush" => {
                self.expect("flush")?;
                Ok(Statement::Flush)
            }
            "listen" => {
                self.expect("listen")?;
                Ok(Statement::Listen(self.identifier()?))
            }
            "unlisten" => {
                self.expect("unlisten")?;
                if self.take_token(&Token::Mul) {
                    return Ok(Statement::Unlisten(OneOrAll::All));
                }
                Ok(Statement::Unlisten(OneOrAll::One(self.identifier()?)))
            }
            "notify" => self.notify(),
            other => self.other_statement(other),
        }
    }

    fn other_statement(&mut self, first: &str) -> Result<Statement> {
        let tag = match first {
            "comment" => "COMMENT",
            "analyze" | "analyse" => "ANALYZE",
            "vacuum" => "VACUUM",
            "checkpoint" => "CHECKPOINT",
            "grant" | "revoke" | "merge" | "lock" | "cluster" | "reindex" | "call" | "do" | "load" | "reassign"
            | "security" | "import" => {
                return Err(self.unsupported(&first.to_uppercase()));
            }
            _ => return Err(self.unexpected()),
        };
        while !self.at_end() {
            self.parser.advance_token();
        }
        Ok(Statement::Nothing(tag))
    }

    fn begin(&mut self) -> Result<Statement> {
        if self.take("start") {
            self.expect("transaction")?;
        } else {
            self.expect("begin")?;
            let _ = self.take("transaction") || self.take("work");
        }
        Ok(Statement::Begin(self.transaction_modes()?))
    }

    /// `ISOLATION LEVEL ...`, `READ ONLY`, `DEFERRABLE`, with or without commas.
    fn transaction_modes(&mut self) -> Result<TransactionModes> {
        let mut modes = TransactionModes::default();
        loop {
            if self.take_all(&["isolation", "level"]) {
                let level = if self.take("serializable") {
                    "serializable"
                } else if self.take_all(&["repeatable", "read"]) {
                    "repeatable read"
                } else if self.take_all(&["read", "committed"]) {
                    "read committed"
                } else if self.take_all(&["read", "uncommitted"]) {
                    "read uncommitted"
                } else {
                    return Err(self.unexpected());
                };
                modes.isolation = Some(level.to_owned());
            } else if self.take_all(&["read", "only"]) {
                modes.read_only = Some(true);
            } else if self.take_all(&["read", "write"]) {
                modes.read_only = Some(false);
            } else if !(self.take("deferrable") || self.take_all(&["not", "deferrable"])) {
                return Ok(modes);
            }
            let _ = self.take_token(&Token::Comma);
        }
    }

    fn chain(&mut self) -> Chain {
        if self.take_all(&["and", "chain"]) {
            return Chain::Yes;
        }
        let _ = self.take_all(&["and", "no", "chain"]);
        Chain::No
    }

    fn commit(&mut self) -> Result<Statement> {
        let _ = self.take("commit") || self.take("end");
        if self.peek_word().as_deref() == Some("prepared") {
            return Err(self.unsupported("COMMIT PREPARED"));
        }
        let _ = self.take("transaction") || self.take("work");
        Ok(Statement::Commit(self.chain()))
    }

    fn rollback(&mut self) -> Result<Statement> {
        let _ = self.take("rollback") || self.take("abort");
        if self.peek_word().as_deref() == Some("prepared") {
            return Err(self.unsupported("ROLLBACK PREPARED"));
        }
        let _ = self.take("transaction") || self.take("work");
        if self.take("to") {
            let _ = self.take("savepoint");
            return Ok(Statement::RollbackToSavepoint(self.identifier()?));
        }
        Ok(Statement::Rollback(self.chain()))
    }

    /// `a.b` in lower case; the names that are two words.
    pub(super) fn setting_name(&mut self) -> Result<String> {
        if self.take_all(&["time", "zone"]) {
            return Ok("timezone".to_owned());
        }
        if self.take_all(&["transaction", "isolation", "level"]) {
            return Ok("transaction_isolation".to_owned());
        }
        if self.take_all(&["session", "authorization"]) {
            return Ok("session_authorization".to_owned());
        }
        let mut name = self.identifier()?.to_lowercase();
        while self.take_token(&Token::Period) {
            name = format!("{name}.{}", self.identifier()?.to_lowercase());
        }
        Ok(name)
    }

    pub(super) fn setting_value(&mut self) -> Result<SetValue> {
        if self.take("default") {
            return Ok(SetValue::Default);
        }
        let mut values = vec![self.literal()?];
        while self.take_token(&Token::Comma) {
            values.push(self.literal()?);
        }
        Ok(SetValue::Values(values))
    }

    fn set(&mut self) -> Result<Statement> {
        self.expect("set")?;
        if self.take_all(&["session", "characteristics", "as", "transaction"]) {
            let modes = self.transaction_modes()?;
            return Ok(Statement::SetTransaction {
                scope: SetScope::Session,
                modes,
            });
        }
        let scope = if self.take("local") {
            SetScope::Transaction
        } else {
            // SESSION AUTHORIZATION is a setting's name.
            if self.peek_nth_word(1).as_deref() != Some("authorization") {
                let _ = self.take("session");
            }
            SetScope::Session
        };
        if self.peek_word().as_deref() == Some("transaction") && self.parser.peek_nth_token_ref(1).token != Token::Eq {
            self.expect("transaction")?;
            if self.peek_word().as_deref() == Some("snapshot") {
                return Err(self.unsupported("SET TRANSACTION SNAPSHOT"));
            }
            let modes = self.transaction_modes()?;
            return Ok(Statement::SetTransaction {
                scope: SetScope::Transaction,
                modes,
            });
        }
        if self.take_all(&["time", "zone"]) {
            return self.set_time_zone(scope);
        }
        if self.take("names") {
            let value = if self.at_end() {
                SetValue::Default
            } else {
                self.setting_value()?
            };
            return Ok(Statement::Set {
                name: "client_encoding".to_owned(),
                value,
                scope,
            });
        }
        if self.peek_word().as_deref() == Some("constraints") {
            while !self.at_end() {
                self.parser.advance_token();
            }
            return Ok(Statement::Nothing("SET CONSTRAINTS"));
        }
        let word_values = matches!(self.peek_word().as_deref(), Some("role"))
            || self.peek_nth_word(1).as_deref() == Some("authorization");
        let name = self.setting_name()?;
        let assigns = self.take_token(&Token::Eq) || self.take("to");
        if !assigns && !word_values {
            return Err(self.unexpected());
        }
        let value = self.setting_value()?;
        Ok(Statement::Set { name, value, scope })
    }

    fn set_time_zone(&mut self, scope: SetScope) -> Result<Statement> {
        let value = if self.take("local") || self.take("default") {
            SetValue::Default
        } else if self.take("interval") {
            let text = self.literal()?;
            while !self.at_end() {
                self.parser.advance_token();
            }
            SetValue::Values(vec![text])
        } else {
            SetValue::Values(vec![self.literal()?])
        };
        Ok(Statement::Set {
            name: "timezone".to_owned(),
            value,
            scope,
        })
    }

    fn reset(&mut self) -> Result<Statement> {
        self.expect("reset")?;
        if self.take("all") {
            return Ok(Statement::Reset(OneOrAll::All));
        }
        Ok(Statement::Reset(OneOrAll::One(self.setting_name()?)))
    }

    fn show(&mut self) -> Result<Statement> {
        self.expect("show")?;
        if self.take("create") {
            let kind = self.object_kind();
            return Ok(Statement::Show(Show::Create(kind, self.name()?)));
        }
        if self.take_all(&["materialized", "views"]) {
            return Ok(Statement::Show(Show::MaterializedViews));
        }
        let single = matches!(self.parser.peek_nth_token_ref(1).token, Token::EOF);
        let show = match self.peek_word().as_deref() {
            Some("all") if single => Show::All,
            Some("streams") if single => Show::Streams,
            Some("tables") if single => Show::Tables,
            Some("views") if single => Show::Views,
            Some("sinks") if single => Show::Sinks,
            Some("indexes") if single => Show::Indexes,
            Some("watermarks") if single => Show::Watermarks,
            Some("schemas") if single => Show::Schemas,
            _ => return Ok(Statement::Show(Show::Setting(self.setting_name()?))),
        };
        self.parser.advance_token();
        Ok(Statement::Show(show))
    }

    fn prepare(&mut self) -> Result<Statement> {
        self.expect("prepare")?;
        if self.peek_word().as_deref() == Some("transaction") {
            return Err(self.unsupported("PREPARE TRANSACTION"));
        }
        let name = self.identifier()?;
        let mut types = Vec::new();
        if self.take_token(&Token::LParen) {
            loop {
                types.push(self.data_type()?);
                if !self.take_token(&Token::Comma) {
                    break;
                }
            }
            self.expect_token(&Token::RParen)?;
        }
        self.expect("as")?;
        match self.peek_word().as_deref() {
            None | Some("select" | "values" | "with" | "table" | "insert" | "update" | "delete") => {}
            _ => return Err(self.unexpected()),
        }
        let statement = Box::new(self.statement()?);
        Ok(Statement::Prepare { name, types, statement })
    }

    fn execute(&mut self) -> Result<Statement> {
        self.expect("execute")?;
        let name = self.identifier()?;
        let mut parameters = Vec::new();
        if self.take_token(&Token::LParen) && !self.take_token(&Token::RParen) {
            loop {
                parameters.push(self.expression()?);
                if !self.take_token(&Token::Comma) {
                    break;
                }
            }
            self.expect_token(&Token::RParen)?;
        }
        Ok(Statement::Execute { name, parameters })
    }

    fn one_or_all(&mut self) -> Result<OneOrAll> {
        if self.take("all") {
            return Ok(OneOrAll::All);
        }
        Ok(OneOrAll::One(self.identifier()?))
    }

    fn declare(&mut self) -> Result<Statement> {
        self.expect("declare")?;
        let name = self.identifier()?;
        let (mut scroll, mut hold, mut binary) = (false, false, false);
        loop {
            if self.take("binary") {
                binary = true;
            } else if self.take("scroll") {
                scroll = true;
            } else if !(self.take("insensitive") || self.take("asensitive") || self.take_all(&["no", "scroll"])) {
                break;
            }
        }
        self.expect("cursor")?;
        if self.take_all(&["with", "hold"]) {
            hold = true;
        } else {
            let _ = self.take_all(&["without", "hold"]);
        }
        self.expect("for")?;
        let query = if self.peek_word().as_deref() == Some("subscribe") {
            CursorQuery::Subscribe(self.subscribe()?)
        } else {
            CursorQuery::Query(self.query()?)
        };
        Ok(Statement::Declare {
            name,
            query,
            scroll,
            hold,
            binary,
        })
    }

    fn fetch(&mut self) -> Result<(FetchDirection, String)> {
        self.parser.advance_token();
        let number_next = matches!(
            self.parser.peek_token_ref().token,
            Token::Number(..) | Token::Minus | Token::Plus
        );
        let direction = if number_next {
            FetchDirection::Count(self.integer()?)
        } else if self.take("next") {
            FetchDirection::Count(1)
        } else if self.take("prior") {
            FetchDirection::Count(-1)
        } else if self.take("first") {
            FetchDirection::Absolute(1)
        } else if self.take("last") {
            FetchDirection::Absolute(-1)
        } else if self.take("absolute") {
            FetchDirection::Absolute(self.integer()?)
        } else if self.take("relative") {
            FetchDirection::Relative(self.integer()?)
        } else if self.take("all") || self.take_all(&["forward", "all"]) {
            FetchDirection::All
        } else if self.take_all(&["backward", "all"]) {
            FetchDirection::BackwardAll
        } else if self.take("forward") {
            FetchDirection::Count(self.optional_count()?)
        } else if self.take("backward") {
            FetchDirection::Count(-self.optional_count()?)
        } else {
            FetchDirection::Count(1)
        };
        let _ = self.take("from") || self.take("in");
        Ok((direction, self.identifier()?))
    }

    fn optional_count(&mut self) -> Result<i64> {
        if matches!(self.parser.peek_token_ref().token, Token::Number(..) | Token::Minus) {
            self.integer()
        } else {
            Ok(1)
        }
    }

    fn discard(&mut self) -> Result<Statement> {
        self.expect("discard")?;
        let what = match self.peek_word().as_deref() {
            Some("all") => Discard::All,
            Some("plans") => Discard::Plans,
            Some("sequences") => Discard::Sequences,
            Some("temp" | "temporary") => Discard::Temporary,
            _ => return Err(self.unexpected()),
        };
        self.parser.advance_token();
        Ok(Statement::Discard(what))
    }

    fn notify(&mut self) -> Result<Statement> {
        self.expect("notify")?;
        let channel = self.identifier()?;
        let mut payload = String::new();
        if self.take_token(&Token::Comma) {
            if !matches!(
                self.parser.peek_token_ref().token,
                Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_)
            ) {
                return Err(self.unexpected());
            }
            payload = self.literal()?;
            if payload.len() >= 8000 {
                return Err(Error::semantic("22023", "payload string too long"));
            }
        }
        Ok(Statement::Notify { channel, payload })
    }
}
