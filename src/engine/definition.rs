//! CREATE, DROP, ALTER: statements that change what exists.
//!
//! A definition is a pure step from one catalog to the next. Outside a transaction it is tried again when somebody
//! else's definition came first; in a transaction it waits for COMMIT, and only its own statements see it.

use super::command::{Answer, Command, Define};
use super::plan::plan_relation;
use super::session::{Session, done};
use super::transaction::Work;
use super::{Notice, Outcome, Parameters};
use crate::catalog::{
    Catalog, Column, Emit, MaterializedView, OnError, Relation, RelationId, RelationKind, Retention, Sink, Stream,
};
use crate::error::{Error, Kind, Result};
use crate::sql::bind::{ParameterTypes, RelationSource};
use crate::sql::statement::{
    ColumnDefinition, DropBehavior, IfExists, Name, ObjectKind, Options, Parsed, QueryText, SetValue, SinkInput,
    Statement,
};
use crate::types::Type;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often a definition is tried again that lost against another one.
const TRIES_MAX: usize = 100;

/// The schemas that are not the user's.
const SYSTEM_SCHEMAS: [&str; 3] = ["pg_catalog", "information_schema", "headwater"];

/// A relation that is to be made.
struct New<'a> {
    name: &'a Name,
    columns: Vec<Column>,
    kind: RelationKind,
    depends_on: Vec<RelationId>,
}

impl Session {
    /// Carries out a definition.
    pub(super) async fn define(&mut self, parsed: &Parsed, statement: &Statement) -> Result<Outcome> {
        if self.transaction.is_some() {
            return self.define_once(parsed, statement).await;
        }
        for turn in 0.. {
            self.begin_implicit();
            let result = match self.define_once(parsed, statement).await {
                Ok(outcome) => self.end_definition().await.map(|()| outcome),
                Err(error) => {
                    self.drop_transaction();
                    Err(error)
                }
            };
            match result {
                Err(error) if error.kind() == Kind::Conflict && turn < TRIES_MAX => {}
                other => return other,
            }
        }
        Err(Error::internal("a definition was tried without end"))
    }

    async fn end_definition(&mut self) -> Result<()> {
        self.end_implicit(super::ImplicitEnd::Commit).await
    }

    fn drop_transaction(&mut self) {
        self.transaction = None;
        self.saved_settings = None;
    }

    /// Sends a definition to the driver and waits; giving up takes a half-made view back.
    pub(super) async fn carry_out(&mut self, define: Define) -> Result<()> {
        let shared = self.engine.shared();
        let guard = BuildGuard {
            commands: shared.commands.clone(),
            views: define.plans.iter().map(|plan| plan.relation).collect(),
        };
        let published = shared
            .commands
            .ask(|reply| Command::Define(Box::new(define), reply))
            .await;
        guard.disarm();
        shared.sources.follow(&published?.catalog);
        Ok(())
    }

    async fn define_once(&mut self, parsed: &Parsed, statement: &Statement) -> Result<Outcome> {
        // The first read of the transaction settles which catalog the definition starts from.
        self.view();
        match statement {
            Statement::CreateStream {
                name,
                columns,
                watermark,
                options,
                if_exists,
            } => self.create_stream(name, columns, watermark.as_ref(), options, *if_exists),
            Statement::CreateTable {
                name,
                columns,
                primary_key,
                if_exists,
                ..
            } => self.create_table(name, columns, primary_key, *if_exists),
            Statement::CreateTableAs {
                name,
                columns,
                query,
                if_exists,
            } => self.create_table_as(parsed, name, columns, query, *if_exists).await,
            Statement::CreateView {
                name,
                columns,
                query,
                if_exists,
            } => self.create_view(parsed, name, columns, query, *if_exists),
            Statement::CreateMaterializedView {
                name,
                columns,
                query,
                emit,
                options,
                if_exists,
            } => self.create_materialized_view(parsed, name, columns, query, (*emit, options), *if_exists),
            Statement::CreateSink {
                name,
                input,
                options,
                if_exists,
            } => self.create_sink(parsed, name, input, options, *if_exists),
            Statement::CreateIndex {
                name,
                on,
                columns,
                if_exists,
            } => self.create_index(name.as_deref(), on, columns, *if_exists),
            Statement::CreateSchema { name, if_exists } => self.create_schema(name, *if_exists),
            Statement::CreateUser {
                name,
                password,
                if_exists,
            } => self.create_user(name, password.as_deref(), *if_exists),
            Statement::AlterUser { name, password } => self.alter_user(name, password.as_deref()),
            Statement::Drop {
                kind,
                names,
                if_exists,
                behavior,
            } => self.drop(*kind, names, *if_exists, *behavior),
            Statement::AlterRename {
                kind,
                name,
                to,
                if_exists,
            } => self.rename(*kind, name, to, *if_exists),
            Statement::AlterSystem { name, value } => self.alter_system(name.as_deref(), value),
            Statement::Refresh(name) => {
                self.find(ObjectKind::MaterializedView, name)?;
                done("REFRESH MATERIALIZED VIEW")
            }
            _ => Err(Error::unsupported("this statement is not supported")),
        }
    }

