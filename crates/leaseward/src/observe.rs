//! What all clients of a store do: pushed by the store, or derived by comparing snapshots.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::sync::broadcast::{self, error::RecvError};

use crate::{
    Error, Fence, Locks, Name,
    clock::Moment,
    store::{HeldView, LockView, Observation, Observed, Query, WaiterView},
};

/// How often snapshots are compared where the store does not push.
const SNAPSHOT_EVERY: Duration = Duration::from_millis(100);

/// A store that takes long to look through is left alone for this many times as long.
const REST: u32 = 9;

/// What happens in the store from the moment of the call on. Free while nobody asks for one.
#[derive(Debug)]
pub struct Observations {
    locks: Locks,
    source: Source,
    ready: VecDeque<Observation>,
}

#[derive(Debug)]
enum Source {
    Pushed(broadcast::Receiver<Arc<Observation>>),
    Derived(Snapshot),
}

impl Observations {
    pub(crate) async fn begin(locks: Locks) -> Result<Self, Error> {
        let source = match locks.engine.store.observe() {
            Some(receiver) => Source::Pushed(receiver),
            None => Source::Derived(Snapshot::take(&locks).await?),
        };
        Ok(Self { locks, source, ready: VecDeque::new() })
    }

    /// Until when all that happened has been told, in microseconds since the epoch: what comes and goes between then and the
    /// end of an outage may never be.
    pub fn complete_until_us(&self) -> u64 {
        match &self.source {
            Source::Pushed(_) => self.locks.engine.clock.wall_us(),
            Source::Derived(last) => last.at_us,
        }
    }

    /// The next thing that happens; `None` once the store is closed.
    ///
    /// # Errors
    /// What the store says, [`ErrorKind::Unavailable`](crate::ErrorKind) while it is away; asking again goes on from there,
    /// and tells what has changed meanwhile, but not what came and went.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<Observation>, Error> {
        loop {
            if let Some(observation) = self.ready.pop_front() {
                return Ok(Some(observation));
            }
            match &mut self.source {
                Source::Pushed(receiver) => match receiver.recv().await {
                    Ok(observation) => return Ok(Some(Observation::clone(&observation))),
                    // A slow observer misses some; it sees what comes next.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return Ok(None),
                },
                Source::Derived(last) => {
                    let clock = self.locks.engine.clock.clone();
                    clock.sleep_until(clock.now() + SNAPSHOT_EVERY.max(last.took * REST)).await;
                    let now = Snapshot::take(&self.locks).await?;
                    self.ready.extend(compare(last, &now, clock.wall_us()));
                    *last = now;
                }
            }
        }
    }
}

/// Everything as it stood at a moment.
#[derive(Debug)]
struct Snapshot {
    views: Vec<LockView>,
    begun: Moment,
    /// The same on the wall clock.
    at_us: u64,
    took: Duration,
}

impl Snapshot {
    async fn take(locks: &Locks) -> Result<Self, Error> {
        let clock = &locks.engine.clock;
        let (begun, at_us) = (clock.now(), clock.wall_us());
        let views = locks.engine.store.inspect(Query::all()).await?;
        Ok(Self { views, begun, at_us, took: clock.now().since(begun) })
    }
}

/// What must have happened between two snapshots.
fn compare(before: &Snapshot, after: &Snapshot, at_us: u64) -> Vec<Observation> {
    // From the beginning of the one to the end of the other: whatever ran out between was due within this.
    let passed = (after.begun + after.took).since(before.begun);
    let names = |views: &[LockView]| -> HashMap<Name, LockView> {
        views.iter().map(|view| (view.name.clone(), view.clone())).collect()
    };
    let (before, after) = (names(&before.views), names(&after.views));
    let mut all: Vec<_> = before.keys().chain(after.keys()).cloned().collect();
    all.sort();
    all.dedup();
    let empty = |name: &Name| LockView { name: name.clone(), holders: vec![], waiters: vec![] };
    let mut happened = Vec::new();
    for name in all {
        let old = before.get(&name).cloned().unwrap_or_else(|| empty(&name));
        let new = after.get(&name).cloned().unwrap_or_else(|| empty(&name));
        compare_one(&old, &new, passed, at_us, &mut happened);
    }
    happened
}

