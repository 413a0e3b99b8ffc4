//! The seam's side of it.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{client::Client, config::Settings, guarantee};
use crate::{
    Error,
    clock::BoxFuture,
    store::{
        Batch, Break, Broken, Capability, Completion, Driver, Finding, Guarantee, LeaseKind,
        LockView, Modes, OpenContext, PushSink, Query, Reach, Severity, Store, StoreUrl, Waiting,
    },
};

/// One client of PostgreSQL's advisory locks: one session.
pub struct Advisory {
    client: Arc<Client>,
    driver: Driver,
    capability: Capability,
    guarantee: Guarantee,
}

impl fmt::Debug for Advisory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Advisory").field("settings", &self.client.settings).finish_non_exhaustive()
    }
}

impl Advisory {
    /// Connects to what a URL says.
    ///
    /// # Cancel safety
    /// Cancel safe: the sequence is made as a whole or not at all, and nothing else was asked of the server yet.
    pub(super) async fn open(url: &StoreUrl, context: OpenContext) -> Result<Self, Error> {
        let settings = Settings::from_url(url)?;
        let mut capability = Capability::full(Reach::Network);
        capability.lease = LeaseKind::Session;
        capability.waiting = Waiting::AskAgain;
        capability.modes = Modes { shared: true, permits: false };
        capability.why_not = Some(
            "an advisory lock is held alone or shared, ends with its session and carries nothing; lease rows \
             (`postgres://`) can",
        );
        // All of these need something that outlives the session, or that others can read.
        capability.min_hold = false;
        capability.value = false;
        capability.records = false;
        capability.one_batch_at_a_time = true;
        let client = Client::open(settings, &context).await?;
        let ends_idle = client.current().is_none_or(|session| session.ends_idle());
        Ok(Self {
            client,
            driver: Driver::default(),
            capability,
            guarantee: guarantee::of(ends_idle),
        })
    }
}

impl Store for Advisory {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn guarantee(&self) -> Guarantee {
        self.guarantee.clone()
    }

    fn location(&self) -> String {
        self.client.settings.location()
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
            let session = client.session(&mut *client.turn.lock().await).await?;
            session.query("SELECT 1", &[], client.clock.now()).await?;
            Ok(begun.elapsed())
        })
    }

    fn diagnose(&self) -> BoxFuture<'static, Result<Vec<Finding>, Error>> {
        let client = self.client.clone();
        Box::pin(async move {
            let session = client.session(&mut *client.turn.lock().await).await?;
            Ok(findings(session.version, session.ends_idle()))
        })
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.client.close();
        Box::pin(std::future::ready(()))
    }
}

impl Drop for Advisory {
    fn drop(&mut self) {
        self.client.close();
    }
}

fn findings(version: i32, ends_idle: bool) -> Vec<Finding> {
    let note = Finding {
        severity: Severity::Note,
        what: format!("PostgreSQL {}.{}", version / 10_000, version % 10_000),
        meaning: "leases are advisory locks of one session, and end with it".into(),
        advice: "nothing to do".into(),
    };
    let frozen = (!ends_idle).then(|| Finding {
        severity: Severity::Warning,
        what: "this server does not end idle sessions".into(),
        meaning:
            "a holder that is frozen keeps its locks until it wakes, however short their TTL is"
                .into(),
        advice: "upgrade to PostgreSQL 14 or newer".into(),
    });
    [frozen, Some(note)].into_iter().flatten().collect()
}
