//! The seam's side of it.

use std::{
    fmt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    client::Client,
    config::{Config, Durability},
    diagnose,
    worker::Worker,
};
use crate::{
    Error,
    clock::BoxFuture,
    store::{
        Batch, Break, Broken, Capability, Completion, Finding, Guarantee, Level, LockView,
        OpenContext, PushSink, Query, Reach, Store,
    },
};

/// One client of a file of leases.
pub struct Sqlite {
    client: Arc<Client>,
    capability: Capability,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("config", &self.client.config).finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Opens a file of leases, and makes it with its folder if it is not there.
    ///
    /// May wait for the disk and for other processes, so it is not for a runtime's thread; a URL is opened on a thread
    /// of its own.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the path names no file;
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if the file cannot be used: not writable, not ours, damaged,
    /// too new, or on a network file system; [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if it is busy or
    /// the disk is full.
    pub fn open(
        path: impl AsRef<Path>,
        durability: Durability,
        context: &OpenContext,
    ) -> Result<Self, Error> {
        let config = Config::at(path.as_ref(), durability)?;
        Ok(Self::over(Client::open(config, context, Worker::new(Client::THREAD))?))
    }

    /// Opens what a URL says, on the thread that will write later.
    ///
    /// # Cancel safety
    /// Cancel safe: a file that was made stays.
    pub(super) async fn connect(config: Config, context: OpenContext) -> Result<Self, Error> {
        let worker = Worker::new(Client::THREAD);
        let writing = worker.clone();
        let opened = worker.call(move || Client::open(config, &context, writing));
        Ok(Self::over(opened.await?))
    }

    fn over(client: Client) -> Self {
        let mut capability = Capability::full(Reach::Machine);
        capability.one_batch_at_a_time = true;
        Self { client: Arc::new(client), capability }
    }
}

impl Store for Sqlite {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn guarantee(&self) -> Guarantee {
        let mut breaks_when =
            vec!["the file is on a network share that is not recognised".to_owned()];
        let fences = match self.client.config.durability {
            Durability::Full => Level::Holds,
            Durability::Normal => {
                breaks_when.push(
                    "a power cut takes back the last commits and the clock is behind afterwards"
                        .to_owned(),
                );
                Level::WithinBounds
            }
        };
        Guarantee { exclusion: Level::Holds, fences, reach: Reach::Machine, breaks_when }
    }

    fn location(&self) -> String {
        format!("sqlite:{}", self.client.config.path.display())
    }

    fn start(&self, sink: PushSink) {
        self.client.wake.start(sink);
    }

    fn submit(&self, batch: Batch, reply: Completion) {
        Client::submit(&self.client, batch, reply);
    }

    fn inspect(&self, query: Query) -> BoxFuture<'static, Result<Vec<LockView>, Error>> {
        self.client.keeper.inspect(query)
    }

    fn break_lease(&self, order: Break) -> BoxFuture<'static, Result<Broken, Error>> {
        Client::in_turn(&self.client, move |turn| turn.break_lease(&order))
    }

    fn ping(&self) -> BoxFuture<'static, Result<Duration, Error>> {
        let start = Instant::now();
        let pong = Client::in_turn(&self.client, |turn| turn.learn_last_fence());
        Box::pin(async move { pong.await.map(|()| start.elapsed()) })
    }

    fn diagnose(&self) -> BoxFuture<'static, Result<Vec<Finding>, Error>> {
        let config = self.client.config.clone();
        self.client.keeper.call(move || diagnose::diagnose(&config.path, config.durability))
    }

    fn fence_lead(&self) -> Option<Duration> {
        Some(self.client.fence_lead())
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        Client::close(&self.client)
    }
}
