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
pub(crate) struct Enlisted(Arc<Inner>);

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
        Enlisted(inner)
    }
}

impl Drop for Enlisted {
    fn drop(&mut self) {
        let mut state = self.0.crew.state.lock();
        state.members -= 1;
        if state.members > 0 {
            return;
        }
        let tasks = std::mem::take(&mut state.tasks);
        drop(state);
        tasks.iter().for_each(JoinHandle::abort);
        // Dropped outside of a runtime, or with it, the session ends by itself.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let inner = self.0.clone();
            runtime.spawn(async move { inner.sessions.leave().await });
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
