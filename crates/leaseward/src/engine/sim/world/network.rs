//! The way of an operation in a history: through the lane, to the store, and back or not.

use std::{sync::Arc, time::Duration};

use super::{Event, Sent, World};
use crate::{
    Error, ErrorKind, Mode,
    clock::Moment,
    engine::{
        acquisition::{self, Send},
        cell::TokenCell,
    },
    store::{Ask, IfBusy, Operation, Push, Release, Renew},
    stores::memory::space::{Effects, Now, Wall},
};

impl World {
    /// An operation waits in the lane until it is sent.
    pub(super) fn enter_lane(
        &mut self,
        at: usize,
        cell: Arc<TokenCell>,
        send: Send,
        ttl: Option<Duration>,
    ) {
        let client = &self.clients[at];
        let if_busy = if self.plan.queues { cell.spec.if_busy } else { IfBusy::Tell };
        self.next_operation += 1;
        let (from, id, ttl) = (client.id, self.next_operation, ttl.unwrap_or(client.ttl));
        self.unanswered.push(Sent {
            from,
            id,
            cell,
            send,
            ttl,
            if_busy,
            sent: Moment::NEVER,
            is_heard: true,
        });
        let waits = self.faults && self.dice.chance(self.plan.late_effects);
        let departs = self.now + if waits { self.dice.ms(0, 200) } else { Duration::ZERO };
        self.push(departs, Event::Depart { from, id });
    }

    /// Takes an ask out of the lane, if it has not been sent.
    pub(super) fn withdraw(&mut self, at: usize, cell: &Arc<TokenCell>) {
        let is_it = |sent: &Sent| {
            sent.sent == Moment::NEVER
                && Arc::ptr_eq(&sent.cell, cell)
                && matches!(sent.send, Send::Ask { .. })
        };
        if let Some(found) = self.unanswered.iter().position(is_it) {
            self.unanswered.remove(found);
            self.turn(at, |client, turn| client.on(cell, acquisition::Event::Withdrawn, turn));
        }
    }

    /// An operation is sent. The network carries it, loses it, or loses its answer.
    pub(super) fn depart(&mut self, id: u64) {
        let Some(at) = self.unanswered.iter().position(|sent| sent.id == id) else { return };
        self.unanswered[at].sent = self.now;
        let mut sent = self.unanswered[at].clone();
        let arrives = self.now + self.travel(self.plan.slow);
        let doubt_at =
            (self.now + self.plan.patience(sent.ttl)).max(arrives + Duration::from_millis(1));
        let fate =
            if self.faults && self.dice.chance(self.plan.lost) { self.dice.below(5) } else { 9 };
        let repeats = self.faults && self.dice.chance(self.plan.repeated);
        match fate {
            0 => return self.fails(&sent, arrives, ErrorKind::Unavailable),
            1 | 2 => return self.fails(&sent, doubt_at, ErrorKind::Indeterminate),
            // Carried out, and the answer is lost.
            3 | 4 => {
                self.fails(&sent, doubt_at, ErrorKind::Indeterminate);
                sent.is_heard = false;
            }
            _ => {}
        }
        let gives_up = self.faults && self.dice.chance(self.plan.late);
        if gives_up {
            // Given up as lost, and carried out later than that.
            let soon = self.now + self.dice.ms(1, 20);
            self.fails(&sent, soon, ErrorKind::Indeterminate);
        }
        if repeats {
            let later = self.now + self.travel(100);
            self.push(later, Event::Request(sent.clone()));
        }
        self.push(arrives, Event::Request(sent));
    }

    fn fails(&mut self, sent: &Sent, at: Moment, kind: ErrorKind) {
        let answer = Err(Error::new(kind, "bad weather"));
        self.push(at, Event::Answer { to: sent.from, id: sent.id, answer });
    }

    /// How long a message is under way.
    pub(super) fn travel(&mut self, slow: u64) -> Duration {
        let is_slow = self.faults && self.dice.chance(slow);
        let to = if is_slow { self.plan.slow_max_ms } else { 20 };
        self.dice.ms(1, to)
    }

    pub(super) fn store_now(&self) -> Now<'static> {
        let ms = self.now.as_nanos() / 1_000_000;
        Now { moment: self.now, wall: Wall::At(if self.wall_stands { 1 } else { ms }) }
    }

    /// A request reached the store.
    pub(super) fn serve(&mut self, sent: Sent) {
        let mut effects = Effects::default();
        let operation = self.operation(&sent);
        let answer = self.space.apply(&operation, sent.from, self.store_now(), &mut effects);
        self.trace.note(self.now, (9, 0), || format!("    {answer:?}"));
        if sent.is_heard {
            let at = self.now + self.travel(self.plan.slow);
            self.push(at, Event::Answer { to: sent.from, id: sent.id, answer });
        }
        self.spread(effects);
    }

    fn operation(&self, sent: &Sent) -> Operation {
        let (name, token, ttl) = (self.name.clone(), sent.cell.token.clone(), sent.ttl);
        match sent.send {
            Send::Ask { block } => Operation::Ask(Ask {
                name,
                token,
                mode: Mode::Exclusive,
                ttl,
                if_busy: sent.if_busy,
                block,
                value: None,
            }),
            Send::Renew => Operation::Renew(Renew { name, token, ttl }),
            Send::Release { rest } => Operation::Release(Release { name, token, keep: rest }),
        }
    }

    pub(super) fn spread(&mut self, effects: Effects) {
        for (to, push) in effects.pushes {
            let Push::Granted { token, grant, .. } = push else { continue };
            self.carry(self.plan.slow_push, || {
                let (token, grant) = (token.clone(), grant.clone());
                Event::Push { to, token, grant }
            });
        }
    }
}
