//! What a batch needs of the server, given what the session holds. Pure.

use std::{collections::HashSet, time::Duration};

use super::{
    config::Settings,
    key::Slot,
    statement::Step,
    table::{Chance, Hold, Left, Table},
};
use crate::{
    Block, Error, Fence, LostReason, Mode, Name,
    clock::Moment,
    store::{Answer, Ask, Evidence, Grant, Operation, Renewal, Reply},
};

/// How the lock of an ask is come by.
#[derive(Debug)]
pub(super) enum How {
    /// It is the token's already.
    Yours(Block),
    /// By the step at this place, which takes the lock.
    Taken(usize),
    /// By the step at this place, which takes a fence only.
    Joined(usize),
}

/// What an operation waits for.
#[derive(Debug)]
pub(super) enum Intent {
    Ask { place: usize, slot: Slot, how: How },
    Renew { place: usize, slot: Slot },
    Release { place: usize },
}

/// One statement, and what follows from its answer.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) intents: Vec<Intent>,
    /// Operations that wait for what this statement says about their name.
    pub(super) later: Vec<usize>,
    /// Asks that other tasks of this client are in the way of.
    pub(super) blocked: Vec<(Slot, Name)>,
    /// Names that come free.
    pub(super) freed: Vec<Slot>,
    /// The longest TTL it asks for.
    pub(super) ttl: Duration,
    asked: HashSet<Slot>,
}

impl Plan {
    /// Plans the operations at these places; those that need no server are answered.
    pub(super) fn make(
        table: &mut Table,
        settings: &Settings,
        batch: &[Operation],
        places: &[usize],
        now: Moment,
        answers: &mut [Option<Answer>],
    ) -> Self {
        let mut plan = Self::default();
        plan.expire(table, now);
        for place in places.iter().copied() {
            let answer = match &batch[place] {
                Operation::Ask(ask) => plan.ask(table, settings, ask, place, now),
                Operation::Renew(renew) => settings.slot(&renew.name).map(|slot| {
                    if plan.asked.contains(&slot) {
                        plan.later.push(place);
                        return None;
                    }
                    if !table.has(slot, &renew.token) {
                        return Some(Reply::NotYours(LostReason::NotOurs));
                    }
                    plan.ttl = plan.ttl.max(renew.ttl);
                    plan.intents.push(Intent::Renew { place, slot });
                    None
                }),
                Operation::Release(release) => settings.slot(&release.name).map(|slot| {
                    if plan.asked.contains(&slot) {
                        plan.later.push(place);
                        return None;
                    }
                    let Some(left) = table.remove(slot, &release.token) else {
                        return Some(Reply::NotYours(LostReason::NotOurs));
                    };
                    plan.give_back(slot, left);
                    plan.intents.push(Intent::Release { place });
                    None
                }),
            };
            match answer {
                Ok(None) => {}
                Ok(Some(reply)) => answers[place] = Some(Ok(reply)),
                Err(error) => answers[place] = Some(Err(error)),
            }
        }
        if plan.steps.is_empty() && !plan.intents.is_empty() {
            plan.steps.push(Step::Probe);
        }
        plan
    }

    /// Gives back what has expired.
    pub(super) fn expire(&mut self, table: &mut Table, now: Moment) {
        for (slot, _, left) in table.expire(now) {
            self.give_back(slot, left);
        }
    }

    fn give_back(&mut self, slot: Slot, left: Left) {
        if let Left::Unlock(mode) = left {
            self.steps.push(Step::Unlock(slot, mode));
            self.freed.push(slot);
        }
    }

    fn ask(
        &mut self,
        table: &Table,
        settings: &Settings,
        ask: &Ask,
        place: usize,
        now: Moment,
    ) -> Result<Option<Reply>, Error> {
        let slot = settings.slot(&ask.name)?;
        if self.asked.contains(&slot) {
            self.later.push(place);
            return Ok(None);
        }
        let how = match table.chance(slot, &ask.token, ask.mode, now) {
            Chance::Busy(standing) => {
                self.blocked.push((slot, ask.name.clone()));
                return Ok(Some(Reply::Busy(standing)));
            }
            Chance::Yours(block) => How::Yours(block),
            Chance::Join => How::Joined(self.step(Step::Fence(ask.block))),
            Chance::Take => How::Taken(self.step(Step::Take(slot, ask.mode, ask.block))),
        };
        self.asked.insert(slot);
        self.ttl = self.ttl.max(ask.ttl);
        self.intents.push(Intent::Ask { place, slot, how });
        Ok(None)
    }

    fn step(&mut self, step: Step) -> usize {
        self.steps.push(step);
        self.steps.len() - 1
    }

    /// Every lock that the statement may have touched.
    pub(super) fn touched(&self) -> impl Iterator<Item = (Slot, Mode)> {
        self.steps.iter().filter_map(|step| match step {
            Step::Take(slot, mode, _) | Step::Unlock(slot, mode) => Some((*slot, *mode)),
            Step::Probe | Step::Fence(_) => None,
        })
    }
}

/// Enters what an ask was given; nothing if the lock was not free.
pub(super) fn enter(
    table: &mut Table,
    ask: &Ask,
    (slot, how): (Slot, &How),
    said: &[i64],
    now: Moment,
) -> Option<Reply> {
    let block = match how {
        How::Yours(block) => {
            table.lengthen(slot, &ask.token, ask.ttl, now + ask.ttl);
            *block
        }
        How::Taken(at) | How::Joined(at) => {
            let fence = said.get(*at).copied().unwrap_or(0);
            if fence <= 0 && matches!(how, How::Taken(_)) {
                return None;
            }
            let block = Block { first: Fence::new(fence.unsigned_abs()), len: ask.block.max(1) };
            let hold = Hold {
                name: ask.name.clone(),
                token: ask.token.clone(),
                mode: ask.mode,
                block,
                ttl: ask.ttl,
                expires: now + ask.ttl,
                since: now,
            };
            table.insert(slot, hold);
            block
        }
    };
    let evidence = Evidence::ThisRequest;
    Some(Reply::Granted(Grant { block, slot: None, ttl: ask.ttl, evidence, waiters: 0 }))
}

/// The answer to a renewal of a lease that is there.
pub(super) fn renewed(ttl: Duration) -> Reply {
    Reply::Renewed(Renewal { ttl, evidence: Evidence::ThisRequest, waiters: 0 })
}
