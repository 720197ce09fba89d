//! INSERT, UPDATE and DELETE: what rows they are about, as plans for the engine to run.
//!
//! Each gives the relation, a plan of whole rows in the relation's column order, and what RETURNING asks for as a
//! query over the relation: whoever runs it gives the affected rows to its scan.

use super::expression::type_of;
use super::rows::rows_plan;
use super::{Binder, Bound, ParameterTypes, analyse, desugar, schema_of};
use crate::catalog::{Column, Relation, RelationKind};
use crate::error::{Error, Result};
use crate::sql::error::from_datafusion;
use crate::sql::function::cast::{Context, cast_expression, exists};
use crate::sql::parser::{self, fold, name_of};
use crate::types::{Nullability, Type};
use datafusion::common::{DFSchema, DFSchemaRef, ScalarValue, TableReference};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::planner::{PlannerContext, SqlToRel};
use sqlparser::ast::{
    self, Assignment, AssignmentTarget, ConflictTarget, FromTable, Ident, ObjectName, OnConflictAction, OnInsert,
    SelectItem, SetExpr, Spanned, TableAlias, TableFactor, TableObject, TableWithJoins, UpdateTableFromKind,
};
use std::sync::Arc;

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
                return Err(Error::semantic(
                    "42701",
                    format!("column \"{}\" specified more than once", fold(ident)),
                ));
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
            return self.insert_values(&rows, relation, targets, explicit, parameters);
        }
        let plan = self.plan_query(query, parameters)?;
        let count = plan.schema().fields().len();
        check_width(count, targets.len(), explicit)?;
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

    fn check_not_generated(&self, column: &Column) -> Result<()> {
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
        explicit: bool,
        parameters: &ParameterTypes,
    ) -> Result<(LogicalPlan, Vec<usize>)> {
        let width = rows.first().map_or(0, |row| row.len());
        if rows.iter().any(|row| row.len() != width) {
            return Err(Error::syntax("VALUES lists must all be the same length"));
        }
        check_width(width, targets.len(), explicit).map_err(|error| {
            // At the first expression too many, as PostgreSQL.
            let place = rows.first().and_then(|row| row.get(targets.len()));
            self.placed(error, place.map(|expr| expr.span().start))
        })?;
        let targets = &targets[..width];
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

    fn on_conflict(&self, insert: &ast::Insert, relation: &Relation) -> Result<OnConflict> {
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

    /// Binds UPDATE.
    pub fn bind_update(&self, update: &ast::Update, parameters: &mut ParameterTypes) -> Result<BoundUpdate> {
        parser::on_deep_stack(|| self.update(update, parameters))
    }

    fn update(&self, update: &ast::Update, parameters: &mut ParameterTypes) -> Result<BoundUpdate> {
        let (name, alias) = target_of(&update.table)?;
        let relation = self.target(name, "update")?;
        let assignments = flat(&update.assignments)?;
        let mut values: Vec<Option<&ast::Expr>> = vec![None; relation.columns.len()];
        for (ident, value) in assignments {
            let index = self.column_index(&relation, ident)?;
            let column = &relation.columns[index];
            if column.generated.is_some() && !is_default(value) {
                return Err(Error::semantic(
                    "428C9",
                    format!("column \"{}\" can only be updated to DEFAULT", column.name),
                )
                .with_detail(format!("Column \"{}\" is a generated column.", column.name)));
            }
            if values[index].replace(value).is_some() {
                return Err(Error::semantic(
                    "42601",
                    format!("multiple assignments to same column \"{}\"", column.name),
                ));
            }
        }
        // SELECT the old row and the assigned values, then cast those in the projection.
        let qualifier = alias.map_or_else(|| Ident::with_quote('"', &relation.name), |alias| alias.name.clone());
        let mut projection = old_row(&relation, &qualifier);
        let assigned: Vec<usize> = (0..values.len())
            .filter(|index| values[*index].is_some_and(|value| !is_default(value)))
            .collect();
        for index in &assigned {
            if let Some(value) = values[*index] {
                projection.push(SelectItem::ExprWithAlias {
                    expr: value.clone(),
                    alias: Ident::with_quote('"', format!("set{index}")),
                });
            }
        }
        let from = match &update.from {
            Some(UpdateTableFromKind::BeforeSet(from) | UpdateTableFromKind::AfterSet(from)) => from.clone(),
            None => Vec::new(),
        };
        let plan = self.changed_rows(
            &relation,
            alias,
            projection,
            from,
            update.selection.as_ref(),
            parameters,
        )?;
        let LogicalPlan::Projection(selected) = plan else {
            return Err(Error::internal("a list of values is a projection"));
        };
        let width = relation.columns.len();
        let mut exprs: Vec<Expr> = selected.expr[..width].to_vec();
        for (index, column) in relation.columns.iter().enumerate() {
            let expr = match assigned.iter().position(|known| *known == index) {
                Some(position) => {
                    let value = selected.expr[width + position].clone().unalias();
                    let cast = self.assigned(value, selected.input.schema(), &column.kind, &column.name);
                    cast.map_err(|error| match values[index] {
                        Some(value) => self.at_expression(error, value),
                        None => error,
                    })?
                }
                None if values[index].is_some() && column.generated.is_none() => self.default_of(column)?,
                None => exprs[index].clone().unalias(),
            };
            exprs.push(expr.alias(format!("new{index}")));
        }
        let plan = LogicalPlanBuilder::from(selected.input)
            .project(exprs)
            .and_then(LogicalPlanBuilder::build)
            .map_err(|error| self.located(error, update))?;
        let plan = self.recomputed(plan, &relation)?;
        let source = self
            .finish(plan, parameters)
            .map_err(|error| self.located(error, update))?;
        Ok(BoundUpdate {
            returning: self.returning(update.returning.as_deref(), &relation, alias.map(|alias| &alias.name))?,
            relation,
            source,
        })
    }

    /// Old and new rows with the new ones' computed columns computed.
    fn recomputed(&self, plan: LogicalPlan, relation: &Relation) -> Result<LogicalPlan> {
        if relation.columns.iter().all(|column| column.generated.is_none()) {
            return Ok(plan);
        }
        let width = relation.columns.len();
        let all: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let columns: Vec<(String, Type)> = relation
            .columns
            .iter()
            .map(|column| (column.name.clone(), column.kind.clone()))
            .collect();
        let schema = schema_of(&columns, Some("new"))?;
        let qualifier = TableReference::bare("new");
        let mut exprs = all[..width].to_vec();
        for (index, column) in relation.columns.iter().enumerate() {
            exprs.push(match &column.generated {
                Some(text) => {
                    let parsed = parser::parse_expression(text)?;
                    let expr = self.expression(&parsed, &schema, &mut PlannerContext::new())?;
                    let expr = self.assigned(expr, &schema, &column.kind, &column.name)?;
                    replaced(expr, &qualifier, relation, &all[width..])?.alias(format!("computed{index}"))
                }
                None => all[width + index].clone(),
            });
        }
        LogicalPlanBuilder::from(plan)
            .project(exprs)
            .and_then(LogicalPlanBuilder::build)
            .map_err(from_datafusion)
    }

    /// The rows of a relation that a condition chooses, with what is asked of them.
    fn changed_rows(
        &self,
        relation: &Relation,
        alias: Option<&TableAlias>,
        projection: Vec<SelectItem>,
        from: Vec<TableWithJoins>,
        selection: Option<&ast::Expr>,
        parameters: &ParameterTypes,
    ) -> Result<LogicalPlan> {
        let factor = target_factor(relation, alias.map(|alias| &alias.name));
        let mut body = desugar::select_all_from(factor);
        if let SetExpr::Select(select) = &mut body {
            select.projection = projection;
            select.from.extend(from);
            select.selection = selection.cloned();
        }
        let query = desugar::bare_query(body);
        let mut rewritten = query.clone();
        desugar::query(&mut rewritten);
        let mut context = PlannerContext::new().with_prepare_param_data_types(parameters.fields());
        SqlToRel::new(self)
            .sql_statement_to_plan_with_context(ast::Statement::Query(Box::new(rewritten)), &mut context)
            .map_err(|error| self.located(error, &query))
    }

    /// Binds DELETE.
    pub fn bind_delete(&self, delete: &ast::Delete, parameters: &mut ParameterTypes) -> Result<BoundDelete> {
        parser::on_deep_stack(|| {
            let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
            let [table] = from.as_slice() else {
                return Err(Error::syntax("DELETE names one table"));
            };
            let (name, alias) = target_of(table)?;
            let relation = self.target(name, "delete from")?;
            let qualifier = alias.map_or_else(|| Ident::with_quote('"', &relation.name), |alias| alias.name.clone());
            let projection = old_row(&relation, &qualifier);
            let using = delete.using.clone().unwrap_or_default();
            let plan = self.changed_rows(
                &relation,
                alias,
                projection,
                using,
                delete.selection.as_ref(),
                parameters,
            )?;
            let source = self
                .finish(plan, parameters)
                .map_err(|error| self.located(error, delete))?;
            Ok(BoundDelete {
                returning: self.returning(delete.returning.as_deref(), &relation, alias.map(|alias| &alias.name))?,
                relation,
                source,
            })
        })
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

/// `a = 1, (b, c) = (2, 3)` one by one.
fn flat(assignments: &[Assignment]) -> Result<Vec<(&Ident, &ast::Expr)>> {
    let mut all = Vec::new();
    for assignment in assignments {
        match &assignment.target {
            AssignmentTarget::ColumnName(name) => {
                let ident = name.0.last().and_then(|part| part.as_ident());
                all.push((
                    ident.ok_or_else(|| Error::syntax("a column's name is missing"))?,
                    &assignment.value,
                ));
            }
            AssignmentTarget::Tuple(names) => {
                let values = match &assignment.value {
                    ast::Expr::Tuple(values) => values.as_slice(),
                    ast::Expr::Nested(inner) => std::slice::from_ref(inner.as_ref()),
                    _ => {
                        return Err(Error::unsupported(
                            "assigning the columns of a subquery to a list is not supported",
                        )
                        .with_hint("Assign each column by itself, or use UPDATE ... FROM."));
                    }
                };
                if names.len() != values.len() {
                    return Err(Error::syntax("number of columns does not match number of values"));
                }
                for (name, value) in names.iter().zip(values) {
                    let ident = name.0.last().and_then(|part| part.as_ident());
                    all.push((ident.ok_or_else(|| Error::syntax("a column's name is missing"))?, value));
                }
            }
        }
    }
    Ok(all)
}

fn target_of(table: &TableWithJoins) -> Result<(&ObjectName, Option<&TableAlias>)> {
    match &table.relation {
        TableFactor::Table { name, alias, .. } if table.joins.is_empty() => Ok((name, alias.as_ref())),
        other => Err(Error::syntax(format!("syntax error at or near \"{other}\""))),
    }
}

/// The relation in FROM, under its alias.
fn target_factor(relation: &Relation, alias: Option<&Ident>) -> TableFactor {
    TableFactor::Table {
        name: ObjectName::from(vec![
            Ident::with_quote('"', &relation.schema),
            Ident::with_quote('"', &relation.name),
        ]),
        alias: Some(TableAlias {
            explicit: true,
            name: alias.cloned().unwrap_or_else(|| Ident::with_quote('"', &relation.name)),
            columns: Vec::new(),
            at: None,
        }),
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// All columns of the relation, as `old0`, `old1`, ...
fn old_row(relation: &Relation, qualifier: &Ident) -> Vec<SelectItem> {
    relation
        .columns
        .iter()
        .enumerate()
        .map(|(index, column)| SelectItem::ExprWithAlias {
            expr: ast::Expr::CompoundIdentifier(vec![qualifier.clone(), Ident::with_quote('"', &column.name)]),
            alias: Ident::with_quote('"', format!("old{index}")),
        })
        .collect()
}

/// An expression with a relation's columns replaced by the values of a row.
fn replaced(expr: Expr, qualifier: &TableReference, relation: &Relation, row: &[Expr]) -> Result<Expr> {
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
