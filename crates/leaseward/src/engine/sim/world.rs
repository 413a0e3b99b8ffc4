//! The world of a history: virtual time, one store, a network that does its worst, processes that stand still or die.

mod network;

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Duration};

use super::{
    check::{Check, Violation},
    client::{Client, Turn},
    dice::Dice,
    plan::Plan,
    trace::Trace,
};
use crate::{
    Fence, Mode, Name, Token,
    clock::Moment,
    engine::spec::Spec,
    engine::{
        acquisition::{self, Send, Setting},
        cell::TokenCell,
        names::Effect,
    },
    store::{Answer, Break, Grant, IfBusy},
    stores::memory::space::{Effects, Space},
};

/// How long everything works before a caller that still waits counts as starved: many times all TTLs there are.
const HEALTHY: Duration = Duration::from_secs(1_800);
/// Events of one history; more of them is a loop.
const EVENTS_MAX: u32 = 100_000;

#[derive(Debug)]
enum Event {
    /// Something of a client's own is due, unless it has planned otherwise since.
    Wake(usize, Moment),
    /// A client's callers do something.
    Act(usize),
    /// What a client has decided is carried out.
    Drain(usize),
    /// An operation leaves the lane.
    Depart {
        from: u32,
        id: u64,
    },
    Request(Sent),
    Answer {
        to: u32,
        id: u64,
        answer: Answer,
    },
    Push {
        to: u32,
        token: Token,
        grant: Grant,
    },
    Write {
        fence: Fence,
        start: u64,
    },
}

/// An operation of a client, from its lane to its answer.
#[derive(Clone, Debug)]
struct Sent {
    from: u32,
    id: u64,
    cell: Arc<TokenCell>,
    send: Send,
    /// A renewal for another time than the TTL.
    ttl: Duration,
    if_busy: IfBusy,
    /// When it left the lane; `NEVER` before that.
    sent: Moment,
    /// Whether the network carries its answer.
    is_heard: bool,
}

impl Event {
    fn code(&self) -> (u64, u64) {
        match self {
            Self::Wake(client, _) => (1, *client as u64),
            Self::Act(client) => (2, *client as u64),
            Self::Request(sent) => (3, u64::from(sent.from) << 32 | sent.id),
            Self::Answer { to, id, .. } => (4, u64::from(*to) << 32 | id),
            Self::Push { grant, .. } => (5, grant.fence().get()),
            Self::Write { fence, .. } => (6, fence.get()),
            Self::Drain(client) => (7, *client as u64),
            Self::Depart { from, id } => (8, u64::from(*from) << 32 | id),
        }
    }
}

struct Due {
    at: Moment,
    order: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

pub(super) struct World {
    now: Moment,
    plan: Plan,
    dice: Dice,
    clients: Vec<Client>,
    name: Name,
    space: Space,
    wall_stands: bool,
    queue: BinaryHeap<Reverse<Due>>,
    /// Operations that no answer has come for.
    unanswered: Vec<Sent>,
    next_order: u64,
    next_operation: u64,
    next_client: u32,
    /// Whether anything still goes wrong.
    faults: bool,
    check: Check,
    trace: Trace,
}

/// What a history came to.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) violations: Vec<Violation>,
    pub(super) steps: u32,
    pub(super) holds: u64,
    pub(super) waited: Duration,
    pub(super) hash: u64,
    pub(super) lines: Vec<String>,
}

impl World {
    pub(super) fn new(plan: Plan, mut dice: Dice, tells: bool) -> Self {
        let wall_stands = dice.chance(plan.frozen_wall);
        let mut world = Self {
            now: Moment::from_nanos(1_000_000_000_000),
            dice,
            clients: Vec::new(),
            name: Name::new("x").expect("a good name"),
            space: Space::default(),
            wall_stands,
            queue: BinaryHeap::new(),
            unanswered: Vec::new(),
            next_order: 0,
            next_operation: 0,
            next_client: 0,
            faults: true,
            check: Check::default(),
            trace: Trace::new(tells),
            plan,
        };
        for at in 0..world.plan.clients {
            let client = world.birth();
            world.clients.push(client);
            world.act_later(at);
        }
        world
    }

    fn birth(&mut self) -> Client {
        self.next_client += 1;
        let ttl = Duration::from_millis(self.dice.pick(self.plan.ttls_ms));
        let setting =
            Setting { cohorts: self.plan.cohorts, blocks: true, queues: self.plan.queues };
        Client::new(self.next_client, self.name.clone(), ttl, setting)
    }

