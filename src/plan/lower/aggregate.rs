//! GROUP BY, grouping sets, DISTINCT.

use super::Lowering;
use super::subquery::has_subquery;
use crate::delta::RowOrder;
use crate::error::{Error, Result};
use crate::expr::Expression;
use crate::operator::aggregate::{Aggregate, Call, Distinct, Function};
use crate::operator::top::{Number, Ranking, Rest, Top};
use crate::operator::union::Union;
use crate::plan::{Node, NodeId};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, GroupingSet};
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{self, Expr, LogicalPlan, SortExpr};

/// The elements of a CUBE, as many as PostgreSQL takes.
const CUBE_MAX: usize = 12;

/// The maintained function of that name.
pub(super) fn function_of(name: &str) -> Result<Function> {
    crate::sql::function::aggregate::function_of(name).ok_or_else(|| {
        Error::unsupported(format!("aggregate {name}() is not supported in a maintained view"))
            .with_hint("Use it in a plain SELECT over the view's rows.")
    })
}

/// Whether an argument is the `*` of `count(*)`.
#[expect(deprecated, reason = "DataFusion still has it as the argument of count(*)")]
pub(super) fn is_wildcard(expr: &Expr) -> bool {
    matches!(expr, Expr::Wildcard { .. })
}

/// The order of a sort expression.
pub(super) fn order_of(sort: &SortExpr) -> RowOrder {
    RowOrder {
        descending: !sort.asc,
        nulls_first: sort.nulls_first,
    }
}

impl Lowering {
    pub(super) fn aggregate(&mut self, aggregate: &logical_expr::Aggregate) -> Result<NodeId> {
        if let Some(order) = first_rows(aggregate) {
            return self.first_of_groups(aggregate, &order);
        }
        if let [Expr::GroupingSet(sets)] = aggregate.group_expr.as_slice() {
            return self.grouping_sets(aggregate, sets);
        }
        let keys: Vec<Expr> = grouping_set_to_exprlist(&aggregate.group_expr)
            .map_err(crate::expr::from_datafusion)?
            .into_iter()
            .cloned()
            .collect();
        self.grouped(aggregate, &keys, keys.len())
    }

    /// The groups of `keys`, then the calls. The calls' fields start at `first_call` in the logical schema.
    fn grouped(&mut self, aggregate: &logical_expr::Aggregate, keys: &[Expr], first_call: usize) -> Result<NodeId> {
        let exprs: Vec<Expr> = keys.iter().chain(&aggregate.aggr_expr).cloned().collect();
        let (input, exprs, schema) = self.with_subqueries(&aggregate.input, &exprs)?;
        let (keys, aggregates) = exprs.split_at(keys.len());
        let mut columns = Columns::default();
        let mut key_places = Vec::new();
        for key in keys {
            key_places.push(columns.place(self.bind(key, &schema)?));
        }
        let mut calls = Vec::new();
        for (index, expr) in aggregates.iter().enumerate() {
            let field = aggregate.schema.field(first_call + index).clone();
            calls.push(self.call(expr, &schema, &mut columns, field)?);
        }
        let mapped = self.map(input, None, columns.expressions)?;
        let node = self.add(
            Node::Aggregate(Aggregate {
                closing: None,
                keys: key_places,
                calls,
            }),
            vec![mapped],
        )?;
        Ok(node)
    }

    fn call(
        &mut self,
        expr: &Expr,
        schema: &DFSchema,
        columns: &mut Columns,
        field: std::sync::Arc<arrow::datatypes::Field>,
    ) -> Result<Call> {
        let AggregateFunction { func, params } = match expr {
            Expr::AggregateFunction(function) => function,
            Expr::Alias(alias) => return self.call(&alias.expr, schema, columns, field),
            other => return Err(Error::internal(format!("{other} is not an aggregate"))),
        };
        let function = function_of(func.name())?;
        if params
            .null_treatment
            .is_some_and(|nulls| nulls == logical_expr::expr::NullTreatment::IgnoreNulls)
        {
            return Err(
                Error::unsupported("IGNORE NULLS in an aggregate is not supported in a maintained view")
                    .with_hint("Use FILTER (WHERE x IS NOT NULL)."),
            );
        }
        let counts_rows = function == Function::Count
            && params.args.iter().all(|argument| {
                matches!(argument, Expr::Literal(value, _) if !value.is_null()) || is_wildcard(argument)
            });
        let mut arguments = Vec::new();
        if !counts_rows || params.distinct {
            for argument in &params.args {
                arguments.push(columns.place(self.bind(argument, schema)?));
            }
        }
        let filter = match &params.filter {
            Some(filter) => Some(columns.place(self.bind(filter, schema)?)),
            None => None,
        };
        let mut order = Vec::new();
        for sort in &params.order_by {
            order.push((columns.place(self.bind(&sort.expr, schema)?), order_of(sort)));
        }
        let distinct = if params.distinct { Distinct::Yes } else { Distinct::No };
        let field = std::sync::Arc::new(field.as_ref().clone().with_name("").with_nullable(true));
        Ok(Call {
            function,
            arguments,
            distinct,
            filter,
            order,
            field,
        })
    }

