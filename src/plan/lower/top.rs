//! What depends on order: LIMIT, DISTINCT ON, window functions, and top-k recognised from `row_number() <= n`.

use super::Lowering;
use super::aggregate::order_of;
use super::subquery::has_subquery;

use crate::delta::RowOrder;
use crate::error::{Error, Result};
use crate::operator::top::{Number, Ranking, Rest, Top};
use crate::plan::{Node, NodeId};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    self, Expr, Filter, LogicalPlan, Operator, Projection, SortExpr, Window, WindowFunctionDefinition,
};

/// The rows that a LIMIT leaves out and keeps.
pub(super) fn bounds(limit: &logical_expr::Limit) -> Result<(u64, Option<u64>)> {
    let number = |expr: Option<&Expr>| -> Result<Option<u64>> {
        match expr {
            None => Ok(None),
            Some(expr) => constant(expr).map(|value| value.map(|value| u64::try_from(value).unwrap_or(0))),
        }
    };
    Ok((
        number(limit.skip.as_deref())?.unwrap_or(0),
        number(limit.fetch.as_deref())?,
    ))
}

fn constant(expr: &Expr) -> Result<Option<i128>> {
    match expr {
        Expr::Literal(value, _) if value.is_null() => Ok(None),
        Expr::Literal(value, _) => integer(value)
            .map(Some)
            .ok_or_else(|| Error::semantic("42804", "argument of LIMIT must be type bigint")),
        Expr::Cast(cast) => constant(&cast.expr),
        Expr::Alias(alias) => constant(&alias.expr),
        _ => Err(Error::unsupported("LIMIT in a maintained view must be a constant")),
    }
}

fn integer(value: &ScalarValue) -> Option<i128> {
    match value {
        ScalarValue::Int16(value) => value.map(i128::from),
        ScalarValue::Int32(value) => value.map(i128::from),
        ScalarValue::Int64(value) => value.map(i128::from),
        ScalarValue::UInt64(value) => value.map(i128::from),
        ScalarValue::Decimal128(value, _, 0) => *value,
        _ => None,
    }
}

/// The rows of a window whose rank is in a range, and what is left to check.
struct Ranked<'a> {
    window: &'a Window,
    /// The window function, by its place in the window's list.
    function: usize,
    offset: u64,
    limit: Option<u64>,
    rest: Option<Expr>,
}

impl Lowering {
    /// The first rows of an input, in its order if it has one.
    pub(super) fn limit(&mut self, input: &LogicalPlan, skip: u64, fetch: Option<u64>) -> Result<NodeId> {
        match input {
            // The order may be by columns that the projection drops: limit below it.
            LogicalPlan::Projection(projection) if is_ordered(&projection.input) => {
                let limited = self.limit(&projection.input, skip, fetch)?;
                self.projection_over(projection, limited)
            }
            LogicalPlan::SubqueryAlias(alias) if is_ordered(&alias.input) => self.limit(&alias.input, skip, fetch),
            LogicalPlan::Sort(sort) => {
                let fetch = match (sort.fetch, fetch) {
                    (Some(own), Some(outer)) => Some((own as u64).saturating_sub(skip).min(outer)),
                    (Some(own), None) => Some((own as u64).saturating_sub(skip)),
                    (None, outer) => outer,
                };
                let below = self.node(&sort.input)?;
                let width = self.plan.schema(below).fields().len();
                let (below, order) = self.ordered(below, &sort.expr, sort.input.schema())?;
                let top = Top {
                    partition: Vec::new(),
                    order,
                    ranking: Ranking::RowNumber,
                    offset: skip,
                    limit: fetch,
                    number: Number::Hidden,
                    rest: Rest::Kept,
                };
                let node = self.add(Node::Top(top), vec![below])?;
                self.first_columns(node, width)
            }
            LogicalPlan::Limit(inner) => {
                let (inner_skip, inner_fetch) = bounds(inner)?;
                let left = inner_fetch.map(|fetch| fetch.saturating_sub(skip));
                let fetch = match (left, fetch) {
                    (Some(left), Some(fetch)) => Some(left.min(fetch)),
                    (left, fetch) => left.or(fetch),
                };
                self.limit(&inner.input, inner_skip.saturating_add(skip), fetch)
            }
            other if skip == 0 && fetch.is_none() => self.node(other),
            other => {
                let below = self.node(other)?;
                let top = Top {
                    partition: Vec::new(),
                    order: Vec::new(),
                    ranking: Ranking::RowNumber,
                    offset: skip,
                    limit: fetch,
                    number: Number::Hidden,
                    rest: Rest::Kept,
                };
                self.add(Node::Top(top), vec![below])
            }
        }
    }

    fn projection_over(&mut self, projection: &Projection, input: NodeId) -> Result<NodeId> {
        let expressions = projection
            .expr
            .iter()
            .map(|expr| self.bind(expr, projection.input.schema()))
            .collect::<Result<_>>()?;
        self.map(input, None, expressions)
    }

