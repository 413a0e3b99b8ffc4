//! The seam's side of it.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{client::Client, config::Config};
use crate::{
    Error,
    clock::BoxFuture,
    store::{
        Batch, Break, Broken, Capability, Completion, Driver, Finding, Guarantee, LockView,
        OpenContext, PushSink, Query, Reach, Store, StoreUrl,
    },
};

/// One client of a PostgreSQL database.
pub struct Postgres {
    client: Arc<Client>,
    driver: Driver,
    capability: Capability,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("config", &self.client.config).finish_non_exhaustive()
    }
}

impl Postgres {
    /// Connects to what a URL says.
    ///
    /// # Cancel safety
    /// Cancel safe: the schema is made as a whole or not at all, and nothing else was asked of the server yet.
    pub(super) async fn open(url: &StoreUrl, context: OpenContext) -> Result<Self, Error> {
        let config = Config::from_url(url)?;
        let capability = Capability::full(Reach::Network);
        let client = Client::open(config, &context).await?;
        Ok(Self { client, driver: Driver::default(), capability })
    }
}

impl Store for Postgres {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn guarantee(&self) -> Guarantee {
        self.client.guarantee()
    }

    fn location(&self) -> String {
        self.client.config.location()
    }

    fn start(&self, sink: PushSink) {
        self.client.start(sink);
    }

    fn submit(&self, batch: Batch, reply: Completion) {
        self.driver.drive(self.client.clone().submit(batch), reply);
    }

    fn inspect(&self, query: Query) -> BoxFuture<'static, Result<Vec<LockView>, Error>> {
        let client = self.client.clone();
        Box::pin(async move { client.inspect(&query).await })
    }

    fn break_lease(&self, order: Break) -> BoxFuture<'static, Result<Broken, Error>> {
        let client = self.client.clone();
        Box::pin(async move { client.break_lease(&order).await })
    }

    fn ping(&self) -> BoxFuture<'static, Result<Duration, Error>> {
        let client = self.client.clone();
        Box::pin(async move {
            let begun = Instant::now();
            client.look().await.map(|_| begun.elapsed())
        })
    }

    fn diagnose(&self) -> BoxFuture<'static, Result<Vec<Finding>, Error>> {
        let client = self.client.clone();
        Box::pin(async move { client.diagnose().await })
    }

    fn fence_lead(&self) -> Option<Duration> {
        self.client.database.lead(self.client.clock.now())
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.client.close();
        Box::pin(std::future::ready(()))
    }
}
