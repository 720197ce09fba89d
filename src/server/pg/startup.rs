//! From the first byte to the first ReadyForQuery: TLS, who is there, and the session's first settings.

use super::channel::{Broken, Incoming, Outgoing, Wire, split};
use super::connection::Connection;
use super::frontend::{Message, Opening, violation};
use super::report::{self, Severity};
use super::{Place, Shutdown};
use crate::config::{Authentication, STARTUP_MESSAGE_BYTES_MAX, server_version};
use crate::engine::Session;
use crate::error::{Error, Result};
use crate::scram::{Exchange, Verifier};
use bytes::{Bytes, BytesMut};
use pgwire::messages::PgWireBackendMessage as Backend;
use pgwire::messages::startup::{
    Authentication as AuthenticationMessage, BackendKeyData, NegotiateProtocolVersion, SecretKey,
};
use std::collections::BTreeMap;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The databases that exist: one, under two names, since tools ask for `postgres` first.
const DATABASES: [&str; 2] = ["headwater", "postgres"];

/// The version of the protocol that we speak.
const PROTOCOL: i32 = 3 << 16;

/// Takes a connection through its start; `None` if it asked for no session or is gone.
pub(super) async fn start(socket: TcpStream, place: &Place, shutdown: Shutdown) -> Option<Connection> {
    let (stream, opening) = match negotiate(socket, place).await {
        Ok(opened) => opened?,
        Err(()) => return None,
    };
    let (mut input, mut output) = split(stream);
    let started = match opening {
        Ok(Opening::Cancel { process_id, secret }) => {
            place.engine.cancel(process_id, secret);
            return None;
        }
        Ok(Opening::Startup { minor, parameters }) => {
            let request = Request { minor, parameters };
            open_session(place, request, &mut input, &mut output).await
        }
        Ok(Opening::Ssl | Opening::Gss) => Err(Broken::Fatal(violation("a second request for encryption is refused"))),
        Err(error) => Err(Broken::Fatal(error)),
    };
    match started {
        Ok(session) => Some(Connection::new(session, input, output, shutdown)),
        Err(Broken::Gone) => None,
        Err(Broken::Fatal(error)) => {
            output.put(&report::error(&error, Severity::Fatal));
            output.close().await;
            None
        }
    }
}

/// What is left of a connection's first packets: the stream, and the one that says what it wants.
type Opened = Option<(Box<dyn Wire>, Result<Opening>)>;

/// Answers requests for encryption until the client says what it wants.
async fn negotiate(mut socket: TcpStream, place: &Place) -> std::result::Result<Opened, ()> {
    loop {
        let Some(packet) = first_packet(&mut socket).await else {
            return Ok(None);
        };
        match packet.and_then(Opening::decode) {
            Ok(Opening::Ssl) => {
                let Some(acceptor) = &place.tls else {
                    socket.write_all(b"N").await.map_err(drop)?;
                    continue;
                };
                // Nothing was read beyond the request, so nothing unencrypted can pass for encrypted.
                socket.write_all(b"S").await.map_err(drop)?;
                let mut stream = acceptor.accept(socket).await.map_err(|error| {
                    tracing::debug!(%error, "TLS handshake failed");
                })?;
                let Some(packet) = first_packet(&mut stream).await else {
                    return Ok(None);
                };
                return Ok(Some((Box::new(stream), packet.and_then(Opening::decode))));
            }
            Ok(Opening::Gss) => socket.write_all(b"N").await.map_err(drop)?,
            other => return Ok(Some((Box::new(socket), other))),
        }
    }
}

/// Reads a packet that has no kind, only a length; `None` if the client is gone.
async fn first_packet(stream: &mut (impl Wire + ?Sized)) -> Option<Result<Bytes>> {
    let length = stream.read_u32().await.ok()? as usize;
    if !(8..=STARTUP_MESSAGE_BYTES_MAX).contains(&length) {
        return Some(Err(violation("invalid length of startup packet")));
    }
    let mut packet = BytesMut::zeroed(length - 4);
    stream.read_exact(&mut packet).await.ok()?;
    Some(Ok(packet.freeze()))
}

/// What a start-up packet asks for.
struct Request {
    minor: u16,
    parameters: BTreeMap<String, String>,
}

