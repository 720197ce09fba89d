//! Golden plans: each query of `*.txt` with the plan that it has after all rules. `GOLDEN=write cargo test plan::`
//! writes them anew; the difference is then for the eye.

use super::{LowerOptions, lower};
use crate::catalog::{Catalog, Column, Relation, RelationId, RelationKind, Stream};
use crate::connector::nexmark::Table;
use crate::error::Result;
use crate::plan::rule::{Rewritten, rewrite};
use crate::plan::{explain, property};
use crate::sql::bind::{BindSettings, Binder, NoSystemRelations, ParameterTypes};
use crate::types::Type;
use std::fmt::Write;
use std::sync::Arc;

fn relation(id: u32, name: &str, columns: Vec<Column>, kind: RelationKind) -> (RelationId, Arc<Relation>) {
    let relation = Relation {
        id: RelationId(id),
        schema: "public".to_owned(),
        name: name.to_owned(),
        columns,
        kind,
        depends_on: Vec::new(),
        sql: String::new(),
        search_path: vec!["public".to_owned()],
    };
    (relation.id, Arc::new(relation))
}

fn columns(list: &[(&str, Type)]) -> Vec<Column> {
    let column = |(name, kind): &(&str, Type)| Column {
        name: (*name).to_owned(),
        kind: kind.clone(),
        not_null: false,
        default: None,
        generated: None,
    };
    list.iter().map(column).collect()
}

fn stream(watermark: Option<usize>) -> RelationKind {
    RelationKind::Stream(Stream {
        watermark: watermark.map(|column| (column, String::new())),
        ..Stream::default()
    })
}

/// t(id, k, v, name) with the key id, u(id, k, w) without one, s(ts, k, v) with a watermark on ts, and Nexmark's.
fn catalog() -> Catalog {
    let t = [
        ("id", Type::Int4),
        ("k", Type::Int4),
        ("v", Type::Int8),
        ("name", Type::Text),
    ];
    let u = [
        ("id", Type::Int4),
        ("k", Type::Int4),
        ("w", Type::Int8),
        ("list", Type::Array(Box::new(Type::Int4))),
    ];
    let s = [("ts", Type::Timestamp(None)), ("k", Type::Int4), ("v", Type::Int8)];
    let nexmark = [
        ("person", Table::Person),
        ("auction", Table::Auction),
        ("bid", Table::Bid),
    ];
    let nexmark = nexmark.into_iter().enumerate().map(|(index, (name, table))| {
        let columns = table.columns();
        let time = columns.iter().position(|column| column.name == "date_time");
        relation(10 + index as u32, name, columns, stream(time))
    });
    let own = [
        relation(1, "t", columns(&t), RelationKind::Table { primary_key: vec![0] }),
        relation(
            2,
            "u",
            columns(&u),
            RelationKind::Table {
                primary_key: Vec::new(),
            },
        ),
        relation(3, "s", columns(&s), stream(Some(0))),
    ];
    Catalog {
        relations: own.into_iter().chain(nexmark).collect(),
        ..Catalog::default()
    }
}

fn planned(sql: &str) -> Result<Rewritten> {
    let catalog = catalog();
    let settings = BindSettings::default();
    let binder = Binder::new(&catalog, &settings, &NoSystemRelations);
    let query = crate::sql::parse_query(sql)?;
    let bound = binder.bind_query(&query.query, &mut ParameterTypes::default())?;
    let optimised = crate::sql::optimise(bound.plan)?;
    let lowered = lower(&optimised, &LowerOptions::default())?;
    rewrite(&lowered.plan, lowered.root)
}

/// The plan of a query, or why it has none.
fn shown(sql: &str) -> String {
    match planned(sql) {
        Ok(plan) => explain::text(&plan.plan, plan.root),
        Err(error) => format!("{} {error}\n", error.code()),
    }
}

/// Compares a file's plans with those that its queries have now.
///
/// A file is queries, each ended by a semicolon at the end of a line, each followed by its plan and an empty line. Of a
/// query whose plan is not recorded yet, it is only asked that planning it breaks no invariant.
fn check(file: &str) {
    let path = format!("{}/src/plan/lower/tests/{file}", env!("CARGO_MANIFEST_DIR"));
    let is_writing = std::env::var("GOLDEN").is_ok_and(|mode| mode == "write");
    let mut after = String::new();
    for (query, recorded) in entries(&std::fs::read_to_string(&path).unwrap()) {
        let plan = shown(query.trim_end().trim_end_matches(';'));
        assert!(!plan.starts_with("XX000"), "{file}: {query}{plan}");
        assert!(
            is_writing || recorded.is_empty() || recorded == plan,
            "{file}: {query}was:\n{recorded}is:\n{plan}"
        );
        writeln!(after, "{query}{plan}").unwrap();
    }
    if is_writing {
        std::fs::write(&path, &after).unwrap();
    }
}

