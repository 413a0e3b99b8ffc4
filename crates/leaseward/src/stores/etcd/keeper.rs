//! Ends tokens that nobody renews: their process lives, so etcd would keep them.

use std::{sync::Arc, time::Duration};

use super::{
    client::Client,
    conn::TXN,
    error::Asked,
    proto::{TxnRequest, TxnResponse},
    requests::{delete, is_leased, nested},
    table::{Entry, State},
    watch::Order,
};
use crate::{LostReason, clock::Moment};

/// Between attempts to delete what has ended.
const AGAIN: Duration = Duration::from_millis(200);

/// Between looks for what arrives after its release.
pub(super) const LATE_AGAIN: Duration = Duration::from_secs(1);

/// Keys deleted in one transaction.
const TOGETHER: usize = 64;

pub(super) async fn run(client: Arc<Client>) {
    loop {
        let mut sooner = std::pin::pin!(client.sooner.notified());
        sooner.as_mut().enable();
        let next = client.table.lock().next_end();
        if next == Moment::NEVER {
            sooner.await;
        } else {
            tokio::select! {
                () = client.clock.sleep_until(next) => {}
                () = sooner => {}
            }
        }
        let over = client.table.lock().expired(client.clock.now());
        for keys in over.chunks(TOGETHER) {
            client.expire(keys).await;
        }
    }
}

impl Client {
    /// Has the keeper look by this moment at the latest.
    pub(super) fn look_by(&self, at: Moment) {
        let mut table = self.table.lock();
        let is_sooner = at < table.next_end();
        table.ends(at);
        drop(table);
        if is_sooner {
            self.sooner.notify_one();
        }
    }

    async fn expire(&self, keys: &[Vec<u8>]) {
        let now = self.clock.now();
        let mut over = Vec::with_capacity(keys.len());
        {
            let mut table = self.table.lock();
            for key in keys {
                let Some(entry) = table.get_mut(key) else { continue };
                if entry.expires > now {
                    // Renewed since; it was left out when the next end was looked for.
                    let expires = entry.expires;
                    table.ends(expires);
                    continue;
                }
                // From here on no ask finds it alive, whatever stands in etcd.
                let reason = match entry.state {
                    State::Ended(reason) => reason,
                    _ => LostReason::Expired,
                };
                if entry.may_arrive() {
                    entry.ends_late(reason, now);
                }
                entry.state = State::Ended(reason);
                // It is deleted by its key.
                entry.is_plain = false;
                over.push((key.clone(), entry.clone()));
            }
        }
        if over.is_empty() {
            return;
        }
        let success = over.iter().map(|(key, entry)| nested(self.deletion(key, entry))).collect();
        let txn = TxnRequest { success, ..TxnRequest::default() };
        let done = self.link.call::<_, TxnResponse>(TXN, Asked::Write, txn).await.is_ok();
        let mut table = self.table.lock();
        for (key, entry) in over {
            let Some(entry) = table.get(&key).filter(|left| left.is_of(&entry.token)) else {
                continue;
            };
            let expires = entry.expires;
            let is_late = entry.late_until.is_some_and(|until| now < until);
            if expires > now {
                // An ask for it was answered meanwhile, so it may be there again.
                table.ends(expires);
            } else if entry.lease.is_dead() || done && !is_late {
                table.remove(&key);
                self.order(Order::Forget(key));
            } else {
                let again = now + if done { LATE_AGAIN } else { AGAIN };
                table.ends_at(&key, again);
                table.ends(again);
            }
        }
    }

    /// Deletes a key that is still carried by our lease: another process may have taken it over.
    fn deletion(&self, key: &[u8], entry: &Entry) -> TxnRequest {
        let slot = entry.slot.map(|slot| delete(&self.keys.slot(&entry.name, slot)));
        TxnRequest {
            compare: vec![is_leased(key, entry.lease.id)],
            success: [delete(key)].into_iter().chain(slot).collect(),
            failure: Vec::new(),
        }
    }
}