async fn open_session(
    place: &Place,
    request: Request,
    input: &mut Incoming,
    output: &mut Outgoing,
) -> std::result::Result<Session, Broken> {
    let mut parameters = request.parameters;
    negotiate_version(request.minor, &mut parameters, output);
    let user = parameters
        .remove("user")
        .filter(|user| !user.is_empty())
        .ok_or_else(|| {
            Broken::Fatal(Error::semantic(
                "28000",
                "no PostgreSQL user name specified in startup packet",
            ))
        })?;
    let database = parameters
        .remove("database")
        .filter(|database| !database.is_empty())
        .unwrap_or_else(|| user.clone());
    let encoding = prepare_parameters(&mut parameters).map_err(Broken::Fatal)?;
    if place.authentication == Authentication::Scram {
        authenticate(place, &user, input, output).await?;
    }
    if !DATABASES.contains(&database.as_str()) {
        let missing = Error::semantic("3D000", format!("database \"{database}\" does not exist"))
            .with_hint("There is one database: \"headwater\".");
        return Err(Broken::Fatal(missing));
    }
    let list: Vec<(String, String)> = parameters.clone().into_iter().collect();
    let mut session = place.engine.connect(&user, &database, &list).map_err(Broken::Fatal)?;
    output.put(&Backend::Authentication(AuthenticationMessage::Ok));
    let application = parameters.get("application_name").cloned();
    put_settings(&mut session, &user, application, encoding, output);
    output.put(&Backend::BackendKeyData(BackendKeyData::new(
        session.process_id(),
        SecretKey::I32(session.secret()),
    )));
    output.put(&report::ready(&session));
    output.flush().await?;
    Ok(session)
}

/// Tells a client that speaks a later minor version, or asks for extensions, what it gets.
fn negotiate_version(minor: u16, parameters: &mut BTreeMap<String, String>, output: &mut Outgoing) {
    let extensions: Vec<String> = parameters
        .keys()
        .filter(|name| name.starts_with("_pq_."))
        .cloned()
        .collect();
    if minor > 0 || !extensions.is_empty() {
        for name in &extensions {
            parameters.remove(name);
        }
        let told = NegotiateProtocolVersion::new(PROTOCOL, extensions);
        output.put(&Backend::NegotiateProtocolVersion(told));
    }
}

/// Takes apart `options`, and takes out what is not the engine's: the encoding, which is returned.
fn prepare_parameters(parameters: &mut BTreeMap<String, String>) -> Result<&'static str> {
    if let Some(options) = parameters.remove("options") {
        for (name, value) in command_line_options(&options)? {
            parameters.entry(name).or_insert(value);
        }
    }
    if let Some(mode) = parameters.remove("replication")
        && !["false", "off", "no", "0"].contains(&mode.as_str())
    {
        return Err(Error::unsupported("replication connections are not supported")
            .with_hint("SUBSCRIBE TO streams the changes of a view."));
    }
    let encoding = parameters.remove("client_encoding").unwrap_or_default();
    match encoding.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
        "" | "utf8" | "unicode" => Ok("UTF8"),
        "sqlascii" => Ok("SQL_ASCII"),
        _ => Err(
            Error::unsupported(format!("client encoding \"{encoding}\" is not supported"))
                .with_hint("Headwater speaks UTF8: set client_encoding to it."),
        ),
    }
}

