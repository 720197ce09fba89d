//! The runner of the cases: scripts with the answers of PostgreSQL 15, each run four ways, which must agree.
//!
//! `cases/NAME.out` is what `psql -XAtq -P null=NULL -f NAME.sql` prints on stdout; errors go to stderr and are not
//! compared. The ways: *straight*; *at once*, everything between two reads in one transaction; *late*, every view made
//! anew after the data, just before it is read; *restarts*, the server killed between statements.
//!
//! `cases/pending.txt` lists the cases that are refused for now, one a line: the name, then why. A case of that list
//! that passes all ways fails the test, so that the list stays true.

use crate::harness::{Restarts, Result, Server, Setup, Storage, files, root, stem};
use regex::Regex;
use sqllogictest::harness::Trial;
use std::path::Path;

/// The tests of this module: one per case and setup.
pub(crate) fn tests() -> Vec<Trial> {
    let setups = Setup::matrix()
        .into_iter()
        .filter(|setup| setup.restarts == Restarts::Never);
    let scripts = files("cases", ".sql");
    setups
        .flat_map(|setup| scripts.iter().map(move |path| (path.clone(), setup)))
        .map(|(path, setup)| {
            let name = format!("cases::{}::{}", stem(&path), setup.name());
            crate::harness::trial(name, move || Ok(run_case(&path, setup)?))
        })
        .collect()
}

/// A way to run a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Straight,
    AtOnce,
    Late,
    Restarts,
}

const WAYS: [Way; 4] = [Way::Straight, Way::AtOnce, Way::Late, Way::Restarts];

fn run_case(path: &Path, setup: Setup) -> Result {
    let (script, expected) = (
        std::fs::read_to_string(path)?,
        std::fs::read_to_string(path.with_extension("out"))?,
    );
    let steps = Step::split(&script);
    let mut differences = String::new();
    for way in WAYS {
        if way == Way::Restarts && setup.storage == Storage::Memory {
            continue;
        }
        let mut server = Server::start(setup)?;
        let (got, complaints) = match way {
            Way::Straight => server.psql(&script)?,
            Way::AtOnce => server.psql(&at_once(&steps))?,
            Way::Late => server.psql(&late(&steps))?,
            Way::Restarts => with_restarts(&mut server, &steps)?,
        };
        if got != expected {
            differences += &format!("-- {way:?}: expected\n{expected}-- got\n{got}-- stderr\n{complaints}\n");
        }
    }
    let reason = pending(&stem(path))?;
    match (differences.is_empty(), reason) {
        (true, None) | (false, Some(_)) => Ok(()),
        (true, Some(_)) => Err("passes: take it from cases/pending.txt".into()),
        (false, None) => Err(differences.into()),
    }
}

/// Why a case is refused for now, if it is.
fn pending(case: &str) -> Result<Option<String>> {
    let text = std::fs::read_to_string(root().join("sql-tests/cases/pending.txt"))?;
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    Ok(lines
        .into_iter()
        .find(|(name, _)| *name == case)
        .map(|(_, reason)| reason.to_owned()))
}

/// A statement of a script, or a whole transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    kind: Kind,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Set,
    View,
    Transaction,
    Drop,
    Change,
}

impl Step {
    /// The steps of a script whose statements end with `;` outside quotes.
    fn split(script: &str) -> Vec<Self> {
        let mut steps: Vec<Self> = Vec::new();
        for statement in statements(script) {
            let in_transaction = steps
                .last()
                .is_some_and(|step| step.kind == Kind::Transaction && !ends(&step.text));
            if in_transaction && let Some(last) = steps.last_mut() {
                last.text.push_str(&statement);
                last.text.push('\n');
                continue;
            }
            let words = statement.to_uppercase();
            let kind = match words.split([' ', '\n', ';']).next() {
                Some("SELECT" | "VALUES") => Kind::Read,
                Some("SET") => Kind::Set,
                Some("BEGIN") => Kind::Transaction,
                Some("DROP") => Kind::Drop,
                _ if words.starts_with("CREATE MATERIALIZED VIEW") => Kind::View,
                _ => Kind::Change,
            };
            steps.push(Self {
                kind,
                text: format!("{statement}\n"),
            });
        }
        steps
    }
}

/// Whether a transaction's text has its end.
fn ends(text: &str) -> bool {
    let last = text.trim().lines().next_back().unwrap_or_default().to_uppercase();
    last.starts_with("COMMIT") || last.starts_with("ROLLBACK")
}

/// The statements of a script, `;` included.
fn statements(script: &str) -> Vec<String> {
    let (mut found, mut current, mut quoted) = (Vec::new(), String::new(), false);
    for character in script.chars() {
        quoted ^= character == '\'';
        current.push(character);
        if character == ';' && !quoted {
            found.push(std::mem::take(&mut current).trim().to_owned());
        }
    }
    found
}

/// The script with everything between two reads in one transaction. Transactions of its own stay as they are.
fn at_once(steps: &[Step]) -> String {
    let mut script = String::new();
    let mut block = String::new();
    let flush = |script: &mut String, block: &mut String| {
        if !block.is_empty() {
            script.push_str(&format!("BEGIN;\n{}COMMIT;\n", std::mem::take(block)));
        }
    };
    for step in steps {
        match step.kind {
            Kind::View | Kind::Drop | Kind::Change => block.push_str(&step.text),
            Kind::Read | Kind::Set | Kind::Transaction => {
                flush(&mut script, &mut block);
                script.push_str(&step.text);
            }
        }
    }
    flush(&mut script, &mut block);
    script
}

/// The script with all views made anew before the first read (or DROP) after a change.
fn late(steps: &[Step]) -> String {
    let name_of = Regex::new(r"(?i)^CREATE MATERIALIZED VIEW (\w+)").expect("the pattern is well-formed");
    let mut views: Vec<(String, String)> = Vec::new();
    let mut script = String::new();
    let mut fresh = true;
    for step in steps {
        match step.kind {
            Kind::View => {
                let name = name_of
                    .captures(&step.text)
                    .map_or_else(String::new, |capture| capture[1].to_owned());
                views.retain(|(known, _)| *known != name);
                views.push((name, step.text.clone()));
                fresh = false;
                continue;
            }
            Kind::Read | Kind::Drop if !fresh => {
                for (name, _) in views.iter().rev() {
                    script.push_str(&format!("DROP MATERIALIZED VIEW IF EXISTS {name} CASCADE;\n"));
                }
                script.extend(views.iter().map(|(_, text)| text.as_str()));
                fresh = true;
            }
            Kind::Change | Kind::Transaction => fresh = false,
            Kind::Read | Kind::Drop | Kind::Set => {}
        }
        script.push_str(&step.text);
    }
    script
}

/// Runs the steps one by one, killing the server after each; settings are made again for each.
fn with_restarts(server: &mut Server, steps: &[Step]) -> Result<(String, String)> {
    let (mut output, mut complaints, mut settings) = (String::new(), String::new(), String::new());
    for step in steps {
        if step.kind == Kind::Set {
            settings.push_str(&step.text);
            continue;
        }
        let (printed, complained) = server.psql(&format!("{settings}{}", step.text))?;
        output.push_str(&printed);
        complaints.push_str(&complained);
        if step.kind != Kind::Read {
            server.restart()?;
        }
    }
    Ok((output, complaints))
}
