//! UPDATE and DELETE: the rows that a condition chooses, and what they become.

use super::conflict::replaced;
use super::{BoundDelete, BoundUpdate, is_default};
use crate::catalog::Relation;
use crate::error::{Error, Result};
use crate::sql::bind::{Binder, ParameterTypes, desugar, schema_of};
use crate::sql::error::from_datafusion;
use crate::sql::parser::{self};
use crate::types::Type;
use datafusion::common::TableReference;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::planner::{PlannerContext, SqlToRel};
use sqlparser::ast::{
    self, Assignment, AssignmentTarget, FromTable, Ident, ObjectName, SelectItem, SetExpr, TableAlias, TableFactor,
    TableWithJoins, UpdateTableFromKind,
};

impl Binder<'_> {
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

/// `a = 1, (b, c) = (2, 3)` one by one.
pub(super) fn flat(assignments: &[Assignment]) -> Result<Vec<(&Ident, &ast::Expr)>> {
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

pub(super) fn target_of(table: &TableWithJoins) -> Result<(&ObjectName, Option<&TableAlias>)> {
    match &table.relation {
        TableFactor::Table { name, alias, .. } if table.joins.is_empty() => Ok((name, alias.as_ref())),
        other => Err(Error::syntax(format!("syntax error at or near \"{other}\""))),
    }
}

/// The relation in FROM, under its alias.
pub(super) fn target_factor(relation: &Relation, alias: Option<&Ident>) -> TableFactor {
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
pub(super) fn old_row(relation: &Relation, qualifier: &Ident) -> Vec<SelectItem> {
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
