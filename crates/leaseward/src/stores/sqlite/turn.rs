//! One transaction: rooms in, rows and pushes out.
//!
//! A turn keeps the fence counter and the last room in memory and writes through: nobody else can write meanwhile. What
//! it pushes is told only after the commit.

use rusqlite::{Connection, Result as SqlResult, params, types::ValueRef};
use smallvec::SmallVec;

use super::{
    room::Room,
    row::{self, Hold, hold_columns},
};
use crate::{
    Block, Fence, Name,
    clock::{Clock, Moment},
    store::Push,
};

/// When the clocks say a turn runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) moment: Moment,
    pub(super) wall_us: u64,
}

impl Now {
    pub(super) fn read(clock: &dyn Clock) -> Self {
        // As fine as it is stored, so that a moment compares alike before and after it was written.
        let nanos = clock.now().as_nanos();
        Self { moment: Moment::from_nanos(nanos - nanos % 1_000), wall_us: clock.wall_us() }
    }
}

#[derive(Debug)]
pub(super) struct Turn<'c> {
    pub(super) conn: &'c Connection,
    pub(super) now: Now,
    /// Whose turn it is: grants to this client's waiters are pushed by it, others are marked for theirs to find, and
    /// those clients are called.
    pub(super) client: i64,
    pub(super) pushes: Vec<Push>,
    pub(super) calls: Vec<i64>,
    /// The newest fence: read with the first room, written at the end.
    last: Option<Fence>,
    is_last_new: bool,
    /// The room of the last operation: names in a batch are sorted, so the next one is often the same.
    room: Option<Room>,
}

impl<'c> Turn<'c> {
    pub(super) fn new(conn: &'c Connection, now: Now, client: i64) -> Self {
        Self {
            conn,
            now,
            client,
            pushes: Vec::new(),
            calls: Vec::new(),
            last: None,
            is_last_new: false,
            room: None,
        }
    }

    /// Loads a name and settles it: every operation begins with this.
    pub(super) fn enter(&mut self, name: &Name) -> SqlResult<Room> {
        let mut room = match self.room.take_if(|room| room.name == *name) {
            Some(room) => room,
            None => self.load(name)?,
        };
        self.settle(&mut room)?;
        Ok(room)
    }

    /// Keeps a room for the next operation. Not after a failure: what it says may not have been written.
    pub(super) fn leave(&mut self, room: Room) {
        self.room = Some(room);
    }

    fn load(&mut self, name: &Name) -> SqlResult<Room> {
        const SQL: &str = concat!(
            "SELECT m.last_fence, (SELECT count(*) FROM places WHERE name = ?1), ",
            hold_columns!(),
            " FROM meta m LEFT JOIN holds h ON h.name = ?1"
        );
        let mut room = Room { name: name.clone(), holds: SmallVec::new(), waiters: 0, front: None };
        let mut statement = self.conn.prepare_cached(SQL)?;
        let mut rows = statement.query(params![name.as_str()])?;
        while let Some(row) = rows.next()? {
            if self.last.is_none() {
                self.last = Some(row::fence(row, 0)?);
            }
            room.waiters = row.get(1)?;
            // A free name joins as one row of nulls.
            if row.get_ref(2)? != ValueRef::Null {
                room.holds.push(Hold::read(row, 2)?);
            }
        }
        room.holds.sort_by_key(|hold| hold.block.first);
        Ok(room)
    }

    /// The newest fence given out.
    pub(super) fn last_fence(&self) -> Fence {
        self.last.expect("BUG: the counter is read with the first room, before anything is given")
    }

    /// Reads the newest fence without entering a name.
    pub(super) fn learn_last_fence(&mut self) -> SqlResult<()> {
        let mut statement = self.conn.prepare_cached("SELECT last_fence FROM meta WHERE id = 1")?;
        self.last = Some(statement.query_row([], |row| row::fence(row, 0))?);
        Ok(())
    }

    /// Reserves the next fences.
    pub(super) fn reserve(&mut self, len: u32) -> Block {
        let block = Block::after(self.last_fence(), self.now.wall_us, len);
        self.last = Some(block.last());
        self.is_last_new = true;
        block
    }

    /// Writes what was kept in memory; answers the newest fence, if the turn learned it.
    pub(super) fn finish(&self) -> SqlResult<Option<Fence>> {
        if self.is_last_new {
            let mut statement =
                self.conn.prepare_cached("UPDATE meta SET last_fence = ?1 WHERE id = 1")?;
            statement.execute(params![self.last_fence().get().cast_signed()])?;
        }
        Ok(self.last)
    }

    /// Runs a statement that is kept prepared; answers how many rows it changed.
    pub(super) fn change(&self, sql: &str, params: impl rusqlite::Params) -> SqlResult<usize> {
        self.conn.prepare_cached(sql)?.execute(params)
    }
}
