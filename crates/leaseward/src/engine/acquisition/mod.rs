//! One token's way from its first ask to its end. Pure: what happened and the time go in, what to do comes out.
//!
//! ```text
//!            Queued ◄────────┐
//!              │ ▲           │ place
//!     granted  │ └───────────┤
//!   or pushed  ▼             │
//!             Held ◄────── Asking ──── busy (a try), refused ──► Ended
//!              │   granted   │
//!    released, │             │ the last caller leaves
//!        lost  ▼             ▼
//!           Releasing ◄──────┘
//!              │ answered, or given up
//!              ▼
//!            Ended
//! ```
//!
//! Several callers of this process may wait for the lease of one token: the first gets it, the others follow by local
//! hand-over ([`cohort`]) as long as that is fair and fenced. A token that ends with callers left gives
//! them to a new token ([`Action::Succeed`]); a dead token is never used again (R6, R7).
//!
//! One ask or release of a token is unanswered at a time (S2 of the seam): a release waits for the answer to its own
//! token's ask, so that it can never overtake what it is to undo. Renewals neither wait nor are waited for.

mod action;
mod asking;
mod cohort;
mod event;
pub(crate) mod evidence;
mod held;
mod releasing;

use std::{collections::VecDeque, time::Duration};

use smallvec::SmallVec;

pub(crate) use self::{
    action::{Action, Outcome, Report, Send},
    event::Event,
    held::Held,
};
use self::{asking::Place, releasing::Releasing};
use super::{backoff, names::Around, spec::Spec};
use crate::{
    Error, Fence, LostReason,
    clock::Moment,
    store::{Answer, Grant, Reply, Standing},
};

/// The number of a caller in this process.
pub(crate) type CallerId = u64;

/// A caller of this process that waits for the lease, as far as decisions need to know it.
pub(crate) trait Caller {
    /// The part of a caller that is kept while it holds the lease.
    type Holder: Clone;
    /// A caller that is about to be told that it has to wait.
    type Pending;
    /// Gets the result of a release.
    type Releaser;

    fn id(&self) -> CallerId;

    /// How it wants to hold the lease.
    fn spec(&self) -> &Spec;

    fn holder(&mut self) -> Option<Self::Holder>;

    /// `None` if it knows already that it has to wait.
    fn begins_to_wait(&mut self) -> Option<Self::Pending>;
}

/// What the machine knows about its store and its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// Whether leases are passed on inside this process.
    pub(crate) cohorts: bool,
    /// Whether a grant may reserve several fences.
    pub(crate) blocks: bool,
    /// Whether the store keeps a queue; without one, waiters ask again and again.
    pub(crate) queues: bool,
}

pub(crate) type Actions<C> = SmallVec<[Action<C>; 4]>;

/// The circumstances of an event.
pub(crate) struct At<'a, C: Caller> {
    pub(crate) now: Moment,
    pub(crate) spec: &'a Spec,
    pub(crate) setting: Setting,
    /// Whether the client shuts down: nothing new is asked for.
    pub(crate) is_closing: bool,
    pub(crate) around: &'a mut dyn Around,
    pub(crate) actions: &'a mut Actions<C>,
}

impl<C: Caller> At<'_, C> {
    fn act(&mut self, action: Action<C>) {
        self.actions.push(action);
    }

    /// Anywhere between nothing and a growing cap.
    fn jitter(&mut self, base: Duration, cap: Duration, attempt: u8) -> Duration {
        backoff::full_jitter(base, cap, attempt.into(), self.around.random())
    }
}

/// One token.
pub(crate) struct Acquisition<C: Caller> {
    phase: Phase<C>,
    /// Callers that wait for the lease, in order. Its holder is not among them.
    callers: VecDeque<C>,
    unanswered: Option<Unanswered>,
    /// Asks, renewals or releases in a row that failed.
    failures: u8,
    /// Why the callers do not have the lease yet.
    obstacle: Option<Box<Obstacle>>,
}

enum Phase<C: Caller> {
    /// The store has given neither the lease nor a place.
    Asking(asking::Asking),
    /// The store keeps a place in its queue.
    Queued(Place),
    /// A guard of this process holds the lease.
    Held(Held),
    /// The store is to forget the token.
    Releasing(Releasing<C::Releaser>),
    /// Another process has the lease by a handle. Nothing of it is released here until it has ended or moved.
    Detached { until: Moment, granted: Fence },
    /// Nothing is left of it in the store, or nothing that could be told.
    Ended,
}

/// The operation of a token that the store has not answered. Renewals are not counted.
#[derive(Clone, Debug)]
enum Unanswered {
    /// An ask, and the news that came before its answer.
    Ask(Option<News>),
    Release,
}

