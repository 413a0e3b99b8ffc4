//! What this client has in the store: a desk for each token and name, at which one operation at a time is served.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use super::{layout::Watch, record::Record, session::Session};
use crate::{Fence, Mode, Name, Token, clock::Moment, store::Standing};

/// A token's place under one name.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) name: Name,
    pub(super) token: Token,
    pub(super) sits: tokio::sync::Mutex<Sits>,
    /// When it has to be looked after, in nanoseconds.
    due: AtomicU64,
    /// The session that its node is owned by; zero for none.
    session: AtomicI64,
}

/// What is known of it.
#[derive(Debug, Default)]
pub(super) enum Sits {
    #[default]
    Nowhere,
    /// There may be a node of it: the answer was lost. It is cleared away at this moment, unless its token asks again.
    Unsure {
        session: Arc<Session>,
        until: Moment,
    },
    At(Box<Seat>),
}

#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub(super) session: Arc<Session>,
    /// The node's name in the line.
    pub(super) node: String,
    pub(super) version: i32,
    pub(super) record: Record,
    pub(super) mode: Mode,
    pub(super) fence: Fence,
    pub(super) end: Moment,
    /// How long it lasts from when it was last kept.
    pub(super) ttl: Duration,
    pub(super) state: State,
}

impl Seat {
    /// It was kept: it lasts so long from now, or longer if that was promised.
    pub(super) fn keep(&mut self, now: Moment, ttl: Duration) {
        self.end = self.end.max(now + ttl);
        self.ttl = ttl;
    }

    pub(super) fn holds(&self) -> bool {
        matches!(self.state, State::Holds)
    }

    /// When it has to be looked after. A lease that is not kept says so in its node after half of its time.
    pub(super) fn due(&self) -> Moment {
        match self.state {
            State::Holds if self.record.ends_ms.is_none() => self.end.before(self.ttl / 2),
            State::Holds | State::Waits(_) => self.end,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum State {
    /// It waits for this, if it is watched, and was told this of how things stand.
    Waits(Option<(Watch, Standing)>),
    Holds,
}

impl Desk {
    pub(super) fn due(&self) -> Moment {
        Moment::from_nanos(self.due.load(Ordering::Acquire))
    }

    pub(super) fn session(&self) -> Option<i64> {
        Some(self.session.load(Ordering::Acquire)).filter(|id| *id != 0)
    }
}

type Key = (Name, Token);

#[derive(Debug, Default)]
pub(super) struct Desks {
    map: Mutex<HashMap<Key, Arc<Desk>>>,
    /// Who is told when something about a node changes, by session and path.
    watches: Mutex<HashMap<(i64, String), Vec<Key>>>,
}

impl Desks {
    /// The desk of a token, made if there is none.
    pub(super) fn open(&self, name: &Name, token: &Token) -> Arc<Desk> {
        let mut map = self.map.lock();
        let desk = map.entry((name.clone(), token.clone())).or_insert_with(|| {
            Arc::new(Desk {
                name: name.clone(),
                token: token.clone(),
                sits: tokio::sync::Mutex::default(),
                due: AtomicU64::new(u64::MAX),
                session: AtomicI64::new(0),
            })
        });
        desk.clone()
    }

    pub(super) fn find(&self, name: &Name, token: &Token) -> Option<Arc<Desk>> {
        self.map.lock().get(&(name.clone(), token.clone())).cloned()
    }

    /// Ends an operation: what there is to remember is remembered.
    pub(super) fn settle(&self, desk: &Arc<Desk>, sits: tokio::sync::MutexGuard<'_, Sits>) {
        let (due, session) = match &*sits {
            Sits::Nowhere => (Moment::NEVER, 0),
            Sits::Unsure { session, until } => (*until, session.id),
            Sits::At(seat) => (seat.due(), seat.session.id),
        };
        desk.due.store(due.as_nanos(), Ordering::Release);
        desk.session.store(session, Ordering::Release);
        let is_empty = matches!(*sits, Sits::Nowhere);
        drop(sits);
        if is_empty {
            let mut map = self.map.lock();
            // The map's and the caller's: nobody else is about to use it. Else it is cleared away later.
            if Arc::strong_count(desk) == 2 {
                map.remove(&(desk.name.clone(), desk.token.clone()));
            }
        }
    }

    /// Clears away what is empty and nobody uses.
    pub(super) fn sweep(&self) {
        let is_empty = |desk: &Desk| desk.due() == Moment::NEVER && desk.session().is_none();
        self.map.lock().retain(|_, desk| Arc::strong_count(desk) > 1 || !is_empty(desk));
    }

    pub(super) fn all(&self) -> Vec<Arc<Desk>> {
        self.map.lock().values().cloned().collect()
    }

    /// Those that have to be looked after by now, and when the next one has to.
    pub(super) fn due(&self, now: Moment) -> (Vec<Arc<Desk>>, Moment) {
        let map = self.map.lock();
        let (mut due, mut next) = (Vec::new(), Moment::NEVER);
        for desk in map.values() {
            if desk.due() <= now {
                due.push(desk.clone());
            } else {
                next = next.min(desk.due());
            }
        }
        (due, next)
    }

    pub(super) fn watch(&self, session: i64, path: &str, desk: &Desk) {
        let mut watches = self.watches.lock();
        let told = watches.entry((session, path.to_owned())).or_default();
        if !told.iter().any(|(name, token)| *token == desk.token && *name == desk.name) {
            told.push((desk.name.clone(), desk.token.clone()));
        }
    }

    /// Who is to be told that something changed; a watch tells once.
    pub(super) fn watching(&self, session: i64, path: &str) -> Vec<Arc<Desk>> {
        let told = self.watches.lock().remove(&(session, path.to_owned())).unwrap_or_default();
        told.iter().filter_map(|(name, token)| self.find(name, token)).collect()
    }

    /// Takes a watch back that was not set after all, or whose waiter has gone.
    pub(super) fn unwatch(&self, session: i64, path: &str, desk: &Desk) {
        let mut watches = self.watches.lock();
        let key = (session, path.to_owned());
        if let Some(told) = watches.get_mut(&key) {
            told.retain(|(name, token)| *token != desk.token || *name != desk.name);
            if told.is_empty() {
                watches.remove(&key);
            }
        }
    }

    /// Forgets the watches of a connection that has gone.
    pub(super) fn forget_watches(&self, session: i64) {
        self.watches.lock().retain(|(of, _), _| *of != session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_empty_is_forgotten() {
        let (desks, name) = (Desks::default(), Name::new("x").expect("good"));
        let [one, other] = [1, 2].map(|random| Token::new(random, Arc::from("h:1")));
        let desk = desks.open(&name, &one);
        desks.settle(&desk, desk.sits.lock().await);
        assert!(desks.find(&name, &one).is_none());
        let (desk, same) = (desks.open(&name, &other), desks.open(&name, &other));
        desks.settle(&desk, desk.sits.lock().await);
        assert!(desks.find(&name, &other).is_some(), "somebody is about to use it");
        drop((desk, same));
        desks.sweep();
        assert!(desks.find(&name, &other).is_none());
    }
}
