//! Functions: PostgreSQL's own rows for those that there are, and rows for those that only Headwater has.

use crate::engine::system::function;
use crate::engine::system::object::{OWNER, PG_CATALOG, PROCEDURE};
use crate::engine::system::sheet::{Cell, Sheet};
use crate::sql::function as sql;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// A line of `pg_proc`.
#[derive(Debug, Clone)]
pub(crate) struct Procedure {
    /// Its number.
    pub(crate) oid: i64,
    /// Its name.
    pub(crate) name: &'static str,
    variety: &'static str,
    volatility: &'static str,
    strict: bool,
    /// Whether it returns a set.
    pub(crate) set: bool,
    /// The type of its result.
    pub(crate) result: i64,
    defaults: i64,
    variadic: i64,
    /// The types of its arguments.
    pub(crate) arguments: Vec<i64>,
}

/// Any type.
const ANY: i64 = 2276;

/// The numbers of functions that PostgreSQL does not have.
const OWN: i64 = 14_000;

/// The functions that the lines of `pg_type` name.
fn input_and_output() -> HashSet<i64> {
    include_str!("types.txt")
        .lines()
        .flat_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            [10, 11, 12, 13, 14, 15, 19].map(|index| words.get(index).and_then(|word| word.parse().ok()).unwrap_or(0))
        })
        .collect()
}

static PROCEDURES: LazyLock<Vec<Procedure>> = LazyLock::new(|| {
    let input_and_output = input_and_output();
    let exists = |name: &str| {
        sql::is_scalar(name)
            || sql::aggregate(name).is_some()
            || sql::window(name).is_some()
            || function::is_known(name)
    };
    let mut procedures: Vec<Procedure> = include_str!("procs.txt")
        .lines()
        .map(parse)
        .filter(|procedure| input_and_output.contains(&procedure.oid) || exists(procedure.name))
        .collect();
    let known: HashSet<&str> = procedures.iter().map(|procedure| procedure.name).collect();
    let own: Vec<&'static str> = sql::registry()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| !known.contains(name))
        .collect();
    procedures.extend(own.into_iter().enumerate().map(|(index, name)| Procedure {
        oid: OWN + index as i64,
        name,
        variety: if sql::aggregate(name).is_some() { "a" } else { "f" },
        volatility: "s",
        strict: false,
        set: false,
        result: ANY,
        defaults: 0,
        variadic: ANY,
        arguments: vec![ANY],
    }));
    procedures
});

static BY_OID: LazyLock<HashMap<i64, &'static Procedure>> =
    LazyLock::new(|| PROCEDURES.iter().map(|procedure| (procedure.oid, procedure)).collect());

fn parse(line: &'static str) -> Procedure {
    let words: Vec<&'static str> = line.split(' ').collect();
    let word = |index: usize| words.get(index).copied().unwrap_or_default();
    let number = |index: usize| word(index).parse().unwrap_or_default();
    Procedure {
        oid: number(0),
        name: word(1),
        variety: word(2),
        volatility: word(3),
        strict: word(4) == "t",
        set: word(5) == "t",
        result: number(6),
        defaults: number(7),
        variadic: number(8),
        arguments: word(9).split(',').filter_map(|word| word.parse().ok()).collect(),
    }
}

/// The function of a number.
pub(crate) fn find(oid: i64) -> Option<&'static Procedure> {
    BY_OID.get(&oid).copied()
}

/// The functions of a name.
pub(crate) fn named(name: &str) -> impl Iterator<Item = &'static Procedure> {
    PROCEDURES.iter().filter(move |procedure| procedure.name == name)
}

/// `pg_proc`.
pub(super) fn procedures(sheet: &mut Sheet) {
    for procedure in PROCEDURES.iter() {
        sheet.row([
            ("oid", procedure.oid.into()),
            ("proname", procedure.name.into()),
            ("pronamespace", PG_CATALOG.into()),
            ("proowner", OWNER.into()),
            ("prolang", Cell::Int(12)),
            ("procost", Cell::Int(1)),
            ("provariadic", procedure.variadic.into()),
            ("prokind", procedure.variety.into()),
            ("proisstrict", procedure.strict.into()),
            ("proretset", procedure.set.into()),
            ("provolatile", procedure.volatility.into()),
            ("proparallel", "s".into()),
            ("pronargs", procedure.arguments.len().into()),
            ("pronargdefaults", procedure.defaults.into()),
            ("prorettype", procedure.result.into()),
            ("proargtypes", Cell::Ints(procedure.arguments.clone())),
            ("prosrc", procedure.name.into()),
        ]);
    }
}

/// `pg_description`: what the functions do.
pub(super) fn descriptions(sheet: &mut Sheet) {
    let texts: HashMap<&str, &'static str> = sql::registry().into_iter().collect();
    for procedure in PROCEDURES.iter() {
        if let Some(text) = texts.get(procedure.name) {
            sheet.row([
                ("objoid", procedure.oid.into()),
                ("classoid", PROCEDURE.into()),
                ("objsubid", Cell::Int(0)),
                ("description", (*text).into()),
            ]);
        }
    }
}

/// What a function does.
pub(crate) fn description(oid: i64) -> Option<&'static str> {
    let procedure = find(oid)?;
    sql::registry()
        .into_iter()
        .find(|(name, _)| *name == procedure.name)
        .map(|(_, text)| text)
}

/// All functions.
pub(crate) fn all() -> &'static [Procedure] {
    &PROCEDURES
}
