//! How a Redis server is to be run.

use std::path::PathBuf;

use super::RedisServer;
use crate::skew::Skew;

/// When the append-only file reaches the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Before each answer.
    Always,
    /// Once a second: a crash of the machine loses the last one.
    EverySec,
}

/// What a server needs to speak TLS, and `redis-cli` to speak to it.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Who vouches for the certificates.
    pub ca: PathBuf,
    /// The certificate, which `redis-cli` shows too if the server asks for one.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Whether clients must show a certificate.
    pub ask_clients: bool,
}

/// What the program does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    #[default]
    Server,
    Sentinel,
}

/// The options of a [`RedisServer`].
#[derive(Clone, Debug, Default)]
pub struct RedisBuilder {
    pub(super) role: Role,
    /// Lines of the configuration file.
    pub(super) lines: Vec<String>,
    pub(super) environment: Vec<(&'static str, PathBuf)>,
    pub(super) password: Option<String>,
    pub(super) tls: Option<TlsFiles>,
    pub(super) socket: bool,
}

impl RedisBuilder {
    /// Starts it; returns when it answers.
    ///
    /// # Panics
    /// With the end of its log if it does not answer within ten seconds, and with how to install it if it is not there.
    #[must_use]
    pub fn start(self) -> RedisServer {
        RedisServer::start_with(self)
    }

    /// A Sentinel, which is the same program in another role.
    pub(crate) fn sentinel() -> Self {
        Self { role: Role::Sentinel, ..Self::default() }
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Any other option, as in `redis.conf`.
    #[must_use]
    pub fn arg(mut self, key: &str, value: &str) -> Self {
        self.lines.push(format!("{key} {value}"));
        self
    }

    /// Keeps an append-only file, so that a restart finds what was there.
    #[must_use]
    pub fn appendonly(self, fsync: Fsync) -> Self {
        let fsync = match fsync {
            Fsync::Always => "always",
            Fsync::EverySec => "everysec",
        };
        self.arg("appendonly", "yes").arg("appendfsync", fsync)
    }

    /// A restart finds nothing. This is the default.
    #[must_use]
    pub fn no_persistence(self) -> Self {
        self.arg("appendonly", "no")
    }

    /// The password of the default user.
    #[must_use]
    pub fn requirepass(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        // A replica shows it to its primary, and a failover turns any of them into one.
        self.arg("requirepass", password).arg("masterauth", password)
    }

    /// A user, as for `ACL SETUSER`: `locker on >secret ~lock:* +@all`.
    #[must_use]
    pub fn acl(self, line: &str) -> Self {
        self.arg("user", line)
    }

    /// Follows another server.
    #[must_use]
    pub fn replica_of(self, primary: &RedisServer) -> Self {
        self.arg("replicaof", &format!("127.0.0.1 {}", primary.port()))
    }

    /// How much it may keep, and what it does at the limit: `noeviction`, `allkeys-lru`, …
    #[must_use]
    pub fn maxmemory(self, bytes: u64, policy: &str) -> Self {
        self.arg("maxmemory", &bytes.to_string()).arg("maxmemory-policy", policy)
    }

    /// Speaks only TLS on its port.
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Also listens on a unix socket, [`RedisServer::socket`].
    #[must_use]
    pub fn unix_socket(mut self) -> Self {
        self.socket = true;
        self
    }

    /// Its wall clock, by which keys expire, is wrong by what `skew` says.
    #[must_use]
    pub fn skew(mut self, skew: &Skew) -> Self {
        self.environment.extend(skew.environment());
        self
    }
}
