//! Queries and what changes or ships rows: SELECT, INSERT, UPDATE, DELETE, COPY, SUBSCRIBE, EXPLAIN, VERIFY.

use super::{Reader, at, boolean_of, name_of};
use crate::error::{Error, Result};
use crate::sql::statement::{
    Copy, CopyDirection, CopyFormat, CopyOptions, CopyTarget, ExplainFormat, ExplainOptions, ExplainTarget, Name,
    QueryText, Statement, Subscribe,
};
use sqlparser::ast::{self, FromTable, Spanned, TableFactor, TableObject, TableWithJoins};
use sqlparser::tokenizer::{Token, TokenWithSpan};

impl Reader<'_> {
    pub(super) fn query_statement(&mut self) -> Result<Statement> {
        let query = self.query()?;
        // A WITH before INSERT and the like is read as a query whose body is that statement.
        match *query.body {
            ast::SetExpr::Insert(_) | ast::SetExpr::Update(_) | ast::SetExpr::Delete(_) | ast::SetExpr::Merge(_) => {
                Err(
                    Error::unsupported("WITH before INSERT, UPDATE or DELETE is not supported")
                        .with_hint("Put the WITH into the query that they read."),
                )
            }
            _ => Ok(Statement::Query(query)),
        }
    }

    fn first_token(&self) -> TokenWithSpan {
        self.parser.get_current_token().clone()
    }

    pub(super) fn insert(&mut self) -> Result<Statement> {
        self.expect("insert")?;
        let token = self.first_token();
        if self.peek_word().as_deref() != Some("into") {
            return Err(self.unexpected());
        }
        let overriding = self.peek_word().as_deref() == Some("overriding");
        if overriding {
            return Err(self.unsupported("OVERRIDING"));
        }
        let statement = self.read(|parser| parser.parse_insert(token))?;
        let ast::Statement::Insert(insert) = statement else {
            return Err(Error::unsupported("this form of INSERT is not supported"));
        };
        let TableObject::TableName(name) = &insert.table else {
            return Err(Error::unsupported(
                "INSERT into anything but a relation is not supported",
            ));
        };
        let target = name_of(self.whole, name)?;
        Ok(Statement::Insert {
            target,
            insert: Box::new(insert),
        })
    }

    pub(super) fn update(&mut self) -> Result<Statement> {
        self.expect("update")?;
        let token = self.first_token();
        let _ = self.take("only");
        let statement = self.read(|parser| parser.parse_update(token))?;
        let ast::Statement::Update(update) = statement else {
            return Err(Error::unsupported("this form of UPDATE is not supported"));
        };
        let target = self.target_of(&update.table)?;
        Ok(Statement::Update {
            target,
            update: Box::new(update),
        })
    }

    fn target_of(&self, table: &TableWithJoins) -> Result<Name> {
        match &table.relation {
            TableFactor::Table { name, args: None, .. } if table.joins.is_empty() => name_of(self.whole, name),
            other => Err(at(
                Error::syntax(format!("syntax error at or near \"{other}\"")),
                crate::sql::statement::position_of(self.whole, other.span().start),
            )),
        }
    }

    pub(super) fn delete(&mut self) -> Result<Statement> {
        self.expect("delete")?;
        let token = self.first_token();
        if self.peek_word().as_deref() != Some("from") {
            return Err(self.unexpected());
        }
        let statement = self.read(|parser| parser.parse_delete(token))?;
        let ast::Statement::Delete(delete) = statement else {
            return Err(Error::unsupported("this form of DELETE is not supported"));
        };
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let [table] = from.as_slice() else {
            return Err(Error::syntax("DELETE names one table"));
        };
        let target = self.target_of(table)?;
        Ok(Statement::Delete {
            target,
            delete: Box::new(delete),
        })
    }

    pub(super) fn truncate(&mut self) -> Result<Statement> {
        self.expect("truncate")?;
        let _ = self.take("table");
        let _ = self.take("only");
        let names = self.names()?;
        let _ = self.take_all(&["restart", "identity"]) || self.take_all(&["continue", "identity"]);
        let behavior = self.drop_behavior();
        Ok(Statement::Truncate { names, behavior })
    }

    pub(super) fn copy(&mut self) -> Result<Statement> {
        self.expect("copy")?;
        let target = if self.parser.peek_token_ref().token == Token::LParen {
            self.expect_token(&Token::LParen)?;
            let target = if self.peek_word().as_deref() == Some("subscribe") {
                CopyTarget::Subscribe(self.subscribe()?)
            } else {
                CopyTarget::Query(self.query()?)
            };
            self.expect_token(&Token::RParen)?;
            target
        } else {
            let name = self.name()?;
            CopyTarget::Relation(name, self.column_list()?)
        };
        let direction = if self.take("from") {
            if !matches!(target, CopyTarget::Relation(..)) {
                return Err(self.unexpected());
            }
            CopyDirection::In
        } else {
            self.expect("to")?;
            CopyDirection::Out
        };
        let stream = match direction {
            CopyDirection::In => "stdin",
            CopyDirection::Out => "stdout",
        };
        if !self.take(stream) {
            return Err(self
                .unsupported("COPY from or to a file or program on the server")
                .with_hint("Use STDIN and STDOUT; psql's \\copy reads and writes files on the client."));
        }
        let options = self.copy_options()?;
        if self.peek_word().as_deref() == Some("where") {
            return Err(self.unsupported("COPY ... WHERE"));
        }
        Ok(Statement::Copy(Copy {
            target,
            direction,
            options,
        }))
    }

    fn copy_options(&mut self) -> Result<CopyOptions> {
        let mut builder = CopyBuilder::default();
        let _ = self.take("with");
        if self.take_token(&Token::LParen) {
            loop {
                let name = self.identifier()?;
                self.copy_option(&mut builder, &name)?;
                if !self.take_token(&Token::Comma) {
                    break;
                }
            }
            self.expect_token(&Token::RParen)?;
        } else {
            self.old_copy_options(&mut builder)?;
        }
        builder.finish()
    }

    fn copy_option(&mut self, builder: &mut CopyBuilder, name: &str) -> Result<()> {
        match name {
            "format" => {
                let format = self.literal()?;
                builder.format = Some(match format.to_lowercase().as_str() {
                    "text" => CopyFormat::Text,
                    "csv" => CopyFormat::Csv,
                    "binary" => CopyFormat::Binary,
                    _ => {
                        return Err(Error::semantic(
                            "22023",
                            format!("COPY format \"{format}\" not recognized"),
                        ));
                    }
                });
            }
            "header" => {
                let bare = matches!(self.parser.peek_token_ref().token, Token::Comma | Token::RParen);
                builder.header = Some(bare || boolean_of("header", &self.literal()?)?);
            }
            "delimiter" => builder.delimiter = Some(self.literal()?),
            "null" => builder.null = Some(self.literal()?),
            "quote" => builder.quote = Some(self.literal()?),
            "escape" => builder.escape = Some(self.literal()?),
            "encoding" => self.utf8()?,
            "freeze" => {
                let _ = self.literal()?;
            }
            "force_quote" => {
                builder.force_quote = Some(if self.take_token(&Token::Mul) {
                    Vec::new()
                } else {
                    self.column_list()?
                });
            }
            "force_not_null" => builder.force_not_null = self.column_list()?,
            "force_null" => builder.force_null = self.column_list()?,
            "batch_rows" => {
                // As all options of ours are written; PostgreSQL's have no sign.
                let _ = self.take_token(&Token::Eq);
                let rows = self.integer()?;
                if rows <= 0 {
                    return Err(Error::semantic("22023", "batch_rows must be positive"));
                }
                builder.batch_rows = Some(rows as usize);
            }
            _ => return Err(Error::syntax(format!("option \"{name}\" not recognized"))),
        }
        Ok(())
    }

    /// The text that clients send and want is UTF-8.
    fn utf8(&mut self) -> Result<()> {
        let name = self.literal()?;
        match name.to_lowercase().replace(['-', '_'], "").as_str() {
            "utf8" | "unicode" => Ok(()),
            _ => Err(Error::unsupported(format!("encoding \"{name}\" is not supported")).with_hint("Text is UTF8.")),
        }
    }

    /// The syntax from before 9.0, which psql's `\copy` and old tools still send.
    fn old_copy_options(&mut self, builder: &mut CopyBuilder) -> Result<()> {
        loop {
            if self.take("csv") {
                builder.format = Some(CopyFormat::Csv);
            } else if self.take("binary") {
                builder.format = Some(CopyFormat::Binary);
            } else if self.take("header") {
                builder.header = Some(true);
            } else if self.take("delimiter") || self.take("delimiters") {
                let _ = self.take("as");
                builder.delimiter = Some(self.literal()?);
            } else if self.take("null") {
                let _ = self.take("as");
                builder.null = Some(self.literal()?);
            } else if self.take("quote") {
                let _ = self.take("as");
                builder.quote = Some(self.literal()?);
            } else if self.take("escape") {
                let _ = self.take("as");
                builder.escape = Some(self.literal()?);
            } else if self.take("encoding") {
                self.utf8()?;
            } else {
                return Ok(());
            }
        }
    }

    pub(super) fn subscribe(&mut self) -> Result<Subscribe> {
        self.expect("subscribe")?;
        let _ = self.take("to");
        let (query, relation) = if self.parser.peek_token_ref().token == Token::LParen {
            self.expect_token(&Token::LParen)?;
            let query = self.query_text()?;
            self.expect_token(&Token::RParen)?;
            (query, None)
        } else {
            let name = self.name()?;
            (select_all(&name)?, Some(name))
        };
        let options = self.options()?;
        let mut subscribe = Subscribe {
            query,
            relation,
            snapshot: true,
            progress: false,
            as_of_epoch: None,
        };
        for (name, value) in &options {
            match name.as_str() {
                "snapshot" => subscribe.snapshot = boolean_of("SNAPSHOT", value)?,
                "progress" => subscribe.progress = boolean_of("PROGRESS", value)?,
                _ => return Err(Error::syntax(format!("option \"{name}\" not recognized"))),
            }
        }
        if self.take_all(&["as", "of", "epoch"]) {
            let error = self.unexpected();
            subscribe.as_of_epoch = Some(u64::try_from(self.integer()?).map_err(|_| error)?);
        }
        Ok(subscribe)
    }

    pub(super) fn explain(&mut self) -> Result<Statement> {
        self.expect("explain")?;
        let mut options = ExplainOptions {
            format: ExplainFormat::Text,
            rules: false,
            state: false,
            analyze: false,
            verbose: false,
        };
        if self.parser.peek_token_ref().token == Token::LParen
            && !matches!(
                self.peek_nth_word(1).as_deref(),
                Some("select" | "values" | "with" | "table")
            )
            && self.parser.peek_nth_token_ref(1).token != Token::LParen
        {
            self.expect_token(&Token::LParen)?;
            loop {
                self.explain_option(&mut options)?;
                if !self.take_token(&Token::Comma) {
                    break;
                }
            }
            self.expect_token(&Token::RParen)?;
        } else {
            options.analyze = self.take("analyze") || self.take("analyse");
            options.verbose = self.take("verbose");
        }
        let target = if self.take_all(&["materialized", "view"]) {
            ExplainTarget::MaterializedView(self.name()?)
        } else {
            match self.peek_word().as_deref() {
                None
                | Some(
                    "select" | "values" | "with" | "table" | "insert" | "update" | "delete" | "create" | "execute"
                    | "declare" | "subscribe",
                ) => ExplainTarget::Statement(Box::new(self.statement()?)),
                _ => return Err(self.unexpected()),
            }
        };
        Ok(Statement::Explain { options, target })
    }

    fn explain_option(&mut self, options: &mut ExplainOptions) -> Result<()> {
        let name = self.identifier()?;
        if name == "format" {
            let format = self.literal()?;
            options.format = match format.to_lowercase().as_str() {
                "text" => ExplainFormat::Text,
                "json" => ExplainFormat::Json,
                "dot" => ExplainFormat::Dot,
                _ => {
                    return Err(Error::semantic(
                        "22023",
                        format!("unrecognized value for EXPLAIN option \"format\": \"{format}\""),
                    ));
                }
            };
            return Ok(());
        }
        let bare = matches!(self.parser.peek_token_ref().token, Token::Comma | Token::RParen);
        let on = bare || self.boolean(&name)?;
        match name.as_str() {
            "rules" => options.rules = on,
            "state" => options.state = on,
            "analyze" => options.analyze = on,
            "verbose" => options.verbose = on,
            "costs" | "buffers" | "timing" | "summary" | "settings" | "wal" => {}
            _ => return Err(Error::syntax(format!("unrecognized EXPLAIN option \"{name}\""))),
        }
        Ok(())
    }

    pub(super) fn verify(&mut self) -> Result<Statement> {
        self.expect("verify")?;
        self.expect("materialized")?;
        self.expect("view")?;
        Ok(Statement::Verify(self.name()?))
    }
}

