//! The aggregate functions, for the batch side: their names, and PostgreSQL's types.
//!
//! What they compute is [`crate::aggregate`]'s, as in maintained views ([`accumulate`]). Only `count` is DataFusion's
//! own.
//!
//! | argument | `sum` | `avg`, `var*`, `stddev*` |
//! |---|---|---|
//! | smallint, integer | bigint | quotient |
//! | bigint | numeric(38,0) | quotient |
//! | numeric(p,s) | numeric(76,s) | quotient |
//! | numeric | numeric | quotient |
//! | real | real | double precision |
//! | double precision | double precision | double precision |
//! | interval | interval | interval; no variance |

mod accumulate;

use super::cast::{is_float, is_integer, is_numeric, is_text};
use crate::aggregate::{Call, Distinct, Function};
use crate::delta::RowOrder;
use crate::error::{Error, Result};
use crate::sql::error::external;
use crate::types::{Nullability, Type};
use accumulate::{Groups, One, Order};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, Signature, Volatility};
use std::sync::Arc;

/// The functions by name.
const FUNCTIONS: &[(&str, Function)] = &[
    ("count", Function::Count),
    ("sum", Function::Sum),
    ("avg", Function::Avg),
    ("min", Function::Min),
    ("max", Function::Max),
    ("bool_and", Function::BoolAnd),
    ("every", Function::BoolAnd),
    ("bool_or", Function::BoolOr),
    ("bit_and", Function::BitAnd),
    ("bit_or", Function::BitOr),
    ("bit_xor", Function::BitXor),
    ("string_agg", Function::StringAgg),
    ("array_agg", Function::ArrayAgg),
    ("json_agg", Function::JsonAgg),
    ("jsonb_agg", Function::JsonbAgg),
    ("json_object_agg", Function::JsonObjectAgg),
    ("jsonb_object_agg", Function::JsonbObjectAgg),
    ("first_value", Function::FirstValue),
    ("last_value", Function::LastValue),
    ("any_value", Function::AnyValue),
    ("var_pop", Function::VarPop),
    ("var_samp", Function::VarSamp),
    ("variance", Function::VarSamp),
    ("stddev_pop", Function::StddevPop),
    ("stddev", Function::StddevSamp),
    ("stddev_samp", Function::StddevSamp),
    ("covar_pop", Function::CovarPop),
    ("covar_samp", Function::CovarSamp),
    ("corr", Function::Corr),
    ("regr_count", Function::RegrCount),
    ("regr_avgx", Function::RegrAvgx),
    ("regr_avgy", Function::RegrAvgy),
    ("regr_sxx", Function::RegrSxx),
    ("regr_syy", Function::RegrSyy),
    ("regr_sxy", Function::RegrSxy),
    ("regr_slope", Function::RegrSlope),
    ("regr_intercept", Function::RegrIntercept),
    ("regr_r2", Function::RegrR2),
    ("percentile_cont", Function::PercentileCont),
    ("percentile_disc", Function::PercentileDisc),
    ("mode", Function::Mode),
    // The binder writes these as others.
    (APPROX_COUNT_DISTINCT, Function::Count),
    (APPROX_PERCENTILE, Function::PercentileDisc),
    (MEDIAN, Function::PercentileCont),
];

/// `count(DISTINCT x)`: its error is 0.
pub(crate) const APPROX_COUNT_DISTINCT: &str = "approx_count_distinct";
/// `percentile_disc(p) WITHIN GROUP (ORDER BY x)`: its error is 0.
pub(crate) const APPROX_PERCENTILE: &str = "approx_percentile";
/// `percentile_cont(0.5) WITHIN GROUP (ORDER BY x)`.
pub(crate) const MEDIAN: &str = "median";

/// The function of that name.
pub fn function_of(name: &str) -> Option<Function> {
    FUNCTIONS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, function)| *function)
}

/// Whether the function takes its values from WITHIN GROUP.
pub(crate) fn is_ordered_set(function: Function) -> bool {
    matches!(
        function,
        Function::PercentileCont | Function::PercentileDisc | Function::Mode
    )
}

/// The aggregates of ours.
pub(super) fn all() -> impl Iterator<Item = Arc<AggregateUDF>> {
    FUNCTIONS
        .iter()
        .filter(|(name, _)| *name != "count")
        .map(|(name, function)| Ours::function(name, *function, Use::Grouped))
}

/// The function as the aggregate of a window's frame, which takes rows in the window's order.
pub(crate) fn of_frame(function: &AggregateUDF) -> Option<Arc<AggregateUDF>> {
    let ours = function.inner().downcast_ref::<Ours>()?;
    Some(Ours::function(ours.name, ours.function, Use::Framed))
}

/// What rows an aggregate is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Use {
    /// A group's.
    Grouped,
    /// Those in a window's frame.
    Framed,
}

