//! INSERT, UPDATE and DELETE: what rows they are about, as plans for the engine to run.
//!
//! Each gives the relation, a plan of whole rows in the relation's column order, and what RETURNING asks for as a
//! query over the relation: whoever runs it gives the affected rows to its scan.

mod conflict;
mod insert;
mod update;

use super::expression::type_of;
use super::{Binder, Bound, ParameterTypes, desugar};
use crate::catalog::{Column, Relation, RelationKind};
use crate::error::{Error, Result};
use crate::sql::error::from_datafusion;
use crate::sql::function::cast::{Context, cast_expression, exists};
use crate::sql::parser::{self, fold, name_of};
use crate::types::{Nullability, Type};
use datafusion::common::{DFSchema, DFSchemaRef, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::planner::PlannerContext;
use sqlparser::ast::{self, Ident, ObjectName, SelectItem, SetExpr};
use std::sync::Arc;
use update::target_factor;

/// What becomes of a row whose key is there already.
#[derive(Debug, Clone)]
pub enum OnConflict {
    /// `23505`.
    Fail,
    /// The row is left out.
    Nothing,
    /// The row that is there is changed.
    Update(ConflictUpdate),
}

/// `ON CONFLICT DO UPDATE`: expressions over the row that is there and the one that was to be inserted.
#[derive(Debug, Clone)]
pub struct ConflictUpdate {
    /// The relation's columns, qualified by its name or alias, then again, qualified by `excluded`.
    pub schema: DFSchemaRef,
    /// The new row, an expression per column.
    pub row: Vec<Expr>,
    /// Whether the row is changed at all.
    pub filter: Option<Expr>,
}

/// A bound INSERT.
#[derive(Debug, Clone)]
pub struct BoundInsert {
    /// Into what.
    pub relation: Arc<Relation>,
    /// Whole rows, in the relation's column order and types.
    pub source: LogicalPlan,
    /// What becomes of a row whose key is there already.
    pub on_conflict: OnConflict,
    /// RETURNING, over the relation.
    pub returning: Option<Bound>,
}

/// A bound UPDATE.
#[derive(Debug, Clone)]
pub struct BoundUpdate {
    /// Of what.
    pub relation: Arc<Relation>,
    /// Old rows and new rows side by side: the relation's columns twice. With FROM, an old row may come up more than
    /// once; the first counts.
    pub source: LogicalPlan,
    /// RETURNING, over the relation, of the new rows.
    pub returning: Option<Bound>,
}

/// A bound DELETE.
#[derive(Debug, Clone)]
pub struct BoundDelete {
    /// From what.
    pub relation: Arc<Relation>,
    /// The rows to go. With USING, a row may come up more than once; it goes once.
    pub source: LogicalPlan,
    /// RETURNING, over the relation, of the old rows.
    pub returning: Option<Bound>,
}

/// `column "a" is of type integer but expression is of type text`.
fn mismatch(column: &str, target: &Type, given: &Type) -> Error {
    Error::semantic(
        "42804",
        format!("column \"{column}\" is of type {target} but expression is of type {given}"),
    )
    .with_hint("You will need to rewrite or cast the expression.")
}

fn null_of(kind: &Type) -> Result<Expr> {
    let value = ScalarValue::try_from(&kind.arrow()).map_err(from_datafusion)?;
    let field = kind.field("null", Nullability::Nullable);
    let metadata = (!field.metadata().is_empty()).then(|| datafusion::logical_expr::expr::FieldMetadata::from(&field));
    Ok(Expr::Literal(value, metadata))
}

fn is_default(expr: &ast::Expr) -> bool {
    matches!(expr, ast::Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value == "default")
}

impl Binder<'_> {
    /// An expression as the value of a column.
    pub(super) fn assigned(&self, expr: Expr, schema: &DFSchema, target: &Type, column: &str) -> Result<Expr> {
        let source = type_of(&expr, schema).map_err(from_datafusion)?;
        if !exists(&source, target, Context::Assignment) {
            return Err(mismatch(column, target, &source));
        }
        cast_expression(expr, &source, target, Context::Assignment, &self.settings.time_zone)
    }

    /// The relation that a statement changes.
    fn target(&self, name: &ObjectName, what: &str) -> Result<Arc<Relation>> {
        let whole = self.source.map_or("", |source| source.whole());
        let named = name_of(whole, name)?;
        let at = |error: Error| match named.position.filter(|_| self.source.is_some()) {
            Some(position) => error.with_position(position),
            None => error,
        };
        let relation = self.find_relation(named.schema.as_deref(), &named.name).map_err(at)?;
        match (&relation.kind, what) {
            (RelationKind::Table { .. }, _) | (RelationKind::Stream(_), "insert into") => Ok(relation.clone()),
            (RelationKind::Stream(_), _) => Err(Error::unsupported(format!(
                "cannot {what} stream \"{}\"",
                relation.name
            ))
            .with_hint("A stream only grows; use CREATE TABLE for rows that change.")),
            (RelationKind::View { .. }, _) => Err(Error::semantic(
                "55000",
                format!("cannot {what} view \"{}\"", relation.name),
            )),
            _ => Err(Error::semantic(
                "42809",
                format!("cannot change {} \"{}\"", relation.noun(), relation.name),
            )),
        }
    }

    fn column_index(&self, relation: &Relation, ident: &Ident) -> Result<usize> {
        let name = fold(ident);
        relation.column(&name).ok_or_else(|| {
            let error = Error::semantic(
                "42703",
                format!("column \"{name}\" of relation \"{}\" does not exist", relation.name),
            );
            match self.source.and_then(|source| source.position(ident.span.start)) {
                Some(position) => error.with_position(position),
                None => error,
            }
        })
    }

    /// An error about a value, at the value.
    fn at_expression(&self, error: Error, expr: &ast::Expr) -> Error {
        let location = ast::Spanned::span(expr).start;
        match self.source.and_then(|source| source.position(location)) {
            Some(position) if error.position().is_none() && self.views.borrow().is_empty() => {
                error.with_position(position)
            }
            _ => error,
        }
    }

    /// A column's DEFAULT, or NULL.
    fn default_of(&self, column: &Column) -> Result<Expr> {
        match &column.default {
            Some(text) => {
                let parsed = parser::parse_expression(text)?;
                let empty = DFSchema::empty();
                let expr = self.expression(&parsed, &empty, &mut PlannerContext::new())?;
                self.assigned(expr, &empty, &column.kind, &column.name)
            }
            None => null_of(&column.kind),
        }
    }

    /// The same rows with their computed columns computed.
    fn computed(&self, plan: LogicalPlan, relation: &Relation) -> Result<LogicalPlan> {
        if relation.columns.iter().all(|column| column.generated.is_none()) {
            return Ok(plan);
        }
        let mut exprs = Vec::with_capacity(relation.columns.len());
        for column in &relation.columns {
            let own = Expr::Column(datafusion::common::Column::from_name(&column.name));
            exprs.push(match &column.generated {
                Some(text) => {
                    let parsed = parser::parse_expression(text)?;
                    let expr = self.expression(&parsed, plan.schema(), &mut PlannerContext::new())?;
                    self.assigned(expr, plan.schema(), &column.kind, &column.name)?
                        .alias(&column.name)
                }
                None => own,
            });
        }
        LogicalPlanBuilder::from(plan)
            .project(exprs)
            .and_then(LogicalPlanBuilder::build)
            .map_err(from_datafusion)
    }

    /// RETURNING as a query over the relation.
    fn returning(
        &self,
        items: Option<&[SelectItem]>,
        relation: &Relation,
        alias: Option<&Ident>,
    ) -> Result<Option<Bound>> {
        let Some(items) = items else {
            return Ok(None);
        };
        let factor = target_factor(relation, alias);
        let mut body = desugar::select_all_from(factor);
        if let SetExpr::Select(select) = &mut body {
            select.projection = items.to_vec();
        }
        let query = desugar::bare_query(body);
        self.bind_query(&query, &mut ParameterTypes::default()).map(Some)
    }
}
