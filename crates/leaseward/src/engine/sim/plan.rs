//! What sort of trouble a history is made of.

use std::time::Duration;

use super::dice::Dice;
use crate::rules::Rule;

/// The odds of a history. Percentages unless a unit says otherwise.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) clients: usize,
    /// Events until the faults stop.
    pub(super) steps: u32,
    /// One is drawn for each client.
    pub(super) ttls_ms: &'static [u64],
    /// Between what callers of one client do.
    pub(super) think_ms: u64,
    pub(super) hold_ms: u64,
    pub(super) lost: u64,
    pub(super) repeated: u64,
    pub(super) slow: u64,
    /// The same for pushes, which travel on their own.
    pub(super) slow_push: u64,
    /// How late a slow message may be.
    pub(super) slow_max_ms: u64,
    /// Of what callers do: a process stands still.
    pub(super) pause: u64,
    pub(super) pause_max_ms: u64,
    pub(super) crash: u64,
    /// Of callers: those who do not wait for ever.
    pub(super) impatient: u64,
    /// Of callers: those who only try.
    pub(super) tries: u64,
    /// Of what callers do: a renewal for another time than the TTL.
    pub(super) extend: u64,
    /// Of what callers do: an operator breaks the lease.
    pub(super) breaks: u64,
    /// Of what callers do: a holder writes to what the lock protects.
    pub(super) writes: u64,
    /// Of histories: the wall clock stands still, so that the fence counter runs ahead of it.
    pub(super) frozen_wall: u64,
    /// Of tokens: those with a minimum hold.
    pub(super) keep: u64,
    /// Of operations: those answered as lost that are carried out after that.
    pub(super) late: u64,
    /// Of decisions and operations: those that are carried out later than what another thread does meanwhile.
    pub(super) late_effects: u64,
    /// Of what callers do: the client shuts down.
    pub(super) shutdown: u64,
    /// Of what callers do: the store says that something changed.
    pub(super) looks: u64,
    /// Of holds: those that end by a handle.
    pub(super) detach: u64,
    /// Of what callers do: the session of the client ends.
    pub(super) session_lost: u64,
    pub(super) cohorts: bool,
    /// Whether the store keeps a queue.
    pub(super) queues: bool,
}

impl Plan {
    /// Anything that can happen, in proportions drawn by the seed.
    pub(super) fn drawn(dice: &mut Dice) -> Self {
        Self {
            clients: dice.pick(&[2, 3, 4]),
            steps: 160,
            ttls_ms: dice.pick(&[&[2_000][..], &[1_000, 3_000], &[3_000, 30_000], &[15_000]]),
            think_ms: dice.pick(&[50, 300, 1_500]),
            hold_ms: dice.pick(&[20, 400, 2_500]),
            lost: dice.pick(&[0, 5, 25]),
            repeated: dice.pick(&[0, 10]),
            slow: dice.pick(&[0, 10, 40]),
            slow_push: dice.pick(&[0, 30]),
            slow_max_ms: dice.pick(&[500, 5_000, 20_000]),
            pause: dice.pick(&[0, 5, 20]),
            pause_max_ms: dice.pick(&[1_000, 6_000, 20_000]),
            crash: dice.pick(&[0, 2]),
            impatient: dice.pick(&[0, 30]),
            tries: dice.pick(&[0, 20]),
            extend: dice.pick(&[0, 15]),
            breaks: dice.pick(&[0, 0, 3]),
            writes: 15,
            frozen_wall: 50,
            keep: dice.pick(&[0, 0, 10]),
            late: dice.pick(&[0, 10]),
            late_effects: dice.pick(&[0, 20]),
            shutdown: dice.pick(&[0, 1]),
            looks: dice.pick(&[0, 5]),
            detach: dice.pick(&[0, 0, 5]),
            session_lost: dice.pick(&[0, 1]),
            cohorts: dice.chance(75),
            queues: dice.chance(80),
        }
    }

    /// The trouble in which a rule shows soonest; the rest stays as drawn.
    pub(super) fn against(rule: Rule, dice: &mut Dice) -> Self {
        let mut plan = Self::drawn(dice);
        (plan.cohorts, plan.queues) = (true, true);
        match rule {
            // An old push must outlive its lease, the next ask of its token and that ask's answer.
            Rule::R1 => {
                plan.ttls_ms = &[1_000];
                (plan.slow_push, plan.slow, plan.slow_max_ms) = (70, 10, 6_000);
                (plan.pause, plan.pause_max_ms, plan.hold_ms) = (25, 4_000, 2_500);
                (plan.impatient, plan.lost) = (0, 5);
            }
            // The same before any ask was answered.
            Rule::R2 => {
                plan.ttls_ms = &[1_000];
                (plan.slow_push, plan.slow, plan.slow_max_ms) = (70, 30, 4_000);
                (plan.lost, plan.hold_ms) = (40, 400);
            }
            // A push that arrives near the end of its lease, and nothing else that makes callers wait.
            Rule::R3 => {
                plan.ttls_ms = &[3_000];
                (plan.slow_push, plan.slow, plan.slow_max_ms, plan.lost) = (50, 50, 6_000, 0);
                (plan.pause, plan.crash, plan.shutdown, plan.session_lost) = (0, 0, 0, 0);
                (plan.looks, plan.detach, plan.late, plan.hold_ms) = (0, 0, 0, 400);
            }
            Rule::R4 => (plan.lost, plan.hold_ms) = (30, 2_500),
            // An answer that arrives between the deadline it would move and the one it moves it to.
            Rule::R5 => {
                plan.ttls_ms = &[1_000];
                (plan.slow, plan.slow_max_ms) = (40, 2_000);
                (plan.pause, plan.pause_max_ms, plan.hold_ms) = (20, 1_500, 2_500);
            }
            Rule::R6 => (plan.impatient, plan.slow) = (50, 30),
            Rule::R7 => (plan.slow, plan.think_ms) = (40, 50),
            Rule::R8 => (plan.repeated, plan.slow, plan.hold_ms) = (30, 20, 400),
            // Two holds with one fence, and the earlier one's write arrives last.
            Rule::R9 | Rule::R10 => {
                (plan.frozen_wall, plan.think_ms, plan.hold_ms) = (100, 50, 400);
                (plan.writes, plan.slow, plan.slow_max_ms) = (50, 40, 2_000);
            }
            Rule::R11 => (plan.pause, plan.think_ms, plan.hold_ms) = (20, 50, 400),
            // What is left behind is a ghost only where nothing arrives after it was given up.
            Rule::R17 => {
                (plan.impatient, plan.slow, plan.slow_max_ms) = (60, 40, 4_000);
                (plan.late, plan.repeated) = (0, 0);
            }
            Rule::R18 => {
                (plan.impatient, plan.lost, plan.late_effects) = (60, 40, 80);
                (plan.late, plan.repeated) = (0, 0);
            }
        }
        plan
    }

    /// How long a client waits for an answer before it counts as lost.
    pub(super) fn patience(&self, ttl: Duration) -> Duration {
        ttl / 4
    }
}
