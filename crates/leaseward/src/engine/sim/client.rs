//! A process with its callers: the engine's decisions ([`Claim`], [`Cohort`]) with next to nothing around them.
//!
//! What the engine does with tasks, locks and channels is done here with numbers: a caller is an entry in a queue, a
//! guard is a [`Holder`], a timer is a moment. Tokens that have ended stay for a while, as the engine's do while
//! answers to them are under way.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use smallvec::smallvec;

use super::{check::Check, dice::Dice, plan::Plan};
use crate::{
    Fence, Mode, Name, Token,
    clock::Moment,
    engine::{
        claim::{self, Claim, Decision},
        cohort::{self, Cohort, HandOver},
    },
    store::{Ask, IfBusy, Operation, Release, Renew},
};

/// Ended tokens a client remembers.
const GRAVES_MAX: usize = 6;
/// Callers of one client that wait at a time: more only make histories longer.
const CALLERS_MAX: usize = 4;
/// How often a release is sent if nobody answers.
const RELEASES_MAX: u32 = 4;
/// As in the engine: a cohort with local waiters asks this often whether another process waits.
const TURN: Duration = Duration::from_secs(1);

/// Somebody of this process who wants the lease.
#[derive(Debug)]
pub(super) struct Caller {
    since: Moment,
    gives_up: Moment,
}

/// Somebody of this process who has it.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) fence: Fence,
    /// Which hold of the history it is.
    pub(super) start: u64,
    /// It could not be relied on any more at some moment.
    pub(super) lapsed: bool,
    leaves: Moment,
}

/// One token.
#[derive(Debug)]
pub(super) struct Bid {
    pub(super) id: u64,
    pub(super) token: Token,
    pub(super) claim: Claim,
    pub(super) holder: Option<Holder>,
    if_busy: IfBusy,
    pub(super) cohort: Option<Cohort>,
    pub(super) callers: VecDeque<Caller>,
    /// When to ask or renew next.
    pub(super) due: Moment,
    /// Until when the answer to a reservation is awaited.
    reserved_by: Moment,
    /// Nobody here holds it until fences have been reserved.
    is_passing: bool,
    /// Releases to be sent yet unless one is answered.
    pub(super) releases: u32,
}

/// What a turn of a client takes and gives.
pub(super) struct Turn<'a> {
    pub(super) now: Moment,
    pub(super) dice: &'a mut Dice,
    pub(super) plan: &'a Plan,
    pub(super) check: &'a mut Check,
    pub(super) sends: Vec<(u64, Operation)>,
}

#[derive(Debug)]
pub(super) struct Client {
    /// Another one after a crash: what is on its way to the old one vanishes.
    pub(super) id: u32,
    pub(super) bids: Vec<Bid>,
    pub(super) paused_until: Moment,
    /// When it is woken next.
    pub(super) planned: Moment,
    pub(super) name: Name,
    who: Arc<str>,
    pub(super) ttl: Duration,
    next_bid: u64,
}

impl Client {
    pub(super) fn new(id: u32, name: Name, ttl: Duration) -> Self {
        let who = Arc::from(format!("client-{id}"));
        let (paused_until, planned) = (Moment::from_nanos(0), Moment::NEVER);
        Self { id, bids: Vec::new(), paused_until, planned, name, who, ttl, next_bid: 0 }
    }

    pub(super) fn has_callers(&self) -> bool {
        self.bids.iter().any(|bid| !bid.callers.is_empty())
    }

    /// The holder that relies on the lease now.
    pub(super) fn holder(&self, now: Moment) -> Option<&Holder> {
        let relies = |bid: &&Bid| bid.claim.deadline().is_some_and(|deadline| now < deadline);
        self.bids.iter().filter(relies).find_map(|bid| bid.holder.as_ref())
    }

    /// When it wants to be woken.
    pub(super) fn next_due(&self) -> Moment {
        self.bids.iter().map(Bid::next_due).min().unwrap_or(Moment::NEVER)
    }

    /// A caller comes: it joins the token this process has, or bids with a new one.
    pub(super) fn come(&mut self, turn: &mut Turn<'_>) {
        if self.bids.iter().map(|bid| bid.callers.len()).sum::<usize>() >= CALLERS_MAX {
            return;
        }
        let gives_up = if turn.dice.chance(turn.plan.impatient) {
            turn.now + turn.dice.ms(0, 2 * turn.plan.hold_ms + 500)
        } else {
            Moment::NEVER
        };
        let caller = Caller { since: turn.now, gives_up };
        if turn.dice.chance(turn.plan.tries) {
            return self.bid(IfBusy::Tell, [caller].into(), turn);
        }
        let open = |bid: &Bid| !bid.claim.is_ended() && bid.if_busy == IfBusy::Queue;
        match self.bids.iter().position(open) {
            Some(at) => {
                self.bids[at].callers.push_back(caller);
                self.reserve_ahead(at, turn);
                let bid = &mut self.bids[at];
                if bid.claim.is_held() {
                    bid.due = bid.due.min(turn.now + TURN);
                }
            }
            None => self.bid(IfBusy::Queue, [caller].into(), turn),
        }
    }

