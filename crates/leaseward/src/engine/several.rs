//! Several names at once, atomically where the store can.

use std::sync::{Arc, atomic::Ordering};

use super::{
    Engine,
    bid::{Bid, BidState, Spec},
    claim,
    follow::release_job,
    lane::Which,
};
use crate::{
    Error, ErrorKind, Fence, Guard, Name,
    guard::OwnerId,
    store::{Ask, IfBusy, Names, Operation, Reply, Standing},
};

/// Tokens tried one after the other: each that will never be served means that a session has ended.
const TOKENS_MAX: u32 = 3;

/// What a try for several names came to.
pub(crate) enum All {
    Granted(Vec<Guard>),
    Busy(Standing),
}

impl Engine {
    /// Asks for all names in one operation, with another token if the first will never be served.
    pub(crate) async fn try_all(
        self: &Arc<Self>,
        names: &[Name],
        spec: &Spec,
        owner: Option<&OwnerId>,
    ) -> Result<All, Error> {
        self.check_open()?;
        for name in names {
            self.order.check(owner, name)?;
        }
        for _ in 0..TOKENS_MAX {
            self.admit(spec)?;
            if let Some(all) = self.try_once(names, spec, owner).await? {
                return Ok(all);
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "what was asked for ended before it was held")
            .hint("nothing is held; asking again is safe"))
    }

    /// `None` if its token will never be served.
    async fn try_once(
        self: &Arc<Self>,
        names: &[Name],
        spec: &Spec,
        owner: Option<&OwnerId>,
    ) -> Result<Option<All>, Error> {
        let (token, began) = (self.new_token(), self.clock.now());
        let ask = Ask {
            names: names.iter().cloned().collect::<Names>(),
            token: token.clone(),
            mode: spec.mode(),
            ttl: spec.ttl(),
            if_busy: IfBusy::Tell,
            block: 1,
            lock_delay: spec.lock_delay(),
            value: spec.value().cloned(),
        };
        let operation = Operation::Ask(ask.clone());
        let answer = self.submit(Which::Asks, operation, Vec::new(), began).await;
        let (sent, answer) = answer.ok_or_else(|| {
            Error::new(ErrorKind::ShutDown, "the runtime that serves this lock has shut down")
        })?;
        let grant = match answer {
            Ok(Reply::Granted(grant)) => grant,
            Ok(Reply::Busy(standing)) => return Ok(Some(All::Busy(standing))),
            Ok(Reply::Gone(_)) => {
                self.give_back(&ask);
                return Ok(None);
            }
            Ok(other) => unreachable!("BUG: the store answered a try for several with {other:?}"),
            Err(error) => {
                // It may have happened: no lease is left behind in doubt.
                self.give_back(&ask);
                return Err(error);
            }
        };
        if let Err(closed) = self.check_open() {
            self.give_back(&ask);
            return Err(closed);
        }
        let from = claim::counts_from(grant.evidence, sent);
        let deadline = claim::deadline_from(from, grant.ttl);
        let guards: Vec<_> = names
            .iter()
            .zip(&grant.blocks)
            .map(|(name, block)| {
                let state = BidState::held(block.first, deadline, sent, self.clock.now());
                let bid = Bid::new(name.clone(), token.clone(), spec.clone(), state);
                let guard = self.adopt(bid, block.first, owner);
                self.events.acquired(&guard, guard.since().since(began), spec.trace_id());
                guard
            })
            .collect();
        Ok(Some(All::Granted(guards)))
    }

    /// Takes a lease that is held already into the books.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        bid: Bid,
        fence: Fence,
        owner: Option<&OwnerId>,
    ) -> Guard {
        let bid = Arc::new(bid);
        let now = self.clock.now();
        self.live.fetch_add(1, Ordering::Relaxed);
        let mut shard = self.table.lock(&bid.name);
        let mut state = bid.state.lock();
        state.owner = owner.cloned();
        state.origin = self.events.origin(bid.spec.trace_id());
        self.order.acquired(owner, &bid.name);
        self.keep(&bid, &mut state, now);
        drop(state);
        shard.insert(bid.clone());
        drop(shard);
        Guard::new(self.clone(), bid, fence)
    }

    /// Releases whatever an ask may have got.
    pub(super) fn give_back(self: &Arc<Self>, ask: &Ask) {
        let release =
            |name: &Name| release_job(name.clone(), ask.token.clone(), std::time::Duration::ZERO);
        self.post(Which::Asks, ask.names.iter().map(release));
    }
}