    /// Runs to the end, or to the first violation that `stops` it.
    pub(super) fn run(mut self, stops: impl Fn(&Violation) -> bool) -> Outcome {
        let mut steps = 0;
        let mut healthy_since = self.now;
        while let Some(Reverse(due)) = self.queue.pop() {
            steps += 1;
            if self.faults && steps > self.plan.steps {
                self.faults = false;
                healthy_since = due.at;
            }
            if !self.faults && (due.at.since(healthy_since) > HEALTHY || steps > EVENTS_MAX) {
                break;
            }
            self.now = due.at;
            self.check.look(&mut self.clients, &self.space, &self.name, self.now);
            self.handle(due.event);
            self.look_for_ghosts();
            self.check.look(&mut self.clients, &self.space, &self.name, self.now);
            if self.check.found().iter().any(&stops) {
                break;
            }
        }
        if self.check.found().is_empty()
            && let Some(client) = self.clients.iter().position(Client::has_callers)
        {
            self.check.report(Violation::Starved { client });
        }
        if self.check.found().is_empty()
            && let Some(client) = self.clients.iter().position(|client| !client.cells().is_empty())
        {
            self.check.report(Violation::Leftover { client });
        }
        self.outcome(steps)
    }

    fn outcome(self, steps: u32) -> Outcome {
        Outcome {
            violations: self.check.found().to_vec(),
            steps,
            holds: self.check.starts(),
            waited: Duration::from_nanos(self.check.waited_ns),
            hash: self.trace.hash(),
            lines: self.trace.into_lines(),
        }
    }

    fn push(&mut self, at: Moment, event: Event) {
        self.next_order += 1;
        self.queue.push(Reverse(Due { at, order: self.next_order, event }));
    }

    fn act_later(&mut self, client: usize) {
        let at = self.now + self.dice.ms(1, self.plan.think_ms);
        self.push(at, Event::Act(client));
    }

    /// Gives something to the network: it arrives late, twice, or never.
    fn carry(&mut self, slow: u64, make: impl Fn() -> Event) {
        let copies = if !self.faults {
            1
        } else if self.dice.chance(self.plan.lost) {
            0
        } else {
            1 + usize::from(self.dice.chance(self.plan.repeated))
        };
        for _ in 0..copies {
            let is_slow = self.faults && self.dice.chance(slow);
            let to = if is_slow { self.plan.slow_max_ms } else { 20 };
            let at = self.now + self.dice.ms(1, to);
            self.push(at, make());
        }
    }

    /// The client something is for, unless it has crashed since.
    fn find(&self, id: u32) -> Option<usize> {
        self.clients.iter().position(|client| client.id == id)
    }

    fn handle(&mut self, event: Event) {
        let client = match &event {
            Event::Wake(client, _) | Event::Act(client) | Event::Drain(client) => Some(*client),
            Event::Answer { to: id, .. }
            | Event::Push { to: id, .. }
            | Event::Depart { from: id, .. } => match self.find(*id) {
                Some(client) => Some(client),
                None => return,
            },
            Event::Request(_) | Event::Write { .. } => None,
        };
        if let Some(client) = client
            && self.faults
            && self.clients[client].paused_until > self.now
        {
            // It stands still: everything waits for it, in any order.
            let at = self.clients[client].paused_until + self.dice.ms(0, 4);
            return self.push(at, event);
        }
        self.trace.note(self.now, event.code(), || format!("{event:?}"));
        match event {
            Event::Request(sent) => self.serve(sent),
            Event::Write { fence, start } => self.check.written(fence, start),
            Event::Act(client) => self.act(client),
            Event::Wake(client, at) if self.clients[client].planned == at => {
                self.clients[client].planned = Moment::NEVER;
                self.turn(client, Client::wake);
            }
            Event::Wake(..) => {}
            Event::Drain(client) => self.drain(client),
            Event::Depart { from: _, id } => self.depart(id),
            Event::Answer { to: _, id, answer } => {
                let client = client.expect("BUG: found above");
                // Each operation is answered once.
                let Some(at) = self.unanswered.iter().position(|sent| sent.id == id) else {
                    return;
                };
                let Sent { cell, send, sent, .. } = self.unanswered.remove(at);
                self.turn(client, |c, turn| c.answered(&cell, send, sent, answer, turn));
            }
            Event::Push { to: _, token, grant } => {
                let client = client.expect("BUG: found above");
                self.turn(client, |c, turn| c.pushed(&token, grant, turn));
            }
        }
    }

