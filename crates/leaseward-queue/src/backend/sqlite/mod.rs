//! Jobs in an SQLite file: no server, one machine, the same meaning as on PostgreSQL.
//!
//! A file has one writer at a time, so nothing has to be skipped and nobody waits for a row: each call is one short
//! transaction on a thread of its own. Workers in other processes that sleep are called after the commit.
//!
//! Time is the wall clock for what is due, and the clock since boot for who is alive: sessions of another boot have ended.

mod claim;
mod desk;
mod keep;
mod look;
mod push;
mod schema;
mod settle;
mod wake;

use leaseward::{
    Error,
    store::StoreUrl,
    stores::sqlite::{Link, Thread},
};

use self::{desk::Desk, wake::Watch};
use super::{
    Adopted, Answer, Backend, Cancelling, Change, Ear, Lease, Promoted, Pushes, Raw, Row, Told,
    Turn, Turned,
};
use crate::{
    JobId,
    view::{JobState, QueueStats},
};

pub(crate) use self::push::push_rows;

/// A file in which jobs are kept.
#[derive(Debug)]
pub(crate) struct Sqlite {
    desk: Desk,
    watch: Watch,
    locks_url: String,
}

impl Sqlite {
    /// Brings the tables to a version, or to the newest.
    pub(crate) async fn migrate(url: &StoreUrl, version: Option<usize>) -> Result<bool, Error> {
        let url = url.clone();
        let thread = Thread::new("leaseward-queue-migrate");
        let migrated = thread.call(move || {
            let link = Link::open(&url)?;
            let conn = &mut link.connect()?.conn;
            let before = link.patiently(|| schema::version(conn))?;
            let wanted = version.unwrap_or(schema::VERSION);
            let after = link.patiently(|| schema::migrate_to(conn, wanted))?;
            Ok(after > before)
        });
        migrated.await
    }

    pub(crate) async fn open(url: &StoreUrl) -> Result<Self, Error> {
        let watch = Watch::new();
        let desk = Desk::open(url, watch.address).await?;
        let link = desk.link();
        // The locks' file is their own, and is told apart from files of other programs.
        let locks_url = format!("sqlite:{}", encode(&link.beside(".locks").to_string_lossy()));
        Ok(Self { watch, desk, locks_url })
    }
}

/// A path as it is written in a URL.
fn encode(path: &str) -> String {
    path.replace('%', "%25").replace('?', "%3F").replace('#', "%23")
}

impl Backend for Sqlite {
    fn location(&self) -> String {
        format!("sqlite:{}", self.desk.link().path().display())
    }

    fn schema(&self) -> Option<&str> {
        None
    }

    fn locks_url(&self) -> &str {
        &self.locks_url
    }

