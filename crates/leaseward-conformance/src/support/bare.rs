//! A client without an engine: what the seam promises is shown by asking a store directly.

use std::{sync::Arc, time::Duration};

use leaseward::{
    LostReason, Mode, Name, Token,
    store::{Answer, Ask, Grant, IfBusy, Operation, Release, Renew, Reply, Store},
};

/// One client of a store, and nobody who does anything for it.
#[derive(Debug)]
pub struct Bare {
    /// The store.
    pub store: Arc<dyn Store>,
    who: Arc<str>,
}

impl Bare {
    pub(crate) fn new(store: Arc<dyn Store>, who: Arc<str>) -> Self {
        // Pushes go nowhere: this client only knows what it asks.
        store.start(Arc::new(|_| {}));
        Self { store, who }
    }

    /// A new token.
    pub fn token(&self) -> Token {
        Token::new(rand::random(), self.who.clone())
    }

    /// A plain ask, to be changed and sent.
    pub fn asks_for(&self, name: &str, token: &Token, ttl: Duration, if_busy: IfBusy) -> Ask {
        Ask {
            name: Name::new(name).expect("a good name"),
            token: token.clone(),
            mode: Mode::Exclusive,
            ttl,
            if_busy,
            block: 1,
            value: None,
        }
    }

    /// Sends one operation.
    pub async fn send(&self, operation: Operation) -> Answer {
        self.store.carry_out(vec![operation]).await.pop().expect("an answer for each operation")
    }

    /// Asks for a name that must be granted.
    pub async fn granted(&self, ask: Ask) -> Grant {
        match self.send(Operation::Ask(ask)).await {
            Ok(Reply::Granted(grant)) => grant,
            other => panic!("a grant was expected, not {other:?}"),
        }
    }

    /// Takes a name, or a place in its queue.
    pub async fn ask(&self, name: &str, token: &Token, ttl: Duration) -> Reply {
        let ask = self.asks_for(name, token, ttl, IfBusy::Queue);
        self.send(Operation::Ask(ask)).await.expect("the store answers")
    }

    /// Renews a lease; why not, if it is not.
    pub async fn renew(&self, name: &str, token: &Token, ttl: Duration) -> Result<(), LostReason> {
        let name = Name::new(name).expect("a good name");
        let renew = Renew { name, token: token.clone(), ttl };
        match self.send(Operation::Renew(renew)).await {
            Ok(Reply::Renewed(_)) => Ok(()),
            Ok(Reply::NotYours(reason)) => Err(reason),
            other => panic!("not an answer to a renewal: {other:?}"),
        }
    }

    /// Releases a token; why not, if there was nothing to release.
    pub async fn release(&self, name: &str, token: &Token) -> Result<(), LostReason> {
        let name = Name::new(name).expect("a good name");
        let release = Release { name, token: token.clone(), keep: Duration::ZERO };
        match self.send(Operation::Release(release)).await {
            Ok(Reply::Released) => Ok(()),
            Ok(Reply::NotYours(reason)) => Err(reason),
            other => panic!("not an answer to a release: {other:?}"),
        }
    }
}