    /// Changes the transaction's catalog.
    fn change_catalog<T>(&mut self, change: impl FnOnce(&mut Catalog) -> Result<T>) -> Result<T> {
        let current = self.catalog();
        let transaction = self
            .transaction
            .as_mut()
            .ok_or_else(|| Error::internal("a definition outside a transaction"))?;
        let mut catalog = current.as_ref().clone();
        let result = change(&mut catalog)?;
        if transaction.work.catalog.is_none() {
            catalog.version += 1;
        }
        transaction.work.catalog = Some(Arc::new(catalog));
        Ok(result)
    }

    fn work(&mut self) -> Result<&mut Work> {
        self.transaction
            .as_mut()
            .map(|transaction| &mut transaction.work)
            .ok_or_else(|| Error::internal("a definition outside a transaction"))
    }

    /// The schema in which a new relation of that name goes.
    fn target_schema(&self, name: &Name) -> Result<String> {
        let schema = match &name.schema {
            Some(schema) => schema.clone(),
            // A user called like one of our schemas does not create there.
            None => self
                .search_path()
                .into_iter()
                .find(|schema| !SYSTEM_SCHEMAS.contains(&schema.as_str()))
                .ok_or_else(|| Error::semantic("3F000", "no schema has been selected to create in"))?,
        };
        if SYSTEM_SCHEMAS.contains(&schema.as_str()) {
            return Err(Error::semantic(
                "42501",
                format!("permission denied for schema {schema}"),
            ));
        }
        if !self.catalog().has_schema(&schema) {
            return Err(Error::semantic("3F000", format!("schema \"{schema}\" does not exist")));
        }
        Ok(schema)
    }

    /// Whether the name is taken: an error, a notice (`true`: nothing to do), or the old one goes.
    fn is_taken(&mut self, name: &Name, if_exists: IfExists, noun: &str) -> Result<bool> {
        let schema = self.target_schema(name)?;
        let catalog = self.catalog();
        let Some(old) = catalog.find(&schema, &name.name) else {
            return Ok(false);
        };
        match if_exists {
            IfExists::Fail => Err(Error::semantic(
                "42P07",
                format!("relation \"{}\" already exists", name.name),
            )),
            IfExists::Notice => {
                let notice = Notice::new(format!("relation \"{}\" already exists, skipping", name.name));
                self.notice(Notice {
                    code: "42P07",
                    ..notice
                });
                Ok(true)
            }
            IfExists::Replace => {
                if old.noun() != noun {
                    return Err(Error::semantic("42809", format!("\"{}\" is not a {noun}", name.name)));
                }
                let old = old.clone();
                self.remove(&[old], DropBehavior::Restrict)?;
                Ok(false)
            }
        }
    }

    /// Adds a relation to the transaction's catalog.
    fn add(&mut self, new: New<'_>) -> Result<Arc<Relation>> {
        let schema = self.target_schema(new.name)?;
        let search_path = self.search_path();
        self.change_catalog(|catalog| {
            let id = RelationId(catalog.next_id);
            catalog.next_id += 1;
            let mut relation = Relation {
                id,
                schema,
                name: new.name.name.clone(),
                columns: new.columns,
                kind: new.kind,
                depends_on: new.depends_on,
                sql: String::new(),
                search_path,
            };
            relation.sql = super::show::create_statement(&relation);
            let relation = Arc::new(relation);
            catalog.relations.insert(id, relation.clone());
            Ok(relation)
        })
    }

