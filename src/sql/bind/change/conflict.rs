//! ON CONFLICT: what becomes of a row whose key is there already.

use super::update::flat;
use super::{ConflictUpdate, OnConflict, is_default};
use crate::catalog::{Relation, RelationKind};
use crate::error::{Error, Result};
use crate::sql::bind::{Binder, analyse, schema_of};
use crate::sql::error::from_datafusion;
use crate::sql::parser::{self, fold, name_of};
use crate::types::Type;
use datafusion::common::{DFSchema, TableReference};
use datafusion::logical_expr::Expr;
use datafusion::sql::planner::PlannerContext;
use sqlparser::ast::{self, Assignment, ConflictTarget, Ident, OnConflictAction, OnInsert};
use std::sync::Arc;

impl Binder<'_> {
    pub(super) fn on_conflict(&self, insert: &ast::Insert, relation: &Relation) -> Result<OnConflict> {
        let Some(OnInsert::OnConflict(conflict)) = &insert.on else {
            return Ok(OnConflict::Fail);
        };
        let RelationKind::Table { primary_key } = &relation.kind else {
            return Err(Error::unsupported("ON CONFLICT on a stream is not supported"));
        };
        match &conflict.conflict_target {
            Some(ConflictTarget::Columns(columns)) => {
                let mut named = columns
                    .iter()
                    .map(|column| self.column_index(relation, column))
                    .collect::<Result<Vec<_>>>()?;
                let mut key = primary_key.clone();
                named.sort_unstable();
                key.sort_unstable();
                if named != key || key.is_empty() {
                    return Err(Error::semantic(
                        "42P10",
                        "there is no unique or exclusion constraint matching the ON CONFLICT specification",
                    ));
                }
            }
            Some(ConflictTarget::OnConstraint(name)) => {
                let expected = format!("{}_pkey", relation.name);
                let given = name_of("", name)?.name;
                if given != expected || primary_key.is_empty() {
                    return Err(Error::semantic(
                        "42704",
                        format!("constraint \"{given}\" for table \"{}\" does not exist", relation.name),
                    ));
                }
            }
            None => {}
        }
        match &conflict.action {
            OnConflictAction::DoNothing => Ok(OnConflict::Nothing),
            OnConflictAction::DoUpdate(_) if conflict.conflict_target.is_none() => Err(Error::syntax(
                "ON CONFLICT DO UPDATE requires inference specification or constraint name",
            )
            .with_hint("For example, ON CONFLICT (column_name).")),
            OnConflictAction::DoUpdate(update) => {
                let alias = insert.table_alias.as_ref().map(|alias| fold(&alias.alias));
                self.conflict_update(
                    relation,
                    alias.as_deref(),
                    &update.assignments,
                    update.selection.as_ref(),
                )
                .map(OnConflict::Update)
            }
        }
    }

    fn conflict_update(
        &self,
        relation: &Relation,
        alias: Option<&str>,
        assignments: &[Assignment],
        selection: Option<&ast::Expr>,
    ) -> Result<ConflictUpdate> {
        let columns: Vec<(String, Type)> = relation
            .columns
            .iter()
            .map(|column| (column.name.clone(), column.kind.clone()))
            .collect();
        let own = alias.unwrap_or(&relation.name);
        let schema = schema_of(&columns, Some(own))?
            .join(&schema_of(&columns, Some("excluded"))?)
            .map_err(from_datafusion)?;
        // An unqualified name is the row's that is there.
        let own_schema = schema_of(&columns, Some(own))?;
        let qualifier = TableReference::bare(own);
        let mut row: Vec<Expr> = relation
            .columns
            .iter()
            .map(|column| Expr::Column(datafusion::common::Column::new(Some(qualifier.clone()), &column.name)))
            .collect();
        for (ident, value) in flat(assignments)? {
            let index = self.column_index(relation, ident)?;
            let column = &relation.columns[index];
            self.check_not_generated(column)?;
            row[index] = if is_default(value) {
                self.default_of(column)?
            } else {
                let expr = self.over_two(value, &own_schema, &schema)?;
                self.assigned(expr, &schema, &column.kind, &column.name)?
            };
        }
        for (index, column) in relation.columns.iter().enumerate() {
            if let Some(text) = &column.generated {
                let parsed = parser::parse_expression(text)?;
                let expr = self.over_two(&parsed, &own_schema, &schema)?;
                let computed = replaced(expr, &qualifier, relation, &row)?;
                row[index] = self.assigned(computed, &schema, &column.kind, &column.name)?;
            }
        }
        let settle = |expr: Expr| analyse::expression(expr, &schema, &self.settings.time_zone);
        let row = row.into_iter().map(settle).collect::<Result<Vec<_>>>()?;
        let filter = selection
            .map(|selection| settle(self.over_two(selection, &own_schema, &schema)?))
            .transpose()?;
        Ok(ConflictUpdate {
            schema: Arc::new(schema),
            row,
            filter,
        })
    }

    /// An expression over a row and `excluded`, in which unqualified names are the row's.
    fn over_two(&self, expr: &ast::Expr, own: &DFSchema, both: &DFSchema) -> Result<Expr> {
        let qualifier = own.iter().next().and_then(|(qualifier, _)| qualifier.cloned());
        let mut qualified = expr.clone();
        if let Some(qualifier) = qualifier {
            let _ = ast::visit_expressions_mut(&mut qualified, |expr: &mut ast::Expr| {
                if let ast::Expr::Identifier(ident) = expr
                    && own.has_column_with_unqualified_name(&fold(ident))
                {
                    let mut table = Ident::with_quote('"', qualifier.table());
                    table.span = ident.span;
                    *expr = ast::Expr::CompoundIdentifier(vec![table, ident.clone()]);
                }
                std::ops::ControlFlow::<()>::Continue(())
            });
        }
        self.expression(&qualified, both, &mut PlannerContext::new())
    }
}

/// An expression with a relation's columns replaced by the values of a row.
pub(super) fn replaced(expr: Expr, qualifier: &TableReference, relation: &Relation, row: &[Expr]) -> Result<Expr> {
    use datafusion::common::tree_node::{Transformed, TreeNode};
    expr.transform_up(|expr| {
        if let Expr::Column(column) = &expr
            && column.relation.as_ref().is_none_or(|relation| relation == qualifier)
            && let Some(index) = relation.column(&column.name)
        {
            return Ok(Transformed::yes(row[index].clone()));
        }
        Ok(Transformed::no(expr))
    })
    .map(|transformed| transformed.data)
    .map_err(from_datafusion)
}
