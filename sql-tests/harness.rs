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
use std::time::{Duration, SystemTime};
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

/// What went wrong, with what the server said of it.
pub(crate) fn told(failure: Failure) -> Failed {
    let mut text = failure.to_string();
    let mut source = failure.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text.into()
}

/// A named test that fails when it takes longer than a test may.
pub(crate) fn trial(
    name: impl Into<String>,
    work: impl FnOnce() -> std::result::Result<(), Failed> + Send + 'static,
) -> Trial {
    trial_within(name, TEST_TIMEOUT, work)
}

/// The same with a limit of its own.
pub(crate) fn trial_within(
    name: impl Into<String>,
    limit: Duration,
    work: impl FnOnce() -> std::result::Result<(), Failed> + Send + 'static,
) -> Trial {
    Trial::test(name, move || {
        let (sender, ended) = channel();
        std::thread::spawn(move || {
            let _ = sender.send(work());
        });
        match ended.recv_timeout(limit) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(format!("it did not end within {} seconds", limit.as_secs()).into()),
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
    launch: Launch,
    directory: TempDir,
    log: std::sync::Arc<std::sync::Mutex<String>>,
}

/// How a server is started.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    /// Where its state is.
    pub(crate) storage: Storage,
    /// Its shards.
    pub(crate) workers: usize,
    /// What it is told to do, and more options: `serve`, or `demo --rate 1000`.
    pub(crate) words: Vec<String>,
    /// The directory of its state, if not one below its own.
    pub(crate) data_dir: Option<PathBuf>,
}

impl Launch {
    /// A plain server.
    pub(crate) fn serve(setup: Setup) -> Self {
        Self::with(setup, &["serve"])
    }

    /// A server that is told this.
    pub(crate) fn with(setup: Setup, words: &[&str]) -> Self {
        Self {
            storage: setup.storage,
            workers: setup.workers,
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            data_dir: None,
        }
    }

    /// The command that starts it in a directory, on a port.
    pub(crate) fn command(&self, directory: &Path, port: u16) -> Command {
        let data_dir = self.data_dir.clone().unwrap_or_else(|| directory.join("data"));
        let mut command = Command::new(binary());
        command
            .args(&self.words)
            .args(match self.storage {
                Storage::Memory => vec![OsString::from("--in-memory")],
                Storage::Disk => vec!["--data-dir".into(), data_dir.into()],
            })
            .args(["--listen", &format!("127.0.0.1:{port}"), "--http", "127.0.0.1:0"])
            .args(["--workers", &self.workers.to_string()])
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }
}

impl Server {
    /// Starts a server on a new, empty store.
    pub(crate) fn start(setup: Setup) -> Result<Self> {
        Self::launch(Launch::serve(setup))
    }

    /// Starts a server in a new directory of its own.
    pub(crate) fn launch(launch: Launch) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let started = spawn(&launch, directory.path())?;
        Ok(Self {
            child: started.child,
            port: started.port,
            launch,
            directory,
            log: started.log,
        })
    }

    /// Kills the server, as a power cut would, and starts it again with another number of workers.
    pub(crate) fn restart(&mut self) -> Result {
        self.kill()?;
        self.launch.workers = if self.launch.workers == 1 { 4 } else { 1 };
        self.start_again()
    }

    /// Starts the server again that was killed or has ended.
    pub(crate) fn start_again(&mut self) -> Result {
        let started = spawn(&self.launch, self.directory.path())?;
        (self.child, self.port, self.log) = (started.child, started.port, started.log);
        Ok(())
    }

    /// Starts the server that was killed, and kills it again after a while, whether it was ready or not.
    pub(crate) fn start_and_kill(&mut self, after: Duration) -> Result {
        let port = free_port()?;
        self.child = self
            .launch
            .command(self.directory.path(), port)
            .stderr(Stdio::null())
            .spawn()?;
        note_running(&self.child);
        std::thread::sleep(after);
        self.kill()
    }

    /// Tells it to stop, and waits until it has.
    pub(crate) fn stop(&mut self) -> Result<std::process::ExitStatus> {
        Command::new("kill").arg(self.child.id().to_string()).status()?;
        let status = self.child.wait()?;
        note_ended(&self.child);
        Ok(status)
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it is started.
    pub(crate) fn how(&self) -> &Launch {
        &self.launch
    }

    /// The directory that it runs in; its state is in `data` below.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) -> Result {
        self.child.kill()?;
        self.child.wait()?;
        note_ended(&self.child);
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

/// Numbers that differ from run to run. The seed is printed; `HEADWATER_SEED` repeats a run.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Numbers for a test.
    pub(crate) fn new(test: &str) -> Self {
        let given = std::env::var("HEADWATER_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| {
            let now = SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default();
            now.as_nanos() as u64 % 1_000_000_007
        });
        eprintln!("{test}: HEADWATER_SEED={seed}");
        Self(seed)
    }

    /// A number from 0 to below `limit` (splitmix64).
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    /// Numbers for somebody else.
    pub(crate) fn another(&mut self) -> Self {
        Self(self.below(u64::MAX))
    }

    /// So many milliseconds.
    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
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
fn spawn(launch: &Launch, directory: &Path) -> Result<Started> {
    let mut last = String::new();
    for _ in 0..5 {
        let port = free_port()?;
        let mut child = launch.command(directory, port).spawn()?;
        note_running(&child);
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
        note_ended(&child);
        last = log.lock().map_or_else(|_| String::new(), |log| log.clone());
        if !last.contains("Address already in use") {
            break;
        }
    }
    Err(format!("the server did not get ready:\n{last}").into())
}

/// A port that nobody listens on now.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn note_running(child: &Child) {
    if let Ok(mut running) = RUNNING.lock() {
        running.insert(child.id());
    }
}

fn note_ended(child: &Child) {
    if let Ok(mut running) = RUNNING.lock() {
        running.remove(&child.id());
    }
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
