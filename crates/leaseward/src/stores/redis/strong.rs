//! Strong mode: what begins or lengthens a hold counts only once enough replicas have it.
//!
//! A batch and a `WAIT` go out in one piece over a connection of their own, because a `WAIT` holds up whatever is sent
//! behind it and answers only for what its own connection wrote. Its answer is the verdict: a lease that too few replicas
//! acknowledged is given back, a renewal does not move the deadline. Each server has one such connection for asks and
//! one for renewals, as the engine has one batch of each under way: nothing ever stands behind a `WAIT`, and what comes
//! meanwhile shares the next.
//!
//! A pushed grant starts nothing here: its token asks again, which writes, and the answer is judged like any other.
//!
//! This is no consensus: where fewer replicas are required than there are, one that never had the lease may be promoted.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::{Cmd, Value};
use tokio::sync::OnceCell;

use super::{
    calls::{Called, Via},
    client::{Client, Unsorted},
    config::{self, Address},
    error::{self, Code},
    late::Late,
    node::{Link, Node, Wiring},
    probe,
    servers::Servers,
};
use crate::{
    Error, ErrorKind,
    store::{Answer, Batch, Operation, Release, Reply},
};

/// Which of the connections to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Asks,
    Renewals,
}

impl Line {
    /// The one for a batch; none if nothing in it begins or lengthens a hold.
    pub(super) fn of(batch: &Batch) -> Option<Self> {
        let has = |is: fn(&Operation) -> bool| batch.iter().any(is);
        if has(|operation| matches!(operation, Operation::Ask(_))) {
            Some(Self::Asks)
        } else if has(|operation| matches!(operation, Operation::Renew(_))) {
            Some(Self::Renewals)
        } else {
            None
        }
    }
}

/// The connections of strong mode, and its rule.
pub(super) struct Strong {
    rule: config::Strong,
    wiring: Arc<Wiring>,
    is_cluster: bool,
    lines: Mutex<HashMap<Address, Arc<Lines>>>,
    pub(super) late: Late,
}

/// Those to one server.
struct Lines {
    asks: Seat,
    renewals: Seat,
}

struct Seat {
    node: Arc<Node>,
    /// Set once it was first tried; from then on it is kept connected.
    opened: OnceCell<()>,
}

impl Seat {
    fn new(wiring: Arc<Wiring>, address: Address) -> Self {
        Self { node: Node::at(wiring, address), opened: OnceCell::new() }
    }

    async fn link(&self) -> Result<Arc<Link>, Error> {
        let begin = || async {
            if let Err(why) = self.node.open().await {
                tracing::warn!(error = %why, "no connection for strong mode yet");
                self.node.reconnect();
            }
        };
        self.opened.get_or_init(begin).await;
        self.node.link()
    }
}

/// How many replicas have what was written, as far as the server said so.
type Acknowledged = Result<u32, Error>;

impl Strong {
    pub(super) fn new(rule: config::Strong, wiring: Arc<Wiring>, is_cluster: bool) -> Self {
        Self { rule, wiring, is_cluster, lines: Mutex::default(), late: Late::default() }
    }

    /// Connects, and looks whether the servers can do it.
    pub(super) async fn open(&self, servers: &Servers) -> Result<(), Error> {
        // A node of a cluster that is down just now is connected when it is needed.
        let links = servers.primaries().into_iter().filter_map(|node| node.link().ok());
        join_all(links.map(|shared| async move { self.look_at(&shared).await }))
            .await
            .into_iter()
            .collect()
    }

    async fn look_at(&self, shared: &Link) -> Result<(), Error> {
        let (_, link) = self.connection(shared, Line::Asks).await?;
        self.connection(shared, Line::Renewals).await?;
        if let Err(refusal) = link.command(&wait_for(0, Duration::from_millis(1))).await {
            return Err(refused(&refusal, &link.address));
        }
        let (connected, required) = (link.probe.replicas(), self.rule.replicas);
        if let Some(connected) = connected.filter(|connected| *connected < required) {
            tracing::warn!(
                address = %link.address, connected, required,
                "too few replicas: every lease will be refused until more are connected"
            );
        }
        Ok(())
    }

    /// A connection to the server at the other end of the shared one.
    pub(super) async fn connection(
        &self,
        shared: &Link,
        line: Line,
    ) -> Result<(Arc<Node>, Arc<Link>), Error> {
        let lines = self.lines_to(&shared.address);
        let seat = match line {
            Line::Asks => &lines.asks,
            Line::Renewals => &lines.renewals,
        };
        Ok((seat.node.clone(), seat.link().await?))
    }