    /// Lets a client do something; what it decides is carried out now or a little later.
    fn turn(&mut self, at: usize, act: impl FnOnce(&mut Client, &mut Turn<'_>)) {
        let mut turn =
            Turn { now: self.now, dice: &mut self.dice, plan: &self.plan, check: &mut self.check };
        act(&mut self.clients[at], &mut turn);
        if self.faults && self.dice.chance(self.plan.late_effects) {
            let later = self.now + self.dice.ms(0, 40);
            self.push(later, Event::Drain(at));
        } else {
            self.drain(at);
        }
    }

    /// Carries out what a client has decided, in the order in which it was.
    fn drain(&mut self, at: usize) {
        while let Some(effect) = self.clients[at].outbox.pop_front() {
            match effect {
                Effect::Send(cell, send) => self.enter_lane(at, cell, send, None),
                Effect::ReleaseUnknown(name, token) => {
                    let spec = Spec {
                        mode: Mode::Exclusive.into(),
                        if_busy: IfBusy::Tell,
                        ttl_ms: 1_000,
                        renew_ms: 0,
                        extras: None,
                    };
                    let cell = Arc::new(TokenCell::new(0, 0, name, token, spec));
                    self.enter_lane(at, cell, Send::Release { rest: Duration::ZERO }, None);
                }
                Effect::Withdraw(cell) => self.withdraw(at, &cell),
                Effect::Report(..) => {}
            }
        }
        let client = &mut self.clients[at];
        if client.is_closing && client.cells().is_empty() {
            self.clients[at] = self.birth();
        }
        let client = &mut self.clients[at];
        let due = client.next_due().max(self.now);
        if due < client.planned {
            client.planned = due;
            self.push(due, Event::Wake(at, due));
        }
    }

    /// Where the network keeps what stores promise, nothing is left in the store of a token that its client has forgotten.
    fn look_for_ghosts(&mut self) {
        if self.plan.late > 0 || self.plan.repeated > 0 {
            return;
        }
        for token in self.space.tokens(&self.name) {
            let owner = self.clients.iter().find(|client| client.who == *token.who());
            let releases = |effect: &Effect<_>| matches!(effect, Effect::ReleaseUnknown(_, of) if *of == token);
            let is_minded = owner.is_none_or(|client| {
                client.knows(&token)
                    || client.given_up.contains(&token)
                    || client.outbox.iter().any(releases)
            });
            if !is_minded && !self.unanswered.iter().any(|sent| sent.cell.token == token) {
                self.check.report(Violation::Ghost { token: token.reveal() });
            }
        }
    }

    /// A client's callers do something, or something is done to it.
    fn act(&mut self, client: usize) {
        if !self.faults {
            return;
        }
        self.act_later(client);
        let plan = &self.plan;
        let odds = [
            plan.pause,
            plan.crash,
            plan.extend,
            plan.breaks,
            plan.writes,
            plan.shutdown,
            plan.looks,
            plan.session_lost,
        ];
        let mut roll = self.dice.below(100);
        let chosen = odds.iter().position(|&odds| {
            let hit = roll < odds;
            roll = roll.saturating_sub(odds);
            hit
        });
        match chosen {
            Some(0) => {
                let pause = self.dice.ms(1, self.plan.pause_max_ms);
                self.clients[client].paused_until = self.now + pause;
            }
            Some(1) => self.clients[client] = self.birth(),
            Some(2) => self.extend(client),
            Some(3) => {
                let mut effects = Effects::default();
                let order = Break { name: self.name.clone(), now: false };
                self.space.break_lease(&order, self.store_now(), &mut effects);
                self.spread(effects);
            }
            Some(4) => self.write(client),
            Some(5) => self.turn(client, Client::shut_down),
            Some(7) => self.turn(client, Client::lose_all),
            Some(_) => {
                self.turn(client, |c, turn| c.all_hear(|| acquisition::Event::LookAgain, turn))
            }
            None => self.turn(client, Client::come),
        }
    }

    /// A holder renews for another time than the TTL.
    fn extend(&mut self, at: usize) {
        let client = &self.clients[at];
        let ttl = self.dice.pick(&[client.ttl / 4, client.ttl * 3]);
        let cells = client.cells();
        if let Some(cell) = cells.into_iter().find(|cell| client.holders.contains_key(&cell.id)) {
            self.enter_lane(at, cell, Send::Renew, Some(ttl));
        }
    }

    /// A holder that believes in its lease writes to what the lock protects; the write may be long under way.
    fn write(&mut self, client: usize) {
        if let Some(holder) = self.clients[client].holder(self.now) {
            let (fence, start) = (holder.fence, holder.start);
            self.carry(self.plan.slow, || Event::Write { fence, start });
        }
    }
}
