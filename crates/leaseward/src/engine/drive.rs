//! Who sends what has gathered, and follows it: the caller itself, or a task.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::{
    Engine,
    flight::Flight,
    lane::{Batch, Job, Lane, Seat, Target, Which},
};

/// Sends what has gathered, on the caller's own time, if nobody else does.
pub(crate) struct Drive {
    engine: Arc<Engine>,
    which: Which,
    stage: Stage,
}

enum Stage {
    /// Stepping aside once, so that operations of other tasks gather.
    Gather {
        seat: Seat,
        stepped_aside: bool,
    },
    Fly(Seat),
    Done,
}

impl Drive {
    /// Follows a batch that was sent already.
    pub(super) fn of_flight(engine: Arc<Engine>, which: Which, seat: Seat, flight: Flight) -> Self {
        engine.lane(which).put_down(seat, Some(flight), Waker::noop().clone());
        Self { engine, which, stage: Stage::Fly(seat) }
    }

    fn lane(&self) -> &Lane {
        self.engine.lane(self.which)
    }

    /// Not polled until it is woken: what stands in the lane is minded by the keeper meanwhile.
    fn put_down(&self, seat: Seat, flight: Option<Flight>, cx: &Context<'_>) -> Poll<()> {
        self.lane().put_down(seat, flight, cx.waker().clone());
        self.engine.mind_callers();
        Poll::Pending
    }

    /// The batch of this caller, if there is one to be sent and no task has taken its seat.
    fn gather(&self, seat: Seat) -> Option<Flight> {
        self.lane().pick_up(seat)?;
        let batch = self.lane().batch_for(seat)?;
        Some(self.engine.take_off(self.which, batch))
    }
}

impl Future for Drive {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let (seat, mut flight) = match this.stage {
            Stage::Done => return Poll::Ready(()),
            Stage::Gather { seat, stepped_aside: false } if this.engine.wants_gathering() => {
                this.stage = Stage::Gather { seat, stepped_aside: true };
                // Back of the run queue: everybody else who is ready comes first.
                let mut aside = std::pin::pin!(tokio::task::yield_now());
                if aside.as_mut().poll(cx).is_pending() {
                    return this.put_down(seat, None, cx);
                }
                (seat, this.gather(seat))
            }
            Stage::Gather { seat, .. } => (seat, this.gather(seat)),
            Stage::Fly(seat) => (seat, this.lane().pick_up(seat).flatten()),
        };
        this.stage = Stage::Done;
        let Some(flying) = &mut flight else { return Poll::Ready(()) };
        this.stage = Stage::Fly(seat);
        if flying.poll_land(&this.engine, cx).is_pending() {
            return this.put_down(seat, flight, cx);
        }
        this.stage = Stage::Done;
        if this.lane().leave_seat(seat) {
            this.engine.spawn_pump(this.which, None);
        }
        Poll::Ready(())
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        let (Stage::Gather { seat, .. } | Stage::Fly(seat)) = self.stage else { return };
        if let Some(flight) = self.lane().hand_over(seat) {
            self.engine.spawn_pump(self.which, flight);
        }
    }
}

/// A caller's seat while the store's code runs for the first time: a task has it, should that panic.
pub(super) struct NewSeat<'a> {
    engine: &'a Arc<Engine>,
    which: Which,
    seat: Option<Seat>,
}

impl<'a> NewSeat<'a> {
    /// A seat of a lane with nothing to send.
    pub(super) fn claim(engine: &'a Arc<Engine>, which: Which) -> Option<Self> {
        let seat = engine.lane(which).claim_idle_seat()?;
        Some(Self { engine, which, seat: Some(seat) })
    }

    /// Keeps it.
    pub(super) fn keep(mut self) -> Seat {
        self.seat.take().expect("BUG: taken once")
    }
}

impl Drop for NewSeat<'_> {
    fn drop(&mut self) {
        if let Some(seat) = self.seat
            && self.engine.lane(self.which).leave_seat(seat)
        {
            self.engine.spawn_pump(self.which, None);
        }
    }
}

