//! A store on a server beside the memory store: both are asked the same, and must answer the same.
//!
//! A server has its own clock, which only goes on: it is moved by a skew, and a little real time passes beside. So all
//! times are whole tens of seconds, steps in time are two seconds longer than that, and times are compared in steps of
//! two seconds. Fences are compared by their order, where all names share one.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    sync::{Arc, mpsc::Receiver},
    time::Duration,
};

use leaseward::{
    Block, Error, Fence,
    store::{Answer, Grant, HeldView, LockView, Operation, Push, Query, Reply, Standing, Store},
    stores::memory::Memory,
};
use leaseward_testkit::{PATIENCE, Skew};
use proptest::{
    prelude::*,
    test_runner::{TestCaseError, TestRunner},
};
use tokio::runtime::Runtime;

use crate::{
    hand_clock::HandClock,
    help::{is_full, listen, open},
    names::name,
    steps::{Step, Times},
};

/// With more steps in time than this, their odd seconds would add up to ten.
const ADVANCES_MAX: usize = 4;

/// How exactly times are compared.
const GRAIN: Duration = Duration::from_secs(2);

pub(crate) static MOVED: Times = Times {
    ttls: &[10_000, 100_000, 1_000_000, 86_400_000],
    renewals: &[10_000, 1_000_000],
    keeps: &[0, 0, 0, 20_000],
    advances: &[2_000, 12_000, 22_000, 52_000, 102_000, 1_002_000],
    set_backs: &[],
};

/// The store beside the reference.
pub(crate) struct Pair {
    runtime: Runtime,
    url: String,
    /// Some have an order of fences for each name, or for each slot of a cluster.
    one_counter: bool,
    skew: Option<Skew>,
    skewed: Duration,
    /// How long a push is waited for: long, and less once one failed to come and smaller cases are looked for.
    patience: Duration,
}

/// The fences one store has given out, in their order.
#[derive(Default)]
struct Fences(BTreeSet<(Fence, Fence)>);

impl Fences {
    fn learn(&mut self, answers: &[Answer], pushes: &[Vec<Push>; 2]) {
        let in_answers = answers.iter().flatten().filter_map(|reply| match reply {
            Reply::Granted(grant) => Some(grant.block),
            _ => None,
        });
        let in_pushes = pushes.iter().flatten().map(|push| match push {
            Push::Granted { grant, .. } => grant.block,
            other => panic!("neither store sends {other:?}"),
        });
        self.0.extend(in_answers.chain(in_pushes).map(|block| (block.first, block.last())));
    }

    /// Which one in the order of all, and of how many.
    fn block(&self, block: Block) -> String {
        format!("{}+{}", self.first(block.first), block.len)
    }

    fn first(&self, first: Fence) -> String {
        let at = self.0.iter().position(|(known, _)| *known == first);
        at.map_or_else(|| format!("unknown {first}"), |at| at.to_string())
    }

    fn last(&self, last: Fence) -> String {
        let at = self.0.iter().position(|(_, known)| *known == last);
        at.map_or_else(|| "none".to_owned(), |at| at.to_string())
    }
}

/// What one store said, without what may differ.
struct Gist {
    fences: Fences,
    one_counter: bool,
}

impl Gist {
    fn new(one_counter: bool) -> Self {
        Self { fences: Fences::default(), one_counter }
    }

    fn block(&self, block: Block) -> String {
        if self.one_counter { self.fences.block(block) } else { block.len.to_string() }
    }

    fn grant(&self, grant: &Grant) -> String {
        let Grant { block, slot, ttl, evidence, waiters } = grant;
        format!("{} {slot:?} {ttl:?} {evidence:?} {waiters}", self.block(*block))
    }

