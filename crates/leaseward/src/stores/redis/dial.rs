//! How a connection is made: address, credentials, TLS.

use std::{io, sync::Arc, time::Duration};

use futures_util::future::join;
use redis::{Cmd, Pipeline, RedisError, Value};
use rustls::ClientConfig;

use super::{
    config::{Address, Config, Credentials},
    connection::{Connection, OnPush, connect},
    error::{self, Peer},
};
use crate::{Error, stores::tls};

/// Makes connections.
pub(in crate::stores) struct Dialler {
    credentials: Credentials,
    db: i64,
    tls: Option<Arc<ClientConfig>>,
    timeout: Duration,
    /// Whether those at the other end are Sentinels.
    is_for_sentinels: bool,
    /// What CLIENT LIST shows.
    pub(in crate::stores) name: String,
}

impl Dialler {
    /// Reads what files the configuration names.
    pub(in crate::stores) fn new(config: &Config, who: &str) -> Result<Self, Error> {
        Ok(Self {
            credentials: config.credentials.clone(),
            db: config.db,
            tls: config.tls.as_ref().map(tls::load).transpose()?.map(Arc::new),
            timeout: config.timeout,
            is_for_sentinels: false,
            name: client_name(who),
        })
    }

    /// The same, as somebody else: for Sentinels, which have users of their own and no databases.
    pub(in crate::stores) fn for_sentinels(&self, config: &Config) -> Self {
        Self {
            credentials: config.sentinel_credentials.clone(),
            db: 0,
            tls: self.tls.clone(),
            timeout: self.timeout,
            is_for_sentinels: true,
            name: self.name.clone(),
        }
    }

    /// The same, for connections on which an answer may take that much longer.
    pub(in crate::stores) fn for_longer_answers(&self, by: Duration) -> Self {
        Self {
            credentials: self.credentials.clone(),
            db: self.db,
            tls: self.tls.clone(),
            timeout: self.timeout + by,
            is_for_sentinels: self.is_for_sentinels,
            name: self.name.clone(),
        }
    }

    /// Connects.
    pub(in crate::stores) async fn dial(
        &self,
        address: &Address,
        on_push: OnPush,
    ) -> Result<Connection, Error> {
        let nothing = redis::pipe();
        self.dial_and_send(address, on_push, nothing).await.map(|(connection, _)| connection)
    }

    /// Connects, and sends commands right behind what lets us in; where there is nobody else we could be taken for,
    /// without waiting for that. Answers to them too.
    pub(in crate::stores) async fn dial_and_send(
        &self,
        address: &Address,
        on_push: OnPush,
        commands: Pipeline,
    ) -> Result<(Connection, Vec<Value>), Error> {
        let peer = self.peer(address);
        let failed = |error: RedisError| error::of_connecting(&error, peer);
        let reach = async {
            let stream = connect(address, self.tls.as_ref()).await;
            let stream = stream.map_err(|error| failed(error.into()))?;
            let connection = Connection::new(stream, self.timeout, on_push);
            let hello = async {
                let answer = connection.command(&self.hello()).await;
                answer.map_err(|refusal| error::of_hello(&refusal, peer))
            };
            let rest = async {
                join(self.settle(&connection, peer), connection.pipeline(&commands)).await
            };
            let (settled, answers) = if self.credentials.login().is_some() {
                // To a server that does not take it we are the default user, who may be allowed everything.
                hello.await?;
                rest.await
            } else {
                // In pieces: whom a server does not know it cuts off once he sends much, and then what it said before
                // counts.
                let (hello, rest) = join(hello, rest).await;
                hello?;
                rest
            };
            settled?;
            Ok((connection, answers.map_err(failed)?))
        };
        let late = |_| Err(failed(io::Error::from(io::ErrorKind::TimedOut).into()));
        tokio::time::timeout(self.timeout, reach).await.unwrap_or_else(late)
    }

    /// Whoever is at an address, for messages.
    pub(super) fn peer<'a>(&self, address: &'a Address) -> Peer<'a> {
        if self.is_for_sentinels { Peer::Sentinel(address) } else { Peer::Redis(address) }
    }

    /// Who we are.
    fn hello(&self) -> Cmd {
        let mut hello = redis::cmd("HELLO");
        hello.arg(3);
        if let Some((user, password)) = self.credentials.login() {
            hello.arg("AUTH").arg(user).arg(password);
        }
        hello
    }

    /// Which database, and what we are, for people who look. Servers before 7.2 do not want to know that, and a Sentinel
    /// has no databases.
    async fn settle(&self, connection: &Connection, peer: Peer<'_>) -> Result<(), Error> {
        let mut settle = redis::pipe();
        settle.cmd("SELECT").arg(self.db);
        settle.cmd("CLIENT").arg("SETINFO").arg("LIB-NAME").arg("leaseward");
        settle.cmd("CLIENT").arg("SETINFO").arg("LIB-VER").arg(env!("CARGO_PKG_VERSION"));
        let answers = connection.pipeline(&settle).await;
        let answers = answers.map_err(|error| error::of_connecting(&error, peer))?;
        match answers.into_iter().next() {
            Some(Value::ServerError(refusal)) if self.db != 0 => {
                Err(error::of_database(&refusal.into(), peer, self.db))
            }
            _ => Ok(()),
        }
    }
}

/// Redis allows no spaces in the name of a client.
fn client_name(who: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() { c } else { '-' };
    format!("leaseward:{}", who.chars().map(plain).collect::<String>())
}
