//! Keeping, giving back and breaking leases.

use rusqlite::{Result as SqlResult, params};

use super::{
    room::Room,
    row::{self},
    turn::Turn,
};
use crate::{
    LostReason,
    store::{
        Break, Broken, Evidence, Release, Renew, Renewal, Reply,
        held::{Condition, Held},
    },
};

impl Turn<'_> {
    pub(super) fn renew(&mut self, renew: &Renew) -> SqlResult<Reply> {
        let mut room = self.enter(&renew.name)?;
        let reply = self.renew_in(&mut room, renew)?;
        self.leave(room);
        Ok(reply)
    }

    fn renew_in(&mut self, room: &mut Room, renew: &Renew) -> SqlResult<Reply> {
        let (now, waiters) = (self.now.moment, room.waiters);
        let Some(hold) = room.hold_of(&renew.token) else {
            return Ok(Reply::NotYours(LostReason::NotOurs));
        };
        if let Err(reason) = hold.lengthen() {
            return Ok(Reply::NotYours(reason));
        }
        hold.lasts_until(now + renew.ttl);
        hold.ttl_ms = row::millis(renew.ttl);
        self.update_hold(&renew.name, hold)?;
        Ok(Reply::Renewed(Renewal { ttl: renew.ttl, evidence: Evidence::ThisRequest, waiters }))
    }

    pub(super) fn release(&mut self, release: &Release) -> SqlResult<Reply> {
        let mut room = self.enter(&release.name)?;
        let reply = self.release_in(&mut room, release)?;
        self.settle(&mut room)?;
        self.leave(room);
        Ok(reply)
    }

    fn release_in(&mut self, room: &mut Room, release: &Release) -> SqlResult<Reply> {
        let now = self.now.moment;
        let Some(at) = room.holds.iter().position(|hold| hold.token == release.token) else {
            let was_queued = self.remove_place(room, &release.token)?;
            return Ok(if was_queued {
                Reply::Released
            } else {
                Reply::NotYours(LostReason::NotOurs)
            });
        };
        let hold = &mut room.holds[at];
        if hold.condition == Condition::Kept {
            return Ok(Reply::Released);
        }
        if !release.keep.is_zero() {
            hold.condition = Condition::Kept;
            hold.expires = now + release.keep;
            hold.handed = false;
            self.change(
                "UPDATE holds SET condition = ?3, expires_us = ?4, handed = 0 WHERE name = ?1 AND token = ?2",
                params![
                    release.name.as_str(),
                    row::key(&release.token),
                    row::condition_code(Condition::Kept),
                    row::micros(hold.expires)
                ],
            )?;
            return Ok(Reply::Released);
        }
        room.holds.remove(at);
        self.delete_hold(room, &release.token)?;
        Ok(Reply::Released)
    }

    pub(super) fn break_lease(&mut self, order: &Break) -> SqlResult<Broken> {
        let mut room = self.enter(&order.name)?;
        let mut holders = Vec::with_capacity(room.holds.len());
        for hold in &room.holds {
            let value = self
                .conn
                .prepare_cached("SELECT value FROM holds WHERE name = ?1 AND token = ?2")?
                .query_row(params![room.name.as_str(), row::key(&hold.token)], |row| {
                    row::value(row, 0)
                })?;
            holders.push(hold.view(value, self.now.moment));
        }
        if order.now {
            self.change("DELETE FROM holds WHERE name = ?1", params![room.name.as_str()])?;
            room.holds.clear();
            self.settle(&mut room)?;
        } else {
            self.change(
                "UPDATE holds SET condition = ?2 WHERE name = ?1",
                params![room.name.as_str(), row::condition_code(Condition::Broken)],
            )?;
            for hold in &mut room.holds {
                hold.condition = Condition::Broken;
            }
        }
        self.leave(room);
        Ok(Broken { holders })
    }
}