    fn create_stream(
        &mut self,
        name: &Name,
        columns: &[ColumnDefinition],
        watermark: Option<&(String, String)>,
        options: &Options,
        if_exists: IfExists,
    ) -> Result<Outcome> {
        if self.is_taken(name, if_exists, "stream")? {
            return done("CREATE STREAM");
        }
        let columns = columns_of(columns)?;
        let watermark = watermark
            .map(|(column, expression)| {
                let index = columns.iter().position(|known| known.name == *column).ok_or_else(|| {
                    Error::semantic(
                        "42703",
                        format!("column \"{column}\" named in WATERMARK does not exist"),
                    )
                })?;
                if !matches!(columns[index].kind, Type::Timestamp(_) | Type::Timestamptz(_)) {
                    return Err(Error::semantic(
                        "42804",
                        format!("the watermark column \"{column}\" must be a timestamp"),
                    ));
                }
                Ok((index, expression.clone()))
            })
            .transpose()?;
        let stream = stream_options(watermark, options)?;
        if !stream.connector.is_empty() {
            super::source::check(&stream.connector, &columns)?;
        }
        self.check_expressions(&columns, stream.watermark.as_ref())?;
        self.add(New {
            name,
            columns,
            kind: RelationKind::Stream(stream),
            depends_on: Vec::new(),
        })?;
        done("CREATE STREAM")
    }

    fn create_table(
        &mut self,
        name: &Name,
        columns: &[ColumnDefinition],
        primary_key: &[String],
        if_exists: IfExists,
    ) -> Result<Outcome> {
        if self.is_taken(name, if_exists, "table")? {
            return done("CREATE TABLE");
        }
        let mut columns = columns_of(columns)?;
        let mut key = Vec::new();
        for part in primary_key {
            let index = columns
                .iter()
                .position(|column| column.name == *part)
                .ok_or_else(|| Error::semantic("42703", format!("column \"{part}\" named in key does not exist")))?;
            if key.contains(&index) {
                return Err(Error::semantic(
                    "42701",
                    format!("column \"{part}\" appears twice in primary key constraint"),
                ));
            }
            columns[index].not_null = true;
            key.push(index);
        }
        self.check_expressions(&columns, None)?;
        self.add(New {
            name,
            columns,
            kind: RelationKind::Table { primary_key: key },
            depends_on: Vec::new(),
        })?;
        done("CREATE TABLE")
    }

    async fn create_table_as(
        &mut self,
        parsed: &Parsed,
        name: &Name,
        names: &[String],
        query: &QueryText,
        if_exists: IfExists,
    ) -> Result<Outcome> {
        if self.is_taken(name, if_exists, "table")? {
            return done("CREATE TABLE AS");
        }
        let view = self.view();
        let bound = self.bind_query(&view, parsed, &query.query, &mut ParameterTypes::default())?;
        let columns = named_columns(&bound.columns, names)?;
        let plan = self.with_parameters(bound.plan, &Parameters::default())?;
        let zone = self.settings.zone().name();
        let rows = super::query::collect(&view, plan, &zone).await?;
        let new = New {
            name,
            columns,
            kind: RelationKind::Table {
                primary_key: Vec::new(),
            },
            depends_on: Vec::new(),
        };
        let relation = self.add(new)?;
        let rows = super::query::shaped(&rows, &super::published::schema_of(&relation))?;
        let count = rows.num_rows();
        self.work()?
            .overlay
            .insert(relation.id, crate::delta::Batch::inserts(rows).into());
        done(&format!("SELECT {count}"))
    }

    fn create_view(
        &mut self,
        parsed: &Parsed,
        name: &Name,
        names: &[String],
        query: &QueryText,
        if_exists: IfExists,
    ) -> Result<Outcome> {
        if self.is_taken(name, if_exists, "view")? {
            return done("CREATE VIEW");
        }
        let view = self.view();
        let bound = self.bind_query(&view, parsed, &query.query, &mut ParameterTypes::default())?;
        let columns = named_columns(&bound.columns, names)?;
        let depends_on = self.dependencies(&bound.plan, query);
        let kind = RelationKind::View {
            query: query.text.clone(),
        };
        self.add(New {
            name,
            columns,
            kind,
            depends_on,
        })?;
        done("CREATE VIEW")
    }

    fn create_materialized_view(
        &mut self,
        parsed: &Parsed,
        name: &Name,
        names: &[String],
        query: &QueryText,
        (emit, options): (Emit, &Options),
        if_exists: IfExists,
    ) -> Result<Outcome> {
        if self.is_taken(name, if_exists, "materialized view")? {
            return done("CREATE MATERIALIZED VIEW");
        }
        let view = self.view();
        let bound = self.bind_query(&view, parsed, &query.query, &mut ParameterTypes::default())?;
        let columns = named_columns(&bound.columns, names)?;
        let depends_on = self.dependencies(&bound.plan, query);
        let mut options = options.clone();
        let zone = self.settings.zone().name();
        if zone != "UTC" {
            options.insert("time_zone".to_owned(), zone);
        }
        let kind = RelationKind::MaterializedView(MaterializedView {
            query: query.text.clone(),
            emit,
            on_error: on_error(&options)?,
            options: view_options(options)?,
        });
        let relation = self.add(New {
            name,
            columns,
            kind,
            depends_on,
        })?;
        self.plan_new(&relation)?;
        done("CREATE MATERIALIZED VIEW")
    }

