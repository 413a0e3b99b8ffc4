//! One client: sends batches, hears pushes.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_postgres::{Row, types::Type};

use super::{
    answers::{self, Outcome, Said},
    clock::DatabaseClock,
    config::{Config, Listen},
    dial::Dialler,
    error::Class,
    guarantee, keeper,
    lines::{Failure, Lines},
    listener::{self, Listener},
    lone,
    probe::Probe,
    schema,
    wire::{self, Columns, Param},
};
use crate::{
    Error, ErrorKind, Name, Token,
    clock::Clock,
    engine::backoff::full_jitter,
    store::{Answer, Batch, Guarantee, IfBusy, OpenContext, Operation, Push, PushSink, Reply},
};

/// How often operations are sent whose names another transaction is at work on. From the second time on the server
/// itself waits for its end, so more than a few happen only if somebody holds the row on purpose.
pub(super) const SENDS_MAX: usize = 6;

/// How often operations are sent again that met another transaction, and the pauses before that.
const CONFLICTS_MAX: u32 = 10;
const CONFLICT_PAUSE: Duration = Duration::from_millis(1);
const CONFLICT_PAUSE_MAX: Duration = Duration::from_millis(50);

pub(super) struct Client {
    pub(super) config: Config,
    /// Its number among all clients: where it is told, and which waiters are its own.
    pub(super) me: i64,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) database: DatabaseClock,
    pub(super) dialler: Dialler,
    pub(super) lines: Arc<Lines>,
    pub(super) listener: Listener,
    probe: Mutex<Probe>,
    pub(super) runtime: Handle,
    sink: OnceLock<PushSink>,
    /// Who waits, and for what: woken when pushes may have been missed.
    waiting: Mutex<HashMap<Token, Name>>,
    submit_sql: String,
    pub(super) lone: lone::Statements,
}

/// What came of a batch, while it is being sent.
pub(super) struct Progress<'a> {
    batch: &'a [Operation],
    answers: Vec<Option<Answer>>,
    pub(super) pushes: Vec<Push>,
}

impl Client {
    /// Connects, and sees to it that the tables are there.
    pub(super) async fn open(config: Config, context: &OpenContext) -> Result<Arc<Self>, Error> {
        let dialler = Dialler::new(&config, &context.who)?;
        let lines = Lines::new(&config, dialler.clone());
        lines.open().await?;
        let probe = Probe::ask(&lines).await?;
        probe.check()?;
        schema::ready(&lines, &config, &dialler).await?;
        let call = |function: &str, count: usize| {
            let params: Vec<_> = (1..=count).map(|at| format!("${at}")).collect();
            format!("SELECT * FROM {}.{function}({})", config.schema, params.join(", "))
        };
        let this = Arc::new(Self {
            // Positive, and never the number that stands for nobody.
            me: (rand::random::<i64>() & i64::MAX).max(1),
            clock: context.clock.clone(),
            database: DatabaseClock::default(),
            dialler,
            lines,
            listener: Listener::default(),
            probe: Mutex::new(probe),
            runtime: Handle::current(),
            sink: OnceLock::new(),
            waiting: Mutex::default(),
            submit_sql: call("submit", 13),
            lone: lone::Statements::new(call),
            config,
        });
        keeper::start(&this);
        Ok(this)
    }

    /// Looks at the server again: it may be set up otherwise by now, or be another one.
    pub(super) async fn look(&self) -> Result<Probe, Error> {
        let probe = Probe::ask(&self.lines).await?;
        self.database.learn(probe.clock_us, self.clock.now());
        *self.probe.lock() = probe.clone();
        Ok(probe)
    }

    /// What the server promises, as of the last look.
    pub(super) fn guarantee(&self) -> Guarantee {
        guarantee::of(&self.probe.lock())
    }

    /// Where notifications are listened for.
    pub(super) fn listens_at(&self) -> &tokio_postgres::Config {
        match &self.config.listen {
            Listen::At(server) => server,
            Listen::Here | Listen::Never => &self.config.server,
        }
    }

