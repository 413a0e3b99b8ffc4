//! Which permit of a semaphore it is: the lowest that nobody has, each a key of its own.

use std::collections::BTreeMap;

use super::{
    client::Client,
    conn::TXN,
    error::{self, Asked},
    keys::seat,
    proto::{KeyValue, TxnRequest, TxnResponse},
    queue::{self, Place},
    requests::{change, is_unchanged, oldest_first, put, range},
};
use crate::{Error, Name};

/// Attempts against others who take slots at the same time.
const ATTEMPTS: u32 = 100;

/// Slots given in one transaction: two comparisons each, and etcd takes 128 operations.
const TOGETHER: usize = 60;

/// A slot to be given to somebody.
struct Given<'a> {
    slot: u32,
    to: &'a Place,
}

impl Client {
    /// Takes a slot for a permit that is held, or finds the one it has.
    ///
    /// Slots are given in the order of the queue: whoever takes one also gives theirs to those before who have none yet,
    /// so that the fences of those who have a slot one after the other grow.
    pub(super) async fn claim_slot(
        &self,
        name: &Name,
        key: &[u8],
        capacity: u32,
    ) -> Result<Option<u32>, Error> {
        let (room, slots) = (self.keys.room(name), self.keys.slots(name));
        for _ in 0..ATTEMPTS {
            let look = TxnRequest {
                success: vec![range(oldest_first(&room)), range(oldest_first(&slots))],
                ..TxnRequest::default()
            };
            let answer: TxnResponse = self.link.call(TXN, Asked::Read, look).await?;
            let mut seen = answer.responses.into_iter().map(|part| part.range().kvs);
            let places = queue::read(seen.next().unwrap_or_default());
            let taken: BTreeMap<u32, KeyValue> = seen
                .next()
                .unwrap_or_default()
                .into_iter()
                .filter_map(|kv| {
                    let number = std::str::from_utf8(kv.key.strip_prefix(&*slots)?).ok()?;
                    Some((number.parse().ok()?, kv))
                })
                .collect();
            if let Some((slot, _)) = taken.iter().find(|(_, slot)| slot.value == seat(key)) {
                return Ok(Some(*slot));
            }
            let given = share_out(&places, &taken, key, capacity).ok_or_else(gone)?;
            let own = given.iter().find(|given| given.to.key == key).map(|given| given.slot);
            if self.write(self.giving(name, &given, &taken)).await?.succeeded && own.is_some() {
                return Ok(own);
            }
        }
        Err(gone())
    }

    fn giving(
        &self,
        name: &Name,
        given: &[Given<'_>],
        taken: &BTreeMap<u32, KeyValue>,
    ) -> TxnRequest {
        let mut txn = TxnRequest::default();
        for Given { slot, to } in given {
            let Some(mut record) = to.record.clone() else { continue };
            let slot_key = self.keys.slot(name, *slot);
            record.slot = Some(*slot);
            let before = taken.get(slot).map_or(0, |left_over| left_over.mod_revision);
            txn.compare
                .extend([is_unchanged(&slot_key, before), is_unchanged(&to.key, to.changed)]);
            txn.success.extend([
                put(&slot_key, seat(&to.key).to_vec(), to.lease),
                change(&to.key, record.write()),
            ]);
        }
        txn
    }
}

/// Gives the lowest free slots to those who hold a permit and have none, in their order, up to `own`. A slot whose owner
/// does not stand in the queue is free. `None` if `own` holds none, or if there is no slot.
fn share_out<'a>(
    places: &'a [Place],
    taken: &BTreeMap<u32, KeyValue>,
    own: &[u8],
    capacity: u32,
) -> Option<Vec<Given<'a>>> {
    let owner = |slot: &KeyValue| places.iter().find(|place| seat(&place.key) == slot.value);
    let mut free =
        (0..capacity).filter(|slot| taken.get(slot).is_none_or(|taken| owner(taken).is_none()));
    let has_one = |place: &Place| taken.values().any(|slot| slot.value == seat(&place.key));
    let holding = &places[..queue::holders(places)];
    let last = holding.iter().position(|place| place.key == own)?;
    let without = holding[..=last].iter().filter(|place| !has_one(place));
    without.take(TOGETHER).map(|to| Some(Given { slot: free.next()?, to })).collect()
}

/// Gone since, or not reached for the crowd: whoever asks next finds out.
fn gone() -> Error {
    error::unexpected()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(at: u8) -> Place {
        Place {
            key: vec![b'a', b'/', b'0' + at],
            create: i64::from(at),
            changed: 0,
            lease: 1,
            record: super::super::record::Record::read(
                br#"{"who":"me","token":"7","mode":"permit","capacity":3,"ttl_ms":5000,"since_us":0}"#,
            ),
        }
    }

    fn taken(slots: &[(u32, u8)]) -> BTreeMap<u32, KeyValue> {
        let slot = |(slot, owner): &(u32, u8)| {
            (*slot, KeyValue { value: vec![b'0' + owner], ..KeyValue::default() })
        };
        slots.iter().map(slot).collect()
    }

    #[test]
    fn slots_are_given_in_the_order_of_the_queue() {
        let places: Vec<_> = (1..=4).map(place).collect();
        let given = |slots: &[(u32, u8)], own: u8| {
            let given = share_out(&places, &taken(slots), &place(own).key, 3);
            given.map(|given| given.iter().map(|one| (one.slot, one.to.create)).collect::<Vec<_>>())
        };
        assert_eq!(given(&[], 1), Some(vec![(0, 1)]));
        assert_eq!(
            given(&[(1, 1)], 3),
            Some(vec![(0, 2), (2, 3)]),
            "those before have theirs first"
        );
        assert_eq!(given(&[(0, 9), (1, 1)], 2), Some(vec![(0, 2)]), "its owner has gone");
        assert_eq!(given(&[], 4), None, "it waits");
    }
}