    /// Gives up connections to nodes that left the cluster, or take no writes any more.
    pub(super) fn tidy(&self, servers: &Servers) {
        let mut lines = self.lines.lock();
        if lines.len() > servers.count() {
            lines.retain(|address, _| servers.has(address));
        }
    }

    fn lines_to(&self, address: &Address) -> Arc<Lines> {
        let mut lines = self.lines.lock();
        if let Some(known) = lines.get(address) {
            return known.clone();
        }
        if !self.is_cluster {
            // There is one primary, and it is no longer where it was.
            lines.clear();
        }
        let seat = || Seat::new(self.wiring.clone(), address.clone());
        let new = Arc::new(Lines { asks: seat(), renewals: seat() });
        lines.insert(address.clone(), new.clone());
        new
    }

    /// The command that waits for replicas.
    pub(super) fn wait(&self) -> Cmd {
        wait_for(self.rule.replicas, self.rule.timeout)
    }

    /// What the replicas of each call's server acknowledged. Calls to one server share the waiting.
    async fn acknowledged(&self, calls: &[Result<Called, Error>]) -> Vec<Acknowledged> {
        let mut links: Vec<&Arc<Link>> = Vec::new();
        for called in calls.iter().flatten().filter(|called| called.acknowledged.is_none()) {
            if !links.iter().any(|link| Arc::ptr_eq(link, &called.link)) {
                links.push(&called.link);
            }
        }
        let wait = self.wait();
        let answers = join_all(links.iter().map(|link| link.command(&wait))).await;
        let of = |called: &Called| match &called.acknowledged {
            Some(answer) => read_wait(answer, &called.link.address),
            None => match links.iter().position(|link| Arc::ptr_eq(link, &called.link)) {
                Some(at) => match &answers[at] {
                    Ok(answer) => read_wait(answer, &called.link.address),
                    Err(error) => Err(error::of_call(error, &called.link.address.to_string())),
                },
                None => unreachable!("BUG: every server was asked"),
            },
        };
        calls
            .iter()
            .map(|outcome| outcome.as_ref().map_err(Error::duplicate).and_then(of))
            .collect()
    }

    pub(super) fn close(&self) {
        for (_, lines) in self.lines.lock().drain() {
            lines.asks.node.close();
            lines.renewals.node.close();
        }
    }
}

/// Too few replicas have it.
struct Shortage {
    required: u32,
    acknowledged: Acknowledged,
    /// How many are connected, if the server said so.
    connected: Option<u32>,
}

impl Shortage {
    /// A lease that was given back, or may not have been.
    fn of_lease(&self, is_undone: bool) -> Error {
        if is_undone {
            self.error(ErrorKind::Unavailable, "the lease; it was given back")
        } else {
            self.error(ErrorKind::Indeterminate, "the lease, and giving it back was not answered")
        }
    }

    fn of_renewal(&self) -> Error {
        // The primary has lengthened it: something changed, but nothing to rely on.
        self.error(ErrorKind::Indeterminate, "the renewal; the deadline stays where it was")
    }

    fn error(&self, kind: ErrorKind, what: &str) -> Error {
        let required = self.required;
        let error = match &self.acknowledged {
            Ok(count) => {
                Error::new(kind, format!("only {count} of {required} replicas acknowledged {what}"))
            }
            Err(why) => Error::new(kind, format!("redis did not say who acknowledged {what}"))
                .caused_by(why.duplicate()),
        };
        match self.connected {
            Some(connected) if connected < required => error.hint(format!(
                "{connected} connected, {required} required: start replicas, or lower `replicas`"
            )),
            Some(connected) => error.hint(format!(
                "{connected} connected, but slow or cut off: `replica_timeout` gives them longer"
            )),
            None => error,
        }
    }
}

