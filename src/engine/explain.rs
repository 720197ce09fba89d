//! EXPLAIN: how a query would be maintained, or is.

use super::command::Command;
use super::session::{Session, rows_of};
use super::{Outcome, Parameters, ResultColumn, RowsTag};
use crate::catalog::{Emit, MaterializedView, OnError, Relation, RelationId, RelationKind};
use crate::error::{Error, Result};
use crate::plan::NodeId;
use crate::sql::bind::ParameterTypes;
use crate::sql::statement::{ExplainFormat, ExplainOptions, ExplainTarget, Name, ObjectKind, Parsed, Statement};
use crate::types::{Nullability, Type};
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::Schema;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Session {
    pub(super) async fn explain(
        &mut self,
        parsed: &Parsed,
        options: &ExplainOptions,
        target: &ExplainTarget,
        _parameters: &Parameters,
    ) -> Result<Outcome> {
        let text = match target {
            ExplainTarget::MaterializedView(name) if options.analyze => self.analyse_view(name).await?,
            ExplainTarget::MaterializedView(name) => self.explain_view(name, options)?,
            ExplainTarget::Statement(statement) => self.explain_statement(parsed, options, statement)?,
        };
        let columns = vec![ResultColumn {
            name: "QUERY PLAN".to_owned(),
            kind: Type::Text,
        }];
        Ok(Outcome::Rows {
            columns,
            rows: rows_of(lines(&text)?),
            tag: RowsTag::Bare("EXPLAIN".to_owned()),
        })
    }

    fn explain_view(&mut self, name: &Name, options: &ExplainOptions) -> Result<String> {
        let relation = self.find(ObjectKind::MaterializedView, name)?;
        let plan = super::plan::plan_relation(&self.catalog(), &relation)?;
        shown(&plan, options)
    }

    /// What the operators of a running view have done since the server started.
    async fn analyse_view(&mut self, name: &Name) -> Result<String> {
        let relation = self.find(ObjectKind::MaterializedView, name)?;
        let plan = super::plan::plan_relation(&self.catalog(), &relation)?;
        let told = self.engine.shared().commands.ask(Command::Inspect).await?;
        let flow = told.flows.into_iter().find(|flow| flow.relation == relation.id);
        let flow = flow.ok_or_else(|| {
            Error::semantic("55000", format!("materialized view \"{}\" does not run", relation.name))
                .with_hint("headwater.views says why.")
        })?;
        let done = |id: NodeId| match flow.nodes.iter().find(|node| node.node == id) {
            Some(node) if !node.inputs.is_empty() => format!(
                "  (rows in={} out={} busy={:.3} ms state keys={} bytes={})",
                node.counters.rows_in,
                node.counters.rows_out,
                node.counters.busy.as_secs_f64() * 1000.0,
                node.resident_keys,
                node.resident_bytes,
            ),
            _ => String::new(),
        };
        Ok(crate::plan::explain::analysed(&plan.plan, plan.root, &done))
    }

    fn explain_statement(
        &mut self,
        parsed: &Parsed,
        options: &ExplainOptions,
        statement: &Statement,
    ) -> Result<String> {
        let query = match statement {
            Statement::Query(query) => query.to_string(),
            Statement::CreateMaterializedView { query, .. } => query.text.clone(),
            _ => {
                return Err(Error::unsupported("EXPLAIN of this statement is not supported")
                    .with_hint("EXPLAIN shows queries and materialized views."));
            }
        };
        let view = self.view();
        let tree = crate::sql::parse_query(&query)?;
        let bound = self.bind_query(&view, parsed, &tree.query, &mut ParameterTypes::default())?;
        let probe = Arc::new(Relation {
            id: RelationId(0),
            schema: String::new(),
            name: String::new(),
            columns: Vec::new(),
            kind: RelationKind::MaterializedView(MaterializedView {
                query,
                emit: Emit::OnUpdate,
                on_error: OnError::Skip,
                options: BTreeMap::new(),
                events: Vec::new(),
                late: Vec::new(),
                append_only: false,
            }),
            depends_on: Vec::new(),
            sql: String::new(),
            search_path: self.search_path(),
        });
        match super::plan::plan_relation(&view.catalog, &probe) {
            Ok(plan) => shown(&plan, options),
            // A query that cannot be maintained still runs in batch: show that plan.
            Err(error) if matches!(statement, Statement::Query(_)) && error.code() == "0A000" => {
                let plan = crate::sql::optimise(bound.plan)?;
                Ok(format!("{}\nnot maintainable: {error}", plan.display_indent()))
            }
            Err(error) => Err(error),
        }
    }
}

fn shown(view: &super::command::ViewPlan, options: &ExplainOptions) -> Result<String> {
    use crate::plan::explain;
    let (plan, root) = (&view.plan, view.root);
    if options.analyze {
        return Err(Error::unsupported("EXPLAIN ANALYZE of a query is not supported")
            .with_hint("EXPLAIN (ANALYZE) MATERIALIZED VIEW shows what the operators of a running view have done."));
    }
    Ok(match options.format {
        _ if options.rules => explain::rules(&view.firings),
        _ if options.state => explain::state(plan, root),
        ExplainFormat::Text => explain::text(plan, root),
        ExplainFormat::Json => explain::json(plan, root),
        ExplainFormat::Dot => explain::dot(plan, root),
    })
}

fn lines(text: &str) -> Result<RecordBatch> {
    let lines: Vec<&str> = text.lines().collect();
    let count = lines.len();
    let schema = Arc::new(Schema::new(vec![Type::Text.field("QUERY PLAN", Nullability::Nullable)]));
    let column: ArrayRef = Arc::new(StringArray::from(lines));
    crate::delta::batch_of(schema, vec![column], count)
}
