//! Types settled: every expression gets PostgreSQL's types and casts, and plans are simplified.
//!
//! DataFusion types a CASE or a UNION only after planning, when expressions over it are typed already. So expressions
//! are settled again from the leaves up ([`Settle`]): operators are resolved anew where an operand's type turned out
//! otherwise, CASE, IN and UNION get their common types, and every cast becomes PostgreSQL's. DataFusion's own
//! coercion then finds little to do but the arguments of its functions, and what it adds is replaced likewise.

use super::expression::{Operators, common_type, no_operator, type_of, value_type};
use super::guard;
use crate::error::{Error, Result};
use crate::sql::error::{external, from_datafusion};
use crate::sql::function::cast::{CastTo, Context, cast_expression, exists, is_plain, is_text, literal};
use crate::sql::function::operator::Operator;
use crate::sql::function::{chooses, is_now, special};
use crate::types::{Nullability, Type};
use arrow::datatypes::DataType;
use datafusion::common::ExprSchema as _;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DFSchemaRef, Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::expr::{
    BinaryExpr, Case, Exists, InList, InSubquery, Like, ScalarFunction, SetComparison,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator as Native, ScalarUDF, Subquery, Union};
use datafusion::optimizer::analyzer::Analyzer;
use datafusion::optimizer::analyzer::resolve_grouping_function::ResolveGroupingFunction;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::optimizer::{Optimizer, OptimizerContext, OptimizerRule};
use std::sync::Arc;

/// Settles a plan's types.
pub(super) fn analyse(plan: LogicalPlan, config: &ConfigOptions, zone: &str) -> DataFusionResult<LogicalPlan> {
    let settle = Settle::new(zone);
    let plan = settle.plan(plan, &[])?;
    let analyzer = Analyzer::with_rules(vec![
        Arc::new(ResolveGroupingFunction::new()),
        Arc::new(TypeCoercion::new()),
    ]);
    let plan = analyzer.execute_and_check(plan, config, |_, _| {})?;
    settle_parameters(settle.plan(plan, &[])?)
}

/// Settles an expression that stands alone.
pub(super) fn expression(expr: Expr, schema: &DFSchema, zone: &str) -> Result<Expr> {
    let settle = Settle::new(zone);
    let coerce = |expr: Expr| -> DataFusionResult<Expr> {
        let expr = settle.expression(expr, schema, &[])?;
        let mut rewriter = datafusion::optimizer::analyzer::type_coercion::TypeCoercionRewriter::new(schema);
        let expr = expr.rewrite(&mut rewriter)?.data;
        settle.expression(expr, schema, &[])
    };
    coerce(expr).map_err(from_datafusion)
}

/// Gives expressions their types, from the leaves up.
struct Settle {
    zone: String,
    operators: Operators,
}

impl Settle {
    fn new(zone: &str) -> Self {
        Self {
            zone: zone.to_owned(),
            operators: Operators { zone: zone.to_owned() },
        }
    }

    /// A plan whose inputs come first; `outer` are the schemas around a subquery, the nearest last.
    fn plan(&self, plan: LogicalPlan, outer: &[DFSchemaRef]) -> DataFusionResult<LogicalPlan> {
        let plan = plan
            .map_children(|child| self.plan(child, outer).map(Transformed::yes))?
            .data;
        let plan = match plan {
            LogicalPlan::Union(union) => self.union(union)?,
            other => other,
        };
        let mut schema = merge_schema(&plan.inputs());
        if let LogicalPlan::TableScan(scan) = &plan {
            schema.merge(&DFSchema::try_from_qualified_schema(
                scan.table_name.clone(),
                &scan.source.schema(),
            )?);
        }
        let schema = Arc::new(schema);
        let preserver = NamePreserver::new(&plan);
        let limit = matches!(plan, LogicalPlan::Limit(_));
        let group = matches!(plan, LogicalPlan::Aggregate(_));
        let plan = plan
            .map_expressions(|expr| {
                let name = preserver.save(&expr);
                let mut settled = self.expression(expr, &schema, outer)?;
                if limit {
                    settled = self.count(settled, &schema)?;
                }
                if group {
                    settled = self.group_key(settled, &schema)?;
                }
                Ok(Transformed::yes(name.restore(settled)))
            })?
            .data;
        plan.recompute_schema()
    }

