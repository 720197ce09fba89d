//! Window functions: every row with what it sees of its partition.

use super::Lowering;
use super::aggregate::{function_of, is_wildcard};
use super::top::window_function;
use crate::error::{Error, Result};
use crate::expr::Expression;
use crate::operator::over::{Bound, Exclusion, Frame, FrameUnit, NullTreatment, Over, OverCall, OverFunction};
use crate::plan::{Node, NodeId};
use arrow::datatypes::FieldRef;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{self, WindowFunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, Operator, SortExpr, Window, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowFunctionDefinition,
};
use std::sync::Arc;

impl Lowering {
    pub(super) fn window(&mut self, window: &Window) -> Result<NodeId> {
        let input = self.node(&window.input)?;
        self.window_over(window, input)
    }

    /// The window's functions over a node with the columns of its input. Functions over the same partition and order
    /// are computed together.
    pub(super) fn window_over(&mut self, window: &Window, input: NodeId) -> Result<NodeId> {
        let width = self.plan.width(input);
        let mut node = input;
        let mut overs: Vec<(Over, Vec<usize>)> = Vec::new();
        for (index, expr) in window.window_expr.iter().enumerate() {
            let field = window.schema.field(width + index).clone();
            let (extended, over) = self.over(window_function(expr)?, window.input.schema(), node, field)?;
            node = extended;
            match overs
                .iter_mut()
                .find(|(known, _)| known.partition == over.partition && known.order == over.order)
            {
                Some((known, indices)) => {
                    known.calls.extend(over.calls);
                    indices.push(index);
                }
                None => overs.push((over, vec![index])),
            }
        }
        let mut places = vec![0; window.window_expr.len()];
        for (over, indices) in overs {
            let first = self.plan.width(node);
            for (offset, index) in indices.into_iter().enumerate() {
                places[index] = first + offset;
            }
            node = self.add(Node::Over(over), vec![node])?;
        }
        let columns = self.columns(node);
        let results = places.into_iter().map(|place| columns[place].clone());
        let kept: Vec<Expression> = columns[..width].iter().cloned().chain(results).collect();
        self.map(node, None, kept)
    }

    /// One function: what computes it, over the input with the columns that it needs.
    fn over(
        &mut self,
        function: &WindowFunction,
        schema: &DFSchema,
        input: NodeId,
        field: FieldRef,
    ) -> Result<(NodeId, Over)> {
        let params = &function.params;
        if params.distinct {
            return Err(Error::unsupported("DISTINCT is not implemented for window functions"));
        }
        let keys = params
            .partition_by
            .iter()
            .map(|expr| self.bind(expr, schema))
            .collect::<Result<Vec<_>>>()?;
        let (node, partition) = self.with_columns(input, keys)?;
        let (node, order) = self.ordered(node, &params.order_by, schema)?;
        let arguments = match counts_rows(function) {
            true => Vec::new(),
            false => params
                .args
                .iter()
                .map(|expr| self.bind(expr, schema))
                .collect::<Result<Vec<_>>>()?,
        };
        let (node, arguments) = self.with_columns(node, arguments)?;
        let filter = params
            .filter
            .iter()
            .map(|expr| self.bind(expr, schema))
            .collect::<Result<Vec<_>>>()?;
        let (node, filter) = self.with_columns(node, filter)?;
        let (node, frame) = self.frame(node, &params.window_frame, &params.order_by, schema)?;
        let call = OverCall {
            function: over_function(&function.fun)?,
            arguments,
            frame,
            nulls: match params.null_treatment {
                Some(expr::NullTreatment::IgnoreNulls) => NullTreatment::Ignore,
                _ => NullTreatment::Respect,
            },
            filter: filter.first().copied(),
            field: Arc::new(field.as_ref().clone().with_name("").with_nullable(true)),
        };
        Ok((
            node,
            Over {
                partition,
                order,
                calls: vec![call],
            },
        ))
    }

