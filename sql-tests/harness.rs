//! A server to test: the real binary, started, killed and started again; and clients of it.

use sqllogictest::harness::{Failed, Trial};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// Whatever goes wrong in a test.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The outcome of a test, or of a step of one.
pub(crate) type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// How long a test may take: one that hangs fails, and the others go on.
const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// The servers that run, so that none outlives the tests.
static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// A named test that fails when it takes longer than a test may.
pub(crate) fn trial(
    name: impl Into<String>,
    work: impl FnOnce() -> std::result::Result<(), Failed> + Send + 'static,
) -> Trial {
    Trial::test(name, || {
        let (sender, ended) = channel();
        std::thread::spawn(move || {
            let _ = sender.send(work());
        });
        match ended.recv_timeout(TEST_TIMEOUT) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("it did not end within {} seconds", TEST_TIMEOUT.as_secs()).into())
            }
            Err(RecvTimeoutError::Disconnected) => Err("it panicked".into()),
        }
    })
}

/// Kills the servers of tests that did not end.
pub(crate) fn kill_the_rest() {
    let rest = RUNNING.lock().map(|running| running.clone()).unwrap_or_default();
    for id in rest {
        let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
    }
}

/// How long a server may take to be ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Where a server keeps its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// In memory.
    Memory,
    /// On the disk.
    Disk,
}

/// Whether the server is killed and started again between statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restarts {
    /// It is left alone.
    Never,
    /// After every statement that ends outside a transaction, with another number of workers.
    Always,
}

/// One way to run a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setup {
    /// Where the state is.
    pub(crate) storage: Storage,
    /// The number of workers.
    pub(crate) workers: usize,
    /// Whether the server is killed on the way.
    pub(crate) restarts: Restarts,
}

impl Setup {
    /// What always runs.
    pub(crate) const QUICK: Self = Self {
        storage: Storage::Disk,
        workers: 2,
        restarts: Restarts::Never,
    };

    /// The setups of this run: all of them with `HEADWATER_MATRIX=full`.
    pub(crate) fn matrix() -> Vec<Self> {
        if std::env::var("HEADWATER_MATRIX").as_deref() != Ok("full") {
            return vec![Self::QUICK];
        }
        let mut setups = Vec::new();
        for workers in [1, 4] {
            setups.push(Self {
                storage: Storage::Memory,
                workers,
                restarts: Restarts::Never,
            });
            setups.push(Self {
                storage: Storage::Disk,
                workers,
                restarts: Restarts::Never,
            });
        }
        setups.push(Self {
            storage: Storage::Disk,
            workers: 1,
            restarts: Restarts::Always,
        });
        setups
    }

    /// The part of a test's name that says how it is run.
    pub(crate) fn name(self) -> String {
        let storage = match self.storage {
            Storage::Memory => "memory",
            Storage::Disk => "disk",
        };
        match self.restarts {
            Restarts::Never => format!("{storage}-{}", self.workers),
            Restarts::Always => format!("{storage}-restarts"),
        }
    }
}

/// A running server and its directory. Dropping it kills the one and removes the other.
pub(crate) struct Server {
    child: Child,
    /// Where it listens.
    pub(crate) port: u16,
    workers: usize,
    storage: Storage,
    directory: TempDir,
    log: std::sync::Arc<std::sync::Mutex<String>>,
}

