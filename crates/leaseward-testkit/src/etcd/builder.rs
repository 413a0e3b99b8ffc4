//! How etcd is to be run.

use super::Etcd;
use crate::redis::TlsFiles;

/// The options of an [`Etcd`].
#[derive(Clone, Debug)]
pub struct EtcdBuilder {
    pub(super) members: usize,
    pub(super) arguments: Vec<String>,
    pub(super) tls: Option<TlsFiles>,
    pub(super) password: Option<String>,
    pub(super) on_disk: bool,
}

impl EtcdBuilder {
    pub(super) fn new() -> Self {
        Self { members: 1, arguments: Vec::new(), tls: None, password: None, on_disk: false }
    }

    /// Starts it; returns when every member answers and there is a leader.
    ///
    /// # Panics
    /// With the end of a member's log if it does not, and with how to install it if it is not there.
    #[must_use]
    pub fn start(self) -> Etcd {
        Etcd::start_with(self)
    }

    /// A cluster of so many.
    #[must_use]
    pub fn members(mut self, count: usize) -> Self {
        self.members = count;
        self
    }

    /// Any other option of each member.
    #[must_use]
    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Speaks only TLS with clients.
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Asks everybody for a password; this one is `root`'s.
    #[must_use]
    pub fn auth(mut self, root: &str) -> Self {
        self.password = Some(root.to_owned());
        self
    }

    /// Its files are on the disk and not in memory: for figures.
    #[must_use]
    pub fn on_disk(mut self) -> Self {
        self.on_disk = true;
        self
    }
}
