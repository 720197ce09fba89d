use crate::catalog::RelationId;
use crate::expr::Expression;
use crate::operator::aggregate::{Aggregate, Call, Distinct, Function};
use crate::operator::join::{Join, JoinKind, NullEquality};
use crate::operator::map::{MapFilter, OnError};
use crate::operator::set::{All, SetKind, SetOperation};
use crate::operator::top::{Number, Ranking, Rest, Top};
use crate::operator::union::Union;
use crate::plan::{Growth, Input, Node, NodeId, Plan, explain, property};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, ident, lit};
use std::sync::Arc;

/// A plan in the making, with short words for what tests need.
pub(in crate::plan) struct Builder {
    pub(in crate::plan) plan: Plan,
}

impl Builder {
    pub(in crate::plan) fn new() -> Self {
        Self { plan: Plan::new() }
    }

    fn add(&mut self, node: Node, inputs: Vec<NodeId>) -> NodeId {
        self.plan.add(node, inputs).unwrap()
    }

    /// A table t(a, b, c, d) of bigints with the key a.
    pub(in crate::plan) fn table(&mut self) -> NodeId {
        self.input(1, "t", Growth::Changing, Some(vec![0]))
    }

    /// A stream s(a, b, c, d) of bigints.
    pub(in crate::plan) fn stream(&mut self) -> NodeId {
        self.input(2, "s", Growth::AppendOnly, None)
    }

    fn input(&mut self, id: u32, name: &str, growth: Growth, key: Option<Vec<usize>>) -> NodeId {
        let field = |name: &str| Field::new(name, DataType::Int64, true);
        let schema = Arc::new(Schema::new(["a", "b", "c", "d"].map(field).to_vec()));
        let input = Input {
            relation: RelationId(id),
            name: name.to_owned(),
            schema,
            growth,
            key,
            watermark: None,
            events: Vec::new(),
            judge: None,
        };
        self.add(Node::Input(input), Vec::new())
    }

    fn bind(&self, input: NodeId, expr: Expr) -> Expression {
        let fields = self.plan.schema(input).fields().iter().enumerate();
        let fields: Vec<Field> = fields
            .map(|(index, field)| field.as_ref().clone().with_name(format!("c{index}")))
            .collect();
        Expression::bind(&expr, &DFSchema::try_from(Schema::new(fields)).unwrap()).unwrap()
    }

    /// A map of expressions over `c0`, `c1`, ...
    pub(in crate::plan) fn map(&mut self, input: NodeId, exprs: Vec<Expr>) -> NodeId {
        let projection = exprs.into_iter().map(|expr| self.bind(input, expr)).collect();
        let map = MapFilter {
            predicate: None,
            projection,
            on_error: OnError::Skip,
        };
        self.add(Node::MapFilter(map), vec![input])
    }

    pub(in crate::plan) fn filter(&mut self, input: NodeId, predicate: Expr) -> NodeId {
        let schema = self.plan.schema(input).clone();
        let columns = schema
            .fields()
            .iter()
            .enumerate()
            .map(|(index, field)| Expression::column(index, field));
        let predicate = Some(self.bind(input, predicate));
        let map = MapFilter {
            predicate,
            projection: columns.collect(),
            on_error: OnError::Skip,
        };
        self.add(Node::MapFilter(map), vec![input])
    }

    fn join(&mut self, kind: JoinKind, left: NodeId, right: NodeId, on: Vec<(usize, usize)>) -> NodeId {
        let join = Join {
            kind,
            on,
            null_equality: NullEquality::NullsDiffer,
            residual: None,
        };
        self.add(Node::Join(join), vec![left, right])
    }

    pub(in crate::plan) fn sums(&mut self, input: NodeId, keys: Vec<usize>, summed: Vec<usize>) -> NodeId {
        let call = |column| Call {
            function: Function::Sum,
            arguments: vec![column],
            distinct: Distinct::No,
            filter: None,
            order: Vec::new(),
            field: Arc::new(Field::new("", DataType::Int64, true)),
        };
        let calls = summed.into_iter().map(call).collect();
        self.add(
            Node::Aggregate(Aggregate {
                keys,
                calls,
                closing: None,
            }),
            vec![input],
        )
    }

    /// The plan after one rule, as EXPLAIN shows it.
    fn after(&self, rule: &str, root: NodeId) -> String {
        let rule = super::RULES.iter().find(|known| known.name == rule).unwrap();
        match (rule.apply)(&self.plan, root).unwrap() {
            Some((plan, root)) => {
                let (plan, root) = plan.compact(root).unwrap();
                explain::text(&plan, root)
            }
            None => explain::text(&self.plan, root),
        }
    }
}

