//! Relations in FROM that DataFusion does not know: windows, window clauses, set operations, ASOF and temporal joins,
//! and functions that return sets.
//!
//! Windows become plain nodes where they can: a tumbling window is a projection, hopping and cumulating windows are a
//! projection to a list and an unnest. Sessions, window clauses and ASOF joins become nodes of ours (`node`).

use super::analyse;
use super::desugar::{SET_FUNCTIONS, SET_OPERATION, argument_expression};
use super::expression::{common_type, type_of};
use super::node::{
    self, AsOfJoin, Clause, Quantifier, RefuseLate, SessionWindow, SetKind, SetOperation, TemporalTable, Unmatched,
    WindowClause,
};
use super::relation::RelationSource;
use super::rows::{self, ROWS};
use crate::catalog::RelationKind;
use crate::error::Error;
use crate::sql::error::external;
use crate::sql::function::cast::{Context, cast_expression};
use crate::sql::function::window::{WINDOWS_PER_ROW_MAX, WindowFunction, Windows, length_micros, offset_micros};
use crate::sql::function::{self, set_function, special};
use crate::sql::parser::fold;
use crate::sql::parser::rewrite::{WINDOW_CLAUSE, WINDOW_FUNCTIONS};
use crate::types::{Nullability, Type};
use arrow::datatypes::IntervalMonthDayNano;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchema, NullHandling, Result as DataFusionResult, ScalarValue, TableReference, UnnestOptions,
};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator};
use sqlparser::ast::{
    self, FunctionArg, Ident, JoinConstraint, JoinOperator, ObjectName, TableAlias, TableFactor, TableWithJoins, Value,
};
use std::sync::Arc;

