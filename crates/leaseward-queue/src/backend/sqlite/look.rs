//! Looking at jobs, and what people do to single ones.

use rusqlite::{OptionalExtension as _, Result as SqlResult, Row, params};

use super::{desk::Turn, keep::BOOT};
use crate::{
    JobId,
    backend::{Cancelling, Raw},
    view::{Counters, JobState, QueueStats},
};

/// Everything that lies in one of the places, in columns of one kind.
fn source(of: JobState) -> &'static str {
    match of {
        JobState::Ready => {
            "SELECT id, NULL AS at, fence, lkey, NULL AS who, body, NULL AS result FROM lq_ready UNION ALL \
             SELECT id, NULL, fence, lkey, NULL, body, NULL FROM lq_suspect"
        }
        JobState::Later => {
            "SELECT id, due AS at, fence, lkey, NULL AS who, body, NULL AS result FROM lq_later"
        }
        JobState::Blocked => {
            "SELECT id, NULL AS at, fence, lkey, NULL AS who, body, NULL AS result FROM lq_blocked"
        }
        JobState::Running => {
            "SELECT l.id, l.since AS at, l.token AS fence, l.lkey, s.who, l.body, NULL AS result \
             FROM lq_leased l LEFT JOIN lq_session s ON s.id = l.session"
        }
        JobState::Dead => {
            "SELECT id, at, fence, lkey, NULL AS who, body, NULL AS result FROM lq_dead"
        }
        JobState::Done => {
            "SELECT id, at, fence, NULL AS lkey, NULL AS who, body, result FROM lq_kept WHERE state = 1"
        }
        JobState::Cancelled => {
            "SELECT id, at, fence, NULL AS lkey, NULL AS who, body, result FROM lq_kept WHERE state <> 1"
        }
    }
}

/// Jobs with what they noted, and whether they are leased to a session that has ended.
fn select(of: JobState) -> String {
    format!(
        "SELECT j.*, p.value, EXISTS (SELECT 1 FROM lq_leased l WHERE l.id = j.id AND NOT EXISTS \
         (SELECT 1 FROM lq_session s WHERE s.id = l.session AND s.boot = ?1 AND s.expires > ?2)) \
         FROM ({}) j LEFT JOIN lq_progress p ON p.id = j.id",
        source(of)
    )
}

fn read(row: &Row<'_>, state: JobState) -> SqlResult<Raw> {
    let key: Option<String> = row.get(3)?;
    Ok(Raw {
        id: JobId::new(row.get(0)?),
        state,
        at_us: row.get(1)?,
        fence: row.get(2)?,
        key: key.map(String::into_boxed_str),
        who: row.get(4)?,
        body: row.get(5)?,
        result: row.get(6)?,
        progress: row.get(7)?,
        is_orphaned: row.get(8)?,
    })
}

