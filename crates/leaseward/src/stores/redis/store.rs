//! The seam's side of it.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    client::Client,
    config::{Config, Topology},
};
use crate::{
    Error, Name,
    clock::BoxFuture,
    store::{
        Answer, Batch, Break, Broken, Capability, Finding, Guarantee, LockView, OpenContext,
        PushSink, Query, Reach, Store, StoreUrl,
    },
};

/// How many batches may be under way at once. With fewer, whoever comes finds them full and waits, and both sides run dry in
/// turn: 64 tasks on two processors get 170,000 pairs a second through four over seconds, 210,000 through eight, which cost the
/// server a twentieth more.
const LANES: usize = 8;

/// Into how many parts what is under way is divided. As one batch, 64 tasks are a third slower where a server has to share its
/// processor with them; where it has not, three are as good as one.
const SHARES: usize = 3;

/// In strong mode one: whatever comes while a batch waits for replicas goes into the next, and that waits once for all of
/// them. A second would share the same work among twice as many waits.
const LANES_STRONG: usize = 1;

/// One client of a Redis.
pub struct Redis {
    client: Arc<Client>,
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
        (capability.lanes, capability.shares) =
            if config.strong.is_some() { (LANES_STRONG, 1) } else { (LANES, SHARES) };
        capability.gathers = true;
        capability.several_names = !matches!(config.topology, Topology::Cluster { .. });
        let client = Client::open(config, &context).await?;
        Ok(Self { client, capability })
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

    fn submit(&self, batch: Batch) -> BoxFuture<'static, Vec<Answer>> {
        let client = self.client.clone();
        Box::pin(async move {
            let carry_out = |batch| client.clone().submit(batch);
            let answers = client.keys.reserved().submit(batch, carry_out).await;
            client.servers().judge(answers)
        })
    }

    fn takes_together(&self, names: &[Name]) -> bool {
        self.client.is_one_slot(names)
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