fn c(index: usize) -> Expr {
    ident(format!("c{index}"))
}

#[test]
fn maps_fuse_where_nothing_is_computed_twice() {
    let mut b = Builder::new();
    let table = b.table();
    let inner = b.map(table, vec![c(1), c(0), c(2) / c(3)]);
    let outer = b.map(inner, vec![c(2), c(1)]);
    assert_eq!(b.after("fuse maps", outer), "Map  columns: c / d, a\n  Input t\n");
    // Twice: it stays.
    let twice = b.map(inner, vec![c(2), c(2) + c(1)]);
    assert_eq!(
        b.after("fuse maps", twice),
        "Map  columns: c / d, c / d + a\n  Map  columns: b, a, c / d\n    Input t\n"
    );
    // A map that changes nothing goes away.
    let same = b.map(table, vec![c(0), c(1), c(2), c(3)]);
    assert_eq!(b.after("fuse maps", same), "Input t\n");
}

#[test]
fn a_fused_map_fails_for_the_same_rows() {
    let mut b = Builder::new();
    let table = b.table();
    let inner = b.map(table, vec![c(0), c(2) / c(3)]);
    let stays = "  Map  columns: a, c / d\n    Input t\n";
    // The failing expression is not read: its rows are still left out.
    let unread = b.map(inner, vec![c(0)]);
    assert_eq!(b.after("fuse maps", unread), format!("Map  columns: a\n{stays}"));
    // The filter would drop rows before they fail.
    let filtered = b.filter(inner, c(0).gt(lit(1_i64)));
    assert_eq!(b.after("fuse maps", filtered), format!("Filter  where: a > 1\n{stays}"));
    // A failing predicate must not see what the first one drops.
    let first = b.filter(table, c(3).not_eq(lit(0_i64)));
    let second = b.filter(first, (c(2) / c(3)).gt(lit(1_i64)));
    assert_eq!(
        b.after("fuse maps", second),
        "Filter  where: c / d > 1\n  Filter  where: d != 0\n    Input t\n"
    );
    // Predicates that cannot fail are one.
    let third = b.filter(first, c(0).gt(lit(1_i64)));
    assert_eq!(
        b.after("fuse maps", third),
        "Filter  where: d != 0 AND a > 1\n  Input t\n"
    );
}

#[test]
fn a_shared_map_stays_one() {
    let mut b = Builder::new();
    let table = b.table();
    let shared = b.map(table, vec![c(0), c(1) + c(2)]);
    let left = b.map(shared, vec![c(1)]);
    let right = b.map(shared, vec![c(1) * lit(2_i64)]);
    let union = b.add(Node::Union(Union), vec![left, right]);
    assert_eq!(
        b.after("fuse maps", union),
        "Union\n  Map  columns: b + c\n    Map  columns: a, b + c  [1]\n      Input t\n  Map  columns: b + c * 2\n    [1] again\n"
    );
}

#[test]
fn filters_go_below_joins_on_the_side_that_they_read() {
    let mut b = Builder::new();
    let (table, stream) = (b.table(), b.stream());
    let join = b.join(JoinKind::Inner, table, stream, vec![(0, 0)]);
    let filter = b.filter(join, c(1).gt(lit(1_i64)).and(c(6).lt(lit(2_i64))).and(c(1).gt(c(5))));
    assert_eq!(
        b.after("push filters", filter),
        "Filter  where: b > b\n  Join  on: a = a\n    Filter  where: b > 1\n      Input t\n    Filter  where: c < 2\n      Input s  growth: append-only\n"
    );
    // The right rows of a left join are padded: what reads them stays. So does what can fail.
    let join = b.join(JoinKind::Left, table, stream, vec![(0, 0)]);
    let filter = b.filter(join, c(6).is_null().and((lit(1_i64) / c(1)).gt(lit(0_i64))));
    let before = explain::text(&b.plan, filter);
    assert_eq!(b.after("push filters", filter), before);
}

#[test]
fn filters_on_keys_go_below_aggregates() {
    let mut b = Builder::new();
    let table = b.table();
    let sums = b.sums(table, vec![2], vec![1]);
    let filter = b.filter(sums, c(0).eq(lit(7_i64)).and(c(1).gt(lit(1_i64))));
    assert_eq!(
        b.after("push filters", filter),
        "Filter  where: sum(b) > 1\n  Aggregate  keys: c  calls: sum(b)\n    Filter  where: c = 7\n      Input t\n"
    );
    // A global aggregate has its row whatever is dropped below.
    let global = b.sums(table, vec![], vec![1]);
    let filter = b.filter(global, c(0).gt(lit(1_i64)));
    let before = explain::text(&b.plan, filter);
    assert_eq!(b.after("push filters", filter), before);
}