/// Reads `-c name=value`, `-cname=value` and `--name=value`; a backslash takes the next character as it is.
fn command_line_options(options: &str) -> Result<Vec<(String, String)>> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = options.chars();
    while let Some(character) = characters.next() {
        match character {
            c if c.is_ascii_whitespace() => words.extend(word.take()),
            '\\' => word.get_or_insert_default().extend(characters.next()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    let mut settings = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("-c") {
            Some("") => words.next(),
            Some(setting) => Some(setting.to_owned()),
            None => word.strip_prefix("--").map(str::to_owned),
        };
        let (name, value) = setting
            .as_deref()
            .and_then(|setting| setting.split_once('='))
            .ok_or_else(|| {
                Error::semantic(
                    "42601",
                    format!("invalid command-line argument for server process: {word}"),
                )
            })?;
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

/// SCRAM-SHA-256 with the client.
async fn authenticate(
    place: &Place,
    user: &str,
    input: &mut Incoming,
    output: &mut Outgoing,
) -> std::result::Result<(), Broken> {
    let failed = || {
        Broken::Fatal(Error::semantic(
            "28P01",
            format!("password authentication failed for user \"{user}\""),
        ))
    };
    let stored = place.engine.scram_verifier(user);
    let verifier = match stored.as_deref().and_then(Verifier::parse) {
        Some(verifier) => verifier,
        // An unknown user goes through the same steps, so that they do not tell who is known.
        None => Verifier::of_nobody(user).map_err(Broken::Fatal)?,
    };
    let mechanisms = vec!["SCRAM-SHA-256".to_owned()];
    output.put(&Backend::Authentication(AuthenticationMessage::SASL(mechanisms)));
    output.flush().await?;
    let initial = password(input).await?;
    let client_first = initial_response(&initial).map_err(Broken::Fatal)?;
    let (exchange, server_first) = Exchange::start(verifier, client_first).map_err(Broken::Fatal)?;
    output.put(&Backend::Authentication(AuthenticationMessage::SASLContinue(
        Bytes::from(server_first),
    )));
    output.flush().await?;
    let last = password(input).await?;
    let client_final = crate::types::text::utf8(&last).map_err(Broken::Fatal)?;
    let server_final = exchange
        .finish(client_final)
        .map_err(Broken::Fatal)?
        .ok_or_else(failed)?;
    output.put(&Backend::Authentication(AuthenticationMessage::SASLFinal(Bytes::from(
        server_final,
    ))));
    Ok(())
}

async fn password(input: &mut Incoming) -> std::result::Result<Bytes, Broken> {
    match input.message().await? {
        Message::Password(bytes) => Ok(bytes),
        Message::Terminate => Err(Broken::Gone),
        _ => Err(Broken::Fatal(violation("expected SASL response"))),
    }
}

/// The client's first message within a SASLInitialResponse: the mechanism's name, a length, and the message.
fn initial_response(bytes: &[u8]) -> Result<&str> {
    let malformed = || violation("malformed SASL message");
    let end = bytes.iter().position(|byte| *byte == 0).ok_or_else(malformed)?;
    if &bytes[..end] != b"SCRAM-SHA-256" {
        return Err(violation("client selected an invalid SASL authentication mechanism"));
    }
    let message = bytes.get(end + 5..).ok_or_else(malformed)?;
    crate::types::text::utf8(message)
}

/// Tells the client the settings that it follows.
fn put_settings(session: &mut Session, user: &str, application: Option<String>, encoding: &str, output: &mut Outgoing) {
    let zone = session.settings().time_zone.name();
    let version = server_version();
    let mut settings: Vec<(String, String)> = [
        ("application_name", application.as_deref().unwrap_or("")),
        ("client_encoding", encoding),
        ("DateStyle", "ISO, MDY"),
        ("default_transaction_read_only", "off"),
        ("in_hot_standby", "off"),
        ("integer_datetimes", "on"),
        ("IntervalStyle", "postgres"),
        ("is_superuser", "on"),
        ("server_encoding", "UTF8"),
        ("server_version", version.as_str()),
        ("session_authorization", user),
        ("standard_conforming_strings", "on"),
        ("TimeZone", zone.as_str()),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    // What the client's parameters changed counts.
    for (name, value) in session.take_parameter_changes() {
        match settings.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(&name)) {
            Some(known) => known.1 = value,
            None => settings.push((name, value)),
        }
    }
    for (name, value) in settings {
        output.put(&report::parameter(name, value));
    }
    report::put_asides(session, output);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_apart_like_a_command_line() {
        let read = command_line_options("-c a=1 --b-c=2 -cd=x\\ y").unwrap();
        let expected = [("a", "1"), ("b_c", "2"), ("d", "x y")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(read, expected);
        assert_eq!(command_line_options("-x").unwrap_err().code(), "42601");
        assert_eq!(command_line_options("-c").unwrap_err().code(), "42601");
    }

    #[test]
    fn other_encodings_and_replication_are_refused() {
        let prepare = |name: &str, value: &str| {
            let mut parameters = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            prepare_parameters(&mut parameters)
        };
        assert_eq!(prepare("client_encoding", "utf-8").unwrap(), "UTF8");
        assert_eq!(prepare("client_encoding", "SQL_ASCII").unwrap(), "SQL_ASCII");
        assert_eq!(prepare("client_encoding", "LATIN1").unwrap_err().code(), "0A000");
        assert_eq!(prepare("replication", "database").unwrap_err().code(), "0A000");
    }
}
