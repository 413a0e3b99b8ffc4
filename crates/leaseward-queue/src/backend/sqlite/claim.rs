//! Claiming jobs.

use rusqlite::{Result as SqlResult, params};

use super::desk::Turn;
use crate::{
    JobId,
    backend::{Claim, Found, Lease, Leased, Turned},
};

/// How a queue is set up.
struct Setup {
    paused: bool,
    limit: Option<i64>,
    key_limit: i64,
    running: i64,
}

/// A job on its way from one place to another.
pub(super) struct Moving {
    pub(super) id: i64,
    pub(super) fence: Option<i64>,
    pub(super) key: Option<String>,
    pub(super) body: Vec<u8>,
}

impl Turn<'_> {
    pub(super) fn claim(&self, session: i64, claim: &Claim, turned: &mut Turned) -> SqlResult<()> {
        if !self.is_alive(session)? {
            turned.found = Found::Over;
            return Ok(());
        }
        let setup = self.setup(claim.queue)?;
        if setup.paused {
            turned.found = Found::Paused;
            return Ok(());
        }
        let mut count = i64::from(claim.count);
        if let Some(limit) = setup.limit
            && limit - setup.running < count
        {
            count = limit - setup.running;
            turned.found = Found::Limited;
            if count <= 0 {
                return Ok(());
            }
        }
        let jobs = self.take(claim, count)?;
        if i64::try_from(jobs.len()).unwrap_or(i64::MAX) < count {
            turned.found = Found::All;
        }
        let newest = jobs.iter().filter_map(|job| job.fence).max().unwrap_or(0);
        let taken = jobs.len();
        let jobs = self.admit(claim.queue, setup.key_limit, jobs)?;
        if jobs.len() < taken {
            turned.found = Found::Aside;
        }
        if jobs.is_empty() {
            return Ok(());
        }
        if setup.limit.is_some() {
            self.tx
                .prepare_cached("UPDATE lq_queues SET running = running + ?2 WHERE no = ?1")?
                .execute(params![claim.queue, i64::try_from(jobs.len()).unwrap_or(0)])?;
        }
        // Above every fence that any of these jobs has had, and never below the clock.
        let token = self.wall_us.max(claim.last + 1).max(newest + 1);
        turned.lease = Some(self.lease(session, token, setup.limit.is_some(), jobs)?);
        Ok(())
    }

    fn setup(&self, queue: i32) -> SqlResult<Setup> {
        self.tx
            .prepare_cached("SELECT paused, lim, key_lim, running FROM lq_queues WHERE no = ?1")?
            .query_row([queue], |row| {
                Ok(Setup {
                    paused: row.get(0)?,
                    limit: row.get(1)?,
                    key_limit: row.get(2)?,
                    running: row.get(3)?,
                })
            })
    }

    fn take(&self, claim: &Claim, count: i64) -> SqlResult<Vec<Moving>> {
        let sql = if claim.alone {
            "DELETE FROM lq_suspect WHERE id IN (SELECT id FROM lq_suspect WHERE id > ?1 AND id < ?2 ORDER BY id LIMIT ?3) \
             RETURNING id, fence, lkey, body"
        } else {
            "DELETE FROM lq_ready WHERE id IN (SELECT id FROM lq_ready WHERE id > ?1 AND id < ?2 ORDER BY id LIMIT ?3) \
             RETURNING id, fence, lkey, body"
        };
        let (low, high) = JobId::queue_range(claim.queue);
        let mut statement = self.tx.prepare_cached(sql)?;
        let rows = statement.query_map(params![low, high, count], |row| {
            Ok(Moving { id: row.get(0)?, fence: row.get(1)?, key: row.get(2)?, body: row.get(3)? })
        })?;
        let mut jobs: Vec<Moving> = rows.collect::<SqlResult<_>>()?;
        jobs.sort_unstable_by_key(|job| job.id);
        Ok(jobs)
    }

    /// Lets those in whose key has room, and puts the others aside.
    fn admit(&self, queue: i32, key_limit: i64, jobs: Vec<Moving>) -> SqlResult<Vec<Moving>> {
        let mut admitted = Vec::with_capacity(jobs.len());
        let mut aside = 0_i64;
        for job in jobs {
            let Some(key) = &job.key else {
                admitted.push(job);
                continue;
            };
            let has_room = self
                .tx
                .prepare_cached(
                    "INSERT INTO lq_keys (queue, lkey, running) VALUES (?1, ?2, 1) \
                     ON CONFLICT (queue, lkey) DO UPDATE SET running = running + 1 WHERE running < ?3",
                )?
                .execute(params![queue, key, key_limit])?;
            if has_room > 0 {
                admitted.push(job);
                continue;
            }
            self.tx
                .prepare_cached("INSERT INTO lq_blocked (id, queue, lkey, fence, body) VALUES (?1, ?2, ?3, ?4, ?5)")?
                .execute(params![job.id, queue, key, job.fence, job.body])?;
            aside += 1;
        }
        if aside > 0 {
            self.count(queue, "blocked", aside)?;
        }
        Ok(admitted)
    }

    fn lease(
        &self,
        session: i64,
        token: i64,
        counted: bool,
        jobs: Vec<Moving>,
    ) -> SqlResult<Lease> {
        let mut statement = self.tx.prepare_cached(
            "INSERT INTO lq_leased (id, token, session, since, lkey, body, counted) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        let mut leased = Vec::with_capacity(jobs.len());
        for job in jobs {
            statement.execute(params![
                job.id,
                token,
                session,
                self.wall_us,
                job.key,
                job.body,
                counted
            ])?;
            let key = job.key.map(String::into_boxed_str);
            leased.push(Leased { id: JobId::new(job.id), key, body: job.body });
        }
        Ok(Lease { token, jobs: leased })
    }

    /// Adds to one counter of a queue. The column is a name of ours.
    pub(super) fn count(&self, queue: i32, column: &str, by: i64) -> SqlResult<()> {
        let sql = format!(
            "INSERT INTO lq_tally (queue, {column}) VALUES (?1, ?2) \
             ON CONFLICT (queue) DO UPDATE SET {column} = {column} + ?2"
        );
        self.tx.prepare_cached(&sql)?.execute(params![queue, by]).map(drop)
    }
}
