//! Which servers, as whom, and how.

use std::{fmt, path::PathBuf, time::Duration};

use crate::{
    Error, ErrorKind,
    store::{Site, StoreUrl},
};

/// The port of etcd.
const PORT: u16 = 2379;

/// How long an answer may take: a cluster that elects a leader needs one to two seconds.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What stands before every name.
const PREFIX: &str = "leaseward/";

const SETTINGS: &[&str] = &["prefix", "timeout", "ca", "cert", "key"];

/// As whom to connect.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) user: String,
    pub(super) password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Files for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tls {
    pub(super) ca: Option<PathBuf>,
    pub(super) cert_and_key: Option<(PathBuf, PathBuf)>,
}

#[derive(Clone, Debug)]
pub(super) struct Config {
    /// `host:port` each.
    pub(super) endpoints: Vec<String>,
    pub(super) credentials: Option<Credentials>,
    pub(super) tls: Option<Tls>,
    pub(super) prefix: String,
    pub(super) timeout: Duration,
}

impl Config {
    pub(super) fn from_url(url: &StoreUrl) -> Result<Self, Error> {
        url.only(SETTINGS)?;
        let site = url.site()?;
        if !site.path.is_empty() {
            // Not repeated: it is a piece of a password if the host behind it was forgotten.
            return Err(invalid("a path behind the hosts means nothing to etcd".into())
                .hint("what stands before the names is a setting: `?prefix=locks/`"));
        }
        let endpoint = |(host, port): (String, u16)| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        Ok(Self {
            endpoints: site.addresses(PORT)?.into_iter().map(endpoint).collect(),
            credentials: credentials(&site)?,
            tls: tls(url)?,
            prefix: url.setting("prefix").unwrap_or(PREFIX).to_owned(),
            timeout: url.duration("timeout")?.unwrap_or(TIMEOUT),
        })
    }

    /// Where it is, without secrets.
    pub(super) fn location(&self) -> String {
        let scheme = if self.tls.is_some() { "etcds" } else { "etcd" };
        format!("{scheme}://{}", self.endpoints.join(","))
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

fn credentials(site: &Site<'_>) -> Result<Option<Credentials>, Error> {
    match site.user_and_password() {
        (None, None) => Ok(None),
        (Some(user), Some(password)) => Ok(Some(Credentials { user, password })),
        _ => Err(invalid("user and password go together".into())
            .hint("written `etcd://user:password@host`")),
    }
}

fn tls(url: &StoreUrl) -> Result<Option<Tls>, Error> {
    let file = |key: &str| url.setting(key).map(PathBuf::from);
    let cert_and_key = match (file("cert"), file("key")) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err(invalid("`cert` and `key` go together".into())),
    };
    let tls = Tls { ca: file("ca"), cert_and_key };
    if url.scheme == "etcds" {
        return Ok(Some(tls));
    }
    if tls != Tls::default() {
        return Err(
            invalid("settings for TLS without TLS".into()).hint("the scheme for TLS is `etcds:`")
        );
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::written;

    fn config(url: &str) -> Result<Config, Error> {
        Config::from_url(&StoreUrl::parse(url)?)
    }

    #[test]
    fn reads_what_people_write() {
        let plain = config("etcd://").expect("good");
        assert_eq!(plain.endpoints, ["localhost:2379"]);
        assert_eq!((plain.prefix.as_str(), plain.timeout), ("leaseward/", TIMEOUT));
        let full = config("etcds://u:p%40ss@a:7,b,[::1]:9?prefix=x%2F&timeout=800ms&ca=/ca.pem");
        let full = full.expect("good");
        assert_eq!(full.endpoints, ["a:7", "b:2379", "[::1]:9"]);
        assert_eq!(full.credentials.map(|known| known.password).as_deref(), Some("p@ss"));
        assert_eq!((full.prefix.as_str(), full.timeout), ("x/", Duration::from_millis(800)));
        assert!(full.tls.is_some_and(|tls| tls.ca.is_some()));
    }

    #[test]
    fn refuses_what_it_cannot_mean() {
        for bad in [
            "etcd://h:port",
            "etcd://h/locks",
            "etcd://u@h",
            "etcd://a,,b",
            "etcd://?prefx=a",
            "etcd://?ca=/x",
            "etcds://?cert=/x",
            "etcd://?timeout=5",
        ] {
            assert_eq!(config(bad).expect_err(bad).kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }

    #[test]
    fn shows_no_password() {
        let config = config("etcd://u:hunter2@h").expect("good");
        assert_eq!(config.location(), "etcd://h:2379");
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn nothing_that_can_be_written_panics_or_shows_a_password() {
        written::assert_read_well(super::super::SCHEME.names, |url| {
            let config = Config::from_url(url)?;
            Ok(format!("{config:?} {}", config.location()))
        });
    }
}
