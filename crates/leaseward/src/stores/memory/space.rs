//! The names of one memory store, shared by its clients. Pure: operations in, answers and effects out.

use std::time::Duration;

use super::{
    hold::Hold,
    room::{ClientId, Place, Room},
    rooms::Rooms,
};
use crate::{
    Block, Fence, LostReason, Mode, Name, Token,
    clock::{Clock, Moment},
    rules::{self, Rule},
    store::{
        self, Answer, Ask, Break, Broken, Evidence, Grant, IfBusy, LockView, Observation, Observed,
        Operation, Place as PlaceReply, Push, Query, Release, Renew, Renewal, Reply,
        held::{self, Condition, Held},
        timing,
    },
};

/// When the clocks say an operation runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now<'a> {
    pub(crate) moment: Moment,
    pub(crate) wall: Wall<'a>,
}

/// The wall clock, asked only by what needs it: fences and observations.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wall<'a> {
    Clock(&'a dyn Clock),
    #[cfg(test)]
    At(u64),
}

impl Now<'_> {
    fn wall_us(self) -> u64 {
        match self.wall {
            Wall::Clock(clock) => clock.wall_us(),
            #[cfg(test)]
            Wall::At(wall_us) => wall_us,
        }
    }
}

/// What an operation causes beside its answer.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) pushes: Vec<(ClientId, Push)>,
    pub(crate) observed: Vec<Observation>,
    /// Whether anybody observes; nothing is recorded otherwise.
    pub(crate) observing: bool,
}

impl Effects {
    fn see(
        &mut self,
        now: Now<'_>,
        name: &Name,
        what: Observed,
        token: &Token,
        fence: Option<Fence>,
    ) {
        if self.observing {
            self.observed.push(Observation {
                at_us: now.wall_us(),
                name: name.clone(),
                what,
                who: token.who().clone(),
                fence,
                derived: false,
            });
        }
    }
}

/// Rooms beyond twice the last count are looked through for leases whose holders vanished.
const SWEEP_FLOOR: usize = 4_096;

#[derive(Debug, Default)]
pub(crate) struct Space {
    rooms: Rooms,
    /// The newest fence given out, for all names: one number, so that free names leave nothing behind.
    last: Fence,
    swept_len: usize,
    /// The latest moment anything happened at.
    latest: Option<Moment>,
}

impl Space {
    /// The moment something happens at that read the clock a moment ago.
    pub(super) fn at(&mut self, read: Moment) -> Moment {
        let moment = self.latest.map_or(read, |latest| latest.max(read));
        self.latest = Some(moment);
        moment
    }

    pub(super) fn last_fence(&self) -> Fence {
        self.last
    }

    pub(crate) fn apply(
        &mut self,
        operation: &Operation,
        client: ClientId,
        now: Now<'_>,
        effects: &mut Effects,
    ) -> Answer {
        match operation {
            Operation::Ask(ask) => self.ask(ask, client, now, effects),
            Operation::Renew(renew) => Ok(self.renew(renew, now, effects)),
            Operation::Release(release) => Ok(self.release(release, now, effects)),
        }
    }

    fn ask(&mut self, ask: &Ask, client: ClientId, now: Now<'_>, effects: &mut Effects) -> Answer {
        self.sweep(now, effects);
        let name = &ask.name;
        let room = self.rooms.open(name);
        settle(room, name, &mut self.last, now, effects);
        let waiters = room.waiters();
        if let Some(hold) = room.hold_of(&ask.token) {
            return Ok(ask_again(hold, ask, waiters, now));
        }
        if let Some(capacity) = held::other_capacity(&room.holds, ask.mode) {
            room.remove_place(&ask.token);
            return Err(store::capacity_error(name, capacity));
        }
        let last_fence = self.last;
        if let Some((ahead, place)) = room.place_of(&ask.token) {
            place.expires = now.moment + timing::place_ttl(ask.ttl);
            place.ask = ask.clone();
            let standing = held::standing(&room.holds, ahead, now.moment);
            return Ok(Reply::Queued(PlaceReply { last_fence, standing }));
        }
        if waiters == 0 && held::admits(&room.holds, ask.mode) {
            let hold = admit(room, ask, ask.ttl, &mut self.last, now);
            effects.see(now, name, Observed::Granted, &ask.token, Some(hold.block.first));
            return Ok(Reply::Granted(hold));
        }
        let standing = held::standing(&room.holds, waiters, now.moment);
        match ask.if_busy {
            IfBusy::Tell => Ok(Reply::Busy(standing)),
            IfBusy::Queue => {
                effects.see(now, name, Observed::Queued, &ask.token, None);
                room.enqueue(Place::new(ask.clone(), client, now.moment));
                Ok(Reply::Queued(PlaceReply { last_fence, standing }))
            }
        }
    }

