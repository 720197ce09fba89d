//! The file sink through its front: what is in the file after crashes.

use crate::catalog::Column;
use crate::connector::{Position, SinkRequest, SinkWriter, open_sink};
use crate::delta::{Batch, Delta};
use crate::error::Result;
use crate::types::{ColumnBuilder, Nullability, Type};
use arrow::datatypes::Schema;
use arrow::record_batch::RecordBatch;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

fn column(name: &str, kind: Type) -> Column {
    Column {
        name: name.to_owned(),
        kind,
        not_null: false,
        default: None,
        generated: None,
    }
}

fn columns() -> Vec<Column> {
    vec![
        column("a", Type::Int8),
        column("B\"x", Type::Text),
        column("t", Type::Timestamp(None)),
        column("l", Type::Array(Box::new(Type::Float8))),
        column("j", Type::Json),
        column("i", Type::Interval),
    ]
}

type Row<'a> = [Option<&'a str>; 6];

fn delta(rows: &[(i64, Row<'_>)]) -> Delta {
    let columns = columns();
    let mut builders: Vec<ColumnBuilder> = columns.iter().map(|column| ColumnBuilder::new(&column.kind)).collect();
    for (_, row) in rows {
        for (builder, value) in builders.iter_mut().zip(row) {
            builder.push_text(*value).unwrap();
        }
    }
    let fields: Vec<_> = columns
        .iter()
        .map(|column| column.kind.field(&column.name, Nullability::Nullable))
        .collect();
    let arrays = builders.iter_mut().map(ColumnBuilder::finish).collect();
    let rows_batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
    let weights: Vec<i64> = rows.iter().map(|(weight, _)| *weight).collect();
    Delta::from(Batch {
        rows: rows_batch,
        weights: weights.into(),
    })
}

const FULL: Row<'static> = [
    Some("1"),
    Some("x,\"y\"\n"),
    Some("2024-01-01 00:00:01"),
    Some("{1.5,NULL,NaN}"),
    Some("{\"k\":\n1}"),
    Some("1 day"),
];
const EMPTY: Row<'static> = [None, Some(""), None, Some("{}"), None, None];

fn open(path: &Path, more: &[(&str, &str)], position: Option<&Position>) -> Result<Box<dyn SinkWriter>> {
    let mut options = BTreeMap::from([
        ("connector".to_owned(), "file".to_owned()),
        ("path".to_owned(), path.to_string_lossy().into_owned()),
    ]);
    options.extend(
        more.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    );
    open_sink(&SinkRequest {
        options: &options,
        columns: &columns(),
        position,
    })
}

#[test]
fn changes_are_written_as_csv_and_json() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.csv");
    let mut sink = open(&path, &[], None).unwrap();
    sink.write(7, &delta(&[(-2, FULL), (1, EMPTY)])).unwrap();
    sink.flush().unwrap();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "epoch,diff,a,\"B\"\"x\",t,l,j,i\n\
         7,-2,1,\"x,\"\"y\"\"\n\",2024-01-01 00:00:01,\"{1.5,NULL,NaN}\",\"{\"\"k\"\":\n1}\",1 day\n\
         7,1,,\"\",,{},,\n"
    );

    let path = directory.path().join("x.json");
    let mut sink = open(&path, &[], None).unwrap();
    sink.write(7, &delta(&[(-2, FULL), (1, EMPTY)])).unwrap();
    sink.flush().unwrap();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "{\"epoch\":7,\"diff\":-2,\"a\":1,\"B\\\"x\":\"x,\\\"y\\\"\\n\",\"t\":\"2024-01-01T00:00:01\",\"l\":[1.5,null,\"NaN\"],\"j\":{\"k\": 1},\"i\":\"1 day\"}\n\
         {\"epoch\":7,\"diff\":1,\"a\":null,\"B\\\"x\":\"\",\"t\":null,\"l\":[],\"j\":null,\"i\":null}\n"
    );
}

#[test]
fn append_only_files_hold_rows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.csv");
    let options = [
        ("append_only", "true"),
        ("header", "false"),
        ("null", "NA"),
        ("delimiter", ";"),
    ];
    let mut sink = open(&path, &options, None).unwrap();
    sink.write(
        1,
        &delta(&[(2, EMPTY), (1, [Some("5"), Some("NA"), None, None, None, None])]),
    )
    .unwrap();
    sink.flush().unwrap();
    let empty = "NA;\"\";NA;{};NA;NA\n";
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        format!("{empty}{empty}5;\"NA\";NA;NA;NA;NA\n")
    );
    let error = sink.write(2, &delta(&[(-1, EMPTY)])).unwrap_err();
    assert_eq!(error.code(), "55000");
}

