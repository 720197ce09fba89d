//! Relations in FROM that DataFusion does not know: windows, window clauses, set operations, ASOF and temporal joins,
//! and functions that return sets.
//!
//! Windows become plain nodes where they can: a tumbling window is a projection, hopping and cumulating windows are a
//! projection to a list and an unnest. Sessions, window clauses and ASOF joins become nodes of ours (`node`).

mod join;
mod set;
mod window;

use super::desugar::{SET_FUNCTIONS, SET_OPERATION, argument_expression};
use super::relation::RelationSource;
use super::rows::{self, ROWS};
use crate::catalog::{RelationId, RelationKind};
use crate::error::Error;
use crate::sql::error::external;
use crate::sql::function::{self};
use crate::sql::parser::fold;
use crate::sql::parser::rewrite::{WINDOW_CLAUSE, WINDOW_FUNCTIONS};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::{Expr, LogicalPlan};
use sqlparser::ast::{self, FunctionArg, ObjectName, TableAlias, TableFactor, Value};

/// Plans relations of ours.
#[derive(Debug)]
pub(super) struct Relations {
    /// The session's time zone.
    pub(super) zone: String,
}

impl RelationPlanner for Relations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<RelationPlanning> {
        let planned = match &relation {
            TableFactor::Table {
                name,
                args: Some(args),
                alias,
                with_ordinality,
                ..
            } => self.call(name, &args.args, alias, *with_ordinality, context)?,
            TableFactor::Function {
                name,
                args,
                alias,
                with_ordinality,
                ..
            } => self.call(name, args, alias, *with_ordinality, context)?,
            TableFactor::UNNEST {
                array_exprs,
                alias,
                with_ordinality,
                ..
            } => {
                let args: Vec<&ast::Expr> = array_exprs.iter().collect();
                Some(self.set("unnest", &args, alias, *with_ordinality, None, context)?)
            }
            TableFactor::Table {
                version: Some(version), ..
            } => self.temporal(&relation, version, context)?,
            TableFactor::NestedJoin {
                table_with_joins,
                alias,
            } => self
                .nested(table_with_joins, context)?
                .map(|plan| PlannedRelation::new(plan, alias.clone())),
            _ => None,
        };
        Ok(match planned {
            Some(planned) => RelationPlanning::Planned(Box::new(planned)),
            None => RelationPlanning::Original(Box::new(relation)),
        })
    }
}

/// The arguments of a call, by position and by name.
struct Arguments<'a> {
    positional: Vec<&'a ast::Expr>,
    named: Vec<(String, &'a ast::Expr)>,
}

impl<'a> Arguments<'a> {
    fn of(args: &'a [FunctionArg]) -> Self {
        let mut arguments = Self {
            positional: Vec::new(),
            named: Vec::new(),
        };
        for arg in args {
            let Some(expr) = argument_expression(arg) else {
                continue;
            };
            match arg {
                FunctionArg::Named { name, .. } => arguments.named.push((fold(name), expr)),
                _ => arguments.positional.push(expr),
            }
        }
        arguments
    }

    fn named(&self, names: &[&str]) -> Option<&'a ast::Expr> {
        self.named
            .iter()
            .find(|(name, _)| names.contains(&name.as_str()))
            .map(|(_, expr)| *expr)
    }
}

fn refuse<T>(error: Error) -> DataFusionResult<T> {
    Err(external(error))
}

