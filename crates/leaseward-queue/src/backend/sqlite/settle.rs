//! Ending jobs.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension as _, Result as SqlResult, params};

use super::desk::Turn;
use crate::backend::{Ending, Fate, Settle, Turned};

/// Counters of one queue.
#[derive(Default)]
struct Tally {
    done: i64,
    failed: i64,
    interrupted: i64,
    dead: i64,
    cancelled: i64,
    later: i64,
    /// Places under the queue's limit.
    counted: i64,
}

impl Turn<'_> {
    pub(super) fn settle(&self, session: i64, settle: &Settle) -> SqlResult<Turned> {
        let mut turned = Turned::default();
        let mut tallies: BTreeMap<i32, Tally> = BTreeMap::new();
        for ending in &settle.endings {
            let gone: Option<(bool, bool)> = self
                .tx
                .prepare_cached(
                    "DELETE FROM lq_leased WHERE id = ?1 AND token = ?2 AND session = ?3 RETURNING finished, counted",
                )?
                .query_row(params![ending.id.get(), ending.token, session], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()?;
            let Some((was_finished, was_counted)) = gone else { continue };
            if turned.ours.last() != Some(&ending.token) {
                turned.ours.push(ending.token);
            }
            let tally = tallies.entry(ending.id.queue()).or_default();
            tally.counted += i64::from(was_counted);
            let is_redone = was_finished && !matches!(ending.fate, Fate::Done | Fate::Kept { .. });
            self.end(ending, if is_redone { &Fate::Done } else { &ending.fate }, tally)?;
            if let Some(key) = &ending.key
                && self.release_key(ending.id.queue(), key)?
            {
                turned.freed.push(ending.id.queue());
            }
        }
        for (queue, tally) in tallies {
            self.write_tally(queue, &tally)?;
            if tally.counted > 0 {
                turned.freed.push(queue);
            }
        }
        Ok(turned)
    }

    fn end(&self, ending: &Ending, fate: &Fate, tally: &mut Tally) -> SqlResult<()> {
        let (id, key, fence) = (ending.id.get(), ending.key.as_deref(), ending.token);
        match fate {
            Fate::Done => tally.done += 1,
            Fate::Kept { body, result, for_us } => {
                tally.done += 1;
                self.keep(ending, 1, body, result.as_deref(), *for_us)?;
            }
            Fate::Cancelled { kept } => {
                tally.cancelled += 1;
                if let Some((body, for_us)) = kept {
                    self.keep(ending, 7, body, None, *for_us)?;
                }
            }
            Fate::Retry { body, after_us, .. }
            | Fate::Snoozed { body, after_us }
            | Fate::Interrupted { body, after_us } => {
                let alone = matches!(fate, Fate::Retry { alone: true, .. });
                tally.later += 1;
                tally.failed += i64::from(matches!(fate, Fate::Retry { .. }));
                tally.interrupted += i64::from(matches!(fate, Fate::Interrupted { .. }));
                self.tx
                    .prepare_cached(
                        "INSERT INTO lq_later (id, due, alone, fence, lkey, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    )?
                    .execute(params![id, self.wall_us.saturating_add(*after_us), alone, fence, key, body])?;
            }
            Fate::Back { body } => {
                self.tx
                    .prepare_cached(
                        "INSERT INTO lq_ready (id, fence, lkey, body) VALUES (?1, ?2, ?3, ?4)",
                    )?
                    .execute(params![id, fence, key, body])?;
            }
            Fate::Dead { body } => {
                tally.dead += 1;
                tally.failed += 1;
                self.tx
                    .prepare_cached("INSERT OR REPLACE INTO lq_dead (id, at, fence, lkey, body) VALUES (?1, ?2, ?3, ?4, ?5)")?
                    .execute(params![id, self.wall_us, fence, key, body])?;
            }
        }
        let has_ended = !matches!(
            fate,
            Fate::Retry { .. }
                | Fate::Snoozed { .. }
                | Fate::Interrupted { .. }
                | Fate::Back { .. }
        );
        if has_ended && let Some(unique) = &ending.unique {
            self.tx
                .prepare_cached("DELETE FROM lq_uniq WHERE queue = ?1 AND key = ?2 AND job = ?3")?
                .execute(params![ending.id.queue(), unique, id])?;
        }
        if has_ended && ending.noted && !matches!(fate, Fate::Dead { .. }) {
            self.tx.prepare_cached("DELETE FROM lq_progress WHERE id = ?1")?.execute([id])?;
        }
        Ok(())
    }

    fn keep(
        &self,
        ending: &Ending,
        state: i64,
        body: &[u8],
        result: Option<&[u8]>,
        for_us: i64,
    ) -> SqlResult<()> {
        let until = self.wall_us.saturating_add(for_us);
        self.tx
            .prepare_cached(
                "INSERT OR REPLACE INTO lq_kept (id, at, until, state, fence, body, result) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![ending.id.get(), self.wall_us, until, state, ending.token, body, result])
            .map(drop)
    }

    fn write_tally(&self, queue: i32, tally: &Tally) -> SqlResult<()> {
        let Tally { done, failed, interrupted, dead, cancelled, later, counted } = *tally;
        self.tx
            .prepare_cached(
                "INSERT INTO lq_tally (queue, done, failed, dead, cancelled, later, interrupted) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
                 ON CONFLICT (queue) DO UPDATE SET done = done + ?2, failed = failed + ?3, dead = dead + ?4, \
                 cancelled = cancelled + ?5, later = later + ?6, interrupted = interrupted + ?7",
            )?
            .execute(params![queue, done, failed, dead, cancelled, later, interrupted])?;
        if counted > 0 {
            self.tx
                .prepare_cached(
                    "UPDATE lq_queues SET running = max(running - ?2, 0) WHERE no = ?1",
                )?
                .execute(params![queue, counted])?;
        }
        Ok(())
    }

    /// Gives a place of a key back, and has one that was put aside try again; whether there was one.
    fn release_key(&self, queue: i32, key: &str) -> SqlResult<bool> {
        self.tx
            .prepare_cached(
                "UPDATE lq_keys SET running = max(running - 1, 0) WHERE queue = ?1 AND lkey = ?2",
            )?
            .execute(params![queue, key])?;
        let next: Option<i64> = self
            .tx
            .prepare_cached(
                "SELECT id FROM lq_blocked WHERE queue = ?1 AND lkey = ?2 ORDER BY id LIMIT 1",
            )?
            .query_row(params![queue, key], |row| row.get(0))
            .optional()?;
        let Some(next) = next else {
            self.tx
                .prepare_cached(
                    "DELETE FROM lq_keys WHERE queue = ?1 AND lkey = ?2 AND running = 0",
                )?
                .execute(params![queue, key])?;
            return Ok(false);
        };
        self.tx
            .prepare_cached("INSERT INTO lq_ready (id, fence, lkey, body) SELECT id, fence, lkey, body FROM lq_blocked WHERE id = ?1")?
            .execute([next])?;
        self.tx.prepare_cached("DELETE FROM lq_blocked WHERE id = ?1")?.execute([next])?;
        self.count(queue, "blocked", -1)?;
        Ok(true)
    }
}
