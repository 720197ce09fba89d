//! Window clauses after a relation: what is in the window now.
//!
//! By event time a range is an operator of its own (`InWindow`), and the last n rows are a top-k. Without event time
//! rows are stamped when they arrive: then a range is a filter on the clock, and the last n a top-k by the stamp.

use super::Lowering;
use crate::delta::RowOrder;
use crate::error::{Error, Result};
use crate::expr::Expression;
use crate::operator::clock::{ClockFilter, Truth, Turning, with_clock};
use crate::operator::in_window::{Extent, InWindow, Latest};
use crate::operator::stamp::{Memory, Stamp};
use crate::operator::top::{Number, Ranking, Rest, Top};
use crate::plan::{Growth, Node, NodeId, property};
use crate::sql::bind::node::{Clause, WindowClause};
use crate::sql::function::window::{WindowFunction, Windows};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::{Expr, lit};

/// Greatest first: the reverse of row order.
const LAST_FIRST: RowOrder = RowOrder {
    descending: true,
    nulls_first: true,
};

impl Lowering {
    pub(super) fn window_clause(&mut self, window: &WindowClause) -> Result<NodeId> {
        let input = self.node(&window.input)?;
        match &window.time {
            Some(time) => self.by_event_time(window, input, time),
            None => self.by_arrival(window, input),
        }
    }

    fn by_event_time(&mut self, window: &WindowClause, input: NodeId, time: &Expr) -> Result<NodeId> {
        if property::of(&self.plan, input).growth == Growth::Changing {
            return Err(Error::unsupported("a window clause over rows that go is not supported")
                .with_hint("Put the window clause after the stream itself."));
        }
        let time = self.bind(time, window.input.schema())?;
        let (node, places) = self.with_columns(input, vec![time])?;
        let width = self.plan.width(input);
        let time = places[0];
        let latest = match window.stream {
            Some(_) => Latest::Held,
            None => Latest::Highest,
        };
        let within = |extent| Node::InWindow(InWindow { time, extent, latest });
        let node = match &window.clause {
            Clause::Range {
                length_micros,
                slide_micros,
            } => {
                let extent = Extent::Last {
                    length_us: *length_micros,
                    slide_us: *slide_micros,
                };
                self.add(within(extent), vec![node])?
            }
            Clause::Now => self.add(within(Extent::Now), vec![node])?,
            Clause::Unbounded => self.add(within(Extent::UpToNow), vec![node])?,
            Clause::Rows { count, partition_by } => {
                let node = match latest {
                    Latest::Held => self.add(within(Extent::UpToNow), vec![node])?,
                    Latest::Highest => node,
                };
                self.last_rows(node, window, (time, width), *count, partition_by)?
            }
        };
        self.first_columns(node, width)
    }

    /// The last rows of each partition, by a time and then in row order.
    fn last_rows(
        &mut self,
        node: NodeId,
        window: &WindowClause,
        (time, width): (usize, usize),
        count: usize,
        partition_by: &[Expr],
    ) -> Result<NodeId> {
        let timed = WindowFunction::call(Windows::Exists, position(&self.plan.schema(node).clone(), time));
        let timed = self.over_positions(node, &timed)?;
        let node = self.keep(node, timed)?;
        let keys = partition_by
            .iter()
            .map(|key| self.bind(key, window.input.schema()))
            .collect::<Result<Vec<_>>>()?;
        let (node, partition) = self.with_columns(node, keys)?;
        let mut order = vec![(time, LAST_FIRST)];
        order.extend((0..width).map(|column| (column, LAST_FIRST)));
        self.add(Node::Top(first_rows(partition, order, count)), vec![node])
    }

    fn by_arrival(&mut self, window: &WindowClause, input: NodeId) -> Result<NodeId> {
        if window.clause == Clause::Unbounded {
            return Ok(input);
        }
        let width = self.plan.width(input);
        let memory = match property::of(&self.plan, input).growth {
            Growth::AppendOnly => Memory::None,
            Growth::Changing => Memory::Rows,
        };
        let node = self.add(Node::Stamp(Stamp { memory }), vec![input])?;
        let node = match &window.clause {
            Clause::Rows { count, partition_by } => {
                let keys = partition_by
                    .iter()
                    .map(|key| self.bind(key, window.input.schema()))
                    .collect::<Result<Vec<_>>>()?;
                let (node, partition) = self.with_columns(node, keys)?;
                let order = vec![(width + 1, LAST_FIRST)];
                self.add(Node::Top(first_rows(partition, order, *count)), vec![node])?
            }
            Clause::Range {
                length_micros,
                slide_micros,
            } => self.by_clock(node, width, Some(*length_micros), *slide_micros)?,
            Clause::Now => self.by_clock(node, width, None, None)?,
            Clause::Unbounded => node,
        };
        self.first_columns(node, width)
    }

    /// The rows whose stamp, in that column, is within a length of the clock, or is the clock's own moment.
    fn by_clock(&mut self, node: NodeId, stamp: usize, length: Option<i64>, slide: Option<i64>) -> Result<NodeId> {
        let clocked = with_clock(self.plan.schema(node));
        let named = DFSchema::try_from(clocked.as_ref().clone()).map_err(crate::expr::from_datafusion)?;
        let arrived = position(&clocked, stamp);
        let now = position(&clocked, clocked.fields().len() - 1);
        let edge = match slide {
            Some(size) => WindowFunction::call(Windows::TumbleStart { size, offset: 0 }, now),
            None => now,
        };
        let since = match length {
            Some(micros) => {
                let nanos = micros.checked_mul(1000);
                let length = ScalarValue::new_interval_mdn(0, 0, nanos.ok_or_else(too_long)?);
                arrived.clone().gt(edge.clone() - lit(length))
            }
            None => arrived.clone().gt_eq(edge.clone()),
        };
        let until = arrived.lt_eq(edge);
        let predicate = Truth::All(vec![
            Truth::Turns(Expression::bind(&since, &named)?, Turning::False),
            Truth::Turns(Expression::bind(&until, &named)?, Turning::True),
        ]);
        self.add(Node::ClockFilter(ClockFilter { predicate }), vec![node])
    }

    /// An expression over a node's columns by position.
    fn over_positions(&self, node: NodeId, expr: &Expr) -> Result<Expression> {
        let schema = crate::expr::positional_schema(self.plan.schema(node));
        let named = DFSchema::try_from(schema.as_ref().clone()).map_err(crate::expr::from_datafusion)?;
        Expression::bind(expr, &named)
    }
}

/// The column at a position, by the name that it has there.
fn position(schema: &arrow::datatypes::SchemaRef, index: usize) -> Expr {
    let named = crate::expr::positional_schema(schema);
    Expr::Column(Column::new_unqualified(named.field(index).name()))
}

fn first_rows(partition: Vec<usize>, order: Vec<(usize, RowOrder)>, count: usize) -> Top {
    Top {
        partition,
        order,
        ranking: Ranking::RowNumber,
        offset: 0,
        limit: Some(count as u64),
        number: Number::Hidden,
        rest: Rest::Kept,
    }
}

fn too_long() -> Error {
    Error::semantic("22008", "interval out of range")
}
