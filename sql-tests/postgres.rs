//! The outside oracle: a PostgreSQL 15 of a test's own.
//!
//! ```text
//! let postgres = Postgres::start()?;            // a new cluster in a temporary directory, on a free port
//! let client = postgres.connect().await?;       // a client of its database `postgres`, with time zone UTC
//! drop(postgres);                               // stopped, its directory removed
//! ```
//!
//! The programs are those of Debian's package `postgresql-15`, or of the folder that `POSTGRES_BIN` names. PostgreSQL
//! does not run as root: a test that does starts it as the user `postgres`.

use crate::harness::{Result, block_on};
use sqllogictest::harness::Trial;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// How long the server may take to be ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// What every server is started with: nothing of it needs to last, and nobody connects from outside.
const SETTINGS: &[&str] = &[
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "autovacuum=on",
    "max_wal_size=1GB",
    "listen_addresses=127.0.0.1",
    "timezone=UTC",
    "jit=off",
];

/// The tests of this module.
pub(crate) fn tests() -> Vec<Trial> {
    vec![Trial::test("postgres::starts_and_stops", || Ok(starts_and_stops()?))]
}

fn starts_and_stops() -> Result {
    let postgres = Postgres::start()?;
    let place = postgres.directory.path().to_owned();
    let port = postgres.port;
    let version: String = block_on(async {
        let row = postgres.connect().await?.query_one("SHOW server_version", &[]).await?;
        Ok(row.get(0))
    })?;
    if !version.starts_with("15.") {
        return Err(format!("the oracle is PostgreSQL 15, not {version}").into());
    }
    drop(postgres);
    match (place.exists(), std::net::TcpStream::connect(("127.0.0.1", port))) {
        (false, Err(_)) => Ok(()),
        (kept, _) => Err(format!("it still runs, or its directory is there ({kept})").into()),
    }
}

/// A running PostgreSQL and its directory. Dropping it stops the one and removes the other.
pub(crate) struct Postgres {
    child: Child,
    /// Where it listens.
    pub(crate) port: u16,
    directory: TempDir,
}

impl Postgres {
    /// Starts a server on a new, empty cluster, which trusts every user; returns when it accepts connections.
    pub(crate) fn start() -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("headwater-postgres-").tempdir()?;
        let owner = Owner::of_server()?;
        if let Some(owner) = owner {
            std::os::unix::fs::chown(directory.path(), Some(owner.user), Some(owner.group))?;
        }
        let data = directory.path().join("data");
        let made = program("initdb", owner)
            .args([
                "--auth=trust",
                "--username=postgres",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
                "-D",
            ])
            .arg(&data)
            .output()
            .map_err(|error| format!("initdb did not start ({error}): install postgresql-15, or set POSTGRES_BIN"))?;
        if !made.status.success() {
            return Err(format!("initdb failed: {}", String::from_utf8_lossy(&made.stderr)).into());
        }
        let mut last = String::new();
        // Another process may take the port in between, hence several attempts.
        for _ in 0..5 {
            let port = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
            let log = directory.path().join("log");
            let mut child = serve(&data, &log, port, owner)?;
            if ready(&mut child, port)? {
                return Ok(Self { child, port, directory });
            }
            stop(&mut child, &data);
            last = std::fs::read_to_string(&log).unwrap_or_default();
        }
        Err(format!("PostgreSQL did not get ready:\n{last}").into())
    }

    /// Connects a client.
    pub(crate) async fn connect(&self) -> Result<Client> {
        let (client, connection) = tokio_postgres::connect(&parameters(self.port), NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        stop(&mut self.child, &self.directory.path().join("data"));
    }
}

/// The user that the server runs as.
#[derive(Debug, Clone, Copy)]
struct Owner {
    user: u32,
    group: u32,
}

impl Owner {
    /// The user `postgres` if we are root, otherwise nobody else than us.
    fn of_server() -> Result<Option<Self>> {
        use std::os::unix::fs::MetadataExt;
        if std::fs::metadata("/proc/self")?.uid() != 0 {
            return Ok(None);
        }
        let users = std::fs::read_to_string("/etc/passwd")?;
        let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let found = fields.into_iter().find(|fields| fields.first() == Some(&"postgres"));
        let fields = found.ok_or("there is no user postgres: install postgresql-15")?;
        match fields.as_slice() {
            [_, _, user, group, ..] => Ok(Some(Self {
                user: user.parse()?,
                group: group.parse()?,
            })),
            _ => Err("the user postgres has no number".into()),
        }
    }
}

/// A program of PostgreSQL, to be run as its owner.
fn program(name: &str, owner: Option<Owner>) -> Command {
    let folder =
        std::env::var_os("POSTGRES_BIN").map_or_else(|| PathBuf::from("/usr/lib/postgresql/15/bin"), PathBuf::from);
    let mut command = Command::new(folder.join(name));
    command.current_dir("/").env("LC_ALL", "C").stdin(Stdio::null());
    if let Some(owner) = owner {
        command.uid(owner.user).gid(owner.group);
    }
    command
}

fn serve(data: &Path, log: &Path, port: u16, owner: Option<Owner>) -> Result<Child> {
    let log = std::fs::File::create(log)?;
    let sockets = data.parent().ok_or("the cluster has no directory")?;
    let mut command = program("postgres", owner);
    command
        .arg("-D")
        .arg(data)
        .args(["-p", &port.to_string(), "-k"])
        .arg(sockets);
    for setting in SETTINGS {
        command.args(["-c", setting]);
    }
    Ok(command.stdout(Stdio::null()).stderr(log).spawn()?)
}

fn parameters(port: u16) -> String {
    format!("host=127.0.0.1 port={port} user=postgres dbname=postgres connect_timeout=10")
}

/// Waits until the server accepts connections; false when it has ended instead.
fn ready(child: &mut Child, port: u16) -> Result<bool> {
    let begun = Instant::now();
    while begun.elapsed() < START_TIMEOUT {
        if child.try_wait()?.is_some() {
            return Ok(false);
        }
        let asked = program("pg_isready", None)
            .args(["-q", "-h", "127.0.0.1", "-U", "postgres", "-p", &port.to_string()])
            .status()?;
        if asked.success() {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(false)
}

/// Stops the server at once: its data are thrown away.
fn stop(child: &mut Child, data: &Path) {
    let owner = Owner::of_server().unwrap_or_default();
    let _ = program("pg_ctl", owner)
        .args(["stop", "-s", "-m", "immediate", "-D"])
        .arg(data)
        .status();
    let _ = child.kill();
    let _ = child.wait();
}
