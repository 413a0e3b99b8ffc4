//! How a connection is made: address, credentials, TLS.

use std::{io, sync::Arc, time::Duration};

use futures_util::future::join;
use redis::{Pipeline, RedisError, Value};
use rustls::ClientConfig;

use super::{
    config::{Address, Config, Credentials},
    connection::{Connection, OnPush, connect},
    error,
};
use crate::{Error, stores::tls};

/// Makes connections.
pub(in crate::stores) struct Dialler {
    credentials: Credentials,
    db: i64,
    tls: Option<Arc<ClientConfig>>,
    timeout: Duration,
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

    /// Connects, and sends commands right behind what lets us in, without waiting for that. Answers to them too.
    pub(in crate::stores) async fn dial_and_send(
        &self,
        address: &Address,
        on_push: OnPush,
        commands: Pipeline,
    ) -> Result<(Connection, Vec<Value>), Error> {
        let at = address.to_string();
        let failed = |error: RedisError| error::of_connecting(&error, &at);
        let reach = async {
            let stream = connect(address, self.tls.as_ref()).await?;
            let connection = Connection::new(stream, self.timeout, on_push);
            // Two pieces: whom a server does not know it cuts off once he sends much, and then what it said before counts.
            let (greeting, answers) =
                join(connection.pipeline(&self.greeting()), connection.pipeline(&commands)).await;
            Ok::<_, RedisError>((connection, greeting?, answers))
        };
        let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut).into());
        let reached = tokio::time::timeout(self.timeout, reach).await.unwrap_or_else(late);
        let (connection, greeting, answers) = reached.map_err(failed)?;
        self.check(greeting, &at)?;
        Ok((connection, answers.map_err(failed)?))
    }

    /// Who we are, and which database. What it is called is for people who look.
    fn greeting(&self) -> Pipeline {
        let mut greeting = redis::pipe();
        let hello = greeting.cmd("HELLO").arg(3);
        if let Some(password) = &self.credentials.password {
            let user = self.credentials.user.as_deref().unwrap_or("default");
            hello.arg("AUTH").arg(user).arg(password);
        }
        greeting.cmd("SELECT").arg(self.db);
        greeting.cmd("CLIENT").arg("SETINFO").arg("LIB-NAME").arg("leaseward");
        greeting.cmd("CLIENT").arg("SETINFO").arg("LIB-VER").arg(env!("CARGO_PKG_VERSION"));
        greeting
    }

    /// Whether we were let in. Servers before 7.2 do not want to know what a client is called.
    fn check(&self, greeting: Vec<Value>, at: &str) -> Result<(), Error> {
        let mut answers = greeting.into_iter();
        if let Some(Value::ServerError(refusal)) = answers.next() {
            return Err(error::of_hello(&refusal.into(), at));
        }
        match answers.next() {
            // A Sentinel has no databases.
            Some(Value::ServerError(refusal)) if self.db != 0 => {
                Err(error::of_database(&refusal.into(), at, self.db))
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
