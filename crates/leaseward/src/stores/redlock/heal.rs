//! A node that was away when a lease began, or has lost it, gets it at the next renewal: so that a lease outlives its
//! nodes' restarts, one after the other.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
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

/// The leases that are being renewed, and perhaps put somewhere: what is given back meanwhile must not come back.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    tokens: Mutex<HashMap<Token, Renewal>>,
    /// How many there are: nearly always none.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Renewal {
    /// How many renewals are under way, and what follows from them.
    users: usize,
    is_healing: bool,
    is_given_back: bool,
}

/// As long as this lives, the renewals of a batch are under way.
#[derive(Debug)]
pub(super) struct UnderWay {
    renewals: Arc<Renewals>,
    tokens: Vec<Token>,
}

impl Renewals {
    /// The renewals of a batch begin.
    pub(super) fn begin(self: &Arc<Self>, batch: &[Operation]) -> Option<UnderWay> {
        let tokens: Vec<_> = batch
            .iter()
            .filter_map(|operation| match operation {
                Operation::Renew(renew) => Some(renew.token.clone()),
                Operation::Ask(_) | Operation::Release(_) => None,
            })
            .collect();
        (!tokens.is_empty()).then(|| self.watch(tokens))
    }

    fn watch(self: &Arc<Self>, tokens: Vec<Token>) -> UnderWay {
        let mut all = self.tokens.lock();
        for token in &tokens {
            all.entry(token.clone()).or_default().users += 1;
        }
        self.count.store(all.len(), Ordering::SeqCst);
        UnderWay { renewals: self.clone(), tokens }
    }

    /// Its holder gives a lease back.
    pub(super) fn give_back(&self, token: &Token) {
        if self.count.load(Ordering::SeqCst) > 0
            && let Some(renewal) = self.tokens.lock().get_mut(token)
        {
            renewal.is_given_back = true;
        }
    }

    fn is_given_back(&self, token: &Token) -> bool {
        self.tokens.lock().get(token).is_none_or(|renewal| renewal.is_given_back)
    }

    /// Begins to put a lease somewhere, unless that is under way already.
    fn heal(self: &Arc<Self>, token: &Token) -> Option<UnderWay> {
        let under_way = self.watch(vec![token.clone()]);
        let mut all = self.tokens.lock();
        let was_healing =
            all.get_mut(token).map(|one| std::mem::replace(&mut one.is_healing, true));
        drop(all);
        (was_healing == Some(false)).then_some(under_way)
    }

    fn healed(&self, token: &Token) {
        if let Some(renewal) = self.tokens.lock().get_mut(token) {
            renewal.is_healing = false;
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut all = self.renewals.tokens.lock();
        for token in &self.tokens {
            if let Some(renewal) = all.get_mut(token) {
                renewal.users -= 1;
                if renewal.users == 0 {
                    all.remove(token);
                }
            }
        }
        self.renewals.count.store(all.len(), Ordering::SeqCst);
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
        if at.is_empty() {
            return;
        }
        let Some(under_way) = self.renewals.heal(&renew.token) else { return };
        let (client, renew) = (self.clone(), renew.clone());
        self.spawn(async move {
            if let Some(shown) = client.lease_of(&renew).await {
                client.put(&renew, &shown, &at).await;
            }
            client.renewals.healed(&renew.token);
            drop(under_way);
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
        let put = Call::new(self.prefix.clone(), batch.clone(), Care::Careful, steps);
        self.tell(Arc::new(put), at).await;
        if self.renewals.is_given_back(&renew.token) {
            // Perhaps before it arrived.
            let steps = vec![Step::Undo(0, shown.ballot)];
            self.tell(Arc::new(Call::new(self.prefix.clone(), batch, Care::Careful, steps)), at)
                .await;
        }
    }
}

fn ask_of(renew: &Renew, shown: &Shown) -> Ask {
    Ask {
        name: renew.name.clone(),
        token: renew.token.clone(),
        mode: shown.view.mode,
        ttl: renew.ttl,
        if_busy: IfBusy::Tell,
        block: 1,
        value: shown.view.value.clone(),
    }
}