/// The column that holds a list until it is unnested.
const LIST: &str = "__list";

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

    /// The column of time, `ts` or `DESCRIPTOR(ts)`.
    fn time(
        &self,
        expr: &ast::Expr,
        schema: &DFSchema,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<Expr> {
        let expr = match expr {
            ast::Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("descriptor") => {
                match &function.args {
                    ast::FunctionArguments::List(list) => {
                        list.args.first().and_then(argument_expression).unwrap_or(expr)
                    }
                    _ => expr,
                }
            }
            other => other,
        };
        let time = context.sql_to_expr(expr.clone(), schema)?;
        match type_of(&time, schema)? {
            Type::Timestamp(_) | Type::Timestamptz(_) => Ok(time),
            kind => refuse(
                Error::semantic("42804", format!("the time of a window must be a timestamp, not {kind}"))
                    .with_hint("Cast it: (SELECT *, x::timestamp AS ts FROM ...)."),
            ),
        }
    }

    /// A constant interval.
    fn interval(
        &self,
        expr: &ast::Expr,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<IntervalMonthDayNano> {
        let empty = DFSchema::empty();
        let expr = context.sql_to_expr(expr.clone(), &empty)?;
        let expr = analyse::expression(expr, &empty, &self.zone).map_err(external)?;
        let kind = type_of(&expr, &empty)?;
        let expr = cast_expression(expr, &kind, &Type::Interval, Context::Implicit, &self.zone).map_err(external)?;
        match constant(&expr).map_err(external)? {
            Some(ScalarValue::IntervalMonthDayNano(Some(interval))) => Ok(interval),
            Some(ScalarValue::Utf8(Some(text))) => crate::types::interval::read_interval(&text).map_err(external),
            _ => refuse(Error::semantic(
                "22023",
                "the length of a window must be a constant interval",
            )),
        }
    }

    fn length(&self, expr: &ast::Expr, what: &str, context: &mut dyn RelationPlannerContext) -> DataFusionResult<i64> {
        length_micros(self.interval(expr, context)?, what).map_err(external)
    }

    fn offset(&self, expr: Option<&ast::Expr>, context: &mut dyn RelationPlannerContext) -> DataFusionResult<i64> {
        match expr {
            Some(expr) => offset_micros(self.interval(expr, context)?, "window offset").map_err(external),
            None => Ok(0),
        }
    }

    fn window(
        &self,
        name: &str,
        arguments: &Arguments<'_>,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<LogicalPlan> {
        let missing = |what: &str| external(Error::syntax(format!("{}() needs {what}", name.to_uppercase())));
        let at = |index: usize| arguments.positional.get(index).copied();
        let data = arguments
            .named(&["data"])
            .or(at(0))
            .ok_or_else(|| missing("a relation"))?;
        let input = self.input(data, context)?;
        if name == "session" {
            return self.session(input, arguments, context);
        }
        let named = arguments.named(&["timecol", "time"]);
        let time = named.or(at(1)).ok_or_else(|| missing("a column of time"))?;
        let time = self.time(time, &input.schema().clone(), context)?;
        // With named arguments the positions tell nothing.
        let rest = |index: usize, names: &[&str]| {
            arguments
                .named(names)
                .or(if named.is_some() { None } else { at(index) })
        };
        let most = if name == "tumble" { 4 } else { 5 };
        if arguments.positional.len() > most {
            return Err(external(Error::syntax(format!(
                "too many arguments for {}()",
                name.to_uppercase()
            ))));
        }
        match name {
            "tumble" => {
                let size = rest(2, &["size"]).ok_or_else(|| missing("a size"))?;
                let size = self.length(size, "window size", context)?;
                let offset = self.offset(rest(3, &["offset"]), context)?;
                tumble(input, time, size, offset)
            }
            "hop" => {
                let slide = rest(2, &["slide"]).ok_or_else(|| missing("a slide"))?;
                let slide = self.length(slide, "window slide", context)?;
                let size = rest(3, &["size"]).ok_or_else(|| missing("a size"))?;
                let size = self.length(size, "window size", context)?;
                let offset = self.offset(rest(4, &["offset"]), context)?;
                few_enough(size, slide)?;
                hop(input, time, slide, size, offset)
            }
            _ => {
                let step = rest(2, &["step"]).ok_or_else(|| missing("a step"))?;
                let step = self.length(step, "window step", context)?;
                let size = rest(3, &["size"]).ok_or_else(|| missing("a size"))?;
                let size = self.length(size, "window size", context)?;
                let offset = self.offset(rest(4, &["offset"]), context)?;
                few_enough(size, step)?;
                cumulate(input, time, step, size, offset)
            }
        }
    }

    /// `SESSION(relation, keys..., time, gap)`.
    fn session(
        &self,
        input: LogicalPlan,
        arguments: &Arguments<'_>,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<LogicalPlan> {
        let schema = input.schema().clone();
        let positional = &arguments.positional;
        let (keys, time, gap) = match arguments.named(&["gap", "size"]) {
            Some(gap) => {
                let time = arguments.named(&["timecol", "time"]);
                let keys = positional
                    .iter()
                    .skip(usize::from(arguments.named(&["data"]).is_none()));
                (keys.copied().collect::<Vec<_>>(), time, Some(gap))
            }
            None if positional.len() >= 3 => {
                let count = positional.len();
                (
                    positional[1..count - 2].to_vec(),
                    Some(positional[count - 2]),
                    Some(positional[count - 1]),
                )
            }
            None => (Vec::new(), None, None),
        };
        let (Some(time), Some(gap)) = (time, gap) else {
            return refuse(Error::syntax("SESSION() needs a relation, a column of time and a gap"));
        };
        let time = self.time(time, &schema, context)?;
        let gap_micros = self.length(gap, "session gap", context)?;
        let keys = keys
            .into_iter()
            .map(|key| context.sql_to_expr(key.clone(), &schema))
            .collect::<DataFusionResult<Vec<_>>>()?;
        let input = with_time(input, &time)?;
        session(input, keys, time, gap_micros)
    }

    fn window_clause(
        &self,
        arguments: &Arguments<'_>,
        alias: &Option<TableAlias>,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<PlannedRelation> {
        let positional = &arguments.positional;
        let (Some(data), Some(kind)) = (
            positional.first(),
            positional.get(1).and_then(|kind| literal_text(kind)),
        ) else {
            return refuse(Error::internal("a window clause without its parts"));
        };
        let input = self.input(data, context)?;
        let schema = input.schema().clone();
        let time = event_time(&input);
        let interval = |index: usize, context: &mut dyn RelationPlannerContext| match positional.get(index) {
            Some(expr) => self.length(expr, "window length", context),
            None => refuse(Error::syntax("a window clause needs a length")),
        };
        let plan = match kind {
            "tumble" | "hop" | "cumulate" | "session" => {
                let Some(time) = time else {
                    return refuse(
                        Error::unsupported(format!(
                            "[{}] on a relation without event time is not supported",
                            kind.to_uppercase()
                        ))
                        .with_hint("Give the stream a WATERMARK, or name the column of time: TUMBLE(s, ts, ...)."),
                    );
                };
                let first = interval(2, context)?;
                match kind {
                    "tumble" => tumble(input, time, first, 0)?,
                    "session" => session(with_time(input, &time)?, Vec::new(), time, first)?,
                    _ => {
                        let size = interval(3, context)?;
                        few_enough(size, first)?;
                        if kind == "hop" {
                            hop(input, time, first, size, 0)?
                        } else {
                            cumulate(input, time, first, size, 0)?
                        }
                    }
                }
            }
            "rows" => {
                let count = positional
                    .get(2)
                    .and_then(|count| literal_text(count))
                    .and_then(|text| text.parse().ok());
                let Some(count) = count.filter(|count| *count > 0) else {
                    return refuse(Error::semantic(
                        "22023",
                        "the number of rows in a window must be positive",
                    ));
                };
                let partition_by = positional[3.min(positional.len())..]
                    .iter()
                    .map(|key| context.sql_to_expr((*key).clone(), &schema))
                    .collect::<DataFusionResult<Vec<_>>>()?;
                node::plan(WindowClause {
                    input,
                    clause: Clause::Rows { count, partition_by },
                    time,
                })
            }
            "range" => {
                let length_micros = interval(2, context)?;
                let slide_micros = positional.get(3).map(|_| interval(3, context)).transpose()?;
                node::plan(WindowClause {
                    input,
                    clause: Clause::Range {
                        length_micros,
                        slide_micros,
                    },
                    time,
                })
            }
            "now" => node::plan(WindowClause {
                input,
                clause: Clause::Now,
                time,
            }),
            _ => node::plan(WindowClause {
                input,
                clause: Clause::Unbounded,
                time,
            }),
        };
        Ok(PlannedRelation::new(plan, alias.clone()))
    }

    fn set_operation(
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

    /// `t FOR SYSTEM_TIME AS OF now()`.
    fn temporal(
        &self,
        relation: &TableFactor,
        version: &ast::TableVersion,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<Option<PlannedRelation>> {
        let ast::TableVersion::ForSystemTimeAsOf(instant) = version else {
            return refuse(Error::unsupported(
                "this way to name a version of a table is not supported",
            ));
        };
        let is_now = matches!(instant, ast::Expr::Function(function) if fold_name(&function.name) == "now");
        if !is_now {
            return refuse(
                Error::unsupported("FOR SYSTEM_TIME AS OF anything but now() is not supported")
                    .with_hint("Past versions of a table are not kept."),
            );
        }
        let mut plain = relation.clone();
        let mut outer = None;
        if let TableFactor::Table { version, alias, .. } = &mut plain {
            *version = None;
            outer = alias.take();
        }
        let input = context.plan(plain)?;
        Ok(Some(PlannedRelation::new(node::plan(TemporalTable { input }), outer)))
    }

    /// A nested join whose one join is ours.
    fn nested(
        &self,
        table: &TableWithJoins,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<Option<LogicalPlan>> {
        let [join] = table.joins.as_slice() else {
            return Ok(None);
        };
        match &join.join_operator {
            JoinOperator::AsOf {
                match_condition,
                constraint,
            } => {
                let left = context.plan(table.relation.clone())?;
                let right = context.plan(join.relation.clone())?;
                self.asof(left, right, match_condition, constraint, context).map(Some)
            }
            JoinOperator::CrossApply => {
                let left = context.plan(table.relation.clone())?;
                let (name, args, alias, ordinality) = match &join.relation {
                    TableFactor::UNNEST {
                        array_exprs,
                        alias,
                        with_ordinality,
                        ..
                    } => (
                        "unnest".to_owned(),
                        array_exprs.iter().collect::<Vec<_>>(),
                        alias,
                        *with_ordinality,
                    ),
                    TableFactor::Table {
                        name,
                        args: Some(args),
                        alias,
                        with_ordinality,
                        ..
                    } => (
                        fold_name(name),
                        args.args.iter().filter_map(argument_expression).collect(),
                        alias,
                        *with_ordinality,
                    ),
                    TableFactor::Function {
                        name,
                        args,
                        alias,
                        with_ordinality,
                        ..
                    } => (
                        fold_name(name),
                        args.iter().filter_map(argument_expression).collect(),
                        alias,
                        *with_ordinality,
                    ),
                    _ => return Ok(None),
                };
                let planned = self.set(&name, &args, alias, ordinality, Some(left), context)?;
                Ok(Some(planned.plan))
            }
            _ => Ok(None),
        }
    }

    fn asof(
        &self,
        left: LogicalPlan,
        right: LogicalPlan,
        kind: &ast::Expr,
        constraint: &JoinConstraint,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<LogicalPlan> {
        let unmatched = match literal_text(kind) {
            Some("inner") => Unmatched::Dropped,
            Some("left") => Unmatched::Padded,
            _ => return refuse(Error::unsupported("ASOF RIGHT and FULL JOIN are not supported")),
        };
        let JoinConstraint::On(condition) = constraint else {
            return refuse(Error::syntax("ASOF JOIN needs ON"));
        };
        let schema = left.schema().join(right.schema())?;
        let condition = context.sql_to_expr(condition.clone(), &schema)?;
        let condition = analyse::expression(condition, &schema, &self.zone).map_err(external)?;
        let mut on = Vec::new();
        let mut order = None;
        for term in split_conjunction(&condition) {
            let Some((a, operator, b)) = sides(term, left.schema(), right.schema()) else {
                return refuse(asof_condition());
            };
            match operator {
                Operator::Eq => on.push((a, b)),
                Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq if order.is_none() => {
                    order = Some((a, operator, b));
                }
                _ => return refuse(asof_condition()),
            }
        }
        let Some((left_order, operator, right_order)) = order else {
            return refuse(asof_condition());
        };
        let padded = unmatched == Unmatched::Padded;
        let fields = left
            .schema()
            .iter()
            .map(|(qualifier, field)| (qualifier.cloned(), field.clone()))
            .chain(right.schema().iter().map(|(qualifier, field)| {
                let nullable = field.is_nullable() || padded;
                (
                    qualifier.cloned(),
                    Arc::new(field.as_ref().clone().with_nullable(nullable)),
                )
            }))
            .collect();
        let schema = Arc::new(DFSchema::new_with_metadata(fields, Default::default())?);
        Ok(node::plan(AsOfJoin {
            left,
            right,
            on,
            left_order,
            operator,
            right_order,
            unmatched,
            schema,
        }))
    }

    /// A function that returns a set: beside each row of `left`, or alone.
    fn set(
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

    fn one_row(
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

fn fold_name(name: &ObjectName) -> String {
    name.0
        .last()
        .and_then(|part| part.as_ident())
        .map(fold)
        .unwrap_or_default()
}

fn asof_condition() -> Error {
    Error::unsupported("this condition of an ASOF JOIN is not supported")
        .with_hint("It is equalities and one of >=, >, <=, < between the two sides, joined by AND.")
}

/// A comparison with the left side's expression on its left.
fn sides(term: &Expr, left: &DFSchema, right: &DFSchema) -> Option<(Expr, Operator, Expr)> {
    let Expr::BinaryExpr(BinaryExpr { left: a, op, right: b }) = term else {
        return None;
    };
    let of = |expr: &Expr, schema: &DFSchema| {
        let columns = expr.column_refs();
        !columns.is_empty() && columns.iter().all(|column| schema.has_column(column))
    };
    if of(a, left) && of(b, right) {
        return Some(((**a).clone(), *op, (**b).clone()));
    }
    if of(b, left) && of(a, right) {
        return Some(((**b).clone(), op.swap()?, (**a).clone()));
    }
    None
}

/// The column of a stream's event time, seen through what only renames or filters.
fn event_time(plan: &LogicalPlan) -> Option<Expr> {
    let name = event_time_name(plan)?;
    let (qualifier, field) = plan.schema().iter().find(|(_, field)| *field.name() == name)?;
    Some(Expr::from((qualifier, field)))
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

fn few_enough(size: i64, slide: i64) -> DataFusionResult<()> {
    if size / slide > WINDOWS_PER_ROW_MAX {
        return refuse(Error::limit(
            "54000",
            format!("a row would be in more than {WINDOWS_PER_ROW_MAX} windows"),
        ));
    }
    Ok(())
}

/// The columns of a plan, as expressions.
fn all_columns(plan: &LogicalPlan) -> Vec<Expr> {
    plan.schema().columns().into_iter().map(Expr::Column).collect()
}

/// Rows that have a time.
fn with_time(input: LogicalPlan, time: &Expr) -> DataFusionResult<LogicalPlan> {
    LogicalPlanBuilder::from(input)
        .filter(WindowFunction::call(Windows::Exists, time.clone()))?
        .build()
}

fn tumble(input: LogicalPlan, time: Expr, size: i64, offset: i64) -> DataFusionResult<LogicalPlan> {
    let input = with_time(input, &time)?;
    let mut columns = all_columns(&input);
    columns.push(WindowFunction::call(Windows::TumbleStart { size, offset }, time.clone()).alias("window_start"));
    columns.push(WindowFunction::call(Windows::TumbleEnd { size, offset }, time.clone()).alias("window_end"));
    let windows = LogicalPlanBuilder::from(input).project(columns)?.build()?;
    Ok(refuse_late(windows, time, Some(size), &[size, offset]))
}

fn drop_empty() -> UnnestOptions {
    UnnestOptions::new().with_null_handling(NullHandling::Drop)
}

fn hop(input: LogicalPlan, time: Expr, slide: i64, size: i64, offset: i64) -> DataFusionResult<LogicalPlan> {
    let input = with_time(input, &time)?;
    let own = all_columns(&input);
    let mut columns = own.clone();
    columns.push(WindowFunction::call(Windows::HopStarts { slide, size, offset }, time.clone()).alias(LIST));
    let start = Expr::Column(Column::from_name(LIST));
    let mut output = own;
    output.push(start.clone().alias("window_start"));
    output.push(WindowFunction::call(Windows::HopEnd { size }, start).alias("window_end"));
    let windows = LogicalPlanBuilder::from(input)
        .project(columns)?
        .unnest_column_with_options(LIST, drop_empty())?
        .project(output)?
        .build()?;
    Ok(refuse_late(windows, time, Some(size), &[slide, size, offset]))
}

fn cumulate(input: LogicalPlan, time: Expr, step: i64, size: i64, offset: i64) -> DataFusionResult<LogicalPlan> {
    let input = with_time(input, &time)?;
    let own = all_columns(&input);
    let mut columns = own.clone();
    columns.push(WindowFunction::call(Windows::CumulateWindows { step, size, offset }, time.clone()).alias(LIST));
    let part = |name: &str| special::field(Expr::Column(Column::from_name(LIST)), &ScalarValue::from(name)).alias(name);
    let mut output = own;
    output.push(part("window_start"));
    output.push(part("window_end"));
    let windows = LogicalPlanBuilder::from(input)
        .project(columns)?
        .unnest_column_with_options(LIST, drop_empty())?
        .project(output)?
        .build()?;
    Ok(refuse_late(windows, time, None, &[step, size, offset]))
}

/// The windows without what comes too late, where there is a watermark below. The same windows over the same input get
/// the same number.
fn refuse_late(windows: LogicalPlan, time: Expr, size_us: Option<i64>, lengths: &[i64]) -> LogicalPlan {
    if !has_watermark(&windows) {
        return windows;
    }
    let text = format!("{} {time} {size_us:?} {lengths:?}", windows.display_indent());
    node::plan(RefuseLate {
        label: label_of(&text),
        input: windows,
        time,
        size_us,
        refused: None,
    })
}

/// The number of windows from what they are.
fn label_of(text: &str) -> i64 {
    xxhash_rust::xxh3::xxh3_64(text.as_bytes()).cast_signed()
}

/// Whether a relation that a plan reads has a watermark.
fn has_watermark(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let walked = plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(source) = RelationSource::of(&scan.source)
        {
            found |= match &source.relation.kind {
                RelationKind::Stream(stream) => stream.watermark.is_some(),
                RelationKind::MaterializedView(view) => !view.events.is_empty(),
                _ => false,
            };
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.is_ok() && found
}

fn session(input: LogicalPlan, keys: Vec<Expr>, time: Expr, gap_micros: i64) -> DataFusionResult<LogicalPlan> {
    let kind = type_of(&time, input.schema())?;
    let mut fields: Vec<_> = input
        .schema()
        .iter()
        .map(|(qualifier, field)| (qualifier.cloned(), field.clone()))
        .collect();
    for name in ["window_start", "window_end"] {
        fields.push((None, Arc::new(kind.field(name, Nullability::Nullable))));
    }
    let schema = Arc::new(DFSchema::new_with_metadata(fields, Default::default())?);
    let label = has_watermark(&input).then(|| {
        let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        label_of(&format!("{} {time} {keys:?} {gap_micros}", input.display_indent()))
    });
    Ok(node::plan(SessionWindow {
        input,
        keys,
        time,
        gap_micros,
        label,
        refused: None,
        schema,
    }))
}

/// Rows whose floats compare by value.
fn keyed(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
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
fn unnested(
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
fn constant(expr: &Expr) -> crate::error::Result<Option<ScalarValue>> {
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
