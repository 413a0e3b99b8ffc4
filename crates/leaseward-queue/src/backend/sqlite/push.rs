//! Pushing jobs, also in transactions of the user's.

use rusqlite::{Connection, OptionalExtension as _, Result as SqlResult, params};

use super::desk::Turn;
use crate::{
    JobId,
    backend::{Pushes, Row},
};

pub(super) fn queue_no(tx: &Connection, name: &str) -> SqlResult<i32> {
    let find = "SELECT no FROM lq_queues WHERE name = ?1";
    let found = tx.prepare_cached(find)?.query_row([name], |row| row.get(0)).optional()?;
    if let Some(no) = found {
        return Ok(no);
    }
    tx.execute(
        "INSERT INTO lq_queues (no, name) SELECT coalesce(max(no), 0) + 1, ?1 FROM lq_queues",
        [name],
    )?;
    tx.prepare_cached(find)?.query_row([name], |row| row.get(0))
}

/// Pushes jobs, in their order.
pub(crate) fn push_rows(tx: &Connection, wall_us: i64, jobs: &[Row]) -> SqlResult<Pushes> {
    let count = i64::try_from(jobs.len()).unwrap_or(i64::MAX);
    let last: i64 = tx
        .prepare_cached("UPDATE lq_meta SET seq = seq + ?1 RETURNING seq")?
        .query_row([count], |row| row.get(0))?;
    let mut pushed = Vec::with_capacity(jobs.len());
    let mut tally: Vec<(i32, i64, i64)> = Vec::new();
    for (job, number) in jobs.iter().zip(last - count + 1..) {
        let id = JobId::new(job.slot + number);
        if let Some((key, window)) = &job.unique
            && let Some(other) = claim_key(tx, wall_us, id, key, *window)?
        {
            pushed.push((other, false));
            continue;
        }
        let is_later = insert(tx, wall_us, id, job)?;
        pushed.push((id, true));
        match tally.iter_mut().find(|(queue, ..)| *queue == id.queue()) {
            Some((_, count, later)) => {
                *count += 1;
                *later += i64::from(is_later);
            }
            None => tally.push((id.queue(), 1, i64::from(is_later))),
        }
    }
    for (queue, count, later) in tally {
        tx.prepare_cached(
            "INSERT INTO lq_tally (queue, pushed, later) VALUES (?1, ?2, ?3) \
             ON CONFLICT (queue) DO UPDATE SET pushed = pushed + ?2, later = later + ?3",
        )?
        .execute(params![queue, count, later])?;
    }
    Ok(Pushes { jobs: pushed, others_sleep: false })
}

/// Inserts one job; whether it is for later.
fn insert(tx: &Connection, wall_us: i64, id: JobId, job: &Row) -> SqlResult<bool> {
    let due = if job.due_us < 0 { wall_us - job.due_us } else { job.due_us };
    if due > wall_us {
        tx.prepare_cached(
            "INSERT INTO lq_later (id, due, alone, lkey, body) VALUES (?1, ?2, 0, ?3, ?4)",
        )?
        .execute(params![id.get(), due, job.key.as_deref(), job.body])?;
        return Ok(true);
    }
    tx.prepare_cached("INSERT INTO lq_ready (id, lkey, body) VALUES (?1, ?2, ?3)")?
        .execute(params![id.get(), job.key.as_deref(), job.body])?;
    Ok(false)
}

/// Takes a unique key, or tells who has it.
fn claim_key(
    tx: &Connection,
    wall_us: i64,
    id: JobId,
    key: &str,
    window: i64,
) -> SqlResult<Option<JobId>> {
    let until = if window == 0 { i64::MAX } else { wall_us.saturating_add(window) };
    let won = tx
        .prepare_cached(
            "INSERT INTO lq_uniq (queue, key, job, until) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT (queue, key) DO UPDATE SET job = ?3, until = ?4 WHERE until <= ?5",
        )?
        .execute(params![id.queue(), key, id.get(), until, wall_us])?;
    if won > 0 {
        return Ok(None);
    }
    tx.prepare_cached("SELECT job FROM lq_uniq WHERE queue = ?1 AND key = ?2")?
        .query_row(params![id.queue(), key], |row| row.get(0))
        .map(|job| Some(JobId::new(job)))
}

impl Turn<'_> {
    pub(super) fn fire(
        &self,
        name: &str,
        at_us: i64,
        job: Option<&Row>,
    ) -> SqlResult<Option<Pushes>> {
        let fired = self
            .tx
            .prepare_cached(
                "INSERT INTO lq_cron (name, last) VALUES (?1, ?2) \
                 ON CONFLICT (name) DO UPDATE SET last = ?2 WHERE last < ?2",
            )?
            .execute(params![name, at_us])?;
        if fired == 0 {
            return Ok(None);
        }
        let mut pushes = push_rows(self.tx, self.wall_us, job.map_or(&[], std::slice::from_ref))?;
        pushes.others_sleep = self.others_sleep()?;
        Ok(Some(pushes))
    }

    pub(super) fn last_fired(&self, name: &str) -> SqlResult<Option<i64>> {
        self.tx
            .prepare_cached("SELECT last FROM lq_cron WHERE name = ?1")?
            .query_row([name], |row| row.get(0))
            .optional()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_fired_once_whoever_believes_to_hold_the_lock() {
        let mut conn = Connection::open_in_memory().expect("memory");
        super::super::schema::migrate_to(&mut conn, super::super::schema::VERSION).expect("tables");
        let job = Row { slot: 1 << 48, due_us: 0, key: None, unique: None, body: b"{}".to_vec() };
        let turn = Turn { wall_us: 100, boot_us: 100, ..Turn::new(&conn, 1) };
        let fired = |at| turn.fire("hourly", at, Some(&job)).expect("carried out").is_some();
        assert_eq!([50, 50, 40, 60].map(fired), [true, false, false, true]);
        let ready: i64 =
            conn.query_row("SELECT count(*) FROM lq_ready", [], |row| row.get(0)).expect("a count");
        assert_eq!(ready, 2);
    }
}
