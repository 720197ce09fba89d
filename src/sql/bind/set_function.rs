//! Calls of aggregates, as they are computed: JSON aggregates take their values as json, `median` and the approximate
//! ones are others in disguise, and a window's aggregates take rows in its order.

use super::expression::Operators;
use crate::aggregate::Function;
use crate::error::Error;
use crate::sql::error::external;
use crate::sql::function::aggregate::{
    APPROX_COUNT_DISTINCT, APPROX_PERCENTILE, MEDIAN, function_of, is_ordered_set, of_frame, within_group_required,
};
use crate::sql::function::{self, call_in_zone};
use crate::types::{Nullability, Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::planner::{RawAggregateExpr, RawWindowExpr};
use datafusion::logical_expr::{AggregateUDF, Cast, Expr, SortExpr, WindowFunctionDefinition};
use std::sync::Arc;

impl Operators {
    /// A call in a SELECT list or HAVING.
    pub(super) fn aggregate(&self, mut call: RawAggregateExpr) -> Result<RawAggregateExpr> {
        let name = call.func.name().to_owned();
        if call.distinct && !call.order_by.iter().all(|sort| call.args.contains(&sort.expr)) {
            return Err(external(Error::semantic(
                "42P10",
                "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list",
            )));
        }
        match (name.as_str(), call.args.len()) {
            (APPROX_COUNT_DISTINCT, 1) => {
                call.func = known("count", call.func);
                call.distinct = true;
            }
            (MEDIAN, 1) => {
                call.order_by = vec![ascending(call.args[0].clone())];
                call.args.push(Expr::Literal(ScalarValue::Float64(Some(0.5)), None));
                call.func = known("percentile_cont", call.func);
            }
            (APPROX_PERCENTILE, 2) => {
                if call.order_by.is_empty() {
                    call.order_by = vec![ascending(call.args[0].clone())];
                }
                call.func = known("percentile_disc", call.func);
            }
            _ => {
                let function = function_of(&name);
                if function.is_some_and(is_ordered_set) && call.order_by.is_empty() && name != MEDIAN {
                    return Err(external(within_group_required(&name)));
                }
                if let Some(function) = function {
                    call.args = self.as_json(function, call.args);
                }
            }
        }
        Ok(call)
    }

    /// A call with OVER.
    pub(super) fn window_aggregate(&self, mut call: RawWindowExpr) -> Result<RawWindowExpr> {
        let WindowFunctionDefinition::AggregateUDF(udaf) = &call.func_def else {
            return Ok(call);
        };
        if call.distinct {
            return Err(external(Error::unsupported(
                "DISTINCT is not implemented for window functions",
            )));
        }
        let name = udaf.name();
        let function = function_of(name);
        if function.is_some_and(is_ordered_set) || name == APPROX_COUNT_DISTINCT {
            return Err(external(Error::unsupported(format!(
                "OVER is not supported for ordered-set aggregate {name}"
            ))));
        }
        if let Some(framed) = of_frame(udaf) {
            call.func_def = WindowFunctionDefinition::AggregateUDF(framed);
        }
        if let Some(function) = function {
            call.args = self.as_json(function, call.args);
        }
        Ok(call)
    }

    /// The arguments of a JSON aggregate: values as json, keys as text.
    fn as_json(&self, function: Function, args: Vec<Expr>) -> Vec<Expr> {
        let element = match function {
            Function::JsonAgg => "__json_element",
            Function::JsonObjectAgg => "to_json",
            Function::JsonbAgg | Function::JsonbObjectAgg => "to_jsonb",
            _ => return args,
        };
        let last = args.len().saturating_sub(1);
        let convert = |(place, argument): (usize, Expr)| {
            if place < last {
                let text = Arc::new(Type::Text.field("cast", Nullability::Nullable));
                return Expr::Cast(Cast::new_from_field(Box::new(argument), text));
            }
            call_in_zone(element, vec![argument], &self.zone)
        };
        args.into_iter().enumerate().map(convert).collect()
    }
}

fn known(name: &str, otherwise: Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    function::aggregate(name).unwrap_or(otherwise)
}

fn ascending(expr: Expr) -> SortExpr {
    SortExpr::new(expr, true, false)
}