#[test]
fn what_came_after_the_position_is_cut_and_comes_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.csv");
    let mut sink = open(&path, &[], None).unwrap();
    let mut position = sink.flush().unwrap();
    let mut straight = String::new();
    for epoch in 1..=20u64 {
        let rows = delta(&[(1, [Some("1"), Some(&epoch.to_string()), None, None, None, None])]);
        sink.write(epoch, &rows).unwrap();
        straight.push_str(&format!("{epoch},1,1,{epoch},,,,\n"));
        match epoch % 4 {
            0 => position = sink.flush().unwrap(),
            // Written and flushed, but the position was lost.
            1 => drop(sink.flush().unwrap()),
            2 => {}
            _ => {
                sink = open(&path, &[], Some(&position)).unwrap();
                for again in 1..=epoch {
                    let rows = delta(&[(1, [Some("1"), Some(&again.to_string()), None, None, None, None])]);
                    sink.write(again, &rows).unwrap();
                }
            }
        }
    }
    sink.flush().unwrap();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        format!("epoch,diff,a,\"B\"\"x\",t,l,j,i\n{straight}")
    );

    fs::write(&path, "cut").unwrap();
    assert_eq!(open(&path, &[], Some(&position)).err().unwrap().code(), "58000");
    fs::remove_file(&path).unwrap();
    assert_eq!(open(&path, &[], Some(&position)).err().unwrap().code(), "58P01");
}

#[test]
fn a_new_sink_takes_no_file_of_others() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["x.csv", "x.parquet"] {
        let path = directory.path().join(name);
        fs::write(&path, "mine").unwrap();
        assert_eq!(open(&path, &[], None).err().unwrap().code(), "58P02");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }
    // A crash between making the file and storing the first position leaves an empty file.
    let path = directory.path().join("y.csv");
    drop(open(&path, &[], None).unwrap());
    assert!(open(&path, &[], None).is_ok());
    assert_eq!(
        open(&directory.path().join("z.csv.gz"), &[], None)
            .err()
            .unwrap()
            .code(),
        "0A000"
    );
    assert_eq!(
        open(&directory.path().join("no/z.csv"), &[], None)
            .err()
            .unwrap()
            .code(),
        "58P01"
    );
}

fn parts(path: &Path) -> Vec<(String, usize)> {
    let mut parts: Vec<(String, usize)> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_string_lossy().ends_with(".parquet"))
        .map(|entry| {
            let file = fs::File::open(entry.path()).unwrap();
            let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(file, 1024).unwrap();
            let rows = reader.map(|batch| batch.unwrap().num_rows()).sum();
            (entry.file_name().to_string_lossy().into_owned(), rows)
        })
        .collect();
    parts.sort();
    parts
}

#[test]
fn parquet_parts_come_and_go_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    let mut sink = open(&path, &[], None).unwrap();
    assert!(parts(&path).is_empty());
    sink.write(1, &delta(&[(-2, FULL), (1, EMPTY)])).unwrap();
    assert!(parts(&path).is_empty(), "nothing shows before the flush");
    let position = sink.flush().unwrap();
    assert_eq!(sink.flush().unwrap(), position, "a flush of nothing makes no part");
    sink.write(2, &delta(&[(1, FULL)])).unwrap();
    sink.flush().unwrap();
    let first = ("part-00000001.parquet".to_owned(), 2);
    assert_eq!(parts(&path), [first.clone(), ("part-00000002.parquet".to_owned(), 1)]);

    let mut sink = open(&path, &[], Some(&position)).unwrap();
    assert_eq!(parts(&path), std::slice::from_ref(&first));
    sink.write(1, &delta(&[(1, FULL)])).unwrap();
    sink.write(2, &delta(&[(1, FULL), (1, FULL), (1, FULL)])).unwrap();
    sink.flush().unwrap();
    assert_eq!(parts(&path), [first, ("part-00000002.parquet".to_owned(), 3)]);
    fs::remove_file(path.join("part-00000001.parquet")).unwrap();
    assert_eq!(open(&path, &[], Some(&position)).err().unwrap().code(), "58000");
}
