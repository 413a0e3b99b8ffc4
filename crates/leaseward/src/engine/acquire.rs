//! How callers come in: they join a token that this process has on the name, or ask with a new one.

use std::{
    collections::VecDeque,
    future::Future,
    sync::{Arc, atomic::Ordering},
    task::Poll,
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    Engine,
    acquisition::{Obstacle, evidence},
    caller::{Outcome, Waiting},
    cell::TokenCell,
    lane::Work,
    names::Entry,
    spec::Spec,
};
use crate::{
    Block, Error, ErrorKind, Guard, Handle, Holder, Mode, Name, OwnerId,
    clock::{Clock, Moment},
    store::{Evidence, Grant, IfBusy, Renew, Reply, Standing},
};

/// Of so many acquisitions one counts against the task's budget of 128 steps: a task that does nothing but lock then
/// steps aside about once a millisecond.
const BUDGET_EVERY: u32 = 8;

/// What a caller wants.
pub(crate) struct Request<'a> {
    pub(crate) name: &'a Name,
    pub(crate) spec: Spec,
    pub(crate) owner: Option<OwnerId>,
    /// When the caller stops waiting.
    pub(crate) limit: Option<Moment>,
    /// When the caller began to ask, if this is not its first try.
    pub(crate) since: Option<Moment>,
}

/// Runs something until a moment; `None` if it did not finish.
pub(crate) async fn until<T>(
    clock: &Arc<dyn Clock>,
    limit: Option<Moment>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = std::pin::pin!(work);
    let mut sleep = None;
    std::future::poll_fn(|cx| {
        if let Poll::Ready(out) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(out));
        }
        let Some(limit) = limit else { return Poll::Pending };
        let sleep = sleep.get_or_insert_with(|| clock.sleep_until(limit));
        sleep.as_mut().poll(cx).map(|()| None)
    })
    .await
}

impl Engine {
    /// Asks for a lease and waits for it as long as the request says.
    ///
    /// Cancelled, it leaves the queue, and gives back a lease that was on its way.
    pub(crate) async fn acquire(self: &Arc<Self>, request: Request<'_>) -> Result<Outcome, Error> {
        self.check_open()?;
        // A store that answers at once never makes its caller wait: a loop over a free name must still let other tasks
        // run, the timer that renews leases among them.
        if self.acquisitions.fetch_add(1, Ordering::Relaxed).is_multiple_of(BUDGET_EVERY) {
            tokio::task::coop::consume_budget().await;
        }
        let Request { name, spec, owner, limit, since } = request;
        let began = self.clock.now();
        self.order.check(owner.as_ref(), name)?;
        let key = (self.table.hash(name), name);
        let outcome = match self.enter(key, &spec, owner.clone())? {
            Entered::Busy(standing) => Outcome::Busy(standing),
            Entered::Waits(waiting) => self.wait(waiting, limit, began).await?,
        };
        if let Outcome::Granted(guard) = &outcome {
            self.order.acquired(owner.as_ref(), name);
            let waited = guard.since().since(since.unwrap_or(began));
            self.events.acquired(guard, waited, spec.trace_id());
        }
        match outcome {
            Outcome::Failed(error) => Err(error),
            outcome => Ok(outcome),
        }
    }

    async fn wait(
        self: &Arc<Self>,
        mut waiting: Waiting<'_>,
        limit: Option<Moment>,
        began: Moment,
    ) -> Result<Outcome, Error> {
        let told = until(&self.clock, limit, waiting.wait()).await;
        let waited = || self.clock.now().since(began);
        if waiting.had_to_wait {
            self.events.waited(waited());
        }
        told.unwrap_or_else(|| {
            let names = std::slice::from_ref(waiting.name);
            self.events.timed_out(names, waited(), waiting.trace_id.as_ref());
            Err(self.in_the_way(&waiting))
        })
    }

