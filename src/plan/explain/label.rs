//! What a node is called: its operator, its details, and the names of its columns.

use crate::delta::RowOrder;
use crate::expr::Expression;
use crate::operator::aggregate::{Aggregate, Call, Distinct};
use crate::operator::in_window::Extent;
use crate::operator::join::{Join, NullEquality};
use crate::operator::lateness::Judged;
use crate::operator::map::MapFilter;
use crate::operator::over::{Over, OverFunction};
use crate::operator::set::All;
use crate::operator::top::{Number, Ranking, Top};
use crate::operator::unnest::KeepEmpty;
use crate::plan::{Growth, Node, Plan};

/// The characters after which a name is cut.
const NAME_MAX: usize = 60;

/// What a node is called.
#[derive(Debug, Clone)]
pub(super) struct Label {
    /// The operator.
    pub(super) operator: &'static str,
    /// What it does, by aspect.
    pub(super) details: Vec<(&'static str, String)>,
    /// The names of its columns.
    pub(super) columns: Vec<String>,
}

impl Label {
    /// All in one line.
    pub(super) fn line(&self) -> String {
        let mut line = self.operator.to_owned();
        for (aspect, detail) in &self.details {
            if aspect.is_empty() {
                line.push_str(&format!(" {detail}"));
            } else {
                line.push_str(&format!("  {aspect}: {detail}"));
            }
        }
        line
    }
}

/// The labels of all nodes, by id.
pub(super) fn labels(plan: &Plan) -> Vec<Label> {
    let mut labels: Vec<Label> = Vec::new();
    for id in plan.ids() {
        let inputs: Vec<&[String]> = plan
            .inputs(id)
            .iter()
            .map(|input| &labels[input.0].columns[..])
            .collect();
        let node = plan.node(id);
        let (details, columns) = describe(node, &inputs);
        labels.push(Label {
            operator: node.name(),
            details,
            columns,
        });
    }
    labels
}

type Details = Vec<(&'static str, String)>;

fn describe(node: &Node, inputs: &[&[String]]) -> (Details, Vec<String>) {
    let first = || inputs.first().map(|names| names.to_vec()).unwrap_or_default();
    match node {
        Node::Input(input) => {
            let mut details = vec![("", input.name.clone())];
            if input.growth == Growth::AppendOnly {
                details.push(("growth", "append-only".to_owned()));
            }
            let columns = input.schema.fields().iter().map(|field| field.name().clone()).collect();
            (details, columns)
        }
        Node::Values(values) => {
            let columns = (0..values.schema.fields().len())
                .map(|index| format!("column{}", index + 1))
                .collect();
            (vec![("rows", values.rows.len().to_string())], columns)
        }
        Node::MapFilter(map) => mapped(map, inputs[0]),
        Node::Union(_) => (Vec::new(), first()),
        Node::Aggregate(aggregate) => aggregated(aggregate, inputs[0]),
        Node::Join(join) => joined(join, inputs[0], inputs[1]),
        Node::Top(top) => topped(top, inputs[0]),
        Node::SetOperation(set) => {
            let all = if set.all == All::Yes {
                vec![("", "all".to_owned())]
            } else {
                Vec::new()
            };
            (all, first())
        }
        Node::Unnest(unnest) => {
            let mut details = vec![("of", list(&unnest.columns, inputs[0]))];
            if unnest.keep_empty == KeepEmpty::Yes {
                details.push(("empty", "kept".to_owned()));
            }
            (details, first())
        }
        Node::Over(over) => over_rows(over, inputs[0]),
        Node::ClockFilter(filter) => {
            let names: Vec<String> = inputs[0].iter().cloned().chain(["now()".to_owned()]).collect();
            (vec![("where", filter.predicate.text(&names))], first())
        }
        Node::InWindow(window) => {
            let extent = match window.extent {
                Extent::Last { length_us, slide_us } => {
                    let slide = slide_us.map_or_else(String::new, |slide| format!(", slide {slide} us"));
                    format!("last {length_us} us{slide}")
                }
                Extent::Now => "now".to_owned(),
                Extent::UpToNow => "up to now".to_owned(),
            };
            (
                vec![("time", inputs[0][window.time].clone()), ("extent", extent)],
                first(),
            )
        }
        Node::Stamp(_) => {
            let mut columns = first();
            columns.extend(["arrival".to_owned(), "arrival number".to_owned()]);
            (Vec::new(), columns)
        }
        Node::Lateness(lateness) => {
            let mut columns = first();
            columns.truncate(lateness.width(inputs[0].len()));
            (vec![("watermark", judged(lateness.judged).to_owned())], columns)
        }
        Node::Close(close) => (vec![("until", inputs[0][close.column].clone())], first()),
        Node::SessionWindow(session) => {
            let mut details = vec![("time", inputs[0][session.time].clone())];
            partition(&mut details, &session.partition, inputs[0]);
            details.push(("gap", format!("{} us", session.gap_us)));
            if let Some(late) = &session.lateness {
                details.push(("watermark", judged(late.judged).to_owned()));
            }
            let mut columns = first();
            columns.truncate(session.width(inputs[0].len()));
            columns.extend(["window_start".to_owned(), "window_end".to_owned()]);
            (details, columns)
        }
    }
}

fn judged(judged: Judged) -> &'static str {
    match judged {
        Judged::ByRow => "the row's",
        Judged::ByEpoch => "the epoch's",
    }
}

fn mapped(map: &MapFilter, names: &[String]) -> (Details, Vec<String>) {
    let columns: Vec<String> = map.projection.iter().map(|expr| expr.text(names)).collect();
    let mut details = Vec::new();
    if let Some(predicate) = &map.predicate {
        details.push(("where", predicate.text(names)));
    }
    let is_identity = map.projection.len() == names.len()
        && map
            .projection
            .iter()
            .enumerate()
            .all(|(index, expr)| expr.as_column() == Some(index));
    if !is_identity {
        details.push(("columns", columns.join(", ")));
    }
    (details, columns.into_iter().map(cut).collect())
}

fn cut(name: String) -> String {
    if name.chars().count() <= NAME_MAX {
        return name;
    }
    name.chars().take(NAME_MAX).chain("...".chars()).collect()
}

fn aggregated(aggregate: &Aggregate, names: &[String]) -> (Details, Vec<String>) {
    let calls: Vec<String> = aggregate.calls.iter().map(|call| called(call, names)).collect();
    let mut columns: Vec<String> = aggregate.keys.iter().map(|key| names[*key].clone()).collect();
    let mut details = Vec::new();
    if !columns.is_empty() {
        details.push(("keys", columns.join(", ")));
    }
    if !calls.is_empty() {
        details.push(("calls", calls.join(", ")));
    }
    columns.extend(calls.into_iter().map(cut));
    (details, columns)
}

fn called(call: &Call, names: &[String]) -> String {
    let distinct = if call.distinct == Distinct::Yes {
        "distinct "
    } else {
        ""
    };
    let arguments = if call.arguments.is_empty() {
        "*".to_owned()
    } else {
        list(&call.arguments, names)
    };
    let order = if call.order.is_empty() {
        String::new()
    } else {
        format!(" order by {}", ordered(&call.order, names))
    };
    let filter = call
        .filter
        .map_or_else(String::new, |column| format!(" filter ({})", names[column]));
    format!(
        "{}({distinct}{arguments}{order}){filter}",
        snake(&format!("{:?}", call.function))
    )
}

/// `StringAgg` as `string_agg`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

fn joined(join: &Join, left: &[String], right: &[String]) -> (Details, Vec<String>) {
    let mut details = Vec::new();
    if !join.on.is_empty() {
        let equals = match join.null_equality {
            NullEquality::NullsDiffer => "=",
            NullEquality::NullsMatch => "is not distinct from",
        };
        let pairs = join
            .on
            .iter()
            .map(|(l, r)| format!("{} {equals} {}", left[*l], right[*r]));
        details.push(("on", pairs.collect::<Vec<_>>().join(" and ")));
    }
    let both = [left, right].concat();
    if let Some(residual) = &join.residual {
        details.push(("if", residual.text(&both)));
    }
    let columns = if join.kind.is_filter() { left.to_vec() } else { both };
    (details, columns)
}

fn topped(top: &Top, names: &[String]) -> (Details, Vec<String>) {
    let mut details = Vec::new();
    partition(&mut details, &top.partition, names);
    if !top.order.is_empty() {
        details.push(("order", ordered(&top.order, names)));
    }
    if let Some(limit) = top.limit {
        details.push(("limit", limit.to_string()));
    }
    if top.offset > 0 {
        details.push(("offset", top.offset.to_string()));
    }
    let ranking = match top.ranking {
        Ranking::RowNumber => "row_number",
        Ranking::Rank => "rank",
        Ranking::DenseRank => "dense_rank",
    };
    if top.ranking != Ranking::RowNumber || top.number == Number::Shown {
        details.push(("by", ranking.to_owned()));
    }
    let mut columns = names.to_vec();
    if top.number == Number::Shown {
        columns.push(ranking.to_owned());
    }
    (details, columns)
}

fn over_rows(over: &Over, names: &[String]) -> (Details, Vec<String>) {
    let mut details = Vec::new();
    partition(&mut details, &over.partition, names);
    if !over.order.is_empty() {
        details.push(("order", ordered(&over.order, names)));
    }
    let calls: Vec<String> = over
        .calls
        .iter()
        .map(|call| {
            let name = match call.function {
                OverFunction::Aggregate(function) => format!("{function:?}"),
                other => format!("{other:?}"),
            };
            format!("{}({})", snake(&name), list(&call.arguments, names))
        })
        .collect();
    details.push(("calls", calls.join(", ")));
    (details, names.iter().cloned().chain(calls).collect())
}

fn partition(details: &mut Details, columns: &[usize], names: &[String]) {
    if !columns.is_empty() {
        details.push(("partition", list(columns, names)));
    }
}

fn list(columns: &[usize], names: &[String]) -> String {
    let names: Vec<&str> = columns.iter().map(|column| names[*column].as_str()).collect();
    names.join(", ")
}

fn ordered(order: &[(usize, RowOrder)], names: &[String]) -> String {
    let one = |(column, order): &(usize, RowOrder)| {
        let direction = if order.descending { " desc" } else { "" };
        // PostgreSQL's default: NULLs are greater than everything else.
        let nulls = match (order.descending, order.nulls_first) {
            (false, true) => " nulls first",
            (true, false) => " nulls last",
            _ => "",
        };
        format!("{}{direction}{nulls}", names[*column])
    };
    order.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Whether an expression's name says that it is the start or the end of a window.
pub(super) fn is_window(expr: &Expression) -> bool {
    expr.function().is_some_and(|name| {
        [
            "tumble_start",
            "tumble_end",
            "hop_starts",
            "hop_end",
            "cumulate_windows",
        ]
        .contains(&name)
    })
}
