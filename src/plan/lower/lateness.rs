//! Windows that refuse late rows: which watermark judges them.

use super::Lowering;
use crate::error::Result;
use crate::expr::Expression;
use crate::operator::lateness::{Judged, Lateness};
use crate::plan::{Node, NodeId, event};
use crate::sql::bind::node;
use datafusion::common::DFSchema;
use datafusion::logical_expr::Expr;

impl Lowering {
    /// A window over a time that follows no watermark refuses nothing.
    pub(super) fn refuse_late(&mut self, late: &node::RefuseLate) -> Result<NodeId> {
        let input = self.node(&late.input)?;
        let Some(shift_us) = self.shift(input, &late.time, late.input.schema())? else {
            return Ok(input);
        };
        let (input, judged) = self.judged(input)?;
        let lateness = Lateness {
            label: late.label,
            shift_us,
            size_us: late.size_us,
            judged,
        };
        self.add(Node::Lateness(lateness), vec![input])
    }

    /// How far a time over a node's columns is ahead of the streams' event time; `None` if it does not follow it.
    pub(super) fn shift(&mut self, input: NodeId, time: &Expr, schema: &DFSchema) -> Result<Option<i64>> {
        let time = self.bind(time, schema)?;
        let events = event::of(&self.plan, input);
        Ok(time.as_shifted_column().and_then(|(column, shift)| {
            let event = events.iter().find(|event| event.column == column)?;
            Some(event.shift_us.saturating_add(shift))
        }))
    }

    /// The node with the watermark that judges each of its rows in the last column, where it is not the epoch's.
    pub(super) fn judged(&mut self, input: NodeId) -> Result<(NodeId, Judged)> {
        Ok(match self.carry(input)? {
            Some(carried) => (carried, Judged::ByRow),
            None => (input, Judged::ByEpoch),
        })
    }

    /// The same node with, in one more column at the end, the watermark just before each row in its stream's log;
    /// `None` where a row of the node is not one row of a stream.
    fn carry(&mut self, node: NodeId) -> Result<Option<NodeId>> {
        match self.plan.node(node).clone() {
            Node::Input(input) => Ok(input.judge.map(|_| node)),
            Node::MapFilter(mut map) => {
                let below = self.plan.inputs(node)[0];
                let Some(carried) = self.carry(below)? else {
                    return Ok(None);
                };
                let schema = self.plan.schema(carried).clone();
                let last = schema.fields().len() - 1;
                map.projection.push(Expression::column(last, schema.field(last)));
                self.add(Node::MapFilter(map), vec![carried]).map(Some)
            }
            Node::Unnest(unnest) => {
                let below = self.plan.inputs(node)[0];
                let Some(carried) = self.carry(below)? else {
                    return Ok(None);
                };
                self.add(Node::Unnest(unnest), vec![carried]).map(Some)
            }
            _ => Ok(None),
        }
    }
}
