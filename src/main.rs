//! The command line: `headwater serve`, `demo` and `check`.
//!
//! Exit codes: 0 for a clean end, 2 for bad usage, 1 for anything else. Ready means: the line `ready for connections`
//! on stderr. SIGTERM and SIGINT stop cleanly.

use clap::{Args, Parser, Subcommand, ValueEnum};
use headwater::config::{
    Authentication, Config, DATA_DIR_DEFAULT, HTTP_LISTEN_DEFAULT, LISTEN_DEFAULT, MEMORY_LIMIT_DEFAULT, Tls,
    parse_bytes,
};
use headwater::demo::FLIGHTS_PER_SECOND;
use headwater::engine::Engine;
use headwater::error::{Error, Result};
use headwater::server::script::Script;
use headwater::server::{Shutdown, Trigger, demo, http, pg};
use headwater::state::Store;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Streams go in, always-fresh materialized views come out, over psql.
#[derive(Debug, Parser)]
#[command(name = "headwater", version, about, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves PostgreSQL clients.
    Serve(Serve),
    /// Serves, and replays the bundled flights as a live stream, with views to look at.
    Demo(Demo),
    /// Opens a store offline and read-only, and verifies its formats and checksums.
    Check(Check),
}

#[derive(Debug, Args)]
struct Serve {
    #[command(flatten)]
    options: Options,
    /// A script that is run before clients are served, when the store is new.
    #[arg(long, value_name = "FILE.sql", env = "HEADWATER_INIT")]
    init: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Demo {
    #[command(flatten)]
    options: Options,
    /// The flights that are replayed in a second, as told at the first start.
    #[arg(long, value_name = "N", default_value_t = FLIGHTS_PER_SECOND, env = "HEADWATER_RATE")]
    rate: u32,
}

#[derive(Debug, Args)]
struct Check {
    /// The directory of the store.
    #[arg(long, value_name = "DIR", env = "HEADWATER_DATA_DIR")]
    data_dir: PathBuf,
}

#[derive(Debug, Args)]
struct Options {
    /// Where data is kept.
    #[arg(long, value_name = "DIR", default_value = DATA_DIR_DEFAULT, env = "HEADWATER_DATA_DIR")]
    data_dir: PathBuf,
    /// Keeps data in memory only; it is gone when the server stops.
    #[arg(long, conflicts_with = "data_dir")]
    in_memory: bool,
    /// Where PostgreSQL clients connect.
    #[arg(long, value_name = "ADDRESS", default_value = LISTEN_DEFAULT, env = "HEADWATER_LISTEN")]
    listen: SocketAddr,
    /// Where the console and the metrics are; `off` for nowhere.
    #[arg(long, value_name = "ADDRESS", default_value = HTTP_LISTEN_DEFAULT, env = "HEADWATER_HTTP", value_parser = parse_http)]
    http: HttpListen,
    /// The shards that work in parallel; as many as cores unless given.
    #[arg(long, value_name = "N", env = "HEADWATER_WORKERS")]
    workers: Option<usize>,
    /// What all state may take in memory.
    #[arg(long, value_name = "SIZE", default_value = MEMORY_LIMIT_DEFAULT, env = "HEADWATER_MEMORY_LIMIT", value_parser = parse_bytes)]
    memory_limit: usize,
    /// What is logged to stderr: a level, or directives such as `info,headwater::engine=debug`.
    #[arg(long, value_name = "FILTER", default_value = "info", env = "HEADWATER_LOG")]
    log: String,
    /// Who may connect.
    #[arg(long, value_enum, default_value_t = Auth::Trust, env = "HEADWATER_AUTH")]
    auth: Auth,
    /// The chain of certificates for TLS, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key", env = "HEADWATER_TLS_CERT")]
    tls_cert: Option<PathBuf>,
    /// The private key for TLS, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "HEADWATER_TLS_KEY")]
    tls_key: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Auth {
    /// Anyone; only on loopback.
    Trust,
    /// Users made by CREATE USER ... PASSWORD.
    Scram,
}

#[derive(Debug, Clone, Copy)]
struct HttpListen(Option<SocketAddr>);

fn parse_http(text: &str) -> std::result::Result<HttpListen, String> {
    if text == "off" {
        return Ok(HttpListen(None));
    }
    text.parse()
        .map(|address| HttpListen(Some(address)))
        .map_err(|_| "expected an address such as 127.0.0.1:5480, or off".to_owned())
}

impl Options {
    fn config(&self, init: Option<PathBuf>) -> Config {
        let tls = self.tls_cert.clone().zip(self.tls_key.clone());
        Config {
            data_dir: (!self.in_memory).then(|| self.data_dir.clone()),
            listen: self.listen,
            http: self.http.0,
            workers: self.workers.unwrap_or(Config::default().workers),
            memory_limit_bytes: self.memory_limit,
            authentication: match self.auth {
                Auth::Trust => Authentication::Trust,
                Auth::Scram => Authentication::Scram,
            },
            tls: tls.map(|(certificates, key)| Tls { certificates, key }),
            init,
        }
    }
}

fn main() -> ExitCode {
    let (options, config, beginning) = match CommandLine::parse().command {
        Command::Check(check) => return finish(check_store(&check.data_dir)),
        Command::Serve(serve) => {
            let config = serve.options.config(serve.init);
            (serve.options, config, Beginning::Init)
        }
        Command::Demo(demo) => {
            let config = demo.options.config(None);
            (demo.options, config, Beginning::Demo { rate: demo.rate })
        }
    };
    if let Err(error) = config.check() {
        explain(&error);
        return ExitCode::from(2);
    }
    let filter = match options.log.parse::<tracing_subscriber::EnvFilter>() {
        Ok(filter) => filter,
        Err(error) => {
            eprintln!("headwater: --log {}: {error}", options.log);
            return ExitCode::from(2);
        }
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return finish(Err(Error::external("58000", error.to_string()))),
    };
    finish(runtime.block_on(serve(&config, beginning)))
}

fn check_store(directory: &Path) -> Result<()> {
    let checked = Store::check(directory)?;
    println!(
        "{}: {} entries of {} bytes, all checksums right",
        directory.display(),
        checked.entries,
        checked.bytes
    );
    Ok(())
}

fn finish(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            explain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Tells the user what went wrong and what to do about it.
fn explain(error: &Error) {
    eprintln!("headwater: {error}");
    if let Some(detail) = error.detail() {
        eprintln!("  detail: {detail}");
    }
    if let Some(hint) = error.hint() {
        eprintln!("  hint: {hint}");
    }
}

/// What is run before clients are served.
enum Beginning {
    /// The script of `--init`, if the store is new.
    Init,
    /// The demonstration, as far as it is not there yet.
    Demo { rate: u32 },
}

async fn serve(config: &Config, beginning: Beginning) -> Result<()> {
    let (trigger, shutdown) = Trigger::new();
    let stopper = listen_for_signals(trigger)?;
    let is_new = config.data_dir.as_deref().is_none_or(is_empty);
    let engine = Engine::open(config)?;
    let served = serve_engine(config, &engine, beginning, is_new, shutdown).await;
    engine.shutdown().await;
    stopper.abort();
    if served.is_ok() {
        tracing::info!("stopped");
    }
    served
}

async fn serve_engine(
    config: &Config,
    engine: &Engine,
    beginning: Beginning,
    is_new: bool,
    shutdown: Shutdown,
) -> Result<()> {
    let server = pg::Server::bind(config, engine.clone()).await?;
    let address = server.address()?;
    let mut stopping = shutdown.clone();
    tokio::select! {
        begun = begin(config, engine, &beginning, is_new) => begun?,
        () = stopping.ordered() => return Ok(()),
    }
    let mut beside = Vec::new();
    if let Some(listen) = config.http {
        let console = http::Server::bind(listen, address, engine.clone()).await?;
        tracing::info!("console and metrics at http://{}/", console.address()?);
        beside.push(tokio::spawn(console.serve(shutdown.clone())));
    }
    tracing::info!("psql -h {} -p {} -U anyone headwater", address.ip(), address.port());
    eprintln!("ready for connections");
    if let Beginning::Demo { .. } = beginning {
        beside.push(tokio::spawn(demo::tell_progress(engine.clone(), address)));
    }
    server.serve(shutdown).await;
    beside.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

/// Runs what is to be run before clients are served.
async fn begin(config: &Config, engine: &Engine, beginning: &Beginning, is_new: bool) -> Result<()> {
    match *beginning {
        Beginning::Init => match config.init.as_deref().filter(|_| is_new) {
            Some(file) => run_init(engine, file).await,
            None => Ok(()),
        },
        Beginning::Demo { rate } => {
            let directory = config.data_dir.clone().unwrap_or_else(std::env::temp_dir);
            demo::begin(engine, &directory, rate).await
        }
    }
}

/// Whether nothing is in a directory yet.
fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none())
}

async fn run_init(engine: &Engine, file: &Path) -> Result<()> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Error::external("58P01", format!("cannot read {}: {error}", file.display())))?;
    Script::open(engine)?
        .run(&text)
        .await
        .map_err(|error| error.with_context(file.display().to_string()))
}

/// Turns SIGTERM and SIGINT into the order to stop.
fn listen_for_signals(trigger: Trigger) -> Result<tokio::task::JoinHandle<()>> {
    let broken = |error: std::io::Error| Error::external("58000", error.to_string());
    let mut terminate = signal(SignalKind::terminate()).map_err(broken)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(broken)?;
    Ok(tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        trigger.stop();
        // A second signal does not wait for anything.
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        std::process::exit(1);
    }))
}
