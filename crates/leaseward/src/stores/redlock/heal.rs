//! A node that was away when a lease began, or has lost it, gets it at the next renewal: so that a lease outlives its
//! nodes' restarts, one after the other.

use std::sync::Arc;

use super::{
    client::Client,
    quorum::Vote,
    votes::Shown,
    wire::{Call, Care, Step},
};
use crate::{
    Value,
    store::{Ask, IfBusy, Operation, Renew},
};

/// Whether a majority has a lease that a node is free for.
pub(super) fn is_needed(votes: &[Vote]) -> bool {
    votes.iter().any(|vote| matches!(vote, Vote::NotYours { free: true, .. }))
}

impl Client {
    /// Asks the nodes that are free for the lease under the ballot it has at the others. They test it as any other (rule
    /// R14); a majority has lengthened it just now, so nothing is revived.
    pub(super) fn heal(self: &Arc<Self>, renew: &Renew) {
        let (client, renew) = (self.clone(), renew.clone());
        self.spawn(async move {
            let token = renew.token.reveal();
            let Ok(shown) = client.look(std::slice::from_ref(&renew.name)).await else { return };
            let mut all = shown.iter().flat_map(|names| names.iter().flatten());
            let Some(shown) = all.find(|shown| shown.token == token) else { return };
            let batch = Arc::new(vec![Operation::Ask(ask_of(&renew, shown))]);
            let steps = vec![Step::Ask(0, shown.ballot)];
            client
                .round(Arc::new(Call::new(client.prefix.clone(), batch, Care::Careful, steps)))
                .await;
        });
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
        lock_delay: std::time::Duration::from_millis(shown.delay_ms),
        value: shown.view.value.as_ref().and_then(|value| Value::new(value.as_bytes()).ok()),
    }
}
