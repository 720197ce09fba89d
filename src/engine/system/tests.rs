//! What clients ask of the catalog, as they ask it.

use super::*;
use crate::catalog::{Column, MaterializedView, Relation, RelationKind, Stream};
use crate::sql::bind::{Binder, ParameterTypes};
use crate::types::Type;
use arrow::array::Array;
use datafusion::prelude::{SessionConfig, SessionContext};
use std::collections::BTreeMap;

#[derive(Debug)]
struct Still;

#[async_trait::async_trait]
impl Live for Still {
    async fn inspect(&self) -> Result<crate::engine::command::Inspection> {
        Ok(crate::engine::command::Inspection::default())
    }

    fn epoch(&self) -> (u64, i64) {
        (7, 1_700_000_000_000_000)
    }

    fn started_micros(&self) -> i64 {
        1_600_000_000_000_000
    }

    fn fare(&self, relation: RelationId) -> Fare {
        match relation.0 {
            16397 => Fare {
                status: "stopped",
                reason: Some("division by zero".to_owned()),
            },
            _ => Fare {
                status: "live",
                reason: None,
            },
        }
    }

    fn sources(&self) -> Vec<SourceFact> {
        vec![SourceFact {
            relation: Some(RelationId(16400)),
            rows: 5,
            unit: "bytes",
            ..SourceFact::default()
        }]
    }

    fn sessions(&self) -> Vec<SessionFact> {
        vec![SessionFact {
            id: 1,
            user: "ann".to_owned(),
        }]
    }

    fn cancel(&self, session: i32) -> bool {
        session == 1
    }

    fn settings(&self) -> Vec<SettingFact> {
        let setting = |name, default, context| SettingFact {
            name,
            default,
            description: "",
            context,
        };
        let jit = SettingFact {
            description: "Accepted, without effect.",
            ..setting("jit", "off", "user")
        };
        vec![
            setting("statement_timeout", "0", "user"),
            setting("search_path", "\"$user\", public", "user"),
            setting("max_index_keys", "32", "internal"),
            jit,
        ]
    }

    fn faults(&self, _: RelationId) -> Result<Option<RecordBatch>> {
        Ok(None)
    }
}

fn column(name: &str, kind: Type) -> Column {
    Column {
        name: name.to_owned(),
        kind,
        not_null: false,
        default: None,
        generated: None,
    }
}

fn relation(id: u32, schema: &str, name: &str, columns: Vec<Column>, kind: RelationKind) -> Arc<Relation> {
    Arc::new(Relation {
        id: RelationId(id),
        schema: schema.to_owned(),
        name: name.to_owned(),
        columns,
        kind,
        depends_on: if matches!(id, 16393 | 16397) {
            vec![RelationId(16384)]
        } else {
            Vec::new()
        },
        sql: format!("CREATE {name}"),
        search_path: vec!["public".to_owned()],
    })
}

/// The relations of the recorded statements, numbered as they were.
fn catalog() -> Arc<Catalog> {
    let bids = vec![
        Column {
            not_null: true,
            ..column("id", Type::Int8)
        },
        Column {
            not_null: true,
            ..column("auction", Type::Int8)
        },
        Column {
            default: Some("1".to_owned()),
            ..column("price", Type::Numeric(Some((10, 2))))
        },
        column("note", Type::Varchar(Some(20))),
        Column {
            generated: Some("id * 2".to_owned()),
            ..column("twice", Type::Int8)
        },
    ];
    let view = MaterializedView {
        query: "SELECT count(*) AS n FROM bids".to_owned(),
        emit: Default::default(),
        on_error: Default::default(),
        options: BTreeMap::new(),
        events: Vec::new(),
        late: Vec::new(),
        append_only: false,
    };
    let stream = Stream {
        connector: BTreeMap::from([("connector".to_owned(), "nexmark".to_owned())]),
        ..Stream::default()
    };
    let relations = [
        relation(
            16384,
            "public",
            "bids",
            bids,
            RelationKind::Table { primary_key: vec![0] },
        ),
        relation(
            16393,
            "public",
            "v_bids",
            vec![column("id", Type::Int8)],
            RelationKind::View {
                query: "SELECT id FROM bids".to_owned(),
            },
        ),
        relation(
            16397,
            "public",
            "mv_bids",
            vec![column("n", Type::Int8)],
            RelationKind::MaterializedView(view),
        ),
        relation(
            16400,
            "public",
            "Clicks",
            vec![column("at", Type::Timestamptz(None))],
            RelationKind::Stream(stream),
        ),
        relation(
            16401,
            "public",
            "mv_bids_n",
            Vec::new(),
            RelationKind::Index {
                on: RelationId(16397),
                columns: vec![0],
            },
        ),
        relation(
            16402,
            "away",
            "bids",
            vec![column("x", Type::Text)],
            RelationKind::Table { primary_key: vec![] },
        ),
    ];
    Arc::new(Catalog {
        schemas: vec!["away".to_owned()],
        relations: relations.into_iter().map(|relation| (relation.id, relation)).collect(),
        ..Catalog::default()
    })
}