    /// One aggregate per grouping set, its missing keys NULL, and the number that tells the sets apart.
    fn grouping_sets(&mut self, aggregate: &logical_expr::Aggregate, sets: &GroupingSet) -> Result<NodeId> {
        let all: Vec<Expr> = sets.distinct_expr().into_iter().cloned().collect();
        let sets = match sets {
            GroupingSet::GroupingSets(sets) => sets.clone(),
            GroupingSet::Rollup(keys) => (0..=keys.len()).rev().map(|count| keys[..count].to_vec()).collect(),
            GroupingSet::Cube(keys) => cube(keys)?,
        };
        let first_call = all.len() + 1;
        let id_field = aggregate.schema.field(all.len()).clone();
        let mut parts = Vec::new();
        let mut seen: Vec<u64> = Vec::new();
        for set in &sets {
            let grouped = self.grouped(aggregate, set, first_call)?;
            let own = self.columns(grouped);
            let mut mask = 0_u64;
            let mut columns = Vec::new();
            for (index, expr) in all.iter().enumerate() {
                match set.iter().position(|key| key == expr) {
                    Some(at) => columns.push(own[at].clone()),
                    None => {
                        mask |= 1 << (all.len() - 1 - index);
                        columns.push(constant(&ScalarValue::Null)?.cast(aggregate.schema.field(index)));
                    }
                }
            }
            let ordinal = seen.iter().filter(|known| **known == mask).count() as u64;
            seen.push(mask);
            let id = mask | (ordinal << all.len());
            let id = ScalarValue::UInt64(Some(id))
                .cast_to(id_field.data_type())
                .map_err(crate::expr::from_datafusion)?;
            columns.push(constant(&id)?);
            columns.extend_from_slice(&own[set.len()..]);
            parts.push(self.map(grouped, None, columns)?);
        }
        match parts.as_slice() {
            [single] => Ok(*single),
            _ => self.add(Node::Union(Union), parts),
        }
    }

    /// The values of the first row of each group: one row, also where the order leaves a tie.
    fn first_of_groups(&mut self, aggregate: &logical_expr::Aggregate, order: &[SortExpr]) -> Result<NodeId> {
        let input = self.node(&aggregate.input)?;
        let schema = aggregate.input.schema();
        let keys = aggregate
            .group_expr
            .iter()
            .map(|key| self.bind(key, schema))
            .collect::<Result<Vec<_>>>()?;
        let (node, partition) = self.with_columns(input, keys)?;
        let (node, order) = self.ordered(node, order, schema)?;
        let top = Top {
            partition: partition.clone(),
            order,
            ranking: Ranking::RowNumber,
            offset: 0,
            limit: Some(1),
            number: Number::Hidden,
            rest: Rest::default(),
        };
        let node = self.add(Node::Top(top), vec![node])?;
        let columns = self.columns(node);
        let mut output: Vec<Expression> = partition.iter().map(|key| columns[*key].clone()).collect();
        for expr in &aggregate.aggr_expr {
            for argument in first_value(expr).map(|call| &call.params.args[..]).unwrap_or_default() {
                output.push(self.bind(argument, schema)?);
            }
        }
        self.map(node, None, output)
    }

    pub(super) fn distinct(&mut self, input: &LogicalPlan) -> Result<NodeId> {
        let input = self.node(input)?;
        let keys = (0..self.plan.schema(input).fields().len()).collect();
        self.add(
            Node::Aggregate(Aggregate {
                closing: None,
                keys,
                calls: Vec::new(),
            }),
            vec![input],
        )
    }
}

/// The order in which all calls take the first value of each group: what DataFusion makes of DISTINCT ON. Computed one
/// by one, ties could be broken by another row for each.
fn first_rows(aggregate: &logical_expr::Aggregate) -> Option<Vec<SortExpr>> {
    let plain = |expr: &Expr| !matches!(expr, Expr::GroupingSet(_)) && !has_subquery(expr);
    if aggregate.group_expr.is_empty() || !aggregate.group_expr.iter().chain(&aggregate.aggr_expr).all(plain) {
        return None;
    }
    let mut distinct = aggregate.group_expr.clone();
    distinct.dedup();
    if distinct.len() != aggregate.group_expr.len() {
        return None;
    }
    let mut order = None;
    for expr in &aggregate.aggr_expr {
        let params = &first_value(expr)?.params;
        if params.distinct || params.filter.is_some() || params.null_treatment.is_some() || params.args.len() != 1 {
            return None;
        }
        if *order.get_or_insert(&params.order_by) != &params.order_by {
            return None;
        }
    }
    order.cloned()
}

fn first_value(expr: &Expr) -> Option<&AggregateFunction> {
    match expr {
        Expr::AggregateFunction(call) if call.func.name() == "first_value" => Some(call),
        Expr::Alias(alias) => first_value(&alias.expr),
        _ => None,
    }
}

/// All subsets of the keys.
fn cube(keys: &[Expr]) -> Result<Vec<Vec<Expr>>> {
    if keys.len() > CUBE_MAX {
        return Err(Error::limit("54011", format!("CUBE is limited to {CUBE_MAX} elements")));
    }
    let subset = |mask: usize| {
        let chosen = keys.iter().enumerate().filter(|(index, _)| mask & (1 << index) != 0);
        chosen.map(|(_, key)| key.clone()).collect()
    };
    Ok((0..1 << keys.len()).map(subset).collect())
}

fn constant(value: &ScalarValue) -> Result<Expression> {
    Expression::bind(&Expr::Literal(value.clone(), None), &DFSchema::empty())
}

/// The columns that an operator needs, each once.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) expressions: Vec<Expression>,
}

impl Columns {
    /// Where the expression stands, adding it if it is new.
    pub(super) fn place(&mut self, expression: Expression) -> usize {
        match self.expressions.iter().position(|known| *known == expression) {
            Some(index) => index,
            None => {
                self.expressions.push(expression);
                self.expressions.len() - 1
            }
        }
    }
}