    pub(super) fn start(&self, sink: PushSink) {
        // Called once; a second sink would only be another way to the same engine.
        let _ = self.sink.set(sink);
    }

    pub(super) async fn submit(self: Arc<Self>, batch: Batch) -> Vec<Answer> {
        if self.config.listen != Listen::Never && batch.iter().any(is_wait) {
            self.listener.start(&self);
        }
        let mut progress = Progress {
            batch: &batch,
            answers: batch.iter().map(|_| None).collect(),
            pushes: Vec::new(),
        };
        self.carry_out(&mut progress, (0..batch.len()).collect()).await;
        let Progress { answers, pushes, .. } = progress;
        let answers = batch.iter().zip(answers).map(|(operation, answer)| {
            let answer = answer.unwrap_or_else(|| Err(answers::unexpected()));
            self.note(operation, answer)
        });
        let answers = answers.collect();
        for push in pushes {
            self.hear(push);
        }
        answers
    }

    /// Carries out the operations at these places, those of one name in their order.
    async fn carry_out(&self, progress: &mut Progress<'_>, mut places: Vec<usize>) {
        for send in 0..SENDS_MAX {
            if places.is_empty() {
                return;
            }
            let (places_sent, sent) = self.send_past_conflicts(progress, &places, send > 0).await;
            let rows = match sent {
                Ok(rows) => rows,
                Err(failure) => return progress.fail(&places, &failure.error),
            };
            match self.read(&rows, &places_sent, progress) {
                Ok(in_flight) => places = in_flight,
                Err(error) => return progress.fail(&places, &error),
            }
        }
        progress.fail(&places, &in_the_way());
    }

    /// Sends operations again that the database refused because of another transaction, as it does where transactions are
    /// serializable. Sent again at once, several clients would meet again and again.
    async fn send_past_conflicts(
        &self,
        progress: &Progress<'_>,
        places: &[usize],
        is_again: bool,
    ) -> (Vec<usize>, Result<Vec<Row>, Failure>) {
        let mut sent = self.send(progress.batch, places, is_again).await;
        for conflicts in 0..CONFLICTS_MAX {
            let is_conflict =
                matches!(&sent.1, Err(failure) if failure.class == Some(Class::Conflict));
            if !is_conflict {
                break;
            }
            let (least, most) = (CONFLICT_PAUSE, CONFLICT_PAUSE_MAX);
            tokio::time::sleep(full_jitter(least, most, conflicts, rand::random())).await;
            sent = self.send(progress.batch, places, true).await;
        }
        sent
    }

    /// Sends the operations at these places once, and says in which order.
    async fn send(
        &self,
        batch: &[Operation],
        places: &[usize],
        is_again: bool,
    ) -> (Vec<usize>, Result<Vec<Row>, Failure>) {
        if !is_again && let Some(rows) = self.send_lone(batch).await {
            return (places.to_vec(), rows);
        }
        // What comes alone holds up nobody else.
        let waits = is_again || batch.len() == 1;
        let columns = Columns::of(batch, places, waits);
        let simple = Some(columns.simple);
        let rows = self.call(&self.submit_sql, waits, simple, &columns.params()).await;
        (columns.places, rows)
    }

    /// Reads the answers of a call; what has to be sent again comes back, in the order of names.
    fn read(
        &self,
        rows: &[Row],
        places: &[usize],
        progress: &mut Progress<'_>,
    ) -> Result<Vec<usize>, Error> {
        let mut in_flight = Vec::new();
        for row in rows {
            let batch = progress.batch;
            match answers::read(row, |at| places.get(at).map(|place| &batch[*place]))? {
                Said::To(at, Outcome::Answer(answer)) => {
                    progress.answers[places[at]] = Some(answer);
                }
                Said::To(at, Outcome::InFlight) => in_flight.push(places[at]),
                Said::Clock(us) => self.database.learn(us, self.clock.now()),
                Said::Late(us) => {
                    self.database.learn(us, self.clock.now());
                    in_flight = places.to_vec();
                }
                Said::Push(push) => progress.pushes.push(push),
            }
        }
        in_flight.sort_unstable();
        Ok(in_flight)
    }

