//! How the sources are laid out and written, held by tests: floors, homes of large dependencies, lengths, words.
//!
//! Only what stands before the first `#[cfg(test)]` of a file counts; files of tests are left out. Comments are not
//! code. A test here prints everything that it finds.

use crate::harness::{Result, root};
use regex::Regex;
use sqllogictest::harness::Trial;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The floors, from the ground up: a module uses those of lower floors only, never its neighbours.
const FLOORS: &[&[&str]] = &[
    &["error"],
    &["config", "time", "metrics", "scram", "demo"],
    &["types"],
    &["delta"],
    &["expr"],
    &["catalog", "state"],
    &["aggregate"],
    &["operator", "connector", "sql"],
    &["plan"],
    &["dataflow", "load"],
    &["engine"],
    &["server"],
];

/// What is at home in a few places, and where that is.
const HOMES: &[(&str, &[&str])] = &[
    (r"\bsqlparser::", &["sql/"]),
    (r"\brocksdb::", &["state/store.rs"]),
    (r"\bpgwire::", &["server/"]),
    (
        r"\bdatafusion::",
        &["sql/", "plan/lower", "engine/", "expr.rs", "operator/aggregate"],
    ),
    (r"\bExecutionPlan\b", &["engine/", "sql/"]),
    (
        r"\btokio(_util)?::|\basync (fn|move|\{)|\.await\b",
        &["connector/", "engine/", "server/", "main.rs"],
    ),
    (r"\bSystemTime\b|\b(Utc|Local)::now\b", &["time.rs"]),
];

/// Files that list things and may be long.
const CATALOGUES: &[&str] = &[];

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 100;

/// The tests of this module.
pub(crate) fn tests() -> Vec<Trial> {
    let test = |name: &str, check: fn(&Source) -> Vec<String>| {
        crate::harness::trial(format!("tidy::{name}"), move || Ok(report(check)?))
    };
    vec![
        test("floors", floors),
        test("homes", homes),
        test("lengths", lengths),
        test("words", words),
        crate::harness::trial("tidy::places", || Ok(places()?)),
    ]
}

/// A file of Rust, and the part of it that is not tests.
struct Source {
    /// Its path from the root of the repository.
    path: String,
    /// Its lines before the tests.
    lines: Vec<String>,
}

impl Source {
    /// Its lines without comments, numbered from one.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.lines.iter().enumerate();
        lines.map(|(index, line)| (index + 1, line.split("//").next().unwrap_or_default()))
    }

    /// Its path below `src`, if it is the product's.
    fn product(&self) -> Option<&str> {
        self.path.strip_prefix("src/")
    }
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            walk(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn files_below(folders: &[&str]) -> Vec<(String, String)> {
    let mut paths = Vec::new();
    for folder in folders {
        walk(&root().join(folder), &mut paths);
    }
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root()).ok()?.to_string_lossy().into_owned();
        Some((name, std::fs::read_to_string(&path).ok()?))
    };
    paths.into_iter().filter_map(read).collect()
}

fn report(check: fn(&Source) -> Vec<String>) -> Result {
    let sources = files_below(&["src", "sql-tests", "benches"]);
    let is_tests = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/");
    let found: Vec<String> = sources
        .iter()
        .filter(|(path, _)| path.ends_with(".rs") && !is_tests(path))
        .flat_map(|(path, text)| {
            let lines = text
                .lines()
                .take_while(|line| !line.trim_start().starts_with("#[cfg(test)]"));
            check(&Source {
                path: path.clone(),
                lines: lines.map(str::to_owned).collect(),
            })
        })
        .collect();
    fail_with(&found)
}

fn fail_with(found: &[String]) -> Result {
    if found.is_empty() {
        return Ok(());
    }
    let mut text = format!("{} found:\n", found.len());
    for line in found {
        writeln!(text, "{line}")?;
    }
    Err(text.into())
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns of this file are well-formed")
}

fn floor_of(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&module))
}

