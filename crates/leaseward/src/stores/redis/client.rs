//! One client: sends batches to the node they belong to, hears pushes.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock, Weak, atomic::AtomicBool},
    time::Duration,
};

use parking_lot::Mutex;
use redis::{PushInfo, PushKind, Value};
use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::{
    answers::{self, Answers, Heard, IsForeign},
    calls::{Called, Part, Via},
    config::{Config, Topology},
    dial::Dialler,
    fences::Fences,
    keys::{Keys, Slot},
    node::Wiring,
    plain,
    script::{CAREFUL, PLAIN},
    servers::Servers,
    strong::{Line, Strong},
    watch::Watched,
    wire::Care,
};
use crate::{
    Error, ErrorKind, Name, Token,
    clock::Clock,
    store::{
        Answer, Ask, Batch, Evidence, IfBusy, OpenContext, Operation, Push, PushSink, Release,
        Reply,
    },
};

/// How leases are handed over where they are not: each release leaves the name free for a moment.
const NEVER: &str = "never";

pub(super) struct Client {
    pub(super) config: Config,
    pub(super) keys: Keys,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) fences: Fences,
    pub(super) wiring: Arc<Wiring>,
    /// Set once it is open.
    servers: OnceLock<Servers>,
    sink: OnceLock<PushSink>,
    /// Where leases count only once replicas have them.
    pub(super) strong: Option<Strong>,
    /// Who waits, and for what: woken when pushes may have been missed.
    waiting: Mutex<HashMap<Token, SmallVec<[Name; 1]>>>,
    pub(super) watched: Watched,
}

/// The answers of a batch as they come in.
pub(super) struct Unsorted(Vec<Option<Answer>>);

impl Unsorted {
    pub(super) fn of(batch: &Batch) -> Self {
        Self(batch.iter().map(|_| None).collect())
    }

    fn put(&mut self, place: usize, answer: Answer) {
        self.0[place] = Some(answer);
    }

    /// The places of operations without an answer yet.
    fn missing(&self) -> impl Iterator<Item = usize> + use<'_> {
        (0..).zip(&self.0).filter(|(_, answer)| answer.is_none()).map(|(place, _)| place)
    }

    /// All of them, in the order of the operations.
    pub(super) fn sorted(self) -> Vec<Answer> {
        let answer = |answer: Option<Answer>| answer.expect("BUG: every operation is answered");
        self.0.into_iter().map(answer).collect()
    }
}

impl Client {
    /// Connects.
    pub(super) async fn open(config: Config, context: &OpenContext) -> Result<Arc<Self>, Error> {
        let dialler = Dialler::new(&config, &context.who)?;
        let is_cluster = matches!(config.topology, Topology::Cluster { .. });
        let strong = config.strong.map(|rule| (rule, dialler.for_longer_answers(rule.timeout)));
        let this = Arc::new_cyclic(|me| Self {
            keys: Keys::new(config.prefix.clone(), is_cluster),
            clock: context.clock.clone(),
            fences: Fences::default(),
            strong: strong.map(|(rule, dialler)| {
                Strong::new(rule, wire_up_lines(me, dialler, config.handover), is_cluster)
            }),
            wiring: wire_up(me, dialler, config.handover),
            servers: OnceLock::new(),
            sink: OnceLock::new(),
            waiting: Mutex::default(),
            watched: Watched::default(),
            config,
        });
        let servers = Servers::open(&this.config, this.wiring.clone()).await?;
        assert!(this.servers.set(servers).is_ok(), "BUG: opened twice");
        if let Some(strong) = &this.strong {
            strong.open(this.servers()).await?;
        }
        Ok(this)
    }

    pub(super) fn servers(&self) -> &Servers {
        self.servers.get().expect("BUG: used before it was open")
    }

    pub(super) fn start(&self, sink: PushSink) {
        // Called once; a second sink would only be another way to the same engine.
        let _ = self.sink.set(sink);
    }

