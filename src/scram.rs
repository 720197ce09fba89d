//! SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side: verifiers, and the exchange that proves a password.
//!
//! A verifier lets the server check a password that it does not know. It is kept in PostgreSQL's spelling,
//! `SCRAM-SHA-256$4096:salt$stored key:server key`, so that `\password` of psql, which makes one itself, is understood.

use crate::error::{Error, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::SecureRandom as _;
use ring::{digest, hmac, pbkdf2};
use std::fmt;
use std::num::NonZeroU32;

/// The iterations of new verifiers, as in PostgreSQL.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4_096).expect("4096 is not 0");
/// The iterations that a verifier may ask a client for.
const ITERATIONS_MAX: u32 = 1_000_000;
const SALT_BYTES: usize = 16;
const NONCE_BYTES: usize = 18;
const KEY_BYTES: usize = 32;
const PREFIX: &str = "SCRAM-SHA-256$";

/// What the server keeps of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    iterations: NonZeroU32,
    salt: Vec<u8>,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{PREFIX}{}:{}${}:{}",
            self.iterations,
            BASE64.encode(&self.salt),
            BASE64.encode(&self.stored_key),
            BASE64.encode(&self.server_key)
        )
    }
}

impl fmt::Debug for Verifier {
    /// Keys do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

impl Verifier {
    /// The verifier to keep for what `PASSWORD '...'` says: a password, or a verifier that the client made.
    pub fn of_password_or_verifier(text: &str) -> Result<Self> {
        match Self::parse(text) {
            Some(verifier) => Ok(verifier),
            None => Self::of_password(text),
        }
    }

    /// A new verifier of a password, with a salt of its own.
    pub fn of_password(password: &str) -> Result<Self> {
        let mut salt = vec![0; SALT_BYTES];
        fill(&mut salt)?;
        Ok(Self::derive(password, salt, ITERATIONS))
    }

    /// A verifier that no password satisfies, so that an unknown user's exchange looks like any other. The salt
    /// depends on the name alone: it must not change from try to try.
    pub fn of_nobody(user: &str) -> Result<Self> {
        let mut secret = vec![0; KEY_BYTES];
        fill(&mut secret)?;
        let salt = digest::digest(&digest::SHA256, format!("headwater {user}").as_bytes());
        Ok(Self {
            iterations: ITERATIONS,
            salt: salt.as_ref()[..SALT_BYTES].to_vec(),
            stored_key: secret.clone(),
            server_key: secret,
        })
    }

    /// Reads PostgreSQL's spelling.
    pub fn parse(text: &str) -> Option<Self> {
        let (parameters, keys) = text.strip_prefix(PREFIX)?.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let key = |text: &str| {
            let key = BASE64.decode(text).ok()?;
            (key.len() == KEY_BYTES).then_some(key)
        };
        let iterations: u32 = iterations.parse().ok()?;
        Some(Self {
            iterations: NonZeroU32::new(iterations).filter(|i| i.get() <= ITERATIONS_MAX)?,
            salt: BASE64.decode(salt).ok()?,
            stored_key: key(stored_key)?,
            server_key: key(server_key)?,
        })
    }

    fn derive(password: &str, salt: Vec<u8>, iterations: NonZeroU32) -> Self {
        // A password that SASLprep refuses is used as it is, as in PostgreSQL.
        let prepared = stringprep::saslprep(password).unwrap_or(std::borrow::Cow::Borrowed(password));
        let mut salted = [0; KEY_BYTES];
        pbkdf2::derive(
            pbkdf2::PBKDF2_HMAC_SHA256,
            iterations,
            &salt,
            prepared.as_bytes(),
            &mut salted,
        );
        let client_key = sign(&salted, b"Client Key");
        Self {
            iterations,
            salt,
            stored_key: digest::digest(&digest::SHA256, &client_key).as_ref().to_vec(),
            server_key: sign(&salted, b"Server Key"),
        }
    }
}

/// The text to keep for what `PASSWORD '...'` says: see [`Verifier::of_password_or_verifier`].
pub fn verifier_of(password: &str) -> Result<String> {
    Verifier::of_password_or_verifier(password).map(|verifier| verifier.to_string())
}

/// An exchange after the client's first message.
#[derive(Debug)]
pub struct Exchange {
    verifier: Verifier,
    header: String,
    client_first_bare: String,
    server_first: String,
    nonce: String,
}

impl Exchange {
    /// Takes the client's first message; the exchange, and what the server answers.
    pub fn start(verifier: Verifier, client_first: &str) -> Result<(Self, String)> {
        let mut random = [0; NONCE_BYTES];
        fill(&mut random)?;
        Self::start_with_nonce(verifier, client_first, &BASE64.encode(random))
    }