/// The queries of a file, each with its recorded plan, which may be empty.
fn entries(text: &str) -> Vec<(String, String)> {
    let mut entries: Vec<(String, String)> = Vec::new();
    let mut query = String::new();
    let mut is_plan = false;
    for line in text.lines() {
        if is_plan && line.is_empty() {
            is_plan = false;
        } else if is_plan {
            if let Some((_, plan)) = entries.last_mut() {
                writeln!(plan, "{line}").unwrap();
            }
        } else {
            writeln!(query, "{line}").unwrap();
            if line.ends_with(';') {
                entries.push((std::mem::take(&mut query), String::new()));
                is_plan = true;
            }
        }
    }
    entries
}

#[test]
fn plans_of_relational_queries() {
    check("relational.txt");
}

#[test]
fn plans_of_nexmark() {
    check("nexmark.txt");
}

#[test]
fn a_plan_does_not_depend_on_names() {
    for (one, other) in [
        (
            "SELECT k, sum(v) AS total FROM t GROUP BY k",
            "SELECT x.k AS key, sum(x.v) FROM t AS x GROUP BY x.k",
        ),
        (
            "SELECT a.name, b.w FROM t a JOIN u b ON a.k = b.k",
            "WITH p AS (SELECT * FROM u) SELECT t.name AS n, p.w FROM t JOIN p ON t.k = p.k",
        ),
        (
            "SELECT v + 1 AS x FROM t WHERE k > 2",
            "SELECT y + 1 FROM (SELECT v AS y, k AS z FROM t) q WHERE z > 2",
        ),
    ] {
        let (one, other) = (planned(one).unwrap(), planned(other).unwrap());
        assert_eq!(
            explain::fingerprint(&one.plan, one.root),
            explain::fingerprint(&other.plan, other.root),
            "{}\n{}",
            explain::text(&one.plan, one.root),
            explain::text(&other.plan, other.root)
        );
    }
}

#[test]
fn plans_are_the_same_every_time() {
    let sql = "SELECT a.k, count(DISTINCT b.w) FROM t a FULL JOIN u b USING (k) WHERE a.v > (SELECT avg(v) FROM t) GROUP BY a.k";
    assert_eq!(shown(sql), shown(sql));
    let (one, other) = (planned(sql).unwrap(), planned(sql).unwrap());
    assert_eq!(
        explain::fingerprint(&one.plan, one.root),
        explain::fingerprint(&other.plan, other.root)
    );
}

#[test]
fn notices_name_what_would_bound_the_state() {
    let unbounded = |sql: &str| {
        planned(sql)
            .map(|plan| explain::unbounded(&plan.plan, plan.root))
            .unwrap()
    };
    assert_eq!(unbounded("SELECT k, sum(v) FROM t GROUP BY k"), None);
    assert_eq!(unbounded("SELECT count(*) FROM s"), None);
    assert_eq!(unbounded("SELECT v FROM s WHERE k = 1"), None);
    let windowed = "SELECT window_start, k, count(*) FROM TUMBLE(s, ts, INTERVAL '1 minute') GROUP BY window_start, k";
    assert_eq!(unbounded(windowed), None);
    let told = unbounded("SELECT k, count(*) FROM s GROUP BY k").unwrap();
    assert!(told.contains("a group per (k)") && told.contains("WATERMARK"), "{told}");
    let told = unbounded("SELECT s.v, t.name FROM s JOIN t ON s.k = t.k").unwrap();
    assert!(told.contains("stream \"s\""), "{told}");
}

#[test]
fn facts_reach_the_root() {
    let known = |sql: &str| {
        planned(sql)
            .map(|plan| explain::facts(&property::of(&plan.plan, plan.root)))
            .unwrap()
    };
    assert_eq!(known("SELECT ts, v * 2 FROM s WHERE k > 1"), "append-only");
    assert_eq!(known("SELECT id, v FROM t"), "changing, no row twice");
    assert_eq!(known("SELECT v FROM t"), "changing");
    assert_eq!(known("SELECT k, count(*) FROM s GROUP BY k"), "changing, no row twice");
    assert_eq!(known("SELECT DISTINCT k FROM s"), "append-only, no row twice");
    assert_eq!(known("SELECT s.*, t.name FROM s LEFT JOIN t ON s.k = t.id"), "changing");
}
