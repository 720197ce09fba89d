//! The runner of the `.slt` files: statements, and what they answer as PostgreSQL's text.
//!
//! Each file has a server of its own. After every statement that changes data outside a transaction, every
//! materialized view that is filled is verified; a file opts out by a comment `# verify: off (reason)`. In the setup with restarts,
//! the server is killed and started again after every statement outside a transaction; what `SET` did is done again
//! for each connection. A file that needs more of its sessions opts out by `# restarts: off (reason)`.
//!
//! The data of `COPY ... FROM STDIN` follow the statement's line, which ends with `;`.

use crate::harness::{Failure, Restarts, Result, Server, Setup, block_on, files, stem};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{SinkExt, StreamExt, pin_mut};
use sqllogictest::harness::Trial;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Mutex;
use tokio_postgres::{Client, SimpleQueryMessage};

/// The tests of this module: one per file and setup.
pub(crate) fn tests() -> Vec<Trial> {
    let setups = Setup::matrix();
    let scripts = files("slt", ".slt");
    let pairs = scripts
        .iter()
        .flat_map(|path| setups.iter().map(move |setup| (path.clone(), *setup)));
    pairs
        .map(|(path, setup)| {
            let name = format!("slt::{}::{}", stem(&path), setup.name());
            crate::harness::trial(name, move || Ok(run_file(&path, setup)?))
        })
        .collect()
}

/// What happens after a statement that changes data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verify {
    EveryView,
    Nothing,
}

fn run_file(path: &Path, mut setup: Setup) -> Result {
    let text = std::fs::read_to_string(path)?;
    if text.contains("# restarts: off (") {
        setup.restarts = Restarts::Never;
    }
    let verify = if text.contains("# verify: off (") {
        Verify::Nothing
    } else {
        Verify::EveryView
    };
    let subject = Arc::new(Subject {
        server: Mutex::new(Server::start(setup)?),
        starts: AtomicUsize::new(0),
        open_transactions: AtomicUsize::new(0),
        restarts: setup.restarts,
        verify,
    });
    block_on(async {
        let connect = || {
            let subject = subject.clone();
            async move { Ok::<_, Refusal>(Session::new(subject)) }
        };
        let mut runner = Runner::new(connect);
        let done = runner.run_file_async(path).await;
        runner.shutdown_async().await;
        done.map_err(|error| -> Failure { error.display(false).to_string().into() })
    })
}

/// The server that a file is run on, shared by the file's connections.
struct Subject {
    server: Mutex<Server>,
    starts: AtomicUsize,
    open_transactions: AtomicUsize,
    restarts: Restarts,
    verify: Verify,
}

/// One connection of a file.
struct Session {
    subject: Arc<Subject>,
    /// The client, and the start of the server that it belongs to.
    client: Option<(Client, usize)>,
    /// What `SET` did so far.
    settings: Vec<String>,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Outside,
    InTransaction,
}

/// An error as the files match it: `SQLSTATE: message`, then `DETAIL: ...` and `HINT: ...`.
#[derive(Debug)]
struct Refusal {
    code: Option<String>,
    text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refusal {}

impl From<tokio_postgres::Error> for Refusal {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(answer) = error.as_db_error() else {
            return Self {
                code: None,
                text: format!("the connection failed: {error}"),
            };
        };
        let mut text = format!("{}: {}", answer.code().code(), answer.message());
        for (name, value) in [("DETAIL", answer.detail()), ("HINT", answer.hint())] {
            if let Some(value) = value {
                text.push_str(&format!("; {name}: {value}"));
            }
        }
        Self {
            code: Some(answer.code().code().to_owned()),
            text,
        }
    }
}

impl From<Failure> for Refusal {
    fn from(error: Failure) -> Self {
        Self {
            code: None,
            text: error.to_string(),
        }
    }
}

type Answer = DBOutput<DefaultColumnType>;

impl Session {
    fn new(subject: Arc<Subject>) -> Self {
        Self {
            subject,
            client: None,
            settings: Vec::new(),
            place: Place::Outside,
        }
    }

    /// The client, connected to the server that runs now.
    async fn client(&mut self) -> Result<&Client, Refusal> {
        let server = self.subject.server.lock().await;
        let now = self.subject.starts.load(Ordering::SeqCst);
        if self.client.as_ref().is_none_or(|(_, start)| *start != now) {
            let client = server.connect().await?;
            for statement in &self.settings {
                client.batch_execute(statement).await?;
            }
            self.client = Some((client, now));
        }
        drop(server);
        self.client
            .as_ref()
            .map(|(client, _)| client)
            .ok_or_else(|| Failure::from("there is no client").into())
    }

    async fn verify(&mut self) -> Result<(), Refusal> {
        let client = self.client().await?;
        let views = rows(client.simple_query("SHOW MATERIALIZED VIEWS").await?).0;
        for view in views {
            let name = format!("\"{}\".\"{}\"", view[0], view[1]);
            let statement = format!("VERIFY MATERIALIZED VIEW {name}");
            let differing = match client.simple_query(&statement).await {
                Ok(messages) => rows(messages).0,
                Err(error) => {
                    let refusal = Refusal::from(error);
                    // Made in the background: verified after the next statement.
                    if refusal.text.contains("is still being filled") {
                        continue;
                    }
                    return Err(Refusal {
                        code: None,
                        text: format!("{statement}: {refusal}"),
                    });
                }
            };
            if !differing.is_empty() {
                let lines: Vec<String> = differing.iter().map(|row| row.join(" ")).collect();
                let text = format!("{name} differs from its query:\n{}", lines.join("\n"));
                return Err(Refusal { code: None, text });
            }
        }
        Ok(())
    }

