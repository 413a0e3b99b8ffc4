//! Jobs in PostgreSQL: rows that are inserted, deleted into a lease, and gone; `FOR UPDATE SKIP LOCKED`.
//!
//! - A job that is due lies in `ready`, whose primary key is the order of claims: there is no other index, and no row is
//!   ever updated. A claim deletes the rows and writes one lease for all of them; a completion deletes the lease.
//! - Claimers remember how far they have come, so that rows deleted long ago are not walked over again and again.
//! - Everything is one call of one function, so it works behind PgBouncer in transaction mode.
//! - Who sleeps says so in its session's row; only then is anybody notified, by the commit or soon after it.

mod keep;
mod listen;
mod look;
mod marks;
mod params;
mod push;
mod schema;
mod settle;

use std::sync::Arc;

use leaseward::{Error, store::StoreUrl, stores::postgres::Link};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use self::marks::Marks;
use super::{
    Adopted, Answer, Backend, Cancelling, Change, Ear, Lease, Promoted, Pushes, Raw, Row, Told,
    Turn, Turned,
};
use crate::{
    JobId,
    view::{JobState, QueueStats},
};

pub(crate) use self::push::{Columns, pushed};

#[derive(Debug)]
pub(crate) struct Postgres {
    link: Arc<Link>,
    schema: String,
    url: String,
    marks: Mutex<Marks>,
    listening: Mutex<Option<AbortHandle>>,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop_listening();
    }
}

impl Postgres {
    /// Brings the tables to a version, or to the newest.
    pub(crate) async fn migrate(url: &StoreUrl, version: Option<usize>) -> Result<bool, Error> {
        let link = Link::open(url, "migrate").await?;
        let schema = format!("{}_queue", link.schema());
        let made = match version {
            Some(version) => schema::make(&link, &schema, version).await.map(|()| true),
            None => schema::ready(&link, &schema).await,
        };
        link.close();
        made
    }

    pub(crate) async fn open(url: &str, parsed: &StoreUrl, who: &str) -> Result<Self, Error> {
        let link = Arc::new(Link::open(parsed, who).await?);
        let schema = format!("{}_queue", link.schema());
        schema::ready(&link, &schema).await?;
        Ok(Self {
            link,
            schema,
            url: url.to_owned(),
            marks: Mutex::default(),
            listening: Mutex::default(),
        })
    }

    fn stop_listening(&self) {
        if let Some(listening) = self.listening.lock().take() {
            listening.abort();
        }
    }
}

impl Backend for Postgres {
    fn location(&self) -> String {
        self.link.location()
    }

    fn schema(&self) -> Option<&str> {
        Some(&self.schema)
    }

    fn locks_url(&self) -> &str {
        &self.url
    }

    fn queue(&self, name: String) -> Answer<'_, i32> {
        Box::pin(async move { self.queue_no(&name).await })
    }

    fn push(&self, session: i64, jobs: Vec<Row>, tells: bool) -> Answer<'_, Pushes> {
        Box::pin(async move { self.push_rows(session, &jobs, tells).await })
    }

    fn turn(&self, turn: Turn) -> Answer<'_, Turned> {
        Box::pin(self.take_turn(turn))
    }

    fn begin(&self, session: i64, who: String, ttl_us: i64) -> Answer<'_, ()> {
        Box::pin(async move { self.begin_session(session, &who, ttl_us).await })
    }

    fn beat(&self, session: i64, ttl_us: i64, idle: bool) -> Answer<'_, bool> {
        Box::pin(self.beat_session(session, ttl_us, idle))
    }

    fn cancelled(&self, session: i64) -> Answer<'_, Vec<JobId>> {
        Box::pin(self.cancelled_jobs(session))
    }

    fn strays(&self, session: i64, known: Vec<i64>) -> Answer<'_, Vec<Lease>> {
        Box::pin(async move { self.stray_leases(session, &known).await })
    }

    fn leave(&self, session: i64) -> Answer<'_, ()> {
        Box::pin(self.leave_session(session))
    }

    fn promote(&self, session: i64, count: u32) -> Answer<'_, Promoted> {
        Box::pin(self.promote_due(session, count))
    }

    fn adopt(&self, session: i64, last: i64, count: u32) -> Answer<'_, Vec<Adopted>> {
        Box::pin(self.adopt_leases(session, last, count))
    }

    fn tidy(&self, dead_for_us: i64) -> Answer<'_, bool> {
        Box::pin(self.tidy_up(dead_for_us))
    }

    fn tell(&self, what: Vec<Told>) -> Answer<'_, ()> {
        Box::pin(async move { self.notify(&what).await })
    }

    fn listen(&self, ear: Ear) {
        let listening = listen::start(&self.link, self.schema.clone(), ear);
        if let Some(before) = self.listening.lock().replace(listening) {
            before.abort();
        }
    }

    fn cancel(&self, session: i64, id: JobId) -> Answer<'_, Cancelling> {
        Box::pin(self.cancel_job(session, id))
    }

    fn replay(&self, session: i64, id: JobId, body: Vec<u8>) -> Answer<'_, bool> {
        Box::pin(async move { self.replay_job(session, id, &body).await })
    }

    fn list(
        &self,
        queue: i32,
        state: JobState,
        after: Option<JobId>,
        count: u32,
    ) -> Answer<'_, Vec<Raw>> {
        Box::pin(self.list_jobs(queue, state, after, count))
    }

    fn find(&self, id: JobId) -> Answer<'_, Option<Raw>> {
        Box::pin(self.find_job(id))
    }

    fn stats(&self) -> Answer<'_, Vec<QueueStats>> {
        Box::pin(self.all_stats())
    }

    fn is_drained(&self, queue: i32) -> Answer<'_, bool> {
        Box::pin(self.queue_is_drained(queue))
    }

    fn configure(&self, session: i64, queue: i32, change: Change) -> Answer<'_, ()> {
        Box::pin(self.configure_queue(session, queue, change))
    }

    fn fire(
        &self,
        session: i64,
        name: String,
        at_us: i64,
        job: Option<Row>,
    ) -> Answer<'_, Option<Pushes>> {
        Box::pin(async move { self.fire_job(session, &name, at_us, job.as_ref()).await })
    }

    fn last_fired(&self, name: String) -> Answer<'_, Option<i64>> {
        Box::pin(async move { self.last_fired_at(&name).await })
    }

    fn note(&self, session: i64, token: i64, id: JobId, value: Vec<u8>) -> Answer<'_, bool> {
        Box::pin(async move { self.note_progress(session, token, id, &value).await })
    }

    fn noted(&self, id: JobId) -> Answer<'_, Option<Vec<u8>>> {
        Box::pin(self.noted_progress(id))
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            self.stop_listening();
            self.link.close();
            Ok(())
        })
    }
}