/// News that came while an ask was unanswered; its answer judges them.
#[derive(Clone, Debug)]
enum News {
    /// Something changed: ask again.
    LookAgain,
    /// A grant was pushed. The one with the largest fence is kept.
    Pushed(Box<Grant>),
}

/// Why callers wait.
#[derive(Debug)]
pub(crate) enum Obstacle {
    /// As the store said when it was last asked.
    Standing(Standing),
    /// The store is away.
    Away(Error),
}

impl<C: Caller> Acquisition<C> {
    /// A token for these callers, in their order. `in_line`: a token before this one stood in line for them.
    pub(crate) fn new(callers: VecDeque<C>, in_line: bool, at: &mut At<'_, C>) -> Self {
        let mut this = Self {
            phase: Phase::Asking(asking::Asking { in_line, was_sent: false }),
            callers,
            unanswered: None,
            failures: 0,
            obstacle: None,
        };
        if in_line && !at.setting.queues {
            // Without a queue the first to ask has the name, and that would always be this process.
            this.pause(at);
        } else {
            this.ask(at);
        }
        this
    }

    /// A lease that is held already, from a handle.
    pub(crate) fn attached(caller: C, grant: &Grant, sent: Moment, at: &mut At<'_, C>) -> Self {
        let mut this = Self {
            phase: Phase::Ended,
            callers: VecDeque::from([caller]),
            unanswered: None,
            failures: 0,
            obstacle: None,
        };
        let deadline = evidence::deadline_from(sent, grant.ttl);
        this.begin(grant, sent, deadline, at);
        this
    }

    pub(crate) fn on(&mut self, event: Event<C>, at: &mut At<'_, C>) {
        match event {
            Event::Joined(caller) => self.join(caller, at),
            Event::Left(id) => self.leave(id, at),
            Event::Answered { sent, answer } => self.answered(sent, answer, at),
            Event::Withdrawn => self.withdrawn(at),
            Event::Renewed { sent, answer } => self.renewed(sent, answer, at),
            Event::Pushed(grant) => self.pushed(grant, at),
            Event::LookAgain => self.look_again(at),
            Event::Due => self.due(at),
            Event::Released(releaser) => self.released(releaser, at),
            Event::Unused => self.unused(at),
            Event::Detached => self.detached(at),
            Event::Lost(reason) => self.lost(reason, at),
            Event::Closing => self.close(at),
        }
    }

    /// The store answered the ask or the release.
    fn answered(&mut self, sent: Moment, answer: Answer, at: &mut At<'_, C>) {
        let unanswered = self.unanswered.take();
        match (unanswered, &self.phase) {
            (Some(Unanswered::Ask(news)), Phase::Asking(_) | Phase::Queued(_)) => {
                self.ask_answered(sent, answer, news, at);
            }
            (Some(Unanswered::Ask(_)), Phase::Held(_)) => self.ask_answered_late(sent, answer, at),
            (Some(Unanswered::Ask(_)), Phase::Releasing(_)) => self.release_after(&answer, at),
            (Some(Unanswered::Release), Phase::Releasing(_)) => self.release_answered(answer, at),
            // Only without R6: a token that did not die when its release was sent.
            (Some(Unanswered::Release), Phase::Held(_)) => self.end(at),
            (Some(Unanswered::Ask(_)), Phase::Detached { granted, .. }) => {
                let is_new =
                    matches!(&answer, Ok(Reply::Granted(grant)) if grant.fence() != *granted);
                if is_new {
                    // The lease that moved has ended, and a late ask won another one.
                    self.give_back(None, Duration::ZERO, at);
                } else {
                    self.due(at);
                }
            }
            (_, _) => {}
        }
    }

    fn withdrawn(&mut self, at: &mut At<'_, C>) {
        self.unanswered = None;
        if let Phase::Releasing(releasing) = &self.phase {
            if releasing.nothing_was_sent() {
                self.end(at);
            } else {
                self.send_release(at);
            }
        }
    }

    fn due(&mut self, at: &mut At<'_, C>) {
        match &self.phase {
            Phase::Asking(_) | Phase::Queued(_) if self.unanswered.is_none() => self.ask(at),
            Phase::Asking(_) | Phase::Queued(_) | Phase::Ended => {}
            Phase::Held(_) => self.held_due(at),
            Phase::Releasing(_) => self.release_due(at),
            Phase::Detached { until, .. } if at.now < *until => at.act(Action::WakeAt(*until)),
            // A late answer must find that the lease has moved: its token is not forgotten before.
            Phase::Detached { .. } if self.unanswered.is_some() => {
                at.act(Action::WakeAt(Moment::NEVER))
            }
            Phase::Detached { .. } => self.end(at),
        }
    }

