//! Sessions, and what keeps a queue going.

use std::sync::LazyLock;

use rusqlite::{OptionalExtension as _, Result as SqlResult, params};

use super::desk::Turn;
use crate::{
    JobId,
    backend::{Adopted, Change, Lease, Leased, Promoted},
};

/// How much is forgotten in one transaction, so that it takes about as long as any other.
const TIDY_COUNT: usize = 1_000;

/// An id that changes with every boot; empty where the system has none (it is Linux's).
pub(super) static BOOT: LazyLock<String> = LazyLock::new(|| {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
});

impl Turn<'_> {
    pub(super) fn begin(&self, session: i64, who: &str, ttl_us: i64) -> SqlResult<()> {
        self.tx
            .prepare_cached(
                "INSERT OR REPLACE INTO lq_session (id, who, boot, expires, address) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                session,
                who,
                *BOOT,
                self.boot_us.saturating_add(ttl_us),
                self.address
            ])
            .map(drop)
    }

    pub(super) fn beat(&self, session: i64, ttl_us: i64, idle: bool) -> SqlResult<bool> {
        self.tx
            .prepare_cached("UPDATE lq_session SET expires = ?2, idle = ?3 WHERE id = ?1")?
            .execute(params![session, self.boot_us.saturating_add(ttl_us), idle])
            .map(|count| count > 0)
    }

    pub(super) fn is_alive(&self, session: i64) -> SqlResult<bool> {
        self.tx
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM lq_session WHERE id = ?1 AND boot = ?2 AND expires > ?3)")?
            .query_row(params![session, *BOOT, self.boot_us], |row| row.get(0))
    }

    pub(super) fn cancelled(&self, session: i64) -> SqlResult<Vec<JobId>> {
        let mut statement = self
            .tx
            .prepare_cached("SELECT id FROM lq_leased WHERE session = ?1 AND cancelled = 1")?;
        statement.query_map([session], |row| row.get(0).map(JobId::new))?.collect()
    }

    pub(super) fn strays(&self, session: i64, known: &[i64]) -> SqlResult<Vec<Lease>> {
        let mut statement = self.tx.prepare_cached(
            "SELECT token, id, lkey, body FROM lq_leased WHERE session = ?1 ORDER BY token, id",
        )?;
        let mut rows = statement.query([session])?;
        let mut strays: Vec<Lease> = Vec::new();
        while let Some(row) = rows.next()? {
            let token = row.get(0)?;
            if known.contains(&token) {
                continue;
            }
            let key: Option<String> = row.get(2)?;
            let job = Leased {
                id: JobId::new(row.get(1)?),
                key: key.map(String::into_boxed_str),
                body: row.get(3)?,
            };
            match strays.last_mut() {
                Some(lease) if lease.token == token => lease.jobs.push(job),
                _ => strays.push(Lease { token, jobs: vec![job] }),
            }
        }
        Ok(strays)
    }

    pub(super) fn leave(&self, session: i64) -> SqlResult<()> {
        let left = self
            .tx
            .prepare_cached("DELETE FROM lq_session WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM lq_leased WHERE session = ?1)")?
            .execute([session])?;
        if left == 0 {
            self.tx
                .prepare_cached("UPDATE lq_session SET expires = 0 WHERE id = ?1")?
                .execute([session])?;
        }
        Ok(())
    }

    pub(super) fn promote(&self, count: u32) -> SqlResult<Promoted> {
        let mut statement = self.tx.prepare_cached(
            "SELECT id, alone FROM lq_later WHERE due <= ?1 ORDER BY due, id LIMIT ?2",
        )?;
        let due = statement
            .query_map(params![self.wall_us, count], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let due: Vec<(i64, bool)> = due.collect::<SqlResult<_>>()?;
        let mut queues = Vec::new();
        for (id, alone) in &due {
            let to = if *alone { "lq_suspect" } else { "lq_ready" };
            let sql = format!(
                "INSERT INTO {to} (id, fence, lkey, body) SELECT id, fence, lkey, body FROM lq_later WHERE id = ?1"
            );
            self.tx.prepare_cached(&sql)?.execute([id])?;
            self.tx.prepare_cached("DELETE FROM lq_later WHERE id = ?1")?.execute([id])?;
            let queue = JobId::new(*id).queue();
            self.count(queue, "later", -1)?;
            if !queues.contains(&queue) {
                queues.push(queue);
            }
        }
        let next: Option<i64> = self
            .tx
            .prepare_cached("SELECT min(due) FROM lq_later")?
            .query_row([], |row| row.get(0))?;
        let pause_us = next.map(|due| (due - self.wall_us).max(0));
        Ok(Promoted { count: due.len() as u64, queues, pause_us })
    }

    pub(super) fn adopt(&self, session: i64, last: i64, count: u32) -> SqlResult<Vec<Adopted>> {
        let over = "(s.boot <> ?1 OR s.expires <= ?2) AND s.id <> ?3";
        let find = format!(
            "SELECT DISTINCT l.token, l.session, s.who FROM lq_leased l JOIN lq_session s ON s.id = l.session \
             WHERE {over} ORDER BY l.token LIMIT ?4"
        );
        let mut statement = self.tx.prepare_cached(&find)?;
        let leases = statement.query_map(params![*BOOT, self.boot_us, session, count], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
        let leases: Vec<(i64, i64, String)> = leases.collect::<SqlResult<_>>()?;
        let mut adopted = Vec::with_capacity(leases.len());
        let mut token = last;
        for (old, of, who) in leases {
            token = self.wall_us.max(token + 1).max(old + 1);
            let mut statement = self.tx.prepare_cached(
                "UPDATE lq_leased SET token = ?1, session = ?2 WHERE token = ?3 AND session = ?4 RETURNING id, lkey, body, finished",
            )?;
            let rows = statement.query_map(params![token, session, old, of], |row| {
                let key: Option<String> = row.get(1)?;
                let key = key.map(String::into_boxed_str);
                Ok((Leased { id: JobId::new(row.get(0)?), key, body: row.get(2)? }, row.get(3)?))
            })?;
            let rows: Vec<(Leased, bool)> = rows.collect::<SqlResult<_>>()?;
            let finished = rows.iter().filter(|(_, done)| *done).map(|(job, _)| job.id).collect();
            let jobs = rows.into_iter().map(|(job, _)| job).collect();
            adopted.push(Adopted { lease: Lease { token, jobs }, finished, who });
        }
        let end = format!(
            "DELETE FROM lq_session AS s WHERE {over} AND NOT EXISTS (SELECT 1 FROM lq_leased l WHERE l.session = s.id)"
        );
        self.tx.prepare_cached(&end)?.execute(params![*BOOT, self.boot_us, session])?;
        Ok(adopted)
    }

    pub(super) fn tidy(&self, dead_for_us: i64) -> SqlResult<bool> {
        let limit = i64::try_from(TIDY_COUNT).unwrap_or(i64::MAX);
        let mut more = false;
        for (sql, before) in [
            (
                "DELETE FROM lq_kept WHERE id IN (SELECT id FROM lq_kept WHERE until <= ?1 ORDER BY until LIMIT ?2)",
                self.wall_us,
            ),
            (
                "DELETE FROM lq_dead WHERE id IN (SELECT id FROM lq_dead WHERE at <= ?1 LIMIT ?2)",
                self.wall_us - dead_for_us,
            ),
            (
                "DELETE FROM lq_uniq WHERE (queue, key) IN (SELECT queue, key FROM lq_uniq WHERE until <= ?1 LIMIT ?2)",
                self.wall_us,
            ),
        ] {
            more |= self.tx.prepare_cached(sql)?.execute(params![before, limit])? >= TIDY_COUNT;
        }
        // A claim may have been made in the moment in which its session ended.
        self.tx
            .prepare_cached(
                "INSERT OR IGNORE INTO lq_session (id, who, boot, expires) SELECT DISTINCT l.session, 'nobody', '', 0 \
                 FROM lq_leased l WHERE NOT EXISTS (SELECT 1 FROM lq_session s WHERE s.id = l.session)",
            )?
            .execute([])?;
        Ok(more)
    }

    pub(super) fn configure(&self, queue: i32, change: Change) -> SqlResult<()> {
        match change {
            Change::Paused(paused) => {
                self.tx.execute("UPDATE lq_queues SET paused = ?2 WHERE no = ?1", params![queue, paused])
            }
            Change::Limit(limit) => {
                self.tx.execute("UPDATE lq_queues SET lim = ?2 WHERE no = ?1", params![queue, limit])
            }
            Change::KeyLimit(limit) => {
                self.tx.execute("UPDATE lq_queues SET key_lim = ?2 WHERE no = ?1", params![queue, limit])?;
                let moved = self.tx.execute(
                    "INSERT INTO lq_ready (id, fence, lkey, body) SELECT id, fence, lkey, body FROM lq_blocked WHERE queue = ?1",
                    [queue],
                )?;
                self.count(queue, "blocked", -i64::try_from(moved).unwrap_or(0))?;
                self.tx.execute("DELETE FROM lq_blocked WHERE queue = ?1", [queue])
            }
        }
        .map(drop)
    }

    pub(super) fn note(
        &self,
        session: i64,
        token: i64,
        id: JobId,
        value: &[u8],
    ) -> SqlResult<bool> {
        self.tx
            .prepare_cached(
                "INSERT OR REPLACE INTO lq_progress (id, fence, at, value) SELECT id, token, ?4, ?5 FROM lq_leased \
                 WHERE id = ?1 AND token = ?2 AND session = ?3 AND finished = 0",
            )?
            .execute(params![id.get(), token, session, self.wall_us, value])
            .map(|count| count > 0)
    }

    pub(super) fn noted(&self, id: JobId) -> SqlResult<Option<Vec<u8>>> {
        self.tx
            .prepare_cached("SELECT value FROM lq_progress WHERE id = ?1")?
            .query_row([id.get()], |row| row.get(0))
            .optional()
    }
}
