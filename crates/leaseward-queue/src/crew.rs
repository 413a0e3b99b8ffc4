//! What runs in the background while a process has workers or schedules: signs of life, listening, maintenance.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::{maintenance, queue::Inner};

/// How often it is looked for cancelled jobs, whether anybody was told or not.
const CANCELLED_EVERY: Duration = Duration::from_secs(2);

/// Between two looks for cancelled jobs.
const CANCELLED_SPACING: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
pub(crate) struct Crew {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    members: usize,
    tasks: Vec<JoinHandle<()>>,
    is_listening: bool,
}

/// One who needs the background. The last one to go ends it, and says goodbye to the database.
pub(crate) struct Enlisted(Option<Arc<Inner>>);

impl Inner {
    /// Sees to it that the background runs.
    pub(crate) fn enlist(&self) -> Enlisted {
        let inner = self.me.upgrade().expect("BUG: it is borrowed from what keeps it alive");
        let mut state = self.crew.state.lock();
        state.members += 1;
        if state.members == 1 {
            let me = self.me.clone();
            state.tasks = vec![
                tokio::spawn(keep_alive(me.clone())),
                tokio::spawn(stop_cancelled(me.clone())),
                tokio::spawn(maintenance::run(me)),
            ];
        }
        if !std::mem::replace(&mut state.is_listening, true) {
            let bells = Arc::downgrade(&self.bells);
            self.backend.listen(Arc::new(move |told| {
                if let Some(bells) = bells.upgrade() {
                    bells.told(told);
                }
            }));
        }
        drop(state);
        Enlisted(Some(inner))
    }
}

impl Enlisted {
    /// Ends the background if this was the last one; who is to say goodbye.
    fn discharge(&mut self) -> Option<Arc<Inner>> {
        let inner = self.0.take()?;
        let mut state = inner.crew.state.lock();
        state.members -= 1;
        if state.members > 0 {
            return None;
        }
        std::mem::take(&mut state.tasks).iter().for_each(JoinHandle::abort);
        drop(state);
        Some(inner)
    }

    /// Goes, and waits until that is known.
    pub(crate) async fn leave(mut self) {
        if let Some(inner) = self.discharge() {
            inner.goodbye().await;
        }
    }
}

impl Drop for Enlisted {
    fn drop(&mut self) {
        // Dropped outside of a runtime, or with it, the session ends by itself.
        if let Some(inner) = self.discharge()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { inner.goodbye().await });
        }
    }
}

impl Inner {
    /// Ends the session, unless somebody has come meanwhile.
    async fn goodbye(&self) {
        if self.crew.state.lock().members == 0 {
            self.sessions.leave().await;
        }
    }
}

async fn keep_alive(inner: Weak<Inner>) {
    if let Some(inner) = inner.upgrade() {
        inner.sessions.keep_alive().await;
    }
}

async fn stop_cancelled(inner: Weak<Inner>) {
    loop {
        let Some(this) = inner.upgrade() else { return };
        // Told or not, it is looked.
        let _ = tokio::time::timeout(CANCELLED_EVERY, this.bells.hear_cancelled()).await;
        this.sessions.look_for_cancelled().await;
        drop(this);
        tokio::time::sleep(CANCELLED_SPACING).await;
    }
}
