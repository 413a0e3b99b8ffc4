//! The tokens of a client, in shards: one lock for all decisions about a name.
//!
//! What is decided under a shard's lock is carried out once it is free, in the order in which it was decided: effects are
//! put into the shard's outbox, and one thread at a time carries them out. Without that order a nearer loss could be told
//! late, or an ask leave after its own release.

use std::{collections::VecDeque, hash::BuildHasher, sync::Arc};

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};

use super::{
    Engine,
    acquisition::{Event, Setting},
    caller::Waiter,
    cell::TokenCell,
    lane::Work,
    names::{Around, Effect, Entry, Names, Visit},
};
use crate::{Name, Token, clock::Moment};

/// Enough that two cores seldom meet in one.
const SHARDS: usize = 16;

pub(super) struct Table {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
}

#[derive(Default)]
pub(super) struct Shard {
    pub(super) names: Names<Waiter>,
    outbox: VecDeque<Effect<Waiter>>,
    /// A thread carries out what is in the outbox.
    is_carried_out: bool,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::default() }
    }

    pub(super) fn hash(&self, name: &Name) -> u64 {
        self.hasher.hash_one(name.as_str())
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // The shards' own tables look at the lowest and the highest bits.
        let at = usize::try_from((hash >> 32) % SHARDS as u64).expect("BUG: below the number");
        &self.shards[at]
    }

    /// The shard of a name, to look at.
    pub(super) fn lock(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shard(hash).lock()
    }

    /// The tokens that are wanted, by name: the order does not depend on how names hash.
    pub(super) fn select(
        &self,
        mut wanted: impl FnMut(&Entry<Waiter>) -> bool,
    ) -> Vec<Arc<TokenCell>> {
        let mut cells = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let wanted = shard.names.iter().filter(|entry| wanted(entry));
            cells.extend(wanted.map(|entry| entry.cell.clone()));
        }
        cells.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
        cells
    }

    pub(super) fn any(&self, mut wanted: impl FnMut(&Entry<Waiter>) -> bool) -> bool {
        self.shards.iter().any(|shard| shard.lock().names.iter().any(&mut wanted))
    }
}

/// The engine as decisions see it.
struct Surroundings<'a> {
    engine: &'a Engine,
    now: Moment,
    owes: isize,
}

impl Around for Surroundings<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn random(&mut self) -> f64 {
        self.engine.random()
    }

    fn new_token(&mut self) -> Token {
        self.engine.new_token()
    }

    fn new_id(&mut self) -> u64 {
        self.engine.new_id()
    }

    fn setting(&self) -> Setting {
        self.engine.setting
    }

    fn is_closing(&self) -> bool {
        self.engine.check_open().is_err()
    }

    fn owes(&mut self, tokens: isize) {
        self.owes += tokens;
    }

    fn wake_at(&mut self, cell: &Arc<TokenCell>, at: Moment) {
        self.engine.timer.wake_at(cell, at);
    }
}

/// The right to carry out what is in an outbox. Given up whatever becomes of it.
struct CarryingOut<'a>(&'a Mutex<Shard>);

impl Drop for CarryingOut<'_> {
    fn drop(&mut self) {
        self.0.lock().is_carried_out = false;
    }
}

impl Engine {
    /// Visits the shard of a name, and does what follows once its lock is free.
    pub(super) fn visit<T>(
        self: &Arc<Self>,
        hash: u64,
        act: impl FnOnce(&mut Visit<'_, Waiter>) -> T,
    ) -> T {
        let shard = self.table.shard(hash);
        let mut around = Surroundings { engine: self, now: self.clock.now(), owes: 0 };
        let mut locked = shard.lock();
        let mut visit = Visit::new(&mut locked.names, &mut around);
        let result = act(&mut visit);
        let (effects, tells) = (visit.effects, visit.tells);
        locked.outbox.extend(effects);
        drop(locked);
        if around.owes != 0 {
            self.timer.owes(around.owes, self);
        }
        for tell in tells {
            self.tell(tell);
        }
        self.carry_out(shard);
        result
    }

    /// Something happened to a token.
    pub(super) fn on(self: &Arc<Self>, cell: &Arc<TokenCell>, event: Event<Waiter>) {
        self.visit(cell.hash, |visit| visit.on(cell, event));
    }

    /// Carries out what was decided in a shard, unless another thread is at it, which will look again.
    fn carry_out(self: &Arc<Self>, shard: &Mutex<Shard>) {
        let mut locked = shard.lock();
        if locked.outbox.is_empty() || locked.is_carried_out {
            return;
        }
        locked.is_carried_out = true;
        drop(locked);
        let right = CarryingOut(shard);
        // What follows from one event goes out together: a release, and the ask of the callers that are left.
        let gathering = self.begin_sending();
        loop {
            let mut locked = shard.lock();
            let Some(effect) = locked.outbox.pop_front() else {
                locked.is_carried_out = false;
                drop(locked);
                std::mem::forget(right);
                break;
            };
            drop(locked);
            self.carry_out_one(effect);
        }
        if let Some(gathering) = gathering {
            self.send_all_due(gathering);
        }
    }

    fn carry_out_one(self: &Arc<Self>, effect: Effect<Waiter>) {
        match effect {
            Effect::Send(cell, send) => self.send(Work::Token(cell, send)),
            Effect::ReleaseUnknown(name, token) => {
                self.send(Work::ReleaseUnknown(Box::new((name, token))));
            }
            Effect::Withdraw(cell) => {
                if self.lane.withdraw(&cell) {
                    self.on(&cell, Event::Withdrawn);
                }
            }
            Effect::Report(cell, report, holder) => self.report(&cell, report, holder.as_ref()),
        }
    }
}
