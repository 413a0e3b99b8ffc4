//! How a connection is made: address, credentials, TLS; and how it shows that nobody stands in between.
//!
//! What a connection's server remembers for it is worth nothing behind a pooler, which gives each transaction another
//! server process. So a client that wants a process of its own **proves** that it has one: its greeting carries a random
//! number as a setting, and the process that answers must know it, and must see the very port from which we connected.
//! A pooler that repeats settings for its clients fails the second, one that reuses processes the first. Address
//! translation may fail it too: then nothing is remembered, which costs time and nothing else.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio_postgres::{
    Client, Connection, Row,
    config::{Host, SslMode, TargetSessionAttrs},
    tls::MakeTlsConnect,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    config::Config,
    error::Unconnected,
    socket::{self, Address, NearEnd, Stream},
};
use crate::{Error, stores::tls};

/// What carries a connection's messages.
pub(super) type Carrier = Connection<Stream, <MakeRustlsConnect as MakeTlsConnect<Stream>>::Stream>;

/// What a server may take to let somebody in, if the time for an answer is not even longer: proving that one knows the
/// password costs both sides far more than any statement.
const CONNECT: Duration = Duration::from_secs(10);

/// What the process at the other end knows of us. The setting is there if it was in our greeting.
const WHO: &str = "SELECT current_setting('transaction_read_only') = 'on', \
                   current_setting('leaseward.nonce', true), inet_client_port()";

/// Makes connections.
#[derive(Clone)]
pub(super) struct Dialler {
    tls: MakeRustlsConnect,
    ssl_mode: SslMode,
    timeout: Duration,
    name: String,
    /// Whether whoever answers there takes settings in a greeting; PgBouncer does not, and need not refuse every
    /// connection to say so.
    takes_settings: Arc<AtomicBool>,
    /// Whether a server has let us in before.
    was_let_in: Arc<AtomicBool>,
}

/// A connection.
pub(super) struct Dialled {
    pub(super) client: Client,
    pub(super) carrier: Carrier,
    /// Whether one process of the server, and nobody else's, is certain to carry out all that is sent.
    pub(super) is_own: bool,
}

/// Whether to find out who is at the other end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Closely,
    Away,
}

impl Dialler {
    /// Reads what files the configuration names.
    pub(super) fn new(config: &Config, who: &str) -> Result<Self, Error> {
        let (client, ssl_mode) = match &config.tls {
            None => (tls::unused()?, SslMode::Disable),
            Some(files) => (tls::load(files)?, SslMode::Require),
        };
        Ok(Self {
            tls: MakeRustlsConnect::new(client),
            ssl_mode,
            timeout: config.timeout,
            name: format!("leaseward {who}"),
            takes_settings: Arc::new(AtomicBool::new(true)),
            was_let_in: Arc::default(),
        })
    }

    /// Connects.
    pub(super) async fn dial(
        &self,
        server: &tokio_postgres::Config,
        at: &str,
    ) -> Result<(Client, Carrier), Error> {
        let dialled = self.let_in(server, at, Look::Away).await?;
        Ok((dialled.client, dialled.carrier))
    }

    /// Connects, and finds out whether there is a pooler in between.
    pub(super) async fn dial_and_look(
        &self,
        server: &tokio_postgres::Config,
        at: &str,
    ) -> Result<Dialled, Error> {
        self.let_in(server, at, Look::Closely).await
    }

    async fn let_in(
        &self,
        server: &tokio_postgres::Config,
        at: &str,
        look: Look,
    ) -> Result<Dialled, Error> {
        match self.attempt(server, look).await {
            Ok(dialled) => {
                self.was_let_in.store(true, Ordering::Relaxed);
                Ok(dialled)
            }
            Err(why) if self.was_let_in.load(Ordering::Relaxed) => {
                Err(why.translate(at).was_reached(None))
            }
            Err(why) => Err(why.translate(at)),
        }
    }