impl Turn<'_> {
    pub(super) fn list(
        &self,
        queue: i32,
        of: JobState,
        after: Option<JobId>,
        count: u32,
    ) -> SqlResult<Vec<Raw>> {
        let sql = format!("{} WHERE j.id > ?3 AND j.id < ?4 ORDER BY j.id LIMIT ?5", select(of));
        let (low, high) = JobId::queue_range(queue);
        let low = after.map_or(low, JobId::get);
        let mut statement = self.tx.prepare_cached(&sql)?;
        statement
            .query_map(params![*BOOT, self.boot_us, low, high, count], |row| read(row, of))?
            .collect()
    }

    pub(super) fn find(&self, id: JobId) -> SqlResult<Option<Raw>> {
        for of in JobState::ALL {
            let sql = format!("{} WHERE j.id = ?3", select(of));
            let found = self
                .tx
                .prepare_cached(&sql)?
                .query_row(params![*BOOT, self.boot_us, id.get()], |row| read(row, of))
                .optional()?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    pub(super) fn stats(&self) -> SqlResult<Vec<QueueStats>> {
        let mut statement = self.tx.prepare_cached(
            "SELECT q.name, q.paused, q.lim, q.key_lim, coalesce(t.pushed, 0), coalesce(t.done, 0), coalesce(t.failed, 0), \
             coalesce(t.dead, 0), coalesce(t.cancelled, 0), coalesce(t.later, 0), coalesce(t.blocked, 0), \
             (SELECT count(*) FROM lq_leased l WHERE l.id >> 48 = q.no), coalesce(t.interrupted, 0) \
             FROM lq_queues q LEFT JOIN lq_tally t ON t.queue = q.no ORDER BY q.name",
        )?;
        let rows = statement.query_map([], |row| {
            let mut stats = QueueStats {
                name: row.get(0)?,
                paused: row.get(1)?,
                limit: row.get(2)?,
                key_limit: row.get(3)?,
                ..QueueStats::default()
            };
            stats.count(Counters {
                pushed: row.get(4)?,
                done: row.get(5)?,
                failed: row.get(6)?,
                dead: row.get(7)?,
                cancelled: row.get(8)?,
                later: row.get(9)?,
                blocked: row.get(10)?,
                leased: row.get(11)?,
                interrupted: row.get(12)?,
            });
            Ok(stats)
        })?;
        rows.collect()
    }

    pub(super) fn is_drained(&self, queue: i32) -> SqlResult<bool> {
        let (low, high) = JobId::queue_range(queue);
        for table in ["lq_ready", "lq_suspect", "lq_blocked", "lq_leased"] {
            let sql = format!("SELECT EXISTS (SELECT 1 FROM {table} WHERE id > ?1 AND id < ?2)");
            if self.tx.prepare_cached(&sql)?.query_row(params![low, high], |row| row.get(0))? {
                return Ok(false);
            }
        }
        // What is due is as good as ready: it is moved within a second.
        let sql =
            "SELECT NOT EXISTS (SELECT 1 FROM lq_later WHERE id > ?1 AND id < ?2 AND due <= ?3)";
        self.tx.prepare_cached(sql)?.query_row(params![low, high, self.wall_us], |row| row.get(0))
    }

    pub(super) fn cancel(&self, id: JobId) -> SqlResult<Cancelling> {
        for (table, counter) in
            [("lq_ready", ""), ("lq_suspect", ""), ("lq_later", "later"), ("lq_blocked", "blocked")]
        {
            let sql = format!("DELETE FROM {table} WHERE id = ?1");
            if self.tx.prepare_cached(&sql)?.execute([id.get()])? == 0 {
                continue;
            }
            if !counter.is_empty() {
                self.count(id.queue(), counter, -1)?;
            }
            self.count(id.queue(), "cancelled", 1)?;
            self.tx.execute(
                "DELETE FROM lq_uniq WHERE queue = ?1 AND job = ?2 AND until = ?3",
                params![id.queue(), id.get(), i64::MAX],
            )?;
            self.tx.execute("DELETE FROM lq_progress WHERE id = ?1", [id.get()])?;
            return Ok(Cancelling::TakenOut);
        }
        let owner = self
            .tx
            .prepare_cached("UPDATE lq_leased SET cancelled = 1 WHERE id = ?1 RETURNING session")?
            .query_row([id.get()], |row| row.get(0))
            .optional()?;
        Ok(owner.map_or(Cancelling::NoSuchJob, Cancelling::Told))
    }

    pub(super) fn replay(&self, id: JobId, body: &[u8]) -> SqlResult<bool> {
        let dead: Option<(Option<i64>, Option<String>)> = self
            .tx
            .prepare_cached("DELETE FROM lq_dead WHERE id = ?1 RETURNING fence, lkey")?
            .query_row([id.get()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((fence, key)) = dead else { return Ok(false) };
        self.tx.execute(
            "INSERT INTO lq_ready (id, fence, lkey, body) VALUES (?1, ?2, ?3, ?4)",
            params![id.get(), fence, key, body],
        )?;
        self.count(id.queue(), "dead", -1)?;
        Ok(true)
    }
}
