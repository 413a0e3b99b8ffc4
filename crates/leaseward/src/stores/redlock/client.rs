//! One client of several nodes.

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

use tokio::runtime::Handle;

use super::{
    config::Config,
    heal::Renewals,
    member::{Absence, Member},
    opening,
    overdue::Overdue,
    quorum::Quorum,
    roll::Roll,
    script::{CAREFUL, PLAIN},
    watch::Watched,
};
use crate::{
    Error, ErrorKind,
    clock::Clock,
    store::{OpenContext, Push, PushSink},
    stores::redis::{
        config::Address,
        dial::Dialler,
        error,
        node::{Link, Node, Wiring},
        reserved::Reserved,
    },
};

/// What to do about a server that is there twice.
pub(super) const ONCE: &str = "each server has one vote; give each once, under one name";

pub(super) struct Client {
    pub(super) config: Config,
    pub(super) prefix: Arc<str>,
    /// The names that must not become keys.
    pub(super) reserved: Reserved,
    pub(super) quorum: Quorum,
    pub(super) members: Vec<Arc<Member>>,
    pub(super) clock: Arc<dyn Clock>,
    /// The newest fence given out, as far as this client knows.
    pub(super) newest: AtomicU64,
    /// The last ballot that was proposed above the nodes' floor, while the clock had not reached it.
    pub(super) risen: AtomicU64,
    /// What a round takes lately, in microseconds.
    pub(super) round_us: AtomicU64,
    sink: OnceLock<PushSink>,
    pub(super) watched: Watched,
    pub(super) renewals: Arc<Renewals>,
    pub(super) overdue: Overdue,
    runtime: Handle,
}

impl Client {
    /// Connects to a majority at least; the others are connected in the background once they have taken too long.
    pub(super) async fn open(config: Config, context: &OpenContext) -> Result<Arc<Self>, Error> {
        if let Some(odd) = config.odd_number() {
            tracing::warn!(nodes = config.nodes.len(), "{odd}");
        }
        let dialler = Arc::new(Dialler::new(&config.node, &context.who)?);
        let this = Arc::new_cyclic(|me: &Weak<Self>| Self {
            prefix: Arc::from(config.prefix.as_str()),
            reserved: Reserved::new(&config.prefix),
            quorum: Quorum::of(config.nodes.len()),
            members: member_all(me, &config, &dialler, &context.clock),
            clock: context.clock.clone(),
            newest: AtomicU64::new(0),
            risen: AtomicU64::new(0),
            round_us: AtomicU64::new(1_000),
            sink: OnceLock::new(),
            watched: Watched::default(),
            renewals: Arc::default(),
            overdue: Overdue::default(),
            runtime: Handle::current(),
            config,
        });
        let opening = this.members.iter().map(|member| member.node.open());
        let grace = this.config.opening();
        let opened =
            opening::enough(opening, this.quorum.needed(), grace, error::refuses_login).await;
        this.check_opened(opened, grace)?;
        Ok(this)
    }

    /// Goes on without those that are not there, unless what is wrong is for a person to mend.
    fn check_opened(
        &self,
        opened: Vec<Option<Result<Arc<Link>, Error>>>,
        grace: Duration,
    ) -> Result<(), Error> {
        let (mut roll, mut absences) = (Roll::default(), Vec::new());
        for (at, (member, outcome)) in self.members.iter().zip(opened).enumerate() {
            let why = match outcome {
                Some(Ok(link)) => {
                    roll.enter(&link).map_err(|twin| named_twice(&member.address, &twin))?;
                    continue;
                }
                // What no retry mends, a wrong password above all, is told at once.
                Some(Err(error)) if error::refuses_login(&error) => {
                    return Err(named(&member.address, &error));
                }
                Some(Err(error)) => Absence::Lost(error),
                None => Absence::Late(grace),
            };
            member.node.reconnect();
            absences.push((at, why));
        }
        if self.members.len() - absences.len() >= self.quorum.needed() {
            return Ok(());
        }
        let for_a_person: Vec<_> = absences
            .iter()
            .filter_map(|(at, why)| match why {
                Absence::Lost(error) if needs_a_person(error) => Some((*at, error)),
                _ => None,
            })
            .collect();
        // Were all the others there, it would still be too few.
        if self.members.len() - for_a_person.len() < self.quorum.needed() {
            let (at, error) = for_a_person[0];
            return Err(named(&self.members[at].address, error));
        }
        Err(self.too_few(&absences, ErrorKind::Unavailable))
    }

