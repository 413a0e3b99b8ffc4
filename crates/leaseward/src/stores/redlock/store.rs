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
        Answer, Batch, Blocks, Break, Broken, Capability, Finding, Guarantee, LockView, Modes,
        OpenContext, PushSink, Query, Reach, Store, StoreUrl, Waiting,
    },
};

/// How many batches may be under way at once: while the nodes work on one, the next gathers and sets out. More would be
/// smaller ones, and each costs five nodes a call.
const LANES: usize = 2;

/// One client of several independent Redis.
pub struct Redlock {
    client: Arc<Client>,
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
        capability.blocks = Blocks::AtGrant;
        capability.ttl = config.ttl();
        // A node that forgot votes again after that time, whatever kept a name taken.
        capability.taken_max = Some(config.max_ttl);
        capability.lanes = LANES;
        capability.gathers = true;
        let client = Client::open(config, &context).await?;
        Ok(Self { client, capability })
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

    fn submit(&self, batch: Batch) -> BoxFuture<'static, Vec<Answer>> {
        let client = self.client.clone();
        Box::pin(async move {
            client.reserved.submit(batch, |batch| client.clone().submit(batch)).await
        })
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
