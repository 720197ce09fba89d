//! CREATE VIEW, MATERIALIZED VIEW and SINK: what is made of a query.

use super::{New, named_columns};
use crate::catalog::{Emit, MaterializedView, OnError, Relation, RelationId, RelationKind, Sink};
use crate::engine::plan::plan_relation;
use crate::engine::session::{Session, done};
use crate::engine::{Notice, Outcome};
use crate::error::{Error, Result};
use crate::plan::{Growth, property};
use crate::sql::bind::{ParameterTypes, RelationSource};
use crate::sql::statement::{IfExists, Name, Options, Parsed, QueryText, SinkInput};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Session {
    pub(super) fn create_view(
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

    pub(super) fn create_materialized_view(
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
            events: Vec::new(),
            late: Vec::new(),
            append_only: false,
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

    pub(super) fn create_sink(
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
        crate::engine::sink::check(&view.catalog, options, &columns)?;
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
        let growth = self.plan_new(&relation)?;
        if crate::engine::sink::is_append_only(options) && growth == Growth::Changing {
            return Err(Error::unsupported(format!(
                "sink \"{}\" cannot be append-only: its query can take rows back",
                relation.name
            ))
            .with_hint("Leave append_only out: the file then tells each change by the columns epoch and diff."));
        }
        done("CREATE SINK")
    }

    /// A view that only its subscription knows.
    pub(in crate::engine) fn define_temporary(
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
                    events: Vec::new(),
                    late: Vec::new(),
                    append_only: false,
                }),
                depends_on,
                sql: String::new(),
                search_path,
            };
            relation.sql = crate::engine::show::create_statement(&relation);
            let relation = Arc::new(relation);
            catalog.relations.insert(id, relation.clone());
            Ok(relation)
        })?;
        self.plan_new(&relation)?;
        Ok(relation)
    }

    /// Plans a new view, so that whatever cannot be maintained is refused now; whether rows ever go out of it.
    fn plan_new(&mut self, relation: &Arc<Relation>) -> Result<Growth> {
        let plan = plan_relation(&self.catalog(), relation)?;
        let growth = property::of(&plan.plan, plan.root).growth;
        if let Some(warning) = crate::plan::explain::unbounded(&plan.plan, plan.root) {
            self.notice(Notice::new(warning));
        }
        if let RelationKind::MaterializedView(view) = &relation.kind
            && (growth == Growth::AppendOnly || !plan.events.is_empty() || !plan.late.is_empty())
        {
            let view = MaterializedView {
                events: plan.events.clone(),
                late: plan.late.clone(),
                append_only: growth == Growth::AppendOnly,
                ..view.clone()
            };
            let timed = Relation {
                kind: RelationKind::MaterializedView(view),
                ..relation.as_ref().clone()
            };
            self.change_catalog(|catalog| {
                catalog.relations.insert(timed.id, Arc::new(timed));
                Ok(())
            })?;
        }
        self.work()?.plans.push(plan);
        Ok(growth)
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
