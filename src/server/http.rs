//! A page, the metrics and two probes, over plain HTTP.
//!
//! `/` is the console: how to connect and what the metrics say. `/metrics` is Prometheus' text form, `/healthz` says
//! that the process lives, `/readyz` that it takes connections. One request per connection: nobody asks often. Requests
//! are parsed by `httparse`; there is nothing here that changes anything.

use super::Shutdown;
use crate::config::{HTTP_HEAD_BYTES_MAX, HTTP_TIMEOUT_MS, VERSION};
use crate::engine::Engine;
use crate::error::{Error, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The requests that are answered at one time.
const REQUESTS_MAX: usize = 64;
/// The headers of a request.
const HEADERS_MAX: usize = 64;

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    pages: Arc<Pages>,
}

struct Pages {
    engine: Engine,
    /// Where PostgreSQL clients connect, for the console's instructions.
    sql: SocketAddr,
}

/// An answer.
struct Page {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl Server {
    /// Starts to listen.
    pub async fn bind(address: SocketAddr, sql: SocketAddr, engine: Engine) -> Result<Self> {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| Error::external("58000", format!("cannot listen on {address}: {error}")))?;
        Ok(Self {
            listener,
            pages: Arc::new(Pages { engine, sql }),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener
            .local_addr()
            .map_err(|error| Error::external("58000", error.to_string()))
    }

    /// Serves until it is ordered to stop.
    pub async fn serve(self, mut shutdown: Shutdown) {
        let permits = Arc::new(Semaphore::new(REQUESTS_MAX));
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = shutdown.ordered() => return,
            };
            let Ok((socket, _)) = accepted else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let Ok(permit) = permits.clone().try_acquire_owned() else {
                continue;
            };
            let pages = self.pages.clone();
            let stopping = shutdown.clone();
            tokio::spawn(async move {
                let time = Duration::from_millis(HTTP_TIMEOUT_MS);
                // A request that does not arrive or an answer that is not taken concerns nobody but the client.
                let _ = timeout(time, answer(socket, &pages, &stopping)).await;
                drop(permit);
            });
        }
    }
}

async fn answer(mut socket: TcpStream, pages: &Pages, shutdown: &Shutdown) -> std::io::Result<()> {
    let page = match request(&mut socket).await? {
        Some((method, path)) => pages.page(&method, &path, shutdown),
        None => plain("400 Bad Request", "bad request\n"),
    };
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        page.status,
        page.kind,
        page.body.len()
    );
    socket.write_all(head.as_bytes()).await?;
    socket.write_all(page.body.as_bytes()).await?;
    socket.shutdown().await
}

/// The method and path of a request; `None` if it is none.
async fn request(socket: &mut TcpStream) -> std::io::Result<Option<(String, String)>> {
    let mut head = Vec::with_capacity(1024);
    loop {
        if socket.read_buf(&mut head).await? == 0 || head.len() > HTTP_HEAD_BYTES_MAX {
            return Ok(None);
        }
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Err(_) => return Ok(None),
            Ok(httparse::Status::Partial) => {}
            Ok(httparse::Status::Complete(_)) => {
                return Ok(request
                    .method
                    .zip(request.path)
                    .map(|(method, path)| (method.to_owned(), path.to_owned())));
            }
        }
    }
}

fn plain(status: &'static str, body: &str) -> Page {
    Page {
        status,
        kind: "text/plain; charset=utf-8",
        body: body.to_owned(),
    }
}

impl Pages {
    fn page(&self, method: &str, path: &str, shutdown: &Shutdown) -> Page {
        let is_head = method == "HEAD";
        if method != "GET" && !is_head {
            return plain("405 Method Not Allowed", "only GET is known here\n");
        }
        let path = path.split('?').next().unwrap_or(path);
        let mut page = match path {
            "/healthz" => plain("200 OK", "ok\n"),
            "/readyz" if shutdown.is_ordered() => plain("503 Service Unavailable", "stopping\n"),
            "/readyz" => plain("200 OK", "ready\n"),
            "/metrics" => Page {
                status: "200 OK",
                kind: "text/plain; version=0.0.4; charset=utf-8",
                body: self.engine.metrics_text(),
            },
            "/" => self.console(),
            _ => plain("404 Not Found", "not found\n"),
        };
        if is_head {
            page.body.clear();
        }
        page
    }

    fn console(&self) -> Page {
        let rows: String = self
            .engine
            .metrics_text()
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.rsplit_once(' '))
            .map(|(name, value)| format!("<tr><td>{}</td><td>{}</td></tr>\n", escaped(name), escaped(value)))
            .collect();
        Page {
            status: "200 OK",
            kind: "text/html; charset=utf-8",
            body: CONSOLE
                .replace("{version}", VERSION)
                .replace("{host}", &self.sql.ip().to_string())
                .replace("{port}", &self.sql.port().to_string())
                .replace("{rows}", &rows),
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

const CONSOLE: &str = r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5"><title>Headwater</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1d2a35 }
h1 { font-weight: 600 } code, td { font-family: ui-monospace, monospace }
pre { background: #eef3f6; padding: .8rem 1rem; border-radius: 6px }
table { border-collapse: collapse } td { border-bottom: 1px solid #dde5ea; padding: .15rem 1.5rem .15rem 0 }
</style></head><body>
<h1>Headwater {version}</h1>
<p>Streams go in, always-fresh materialized views come out. Connect with any PostgreSQL client:</p>
<pre>psql -h {host} -p {port} -U anyone headwater</pre>
<p><a href="/metrics">metrics</a> · <a href="/healthz">health</a> · <a href="/readyz">readiness</a></p>
<table>
{rows}</table>
</body></html>
"#;