    fn create_sink(
        &mut self,
        parsed: &Parsed,
        name: &Name,
        input: &SinkInput,
        options: &Options,
        if_exists: IfExists,
    ) -> Result<Outcome> {
        if self.is_taken(name, if_exists, "sink")? {
            return done("CREATE SINK");
        }
        let query = match input {
            SinkInput::Query(query) => query.clone(),
            SinkInput::Relation(relation) => crate::sql::parse_query(&format!("SELECT * FROM {relation}"))?,
        };
        let view = self.view();
        let bound = self.bind_query(&view, parsed, &query.query, &mut ParameterTypes::default())?;
        let columns = named_columns(&bound.columns, &[])?;
        super::sink::check(options, &columns)?;
        let depends_on = self.dependencies(&bound.plan, &query);
        let kind = RelationKind::Sink(Sink {
            query: query.text.clone(),
            options: options.clone(),
        });
        let relation = self.add(New {
            name,
            columns,
            kind,
            depends_on,
        })?;
        self.plan_new(&relation)?;
        done("CREATE SINK")
    }

    /// A view that only its subscription knows.
    pub(super) fn define_temporary(
        &mut self,
        parsed: &Parsed,
        (schema, name): (&str, String),
        query: &QueryText,
    ) -> Result<Arc<Relation>> {
        let view = self.view();
        let bound = self.bind_query(&view, parsed, &query.query, &mut ParameterTypes::default())?;
        let columns = named_columns(&bound.columns, &[])?;
        let depends_on = self.dependencies(&bound.plan, query);
        let mut options = BTreeMap::new();
        let zone = self.settings.zone().name();
        if zone != "UTC" {
            options.insert("time_zone".to_owned(), zone);
        }
        let search_path = self.search_path();
        let relation = self.change_catalog(|catalog| {
            let id = RelationId(catalog.next_id);
            catalog.next_id += 1;
            let mut relation = Relation {
                id,
                schema: schema.to_owned(),
                name,
                columns,
                kind: RelationKind::MaterializedView(MaterializedView {
                    query: query.text.clone(),
                    emit: Emit::OnUpdate,
                    on_error: OnError::Skip,
                    options,
                }),
                depends_on,
                sql: String::new(),
                search_path,
            };
            relation.sql = super::show::create_statement(&relation);
            let relation = Arc::new(relation);
            catalog.relations.insert(id, relation.clone());
            Ok(relation)
        })?;
        self.plan_new(&relation)?;
        Ok(relation)
    }

    /// Plans a new view, so that whatever cannot be maintained is refused now.
    fn plan_new(&mut self, relation: &Arc<Relation>) -> Result<()> {
        let plan = plan_relation(&self.catalog(), relation)?;
        if let Some(warning) = crate::plan::explain::unbounded(&plan.plan, plan.root) {
            self.notice(Notice::new(warning));
        }
        self.work()?.plans.push(plan);
        Ok(())
    }

    fn create_index(
        &mut self,
        name: Option<&str>,
        on: &Name,
        columns: &[String],
        if_exists: IfExists,
    ) -> Result<Outcome> {
        let relation = self.find_any(on)?;
        let name = Name {
            schema: Some(relation.schema.clone()),
            name: name.map_or_else(|| format!("{}_{}_idx", relation.name, columns.join("_")), str::to_owned),
            position: None,
        };
        if self.is_taken(&name, if_exists, "index")? {
            return done("CREATE INDEX");
        }
        let columns = columns
            .iter()
            .map(|column| {
                relation
                    .column(column)
                    .ok_or_else(|| Error::semantic("42703", format!("column \"{column}\" does not exist")))
            })
            .collect::<Result<Vec<_>>>()?;
        let kind = RelationKind::Index {
            on: relation.id,
            columns,
        };
        self.add(New {
            name: &name,
            columns: Vec::new(),
            kind,
            depends_on: vec![relation.id],
        })?;
        done("CREATE INDEX")
    }