impl Client {
    /// Carries out a batch and answers what replicas acknowledged.
    pub(super) async fn submit_strongly(
        self: &Arc<Self>,
        strong: &Strong,
        batch: &Batch,
        line: Line,
    ) -> Vec<Answer> {
        let via = Via::Line { strong, line, waits: true };
        // All of it by the careful script: what came back as odd would have to be waited for once more.
        let parts = self.split(batch, 0..batch.len());
        let outcomes = self.carry_out(batch, &parts, via).await;
        let acknowledged = strong.acknowledged(&outcomes).await;
        let links: Vec<_> = outcomes
            .iter()
            .map(|outcome| outcome.as_ref().ok().map(|called| called.link.clone()))
            .collect();
        let mut answers = Unsorted::of(batch);
        self.read_all(batch, &parts, outcomes, &mut answers);
        let mut answers = answers.sorted();
        let mut granted = Vec::new();
        for ((part, acknowledged), link) in parts.iter().zip(acknowledged).zip(links) {
            let counts = |place: &&usize| {
                matches!(answers[**place], Ok(Reply::Granted(_) | Reply::Renewed(_)))
            };
            let judged: Vec<_> = part.places.iter().filter(counts).copied().collect();
            let is_enough = acknowledged.as_ref().is_ok_and(|n| *n >= strong.rule.replicas);
            let Some(link) = link.filter(|_| !is_enough && !judged.is_empty()) else { continue };
            let shortage = Arc::new(Shortage {
                required: strong.rule.replicas,
                connected: connected(&link).await,
                acknowledged,
            });
            for place in judged {
                match answers[place] {
                    Ok(Reply::Renewed(_)) => answers[place] = Err(shortage.of_renewal()),
                    _ => granted.push((place, shortage.clone())),
                }
            }
        }
        for (place, shortage, is_undone) in self.undo(strong, batch, line, granted).await {
            answers[place] = Err(shortage.of_lease(is_undone));
        }
        strong.late.note(batch, &answers);
        answers
    }

    /// Gives leases back; answers for each whether that was answered.
    async fn undo(
        self: &Arc<Self>,
        strong: &Strong,
        batch: &Batch,
        line: Line,
        granted: Vec<(usize, Arc<Shortage>)>,
    ) -> Vec<(usize, Arc<Shortage>, bool)> {
        if granted.is_empty() {
            return Vec::new();
        }
        let release = |(place, _): &(usize, Arc<Shortage>)| {
            let Operation::Ask(ask) = &batch[*place] else {
                unreachable!("BUG: only an ask is granted")
            };
            let (name, token) = (ask.name.clone(), ask.token.clone());
            Operation::Release(Release { name, token, keep: Duration::ZERO })
        };
        let releases: Batch = granted.iter().map(release).collect();
        // Over the same connection: should it break, the next one ends it before the token can ask again, so no release
        // is left that could still arrive and take a later lease away.
        let via = Via::Line { strong, line, waits: false };
        let parts = self.split(&releases, 0..releases.len());
        let outcomes = self.carry_out(&releases, &parts, via).await;
        let mut answers = Unsorted::of(&releases);
        self.read_all(&releases, &parts, outcomes, &mut answers);
        let undone = answers.sorted().into_iter().map(|answer| answer.is_ok());
        let granted = granted.into_iter().zip(undone);
        granted.map(|((place, shortage), is_undone)| (place, shortage, is_undone)).collect()
    }
}

fn wait_for(replicas: u32, timeout: Duration) -> Cmd {
    let mut wait = redis::cmd("WAIT");
    // Zero would be for ever.
    wait.arg(replicas).arg(timeout.as_millis().max(1) as u64);
    wait
}

fn read_wait(answer: &Value, at: &Address) -> Acknowledged {
    match answer {
        Value::Int(count) => Ok(u32::try_from(*count).unwrap_or(0)),
        Value::ServerError(refusal) => {
            Err(error::of_call(&refusal.clone().into(), &at.to_string()))
        }
        _ => Err(Error::new(ErrorKind::Indeterminate, "`WAIT` was answered with no number")),
    }
}

/// How many replicas a server has, by its own account.
async fn connected(link: &Link) -> Option<u32> {
    let mut info = redis::cmd("INFO");
    info.arg("replication");
    let answer = link.command(&info).await.ok()?;
    probe::fields(&answer).get("connected_slaves")?.parse().ok()
}

fn refused(refusal: &redis::RedisError, at: &Address) -> Error {
    let kind = match error::code_of(refusal) {
        Some(Code::NoPerm) => ErrorKind::Refused,
        Some(_) => ErrorKind::Unsupported,
        None => return error::of_call(refusal, &at.to_string()),
    };
    Error::new(kind, format!("redis at {at} does not permit `WAIT`, which `replicas` needs"))
        .hint("allow it with `ACL SETUSER … +wait`, or leave `replicas` out of the URL")
        .caused_by(error::of_call(refusal, &at.to_string()))
}