    /// The number of a LIMIT or an OFFSET.
    fn count(&self, expr: Expr, schema: &DFSchema) -> DataFusionResult<Expr> {
        match type_of(&expr, schema)? {
            Type::Int8 => Ok(expr),
            kind => cast_expression(expr, &kind, &Type::Int8, Context::Assignment, &self.zone).map_err(external),
        }
    }

    /// A group's key, in which -0 is 0.
    fn group_key(&self, expr: Expr, schema: &DFSchema) -> DataFusionResult<Expr> {
        if matches!(expr, Expr::AggregateFunction(_) | Expr::GroupingSet(_)) || special::is_float_key(&expr) {
            return Ok(expr);
        }
        if let Expr::Alias(alias) = &expr
            && (matches!(*alias.expr, Expr::AggregateFunction(_)) || special::is_float_key(&alias.expr))
        {
            return Ok(expr);
        }
        Ok(match type_of(&expr, schema)? {
            Type::Float4 | Type::Float8 => special::float_key(expr.unalias()),
            _ => expr,
        })
    }

    /// The inputs of a UNION in common types.
    fn union(&self, union: Union) -> DataFusionResult<LogicalPlan> {
        let columns = union
            .inputs
            .iter()
            .map(|input| input.schema().fields().len())
            .min()
            .unwrap_or(0);
        let mut common = Vec::with_capacity(columns);
        for index in 0..columns {
            let mut kind = Type::Unknown;
            for input in &union.inputs {
                let own = output_type(input, index)?;
                kind = common_type(&kind, &own).ok_or_else(|| {
                    external(Error::semantic(
                        "42804",
                        format!("UNION types {kind} and {own} cannot be matched"),
                    ))
                })?;
            }
            common.push(if kind == Type::Unknown { Type::Text } else { kind });
        }
        let inputs = union
            .inputs
            .into_iter()
            .map(|input| cast_columns(input, &common, &self.zone).map(Arc::new))
            .collect::<DataFusionResult<Vec<_>>>()?;
        Ok(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?))
    }

    fn expression(&self, expr: Expr, schema: &DFSchemaOrRef, outer: &[DFSchemaRef]) -> DataFusionResult<Expr> {
        Ok(expr
            .transform_up(|expr| self.one(expr, schema, outer).map(Transformed::yes))?
            .data)
    }

    /// An expression whose parts are settled.
    fn one(&self, expr: Expr, schema: &DFSchema, outer: &[DFSchemaRef]) -> DataFusionResult<Expr> {
        match expr {
            Expr::Cast(cast) => self.cast(cast, schema),
            Expr::ScalarFunction(function) => self.function(function, schema),
            Expr::BinaryExpr(binary) => self.binary(binary, schema),
            Expr::InList(list) => self.in_list(list, schema),
            Expr::Case(case) => self.case(case, schema),
            Expr::Not(inner) => Ok(Expr::Not(Box::new(self.condition(*inner, schema, "NOT")?))),
            Expr::Like(like) => self.like(like, schema),
            Expr::AggregateFunction(mut call) if call.params.filter.is_some() => {
                let filter = call.params.filter.take();
                let filter = filter
                    .map(|filter| self.condition(*filter, schema, "FILTER"))
                    .transpose()?;
                call.params.filter = filter.map(Box::new);
                Ok(Expr::AggregateFunction(call))
            }
            Expr::OuterReferenceColumn(field, column) => {
                // The column's type may have changed since the reference was planned.
                let settled = outer
                    .iter()
                    .rev()
                    .find_map(|schema| schema.field_from_column(&column).ok())
                    .map_or(field, |known| known.clone());
                Ok(Expr::OuterReferenceColumn(settled, column))
            }
            Expr::ScalarSubquery(subquery) => Ok(Expr::ScalarSubquery(self.subquery(subquery, schema, outer)?)),
            Expr::Exists(Exists { subquery, negated }) => Ok(Expr::Exists(Exists {
                subquery: self.subquery(subquery, schema, outer)?,
                negated,
            })),
            Expr::InSubquery(InSubquery {
                expr,
                subquery,
                negated,
            }) => {
                let subquery = self.subquery(subquery, schema, outer)?;
                self.in_subquery(*expr, subquery, negated, schema)
            }
            Expr::SetComparison(SetComparison {
                expr,
                subquery,
                op,
                quantifier,
            }) => Ok(Expr::SetComparison(SetComparison {
                expr,
                subquery: self.subquery(subquery, schema, outer)?,
                op,
                quantifier,
            })),
            other => Ok(other),
        }
    }

    fn subquery(&self, subquery: Subquery, schema: &DFSchema, outer: &[DFSchemaRef]) -> DataFusionResult<Subquery> {
        let mut outer = outer.to_vec();
        outer.push(Arc::new(schema.clone()));
        let plan = self.plan(Arc::unwrap_or_clone(subquery.subquery), &outer)?;
        Ok(Subquery {
            subquery: Arc::new(plan),
            outer_ref_columns: subquery.outer_ref_columns,
            spans: subquery.spans,
        })
    }

    /// `x IN (SELECT y)`: x and y in a common type.
    fn in_subquery(&self, expr: Expr, subquery: Subquery, negated: bool, schema: &DFSchema) -> DataFusionResult<Expr> {
        let left = type_of(&expr, schema)?;
        let right = output_type(&subquery.subquery, 0)?;
        let common =
            common_type(&left, &right).ok_or_else(|| {
                external(Error::semantic("42883", format!("operator does not exist: {left} = {right}")).with_hint(
                "No operator matches the given name and argument types. You might need to add explicit type casts.",
            ))
            })?;
        let common = if common == Type::Unknown { Type::Text } else { common };
        let expr = cast_expression(expr, &left, &common, Context::Implicit, &self.zone).map_err(external)?;
        let plan = if subquery.subquery.schema().fields().len() == 1 {
            cast_columns_of(&subquery.subquery, std::slice::from_ref(&common), &self.zone)?
        } else {
            subquery.subquery
        };
        let subquery = Subquery {
            subquery: plan,
            ..subquery
        };
        Ok(Expr::InSubquery(InSubquery {
            expr: Box::new(expr),
            subquery,
            negated,
        }))
    }

    /// LIKE is for text.
    fn like(&self, like: Like, schema: &DFSchema) -> DataFusionResult<Expr> {
        let (value, pattern) = (type_of(&like.expr, schema)?, type_of(&like.pattern, schema)?);
        if is_text(&value) && is_text(&pattern) {
            return Ok(Expr::Like(like));
        }
        let symbol = match (like.negated, like.case_insensitive) {
            (false, false) => "~~",
            (false, true) => "~~*",
            (true, false) => "!~~",
            (true, true) => "!~~*",
        };
        Err(external(no_operator(symbol, &value, &pattern)))
    }

    fn cast(&self, cast: datafusion::logical_expr::Cast, schema: &DFSchema) -> DataFusionResult<Expr> {
        let source = type_of(&cast.expr, schema)?;
        let target = Type::of_field(&cast.field);
        let implicit = cast.field.name().is_empty();
        // A cast to a type that is none of ours is DataFusion's own business.
        if target.arrow() != *cast.field.data_type() {
            return Ok(Expr::Cast(cast));
        }
        if implicit && (is_plain(&source, &target) || source == target) && !is_literal(&cast.expr) {
            return Ok(Expr::Cast(cast));
        }
        if implicit && !exists(&source, &target, Context::Assignment) {
            return Ok(Expr::Cast(cast));
        }
        if !implicit && !exists(&source, &target, Context::Explicit) {
            return Err(external(Error::semantic(
                "42846",
                format!("cannot cast type {source} to {target}"),
            )));
        }
        let context = if implicit { Context::Implicit } else { Context::Explicit };
        cast_expression(*cast.expr, &source, &target, context, &self.zone).map_err(external)
    }

    /// Operators and casts of ours whose operands turned out otherwise; calls of constants.
    fn function(&self, function: ScalarFunction, schema: &DFSchema) -> DataFusionResult<Expr> {
        let ScalarFunction { func, args } = function;
        if let Some(cast) = func.inner().downcast_ref::<CastTo>()
            && let [argument] = args.as_slice()
        {
            let source = type_of(argument, schema)?;
            if source != cast.source {
                if cast.context == Context::Implicit && !exists(&source, &cast.target, Context::Implicit) {
                    return Ok(argument.clone());
                }
                return cast_expression(argument.clone(), &source, &cast.target, cast.context, &cast.zone)
                    .map_err(external);
            }
        }
        if let Some(operator) = func.inner().downcast_ref::<Operator>()
            && let [left, right] = args.as_slice()
        {
            let (left_type, right_type) = (type_of(left, schema)?, type_of(right, schema)?);
            if !fits(&left_type, &operator.resolved.left) || !fits(&right_type, &operator.resolved.right) {
                return self
                    .operators
                    .operate(&operator.symbol, (left.clone(), left_type), (right.clone(), right_type))
                    .map_err(external);
            }
        }
        if let Some(word) = chooses(&func) {
            return self.chosen(&word, func, args, schema);
        }
        Ok(Expr::ScalarFunction(ScalarFunction { func, args }))
    }

    /// One of several values: all in a common type.
    fn chosen(&self, word: &str, func: Arc<ScalarUDF>, args: Vec<Expr>, schema: &DFSchema) -> DataFusionResult<Expr> {
        let types = args
            .iter()
            .map(|arg| type_of(arg, schema))
            .collect::<DataFusionResult<Vec<_>>>()?;
        let values: Vec<(&Expr, &Type)> = args.iter().zip(&types).collect();
        let common = value_type(word, &values).map_err(external)?;
        let args = args
            .into_iter()
            .zip(&types)
            .map(|(arg, kind)| cast_expression(arg, kind, &common, Context::Implicit, &self.zone))
            .collect::<Result<Vec<_>>>()
            .map_err(external)?;
        Ok(Expr::ScalarFunction(ScalarFunction { func, args }))
    }

    /// A condition: a boolean, or a literal that means one.
    fn condition(&self, expr: Expr, schema: &DFSchema, clause: &str) -> DataFusionResult<Expr> {
        match type_of(&expr, schema)? {
            Type::Bool => Ok(expr),
            kind @ Type::Unknown => {
                cast_expression(expr, &kind, &Type::Bool, Context::Implicit, &self.zone).map_err(external)
            }
            kind => Err(external(Error::semantic(
                "42804",
                format!("argument of {clause} must be type boolean, not type {kind}"),
            ))),
        }
    }

    fn binary(&self, binary: BinaryExpr, schema: &DFSchema) -> DataFusionResult<Expr> {
        if !binary.op.supports_propagation() && !is_distinct(binary.op) {
            return Ok(Expr::BinaryExpr(binary));
        }
        if matches!(binary.op, Native::And | Native::Or) {
            return Ok(Expr::BinaryExpr(binary));
        }
        let (left, right) = (type_of(&binary.left, schema)?, type_of(&binary.right, schema)?);
        let settled = left == right
            && !matches!(
                left,
                Type::Unknown | Type::Float4 | Type::Float8 | Type::Interval | Type::Jsonb
            );
        if settled || (special::is_key(&binary.left) && special::is_key(&binary.right)) {
            return Ok(Expr::BinaryExpr(binary));
        }
        let (left_expr, right_expr) = (special::without_key(*binary.left), special::without_key(*binary.right));
        let (left, right) = (type_of(&left_expr, schema)?, type_of(&right_expr, schema)?);
        self.operators
            .compare(binary.op, (left_expr, left), (right_expr, right))
            .map_err(external)
    }

    fn in_list(&self, list: InList, schema: &DFSchema) -> DataFusionResult<Expr> {
        let InList { expr, list, negated } = list;
        let mut types = vec![type_of(&expr, schema)?];
        for item in &list {
            types.push(type_of(item, schema)?);
        }
        let mut common = types[0].clone();
        for kind in &types[1..] {
            common = common_type(&common, kind).ok_or_else(|| {
                external(
                    Error::semantic("42883", format!("operator does not exist: {} = {kind}", types[0])).with_hint(
                        "No operator matches the given name and argument types. You might need to add explicit type casts.",
                    ),
                )
            })?;
        }
        if common == Type::Unknown {
            common = Type::Text;
        }
        let cast = |expr: Expr, kind: &Type| -> DataFusionResult<Expr> {
            let expr = cast_expression(expr, kind, &common, Context::Implicit, &self.zone).map_err(external)?;
            Ok(match common {
                Type::Float4 | Type::Float8 if !special::is_key(&expr) => special::float_key(expr),
                Type::Interval if !special::is_key(&expr) => special::interval_key(expr),
                Type::Jsonb if !special::is_key(&expr) => special::json_key(expr),
                _ => expr,
            })
        };
        let expr = Box::new(cast(*expr, &types[0])?);
        let list = list
            .into_iter()
            .zip(&types[1..])
            .map(|(item, kind)| cast(item, kind))
            .collect::<DataFusionResult<Vec<_>>>()?;
        Ok(Expr::InList(InList { expr, list, negated }))
    }

    /// CASE: the results in a common type, and the conditions comparable with the operand.
    fn case(&self, case: Case, schema: &DFSchema) -> DataFusionResult<Expr> {
        let Case {
            expr,
            when_then_expr,
            else_expr,
        } = case;
        // ELSE comes first, as in PostgreSQL.
        let results = else_expr
            .as_deref()
            .into_iter()
            .chain(when_then_expr.iter().map(|(_, then)| then.as_ref()));
        let typed = results
            .map(|result| Ok((result, type_of(result, schema)?)))
            .collect::<DataFusionResult<Vec<_>>>()?;
        let values: Vec<(&Expr, &Type)> = typed.iter().map(|(result, kind)| (*result, kind)).collect();
        let common = value_type("CASE", &values).map_err(external)?;
        let settle = |expr: Expr| -> DataFusionResult<Box<Expr>> {
            let kind = type_of(&expr, schema)?;
            cast_expression(expr, &kind, &common, Context::Implicit, &self.zone)
                .map(Box::new)
                .map_err(external)
        };
        // An operand is compared with each condition as `=` compares; once, where that is all in one plain type.
        let mut operand = expr.map(|expr| *expr);
        let mut kept = None;
        if let Some(plain) = &operand
            && let Some(kind) = self.operand_type(plain, &when_then_expr, schema)?
        {
            let own = type_of(plain, schema)?;
            let cast = cast_expression(plain.clone(), &own, &kind, Context::Implicit, &self.zone).map_err(external)?;
            kept = Some((cast, kind));
            operand = None;
        }
        let mut branches = Vec::with_capacity(when_then_expr.len());
        for (when, then) in when_then_expr {
            let when = match &operand {
                Some(operand) => {
                    let left = type_of(operand, schema)?;
                    let right = type_of(&when, schema)?;
                    self.operators
                        .compare(Native::Eq, (operand.clone(), left), (*when, right))
                        .map_err(external)?
                }
                None => match &kept {
                    Some((_, wanted)) => {
                        let kind = type_of(&when, schema)?;
                        cast_expression(*when, &kind, wanted, Context::Implicit, &self.zone).map_err(external)?
                    }
                    None => self.condition(*when, schema, "CASE/WHEN")?,
                },
            };
            branches.push((Box::new(when), settle(*then)?));
        }
        let else_expr = else_expr.map(|expr| settle(*expr)).transpose()?;
        let expr = kept.map(|(operand, _)| Box::new(operand));
        Ok(Expr::Case(Case {
            expr,
            when_then_expr: branches,
            else_expr,
        }))
    }

    /// The type in which a CASE's operand and its conditions are all compared; `None` where that takes more than
    /// Arrow's own equality.
    fn operand_type(
        &self,
        operand: &Expr,
        branches: &[(Box<Expr>, Box<Expr>)],
        schema: &DFSchema,
    ) -> DataFusionResult<Option<Type>> {
        let mut common = type_of(operand, schema)?;
        for (when, _) in branches {
            match common_type(&common, &type_of(when, schema)?) {
                Some(kind) => common = kind,
                None => return Ok(None),
            }
        }
        let plain = !matches!(
            common,
            Type::Float4 | Type::Float8 | Type::Interval | Type::Json | Type::Jsonb | Type::Array(_) | Type::Record(_)
        );
        Ok(plain.then_some(if common == Type::Unknown { Type::Text } else { common }))
    }
}

