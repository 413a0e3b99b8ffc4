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

/// One client of a Redis.
pub struct Redis {
    client: Arc<Client>,
    driver: Driver,
    capability: Capability,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("config", &self.client.config).finish_non_exhaustive()
    }
}

impl Redis {
    /// Connects to what a URL says.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing was asked of the server yet.
    pub(super) async fn open(url: &StoreUrl, context: OpenContext) -> Result<Self, Error> {
        let config = Config::from_url(url)?;
        let mut capability = Capability::full(Reach::Network);
        // Whatever comes while a batch waits for replicas goes into the next, and that waits once for all of it.
        capability.one_batch_at_a_time = config.strong.is_some();
        let client = Client::open(config, &context).await?;
        Ok(Self { client, driver: Driver::default(), capability })
    }
}

impl Store for Redis {
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
        let client = self.client.clone();
        let answers = async move {
            let carry_out = |batch| client.clone().submit(batch);
            let answers = client.keys.reserved().submit(batch, carry_out).await;
            client.servers().judge(answers)
        };
        self.driver.drive(answers, reply);
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
            client.ping().await.map(|()| begun.elapsed())
        })
    }

    fn diagnose(&self) -> BoxFuture<'static, Result<Vec<Finding>, Error>> {
        let client = self.client.clone();
        Box::pin(async move { client.diagnose().await })
    }

    fn fence_lead(&self) -> Option<Duration> {
        self.client.fences.lead(self.client.clock.wall_us())
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.client.close();
        Box::pin(std::future::ready(()))
    }
}
