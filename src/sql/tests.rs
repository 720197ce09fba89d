//! The SQL front against PostgreSQL 15: `expressions.txt` holds queries and what PostgreSQL answered.
//!
//! A [`Lab`] is a catalog and rows in memory; it runs what the binder makes on DataFusion alone.

use crate::catalog::{Catalog, Column, Relation, RelationId, RelationKind, Stream};
use crate::engine::batch;
use crate::error::{Error, Result};
use crate::sql::bind::change::OnConflict;
use crate::sql::bind::{BindSettings, Binder, Bound, NoSystemRelations, ParameterTypes, RelationSource, fix_now};
use crate::sql::error::from_datafusion;
use crate::sql::statement::{ColumnDefinition, Name, Parsed};
use crate::sql::{Statement, parse};
use crate::types::Type;
use crate::types::text::{Settings, column_to_text};
use arrow::array::{Array, RecordBatch};
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::logical_expr::{LogicalPlan, TableScan};
use datafusion::prelude::{SessionConfig, SessionContext};
use std::collections::BTreeMap;
use std::sync::Arc;

/// 2024-06-01 12:00 UTC.
const NOW_MICROS: i64 = 1_717_243_200_000_000;

#[derive(Default)]
struct Lab {
    catalog: Catalog,
    rows: BTreeMap<RelationId, RecordBatch>,
    settings: BindSettings,
}

type Rows = Vec<Vec<Option<String>>>;

impl Lab {
    fn run(&mut self, text: &str) -> Result<Rows> {
        let mut rows = Vec::new();
        for parsed in parse(text)? {
            rows = self.statement(&parsed)?;
        }
        Ok(rows)
    }

    fn add(&mut self, name: &Name, columns: Vec<Column>, kind: RelationKind) -> Arc<Relation> {
        let id = RelationId(16384 + self.catalog.relations.len() as u32);
        let relation = Arc::new(Relation {
            id,
            schema: name.schema.clone().unwrap_or_else(|| "public".to_owned()),
            name: name.name.clone(),
            columns,
            kind,
            depends_on: Vec::new(),
            sql: String::new(),
            search_path: self.settings.search_path.clone(),
        });
        self.catalog.relations.insert(id, relation.clone());
        relation
    }

    fn statement(&mut self, parsed: &Parsed) -> Result<Rows> {
        let (catalog, settings) = (self.catalog.clone(), self.settings.clone());
        let binder = Binder::new(&catalog, &settings, &NoSystemRelations).with_source(&parsed.source);
        let mut parameters = ParameterTypes::default();
        match &parsed.statement {
            Statement::CreateTable {
                name,
                columns,
                primary_key,
                ..
            } => {
                let primary_key = primary_key
                    .iter()
                    .filter_map(|key| columns.iter().position(|column| column.name == *key))
                    .collect();
                self.create(name, columns, RelationKind::Table { primary_key });
            }
            Statement::CreateStream {
                name,
                columns,
                watermark,
                ..
            } => {
                let watermark = watermark.as_ref().and_then(|(column, text)| {
                    Some((columns.iter().position(|known| known.name == *column)?, text.clone()))
                });
                self.create(
                    name,
                    columns,
                    RelationKind::Stream(Stream {
                        watermark,
                        ..Stream::default()
                    }),
                );
            }
            Statement::CreateView { name, query, .. } | Statement::CreateMaterializedView { name, query, .. } => {
                let bound = binder.bind_query(&query.query, &mut parameters)?;
                let columns = bound
                    .columns
                    .into_iter()
                    .map(|(name, kind)| plain(name, kind))
                    .collect();
                self.add(
                    name,
                    columns,
                    RelationKind::View {
                        query: query.text.clone(),
                    },
                );
            }
            Statement::Query(query) => {
                let bound = binder.bind_query(query, &mut parameters)?;
                return self.rows_of(&bound, None);
            }
            Statement::Insert { insert, .. } => {
                let bound = binder.bind_insert(insert, &mut parameters)?;
                assert!(matches!(bound.on_conflict, OnConflict::Fail));
                let new = self.collect(bound.source, None)?;
                let old = self.rows[&bound.relation.id].clone();
                let new = RecordBatch::try_new(old.schema(), new.columns().to_vec())?;
                let all = arrow::compute::concat_batches(&old.schema(), [&old, &new])?;
                self.rows.insert(bound.relation.id, all);
                if let Some(returning) = &bound.returning {
                    return self.rows_of(returning, Some((bound.relation.id, new)));
                }
            }
            Statement::Update { update, .. } => {
                let bound = binder.bind_update(update, &mut parameters)?;
                let changed = self.collect(bound.source, None)?;
                let width = bound.relation.columns.len();
                let old = self.rows[&bound.relation.id].schema();
                let new = RecordBatch::try_new(old, changed.columns()[width..].to_vec())?;
                if let Some(returning) = &bound.returning {
                    return self.rows_of(returning, Some((bound.relation.id, new)));
                }
                return Ok(text_of(&changed, &types_of(&changed), &self.settings.time_zone));
            }
            Statement::Delete { delete, .. } => {
                let bound = binder.bind_delete(delete, &mut parameters)?;
                let gone = self.collect(bound.source, None)?;
                return Ok(text_of(&gone, &types_of(&gone), &self.settings.time_zone));
            }
            other => panic!("{other:?}"),
        }
        Ok(Vec::new())
    }

