//! A store behind a network that does its worst, by seed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leaseward::{
    Error, ErrorKind,
    clock::BoxFuture,
    store::{
        Answer, Batch, Break, Broken, Capability, Completion, Guarantee, LockView, Push, PushSink,
        Query, Store, answer_later,
    },
    stores::memory::Memory,
};

use crate::dice::Dice;

/// How bad the network is, in percent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// Requests that never arrive, and the client knows.
    pub(crate) refused: u64,
    /// Requests that never arrive, and the client cannot know.
    pub(crate) lost: u64,
    /// Requests carried out whose answers never arrive.
    pub(crate) unanswered: u64,
    /// Requests given up as lost that are carried out later.
    pub(crate) late: u64,
    /// Requests carried out once more, later.
    pub(crate) repeated: u64,
    pub(crate) push_lost: u64,
    pub(crate) push_repeated: u64,
    /// Messages that take long.
    pub(crate) slow: u64,
    pub(crate) slow_max_ms: u64,
}

impl Weather {
    pub(crate) fn drawn(dice: &Dice) -> Self {
        Self {
            refused: dice.pick(&[0, 0, 5]),
            lost: dice.pick(&[0, 5, 10]),
            unanswered: dice.pick(&[0, 5, 15]),
            late: dice.pick(&[0, 5, 15]),
            repeated: dice.pick(&[0, 10]),
            push_lost: dice.pick(&[0, 20, 100]),
            push_repeated: dice.pick(&[0, 20]),
            slow: dice.pick(&[0, 5, 20]),
            slow_max_ms: dice.pick(&[300, 1_500, 5_000]),
        }
    }
}

/// One client's way to the memory store.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: Arc<Memory>,
    capability: Capability,
    way: Way,
}

#[derive(Clone, Debug)]
struct Way {
    dice: Dice,
    weather: Weather,
    is_bad: Arc<AtomicBool>,
}

/// After this long an answer counts as lost.
const PATIENCE: Duration = Duration::from_millis(150);

impl Way {
    fn happens(&self, percent: u64) -> bool {
        self.is_bad.load(Ordering::Relaxed) && self.dice.chance(percent)
    }

    async fn travel(&self) {
        let slow = self.happens(self.weather.slow);
        let to = if slow { self.weather.slow_max_ms } else { 6 };
        tokio::time::sleep(self.dice.ms(0, to)).await;
    }

    /// Carries a copy of the batch out, some time from now.
    fn later(&self, inner: Arc<Memory>, batch: Batch) {
        let pause = self.dice.ms(1, self.weather.slow_max_ms);
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            inner.carry_out(batch).await
        });
    }
}

impl Faulty {
    /// `is_bad` is switched off when the weather clears up.
    pub(crate) fn new(
        inner: Memory,
        weather: Weather,
        dice: Dice,
        is_bad: Arc<AtomicBool>,
    ) -> Self {
        let mut capability = inner.capability().clone();
        // Several batches under way overtake each other.
        capability.one_batch_at_a_time = dice.chance(50);
        Self { inner: Arc::new(inner), capability, way: Way { dice, weather, is_bad } }
    }
}

fn none(kind: ErrorKind, batch: &Batch) -> Vec<Answer> {
    batch.iter().map(|_| Err(Error::new(kind, "bad weather"))).collect()
}

impl Store for Faulty {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn guarantee(&self) -> Guarantee {
        self.inner.guarantee()
    }

    fn location(&self) -> String {
        "memory: behind bad weather".into()
    }

    fn start(&self, sink: PushSink) {
        let way = self.way.clone();
        self.inner.start(Arc::new(move |push: Push| {
            if way.happens(way.weather.push_lost) {
                return;
            }
            let copies = 1 + u32::from(way.happens(way.weather.push_repeated));
            for _ in 0..copies {
                let (way, sink, push) = (way.clone(), sink.clone(), push.clone());
                tokio::spawn(async move {
                    way.travel().await;
                    sink(push);
                });
            }
        }));
    }

    fn submit(&self, batch: Batch, reply: Completion) {
        let (inner, way) = (self.inner.clone(), self.way.clone());
        let answers = async move {
            way.travel().await;
            let weather = way.weather;
            if way.happens(weather.refused) {
                return none(ErrorKind::Unavailable, &batch);
            }
            if way.happens(weather.lost) {
                tokio::time::sleep(PATIENCE).await;
                return none(ErrorKind::Indeterminate, &batch);
            }
            if way.happens(weather.late) {
                way.later(inner, batch.clone());
                tokio::time::sleep(PATIENCE).await;
                return none(ErrorKind::Indeterminate, &batch);
            }
            if way.happens(weather.repeated) {
                way.later(inner.clone(), batch.clone());
            }
            let doubt = none(ErrorKind::Indeterminate, &batch);
            let answers = inner.carry_out(batch).await;
            if way.happens(weather.unanswered) {
                tokio::time::sleep(PATIENCE).await;
                return doubt;
            }
            way.travel().await;
            answers
        };
        answer_later(answers, reply);
    }

    fn inspect(&self, query: Query) -> BoxFuture<'static, Result<Vec<LockView>, Error>> {
        self.inner.inspect(query)
    }

    fn break_lease(&self, order: Break) -> BoxFuture<'static, Result<Broken, Error>> {
        self.inner.break_lease(order)
    }

    fn ping(&self) -> BoxFuture<'static, Result<Duration, Error>> {
        self.inner.ping()
    }
}
