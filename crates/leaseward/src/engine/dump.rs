//! What an engine has and waits for, as text: for logs and bug reports of a wait that takes too long.

use std::{fmt, sync::Arc, time::Duration};

use super::{Engine, acquisition::Obstacle, cell::TokenCell};
use crate::clock::Moment;

/// Tokens that are shown; of a hundred thousand leases nobody reads more.
const SHOWN: usize = 64;

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = self.table.select(|_| true);
        let shown: Vec<_> =
            tokens.iter().take(SHOWN).map(|cell| Shown { engine: self, cell }).collect();
        f.debug_struct("Engine")
            .field("who", &self.who)
            .field("store", &self.store)
            .field("breaker", &*self.breaker.lock())
            .field("lane", &self.lane)
            .field("tokens", &shown)
            .field("more_tokens", &tokens.len().saturating_sub(SHOWN))
            .finish_non_exhaustive()
    }
}

/// A token as it is shown: no secret, and times from now on.
struct Shown<'a> {
    engine: &'a Engine,
    cell: &'a Arc<TokenCell>,
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = self.engine.clock.now();
        let left = |at: Moment| -> Duration { at.since(now) };
        let mut shown = f.debug_struct("Token");
        shown.field("name", &self.cell.name).field("token", &self.cell.token.prefix());
        let mut shard = self.engine.table.lock(self.cell.hash);
        let Some(entry) = shard.names.find(self.cell) else { return shown.finish_non_exhaustive() };
        let wakes_at = self.cell.wakes_at();
        let obstacle = match entry.acquisition.obstacle() {
            Some(Obstacle::Standing(standing)) => format!("{standing:?}"),
            Some(Obstacle::Away(error)) => error.message().to_owned(),
            None => String::new(),
        };
        shown
            .field("phase", &entry.acquisition.phase())
            .field("ends_in", &entry.acquisition.held().map(|held| left(held.deadline())))
            .field("waiters", &entry.acquisition.callers().len())
            .field("unanswered", &entry.acquisition.unanswered())
            .field("failures", &entry.acquisition.failures())
            .field("wakes_in", &(wakes_at != Moment::NEVER).then(|| left(wakes_at)))
            .field("obstacle", &obstacle)
            .finish()
    }
}