    fn create_schema(&mut self, name: &str, if_exists: IfExists) -> Result<Outcome> {
        if self.catalog().has_schema(name) || SYSTEM_SCHEMAS.contains(&name) {
            if if_exists == IfExists::Notice {
                let notice = Notice::new(format!("schema \"{name}\" already exists, skipping"));
                self.notice(Notice {
                    code: "42P06",
                    ..notice
                });
                return done("CREATE SCHEMA");
            }
            return Err(Error::semantic("42P06", format!("schema \"{name}\" already exists")));
        }
        self.change_catalog(|catalog| {
            catalog.schemas.push(name.to_owned());
            Ok(())
        })?;
        done("CREATE SCHEMA")
    }

    fn create_user(&mut self, name: &str, password: Option<&str>, if_exists: IfExists) -> Result<Outcome> {
        if self.catalog().users.contains_key(name) {
            if if_exists == IfExists::Notice {
                self.notice(Notice::new(format!("role \"{name}\" already exists, skipping")));
                return done("CREATE ROLE");
            }
            return Err(Error::semantic("42710", format!("role \"{name}\" already exists")));
        }
        let verifier = password.map(crate::scram::verifier_of).transpose()?.unwrap_or_default();
        self.change_catalog(|catalog| {
            catalog.users.insert(name.to_owned(), verifier);
            Ok(())
        })?;
        done("CREATE ROLE")
    }

    fn alter_user(&mut self, name: &str, password: Option<&str>) -> Result<Outcome> {
        let verifier = password.map(crate::scram::verifier_of).transpose()?.unwrap_or_default();
        let known = self.catalog().users.contains_key(name) || name == self.user;
        if !known {
            return Err(Error::semantic("42704", format!("role \"{name}\" does not exist")));
        }
        self.change_catalog(|catalog| {
            catalog.users.insert(name.to_owned(), verifier);
            Ok(())
        })?;
        done("ALTER ROLE")
    }

    fn alter_system(&mut self, name: Option<&str>, value: &SetValue) -> Result<Outcome> {
        let name = name.ok_or_else(|| Error::unsupported("ALTER SYSTEM RESET ALL is not supported"))?;
        if name != "workers" {
            return Err(
                Error::unsupported(format!("setting \"{name}\" cannot be changed by ALTER SYSTEM"))
                    .with_hint("Give it on the command line of `headwater serve`."),
            );
        }
        let value = match value {
            SetValue::Default => None,
            SetValue::Values(values) => values.first().cloned(),
        };
        if let Some(text) = &value
            && !text.parse::<usize>().is_ok_and(|workers| (1..=64).contains(&workers))
        {
            return Err(
                Error::semantic("22023", format!("invalid value for parameter \"workers\": \"{text}\""))
                    .with_hint("A number from 1 to 64."),
            );
        }
        self.change_catalog(|catalog| {
            match value {
                Some(value) => catalog.settings.insert(name.to_owned(), value),
                None => catalog.settings.remove(name),
            };
            Ok(())
        })?;
        self.notice(Notice::new("the new value takes effect at the next start"));
        done("ALTER SYSTEM")
    }

    /// The relation of a name, whatever it is.
    pub(super) fn find_any(&self, name: &Name) -> Result<Arc<Relation>> {
        let catalog = self.catalog();
        let found = match &name.schema {
            Some(schema) => catalog.find(schema, &name.name),
            None => catalog.resolve(&self.search_path(), &name.name),
        };
        found.cloned().ok_or_else(|| {
            let error = Error::semantic("42P01", format!("relation \"{name}\" does not exist"));
            match name.position {
                Some(position) => error.with_position(position),
                None => error,
            }
        })
    }

    /// The relation of a name that must be of a kind.
    pub(super) fn find(&self, kind: ObjectKind, name: &Name) -> Result<Arc<Relation>> {
        let relation = self
            .find_any(name)
            .map_err(|_| Error::semantic("42P01", format!("{} \"{name}\" does not exist", kind.noun())))?;
        if relation.noun() == kind.noun() {
            return Ok(relation);
        }
        let article = if kind == ObjectKind::Index { "an" } else { "a" };
        let noun = relation.noun();
        Err(
            Error::semantic("42809", format!("\"{}\" is not {article} {}", name.name, kind.noun())).with_hint(format!(
                "Use the statement for a {noun}, such as DROP {}.",
                noun.to_uppercase()
            )),
        )
    }

