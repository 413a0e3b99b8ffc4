//! One client of the file: which thread carries out what, and who is told afterwards.
//!
//! A batch runs on the caller's own thread if nobody is before it and no other process writes at this moment; a commit
//! does not wait for the disk, so that takes microseconds. Else it goes to the writing thread, which waits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rand::RngExt;
use rusqlite::Result as SqlResult;
use tokio::sync::oneshot;

use super::{
    config::{Config, Durability},
    connection,
    error::{Stage, translate},
    file::{self, Files},
    keeper::Keeper,
    schema, sweep,
    turn::Turn,
    wake::{self, Wake},
    worker::{self, Worker},
    writer::{Done, Failure, IfWriting, Writer},
};
use crate::{
    Error,
    clock::{BoxFuture, Clock},
    store::{Answer, Batch, Completion, OpenContext, Operation, Push, Reply, timing},
};

pub(super) struct Client {
    pub(super) config: Config,
    pub(super) keeper: Keeper,
    pub(super) wake: Wake,
    clock: Arc<dyn Clock>,
    id: i64,
    /// `None` once closed.
    writer: Mutex<Option<Writer>>,
    worker: Worker,
    /// Turns given to the writing thread and not yet carried out: nobody passes them.
    backlog: AtomicUsize,
    last_fence: AtomicU64,
}

impl Client {
    /// The name of the writing thread.
    pub(super) const THREAD: &str = "leaseward-sqlite";

    pub(super) fn open(
        config: Config,
        context: &OpenContext,
        worker: Worker,
    ) -> Result<Self, Error> {
        let clock = context.clock.clone();
        file::prepare(&config)?;
        // Nobody's turns are made by client 0.
        let id = rand::rng().random_range(1..i64::MAX);
        let writer = begin(&config, &clock, id)?;
        Ok(Self {
            keeper: Keeper::new(config.path.clone(), config.durability, clock.clone()),
            wake: Wake::new(config.path.clone(), clock.clone(), id),
            config,
            clock,
            id,
            writer: Mutex::new(Some(writer)),
            worker,
            backlog: AtomicUsize::new(0),
            last_fence: AtomicU64::new(0),
        })
    }

    /// The path names another file now, or none: nothing that was given in the old one excludes anybody any more.
    fn begin_anew(&self, old: Files) -> Result<Writer, Error> {
        let path = self.config.path.display();
        tracing::warn!(%path, "the store's file was deleted or replaced: what was held in it is lost");
        self.wake.push(Push::SessionLost);
        file::prepare_anew(&self.config, old)?;
        begin(&self.config, &self.clock, self.id)
    }

    pub(super) fn fence_lead(&self) -> Duration {
        let last = self.last_fence.load(Ordering::Relaxed);
        Duration::from_micros(last.saturating_sub(self.clock.wall_us()))
    }

    pub(super) fn submit(this: &Arc<Self>, batch: Batch, reply: Completion) {
        if let Some(answers) = this.submit_here(&batch) {
            return reply.answer_all(answers);
        }
        if let Err(error) = this.worker.ready() {
            return reply.answer_all(same(batch.len(), &error));
        }
        let client = this.clone();
        // A job that is not carried out drops its completion: nobody knows what became of it.
        let _ = this.post(move || {
            let outcome = client.turn_patiently(|turn| carry_out(turn, &batch));
            reply.answer_all(client.conclude(&batch, outcome));
        });
    }

    /// Carries out a batch on this thread, if that neither waits nor passes somebody.
    fn submit_here(&self, batch: &Batch) -> Option<Vec<Answer>> {
        let is_quick = self.config.durability == Durability::Normal;
        if !is_quick || self.backlog.load(Ordering::Acquire) > 0 {
            return None;
        }
        let mut slot = self.writer.try_lock()?;
        let writer = slot.as_mut().filter(|writer| writer.is_current())?;
        let outcome = writer.turn(IfWriting::Return, |turn| carry_out(turn, batch));
        // Before anybody is told: what is told may submit again.
        drop(slot);
        match outcome {
            Err(Failure::Busy) => None,
            outcome => Some(self.conclude(batch, outcome)),
        }
    }

    /// Has the writing thread make one turn.
    pub(super) fn in_turn<T: Send + 'static>(
        this: &Arc<Self>,
        work: impl FnOnce(&mut Turn<'_>) -> SqlResult<T> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Error>> {
        let client = this.clone();
        let (sender, receiver) = oneshot::channel();
        let posted = this.post(move || {
            let outcome = client.turn_patiently(work).map(|done| client.tell(done));
            let _ = sender.send(outcome.map_err(Failure::into_error));
        });
        Box::pin(async move {
            posted?;
            receiver.await.unwrap_or_else(|_| Err(worker::vanished()))
        })
    }

