//! Which servers, as whom, and under which node.

use std::{fmt, sync::Arc, time::Duration};

use super::wire::Acl;
use crate::{Error, ErrorKind, store::StoreUrl};

const KNOWN: &[&str] = &["timeout"];

/// ZooKeeper's own port.
const PORT: u16 = 2181;

/// How long an answer, or a connection, is waited for.
const TIMEOUT: Duration = Duration::from_secs(3);

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

#[derive(Clone)]
pub(super) struct Config {
    pub(super) hosts: Vec<Host>,
    /// The node that all names are under, without a slash at its end: empty for the root.
    pub(super) root: String,
    /// `user:password`.
    pub(super) login: Option<Arc<str>>,
    pub(super) timeout: Duration,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("location", &self.location())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl Config {
    pub(super) fn from_url(url: &StoreUrl) -> Result<Self, Error> {
        url.only(KNOWN)?;
        let site = url.site()?;
        if site.login.is_some_and(|login| !login.contains(':')) {
            return Err(invalid("a login is written `user:password`".into()));
        }
        if site.hosts.is_empty() {
            return Err(invalid("which servers?".into()));
        }
        let host = |(name, port)| Host { name, port };
        Ok(Self {
            hosts: site.addresses(PORT)?.into_iter().map(host).collect(),
            root: chroot(&StoreUrl::decoded(site.path))?,
            login: site.login.map(|login| Arc::from(StoreUrl::decoded(login))),
            timeout: url.duration("timeout")?.unwrap_or(TIMEOUT),
        })
    }

    /// Where it is, without secrets.
    pub(super) fn location(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(Host::to_string).collect();
        format!("zookeeper://{}{}", hosts.join(","), self.root)
    }

    /// Whoever has a login keeps others out.
    pub(super) fn acl(&self) -> Acl {
        if self.login.is_some() { Acl::Creator } else { Acl::Open }
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
        .hint("such as `zookeeper://user:password@host1:2181,host2:2181/locks`")
}

fn chroot(path: &str) -> Result<String, Error> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let is_bad = |part: &&str| matches!(*part, "." | "..") || part.chars().any(char::is_control);
    if parts.iter().any(is_bad) || parts.first() == Some(&"zookeeper") {
        return Err(invalid(format!("`/{path}` is no node for locks")));
    }
    Ok(parts.iter().map(|part| format!("/{part}")).collect())
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
        let plain = config("zookeeper://localhost").expect("good");
        assert_eq!(plain.location(), "zookeeper://localhost:2181");
        assert_eq!((plain.acl(), plain.timeout), (Acl::Open, TIMEOUT));
        let full = config("zookeeper://me:p%40ss@a:1,[::1]:2,c/locks//app/?timeout=500ms");
        let full = full.expect("good");
        assert_eq!(full.location(), "zookeeper://a:1,[::1]:2,c:2181/locks/app");
        assert_eq!(full.login.as_deref(), Some("me:p@ss"));
        assert_eq!((full.acl(), full.timeout), (Acl::Creator, Duration::from_millis(500)));
        assert!(!format!("{full:?}").contains("p@ss"));
    }

    #[test]
    fn refuses_what_it_cannot_mean() {
        for bad in [
            "zookeeper://",
            "zookeeper://a:port",
            "zookeeper://a,,b",
            "zookeeper://me@a",
            "zookeeper://a/../b",
            "zookeeper://a/zookeeper",
            "zookeeper://a?timeout=0s",
            "zookeeper://a?prefix=x",
        ] {
            assert_eq!(config(bad).expect_err(bad).kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }

    #[test]
    fn nothing_that_can_be_written_panics_or_shows_a_password() {
        written::assert_read_well(super::super::SCHEME.names, |url| {
            let config = Config::from_url(url)?;
            Ok(format!("{config:?} {}", config.location()))
        });
    }
}
