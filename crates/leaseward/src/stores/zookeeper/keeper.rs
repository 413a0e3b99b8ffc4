//! What has to happen although nobody asks: leases and places that nobody keeps end, and sessions nobody uses.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use futures_util::future::join_all;

use super::client::Client;
use crate::clock::Moment;

/// What could not be waiting is tried again after this.
const AGAIN: Duration = Duration::from_millis(50);

/// A session that owns nothing is closed after this long, unless it is the only one.
const IDLE: Duration = Duration::from_secs(60);

/// How often that is looked at.
const LOOK: Duration = Duration::from_secs(5);

pub(super) fn start(client: &Arc<Client>) {
    tokio::spawn(keep(Arc::downgrade(client)));
}

async fn keep(client: Weak<Client>) {
    let mut idle = HashMap::new();
    let (mut again, mut look) = (Moment::from_nanos(0), Moment::from_nanos(0));
    loop {
        let Some(this) = client.upgrade() else { return };
        if this.is_closed() {
            return;
        }
        this.keeper_due.store(u64::MAX, Ordering::Release);
        let now = this.now();
        let (waiting, next) = this.desks.due(now);
        let due = if waiting.is_empty() || now < again {
            next.min(if waiting.is_empty() { Moment::NEVER } else { again })
        } else {
            join_all(waiting.iter().map(|desk| this.look_after(desk))).await;
            again = this.now() + AGAIN;
            again.min(next)
        };
        if now >= look {
            drop_idle(&this, &mut idle, now);
            this.desks.sweep();
            look = now + LOOK;
        }
        let due = due.min(look);
        this.keeper_due.fetch_min(due.as_nanos(), Ordering::AcqRel);
        let (sooner, clock) = (this.sooner.clone(), this.ground.clock.clone());
        drop(this);
        tokio::select! {
            () = clock.sleep_until(due) => {}
            () = sooner.notified() => {}
        }
    }
}

/// Closes sessions that nothing was on for a while.
fn drop_idle(client: &Client, idle: &mut HashMap<i64, Moment>, now: Moment) {
    let sessions = client.sessions();
    let used: HashSet<i64> = client.desks.all().iter().filter_map(|desk| desk.session()).collect();
    idle.retain(|id, _| !used.contains(id) && sessions.iter().any(|session| session.id == *id));
    let mut left = sessions.len();
    for session in sessions.iter().filter(|session| !used.contains(&session.id)) {
        let since = *idle.entry(session.id).or_insert(now);
        if left > 1 && now.since(since) >= IDLE {
            // From here on nobody finds it; whoever has just found it is told that it is over, and asks again.
            client.forget_session(session);
            session.close(true);
            left -= 1;
        }
    }
}
