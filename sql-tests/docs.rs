//! Every example of the documentation is run.
//!
//! A page is one server. Its ```` ```sql ```` blocks are run in order, each by psql in a session of its own, and
//! must not fail; a block marked ```` ```sql error=CODE ```` must fail with that SQLSTATE; one marked
//! ```` ```sql not-run ```` is left out. Where a block is followed by a ```` ```text ```` block, that is what psql
//! prints for the former, byte for byte.

use crate::harness::{Result, Server, Setup, block_on, root, stem};
use sqllogictest::harness::Trial;
use std::path::Path;

const PAGES: &[&str] = &["README.md", "docs/sql.md"];

/// The tests of this module: one per page.
pub(crate) fn tests() -> Vec<Trial> {
    let pages = PAGES
        .iter()
        .map(|page| root().join(page))
        .chain(crate::harness::files("../docs/design", ".md"));
    let links = crate::harness::trial("docs::links", || Ok(links()?));
    let pages = pages.map(|path| crate::harness::trial(format!("docs::{}", stem(&path)), move || Ok(run_page(&path)?)));
    pages.chain([links]).collect()
}

/// What a block of SQL promises.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Promise {
    /// Every statement works.
    Works,
    /// The block fails with this SQLSTATE.
    Fails(String),
    /// psql prints this.
    Prints(String),
}

#[derive(Debug)]
struct Block {
    line: usize,
    sql: String,
    promise: Promise,
}

/// The blocks of a page that are run.
fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut lines = text.lines().enumerate();
    // A block's output must be the next block.
    let mut follows_sql = false;
    while let Some((index, line)) = lines.next() {
        let Some(mark) = line.trim_start().strip_prefix("```") else {
            continue;
        };
        let body: Vec<&str> = lines
            .by_ref()
            .map(|(_, line)| line)
            .take_while(|line| line.trim_start() != "```")
            .collect();
        let body = body.join("\n");
        match mark.split_once(' ').unwrap_or((mark, "")) {
            ("sql", "not-run") => follows_sql = false,
            ("sql", note) => {
                let promise = match note.strip_prefix("error=") {
                    Some(code) => Promise::Fails(code.to_owned()),
                    None => Promise::Works,
                };
                found.push(Block {
                    line: index + 1,
                    sql: body,
                    promise,
                });
                follows_sql = true;
            }
            ("text", "") if follows_sql => {
                if let Some(last) = found.last_mut() {
                    last.promise = Promise::Prints(body);
                }
                follows_sql = false;
            }
            _ => follows_sql = false,
        }
    }
    found
}

fn run_page(path: &Path) -> Result {
    let blocks = blocks(&std::fs::read_to_string(path)?);
    if blocks.is_empty() {
        return Ok(());
    }
    let server = Server::start(Setup::QUICK)?;
    let mut wrong = String::new();
    for block in &blocks {
        if let Err(error) = run_block(&server, block) {
            wrong += &format!("{}:{}: {error}\n", path.display(), block.line);
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.into()) }
}

fn run_block(server: &Server, block: &Block) -> Result {
    match &block.promise {
        Promise::Works => {
            let (_, complaints) = server.psql(&block.sql)?;
            if complaints.contains("ERROR:") {
                return Err(complaints.into());
            }
        }
        Promise::Fails(code) => {
            let failed = block_on(async {
                let client = server.connect().await?;
                Ok(client.batch_execute(&block.sql).await)
            })?;
            let got = failed
                .err()
                .and_then(|error| error.code().map(|code| code.code().to_owned()));
            if got.as_deref() != Some(code.as_str()) {
                return Err(format!("expected {code}, got {got:?}").into());
            }
        }
        Promise::Prints(expected) => {
            let (printed, complaints) = server.psql_aligned(&block.sql)?;
            if printed.trim_end() != expected.trim_end() {
                return Err(format!("expected\n{expected}\ngot\n{printed}\n{complaints}").into());
            }
        }
    }
    Ok(())
}

/// Every link from a page to a file of the repository leads somewhere.
fn links() -> Result {
    let root = root();
    let link = regex::Regex::new(r"\]\(([^)#:]+)(#[^)]*)?\)")?;
    let mut pages = vec![root.join("README.md")];
    pages.extend(crate::harness::files("../docs", ".md"));
    pages.extend(crate::harness::files("../docs/design", ".md"));
    let mut wrong = String::new();
    for page in pages {
        let text = std::fs::read_to_string(&page)?;
        for capture in link.captures_iter(&text) {
            let target = page.parent().unwrap_or(&root).join(&capture[1]);
            if !target.exists() {
                wrong += &format!("{}: {} leads nowhere\n", page.display(), &capture[1]);
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.into()) }
}