    fn queue(&self, name: String) -> Answer<'_, i32> {
        self.desk.write(move |turn| push::queue_no(turn.tx, &name))
    }

    fn push(&self, _session: i64, jobs: Vec<Row>, tells: bool) -> Answer<'_, Pushes> {
        self.desk.write(move |turn| {
            let mut pushes = push::push_rows(turn.tx, turn.wall_us, &jobs)?;
            pushes.others_sleep = if tells { turn.call_sleepers()? } else { turn.others_sleep()? };
            Ok(pushes)
        })
    }

    fn turn(&self, turn: Turn) -> Answer<'_, Turned> {
        self.desk.write(move |here| {
            let mut turned = here.settle(turn.session, &turn.settle)?;
            if let Some(claim) = turn.claim {
                here.claim(turn.session, &claim, &mut turned)?;
            }
            Ok(turned)
        })
    }

    fn begin(&self, session: i64, who: String, ttl_us: i64) -> Answer<'_, ()> {
        self.desk.write(move |turn| turn.begin(session, &who, ttl_us))
    }

    fn beat(&self, session: i64, ttl_us: i64, idle: bool) -> Answer<'_, bool> {
        self.desk.write(move |turn| turn.beat(session, ttl_us, idle))
    }

    fn cancelled(&self, session: i64) -> Answer<'_, Vec<JobId>> {
        self.desk.write(move |turn| turn.cancelled(session))
    }

    fn strays(&self, session: i64, known: Vec<i64>) -> Answer<'_, Vec<Lease>> {
        self.desk.write(move |turn| turn.strays(session, &known))
    }

    fn leave(&self, session: i64) -> Answer<'_, ()> {
        self.desk.write(move |turn| turn.leave(session))
    }

    fn promote(&self, _session: i64, count: u32) -> Answer<'_, Promoted> {
        self.desk.write(move |turn| turn.promote(count))
    }

    fn adopt(&self, session: i64, last: i64, count: u32) -> Answer<'_, Vec<Adopted>> {
        self.desk.write(move |turn| turn.adopt(session, last, count))
    }

    fn tidy(&self, dead_for_us: i64) -> Answer<'_, bool> {
        self.desk.write(move |turn| turn.tidy(dead_for_us))
    }

    fn tell(&self, what: Vec<Told>) -> Answer<'_, ()> {
        self.desk.write(move |turn| {
            for told in &what {
                if let Told::Cancel(session) = told {
                    turn.call_session(*session)?;
                }
            }
            if what.iter().any(|told| !matches!(told, Told::Cancel(_))) {
                turn.call_sleepers()?;
            }
            Ok(())
        })
    }

    fn listen(&self, ear: Ear) {
        self.watch.start(ear);
    }

    fn cancel(&self, _session: i64, id: JobId) -> Answer<'_, Cancelling> {
        self.desk.write(move |turn| {
            let cancelling = turn.cancel(id)?;
            if let Cancelling::Told(owner) = cancelling {
                turn.call_session(owner)?;
            }
            Ok(cancelling)
        })
    }

    fn replay(&self, _session: i64, id: JobId, body: Vec<u8>) -> Answer<'_, bool> {
        self.desk.write(move |turn| {
            turn.call_sleepers()?;
            turn.replay(id, &body)
        })
    }

    fn list(
        &self,
        queue: i32,
        state: JobState,
        after: Option<JobId>,
        count: u32,
    ) -> Answer<'_, Vec<Raw>> {
        self.desk.write(move |turn| turn.list(queue, state, after, count))
    }

    fn find(&self, id: JobId) -> Answer<'_, Option<Raw>> {
        self.desk.write(move |turn| turn.find(id))
    }

    fn stats(&self) -> Answer<'_, Vec<QueueStats>> {
        self.desk.write(|turn| turn.stats())
    }

    fn is_drained(&self, queue: i32) -> Answer<'_, bool> {
        self.desk.write(move |turn| turn.is_drained(queue))
    }

    fn configure(&self, _session: i64, queue: i32, change: Change) -> Answer<'_, ()> {
        self.desk.write(move |turn| {
            turn.call_sleepers()?;
            turn.configure(queue, change)
        })
    }

    fn fire(
        &self,
        _session: i64,
        name: String,
        at_us: i64,
        job: Option<Row>,
    ) -> Answer<'_, Option<Pushes>> {
        self.desk.write(move |turn| turn.fire(&name, at_us, job.as_ref()))
    }

    fn last_fired(&self, name: String) -> Answer<'_, Option<i64>> {
        self.desk.write(move |turn| turn.last_fired(&name))
    }

    fn note(&self, session: i64, token: i64, id: JobId, value: Vec<u8>) -> Answer<'_, bool> {
        self.desk.write(move |turn| turn.note(session, token, id, &value))
    }

    fn noted(&self, id: JobId) -> Answer<'_, Option<Vec<u8>>> {
        self.desk.write(move |turn| turn.noted(id))
    }

    fn close(&self) -> Answer<'_, ()> {
        self.watch.close();
        self.desk.close()
    }
}