    /// The node with its sort keys as columns, and which they are.
    pub(super) fn ordered(
        &mut self,
        input: NodeId,
        sort: &[SortExpr],
        schema: &datafusion::common::DFSchema,
    ) -> Result<(NodeId, Vec<(usize, RowOrder)>)> {
        let wanted = sort
            .iter()
            .map(|sort| self.bind(&sort.expr, schema))
            .collect::<Result<Vec<_>>>()?;
        let (node, places) = self.with_columns(input, wanted)?;
        Ok((node, places.into_iter().zip(sort.iter().map(order_of)).collect()))
    }

    /// DISTINCT ON: the first row of each group.
    pub(super) fn distinct_on(&mut self, on: &logical_expr::DistinctOn) -> Result<NodeId> {
        let input = self.node(&on.input)?;
        let schema = on.input.schema();
        let keys = on
            .on_expr
            .iter()
            .map(|expr| self.bind(expr, schema))
            .collect::<Result<Vec<_>>>()?;
        let (node, partition) = self.with_columns(input, keys)?;
        let sort = on.sort_expr.clone().unwrap_or_default();
        let (node, order) = self.ordered(node, &sort, schema)?;
        let top = Top {
            partition,
            order,
            ranking: Ranking::RowNumber,
            offset: 0,
            limit: Some(1),
            number: Number::Hidden,
            rest: Rest::Kept,
        };
        let node = self.add(Node::Top(top), vec![node])?;
        let selected = on
            .select_expr
            .iter()
            .map(|expr| self.bind(expr, schema))
            .collect::<Result<_>>()?;
        self.map(node, None, selected)
    }

    /// A filter on a rank over a window is a top-k: only the first rows of each partition are looked at.
    pub(super) fn ranked_filter(&mut self, filter: &Filter) -> Result<Option<NodeId>> {
        if has_subquery(&filter.predicate) {
            return Ok(None);
        }
        let mut input = filter.input.as_ref();
        let mut predicate = filter.predicate.clone();
        let mut projections: Vec<&Projection> = Vec::new();
        let window = loop {
            match input {
                LogicalPlan::SubqueryAlias(alias) => {
                    predicate = requalified(&predicate, input, &alias.input)?;
                    input = &alias.input;
                }
                LogicalPlan::Projection(projection) => {
                    predicate = substituted(&predicate, projection)?;
                    projections.push(projection);
                    input = &projection.input;
                }
                LogicalPlan::Window(window) => break window,
                _ => return Ok(None),
            }
        };
        let Some(ranked) = ranked(window, &predicate)? else {
            return Ok(None);
        };
        let mut node = self.top(&ranked)?;
        if let Some(rest) = &ranked.rest {
            let rest = self.bind(rest, &window.schema)?;
            node = self.keep(node, rest)?;
        }
        for projection in projections.into_iter().rev() {
            node = self.projection_over(projection, node)?;
        }
        Ok(Some(node))
    }

    fn top(&mut self, ranked: &Ranked<'_>) -> Result<NodeId> {
        let window = ranked.window;
        let function = window_function(&window.window_expr[ranked.function])?;
        let input = self.node(&window.input)?;
        let width = self.plan.schema(input).fields().len();
        let schema = window.input.schema();
        let keys = function
            .params
            .partition_by
            .iter()
            .map(|expr| self.bind(expr, schema))
            .collect::<Result<Vec<_>>>()?;
        let (node, partition) = self.with_columns(input, keys)?;
        let (node, order) = self.ordered(node, &function.params.order_by, schema)?;
        let alone = window.window_expr.len() == 1;
        let top = Top {
            partition,
            order,
            ranking: ranking_of(&function.fun).ok_or_else(|| Error::internal("not a rank"))?,
            offset: ranked.offset,
            limit: ranked.limit,
            number: if alone { Number::Shown } else { Number::Hidden },
            rest: Rest::Kept,
        };
        let extended = self.plan.schema(node).fields().len();
        let node = self.add(Node::Top(top), vec![node])?;
        if alone {
            let columns = self.columns(node);
            let kept = columns[..width].iter().chain(&columns[extended..]).cloned().collect();
            let mapped = self.map(node, None, kept)?;
            return self.conform(mapped, &window.schema);
        }
        let node = self.first_columns(node, width)?;
        self.window_over(window, node)
    }
}

/// Whether a plan's rows come in an order: a sort, perhaps with projections above it.
fn is_ordered(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(projection) => is_ordered(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_ordered(&alias.input),
        LogicalPlan::Limit(limit) => is_ordered(&limit.input),
        _ => false,
    }
}

pub(super) fn window_function(expr: &Expr) -> Result<&WindowFunction> {
    match expr {
        Expr::WindowFunction(function) => Ok(function),
        Expr::Alias(alias) => window_function(&alias.expr),
        other => Err(Error::internal(format!("{other} is not a window function"))),
    }
}