    fn enter<'a>(
        self: &'a Arc<Self>,
        key: (u64, &'a Name),
        spec: &Spec,
        owner: Option<OwnerId>,
    ) -> Result<Entered<'a>, Error> {
        let (mut waiter, mut waiting) = self.caller(key, spec, owner);
        let (hash, name) = key;
        let joins = self.setting.cohorts && spec.mode() == Mode::Exclusive;
        let entered = self.visit(hash, |visit| {
            // Under the lock: what is in the table when it is shut down is given back, and nothing comes in after that.
            self.check_open()?;
            let tokens = visit.names.on(hash, name);
            if joins && !tokens.is_empty() {
                if spec.if_busy == IfBusy::Tell {
                    // Held right here: no need to ask the store for its holder.
                    let held = tokens.iter().find(|entry| entry.acquisition.is_held());
                    if let Some(held) = held {
                        return Ok(Some(self.own_standing(held)));
                    }
                } else {
                    waiter.knows_it_waits = true;
                    match visit.join(key, waiter) {
                        Ok(()) => {
                            waiting.is_behind = true;
                            return Ok(None);
                        }
                        Err(back) => waiter = back,
                    }
                    waiter.knows_it_waits = false;
                }
            }
            self.admit(spec)?;
            visit.enter(key, spec.clone(), VecDeque::from([waiter]), None);
            Ok(None)
        });
        match entered {
            Ok(None) => Ok(Entered::Waits(waiting)),
            Ok(Some(standing)) => {
                waiting.is_over();
                Ok(Entered::Busy(standing))
            }
            Err(refusal) => {
                waiting.is_over();
                Err(refusal)
            }
        }
    }

    /// Why a waiter did not get it in time, as far as was last heard: a store that is away, or its holder.
    fn in_the_way(&self, waiting: &Waiting<'_>) -> Error {
        let name = waiting.name;
        let shard = self.table.lock(waiting.hash);
        let mut tokens = shard.names.on(waiting.hash, name).iter();
        let Some(entry) = tokens.find(|entry| entry.has_caller(waiting.id)) else {
            return timed_out(name, None);
        };
        if entry.acquisition.is_held() {
            return timed_out(name, Some(&self.own_standing(entry)));
        }
        match entry.acquisition.obstacle() {
            Some(Obstacle::Away(why)) => still_away(name, why),
            Some(Obstacle::Standing(standing)) => timed_out(name, Some(standing)),
            None => timed_out(name, None),
        }
    }

    /// How things stand with a name held by this very process.
    fn own_standing(&self, entry: &Entry<super::caller::Waiter>) -> Standing {
        let left = entry.cell.deadline().since(self.clock.now());
        Standing {
            holder: Some(Holder::new(self.who.clone(), entry.cell.spec.mode(), Some(left))),
            free_in: Some(left),
            ahead: u32::try_from(entry.acquisition.callers().len()).unwrap_or(u32::MAX),
        }
    }

    /// Takes over a lease from another process by its handle: by a renewal, so that it is known to last.
    pub(crate) async fn attach(
        self: &Arc<Self>,
        handle: &Handle,
        spec: Spec,
        owner: Option<OwnerId>,
    ) -> Result<Guard, Error> {
        self.check_open()?;
        let (name, token) = (handle.name().clone(), handle.token().clone());
        let (tell, told) = oneshot::channel();
        let renew = Renew { name: name.clone(), token: token.clone(), ttl: handle.ttl() };
        self.send(Work::Attach(Box::new((renew, tell))));
        let gone = |_| Error::new(ErrorKind::ShutDown, "the runtime has shut down");
        let (sent, answer) = told.await.map_err(gone)?;
        let renewal = match answer? {
            Reply::Renewed(renewal) => renewal,
            Reply::NotYours(reason) => return Err(crate::guard::lost_error(&name, reason)),
            other => unreachable!("BUG: the store answered a renewal with {other:?}"),
        };
        let sent = evidence::counts_from(renewal.evidence, sent);
        let grant = Grant {
            block: Block { first: handle.fence(), len: 1 },
            slot: handle.slot(),
            ttl: renewal.ttl,
            evidence: Evidence::ThisRequest,
            waiters: renewal.waiters,
        };
        self.take_in(name, token, spec, owner, &grant, sent).await
    }

    async fn take_in(
        self: &Arc<Self>,
        name: Name,
        token: crate::Token,
        spec: Spec,
        owner: Option<OwnerId>,
        grant: &Grant,
        sent: Moment,
    ) -> Result<Guard, Error> {
        let hash = self.table.hash(&name);
        let cell = TokenCell::new(self.new_id(), hash, name.clone(), token, spec.clone());
        let (waiter, mut waiting) = self.caller((hash, &name), &spec, owner.clone());
        let attached = self.visit(hash, |visit| {
            self.check_open()?;
            visit.attach(Arc::new(cell), waiter, grant, sent);
            Ok(())
        });
        if let Err(closed) = attached {
            waiting.is_over();
            return Err(closed);
        }
        match waiting.wait().await? {
            Outcome::Granted(guard) => {
                self.order.acquired(owner.as_ref(), &name);
                self.events.taken_over(&guard);
                Ok(guard)
            }
            Outcome::Failed(error) => Err(error),
            Outcome::Busy(_) => unreachable!("BUG: a lease that is held is busy"),
        }
    }

    /// Renews a lease at its holder's wish.
    pub(crate) async fn renew_now(
        self: &Arc<Self>,
        cell: &Arc<TokenCell>,
        ttl: Duration,
    ) -> Result<(), Error> {
        let lost = |reason| crate::guard::lost_error(&cell.name, reason);
        if let Some(reason) = cell.ended() {
            return Err(lost(reason));
        }
        let (tell, told) = oneshot::channel();
        self.send(Work::Extend(Box::new((cell.clone(), ttl, tell))));
        let answer = until(&self.clock, Some(cell.deadline()), told).await.and_then(Result::ok);
        if let Some(reason) = cell.ended() {
            return Err(lost(reason));
        }
        match answer {
            Some((_, Ok(Reply::Renewed(_)))) => Ok(()),
            Some((_, Ok(_))) => Err(lost(crate::LostReason::NotOurs)),
            Some((_, Err(error))) => Err(error),
            // Renewed meanwhile in the background, whatever became of this.
            None if cell.is_held_at(self.clock.now()) => Err(Error::new(
                ErrorKind::Indeterminate,
                "the store did not say whether the lease was renewed",
            )),
            None => Err(lost(crate::LostReason::Expired)),
        }
    }
}

/// How a caller fares once it is in.
enum Entered<'a> {
    Busy(Standing),
    Waits(Waiting<'a>),
}

/// Waited for in line, and at the end of the wait the store is away.
fn still_away(name: &Name, why: &Error) -> Error {
    let message = format!("`{name}` was waited for, and the store is away: {}", why.message());
    let error = Error::new(ErrorKind::Unavailable, message);
    match why.hint_text() {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

fn timed_out(name: &Name, standing: Option<&Standing>) -> Error {
    let message = match standing.and_then(|standing| standing.holder.as_ref()) {
        Some(holder) => format!("`{name}` is held by {holder}"),
        None => format!("`{name}` did not come free in time"),
    };
    Error::new(ErrorKind::Timeout, message).hint("wait longer, or see who holds what")
}