    /// Calls a function. What every one of them is told first: whose call it is, when nobody waits for its answer any
    /// more, and whether it may wait for rows.
    pub(super) async fn call(
        &self,
        sql: &str,
        waits: bool,
        simple: Option<i32>,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Failure> {
        let late = self.late();
        let mut all: Vec<Param<'_>> = Vec::with_capacity(params.len() + 4);
        all.extend([
            (&self.me as _, Type::INT8),
            (&late as _, Type::INT8),
            (&waits as _, Type::BOOL),
        ]);
        if let Some(simple) = &simple {
            all.push((simple, Type::INT4));
        }
        all.extend(params.iter().cloned());
        self.lines.call(sql, &all).await
    }

    /// When nobody waits any more for what is sent now, on the database's clock.
    pub(super) fn late(&self) -> Option<i64> {
        self.database.at(self.clock.now()).map(|us| us + wire::micros(self.config.timeout))
    }

    /// Settles names in which something has expired.
    pub(super) async fn settle(self: &Arc<Self>, names: &[String]) -> Result<(), Error> {
        let columns = Columns::to_settle(names);
        let rows = self.call(&self.submit_sql, false, Some(0), &columns.params()).await?;
        let nothing = Operation::Release(crate::store::Release {
            name: Name::new("settled")?,
            token: Token::new(0, Arc::from("")),
            keep: Duration::ZERO,
        });
        for row in &rows {
            if let Said::Push(push) = answers::read(row, |_| Some(&nothing))? {
                self.hear(push);
            }
        }
        Ok(())
    }

    /// Keeps the books of who waits, and has who cannot be told ask more often.
    fn note(&self, operation: &Operation, mut answer: Answer) -> Answer {
        self.database.answered(&answer);
        match (operation, &mut answer) {
            (Operation::Ask(ask), Ok(Reply::Queued(place))) => {
                self.waiting.lock().insert(ask.token.clone(), ask.name.clone());
                if !self.listener.hears() {
                    let free_in = &mut place.standing.free_in;
                    *free_in =
                        Some(free_in.map_or(listener::POLL, |left| left.min(listener::POLL)));
                }
            }
            // Without an answer it may have its place yet.
            (Operation::Ask(_), Err(error)) if is_unheard(error) => {}
            (Operation::Ask(ask), _) if ask.if_busy == IfBusy::Queue => {
                self.waiting.lock().remove(&ask.token);
            }
            (Operation::Release(release), _) => {
                let mut waiting = self.waiting.lock();
                if !waiting.is_empty() {
                    waiting.remove(&release.token);
                }
            }
            _ => {}
        }
        answer
    }

    /// A waiter of ours was given a lease, or is to ask again.
    pub(super) fn hear(self: &Arc<Self>, push: Push) {
        let Push::Granted { token, grant, .. } = &push else { return self.push(push) };
        self.database.granted(grant);
        self.waiting.lock().remove(token);
        self.push(push);
    }

    fn push(&self, push: Push) {
        if let Some(sink) = self.sink.get() {
            sink(push);
        }
    }

    /// Pushes may have been missed: everybody who waits asks again.
    pub(super) fn wake_all(&self) {
        let mut names: Vec<_> = self.waiting.lock().values().cloned().collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            self.push(Push::Woken { name });
        }
    }

    pub(super) fn close(&self) {
        self.listener.close();
        self.lines.close();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
    }
}

impl Progress<'_> {
    /// Answers all that have no answer yet with an error.
    fn fail(&mut self, places: &[usize], error: &Error) {
        for place in places {
            self.answers[*place].get_or_insert_with(|| Err(error.duplicate()));
        }
    }
}

pub(super) fn in_the_way() -> Error {
    Error::new(ErrorKind::Unavailable, "another transaction has the row of this name and keeps it")
        .hint("`leaseward doctor` says which one; asking again is safe")
}

fn is_unheard(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate)
}

fn is_wait(operation: &Operation) -> bool {
    matches!(operation, Operation::Ask(ask) if ask.if_busy == IfBusy::Queue)
}
