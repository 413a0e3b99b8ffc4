//! The world of a history: virtual time, one store, a network that does its worst, processes that stand still or die.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use super::{
    check::{Check, Violation},
    client::{Client, Turn},
    dice::Dice,
    plan::Plan,
    trace::Trace,
};
use crate::{
    Fence, Name, Token,
    clock::Moment,
    store::{Answer, Break, Grant, Operation, Push},
    stores::memory::space::{Effects, Now, Space, Wall},
};

/// How long everything works before a caller that still waits counts as starved: many times all TTLs there are.
const HEALTHY: Duration = Duration::from_secs(1_800);
/// Events of one history; more of them is a loop.
const EVENTS_MAX: u32 = 100_000;

#[derive(Debug)]
enum Event {
    /// Something of a client's own is due.
    Wake(usize),
    /// A client's callers do something.
    Act(usize),
    Request {
        from: u32,
        bid: u64,
        sent: Moment,
        operation: Operation,
    },
    Answer {
        to: u32,
        bid: u64,
        sent: Moment,
        operation: Operation,
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

impl Event {
    fn code(&self) -> (u64, u64) {
        match self {
            Self::Wake(client) => (1, *client as u64),
            Self::Act(client) => (2, *client as u64),
            Self::Request { from, bid, .. } => (3, u64::from(*from) << 32 | bid),
            Self::Answer { to, bid, .. } => (4, u64::from(*to) << 32 | bid),
            Self::Push { grant, .. } => (5, grant.fence().get()),
            Self::Write { fence, .. } => (6, fence.get()),
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
    next_order: u64,
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
            next_order: 0,
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
        Client::new(self.next_client, self.name.clone(), ttl)
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
            Event::Wake(client) | Event::Act(client) => Some(*client),
            Event::Answer { to, .. } | Event::Push { to, .. } => match self.find(*to) {
                Some(client) => Some(client),
                None => return,
            },
            Event::Request { .. } | Event::Write { .. } => None,
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
            Event::Request { from, bid, sent, operation } => {
                self.serve(from, bid, sent, operation);
            }
            Event::Write { fence, start } => self.check.written(fence, start),
            Event::Act(client) => self.act(client),
            Event::Wake(client) => {
                self.clients[client].planned = Moment::NEVER;
                self.turn(client, Client::wake);
            }
            Event::Answer { to: _, bid, sent, operation, answer } => {
                let client = client.expect("BUG: found above");
                self.turn(client, |c, turn| c.answered(bid, &operation, sent, answer, turn));
            }
            Event::Push { to: _, token, grant } => {
                let client = client.expect("BUG: found above");
                self.turn(client, |c, turn| c.pushed(&token, &grant, turn));
            }
        }
    }

    /// Lets a client do something and sends what it wants sent.
    fn turn(&mut self, at: usize, act: impl FnOnce(&mut Client, &mut Turn<'_>)) {
        let mut turn = Turn {
            now: self.now,
            dice: &mut self.dice,
            plan: &self.plan,
            check: &mut self.check,
            sends: Vec::new(),
        };
        let client = &mut self.clients[at];
        act(client, &mut turn);
        client.prune();
        let (from, sends) = (client.id, turn.sends);
        let due = client.next_due().max(self.now);
        if due < client.planned {
            client.planned = due;
            self.push(due, Event::Wake(at));
        }
        let sent = self.now;
        for (bid, operation) in sends {
            self.carry(self.plan.slow, || {
                let operation = operation.clone();
                Event::Request { from, bid, sent, operation }
            });
        }
    }

    fn store_now(&self) -> Now<'static> {
        let ms = self.now.as_nanos() / 1_000_000;
        Now { moment: self.now, wall: Wall::At(if self.wall_stands { 1 } else { ms }) }
    }

    /// A request reached the store.
    fn serve(&mut self, from: u32, bid: u64, sent: Moment, operation: Operation) {
        let mut effects = Effects::default();
        let answer = self.space.apply(&operation, from, self.store_now(), &mut effects);
        self.trace.note(self.now, (7, 0), || format!("    {answer:?}"));
        self.carry(self.plan.slow, || Event::Answer {
            to: from,
            bid,
            sent,
            operation: operation.clone(),
            answer: Ok(answer.as_ref().expect("BUG: exclusive asks never fail").clone()),
        });
        self.spread(effects);
    }

    fn spread(&mut self, effects: Effects) {
        for (to, push) in effects.pushes {
            let Push::Granted { token, grant, .. } = push else { continue };
            self.carry(self.plan.slow_push, || {
                let (token, grant) = (token.clone(), grant.clone());
                Event::Push { to, token, grant }
            });
        }
    }

    /// A client's callers do something, or something is done to it.
    fn act(&mut self, client: usize) {
        if !self.faults {
            return;
        }
        self.act_later(client);
        let plan = &self.plan;
        let odds = [plan.pause, plan.crash, plan.extend, plan.breaks, plan.writes];
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
            Some(2) => self.turn(client, Client::extend),
            Some(3) => {
                let mut effects = Effects::default();
                let order = Break { name: self.name.clone(), now: false };
                self.space.break_lease(&order, self.store_now(), &mut effects);
                self.spread(effects);
            }
            Some(_) => self.write(client),
            None => self.turn(client, Client::come),
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
