//! A lease that a guard of this process holds: renewed, warned of, passed on.

use std::{collections::VecDeque, time::Duration};

use super::{
    Acquisition, Action, At, Caller, Outcome, Phase, Report, Send, cohort::Cohort, evidence,
};
use crate::{
    Fence, LostReason, Mode,
    clock::Moment,
    store::{Answer, Grant, Renewal, Reply},
};

/// A cohort with local waiters asks at least this often whether another process waits.
const TURN: Duration = Duration::from_secs(1);
/// A lease that was handed over for a short time is renewed after this long: longer than most are held, short beside the
/// time it has.
const LIFT: Duration = Duration::from_millis(100);
/// Failed renewals are tried again after this share of the renewal interval.
const RETRY_SHARE: u32 = 8;
/// The callback for failing renewals comes when this share of the TTL is left.
const DANGER_SHARE: u32 = 4;
/// Renewals of one interval fall on this many moments at most.
const GRID: u32 = 64;

/// A lease, and its holder in this process.
#[derive(Debug)]
pub(crate) struct Held {
    /// The fence of the grant: the first of its block.
    granted: Fence,
    deadline: Moment,
    cohort: Cohort,
    /// It came from another process by a handle: it is not passed on here.
    is_attached: bool,
    slot: Option<u32>,
    /// When its present holder got it.
    since: Moment,
    /// When the ask or the last renewal was sent.
    last_sent: Moment,
    renewal: Renewing,
    danger_told: bool,
}

/// How its renewal stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewing {
    Idle,
    /// It was handed over for a short time and has not been renewed yet.
    Short,
    UnderWay,
}

/// The moment of a grid that divides the interval, at or before `at`: thousands of leases are renewed in few batches.
fn on_grid(at: Moment, interval: Duration) -> Moment {
    let step = u64::try_from((interval / GRID).as_nanos()).unwrap_or(u64::MAX).max(1);
    Moment::from_nanos(at.as_nanos() / step * step)
}

impl Held {
    pub(crate) fn deadline(&self) -> Moment {
        self.deadline
    }

    /// The fence of its present holder.
    pub(crate) fn fence(&self) -> Fence {
        self.cohort.fence()
    }

    pub(crate) fn since(&self) -> Moment {
        self.since
    }

    pub(crate) fn slot(&self) -> Option<u32> {
        self.slot
    }

    pub(super) fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// How long the name must stay taken yet for its holder's minimum.
    pub(super) fn rest<C: Caller>(&self, at: &At<'_, C>) -> Duration {
        at.spec.min_hold().saturating_sub(at.now.since(self.since))
    }

    fn may_renew<C: Caller>(&self, at: &At<'_, C>) -> bool {
        let max_hold = at.spec.max_hold();
        at.spec.renew_ms > 0 && (max_hold.is_zero() || at.now.since(self.since) < max_hold)
    }

    fn next_renewal<C: Caller>(&self, failures: u8, waiters: usize, at: &At<'_, C>) -> Moment {
        let interval = Duration::from_millis(at.spec.renew_ms.into());
        if failures > 0 {
            return self.last_sent + interval / RETRY_SHARE;
        }
        let renewal = if waiters > 0 {
            self.last_sent + interval.min(TURN)
        } else {
            on_grid(self.last_sent + interval, interval)
        };
        match self.renewal {
            Renewing::Short => renewal.min(on_grid(self.since + LIFT, TURN)),
            Renewing::Idle | Renewing::UnderWay => renewal,
        }
    }

    /// When it needs looking at next.
    fn next_due<C: Caller>(&self, failures: u8, waiters: usize, at: &At<'_, C>) -> Moment {
        let renewal = if self.renewal == Renewing::UnderWay || !self.may_renew(at) {
            Moment::NEVER
        } else {
            self.next_renewal(failures, waiters, at)
        };
        let danger = if failures > 0 && !self.danger_told {
            self.deadline.before(at.spec.ttl() / DANGER_SHARE)
        } else {
            Moment::NEVER
        };
        self.deadline.min(renewal).min(danger).max(at.now)
    }

