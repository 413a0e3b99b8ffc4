//! Looking at lines, and breaking leases.

use std::{sync::Arc, time::Duration};

use super::{
    client::Client,
    error,
    layout::{self, Contender, Queue},
    record::Record,
    renew::slot_path,
    session::{Fault, Session},
    wait,
    wire::{Body, Code, Request, Stat},
};
use crate::{
    Error, ErrorKind, Mode, Name,
    store::{Break, Broken, HeldView, LockView, Query, WaiterView},
};

/// Names looked at in one flight.
const TOGETHER: usize = 256;

/// Somebody may change a node between our look and our order.
const ATTEMPTS: usize = 8;

/// A place, and what its node says.
struct Seen {
    place: Contender,
    data: Vec<u8>,
    stat: Stat,
}

impl Client {
    pub(super) async fn inspect(&self, query: &Query) -> Result<Vec<LockView>, Error> {
        let session = self.any_session().await?;
        let (names, limit) = match query {
            Query::Name(name) => (vec![name.clone()], 1),
            Query::Prefix { prefix, after, limit } => {
                let mut names = self.names(&session).await?;
                names.retain(|name| {
                    name.starts_with(prefix.as_str())
                        && after.as_ref().is_none_or(|after| name > after)
                });
                names.sort_unstable();
                (names, *limit)
            }
        };
        let mut views = Vec::new();
        for names in names.chunks(TOGETHER) {
            if views.len() >= limit {
                break;
            }
            let looks = names.iter().map(|name| self.folder(name));
            let looks = looks.map(|path| Request::Children { path, watch: false });
            let answers = session.fly([Request::Sync].into_iter().chain(looks).collect()).await;
            for (name, answer) in names.iter().zip(answers.into_iter().skip(1)) {
                let queue = self.queue_in(Some(answer))?;
                if !queue.is_empty() && views.len() < limit {
                    views.extend(self.view(&session, name, &queue).await?);
                }
            }
        }
        Ok(views)
    }

    /// The names that have a node.
    async fn names(&self, session: &Session) -> Result<Vec<Name>, Error> {
        let root = &self.ground.config.root;
        let path = if root.is_empty() { "/".to_owned() } else { root.clone() };
        let children = Request::Children { path, watch: false };
        match session.fly(vec![Request::Sync, children]).await.pop() {
            Some(Ok(Body::Children(nodes))) => {
                Ok(nodes.iter().filter_map(|node| layout::unescape(node)).collect())
            }
            Some(Err(Fault::Refused(Code::NoNode))) => Ok(Vec::new()),
            Some(Err(fault)) => Err(self.failed(fault, false)),
            Some(Ok(_)) | None => Err(error::unexpected(&self.at())),
        }
    }

    /// Reads the nodes of a line; those that have just gone are left out.
    async fn read(
        &self,
        session: &Session,
        name: &Name,
        line: &[Contender],
    ) -> Result<Vec<Seen>, Error> {
        let folder = self.folder(name);
        let gets = line
            .iter()
            .map(|place| Request::Get { path: format!("{folder}/{}", place.node), watch: false });
        let answers = session.fly(gets.collect()).await;
        let mut seen = Vec::with_capacity(line.len());
        for (place, answer) in line.iter().zip(answers) {
            match answer {
                Ok(Body::Data { data, stat }) => {
                    seen.push(Seen { place: place.clone(), data, stat })
                }
                Err(Fault::Refused(Code::NoNode)) => {}
                Err(fault) => return Err(self.failed(fault, false)),
                Ok(_) => return Err(error::unexpected(&self.at())),
            }
        }
        Ok(seen)
    }

    async fn view(
        &self,
        session: &Session,
        name: &Name,
        queue: &Queue,
    ) -> Result<Option<LockView>, Error> {
        let (holders, waiters) = queue.line().split_at(queue.holders());
        let holders = self.read(session, name, holders).await?;
        let waiters = self.read(session, name, waiters).await?;
        if holders.is_empty() && waiters.is_empty() {
            return Ok(None);
        }
        Ok(Some(LockView {
            name: name.clone(),
            holders: holders.iter().map(|seen| self.held(seen)).collect(),
            waiters: waiters.iter().map(|seen| self.waiting(seen)).collect(),
        }))
    }