    fn drop(
        &mut self,
        kind: ObjectKind,
        names: &[Name],
        if_exists: IfExists,
        behavior: DropBehavior,
    ) -> Result<Outcome> {
        let tag = format!(
            "DROP {}",
            if kind == ObjectKind::User {
                "ROLE".to_owned()
            } else {
                kind.noun().to_uppercase()
            }
        );
        match kind {
            ObjectKind::Schema => {
                for name in names {
                    self.drop_schema(&name.name, if_exists, behavior)?;
                }
            }
            ObjectKind::User => {
                for name in names {
                    self.drop_user(&name.name, if_exists)?;
                }
            }
            _ => {
                let mut found = Vec::new();
                for name in names {
                    match self.find(kind, name) {
                        Ok(relation) => found.push(relation),
                        Err(error) if error.code() == "42P01" && if_exists == IfExists::Notice => {
                            let text = format!("{} \"{name}\" does not exist, skipping", kind.noun());
                            self.notice(Notice::new(text));
                        }
                        Err(error) => return Err(error),
                    }
                }
                self.remove(&found, behavior)?;
            }
        }
        done(&tag)
    }

    /// Takes relations away, and with CASCADE all that use them.
    fn remove(&mut self, relations: &[Arc<Relation>], behavior: DropBehavior) -> Result<()> {
        let catalog = self.catalog();
        let mut gone: Vec<RelationId> = relations.iter().map(|relation| relation.id).collect();
        let mut users: Vec<(Arc<Relation>, Arc<Relation>)> = Vec::new();
        let mut next = relations.to_vec();
        while let Some(relation) = next.pop() {
            for user in catalog.users_of(relation.id) {
                if !gone.contains(&user.id) {
                    gone.push(user.id);
                    users.push((user.clone(), relation.clone()));
                    next.push(user);
                }
            }
        }
        users.retain(|(user, _)| !matches!(user.kind, RelationKind::Index { .. }));
        if !users.is_empty() {
            users.sort_by_key(|(user, _)| user.id);
            if behavior == DropBehavior::Restrict {
                return Err(in_use(&relations[0], &users));
            }
            self.notice(cascaded(&users));
        }
        self.change_catalog(|catalog| {
            gone.iter().for_each(|id| {
                catalog.relations.remove(id);
            });
            Ok(())
        })?;
        let work = self.work()?;
        gone.iter().for_each(|id| {
            work.overlay.remove(id);
        });
        work.plans.retain(|plan| !gone.contains(&plan.relation));
        Ok(())
    }

    fn drop_schema(&mut self, name: &str, if_exists: IfExists, behavior: DropBehavior) -> Result<()> {
        let catalog = self.catalog();
        if !catalog.schemas.iter().any(|schema| schema == name) {
            if if_exists == IfExists::Notice {
                self.notice(Notice::new(format!("schema \"{name}\" does not exist, skipping")));
                return Ok(());
            }
            if name == "public" || SYSTEM_SCHEMAS.contains(&name) {
                return Err(Error::unsupported(format!("schema \"{name}\" cannot be dropped")));
            }
            return Err(Error::semantic("3F000", format!("schema \"{name}\" does not exist")));
        }
        let inside: Vec<Arc<Relation>> = catalog
            .relations
            .values()
            .filter(|relation| relation.schema == name)
            .cloned()
            .collect();
        if !inside.is_empty() {
            if behavior == DropBehavior::Restrict {
                let lines: Vec<String> = inside
                    .iter()
                    .map(|relation| format!("{} {name}.{} depends on schema {name}", relation.noun(), relation.name))
                    .collect();
                return Err(Error::semantic(
                    "2BP01",
                    format!("cannot drop schema {name} because other objects depend on it"),
                )
                .with_detail(lines.join("\n"))
                .with_hint("Use DROP ... CASCADE to drop the dependent objects too."));
            }
            self.remove(&inside, behavior)?;
        }
        self.change_catalog(|catalog| {
            catalog.schemas.retain(|schema| schema != name);
            Ok(())
        })
    }

    fn drop_user(&mut self, name: &str, if_exists: IfExists) -> Result<()> {
        if !self.catalog().users.contains_key(name) {
            if if_exists == IfExists::Notice {
                self.notice(Notice::new(format!("role \"{name}\" does not exist, skipping")));
                return Ok(());
            }
            return Err(Error::semantic("42704", format!("role \"{name}\" does not exist")));
        }
        self.change_catalog(|catalog| {
            catalog.users.remove(name);
            Ok(())
        })
    }

