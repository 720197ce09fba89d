//! Functions that return sets, alone or beside each row; INTERSECT and EXCEPT over bags.

use super::window::drop_empty;
use super::{Relations, all_columns, literal_text, refuse};
use crate::error::Error;
use crate::sql::bind::analyse;
use crate::sql::bind::desugar::argument_expression;
use crate::sql::bind::expression::{common_type, type_of};
use crate::sql::bind::node::{self, Quantifier, SetKind, SetOperation};
use crate::sql::error::external;
use crate::sql::function::{set_function, special};
use crate::sql::parser::fold;
use crate::types::Type;
use datafusion::common::{Column, DFSchema, Result as DataFusionResult, ScalarValue, TableReference};
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlannerContext};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use sqlparser::ast::{self, FunctionArg, Ident, ObjectName, TableAlias};
use std::sync::Arc;

/// The column that holds a list until it is unnested.
pub(super) const LIST: &str = "__list";

impl Relations {
    pub(super) fn set_operation(
        &self,
        args: &[FunctionArg],
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<LogicalPlan> {
        let args: Vec<&ast::Expr> = args.iter().filter_map(argument_expression).collect();
        let [left, right, which] = args.as_slice() else {
            return refuse(Error::internal("a set operation has two inputs"));
        };
        let which = literal_text(which).unwrap_or_default();
        let (left, right) = (self.input(left, context)?, self.input(right, context)?);
        let kind = if which.starts_with("except") {
            SetKind::Except
        } else {
            SetKind::Intersect
        };
        let word = if kind == SetKind::Except { "EXCEPT" } else { "INTERSECT" };
        let quantifier = if which.ends_with("all") {
            Quantifier::All
        } else {
            Quantifier::Distinct
        };
        if left.schema().fields().len() != right.schema().fields().len() {
            return refuse(Error::syntax(format!(
                "each {word} query must have the same number of columns"
            )));
        }
        let mut kinds = Vec::new();
        for (a, b) in left.schema().fields().iter().zip(right.schema().fields()) {
            let (a, b) = (Type::of_field(a), Type::of_field(b));
            let common = common_type(&a, &b).ok_or_else(|| {
                external(Error::semantic(
                    "42804",
                    format!("{word} types {a} and {b} cannot be matched"),
                ))
            })?;
            kinds.push(if common == Type::Unknown { Type::Text } else { common });
        }
        let left = keyed(analyse::cast_columns(Arc::new(left), &kinds, &self.zone)?)?;
        let right = keyed(analyse::cast_columns(Arc::new(right), &kinds, &self.zone)?)?;
        let fields = left
            .schema()
            .iter()
            .zip(right.schema().fields())
            .map(|((_, own), other)| {
                let nullable = own.is_nullable() || other.is_nullable();
                (None, Arc::new(own.as_ref().clone().with_nullable(nullable)))
            })
            .collect();
        let schema = Arc::new(DFSchema::new_with_metadata(fields, Default::default())?);
        Ok(node::plan(SetOperation {
            left,
            right,
            kind,
            quantifier,
            schema,
        }))
    }

    /// A function that returns a set: beside each row of `left`, or alone.
    pub(super) fn set(
        &self,
        name: &str,
        args: &[&ast::Expr],
        alias: &Option<TableAlias>,
        with_ordinality: bool,
        left: Option<LogicalPlan>,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<PlannedRelation> {
        if with_ordinality {
            return refuse(Error::unsupported("WITH ORDINALITY is not supported"));
        }
        let input = match left {
            Some(left) => left,
            None => LogicalPlanBuilder::empty(true).build()?,
        };
        let schema = input.schema().clone();
        let args = args
            .iter()
            .map(|arg| {
                let expr = context.sql_to_expr((*arg).clone(), &schema)?;
                analyse::expression(expr, &schema, &self.zone).map_err(external)
            })
            .collect::<DataFusionResult<Vec<_>>>()?;
        let types = args
            .iter()
            .map(|arg| type_of(arg, &schema))
            .collect::<DataFusionResult<Vec<_>>>()?;
        let lists = set_function::lists(name, args, &types, &self.zone).map_err(external)?;
        let qualifier = match alias {
            Some(alias) => fold(&alias.name),
            None => name.to_owned(),
        };
        // The one column of a function takes the name of its alias.
        let names: Vec<String> = match alias {
            Some(alias) if !alias.columns.is_empty() => alias.columns.iter().map(|column| fold(&column.name)).collect(),
            Some(alias) if lists.names.len() == 1 && !lists.is_record => vec![fold(&alias.name)],
            _ => lists.names.clone(),
        };
        if names.len() > lists.names.len() {
            return refuse(Error::semantic(
                "42P10",
                format!(
                    "table \"{qualifier}\" has {} columns available but {} columns specified",
                    lists.names.len(),
                    names.len()
                ),
            ));
        }
        let plan = unnested(input, lists, &qualifier, &names)?;
        Ok(PlannedRelation::new(plan, None))
    }

    pub(super) fn one_row(
        &self,
        name: &str,
        args: &[&ast::Expr],
        ident: &Ident,
        alias: &Option<TableAlias>,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<PlannedRelation> {
        let _ = name;
        let call = ast::Expr::Function(ast::Function {
            name: ObjectName::from(vec![ident.clone()]),
            uses_odbc_syntax: false,
            parameters: ast::FunctionArguments::None,
            args: ast::FunctionArguments::List(ast::FunctionArgumentList {
                duplicate_treatment: None,
                args: args
                    .iter()
                    .map(|arg| FunctionArg::Unnamed(ast::FunctionArgExpr::Expr((*arg).clone())))
                    .collect(),
                clauses: Vec::new(),
            }),
            filter: None,
            null_treatment: None,
            over: None,
            within_group: Vec::new(),
        });
        let input = LogicalPlanBuilder::empty(true).build()?;
        let expr = context.sql_to_expr(call, &input.schema().clone())?;
        let label = alias
            .as_ref()
            .and_then(|alias| alias.columns.first().map(|column| fold(&column.name)))
            .or_else(|| alias.as_ref().map(|alias| fold(&alias.name)))
            .unwrap_or_else(|| fold(ident));
        let qualifier = alias.as_ref().map_or_else(|| fold(ident), |alias| fold(&alias.name));
        let plan = LogicalPlanBuilder::from(input)
            .project(vec![expr.alias(label)])?
            .alias(TableReference::bare(qualifier))?
            .build()?;
        Ok(PlannedRelation::new(plan, None))
    }
}

/// Rows whose floats compare by value.
pub(super) fn keyed(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    let is_float = |kind: &Type| matches!(kind, Type::Float4 | Type::Float8);
    if !plan
        .schema()
        .fields()
        .iter()
        .any(|field| is_float(&Type::of_field(field)))
    {
        return Ok(plan);
    }
    let columns = plan
        .schema()
        .iter()
        .map(|(qualifier, field)| {
            let column = Expr::from((qualifier, field));
            if is_float(&Type::of_field(field)) {
                special::float_key(column).alias_qualified(qualifier.cloned(), field.name())
            } else {
                column
            }
        })
        .collect::<Vec<_>>();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

/// The input's columns, then the elements of the lists side by side under the given names.
pub(super) fn unnested(
    input: LogicalPlan,
    lists: set_function::Lists,
    qualifier: &str,
    names: &[String],
) -> DataFusionResult<LogicalPlan> {
    let own = all_columns(&input);
    let mut columns = own.clone();
    let mut listed = Vec::new();
    for (index, list) in lists.lists.into_iter().enumerate() {
        let name = format!("{LIST}{index}");
        columns.push(list.alias(&name));
        listed.push(Column::from_name(name));
    }
    let qualifier = TableReference::bare(qualifier);
    let mut output = own;
    for (index, default) in lists.names.iter().enumerate() {
        let name = names.get(index).unwrap_or(default);
        let value = if lists.is_record {
            special::field(Expr::Column(listed[0].clone()), &ScalarValue::from(default.as_str()))
        } else {
            Expr::Column(listed[index].clone())
        };
        output.push(value.alias_qualified(Some(qualifier.clone()), name));
    }
    LogicalPlanBuilder::from(input)
        .project(columns)?
        .unnest_columns_with_options(listed, drop_empty())?
        .project(output)?
        .build()
}

/// The value of an expression without columns; `None` where it has some.
pub(super) fn constant(expr: &Expr) -> crate::error::Result<Option<ScalarValue>> {
    if let Expr::Literal(value, _) = expr {
        return Ok(Some(value.clone()));
    }
    if !expr.column_refs().is_empty() {
        return Ok(None);
    }
    let nothing = Arc::new(arrow::datatypes::Schema::empty());
    let one = crate::delta::batch_of(nothing.clone(), Vec::new(), 1)?;
    let compiled = crate::expr::Expression::bind(expr, &DFSchema::empty())?.compile(&nothing)?;
    let (values, failures) = compiled.evaluate(&one)?;
    match failures.into_iter().next() {
        Some(failure) => Err(failure.error),
        None => ScalarValue::try_from_array(&values, 0)
            .map(Some)
            .map_err(crate::expr::from_datafusion),
    }
}