    fn held(&self, seen: &Seen) -> HeldView {
        let record = Record::read(&seen.data);
        let fence = self.fences.of(seen.stat.czxid);
        let since_ms = record.as_ref().and_then(|record| record.since_ms);
        HeldView {
            who: who(record.as_ref(), seen),
            token_prefix: prefix(&seen.place),
            mode: seen.place.mode,
            fence: record.as_ref().map_or(fence, |record| record.fence_or(fence)),
            slot: match seen.place.mode {
                Mode::Permit { .. } => record.as_ref().and_then(|record| record.slot),
                Mode::Exclusive | Mode::Shared => None,
            },
            ttl: record.as_ref().map_or(Duration::ZERO, Record::ttl),
            remaining: record.as_ref().map(|record| self.remaining(record)),
            held: self.age(since_ms.unwrap_or(seen.stat.ctime_ms)),
            value: record.as_ref().and_then(Record::value),
            ending: record.is_some_and(|record| record.broken),
        }
    }

    /// How long a lease lasts yet: its whole time, unless its holder has said that it does not keep it.
    fn remaining(&self, record: &Record) -> Duration {
        let left = |ends_ms: u64| {
            Duration::from_millis(ends_ms)
                .saturating_sub(Duration::from_micros(self.ground.clock.wall_us()))
        };
        record.ends_ms.map_or(record.ttl(), left)
    }

    fn waiting(&self, seen: &Seen) -> WaiterView {
        WaiterView {
            who: who(Record::read(&seen.data).as_ref(), seen),
            token_prefix: prefix(&seen.place),
            mode: seen.place.mode,
            waited: self.age(seen.stat.ctime_ms),
        }
    }

    /// How long ago that was, by the leader's clock and ours.
    fn age(&self, ms: i64) -> Duration {
        let then = Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        Duration::from_micros(self.ground.clock.wall_us()).saturating_sub(then)
    }

    pub(super) async fn break_lease(&self, order: &Break) -> Result<Broken, Error> {
        let session = self.any_session().await?;
        let mut broken = Vec::new();
        for _ in 0..ATTEMPTS {
            let queue = self.line_of(&session, &order.name).await?;
            let holders = &queue.line()[..queue.holders()];
            let mut is_done = true;
            for seen in self.read(&session, &order.name, holders).await? {
                match self.break_one(&session, order, &seen).await? {
                    Some(view) => broken.push(view),
                    None => is_done = false,
                }
            }
            if is_done {
                break;
            }
        }
        Ok(Broken { holders: broken })
    }

    /// `None` if it changed meanwhile.
    async fn break_one(
        &self,
        session: &Arc<Session>,
        order: &Break,
        seen: &Seen,
    ) -> Result<Option<HeldView>, Error> {
        let (view, record) = (self.held(seen), Record::read(&seen.data));
        let (folder, version) = (self.folder(&order.name), Some(seen.stat.version));
        let outcome = match (order.now, record) {
            (true, record) => {
                let slot = record.and_then(|record| slot_path(&folder, seen.place.mode, &record));
                self.delete(session, &folder, &seen.place.node, version, slot).await.map(drop)
            }
            (false, Some(record)) if record.broken => return Ok(Some(view)),
            (false, Some(record)) => {
                let data = Record { broken: true, ..record }.to_data();
                let path = format!("{folder}/{}", seen.place.node);
                session.ask(Request::Set { path, data, version }).await.map(drop)
            }
            (false, None) => return Err(not_ours(&order.name, &view.who)),
        };
        match outcome {
            Ok(()) => Ok(Some(view)),
            Err(Fault::Refused(Code::BadVersion | Code::NoNode)) => Ok(None),
            Err(fault) => Err(self.failed(fault, true)),
        }
    }
}

fn not_ours(name: &Name, who: &str) -> Error {
    let message = format!("`{name}` is held by {who}, a client of another library");
    Error::new(ErrorKind::Unsupported, message).hint(
        "it cannot be told; `--now` deletes its node, and only what it does about that protects",
    )
}

fn who(record: Option<&Record>, seen: &Seen) -> Arc<str> {
    match record {
        Some(record) => record.who.clone(),
        None => wait::foreign(&seen.place.node, &seen.data),
    }
}

fn prefix(place: &Contender) -> String {
    let mut digits =
        place.random.map_or_else(|| place.node.clone(), |token| format!("{token:032x}"));
    digits.truncate(digits.char_indices().nth(8).map_or(digits.len(), |(at, _)| at));
    digits
}