type DFSchemaOrRef = DFSchema;

fn is_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(..))
}

fn is_distinct(op: Native) -> bool {
    matches!(op, Native::IsDistinctFrom | Native::IsNotDistinctFrom)
}

/// Whether an operand of a type can be given where another is asked for.
fn fits(given: &Type, asked: &Type) -> bool {
    given == asked || given.arrow() == asked.arrow()
}

/// The type of a plan's column; unknown where it is only ever a literal text.
fn output_type(plan: &LogicalPlan, index: usize) -> DataFusionResult<Type> {
    let known = Type::of_field(plan.schema().field(index));
    if known != Type::Text {
        return Ok(known);
    }
    if let LogicalPlan::Projection(projection) = plan
        && let Some(expr) = projection.expr.get(index)
        && matches!(
            expr.clone().unalias(),
            Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Null, None)
        )
    {
        return Ok(Type::Unknown);
    }
    Ok(known)
}

/// A plan with its columns cast, and their names kept.
pub(super) fn cast_columns(plan: Arc<LogicalPlan>, kinds: &[Type], zone: &str) -> DataFusionResult<LogicalPlan> {
    cast_columns_of(&plan, kinds, zone).map(Arc::unwrap_or_clone)
}

fn cast_columns_of(plan: &Arc<LogicalPlan>, kinds: &[Type], zone: &str) -> DataFusionResult<Arc<LogicalPlan>> {
    let same = plan
        .schema()
        .fields()
        .iter()
        .zip(kinds)
        .all(|(field, kind)| Type::of_field(field) == *kind);
    if same {
        return Ok(plan.clone());
    }
    // A literal below is cast itself, so that its text is read as the type and not as text first.
    if let LogicalPlan::Projection(projection) = plan.as_ref() {
        let schema = projection.input.schema();
        let mut exprs = Vec::with_capacity(projection.expr.len());
        for (expr, kind) in projection.expr.iter().zip(kinds) {
            let preserver = NamePreserver::new_for_projection();
            let name = preserver.save(expr);
            let bare = expr.clone().unalias();
            let source = type_of(&bare, schema)?;
            let cast = cast_expression(bare, &source, kind, Context::Implicit, zone).map_err(external)?;
            exprs.push(name.restore(cast));
        }
        let input = projection.input.clone();
        return LogicalPlanBuilder::from(input).project(exprs)?.build().map(Arc::new);
    }
    let mut exprs = Vec::with_capacity(kinds.len());
    for ((qualifier, field), kind) in plan.schema().iter().zip(kinds) {
        let column = Expr::from((qualifier, field));
        let source = Type::of_field(field);
        let cast = cast_expression(column, &source, kind, Context::Implicit, zone).map_err(external)?;
        exprs.push(match cast {
            column @ Expr::Column(_) => column,
            cast => cast.alias_qualified(qualifier.cloned(), field.name()),
        });
    }
    LogicalPlanBuilder::from(plan.clone())
        .project(exprs)?
        .build()
        .map(Arc::new)
}