/// A task's seat. Given up whatever becomes of the task: should it panic, another goes on with what there is to send.
struct TaskSeat {
    engine: Arc<Engine>,
    which: Which,
    is_given_up: bool,
}

impl TaskSeat {
    fn next_batch(&mut self) -> Option<Batch> {
        let batch = self.engine.lane(self.which).next_batch();
        self.is_given_up = batch.is_none();
        batch
    }
}

impl Drop for TaskSeat {
    fn drop(&mut self) {
        if !self.is_given_up && self.engine.lane(self.which).leave_task_seat() {
            self.engine.spawn_pump(self.which, None);
        }
    }
}

/// What a batch has left behind: a task that has a seat for it sends it once this is dropped.
pub(super) struct Rest {
    engine: Arc<Engine>,
    which: Which,
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.engine.spawn_pump(self.which, None);
    }
}

impl Engine {
    pub(crate) fn lane(&self, which: Which) -> &Lane {
        match which {
            Which::Asks => &self.asks,
            Which::Renewals => &self.renewals,
        }
    }

    /// Whether a sender steps aside, so that operations gather: the store is better for it, and others are about.
    pub(super) fn wants_gathering(&self) -> bool {
        self.store.capability().gathers && self.live.load(std::sync::atomic::Ordering::Relaxed) > 1
    }

    /// Adds operations; the returned future sends them, if nobody is doing so already.
    pub(crate) fn send(
        self: &Arc<Self>,
        which: Which,
        jobs: impl IntoIterator<Item = Job>,
    ) -> Option<Drive> {
        let seat = self.lane(which).push(jobs)?;
        let stage = Stage::Gather { seat, stepped_aside: false };
        Some(Drive { engine: self.clone(), which, stage })
    }

    /// Adds operations that nobody stays for.
    pub(crate) fn post(self: &Arc<Self>, which: Which, jobs: impl IntoIterator<Item = Job>) {
        let jobs: Vec<_> = jobs.into_iter().filter_map(|job| self.release_now(job)).collect();
        if !jobs.is_empty() {
            drop(self.send(which, jobs));
        }
    }

    /// Carries out a release nobody waits for, where the store does so at once: it comes before whatever its client asks
    /// next, and needs no task. Gives back any other job.
    fn release_now(self: &Arc<Self>, job: Job) -> Option<Job> {
        let Target::Forget(_) = &job.target else { return Some(job) };
        let Some(answer) = self.answer_now(&job.operation, self.clock.now()) else {
            return Some(job);
        };
        if let Target::Forget(release) = job.target {
            self.release_answered(*release, answer);
        }
        None
    }

    /// A batch sets out, and what is left of it behind it.
    fn take_off(self: &Arc<Self>, which: Which, batch: Batch) -> Flight {
        let rest = batch.is_more.then(|| Rest { engine: self.clone(), which });
        Flight::start(self, which, batch.jobs, rest)
    }

    /// Sends what there is from a task that has taken over a driver's seat.
    pub(super) fn spawn_pump(self: &Arc<Self>, which: Which, flight: Option<Flight>) {
        let engine = self.clone();
        // On a runtime that has shut down this does nothing: leases then end by their TTL.
        self.runtime.spawn(async move {
            let mut seat = TaskSeat { engine, which, is_given_up: false };
            if let Some(flight) = flight {
                flight.await;
            }
            loop {
                if seat.engine.wants_gathering() {
                    tokio::task::yield_now().await;
                }
                let Some(batch) = seat.next_batch() else { return };
                seat.engine.take_off(which, batch).await;
            }
        });
    }

    /// Gives to tasks what callers drive and have not been polled for since this was last asked. `true` if more may
    /// have to be.
    pub(super) fn take_over_callers(self: &Arc<Self>) -> bool {
        let mut is_more = false;
        for which in [Which::Asks, Which::Renewals] {
            let (left, more) = self.lane(which).left_standing();
            is_more |= more;
            for (flight, caller) in left {
                self.spawn_pump(which, flight);
                caller.wake();
            }
        }
        is_more
    }
}
