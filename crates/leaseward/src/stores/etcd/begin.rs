//! How an ask begins: what is known of its token, the lease of etcd's that will carry it, its key.

use std::{sync::Arc, time::Duration};

use super::{
    ask::Asking,
    client::Client,
    leases::ClassLease,
    record::Record,
    submit::in_doubt,
    table::{Entry, State},
};
use crate::{
    Error, LostReason, Mode,
    store::{Answer, Ask, Reply},
};

impl Client {
    /// Prepares an ask, or answers it at once.
    pub(super) async fn begin_ask(&self, ask: &Ask) -> Result<Asking, Answer> {
        self.check_known(ask, None)?;
        let known = self.table.lock().key_of(&ask.name, &ask.token).cloned();
        let lease = self.lease_for(known.as_deref(), ask.ttl).await.map_err(Err)?;
        // That may have taken a while, and the lease that carried it may be dead.
        self.check_known(ask, Some(&lease))?;
        let now = self.clock.now();
        let wall = self.clock.wall_us();
        let record = Record::new(&ask.token, ask.mode, ask.ttl, wall, ask.value.as_ref());
        let mut table = self.table.lock();
        let known = table.key_of(&ask.name, &ask.token).cloned();
        let key = known.unwrap_or_else(|| table.seat(&self.keys, &ask.name));
        // Before anything is sent: what may be in etcd is known here, and does not outlive its time.
        if let Some(entry) = table.get_mut(&key) {
            entry.block = entry.block.max(ask.block);
            // What was asked before may still be under way.
            entry.is_plain = false;
            entry.under_way += 1;
        } else {
            let entry = Entry {
                name: ask.name.clone(),
                token: ask.token.clone(),
                mode: ask.mode,
                ttl: ask.ttl,
                expires: now + in_doubt(ask),
                lease: lease.clone(),
                agreed: lease.confirmed(),
                create: 0,
                block: ask.block,
                slot: None,
                // A semaphore's slots are given by others, too.
                is_plain: !matches!(ask.mode, Mode::Permit { .. }),
                under_way: 1,
                is_doubtful: false,
                late_until: None,
                state: State::Asked,
            };
            table.insert(key.clone(), entry);
        }
        drop(table);
        self.look_by(now + in_doubt(ask));
        let room = self.keys.room(&ask.name);
        Ok(Asking { key, room, lease, record, if_busy: ask.if_busy })
    }

    /// The lease that carries a key already, if it will do; else the one for this TTL.
    async fn lease_for(&self, key: Option<&[u8]>, ttl: Duration) -> Result<Arc<ClassLease>, Error> {
        let carrying = key.and_then(|key| Some(self.table.lock().get(key)?.lease.clone()));
        if let Some(lease) = carrying.filter(|lease| lease.carries(ttl))
            && (lease.is_fresh(self.clock.now())
                || self.leases.refresh(&self.link, &*self.clock, &lease).await?)
        {
            return Ok(lease);
        }
        self.leases.for_ttl(&self.link, &*self.clock, ttl).await
    }

    /// What needs no asking: a token that has ended, or whose key another lease carries than the one it would be asked for
    /// with. A key is only ever put with the lease that is known to carry it: whoever deletes it goes by that.
    fn check_known(&self, ask: &Ask, lease: Option<&Arc<ClassLease>>) -> Result<(), Answer> {
        let now = self.clock.now();
        let mut table = self.table.lock();
        let Some(key) = table.key_of(&ask.name, &ask.token).cloned() else { return Ok(()) };
        let Some(entry) = table.get_mut(&key) else { return Ok(()) };
        let is_carried = lease.is_none_or(|lease| Arc::ptr_eq(lease, &entry.lease));
        let reason = match entry.state {
            State::Ended(reason) => reason,
            _ if entry.expires <= now => LostReason::Expired,
            _ if !is_carried => LostReason::SessionEnded,
            State::Asked | State::Queued { .. } | State::Held { .. } => return Ok(()),
        };
        entry.state = State::Ended(reason);
        // The keeper deletes what may be left of it.
        table.ends_at(&key, now);
        drop(table);
        self.look_by(now);
        Err(Ok(Reply::Gone(reason)))
    }
}
