//! Statements as they are read, and refused.

use super::*;
use crate::catalog::Emit;
use crate::sql::statement::{
    CopyDirection, CopyFormat, CopyTarget, FetchDirection, IfExists, ObjectKind, OneOrAll, SetScope, SetValue, Show,
};

fn one(text: &str) -> Statement {
    let mut all = parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    assert_eq!(all.len(), 1, "{text}");
    all.remove(0).statement
}

fn refused(text: &str) -> (String, String, Option<usize>) {
    match parse(text) {
        Ok(_) => panic!("{text} was read"),
        Err(error) => (error.code().to_owned(), error.message().to_owned(), error.position()),
    }
}

#[test]
fn syntax_errors_say_where_in_postgres_words() {
    let cases = [
        ("selec 1", "syntax error at or near \"selec\"", 1),
        ("SELECT 1; SELECT FROM WHERE", "syntax error at or near \"WHERE\"", 23),
        ("SELECT (1", "syntax error at end of input", 10),
        ("CREATE TABLE t (a int", "syntax error at end of input", 22),
        ("SELECT 1 FROM t\nWHERE a = = 1", "syntax error at or near \"=\"", 27),
        ("SELECT 'abc", "unterminated quoted string at or near \"'abc\"", 8),
        ("SELECT \"abc", "unterminated quoted identifier at or near \"\"abc\"", 8),
        ("SELECT 1 /* abc", "unterminated /* comment at or near \"/* abc\"", 10),
        ("INSERT INTO t VALUES (1,)", "syntax error at or near \")\"", 25),
        ("DROP TABLE", "syntax error at end of input", 11),
        ("SELECT é FROM , t", "syntax error at or near \",\"", 15),
        (
            "CREATE STREAM s (a int) WITH (x)) ",
            "syntax error at or near \")\"",
            33,
        ),
    ];
    for (text, message, position) in cases {
        assert_eq!(
            refused(text),
            ("42601".to_owned(), message.to_owned(), Some(position)),
            "{text}"
        );
    }
}

#[test]
fn many_statements_know_their_own_text() {
    let all = parse("SELECT 1 ; -- a comment ; here\n SELECT ';' ;; BEGIN").unwrap();
    let texts: Vec<&str> = all.iter().map(|parsed| parsed.source.text()).collect();
    assert_eq!(texts, ["SELECT 1", "SELECT ';'", "BEGIN"]);
    assert!(parse(" -- nothing\n ; ").unwrap().is_empty());
}

#[test]
fn names_fold_and_are_cut() {
    let long = "A".repeat(70);
    let parsed = &parse(&format!("SELECT * FROM {long}")).unwrap()[0];
    assert_eq!(parsed.notices.len(), 1);
    let Statement::Drop { names, .. } = one("DROP TABLE Foo, \"Bar\".\"Baz\"") else {
        panic!()
    };
    assert_eq!(names[0].name, "foo");
    assert_eq!(names[1].schema.as_deref(), Some("Bar"));
    assert_eq!(names[1].position, Some(17));
}

#[test]
fn streams_have_watermarks_and_computed_columns() {
    let Statement::CreateStream {
        columns,
        watermark,
        options,
        if_exists,
        ..
    } = one(
        "CREATE STREAM IF NOT EXISTS s (id bigint NOT NULL, ts timestamp(3), d date AS (ts::date), \
         WATERMARK FOR ts AS ts - INTERVAL '5 seconds') WITH (retention = '7 days', max_future_skew = '1 day')",
    )
    else {
        panic!()
    };
    assert_eq!(if_exists, IfExists::Notice);
    assert_eq!(columns.len(), 3);
    assert!(columns[0].not_null);
    assert_eq!(columns[1].kind, Type::Timestamp(Some(3)));
    assert_eq!(columns[2].generated.as_deref(), Some("ts::DATE"));
    assert_eq!(
        watermark.unwrap(),
        ("ts".to_owned(), "ts - INTERVAL '5 seconds'".to_owned())
    );
    assert_eq!(options["retention"], "7 days");
}

#[test]
fn tables_have_keys_and_defaults() {
    let Statement::CreateTable {
        columns, primary_key, ..
    } = one(
        "CREATE TABLE t (a int DEFAULT 1 + 1 NOT NULL, b varchar(3) PRIMARY KEY, c numeric(10,2), d int GENERATED ALWAYS AS (a * 2) STORED)",
    )
    else {
        panic!()
    };
    assert_eq!(columns[0].default.as_deref(), Some("1 + 1"));
    assert!(columns[0].not_null && columns[1].not_null);
    assert_eq!(primary_key, ["b"]);
    assert_eq!(columns[3].generated.as_deref(), Some("a * 2"));
    let Statement::CreateTable { primary_key, .. } = one("CREATE TABLE t (a int, b int, PRIMARY KEY (a, b))") else {
        panic!()
    };
    assert_eq!(primary_key, ["a", "b"]);
    assert_eq!(refused("CREATE TABLE t (a int UNIQUE)").0, "0A000");
    assert_eq!(refused("CREATE TABLE t (a int, A text)").0, "42701");
    assert_eq!(
        refused("CREATE TABLE t (a nosuchtype)"),
        ("42704".into(), "type \"nosuchtype\" does not exist".into(), Some(19))
    );
}

