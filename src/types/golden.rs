//! What PostgreSQL 15 answers to some thousand texts of every type, and whether we answer the same.
//!
//! `golden.tsv` holds a type, a text, and PostgreSQL's own text of the value, or `ERROR`, SQLSTATE and message, as
//! COPY writes them; the time zone is Europe/Berlin.

use super::calendar::Zone;
use super::copy::{CopyFormat, CopyReader};
use super::text::{Settings, column_to_text};
use super::{ColumnBuilder, Type};
use arrow::array::AsArray;

const GOLDEN: &str = include_str!("golden.tsv");

/// Where we differ on purpose: the type, the text, and why.
const DIFFERENT: &[(&str, &str, &str)] = &[
    (
        "timestamp",
        "294276-12-31 23:59:59.999999",
        "our range ends with 294246",
    ),
    (
        "timestamptz",
        "294276-12-31 23:59:59.999999",
        "our range ends with 294246",
    ),
    ("timestamptz", "294277-01-01", "our range ends with 294246"),
    ("numeric", "1.50", "a numeric without a scale shows no trailing zeros"),
    ("numeric", "00012.300", "the same"),
    ("numeric", "-0.00", "the same"),
    ("numeric[]", "{1.50,2}", "the same"),
    ("float8", "0x10", "hexadecimal is an accident of C"),
    ("date", "2024--01-02", "an accident, too"),
];

fn type_of(name: &str) -> Type {
    if let Some(element) = name.strip_suffix("[]") {
        return Type::Array(Box::new(type_of(element)));
    }
    let known = super::oid::TYPES
        .iter()
        .find(|known| known.name == name)
        .expect("the golden file names types that exist");
    Type::of_oid(known.oid).expect("a known type has its own OID")
}

fn ours(kind: &Type, text: &str, settings: Settings) -> String {
    let mut builder = ColumnBuilder::new(kind).with_settings(settings);
    match builder.push_text(Some(text)) {
        Ok(()) => column_to_text(kind, &builder.finish(), &settings)
            .expect("what was read can be written")
            .value(0)
            .to_owned(),
        Err(error) => format!("ERROR {} {}", error.code(), error.message()),
    }
}

#[test]
fn values_are_read_and_written_as_postgresql_does() {
    let settings = Settings {
        time_zone: Zone::parse("Europe/Berlin").expect("Berlin has a zone"),
        ..Settings::default()
    };
    let columns = ["kind", "text", "shown"].map(|name| (name.to_owned(), Type::Text));
    let mut reader = CopyReader::new("golden", &columns, CopyFormat::default(), settings);
    reader.feed(GOLDEN.as_bytes()).expect("the golden file is COPY's text");
    let count = reader.rows();
    let taken = reader.take();
    let column = |index: usize| taken[index].as_string::<i32>();
    let mut wrong = Vec::new();
    for row in 0..count {
        let (name, text, shown) = (column(0).value(row), column(1).value(row), column(2).value(row));
        let known = DIFFERENT.iter().any(|(kind, value, _)| *kind == name && *value == text);
        let mut answer = ours(&type_of(name), text, settings);
        // The file has what a cast to text gives, which writes booleans in full.
        match answer.as_str() {
            "t" if name == "bool" => answer = "true".to_owned(),
            "f" if name == "bool" => answer = "false".to_owned(),
            _ => {}
        }
        if answer != shown && !known {
            wrong.push(format!("{name} {text:?}: {answer:?}, PostgreSQL: {shown:?}"));
        }
    }
    assert!(count > 1_000);
    assert!(
        wrong.is_empty(),
        "{} of {count} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
