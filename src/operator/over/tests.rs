//! Window functions against naive ones.

use super::*;
use crate::operator::harness::{Action, Law, Row, actions, rows_of, schema_of};
use arrow::datatypes::DataType;
use proptest::prelude::*;

const KEYS: &[&str] = &["a", "b"];
const ORDERS: &[&str] = &["1", "2", "-", "4"];
const VALUES: &[&str] = &["1", "-", "3"];

fn changes() -> BoxedStrategy<Vec<Action>> {
    actions(vec![rows_of(&[KEYS, ORDERS, VALUES])], 25)
}

fn call(function: OverFunction, arguments: &[usize], frame: Frame, output: DataType) -> OverCall {
    OverCall {
        function,
        arguments: arguments.to_vec(),
        frame,
        nulls: NullTreatment::Respect,
        filter: None,
        field: Arc::new(Field::new("", output, true)),
    }
}

fn frame(unit: FrameUnit, start: Bound, end: Bound) -> Frame {
    Frame {
        unit,
        start,
        end,
        exclusion: Exclusion::NoOthers,
    }
}

fn usual() -> Frame {
    frame(FrameUnit::Range, Bound::UnboundedPreceding, Bound::CurrentRow)
}

/// Checks a spec against a function from the rows of a partition, in order, and a place to results.
fn check(calls: Vec<OverCall>, changes: &[Action], results: impl Fn(&[Row], usize) -> Vec<Option<String>>) {
    let spec = Over {
        partition: vec![0],
        order: vec![(1, RowOrder::ASCENDING)],
        calls,
    };
    let oracle = |inputs: &[Vec<Row>]| {
        let mut out = Vec::new();
        for key in KEYS {
            let mut rows: Vec<Row> = inputs[0]
                .iter()
                .filter(|row| row[0].as_deref() == Some(*key))
                .cloned()
                .collect();
            rows.sort_by_key(|row| {
                row[1..]
                    .iter()
                    .map(|value| (value.is_none(), value.clone()))
                    .collect::<Vec<_>>()
            });
            for place in 0..rows.len() {
                out.push([rows[place].clone(), results(&rows, place)].concat());
            }
        }
        out
    };
    let schema = schema_of(&[DataType::Utf8, DataType::Int64, DataType::Int64]);
    Law {
        spec: &spec,
        inputs: vec![schema],
        oracle: &oracle,
    }
    .check(changes);
}

fn sum<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<String> {
    let values: Vec<i64> = rows
        .filter_map(|row| row[2].as_ref())
        .map(|value| value.parse().expect("a number"))
        .collect();
    (!values.is_empty()).then(|| values.iter().sum::<i64>().to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranks_and_neighbours(changes in changes()) {
        let calls = vec![
            call(OverFunction::RowNumber, &[], usual(), DataType::Int64),
            call(OverFunction::Rank, &[], usual(), DataType::Int64),
            call(OverFunction::DenseRank, &[], usual(), DataType::Int64),
            call(OverFunction::Lag, &[2], usual(), DataType::Int64),
            call(OverFunction::Lead, &[2, 1, 1], usual(), DataType::Int64),
            call(OverFunction::FirstValue, &[2], usual(), DataType::Int64),
            call(OverFunction::LastValue, &[2], usual(), DataType::Int64),
        ];
        check(calls, &changes, |rows, place| {
            let first = rows.iter().position(|row| row[1] == rows[place][1]).expect("itself");
            let last = rows.iter().rposition(|row| row[1] == rows[place][1]).expect("itself");
            let mut orders: Vec<&Option<String>> = rows[..=place].iter().map(|row| &row[1]).collect();
            orders.dedup();
            let value = |place: usize| rows.get(place).and_then(|row| row[2].clone());
            let lead = rows[place][1].as_ref().and_then(|offset| {
                let offset: usize = offset.parse().expect("a number");
                if place + offset < rows.len() { value(place + offset) } else { rows[place][1].clone() }
            });
            vec![
                Some((place + 1).to_string()),
                Some((first + 1).to_string()),
                Some(orders.len().to_string()),
                place.checked_sub(1).and_then(value),
                lead,
                value(0),
                value(last),
            ]
        });
    }

    #[test]
    fn aggregates_of_frames(changes in changes()) {
        let aggregate = |function, frame, output| call(OverFunction::Aggregate(function), &[2], frame, output);
        let near = frame(FrameUnit::Rows, Bound::Preceding(1), Bound::Following(1));
        let calls = vec![
            aggregate(Function::Sum, usual(), DataType::Int64),
            aggregate(Function::Sum, near, DataType::Int64),
            aggregate(Function::Sum, Frame { exclusion: Exclusion::CurrentRow, ..near }, DataType::Int64),
            aggregate(Function::Max, near, DataType::Int64),
            aggregate(Function::Sum, frame(FrameUnit::Groups, Bound::Preceding(1), Bound::Preceding(1)), DataType::Int64),
            aggregate(Function::Count, frame(FrameUnit::Range, Bound::CurrentRow, Bound::UnboundedFollowing), DataType::Int64),
        ];
        check(calls, &changes, |rows, place| {
            let same = |row: &&Row| row[1] == rows[place][1];
            let first = rows.iter().position(|row| same(&row)).expect("itself");
            let last = rows.iter().rposition(|row| same(&row)).expect("itself");
            let (from, to) = (place.saturating_sub(1), (place + 2).min(rows.len()));
            let others = rows[from..to].iter().enumerate().filter(|(index, _)| from + index != place);
            let before = first.checked_sub(1).map(|before| rows[before][1].clone());
            let counted = rows[first..].iter().filter(|row| row[2].is_some()).count();
            vec![
                sum(rows[..=last].iter()),
                sum(rows[from..to].iter()),
                sum(others.map(|(_, row)| row)),
                rows[from..to].iter().filter_map(|row| row[2].clone()).max(),
                sum(rows[..first].iter().filter(|row| Some(&row[1]) == before.as_ref())),
                Some(counted.to_string()),
            ]
        });
    }
}
