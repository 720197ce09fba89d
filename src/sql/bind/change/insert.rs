//! INSERT: the rows that are put in, whole.

use super::{BoundInsert, is_default, null_of};
use crate::catalog::{Column, Relation};
use crate::error::{Error, Result};
use crate::sql::bind::rows::rows_plan;
use crate::sql::bind::{Binder, ParameterTypes};
use crate::sql::error::from_datafusion;
use crate::sql::parser::{self, fold};
use crate::types::Type;
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::planner::PlannerContext;
use sqlparser::ast::{self, SetExpr, Spanned, TableObject};
use sqlparser::tokenizer::Location;
use std::sync::Arc;

impl Binder<'_> {
    /// Binds INSERT.
    pub fn bind_insert(&self, insert: &ast::Insert, parameters: &mut ParameterTypes) -> Result<BoundInsert> {
        parser::on_deep_stack(|| self.insert(insert, parameters))
    }

    fn insert(&self, insert: &ast::Insert, parameters: &mut ParameterTypes) -> Result<BoundInsert> {
        let TableObject::TableName(name) = &insert.table else {
            return Err(Error::unsupported(
                "INSERT into anything but a relation is not supported",
            ));
        };
        let relation = self.target(name, "insert into")?;
        let mut targets = Vec::new();
        for column in &insert.columns {
            let Some(ident) = column.0.last().and_then(|part| part.as_ident()) else {
                return Err(Error::syntax("a column's name is missing"));
            };
            let index = self.column_index(&relation, ident)?;
            if targets.contains(&index) {
                let error = Error::semantic("42701", format!("column \"{}\" specified more than once", fold(ident)));
                return Err(self.placed(error, Some(ident.span.start)));
            }
            targets.push(index);
        }
        let explicit = !targets.is_empty();
        if !explicit {
            targets = (0..relation.columns.len()).collect();
        }
        let given = self.insert_source(insert, &relation, &targets, explicit, parameters)?;
        let source = self.whole_rows(given, &relation)?;
        let source = self
            .finish(source, parameters)
            .map_err(|error| self.located(error, insert))?;
        Ok(BoundInsert {
            on_conflict: self.on_conflict(insert, &relation)?,
            returning: self.returning(
                insert.returning.as_deref(),
                &relation,
                insert.table_alias.as_ref().map(|alias| &alias.alias),
            )?,
            relation,
            source,
        })
    }

    /// The given columns' plan and which column of the relation each one is.
    fn insert_source(
        &self,
        insert: &ast::Insert,
        relation: &Relation,
        targets: &[usize],
        explicit: bool,
        parameters: &mut ParameterTypes,
    ) -> Result<(LogicalPlan, Vec<usize>)> {
        let Some(query) = &insert.source else {
            // DEFAULT VALUES
            let plan = LogicalPlanBuilder::empty(true).build().map_err(from_datafusion)?;
            return Ok((plan, Vec::new()));
        };
        if let SetExpr::Values(values) = query.body.as_ref()
            && query.with.is_none()
            && query.order_by.is_none()
            && query.limit_clause.is_none()
        {
            let rows: Vec<&[ast::Expr]> = values.rows.iter().map(|row| row.content.as_slice()).collect();
            let width = rows.first().map_or(0, |row| row.len());
            if rows.iter().any(|row| row.len() != width) {
                return Err(Error::syntax("VALUES lists must all be the same length"));
            }
            check_width(width, targets.len(), explicit)
                .map_err(|error| self.placed(error, odd_one(insert, width, targets.len())))?;
            return self.insert_values(&rows, relation, &targets[..width], parameters);
        }
        let plan = self.plan_query(query, parameters)?;
        let count = plan.schema().fields().len();
        check_width(count, targets.len(), explicit)
            .map_err(|error| self.placed(error, odd_one(insert, count, targets.len())))?;
        let targets = &targets[..count];
        let mut exprs = Vec::with_capacity(count);
        let (input, own): (Arc<LogicalPlan>, Vec<Expr>) = match plan {
            // Casting in the projection itself lets literals be read as the column's type.
            LogicalPlan::Projection(projection) => (projection.input, projection.expr),
            other => {
                let columns = other.schema().columns().into_iter().map(Expr::Column).collect();
                (Arc::new(other), columns)
            }
        };
        for (index, (expr, target)) in own.into_iter().zip(targets).enumerate() {
            let column = &relation.columns[*target];
            self.check_not_generated(column)?;
            let cast = self.assigned(expr.unalias(), input.schema(), &column.kind, &column.name)?;
            exprs.push(cast.alias(format!("given{index}")));
        }
        let plan = LogicalPlanBuilder::from(input)
            .project(exprs)
            .and_then(LogicalPlanBuilder::build)
            .map_err(|error| self.located(error, insert))?;
        Ok((plan, targets.to_vec()))
    }

    pub(super) fn check_not_generated(&self, column: &Column) -> Result<()> {
        if column.generated.is_some() {
            return Err(Error::semantic(
                "428C9",
                format!("cannot insert a non-DEFAULT value into column \"{}\"", column.name),
            )
            .with_detail(format!("Column \"{}\" is a generated column.", column.name)));
        }
        Ok(())
    }

    fn insert_values(
        &self,
        rows: &[&[ast::Expr]],
        relation: &Relation,
        targets: &[usize],
        parameters: &ParameterTypes,
    ) -> Result<(LogicalPlan, Vec<usize>)> {
        let width = targets.len();
        let empty = DFSchema::empty();
        let mut context = PlannerContext::new().with_prepare_param_data_types(parameters.fields());
        let mut values = Vec::with_capacity(rows.len());
        // Columns that only ever get DEFAULT are left to what fills the rest.
        let mut only_default = vec![true; width];
        for row in rows {
            let mut cells = Vec::with_capacity(width);
            for (index, (cell, target)) in row.iter().zip(targets).enumerate() {
                let column = &relation.columns[*target];
                if is_default(cell) {
                    cells.push(self.default_of(column)?);
                    continue;
                }
                only_default[index] = false;
                self.check_not_generated(column)?;
                let expr = self.expression(cell, &empty, &mut context)?;
                let cast = self
                    .assigned(expr, &empty, &column.kind, &column.name)
                    .map_err(|error| self.at_expression(error, cell))?;
                cells.push(cast);
            }
            values.push(cells);
        }
        let kept: Vec<usize> = (0..width)
            .filter(|index| !(only_default[*index] && relation.columns[targets[*index]].generated.is_some()))
            .collect();
        let columns: Vec<(String, Type)> = kept
            .iter()
            .map(|index| (format!("given{index}"), relation.columns[targets[*index]].kind.clone()))
            .collect();
        let values: Vec<Vec<Expr>> = values
            .into_iter()
            .map(|cells| {
                cells
                    .into_iter()
                    .enumerate()
                    .filter(|(index, _)| kept.contains(index))
                    .map(|(_, cell)| cell)
                    .collect()
            })
            .collect();
        let plan = rows_plan(values, &columns)?;
        Ok((plan, kept.iter().map(|index| targets[*index]).collect()))
    }

    /// Rows of all columns: the given ones, defaults for the rest, and computed ones.
    fn whole_rows(&self, (plan, targets): (LogicalPlan, Vec<usize>), relation: &Relation) -> Result<LogicalPlan> {
        let given = plan.schema().columns();
        let mut exprs = Vec::with_capacity(relation.columns.len());
        for (index, column) in relation.columns.iter().enumerate() {
            let expr = match targets.iter().position(|target| *target == index) {
                Some(position) => Expr::Column(given[position].clone()),
                None if column.generated.is_some() => null_of(&column.kind)?,
                None => self.default_of(column)?,
            };
            exprs.push(expr.alias(&column.name));
        }
        let plan = LogicalPlanBuilder::from(plan)
            .project(exprs)
            .and_then(LogicalPlanBuilder::build)
            .map_err(from_datafusion)?;
        self.computed(plan, relation)
    }
}

fn check_width(given: usize, wanted: usize, explicit: bool) -> Result<()> {
    if given > wanted {
        return Err(Error::syntax("INSERT has more expressions than target columns"));
    }
    if given < wanted && explicit {
        return Err(Error::syntax("INSERT has more target columns than expressions"));
    }
    Ok(())
}

/// The first expression that has no column, or the first column that has no expression.
fn odd_one(insert: &ast::Insert, given: usize, wanted: usize) -> Option<Location> {
    let span = if given < wanted {
        insert.columns.get(given)?.0.last()?.as_ident()?.span
    } else {
        match insert.source.as_ref()?.body.as_ref() {
            SetExpr::Values(values) => values.rows.first()?.content.get(wanted)?.span(),
            SetExpr::Select(select) => select.projection.get(wanted)?.span(),
            _ => return None,
        }
    };
    (span.start.line > 0).then_some(span.start)
}