    fn answer(&self, answer: &Answer) -> String {
        match answer {
            Ok(Reply::Granted(grant)) => format!("granted {}", self.grant(grant)),
            Ok(Reply::Queued(place)) => {
                let last = self.one_counter.then(|| self.fences.last(place.last_fence));
                format!("queued {last:?} {}", standing(&place.standing))
            }
            Ok(Reply::Busy(busy)) => format!("busy {}", standing(busy)),
            Ok(Reply::Renewed(renewal)) => {
                format!("renewed {:?} {:?} {}", renewal.ttl, renewal.evidence, renewal.waiters)
            }
            other => format!("{other:?}"),
        }
    }

    fn pushes(&self, pushes: &[Push]) -> Vec<String> {
        let push = |push: &Push| {
            let Push::Granted { name, token, grant } = push else { panic!("{push:?}") };
            format!("{name} {token} {}", self.grant(grant))
        };
        let mut pushes: Vec<_> = pushes.iter().map(push).collect();
        if !self.one_counter {
            // Slots are served side by side.
            pushes.sort_unstable();
        }
        pushes
    }

    fn holder(&self, held: &HeldView) -> String {
        let HeldView { who, token_prefix, mode, fence, slot, ttl, remaining, value, .. } = held;
        let fence = self.one_counter.then(|| self.fences.first(*fence));
        let (left, since) = (remaining.map(rest), past(held.held));
        let ending = held.ending;
        format!(
            "{who} {token_prefix} {mode} {fence:?} {slot:?} {ttl:?} {left:?} {since} {value:?} {ending}"
        )
    }

    fn views(&self, views: &[LockView]) -> String {
        let mut text = String::new();
        for view in views {
            let _ = writeln!(text, "{}", view.name);
            for holder in &view.holders {
                let _ = writeln!(text, "  {}", self.holder(holder));
            }
            for waiter in &view.waiters {
                let (who, since) = (&waiter.who, past(waiter.waited));
                let _ = writeln!(text, "  waits: {who} {} {since}", waiter.mode);
            }
        }
        text
    }
}

fn standing(standing: &Standing) -> String {
    let holder = standing
        .holder
        .as_ref()
        .map(|holder| format!("{} {} {:?}", holder.who, holder.mode, holder.remaining.map(rest)));
    format!("{holder:?} {:?} {}", standing.free_in.map(rest), standing.ahead)
}

/// Time to come, of which a little has passed on the server.
fn rest(time: Duration) -> u128 {
    time.as_micros().div_ceil(GRAIN.as_micros())
}

/// Time gone by, to which a little was added on the server.
fn past(time: Duration) -> u128 {
    time.as_micros() / GRAIN.as_micros()
}

/// What a step came to.
#[derive(Default)]
struct Outcome {
    answers: Vec<Answer>,
    broken: Option<Result<Vec<LockView>, Error>>,
}

async fn apply(stores: &[&dyn Store; 2], step: &Step) -> Outcome {
    match step {
        Step::Submit { client, batch } => {
            let answers = stores[*client].carry_out(batch.clone()).await;
            Outcome { answers, broken: None }
        }
        Step::Break(order) => {
            let broken = stores[0].break_lease(order.clone()).await.map(|broken| {
                let (name, holders) = (order.name.clone(), broken.holders);
                vec![LockView { name, holders, waiters: Vec::new() }]
            });
            Outcome { answers: Vec::new(), broken: Some(broken) }
        }
        Step::Advance(_) | Step::SetWallBack(_) => Outcome::default(),
    }
}

impl Outcome {
    fn gist(&self, gist: &Gist) -> Vec<String> {
        let broken = self.broken.iter().map(|broken| match broken {
            Ok(views) => gist.views(views),
            Err(error) => error.to_string(),
        });
        self.answers.iter().map(|answer| gist.answer(answer)).chain(broken).collect()
    }
}

