//! Joins against nested loops.

use super::*;
use crate::operator::harness::{Action, Law, Row, actions, row, rows_of, schema_of};
use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::logical_expr::col;
use proptest::prelude::*;

const KEYS: &[&str] = &["1", "2", "-"];
const VALUES: &[&str] = &["1", "2", "3", "-"];

fn input() -> SchemaRef {
    schema_of(&[DataType::Int64, DataType::Int64])
}

/// Left value < right value.
fn less() -> Expression {
    let schema = schema_of(&[DataType::Int64, DataType::Int64, DataType::Int64, DataType::Int64]);
    let schema = DFSchema::try_from(schema.as_ref().clone()).expect("a schema");
    Expression::bind(&col("\"#1\"").lt(col("\"#3\"")), &schema).expect("it binds")
}

fn changes() -> BoxedStrategy<Vec<Action>> {
    actions(vec![rows_of(&[KEYS, VALUES]), rows_of(&[KEYS, VALUES])], 40)
}

fn kinds() -> BoxedStrategy<JoinKind> {
    prop::sample::select(vec![
        JoinKind::Inner,
        JoinKind::Left,
        JoinKind::Right,
        JoinKind::Full,
        JoinKind::LeftSemi,
        JoinKind::LeftAnti,
    ])
    .boxed()
}

fn naive(spec: &Join, left: &[Row], right: &[Row]) -> Vec<Row> {
    let belong = |l: &Row, r: &Row| {
        let equal = spec
            .on
            .iter()
            .all(|(a, b)| l[*a] == r[*b] && (l[*a].is_some() || spec.null_equality == NullEquality::NullsMatch));
        let less = spec.residual.is_none() || matches!((&l[1], &r[1]), (Some(a), Some(b)) if a < b);
        equal && less
    };
    let nulls: Row = vec![None, None];
    let mut out = Vec::new();
    for l in left {
        let partners: Vec<&Row> = right.iter().filter(|r| belong(l, r)).collect();
        match spec.kind {
            JoinKind::LeftSemi if !partners.is_empty() => out.push(l.clone()),
            JoinKind::LeftAnti if partners.is_empty() => out.push(l.clone()),
            JoinKind::LeftSemi | JoinKind::LeftAnti => {}
            _ => {
                out.extend(partners.iter().map(|r| [l.clone(), (*r).clone()].concat()));
                if partners.is_empty() && matches!(spec.kind, JoinKind::Left | JoinKind::Full) {
                    out.push([l.clone(), nulls.clone()].concat());
                }
            }
        }
    }
    if matches!(spec.kind, JoinKind::Right | JoinKind::Full) {
        let alone = right.iter().filter(|r| !left.iter().any(|l| belong(l, r)));
        out.extend(alone.map(|r| [nulls.clone(), r.clone()].concat()));
    }
    out
}

fn check(spec: &Join, changes: &[Action]) {
    let oracle = |inputs: &[Vec<Row>]| naive(spec, &inputs[0], &inputs[1]);
    Law {
        spec,
        inputs: vec![input(), input()],
        oracle: &oracle,
    }
    .check(changes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equal_keys(
        kind in kinds(),
        changes in changes(),
        columns in 0..3_usize,
        nulls in any::<bool>(),
        residual in any::<bool>(),
    ) {
        let spec = Join {
            kind,
            on: [(0, 0), (1, 1)][..columns].to_vec(),
            null_equality: if nulls { NullEquality::NullsMatch } else { NullEquality::NullsDiffer },
            residual: residual.then(less),
        };
        check(&spec, &changes);
    }

    #[test]
    fn not_in(changes in changes(), correlated in any::<bool>()) {
        let spec = Join {
            kind: JoinKind::NullAwareAnti,
            on: [(1, 1), (0, 0)][..if correlated { 2 } else { 1 }].to_vec(),
            null_equality: NullEquality::NullsDiffer,
            residual: None,
        };
        let oracle = |inputs: &[Vec<Row>]| -> Vec<Row> {
            let shown = |l: &&Row| {
                let same = |r: &&Row| !correlated || (l[0].is_some() && l[0] == r[0]);
                let values: Vec<&Option<String>> = inputs[1].iter().filter(same).map(|r| &r[1]).collect();
                values.is_empty() || (l[1].is_some() && !values.contains(&&None) && !values.contains(&&l[1]))
            };
            inputs[0].iter().filter(shown).cloned().collect()
        };
        Law { spec: &spec, inputs: vec![input(), input()], oracle: &oracle }.check(&changes);
    }
}

#[test]
fn a_row_and_its_partner_leave_together() {
    let spec = Join {
        kind: JoinKind::Left,
        on: vec![(0, 0)],
        null_equality: NullEquality::NullsDiffer,
        residual: None,
    };
    let action = |input, values: &[&str], weight, cut| Action {
        input,
        row: row(values),
        weight,
        cut,
    };
    check(
        &spec,
        &[
            action(0, &["1", "1"], 1, false),
            action(1, &["1", "2"], 1, true),
            action(0, &["1", "1"], -1, false),
            action(1, &["1", "2"], -1, true),
            action(0, &["1", "1"], 1, true),
        ],
    );
}
