//! What is held, for people: what a majority of nodes shows.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::future::join_all;

use super::{
    client::Client,
    member::Absence,
    roll::Roll,
    votes::{Reply, Shown},
    wire::{By, Call, Care, Step},
};
use crate::{
    Error, ErrorKind, Name,
    store::{Break, Broken, HeldView, LockView, Query},
    stores::redis::inspect::{Scan, glob},
};

/// How many names are looked at in one call.
const LOOK_MAX: usize = 64;

/// For each name, the leases that one node shows.
pub(super) type Seen = Vec<Vec<Shown>>;

impl Client {
    pub(super) async fn inspect(&self, query: &Query) -> Result<Vec<LockView>, Error> {
        let (names, limit) = match query {
            Query::Name(name) => {
                self.reserved.check(name)?;
                (vec![name.clone()], usize::MAX)
            }
            Query::Prefix { prefix, after, limit } => {
                let mut names = self.scan(prefix).await?;
                names.retain(|name| after.as_ref().is_none_or(|after| name > after));
                (names, *limit)
            }
        };
        let mut views = Vec::new();
        for some in names.chunks(LOOK_MAX) {
            let seen = self.look(some).await?;
            for (at, name) in some.iter().enumerate() {
                let holders = self.merge(seen.iter().flat_map(|node| &node[at]));
                if !holders.is_empty() {
                    views.push(LockView { name: name.clone(), holders, waiters: Vec::new() });
                }
            }
            if views.len() >= limit {
                views.truncate(limit);
                break;
            }
        }
        Ok(views)
    }

    /// The leases that a majority has, each as the node shows it that will end it first.
    fn merge<'a>(&self, shown: impl Iterator<Item = &'a Shown>) -> Vec<HeldView> {
        let mut leases: BTreeMap<&str, Vec<&Shown>> = BTreeMap::new();
        for one in shown {
            leases.entry(&one.token).or_default().push(one);
        }
        let of_majority = leases.into_values().filter(|all| all.len() >= self.quorum.needed());
        let mut holders: Vec<HeldView> = of_majority
            .filter_map(|all| {
                let first = all.iter().min_by_key(|one| one.view.remaining)?;
                let fence = self.majority_fence(&all)?;
                let ending = all.iter().filter(|one| one.view.ending).count();
                Some(HeldView {
                    fence,
                    ending: all.len() - ending < self.quorum.needed(),
                    ..first.view.clone()
                })
            })
            .collect();
        holders.sort_by(|a, b| b.held.cmp(&a.held).then(a.fence.cmp(&b.fence)));
        holders
    }

    /// The fence most nodes have it under: one that a majority has, unless it is being asked for again just now.
    fn majority_fence(&self, all: &[&Shown]) -> Option<crate::Fence> {
        let same = |one: &&&Shown| all.iter().filter(|other| other.ballot == one.ballot).count();
        all.iter().max_by_key(same).map(|one| one.view.fence)
    }

    /// What each node that can be asked shows of some names; fails without a majority.
    pub(super) async fn look(&self, names: &[Name]) -> Result<Vec<Seen>, Error> {
        let steps: Vec<_> = names.iter().cloned().map(Step::Look).collect();
        let read = |mut reply: Reply| names.iter().map(|_| reply.shown()).collect();
        self.ask_all(steps, read).await
    }

    /// Asks every node that votes and waits for all of them, as long as one may take.
    async fn ask_all<T>(
        &self,
        steps: Vec<Step>,
        read: impl Fn(Reply) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let call = Arc::new(Call::new(self.prefix.clone(), Arc::default(), Care::Careful, steps));
        let mut roll = Roll::default();
        let voters = self.members.iter().map(|member| (member, roll.call(member, &self.config)));
        let asked = join_all(voters.map(async |(member, voter)| {
            let voter = voter?;
            let command = Arc::new(call.command(By::Hash, voter.floor_us));
            let asking = member.clone().call(voter.link, command, call.clone(), voter.floor_us);
            match tokio::time::timeout(self.config.timeout, asking).await {
                Ok(reply) => reply.map_err(Absence::Lost),
                Err(_) => Err(Absence::Late(self.config.timeout)),
            }
        }))
        .await;
        let (mut heard, mut absences) = (Vec::new(), Vec::new());
        for (at, reply) in asked.into_iter().enumerate() {
            match reply {
                Ok(reply) => heard.push(read(reply)?),
                Err(absence) => absences.push((at, absence)),
            }
        }
        if heard.len() < self.quorum.needed() {
            return Err(self.too_few(&absences, ErrorKind::Unavailable));
        }
        Ok(heard)
    }

    /// Names that begin with something and have a key at some node, sorted.
    async fn scan(&self, prefix: &str) -> Result<Vec<Name>, Error> {
        let wanted = format!("{}{}*", glob(&self.prefix), glob(prefix));
        let mut patterns = vec![format!("leaseward:b:{wanted}")];
        // With no prefix at all, locks of other libraries cannot be told from data: then only ours are listed.
        if !self.prefix.is_empty() {
            patterns.push(wanted);
        }
        let (mut names, mut absences) = (Vec::new(), Vec::new());
        for (at, member) in self.members.iter().enumerate() {
            let scanned = match member.voter(&self.config) {
                Ok(voter) => scan_one(&voter.link, &patterns).await.map_err(Absence::Lost),
                Err(absence) => Err(absence),
            };
            match scanned {
                Ok(keys) => names.extend(keys.iter().filter_map(|key| self.name_of_any(key))),
                Err(absence) => absences.push((at, absence)),
            }
        }
        if self.members.len() - absences.len() < self.quorum.needed() {
            return Err(self.too_few(&absences, ErrorKind::Unavailable));
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn name_of_any(&self, key: &[u8]) -> Option<Name> {
        let key = key.strip_prefix(b"leaseward:b:").unwrap_or(key);
        let name = key.strip_prefix(self.prefix.as_bytes())?;
        let name = std::str::from_utf8(name).ok()?;
        if self.reserved.has(name) { None } else { Name::new(name).ok() }
    }

    pub(super) async fn break_lease(&self, order: &Break) -> Result<Broken, Error> {
        self.reserved.check(&order.name)?;
        let steps = vec![Step::Break(order.name.clone(), order.now)];
        let broken = self.ask_all(steps, |mut reply| reply.broken()).await?;
        let told: Vec<_> = broken.iter().flatten().collect();
        if told.len() < self.quorum.needed() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "it is held by a client of another library, which cannot be told to end",
            )
            .hint("breaking it `--now` deletes its key, while that client may still be at work"));
        }
        Ok(Broken { holders: self.merge(told.into_iter().flatten()) })
    }
}

async fn scan_one(
    link: &crate::stores::redis::node::Link,
    patterns: &[String],
) -> Result<Vec<Vec<u8>>, Error> {
    let mut keys = Vec::new();
    for pattern in patterns {
        let mut scan = Scan::new(pattern);
        while let Some(found) = scan.next(link).await? {
            keys.extend(found);
        }
    }
    Ok(keys)
}