    /// A caller joined: another process may be waiting too, so the store is heard at least once a turn.
    pub(super) fn renew_within_turn<C: Caller>(&self, at: &mut At<'_, C>) {
        if self.renewal != Renewing::UnderWay && self.may_renew(at) {
            let by = (self.last_sent + TURN).max(at.now);
            at.act(Action::WakeAt(by.min(self.next_due(0, 1, at))));
        }
    }
}

impl<C: Caller> Acquisition<C> {
    /// The lease is ours until the deadline: the first caller has it. The one place where a lease begins.
    pub(super) fn begin(
        &mut self,
        grant: &Grant,
        sent: Moment,
        deadline: Moment,
        at: &mut At<'_, C>,
    ) {
        let is_attached = matches!(self.phase, Phase::Ended);
        let Some(caller) = self.callers.pop_front() else {
            return self.give_back(None, Duration::ZERO, at);
        };
        let block = grant.block;
        let held = Held {
            granted: block.first,
            deadline,
            cohort: Cohort::new(block, grant.waiters, at.now),
            is_attached,
            slot: grant.slot,
            since: at.now,
            last_sent: sent,
            renewal: if grant.ttl < at.spec.ttl() { Renewing::Short } else { Renewing::Idle },
            danger_told: false,
        };
        let fence = held.fence();
        self.phase = Phase::Held(held);
        self.failures = 0;
        self.obstacle = None;
        if at.spec.mode() == Mode::Exclusive && !caller.spec().can_inherit(at.spec) {
            // It joined one that has gone, and asked for something else.
            self.callers.push_front(caller);
            return self.give_back(None, Duration::ZERO, at);
        }
        self.shrink();
        at.act(Action::Extend(deadline));
        at.act(Action::Tell(caller, Outcome::Granted(fence)));
        self.renew_if_never_again(at);
        self.wake_for_lease(at);
    }

    /// Gives back the memory of a queue that has gone: most leases never have a second caller.
    fn shrink(&mut self) {
        if self.callers.is_empty() {
            self.callers = VecDeque::new();
        }
    }

    /// A lease that was given for a short time and has no renewals of its own gets this one.
    fn renew_if_never_again(&mut self, at: &mut At<'_, C>) {
        let Phase::Held(held) = &mut self.phase else { return };
        let has_renewals = at.spec.renew_ms > 0 && at.spec.max_hold().is_zero();
        if held.renewal == Renewing::Short && !has_renewals {
            held.renewal = Renewing::UnderWay;
            at.act(Action::Send(Send::Renew));
        }
    }

    fn wake_for_lease(&mut self, at: &mut At<'_, C>) {
        if let Phase::Held(held) = &self.phase {
            let due = held.next_due(self.failures, self.callers.len(), at);
            at.act(Action::WakeAt(due));
        }
    }

    pub(super) fn held_due(&mut self, at: &mut At<'_, C>) {
        let Phase::Held(held) = &mut self.phase else { return };
        if at.now >= held.deadline {
            return self.lost(LostReason::Expired, at);
        }
        let left = held.deadline.since(at.now);
        if self.failures > 0 && !held.danger_told && left <= at.spec.ttl() / DANGER_SHARE {
            held.danger_told = true;
            at.act(Action::Report(Report::Danger(left)));
        }
        let is_due = held.renewal != Renewing::UnderWay
            && held.may_renew(at)
            && at.now >= held.next_renewal(self.failures, self.callers.len(), at);
        if is_due {
            held.renewal = Renewing::UnderWay;
            held.last_sent = at.now;
            at.act(Action::Send(Send::Renew));
        }
        self.wake_for_lease(at);
    }

