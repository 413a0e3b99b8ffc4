//! Why a server was not reached, or did not let us in: nothing was asked yet.

use std::{fmt, io, sync::Arc};

use redis::RedisError;
use rustls::{AlertDescription as Alert, CertificateError};

use super::{Code, build, code_of, first_line, io_text};
use crate::{Error, ErrorKind, stores::redis::config::Address};

/// Whom we tried to reach.
#[derive(Clone, Copy, Debug)]
pub(in crate::stores) enum Peer<'a> {
    Redis(&'a Address),
    /// It has users and passwords of its own.
    Sentinel(&'a Address),
}

impl Peer<'_> {
    fn kind(self) -> &'static str {
        match self {
            Self::Redis(_) => "redis",
            Self::Sentinel(_) => "Sentinel",
        }
    }

    fn address(&self) -> &Address {
        match self {
            Self::Redis(address) | Self::Sentinel(address) => address,
        }
    }
}

impl fmt::Display for Peer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.kind(), self.address())
    }
}

/// What a server says before it closes a connection that is one too many: a plain `ERR`.
const FULL: &str = "max number of clients";

/// The error of an attempt to connect.
pub(in crate::stores) fn of_connecting(error: &RedisError, peer: Peer<'_>) -> Error {
    if let Some(code) = code_of(error).filter(|code| *code != Code::Other) {
        return of_code(code, peer);
    }
    if error.detail().is_some_and(|detail| detail.starts_with(FULL)) {
        return Error::new(
            ErrorKind::Unavailable,
            format!("{} takes no more clients", peer.kind()),
        )
        .hint("raise `maxclients` there, or end clients that nobody needs");
    }
    match error.kind() {
        redis::ErrorKind::Parse => Error::new(
            ErrorKind::Unavailable,
            format!(
                "what listens at {} is no {}: it answers in another language",
                peer.address(),
                peer.kind()
            ),
        )
        .hint("is another program at this address, or one that speaks TLS (`rediss:`)?"),
        _ if error.code().is_some() => build(Code::Other, first_line(&error.to_string())),
        _ => {
            let unreached = Error::new(ErrorKind::Unavailable, format!("{peer} was not reached"));
            let hinted = if let Some(refusal) = tls_refusal(error) {
                unreached.hint(of_tls(refusal))
            } else if error.is_connection_refusal() {
                unreached.ask_for_address("is it running, and is this its address?")
            } else {
                unreached.ask_for_address(
                    "is this its address? with TLS the scheme is `rediss:`, without it `redis:`",
                )
            };
            hinted.caused_by(io_text(error))
        }
    }
}

/// A code, where it means something else from a Sentinel: the user and password of the URL are for the servers behind it.
fn of_code(code: Code, peer: Peer<'_>) -> Error {
    let (what, hint) = match (peer, code) {
        (Peer::Sentinel(_), Code::NoAuth) => (
            "asks for a password",
            "put it into the URL as `?sentinel_password=…`, with `&sentinel_user=…` if it is not the default user's",
        ),
        (Peer::Sentinel(_), Code::WrongPass) => (
            "refused user and password",
            "check `sentinel_user` and `sentinel_password` in the URL; special characters are percent-encoded there",
        ),
        (Peer::Sentinel(_), Code::NoPerm) => (
            "does not permit this user what is needed",
            "it takes `&+switch-master +hello +auth +subscribe +sentinel|get-master-addr-by-name`",
        ),
        _ => return build(code, ""),
    };
    Error::new(ErrorKind::Refused, format!("{peer} {what}")).hint(hint)
}

/// What to do about a handshake that failed.
fn of_tls(refusal: &rustls::Error) -> &'static str {
    match refusal {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "if its certificate is signed by an authority of your own, `?ca=FILE` names that one's certificate"
        }
        rustls::Error::InvalidCertificate(_) => {
            "its certificate must be in date, and made out to the host that stands in the URL"
        }
        rustls::Error::AlertReceived(Alert::CertificateRequired) => {
            "it asks clients for a certificate: `?cert=FILE&key=FILE`"
        }
        // All that TLS 1.2 says where a certificate is missing, and of some other things too.
        rustls::Error::AlertReceived(Alert::HandshakeFailure) => {
            "does it ask clients for a certificate? `?cert=FILE&key=FILE`"
        }
        rustls::Error::AlertReceived(
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown,
        ) => {
            "it does not take the certificate of `?cert=FILE&key=FILE`: one that is in date, from an authority that it trusts"
        }
        _ => "is this its address? with TLS the scheme is `rediss:`, without it `redis:`",
    }
}

/// What TLS had against the server, or the server against us. The driver keeps what its error was made of in an `Arc`.
fn tls_refusal(error: &RedisError) -> Option<&rustls::Error> {
    use std::error::Error;
    let kept = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    kept.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()
}

/// The error of a server that does not let us in.
pub(in crate::stores) fn of_hello(error: &RedisError, peer: Peer<'_>) -> Error {
    if error.detail().is_some_and(|detail| detail.starts_with("unknown command")) {
        return Error::new(
            ErrorKind::Unsupported,
            format!("{peer} is too old: it does not speak RESP3"),
        )
        .hint("Redis 6.2 or newer is needed, or Valkey");
    }
    of_connecting(error, peer)
}

/// The error of a server that does not have the database, or does not let us use it.
pub(in crate::stores) fn of_database(error: &RedisError, peer: Peer<'_>, db: i64) -> Error {
    if error.detail().is_some_and(|detail| detail.contains("out of range")) {
        let message = format!("{peer} has no database {db}");
        return Error::new(ErrorKind::Refused, message).hint(
            "they are counted from 0; `redis-cli config get databases` says how many there are",
        );
    }
    of_connecting(error, peer)
}
