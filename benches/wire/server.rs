//! The two servers that are compared: Headwater as users run it, and PostgreSQL with its default settings, both on the
//! same file system.

use crate::Result;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

/// How long a server may take to be ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a server may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// The clock ticks of a second in `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// A running server. Dropping it stops it.
pub(crate) struct Server {
    /// What it is called in the tables.
    pub(crate) name: &'static str,
    child: Child,
    port: u16,
    user: &'static str,
    database: &'static str,
    /// Where its metrics are.
    http: Option<u16>,
}

/// What of a server is counted from the outside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    /// Seconds of processor time, of all its processes, since it started.
    pub(crate) cpu_seconds: f64,
    /// Bytes of memory in use.
    pub(crate) resident_bytes: u64,
}

impl Server {
    /// Starts Headwater on a new store below `directory`: the binary that was built with the benchmark, or
    /// `HEADWATER_BINARY`.
    pub(crate) fn headwater(directory: &Path) -> Result<Self> {
        let binary = std::env::var("HEADWATER_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_headwater").to_owned());
        let (port, http) = (free_port()?, free_port()?);
        let mut child = Command::new(binary)
            .args(["serve", "--log", "warn", "--data-dir"])
            .arg(directory.join("headwater"))
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(["--http", &format!("127.0.0.1:{http}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stderr.take().ok_or("the server has no stderr")?).lines();
        let mut said = String::new();
        while let Some(Ok(line)) = lines.next() {
            if line == "ready for connections" {
                std::thread::spawn(move || lines.map_while(std::io::Result::ok).for_each(|line| println!("{line}")));
                return Ok(Self {
                    name: "headwater",
                    child,
                    port,
                    user: "tester",
                    database: "headwater",
                    http: Some(http),
                });
            }
            said += &line;
            said.push('\n');
        }
        Err(format!("headwater did not get ready:\n{said}").into())
    }

    /// Starts PostgreSQL on a new cluster below `directory`; `None` when it is not installed.
    pub(crate) async fn postgres(directory: &Path) -> Result<Option<Self>> {
        let Some(programs) = postgres_programs() else {
            return Ok(None);
        };
        let data = directory.join("postgres");
        let mut initdb = Command::new(programs.join("initdb"));
        initdb
            .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "-D"])
            .arg(&data);
        // PostgreSQL refuses to run as root.
        let owner = unprivileged_user()?;
        std::fs::create_dir(&data)?;
        if let Some((user, group)) = owner {
            std::os::unix::fs::chown(&data, Some(user), Some(group))?;
            initdb.uid(user).gid(group);
        }
        let made = initdb.current_dir("/").output()?;
        if !made.status.success() {
            return Err(format!("initdb failed: {}", String::from_utf8_lossy(&made.stderr)).into());
        }
        let port = free_port()?;
        let mut postgres = Command::new(programs.join("postgres"));
        postgres
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(&data)
            .args(["-h", "127.0.0.1", "-p", &port.to_string()])
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some((user, group)) = owner {
            postgres.uid(user).gid(group);
        }
        let server = Self {
            name: "postgres",
            child: postgres.spawn()?,
            port,
            user: "postgres",
            database: "postgres",
            http: None,
        };
        let started = Instant::now();
        while let Err(error) = server.connect().await {
            if started.elapsed() > START_TIMEOUT {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(Some(server))
    }

    /// Whether it is Headwater.
    pub(crate) fn is_headwater(&self) -> bool {
        self.http.is_some()
    }

    /// Connects a client.
    pub(crate) async fn connect(&self) -> Result<Client> {
        let parameters = format!(
            "host=127.0.0.1 port={} user={} dbname={}",
            self.port, self.user, self.database
        );
        let (client, connection) = tokio_postgres::connect(&parameters, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Runs a command of psql; how long it took.
    pub(crate) fn psql(&self, command: &str) -> Result<Duration> {
        let started = Instant::now();
        let output = Command::new("psql")
            .args([
                "-Xq",
                "-v",
                "ON_ERROR_STOP=1",
                "-h",
                "127.0.0.1",
                "-p",
                &self.port.to_string(),
            ])
            .args(["-U", self.user, "-d", self.database, "-c", command])
            .output()?;
        if output.status.success() {
            Ok(started.elapsed())
        } else {
            Err(format!("psql: {}", String::from_utf8_lossy(&output.stderr)).into())
        }
    }

    /// How often its log was synced since it started.
    pub(crate) async fn syncs(&self) -> Result<u64> {
        let Some(http) = self.http else {
            // The statistics of other sessions are written when they end or idle.
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let row = self
                .connect()
                .await?
                .query_one("SELECT wal_sync FROM pg_stat_wal", &[])
                .await?;
            return Ok(row.get::<_, i64>(0).try_into()?);
        };
        let mut stream = TcpStream::connect(("127.0.0.1", http))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix("headwater_syncs_total "));
        Ok(value.ok_or("the metrics say nothing of syncs")?.parse()?)
    }

    /// What it uses.
    pub(crate) fn usage(&self) -> Result<Usage> {
        let own = self.child.id();
        let mut usage = Usage {
            cpu_seconds: 0.0,
            resident_bytes: 0,
        };
        for entry in std::fs::read_dir("/proc")? {
            let Ok(id) = entry?.file_name().to_string_lossy().parse::<u32>() else {
                continue;
            };
            let Ok(stat) = std::fs::read_to_string(format!("/proc/{id}/stat")) else {
                continue;
            };
            // After the name in parentheses: state, parent, ..., and the times from the twelfth on.
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
            let number = |index: usize| {
                fields
                    .get(index)
                    .and_then(|text| text.parse::<f64>().ok())
                    .unwrap_or(0.0)
            };
            let ticks = if id == own {
                number(11) + number(12) + number(13) + number(14)
            } else if number(1) == f64::from(own) {
                number(11) + number(12)
            } else {
                continue;
            };
            usage.cpu_seconds += ticks / TICKS_PER_SECOND;
            usage.resident_bytes += number(21) as u64 * 4096;
        }
        Ok(usage)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both servers stop cleanly on SIGINT, whoever is connected.
        let id = self.child.id().to_string();
        let _ = Command::new("kill").args(["-INT", &id]).status();
        let asked = Instant::now();
        while asked.elapsed() < STOP_TIMEOUT {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// The folder of `initdb` and `postgres`: on the PATH, or where Debian keeps them.
fn postgres_programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    std::env::split_paths(&path)
        .chain(debian.map(|entry| entry.path().join("bin")))
        .find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
}

/// The user and group `postgres`, when we are root.
fn unprivileged_user() -> Result<Option<(u32, u32)>> {
    let id = |arguments: &[&str]| -> Result<u32> {
        let output = Command::new("id").args(arguments).output()?;
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    };
    if id(&["-u"])? != 0 {
        return Ok(None);
    }
    Ok(Some((id(&["-u", "postgres"])?, id(&["-g", "postgres"])?)))
}