    /// Follows the transaction, and does what is due when none is open.
    async fn after(&mut self, sql: &str, outcome: Result<(), ()>) -> Result<(), Refusal> {
        let word = sql.split_whitespace().next().unwrap_or_default().to_uppercase();
        let open = &self.subject.open_transactions;
        match (word.as_str(), self.place) {
            ("BEGIN" | "START", Place::Outside) => {
                self.place = Place::InTransaction;
                open.fetch_add(1, Ordering::SeqCst);
            }
            ("COMMIT" | "END" | "ABORT", Place::InTransaction) => self.end_transaction(),
            ("ROLLBACK", Place::InTransaction) if !sql.to_uppercase().contains(" TO ") => self.end_transaction(),
            ("SET" | "RESET", Place::Outside) if outcome.is_ok() => self.settings.push(sql.to_owned()),
            _ => {}
        }
        let reads = [
            "SELECT", "SHOW", "EXPLAIN", "SET", "RESET", "BEGIN", "START", "VERIFY", "VALUES", "WITH",
        ];
        if reads.contains(&word.as_str()) || self.place == Place::InTransaction {
            return Ok(());
        }
        if self.subject.restarts == Restarts::Always && self.subject.open_transactions.load(Ordering::SeqCst) == 0 {
            self.subject.server.lock().await.restart()?;
            self.subject.starts.fetch_add(1, Ordering::SeqCst);
        }
        if self.subject.verify == Verify::EveryView && outcome.is_ok() {
            self.verify().await?;
        }
        Ok(())
    }

    fn end_transaction(&mut self) {
        self.place = Place::Outside;
        self.subject.open_transactions.fetch_sub(1, Ordering::SeqCst);
    }

    async fn execute(&mut self, sql: &str) -> Result<Answer, Refusal> {
        let client = self.client().await?;
        let is_copy = sql.trim_start().to_uppercase().starts_with("COPY");
        if is_copy && let Some((statement, data)) = copy_in(sql) {
            let sink = client.copy_in::<_, Bytes>(statement).await?;
            pin_mut!(sink);
            sink.send(Bytes::from(data.to_owned())).await?;
            return Ok(DBOutput::StatementComplete(sink.finish().await?));
        }
        if is_copy && sql.to_uppercase().contains("TO STDOUT") {
            let mut stream = Box::pin(client.copy_out(sql).await?);
            let mut text = Vec::new();
            while let Some(part) = stream.next().await {
                text.extend_from_slice(&part?);
            }
            let lines = String::from_utf8_lossy(&text)
                .lines()
                .map(|line| vec![line.to_owned()])
                .collect();
            return Ok(DBOutput::Rows {
                types: vec![DefaultColumnType::Text],
                rows: lines,
            });
        }
        let (rows, columns, count) = rows(client.simple_query(sql).await?);
        Ok(match columns {
            Some(columns) => DBOutput::Rows {
                types: vec![DefaultColumnType::Any; columns],
                rows,
            },
            None => DBOutput::StatementComplete(count),
        })
    }
}

#[async_trait]
impl AsyncDB for Session {
    type Error = Refusal;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<Answer, Refusal> {
        let answer = self.execute(sql).await;
        let outcome = answer.as_ref().map(|_| ()).map_err(|_| ());
        self.after(sql, outcome).await?;
        answer
    }

    async fn shutdown(&mut self) {
        self.client = None;
    }

    fn engine_name(&self) -> &str {
        "headwater"
    }

    async fn sleep(duration: std::time::Duration) {
        tokio::time::sleep(duration).await;
    }

    fn error_sql_state(error: &Refusal) -> Option<String> {
        error.code.clone()
    }
}

/// The statement and the data of `COPY ... FROM STDIN ...;` with data on the lines that follow.
fn copy_in(sql: &str) -> Option<(&str, &str)> {
    if !sql.to_uppercase().contains("FROM STDIN") {
        return None;
    }
    let (statement, data) = sql.split_once(";\n").unwrap_or((sql, ""));
    Some((statement.trim_end_matches(';'), data))
}

/// The rows of a simple query, the number of columns if it has any, and the count of its command tag.
fn rows(messages: Vec<SimpleQueryMessage>) -> (Vec<Vec<String>>, Option<usize>, u64) {
    let (mut rows, mut columns, mut count) = (Vec::new(), None, 0);
    for message in messages {
        match message {
            SimpleQueryMessage::RowDescription(description) => {
                rows.clear();
                columns = Some(description.len());
            }
            SimpleQueryMessage::Row(row) => rows.push((0..row.len()).map(|index| cell(row.get(index))).collect()),
            SimpleQueryMessage::CommandComplete(number) => count = number,
            _ => {}
        }
    }
    (rows, columns, count)
}

fn cell(text: Option<&str>) -> String {
    match text {
        None => "NULL".to_owned(),
        Some("") => "(empty)".to_owned(),
        Some(text) => text.replace('\n', "\\n"),
    }
}
