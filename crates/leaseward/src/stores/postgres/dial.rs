//! How a connection is made: address, credentials, TLS.

use std::time::Duration;

use tokio_postgres::{Client, Connection, Socket, config::SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    config::Config,
    error::{self, Stage},
};
use crate::{Error, ErrorKind, stores::tls};

/// What carries a connection's messages.
pub(super) type Carrier =
    Connection<Socket, <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<Socket>>::Stream>;

/// Silence on an idle connection after which the kernel asks whether the other side is there.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// What a server may take to let somebody in, if the time for an answer is not even longer: proving that one knows the
/// password costs both sides far more than any statement.
const CONNECT: Duration = Duration::from_secs(10);

/// The kernel counts these times in whole seconds.
const SECOND: Duration = Duration::from_secs(1);

/// Makes connections.
#[derive(Clone)]
pub(super) struct Dialler {
    tls: MakeRustlsConnect,
    ssl_mode: SslMode,
    timeout: Duration,
    name: String,
}

impl Dialler {
    /// Reads what files the configuration names.
    pub(super) fn new(config: &Config, who: &str) -> Result<Self, Error> {
        let (client, ssl_mode) = match &config.tls {
            None => (tls::unused()?, SslMode::Disable),
            Some(tls) => (tls::load(tls)?, SslMode::Require),
        };
        Ok(Self {
            tls: MakeRustlsConnect::new(client),
            ssl_mode,
            timeout: config.timeout,
            name: format!("leaseward {who}"),
        })
    }

    /// Connects.
    pub(super) async fn dial(
        &self,
        server: &tokio_postgres::Config,
        at: &str,
    ) -> Result<(Client, Carrier), Error> {
        let mut server = server.clone();
        let patience = self.timeout.max(CONNECT);
        server.ssl_mode(self.ssl_mode).connect_timeout(patience).application_name(&self.name);
        server.keepalives_idle(KEEPALIVE).keepalives_retries(2);
        server.keepalives_interval(self.timeout.max(SECOND));
        server.tcp_user_timeout(self.timeout.max(SECOND) * 2);
        // Each server of several gets its time, also if it accepts and then says nothing.
        let hosts = u32::try_from(server.get_hosts().len()).unwrap_or(1);
        match tokio::time::timeout(patience * hosts, server.connect(self.tls.clone())).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(error)) => Err(error::translate(&error, Stage::Connecting, at)),
            Err(_) => Err(Error::new(ErrorKind::Unavailable, format!("{at} does not answer"))
                .hint("is it overloaded or stopped?")),
        }
    }
}
