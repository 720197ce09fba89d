//! Sessions under a watermark against the plainest account of them, in every order of arrival and cut into epochs in
//! every way.

use super::super::{SessionLateness, SessionWindow};
use crate::operator::harness::{Action, Bench, Law, Row, Sum, schema_of};
use crate::operator::lateness::Judged;
use crate::operator::{Advance, LateRows};
use crate::time::{Timestamp, Watermark};
use arrow::array::AsArray;
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use proptest::prelude::*;

const SECOND: i64 = 1_000_000;

/// A row: a key and a time in seconds.
type Arrival = (&'static str, i64);

/// A session as it is accounted for: key, the times of its rows, whether it is closed.
struct Account {
    key: &'static str,
    times: Vec<i64>,
    closed: bool,
}

/// What the log should come to: the rows with their sessions, and the refused ones.
fn expected(log: &[Arrival], gap: i64, delay: i64) -> (Vec<Row>, Vec<i64>) {
    let mut accounts: Vec<Account> = Vec::new();
    let mut refused = Vec::new();
    let mut watermark = i64::MIN;
    for (key, time) in log {
        for account in &mut accounts {
            account.closed |= account.times.iter().max().is_some_and(|last| last + gap <= watermark);
        }
        let touches = |account: &Account| {
            !account.closed && account.key == *key && account.times.iter().any(|other| (other - time).abs() < gap)
        };
        let (touched, mut rest): (Vec<Account>, Vec<Account>) = accounts.into_iter().partition(touches);
        if touched.is_empty() && time + gap <= watermark {
            refused.push(*time);
        } else {
            let mut times: Vec<i64> = touched.into_iter().flat_map(|account| account.times).collect();
            times.push(*time);
            rest.push(Account {
                key,
                times,
                closed: false,
            });
        }
        accounts = rest;
        watermark = watermark.max(time - delay);
    }
    let mut rows = Vec::new();
    for account in &accounts {
        let first = account.times.iter().min().expect("a session has rows");
        let last = account.times.iter().max().expect("a session has rows");
        for time in &account.times {
            rows.push(vec![
                Some(account.key.to_owned()),
                shown(*time),
                shown(*first),
                shown(last + gap),
            ]);
        }
    }
    rows.sort();
    refused.sort_unstable();
    (rows, refused)
}

fn shown(seconds: i64) -> Option<String> {
    let (minutes, seconds) = (seconds.div_euclid(60), seconds.rem_euclid(60));
    Some(format!("1970-01-01T01:{minutes:02}:{seconds:02}"))
}

fn refused_times(late: &[LateRows]) -> Vec<i64> {
    let times = late.iter().flat_map(|late| {
        let column = late.rows.column(1).as_primitive::<TimestampMicrosecondType>().clone();
        (0..column.len()).map(move |row| column.value(row) / SECOND - 3600)
    });
    times.collect()
}

/// How a log is taken: the epochs that end after a row, the number of shards, whether the operator is built anew.
struct Run<'a> {
    ends: &'a dyn Fn(usize) -> bool,
    shards: usize,
    anew: bool,
}

/// Takes a log through the operator; checks that nothing is kept once everything is closed.
fn taken(log: &[Arrival], gap: i64, delay: i64, run: &Run<'_>) -> (Vec<Row>, Vec<i64>) {
    let spec = SessionWindow {
        partition: vec![0],
        time: 1,
        gap_us: gap * SECOND,
        lateness: Some(SessionLateness {
            label: 1,
            shift_us: 0,
            judged: Judged::ByRow,
            listed: 2,
        }),
    };
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let law = Law {
        spec: &spec,
        inputs: vec![schema_of(&[DataType::Utf8, time, DataType::Int64])],
        oracle: &|_| Vec::new(),
    };
    let mut bench = Bench::new(&law, run.shards);
    let (mut sum, mut refused) = (Sum::new(), Vec::new());
    let mut epoch: Vec<Action> = Vec::new();
    let mut watermark = None::<i64>;
    let mark = |watermark: Option<i64>| watermark.map(|micros| Watermark(Timestamp(micros)));
    let mut before = None;
    for (number, (key, time)) in log.iter().enumerate() {
        let judge = watermark.map(|micros| micros.to_string());
        epoch.push(Action {
            input: 0,
            row: vec![Some((*key).to_owned()), shown(*time), judge],
            weight: 1,
            cut: false,
        });
        watermark = watermark.max(Some((3600 + time - delay) * SECOND));
        if (run.ends)(number) || number + 1 == log.len() {
            bench.advance = Advance {
                before: mark(before),
                after: mark(watermark),
                latest: None,
            };
            bench.step(&std::mem::take(&mut epoch), &mut sum);
            refused.extend(refused_times(&bench.faults.late_rows));
            before = watermark;
            if run.anew {
                bench.restart();
            }
        }
    }
    bench.advance = Advance {
        before: mark(before),
        after: mark(Some(i64::MAX)),
        latest: None,
    };
    bench.step(&[], &mut sum);
    bench.flush();
    assert_eq!(bench.stored_entries(), 0, "closed sessions leave state behind");
    let rows = sum
        .into_iter()
        .flat_map(|(row, weight)| std::iter::repeat_n(row, weight as usize));
    let mut rows: Vec<Row> = rows.collect();
    rows.sort();
    refused.sort_unstable();
    (rows, refused)
}

fn orders(events: &[i64]) -> Vec<Vec<i64>> {
    if events.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for first in 0..events.len() {
        let mut rest = events.to_vec();
        let event = rest.remove(first);
        all.extend(orders(&rest).into_iter().map(|order| [vec![event], order].concat()));
    }
    all
}

/// W03: all 120 orders of arrival of five events, each cut into epochs in all 16 ways, with a delay that leaves some
/// of them late and one that leaves none.
#[test]
fn every_order_of_arrival() {
    let mut late = 0;
    for delay in [2, 6, 100] {
        for order in orders(&[0, 3, 8, 12, 20]) {
            let log: Vec<Arrival> = order.into_iter().map(|time| ("a", time)).collect();
            let wanted = expected(&log, 5, delay);
            late += wanted.1.len();
            for cuts in 0..16_u32 {
                let run = Run {
                    ends: &|number| cuts >> number & 1 == 1,
                    shards: 1,
                    anew: cuts % 3 == 0,
                };
                assert_eq!(
                    taken(&log, 5, delay, &run),
                    wanted,
                    "{log:?}, delay {delay}, cuts {cuts:b}"
                );
            }
        }
    }
    assert!(late > 100, "late rows are among them: {late}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_log(
        rows in prop::collection::vec((prop::sample::select(vec!["a", "b", "c"]), 0..60_i64), 1..40),
        gap in 1..8_i64,
        delay in 0..20_i64,
        every in 1..6_usize,
    ) {
        let wanted = expected(&rows, gap, delay);
        for (shards, anew) in [(1, false), (4, true)] {
            let run = Run { ends: &|number| number % every == 0, shards, anew };
            prop_assert_eq!(&taken(&rows, gap, delay, &run), &wanted);
        }
        let at_once = Run { ends: &|_| false, shards: 1, anew: false };
        prop_assert_eq!(&taken(&rows, gap, delay, &at_once), &wanted);
    }
}