#[test]
fn views_keep_their_query_text() {
    let Statement::CreateMaterializedView {
        query, emit, options, ..
    } = one(
        "CREATE MATERIALIZED VIEW v WITH (on_error = 'null') AS\n  SELECT a, -- the key\n  count(*)  FROM s [RANGE 10 MINUTES SLIDE 1 MINUTE] GROUP BY a EMIT ON WINDOW CLOSE",
    )
    else {
        panic!()
    };
    assert_eq!(emit, Emit::OnWindowClose);
    assert_eq!(options["on_error"], "null");
    assert_eq!(
        query.text,
        "SELECT a, count(*) FROM s [RANGE 10 MINUTES SLIDE 1 MINUTE] GROUP BY a"
    );
    let Statement::CreateView { query, .. } = one("CREATE VIEW v AS SELECT * FROM s [ROWS 5]") else {
        panic!()
    };
    assert_eq!(query.text, "SELECT * FROM s [ROWS 5]");
    let Statement::CreateSink {
        input: crate::sql::statement::SinkInput::Query(query),
        options,
        ..
    } = one("CREATE SINK k AS SELECT 1 AS a FROM t WITH (connector = 'file')")
    else {
        panic!()
    };
    assert_eq!(query.text, "SELECT 1 AS a FROM t");
    assert_eq!(options["connector"], "file");
}

#[test]
fn window_clauses_are_calls() {
    for (text, read) in [
        (
            "SELECT * FROM s [RANGE 10 MINUTES] AS x",
            "SELECT * FROM __window(s, 'range', '10 minutes') AS x",
        ),
        (
            "SELECT * FROM public.s [PARTITION BY k, l ROWS 10]",
            "SELECT * FROM __window(public.s, 'rows', 10, k, l)",
        ),
        (
            "SELECT * FROM (SELECT 1) [NOW]",
            "SELECT * FROM __window((SELECT 1), 'now')",
        ),
        (
            "SELECT * FROM s [HOP 2 SECONDS 10 SECONDS]",
            "SELECT * FROM __window(s, 'hop', '2 seconds', '10 seconds')",
        ),
        (
            "SELECT * FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND))",
            "SELECT * FROM TABLE(tumble(s, descriptor(ts), INTERVAL '10' SECOND))",
        ),
        (
            "SELECT * FROM SESSION(s PARTITION BY a, b, ts, INTERVAL '1 second') x",
            "SELECT * FROM session(s, a, b, ts, INTERVAL '1 second') x",
        ),
        (
            "SELECT * FROM TUMBLE(DATA => TABLE s, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '1 hour')",
            "SELECT * FROM tumble(data => s, timecol => descriptor(ts), size => INTERVAL '1 hour')",
        ),
        ("SELECT a[1], b[now] FROM t", "SELECT a[1], b[now] FROM t"),
        (
            "SELECT * FROM t ASOF LEFT JOIN q ON t.k = q.k AND t.ts >= q.ts",
            "SELECT * FROM t ASOF JOIN q MATCH_CONDITION ('left') ON t.k = q.k AND t.ts >= q.ts",
        ),
        (
            "SELECT * FROM s JOIN t FOR SYSTEM_TIME AS OF now() AS d ON s.k = d.k",
            "SELECT * FROM s JOIN t AS d FOR SYSTEM_TIME AS OF now() ON s.k = d.k",
        ),
    ] {
        let Statement::Query(query) = one(text) else {
            panic!("{text}")
        };
        assert_eq!(query.to_string(), read);
    }
}

