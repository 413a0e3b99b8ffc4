//! A way to a PostgreSQL database for what else of Leaseward keeps something there: the same URL, the same TLS, the same
//! connections that come back by themselves, the same meaning of errors.

use std::{fmt, sync::Arc};

use tokio::runtime::Handle;
use tokio_postgres::{Client as Driver, Row};

use super::{
    config::{Config, Listen},
    dial::Dialler,
    error::{self, Stage},
    lines::Lines,
    listener::{Messages, Way},
    wire::Param,
};
use crate::{Error, ErrorKind, store::StoreUrl};

/// Connections to one database.
pub struct Link {
    config: Config,
    dialler: Dialler,
    lines: Arc<Lines>,
    runtime: Handle,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A connection that listens. Dropped, it is closed.
#[derive(Debug)]
pub struct Heard {
    messages: Messages,
    _driver: Driver,
}

impl Heard {
    /// The next payload; `None` once the connection has ended.
    pub async fn next(&mut self) -> Option<String> {
        self.messages.recv().await
    }
}

impl Link {
    /// Connects to what a URL names.
    pub async fn open(url: &StoreUrl, who: &str) -> Result<Self, Error> {
        let config = Config::from_url(url)?;
        let dialler = Dialler::new(&config, who)?;
        let lines = Lines::new(&config, dialler.clone());
        lines.open().await?;
        Ok(Self { config, dialler, lines, runtime: Handle::current() })
    }

    /// The schema named in the URL.
    pub fn schema(&self) -> &str {
        &self.config.schema
    }

    /// Where it is, without secrets.
    pub fn location(&self) -> String {
        self.config.location()
    }

    /// Sends one statement that leaves nothing on the connection, and awaits its answer.
    pub async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        Ok(self.lines.query(sql, params).await?)
    }

    /// Calls a function with nothing but these parameters, and awaits its answer: as [`Link::query`], and parsed once where
    /// the server itself is at the other end.
    pub async fn call(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Error> {
        Ok(self.lines.call(sql, params).await?)
    }

    /// Carries out statements one after the other on a connection of their own, without a time limit.
    pub async fn script(&self, statements: &str) -> Result<(), Error> {
        let at = &self.lines.at;
        let (driver, carrier) = self.dialler.dial(&self.config.server, at).await?;
        let carrying = self.runtime.spawn(async move { drop(carrier.await) });
        let outcome = driver.batch_execute(statements).await;
        drop(driver);
        let _ = carrying.await;
        outcome.map_err(|failure| error::translate(&failure, Stage::Asked, at))
    }

    /// Listens on a channel, once it is known to hear.
    pub async fn listen(&self, channel: &str) -> Result<Heard, Error> {
        let server = match &self.config.listen {
            Listen::Never => {
                return Err(Error::new(ErrorKind::Unsupported, "`listen=no` is in the URL"));
            }
            Listen::At(server) => server,
            Listen::Here => &self.config.server,
        };
        let (dialler, lines, runtime) = (&self.dialler, &*self.lines, &self.runtime);
        let (driver, messages) = Way { dialler, server, lines, runtime }.listen(channel).await?;
        Ok(Heard { messages, _driver: driver })
    }

    /// Closes connections that carried nothing for a while.
    pub fn shrink(&self) {
        self.lines.shrink();
    }

    /// Closes all connections.
    pub fn close(&self) {
        self.lines.close();
    }
}
