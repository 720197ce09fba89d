//! PostgreSQL's functions, where DataFusion's are not the same.
//!
//! A function is found by name: first among the definitions of ours, which are tables of lines (`text`, `math`,
//! `datetime`, ...), then among those of DataFusion's that behave as PostgreSQL's ([`BORROWED`]). A name that is in
//! neither gives `42883` with the types it was called with.

pub mod aggregate;
mod array;
mod array_function;
pub mod cast;
mod chosen;
mod concatenation;
mod datetime;
pub mod decimal;
mod definition;
mod failure;
mod interval;
mod json;
mod json_function;
pub(crate) mod kernel;
mod math;
mod neighbour;
pub mod operator;
mod pattern;
mod ranking;
mod record;
mod session;
pub(crate) mod set_function;
pub(crate) mod special;
mod text;
mod to_char;
pub mod window;

pub(crate) use chosen::chooses;
pub use failure::can_fail;
pub(crate) use record::RECORD;

use crate::error::Error;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan, ScalarUDF, Volatility, WindowUDF};
use definition::Definition;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

/// What of a session functions depend on.
#[derive(Debug, Clone, Default)]
pub struct Session {
    /// The time zone, by name.
    pub zone: String,
    /// The user.
    pub user: String,
    /// The database.
    pub database: String,
    /// Where names are looked for.
    pub search_path: Vec<String>,
    /// The settings that `current_setting` reads.
    pub variables: BTreeMap<String, String>,
}

/// Functions of DataFusion's that do what PostgreSQL's do, by PostgreSQL's name and DataFusion's.
const BORROWED: &[(&str, &str)] = &[
    ("nullif", "nullif"),
    ("starts_with", "starts_with"),
    ("sha224", "sha224"),
    ("sha256", "sha256"),
    ("sha384", "sha384"),
    ("sha512", "sha512"),
];

/// The definitions of ours by name.
static DEFINED: LazyLock<HashMap<&'static str, &'static Definition>> =
    LazyLock::new(|| definitions().map(|definition| (definition.name, definition)).collect());

fn definitions() -> impl Iterator<Item = &'static Definition> {
    text::FUNCTIONS
        .iter()
        .chain(concatenation::FUNCTIONS)
        .chain(record::FUNCTIONS)
        .chain(math::FUNCTIONS)
        .chain(datetime::FUNCTIONS)
        .chain(json_function::FUNCTIONS)
        .chain(array_function::FUNCTIONS)
}

static DATAFUSION: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
    datafusion::functions::all_default_functions()
        .into_iter()
        .map(|function| (function.name().to_owned(), function))
        .collect()
});

static AGGREGATES: LazyLock<HashMap<String, Arc<AggregateUDF>>> = LazyLock::new(|| {
    let count = datafusion::functions_aggregate::count::count_udaf();
    // Its calls are replaced before a plan runs.
    let grouping = datafusion::functions_aggregate::grouping::grouping_udaf();
    let all = aggregate::all().chain([count, grouping]);
    all.map(|function| (function.name().to_owned(), function)).collect()
});

static WINDOWS: LazyLock<HashMap<String, Arc<WindowUDF>>> = LazyLock::new(|| {
    datafusion::functions_window::all_default_window_functions()
        .into_iter()
        .map(ranking::with_own_type)
        .chain(neighbour::all())
        .map(|function| (function.name().to_owned(), function))
        .collect()
});

/// Every function of ours and what it does, for the documentation.
pub fn registry() -> Vec<(&'static str, &'static str)> {
    let mut all: Vec<_> = definitions()
        .filter(|definition| !definition.name.starts_with("__"))
        .map(|definition| (definition.name, definition.doc))
        .chain(session::documented())
        .collect();
    all.sort_unstable();
    all
}

/// The scalar function of that name; a stand-in that says `42883` if there is none of any kind.
pub(crate) fn scalar(name: &str, session: &Session) -> Option<Arc<ScalarUDF>> {
    if let Some(definition) = DEFINED.get(name) {
        return Some(definition.function(&session.zone));
    }
    if let Some(function) = session::function(name, session) {
        return Some(function);
    }
    if let Some(function) = chosen::function(name) {
        return Some(function);
    }
    if let Some((_, theirs)) = BORROWED.iter().find(|(ours, _)| *ours == name) {
        return DATAFUSION.get(*theirs).cloned();
    }
    if aggregate(name).is_some() || window(name).is_some() || name == "unnest" {
        return None;
    }
    Some(session::stand_in(name))
}

/// Whether there is a scalar function of that name.
pub(crate) fn is_scalar(name: &str) -> bool {
    DEFINED.contains_key(name)
        || session::is_known(name)
        || chosen::function(name).is_some()
        || BORROWED.iter().any(|(ours, _)| *ours == name)
}

/// The aggregate of that name.
pub(crate) fn aggregate(name: &str) -> Option<Arc<AggregateUDF>> {
    AGGREGATES.get(name).cloned()
}

/// The window function of that name.
pub(crate) fn window(name: &str) -> Option<Arc<WindowUDF>> {
    WINDOWS.get(name).cloned()
}

/// `function f(integer, text) does not exist`.
pub(crate) fn missing(name: &str, types: &[String]) -> Error {
    Error::semantic("42883", format!("function {name}({}) does not exist", types.join(", ")))
        .with_hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}

/// A call of a function of ours, for those that the binder puts in itself.
pub(crate) fn call(name: &str, args: Vec<Expr>) -> Expr {
    match DEFINED.get(name) {
        Some(definition) => Expr::ScalarFunction(ScalarFunction::new_udf(definition.function("UTC"), args)),
        None => Expr::ScalarFunction(ScalarFunction::new_udf(session::stand_in(name), args)),
    }
}

/// The same under a session's time zone.
pub(crate) fn call_in_zone(name: &str, args: Vec<Expr>, zone: &str) -> Expr {
    match DEFINED.get(name) {
        Some(definition) => Expr::ScalarFunction(ScalarFunction::new_udf(definition.function(zone), args)),
        None => call(name, args),
    }
}

/// Whether an expression is `now()`.
pub fn is_now(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(function) if function.func.name() == "now")
}

/// The name of a function in the plan that gives another answer each time, if there is one; `now()` is not one.
pub fn volatile_function(plan: &LogicalPlan) -> Option<String> {
    let mut found = None;
    let _ = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(function) = expr
                    && function.func.signature().volatility == Volatility::Volatile
                    && !is_now(expr)
                {
                    found = Some(function.func.name().to_owned());
                    return Ok(TreeNodeRecursion::Stop);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    found
}