#[test]
fn session_statements_are_read() {
    assert!(
        matches!(one("SET TIME ZONE 'Asia/Tokyo'"), Statement::Set { name, value: SetValue::Values(v), .. } if name == "timezone" && v == ["Asia/Tokyo"])
    );
    assert!(
        matches!(one("SET LOCAL search_path TO a, \"B\""), Statement::Set { scope: SetScope::Transaction, value: SetValue::Values(v), .. } if v == ["a", "B"])
    );
    assert!(matches!(one("set extra_float_digits = 3"), Statement::Set { .. }));
    assert!(matches!(
        one("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE"),
        Statement::SetTransaction {
            scope: SetScope::Session,
            ..
        }
    ));
    assert!(
        matches!(one("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY"), Statement::Begin(modes) if modes.isolation.as_deref() == Some("serializable") && modes.read_only == Some(true))
    );
    assert!(matches!(
        one("SHOW MATERIALIZED VIEWS"),
        Statement::Show(Show::MaterializedViews)
    ));
    assert!(
        matches!(one("SHOW transaction isolation level"), Statement::Show(Show::Setting(name)) if name == "transaction_isolation")
    );
    assert!(matches!(
        one("SHOW CREATE MATERIALIZED VIEW v"),
        Statement::Show(Show::Create(Some(ObjectKind::MaterializedView), _))
    ));
    assert!(matches!(
        one("ROLLBACK TO SAVEPOINT a"),
        Statement::RollbackToSavepoint(_)
    ));
    assert!(matches!(one("DEALLOCATE ALL"), Statement::Deallocate(OneOrAll::All)));
    assert!(matches!(
        one("FETCH FORWARD 10 FROM c"),
        Statement::Fetch {
            direction: FetchDirection::Count(10),
            ..
        }
    ));
    assert!(matches!(
        one("FETCH -1 IN c"),
        Statement::Fetch {
            direction: FetchDirection::Count(-1),
            ..
        }
    ));
    assert!(matches!(
        one("DECLARE c CURSOR FOR SUBSCRIBE TO v"),
        Statement::Declare {
            query: crate::sql::statement::CursorQuery::Subscribe(_),
            ..
        }
    ));
    assert!(matches!(one("NOTIFY c, 'x'"), Statement::Notify { .. }));
    assert!(matches!(one("FLUSH"), Statement::Flush));
    assert!(matches!(one("VERIFY MATERIALIZED VIEW v"), Statement::Verify(_)));
    assert!(
        matches!(one("PREPARE p (int, text) AS SELECT $1, $2"), Statement::Prepare { types, .. } if types.len() == 2)
    );
    assert!(
        matches!(one("EXPLAIN (FORMAT json, RULES, STATE off) SELECT 1"), Statement::Explain { options, .. } if options.rules && !options.state)
    );
    assert!(matches!(one("EXPLAIN ANALYZE SELECT 1"), Statement::Explain { options, .. } if options.analyze));
    assert_eq!(
        refused("CREATE SEQUENCE s"),
        ("0A000".into(), "CREATE SEQUENCE is not supported".into(), Some(8))
    );
    assert_eq!(refused("LOCK TABLE t").0, "0A000");
}

#[test]
fn copy_and_subscribe_are_read() {
    let Statement::Copy(copy) =
        one("COPY t (a, b) FROM STDIN WITH (FORMAT csv, HEADER, DELIMITER ';', NULL 'x', batch_rows 10)")
    else {
        panic!()
    };
    assert_eq!(copy.direction, CopyDirection::In);
    assert_eq!(copy.options.format, CopyFormat::Csv);
    assert_eq!(
        (copy.options.delimiter, copy.options.header, copy.options.batch_rows),
        (';', true, Some(10))
    );
    let Statement::Copy(copy) = one("COPY (SUBSCRIBE TO v) TO STDOUT") else {
        panic!()
    };
    assert!(matches!(copy.target, CopyTarget::Subscribe(_)));
    let Statement::Copy(copy) = one("copy t to stdout csv header") else {
        panic!()
    };
    assert_eq!(copy.options.null, "");
    let Statement::Subscribe(subscribe) =
        one("SUBSCRIBE TO (SELECT * FROM v) WITH (SNAPSHOT = false, PROGRESS) AS OF EPOCH 7")
    else {
        panic!()
    };
    assert!(!subscribe.snapshot && subscribe.progress);
    assert_eq!(subscribe.as_of_epoch, Some(7));
    assert_eq!(subscribe.query.text, "SELECT * FROM v");
}

#[test]
fn depth_is_limited_and_never_overflows() {
    let nested = format!("SELECT {}1{}", "(".repeat(100_000), ")".repeat(100_000));
    assert_eq!(refused(&nested).0, "54001");
    let chain = vec!["a = 1"; 20_000].join(" AND ");
    assert!(matches!(
        one(&format!("SELECT 1 FROM t WHERE {chain}")),
        Statement::Query(_)
    ));
    let cases = format!("SELECT {}1{}", "CASE WHEN a THEN ".repeat(200), " END".repeat(200));
    assert!(matches!(one(&cases), Statement::Query(_)));
    let calls = format!("SELECT {}1{}", "abs(".repeat(300), ")".repeat(300));
    assert!(matches!(one(&calls), Statement::Query(_)));
}
