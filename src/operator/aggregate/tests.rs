//! Aggregates against naive ones.

use super::*;
use crate::delta::RowOrder;
use crate::operator::harness::{Action, Bench, Law, Row, actions, row, rows_of, schema_of};
use arrow::datatypes::DataType;
use proptest::prelude::*;
use std::collections::BTreeMap;

const KEYS: &[&str] = &["a", "b", "-", "c"];
const NUMBERS: &[&str] = &["1", "2", "2", "-", "7", "-3"];
const FLOATS: &[&str] = &[
    "0.5",
    "1.5",
    "-",
    "inf",
    "NaN",
    "-2.25",
    "6.696928794914171e299",
    "-6.696928794914171e299",
];
const TRUTHS: &[&str] = &["true", "false", "-"];

fn call(function: Function, arguments: &[usize], output: DataType) -> Call {
    Call {
        function,
        arguments: arguments.to_vec(),
        distinct: Distinct::No,
        filter: None,
        order: Vec::new(),
        field: Arc::new(Field::new("", output, true)),
    }
}

fn input() -> SchemaRef {
    schema_of(&[
        DataType::Utf8,
        DataType::Int32,
        DataType::Float64,
        DataType::Boolean,
        DataType::Utf8,
    ])
}

fn changes() -> BoxedStrategy<Vec<Action>> {
    actions(vec![rows_of(&[KEYS, NUMBERS, FLOATS, TRUTHS, KEYS])], 40)
}

fn by_key(rows: &[Row]) -> BTreeMap<Option<String>, Vec<Row>> {
    let mut groups: BTreeMap<_, Vec<Row>> = BTreeMap::new();
    for row in rows {
        groups.entry(row[0].clone()).or_default().push(row.clone());
    }
    groups
}

fn integers(rows: &[Row]) -> Vec<i64> {
    rows.iter()
        .filter_map(|row| row[1].as_ref())
        .map(|value| value.parse().expect("a number"))
        .collect()
}

fn check(spec: &Aggregate, changes: &[Action], results: impl Fn(&[Row]) -> Row) {
    let oracle = |inputs: &[Vec<Row>]| -> Vec<Row> {
        if spec.keys.is_empty() {
            return vec![results(&inputs[0])];
        }
        let groups = by_key(&inputs[0]);
        groups
            .into_iter()
            .map(|(key, rows)| [vec![key], results(&rows)].concat())
            .collect()
    };
    Law {
        spec,
        inputs: vec![input()],
        oracle: &oracle,
    }
    .check(changes);
}

