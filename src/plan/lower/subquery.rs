//! Subqueries in expressions, where DataFusion has not made joins of them: those that do not look at the row.
//!
//! Each becomes a column. Its value is the same for all rows, so it comes by a cross join with one row:
//!
//! - `(SELECT v ...)`: the only value, NULL over nothing; more than one is an error;
//! - `EXISTS (...)`: the number of rows, which is compared with 0;
//! - `x IN (SELECT y ...)`: the numbers of rows and of values, and beside them, from a left join, the y that is x:
//!
//! ```text
//! TRUE if there is such a y;  FALSE if there are no rows;  NULL if x is, or some y;  else FALSE
//! ```

use super::Lowering;
use crate::error::{Error, Result};
use crate::expr::{Expression, from_datafusion};
use crate::operator::aggregate::{Aggregate, Call, Distinct, Function};
use crate::operator::join::{Join, JoinKind, NullEquality};
use crate::plan::{Node, NodeId};
use crate::types::{Nullability, Type};
use arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue, TableReference};
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::{Case, Expr, LogicalPlan, Subquery, lit, not};
use std::sync::Arc;

/// The qualifier of the columns that subqueries become.
const QUALIFIER: &str = "__subquery";

/// A node with the columns of a plan, and behind them those that subqueries became.
struct Extended<'a> {
    lowering: &'a mut Lowering,
    node: NodeId,
    fields: Vec<(Option<TableReference>, FieldRef)>,
    /// The columns by the node that gives their values, so that equal subqueries are one.
    known: Vec<(NodeId, usize)>,
}

/// Whether there is a subquery in an expression.
pub(super) fn has_subquery(expr: &Expr) -> bool {
    expr.exists(|node| {
        Ok(matches!(
            node,
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_)
        ))
    })
    .unwrap_or(true)
}

impl Lowering {
    /// The input with a column for each subquery in the expressions, the expressions over these columns, and the
    /// schema to bind them by.
    pub(super) fn with_subqueries(
        &mut self,
        input: &LogicalPlan,
        exprs: &[Expr],
    ) -> Result<(NodeId, Vec<Expr>, DFSchema)> {
        let node = self.node(input)?;
        if !exprs.iter().any(has_subquery) {
            return Ok((node, exprs.to_vec(), input.schema().as_ref().clone()));
        }
        let fields = input
            .schema()
            .iter()
            .map(|(table, field)| (table.cloned(), field.clone()))
            .collect();
        let mut extended = Extended {
            lowering: self,
            node,
            fields,
            known: Vec::new(),
        };
        let mut replaced = Vec::with_capacity(exprs.len());
        for expr in exprs {
            replaced.push(extended.replace(expr)?);
        }
        let schema = extended.schema()?;
        Ok((extended.node, replaced, schema))
    }
}