/// The rules that simplify plans, for queries that run once and for views that are maintained.
///
/// Left out of DataFusion's list:
/// - `OptimizeUnions`, `UnionsToFilter`: they merge branches of a UNION over one table into a filter, which hides
///   shared nodes, and move expressions that may fail in front of other filters;
/// - `PropagateEmptyRelation`, `EliminateJoin`: they decide on constants what `row_errors` must still see, and save
///   nothing where inputs change;
/// - `SingleDistinctToGroupBy`: it turns one aggregate into two, where ours counts distinct values in one state;
/// - `EliminateGroupByConstant`: it makes a global aggregate, of one row over nothing, out of a grouped one of none;
/// - `FilterNullJoinKeys`: joins of ours skip NULL keys, and a filter would be an operator more;
/// - `EliminateOuterJoin`: sound for filters that reject NULL, but its test trusts functions of ours to be strict;
/// - `CommonSubexprEliminate`: it computes an expression ahead of the CASE or AND that guards it from failing;
/// - `ExtractLeafExpressions`, `PushDownLeafProjections`: they pull field accesses into scans that have none;
/// - `PushDownLimit`: a limit must see the rows that its query orders, whatever its inputs do later.
///
/// What can fail is out of their reach meanwhile, see [`guard`].
fn rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    use datafusion::optimizer::{
        decorrelate_lateral_join::DecorrelateLateralJoin, decorrelate_predicate_subquery::DecorrelatePredicateSubquery,
        eliminate_cross_join::EliminateCrossJoin, eliminate_duplicated_expr::EliminateDuplicatedExpr,
        eliminate_filter::EliminateFilter, eliminate_limit::EliminateLimit,
        extract_equijoin_predicate::ExtractEquijoinPredicate, optimize_projections::OptimizeProjections,
        push_down_filter::PushDownFilter, rewrite_set_comparison::RewriteSetComparison,
        scalar_subquery_to_join::ScalarSubqueryToJoin, simplify_expressions::SimplifyExpressions,
    };
    vec![
        Arc::new(RewriteSetComparison::new()),
        Arc::new(SimplifyExpressions::new()),
        Arc::new(DecorrelatePredicateSubquery::new()),
        Arc::new(ScalarSubqueryToJoin::new()),
        Arc::new(DecorrelateLateralJoin::new()),
        Arc::new(ExtractEquijoinPredicate::new()),
        Arc::new(EliminateDuplicatedExpr::new()),
        Arc::new(EliminateFilter::new()),
        Arc::new(EliminateCrossJoin::new()),
        Arc::new(EliminateLimit::new()),
        Arc::new(PushDownFilter::new()),
        Arc::new(OptimizeProjections::new()),
    ]
}

