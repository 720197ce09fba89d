//! UNION, INTERSECT, EXCEPT, and the nodes that only we have.

use super::Lowering;
use crate::error::{Error, Result};
use crate::operator::session::{SessionLateness, SessionWindow};
use crate::operator::set::{All, SetKind, SetOperation};
use crate::operator::union::Union;
use crate::plan::{Node, NodeId};
use crate::sql::bind::node;
use datafusion::logical_expr::{self, LogicalPlan};

impl Lowering {
    pub(super) fn union(&mut self, union: &logical_expr::Union) -> Result<NodeId> {
        let mut inputs = Vec::with_capacity(union.inputs.len());
        for input in &union.inputs {
            let node = self.node(input)?;
            inputs.push(self.conform(node, &union.schema)?);
        }
        match inputs.as_slice() {
            [single] => Ok(*single),
            _ => self.add(Node::Union(Union), inputs),
        }
    }

    pub(super) fn extension(&mut self, plan: &LogicalPlan) -> Result<NodeId> {
        if let Some(operation) = node::extension::<node::SetOperation>(plan) {
            return self.set_operation(operation);
        }
        if let Some(window) = node::extension::<node::SessionWindow>(plan) {
            return self.session_window(window);
        }
        if let Some(late) = node::extension::<node::RefuseLate>(plan) {
            return self.refuse_late(late);
        }
        if let Some(window) = node::extension::<node::WindowClause>(plan) {
            return self.window_clause(window);
        }
        let what = match plan {
            LogicalPlan::Extension(extension) => match extension.node.name() {
                "AsOfJoin" => "ASOF JOIN",
                "TemporalTable" => "FOR SYSTEM_TIME AS OF",
                _ => "this construct",
            },
            _ => "this construct",
        };
        Err(
            Error::unsupported(format!("{what} is not supported in a maintained view"))
                .with_hint("Run it as a plain SELECT, or use TUMBLE or HOP."),
        )
    }

    fn set_operation(&mut self, operation: &node::SetOperation) -> Result<NodeId> {
        let left = self.node(&operation.left)?;
        let left = self.conform(left, &operation.schema)?;
        let right = self.node(&operation.right)?;
        let right = self.conform(right, &operation.schema)?;
        let kind = match operation.kind {
            node::SetKind::Intersect => SetKind::Intersect,
            node::SetKind::Except => SetKind::Except,
        };
        let all = match operation.quantifier {
            node::Quantifier::All => All::Yes,
            node::Quantifier::Distinct => All::No,
        };
        let width = operation.schema.fields().len();
        self.add(Node::SetOperation(SetOperation { kind, all, width }), vec![left, right])
    }

    fn session_window(&mut self, window: &node::SessionWindow) -> Result<NodeId> {
        let input = self.node(&window.input)?;
        let width = self.plan.schema(input).fields().len();
        let schema = window.input.schema();
        let mut wanted = window
            .keys
            .iter()
            .map(|key| self.bind(key, schema))
            .collect::<Result<Vec<_>>>()?;
        wanted.push(self.bind(&window.time, schema)?);
        let (extended, mut places) = self.with_columns(input, wanted)?;
        let time = places
            .pop()
            .ok_or_else(|| Error::internal("a session window without a time"))?;
        let added = self.plan.schema(extended).fields().len();
        let shift = match window.label {
            Some(_) => self.shift(input, &window.time, schema)?,
            None => None,
        };
        let (below, lateness) = match (window.label, shift) {
            (Some(label), Some(shift_us)) => {
                let (below, judged) = self.judged(extended)?;
                let lateness = SessionLateness {
                    label,
                    shift_us,
                    judged,
                    listed: width,
                };
                (below, Some(lateness))
            }
            _ => (extended, None),
        };
        let session = SessionWindow {
            partition: places,
            time,
            gap_us: window.gap_micros,
            lateness,
        };
        let node = self.add(Node::SessionWindow(session), vec![below])?;
        // Of the columns that were added for keys and time nothing is left.
        let columns = self.columns(node);
        let kept = columns[..width].iter().chain(&columns[added..]).cloned().collect();
        self.map(node, None, kept)
    }
}
