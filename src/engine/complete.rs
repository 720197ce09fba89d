//! From the columns that a writer gives to whole rows: defaults, computed columns, NOT NULL.

use crate::catalog::{Catalog, Relation};
use crate::delta::batch_of;
use crate::error::{Error, Result};
use crate::expr::{Compiled, Expression, from_datafusion};
use crate::sql::bind::{BindSettings, Binder, NoSystemRelations};
use crate::types::Type;
use arrow::array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::DFSchema;
use std::sync::Arc;

/// How the whole rows of a relation come about from some of its columns.
pub struct Completion {
    relation: Arc<Relation>,
    schema: SchemaRef,
    /// The columns that are not generated, in their order: what generated ones are computed from.
    plain: Vec<usize>,
    plain_schema: SchemaRef,
    sources: Vec<Origin>,
}

/// Where a column comes from.
enum Origin {
    /// The given column of that number.
    Given(usize),
    /// Its default.
    Default(Compiled),
    /// NULL: it is not given and has no default.
    Null,
    /// It is computed from the others.
    Generated(Compiled),
}

impl Completion {
    /// For a writer that gives these columns, by position.
    pub fn new(
        catalog: &Catalog,
        settings: &BindSettings,
        relation: &Arc<Relation>,
        given: &[usize],
        now_micros: i64,
    ) -> Result<Self> {
        let schema = super::published::schema_of(relation);
        let plain: Vec<usize> = (0..relation.columns.len())
            .filter(|index| relation.columns[*index].generated.is_none())
            .collect();
        let plain_schema = Arc::new(Schema::new(
            plain
                .iter()
                .map(|index| schema.field(*index).clone())
                .collect::<Vec<_>>(),
        ));
        let names: Vec<(String, Type)> = plain
            .iter()
            .map(|index| {
                (
                    relation.columns[*index].name.clone(),
                    relation.columns[*index].kind.clone(),
                )
            })
            .collect();
        let binder = Binder::new(catalog, settings, &NoSystemRelations);
        let compile = |text: &str, columns: &[(String, Type)], kind: &Type| -> Result<Compiled> {
            let expression = binder.bind_expression(text, columns, Some(kind))?;
            let expression = crate::sql::bind::fix_now_in(expression, now_micros)?;
            let fields: Vec<_> = columns
                .iter()
                .map(|(name, kind)| kind.field(name, crate::types::Nullability::Nullable))
                .collect();
            let input = Arc::new(Schema::new(fields));
            let logical = DFSchema::try_from(input.as_ref().clone()).map_err(from_datafusion)?;
            Expression::bind(&expression, &logical)?.compile(&input)
        };
        let mut sources = Vec::with_capacity(relation.columns.len());
        for (index, column) in relation.columns.iter().enumerate() {
            sources.push(
                match (
                    given.iter().position(|at| *at == index),
                    &column.generated,
                    &column.default,
                ) {
                    (Some(at), None, _) => Origin::Given(at),
                    (_, Some(text), _) => Origin::Generated(compile(text, &names, &column.kind)?),
                    (None, None, Some(text)) => Origin::Default(compile(text, &[], &column.kind)?),
                    (None, None, None) => Origin::Null,
                },
            );
        }
        Ok(Self {
            relation: relation.clone(),
            schema,
            plain,
            plain_schema,
            sources,
        })
    }

    /// The whole rows. A row that cannot be is an error.
    pub fn complete(&self, given: &[ArrayRef], rows: usize) -> Result<RecordBatch> {
        let (batch, failures) = self.complete_all(given, rows)?;
        match failures.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(batch),
        }
    }

    /// The whole rows, and which of them cannot be: their row numbers, in order, each with its first error.
    pub fn complete_all(&self, given: &[ArrayRef], rows: usize) -> Result<(RecordBatch, Vec<(usize, Error)>)> {
        let mut failures: Vec<(usize, Error)> = Vec::new();
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.sources.len()];
        let nothing = batch_of(Arc::new(Schema::empty()), Vec::new(), rows)?;
        for (index, source) in self.sources.iter().enumerate() {
            columns[index] = match source {
                Origin::Given(at) => Some(given[*at].clone()),
                Origin::Null => Some(new_null_array(self.schema.field(index).data_type(), rows)),
                Origin::Default(compiled) => Some(evaluate(compiled, &nothing, &mut failures)?),
                Origin::Generated(_) => None,
            };
        }
        let plain: Vec<ArrayRef> = self.plain.iter().filter_map(|index| columns[*index].clone()).collect();
        let plain = batch_of(self.plain_schema.clone(), plain, rows)?;
        for (index, source) in self.sources.iter().enumerate() {
            if let Origin::Generated(compiled) = source {
                columns[index] = Some(evaluate(compiled, &plain, &mut failures)?);
            }
        }
        let columns: Vec<ArrayRef> = columns.into_iter().flatten().collect();
        let batch = batch_of(self.schema.clone(), columns, rows)?;
        self.check_not_null(&batch, &mut failures);
        failures.sort_by_key(|(row, _)| *row);
        failures.dedup_by_key(|(row, _)| *row);
        Ok((batch, failures))
    }

    fn check_not_null(&self, batch: &RecordBatch, failures: &mut Vec<(usize, Error)>) {
        for (index, column) in self.relation.columns.iter().enumerate() {
            let values = batch.column(index);
            if !column.not_null || values.null_count() == 0 {
                continue;
            }
            failures.extend(
                (0..values.len())
                    .filter(|row| values.is_null(*row))
                    .map(|row| (row, null_refused(&self.relation, &column.name, batch, row))),
            );
        }
    }
}

fn evaluate(compiled: &Compiled, rows: &RecordBatch, failures: &mut Vec<(usize, Error)>) -> Result<ArrayRef> {
    let (values, failed) = compiled.evaluate(rows)?;
    failures.extend(failed.into_iter().map(|failure| (failure.row, failure.error)));
    Ok(values)
}

/// PostgreSQL's words for a NULL that is refused.
pub fn null_refused(relation: &Relation, column: &str, batch: &RecordBatch, row: usize) -> Error {
    Error::semantic(
        "23502",
        format!(
            "null value in column \"{column}\" of relation \"{}\" violates not-null constraint",
            relation.name
        ),
    )
    .with_detail(format!("Failing row contains ({}).", row_values(batch, row)))
}

fn row_values(batch: &RecordBatch, row: usize) -> String {
    let values: Vec<String> = batch
        .columns()
        .iter()
        .map(|column| {
            if column.is_null(row) {
                "null".to_owned()
            } else {
                arrow::util::display::array_value_to_string(column, row).unwrap_or_default()
            }
        })
        .collect();
    values.join(", ")
}