fn ranking_of(definition: &WindowFunctionDefinition) -> Option<Ranking> {
    match definition.name() {
        "row_number" => Some(Ranking::RowNumber),
        "rank" => Some(Ranking::Rank),
        "dense_rank" => Some(Ranking::DenseRank),
        _ => None,
    }
}

/// Finds the rank that the predicate bounds from above. The bound may be taken only where all functions of the
/// window are ranks over the same order: the rows that it keeps are a prefix, and ranks only look back.
fn ranked<'a>(window: &'a Window, predicate: &Expr) -> Result<Option<Ranked<'a>>> {
    let functions = window
        .window_expr
        .iter()
        .map(window_function)
        .collect::<Result<Vec<_>>>()?;
    let Some(first) = functions.first() else {
        return Ok(None);
    };
    let prefix = functions.iter().all(|function| {
        ranking_of(&function.fun).is_some()
            && function.params.partition_by == first.params.partition_by
            && function.params.order_by == first.params.order_by
    });
    if !prefix {
        return Ok(None);
    }
    let width = window.input.schema().fields().len();
    let index_of = |expr: &Expr| match bare(expr) {
        Expr::Column(column) => window
            .schema
            .index_of_column(column)
            .ok()
            .and_then(|index| index.checked_sub(width)),
        _ => None,
    };
    for function in 0..functions.len() {
        let (mut low, mut high) = (1_i128, None::<i128>);
        let mut rest = Vec::new();
        for part in split_conjunction(predicate) {
            match bound(part, &|expr| index_of(expr) == Some(function)) {
                Some((from, to)) => {
                    low = low.max(from.unwrap_or(1));
                    high = match (high, to) {
                        (Some(high), Some(to)) => Some(high.min(to)),
                        (high, to) => high.or(to),
                    };
                }
                None => rest.push(part.clone()),
            }
        }
        let Some(high) = high else {
            continue;
        };
        // Only a prefix may be cut where other ranks are still to be computed.
        let offset = if functions.len() == 1 { low - 1 } else { 0 };
        if functions.len() > 1 && low > 1 {
            continue;
        }
        return Ok(Some(Ranked {
            window,
            function,
            offset: u64::try_from(offset).unwrap_or(0),
            limit: Some(u64::try_from(high - offset).unwrap_or(0)),
            rest: conjunction(rest),
        }));
    }
    Ok(None)
}

/// The least and greatest rank that a comparison lets through, if that is all it says.
fn bound(expr: &Expr, is_rank: &dyn Fn(&Expr) -> bool) -> Option<(Option<i128>, Option<i128>)> {
    match expr {
        Expr::Between(between) if !between.negated && is_rank(&between.expr) => {
            Some((Some(literal(&between.low)?), Some(literal(&between.high)?)))
        }
        Expr::BinaryExpr(binary) => {
            let (op, value) = if is_rank(&binary.left) {
                (binary.op, literal(&binary.right)?)
            } else if is_rank(&binary.right) {
                (binary.op.swap()?, literal(&binary.left)?)
            } else {
                return None;
            };
            match op {
                Operator::Lt => Some((None, Some(value - 1))),
                Operator::LtEq => Some((None, Some(value))),
                Operator::Eq => Some((Some(value), Some(value))),
                Operator::Gt => Some((Some(value + 1), None)),
                Operator::GtEq => Some((Some(value), None)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) => bare(&cast.expr),
        Expr::Alias(alias) => bare(&alias.expr),
        other => other,
    }
}

fn literal(expr: &Expr) -> Option<i128> {
    match bare(expr) {
        Expr::Literal(value, _) => integer(value),
        _ => None,
    }
}

/// The predicate with the projection's expressions put in for its columns.
fn substituted(predicate: &Expr, projection: &Projection) -> Result<Expr> {
    predicate
        .clone()
        .transform(|node| match &node {
            Expr::Column(column) => {
                let index = projection.schema.index_of_column(column)?;
                let inner = projection.expr[index].clone().unalias_nested().data;
                Ok(Transformed::new(
                    inner,
                    true,
                    datafusion::common::tree_node::TreeNodeRecursion::Jump,
                ))
            }
            _ => Ok(Transformed::no(node)),
        })
        .data()
        .map_err(crate::expr::from_datafusion)
}

/// The predicate with the alias' column names replaced by those below it.
fn requalified(predicate: &Expr, outer: &LogicalPlan, inner: &LogicalPlan) -> Result<Expr> {
    predicate
        .clone()
        .transform(|node| match &node {
            Expr::Column(column) => {
                let index = outer.schema().index_of_column(column)?;
                Ok(Transformed::yes(Expr::Column(inner.schema().columns()[index].clone())))
            }
            _ => Ok(Transformed::no(node)),
        })
        .data()
        .map_err(crate::expr::from_datafusion)
}