    /// The frame of a function; the edges of a RANGE become columns.
    fn frame(
        &mut self,
        input: NodeId,
        frame: &WindowFrame,
        order: &[SortExpr],
        schema: &DFSchema,
    ) -> Result<(NodeId, Frame)> {
        let unit = match frame.units {
            WindowFrameUnits::Rows => FrameUnit::Rows,
            WindowFrameUnits::Groups => FrameUnit::Groups,
            WindowFrameUnits::Range => FrameUnit::Range,
        };
        let mut node = input;
        let mut edge = |lowering: &mut Self, bound: &WindowFrameBound| -> Result<Bound> {
            let (value, sign) = match bound {
                WindowFrameBound::CurrentRow => return Ok(Bound::CurrentRow),
                WindowFrameBound::Preceding(value) if value.is_null() => return Ok(Bound::UnboundedPreceding),
                WindowFrameBound::Following(value) if value.is_null() => return Ok(Bound::UnboundedFollowing),
                WindowFrameBound::Preceding(value) => (value, Operator::Minus),
                WindowFrameBound::Following(value) => (value, Operator::Plus),
            };
            if unit != FrameUnit::Range {
                let count = count_of(value)?;
                return Ok(if sign == Operator::Minus {
                    Bound::Preceding(count)
                } else {
                    Bound::Following(count)
                });
            }
            let [sort] = order else {
                return Err(Error::semantic(
                    "42P20",
                    "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column",
                ));
            };
            let sign = match (sign, sort.asc) {
                (sign, true) => sign,
                (Operator::Minus, false) => Operator::Plus,
                (_, false) => Operator::Minus,
            };
            let column = lowering.bind(&sort.expr, schema)?;
            let offset = Expr::Literal(value.clone(), None);
            let shifted = Expr::BinaryExpr(BinaryExpr::new(Box::new(sort.expr.clone()), sign, Box::new(offset)));
            let shifted = lowering.bind(&shifted, schema)?.cast(column.field());
            let (extended, places) = lowering.with_columns(node, vec![shifted])?;
            node = extended;
            Ok(Bound::Value(places[0]))
        };
        let start = edge(self, &frame.start_bound)?;
        let end = edge(self, &frame.end_bound)?;
        Ok((
            node,
            Frame {
                unit,
                start,
                end,
                exclusion: Exclusion::NoOthers,
            },
        ))
    }
}

fn count_of(value: &ScalarValue) -> Result<u64> {
    let count = match value {
        ScalarValue::UInt64(count) => *count,
        ScalarValue::Int64(count) => count.and_then(|count| u64::try_from(count).ok()),
        ScalarValue::Int32(count) => count.and_then(|count| u64::try_from(count).ok()),
        _ => None,
    };
    count.ok_or_else(|| Error::semantic("22013", "frame starting offset must not be negative"))
}

/// `count(*) OVER ...`: every row counts.
fn counts_rows(function: &WindowFunction) -> bool {
    function.fun.name() == "count"
        && function
            .params
            .args
            .iter()
            .all(|argument| matches!(argument, Expr::Literal(value, _) if !value.is_null()) || is_wildcard(argument))
}

fn over_function(definition: &WindowFunctionDefinition) -> Result<OverFunction> {
    Ok(match definition.name() {
        "row_number" => OverFunction::RowNumber,
        "rank" => OverFunction::Rank,
        "dense_rank" => OverFunction::DenseRank,
        "percent_rank" => OverFunction::PercentRank,
        "cume_dist" => OverFunction::CumeDist,
        "ntile" => OverFunction::Ntile,
        "lag" => OverFunction::Lag,
        "lead" => OverFunction::Lead,
        "first_value" => OverFunction::FirstValue,
        "last_value" => OverFunction::LastValue,
        "nth_value" => OverFunction::NthValue,
        other => OverFunction::Aggregate(function_of(other)?),
    })
}
