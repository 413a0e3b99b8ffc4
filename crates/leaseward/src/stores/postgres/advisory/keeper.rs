//! What has to happen although nobody asks: leases that nobody renews end, and the session is heard of.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, Weak, atomic::Ordering},
    task::Poll,
    time::Duration,
};

use super::{client::Client, plan::Plan, session::Session, statement::Step};
use crate::clock::Moment;

/// The server is told of a shorter time only after this long, so that locks that come and go cost nothing.
const LOWER_AFTER: Duration = Duration::from_secs(1);

pub(super) fn start(client: &Arc<Client>) {
    client.runtime.spawn(keep(Arc::downgrade(client)));
}

async fn keep(client: Weak<Client>) {
    let mut lower_at = None;
    loop {
        let Some(this) = client.upgrade() else { return };
        if this.is_closed() {
            return;
        }
        let due = tend(&this, &mut lower_at).await;
        let (sooner, clock) = (this.sooner.clone(), this.clock.clone());
        drop(this);
        first_of(clock.sleep_until(due), sooner.notified()).await;
    }
}

/// Does what is due; answers when to look again.
async fn tend(client: &Arc<Client>, lower_at: &mut Option<Moment>) -> Moment {
    let turn = client.turn.lock().await;
    // From here on whoever needs it sooner says so.
    client.keeper_due.store(u64::MAX, Ordering::Release);
    let Some(session) = client.current() else { return Moment::NEVER };
    let now = client.clock.now();
    let mut plan = Plan::default();
    plan.expire(&mut session.table.lock(), now);
    let third = session.idle() / 3;
    if plan.steps.is_empty() && !third.is_zero() && now.since(session.used()) >= third {
        plan.steps.push(Step::Probe);
    }
    if !plan.steps.is_empty() && session.run(&plan.steps, now).await.is_err() {
        // What should have been given back must not stay: the server frees it with the session.
        session.end();
        return Moment::NEVER;
    }
    if lower(&session, lower_at, now).await.is_err() {
        session.end();
        return Moment::NEVER;
    }
    drop(turn);
    client.wake(&plan.freed);
    let heard =
        if session.idle().is_zero() { Moment::NEVER } else { session.used() + session.idle() / 3 };
    let due = session.table.lock().next_end().min(heard).min(lower_at.unwrap_or(Moment::NEVER));
    client.keeper_due.fetch_min(due.as_nanos(), Ordering::AcqRel);
    due
}

/// Has the server wait less for a word of this session, once nothing held needs it to wait so long.
async fn lower(
    session: &Session,
    lower_at: &mut Option<Moment>,
    now: Moment,
) -> Result<(), super::session::Failed> {
    let needed = session.table.lock().longest();
    if needed >= session.idle() {
        *lower_at = None;
        return Ok(());
    }
    match *lower_at {
        Some(at) if now >= at => {
            *lower_at = None;
            session.set_idle(needed, now).await
        }
        Some(_) => Ok(()),
        None => {
            *lower_at = Some(now + LOWER_AFTER);
            Ok(())
        }
    }
}

/// Waits for whichever of two comes first.
async fn first_of<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| {
        let is_ready =
            one.as_mut().poll(context).is_ready() || other.as_mut().poll(context).is_ready();
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
