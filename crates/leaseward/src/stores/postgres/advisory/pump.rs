//! Carrying a connection's messages in the task that waits for them.
//!
//! The driver wants a task of its own for each connection: then every statement goes to that task and its answer comes
//! back, each time over to another thread if there are several, which takes longer than the statement. Here whoever waits
//! for an answer carries the messages meanwhile, and a task of its own does so only while nobody waits.
//!
//! The connection knows one waker, the [`Bell`], whoever carries. It wakes those who wait for answers; if there are none,
//! the connection's own task. A bell that rings between somebody's last look and their leaving is passed on to the task.

use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use parking_lot::Mutex;

use super::super::dial::Carrier;

pub(super) struct Pump {
    /// Gone once the connection has ended.
    carrier: Mutex<Option<Carrier>>,
    bell: Arc<Bell>,
    waker: Waker,
}

#[derive(Default)]
struct Bell(Mutex<Listeners>);

#[derive(Default)]
struct Listeners {
    /// It rang, and nobody has looked since.
    rang: bool,
    /// How many wait for an answer.
    callers: usize,
    /// Those of them who sleep.
    asleep: Vec<Waker>,
    /// The connection's own task.
    keeper: Option<Waker>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut listeners = self.0.lock();
        listeners.rang = true;
        let wakers = if listeners.callers > 0 {
            std::mem::take(&mut listeners.asleep)
        } else {
            listeners.keeper.clone().into_iter().collect()
        };
        drop(listeners);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Bell {
    /// Wakes everybody: the connection has ended.
    fn wake_all(&self) {
        let mut listeners = self.0.lock();
        let mut wakers = std::mem::take(&mut listeners.asleep);
        wakers.extend(listeners.keeper.clone());
        drop(listeners);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Somebody who waits for an answer.
struct Caller<'a>(&'a Bell);

impl<'a> Caller<'a> {
    fn new(bell: &'a Bell) -> Self {
        bell.0.lock().callers += 1;
        Self(bell)
    }

    /// Goes to sleep until the bell rings; if it has, looks again soon.
    fn sleep(&self, context: &Context<'_>) {
        let mut listeners = self.0.0.lock();
        if listeners.rang {
            drop(listeners);
            context.waker().wake_by_ref();
        } else if !listeners.asleep.iter().any(|waker| waker.will_wake(context.waker())) {
            listeners.asleep.push(context.waker().clone());
        }
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        let mut listeners = self.0.0.lock();
        listeners.callers -= 1;
        if listeners.callers == 0 {
            // Its own, from before the answer came.
            listeners.asleep.clear();
        }
        if !listeners.rang {
            return;
        }
        let mut wakers = std::mem::take(&mut listeners.asleep);
        if listeners.callers == 0 {
            wakers.extend(listeners.keeper.clone());
        }
        drop(listeners);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// What an answer wakes: the task that waits for it, but not while that task itself carries the answer in. A task that is
/// woken while it runs is run again for nothing, and the runtime wakes another thread to see to that.
#[derive(Default)]
struct Doorbell(Mutex<Door>);

#[derive(Default)]
struct Door {
    rang: bool,
    asleep: Option<Waker>,
}

impl Wake for Doorbell {
    fn wake(self: Arc<Self>) {
        let mut door = self.0.lock();
        door.rang = true;
        let waker = door.asleep.take();
        drop(door);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Doorbell {
    fn awake(&self) {
        *self.0.lock() = Door::default();
    }

    fn sleep(&self, context: &Context<'_>) {
        let mut door = self.0.lock();
        if door.rang {
            drop(door);
            context.waker().wake_by_ref();
        } else {
            door.asleep = Some(context.waker().clone());
        }
    }
}

impl Pump {
    pub(super) fn new(carrier: Carrier) -> Arc<Self> {
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(bell.clone());
        Arc::new(Self { carrier: Mutex::new(Some(carrier)), bell, waker })
    }

    /// Carries messages while nobody waits for one, until the connection ends.
    pub(super) async fn keep(&self) {
        poll_fn(|context| {
            let has_callers = {
                let mut listeners = self.bell.0.lock();
                listeners.keeper = Some(context.waker().clone());
                listeners.callers > 0
            };
            if !has_callers {
                self.carry();
            }
            if self.carrier.lock().is_none() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Waits for an answer.
    ///
    /// # Cancel safety
    /// As the request itself: it may have been sent.
    pub(super) async fn until<T>(&self, asked: impl Future<Output = T>) -> T {
        let caller = Caller::new(&self.bell);
        let doorbell = Arc::new(Doorbell::default());
        let waker = Waker::from(doorbell.clone());
        let mut asked = pin!(asked);
        poll_fn(|context| {
            doorbell.awake();
            let mut own = Context::from_waker(&waker);
            if let Poll::Ready(answer) = asked.as_mut().poll(&mut own) {
                return Poll::Ready(answer);
            }
            self.carry();
            let answer = asked.as_mut().poll(&mut own);
            if answer.is_pending() {
                doorbell.sleep(context);
                caller.sleep(context);
            }
            answer
        })
        .await
    }

    /// Ends the connection.
    pub(super) fn end(&self) {
        let carrier = self.carrier.lock().take();
        drop(carrier);
        self.bell.wake_all();
    }

    /// Carries all messages that there are.
    fn carry(&self) {
        self.bell.0.lock().rang = false;
        let mut context = Context::from_waker(&self.waker);
        let mut carrier = self.carrier.lock();
        while let Some(connection) = carrier.as_mut() {
            match connection.poll_message(&mut context) {
                Poll::Pending => return,
                // Notices; nothing here listens to notifications.
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(None | Some(Err(_))) => {
                    let ended = carrier.take();
                    drop(carrier);
                    // Whoever waits for an answer learns by this that none will come.
                    drop(ended);
                    self.bell.wake_all();
                    return;
                }
            }
        }
    }
}