    fn rename(&mut self, kind: ObjectKind, name: &Name, to: &str, if_exists: IfExists) -> Result<Outcome> {
        let tag = format!("ALTER {}", kind.noun().to_uppercase());
        let relation = match self.find(kind, name) {
            Err(error) if error.code() == "42P01" && if_exists == IfExists::Notice => {
                self.notice(Notice::new(format!("relation \"{name}\" does not exist, skipping")));
                return done(&tag);
            }
            found => found?,
        };
        let catalog = self.catalog();
        if catalog.find(&relation.schema, to).is_some() {
            return Err(Error::semantic("42P07", format!("relation \"{to}\" already exists")));
        }
        // The texts of the queries that read it name it: they would no longer be read as they were meant.
        let users = catalog.users_of(relation.id);
        if let Some(user) = users
            .iter()
            .find(|user| !matches!(user.kind, RelationKind::Index { .. }))
        {
            return Err(Error::semantic(
                "2BP01",
                format!(
                    "cannot rename {} \"{}\" because other objects depend on it",
                    relation.noun(),
                    relation.name
                ),
            )
            .with_detail(format!("{} {} reads it by name", user.noun(), user.name))
            .with_hint("Drop the dependent objects first, and make them again over the new name."));
        }
        self.change_catalog(|catalog| {
            let mut renamed = relation.as_ref().clone();
            to.clone_into(&mut renamed.name);
            renamed.sql = super::show::create_statement(&renamed);
            catalog.relations.insert(renamed.id, Arc::new(renamed));
            Ok(())
        })?;
        done(&tag)
    }