fn compare_one(
    old: &LockView,
    new: &LockView,
    passed: Duration,
    at_us: u64,
    happened: &mut Vec<Observation>,
) {
    let mut see = |what, who: &Arc<str>, fence: Option<Fence>| {
        happened.push(Observation {
            at_us,
            name: new.name.clone(),
            what,
            who: who.clone(),
            // Locks of other libraries have none.
            fence: fence.filter(|fence| *fence != Fence::ZERO),
            derived: true,
        });
    };
    let holds = |holders: &[HeldView], token: &str| holders.iter().any(|h| h.token_prefix == token);
    let waits =
        |waiters: &[WaiterView], token: &str| waiters.iter().any(|w| w.token_prefix == token);
    for holder in &old.holders {
        if !holds(&new.holders, &holder.token_prefix) {
            let ran_out = holder.remaining.is_some_and(|left| left <= passed);
            let what = if ran_out { Observed::Expired } else { Observed::Released };
            see(what, &holder.who, Some(holder.fence));
        }
    }
    for holder in &new.holders {
        let known = old.holders.iter().find(|other| other.token_prefix == holder.token_prefix);
        match known {
            None if waits(&old.waiters, &holder.token_prefix) => {
                see(Observed::HandedOver, &holder.who, Some(holder.fence));
            }
            None => see(Observed::Granted, &holder.who, Some(holder.fence)),
            Some(known) if holder.ending && !known.ending => {
                see(Observed::Broken, &holder.who, Some(holder.fence));
            }
            Some(_) => {}
        }
    }
    for waiter in &new.waiters {
        if !waits(&old.waiters, &waiter.token_prefix) {
            see(Observed::Queued, &waiter.who, None);
        }
    }
    for waiter in &old.waiters {
        let token = &waiter.token_prefix;
        if !waits(&new.waiters, token) && !holds(&new.holders, token) {
            see(Observed::Left, &waiter.who, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;

    fn held(token: &str, remaining_ms: u64) -> HeldView {
        HeldView {
            who: Arc::from(token),
            token_prefix: token.into(),
            mode: Mode::Exclusive,
            fence: Fence::new(1),
            slot: None,
            ttl: Duration::from_secs(1),
            remaining: Some(Duration::from_millis(remaining_ms)),
            held: Duration::ZERO,
            value: None,
            ending: false,
        }
    }

    fn waiting(token: &str) -> WaiterView {
        WaiterView {
            who: Arc::from(token),
            token_prefix: token.into(),
            mode: Mode::Exclusive,
            waited: Duration::ZERO,
        }
    }

    fn seen(
        old: (Vec<HeldView>, Vec<WaiterView>),
        new: (Vec<HeldView>, Vec<WaiterView>),
    ) -> Vec<Observed> {
        let snapshot = |(holders, waiters), begun_ms: u64| Snapshot {
            views: vec![LockView { name: Name::new("x").expect("good"), holders, waiters }],
            begun: Moment::from_nanos(begun_ms * 1_000_000),
            at_us: 0,
            took: Duration::ZERO,
        };
        compare(&snapshot(old, 0), &snapshot(new, 100), 0)
            .into_iter()
            .map(|seen| seen.what)
            .collect()
    }

    #[test]
    fn tells_hand_over_from_grant_and_release_from_expiry() {
        let (a, b) = (|| held("a", 900), || held("b", 900));
        assert_eq!(seen((vec![], vec![]), (vec![a()], vec![])), [Observed::Granted]);
        assert_eq!(
            seen((vec![a()], vec![waiting("b")]), (vec![b()], vec![])),
            [Observed::Released, Observed::HandedOver]
        );
        assert_eq!(seen((vec![held("a", 10)], vec![]), (vec![], vec![])), [Observed::Expired]);
        assert_eq!(seen((vec![a()], vec![]), (vec![a()], vec![waiting("b")])), [Observed::Queued]);
        assert_eq!(seen((vec![a()], vec![waiting("b")]), (vec![a()], vec![])), [Observed::Left]);
    }
}