/// Simplifies a plan without changing what it means, rows that fail included.
pub fn optimise(plan: LogicalPlan) -> Result<LogicalPlan> {
    crate::sql::parser::on_deep_stack(|| {
        let context = OptimizerContext::new()
            .with_max_passes(3)
            .with_skip_failing_rules(false);
        let plan = super::counted::count_where_values(plan).map_err(from_datafusion)?;
        let plan = Optimizer::with_rules(rules())
            .optimize(guard::protect(plan)?, &context, |_, _| {})
            .map_err(from_datafusion)?;
        guard::expose(plan)
    })
}

/// A plan in which `now()` is this instant, microseconds since 1970.
pub fn fix_now(plan: LogicalPlan, micros: i64) -> Result<LogicalPlan> {
    let now = arrow::array::TimestampMicrosecondArray::from(vec![micros]).with_data_type(DataType::Timestamp(
        arrow::datatypes::TimeUnit::Microsecond,
        Some(Arc::from("+00:00")),
    ));
    let now = literal(&(Arc::new(now) as arrow::array::ArrayRef), &Type::Timestamptz(None))?;
    plan.transform_down_with_subqueries(|node| {
        let preserver = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = preserver.save(&expr);
            let replaced = expr.transform_up(|expr| {
                Ok(if is_now(&expr) {
                    Transformed::yes(now.clone())
                } else {
                    Transformed::no(expr)
                })
            })?;
            Ok(replaced.update_data(|expr| name.restore(expr)))
        })
    })
    .map(|transformed| transformed.data)
    .map_err(from_datafusion)
}

