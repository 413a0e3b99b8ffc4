//! What can be known about locks: our own by name, those of others by key.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio_postgres::types::Type;

use super::{
    super::answers::column,
    client::{Client, Turn},
    key::Slot,
    session::Session,
    statement,
};
use crate::{
    Error, ErrorKind, Fence, Holder, Mode, Name,
    clock::Moment,
    store::{Break, Broken, HeldView, LockView, Query},
};

/// Who was seen to hold a lock, and when.
#[derive(Clone, Debug)]
pub(super) struct Sighting {
    pub(super) holder: Option<Holder>,
    at: Moment,
}

/// How long a sighting is good enough for messages: looking means looking at all locks of the server.
const SIGHTING: Duration = Duration::from_secs(1);

/// What stands before a key where a name is expected.
const UNNAMED: &str = "advisory key ";

/// Advisory locks of other sessions in this database.
const OTHERS: &str = "SELECT l.classid, l.objid, l.objsubid, l.mode, l.pid, coalesce(a.application_name, '') \
     FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid \
     WHERE l.locktype = 'advisory' AND l.granted AND l.pid <> pg_backend_pid() \
     AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
     AND ($1::bigint[] IS NULL OR ((l.classid::bigint << 32) | l.objid::bigint) = ANY($1))";

/// A lock of another session.
struct Seen {
    slot: Slot,
    mode: Mode,
    pid: i32,
    who: Arc<str>,
}

async fn others(
    session: &Session,
    slots: Option<&[Slot]>,
    now: Moment,
) -> Result<Vec<Seen>, Error> {
    let keys = slots.map(|slots| slots.iter().map(|slot| slot.packed()).collect::<Vec<_>>());
    let rows = session.query(OTHERS, &[(&keys, Type::INT8_ARRAY)], now).await?;
    let seen = rows.iter().map(|row| {
        let (name, pid): (&str, i32) = (column(row, 5)?, column(row, 4)?);
        let who = match name.strip_prefix("leaseward ") {
            Some(who) => Arc::from(who),
            None if name.is_empty() => Arc::from(format!("PostgreSQL process {pid}")),
            None => Arc::from(format!("{name} (PostgreSQL process {pid})")),
        };
        let mode =
            if column::<&str>(row, 3)? == "ShareLock" { Mode::Shared } else { Mode::Exclusive };
        let slot = Slot::shown(column(row, 0)?, column(row, 1)?, column(row, 2)?);
        Ok(Seen { slot, mode, pid, who })
    });
    // The same number may be one key of 64 bits and two of 32.
    let is_asked = |seen: &Seen| slots.is_none_or(|slots| slots.contains(&seen.slot));
    seen.filter(|seen| seen.as_ref().map_or(true, is_asked)).collect()
}

impl Seen {
    fn view(&self) -> HeldView {
        HeldView {
            who: self.who.clone(),
            token_prefix: String::new(),
            mode: self.mode,
            fence: Fence::ZERO,
            slot: None,
            ttl: Duration::ZERO,
            remaining: None,
            held: Duration::ZERO,
            value: None,
            ending: false,
        }
    }
}

impl Client {
    /// Looks who holds these locks, unless that was done a moment ago.
    pub(super) async fn sight(
        &self,
        turn: &mut Turn,
        session: &Session,
        slots: &[Slot],
        now: Moment,
    ) {
        turn.sightings.retain(|_, seen| now.since(seen.at) < SIGHTING);
        let unseen: Vec<Slot> =
            slots.iter().filter(|slot| !turn.sightings.contains_key(slot)).copied().collect();
        if unseen.is_empty() {
            return;
        }
        // Who it is is for people; without it the answer is the same.
        let found = others(session, Some(&unseen), now).await.unwrap_or_default();
        for slot in unseen {
            let seen = found.iter().find(|seen| seen.slot == slot);
            let holder = seen.map(|seen| Holder::new(seen.who.clone(), seen.mode, None));
            turn.sightings.insert(slot, Sighting { holder, at: now });
        }
    }

    pub(super) async fn inspect(self: &Arc<Self>, query: &Query) -> Result<Vec<LockView>, Error> {
        let session = self.session(&mut *self.turn.lock().await).await?;
        let now = self.clock.now();
        let slots = match query {
            Query::Name(name) => Some(vec![self.settings.slot(name)?]),
            Query::Prefix { .. } => None,
        };
        let others = others(&session, slots.as_deref(), now).await?;
        let mut views: BTreeMap<Name, Vec<HeldView>> = BTreeMap::new();
        let mut names = BTreeMap::new();
        for (slot, hold) in session.table.lock().all().filter(|(_, hold)| hold.expires > now) {
            names.insert(slot, hold.name.clone());
            views.entry(hold.name.clone()).or_default().push(hold.view(now));
        }
        let internal = Slot::One(statement::gate(&self.settings.config.schema));
        for seen in others.iter().filter(|seen| seen.slot != internal) {
            let name = match (query, names.get(&seen.slot)) {
                (Query::Name(name), _) => name.clone(),
                (_, Some(name)) => name.clone(),
                _ if self.settings.keys == super::config::Keys::Raw => {
                    Name::new(seen.slot.to_string())?
                }
                _ => Name::new(format!("{UNNAMED}{}", seen.slot))?,
            };
            views.entry(name).or_default().push(seen.view());
        }
        let view = |(name, mut holders): (Name, Vec<HeldView>)| {
            holders.sort_by_key(|held| held.fence);
            LockView { name, holders, waiters: Vec::new() }
        };
        Ok(match query {
            Query::Name(name) => views.remove_entry(name).into_iter().map(view).collect(),
            Query::Prefix { prefix, after, limit } => {
                let is_asked = |name: &Name| {
                    name.starts_with(prefix.as_str())
                        && after.as_ref().is_none_or(|after| name > after)
                };
                views
                    .into_iter()
                    .filter(|(name, _)| is_asked(name))
                    .take(*limit)
                    .map(view)
                    .collect()
            }
        })
    }

    /// One lock of a session cannot be ended from outside, only the session.
    pub(super) async fn break_lease(self: &Arc<Self>, order: &Break) -> Result<Broken, Error> {
        let session = self.session(&mut *self.turn.lock().await).await?;
        let (slot, now) = (self.settings.slot(&order.name)?, self.clock.now());
        let others = others(&session, Some(&[slot]), now).await?;
        let pid = match others.first() {
            Some(seen) => seen.pid,
            None if session.table.lock().is_held(slot) => session.identity.pid,
            None => return Ok(Broken { holders: Vec::new() }),
        };
        let message = format!(
            "`{}` is an advisory lock of PostgreSQL process {pid}, which only that process can give back",
            order.name
        );
        Err(Error::new(ErrorKind::Unsupported, message).hint(format!(
            "`select pg_terminate_backend({pid})` ends the process, and with it all of its locks"
        )))
    }
}
