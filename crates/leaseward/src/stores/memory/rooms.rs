//! The rooms of a space by name.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::{HashTable, hash_table::Entry};

use super::room::Room;
use crate::Name;

/// One word a name: a table is twice as large as it need be after it has grown, and that must not count for whole rooms.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    table: HashTable<Box<Room>>,
    hasher: RandomState,
    /// A room that has just been left: the next name moves in, and no memory is asked for.
    spare: Option<Box<Room>>,
}

impl Rooms {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Room> {
        self.table.iter().map(|room| &**room)
    }

    #[cfg(test)]
    pub(super) fn get(&self, name: &Name) -> Option<&Room> {
        self.table.find(self.hash(name), |room| room.name == *name).map(|room| &**room)
    }

    pub(super) fn get_mut(&mut self, name: &Name) -> Option<&mut Room> {
        self.table.find_mut(self.hash(name), |room| room.name == *name).map(|room| &mut **room)
    }

    /// The room of a name, made if there is none.
    pub(super) fn open(&mut self, name: &Name) -> &mut Room {
        let hash = self.hash(name);
        let hash_of = |name: &Name| self.hasher.hash_one(name.as_str());
        match self.table.entry(hash, |room| room.name == *name, |room| hash_of(&room.name)) {
            Entry::Occupied(room) => room.into_mut(),
            Entry::Vacant(free) => {
                let room = match self.spare.take() {
                    Some(mut room) => {
                        room.name = name.clone();
                        room
                    }
                    None => Box::new(Room::new(name.clone())),
                };
                free.insert(room).into_mut()
            }
        }
    }

    /// Takes out the room of a name that nobody holds or waits for.
    pub(super) fn remove(&mut self, name: &Name) {
        if let Ok(room) = self.table.find_entry(self.hash(name), |room| room.name == *name) {
            let (room, _) = room.remove();
            debug_assert!(room.is_empty(), "BUG: somebody is still in it");
            self.spare = Some(room);
        }
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&mut Room) -> bool) {
        self.table.retain(|room| keep(room));
    }

    fn hash(&self, name: &Name) -> u64 {
        self.hasher.hash_one(name.as_str())
    }
}
