//! A try: for one name or several, all or none, and never with a place in a queue.

use super::{
    ask::{Asking, At, standing},
    client::Client,
    error,
    keeper::LATE_AGAIN,
    proto::{ResponseOp, TxnRequest},
    queue::{self, Place, Stand},
    requests::{delete, nested},
};
use crate::{
    clock::Moment,
    store::{Answer, Ask, Reply, capacity_error},
};

impl Client {
    /// What a try that did not find everything free came to.
    pub(super) async fn tried(
        &self,
        asking: &Asking,
        ask: &Ask,
        rooms: &[Vec<Place>],
        at: At,
        now: Moment,
    ) -> Answer {
        let stands = |rooms: &[Vec<Place>]| {
            let stands = asking.parts.iter().zip(rooms);
            stands.map(|(part, places)| queue::stand(places, &part.key)).collect::<Vec<_>>()
        };
        let created = |rooms: &[Vec<Place>], which: usize| {
            let own = rooms[which].iter().find(|place| place.key == asking.parts[which].key);
            own.map_or(0, |own| own.create)
        };
        let before = stands(rooms);
        if before.iter().all(|stand| *stand == Stand::Holds) {
            let own = rooms[0].iter().find(|place| place.key == asking.parts[0].key);
            if let Some(answer) = self.unusable(asking, ask, own, &[]).await {
                return answer;
            }
            return self.grant(asking, ask, at.0, |which| created(rooms, which), now, 0).await;
        }
        let is_new = before.iter().all(|stand| *stand == Stand::Missing);
        let in_the_way = rooms.iter().find(|places| !queue::admits(places, ask.mode));
        if let (true, None) = (is_new, in_the_way) {
            // Others of our mode are there: a place behind them is as good as the first.
            let success = asking.parts.iter().map(|part| nested(asking.joins(part))).collect();
            let answer = self.write(TxnRequest { success, ..TxnRequest::default() }).await;
            let answer = answer.inspect_err(|_| self.in_doubt(asking))?;
            let last_range = |part: ResponseOp| {
                let last = part.txn().responses.pop().unwrap_or_default();
                queue::read(last.range().kvs)
            };
            let rooms: Vec<_> = answer.responses.into_iter().map(last_range).collect();
            if rooms.len() == asking.parts.len()
                && stands(&rooms).iter().all(|stand| *stand == Stand::Holds)
            {
                return self.grant(asking, ask, at.0, |which| created(&rooms, which), now, 0).await;
            }
        }
        self.undo(asking).await;
        let (name, places) = ask
            .names
            .iter()
            .zip(rooms)
            .find(|(_, places)| !queue::admits(places, ask.mode))
            .or_else(|| ask.names.iter().zip(rooms).next())
            .ok_or_else(error::unexpected)?;
        if ask.names.len() == 1
            && let Some(capacity) = queue::other_capacity(places, ask.mode)
        {
            return Err(capacity_error(name, capacity));
        }
        let waiting = places.len() - queue::holders(places);
        Ok(Reply::Busy(standing(places, waiting)))
    }

    /// Takes back what an ask may have put, and those before it for the same token.
    pub(super) async fn undo(&self, asking: &Asking) {
        let success = asking.parts.iter().map(|part| delete(&part.key)).collect();
        let done = self.write(TxnRequest { success, ..TxnRequest::default() }).await.is_ok();
        let again = self.clock.now() + LATE_AGAIN;
        let mut table = self.table.lock();
        for part in &asking.parts {
            table.undone(&part.key, done, again);
        }
        drop(table);
        self.look_by(again);
    }
}
