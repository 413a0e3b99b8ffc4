//! Leases on one name, packed: a hundred thousand of them must stay small.

use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use crate::{
    Block, Fence, Mode, Token, Value,
    clock::Moment,
    lease::PackedMode,
    store::{
        Ask, HeldView,
        held::{Condition, Held},
    },
};

#[derive(Debug)]
pub(super) struct Hold {
    pub(super) token: Token,
    first: Fence,
    fences: u32,
    mode: PackedMode,
    ttl_ms: u32,
    pub(super) condition: Condition,
    since: Moment,
    pub(super) expires: Moment,
    /// What few leases have.
    rare: Option<Box<Rare>>,
}

#[derive(Debug, Default)]
struct Rare {
    slot: Option<u32>,
    value: Option<Value>,
}

impl Hold {
    pub(super) fn new(
        ask: &Ask,
        block: Block,
        slot: Option<u32>,
        now: Moment,
        expires: Moment,
    ) -> Self {
        let is_plain = slot.is_none() && ask.value.is_none();
        let rare = || Rare { slot, value: ask.value.clone() };
        Self {
            token: ask.token.clone(),
            first: block.first,
            fences: block.len,
            mode: ask.mode.into(),
            ttl_ms: millis(ask.ttl),
            condition: Condition::Sound,
            since: now,
            expires,
            rare: (!is_plain).then(|| Box::new(rare())),
        }
    }

    pub(super) fn block(&self) -> Block {
        Block { first: self.first, len: self.fences }
    }

    /// Moves its end, never to an earlier moment: a renewal for a shorter time, or an ask that was long under way, must
    /// not end a lease that its holder has been promised.
    pub(super) fn lasts_until(&mut self, moment: Moment) {
        self.expires = self.expires.max(moment);
    }

    pub(super) fn set_ttl(&mut self, ttl: Duration) {
        self.ttl_ms = millis(ttl);
    }

    pub(super) fn view(&self, now: Moment) -> HeldView {
        HeldView {
            who: self.token.who().clone(),
            token_prefix: self.token.prefix(),
            mode: self.mode(),
            fence: self.first,
            slot: self.slot(),
            ttl: Duration::from_millis(self.ttl_ms.into()),
            remaining: Some(self.expires.since(now)),
            held: now.since(self.since),
            value: self.rare.as_ref().and_then(|rare| rare.value.clone()),
            ending: self.condition != Condition::Sound,
        }
    }
}

impl Held for Hold {
    fn token(&self) -> &Token {
        &self.token
    }
    fn mode(&self) -> Mode {
        self.mode.get()
    }
    fn slot(&self) -> Option<u32> {
        self.rare.as_ref()?.slot
    }
    fn condition(&self) -> Condition {
        self.condition
    }
    fn expires(&self) -> Moment {
        self.expires
    }
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// The leases on a name: nearly always one.
#[derive(Debug, Default)]
pub(super) enum Holds {
    #[default]
    None,
    One(Hold),
    Many(Vec<Hold>),
}

impl Holds {
    pub(super) fn push(&mut self, hold: Hold) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(hold),
            Self::One(first) => Self::Many(vec![first, hold]),
            Self::Many(mut holds) => {
                holds.push(hold);
                Self::Many(holds)
            }
        };
    }

    pub(super) fn remove(&mut self, at: usize) -> Hold {
        match self {
            Self::Many(holds) => holds.remove(at),
            Self::None | Self::One(_) => match std::mem::take(self) {
                Self::One(hold) if at == 0 => hold,
                _ => unreachable!("BUG: no such lease"),
            },
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::None;
    }
}

impl Deref for Holds {
    type Target = [Hold];

    fn deref(&self) -> &[Hold] {
        match self {
            Self::None => &[],
            Self::One(hold) => std::slice::from_ref(hold),
            Self::Many(holds) => holds,
        }
    }
}

impl DerefMut for Holds {
    fn deref_mut(&mut self) -> &mut [Hold] {
        match self {
            Self::None => &mut [],
            Self::One(hold) => std::slice::from_mut(hold),
            Self::Many(holds) => holds,
        }
    }
}
