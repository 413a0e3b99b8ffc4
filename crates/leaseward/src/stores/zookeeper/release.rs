//! Giving back a lease, or a place in the line.

use std::time::Duration;

use super::{
    client::Client,
    desk::{Desk, Sits},
    record::Record,
    renew::slot_path,
    session::Fault,
    wire::{Body, Code, Request},
};
use crate::{
    Error, LostReason, Name, Token,
    store::{Answer, Reply},
};

impl Client {
    pub(super) async fn release(&self, name: &Name, token: &Token) -> Answer {
        let desk = self.desks.open(name, token);
        let mut sits = desk.sits.lock().await;
        let answer = self.release_at(&desk, &mut sits).await;
        self.settle(&desk, sits);
        answer
    }

    async fn release_at(&self, desk: &Desk, sits: &mut Sits) -> Answer {
        let lost = Ok(Reply::NotYours(LostReason::NotOurs));
        match sits {
            Sits::At(seat) if seat.session.is_over() => {
                *sits = Sits::Nowhere;
                return Ok(Reply::NotYours(LostReason::SessionEnded));
            }
            Sits::At(_) => {
                return if self.remove(desk, sits, false).await? {
                    Ok(Reply::Released)
                } else {
                    lost
                };
            }
            Sits::Nowhere | Sits::Unsure { .. } => {}
        }
        // Another process's, or one of ours whose answer was lost.
        let was_there = self.clear(desk, sits, false).await?;
        if was_there { Ok(Reply::Released) } else { lost }
    }

    /// Deletes the node of a token, whoever owns it or only if we do; whether there was one.
    async fn clear(&self, desk: &Desk, sits: &mut Sits, own: bool) -> Result<bool, Error> {
        let session = match sits {
            Sits::Unsure { session, .. } if !session.is_over() => session.clone(),
            Sits::Unsure { .. } | Sits::At(_) | Sits::Nowhere => self.any_session().await?,
        };
        let queue = self.line_of(&session, &desk.name).await?;
        let Some(found) = queue.find(&desk.token) else {
            *sits = Sits::Nowhere;
            return Ok(false);
        };
        let folder = self.folder(&desk.name);
        let path = format!("{folder}/{}", found.node);
        let record = match session.ask(Request::Get { path, watch: false }).await {
            Ok(Body::Data { stat, .. }) if own && self.owner(stat.owner).is_none() => {
                *sits = Sits::Nowhere;
                return Ok(false);
            }
            Ok(Body::Data { data, .. }) => Record::read(&data).unwrap_or_default(),
            Ok(_) | Err(Fault::Refused(Code::NoNode)) => Record::default(),
            Err(fault) => return Err(self.failed(fault, false)),
        };
        let slot = slot_path(&folder, found.mode, &record);
        match self.delete(&session, &folder, &found.node, None, slot).await {
            Ok(was_there) => {
                *sits = Sits::Nowhere;
                Ok(was_there)
            }
            Err(fault) => Err(self.failed(fault, true)),
        }
    }

    /// Ends what nobody has kept, as its time has come, and notes what nobody has kept for a while.
    pub(super) async fn look_after(&self, desk: &std::sync::Arc<Desk>) {
        let mut sits = desk.sits.lock().await;
        let is_due = match &*sits {
            Sits::Nowhere => false,
            Sits::Unsure { until, .. } => self.now() >= *until,
            Sits::At(seat) => self.now() >= seat.due(),
        };
        if is_due {
            let outcome = match &mut *sits {
                Sits::Unsure { session, .. } if session.is_over() => {
                    *sits = Sits::Nowhere;
                    Ok(())
                }
                Sits::Unsure { .. } => self.clear(desk, &mut sits, true).await.map(drop),
                Sits::At(seat) if self.now() < seat.end && !seat.session.is_over() => {
                    let left = seat.end.since(self.now());
                    let ends = Duration::from_micros(self.ground.clock.wall_us()) + left;
                    let ends_ms = u64::try_from(ends.as_millis()).unwrap_or(u64::MAX);
                    self.note_end(desk, seat, Some(ends_ms)).await;
                    Ok(())
                }
                Sits::At(_) | Sits::Nowhere => self.freshen(desk, &mut sits).await,
            };
            if let Err(why) = outcome {
                // Tried again soon; the session's own end is the net.
                tracing::debug!(%why, "a lease that ended is still there");
            }
        }
        self.settle(desk, sits);
    }
}
