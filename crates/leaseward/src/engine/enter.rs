//! How callers come in: join a cohort, or bid for the name themselves.

use std::{
    collections::VecDeque,
    future::Future,
    sync::{Arc, atomic::Ordering},
    task::Poll,
};

use smallvec::smallvec;
use tokio::sync::oneshot;

use super::{
    Engine,
    bid::{Bid, BidState, Outcome, Spec, Waiter},
    claim::Decision,
    cohort,
    direct::Direct,
    drive::Drive,
    follow::After,
    lane::{Job, Target, Which},
    waiting::Waiting,
};
use crate::{
    Error, ErrorKind, Mode, Name,
    clock::{Clock, Moment},
    guard::OwnerId,
    store::{Ask, Blocks, IfBusy, Operation, Reply, Standing},
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
        // run, the keeper that renews leases among them.
        if self.acquisitions.fetch_add(1, Ordering::Relaxed).is_multiple_of(BUDGET_EVERY) {
            tokio::task::coop::consume_budget().await;
        }
        let Request { name, spec, owner, limit, since } = request;
        let began = self.clock.now();
        let trace_id = spec.trace_id().cloned();
        self.order.check(owner.as_ref(), name)?;
        let outcome = match self.enter(name, spec, owner.clone(), began)? {
            Entered::Told(outcome) => outcome,
            Entered::Waits(waiting, drive) => self.wait(waiting, drive, limit, began).await?,
        };
        if let Outcome::Granted(guard) = &outcome {
            self.order.acquired(owner.as_ref(), name);
            let waited = guard.since().since(since.unwrap_or(began));
            self.events.acquired(guard, waited, trace_id.as_ref());
        }
        match outcome {
            Outcome::Failed(error) => Err(error),
            outcome => Ok(outcome),
        }
    }

    async fn wait(
        self: &Arc<Self>,
        mut waiting: Waiting<'_>,
        drive: Option<Drive>,
        limit: Option<Moment>,
        began: Moment,
    ) -> Result<Outcome, Error> {
        let told = until(&self.clock, limit, waiting.wait(drive)).await;
        let waited = || self.clock.now().since(began);
        if waiting.had_to_wait {
            self.events.waited(waited());
        }
        told.unwrap_or_else(|| {
            let names = std::slice::from_ref(waiting.name);
            self.events.timed_out(names, waited(), waiting.trace_id.as_ref());
            Err(self.in_the_way(waiting.name, waiting.id))
        })
    }

    fn enter<'a>(
        self: &'a Arc<Self>,
        name: &'a Name,
        spec: Spec,
        owner: Option<OwnerId>,
        now: Moment,
    ) -> Result<Entered<'a>, Error> {
        let mut shard = self.table.lock(name);
        // Under the lock: what is in the table when it is shut down is given back, and nothing comes in after that.
        self.check_open()?;
        let joins = self.cohorts && spec.mode() == Mode::Exclusive;
        if joins && !shard.bids(name).is_empty() {
            let (mut waiter, mut waiting) = self.waiter(name, spec, owner);
            (waiter.knows_it_waits, waiting.is_behind) = (true, true);
            let mut waiter = match self.join(shard.bids(name), waiter) {
                Joined::Yes(job) => {
                    drop(shard);
                    let drive = job.and_then(|job| self.send(Which::Renewals, [job]));
                    return Ok(Entered::Waits(waiting, drive));
                }
                Joined::No(waiter) => waiter,
            };
            if let Err(refusal) = self.admit(&waiter.spec) {
                // Before the waiter goes: leaving takes the same lock.
                drop(shard);
                return Err(refusal);
            }
            (waiter.knows_it_waits, waiting.is_behind) = (false, false);
            let (bid, job) = self.new_bid(name.clone(), self.new_token(), VecDeque::from([waiter]));
            shard.insert(bid);
            drop(shard);
            return Ok(Entered::Waits(waiting, self.send(Which::Asks, [job])));
        }
        self.admit(&spec)?;
        let (bid, ask) = self.sole_bid(name.clone(), spec, now);
        shard.insert(bid.clone());
        drop(shard);
        Ok(self.ask_first(name, &bid, ask, owner, now))
    }

    /// Sends the first ask of a bid whose caller is at hand: told at once, or registered as a waiter.
    fn ask_first<'a>(
        self: &'a Arc<Self>,
        name: &'a Name,
        bid: &Arc<Bid>,
        ask: Operation,
        owner: Option<OwnerId>,
        began: Moment,
    ) -> Entered<'a> {
        let direct = self.send_direct(Which::Asks, ask, began);
        if let Direct::Answered { sent, answer: Ok(Reply::Granted(grant)), now } = &direct {
            let shard = self.table.lock(&bid.name);
            let mut state = bid.state.lock();
            if let Decision::Start { deadline } = state.claim.granted(*sent, grant, *now) {
                state.has_caller = false;
                state.is_in_flight = false;
                state.last_sent = *sent;
                self.open_lease(bid, &mut state, grant, deadline, *now);
                let origin = self.events.origin(bid.spec.trace_id());
                let guard = self.seat(bid, &mut state, owner, origin, *now);
                self.keep(bid, &mut state, *now);
                drop(state);
                drop(shard);
                return Entered::Told(Outcome::Granted(guard));
            }
        }
        let (waiter, waiting) = self.waiter(name, bid.spec.clone(), owner);
        self.register(bid, waiter);
        let drive = match direct {
            Direct::Answered { sent, answer, now } => {
                self.ask_answered(bid, sent, answer, now);
                None
            }
            Direct::UnderWay(under_way) => {
                Some(self.follow_up(Which::Asks, under_way, Target::Ask(bid.clone())))
            }
            Direct::Not(operation) => {
                self.send(Which::Asks, [Job { operation, target: Target::Ask(bid.clone()) }])
            }
        };
        Entered::Waits(waiting, drive)
    }

    /// Makes the caller at hand the first waiter of its bid.
    fn register(self: &Arc<Self>, bid: &Arc<Bid>, waiter: Waiter) {
        let mut after = After::default();
        let mut shard = self.table.lock(&bid.name);
        let mut state = bid.state.lock();
        state.has_caller = false;
        if !state.claim.is_ended() {
            // Whoever joined meanwhile came later.
            return state.crowd().waiters.push_front(waiter);
        }
        // Lost while it was sent, with its session as a rule: nobody tells those who join an ended bid.
        drop(state);
        self.bid_again(&mut shard, bid, VecDeque::from([waiter]), &mut after);
        drop(shard);
        after.run(self);
    }

    /// A caller as its bid knows it, and as it waits.
    fn waiter<'a>(
        self: &'a Arc<Self>,
        name: &'a Name,
        spec: Spec,
        owner: Option<OwnerId>,
    ) -> (Waiter, Waiting<'a>) {
        let (tell, told) = oneshot::channel();
        let id = self.waiter_id();
        let origin = self.events.origin(spec.trace_id());
        let waiting = Waiting {
            engine: self,
            name,
            id,
            owner: owner.clone(),
            trace_id: spec.trace_id().cloned(),
            told,
            is_behind: false,
            is_done: false,
            had_to_wait: false,
        };
        (Waiter { id, owner, spec, origin, tell, knows_it_waits: false }, waiting)
    }

    /// Joins the waiters behind a token this process already has.
    fn join(&self, bids: &[Arc<Bid>], waiter: Waiter) -> Joined {
        for bid in bids {
            let mut state = bid.state.lock();
            if !state.is_open || state.claim.is_ended() {
                continue;
            }
            if waiter.spec.if_busy == IfBusy::Tell {
                if !state.claim.is_held() {
                    continue;
                }
                // Held right here: no need to ask the store who has it.
                let _ = waiter.tell.send(Outcome::Busy(self.own_standing(bid, &state)).into());
                return Joined::Yes(None);
            }
            state.crowd().waiters.push_back(waiter);
            self.renew_within_turn(bid, &mut state);
            return Joined::Yes(self.reserve_ahead(bid, &mut state));
        }
        Joined::No(waiter)
    }

    /// A bid of these waiters, and its first ask.
    pub(super) fn new_bid(
        self: &Arc<Self>,
        name: Name,
        token: crate::Token,
        waiters: VecDeque<Waiter>,
    ) -> (Arc<Bid>, Job) {
        self.live.fetch_add(1, Ordering::Relaxed);
        let spec = waiters.front().expect("BUG: a bid is somebody's").spec.clone();
        let mut state = BidState::asking(self.opens(&spec), self.clock.now());
        state.crowd().waiters = waiters;
        let ask = self.ask_of(&name, token, &spec, &state);
        let bid = Arc::new(Bid::new(name, ask.token.clone(), spec, state));
        let job = Job { operation: Operation::Ask(ask), target: Target::Ask(bid.clone()) };
        (bid, job)
    }

    /// A bid whose only caller is at hand, and its first ask.
    fn sole_bid(self: &Arc<Self>, name: Name, spec: Spec, now: Moment) -> (Arc<Bid>, Operation) {
        self.live.fetch_add(1, Ordering::Relaxed);
        let mut state = BidState::asking(self.opens(&spec), now);
        state.has_caller = true;
        let ask = self.ask_of(&name, self.new_token(), &spec, &state);
        let bid = Arc::new(Bid::new(name, ask.token.clone(), spec, state));
        (bid, Operation::Ask(ask))
    }

    /// Whether callers of this process may join a bid before it is held.
    fn opens(&self, spec: &Spec) -> bool {
        self.cohorts && spec.mode() == Mode::Exclusive && spec.if_busy == IfBusy::Queue
    }

    /// The ask of a bid, first or repeated.
    pub(super) fn ask_again(&self, bid: &Arc<Bid>, state: &BidState) -> Job {
        let ask = self.ask_of(&bid.name, bid.token.clone(), &bid.spec, state);
        Job { operation: Operation::Ask(ask), target: Target::Ask(bid.clone()) }
    }

    fn ask_of(&self, name: &Name, token: crate::Token, spec: &Spec, state: &BidState) -> Ask {
        let block = match self.store.capability().blocks {
            Blocks::AtGrant | Blocks::AtGrantAndRenewal if state.is_open => {
                cohort::block_for(state.waiting())
            }
            _ => 1,
        };
        Ask {
            names: smallvec![name.clone()],
            token,
            mode: spec.mode(),
            ttl: spec.ttl(),
            if_busy: spec.if_busy,
            block,
            lock_delay: spec.lock_delay(),
            value: spec.value().cloned(),
        }
    }

    /// A waiter has gone. The last one to go takes the token with it.
    pub(super) fn abandon(self: &Arc<Self>, name: &Name, id: u64) {
        let mut shard = self.table.lock(name);
        let found = shard.bids(name).iter().find_map(|bid| {
            let mut state = bid.state.lock();
            let waiters = &mut state.crowd.as_mut()?.waiters;
            let at = waiters.iter().position(|waiter| waiter.id == id)?;
            let gone = waiters.remove(at);
            let unwanted = waiters.is_empty() && !state.has_caller && !state.claim.is_held();
            drop(state);
            Some((bid.clone(), gone, unwanted))
        });
        let Some((bid, _gone, unwanted)) = found else { return };
        if unwanted {
            let job = self.discard(&mut shard, &bid);
            drop(shard);
            self.post(Which::Asks, [job]);
        }
    }

    /// Why a waiter did not get it in time, as far as was last heard: a store that is away, or who has it.
    fn in_the_way(&self, name: &Name, id: u64) -> Error {
        let shard = self.table.lock(name);
        let found = shard.bids(name).iter().find_map(|bid| {
            let state = bid.state.lock();
            state.waiters().find(|waiter| waiter.id == id)?;
            if state.claim.is_held() {
                return Some(timed_out(name, Some(&self.own_standing(bid, &state))));
            }
            let crowd = state.crowd.as_ref()?;
            let away = crowd.trouble.as_ref().map(|why| still_away(name, why));
            away.or_else(|| Some(timed_out(name, crowd.standing.as_deref())))
        });
        found.unwrap_or_else(|| timed_out(name, None))
    }

    /// How things stand with a name held by this very process.
    fn own_standing(&self, bid: &Bid, state: &BidState) -> Standing {
        let left = bid.deadline().since(self.clock.now());
        Standing {
            holder: Some(crate::Holder::new(self.who.clone(), bid.spec.mode(), Some(left))),
            free_in: Some(left),
            ahead: u32::try_from(state.waiting()).unwrap_or(u32::MAX),
        }
    }
}

/// How a caller fares once it is in.
enum Entered<'a> {
    Told(Outcome),
    Waits(Waiting<'a>, Option<Drive>),
}

enum Joined {
    Yes(Option<Job>),
    No(Waiter),
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