    pub(super) fn renewed(&mut self, sent: Moment, answer: Answer, at: &mut At<'_, C>) {
        let Phase::Held(held) = &mut self.phase else { return };
        held.renewal = Renewing::Idle;
        match answer {
            Ok(Reply::Renewed(renewal)) => self.extend_by(sent, &renewal, at),
            Ok(Reply::NotYours(reason)) => return self.not_ours(reason, at),
            Ok(_) => unreachable!("BUG: the store answered a renewal with something else"),
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                let is_first = self.failures == 1;
                at.act(Action::Report(Report::RenewalFailed { error, is_first }));
            }
        }
        self.wake_for_lease(at);
    }

    fn extend_by(&mut self, sent: Moment, renewal: &Renewal, at: &mut At<'_, C>) {
        self.failures = 0;
        if let Phase::Held(held) = &mut self.phase {
            held.danger_told = false;
            held.last_sent = held.last_sent.max(sent);
            held.cohort.others_wait(renewal.waiters > 0);
        }
        at.act(Action::Report(Report::Renewed));
        let from = evidence::counts_from(renewal.evidence, sent);
        self.extend(evidence::deadline_from(from, renewal.ttl), at);
    }

    /// The lease lasts until a new deadline, unless the old one has passed.
    fn extend(&mut self, deadline: Moment, at: &mut At<'_, C>) {
        let Phase::Held(held) = &mut self.phase else { return };
        match evidence::extended(held.deadline, deadline, at.now) {
            Some(deadline) => {
                held.deadline = deadline;
                at.act(Action::Extend(deadline));
            }
            None => self.lost(LostReason::Expired, at),
        }
    }

    fn not_ours(&mut self, reason: LostReason, at: &mut At<'_, C>) {
        let Phase::Held(held) = &self.phase else { return };
        let is_over = at.now >= held.deadline;
        self.lost(if is_over { LostReason::Expired } else { reason }, at);
    }

    /// The answer to an ask that a pushed grant overtook.
    pub(super) fn ask_answered_late(&mut self, sent: Moment, answer: Answer, at: &mut At<'_, C>) {
        let Phase::Held(held) = &self.phase else { return };
        match answer {
            Ok(Reply::Granted(grant)) if grant.fence() == held.granted => {
                let from = evidence::counts_from(grant.evidence, sent);
                self.extend(evidence::deadline_from(from, grant.ttl), at);
                self.wake_for_lease(at);
            }
            // Our lease ended unseen and a late ask of ours won a new one: a hold without continuity is no hold.
            Ok(Reply::Granted(_)) => self.lost(LostReason::NotOurs, at),
            Ok(Reply::Gone(reason)) => self.not_ours(reason, at),
            // An answer to an older ask never sends a holder back to waiting; the lease is ours whatever became of it.
            Ok(_) | Err(_) => {}
        }
    }

    /// The holder is done: the next caller here has the lease, or the store gets it back.
    pub(super) fn released(&mut self, releaser: Option<C::Releaser>, at: &mut At<'_, C>) {
        let Phase::Held(held) = &self.phase else { return };
        if evidence::is_over(held.deadline, at.now) {
            at.act(Action::End(LostReason::Expired));
            if let Some(releaser) = releaser {
                at.act(Action::TellReleaser(releaser, Ok(crate::Release::AlreadyExpired)));
            }
            return self.give_back(None, Duration::ZERO, at);
        }
        let rest = held.rest(at);
        if !rest.is_zero() || !self.pass_on(at) {
            return self.give_back(releaser, rest, at);
        }
        if let Some(releaser) = releaser {
            at.act(Action::TellReleaser(releaser, Ok(crate::Release::Released)));
        }
    }

    pub(super) fn unused(&mut self, at: &mut At<'_, C>) {
        if self.is_held() && !self.pass_on(at) {
            self.give_back(None, Duration::ZERO, at);
        }
    }

    /// Passes the lease on inside the process, if that is fair, fenced and true to what the next caller asked for.
    fn pass_on(&mut self, at: &mut At<'_, C>) -> bool {
        let is_open = self.is_open(at.spec, at.setting);
        let Phase::Held(held) = &mut self.phase else { return false };
        let inherits = self.callers.front().is_some_and(|next| next.spec().can_inherit(at.spec));
        let is_over = evidence::is_over(held.deadline, at.now);
        if is_over || !is_open || !inherits || !held.cohort.pass_on(at.now) {
            return false;
        }
        held.since = at.now;
        let fence = held.fence();
        let next = self.callers.pop_front().expect("BUG: looked at above");
        self.shrink();
        at.act(Action::Tell(next, Outcome::Granted(fence)));
        true
    }

    /// The holder hands the lease over to another process.
    pub(super) fn detached(&mut self, at: &mut At<'_, C>) {
        let Phase::Held(held) = &self.phase else { return };
        let (until, granted) = (held.deadline, held.granted);
        self.phase = Phase::Detached { until, granted };
        at.act(Action::WakeAt(until));
        self.succeed(true, at);
    }
}
