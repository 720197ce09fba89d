//! CREATE, DROP, ALTER: statements that change what exists.
//!
//! A definition is a pure step from one catalog to the next. Outside a transaction it is tried again when somebody
//! else's definition came first; in a transaction it waits for COMMIT, and only its own statements see it.
//!
//! - `relation`: streams, tables, indexes; `view`: views, materialized views, sinks; `role`: schemas, users, settings
//! - `drop`: what goes, and what another name is given to

mod drop;
mod relation;
mod role;
mod view;

use super::command::{Answer, Command, Define};
use super::session::{Session, done};
use super::transaction::Work;
use super::{Notice, Outcome};
use crate::catalog::{Catalog, Column, Relation, RelationId, RelationKind};
use crate::error::{Error, Kind, Result};
use crate::sql::statement::{DropBehavior, IfExists, Name, ObjectKind, Parsed, Statement};
use crate::types::Type;
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
        let relation = self.find_any(name).map_err(|_| {
            let code = if kind == ObjectKind::Index { "42704" } else { "42P01" };
            Error::semantic(code, format!("{} \"{name}\" does not exist", kind.noun()))
        })?;
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
