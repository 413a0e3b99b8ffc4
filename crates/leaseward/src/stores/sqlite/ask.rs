//! Asking for a name.

use rusqlite::{Result as SqlResult, params};

use super::{
    room::Room,
    row::{self, Wish},
    turn::Turn,
};
use crate::{
    LostReason,
    store::{
        self, Answer, Ask, Evidence, Grant, IfBusy, Place as PlaceReply, Reply,
        held::{self, Held},
        timing,
    },
};

impl Turn<'_> {
    pub(super) fn ask(&mut self, ask: &Ask) -> SqlResult<Answer> {
        let mut room = self.enter(&ask.name)?;
        let answer = self.ask_one(&mut room, ask)?;
        self.leave(room);
        Ok(answer)
    }

    fn ask_one(&mut self, room: &mut Room, ask: &Ask) -> SqlResult<Answer> {
        let now = self.now.moment;
        if room.hold_of(&ask.token).is_some() {
            return self.ask_again(room, ask).map(Ok);
        }
        if let Some(capacity) = held::other_capacity(&room.holds, ask.mode) {
            self.remove_place(room, &ask.token)?;
            return Ok(Err(store::capacity_error(&room.name, capacity)));
        }
        let last_fence = self.last_fence();
        if let Some((seq, ahead)) = self.place_of(room, &ask.token)? {
            self.refresh_place(room, seq, ask)?;
            let standing = held::standing(&room.holds, ahead, now);
            return Ok(Ok(Reply::Queued(PlaceReply { last_fence, standing })));
        }
        if room.waiters == 0 && held::admits(&room.holds, ask.mode) {
            return Ok(Ok(Reply::Granted(self.admit(room, &Wish::from(ask), ask.ttl, None)?)));
        }
        let standing = held::standing(&room.holds, room.waiters, now);
        match ask.if_busy {
            IfBusy::Tell => Ok(Ok(Reply::Busy(standing))),
            IfBusy::Queue => {
                self.insert_place(room, ask)?;
                Ok(Ok(Reply::Queued(PlaceReply { last_fence, standing })))
            }
        }
    }

    /// An ask by the owner of the live lease: granted again, same fence, fresh expiry (R4).
    fn ask_again(&mut self, room: &mut Room, ask: &Ask) -> SqlResult<Reply> {
        let now = self.now.moment;
        let waiters = room.waiters;
        let Some(at) = room.holds.iter().position(|hold| hold.token == ask.token) else {
            return Ok(Reply::Gone(LostReason::NotOurs));
        };
        let hold = &mut room.holds[at];
        if let Err(reason) = hold.lengthen() {
            return Ok(Reply::Gone(reason));
        }
        hold.lasts_until(now + ask.ttl);
        hold.ttl_ms = row::millis(ask.ttl);
        self.update_hold(&room.name, hold)?;
        Ok(Reply::Granted(Grant {
            block: hold.block,
            slot: hold.slot,
            ttl: ask.ttl,
            evidence: Evidence::ThisRequest,
            waiters,
        }))
    }

    fn insert_place(&mut self, room: &mut Room, ask: &Ask) -> SqlResult<()> {
        self.change(
            "INSERT INTO places (name, seq, token, who, mode, ttl_us, delay_ms, block, client, since_us, \
             expires_us, value) \
             VALUES (?1, (SELECT coalesce(max(seq), 0) + 1 FROM places WHERE name = ?1), \
             ?2, ?3, ?4, ?5, 0, ?6, ?7, ?8, ?9, ?10)",
            params![
                room.name.as_str(),
                row::key(&ask.token),
                &**ask.token.who(),
                row::mode_code(ask.mode),
                row::length_us(ask.ttl),
                ask.block,
                self.client,
                row::micros(self.now.moment),
                row::micros(self.now.moment + timing::place_ttl(ask.ttl)),
                ask.value.as_ref().map(|value| value.as_bytes()),
            ],
        )?;
        room.waiters += 1;
        Ok(())
    }

    /// The ask may have changed; who waits, and since when, has not.
    fn refresh_place(&mut self, room: &mut Room, seq: i64, ask: &Ask) -> SqlResult<()> {
        self.change(
            "UPDATE places SET mode = ?3, ttl_us = ?4, block = ?5, expires_us = ?6, value = ?7 \
             WHERE name = ?1 AND seq = ?2",
            params![
                room.name.as_str(),
                seq,
                row::mode_code(ask.mode),
                row::length_us(ask.ttl),
                ask.block,
                row::micros(self.now.moment + timing::place_ttl(ask.ttl)),
                ask.value.as_ref().map(|value| value.as_bytes()),
            ],
        )?;
        room.front = None;
        Ok(())
    }
}
