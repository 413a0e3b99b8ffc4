//! What people do to jobs and queues, and how they look at them.

use leaseward::{Error, ErrorKind};

use crate::{
    JobId, Queue,
    backend::{Cancelling, Change, Told},
    body::Body,
    view::{JobState, JobView, QueueStats},
};

/// How many dead letters are replayed in one go.
const REPLAY_PAGE: u32 = 500;

/// What became of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It had not begun, and never will.
    TakenOut,
    /// It runs, and its worker was told to stop it.
    Told,
    /// There is no such job, or it has ended.
    NoSuchJob,
}

impl Queue {
    /// Cancels a job. One that has not begun is taken out at once; the worker of one that runs is told, and stops it.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancelled, the job may or may not be.
    pub async fn cancel(&self, id: JobId) -> Result<Cancelled, Error> {
        let session = self.inner.sessions.shard();
        match self.inner.backend.cancel(session, id).await? {
            Cancelling::NoSuchJob => Ok(Cancelled::NoSuchJob),
            Cancelling::TakenOut => Ok(Cancelled::TakenOut),
            Cancelling::Told(owner) => {
                self.inner.bells.tell(Told::Cancel(owner));
                Ok(Cancelled::Told)
            }
        }
    }

    /// Puts a dead letter back into its queue, with all its attempts before it; its history stays. `false` if there is no
    /// such dead letter.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancelled, it may or may not be put back.
    pub async fn replay(&self, id: JobId) -> Result<bool, Error> {
        let Some(raw) =
            self.inner.backend.find(id).await?.filter(|raw| raw.state == JobState::Dead)
        else {
            return Ok(false);
        };
        self.put_back(id, &raw.body).await
    }

    /// Puts all dead letters of a queue back into it; how many there were.
    ///
    /// # Errors
    /// What the database says; some may have been put back.
    ///
    /// # Cancel safety
    /// Cancelled, some may have been put back.
    pub async fn replay_all(&self, queue: &str) -> Result<u64, Error> {
        let number = self.inner.number(queue).await?;
        let (mut count, mut after) = (0, None);
        loop {
            let page = self.inner.backend.list(number, JobState::Dead, after, REPLAY_PAGE).await?;
            let Some(last) = page.last() else { return Ok(count) };
            after = Some(last.id);
            for raw in page {
                count += u64::from(self.put_back(raw.id, &raw.body).await?);
            }
        }
    }

    async fn put_back(&self, id: JobId, body: &[u8]) -> Result<bool, Error> {
        let mut body = Body::decode(body)?;
        body.failures = 0;
        let done =
            self.inner.backend.replay(self.inner.sessions.shard(), id, body.encode()).await?;
        if done {
            self.inner.bells.work(id.queue());
        }
        Ok(done)
    }

    /// One job; `None` if it has ended and is not kept, or never was.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn job(&self, id: JobId) -> Result<Option<JobView>, Error> {
        self.inner.backend.find(id).await?.map(JobView::new).transpose()
    }

    /// Jobs of a queue in one state, in the order of their ids, which is that of claims; `after` is where the last page ended.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn jobs(
        &self,
        queue: &str,
        state: JobState,
        after: Option<JobId>,
        count: u32,
    ) -> Result<Vec<JobView>, Error> {
        let number = self.inner.number(queue).await?;
        let page = self.inner.backend.list(number, state, after, count).await?;
        page.into_iter().map(JobView::new).collect()
    }

    /// All queues, from counters: as quick with a million jobs as with none.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn stats(&self) -> Result<Vec<QueueStats>, Error> {
        self.inner.backend.stats().await
    }

    /// Whether no job of a queue is ready, due, put aside, or leased to anyone, a worker that vanished included. What is to be
    /// run later does not count.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn is_drained(&self, queue: &str) -> Result<bool, Error> {
        let number = self.inner.number(queue).await?;
        self.inner.backend.is_drained(number).await
    }

    /// Has nothing of a queue claimed any more; what runs goes on.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancelled, it may or may not be paused.
    pub async fn pause(&self, queue: &str) -> Result<(), Error> {
        self.configure(queue, Change::Paused(true)).await
    }

    /// Has a queue claimed again.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancelled, it may or may not be resumed.
    pub async fn resume(&self, queue: &str) -> Result<(), Error> {
        self.configure(queue, Change::Paused(false)).await
    }

    /// How many jobs of a queue run at once, in all processes together. Those that run already are not counted.
    ///
    /// # Errors
    /// What the database says.
    ///
    /// # Cancel safety
    /// Cancelled, it may or may not be set.
    pub async fn set_limit(&self, queue: &str, limit: Option<u32>) -> Result<(), Error> {
        self.configure(queue, Change::Limit(limit)).await
    }

    /// How many jobs of one [key](crate::NewJob::key) run at once, in all processes together: one if not set.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for zero; else what the database says.
    ///
    /// # Cancel safety
    /// Cancelled, it may or may not be set.
    pub async fn set_key_limit(&self, queue: &str, limit: u32) -> Result<(), Error> {
        if limit == 0 {
            return Err(Error::new(ErrorKind::InvalidInput, "no job of a key could ever run")
                .hint("pause the queue instead"));
        }
        self.configure(queue, Change::KeyLimit(limit)).await
    }

    async fn configure(&self, queue: &str, change: Change) -> Result<(), Error> {
        let number = self.inner.number(queue).await?;
        self.inner.backend.configure(self.inner.sessions.shard(), number, change).await?;
        self.inner.bells.work(number);
        Ok(())
    }
}
