//! A try: never with a place in a queue.

use super::{
    ask::{Asking, At, standing},
    client::Client,
    keeper::LATE_AGAIN,
    proto::TxnRequest,
    queue::{self, Place, Stand},
    requests::{delete, nested},
};
use crate::{
    clock::Moment,
    store::{Answer, Ask, Reply, capacity_error},
};

impl Client {
    /// What a try that did not find the name free came to.
    pub(super) async fn tried(
        &self,
        asking: &Asking,
        ask: &Ask,
        places: &[Place],
        at: At,
        now: Moment,
    ) -> Answer {
        let own = |places: &[Place]| places.iter().find(|place| place.key == asking.key).cloned();
        let created = |places: &[Place]| (at.0, own(places).map_or(0, |own| own.create));
        let before = queue::stand(places, &asking.key);
        if before == Stand::Holds {
            if let Some(answer) = self.unusable(asking, ask, own(places).as_ref(), &[]).await {
                return answer;
            }
            return self.grant(asking, ask, created(places), now, 0).await;
        }
        if before == Stand::Missing && queue::admits(places, ask.mode) {
            // Others of our mode are there: a place behind them is as good as the first.
            let success = vec![nested(asking.joins())];
            let answer = self.write(TxnRequest { success, ..TxnRequest::default() }).await;
            let answer = answer.inspect_err(|_| self.in_doubt(asking))?;
            let joined = answer.responses.into_iter().next().map(|joined| {
                let last = joined.txn().responses.pop().unwrap_or_default();
                queue::read(last.range().kvs)
            });
            let joined = joined.unwrap_or_default();
            if queue::stand(&joined, &asking.key) == Stand::Holds {
                return self.grant(asking, ask, created(&joined), now, 0).await;
            }
        }
        self.undo(asking).await;
        if let Some(capacity) = queue::other_capacity(places, ask.mode) {
            return Err(capacity_error(&ask.name, capacity));
        }
        let waiting = places.len() - queue::holders(places);
        Ok(Reply::Busy(standing(places, waiting)))
    }

    /// Takes back what an ask may have put, and those before it for the same token.
    pub(super) async fn undo(&self, asking: &Asking) {
        let success = vec![delete(&asking.key)];
        let done = self.write(TxnRequest { success, ..TxnRequest::default() }).await.is_ok();
        let again = self.clock.now() + LATE_AGAIN;
        self.table.lock().undone(&asking.key, done, again);
        self.look_by(again);
    }
}