fn settings() -> BindSettings {
    BindSettings {
        user: "ann".to_owned(),
        variables: BTreeMap::from([
            ("statement_timeout".to_owned(), "5".to_owned()),
            ("jit".to_owned(), "off".to_owned()),
        ]),
        ..BindSettings::default()
    }
}

/// Binds a statement, and runs it unless it has parameters.
fn try_query(text: &str) -> Result<Vec<Vec<String>>> {
    let (catalog, settings) = (catalog(), settings());
    let system = System::of(catalog.clone(), settings.clone(), Box::new(Still));
    let query = crate::sql::parse_query(text)?;
    let bound = Binder::new(&catalog, &settings, &system).bind_query(&query.query, &mut ParameterTypes::default())?;
    if text.contains("$1") {
        return Ok(Vec::new());
    }
    let plan = crate::engine::batch::optimise(bound.plan)?;
    let config = SessionConfig::new().with_target_partitions(1);
    let state = crate::engine::batch::prepare(SessionContext::new_with_config(config).state());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let batches = runtime
        .block_on(async {
            let physical = state.query_planner().create_physical_plan(&plan, &state).await?;
            datafusion::physical_plan::collect(physical, state.task_ctx()).await
        })
        .map_err(crate::expr::from_datafusion)?;
    let mut rows = Vec::new();
    for batch in batches {
        let texts: Vec<_> = batch
            .columns()
            .iter()
            .zip(&bound.columns)
            .map(|(array, (_, kind))| crate::types::text::column_to_text(kind, array, &Default::default()).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let cell = |array: &arrow::array::StringArray| {
                if array.is_null(row) {
                    "NULL".to_owned()
                } else {
                    array.value(row).to_owned()
                }
            };
            rows.push(texts.iter().map(cell).collect());
        }
    }
    Ok(rows)
}