    /// The lease or the place is over.
    fn lost(&mut self, reason: LostReason, at: &mut At<'_, C>) {
        if matches!(self.phase, Phase::Releasing(_) | Phase::Detached { .. } | Phase::Ended) {
            return;
        }
        self.report_loss(reason, at);
        at.act(Action::End(reason));
        // Harmless if it is gone; if only our deadline has passed, the next holder need not wait out the margin.
        self.give_back(None, Duration::ZERO, at);
    }

    fn close(&mut self, at: &mut At<'_, C>) {
        for caller in std::mem::take(&mut self.callers) {
            at.act(Action::Tell(caller, Outcome::Failed(super::shut_down())));
        }
        match &self.phase {
            Phase::Asking(_) | Phase::Queued(_) => self.give_back(None, Duration::ZERO, at),
            Phase::Held(held) => {
                let (is_over, rest) = (held.deadline() <= at.now, held.rest(at));
                if is_over {
                    // The timer has not come round to it: not given back, but lost.
                    self.report_loss(LostReason::Expired, at);
                }
                at.act(Action::End(if is_over {
                    LostReason::Expired
                } else {
                    LostReason::ShutDown
                }));
                self.give_back(None, rest, at);
            }
            Phase::Releasing(_) | Phase::Detached { .. } | Phase::Ended => {}
        }
    }

    fn report_loss(&self, reason: LostReason, at: &mut At<'_, C>) {
        if let Phase::Held(held) = &self.phase {
            let (fence, held) = (held.fence(), at.now.since(held.since()));
            at.act(Action::Report(Report::Lost { reason, fence, held }));
        }
    }

    fn end(&mut self, at: &mut At<'_, C>) {
        self.phase = Phase::Ended;
        at.act(Action::Forget);
    }

    /// Gives the callers that are left to a new token.
    fn succeed(&mut self, in_line: bool, at: &mut At<'_, C>) {
        let callers = std::mem::take(&mut self.callers);
        if callers.is_empty() {
            return;
        }
        if at.is_closing {
            let failed = |caller| Action::Tell(caller, Outcome::Failed(super::shut_down()));
            return at.actions.extend(callers.into_iter().map(failed));
        }
        at.act(Action::Succeed { callers, in_line });
    }
}

/// What others look at.
impl<C: Caller> Acquisition<C> {
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held(_))
    }

    /// Whether its callers have stood in line, so that they wait for a store that is away.
    fn in_line(&self) -> bool {
        match &self.phase {
            Phase::Asking(asking) => asking.in_line,
            Phase::Queued(_) | Phase::Held(_) => true,
            Phase::Releasing(_) | Phase::Detached { .. } | Phase::Ended => false,
        }
    }

    pub(crate) fn is_releasing(&self) -> bool {
        matches!(self.phase, Phase::Releasing(_))
    }

    pub(crate) fn held(&self) -> Option<&Held> {
        match &self.phase {
            Phase::Held(held) => Some(held),
            _ => None,
        }
    }

    pub(crate) fn callers(&self) -> &VecDeque<C> {
        &self.callers
    }

    pub(crate) fn callers_mut(&mut self) -> &mut VecDeque<C> {
        &mut self.callers
    }

    pub(crate) fn obstacle(&self) -> Option<&Obstacle> {
        self.obstacle.as_deref()
    }

    /// Whether callers may join it: it waits in line for an exclusive lease, or holds one.
    pub(crate) fn is_open(&self, spec: &Spec, setting: Setting) -> bool {
        let may_pass = setting.cohorts && spec.mode() == crate::Mode::Exclusive;
        may_pass
            && match &self.phase {
                Phase::Asking(_) | Phase::Queued(_) => spec.if_busy == crate::store::IfBusy::Queue,
                Phase::Held(held) => !held.is_attached(),
                Phase::Releasing(_) | Phase::Detached { .. } | Phase::Ended => false,
            }
    }

    /// What the store has not answered, as it is shown to people.
    pub(crate) fn unanswered(&self) -> &'static str {
        match self.unanswered {
            None => "nothing",
            Some(Unanswered::Ask(_)) => "an ask",
            Some(Unanswered::Release) => "a release",
        }
    }

    pub(crate) fn failures(&self) -> u8 {
        self.failures
    }

    /// As it is shown to people.
    pub(crate) fn phase(&self) -> &'static str {
        match self.phase {
            Phase::Asking(_) => "asking",
            Phase::Queued(_) => "queued",
            Phase::Held(_) => "held",
            Phase::Releasing(_) => "releasing",
            Phase::Detached { .. } => "detached",
            Phase::Ended => "ended",
        }
    }
}