#[test]
fn filters_go_into_every_branch_of_a_union_and_both_sides_of_except() {
    let mut b = Builder::new();
    let (table, stream) = (b.table(), b.stream());
    let union = b.add(Node::Union(Union), vec![table, stream]);
    let filter = b.filter(union, c(0).gt(lit(1_i64)));
    let branches = "  Filter  where: a > 1\n    Input t\n  Filter  where: a > 1\n    Input s  growth: append-only\n";
    assert_eq!(
        b.after("push filters", filter),
        format!("Map\n  Union\n{}", indent(branches))
    );
    let except = SetOperation {
        kind: SetKind::Except,
        all: All::Yes,
        width: 4,
    };
    let except = b.add(Node::SetOperation(except), vec![table, stream]);
    let filter = b.filter(except, c(0).gt(lit(1_i64)));
    assert_eq!(
        b.after("push filters", filter),
        format!("Map\n  Except all\n{}", indent(branches))
    );
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

#[test]
fn distinct_of_what_is_distinct_goes_away() {
    let mut b = Builder::new();
    let (table, stream) = (b.table(), b.stream());
    let distinct = b.sums(table, vec![0, 1, 2, 3], vec![]);
    assert_eq!(b.after("distinct of distinct", distinct), "Input t\n");
    let kept = b.sums(stream, vec![0, 1, 2, 3], vec![]);
    assert_eq!(
        b.after("distinct of distinct", kept),
        "Distinct  keys: a, b, c, d\n  Input s  growth: append-only\n"
    );
    // Without its key, a row of the table may be there twice.
    let picked = b.map(table, vec![c(1)]);
    let kept = b.sums(picked, vec![0], vec![]);
    assert_eq!(
        b.after("distinct of distinct", kept),
        "Distinct  keys: b\n  Map  columns: b\n    Input t\n"
    );
}

#[test]
fn joins_keep_only_columns_that_are_read() {
    let mut b = Builder::new();
    let (table, stream) = (b.table(), b.stream());
    let join = b.join(JoinKind::Inner, table, stream, vec![(0, 1)]);
    let picked = b.map(join, vec![c(7), c(2)]);
    assert_eq!(
        b.after("prune columns", picked),
        "Map  columns: d, c\n  Join  on: a = b\n    Filter  columns: a, c\n      Input t\n    Filter  columns: b, d\n      Input s  growth: append-only\n"
            .replace("Filter  columns", "Map  columns")
    );
}

#[test]
fn results_that_nobody_reads_are_not_computed() {
    let mut b = Builder::new();
    let table = b.table();
    let sums = b.sums(table, vec![0], vec![1, 2, 3]);
    let picked = b.map(sums, vec![c(2)]);
    assert_eq!(
        b.after("prune columns", picked),
        "Map  columns: sum(c)\n  Aggregate  keys: a  calls: sum(c)\n    Input t\n"
    );
    // A global aggregate keeps one result: its row is there all the same.
    let global = b.sums(table, vec![], vec![1, 2]);
    let constant = b.map(global, vec![lit(1_i64)]);
    assert_eq!(
        b.after("prune columns", constant),
        "Map  columns: 1\n  Aggregate  calls: sum(b)\n    Input t\n"
    );
}

#[test]
fn an_expression_that_can_fail_is_not_pruned() {
    let mut b = Builder::new();
    let table = b.table();
    let inner = b.map(table, vec![c(0), c(1) / c(2), c(3).is_null()]);
    let outer = b.map(inner, vec![c(0)]);
    assert_eq!(
        b.after("prune columns", outer),
        "Map  columns: a\n  Map  columns: a, b / c\n    Input t\n"
    );
}

#[test]
fn the_order_of_a_top_is_not_changed_by_pruning() {
    let mut b = Builder::new();
    let table = b.table();
    let top = Top {
        partition: vec![],
        order: vec![],
        ranking: Ranking::RowNumber,
        offset: 0,
        limit: Some(3),
        number: Number::Shown,
        rest: Rest::default(),
    };
    let top = b.add(Node::Top(top), vec![table]);
    let picked = b.map(top, vec![c(2)]);
    // All columns break ties; the number is not read.
    assert_eq!(
        b.after("prune columns", picked),
        "Map  columns: c\n  Top  limit: 3\n    Input t\n"
    );
}

#[test]
fn a_shared_node_keeps_what_any_user_reads() {
    let mut b = Builder::new();
    let table = b.table();
    let shared = b.sums(table, vec![0], vec![1, 2, 3]);
    let left = b.map(shared, vec![c(1)]);
    let right = b.map(shared, vec![c(3)]);
    let union = b.add(Node::Union(Union), vec![left, right]);
    assert_eq!(
        b.after("prune columns", union),
        "Union\n  Map  columns: sum(b)\n    Aggregate  keys: a  calls: sum(b), sum(d)  [1]\n      Input t\n  Map  columns: sum(d)\n    [1] again\n"
    );
}

#[test]
fn rules_reach_a_fixpoint() {
    let mut b = Builder::new();
    let (table, stream) = (b.table(), b.stream());
    let join = b.join(JoinKind::Inner, table, stream, vec![(0, 0)]);
    let filter = b.filter(join, c(5).gt(lit(1_i64)));
    let sums = b.sums(filter, vec![1], vec![6]);
    let root = b.map(sums, vec![c(1), c(0)]);
    let rewritten = super::rewrite(&b.plan, root).unwrap();
    assert_eq!(
        explain::text(&rewritten.plan, rewritten.root),
        "Map  columns: sum(c), b\n  Aggregate  keys: b  calls: sum(c)\n    Join  on: a = a\n      Map  columns: a, b\n        Input t\n      Filter  where: b > 1  columns: a, c\n        Input s  growth: append-only\n"
    );
    let again = super::rewrite(&rewritten.plan, rewritten.root).unwrap();
    assert!(again.firings.is_empty());
    assert!(explain::rules(&rewritten.firings).contains("push filters"));
}

#[test]
fn keys_and_growth_are_proved() {
    let mut b = Builder::new();
    let (table, stream) = (b.table(), b.stream());
    let known = |b: &Builder, id| property::of(&b.plan, id);
    assert!(known(&b, stream).is_append_only() && !known(&b, stream).is_unique());
    assert!(!known(&b, table).is_append_only() && known(&b, table).is_unique());
    // Each row of the stream meets one row of the table at most, yet may be there twice itself.
    let join = b.join(JoinKind::Inner, stream, table, vec![(1, 0)]);
    assert!(!known(&b, join).is_unique() && !known(&b, join).is_append_only());
    let sums = b.sums(stream, vec![1, 2], vec![3]);
    let join = b.join(JoinKind::Left, sums, table, vec![(0, 0)]);
    assert_eq!(known(&b, join).keys, vec![vec![0, 1]]);
    // A full join pads both sides: nothing identifies its rows.
    let join = b.join(JoinKind::Full, sums, table, vec![(0, 0)]);
    assert!(!known(&b, join).is_unique());
    let distinct = b.sums(stream, vec![0], vec![]);
    assert!(known(&b, distinct).is_append_only() && known(&b, distinct).is_unique());
}

#[test]
fn what_grows_without_bound_is_told() {
    let mut b = Builder::new();
    let (table, stream) = (b.table(), b.stream());
    let of_table = b.sums(table, vec![1], vec![2]);
    assert_eq!(explain::unbounded(&b.plan, of_table), None);
    let global = b.sums(stream, vec![], vec![2]);
    assert_eq!(explain::unbounded(&b.plan, global), None);
    let of_stream = b.sums(stream, vec![1], vec![2]);
    let told = explain::unbounded(&b.plan, of_stream).unwrap();
    assert!(
        told.contains("(b) of stream \"s\"") && told.contains("WATERMARK"),
        "{told}"
    );
    assert_eq!(
        explain::state(&b.plan, of_stream),
        "Aggregate  keys: b  calls: sum(c)  [keeps a group per (b); grows without bound]\n  Input s  growth: append-only\n"
    );
}

#[test]
fn a_fingerprint_tells_plans_apart_but_not_names() {
    let mut b = Builder::new();
    let table = b.table();
    let one = b.sums(table, vec![1], vec![2]);
    let two = b.sums(table, vec![1], vec![3]);
    assert_ne!(explain::fingerprint(&b.plan, one), explain::fingerprint(&b.plan, two));
    let mut renamed = Builder::new();
    let input = renamed.input(1, "other", Growth::Changing, Some(vec![0]));
    let same = renamed.sums(input, vec![1], vec![2]);
    let (plan, root) = b.plan.compact(one).unwrap();
    assert_eq!(
        explain::fingerprint(&plan, root),
        explain::fingerprint(&renamed.plan, same)
    );
}