    pub(super) async fn submit(self: Arc<Self>, batch: Batch) -> Vec<Answer> {
        let mut answers = Unsorted::of(&batch);
        if let Some(strong) = &self.strong {
            strong.tidy(self.servers());
            if let Some(line) = Line::of(&batch) {
                return self.submit_strongly(strong, &batch, line).await;
            }
            self.release_late(strong, &batch, &mut answers).await;
        }
        let mut parts = self.split(&batch, answers.missing());
        if self.wiring.handover != NEVER && !self.has_waited(&batch) {
            parts.iter_mut().for_each(|part| part.prefer_plain(&batch));
        }
        let outcomes = self.carry_out(&batch, &parts, Via::Shared).await;
        self.read_all(&batch, &parts, outcomes, &mut answers);
        if answers.missing().next().is_some() {
            let parts = self.split(&batch, answers.missing());
            let outcomes = self.carry_out(&batch, &parts, Via::Shared).await;
            self.read_all(&batch, &parts, outcomes, &mut answers);
        }
        let answers = answers.sorted();
        if let Some(strong) = &self.strong {
            strong.late.note(&batch, &answers);
        }
        answers
    }

    /// Whether somebody asks again or gives up who has a place in a queue: that would be odd.
    fn has_waited(&self, batch: &Batch) -> bool {
        let waiting = self.waiting.lock();
        !waiting.is_empty()
            && batch.iter().any(|operation| match operation {
                Operation::Ask(Ask { token, .. }) | Operation::Release(Release { token, .. }) => {
                    waiting.contains_key(token)
                }
                Operation::Renew(_) => false,
            })
    }

    /// Reads the answers to parts of a batch. What was odd has none.
    pub(super) fn read_all(
        self: &Arc<Self>,
        batch: &Batch,
        parts: &[Part],
        outcomes: Vec<Result<Called, Error>>,
        answers: &mut Unsorted,
    ) {
        for (part, outcome) in parts.iter().zip(outcomes) {
            let said = |called: Called| match part.care {
                Care::Plain { .. } => Answers::of_plain(called.value),
                Care::Careful => Answers::new(called.value),
            };
            let read = outcome.and_then(said).and_then(|mut said| {
                self.read(part, batch, &mut said, answers)?;
                Ok(said.misplaced())
            });
            match read {
                Ok(None) => {}
                Ok(Some(why)) => self.leave(part.slot, why),
                Err(error) => {
                    for place in &part.places {
                        let answer = Err(error.duplicate());
                        self.note(&batch[*place], &answer);
                        answers.put(*place, answer);
                    }
                }
            }
        }
    }

