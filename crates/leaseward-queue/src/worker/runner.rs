//! Runs jobs, one after the other.

use std::{
    any::Any,
    future::{Future, poll_fn},
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use leaseward::Fence;
use serde::de::DeserializeOwned;
use tracing::Instrument as _;

use super::{
    buffer::{Item, Outcome, Shared},
    context::{Context, Inner},
    fate::{Chance, Policy},
};
use crate::{
    Ending, Failure, Queue,
    backend::{self, Fate},
    body::Body,
    events::{About, EventKind, wall_us},
    session::{Control, Stop},
};

/// How often it is looked whether a context is still held.
const GLANCE: Duration = Duration::from_millis(10);

pub(super) struct Runner<T, H> {
    pub(super) queue: Queue,
    pub(super) name: Arc<str>,
    pub(super) policy: Policy,
    pub(super) shared: Arc<Shared>,
    pub(super) handler: H,
    pub(super) types: PhantomData<fn(T)>,
}

/// How an attempt came to its end.
enum End {
    Said(Result<Ending, Failure>),
    TimedOut(Duration),
    Stopped(Stop),
}

impl<T, H, F, R> Runner<T, H>
where
    T: DeserializeOwned + Send + 'static,
    H: Fn(T, Context) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, Failure>> + Send + 'static,
    R: Into<Ending> + Send + 'static,
{
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            let item = self.shared.take().await;
            let outcome = self.attempt(item).await;
            self.shared.ended(outcome);
        }
    }

    async fn attempt(&self, item: Item) -> Option<Outcome> {
        let Item { id, token, life, key, body } = item;
        let control = Arc::new(Control::default());
        self.shared.running.begun(id, &control);
        // After it can be told: whoever ends the session tells those that are running.
        if life.is_over() {
            control.stop(life.stop());
        }
        let context = Context {
            inner: Arc::new(Inner {
                queue: self.queue.clone(),
                name: self.name.clone(),
                id,
                token,
                attempt: body.failures + 1,
                trace: body.trace.clone(),
                life,
                control,
                noted: AtomicBool::new(body.failures > 0 || body.interruptions > 0),
                in_transaction: AtomicBool::new(false),
            }),
        };
        let begin = Instant::now();
        self.tell(&context, EventKind::Started, None, None);
        let waited = wall_us().saturating_sub(body.pushed_us);
        self.queue.inner.events.meters(&self.name).waited(Duration::from_micros(waited));
        let span = tracing::info_span!(
            target: "leaseward_queue", "job", queue = &*self.name, job = %id, attempt = body.failures + 1,
            traceparent = body.trace.as_deref()
        );
        let end = self.carry_out(&body, &context).instrument(span).await;
        self.shared.running.ended(id);
        let is_late = matches!(end, End::Stopped(Stop::Late));
        let outcome = self.conclude(&context, body, key, end, begin.elapsed())?;
        (!is_late || self.is_let_go(&context).await).then_some(outcome)
    }

    /// Whether nothing that the attempt has started is left, as far as the context is held by it: only then is its job given
    /// back. Later than a TTL others have taken the job.
    async fn is_let_go(&self, context: &Context) -> bool {
        let until = Instant::now() + self.queue.inner.sessions.ttl;
        while Arc::strong_count(&context.inner) > 1 {
            if Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(GLANCE).await;
        }
        true
    }

    async fn carry_out(&self, body: &Body, context: &Context) -> End {
        let handled = pin!(self.handle(body, context));
        let told = context.inner.control.told();
        match body.timeout().or(self.policy.timeout) {
            None => tokio::select! {
                biased;
                why = told => End::Stopped(why),
                said = handled => End::Said(said),
            },
            Some(timeout) => tokio::select! {
                biased;
                why = told => End::Stopped(why),
                said = handled => End::Said(said),
                () = tokio::time::sleep(timeout) => End::TimedOut(timeout),
            },
        }
    }

    async fn handle(&self, body: &Body, context: &Context) -> Result<Ending, Failure> {
        let payload: T = serde_json::from_str(body.payload.get())
            .map_err(|error| Failure::new(format!("the payload is of another type: {error}")))?;
        // The handler itself may panic before there is a future.
        let called = catch_unwind(AssertUnwindSafe(|| (self.handler)(payload, context.clone())));
        let mut future = match called {
            Ok(future) => Box::pin(future),
            Err(panic) => return Err(panicked(&*panic)),
        };
        let caught =
            poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
                Ok(poll) => poll.map(Ok),
                Err(panic) => std::task::Poll::Ready(Err(panicked(&*panic))),
            });
        caught.await?.map(Into::into)
    }

    /// What is to be written down.
    fn conclude(
        &self,
        context: &Context,
        body: Body,
        key: Option<Box<str>>,
        end: End,
        run: Duration,
    ) -> Option<Outcome> {
        let (inner, policy) = (&context.inner, &self.policy);
        let fence = Fence::new(u64::try_from(inner.token).unwrap_or(0));
        let chance = Chance { now_us: wall_us(), random: rand::random() };
        let unique = body.unique.clone();
        let failed = |failure: &Failure| policy.failed(body.clone(), fence, failure, false, chance);
        let mut message = None;
        let (kind, fate) = match end {
            End::Said(Ok(ending)) => policy.ended(body, ending, chance),
            End::Said(Err(failure)) => {
                let ended = failed(&failure);
                message = Some(failure.message);
                ended
            }
            End::TimedOut(timeout) => {
                let failure = Failure::new(format!("not done after {timeout:?}"));
                let ended = failed(&failure);
                message = Some(failure.message);
                ended
            }
            End::Stopped(Stop::Cancelled) => (EventKind::Cancelled, policy.cancelled(&body)),
            End::Stopped(Stop::Abandoned) => {
                (EventKind::GivenBack, Fate::Back { body: body.encode() })
            }
            End::Stopped(Stop::Late) => policy.interrupted(body, chance),
            End::Stopped(Stop::Lost) => {
                self.shared.summary.lock().lost += 1;
                self.tell(context, EventKind::Lost, Some(run), None);
                return None;
            }
        };
        self.count(kind);
        self.tell(context, kind, Some(run), message.as_deref());
        Some(Outcome {
            life: inner.life.clone(),
            ending: backend::Ending {
                token: inner.token,
                id: inner.id,
                fate,
                key,
                unique,
                noted: inner.noted.load(Ordering::Acquire),
            },
            in_transaction: inner.in_transaction.load(Ordering::Acquire),
            ran: Some(run),
            is_doubtful: false,
        })
    }

    fn count(&self, kind: EventKind) {
        let mut summary = self.shared.summary.lock();
        match kind {
            EventKind::Done => summary.done += 1,
            EventKind::Interrupted => summary.interrupted += 1,
            EventKind::Failed => summary.failed += 1,
            EventKind::Dead => {
                summary.failed += 1;
                summary.dead += 1;
            }
            _ => summary.other += 1,
        }
    }

    fn tell(
        &self,
        context: &Context,
        kind: EventKind,
        run: Option<Duration>,
        message: Option<&str>,
    ) {
        self.queue.inner.events.tell(
            kind,
            &About {
                queue: &self.name,
                job: Some(context.id()),
                attempt: Some(context.attempt()),
                fence: Some(context.fence()),
                run,
                trace: context.trace(),
                message,
            },
        );
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
    Failure::new(format!(
        "the handler panicked: {}",
        said.as_deref().unwrap_or("it did not say why")
    ))
}