    fn renew(&mut self, renew: &Renew, now: Now<'_>, effects: &mut Effects) -> Reply {
        let Some(room) = self.rooms.get_mut(&renew.name) else {
            return Reply::NotYours(LostReason::NotOurs);
        };
        settle(room, &renew.name, &mut self.last, now, effects);
        let waiters = room.waiters();
        let Some(hold) = room.hold_of(&renew.token) else {
            return Reply::NotYours(LostReason::NotOurs);
        };
        if let Err(reason) = hold.lengthen() {
            return Reply::NotYours(reason);
        }
        hold.lasts_until(now.moment + renew.ttl);
        hold.set_ttl(renew.ttl);
        Reply::Renewed(Renewal { ttl: renew.ttl, evidence: Evidence::ThisRequest, waiters })
    }

    fn release(&mut self, release: &Release, now: Now<'_>, effects: &mut Effects) -> Reply {
        let Some(room) = self.rooms.get_mut(&release.name) else {
            return Reply::NotYours(LostReason::NotOurs);
        };
        settle(room, &release.name, &mut self.last, now, effects);
        let reply = leave(room, release, now, effects);
        settle(room, &release.name, &mut self.last, now, effects);
        if room.is_empty() {
            self.rooms.remove(&release.name);
        }
        reply
    }

    pub(crate) fn break_lease(
        &mut self,
        order: &Break,
        now: Now<'_>,
        effects: &mut Effects,
    ) -> Broken {
        let Some(room) = self.rooms.get_mut(&order.name) else {
            return Broken { holders: Vec::new() };
        };
        settle(room, &order.name, &mut self.last, now, effects);
        let holders = room.holds.iter().map(|hold| hold.view(now.moment)).collect();
        for hold in room.holds.iter_mut() {
            hold.condition = Condition::Broken;
            effects.see(now, &order.name, Observed::Broken, &hold.token, Some(hold.block().first));
        }
        if order.now {
            room.holds.clear();
            settle(room, &order.name, &mut self.last, now, effects);
        }
        Broken { holders }
    }

    pub(crate) fn inspect(&self, query: &Query, now: Moment) -> Vec<LockView> {
        let wanted = |name: &Name| match query {
            Query::Name(one) => name == one,
            Query::Prefix { prefix, after, .. } => {
                name.starts_with(prefix.as_str()) && after.as_ref().is_none_or(|after| name > after)
            }
        };
        let mut views: Vec<_> = self
            .rooms
            .iter()
            .filter(|room| wanted(&room.name))
            .map(|room| LockView {
                name: room.name.clone(),
                holders: room
                    .holds
                    .iter()
                    .filter(|hold| hold.is_live(now))
                    .map(|hold| hold.view(now))
                    .collect(),
                waiters: room
                    .places()
                    .filter(|place| place.expires > now)
                    .map(|place| place.view(now))
                    .collect(),
            })
            .filter(|view| !view.holders.is_empty() || !view.waiters.is_empty())
            .collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        if let Query::Prefix { limit, .. } = query {
            views.truncate(*limit);
        }
        views
    }

    /// When the live lease of a token ends, for checks of what its holder believes.
    #[cfg(test)]
    pub(crate) fn expiry(&self, name: &Name, token: &Token, now: Moment) -> Option<Moment> {
        let mut holds = self.rooms.get(name)?.holds.iter();
        holds.find(|hold| hold.token == *token && hold.is_live(now)).map(|hold| hold.expires)
    }

