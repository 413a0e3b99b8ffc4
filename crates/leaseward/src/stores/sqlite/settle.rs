//! Ending what has expired, and giving leases.

use std::time::Duration;

use rusqlite::{OptionalExtension, Result as SqlResult, params};

use super::{
    room::Room,
    row::{self, Hold, Place, Wish, place_columns},
    turn::Turn,
};
use crate::{
    Mode, Name, Token,
    store::{
        Evidence, Grant, Push,
        held::{self, Condition, Held},
        timing,
    },
};

impl Turn<'_> {
    /// Ends what has expired and gives the name to the next live waiters.
    pub(super) fn settle(&mut self, room: &mut Room) -> SqlResult<()> {
        let now = self.now.moment;
        let mut at = 0;
        while at < room.holds.len() {
            if !room.holds[at].is_live(now) {
                let expired = room.holds.remove(at);
                self.delete_hold(room, &expired.token)?;
            } else {
                at += 1;
            }
        }
        while let Some(place) = self.take_next(room)? {
            let ttl = timing::handed_ttl(place.wish.ttl);
            let is_ours = place.client == self.client;
            let mut grant =
                self.admit(room, &place.wish, ttl, Some(place.client).filter(|_| !is_ours))?;
            if is_ours {
                grant.evidence = Evidence::LargerFence;
                let (name, token) = (room.name.clone(), place.wish.token);
                self.pushes.push(Push::Granted { name, token, grant });
            } else {
                self.calls.push(place.client);
            }
        }
        Ok(())
    }

    /// Takes out the next waiter if it is alive and the name is free for it; drops dead ones before it.
    fn take_next(&mut self, room: &mut Room) -> SqlResult<Option<Place>> {
        while room.waiters > 0 {
            let front = match room.front.take() {
                Some(front) => front,
                None => self.front(room)?,
            };
            let is_dead = front.expires <= self.now.moment;
            if !is_dead && !held::admits(&room.holds, front.wish.mode) {
                room.front = Some(front);
                return Ok(None);
            }
            self.change(
                "DELETE FROM places WHERE name = ?1 AND seq = ?2",
                params![room.name.as_str(), front.seq],
            )?;
            room.waiters -= 1;
            if !is_dead {
                return Ok(Some(front));
            }
        }
        Ok(None)
    }

    fn front(&self, room: &Room) -> SqlResult<Place> {
        const SQL: &str = concat!(
            "SELECT ",
            place_columns!(),
            " FROM places p WHERE p.name = ?1 ORDER BY p.seq LIMIT 1"
        );
        let mut statement = self.conn.prepare_cached(SQL)?;
        statement.query_row(params![room.name.as_str()], |row| Place::read(row, 0))
    }

    /// Gives a lease; the room must admit it. `handed_to` is the waiting client that is to find it by itself.
    pub(super) fn admit(
        &mut self,
        room: &mut Room,
        wish: &Wish,
        ttl: Duration,
        handed_to: Option<i64>,
    ) -> SqlResult<Grant> {
        debug_assert!(held::admits(&room.holds, wish.mode), "BUG: the room is not free");
        let block = self.reserve(if wish.mode == Mode::Exclusive { wish.block } else { 1 });
        let hold = Hold {
            token: wish.token.clone(),
            mode: wish.mode,
            block,
            slot: held::free_slot(&room.holds, wish.mode),
            condition: Condition::Sound,
            ttl_ms: row::millis(wish.ttl),
            since: self.now.moment,
            expires: self.now.moment + ttl,
            handed: handed_to.is_some(),
        };
        self.insert_hold(room, &hold, wish, handed_to.unwrap_or(self.client))?;
        let slot = hold.slot;
        room.holds.push(hold);
        Ok(Grant { block, slot, ttl, evidence: Evidence::ThisRequest, waiters: room.waiters })
    }

    fn insert_hold(&self, room: &Room, hold: &Hold, wish: &Wish, client: i64) -> SqlResult<()> {
        self.change(
            "INSERT INTO holds (name, token, who, mode, first, len, slot, condition, ttl_ms, delay_ms, \
             since_us, expires_us, client, handed, value) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, ?10, ?11, ?12, ?13, ?14)",
            params![
                room.name.as_str(),
                row::key(&hold.token),
                &**hold.token.who(),
                row::mode_code(hold.mode),
                hold.block.first.get().cast_signed(),
                hold.block.len,
                hold.slot,
                row::condition_code(hold.condition),
                hold.ttl_ms,
                row::micros(hold.since),
                row::micros(hold.expires),
                client,
                hold.handed,
                wish.value.as_ref().map(|value| value.as_bytes()),
            ],
        )
        .map(drop)
    }

    pub(super) fn delete_hold(&self, room: &Room, token: &Token) -> SqlResult<()> {
        self.change(
            "DELETE FROM holds WHERE name = ?1 AND token = ?2",
            params![room.name.as_str(), row::key(token)],
        )
        .map(drop)
    }

    /// Writes a hold's new times; whoever has been heard of is no longer to be told.
    pub(super) fn update_hold(&self, name: &Name, hold: &mut Hold) -> SqlResult<()> {
        // Naming `handed` only where it changes keeps its index out of every renewal.
        let sql = if std::mem::take(&mut hold.handed) {
            "UPDATE holds SET expires_us = ?3, ttl_ms = ?4, handed = 0 WHERE name = ?1 AND token = ?2"
        } else {
            "UPDATE holds SET expires_us = ?3, ttl_ms = ?4 WHERE name = ?1 AND token = ?2"
        };
        let token = row::key(&hold.token);
        let params = params![name.as_str(), token, row::micros(hold.expires), hold.ttl_ms];
        self.change(sql, params).map(drop)
    }

    /// Takes a token out of the queue; answers whether it was there.
    pub(super) fn remove_place(&self, room: &mut Room, token: &Token) -> SqlResult<bool> {
        if room.waiters == 0 {
            return Ok(false);
        }
        let removed = self.change(
            "DELETE FROM places WHERE name = ?1 AND token = ?2",
            params![room.name.as_str(), row::key(token)],
        )?;
        if removed > 0 {
            room.waiters -= 1;
            room.front = None;
        }
        Ok(removed > 0)
    }

    /// The place of a token: its number, and how many stand before it.
    pub(super) fn place_of(&self, room: &Room, token: &Token) -> SqlResult<Option<(i64, u32)>> {
        if room.waiters == 0 {
            return Ok(None);
        }
        let mut statement = self.conn.prepare_cached(
            "SELECT p.seq, (SELECT count(*) FROM places WHERE name = ?1 AND seq < p.seq) \
             FROM places p WHERE p.name = ?1 AND p.token = ?2",
        )?;
        let found = statement.query_row(params![room.name.as_str(), row::key(token)], |row| {
            Ok((row.get(0)?, row.get(1)?))
        });
        found.optional()
    }
}
