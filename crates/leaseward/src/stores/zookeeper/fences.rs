//! Fences: the transaction that created a node, moved onto the scale of microseconds since the epoch.
//!
//! `fence = base + czxid`. The base, the clock less the transaction number at that moment, is written once, into a node
//! that stays. Where transaction numbers began anew although it is there (a tree that was copied into other servers), it
//! is written again, so that fences go on.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::{
    error, layout,
    session::{Fault, Ground, Session},
    wire::{Body, Code, Kind, Request},
};
use crate::{Error, ErrorKind, Fence};

/// Others may write it at the same time; each time one of them has.
const ATTEMPTS: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Fences {
    base: AtomicI64,
    newest: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Base {
    base: i64,
    /// The newest transaction when it was written.
    zxid: i64,
}

impl Base {
    fn new(clock_us: i64, zxid: i64) -> Self {
        Self { base: clock_us - zxid, zxid }
    }

    /// What is to be written instead, if anything.
    fn next(self, clock_us: i64, zxid: i64) -> Option<Self> {
        let epoch = |zxid: i64| zxid >> 32;
        if zxid < self.zxid {
            // Numbers began anew.
            Some(Self::new(clock_us.max(self.base + self.zxid + 1), zxid))
        } else if epoch(zxid) > epoch(self.zxid) {
            Some(Self { zxid, ..self })
        } else {
            None
        }
    }
}

impl Fences {
    /// The fence of a node.
    pub(super) fn of(&self, czxid: i64) -> Fence {
        let fence = self.base.load(Ordering::Acquire).saturating_add(czxid);
        let fence = u64::try_from(fence).unwrap_or(0);
        self.newest.fetch_max(fence, Ordering::Relaxed);
        Fence::new(fence)
    }

    /// The newest that was seen, in microseconds.
    pub(super) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Relaxed)
    }

    /// Learns the base. Called before anything is taken over a session.
    pub(super) async fn learn(&self, ground: &Ground, session: &Session) -> Result<(), Error> {
        let config = &ground.config;
        let at = config.location();
        let path = format!("{}/{}", config.root, layout::FENCES);
        let failed = |fault| error::of_fault(fault, false, &at);
        for _ in 0..ATTEMPTS {
            let get = Request::Get { path: path.clone(), watch: false };
            let found = session.fly(vec![Request::Sync, get]).await.pop();
            let clock_us = i64::try_from(ground.clock.wall_us()).unwrap_or(i64::MAX);
            let (wanted, write) = match found {
                Some(Ok(Body::Data { data, stat })) => {
                    let base: Base = serde_json::from_slice(&data).map_err(|_| spoilt(&path))?;
                    let Some(next) = base.next(clock_us, session.zxid()) else {
                        self.base.store(base.base, Ordering::Release);
                        return Ok(());
                    };
                    let (path, version) = (path.clone(), Some(stat.version));
                    (next, Request::Set { path, data: json(next), version })
                }
                Some(Err(Fault::Refused(Code::NoNode))) => {
                    make_root(ground, session).await.map_err(failed)?;
                    let base = Base::new(clock_us, session.zxid());
                    let (path, acl, kind) = (path.clone(), config.acl(), Kind::Persistent);
                    (base, Request::Create { path, data: json(base), acl, kind })
                }
                Some(Err(fault)) => return Err(failed(fault)),
                Some(Ok(_)) | None => return Err(error::unexpected(&at)),
            };
            match session.ask(write).await {
                Ok(_) => {
                    self.base.store(wanted.base, Ordering::Release);
                    return Ok(());
                }
                Err(Fault::Refused(Code::NodeExists | Code::BadVersion | Code::NoNode)) => {}
                Err(fault) => return Err(failed(fault)),
            }
        }
        Err(failed(Fault::Refused(Code::BadVersion)))
    }
}

/// Makes the nodes down to the one that names are under.
async fn make_root(ground: &Ground, session: &Session) -> Result<(), Fault> {
    let config = &ground.config;
    let ends = config.root.match_indices('/').skip(1).map(|(at, _)| at);
    for end in ends.chain([config.root.len()]).filter(|end| *end > 0) {
        let create = Request::Create {
            path: config.root[..end].to_owned(),
            data: Vec::new(),
            acl: config.acl(),
            kind: Kind::Persistent,
        };
        match session.ask(create).await {
            // Whoever may not create it may be allowed to use what is in it.
            Ok(_) | Err(Fault::Refused(Code::NodeExists | Code::NoAuth)) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

fn json(base: Base) -> Vec<u8> {
    serde_json::to_vec(&base).unwrap_or_default()
}

fn spoilt(path: &str) -> Error {
    Error::new(ErrorKind::Refused, format!("the node `{path}` does not say what it should"))
        .hint("something else wrote into it; delete it while no lock is held, and it is made anew")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_kept_until_numbers_begin_anew() {
        let base = Base::new(1_000_000, 300);
        assert_eq!(base.base + 300, 1_000_000);
        assert_eq!(base.next(2_000_000, 900), None);
        let voted = base.next(2_000_000, 1 << 32).expect("noted");
        assert_eq!((voted.base, voted.zxid), (base.base, 1 << 32));
        let anew = base.next(2_000_000, 5).expect("rebuilt");
        assert_eq!(anew.base + 5, 2_000_000);
        let behind = voted.next(2_000_000, 5).expect("rebuilt");
        assert!(behind.base + 5 > voted.base + (1 << 32), "although the clock is behind");
    }
}