fn floors(source: &Source) -> Vec<String> {
    let Some(path) = source.product() else {
        return Vec::new();
    };
    let module = path.split(['/', '.']).next().unwrap_or_default();
    if ["lib", "main"].contains(&module) {
        return Vec::new();
    }
    let Some(own) = floor_of(module) else {
        return vec![format!("{}: {module} has no floor in tidy.rs", source.path)];
    };
    let used = pattern(r"\bcrate::([a-z_0-9]+)");
    let mut found = Vec::new();
    for (number, line) in source.code() {
        for capture in used.captures_iter(line) {
            let other = &capture[1];
            if other != module && floor_of(other).is_some_and(|floor| floor >= own) {
                found.push(format!("{}:{number}: {module} may not use {other}", source.path));
            }
        }
    }
    found
}

fn homes(source: &Source) -> Vec<String> {
    let Some(path) = source.product() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (what, places) in HOMES {
        if places.iter().any(|place| path.starts_with(place)) {
            continue;
        }
        let what = pattern(what);
        for (number, line) in source.code() {
            if let Some(hit) = what.find(line) {
                found.push(format!(
                    "{}:{number}: {} is at home in {places:?}",
                    source.path,
                    hit.as_str()
                ));
            }
        }
    }
    found
}

fn lengths(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let length = source.lines.len();
    if length > FILE_LINES_MAX && !CATALOGUES.contains(&source.path.as_str()) {
        found.push(format!("{}: {length} lines", source.path));
    }
    let head = pattern(r"^( *)(pub(\([a-z :]*\))? )?(const |async )*fn (\w+)");
    for (index, line) in source.lines.iter().enumerate() {
        let Some(capture) = head.captures(line) else {
            continue;
        };
        let end = format!("{}}}", &capture[1]);
        let rest = &source.lines[index..];
        let body = rest.iter().find(|line| line.ends_with(['{', ';', '}']));
        if !body.is_some_and(|line| line.ends_with('{')) {
            continue;
        }
        let lines = rest.iter().position(|line| *line == end).map_or(0, |last| last + 1);
        if lines > FUNCTION_LINES_MAX {
            found.push(format!(
                "{}:{}: fn {} has {lines} lines",
                source.path,
                index + 1,
                &capture[5]
            ));
        }
    }
    found
}

fn words(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    if !source.lines.first().is_some_and(|line| line.starts_with("//!")) {
        found.push(format!("{}: does not begin with //!", source.path));
    }
    let stem = Path::new(&source.path)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if ["util", "utils", "common", "helper", "helpers", "misc"].contains(&stem.as_str()) {
        found.push(format!("{}: the name says nothing", source.path));
    }
    let refused = [
        (
            pattern(r"\b(struct|enum|trait|type) \w*(Impl|V2|Utils|Helper)\b"),
            "the name says nothing",
        ),
        (pattern(r"\.unwrap\(\)"), "unwrap outside tests"),
        (pattern(r"\buse .*::\*;"), "a glob import outside tests"),
        (pattern(r"\b(todo|unimplemented|dbg)!"), "unfinished"),
    ];
    for (number, line) in source.code().filter(|_| source.product().is_some()) {
        for (what, why) in &refused {
            if what.is_match(line) {
                found.push(format!("{}:{number}: {why}: {}", source.path, line.trim()));
            }
        }
    }
    found
}

/// Nothing in the tree names a place on one machine, or what only those who wrote it can know.
fn places() -> Result {
    let places = ["work", "farm", "root", "home"]
        .map(|folder| format!("/{folder}/"))
        .join("|");
    let refused = [
        pattern(&format!("({places}|/tm{})", "p/bash_")),
        pattern(concat!(r"\b(FIX", "ME|TO", r"DO|XX", r"X)\b")),
        pattern(concat!(r"(?i)\bis", r"sue #?\d+\b|\bdone wh", r"en\b")),
    ];
    let mut files = files_below(&["src", "sql-tests", "docs", "benches", ".ci"]);
    for name in ["README.md", "Makefile", "Cargo.toml", "rustfmt.toml", "clippy.toml"] {
        if let Ok(text) = std::fs::read_to_string(root().join(name)) {
            files.push((name.to_owned(), text));
        }
    }
    let mut found = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| !path.starts_with("benches/data")) {
        for (index, line) in text.lines().enumerate() {
            if refused.iter().any(|what| what.is_match(line)) {
                found.push(format!("{path}:{}: {}", index + 1, line.trim()));
            }
        }
    }
    fail_with(&found)
}