/// `SELECT * FROM name`.
fn select_all(name: &Name) -> Result<QueryText> {
    let quoted = |part: &str| format!("\"{}\"", part.replace('"', "\"\""));
    let relation = match &name.schema {
        Some(schema) => format!("{}.{}", quoted(schema), quoted(&name.name)),
        None => quoted(&name.name),
    };
    let text = format!("SELECT * FROM {relation}");
    super::parse_query(&text)
}

/// COPY's options before the defaults of the format are known.
#[derive(Default)]
struct CopyBuilder {
    format: Option<CopyFormat>,
    header: Option<bool>,
    delimiter: Option<String>,
    null: Option<String>,
    quote: Option<String>,
    escape: Option<String>,
    force_quote: Option<Vec<String>>,
    force_not_null: Vec<String>,
    force_null: Vec<String>,
    batch_rows: Option<usize>,
}

impl CopyBuilder {
    fn finish(self) -> Result<CopyOptions> {
        let format = self.format.unwrap_or(CopyFormat::Text);
        let csv = format == CopyFormat::Csv;
        if !csv && (self.quote.is_some() || self.escape.is_some() || self.force_quote.is_some()) {
            return Err(Error::unsupported("COPY quote available only in CSV mode"));
        }
        let delimiter = one_byte("delimiter", self.delimiter.as_deref(), if csv { ',' } else { '\t' })?;
        if delimiter == '\n' || delimiter == '\r' {
            return Err(Error::semantic(
                "22023",
                "COPY delimiter cannot be newline or carriage return",
            ));
        }
        let quote = one_byte("quote", self.quote.as_deref(), '"')?;
        let escape = one_byte("escape", self.escape.as_deref(), quote)?;
        if csv && quote == delimiter {
            return Err(Error::semantic("22023", "COPY delimiter and quote must be different"));
        }
        let null = self
            .null
            .unwrap_or_else(|| if csv { String::new() } else { "\\N".to_owned() });
        if null.contains(['\n', '\r']) {
            return Err(Error::semantic(
                "22023",
                "COPY null representation cannot use newline or carriage return",
            ));
        }
        Ok(CopyOptions {
            format,
            header: self.header.unwrap_or(false),
            delimiter,
            null,
            quote,
            escape,
            force_quote: self.force_quote,
            force_not_null: self.force_not_null,
            force_null: self.force_null,
            batch_rows: self.batch_rows,
        })
    }
}

fn one_byte(what: &str, given: Option<&str>, default: char) -> Result<char> {
    let Some(text) = given else {
        return Ok(default);
    };
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) if c.is_ascii() => Ok(c),
        _ => Err(Error::unsupported(format!(
            "COPY {what} must be a single one-byte character"
        ))),
    }
}
