//! Projection and filter.

use super::Lowering;
use super::clock::{self, asks_clock};
use crate::error::{Error, Result};
use crate::expr::Expression;
use crate::operator::map::MapFilter;
use crate::plan::{Node, NodeId};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, Projection, Volatility};

impl Lowering {
    pub(super) fn projection(&mut self, projection: &Projection) -> Result<NodeId> {
        let (input, exprs, schema) = self.with_subqueries(&projection.input, &projection.expr)?;
        let expressions = exprs
            .iter()
            .map(|expr| self.bind(expr, &schema))
            .collect::<Result<_>>()?;
        self.map(input, None, expressions)
    }

    pub(super) fn filter(&mut self, filter: &Filter) -> Result<NodeId> {
        let (clocked, timeless): (Vec<Expr>, Vec<Expr>) = split_conjunction_owned(filter.predicate.clone())
            .into_iter()
            .partition(asks_clock);
        if !clocked.is_empty() {
            let input = match conjunction(timeless) {
                None => self.node(&filter.input)?,
                Some(rest) => {
                    let rest = Filter::try_new(rest, filter.input.clone()).map_err(crate::expr::from_datafusion)?;
                    self.filter(&rest)?
                }
            };
            return self.keep_by_clock(input, &clocked, filter.input.schema());
        }
        if let Some(node) = self.ranked_filter(filter)? {
            return Ok(node);
        }
        let (input, predicates, schema) =
            self.with_subqueries(&filter.input, std::slice::from_ref(&filter.predicate))?;
        let width = filter.input.schema().fields().len();
        let predicate = self.bind(&predicates[0], &schema)?;
        let kept = self.keep(input, predicate)?;
        self.first_columns(kept, width)
    }

    /// The rows for which the predicate is true.
    ///
    /// Of `a AND b`, what cannot fail is asked first, and what can fail is asked of the rows that are left: so
    /// `x <> 0 AND 1 / x > 2` fails for no row, and which rows fail does not depend on the batch they are in.
    pub(super) fn keep(&mut self, input: NodeId, predicate: Expression) -> Result<NodeId> {
        let (fallible, safe): (Vec<_>, Vec<_>) = predicate.conjuncts().into_iter().partition(Expression::can_fail);
        let mut node = input;
        for predicate in Expression::all(safe).into_iter().chain(fallible) {
            let columns = self.columns(node);
            node = self.map(node, Some(predicate), columns)?;
        }
        Ok(node)
    }

    /// Binds an expression by position and refuses what a maintained view cannot have in it.
    pub(super) fn bind(&self, expr: &Expr, schema: &DFSchema) -> Result<Expression> {
        check(expr)?;
        Expression::bind(expr, schema)
    }

    /// A map over a node; one that changes nothing is none. The rules fuse maps later.
    pub(super) fn map(
        &mut self,
        input: NodeId,
        predicate: Option<Expression>,
        projection: Vec<Expression>,
    ) -> Result<NodeId> {
        let map = MapFilter {
            predicate,
            projection,
            on_error: self.options.on_error,
        };
        if map.is_identity(self.plan.width(input)) {
            return Ok(input);
        }
        self.add(Node::MapFilter(map.settled()), vec![input])
    }

    /// The node with these expressions appended where they are not columns already; where each of them is.
    pub(super) fn with_columns(&mut self, input: NodeId, wanted: Vec<Expression>) -> Result<(NodeId, Vec<usize>)> {
        let mut columns = self.columns(input);
        let mut places = Vec::with_capacity(wanted.len());
        for expr in wanted {
            let place = match expr.as_column() {
                Some(index) => index,
                None => match self
                    .computed(input, &expr)
                    .or_else(|| columns.iter().position(|known| *known == expr))
                {
                    Some(index) => index,
                    None => {
                        columns.push(expr);
                        columns.len() - 1
                    }
                },
            };
            places.push(place);
        }
        Ok((self.map(input, None, columns)?, places))
    }

    /// The column of a node that holds an expression over the node's columns already.
    fn computed(&self, node: NodeId, expr: &Expression) -> Option<usize> {
        match self.plan.node(node) {
            Node::MapFilter(map) => {
                let below = expr.compose(&map.projection);
                map.projection.iter().position(|known| *known == below)
            }
            _ => None,
        }
    }

    /// The first `width` columns of a node.
    pub(super) fn first_columns(&mut self, input: NodeId, width: usize) -> Result<NodeId> {
        let mut columns = self.columns(input);
        columns.truncate(width);
        self.map(input, None, columns)
    }
}

/// Refuses volatile functions and the clock.
fn check(expr: &Expr) -> Result<()> {
    let mut refused = None;
    let walked = expr.apply(|node| {
        match node {
            Expr::ScalarFunction(call) => {
                let name = call.func.name();
                if crate::sql::bind::is_now(node) {
                    refused = Some(clock::refused());
                } else if call.func.signature().volatility == Volatility::Volatile {
                    refused = Some(
                        Error::unsupported(format!(
                            "function {name}() is volatile: a view of it cannot be maintained"
                        ))
                        .with_hint("Compute the value when the row is inserted, in a column with a DEFAULT."),
                    );
                }
            }
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) => {
                refused = Some(
                    Error::unsupported("this form of subquery is not supported in a maintained view")
                        .with_hint("Write it as a join."),
                );
            }
            _ => {}
        }
        Ok(if refused.is_some() {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    });
    walked.map_err(crate::expr::from_datafusion)?;
    refused.map_or(Ok(()), Err)
}