    /// What a query reads: the relations that its plan scans, and the plain views that its text names.
    fn dependencies(&self, plan: &LogicalPlan, query: &QueryText) -> Vec<RelationId> {
        let mut found = Vec::new();
        let _ = plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && let Some(source) = RelationSource::of(&scan.source)
            {
                found.push(source.relation.id);
            }
            Ok(TreeNodeRecursion::Continue)
        });
        let catalog = self.catalog();
        let path = self.search_path();
        for (schema, name) in crate::sql::relation_names(&query.query) {
            let relation = match schema {
                Some(schema) => catalog.find(&schema, &name),
                None => catalog.resolve(&path, &name),
            };
            if let Some(relation) = relation.filter(|relation| matches!(relation.kind, RelationKind::View { .. })) {
                found.push(relation.id);
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Binds the texts of defaults, computed columns and the watermark, so that a wrong one is refused now.
    fn check_expressions(&mut self, columns: &[Column], watermark: Option<&(usize, String)>) -> Result<()> {
        let settings = self.bind_settings();
        let view = self.view();
        let system = super::system::System::new(&self.engine, &view, &settings);
        let binder = crate::sql::bind::Binder::new(&view.catalog, &settings, &system);
        let plain: Vec<(String, Type)> = columns
            .iter()
            .filter(|column| column.generated.is_none())
            .map(|column| (column.name.clone(), column.kind.clone()))
            .collect();
        for column in columns {
            if let Some(text) = &column.default {
                binder.bind_expression(text, &[], Some(&column.kind))?;
            }
            if let Some(text) = &column.generated {
                binder.bind_expression(text, &plain, Some(&column.kind))?;
            }
        }
        if let Some((index, text)) = watermark {
            let all: Vec<(String, Type)> = columns
                .iter()
                .map(|column| (column.name.clone(), column.kind.clone()))
                .collect();
            binder.bind_expression(text, &all, Some(&columns[*index].kind))?;
        }
        Ok(())
    }
}

/// Gives a view up when nobody waits for it any more.
struct BuildGuard {
    commands: super::command::Commands,
    views: Vec<RelationId>,
}

impl BuildGuard {
    fn disarm(mut self) {
        self.views.clear();
    }
}

impl Drop for BuildGuard {
    fn drop(&mut self) {
        for view in self.views.drain(..) {
            let _ = self.commands.send(Command::CancelBuild(view));
        }
    }
}

fn in_use(relation: &Relation, users: &[(Arc<Relation>, Arc<Relation>)]) -> Error {
    let lines: Vec<String> = users
        .iter()
        .map(|(user, used)| format!("{} {} depends on {} {}", user.noun(), user.name, used.noun(), used.name))
        .collect();
    Error::semantic(
        "2BP01",
        format!(
            "cannot drop {} {} because other objects depend on it",
            relation.noun(),
            relation.name
        ),
    )
    .with_detail(lines.join("\n"))
    .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

fn cascaded(users: &[(Arc<Relation>, Arc<Relation>)]) -> Notice {
    match users {
        [(user, _)] => Notice::new(format!("drop cascades to {} {}", user.noun(), user.name)),
        many => {
            let lines: Vec<String> = many
                .iter()
                .map(|(user, _)| format!("drop cascades to {} {}", user.noun(), user.name))
                .collect();
            Notice {
                detail: Some(lines.join("\n")),
                ..Notice::new(format!("drop cascades to {} other objects", many.len()))
            }
        }
    }
}

fn columns_of(definitions: &[ColumnDefinition]) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = Vec::with_capacity(definitions.len());
    for definition in definitions {
        if columns.iter().any(|known| known.name == definition.name) {
            return Err(Error::semantic(
                "42701",
                format!("column \"{}\" specified more than once", definition.name),
            ));
        }
        columns.push(Column {
            name: definition.name.clone(),
            kind: definition.kind.clone(),
            not_null: definition.not_null,
            default: definition.default.clone(),
            generated: definition.generated.clone(),
        });
    }
    Ok(columns)
}

/// The columns of a query, under other names if some are given.
fn named_columns(columns: &[(String, Type)], names: &[String]) -> Result<Vec<Column>> {
    if names.len() > columns.len() {
        return Err(Error::semantic("42601", "too many column names were specified"));
    }
    let mut result: Vec<Column> = Vec::with_capacity(columns.len());
    for (index, (name, kind)) in columns.iter().enumerate() {
        let name = names.get(index).unwrap_or(name).clone();
        if result.iter().any(|known| known.name == name) {
            return Err(Error::semantic(
                "42701",
                format!("column \"{name}\" specified more than once"),
            ));
        }
        result.push(Column {
            name,
            kind: kind.clone(),
            not_null: false,
            default: None,
            generated: None,
        });
    }
    Ok(result)
}

fn on_error(options: &Options) -> Result<OnError> {
    match options.get("on_error").map(String::as_str) {
        None | Some("skip") => Ok(OnError::Skip),
        Some("null") => Ok(OnError::Null),
        Some("fail") => Ok(OnError::Fail),
        Some(other) => Err(
            Error::semantic("22023", format!("invalid value for option \"on_error\": \"{other}\""))
                .with_hint("Use skip, null or fail."),
        ),
    }
}

/// Refuses what is no option of a view.
fn view_options(options: Options) -> Result<BTreeMap<String, String>> {
    const KNOWN: [&str; 4] = ["on_error", "background", "time_zone", "epoch_ms_max"];
    match options.keys().find(|name| !KNOWN.contains(&name.as_str())) {
        Some(unknown) => Err(Error::semantic("42601", format!("unrecognized option \"{unknown}\""))
            .with_hint("A materialized view takes on_error and background.")),
        None => Ok(options),
    }
}

fn stream_options(watermark: Option<(usize, String)>, options: &Options) -> Result<Stream> {
    let mut stream = Stream {
        watermark,
        ..Stream::default()
    };
    let mut rest = options.clone();
    if let Some(text) = rest.remove("retention") {
        stream.retention = match text.as_str() {
            "forever" => Retention::Forever,
            "none" => Retention::None,
            other => Retention::Millis(millis(other, "retention")?),
        };
    }
    if let Some(text) = rest.remove("idle_timeout") {
        stream.idle_timeout_ms = Some(millis(&text, "idle_timeout")?);
    }
    if let Some(text) = rest.remove("max_future_skew") {
        stream.max_future_skew_ms = Some(millis(&text, "max_future_skew")?);
    }
    if !rest.is_empty() && !rest.contains_key("connector") {
        let names: Vec<&str> = rest.keys().map(String::as_str).collect();
        return Err(
            Error::semantic("42601", format!("unrecognized option \"{}\"", names[0]))
                .with_hint("A stream takes retention, idle_timeout, max_future_skew, and connector with its options."),
        );
    }
    stream.connector = rest;
    Ok(stream)
}

/// An interval as milliseconds.
fn millis(text: &str, option: &str) -> Result<u64> {
    let interval = crate::types::interval::read_interval(text)
        .map_err(|_| Error::semantic("22023", format!("invalid value for option \"{option}\": \"{text}\"")))?;
    let micros = i128::from(interval.nanoseconds / 1000)
        + i128::from(interval.days) * 86_400_000_000
        + i128::from(interval.months) * 30 * 86_400_000_000;
    u64::try_from(micros / 1000)
        .ok()
        .filter(|millis| *millis > 0)
        .ok_or_else(|| Error::semantic("22023", format!("option \"{option}\" must be positive")))
}

/// When a definition's answer is given: a view `WITH (background)` is answered at once.
pub(super) fn answer_of(catalog: &Catalog, plans: &[super::command::ViewPlan]) -> Answer {
    let background = plans.iter().any(|plan| {
        matches!(
            catalog.relations.get(&plan.relation).map(|relation| &relation.kind),
            Some(RelationKind::MaterializedView(view))
                if view.options.get("background").is_some_and(|value| value != "false")
        )
    });
    if background { Answer::AtOnce } else { Answer::WhenBuilt }
}
