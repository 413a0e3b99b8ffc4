//! Sessions, and what keeps a queue going.

use leaseward::Error;

use super::{
    Postgres,
    params::{flag, get, int4, int8, int8s, only, text},
    settle::leased,
};
use crate::{
    JobId,
    backend::{Adopted, Change, Lease, Promoted},
};

/// How much is forgotten in one statement, so that it takes about as long as any other.
const TIDY_COUNT: i32 = 1_000;

impl Postgres {
    pub(super) async fn begin_session(
        &self,
        session: i64,
        who: &str,
        ttl_us: i64,
    ) -> Result<(), Error> {
        let schema = &self.schema;
        let sql = format!(
            "INSERT INTO {schema}.session (id, who, expires, idle) VALUES ($1, $2, {schema}.now_us() + $3, false) \
             ON CONFLICT (id) DO UPDATE SET expires = excluded.expires"
        );
        self.link.query(&sql, &[int8(&session), text(&who), int8(&ttl_us)]).await.map(drop)
    }

    pub(super) async fn beat_session(
        &self,
        session: i64,
        ttl_us: i64,
        idle: bool,
    ) -> Result<bool, Error> {
        let schema = &self.schema;
        let sql = format!(
            "UPDATE {schema}.session SET expires = {schema}.now_us() + $2, idle = $3 WHERE id = $1 RETURNING 1"
        );
        let rows = self.link.query(&sql, &[int8(&session), int8(&ttl_us), flag(&idle)]).await?;
        Ok(!rows.is_empty())
    }

    pub(super) async fn cancelled_jobs(&self, session: i64) -> Result<Vec<JobId>, Error> {
        let sql = format!(
            "SELECT c FROM {}.lease l, unnest(l.cancelled) c WHERE l.session = $1 AND NOT c = ANY (l.done)",
            self.schema
        );
        let rows = self.link.query(&sql, &[int8(&session)]).await?;
        rows.iter().map(|row| get(row, 0).map(JobId::new)).collect()
    }

    pub(super) async fn stray_leases(
        &self,
        session: i64,
        known: &[i64],
    ) -> Result<Vec<Lease>, Error> {
        let sql = format!(
            "SELECT token, ids, lkeys, bodies, done FROM {}.lease WHERE session = $1 AND NOT token = ANY ($2)",
            self.schema
        );
        let rows = self.link.query(&sql, &[int8(&session), int8s(&known)]).await?;
        let read = |row| {
            let mut jobs = leased(get(row, 1)?, get(row, 2)?, get(row, 3)?);
            let done: Vec<i64> = get(row, 4)?;
            jobs.retain(|job| !done.contains(&job.id.get()));
            Ok(Lease { token: get(row, 0)?, jobs })
        };
        rows.iter().map(read).collect()
    }

    pub(super) async fn leave_session(&self, session: i64) -> Result<(), Error> {
        let sql = format!("SELECT {}.leave($1)", self.schema);
        self.link.query(&sql, &[int8(&session)]).await.map(drop)
    }

    pub(super) async fn promote_due(&self, session: i64, count: u32) -> Result<Promoted, Error> {
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let sql = format!("SELECT moved, qs, pause FROM {}.promote($1, $2)", self.schema);
        let rows = self.link.query(&sql, &[int8(&session), int4(&count)]).await?;
        let row = only(&rows)?;
        Ok(Promoted {
            count: u64::try_from(get::<i64>(row, 0)?).unwrap_or(0),
            queues: get::<Option<_>>(row, 1)?.unwrap_or_default(),
            pause_us: get(row, 2)?,
        })
    }

    pub(super) async fn adopt_leases(
        &self,
        session: i64,
        last: i64,
        count: u32,
    ) -> Result<Vec<Adopted>, Error> {
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let sql = format!(
            "SELECT token, ids, lkeys, bodies, fin, who FROM {}.adopt($1, $2, $3)",
            self.schema
        );
        let rows = self.link.query(&sql, &[int8(&session), int8(&last), int4(&count)]).await?;
        let read = |row| {
            let jobs = leased(get(row, 1)?, get(row, 2)?, get(row, 3)?);
            let finished: Vec<i64> = get(row, 4)?;
            Ok(Adopted {
                lease: Lease { token: get(row, 0)?, jobs },
                finished: finished.into_iter().map(JobId::new).collect(),
                who: get(row, 5)?,
            })
        };
        rows.iter().map(read).collect()
    }

    pub(super) async fn tidy_up(&self, dead_for_us: i64) -> Result<bool, Error> {
        self.link.shrink();
        let schema = &self.schema;
        let sql = format!("SELECT {schema}.tidy($1, {schema}.now_us() - $2)");
        let rows = self.link.query(&sql, &[int4(&TIDY_COUNT), int8(&dead_for_us)]).await?;
        get(only(&rows)?, 0)
    }

    pub(super) async fn configure_queue(
        &self,
        session: i64,
        queue: i32,
        change: Change,
    ) -> Result<(), Error> {
        let schema = &self.schema;
        let (column, value) = match change {
            Change::Paused(paused) => ("paused", paused.to_string()),
            Change::Limit(None) => ("lim", "NULL".to_owned()),
            Change::Limit(Some(limit)) => ("lim", limit.to_string()),
            Change::KeyLimit(limit) => ("key_lim", limit.to_string()),
        };
        let sql = format!("UPDATE {schema}.queues SET {column} = {value} WHERE no = $1");
        self.link.query(&sql, &[int4(&queue)]).await?;
        if matches!(change, Change::KeyLimit(_)) {
            let sql = format!("SELECT {schema}.unblock($1, $2)");
            self.link.query(&sql, &[int8(&session), int4(&queue)]).await?;
        }
        Ok(())
    }

    pub(super) async fn last_fired_at(&self, name: &str) -> Result<Option<i64>, Error> {
        let sql = format!("SELECT last FROM {}.cron WHERE name = $1", self.schema);
        let rows = self.link.query(&sql, &[text(&name)]).await?;
        rows.first().map(|row| get(row, 0)).transpose()
    }
}
