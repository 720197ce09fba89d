//! The file source through its front: options in, rows out, restarted everywhere.

use super::super::{Budget, DecodeError, Position, SourceRequest, SourceState, open_source};
use crate::catalog::Column;
use crate::connector::Source;
use crate::error::{Error, Result};
use crate::types::Type;
use crate::types::text::{Settings, TextWriter};
use bytes::BytesMut;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const ALL: Budget = Budget {
    rows_max: 1 << 20,
    bytes_max: 1 << 30,
};
const ONE: Budget = Budget {
    rows_max: 1,
    bytes_max: 1 << 30,
};

fn column(name: &str, kind: Type) -> Column {
    Column {
        name: name.to_owned(),
        kind,
        not_null: false,
        default: None,
        generated: None,
    }
}

fn abc() -> Vec<Column> {
    vec![
        column("a", Type::Int8),
        column("b", Type::Text),
        column("c", Type::Timestamp(None)),
    ]
}

/// A file of some format and options, and the columns of the stream on it.
struct Case {
    directory: TempDir,
    options: BTreeMap<String, String>,
    columns: Vec<Column>,
}

/// What a source gave: each row as text, and the errors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Given {
    rows: Vec<String>,
    errors: Vec<DecodeError>,
}

impl Case {
    fn new(name: &str, bytes: &[u8], columns: Vec<Column>, options: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        let mut all = BTreeMap::from([
            ("connector".to_owned(), "file".to_owned()),
            ("path".to_owned(), path.to_string_lossy().into_owned()),
        ]);
        all.extend(
            options
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        Self {
            directory,
            options: all,
            columns,
        }
    }

    fn path(&self) -> &Path {
        Path::new(&self.options["path"])
    }

    fn open(&self, position: Option<&Position>) -> Result<Box<dyn Source>> {
        open_source(&SourceRequest {
            options: &self.options,
            columns: &self.columns,
            position,
            projection: None,
        })
    }

    fn open_error(&self, position: Option<&Position>) -> Error {
        self.open(position).err().expect("it cannot be opened")
    }

    /// Everything in one go.
    fn all(&self) -> Given {
        let mut given = Given::default();
        let mut source = self.open(None).unwrap();
        while given.poll(source.as_mut(), ALL) != SourceState::Finished {}
        given
    }

    /// Everything, the source opened anew before every row.
    fn restarted(&self) -> Given {
        let mut given = Given::default();
        let mut position = None;
        for _ in 0..10_000 {
            let mut source = self.open(position.as_ref()).unwrap();
            if given.poll(source.as_mut(), ONE) == SourceState::Finished {
                assert_eq!(
                    given.poll(self.open(Some(&source.position())).unwrap().as_mut(), ONE),
                    SourceState::Finished
                );
                return given;
            }
            position = Some(source.position());
        }
        panic!("the source does not end");
    }

    /// The rows and the errors as `position: message`, the same however it is read.
    fn check(&self, rows: &[&str], errors: &[&str]) {
        let all = self.all();
        assert_eq!(all.rows, rows);
        let told: Vec<String> = all
            .errors
            .iter()
            .map(|error| format!("{}: {}", error.position, error.message))
            .collect();
        assert_eq!(told, errors);
        assert_eq!(self.restarted(), all, "restarted at every row");
    }
}

impl Given {
    fn poll(&mut self, source: &mut dyn Source, budget: Budget) -> SourceState {
        let polled = source.poll(budget).unwrap();
        assert!(polled.delta.len() + polled.errors.len() <= budget.rows_max);
        for batch in &polled.delta.batches {
            let schema = batch.rows.schema();
            let writers: Vec<TextWriter> = schema
                .fields()
                .iter()
                .zip(batch.rows.columns())
                .map(|(field, array)| {
                    TextWriter::for_column(&Type::of_field(field), array, &Settings::default()).unwrap()
                })
                .collect();
            for row in 0..batch.len() {
                let texts = writers.iter().map(|writer| {
                    let mut text = BytesMut::new();
                    writer.write(row, &mut text);
                    if writer.is_null(row) {
                        "NULL".to_owned()
                    } else {
                        String::from_utf8(text.to_vec()).unwrap()
                    }
                });
                self.rows.push(texts.collect::<Vec<_>>().join("|"));
            }
        }
        self.errors.extend(polled.errors);
        polled.state
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

const PLAIN: &[u8] = b"\xef\xbb\xbfB,x,a,C\r\n\
one,9,1,2024-01-01T00:00:01Z\r\n\
\"two, \"\"2\"\"\nlines\",,2,2024-01-01 00:00:02.5\r\n\
\r\n\
,9,,\r\n\
\"\",9,4,2024-01-01";
const PLAIN_ROWS: &[&str] = &[
    "1|one|2024-01-01 00:00:01",
    "2|two, \"2\"\nlines|2024-01-01 00:00:02.5",
    "NULL|NULL|NULL",
    "4||2024-01-01 00:00:00",
];

#[test]
fn csv_columns_are_found_by_the_names_in_the_header() {
    Case::new("x.csv", PLAIN, abc(), &[]).check(PLAIN_ROWS, &[]);
}

#[test]
fn compressed_files_give_the_same() {
    Case::new("x.csv.gz", &gzip(PLAIN), abc(), &[]).check(PLAIN_ROWS, &[]);
    let members = [gzip(&PLAIN[..40]), gzip(&PLAIN[40..])].concat();
    Case::new("x.data", &members, abc(), &[("format", "csv"), ("compression", "gzip")]).check(PLAIN_ROWS, &[]);
    let zstd = zstd::encode_all(PLAIN, 3).unwrap();
    Case::new("x.csv.zst", &zstd, abc(), &[]).check(PLAIN_ROWS, &[]);
}

#[test]
fn damaged_files_give_what_is_before_the_damage() {
    let text: Vec<u8> = (0..100_000)
        .flat_map(|row| format!("{row},{}\n", row * 7919 % 10007).into_bytes())
        .collect();
    let bytes = gzip(&text);
    let case = Case::new("x.csv.gz", &bytes[..bytes.len() / 2], abc(), &[("header", "false")]);
    let mut source = case.open(None).unwrap();
    let polled = source.poll(ALL).unwrap();
    assert!(polled.delta.len() > 1000);
    let error = source.poll(ALL).unwrap_err();
    assert_eq!(error.code(), "58000");
    assert!(error.message().starts_with("could not read file"), "{error}");
    assert_eq!(source.poll(ALL).unwrap_err(), error);
}

#[test]
fn csv_without_a_header_goes_by_position() {
    let options = &[
        ("header", "false"),
        ("delimiter", "\\t"),
        ("null", "NA"),
        ("quote", "'"),
    ];
    let bytes = b"1\t'NA'\t2024-02-29\tmore\n2\tNA\tNA\tmore\n3\t\"\t2024-01-01\t''''\n";
    Case::new("x.csv", bytes, abc(), options).check(
        &["1|NA|2024-02-29 00:00:00", "2|NULL|NULL", "3|\"|2024-01-01 00:00:00"],
        &[],
    );
    Case::new("x.csv", b"1\n\n2\n", abc(), options).check(
        &["1|NULL|NULL", "2|NULL|NULL"],
        &["line 2: column \"a\": invalid input syntax for type bigint: \"\""],
    );
}

#[test]
fn bad_csv_records_are_listed_and_passed_over() {
    let mut columns = abc();
    columns[0].not_null = true;
    let bytes = b"a,b,c\n1,x,2024-01-01\nz,x,2024-01-01\n2,x\n3,x,2024-01-01,5\n,x,2024-01-01\n4,x,2023-02-29\n5,\xff,2024-01-01\n6,x,\n";
    let case = Case::new("x.csv", bytes, columns, &[]);
    case.check(
        &["1|x|2024-01-01 00:00:00", "6|x|NULL"],
        &[
            "line 3: column \"a\": invalid input syntax for type bigint: \"z\"",
            "line 4: missing data: the record has 2 values, the file's first line has 3",
            "line 5: extra data after last expected column: the record has 4 values, the file's first line has 3",
            "line 6: null value in column \"a\" violates not-null constraint",
            "line 7: column \"c\": date/time field value out of range: \"2023-02-29\"",
            "line 8: column \"b\": invalid byte sequence for encoding \"UTF8\": 0xff",
        ],
    );
    assert_eq!(case.all().errors[0].record, "z,x,2024-01-01");
}

#[test]
fn a_quote_that_is_never_closed_costs_one_line() {
    let bytes = b"a,b\n1,\"x\n2,y\n3,\"z\"\n4,\"\"\"\n5,v\n";
    let case = Case::new("x.csv", bytes, abc(), &[]);
    // The quote of line 2 closes at line 4; the one of line 5 never does.
    let all = case.all();
    assert_eq!(all.rows, ["1|x\n2,y\n3,z\"|NULL", "5|v|NULL"]);
    assert_eq!(all.errors.len(), 1);
    assert_eq!(
        (all.errors[0].position.as_str(), all.errors[0].message.as_str()),
        ("line 5", "unterminated CSV quoted field")
    );
    assert_eq!(case.restarted(), all);
}

#[test]
fn a_long_row_is_a_row() {
    let long = "x\n".repeat(8 << 20);
    let bytes = format!("a,b\n1,\"{long}\"\n2,y\n");
    for (name, bytes) in [
        ("x.csv", bytes.clone().into_bytes()),
        ("x.csv.gz", gzip(bytes.as_bytes())),
    ] {
        let given = Case::new(name, &bytes, abc(), &[]).restarted();
        assert_eq!(given.rows.len(), 2);
        assert_eq!(given.rows[0].len(), 2 + long.len() + 5);
        assert_eq!(given.rows[1], "2|y|NULL");
    }
    let line = format!("{{\"a\":1,\"b\":\"{}\"}}\n{{\"a\":2}}\n", "y".repeat(16 << 20));
    let given = Case::new("x.json", line.as_bytes(), abc(), &[]).all();
    assert_eq!((given.rows.len(), given.rows[0].len()), (2, (16 << 20) + 7));
}

#[test]
fn a_row_that_is_too_long_is_listed() {
    let long = "x".repeat(super::super::RECORD_BYTES_MAX + 10);
    let bytes = format!("a,b\n1,y\n2,{long}\n3,z\n");
    let case = Case::new("x.csv", bytes.as_bytes(), abc(), &[]);
    let given = case.restarted();
    assert_eq!(given.rows, ["1|y|NULL", "3|z|NULL"]);
    assert_eq!(given.errors.len(), 1);
    assert_eq!(given.errors[0].position, "line 3");
    assert!(given.errors[0].record.len() < 2000);
}

#[test]
fn a_header_that_fits_nothing_is_refused() {
    let error = Case::new("x.csv", b"1,x\n2,y\n", abc(), &[]).open_error(None);
    assert_eq!(
        (error.code(), error.message()),
        ("42703", "the file's header names none of the columns")
    );
    assert!(error.hint().is_some_and(|hint| hint.contains("header = 'false'")));
    let error = Case::new("x.csv", b"a,A\n", abc(), &[]).open_error(None);
    assert_eq!(error.code(), "42701");
}

#[test]
fn empty_files_are_finished() {
    for (name, bytes) in [
        ("x.csv", &b""[..]),
        ("x.csv", b"a,b,c"),
        ("x.csv", b"\n\n"),
        ("x.json", b""),
        ("x.json", b"\n \n"),
    ] {
        Case::new(name, bytes, abc(), &[]).check(&[], &[]);
    }
}

#[test]
fn files_that_cannot_be_opened_say_so() {
    let mut case = Case::new("x.csv", b"a\n", abc(), &[]);
    case.options.insert("path".to_owned(), "/nonexistent/x.csv".to_owned());
    let error = case.open_error(None);
    assert_eq!(
        (error.code(), error.message()),
        (
            "58P01",
            "could not open file \"/nonexistent/x.csv\": No such file or directory"
        )
    );
    let directory = case.directory.path().to_string_lossy().into_owned();
    case.options
        .extend([("path".to_owned(), directory), ("format".to_owned(), "csv".to_owned())]);
    assert_eq!(case.open_error(None).code(), "42809");
}

#[test]
fn a_file_that_is_not_the_same_any_more_is_refused() {
    let bytes: Vec<u8> = (0..2000)
        .flat_map(|row| format!("{row},row {row}\n").into_bytes())
        .collect();
    let case = Case::new("x.csv", &bytes, abc(), &[("header", "false")]);
    let mut source = case.open(None).unwrap();
    source.poll(Budget { rows_max: 1500, ..ALL }).unwrap();
    let position = source.position();
    assert!(case.open(Some(&position)).is_ok());

    fs::write(case.path(), &bytes[..1000]).unwrap();
    let error = case.open_error(Some(&position));
    assert_eq!(error.code(), "58000");
    assert!(
        error
            .message()
            .contains("x.csv\" became shorter since it was last read"),
        "{error}"
    );
    fs::write(case.path(), &bytes[..8000]).unwrap();
    assert!(case.open_error(Some(&position)).message().contains("became shorter"));

    for place in [10, 15_000] {
        let mut other = bytes.clone();
        let tail = other.windows(9).position(|window| window == b"row 1499\n").unwrap();
        other[if place == 10 { 10 } else { tail }] ^= 1;
        fs::write(case.path(), &other).unwrap();
        let error = case.open_error(Some(&position));
        assert!(error.message().contains("was replaced"), "{error}");
    }

    let longer = [bytes.as_slice(), b"2000,more\n"].concat();
    fs::write(case.path(), &longer).unwrap();
    let mut given = Given::default();
    given.poll(case.open(Some(&position)).unwrap().as_mut(), ALL);
    assert_eq!(given.rows.len(), 501, "a file that grew is read on");
}

#[test]
fn followed_files_are_read_on_as_they_grow() {
    let case = Case::new("x.csv", b"", abc(), &[("follow", "true")]);
    let append = |text: &str| {
        let mut file = fs::OpenOptions::new().append(true).open(case.path()).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    let rung = Arc::new(AtomicUsize::new(0));
    let bell = rung.clone();
    let mut source = case.open(None).unwrap();
    source.wake_by(Arc::new(move || {
        bell.fetch_add(1, Ordering::SeqCst);
    }));
    let mut given = Given::default();
    assert!(matches!(given.poll(source.as_mut(), ALL), SourceState::Idle { .. }));
    let mut positions = vec![source.position()];
    for (text, rows) in [("a,b", 0), ("\n1,x", 0), ("\n2,\"y\n", 1), ("\"\n3,z\n", 3)] {
        let before = rung.load(Ordering::SeqCst);
        append(text);
        let deadline = Instant::now() + Duration::from_secs(20);
        while rung.load(Ordering::SeqCst) == before {
            assert!(Instant::now() < deadline, "the waker was not rung");
            std::thread::yield_now();
        }
        assert!(matches!(given.poll(source.as_mut(), ALL), SourceState::Idle { .. }));
        assert_eq!(given.rows.len(), rows, "after {text:?}");
        positions.push(source.position());
    }
    assert_eq!(given.rows, ["1|x|NULL", "2|y\n|NULL", "3|z|NULL"]);
    for (index, position) in positions.iter().enumerate() {
        let mut rest = Given::default();
        rest.poll(case.open(Some(position)).unwrap().as_mut(), ALL);
        let before = [0, 0, 0, 1, 3][index];
        assert_eq!(rest.rows, given.rows[before..], "from position {index}");
    }
    fs::write(case.path(), b"a,b\n").unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let error = loop {
        match source.poll(ALL) {
            Err(error) => break error,
            Ok(_) => assert!(Instant::now() < deadline, "the cut was not noticed"),
        }
    };
    assert!(error.message().contains("became shorter"), "{error}");
}

#[test]
fn a_rate_is_kept() {
    let bytes: Vec<u8> = (0..500).flat_map(|row| format!("{row}\n").into_bytes()).collect();
    let case = Case::new("x.csv", &bytes, abc(), &[("header", "false"), ("rate", "1000")]);
    let mut source = case.open(None).unwrap();
    let mut given = Given::default();
    let start = Instant::now();
    loop {
        match given.poll(source.as_mut(), ALL) {
            SourceState::Finished => break,
            SourceState::Idle { retry_at: Some(at) } => {
                std::thread::sleep(at.saturating_duration_since(Instant::now()))
            }
            state => panic!("a paced source is not {state:?}"),
        }
    }
    assert_eq!(given.rows.len(), 500);
    assert!(start.elapsed() >= Duration::from_millis(450), "{:?}", start.elapsed());
}

#[test]
fn json_values_are_exact_or_errors() {
    let columns = vec![
        column("i", Type::Int8),
        column("n", Type::Numeric(None)),
        column("f", Type::Float8),
        column("t", Type::Text),
        column("j", Type::Json),
        column("l", Type::Array(Box::new(Type::Text))),
    ];
    let bytes = br#"{"i": 9223372036854775807, "n": 12345678901234567890.125, "f": 1e300, "t": "a\u00e9\ud83d\ude00\n", "j": {"k": [1, 2.50]}, "l": ["x", null, "a\"b,c"], "z": {"deep": [true]}}
{"i": 9223372036854775808}
{"f": 1e400}
{"i": 1.0}

{"t": 1.50, "j": "s", "i": "7", "I": 8, "i": 9}
{"t": [1, 2], "j": null, "l": []}
{"t": "\ud800"}
{"i": 1,}
[1]
{"i": 1} x
{"i": 01}
{}
"#;
    Case::new("x.jsonl", bytes, columns, &[]).check(
        &[
            "9223372036854775807|12345678901234567890.125|1e+300|a\u{e9}\u{1f600}\n|{\"k\": [1, 2.50]}|{x,NULL,\"a\\\"b,c\"}",
            "9|NULL|NULL|1.50|\"s\"|NULL",
            "NULL|NULL|NULL|[1, 2]|NULL|{}",
            "NULL|NULL|NULL|NULL|NULL|NULL",
        ],
        &[
            "line 2: column \"i\": value \"9223372036854775808\" is out of range for type bigint",
            "line 3: column \"f\": \"1e400\" is out of range for type double precision",
            "line 4: column \"i\": invalid input syntax for type bigint: \"1.0\"",
            "line 8: column \"t\": invalid input syntax for type json: Unicode low surrogate must follow a high surrogate.",
            "line 9: invalid input syntax for type json: a string was expected at byte 9",
            "line 10: invalid input syntax for type json: the line is not an object",
            "line 11: invalid input syntax for type json: the end of the line was expected at byte 9",
            "line 12: invalid input syntax for type json: a number has a leading zero",
        ],
    );
}

#[test]
fn needed_columns_alone_are_decoded() {
    let case = Case::new("x.csv", b"a,b,c\n1,x,bad\n2,y,bad\n", abc(), &[]);
    let mut source = open_source(&SourceRequest {
        options: &case.options,
        columns: &case.columns,
        position: None,
        projection: Some(&[1, 0]),
    })
    .unwrap();
    let mut given = Given::default();
    given.poll(source.as_mut(), ALL);
    assert_eq!(
        given,
        Given {
            rows: vec!["x|1".to_owned(), "y|2".to_owned()],
            errors: Vec::new()
        }
    );
}

#[test]
fn generated_columns_are_not_looked_for() {
    let mut columns = abc();
    columns[1].generated = Some("upper('x')".to_owned());
    Case::new("x.csv", b"1,2024-01-01\n", columns.clone(), &[("header", "false")])
        .check(&["1|2024-01-01 00:00:00"], &[]);
    Case::new("x.csv", b"c,b,a\n2024-01-01,x,1\n", columns, &[]).check(&["1|2024-01-01 00:00:00"], &[]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whatever is in a file, it is read to its end without a panic, and the same over restarts.
    #[test]
    fn garbage_is_listed(
        mut bytes in proptest::collection::vec(
            prop_oneof![
                4 => proptest::sample::select(&b"{}[]\":,\\u0d8nulltrue-+.eE 19\r\n\n"[..]),
                1 => any::<u8>(),
            ],
            0..200,
        ),
        json: bool,
    ) {
        let columns = vec![
            column("a", Type::Int4),
            column("b", Type::Array(Box::new(Type::Array(Box::new(Type::Text))))),
            column("c", Type::Jsonb),
        ];
        if json {
            // Half of the lines look like objects.
            let lines = bytes.split(|byte| *byte == b'\n').enumerate();
            bytes = lines
                .flat_map(|(index, line)| if index % 2 == 0 { [b"{\"a\":1,\"b\":", line, b"}\n"].concat() } else { [line, b"\n"].concat() })
                .collect();
        }
        let options = if json { &[][..] } else { &[("header", "false")][..] };
        let case = Case::new(if json { "x.json" } else { "x.csv" }, &bytes, columns, options);
        if case.open(None).is_err() {
            return Ok(());
        }
        prop_assert_eq!(case.restarted(), case.all());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// However the file is cut into polls and restarts, the rows are the same, bad ones included.
    #[test]
    fn positions_compose(
        text in "(([a-c]{0,2}|-?[0-9]{1,3}|\"[a\n,]{0,3}\"|\"|\"\"),){0,2}[0-9a\"]{0,2}(\r?\n(([0-9]{1,3}|\"[0-9\n,]{0,3}\"?),){0,2}[0-9a\"]{0,3}){0,12}",
        cuts in proptest::collection::vec(1usize..5, 1..8),
        compressed: bool,
    ) {
        let bytes = if compressed { gzip(text.as_bytes()) } else { text.clone().into_bytes() };
        let name = if compressed { "x.csv.gz" } else { "x.csv" };
        let case = Case::new(name, &bytes, abc(), &[("header", "false")]);
        if case.open(None).is_err() {
            return Ok(());
        }
        let all = case.all();
        let mut given = Given::default();
        let mut source = case.open(None).unwrap();
        for rows_max in cuts.iter().cycle() {
            if given.poll(source.as_mut(), Budget { rows_max: *rows_max, ..ALL }) == SourceState::Finished {
                break;
            }
            if rows_max % 2 == 1 {
                source = case.open(Some(&source.position())).unwrap();
            }
        }
        prop_assert_eq!(&given, &all);
        prop_assert_eq!(&case.restarted(), &all);
    }
}

mod parquet {
    use super::*;
    use ::parquet::arrow::ArrowWriter;
    use ::parquet::file::properties::WriterProperties;
    use arrow::array::{
        ArrayRef, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray,
        TimestampNanosecondArray,
    };

    fn file(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(3)).build();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    }

    #[test]
    fn columns_come_by_name_and_exactly() {
        let bytes = file(vec![
            (
                "A",
                Arc::new(Int64Array::from(vec![Some(1), Some(40_000), None, Some(4), Some(5)])),
            ),
            (
                "ms",
                Arc::new(TimestampMillisecondArray::from(vec![
                    1,
                    -1,
                    1_700_000_000_123,
                    0,
                    i64::MAX,
                ])),
            ),
            (
                "ns",
                Arc::new(TimestampNanosecondArray::from(vec![
                    1_001,
                    -1,
                    1_700_000_000_123_456_500,
                    0,
                    1_499,
                ])),
            ),
            ("unused", Arc::new(Int64Array::from(vec![0; 5]))),
            (
                "n",
                Arc::new(
                    Decimal128Array::from(vec![100, 250, -1, 0, 99])
                        .with_precision_and_scale(10, 2)
                        .unwrap(),
                ),
            ),
            (
                "u",
                Arc::new(StringArray::from(vec![
                    "A0EEBC999C0B4EF8BB6D6BB9BD380A11",
                    "x",
                    "",
                    "y",
                    "z",
                ])),
            ),
            ("f", Arc::new(Float64Array::from(vec![1.5, 1e300, f64::NAN, -0.0, 2.0]))),
        ]);
        let columns = vec![
            column("a", Type::Int2),
            column("ms", Type::Timestamp(None)),
            column("ns", Type::Timestamptz(None)),
            column("gone", Type::Text),
            column("n", Type::Numeric(None)),
            column("f", Type::Float4),
        ];
        Case::new("x.parquet", &bytes, columns, &[]).check(
            &[
                "1|1970-01-01 00:00:00.001|1970-01-01 00:00:00.000001+00|NULL|1|1.5",
                "NULL|2023-11-14 22:13:20.123|2023-11-14 22:13:20.123456+00|NULL|-0.01|NaN",
                "4|1970-01-01 00:00:00|1970-01-01 00:00:00+00|NULL|0|-0",
            ],
            &[
                "row group 0, row 2: column \"a\": value out of range for type smallint",
                "row group 1, row 2: column \"ms\": value out of range for type timestamp without time zone",
            ],
        );
        let case = Case::new("x.parquet", &bytes, vec![column("u", Type::Uuid)], &[]);
        let given = case.all();
        assert_eq!(given.rows, ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]);
        assert_eq!(given.errors.len(), 4);
        let error = Case::new("x.parquet", &bytes, vec![column("f", Type::Int8)], &[]).open_error(None);
        assert_eq!(
            (error.code(), error.message()),
            ("42804", "column \"f\" is of type bigint but the file has Float64")
        );
    }

    #[test]
    fn other_files_are_refused() {
        let columns = vec![column("a", Type::Int8)];
        let bytes = file(vec![("a", Arc::new(Int64Array::from(vec![1, 2, 3, 4])))]);
        let case = Case::new("x.parquet", &bytes, columns.clone(), &[]);
        let mut source = case.open(None).unwrap();
        source.poll(ONE).unwrap();
        let position = source.position();
        for other in [vec![1, 2, 3, 4, 5], vec![1, 2, 3, 9]] {
            fs::write(case.path(), file(vec![("a", Arc::new(Int64Array::from(other)))])).unwrap();
            let error = case.open_error(Some(&position));
            assert!(error.message().contains("was replaced"), "{error}");
        }
        let error = Case::new("x.parquet", b"a,b\n", columns, &[]).open_error(None);
        assert_eq!(error.code(), "58000");
    }
}