    fn create(&mut self, name: &Name, columns: &[ColumnDefinition], kind: RelationKind) {
        let columns = columns
            .iter()
            .map(|column| Column {
                name: column.name.clone(),
                kind: column.kind.clone(),
                not_null: false,
                default: column.default.clone(),
                generated: column.generated.clone(),
            })
            .collect();
        let relation = self.add(name, columns, kind);
        let schema = crate::sql::bind::relation::relation_schema(&relation);
        self.rows.insert(relation.id, RecordBatch::new_empty(schema));
    }

    fn rows_of(&self, bound: &Bound, given: Option<(RelationId, RecordBatch)>) -> Result<Rows> {
        let batch = self.collect(bound.plan.clone(), given)?;
        let kinds: Vec<Type> = bound.columns.iter().map(|(_, kind)| kind.clone()).collect();
        Ok(text_of(&batch, &kinds, &self.settings.time_zone))
    }

    fn collect(&self, plan: LogicalPlan, given: Option<(RelationId, RecordBatch)>) -> Result<RecordBatch> {
        let plan = fix_now(plan, NOW_MICROS)?;
        let plan = plan
            .transform_up_with_subqueries(|node| {
                let LogicalPlan::TableScan(scan) = &node else {
                    return Ok(Transformed::no(node));
                };
                let Some(source) = RelationSource::of(&scan.source) else {
                    return Ok(Transformed::no(node));
                };
                let id = source.relation.id;
                let batch = match &given {
                    Some((known, batch)) if *known == id => batch.clone(),
                    _ => self.rows[&id].clone(),
                };
                let table = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
                let source = provider_as_source(Arc::new(table));
                Ok(Transformed::yes(LogicalPlan::TableScan(TableScan {
                    source,
                    ..scan.clone()
                })))
            })
            .data()
            .map_err(from_datafusion)?;
        let plan = batch::optimise(plan)?;
        let config = SessionConfig::new().with_target_partitions(1);
        let state = batch::prepare(SessionContext::new_with_config(config).state());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let physical = state
                .query_planner()
                .create_physical_plan(&plan, &state)
                .await
                .map_err(from_datafusion)?;
            let schema = physical.schema();
            let batches = datafusion::physical_plan::collect(physical, state.task_ctx())
                .await
                .map_err(from_datafusion)?;
            for batch in &batches {
                for (column, field) in batch.columns().iter().zip(schema.fields()) {
                    assert_eq!(column.data_type(), field.data_type(), "{}", field.name());
                }
            }
            Ok(arrow::compute::concat_batches(&schema, &batches)?)
        })
    }
}

fn plain(name: String, kind: Type) -> Column {
    Column {
        name,
        kind,
        not_null: false,
        default: None,
        generated: None,
    }
}

fn types_of(batch: &RecordBatch) -> Vec<Type> {
    batch
        .schema()
        .fields()
        .iter()
        .map(|field| Type::of_field(field))
        .collect()
}