impl Pair {
    pub(crate) fn new(url: &str, skew: Option<Skew>, one_counter: bool) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let (skewed, patience) = (Duration::ZERO, PATIENCE);
        Self { runtime, url: url.to_owned(), one_counter, skew, skewed, patience }
    }

    fn move_time(&mut self, step: &Step, clock: &HandClock) {
        match step {
            Step::Advance(by) => {
                clock.advance(*by);
                self.skewed += *by;
                let skew = self.skew.as_ref().expect("BUG: this clock cannot be moved");
                skew.set_ms(self.skewed.as_millis().try_into().expect("a short time"));
            }
            Step::SetWallBack(by) => clock.set_wall_back(*by),
            Step::Submit { .. } | Step::Break(_) => {}
        }
    }

    pub(crate) fn check(&mut self, steps: &[Step]) -> Result<(), TestCaseError> {
        self.compare(steps).inspect_err(|_| self.patience = Duration::from_millis(200))
    }

    /// Runs one case on both, with two clients of each.
    fn compare(&mut self, steps: &[Step]) -> Result<(), TestCaseError> {
        let clock = HandClock::new();
        let memory = Memory::new(clock.clone());
        let memory = [memory.another(), memory];
        let memory_pushes = memory.each_ref().map(|store| listen(store));
        let server: [Arc<dyn Store>; 2] = [(); 2].map(|()| self.runtime.block_on(open(&self.url)));
        let server_pushes = server.each_ref().map(|store| listen(store.as_ref()));
        let (mut expected, mut found) = (Gist::new(self.one_counter), Gist::new(self.one_counter));
        for step in steps {
            // Or else leases would end at one moment that on a server never do.
            clock.advance(Duration::from_millis(1));
            self.move_time(step, &clock);
            let memory = memory.each_ref().map(|store| store as &dyn Store);
            let server = server.each_ref().map(|store| store.as_ref());
            let reference = self.runtime.block_on(apply(&memory, step));
            let outcome = self.runtime.block_on(apply(&server, step));
            let told = memory_pushes.each_ref().map(|pushes| pushes.try_iter().collect::<Vec<_>>());
            let heard = heard(&server_pushes, &told, self.patience);
            expected.fences.learn(&reference.answers, &told);
            found.fences.learn(&outcome.answers, &heard);
            prop_assert_eq!(outcome.gist(&found), reference.gist(&expected), "at {:?}", step);
            for client in 0..2 {
                let (told, heard) = (expected.pushes(&told[client]), found.pushes(&heard[client]));
                prop_assert_eq!(heard, told, "pushed by {:?}", step);
            }
            let views = |store: &dyn Store, gist: &Gist| {
                let all = self.runtime.block_on(store.inspect(Query::all())).expect("answered");
                let one = store.inspect(Query::Name(name("a")));
                let one = self.runtime.block_on(one).expect("answered");
                gist.views(&all) + &gist.views(&one)
            };
            prop_assert_eq!(
                views(server[1], &found),
                views(memory[0], &expected),
                "after {:?}",
                step
            );
        }
        Ok(())
    }
}

/// What the server pushed: as much as the reference did, which is waited for.
fn heard(
    pushes: &[Receiver<Push>; 2],
    expected: &[Vec<Push>; 2],
    patience: Duration,
) -> [Vec<Push>; 2] {
    std::array::from_fn(|client| {
        let next = || pushes[client].recv_timeout(patience).ok();
        expected[client].iter().map_while(|_| next()).collect()
    })
}

/// What both can be asked: a token belongs to one client, which alone asks with it, and time moves a few times at most.
pub(crate) fn sensible(mut steps: Vec<Step>) -> Vec<Step> {
    let mut advances = 0;
    steps.retain_mut(|step| match step {
        Step::Submit { client, batch } => {
            batch.retain(|operation| match operation {
                Operation::Ask(ask) => ask.token.random() % 2 == *client as u128,
                Operation::Renew(_) | Operation::Release(_) => true,
            });
            !batch.is_empty()
        }
        Step::Advance(_) => {
            advances += 1;
            advances <= ADVANCES_MAX
        }
        Step::Break(_) | Step::SetWallBack(_) => true,
    });
    steps
}

pub(crate) fn cases(cases: u32) -> TestRunner {
    let cases = if is_full() { 16 * cases } else { cases };
    TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..Default::default() })
}
