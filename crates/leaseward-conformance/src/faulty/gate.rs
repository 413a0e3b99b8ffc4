//! Where batches are held back until a case lets them go.

use tokio::sync::watch;

pub(super) struct Gate {
    arrived: watch::Sender<usize>,
    passed: watch::Sender<usize>,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self { arrived: watch::Sender::new(0), passed: watch::Sender::new(0) }
    }

    /// Waits to be let through.
    pub(super) async fn pass(&self) {
        let mut ticket = 0;
        self.arrived.send_modify(|arrived| {
            *arrived += 1;
            ticket = *arrived;
        });
        let mut passed = self.passed.subscribe();
        passed.wait_for(|passed| *passed >= ticket).await.expect("BUG: the gate is ours");
    }

    /// Waits until so many have arrived in all.
    pub(super) async fn reached(&self, count: usize) {
        let mut arrived = self.arrived.subscribe();
        arrived.wait_for(|arrived| *arrived >= count).await.expect("BUG: the gate is ours");
    }

    /// Lets through whoever has arrived.
    pub(super) fn open(&self) {
        let arrived = *self.arrived.borrow();
        self.passed.send_replace(arrived);
    }
}