    pub(super) fn start(&self, sink: PushSink) {
        // Called once; a second sink would only be another way to the same engine.
        let _ = self.sink.set(sink);
    }

    pub(super) fn push(&self, push: Push) {
        if let Some(sink) = self.sink.get() {
            sink(push);
        }
    }

    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    pub(super) fn close(&self) {
        for member in &self.members {
            member.node.close();
        }
    }
    /// The error when there is no majority.
    pub(super) fn too_few(&self, absences: &[(usize, Absence)], kind: ErrorKind) -> Error {
        let mut absent: Vec<_> = absences.iter().map(|(at, why)| (*at, why)).collect();
        absent.sort_by_key(|(at, _)| *at);
        absent.dedup_by_key(|(at, _)| *at);
        let list: Vec<_> = absent
            .iter()
            .map(|(at, why)| {
                let address = &self.members[*at].address;
                format!("{address} ({})", why.at(address))
            })
            .collect();
        let (needed, nodes) = (self.quorum.needed(), self.members.len());
        let message = match list.as_slice() {
            [] => format!("too few of the {nodes} nodes answered in time: {needed} are needed"),
            list => format!(
                "too few of the {nodes} nodes answered: {needed} are needed; without {}",
                list.join(", ")
            ),
        };
        let any = |is: fn(&Absence) -> bool| absent.iter().any(|(_, why)| is(why));
        Error::new(kind, message).hint(if any(|why| matches!(why, Absence::Twin(_))) {
            ONCE
        } else if any(|why| matches!(why, Absence::Waits(_))) {
            "wait; with `appendonly yes` and `appendfsync always` a node forgets nothing at its next restart; \
             `?amnesia=trust` is for those who know that no lock was forgotten"
        } else {
            "nothing is granted without a majority: bring nodes back, or check that this machine reaches them"
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
    }
}

/// An error of one node, with its address.
fn named(address: &Address, error: &Error) -> Error {
    let at = address.to_string();
    if error.message().contains(&at) {
        return error.duplicate();
    }
    let named = Error::new(error.kind(), format!("{at}: {}", error.message()));
    match error.hint_text() {
        Some(hint) => named.hint(hint),
        None => named,
    }
}

/// Whether connecting again could not help.
fn needs_a_person(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate)
}

fn named_twice(address: &Address, twin: &Absence) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("{address} {}", twin.at(address))).hint(ONCE)
}

fn member_all(
    me: &Weak<Client>,
    config: &Config,
    dialler: &Arc<Dialler>,
    clock: &Arc<dyn Clock>,
) -> Vec<Arc<Member>> {
    let member = |(at, address): (usize, &Address)| {
        let (hears, returns) = (me.clone(), me.clone());
        let wiring = Arc::new(Wiring {
            dialler: dialler.clone(),
            scripts: vec![&*PLAIN, &*CAREFUL],
            handover: "auto",
            runtime: Handle::current(),
            has_waited: AtomicBool::new(false),
            on_push: Box::new(move |info| {
                if let Some(client) = hears.upgrade() {
                    client.hear(at, &info);
                }
            }),
            on_loss: Box::new(|| {}),
            on_return: Box::new(move || {
                if let Some(client) = returns.upgrade() {
                    client.came_back(at);
                }
            }),
        });
        let node = Node::at(wiring, address.clone());
        Arc::new(Member::new(address.clone(), node, clock.clone(), config.max_ttl))
    };
    config.nodes.iter().enumerate().map(member).collect()
}