    fn start_with_nonce(verifier: Verifier, client_first: &str, server_nonce: &str) -> Result<(Self, String)> {
        let mut parts = client_first.splitn(3, ',');
        let (binding, identity) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let bare = parts.next().ok_or_else(malformed)?;
        if !matches!(binding, "n" | "y") {
            return Err(
                Error::semantic("08P01", "malformed SCRAM message").with_detail("Channel binding was not offered.")
            );
        }
        let client_nonce = bare
            .split(',')
            .find_map(|part| part.strip_prefix("r="))
            .filter(|nonce| !nonce.is_empty())
            .ok_or_else(malformed)?;
        let nonce = format!("{client_nonce}{server_nonce}");
        let server_first = format!(
            "r={nonce},s={},i={}",
            BASE64.encode(&verifier.salt),
            verifier.iterations
        );
        let exchange = Self {
            verifier,
            header: format!("{binding},{identity},"),
            client_first_bare: bare.to_owned(),
            server_first: server_first.clone(),
            nonce,
        };
        Ok((exchange, server_first))
    }

    /// Takes the client's final message; what the server answers if the password was right, `None` if not.
    pub fn finish(&self, client_final: &str) -> Result<Option<String>> {
        let (without_proof, proof) = client_final.rsplit_once(",p=").ok_or_else(malformed)?;
        let proof = BASE64.decode(proof).map_err(|_| malformed())?;
        let mut parts = without_proof.split(',');
        let binding = parts.next().and_then(|part| part.strip_prefix("c="));
        let nonce = parts.next().and_then(|part| part.strip_prefix("r="));
        if binding != Some(BASE64.encode(&self.header).as_str())
            || nonce != Some(self.nonce.as_str())
            || proof.len() != KEY_BYTES
        {
            return Err(malformed());
        }
        let message = format!("{},{},{without_proof}", self.client_first_bare, self.server_first);
        let signature = sign(&self.verifier.stored_key, message.as_bytes());
        let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let stored_key = digest::digest(&digest::SHA256, &client_key);
        // Compared in full, so that the time taken tells nothing.
        let difference = stored_key
            .as_ref()
            .iter()
            .zip(&self.verifier.stored_key)
            .fold(0, |sum, (a, b)| sum | (a ^ b));
        if difference != 0 {
            return Ok(None);
        }
        let proof = sign(&self.verifier.server_key, message.as_bytes());
        Ok(Some(format!("v={}", BASE64.encode(proof))))
    }
}

fn sign(key: &[u8], message: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message)
        .as_ref()
        .to_vec()
}

fn fill(bytes: &mut [u8]) -> Result<()> {
    ring::rand::SystemRandom::new()
        .fill(bytes)
        .map_err(|_| Error::internal("the system has no random numbers"))
}

fn malformed() -> Error {
    Error::semantic("08P01", "malformed SCRAM message")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677, section 3.
    #[test]
    fn the_example_of_the_standard_comes_out() {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::derive("pencil", salt, ITERATIONS);
        let (exchange, first) = Exchange::start_with_nonce(
            verifier,
            "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        )
        .unwrap();
        assert_eq!(
            first,
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let client_final = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=";
        let proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(
            exchange.finish(&format!("{client_final}{proof}")).unwrap(),
            Some("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".to_owned())
        );
        let wrong = "eHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(exchange.finish(&format!("{client_final}{wrong}")).unwrap(), None);
        assert!(exchange.finish("c=biws,r=other,p=AAAA").is_err());
        assert!(exchange.finish("rubbish").is_err());
    }

    #[test]
    fn verifiers_are_kept_as_text() {
        let verifier = Verifier::of_password("secret").unwrap();
        let text = verifier.to_string();
        assert_eq!(Verifier::parse(&text), Some(verifier.clone()));
        assert_eq!(Verifier::of_password_or_verifier(&text).unwrap(), verifier);
        assert_ne!(Verifier::of_password("secret").unwrap(), verifier);
        assert_eq!(Verifier::parse("SCRAM-SHA-256$0:AA==$AA==:AA=="), None);
        assert_eq!(Verifier::parse("secret"), None);
    }

    #[test]
    fn unknown_users_always_get_the_same_salt() {
        let one = Verifier::of_nobody("a").unwrap();
        let two = Verifier::of_nobody("a").unwrap();
        assert_eq!(one.salt, two.salt);
        assert_ne!(one.stored_key, two.stored_key);
    }
}
