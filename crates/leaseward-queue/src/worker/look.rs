//! What nobody tells a pump of: jobs that may have killed their worker, and what was missed.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use leaseward::{Error, ErrorKind};

use super::{buffer::Next, pump::Pump};
use crate::{
    backend::{Claim, Settle, Turn, Turned},
    session::Life,
    strays,
};

impl Pump {
    /// Looks for what nobody tells of.
    pub(super) async fn look(&mut self) {
        // Jittered, so that processes that began together do not look together.
        self.looked_at = Instant::now();
        self.look_at = self.looked_at + self.poll.mul_f64(0.75 + 0.5 * rand::random::<f64>());
        self.hopeful = true;
        if self.suspect.is_none() {
            self.claim_alone().await;
        }
    }

    /// Claims a job that may have killed its worker, to be run next.
    async fn claim_alone(&mut self) {
        if self.life.is_over() {
            return;
        }
        let life = self.life.clone();
        let last = life.last.load(Ordering::Acquire);
        let claim = Claim { queue: self.number, last, count: 1, alone: true };
        let turn = Turn { session: life.id, settle: Settle::default(), claim: Some(claim) };
        match self.ask(&life, turn).await {
            Ok(Turned { lease: Some(lease), .. }) => {
                self.suspect = Some((life.id, lease.token));
                self.claimed(&life, lease, Next::First);
            }
            Ok(_) => {}
            Err(error) => self.pause(&error).await,
        }
    }

    /// Has the database carry out a turn. A claim whose answer was lost may have been made all the same.
    pub(super) async fn ask(&self, life: &Arc<Life>, turn: Turn) -> Result<Turned, Error> {
        let claims = turn.claim.is_some();
        let _claiming = life.claiming.read().await;
        let answer = self.inner.backend.turn(turn).await;
        match &answer {
            Ok(Turned { lease: Some(lease), .. }) => {
                life.tokens.lock().insert(lease.token);
            }
            Err(error) if claims && error.kind() == ErrorKind::Indeterminate => {
                strays::give_back_soon(&self.inner, life);
            }
            _ => {}
        }
        answer
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        // The worker was dropped in the middle of its work.
        self.life.tokens.lock().retain(|token| !self.leases.contains_key(&(self.life.id, *token)));
        strays::give_back_soon(&self.inner, &self.life);
    }
}