/// An aggregate function as DataFusion calls it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Ours {
    name: &'static str,
    function: Function,
    usage: Use,
    signature: Signature,
}

impl Ours {
    fn function(name: &'static str, function: Function, usage: Use) -> Arc<AggregateUDF> {
        Arc::new(AggregateUDF::new_from_impl(Self {
            name,
            function,
            usage,
            signature: Signature::user_defined(Volatility::Immutable),
        }))
    }

    /// The types that the arguments are cast to, and that of the result; `None` if the function does not take them.
    fn resolve(&self, given: &[Type]) -> Option<(Vec<Type>, Type)> {
        use Function as F;
        let same = |result: Type| Some((given.to_vec(), result));
        match (self.function, given) {
            (F::Sum | F::Avg, [Type::Unknown]) => Some((vec![Type::Float8], Type::Float8)),
            (F::Sum, [kind]) => same(sum_of(kind)?),
            (F::Avg, [Type::Interval]) => same(Type::Interval),
            (F::Avg | F::VarPop | F::VarSamp | F::StddevPop | F::StddevSamp, [kind]) => match kind {
                Type::Unknown => Some((vec![Type::Float8], Type::Float8)),
                kind if is_float(kind) => same(Type::Float8),
                kind if is_integer(kind) || is_numeric(kind) => same(Type::Quotient),
                _ => None,
            },
            (F::Min | F::Max, [kind]) => match kind {
                Type::Unknown | Type::Varchar(_) => Some((vec![Type::Text], Type::Text)),
                Type::Char(_) => same(Type::Char(None)),
                Type::Bool | Type::Uuid | Type::Json | Type::Jsonb | Type::Bytea | Type::Record(_) => None,
                kind => same(kind.clone()),
            },
            (F::BoolAnd | F::BoolOr, [Type::Bool | Type::Unknown]) => Some((vec![Type::Bool], Type::Bool)),
            (F::BitAnd | F::BitOr | F::BitXor, [kind]) if is_integer(kind) => same(kind.clone()),
            (F::StringAgg, [Type::Bytea, Type::Bytea | Type::Unknown]) => {
                Some((vec![Type::Bytea, Type::Bytea], Type::Bytea))
            }
            (F::StringAgg, [value, separator]) if is_textual(value) && is_textual(separator) => {
                Some((vec![Type::Text, Type::Text], Type::Text))
            }
            (F::ArrayAgg, [kind]) => same(Type::Array(Box::new(known(kind)))),
            (F::JsonAgg, [_]) => same(Type::Json),
            (F::JsonbAgg, [_]) => same(Type::Jsonb),
            (F::JsonObjectAgg, [_, _]) => same(Type::Json),
            (F::JsonbObjectAgg, [_, _]) => same(Type::Jsonb),
            (F::FirstValue | F::LastValue | F::AnyValue | F::Mode, [kind]) => same(known(kind)),
            (F::Count, [_]) => same(Type::Int8),
            (F::PercentileCont, [value, fraction]) if counts_as_float(value) => {
                let (fraction, result) = at_fractions(fraction, Type::Float8)?;
                Some((vec![Type::Float8, fraction], result))
            }
            (F::PercentileDisc, [value, fraction]) => {
                let (fraction, result) = at_fractions(fraction, known(value))?;
                Some((vec![value.clone(), fraction], result))
            }
            (
                F::CovarPop
                | F::CovarSamp
                | F::Corr
                | F::RegrCount
                | F::RegrAvgx
                | F::RegrAvgy
                | F::RegrSxx
                | F::RegrSyy
                | F::RegrSxy
                | F::RegrSlope
                | F::RegrIntercept
                | F::RegrR2,
                [y, x],
            ) if counts_as_float(y) && counts_as_float(x) => {
                let result = match self.function {
                    F::RegrCount => Type::Int8,
                    _ => Type::Float8,
                };
                Some((vec![Type::Float8, Type::Float8], result))
            }
            _ => None,
        }
    }

    fn resolved(&self, given: &[Type]) -> DataFusionResult<(Vec<Type>, Type)> {
        self.resolve(given).ok_or_else(|| {
            let names: Vec<String> = given.iter().map(ToString::to_string).collect();
            external(super::missing(self.name, &names))
        })
    }