fn text<T: ToString>(value: Option<T>) -> Option<String> {
    value.map(|value| value.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn folds_of_integers(changes in changes(), global in any::<bool>()) {
        let spec = Aggregate {
            closing: None,
            keys: if global { vec![] } else { vec![0] },
            calls: vec![
                call(Function::Count, &[], DataType::Int64),
                call(Function::Count, &[1], DataType::Int64),
                call(Function::Sum, &[1], DataType::Int64),
                Call { filter: Some(3), ..call(Function::Sum, &[1], DataType::Int64) },
                Call { distinct: Distinct::Yes, ..call(Function::Sum, &[1], DataType::Int64) },
                Call { distinct: Distinct::Yes, filter: Some(3), ..call(Function::Count, &[1], DataType::Int64) },
                call(Function::BoolAnd, &[3], DataType::Boolean),
                call(Function::BoolOr, &[3], DataType::Boolean),
                call(Function::BitXor, &[1], DataType::Int32),
            ],
        };
        check(&spec, &changes, |rows| {
            let sum = |values: &[i64]| (!values.is_empty()).then(|| values.iter().sum::<i64>());
            let numbers = integers(rows);
            let passing: Vec<Row> = rows.iter().filter(|row| row[3].as_deref() == Some("true")).cloned().collect();
            let passing = integers(&passing);
            let unique = |values: &[i64]| {
                let mut values = values.to_vec();
                values.sort_unstable();
                values.dedup();
                values
            };
            let truths: Vec<bool> = rows.iter().filter_map(|row| row[3].as_ref()).map(|value| value == "true").collect();
            vec![
                text(Some(rows.len())),
                text(Some(numbers.len())),
                text(sum(&numbers)),
                text(sum(&passing)),
                text(sum(&unique(&numbers))),
                text(Some(unique(&passing).len())),
                (!truths.is_empty()).then(|| truths.iter().all(|truth| *truth).to_string()),
                (!truths.is_empty()).then(|| truths.iter().any(|truth| *truth).to_string()),
                (!numbers.is_empty()).then(|| numbers.iter().fold(0, |all, value| all ^ value).to_string()),
            ]
        });
    }

    #[test]
    fn folds_of_floats(changes in changes()) {
        let spec = Aggregate {
            closing: None,
            keys: vec![0],
            calls: vec![
                call(Function::Sum, &[2], DataType::Float64),
                call(Function::VarPop, &[1], DataType::Float64),
            ],
        };
        check(&spec, &changes, |rows| {
            let floats: Vec<f64> =
                rows.iter().filter_map(|row| row[2].as_ref()).map(|value| value.parse().expect("a float")).collect();
            // The large ones are powers of two: adding them first is exact.
            let (large, small): (Vec<f64>, Vec<f64>) = floats.iter().partition(|value| value.abs() > 1e9);
            let large: f64 = large.iter().sum();
            let total = large + small.iter().sum::<f64>();
            let numbers = integers(rows);
            let n = numbers.len() as f64;
            let spread = n * numbers.iter().map(|x| (x * x) as f64).sum::<f64>()
                - (numbers.iter().sum::<i64>() as f64).powi(2);
            let shown = |value: f64| format_float(value);
            vec![
                (!floats.is_empty()).then(|| shown(total)),
                (!numbers.is_empty()).then(|| shown(spread / (n * n))),
            ]
        });
    }

    #[test]
    fn readers_of_bags(changes in changes()) {
        let order = vec![(1, RowOrder { descending: true, nulls_first: false })];
        let list = DataType::new_list(DataType::Int32, true);
        let spec = Aggregate {
            closing: None,
            keys: vec![0],
            calls: vec![
                call(Function::Min, &[1], DataType::Int32),
                call(Function::Max, &[1], DataType::Int32),
                call(Function::Max, &[2], DataType::Float64),
                Call { order: order.clone(), ..call(Function::ArrayAgg, &[1], list.clone()) },
                Call { distinct: Distinct::Yes, order, ..call(Function::ArrayAgg, &[1], list) },
                call(Function::StringAgg, &[4, 4], DataType::Utf8),
                Call { order: vec![(1, RowOrder::ASCENDING)], ..call(Function::Mode, &[1], DataType::Int32) },
            ],
        };
        check(&spec, &changes, |rows| {
            let numbers = integers(rows);
            let mut descending: Vec<i64> = numbers.clone();
            descending.sort_unstable_by(|a, b| b.cmp(a));
            let nulls = rows.len() - numbers.len();
            let list = |values: &[i64], nulls: usize| {
                let values = values.iter().map(ToString::to_string);
                let shown: Vec<String> = values.chain(std::iter::repeat_n("NULL".to_owned(), nulls)).collect();
                Some(format!("[{}]", shown.join(", ")))
            };
            let mut unique = descending.clone();
            unique.dedup();
            let floats = rows.iter().filter_map(|row| row[2].as_ref()).map(|value| value.parse::<f64>().expect("a float"));
            let mut texts: Vec<String> = rows.iter().filter_map(|row| row[4].clone()).collect();
            texts.sort();
            let joined = texts.iter().enumerate().map(|(place, text)| if place == 0 { text.clone() } else { text.repeat(2) });
            let most = unique.iter().rev().max_by_key(|value| {
                let times = numbers.iter().filter(|number| number == value).count();
                (times, -**value)
            });
            vec![
                text(numbers.iter().min()),
                text(numbers.iter().max()),
                floats.max_by(f64::total_cmp).map(format_float),
                list(&descending, nulls),
                list(&unique, nulls.min(1)),
                (!texts.is_empty()).then(|| joined.collect()),
                text(most),
            ]
        });
    }

    #[test]
    fn distinct_rows(changes in changes()) {
        let spec = Aggregate { keys: vec![0, 1], calls: vec![], closing: None };
        let oracle = |inputs: &[Vec<Row>]| {
            let mut rows: Vec<Row> = inputs[0].iter().map(|row| row[..2].to_vec()).collect();
            rows.sort();
            rows.dedup();
            rows
        };
        Law { spec: &spec, inputs: vec![input()], oracle: &oracle }.check(&changes);
    }
}

fn format_float(value: f64) -> String {
    use arrow::array::Float64Array;
    arrow::util::display::array_value_to_string(&Float64Array::from(vec![value]), 0).expect("a float is shown")
}

fn one(values: &[&str], weight: i64) -> Action {
    Action {
        input: 0,
        row: row(values),
        weight,
        cut: true,
    }
}

#[test]
fn a_sum_that_overflows_fails_its_group_until_it_fits_again() {
    let spec = Aggregate {
        closing: None,
        keys: vec![0],
        calls: vec![call(Function::Sum, &[1], DataType::Int64)],
    };
    let law = Law {
        spec: &spec,
        inputs: vec![schema_of(&[DataType::Utf8, DataType::Int64])],
        oracle: &|_| Vec::new(),
    };
    let mut bench = Bench::new(&law, 1);
    let greatest = i64::MAX.to_string();
    let out = bench.try_step(&[one(&["a", &greatest], 1)]).expect("it fits");
    assert_eq!(out, vec![(row(&["a", &greatest]), 1)]);
    let out = bench.try_step(&[one(&["a", "1"], 1)]).expect("the step succeeds");
    assert_eq!(out, vec![(row(&["a", &greatest]), -1)]);
    assert_eq!(bench.faults.row_errors.len(), 1);
    assert_eq!(bench.faults.row_errors[0].error.code(), "22003");
    let out = bench.try_step(&[one(&["a", "5"], 1)]).expect("the step succeeds");
    assert_eq!((out.len(), bench.faults.row_errors.len()), (0, 0));
    let out = bench
        .try_step(&[one(&["a", &greatest], -1)])
        .expect("the step succeeds");
    assert_eq!(out, vec![(row(&["a", "6"]), 1)]);
    assert_eq!(bench.faults.row_errors[0].weight, -1);
}

#[test]
fn retracting_what_is_not_there_names_operator_and_key() {
    for function in [Function::Sum, Function::Max] {
        let spec = Aggregate {
            closing: None,
            keys: vec![0],
            calls: vec![call(function, &[1], DataType::Int64)],
        };
        let law = Law {
            spec: &spec,
            inputs: vec![schema_of(&[DataType::Utf8, DataType::Int64])],
            oracle: &|_| Vec::new(),
        };
        let mut bench = Bench::new(&law, 1);
        bench.try_step(&[one(&["a", "1"], 1)]).expect("the step succeeds");
        let error = bench.try_step(&[one(&["a", "2"], -1)]).expect_err("2 is not there");
        assert!(error.message().contains("Aggregate"), "{error}");
        assert_eq!(error.detail(), Some("The key is (a)."));
    }
}

#[test]
fn means_have_postgresqls_digits() {
    let decimal = DataType::Decimal256(76, 36);
    let spec = Aggregate {
        closing: None,
        keys: vec![],
        calls: vec![
            call(Function::Avg, &[1], decimal.clone()),
            call(Function::VarSamp, &[1], decimal.clone()),
            call(Function::StddevPop, &[1], decimal),
        ],
    };
    let law = Law {
        spec: &spec,
        inputs: vec![schema_of(&[DataType::Utf8, DataType::Int32])],
        oracle: &|_| Vec::new(),
    };
    let mut bench = Bench::new(&law, 1);
    let rows: Vec<Action> = ["1", "2", "2"].iter().map(|value| one(&["a", value], 1)).collect();
    let out = bench.try_step(&rows).expect("the step succeeds");
    let zeros = "0".repeat(20);
    // As PostgreSQL answers for (1), (2), (2), but for the zeros.
    let expected = ["1.6666666666666667", "0.33333333333333333333", "0.47140452079103168293"];
    for (place, digits) in expected.iter().enumerate() {
        let shown = out[0].0[place].clone().expect("not NULL");
        let wanted = format!("{digits}{zeros}");
        assert_eq!(
            shown,
            wanted[..digits.find('.').expect("a point") + 37].to_owned(),
            "{place}"
        );
    }
}

#[test]
fn extremes_of_growing_input_need_no_values() {
    let spec = Aggregate {
        closing: None,
        keys: vec![],
        calls: vec![
            call(Function::LeastSoFar, &[0], DataType::Utf8),
            call(Function::GreatestSoFar, &[1], DataType::Int32),
            call(Function::GreatestSoFar, &[0], DataType::Utf8),
        ],
    };
    assert_eq!(spec.tables().len(), 1);
    let law = Law {
        spec: &spec,
        inputs: vec![schema_of(&[DataType::Utf8, DataType::Int32])],
        oracle: &|_| Vec::new(),
    };
    let mut bench = Bench::new(&law, 1);
    let steps: [(&[&str], &[&str]); 4] = [
        (&["m", "-"], &["m", "-", "m"]),
        (&["-", "3"], &["m", "3", "m"]),
        (&["a", "-7"], &["a", "3", "m"]),
        (&["z", "9"], &["a", "9", "z"]),
    ];
    for (step, shown) in steps {
        let out = bench.try_step(&[one(step, 1)]).expect("the step succeeds");
        assert_eq!(out.last(), Some(&(row(shown), 1)));
    }
    let out = bench.try_step(&[one(&["b", "1"], 1)]).expect("the step succeeds");
    assert!(out.is_empty(), "nothing changed: {out:?}");
    assert!(bench.try_step(&[one(&["z", "9"], -1)]).is_err());
}