    fn bid(&mut self, if_busy: IfBusy, callers: VecDeque<Caller>, turn: &mut Turn<'_>) {
        self.next_bid += 1;
        let random = (u128::from(self.id) << 64) | u128::from(self.next_bid);
        let fresh = Token::new(random, self.who.clone());
        let dead = self.bids.iter().rev().find(|bid| bid.claim.is_ended());
        let token = dead.map_or(fresh.clone(), |dead| claim::token_after(&dead.token, fresh));
        self.bids.push(Bid {
            id: self.next_bid,
            token,
            claim: Claim::new(),
            holder: None,
            if_busy,
            cohort: None,
            callers,
            due: Moment::NEVER,
            reserved_by: Moment::NEVER,
            is_passing: false,
            releases: 0,
        });
        self.ask(self.bids.len() - 1, turn);
    }

    /// Forgets the tokens that ended long ago.
    pub(super) fn prune(&mut self) {
        let graves = self.bids.iter().filter(|bid| bid.claim.is_ended()).count();
        let mut surplus = graves.saturating_sub(GRAVES_MAX);
        self.bids.retain(|bid| {
            let goes = surplus > 0 && bid.claim.is_ended();
            surplus -= usize::from(goes);
            !goes
        });
    }

    pub(super) fn ask(&mut self, at: usize, turn: &mut Turn<'_>) {
        let bid = &mut self.bids[at];
        bid.due = turn.now + turn.plan.patience(self.ttl);
        let operation = Operation::Ask(Ask {
            names: smallvec![self.name.clone()],
            token: bid.token.clone(),
            mode: Mode::Exclusive,
            ttl: self.ttl,
            if_busy: bid.if_busy,
            block: cohort::block_for(bid.callers.len()),
            lock_delay: Duration::from_millis(turn.plan.lock_delay_ms),
            value: None,
        });
        turn.sends.push((bid.id, operation));
    }

    pub(super) fn renew(&mut self, at: usize, ttl: Duration, block: u32, turn: &mut Turn<'_>) {
        let bid = &mut self.bids[at];
        let (name, token) = (self.name.clone(), bid.token.clone());
        turn.sends.push((bid.id, Operation::Renew(Renew { name, token, ttl, block })));
    }

    /// A holder renews for another time than the TTL.
    pub(super) fn extend(&mut self, turn: &mut Turn<'_>) {
        let ttl = turn.dice.pick(&[self.ttl / 4, self.ttl * 3]);
        if let Some(at) = self.bids.iter().position(|bid| bid.holder.is_some()) {
            self.renew(at, ttl, 0, turn);
        }
    }

    pub(super) fn release(&mut self, at: usize, turn: &mut Turn<'_>) {
        let keep = if turn.dice.chance(turn.plan.keep) {
            Duration::from_millis(300)
        } else {
            Duration::ZERO
        };
        let bid = &mut self.bids[at];
        bid.claim.end();
        bid.holder = None;
        bid.is_passing = false;
        if bid.releases == 0 {
            bid.releases = RELEASES_MAX;
        }
        bid.due = turn.now + turn.plan.patience(self.ttl);
        let (name, token) = (self.name.clone(), bid.token.clone());
        turn.sends.push((bid.id, Operation::Release(Release { name, token, keep })));
    }

    /// The token is dead: the store is told, and callers who are left bid with a new one.
    pub(super) fn end(&mut self, at: usize, turn: &mut Turn<'_>) {
        let callers = std::mem::take(&mut self.bids[at].callers);
        self.release(at, turn);
        if !callers.is_empty() {
            self.bid(IfBusy::Queue, callers, turn);
        }
    }

    /// The time has come for something, perhaps long ago.
    pub(super) fn wake(&mut self, turn: &mut Turn<'_>) {
        let ids: Vec<_> = self.bids.iter().map(|bid| bid.id).collect();
        for id in ids {
            let Some(at) = self.bids.iter().position(|bid| bid.id == id) else { continue };
            // After a pause a holder may leave before anybody looked at the deadline.
            if turn.dice.chance(50) {
                self.leave_if_done(at, turn);
                self.look_after(at, turn);
            } else {
                self.look_after(at, turn);
                self.leave_if_done(at, turn);
            }
        }
    }