/// An expression in which `now()` is this instant, microseconds since 1970.
pub fn fix_now_in(expr: Expr, micros: i64) -> Result<Expr> {
    let now = arrow::array::TimestampMicrosecondArray::from(vec![micros]).with_data_type(DataType::Timestamp(
        arrow::datatypes::TimeUnit::Microsecond,
        Some(Arc::from("+00:00")),
    ));
    let now = literal(&(Arc::new(now) as arrow::array::ArrayRef), &Type::Timestamptz(None))?;
    expr.transform_up(|expr| {
        Ok(if is_now(&expr) {
            Transformed::yes(now.clone())
        } else {
            Transformed::no(expr)
        })
    })
    .map(|transformed| transformed.data)
    .map_err(from_datafusion)
}

/// A plan with literals for its parameters.
pub(super) fn replace_parameters(plan: LogicalPlan, values: &[Expr]) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let preserver = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = preserver.save(&expr);
            let replaced = expr.transform_up(|expr| {
                let Expr::Placeholder(placeholder) = &expr else {
                    return Ok(Transformed::no(expr));
                };
                let number = placeholder.id.trim_start_matches('$').parse::<usize>().ok();
                match number.and_then(|number| values.get(number.checked_sub(1)?)) {
                    Some(value) => Ok(Transformed::yes(value.clone())),
                    None => Err(external(Error::semantic(
                        "42P02",
                        format!("there is no parameter {}", placeholder.id),
                    ))),
                }
            })?;
            Ok(replaced.update_data(|expr| name.restore(expr)))
        })?
        .map_data(|plan| plan.recompute_schema())
    })
    .map(|transformed| transformed.data)
    .map_err(from_datafusion)
}

/// Gives the type text to the parameters of a plan of which nothing is known.
fn settle_parameters(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let preserver = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = preserver.save(&expr);
            let typed = expr.transform_up(|expr| {
                let Expr::Placeholder(placeholder) = &expr else {
                    return Ok(Transformed::no(expr));
                };
                if placeholder.field.is_some() {
                    return Ok(Transformed::no(expr));
                }
                let mut placeholder = placeholder.clone();
                placeholder.field = Some(Arc::new(Type::Text.field(&placeholder.id, Nullability::Nullable)));
                Ok(Transformed::yes(Expr::Placeholder(placeholder)))
            })?;
            Ok(typed.update_data(|expr| name.restore(expr)))
        })?
        .map_data(|plan| plan.recompute_schema())
    })
    .map(|transformed| transformed.data)
}
