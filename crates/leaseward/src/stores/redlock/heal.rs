//! A node that was away when a lease began, or has lost it, gets it at the next renewal: so that a lease outlives its
//! nodes' restarts, one after the other.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    client::Client,
    quorum::{Kept, Vote},
    round::{Outcome, Verdict},
    votes::{Reply, Shown},
    wire::{Call, Care, Step},
};
use crate::{
    Token,
    store::{Ask, IfBusy, Operation, Renew},
};

/// The leases that are being put somewhere.
#[derive(Debug, Default)]
pub(super) struct Healing {
    tokens: Mutex<HashSet<Token>>,
    /// How many there are: nearly always none.
    count: AtomicUsize,
}

impl Healing {
    /// Whether it was not under way already.
    fn begin(&self, token: &Token) -> bool {
        let mut tokens = self.tokens.lock();
        let is_new = tokens.insert(token.clone());
        self.count.store(tokens.len(), Ordering::SeqCst);
        is_new
    }

    /// It is done, or its holder gives the lease back; says whether neither had happened yet.
    pub(super) fn end(&self, token: &Token) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut tokens = self.tokens.lock();
        let was_there = tokens.remove(token);
        self.count.store(tokens.len(), Ordering::SeqCst);
        was_there
    }
}

/// The nodes that are free for a lease that was lengthened at others.
pub(super) fn free_at(outcome: &Outcome, place: usize) -> Vec<usize> {
    let votes = outcome.heard.iter().zip(&outcome.votes[place]);
    votes.filter(|(_, vote)| is_free(vote)).map(|(at, _)| *at).collect()
}

/// What is odd is looked at when it is put there.
fn is_free(vote: &Vote) -> bool {
    matches!(vote, Vote::Odd | Vote::NotYours { free: true, .. })
}

/// The places of renewals that a majority agreed to.
pub(super) fn renewed(outcome: &Outcome) -> Vec<usize> {
    let is_renewed =
        |verdict: &Option<Verdict>| matches!(verdict, Some(Verdict::Renewed(Kept::Done)));
    (0..outcome.verdicts.len()).filter(|place| is_renewed(&outcome.verdicts[*place])).collect()
}

impl Client {
    /// Hears a node after the others have decided.
    pub(super) fn heal_late(
        self: &Arc<Self>,
        call: &Call,
        renewed: &[usize],
        at: usize,
        mut reply: Reply,
    ) {
        for (place, step) in call.steps.iter().enumerate() {
            let Ok(vote) = reply.next(call, step) else { return };
            if let Step::Plain(operation) = step
                && let Operation::Renew(renew) = &call.batch[*operation]
                && is_free(&vote)
                && renewed.contains(&place)
            {
                self.heal(renew, vec![at]);
            }
        }
    }

    /// Puts a lease that a majority has lengthened just now to nodes that are free for it.
    ///
    /// That is no vote on anything: whether it is held was decided by the others. So the node may take it although it is
    /// older than what it grants; and because its holder renews and never asks again, no majority of asks counts it.
    pub(super) fn heal(self: &Arc<Self>, renew: &Renew, at: Vec<usize>) {
        if at.is_empty() || !self.healing.begin(&renew.token) {
            return;
        }
        let (client, renew) = (self.clone(), renew.clone());
        self.spawn(async move {
            if let Some(shown) = client.lease_of(&renew).await {
                client.put(&renew, &shown, &at).await;
            }
            client.healing.end(&renew.token);
        });
    }

    /// How the nodes that have it show a lease.
    async fn lease_of(&self, renew: &Renew) -> Option<Shown> {
        let token = renew.token.reveal();
        let seen = self.look(std::slice::from_ref(&renew.name)).await.ok()?;
        let all: Vec<_> = seen
            .into_iter()
            .flat_map(|names| names.into_iter().flatten())
            .filter(|shown| shown.token == token && !shown.view.ending)
            .collect();
        let same = |one: &&Shown| all.iter().filter(|other| other.ballot == one.ballot).count();
        all.iter().max_by_key(same).cloned()
    }

    async fn put(self: &Arc<Self>, renew: &Renew, shown: &Shown, at: &[usize]) {
        let batch = Arc::new(vec![Operation::Ask(ask_of(renew, shown))]);
        let steps = vec![Step::Heal(0, shown.ballot)];
        self.tell(
            Arc::new(Call::new(self.prefix.clone(), batch.clone(), Care::Careful, steps)),
            at,
        )
        .await;
        if !self.healing.end(&renew.token) {
            // Given back meanwhile, perhaps before it arrived.
            let steps = vec![Step::Undo(0, shown.ballot)];
            self.tell(Arc::new(Call::new(self.prefix.clone(), batch, Care::Careful, steps)), at)
                .await;
        }
    }
}

fn ask_of(renew: &Renew, shown: &Shown) -> Ask {
    Ask {
        names: smallvec::smallvec![renew.name.clone()],
        token: renew.token.clone(),
        mode: shown.view.mode,
        ttl: renew.ttl,
        if_busy: IfBusy::Tell,
        block: 1,
        lock_delay: Duration::from_millis(shown.delay_ms),
        value: shown.view.value.clone(),
    }
}
