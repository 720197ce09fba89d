//! Windows over a relation: TUMBLE, HOP, CUMULATE, SESSION, and the window clause.

use super::set::{LIST, constant};
use super::{Arguments, Relations, all_columns, event_time, far_ahead, literal_text, refuse};
use crate::catalog::RelationKind;
use crate::error::Error;
use crate::sql::bind::analyse;
use crate::sql::bind::desugar::argument_expression;
use crate::sql::bind::expression::type_of;
use crate::sql::bind::node::{self, Clause, RefuseLate, SessionWindow, WindowClause};
use crate::sql::bind::relation::RelationSource;
use crate::sql::error::external;
use crate::sql::function::cast::{Context, cast_expression};
use crate::sql::function::special;
use crate::sql::function::window::{WINDOWS_PER_ROW_MAX, WindowFunction, Windows, length_micros, offset_micros};
use crate::types::{Nullability, Type};
use arrow::datatypes::IntervalMonthDayNano;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, NullHandling, Result as DataFusionResult, ScalarValue, UnnestOptions};
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlannerContext};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use sqlparser::ast::{self, TableAlias};
use std::sync::Arc;

impl Relations {
    /// The column of time, `ts` or `DESCRIPTOR(ts)`.
    fn time(
        &self,
        expr: &ast::Expr,
        schema: &DFSchema,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<Expr> {
        let expr = match expr {
            ast::Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("descriptor") => {
                match &function.args {
                    ast::FunctionArguments::List(list) => {
                        list.args.first().and_then(argument_expression).unwrap_or(expr)
                    }
                    _ => expr,
                }
            }
            other => other,
        };
        let time = context.sql_to_expr(expr.clone(), schema)?;
        match type_of(&time, schema)? {
            Type::Timestamp(_) | Type::Timestamptz(_) => Ok(time),
            kind => refuse(
                Error::semantic("42804", format!("the time of a window must be a timestamp, not {kind}"))
                    .with_hint("Cast it: (SELECT *, x::timestamp AS ts FROM ...)."),
            ),
        }
    }

    /// A constant interval.
    fn interval(
        &self,
        expr: &ast::Expr,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<IntervalMonthDayNano> {
        let empty = DFSchema::empty();
        let expr = context.sql_to_expr(expr.clone(), &empty)?;
        let expr = analyse::expression(expr, &empty, &self.zone).map_err(external)?;
        let kind = type_of(&expr, &empty)?;
        let expr = cast_expression(expr, &kind, &Type::Interval, Context::Implicit, &self.zone).map_err(external)?;
        match constant(&expr).map_err(external)? {
            Some(ScalarValue::IntervalMonthDayNano(Some(interval))) => Ok(interval),
            Some(ScalarValue::Utf8(Some(text))) => crate::types::interval::read_interval(&text).map_err(external),
            _ => refuse(Error::semantic(
                "22023",
                "the length of a window must be a constant interval",
            )),
        }
    }

    fn length(&self, expr: &ast::Expr, what: &str, context: &mut dyn RelationPlannerContext) -> DataFusionResult<i64> {
        length_micros(self.interval(expr, context)?, what).map_err(external)
    }

    fn offset(&self, expr: Option<&ast::Expr>, context: &mut dyn RelationPlannerContext) -> DataFusionResult<i64> {
        match expr {
            Some(expr) => offset_micros(self.interval(expr, context)?, "window offset").map_err(external),
            None => Ok(0),
        }
    }

    pub(super) fn window(
        &self,
        name: &str,
        arguments: &Arguments<'_>,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<LogicalPlan> {
        let missing = |what: &str| external(Error::syntax(format!("{}() needs {what}", name.to_uppercase())));
        let at = |index: usize| arguments.positional.get(index).copied();
        let data = arguments
            .named(&["data"])
            .or(at(0))
            .ok_or_else(|| missing("a relation"))?;
        let input = self.input(data, context)?;
        known_names(name, arguments)?;
        no_windows_yet(&input)?;
        if name == "session" {
            return self.session(input, arguments, context);
        }
        let named = arguments.named(&["timecol", "time"]);
        let time = named.or(at(1)).ok_or_else(|| missing("a column of time"))?;
        let time = self.time(time, &input.schema().clone(), context)?;
        // With named arguments the positions tell nothing.
        let rest = |index: usize, names: &[&str]| {
            arguments
                .named(names)
                .or(if named.is_some() { None } else { at(index) })
        };
        let most = if name == "tumble" { 4 } else { 5 };
        if arguments.positional.len() > most {
            return Err(external(Error::syntax(format!(
                "too many arguments for {}()",
                name.to_uppercase()
            ))));
        }
        match name {
            "tumble" => {
                let size = rest(2, &["size"]).ok_or_else(|| missing("a size"))?;
                let size = self.length(size, "window size", context)?;
                let offset = self.offset(rest(3, &["offset"]), context)?;
                tumble(input, time, size, offset)
            }
            "hop" => {
                let slide = rest(2, &["slide"]).ok_or_else(|| missing("a slide"))?;
                let slide = self.length(slide, "window slide", context)?;
                let size = rest(3, &["size"]).ok_or_else(|| missing("a size"))?;
                let size = self.length(size, "window size", context)?;
                let offset = self.offset(rest(4, &["offset"]), context)?;
                few_enough(size, slide)?;
                hop(input, time, slide, size, offset)
            }
            _ => {
                let step = rest(2, &["step"]).ok_or_else(|| missing("a step"))?;
                let step = self.length(step, "window step", context)?;
                let size = rest(3, &["size"]).ok_or_else(|| missing("a size"))?;
                let size = self.length(size, "window size", context)?;
                let offset = self.offset(rest(4, &["offset"]), context)?;
                few_enough(size, step)?;
                cumulate(input, time, step, size, offset)
            }
        }
    }

    /// `SESSION(relation, keys..., time, gap)`.
    fn session(
        &self,
        input: LogicalPlan,
        arguments: &Arguments<'_>,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<LogicalPlan> {
        let schema = input.schema().clone();
        let positional = &arguments.positional;
        let (keys, time, gap) = match arguments.named(&["gap", "size"]) {
            Some(gap) => {
                let time = arguments.named(&["timecol", "time"]);
                let keys = positional
                    .iter()
                    .skip(usize::from(arguments.named(&["data"]).is_none()));
                (keys.copied().collect::<Vec<_>>(), time, Some(gap))
            }
            None if positional.len() >= 3 => {
                let count = positional.len();
                (
                    positional[1..count - 2].to_vec(),
                    Some(positional[count - 2]),
                    Some(positional[count - 1]),
                )
            }
            None => (Vec::new(), None, None),
        };
        let (Some(time), Some(gap)) = (time, gap) else {
            return refuse(Error::syntax("SESSION() needs a relation, a column of time and a gap"));
        };
        let time = self.time(time, &schema, context)?;
        let gap_micros = self.length(gap, "session gap", context)?;
        let keys = keys
            .into_iter()
            .map(|key| context.sql_to_expr(key.clone(), &schema))
            .collect::<DataFusionResult<Vec<_>>>()?;
        let input = with_time(input, &time)?;
        session(input, keys, time, gap_micros)
    }

    pub(super) fn window_clause(
        &self,
        arguments: &Arguments<'_>,
        alias: &Option<TableAlias>,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<PlannedRelation> {
        let positional = &arguments.positional;
        let (Some(data), Some(kind)) = (
            positional.first(),
            positional.get(1).and_then(|kind| literal_text(kind)),
        ) else {
            return refuse(Error::internal("a window clause without its parts"));
        };
        let input = self.input(data, context)?;
        if matches!(kind, "tumble" | "hop" | "cumulate" | "session") {
            no_windows_yet(&input)?;
        }
        let schema = input.schema().clone();
        let time = event_time(&input);
        let stream = far_ahead(&input).filter(|_| time.is_some());
        let interval = |index: usize, context: &mut dyn RelationPlannerContext| match positional.get(index) {
            Some(expr) => self.length(expr, "window length", context),
            None => refuse(Error::syntax("a window clause needs a length")),
        };
        let plan = match kind {
            "tumble" | "hop" | "cumulate" | "session" => {
                let Some(time) = time else {
                    return refuse(
                        Error::unsupported(format!(
                            "[{}] on a relation without event time is not supported",
                            kind.to_uppercase()
                        ))
                        .with_hint("Give the stream a WATERMARK, or name the column of time: TUMBLE(s, ts, ...)."),
                    );
                };
                let first = interval(2, context)?;
                match kind {
                    "tumble" => tumble(input, time, first, 0)?,
                    "session" => session(with_time(input, &time)?, Vec::new(), time, first)?,
                    _ => {
                        let size = interval(3, context)?;
                        few_enough(size, first)?;
                        if kind == "hop" {
                            hop(input, time, first, size, 0)?
                        } else {
                            cumulate(input, time, first, size, 0)?
                        }
                    }
                }
            }
            _ => {
                let clause = self.clause(kind, positional, &schema, context)?;
                node::plan(WindowClause {
                    input,
                    clause,
                    time,
                    stream,
                    latest: None,
                })
            }
        };
        Ok(PlannedRelation::new(plan, alias.clone()))
    }

    /// Which rows are in a window: `[RANGE ...]`, `[ROWS ...]`, `[NOW]`, `[UNBOUNDED]`.
    fn clause(
        &self,
        kind: &str,
        positional: &[&ast::Expr],
        schema: &DFSchema,
        context: &mut dyn RelationPlannerContext,
    ) -> DataFusionResult<Clause> {
        match kind {
            "rows" => {
                let count = positional.get(2).and_then(|count| literal_text(count));
                let Some(count) = count.and_then(|text| text.parse().ok()).filter(|count| *count > 0) else {
                    return refuse(Error::semantic(
                        "22023",
                        "the number of rows in a window must be positive",
                    ));
                };
                let partition_by = positional[3.min(positional.len())..]
                    .iter()
                    .map(|key| context.sql_to_expr((*key).clone(), schema))
                    .collect::<DataFusionResult<Vec<_>>>()?;
                Ok(Clause::Rows { count, partition_by })
            }
            "range" => {
                let Some(length) = positional.get(2) else {
                    return refuse(Error::syntax("a window clause needs a length"));
                };
                let length_micros = self.length(length, "window length", context)?;
                let slide = positional.get(3);
                let slide = slide.map(|slide| self.length(slide, "window slide", context));
                Ok(Clause::Range {
                    length_micros,
                    slide_micros: slide.transpose()?,
                })
            }
            "now" => Ok(Clause::Now),
            _ => Ok(Clause::Unbounded),
        }
    }
}

/// Refuses arguments by names that the function does not have.
fn known_names(function: &str, arguments: &Arguments<'_>) -> DataFusionResult<()> {
    let own: &[&str] = match function {
        "tumble" => &["size", "offset"],
        "hop" => &["slide", "size", "offset"],
        "cumulate" => &["step", "size", "offset"],
        _ => &["gap", "size"],
    };
    let known = |name: &str| matches!(name, "data" | "timecol" | "time") || own.contains(&name);
    match arguments.named.iter().find(|(name, _)| !known(name)) {
        Some((name, _)) => refuse(
            Error::semantic(
                "42883",
                format!("{}() has no argument \"{name}\"", function.to_uppercase()),
            )
            .with_hint(format!("Its arguments are data, timecol, {}.", own.join(", "))),
        ),
        None => Ok(()),
    }
}

/// Refuses a relation that has the columns of a window already: nobody could tell the two apart.
fn no_windows_yet(input: &LogicalPlan) -> DataFusionResult<()> {
    let taken = |name: &&str| input.schema().fields().iter().any(|field| field.name() == name);
    match ["window_start", "window_end"].iter().find(|name| taken(name)) {
        Some(name) => refuse(
            Error::semantic("42701", format!("column \"{name}\" specified more than once")).with_hint(
                "Give the inner window's columns other names: (SELECT window_start AS from_time, ... FROM ...).",
            ),
        ),
        None => Ok(()),
    }
}

pub(super) fn few_enough(size: i64, slide: i64) -> DataFusionResult<()> {
    if size / slide > WINDOWS_PER_ROW_MAX {
        return refuse(Error::limit(
            "54000",
            format!("a row would be in more than {WINDOWS_PER_ROW_MAX} windows"),
        ));
    }
    Ok(())
}

/// Rows that have a time.
pub(super) fn with_time(input: LogicalPlan, time: &Expr) -> DataFusionResult<LogicalPlan> {
    LogicalPlanBuilder::from(input)
        .filter(WindowFunction::call(Windows::Exists, time.clone()))?
        .build()
}

pub(super) fn tumble(input: LogicalPlan, time: Expr, size: i64, offset: i64) -> DataFusionResult<LogicalPlan> {
    let input = with_time(input, &time)?;
    let mut columns = all_columns(&input);
    columns.push(WindowFunction::call(Windows::TumbleStart { size, offset }, time.clone()).alias("window_start"));
    columns.push(WindowFunction::call(Windows::TumbleEnd { size, offset }, time.clone()).alias("window_end"));
    let windows = LogicalPlanBuilder::from(input).project(columns)?.build()?;
    Ok(refuse_late(windows, time, Some(size), &[size, offset]))
}

pub(super) fn drop_empty() -> UnnestOptions {
    UnnestOptions::new().with_null_handling(NullHandling::Drop)
}

pub(super) fn hop(input: LogicalPlan, time: Expr, slide: i64, size: i64, offset: i64) -> DataFusionResult<LogicalPlan> {
    let input = with_time(input, &time)?;
    let own = all_columns(&input);
    let mut columns = own.clone();
    columns.push(WindowFunction::call(Windows::HopStarts { slide, size, offset }, time.clone()).alias(LIST));
    let start = Expr::Column(Column::from_name(LIST));
    let mut output = own;
    output.push(start.clone().alias("window_start"));
    output.push(WindowFunction::call(Windows::HopEnd { size }, start).alias("window_end"));
    let windows = LogicalPlanBuilder::from(input)
        .project(columns)?
        .unnest_column_with_options(LIST, drop_empty())?
        .project(output)?
        .build()?;
    Ok(refuse_late(windows, time, Some(size), &[slide, size, offset]))
}

pub(super) fn cumulate(
    input: LogicalPlan,
    time: Expr,
    step: i64,
    size: i64,
    offset: i64,
) -> DataFusionResult<LogicalPlan> {
    let input = with_time(input, &time)?;
    let own = all_columns(&input);
    let mut columns = own.clone();
    columns.push(WindowFunction::call(Windows::CumulateWindows { step, size, offset }, time.clone()).alias(LIST));
    let part = |name: &str| special::field(Expr::Column(Column::from_name(LIST)), &ScalarValue::from(name)).alias(name);
    let mut output = own;
    output.push(part("window_start"));
    output.push(part("window_end"));
    let windows = LogicalPlanBuilder::from(input)
        .project(columns)?
        .unnest_column_with_options(LIST, drop_empty())?
        .project(output)?
        .build()?;
    Ok(refuse_late(windows, time, None, &[step, size, offset]))
}

/// The windows without what comes too late, where there is a watermark below. The same windows over the same input get
/// the same number.
fn refuse_late(windows: LogicalPlan, time: Expr, size_us: Option<i64>, lengths: &[i64]) -> LogicalPlan {
    if !has_watermark(&windows) {
        return windows;
    }
    let text = format!("{} {time} {size_us:?} {lengths:?}", windows.display_indent());
    node::plan(RefuseLate {
        label: label_of(&text),
        input: windows,
        time,
        size_us,
        refused: None,
    })
}

/// The number of windows from what they are.
fn label_of(text: &str) -> i64 {
    xxhash_rust::xxh3::xxh3_64(text.as_bytes()).cast_signed()
}

/// Whether a relation that a plan reads has a watermark.
fn has_watermark(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let walked = plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(source) = RelationSource::of(&scan.source)
        {
            found |= match &source.relation.kind {
                RelationKind::Stream(stream) => stream.watermark.is_some(),
                RelationKind::MaterializedView(view) => !view.events.is_empty(),
                _ => false,
            };
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.is_ok() && found
}

pub(super) fn session(
    input: LogicalPlan,
    keys: Vec<Expr>,
    time: Expr,
    gap_micros: i64,
) -> DataFusionResult<LogicalPlan> {
    let kind = type_of(&time, input.schema())?;
    let mut fields: Vec<_> = input
        .schema()
        .iter()
        .map(|(qualifier, field)| (qualifier.cloned(), field.clone()))
        .collect();
    for name in ["window_start", "window_end"] {
        fields.push((None, Arc::new(kind.field(name, Nullability::Nullable))));
    }
    let schema = Arc::new(DFSchema::new_with_metadata(fields, Default::default())?);
    let label = has_watermark(&input).then(|| {
        let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        label_of(&format!("{} {time} {keys:?} {gap_micros}", input.display_indent()))
    });
    Ok(node::plan(SessionWindow {
        input,
        keys,
        time,
        gap_micros,
        label,
        refused: None,
        schema,
    }))
}