    /// Tries all servers in turn, until one will do.
    async fn attempt(
        &self,
        server: &tokio_postgres::Config,
        look: Look,
    ) -> Result<Dialled, Unconnected> {
        let mut last = Unconnected::Silent;
        for (at, host) in server.get_hosts().iter().enumerate() {
            let ports = server.get_ports();
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
            // Each gets its time, also if it accepts and then says nothing.
            let attempt = self.attempt_host(server, host, port, look);
            match tokio::time::timeout(self.timeout.max(CONNECT), attempt).await {
                Ok(Ok(dialled)) => return Ok(dialled),
                Ok(Err(why)) => last = why,
                Err(_) => last = Unconnected::Silent,
            }
        }
        Err(last)
    }

    async fn attempt_host(
        &self,
        server: &tokio_postgres::Config,
        host: &Host,
        port: u16,
        look: Look,
    ) -> Result<Dialled, Unconnected> {
        let name = match host {
            Host::Tcp(name) => name,
            Host::Unix(_) => "",
        };
        let mut last = Unconnected::Unknown;
        for address in socket::addresses(host, port).await.map_err(Unconnected::Unreached)? {
            match self.attempt_address(server, name, &address, look).await {
                Ok(dialled) => return Ok(dialled),
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    async fn attempt_address(
        &self,
        server: &tokio_postgres::Config,
        name: &str,
        address: &Address,
        look: Look,
    ) -> Result<Dialled, Unconnected> {
        if look == Look::Away || !self.takes_settings.load(Ordering::Relaxed) {
            return self.greet(server, name, address, None).await;
        }
        let nonce = format!("{:032x}", rand::random::<u128>());
        match self.greet(server, name, address, Some(&nonce)).await {
            Err(why) if why.may_be_of_the_greeting() => {
                let dialled = self.greet(server, name, address, None).await?;
                // Whoever just hung up may have been about to stop.
                let was_said = !matches!(&why, Unconnected::Refused(error) if error.is_closed());
                self.takes_settings.fetch_and(!was_said, Ordering::Relaxed);
                Ok(dialled)
            }
            other => other,
        }
    }

    /// Connects to one address, with a number that the process at the other end is to know.
    async fn greet(
        &self,
        server: &tokio_postgres::Config,
        name: &str,
        address: &Address,
        nonce: Option<&str>,
    ) -> Result<Dialled, Unconnected> {
        let connected = address.connect(self.timeout).await;
        let (stream, near) = connected.map_err(Unconnected::Unreached)?;
        let mut server = server.clone();
        server.ssl_mode(self.ssl_mode).application_name(&self.name);
        if let Some(nonce) = nonce {
            server.options(format!("-c leaseward.nonce={nonce}"));
        }
        let Ok(tls) = MakeTlsConnect::<Stream>::make_tls_connect(&mut self.tls.clone(), name);
        let greeted = server.connect_raw(stream, tls).await;
        let (client, mut carrier) = greeted.map_err(Unconnected::Refused)?;
        let wants_writes = server.get_target_session_attrs() == TargetSessionAttrs::ReadWrite;
        if nonce.is_none() && !wants_writes {
            return Ok(Dialled { client, carrier, is_own: false });
        }
        let row = ask(&client, &mut carrier, WHO).await.map_err(Unconnected::Refused)?;
        let read_only = row.try_get(0).map_err(Unconnected::Refused)?;
        let known: Option<&str> = row.try_get(1).map_err(Unconnected::Refused)?;
        let port = row.try_get(2).map_err(Unconnected::Refused)?;
        if wants_writes && read_only {
            return Err(Unconnected::ReadOnly);
        }
        let is_own = nonce.is_some() && nonce == known && sees(port, near);
        Ok(Dialled { client, carrier, is_own })
    }
}

/// Whether the port that a server sees is that of our end.
fn sees(port: Option<i32>, near: NearEnd) -> bool {
    port == match near {
        NearEnd::Port(port) => Some(port.into()),
        NearEnd::Unix => None,
    }
}

/// Asks something over a connection whose messages nobody else carries yet.
async fn ask(
    client: &Client,
    carrier: &mut Carrier,
    sql: &str,
) -> Result<Row, tokio_postgres::Error> {
    let mut asked = pin!(client.query_typed_one(sql, &[]));
    let mut has_ended = false;
    poll_fn(|context| {
        if !has_ended && let Poll::Ready(ended) = carrier.poll_unpin(context) {
            ended?;
            has_ended = true;
        }
        asked.as_mut().poll(context)
    })
    .await
}