    /// The tokens that have a lease or a place, leases kept for a minimum hold apart.
    #[cfg(test)]
    pub(crate) fn tokens(&self, name: &Name) -> Vec<Token> {
        let Some(room) = self.rooms.get(name) else { return Vec::new() };
        let sound = room.holds.iter().filter(|hold| hold.condition == Condition::Sound);
        let places = room.places().map(|place| place.ask.token.clone());
        sound.map(|hold| hold.token.clone()).chain(places).collect()
    }

    /// Ends what vanished holders left, once the rooms have doubled since the last look: amortised constant.
    fn sweep(&mut self, now: Now<'_>, effects: &mut Effects) {
        if self.rooms.len() < SWEEP_FLOOR.max(2 * self.swept_len) {
            return;
        }
        let last = &mut self.last;
        self.rooms.retain(|room| {
            let name = room.name.clone();
            settle(room, &name, last, now, effects);
            !room.is_empty()
        });
        self.swept_len = self.rooms.len();
    }
}

/// Ends what has expired and gives the name to the next live waiters. Every operation begins with this.
fn settle(room: &mut Room, name: &Name, last: &mut Fence, now: Now<'_>, effects: &mut Effects) {
    for hold in room.take_expired(now.moment) {
        let what = match hold.condition {
            Condition::Sound | Condition::Broken => Observed::Expired,
            Condition::Kept => Observed::Released,
        };
        effects.see(now, name, what, &hold.token, Some(hold.block().first));
    }
    let mut dead = Vec::new();
    while let Some(place) = room.take_next(now.moment, &mut dead) {
        let token = place.ask.token.clone();
        let mut grant = admit(room, &place.ask, timing::handed_ttl(place.ask.ttl), last, now);
        grant.evidence = Evidence::LargerFence;
        effects.see(now, name, Observed::HandedOver, &token, Some(grant.fence()));
        effects.pushes.push((place.client, Push::Granted { name: name.clone(), token, grant }));
    }
    for place in dead {
        effects.see(now, name, Observed::Left, &place.ask.token, None);
    }
}

/// Gives a lease; the room must admit it.
fn admit(room: &mut Room, ask: &Ask, ttl: Duration, last: &mut Fence, now: Now<'_>) -> Grant {
    debug_assert!(held::admits(&room.holds, ask.mode), "BUG: the room is not free");
    let len = if ask.mode == Mode::Exclusive { ask.block } else { 1 };
    let block = Block::after(*last, now.wall_us(), len);
    *last = block.last();
    let slot = held::free_slot(&room.holds, ask.mode);
    room.holds.push(Hold::new(ask, block, slot, now.moment, now.moment + ttl));
    Grant { block, slot, ttl, evidence: Evidence::ThisRequest, waiters: room.waiters() }
}

/// An ask by the owner of the live lease: granted again, same fence, fresh expiry (R4).
fn ask_again(hold: &mut Hold, ask: &Ask, waiters: u32, now: Now<'_>) -> Reply {
    if let Err(reason) = hold.lengthen() {
        return Reply::Gone(reason);
    }
    if rules::on(Rule::R4) {
        hold.lasts_until(now.moment + ask.ttl);
    }
    hold.set_ttl(ask.ttl);
    Reply::Granted(Grant {
        block: hold.block(),
        slot: hold.slot(),
        ttl: ask.ttl,
        evidence: Evidence::ThisRequest,
        waiters,
    })
}

fn leave(room: &mut Room, release: &Release, now: Now<'_>, effects: &mut Effects) -> Reply {
    let name = &release.name;
    if let Some(at) = room.hold_to_release(&release.token) {
        let hold = &mut room.holds[at];
        let fence = Some(hold.block().first);
        if hold.condition == Condition::Kept {
            return Reply::Released;
        }
        if !release.keep.is_zero() {
            hold.condition = Condition::Kept;
            hold.expires = now.moment + release.keep;
            return Reply::Released;
        }
        room.holds.remove(at);
        effects.see(now, name, Observed::Released, &release.token, fence);
        return Reply::Released;
    }
    if room.remove_place(&release.token).is_some() {
        effects.see(now, name, Observed::Left, &release.token, None);
        return Reply::Released;
    }
    Reply::NotYours(LostReason::NotOurs)
}
