//! CREATE, ALTER, DROP.

use super::{Reader, at, fold};
use crate::catalog::Emit;
use crate::error::{Error, Result};
use crate::sql::data_type::type_of;
use crate::sql::statement::{
    ColumnDefinition, DropBehavior, IfExists, Name, ObjectKind, Options, SetValue, SinkInput, Statement, position_of,
};
use sqlparser::ast::{ColumnOption, ColumnOptionDef, DataType, ObjectNamePart};
use sqlparser::tokenizer::Token;

/// The body of CREATE STREAM and CREATE TABLE.
#[derive(Default)]
struct Elements {
    columns: Vec<ColumnDefinition>,
    primary_key: Vec<String>,
    watermark: Option<(String, String)>,
}

impl Reader<'_> {
    pub(super) fn create(&mut self) -> Result<Statement> {
        self.expect("create")?;
        let replace = self.take_all(&["or", "replace"]);
        let exists = if replace { IfExists::Replace } else { IfExists::Fail };
        match self.peek_word().as_deref() {
            Some("stream") => self.create_stream(exists),
            Some("table") => self.create_table(exists),
            Some("view") => self.create_view(exists),
            Some("materialized") => self.create_materialized_view(exists),
            Some("sink") => self.create_sink(exists),
            Some("index") => self.create_index(),
            Some("unique") => Err(self
                .unsupported("a unique index")
                .with_hint("A table's PRIMARY KEY is the one uniqueness that is enforced.")),
            Some("user" | "role") => self.create_user(),
            Some("schema") => self.create_schema(),
            Some("temp" | "temporary" | "unlogged" | "global" | "local") => {
                Err(self.unsupported("a temporary or unlogged table"))
            }
            Some(
                kind @ ("sequence" | "function" | "procedure" | "type" | "domain" | "trigger" | "extension"
                | "database" | "rule" | "aggregate" | "operator" | "collation" | "cast" | "policy"
                | "publication" | "subscription" | "server" | "foreign" | "event" | "group" | "tablespace"
                | "statistics" | "text" | "access" | "conversion" | "language" | "transform" | "recursive"
                | "source" | "connection"),
            ) => Err(self.unsupported(&format!("CREATE {}", kind.to_uppercase()))),
            _ => Err(self.unexpected()),
        }
    }

    /// `IF NOT EXISTS`, if it is there.
    fn if_not_exists(&mut self, otherwise: IfExists) -> Result<IfExists> {
        if !self.take_all(&["if", "not", "exists"]) {
            return Ok(otherwise);
        }
        if otherwise == IfExists::Replace {
            return Err(self.unexpected());
        }
        Ok(IfExists::Notice)
    }

    fn create_stream(&mut self, exists: IfExists) -> Result<Statement> {
        if exists == IfExists::Replace {
            return Err(self.unsupported("CREATE OR REPLACE STREAM"));
        }
        self.expect("stream")?;
        let if_exists = self.if_not_exists(exists)?;
        let name = self.name()?;
        let elements = self.elements()?;
        if !elements.primary_key.is_empty() {
            return Err(Error::unsupported("a primary key on a stream is not supported")
                .with_hint("A stream only grows; use CREATE TABLE for rows that change."));
        }
        let options = self.options()?;
        Ok(Statement::CreateStream {
            name,
            columns: elements.columns,
            watermark: elements.watermark,
            options,
            if_exists,
        })
    }

    fn create_table(&mut self, exists: IfExists) -> Result<Statement> {
        if exists == IfExists::Replace {
            return Err(self.unexpected());
        }
        self.expect("table")?;
        let if_exists = self.if_not_exists(exists)?;
        let name = self.name()?;
        if self.peek_word().as_deref() == Some("as") || self.is_column_names_then_as() {
            let columns = self.column_list()?;
            self.expect("as")?;
            let query = self.query_text()?;
            let query = self.with_data(query)?;
            return Ok(Statement::CreateTableAs {
                name,
                columns,
                query,
                if_exists,
            });
        }
        let position = self.position();
        let elements = self.elements()?;
        if elements.watermark.is_some() {
            return Err(at(
                Error::unsupported("WATERMARK on a table is not supported")
                    .with_hint("Use CREATE STREAM for rows that come in the order of time."),
                position,
            ));
        }
        if matches!(
            self.peek_word().as_deref(),
            Some("inherits" | "partition" | "tablespace" | "using")
        ) {
            return Err(self.unsupported("this clause of CREATE TABLE"));
        }
        let options = self.options()?;
        Ok(Statement::CreateTable {
            name,
            columns: elements.columns,
            primary_key: elements.primary_key,
            options,
            if_exists,
        })
    }

    /// Whether `(a, b) AS` comes next: names only.
    fn is_column_names_then_as(&self) -> bool {
        let mut n = 0;
        if self.parser.peek_nth_token_ref(n).token != Token::LParen {
            return false;
        }
        loop {
            if !matches!(self.parser.peek_nth_token_ref(n + 1).token, Token::Word(_)) {
                return false;
            }
            match self.parser.peek_nth_token_ref(n + 2).token {
                Token::Comma => n += 2,
                Token::RParen => return self.peek_nth_word(n + 3).as_deref() == Some("as"),
                _ => return false,
            }
        }
    }

    /// `WITH DATA` after a query, which is what happens anyway.
    fn with_data<T>(&mut self, query: T) -> Result<T> {
        if self.take_all(&["with", "no", "data"]) {
            return Err(Error::unsupported("WITH NO DATA is not supported"));
        }
        let _ = self.take_all(&["with", "data"]);
        Ok(query)
    }

    /// `(column type ..., PRIMARY KEY (...), WATERMARK FOR ...)`.
    fn elements(&mut self) -> Result<Elements> {
        let mut elements = Elements::default();
        self.expect_token(&Token::LParen)?;
        if self.take_token(&Token::RParen) {
            return Ok(elements);
        }
        loop {
            self.element(&mut elements)?;
            if !self.take_token(&Token::Comma) {
                break;
            }
        }
        self.expect_token(&Token::RParen)?;
        Ok(elements)
    }

    fn element(&mut self, elements: &mut Elements) -> Result<()> {
        if self.take_all(&["watermark", "for"]) {
            let column = self.identifier()?;
            self.expect("as")?;
            let expression = self.expression()?;
            if elements.watermark.is_some() {
                return Err(Error::syntax("a stream can have one WATERMARK only"));
            }
            elements.watermark = Some((column, expression.to_string()));
            return Ok(());
        }
        let constraint = self.peek_word().as_deref() == Some("constraint");
        if constraint {
            self.expect("constraint")?;
            self.identifier()?;
        }
        if self.take_all(&["primary", "key"]) {
            return self.primary_key(elements);
        }
        match self.peek_word().as_deref() {
            Some("unique") if constraint || self.parser.peek_nth_token_ref(1).token == Token::LParen => Err(self
                .unsupported("a UNIQUE constraint")
                .with_hint("A table's PRIMARY KEY is the one uniqueness that is enforced.")),
            Some("check") if constraint || self.parser.peek_nth_token_ref(1).token == Token::LParen => {
                Err(self.unsupported("a CHECK constraint"))
            }
            Some("foreign") if self.peek_nth_word(1).as_deref() == Some("key") => {
                Err(self.unsupported("a FOREIGN KEY constraint"))
            }
            Some("exclude") if constraint => Err(self.unsupported("an EXCLUDE constraint")),
            Some("like") => Err(self.unsupported("LIKE in CREATE TABLE")),
            _ => self.column(elements),
        }
    }

    fn primary_key(&mut self, elements: &mut Elements) -> Result<()> {
        let position = self.position();
        let columns = self.column_list()?;
        if columns.is_empty() {
            return Err(self.unexpected());
        }
        if !elements.primary_key.is_empty() {
            return Err(at(
                Error::semantic("42P16", "multiple primary keys for table are not allowed"),
                position,
            ));
        }
        elements.primary_key = columns;
        Ok(())
    }

    fn column(&mut self, elements: &mut Elements) -> Result<()> {
        let position = self.position();
        let type_position = position_of(self.whole, self.parser.peek_nth_token_ref(1).span.start);
        let definition = self.read(|parser| parser.parse_column_def())?;
        let name = fold(&definition.name);
        let kind = type_of(&definition.data_type).map_err(|error| at(error, type_position))?;
        let mut column = ColumnDefinition {
            name,
            kind,
            not_null: false,
            default: None,
            generated: None,
            position,
        };
        if is_serial(&definition.data_type) {
            return Err(at(
                Error::unsupported("serial columns are not supported")
                    .with_hint("There are no sequences; give the values yourself."),
                type_position,
            ));
        }
        for ColumnOptionDef { option, .. } in definition.options {
            self.column_option(&mut column, elements, option, position)?;
        }
        if elements.columns.iter().any(|known| known.name == column.name) {
            return Err(at(
                Error::semantic("42701", format!("column \"{}\" specified more than once", column.name)),
                position,
            ));
        }
        elements.columns.push(column);
        Ok(())
    }

    fn column_option(
        &self,
        column: &mut ColumnDefinition,
        elements: &mut Elements,
        option: ColumnOption,
        position: Option<usize>,
    ) -> Result<()> {
        match option {
            ColumnOption::Null => {}
            ColumnOption::NotNull => column.not_null = true,
            ColumnOption::Default(expression) => column.default = Some(expression.to_string()),
            ColumnOption::PrimaryKey(_) => {
                column.not_null = true;
                if !elements.primary_key.is_empty() {
                    return Err(at(
                        Error::semantic("42P16", "multiple primary keys for table are not allowed"),
                        position,
                    ));
                }
                elements.primary_key.push(column.name.clone());
            }
            ColumnOption::Generated {
                generation_expr: Some(expression),
                ..
            } => column.generated = Some(expression.to_string()),
            other => {
                let what = match other {
                    ColumnOption::Unique(_) => "a UNIQUE constraint",
                    ColumnOption::ForeignKey(_) => "a FOREIGN KEY constraint",
                    ColumnOption::Check(_) => "a CHECK constraint",
                    ColumnOption::Collation(_) => "COLLATE on a column",
                    ColumnOption::Generated { .. } | ColumnOption::Identity(_) => "an identity column",
                    _ => "this column option",
                };
                return Err(at(Error::unsupported(format!("{what} is not supported")), position));
            }
        }
        if column.default.is_some() && column.generated.is_some() {
            return Err(at(
                Error::syntax(format!(
                    "both default and generation expression specified for column \"{}\"",
                    column.name
                )),
                position,
            ));
        }
        Ok(())
    }

    fn create_view(&mut self, exists: IfExists) -> Result<Statement> {
        self.expect("view")?;
        let if_exists = self.if_not_exists(exists)?;
        let name = self.name()?;
        let columns = self.column_list()?;
        let _ = self.options()?;
        self.expect("as")?;
        let query = self.query_text()?;
        if self.peek_word().as_deref() == Some("with") {
            return Err(self.unsupported("WITH CHECK OPTION"));
        }
        Ok(Statement::CreateView {
            name,
            columns,
            query,
            if_exists,
        })
    }

    fn create_materialized_view(&mut self, exists: IfExists) -> Result<Statement> {
        self.expect("materialized")?;
        self.expect("view")?;
        let if_exists = self.if_not_exists(exists)?;
        let name = self.name()?;
        let columns = self.column_list()?;
        let options = self.options()?;
        self.expect("as")?;
        let emit = self.cut_emit();
        let query = self.query_text()?;
        let query = self.with_data(query)?;
        Ok(Statement::CreateMaterializedView {
            name,
            columns,
            query,
            emit,
            options,
            if_exists,
        })
    }

    /// Takes `EMIT ON ...` off the end, where sqlparser would take EMIT for an alias.
    fn cut_emit(&mut self) -> Emit {
        let next = self.parser.index();
        let words: Vec<Option<&str>> = self.tokens[next.min(self.tokens.len())..]
            .iter()
            .map(|token| super::word(&token.token))
            .collect();
        let (emit, length) = match words.as_slice() {
            [.., Some("emit"), Some("on"), Some("update")] => (Emit::OnUpdate, 3),
            [.., Some("emit"), Some("on"), Some("window"), Some("close")] => (Emit::OnWindowClose, 4),
            _ => return Emit::OnUpdate,
        };
        let kept = self.tokens.len() - length;
        self.stop = Some(super::byte_of(self.whole, self.tokens[kept].span.start));
        self.tokens.truncate(kept);
        self.restart(next);
        emit
    }

    /// Reads on from token `index` of what is left.
    fn restart(&mut self, index: usize) {
        let stop = self.stop;
        let tokens = std::mem::take(&mut self.tokens);
        *self = Reader::new(self.whole, tokens);
        self.stop = stop;
        for _ in 0..index {
            self.parser.advance_token();
        }
    }

    fn create_sink(&mut self, exists: IfExists) -> Result<Statement> {
        if exists == IfExists::Replace {
            return Err(self.unsupported("CREATE OR REPLACE SINK"));
        }
        self.expect("sink")?;
        let if_exists = self.if_not_exists(exists)?;
        let name = self.name()?;
        if self.take("from") {
            let input = SinkInput::Relation(self.name()?);
            let options = self.options()?;
            return Ok(Statement::CreateSink {
                name,
                input,
                options,
                if_exists,
            });
        }
        self.expect("as")?;
        // The options come last, and WITH would begin no clause of a query.
        let options = self.cut_options()?;
        let query = self.query_text()?;
        Ok(Statement::CreateSink {
            name,
            input: SinkInput::Query(query),
            options,
            if_exists,
        })
    }

    /// Reads `WITH (...)` off the end of the statement.
    fn cut_options(&mut self) -> Result<Options> {
        let next = self.parser.index();
        let mut depth = 0usize;
        let mut start = None;
        for (index, token) in self.tokens.iter().enumerate().skip(next) {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                _ if depth == 0
                    && index > next
                    && super::word(&token.token) == Some("with")
                    && self.tokens.get(index + 1).is_some_and(|t| t.token == Token::LParen) =>
                {
                    start = Some(index);
                }
                _ => {}
            }
        }
        let Some(start) = start else {
            return Ok(Options::new());
        };
        let mut tail = Reader::new(self.whole, self.tokens[start..].to_vec());
        let options = tail.options()?;
        tail.end()?;
        self.stop = Some(super::byte_of(self.whole, self.tokens[start].span.start));
        self.tokens.truncate(start);
        self.restart(next);
        Ok(options)
    }

    fn create_index(&mut self) -> Result<Statement> {
        self.expect("index")?;
        let _ = self.take("concurrently");
        let if_exists = self.if_not_exists(IfExists::Fail)?;
        let name = if self.peek_word().as_deref() == Some("on") {
            None
        } else {
            Some(self.identifier()?)
        };
        self.expect("on")?;
        let on = self.name()?;
        if self.take("using") {
            self.identifier()?;
        }
        self.expect_token(&Token::LParen)?;
        let mut columns = Vec::new();
        loop {
            if !matches!(self.parser.peek_token_ref().token, Token::Word(_)) {
                return Err(self.unsupported("an index on an expression"));
            }
            columns.push(self.identifier()?);
            let _ = self.take("asc") || self.take("desc");
            if self.take("nulls") && !self.take("first") {
                self.expect("last")?;
            }
            if !self.take_token(&Token::Comma) {
                break;
            }
        }
        self.expect_token(&Token::RParen)?;
        if self.peek_word().as_deref() == Some("where") {
            return Err(self.unsupported("a partial index"));
        }
        Ok(Statement::CreateIndex {
            name,
            on,
            columns,
            if_exists,
        })
    }

    fn create_user(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        let if_exists = self.if_not_exists(IfExists::Fail)?;
        let name = self.identifier()?;
        let password = self.password()?;
        Ok(Statement::CreateUser {
            name,
            password,
            if_exists,
        })
    }

    /// `[WITH] [ENCRYPTED] PASSWORD '...'`; LOGIN and the like are what every user may do.
    fn password(&mut self) -> Result<Option<String>> {
        let _ = self.take("with");
        let mut password = None;
        loop {
            if self.take("password") || self.take_all(&["encrypted", "password"]) {
                password = if self.take("null") { None } else { Some(self.literal()?) };
            } else if !(self.take("login") || self.take("superuser") || self.take("inherit")) {
                break;
            }
        }
        if self.at_end() {
            Ok(password)
        } else {
            Err(self.unsupported("this option of a user"))
        }
    }

    fn create_schema(&mut self) -> Result<Statement> {
        self.expect("schema")?;
        let if_exists = self.if_not_exists(IfExists::Fail)?;
        let name = self.identifier()?;
        if self.take("authorization") {
            self.identifier()?;
        }
        Ok(Statement::CreateSchema { name, if_exists })
    }

    /// The kind of thing that comes next, for DROP, ALTER and SHOW CREATE.
    pub(super) fn object_kind(&mut self) -> Option<ObjectKind> {
        if self.take_all(&["materialized", "view"]) {
            return Some(ObjectKind::MaterializedView);
        }
        let kind = match self.peek_word()?.as_str() {
            "stream" => ObjectKind::Stream,
            "table" => ObjectKind::Table,
            "view" => ObjectKind::View,
            "sink" => ObjectKind::Sink,
            "index" => ObjectKind::Index,
            "schema" => ObjectKind::Schema,
            "user" | "role" => ObjectKind::User,
            _ => return None,
        };
        self.parser.advance_token();
        Some(kind)
    }

    pub(super) fn drop_statement(&mut self) -> Result<Statement> {
        self.expect("drop")?;
        let Some(kind) = self.object_kind() else {
            return match self.peek_word().as_deref() {
                Some(
                    kind @ ("sequence" | "function" | "procedure" | "type" | "domain" | "trigger" | "extension"
                    | "database" | "rule" | "aggregate" | "operator" | "owned" | "policy" | "publication"
                    | "subscription" | "server" | "foreign"),
                ) => Err(self.unsupported(&format!("DROP {}", kind.to_uppercase()))),
                _ => Err(self.unexpected()),
            };
        };
        if kind == ObjectKind::Index {
            let _ = self.take("concurrently");
        }
        let if_exists = self.if_exists();
        let names = self.names()?;
        let behavior = self.drop_behavior();
        Ok(Statement::Drop {
            kind,
            names,
            if_exists,
            behavior,
        })
    }

    fn if_exists(&mut self) -> IfExists {
        if self.take_all(&["if", "exists"]) {
            IfExists::Notice
        } else {
            IfExists::Fail
        }
    }

    pub(super) fn drop_behavior(&mut self) -> DropBehavior {
        if self.take("cascade") {
            return DropBehavior::Cascade;
        }
        let _ = self.take("restrict");
        DropBehavior::Restrict
    }

    pub(super) fn alter(&mut self) -> Result<Statement> {
        self.expect("alter")?;
        if self.take("system") {
            return self.alter_system();
        }
        let Some(kind) = self.object_kind() else {
            return match self.peek_word().as_deref() {
                Some(kind) => Err(self.unsupported(&format!("ALTER {}", kind.to_uppercase()))),
                None => Err(self.unexpected()),
            };
        };
        if kind == ObjectKind::User {
            let name = self.identifier()?;
            let password = self.password()?;
            return Ok(Statement::AlterUser { name, password });
        }
        let if_exists = self.if_exists();
        let _ = self.take("only");
        let name: Name = self.name()?;
        if self.take_all(&["rename", "to"]) {
            let to = self.identifier()?;
            return Ok(Statement::AlterRename {
                kind,
                name,
                to,
                if_exists,
            });
        }
        if self.peek_word().is_none() {
            return Err(self.unexpected());
        }
        Err(self
            .unsupported(&format!("this form of ALTER {}", kind.noun().to_uppercase()))
            .with_hint("RENAME TO is what can be altered; otherwise make a new one."))
    }

    fn alter_system(&mut self) -> Result<Statement> {
        if self.take("reset") {
            let name = if self.take("all") {
                None
            } else {
                Some(self.setting_name()?)
            };
            return Ok(Statement::AlterSystem {
                name,
                value: SetValue::Default,
            });
        }
        self.expect("set")?;
        let name = self.setting_name()?;
        if !self.take_token(&Token::Eq) {
            self.expect("to")?;
        }
        let value = self.setting_value()?;
        Ok(Statement::AlterSystem {
            name: Some(name),
            value,
        })
    }

    pub(super) fn refresh(&mut self) -> Result<Statement> {
        self.expect("refresh")?;
        self.expect("materialized")?;
        self.expect("view")?;
        let _ = self.take("concurrently");
        let name = self.name()?;
        let name = self.with_data(name)?;
        Ok(Statement::Refresh(name))
    }
}

/// Whether a type's name asks for a sequence.
fn is_serial(data_type: &DataType) -> bool {
    let DataType::Custom(name, _) = data_type else {
        return false;
    };
    matches!(name.0.last(), Some(ObjectNamePart::Identifier(ident))
        if ident.value.to_ascii_lowercase().contains("serial"))
}