fn text_of(batch: &RecordBatch, kinds: &[Type], zone: &str) -> Rows {
    let settings = Settings {
        time_zone: crate::types::calendar::Zone::parse(zone).unwrap(),
        ..Settings::default()
    };
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .zip(kinds)
        .map(|(column, kind)| match column.data_type() {
            arrow::datatypes::DataType::Null => arrow::array::StringArray::new_null(column.len()),
            _ => column_to_text(kind, column, &settings).unwrap_or_else(|error| panic!("{kind}: {error:?}")),
        })
        .collect();
    (0..batch.num_rows())
        .map(|row| {
            columns
                .iter()
                .map(|column| column.is_valid(row).then(|| column.value(row).to_owned()))
                .collect()
        })
        .collect()
}

/// Rows as `psql -At` prints them.
fn printed(rows: &Rows) -> Vec<String> {
    let text: Vec<String> = rows
        .iter()
        .map(|row| {
            row.iter()
                .map(|value| value.clone().unwrap_or_else(|| "NULL".to_owned()))
                .collect::<Vec<_>>()
                .join("|")
        })
        .collect();
    text.join("\n").split('\n').map(str::to_owned).collect()
}

fn shown(error: &Error) -> String {
    let position = error
        .position()
        .map(|position| format!(" @{position}"))
        .unwrap_or_default();
    format!("! {} {}{position}", error.code(), error.message())
}

#[test]
fn expressions_mean_what_postgres_means() {
    let text = include_str!("expressions.txt");
    let mut lab = Lab::default();
    let mut wrong = Vec::new();
    let mut total = 0;
    for case in text.split("\n\n").filter(|case| !case.trim().is_empty()) {
        let mut lines = case
            .trim_start_matches('\n')
            .lines()
            .filter(|line| !line.starts_with('#'));
        let Some(query) = lines.next() else { continue };
        let expected: Vec<String> = lines.map(str::to_owned).collect();
        total += 1;
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lab.run(query)));
        let got: Vec<String> = match run {
            Ok(Ok(rows)) if rows.is_empty() => Vec::new(),
            Ok(Ok(rows)) => printed(&rows)
                .into_iter()
                .map(|line| format!("= {line}").trim_end().to_owned())
                .collect(),
            Ok(Err(error)) => vec![shown(&error)],
            Err(_) => vec!["a panic".to_owned()],
        };
        let expected: Vec<String> = expected.iter().map(|line| line.trim_end().to_owned()).collect();
        if got != expected {
            wrong.push(format!(
                "{query}\n  expected {}\n  got      {}",
                expected.join("\n           "),
                got.join("\n           ")
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {total} are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Every statement of a script that binds, on an empty catalog.
fn script(text: &str) -> Vec<String> {
    let mut lab = Lab::default();
    let mut failures = Vec::new();
    for parsed in parse(text).unwrap() {
        let done = match &parsed.statement {
            Statement::Drop { .. } | Statement::Begin(_) | Statement::Commit(_) | Statement::Rollback(_) => continue,
            Statement::Set { .. } => continue,
            Statement::Insert { insert, .. } => {
                let (catalog, settings) = (lab.catalog.clone(), lab.settings.clone());
                let binder = Binder::new(&catalog, &settings, &NoSystemRelations).with_source(&parsed.source);
                binder
                    .bind_insert(insert, &mut ParameterTypes::default())
                    .map(|_| Vec::new())
            }
            _ => lab.statement(&parsed),
        };
        if let Err(error) = done {
            failures.push(format!("{}\n   {}", parsed.source.text(), shown(&error)));
        }
    }
    failures
}

#[test]
fn nexmark_binds_and_runs() {
    let failures = script(include_str!("nexmark.sql"));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
#[ignore = "reads a directory given by the environment"]
fn scripts_bind() {
    let Ok(directory) = std::env::var("SQL_SCRIPTS") else {
        return;
    };
    let mut failures = Vec::new();
    let mut paths: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    for path in paths
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "sql"))
    {
        for failure in script(&std::fs::read_to_string(path).unwrap()) {
            failures.push(format!("{}: {failure}", path.display()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