    /// The call that an accumulator computes: the columns are the arguments, then the order's.
    fn call(&self, args: &AccumulatorArgs<'_>, growth: Growth) -> Result<(Call, Vec<DataType>, Order)> {
        let mut types: Vec<DataType> = args.expr_fields.iter().map(|field| field.data_type().clone()).collect();
        let mut order = Vec::new();
        let arguments: Vec<usize> = (0..types.len()).collect();
        for sort in args.order_bys {
            let own = args.exprs.iter().position(|argument| argument == &sort.expr);
            let kind = sort.expr.data_type(args.schema);
            types.push(kind.map_err(crate::sql::error::from_datafusion)?);
            let direction = RowOrder {
                descending: sort.options.descending,
                nulls_first: sort.options.nulls_first,
            };
            order.push((own.unwrap_or(types.len() - 1), direction));
        }
        let mut placed = Order::Given;
        if self.usage == Use::Framed {
            placed = Order::Arrival;
            order.push((types.len(), RowOrder::ASCENDING));
            types.push(DataType::Int64);
        }
        let function = match (self.function, growth) {
            (Function::Min, Growth::Only) => Function::LeastSoFar,
            (Function::Max, Growth::Only) => Function::GreatestSoFar,
            (other, _) => other,
        };
        let call = Call {
            function,
            arguments,
            distinct: if args.is_distinct { Distinct::Yes } else { Distinct::No },
            filter: None,
            order,
            field: args.return_field.clone(),
        };
        Ok((call, types, placed))
    }
}

/// Whether rows leave again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Growth {
    /// They do not.
    Only,
    /// They may.
    AndRetraction,
}

fn sum_of(argument: &Type) -> Option<Type> {
    Some(match argument {
        Type::Int2 | Type::Int4 => Type::Int8,
        Type::Int8 => Type::Numeric(Some((38, 0))),
        Type::Numeric(Some((_, scale))) => Type::Numeric(Some((76, *scale))),
        Type::Numeric(None) | Type::Quotient | Type::Float4 | Type::Float8 | Type::Interval => argument.clone(),
        _ => return None,
    })
}

fn known(kind: &Type) -> Type {
    match kind {
        Type::Unknown => Type::Text,
        other => other.clone(),
    }
}

fn is_textual(kind: &Type) -> bool {
    *kind == Type::Unknown || is_text(kind)
}

fn counts_as_float(kind: &Type) -> bool {
    *kind == Type::Unknown || is_integer(kind) || is_numeric(kind) || is_float(kind)
}

/// The type of a percentile's fraction, or fractions, and of its result.
fn at_fractions(fraction: &Type, value: Type) -> Option<(Type, Type)> {
    match fraction {
        Type::Array(item) if counts_as_float(item) => {
            Some((Type::Array(Box::new(Type::Float8)), Type::Array(Box::new(value))))
        }
        kind if counts_as_float(kind) => Some((Type::Float8, value)),
        _ => None,
    }
}

impl AggregateUDFImpl for Ours {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let given: Vec<Type> = types.iter().map(Type::of_arrow).collect();
        let (targets, _) = self.resolved(&given)?;
        let cast = |(target, kind): (&Type, &DataType)| match Type::of_arrow(kind) == *target {
            true => kind.clone(),
            false => target.arrow(),
        };
        Ok(targets.iter().zip(types).map(cast).collect())
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        let given: Vec<Type> = types.iter().map(Type::of_arrow).collect();
        Ok(self.resolved(&given)?.1.arrow())
    }

    fn return_field(&self, fields: &[FieldRef]) -> DataFusionResult<FieldRef> {
        let given: Vec<Type> = fields.iter().map(|field| Type::of_field(field)).collect();
        let (_, result) = self.resolved(&given)?;
        Ok(Arc::new(result.field(self.name, Nullability::Nullable)))
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn Accumulator>> {
        let (call, types, order) = self.call(&args, Growth::Only).map_err(external)?;
        Ok(Box::new(One::new(&call, &types, order).map_err(external)?))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn Accumulator>> {
        let (call, types, order) = self.call(&args, Growth::AndRetraction).map_err(external)?;
        Ok(Box::new(One::new(&call, &types, order).map_err(external)?))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        self.usage == Use::Grouped
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn GroupsAccumulator>> {
        let (call, types, _) = self.call(&args, Growth::Only).map_err(external)?;
        Ok(Box::new(Groups::new(call, types).map_err(external)?))
    }

    fn state_fields(&self, _: StateFieldsArgs<'_>) -> DataFusionResult<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new("state", DataType::Binary, true))])
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        // The order's columns are wanted, not ordered input.
        AggregateOrderSensitivity::Beneficial
    }

    fn with_beneficial_ordering(self: Arc<Self>, _: bool) -> DataFusionResult<Option<Arc<dyn AggregateUDFImpl>>> {
        Ok(Some(self))
    }

    fn supports_within_group_clause(&self) -> bool {
        is_ordered_set(self.function) && self.name != MEDIAN
    }
}

/// The error for an ordered-set aggregate that is called like another one.
pub(crate) fn within_group_required(name: &str) -> Error {
    Error::semantic(
        "42809",
        format!("WITHIN GROUP is required for ordered-set aggregate {name}"),
    )
}