impl Extended<'_> {
    fn schema(&self) -> Result<DFSchema> {
        DFSchema::new_with_metadata(self.fields.clone(), Default::default()).map_err(from_datafusion)
    }

    /// The expression with columns in place of its subqueries.
    fn replace(&mut self, expr: &Expr) -> Result<Expr> {
        let mut failed = None;
        let replaced = expr.clone().transform_up(|node| {
            let column = match &node {
                Expr::ScalarSubquery(subquery) => self.scalar(subquery),
                Expr::Exists(Exists { subquery, negated }) => self.exists(subquery, *negated),
                Expr::InSubquery(contained) => self.contained(contained),
                _ => return Ok(Transformed::no(node)),
            };
            match column {
                Ok(column) => Ok(Transformed::yes(column)),
                Err(error) => {
                    failed = Some(error);
                    Ok(Transformed::no(node))
                }
            }
        });
        match failed {
            Some(error) => Err(error),
            None => replaced.map(|transformed| transformed.data).map_err(from_datafusion),
        }
    }

    fn lower(&mut self, subquery: &Subquery) -> Result<NodeId> {
        if !subquery.outer_ref_columns.is_empty() {
            return Err(
                Error::unsupported("this form of correlated subquery is not supported in a maintained view")
                    .with_hint("Write it as a join."),
            );
        }
        self.lowering.node(&subquery.subquery)
    }

    fn scalar(&mut self, subquery: &Subquery) -> Result<Expr> {
        let node = self.lower(subquery)?;
        let field = self
            .lowering
            .plan
            .schema(node)
            .field(0)
            .clone()
            .with_name("")
            .with_nullable(true);
        let call = call(Function::SingleValue, vec![0], Arc::new(field));
        let columns = self.one_row(node, vec![call])?;
        Ok(self.column(columns[0]))
    }

    fn exists(&mut self, subquery: &Subquery, negated: bool) -> Result<Expr> {
        let node = self.lower(subquery)?;
        let columns = self.one_row(node, vec![count(Vec::new())])?;
        let rows = self.column(columns[0]);
        Ok(if negated {
            rows.eq(lit(0_i64))
        } else {
            rows.gt(lit(0_i64))
        })
    }

    fn contained(&mut self, contained: &InSubquery) -> Result<Expr> {
        let node = self.lower(&contained.subquery)?;
        let schema = self.schema()?;
        let sought = self.lowering.bind(&contained.expr, &schema)?;
        let sought_place = self.append(sought)?;
        let counts = self.one_row(node, vec![count(Vec::new()), count(vec![0])])?;
        let values = Node::Aggregate(Aggregate {
            closing: None,
            keys: vec![0],
            calls: Vec::new(),
        });
        let values = self.lowering.add(values, vec![node])?;
        let found = self.join(values, JoinKind::Left, vec![(sought_place, 0)])?;
        let (rows, known) = (self.column(counts[0]), self.column(counts[1]));
        let value = Expr::Case(Case::new(
            None,
            vec![
                (Box::new(self.column(found).is_not_null()), Box::new(lit(true))),
                (Box::new(rows.clone().eq(lit(0_i64))), Box::new(lit(false))),
                (
                    Box::new(self.column(sought_place).is_null().or(known.lt(rows))),
                    Box::new(Expr::Literal(ScalarValue::Boolean(None), None)),
                ),
            ],
            Some(Box::new(lit(false))),
        ));
        Ok(if contained.negated { not(value) } else { value })
    }

    /// Adds the results of calls over all rows of a node as columns; where they are.
    fn one_row(&mut self, node: NodeId, calls: Vec<Call>) -> Result<Vec<usize>> {
        let count = calls.len();
        let group = self.lowering.add(
            Node::Aggregate(Aggregate {
                closing: None,
                keys: Vec::new(),
                calls,
            }),
            vec![node],
        )?;
        let first = match self.known.iter().find(|(known, _)| *known == group) {
            Some((_, first)) => *first,
            None => {
                let first = self.join(group, JoinKind::Inner, Vec::new())?;
                self.known.push((group, first));
                first
            }
        };
        Ok((first..first + count).collect())
    }

    /// Joins another node's columns to the right; where its first one is.
    fn join(&mut self, right: NodeId, kind: JoinKind, on: Vec<(usize, usize)>) -> Result<usize> {
        let first = self.fields.len();
        let join = Join {
            kind,
            on,
            null_equality: NullEquality::NullsDiffer,
            residual: None,
        };
        self.node = self.lowering.add(Node::Join(join), vec![self.node, right])?;
        for field in self.lowering.plan.schema(right).clone().fields() {
            self.name(field);
        }
        Ok(first)
    }

    /// The column that holds an expression, added if there is none yet.
    fn append(&mut self, expr: Expression) -> Result<usize> {
        let width = self.fields.len();
        let (node, places) = self.lowering.with_columns(self.node, vec![expr])?;
        self.node = node;
        if self.lowering.plan.width(node) > width {
            let field = self.lowering.plan.schema(node).field(width).clone();
            self.name(&Arc::new(field));
        }
        Ok(places[0])
    }

    fn name(&mut self, field: &FieldRef) {
        let name = format!("c{}", self.fields.len());
        let named = field.as_ref().clone().with_name(name).with_nullable(true);
        self.fields
            .push((Some(TableReference::bare(QUALIFIER)), Arc::new(named)));
    }

    fn column(&self, place: usize) -> Expr {
        let (table, field) = &self.fields[place];
        Expr::Column(Column::new(table.clone(), field.name()))
    }
}

fn call(function: Function, arguments: Vec<usize>, field: FieldRef) -> Call {
    Call {
        function,
        arguments,
        distinct: Distinct::No,
        filter: None,
        order: Vec::new(),
        field,
    }
}

fn count(arguments: Vec<usize>) -> Call {
    call(
        Function::Count,
        arguments,
        Arc::new(Type::Int8.field("", Nullability::Nullable)),
    )
}
