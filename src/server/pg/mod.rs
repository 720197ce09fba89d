//! PostgreSQL's protocol 3: listening, and a task per connection.
//!
//! Messages to clients are encoded by `pgwire`; the conversation itself is ours, because it must stream rows under
//! back-pressure, suspend portals, make one transaction of a pipeline, and notice that a client is gone while its
//! statement runs. [`startup`] opens a session, [`connection`] holds it, [`simple`] and [`extended`] are the two ways
//! of asking, [`transfer`] is COPY.

mod channel;
mod connection;
pub(crate) mod extended;
mod frontend;
mod portal;
mod report;
mod rows;
pub(crate) mod simple;
mod startup;
mod transfer;

use super::Shutdown;
use crate::config::{AUTHENTICATION_TIMEOUT_MS, Authentication, CONNECTIONS_MAX, Config, SHUTDOWN_TIMEOUT_MS, Tls};
use crate::engine::Engine;
use crate::error::{Error, Result};
use pgwire::tokio::TlsAcceptor;
use pgwire::tokio::tokio_rustls::rustls;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// What every connection needs to know.
struct Place {
    engine: Engine,
    authentication: Authentication,
    tls: Option<TlsAcceptor>,
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    place: Arc<Place>,
    permits: Arc<Semaphore>,
}

impl Server {
    /// Starts to listen.
    pub async fn bind(config: &Config, engine: Engine) -> Result<Self> {
        let listener = TcpListener::bind(config.listen)
            .await
            .map_err(|error| Error::external("58000", format!("cannot listen on {}: {error}", config.listen)))?;
        let tls = config.tls.as_ref().map(acceptor).transpose()?;
        Ok(Self {
            listener,
            place: Arc::new(Place {
                engine,
                authentication: config.authentication,
                tls,
            }),
            permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        })
    }

    /// Where it listens; tells the port when port 0 was asked for.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener
            .local_addr()
            .map_err(|error| Error::external("58000", error.to_string()))
    }

    /// Serves until it is ordered to stop, and then until the connections have ended.
    pub async fn serve(self, mut shutdown: Shutdown) {
        let for_connections = shutdown.clone();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = shutdown.ordered() => break,
            };
            match accepted {
                Ok((socket, peer)) => self.welcome(socket, peer, for_connections.clone()),
                Err(error) => {
                    // Out of file descriptors, most likely: wait for one to come free.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(self.listener);
        let all = self.permits.acquire_many(CONNECTIONS_MAX as u32);
        if timeout(Duration::from_millis(SHUTDOWN_TIMEOUT_MS), all).await.is_err() {
            tracing::warn!("connections did not end in time and are cut off");
        }
    }

    fn welcome(&self, socket: TcpStream, peer: SocketAddr, shutdown: Shutdown) {
        let place = self.place.clone();
        match self.permits.clone().try_acquire_owned() {
            Ok(permit) => {
                tokio::spawn(converse(socket, peer, place, shutdown, permit));
            }
            Err(_) => {
                tokio::spawn(turn_away(socket));
            }
        }
    }
}

async fn converse(
    socket: TcpStream,
    peer: SocketAddr,
    place: Arc<Place>,
    shutdown: Shutdown,
    permit: OwnedSemaphorePermit,
) {
    // Answers are collected before they are sent; waiting for more would only delay them.
    let _ = socket.set_nodelay(true);
    let time = Duration::from_millis(AUTHENTICATION_TIMEOUT_MS);
    match timeout(time, startup::start(socket, &place, shutdown)).await {
        Ok(Some(connection)) => connection.run().await,
        Ok(None) => {}
        Err(_) => tracing::debug!(%peer, "a client took too long to start"),
    }
    drop(permit);
}

/// Tells a client that there are too many, without reading what it wants.
async fn turn_away(mut socket: TcpStream) {
    let refusal = Error::limit("53300", "sorry, too many clients already")
        .with_detail(format!("The limit is {CONNECTIONS_MAX} (connections_max)."));
    let message = report::error(&refusal, report::Severity::Fatal);
    let mut bytes = bytes::BytesMut::new();
    if message.encode(&mut bytes).is_ok() {
        let time = Duration::from_millis(AUTHENTICATION_TIMEOUT_MS);
        let _ = timeout(time, async move {
            socket.write_all(&bytes).await?;
            socket.shutdown().await
        })
        .await;
    }
}

/// Reads a TLS identity from its files.
fn acceptor(tls: &Tls) -> Result<TlsAcceptor> {
    let broken = |file: &std::path::Path, problem: String| {
        Error::external("F0000", format!("cannot use {}: {problem}", file.display()))
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&tls.certificates)
        .and_then(Iterator::collect)
        .map_err(|error| broken(&tls.certificates, error.to_string()))?;
    if chain.is_empty() {
        return Err(broken(&tls.certificates, "it has no certificate".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| broken(&tls.key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let identity = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| broken(&tls.certificates, error.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(identity)))
}