fn query(text: &str) -> String {
    let rows = try_query(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    rows.iter().map(|row| row.join("|")).collect::<Vec<_>>().join("\n")
}

/// The recorded statements of a file, each with the command that sent it.
fn recorded(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("\n;\n")
        .filter_map(|part| part.strip_prefix("-- ")?.split_once('\n'))
}

/// Runs all recorded statements of a file but those that contain one of `refused`; tells of all that fail.
fn replay(text: &str, refused: &[&str]) {
    let mut failures = Vec::new();
    let mut count = 0;
    for (command, statement) in recorded(text) {
        count += 1;
        let outcome = std::panic::catch_unwind(|| try_query(statement));
        let expected = refused.iter().any(|part| statement.contains(part));
        match outcome {
            Ok(Ok(_)) if expected => failures.push(format!("{command}: works now\n{statement}")),
            Ok(Ok(_)) => {}
            Ok(Err(_)) if expected => {}
            Ok(Err(error)) => failures.push(format!("{command}: {error:?}\n{statement}")),
            Err(_) => failures.push(format!("{command}: panicked\n{statement}")),
        }
    }
    assert!(count > 0);
    assert!(
        failures.is_empty(),
        "{} of {count} fail:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

#[test]
fn psql_backslash_commands_are_answered() {
    replay(include_str!("../../../sql-tests/data/catalog_psql_backslash.txt"), &[]);
}

#[test]
fn psql_completion_is_answered() {
    replay(include_str!("../../../sql-tests/data/catalog_psql_completion.txt"), &[]);
}

#[test]
fn jdbc_metadata_is_answered() {
    replay(
        include_str!("../../../sql-tests/data/catalog_driver_jdbc.txt"),
        &["_pg_expandarray"],
    );
}

#[test]
fn psycopg_and_asyncpg_are_answered() {
    replay(
        include_str!("../../../sql-tests/data/catalog_driver_psycopg_asyncpg.txt"),
        &["WITH RECURSIVE"],
    );
}

#[test]
fn sqlalchemy_reflection_is_answered() {
    replay(
        include_str!("../../../sql-tests/data/catalog_driver_sqlalchemy.txt"),
        &[],
    );
}

/// The rows of a recorded command's n-th statement.
fn recorded_rows(command: &str, index: usize) -> String {
    let text = include_str!("../../../sql-tests/data/catalog_psql_backslash.txt");
    let (_, statement) = recorded(text).filter(|(own, _)| *own == command).nth(index).unwrap();
    query(statement)
}

#[test]
fn relations_are_listed_by_kind() {
    assert_eq!(
        recorded_rows("\\d", 0),
        "public|Clicks|table|headwater\npublic|bids|table|headwater\n\
         public|mv_bids|materialized view|headwater\npublic|v_bids|view|headwater"
    );
    assert_eq!(recorded_rows("\\dv", 0), "public|v_bids|view|headwater");
    assert_eq!(recorded_rows("\\dm", 0), "public|mv_bids|materialized view|headwater");
    assert_eq!(
        recorded_rows("\\di", 0),
        "public|bids_pkey|index|headwater|bids\npublic|mv_bids_n|index|headwater|mv_bids"
    );
    assert_eq!(recorded_rows("\\ds", 0), "");
    assert_eq!(
        recorded_rows("\\dn", 0),
        "away|headwater\nheadwater|headwater\npublic|headwater"
    );
}

#[test]
fn a_table_is_described() {
    assert_eq!(recorded_rows("\\d bids", 0), "16384|public|bids");
    assert_eq!(
        recorded_rows("\\d bids", 2),
        "id|bigint|NULL|t|NULL||\nauction|bigint|NULL|t|NULL||\nprice|numeric(10,2)|1|f|NULL||\n\
         note|character varying(20)|NULL|f|NULL||\ntwice|bigint|id * 2|f|NULL||s"
    );
    assert_eq!(
        recorded_rows("\\d bids", 3),
        "bids_pkey|t|t|f|t|CREATE UNIQUE INDEX bids_pkey ON public.bids USING btree (id)|PRIMARY KEY (id)|p|f|f|f|0"
    );
}

#[test]
fn a_view_is_shown() {
    assert_eq!(recorded_rows("\\sv v_bids", 0), "16393");
    assert_eq!(
        recorded_rows("\\sv v_bids", 1),
        "public|v_bids|v| SELECT id FROM bids;|NULL|NULL"
    );
}

#[test]
fn objects_have_names() {
    for (text, result) in [
        ("SELECT 'bids'::regclass", "bids"),
        ("SELECT 'bids'::regclass::oid", "16384"),
        ("SELECT 'away.bids'::regclass::text", "away.bids"),
        ("SELECT '\"Clicks\"'::regclass", "\"Clicks\""),
        ("SELECT 'pg_class'::regclass::oid", "1259"),
        ("SELECT 16384::regclass::text", "bids"),
        (
            "SELECT c.oid::regclass FROM pg_class c WHERE c.relname = 'v_bids'",
            "v_bids",
        ),
        (
            "SELECT relname FROM pg_class WHERE oid = 'mv_bids'::regclass",
            "mv_bids",
        ),
        ("SELECT 'int4'::regtype", "integer"),
        ("SELECT 'timestamp with time zone'::regtype::oid", "1184"),
        ("SELECT 'integer[]'::regtype::oid", "1007"),
        ("SELECT to_regtype('hstore')", "NULL"),
        ("SELECT to_regclass('nothing')", "NULL"),
        ("SELECT 1042::regtype", "character"),
        ("SELECT 'public'::regnamespace::oid", "2200"),
        ("SELECT 2200::regnamespace", "public"),
        (
            "SELECT typname FROM pg_type WHERE typinput = 'array_in'::regproc AND typname = '_int4'",
            "_int4",
        ),
        ("SELECT pg_typeof(1.5)", "numeric"),
        (
            "SELECT format_type(1043, 24), format_type(1700, -1), format_type(NULL, NULL)",
            "character varying(20)|numeric|NULL",
        ),
    ] {
        assert_eq!(query(text), result, "{text}");
    }
    let error = try_query("SELECT 'nothing'::regclass").unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        ("42P01", "relation \"nothing\" does not exist")
    );
    let error = try_query("SELECT 'nothing'::regtype").unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        ("42704", "type \"nothing\" does not exist")
    );
}

#[test]
fn subqueries_over_the_catalog_give_one_value_or_an_array() {
    assert_eq!(
        query(
            "SELECT relname, (SELECT max(attname::text) FROM pg_attribute a WHERE a.attrelid = c.oid AND attnum < 3), \
             ARRAY(SELECT attname FROM pg_attribute a WHERE a.attrelid = c.oid ORDER BY attnum DESC) \
             FROM pg_class c WHERE relname IN ('mv_bids', 'bids') AND pg_table_is_visible(oid) ORDER BY 1"
        ),
        "bids|id|{twice,note,price,auction,id}\nmv_bids|n|{n}"
    );
    assert_eq!(query("SELECT ARRAY(SELECT 1 FROM pg_class WHERE false)"), "{}");
    assert_eq!(
        query("SELECT (SELECT nspname FROM pg_namespace n WHERE n.oid = c.oid) FROM pg_class c WHERE oid = 1259"),
        "NULL"
    );
    let several =
        "SELECT (SELECT attname FROM pg_attribute a WHERE a.attrelid = c.oid) FROM pg_class c WHERE oid = 1259";
    assert_eq!(try_query(several).unwrap_err().code(), "21000");
    assert_eq!(
        try_query("SELECT ARRAY(SELECT id FROM bids)").unwrap_err().code(),
        "0A000"
    );
}

#[test]
fn settings_are_set_by_set() {
    assert_eq!(
        query("SELECT current_setting('jit') AS cur, set_config('jit', 'on', false) AS new"),
        "off|on"
    );
    assert_eq!(query("SELECT set_config('statement_timeout', '5', false)"), "5");
    assert_eq!(
        try_query("SELECT set_config('statement_timeout', '6', false)")
            .unwrap_err()
            .code(),
        "0A000"
    );
    assert_eq!(
        try_query("SELECT set_config('nothing', '6', false)")
            .unwrap_err()
            .code(),
        "42704"
    );
    assert_eq!(query("SELECT pg_cancel_backend(1), pg_cancel_backend(2)"), "t|f");
}

#[test]
fn the_information_schema_has_the_same() {
    assert_eq!(
        query("SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1"),
        "Clicks|BASE TABLE\nbids|BASE TABLE\nmv_bids|MATERIALIZED VIEW\nv_bids|VIEW"
    );
    assert_eq!(
        query(
            "SELECT column_name, data_type, is_nullable, column_default, numeric_precision, character_maximum_length \
             FROM information_schema.columns WHERE table_schema = 'public' AND table_name = 'bids' ORDER BY ordinal_position"
        ),
        "id|bigint|NO|NULL|64|NULL\nauction|bigint|NO|NULL|64|NULL\nprice|numeric|YES|1|10|NULL\n\
         note|character varying|YES|NULL|NULL|20\ntwice|bigint|YES|NULL|64|NULL"
    );
    assert_eq!(
        query("SELECT constraint_name, column_name FROM information_schema.key_column_usage"),
        "bids_pkey|id"
    );
}

#[test]
fn headwater_tells_how_things_fare() {
    assert_eq!(
        query("SELECT name, materialized, status, reason, reads FROM headwater.views ORDER BY 1"),
        "mv_bids|t|stopped|division by zero|{bids}\nv_bids|f|live|NULL|{bids}"
    );
    assert_eq!(query("SELECT epoch FROM headwater.epochs"), "7");
    assert_eq!(
        query("SELECT stream, connector, rows FROM headwater.sources"),
        "\"Clicks\"|nexmark|5"
    );
    assert_eq!(
        query("SELECT value FROM headwater.settings WHERE name = 'statement_timeout'"),
        "5"
    );
    assert_eq!(query("SELECT count(*) FROM row_errors('mv_bids')"), "0");
    assert_eq!(
        try_query("SELECT * FROM row_errors('bids')").unwrap_err().code(),
        "42809"
    );
    assert_eq!(
        try_query("SELECT * FROM late_rows('nothing')").unwrap_err().code(),
        "42P01"
    );
}

#[test]
fn every_relation_can_be_read() {
    for relation in definition::all() {
        query(&format!("SELECT * FROM {}.{}", relation.schema, relation.name));
    }
}

#[test]
fn numbers_of_objects_differ() {
    assert_eq!(
        query("SELECT oid, count(*) FROM pg_class GROUP BY oid HAVING count(*) > 1"),
        ""
    );
    assert_eq!(
        query("SELECT oid, count(*) FROM pg_proc GROUP BY oid HAVING count(*) > 1"),
        ""
    );
    assert_eq!(
        query("SELECT oid, count(*) FROM pg_type GROUP BY oid HAVING count(*) > 1"),
        ""
    );
    assert_eq!(
        query("SELECT count(*) FROM pg_attribute a LEFT JOIN pg_type t ON a.atttypid = t.oid WHERE t.oid IS NULL"),
        "0"
    );
    assert_eq!(
        query("SELECT count(*) FROM pg_type t LEFT JOIN pg_proc p ON t.typinput = p.oid WHERE p.oid IS NULL"),
        "0"
    );
}
