//! "What do many rows come to?" The aggregate functions, and what is kept of a group's rows to compute them.
//!
//! Two kinds of state serve all functions. A *fold* is a few numbers to which rows are added and from which they are
//! taken (`count`, `sum`, variance). A *bag* holds the arguments of the group's rows, in the order of the call (`min`,
//! `array_agg`, DISTINCT). Maintained views keep both from epoch to epoch; a query that runs once, and a window's
//! frame, make them as they go ([`tally`]).

pub(crate) mod bag;
pub(crate) mod decimal;
pub(crate) mod exact;
mod extreme;
pub(crate) mod fold;
mod json;
mod moments;
mod percentile;
pub(crate) mod state;
mod sum;
pub(crate) mod tally;

use crate::delta::RowOrder;
use arrow::datatypes::FieldRef;

/// One call of an aggregate function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Call {
    /// The function.
    pub function: Function,
    /// The columns of its arguments.
    pub arguments: Vec<usize>,
    /// Whether equal arguments count once.
    pub distinct: Distinct,
    /// The boolean column that says which rows count.
    pub filter: Option<usize>,
    /// The order in which rows are taken; row order of the arguments breaks ties.
    pub order: Vec<(usize, RowOrder)>,
    /// The field of the result.
    pub field: FieldRef,
}

/// Whether equal arguments count once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Distinct {
    /// Each row counts.
    No,
    /// Equal arguments count once.
    Yes,
}

/// An aggregate function. NULL arguments are left out, except where it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Function {
    /// The number of rows whose first argument is not NULL, or of all rows when there is no argument.
    Count,
    /// The sum.
    Sum,
    /// The mean.
    Avg,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// `Min` of input that is proven to only grow.
    LeastSoFar,
    /// `Max` of input that is proven to only grow.
    GreatestSoFar,
    /// Whether all are true.
    BoolAnd,
    /// Whether one is true.
    BoolOr,
    /// The bitwise and of integers.
    BitAnd,
    /// The bitwise or of integers.
    BitOr,
    /// The bitwise exclusive or of integers.
    BitXor,
    /// The texts one after another, each but the first after its separator, which is the second argument.
    StringAgg,
    /// All values, NULLs too, in an array.
    ArrayAgg,
    /// The first value in the order, even if it is NULL.
    FirstValue,
    /// The last value in the order, even if it is NULL.
    LastValue,
    /// Some value that is not NULL: the first in row order.
    AnyValue,
    /// The value of the only row; a group with more fails with `21000`.
    SingleValue,
    /// The variance of the population.
    VarPop,
    /// The variance of the sample.
    VarSamp,
    /// The standard deviation of the population.
    StddevPop,
    /// The standard deviation of the sample.
    StddevSamp,
    /// The covariance of the population; the arguments are Y, X.
    CovarPop,
    /// The covariance of the sample; Y, X.
    CovarSamp,
    /// The correlation; Y, X.
    Corr,
    /// The number of rows in which neither is NULL; Y, X.
    RegrCount,
    /// The mean of X; Y, X.
    RegrAvgx,
    /// The mean of Y; Y, X.
    RegrAvgy,
    /// The sum of squares of X; Y, X.
    RegrSxx,
    /// The sum of squares of Y; Y, X.
    RegrSyy,
    /// The sum of products; Y, X.
    RegrSxy,
    /// The slope of the fitted line; Y, X.
    RegrSlope,
    /// Where the fitted line meets the Y axis; Y, X.
    RegrIntercept,
    /// The square of the correlation; Y, X.
    RegrR2,
    /// The value at a fraction of the order, interpolated. The arguments are the value, as a float, and the fraction,
    /// which is the same in all rows; an array of fractions gives an array of values.
    PercentileCont,
    /// The first value at or after a fraction of the order. Arguments as of `PercentileCont`.
    PercentileDisc,
    /// The most frequent value, of several the first in the order.
    Mode,
    /// All values, NULLs too, in a json array. The argument is json.
    JsonAgg,
    /// The same in a jsonb array.
    JsonbAgg,
    /// A json object of the keys (the first argument, text) and values (the second, json).
    JsonObjectAgg,
    /// A jsonb object; of several equal keys the last counts.
    JsonbObjectAgg,
}