fn table_factor(name: ObjectName) -> TableFactor {
    TableFactor::Table {
        name,
        alias: None,
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

/// The relation that an argument names or is.
fn relation_argument(expr: &ast::Expr) -> Option<TableFactor> {
    Some(match expr {
        ast::Expr::Identifier(ident) => table_factor(ObjectName::from(vec![ident.clone()])),
        ast::Expr::CompoundIdentifier(idents) => table_factor(ObjectName::from(idents.clone())),
        ast::Expr::Subquery(query) => TableFactor::Derived {
            lateral: false,
            subquery: query.clone(),
            alias: None,
            sample: None,
        },
        ast::Expr::Nested(inner) => return relation_argument(inner),
        ast::Expr::Function(function) => match &function.args {
            ast::FunctionArguments::List(list) => TableFactor::Function {
                lateral: false,
                name: function.name.clone(),
                args: list.args.clone(),
                with_ordinality: false,
                alias: None,
            },
            _ => return None,
        },
        _ => return None,
    })
}

/// The text of a literal.
fn literal_text(expr: &ast::Expr) -> Option<&str> {
    match expr {
        ast::Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            Value::Number(text, _) => Some(text),
            _ => None,
        },
        ast::Expr::Cast { expr, .. } => literal_text(expr),
        _ => None,
    }
}

impl Relations {
    fn call(
        &self,
        name: &ObjectName,
        args: &[FunctionArg],
        alias: &Option<TableAlias>,
        with_ordinality: bool,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<Option<PlannedRelation>> {
        let Some(ident) = name.0.last().and_then(|part| part.as_ident()) else {
            return Ok(None);
        };
        let name = fold(ident);
        if name == SET_OPERATION {
            let plan = self.set_operation(args, context)?;
            return Ok(Some(PlannedRelation::new(plan, alias.clone())));
        }
        if name == ROWS {
            let plan = rows::plan(args, &self.zone, context)?;
            return Ok(Some(PlannedRelation::new(plan, alias.clone())));
        }
        let arguments = Arguments::of(args);
        if name == WINDOW_CLAUSE {
            return self.window_clause(&arguments, alias, context).map(Some);
        }
        if WINDOW_FUNCTIONS.contains(&name.as_str()) {
            let plan = self.window(&name, &arguments, context)?;
            return Ok(Some(PlannedRelation::new(plan, alias.clone())));
        }
        if SET_FUNCTIONS.contains(&name.as_str()) {
            return self
                .set(&name, &arguments.positional, alias, with_ordinality, None, context)
                .map(Some);
        }
        // A plain function in FROM is a relation of one row.
        if function::is_scalar(&name) {
            return self
                .one_row(&name, &arguments.positional, ident, alias, context)
                .map(Some);
        }
        Ok(None)
    }

    /// The relation that a window is over.
    fn input(&self, expr: &ast::Expr, context: &mut dyn RelationPlannerContext) -> DataFusionResult<LogicalPlan> {
        match relation_argument(expr) {
            Some(factor) => context.plan(factor),
            None => refuse(Error::syntax(format!(
                "a window is over a relation, not over \"{expr}\""
            ))),
        }
    }
}

fn fold_name(name: &ObjectName) -> String {
    name.0
        .last()
        .and_then(|part| part.as_ident())
        .map(fold)
        .unwrap_or_default()
}

/// The column of a stream's event time, seen through what only renames or filters.
fn event_time(plan: &LogicalPlan) -> Option<Expr> {
    let name = event_time_name(plan)?;
    let (qualifier, field) = plan.schema().iter().find(|(_, field)| *field.name() == name)?;
    Some(Expr::from((qualifier, field)))
}

/// The stream below that may hold rows to be too far in the future.
fn far_ahead(plan: &LogicalPlan) -> Option<RelationId> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let source = RelationSource::of(&scan.source)?;
            let RelationKind::Stream(stream) = &source.relation.kind else {
                return None;
            };
            stream.max_future_skew_ms.map(|_| source.relation.id)
        }
        LogicalPlan::SubqueryAlias(alias) => far_ahead(&alias.input),
        LogicalPlan::Filter(filter) => far_ahead(&filter.input),
        LogicalPlan::Projection(projection) => far_ahead(&projection.input),
        _ => None,
    }
}

fn event_time_name(plan: &LogicalPlan) -> Option<String> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let source = RelationSource::of(&scan.source)?;
            let RelationKind::Stream(stream) = &source.relation.kind else {
                return None;
            };
            let (column, _) = stream.watermark.as_ref()?;
            Some(source.relation.columns.get(*column)?.name.clone())
        }
        LogicalPlan::SubqueryAlias(alias) => event_time_name(&alias.input),
        LogicalPlan::Filter(filter) => event_time_name(&filter.input),
        LogicalPlan::Projection(projection) => {
            let inner = event_time_name(&projection.input)?;
            projection
                .expr
                .iter()
                .position(|expr| matches!(expr.clone().unalias(), Expr::Column(column) if column.name == inner))
                .map(|index| projection.schema.field(index).name().clone())
        }
        _ => None,
    }
}

/// The columns of a plan, as expressions.
fn all_columns(plan: &LogicalPlan) -> Vec<Expr> {
    plan.schema().columns().into_iter().map(Expr::Column).collect()
}