    fn read(
        self: &Arc<Self>,
        part: &Part,
        batch: &Batch,
        said: &mut Answers,
        answers: &mut Unsorted,
    ) -> Result<(), Error> {
        let operation = |at: usize| &batch[part.places[at]];
        let mut heard = |place: usize, (answer, IsForeign(is_foreign))| {
            let operation = &batch[place];
            self.note(operation, &answer);
            self.fences.answered(&answer);
            if is_foreign && is_wait(operation) {
                self.watch(operation.name());
            }
            answers.put(place, answer);
        };
        match part.care {
            Care::Careful => {
                for place in &part.places {
                    heard(*place, said.next_for(&batch[*place]));
                }
            }
            Care::Plain { .. } => {
                let outcomes = plain::read(said, part.places.len(), operation)?;
                for (place, outcome) in part.places.iter().zip(outcomes) {
                    if let Some(answer) = outcome.answer(&batch[*place]) {
                        heard(*place, answer);
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives up a node that says it is not the one it was. A script runs on a replica too, until it writes.
    fn leave(&self, slot: Slot, why: Error) {
        if let Ok(node) = self.servers().node_of(slot)
            && let Ok(link) = node.link()
        {
            node.broken(&link, why);
        }
    }

    /// Keeps the books of who waits.
    fn note(&self, operation: &Operation, answer: &Answer) {
        match (operation, answer) {
            (Operation::Ask(ask), Ok(Reply::Queued(_))) => self.waits(ask),
            // It may have a place now, which the small script would not look for.
            (Operation::Ask(ask @ Ask { if_busy: IfBusy::Queue, .. }), Err(error))
                if error.kind() == ErrorKind::Indeterminate =>
            {
                self.waits(ask);
            }
            // Nothing happened: it may have its place yet.
            (Operation::Ask(_), Err(error)) if error.kind() == ErrorKind::Unavailable => {}
            (Operation::Ask(Ask { token, if_busy: IfBusy::Queue, .. }), _)
            | (Operation::Release(Release { token, .. }), _) => {
                self.waits_no_more(token, operation.name());
            }
            _ => {}
        }
    }

    fn waits(&self, ask: &Ask) {
        let mut waiting = self.waiting.lock();
        let names = waiting.entry(ask.token.clone()).or_default();
        if !names.contains(&ask.name) {
            names.push(ask.name.clone());
        }
    }

    fn waits_no_more(&self, token: &Token, name: &Name) {
        let mut waiting = self.waiting.lock();
        let Some(names) = waiting.get_mut(token) else { return };
        names.retain(|other| other != name);
        if names.is_empty() {
            waiting.remove(token);
        }
    }

    /// Something came that nobody asked for.
    fn hear(self: &Arc<Self>, info: PushInfo) {
        let message = match (info.kind, &*info.data) {
            (PushKind::Message, [_, Value::BulkString(message)]) => message,
            (PushKind::Invalidate, keys) => return self.invalidated(keys),
            _ => return,
        };
        match answers::heard(message, &self.keys) {
            Some(Heard::Push(push)) => self.hear_push(push),
            Some(Heard::Wake(name, delay)) => self.wake_after(name, delay),
            None => {}
        }
    }

    fn hear_push(self: &Arc<Self>, mut push: Push) {
        let Push::Granted { name, token, grant } = &mut push else { return self.push(push) };
        self.fences.granted(grant);
        if self.strong.is_some() {
            // Replicas may not have it yet: the token asks again, and that is waited for.
            grant.evidence = Evidence::Unproven;
            return self.push(push);
        }
        self.waits_no_more(token, name);
        self.push(push);
    }

    pub(super) fn push(&self, push: Push) {
        if let Some(sink) = self.sink.get() {
            sink(push);
        }
    }

    fn wake_after(&self, name: Name, delay: Duration) {
        let Some(sink) = self.sink.get().cloned() else { return };
        if delay.is_zero() {
            return sink(Push::Woken { name });
        }
        self.spawn(async move {
            tokio::time::sleep(delay).await;
            sink(Push::Woken { name });
        });
    }

    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.wiring.runtime.spawn(work);
    }

    /// Pushes may have been missed: everybody who waits asks again.
    fn wake_all(&self) {
        self.watched.end_all();
        let mut names: Vec<_> = self.waiting.lock().values().flatten().cloned().collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            self.push(Push::Woken { name });
        }
    }

    pub(super) fn close(&self) {
        if let Some(servers) = self.servers.get() {
            servers.close();
        }
        if let Some(strong) = &self.strong {
            strong.close();
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
    }
}

/// What nodes need of their client.
fn wire_up(me: &Weak<Client>, dialler: Dialler, handover: &'static str) -> Arc<Wiring> {
    let (hears, returns) = (me.clone(), me.clone());
    Arc::new(Wiring {
        dialler: Arc::new(dialler),
        scripts: vec![&*PLAIN, &*CAREFUL],
        handover,
        runtime: Handle::current(),
        has_waited: AtomicBool::new(false),
        on_push: Box::new(move |info| {
            if let Some(client) = hears.upgrade() {
                client.hear(info);
            }
        }),
        on_loss: learn_anew(me),
        on_return: Box::new(move || {
            if let Some(client) = returns.upgrade() {
                if let (Some(strong), Some(servers)) = (&client.strong, client.servers.get()) {
                    strong.tidy(servers);
                }
                client.wake_all();
            }
        }),
    })
}

/// What the connections of strong mode need: they hear nothing, and whoever waits misses nothing when one is lost.
fn wire_up_lines(me: &Weak<Client>, dialler: Dialler, handover: &'static str) -> Arc<Wiring> {
    Arc::new(Wiring {
        dialler: Arc::new(dialler),
        scripts: vec![&*CAREFUL],
        handover,
        runtime: Handle::current(),
        has_waited: AtomicBool::new(false),
        on_push: Box::new(|_| {}),
        on_loss: learn_anew(me),
        on_return: Box::new(|| {}),
    })
}

/// After a loss: in a cluster another node may have its slots by now.
fn learn_anew(me: &Weak<Client>) -> Box<dyn Fn() + Send + Sync> {
    let me = me.clone();
    Box::new(move || {
        if let Some(servers) = me.upgrade().as_ref().and_then(|client| client.servers.get()) {
            servers.lost();
        }
    })
}

pub(super) fn is_wait(operation: &Operation) -> bool {
    matches!(operation, Operation::Ask(ask) if ask.if_busy == IfBusy::Queue)
}
