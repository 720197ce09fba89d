//! Where rows come from: relations and constants.

use super::Lowering;
use crate::catalog::{EventColumn, Finality, Relation, RelationKind, judge_field};
use crate::error::{Error, Result};
use crate::expr::{Expression, positional_schema};
use crate::operator::values::Values;
use crate::plan::{Growth, Input, Node, NodeId};
use crate::sql::bind::RelationSource;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::logical_expr::{EmptyRelation, TableScan};
use std::sync::Arc;

/// What the catalog knows of a relation.
fn input_of(relation: &Relation, schema: SchemaRef) -> Input {
    let (growth, key, watermark) = match &relation.kind {
        RelationKind::Stream(stream) => (
            Growth::AppendOnly,
            None,
            stream.watermark.as_ref().map(|(column, _)| *column),
        ),
        RelationKind::Table { primary_key } if !primary_key.is_empty() => {
            (Growth::Changing, Some(primary_key.clone()), None)
        }
        RelationKind::MaterializedView(view) if view.append_only => (Growth::AppendOnly, None, None),
        _ => (Growth::Changing, None, None),
    };
    let mut fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_nullable(true))
        .collect();
    let judge = watermark.map(|_| fields.len());
    if judge.is_some() {
        fields.push(judge_field());
    }
    let events = match &relation.kind {
        RelationKind::MaterializedView(view) => view.events.clone(),
        _ => watermark.iter().map(|column| event_time(*column)).collect(),
    };
    let schema = Arc::new(Schema::new(fields));
    Input {
        relation: relation.id,
        name: relation.name.clone(),
        schema,
        growth,
        key,
        watermark,
        events,
        judge,
    }
}

/// A stream's own column of event time.
fn event_time(column: usize) -> EventColumn {
    EventColumn {
        column,
        shift_us: 0,
        finality: Finality::Expected,
    }
}

impl Lowering {
    pub(super) fn scan(&mut self, scan: &TableScan) -> Result<NodeId> {
        let Some(source) = RelationSource::of(&scan.source) else {
            return Err(Error::unsupported(format!(
                "\"{}\" cannot be read by a maintained view",
                scan.table_name.table()
            ))
            .with_hint("A view reads streams, tables, views and materialized views."));
        };
        if scan.fetch.is_some() {
            return Err(Error::internal("a scan with a limit of its own"));
        }
        let input = input_of(&source.relation, scan.source.schema());
        let mut node = self.add(Node::Input(input), Vec::new())?;
        let whole = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())
            .map_err(crate::expr::from_datafusion)?;
        for filter in &scan.filters {
            let predicate = self.bind(filter, &whole)?;
            node = self.keep(node, predicate)?;
        }
        if let Some(columns) = &scan.projection {
            let all = self.columns(node);
            return self.map(node, None, columns.iter().map(|index| all[*index].clone()).collect());
        }
        // A window that judges rows finds the column that judges them again below (`carry`).
        self.first_columns(node, whole.fields().len())
    }

    pub(super) fn empty(&mut self, empty: &EmptyRelation) -> Result<NodeId> {
        let rows = if empty.produce_one_row {
            vec![Vec::new()]
        } else {
            Vec::new()
        };
        let schema = positional_schema(empty.schema.inner());
        if empty.produce_one_row && !schema.fields().is_empty() {
            return Err(Error::internal("a row of nothing has columns"));
        }
        self.add(Node::Values(Values { rows, schema }), Vec::new())
    }

    pub(super) fn values(&mut self, values: &datafusion::logical_expr::Values) -> Result<NodeId> {
        let nothing = DFSchema::empty();
        let rows = values
            .values
            .iter()
            .map(|row| {
                row.iter()
                    .map(|expr| self.bind(expr, &nothing))
                    .collect::<Result<Vec<Expression>>>()
            })
            .collect::<Result<_>>()?;
        let schema = positional_schema(values.schema.inner());
        self.add(Node::Values(Values { rows, schema }), Vec::new())
    }
}
