//! How a PostgreSQL server is to be run.

use std::path::PathBuf;

use super::Postgres;
use crate::{redis::TlsFiles, skew::Skew};

/// Where a server's files come from.
#[derive(Clone, Debug, Default)]
pub(super) enum Origin {
    /// A new cluster.
    #[default]
    Fresh,
    /// A copy of the server at this address, which it goes on following.
    Standby(String),
}

/// The options of a [`Postgres`] server.
#[derive(Clone, Debug, Default)]
pub struct PostgresBuilder {
    pub(super) origin: Origin,
    /// Lines of the configuration file.
    pub(super) lines: Vec<String>,
    pub(super) environment: Vec<(&'static str, PathBuf)>,
    pub(super) tls: Option<TlsFiles>,
    pub(super) in_memory: bool,
}

impl PostgresBuilder {
    /// Starts it; returns when it takes connections.
    ///
    /// # Panics
    /// With the end of its log if it does not within ten seconds, and with how to install it if it is not there.
    #[must_use]
    pub fn start(self) -> Postgres {
        Postgres::start_with(self)
    }

    /// Any setting, as in `postgresql.conf`.
    #[must_use]
    pub fn conf(mut self, key: &str, value: &str) -> Self {
        self.lines.push(format!("{key} = '{value}'"));
        self
    }

    /// Keeps its files in memory, where there is enough: many servers at once, and no disk that makes them wait. To the
    /// server it looks like any other disk; it survives all but the machine's end.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.in_memory = true;
        self
    }

    /// How many connections it takes, of which three are for superusers alone.
    #[must_use]
    pub fn max_connections(self, count: u32) -> Self {
        self.conf("max_connections", &count.to_string())
    }

    /// Follows another server, of which it begins as a copy; takes no writes.
    #[must_use]
    pub fn standby_of(mut self, primary: &Postgres) -> Self {
        self.origin = Origin::Standby(primary.url());
        self
    }

    /// Takes only TLS connections over TCP.
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Its wall clock is wrong by what `skew` says.
    #[must_use]
    pub fn skew(mut self, skew: &Skew) -> Self {
        self.environment.extend(skew.environment());
        self
    }
}
