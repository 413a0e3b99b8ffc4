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
        Batch, Break, Broken, Capability, Completion, Driver, Finding, Guarantee, LockView, Modes,
        OpenContext, PushSink, Query, Reach, Store, StoreUrl, Waiting,
    },
};

/// One client of several independent Redis.
pub struct Redlock {
    client: Arc<Client>,
    driver: Driver,
    capability: Capability,
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock").field("config", &self.client.config).finish_non_exhaustive()
    }
}

impl Redlock {
    /// Connects to the nodes a URL names: to a majority of them at least.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing was asked of the nodes yet.
    pub(super) async fn open(url: &StoreUrl, context: OpenContext) -> Result<Self, Error> {
        let config = Config::from_url(url)?;
        let mut capability = Capability::full(Reach::Network);
        capability.waiting = Waiting::AskAgain;
        capability.modes = Modes { shared: true, permits: false };
        capability.why_not = Some(
            "a majority of nodes cannot count; with three nodes and two permits there can be three holders, one at A \
             and B, one at B and C, one at C and A",
        );
        capability.ttl = config.ttl();
        let client = Client::open(config, &context).await?;
        Ok(Self { client, driver: Driver::default(), capability })
    }
}

impl Store for Redlock {
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
            client.reserved.submit(batch, |batch| client.clone().submit(batch)).await
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
            client.look(&[]).await.map(|_| begun.elapsed())
        })
    }

    fn diagnose(&self) -> BoxFuture<'static, Result<Vec<Finding>, Error>> {
        let client = self.client.clone();
        Box::pin(async move { Ok(client.diagnose().await) })
    }

    fn fence_lead(&self) -> Option<Duration> {
        self.client.fence_lead()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.client.close();
        Box::pin(std::future::ready(()))
    }
}