    fn post(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        self.backlog.fetch_add(1, Ordering::AcqRel);
        let client = self.clone();
        let posted = self.worker.post(move || {
            job();
            client.backlog.fetch_sub(1, Ordering::AcqRel);
        });
        if posted.is_err() {
            self.backlog.fetch_sub(1, Ordering::AcqRel);
        }
        posted
    }

    fn turn_patiently<T>(
        &self,
        work: impl FnOnce(&mut Turn<'_>) -> SqlResult<T>,
    ) -> Result<Done<T>, Failure> {
        let mut slot = self.writer.lock();
        let writer = slot.as_mut().ok_or_else(|| Failure::Failed(worker::closed()))?;
        if !writer.is_current() {
            *writer = self.begin_anew(writer.files()).map_err(Failure::Failed)?;
        }
        writer.turn(IfWriting::Wait, work)
    }

    /// The answers of a batch, after everybody else was told.
    fn conclude(&self, batch: &Batch, outcome: Result<Done<Vec<Answer>>, Failure>) -> Vec<Answer> {
        match outcome {
            Ok(done) => {
                let answers = self.tell(done);
                self.note_waiters(batch, &answers);
                answers
            }
            Err(failure) => same(batch.len(), &failure.into_error()),
        }
    }

    /// Tells those whom a committed turn concerns.
    fn tell<T>(&self, done: Done<T>) -> T {
        if let Some(last) = done.last_fence {
            self.last_fence.fetch_max(last.get(), Ordering::Relaxed);
        }
        wake::call(&done.calls);
        self.keeper.committed();
        for push in done.pushes {
            if let Push::Granted { token, .. } = &push {
                self.wake.forget(token);
            }
            self.wake.push(push);
        }
        done.answer
    }

    /// Keeps the waking thread informed of who waits.
    fn note_waiters(&self, batch: &Batch, answers: &[Answer]) {
        let is_queued = |answer: &Answer| matches!(answer, Ok(Reply::Queued(_)));
        if !answers.iter().any(is_queued) && self.wake.is_idle() {
            return;
        }
        for (operation, answer) in batch.iter().zip(answers) {
            match operation {
                Operation::Ask(ask) if is_queued(answer) => {
                    self.wake.expect(&ask.token, timing::place_ttl(ask.ttl));
                }
                Operation::Ask(ask) => self.wake.forget(&ask.token),
                Operation::Release(release) => self.wake.forget(&release.token),
                Operation::Renew(_) => {}
            }
        }
    }

    pub(super) fn close(this: &Arc<Self>) -> BoxFuture<'static, ()> {
        this.wake.close();
        let client = this.clone();
        let (sender, receiver) = oneshot::channel();
        let posted = this.post(move || {
            *client.writer.lock() = None;
            let _ = sender.send(());
        });
        this.worker.close();
        let kept = this.keeper.close();
        Box::pin(async move {
            // Whatever could not be told to close was closed before.
            if posted.is_ok() {
                let _ = receiver.await;
            }
            let _ = kept.await;
        })
    }
}

/// Opens the file for a client, whose turns it is ready for then.
fn begin(config: &Config, clock: &Arc<dyn Clock>, id: i64) -> Result<Writer, Error> {
    let path = &config.path;
    let mut opened = connection::open(path, config.durability)?;
    schema::ready(&mut opened.conn, path, clock.now())?;
    // One go: a short-lived process never commits often enough to sweep later.
    connection::patiently(path, || sweep::sweep(&mut opened.conn, &**clock))
        .map_err(|e| translate(e, Stage::Before, path))?;
    Ok(Writer::new(opened, path.clone(), clock.clone(), id))
}

fn carry_out(turn: &mut Turn<'_>, batch: &Batch) -> SqlResult<Vec<Answer>> {
    batch
        .iter()
        .map(|operation| match operation {
            Operation::Ask(ask) => turn.ask(ask),
            Operation::Renew(renew) => turn.renew(renew).map(Ok),
            Operation::Release(release) => turn.release(release).map(Ok),
        })
        .collect()
}

/// The same failure for every operation of a batch: they shared the transaction.
fn same(len: usize, error: &Error) -> Vec<Answer> {
    (0..len).map(|_| Err(error.duplicate())).collect()
}
