//! Elections: one leader at a time, known to all.

use std::{fmt, future::Future, time::Duration};

use crate::{
    Error, Fence, Guard, Lease, Lock, Locks, LostReason, Name, Release, Value, lock::run_under,
    store::Query,
};

/// How often followers look who leads.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// An election on a name. Its leader holds the exclusive lease on that name, and its value travels with it.
#[derive(Clone)]
#[must_use = "nothing happens until somebody campaigns or observes"]
pub struct Election {
    locks: Locks,
    name: String,
    lock: Lock,
}

impl Election {
    pub(crate) fn new(locks: Locks, name: &str) -> Self {
        let lock = locks.lock(name);
        Self { locks, name: name.to_owned(), lock }
    }

    /// How long a leader that vanished is still taken for one.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// The trace that a candidacy belongs to: see [`Lock::trace_id`].
    pub fn trace_id(mut self, trace_id: impl AsRef<str>) -> Self {
        self.lock = self.lock.trace_id(trace_id);
        self
    }

    /// Waits until this candidate leads. The value, such as an address, is what followers see.
    ///
    /// A store that is away is waited for, however long that takes, also by a candidate that has just lost the lead to an
    /// outage: a loop that campaigns, leads and campaigns again goes on by itself.
    ///
    /// # Errors
    /// As [`Lock::acquire`], but for [`ErrorKind::Unavailable`](crate::ErrorKind).
    ///
    /// # Cancel safety
    /// Cancel safe: dropped, the candidate withdraws.
    pub async fn campaign(&self, value: impl AsRef<[u8]>) -> Result<Leader, Error> {
        let guard = self.lock.clone().value(value).riding_out().acquire().await?;
        Ok(Leader { guard })
    }

    /// Who leads now.
    ///
    /// # Errors
    /// What the store says.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn leader(&self) -> Result<Option<LeaderView>, Error> {
        let views = self.locks.inspect(Query::Name(Name::new(&self.name)?)).await?;
        Ok(views.into_iter().flat_map(|view| view.holders).next().map(|holder| LeaderView {
            who: holder.who.to_string(),
            value: holder.value,
            fence: holder.fence,
        }))
    }

    /// Follows who leads: first as it is, then at every change.
    pub fn observe(&self) -> Followed {
        Followed { election: self.clone(), last: None }
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The leader as others see it.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub struct LeaderView {
    /// `host:pid`.
    pub who: String,
    /// What it campaigned with.
    pub value: Option<Value>,
    /// Its fence: a later leader's is larger.
    pub fence: Fence,
}

/// The leaders of an election, one after the other.
#[derive(Debug)]
pub struct Followed {
    election: Election,
    last: Option<Option<LeaderView>>,
}

impl Followed {
    /// Who leads, as soon as that is another answer than the last one; `None` while nobody does.
    ///
    /// # Errors
    /// What the store says, [`ErrorKind::Unavailable`](crate::ErrorKind) while it is away; asking again goes on from there.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call sees the change.
    pub async fn next(&mut self) -> Result<Option<LeaderView>, Error> {
        let clock = self.election.locks.clock().clone();
        loop {
            let now = self.election.leader().await?;
            if self.last.as_ref() != Some(&now) {
                self.last = Some(now.clone());
                return Ok(now);
            }
            clock.sleep_until(clock.now() + LOOK_EVERY).await;
        }
    }
}

/// This process leads, until it resigns or loses the lease. Dropping it resigns in the background.
#[derive(Debug)]
#[must_use = "dropping it resigns"]
pub struct Leader {
    guard: Guard,
}

impl Leader {
    /// Grows with every change of leader.
    pub fn fence(&self) -> Fence {
        self.guard.fence()
    }

    /// Whether it still leads at this moment.
    pub fn is_leader(&self) -> bool {
        self.guard.is_held()
    }

    /// What work done as leader needs to know.
    pub fn lease(&self) -> Lease {
        self.guard.lease()
    }

    /// Resolves when leadership is lost.
    ///
    /// # Cancel safety
    /// Cancel safe: ask again at any time.
    pub async fn lost(&self) -> LostReason {
        self.guard.lost().await
    }

    /// Works as leader; the work is dropped before leadership can end.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if leadership was lost before the work was done.
    ///
    /// # Cancel safety
    /// Dropped, the work is dropped; leadership goes on.
    pub async fn run<F, Fut, T>(&self, work: F) -> Result<T, Error>
    where
        F: FnOnce(Lease) -> Fut,
        Fut: Future<Output = T>,
    {
        run_under(&self.guard.lease(), work).await
    }

    /// Steps down.
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    /// As [`Guard::release`].
    pub async fn resign(self) -> Result<Release, Error> {
        self.guard.release().await
    }
}