    fn look_after(&mut self, at: usize, turn: &mut Turn<'_>) {
        let now = turn.now;
        if let Decision::Lost(_) = self.bids[at].claim.tick(now) {
            return self.end(at, turn);
        }
        let bid = &mut self.bids[at];
        bid.callers.retain(|caller| caller.gives_up > now);
        if bid.reserved_by <= now {
            self.reservation_answered(at, turn);
        }
        let bid = &mut self.bids[at];
        if bid.claim.is_ended() {
            if bid.releases > 1 && bid.due <= now {
                bid.releases -= 1;
                self.release(at, turn);
            }
        } else if bid.claim.is_held() {
            if bid.due <= now {
                self.renew_in_time(at, turn);
            }
        } else if bid.callers.is_empty() {
            self.end(at, turn);
        } else if bid.due <= now {
            self.ask(at, turn);
        }
    }

    pub(super) fn renew_in_time(&mut self, at: usize, turn: &mut Turn<'_>) {
        let interval = self.ttl / 3;
        let bid = &mut self.bids[at];
        bid.due = turn.now + if bid.callers.is_empty() { interval } else { interval.min(TURN) };
        self.renew(at, self.ttl, 0, turn);
    }

    fn leave_if_done(&mut self, at: usize, turn: &mut Turn<'_>) {
        let is_done = |holder: &Holder| holder.leaves <= turn.now;
        if self.bids[at].holder.as_ref().is_some_and(is_done) {
            self.leave(at, turn);
        }
    }

    /// The holder is done: the next caller here has it, or it goes back to the store.
    fn leave(&mut self, at: usize, turn: &mut Turn<'_>) {
        let bid = &mut self.bids[at];
        bid.holder = None;
        let (Some(deadline), Some(cohort), false) =
            (bid.claim.deadline(), bid.cohort.as_mut(), bid.callers.is_empty())
        else {
            return self.end(at, turn);
        };
        match cohort.hand_over(turn.now, deadline, true) {
            HandOver::Pass => {
                let fence = cohort.fence();
                self.seat(at, fence, turn);
                self.reserve_ahead(at, turn);
            }
            HandOver::Reserve => {
                bid.is_passing = true;
                self.reserve_ahead(at, turn);
            }
            HandOver::GiveBack => self.end(at, turn),
        }
    }

    pub(super) fn seat(&mut self, at: usize, fence: Fence, turn: &mut Turn<'_>) {
        let bid = &mut self.bids[at];
        bid.is_passing = false;
        if let Some(caller) = bid.callers.pop_front() {
            let waited = turn.now.since(caller.since).as_nanos();
            turn.check.waited_ns += u64::try_from(waited).expect("BUG: a history of centuries");
        }
        let start = turn.check.started(fence);
        let leaves = turn.now + turn.dice.ms(0, turn.plan.hold_ms);
        bid.holder = Some(Holder { fence, start, lapsed: false, leaves });
    }

    pub(super) fn reserve_ahead(&mut self, at: usize, turn: &mut Turn<'_>) {
        let bid = &mut self.bids[at];
        let callers = bid.callers.len();
        let Some(cohort) = bid.cohort.as_mut().filter(|_| bid.claim.is_held()) else { return };
        let block = cohort.reserve(callers, true);
        if block > 0 {
            bid.reserved_by = turn.now + turn.plan.patience(self.ttl);
            self.renew(at, self.ttl, block, turn);
        }
    }

    /// A reservation was answered or will not be: the lease can be passed on, or must go back.
    pub(super) fn reservation_answered(&mut self, at: usize, turn: &mut Turn<'_>) {
        let bid = &mut self.bids[at];
        bid.reserved_by = Moment::NEVER;
        if let Some(cohort) = &mut bid.cohort {
            cohort.reserved();
        }
        let (true, Some(deadline), Some(cohort)) =
            (bid.is_passing, bid.claim.deadline(), bid.cohort.as_mut())
        else {
            return;
        };
        match cohort.hand_over(turn.now, deadline, false) {
            HandOver::Pass if !bid.callers.is_empty() => {
                let fence = cohort.fence();
                self.seat(at, fence, turn);
            }
            _ => self.end(at, turn),
        }
    }
}

impl Bid {
    fn next_due(&self) -> Moment {
        if self.claim.is_ended() {
            return if self.releases > 1 { self.due } else { Moment::NEVER };
        }
        let deadline = self.claim.deadline().unwrap_or(Moment::NEVER);
        let leaves = self.holder.as_ref().map_or(Moment::NEVER, |holder| holder.leaves);
        let gives_up = self.callers.iter().map(|caller| caller.gives_up).min();
        let callers = gives_up.unwrap_or(Moment::NEVER);
        self.due.min(deadline).min(leaves).min(callers).min(self.reserved_by)
    }
}