impl Server {
    /// Starts a server on a new, empty store.
    pub(crate) fn start(setup: Setup) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let started = spawn(setup.storage, setup.workers, directory.path())?;
        Ok(Self {
            child: started.child,
            port: started.port,
            workers: setup.workers,
            storage: setup.storage,
            directory,
            log: started.log,
        })
    }

    /// Kills the server, as a power cut would, and starts it again with another number of workers.
    pub(crate) fn restart(&mut self) -> Result {
        self.kill()?;
        self.workers = if self.workers == 1 { 4 } else { 1 };
        let started = spawn(self.storage, self.workers, self.directory.path())?;
        (self.child, self.port, self.log) = (started.child, started.port, started.log);
        Ok(())
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) -> Result {
        self.child.kill()?;
        self.child.wait()?;
        if let Ok(mut running) = RUNNING.lock() {
            running.remove(&self.child.id());
        }
        Ok(())
    }

    /// What the server said on stderr.
    pub(crate) fn log(&self) -> String {
        self.log.lock().map_or_else(|_| String::new(), |log| log.clone())
    }

    /// Connects a client.
    pub(crate) async fn connect(&self) -> Result<Client> {
        connect(self.port).await
    }

    /// Runs a script as `psql -XAtq -P null=NULL -f` does; what it prints on stdout and on stderr.
    pub(crate) fn psql(&self, script: &str) -> Result<(String, String)> {
        self.psql_with(script, &["-At", "-P", "null=NULL"])
    }

    /// Runs a script with psql, its tables aligned as a user sees them.
    pub(crate) fn psql_aligned(&self, script: &str) -> Result<(String, String)> {
        self.psql_with(script, &[])
    }

    fn psql_with(&self, script: &str, options: &[&str]) -> Result<(String, String)> {
        let file = tempfile::NamedTempFile::new_in(self.directory.path())?;
        std::fs::write(file.path(), script)?;
        let output = Command::new("psql")
            .args([
                "-Xq",
                "-v",
                "ON_ERROR_ROLLBACK=on",
                "-h",
                "127.0.0.1",
                "-U",
                "tester",
                "-d",
                "headwater",
            ])
            .args(options)
            .args(["-p", &self.port.to_string(), "-f"])
            .arg(file.path())
            .env("PGTZ", "UTC")
            .env("PGCONNECT_TIMEOUT", "10")
            .output()?;
        Ok((String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Connects a client to a port of this machine.
pub(crate) async fn connect(port: u16) -> Result<Client> {
    let parameters = format!("host=127.0.0.1 port={port} user=tester dbname=headwater connect_timeout=10");
    let (client, connection) = tokio_postgres::connect(&parameters, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Runs an asynchronous test.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?
        .block_on(work)
}

/// The root of the repository: where cargo runs the tests.
pub(crate) fn root() -> PathBuf {
    let place = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    PathBuf::from(place)
}

/// The files of a folder of `sql-tests` (or of the repository, with `..`) that end as given, in order of their names.
pub(crate) fn files(folder: &str, end: &str) -> Vec<PathBuf> {
    let folder = root().join("sql-tests").join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with(end))
        .collect();
    files.sort();
    files
}

/// The name of a file without its folder and its end.
pub(crate) fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

struct Started {
    child: Child,
    port: u16,
    log: std::sync::Arc<std::sync::Mutex<String>>,
}

/// The binary that is tested: `HEADWATER_BINARY`, or the one that was built with the tests.
fn binary() -> String {
    std::env::var("HEADWATER_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_headwater").to_owned())
}

/// Starts the binary on a free port. Another process may take the port in between, hence several attempts.
fn spawn(storage: Storage, workers: usize, directory: &Path) -> Result<Started> {
    let mut last = String::new();
    for _ in 0..5 {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut child = Command::new(binary())
            .arg("serve")
            .args(match storage {
                Storage::Memory => vec![OsString::from("--in-memory")],
                Storage::Disk => vec!["--data-dir".into(), directory.join("data").into()],
            })
            .args(["--listen", &format!("127.0.0.1:{port}"), "--http", "127.0.0.1:0"])
            .args(["--workers", &workers.to_string()])
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Ok(mut running) = RUNNING.lock() {
            running.insert(child.id());
        }
        let log = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let (sender, ready) = channel();
        let stderr = child.stderr.take().ok_or("the server has no stderr")?;
        let keep = log.clone();
        std::thread::spawn(move || follow(stderr, &keep, &sender));
        if ready.recv_timeout(START_TIMEOUT) == Ok(()) {
            return Ok(Started { child, port, log });
        }
        let _ = child.kill();
        let _ = child.wait();
        last = log.lock().map_or_else(|_| String::new(), |log| log.clone());
        if !last.contains("in use") {
            break;
        }
    }
    Err(format!("the server did not get ready:\n{last}").into())
}

/// Keeps what the server says, and tells when it is ready.
fn follow(stderr: impl Read, log: &std::sync::Mutex<String>, ready: &Sender<()>) {
    for line in BufReader::new(stderr).lines().map_while(std::result::Result::ok) {
        if line.contains("ready for connections") {
            let _ = ready.send(());
        }
        if let Ok(mut log) = log.lock() {
            log.push_str(&line);
            log.push('\n');
        }
    }
}
