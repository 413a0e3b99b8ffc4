//! How many jobs are claimed ahead of need: as many as will be done before the next answer comes.
//!
//! Two things bound that. What was done during the turns of the last moments, because whoever cannot work faster than that
//! would only keep jobs from others; it is the most and not the last, because jobs come in bursts, and the last turn of one
//! says nothing of the next. And what can be done at all, by how long jobs run and how long a turn takes: of slow jobs
//! none is claimed before it can run.

use std::time::{Duration, Instant};

/// After so long half of what was done at most is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(1);

/// How much a new value counts beside those before it.
const NEWEST: f64 = 0.3;

/// No job is taken for faster than this.
const RUN_MIN: Duration = Duration::from_micros(1);

#[derive(Debug)]
pub(super) struct Pace {
    /// The most jobs done during a turn, as of when.
    most: f64,
    at: Instant,
    /// How long a turn takes, and a job, in seconds.
    turn: Option<f64>,
    run: Option<f64>,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { most: 0.0, at: now, turn: None, run: None }
    }

    /// Notes a turn: how long it took, and how long each job ran that was written down by it.
    pub(super) fn turned(
        &mut self,
        now: Instant,
        took: Duration,
        runs: impl Iterator<Item = Duration>,
    ) {
        let mut runs: Vec<Duration> = runs.collect();
        self.most = self.most_at(now).max(runs.len() as f64);
        self.at = now;
        blend(&mut self.turn, took.as_secs_f64());
        if !runs.is_empty() {
            // The median: on a busy machine a job of microseconds now and then takes as long as a whole turn.
            let middle = runs.len() / 2;
            let (_, median, _) = runs.select_nth_unstable(middle);
            blend(&mut self.run, (*median).max(RUN_MIN).as_secs_f64());
        }
    }

    /// How many are to be claimed beyond those that can run at once, if so many run at a time.
    pub(super) fn ahead(&self, now: Instant, concurrency: usize) -> usize {
        let Some((turn, run)) = self.turn.zip(self.run) else { return 0 };
        let possible = concurrency as f64 * turn / run;
        // What is done until the answer comes, and as much again until that to the next question. Of what was done it is
        // not known whether there was more to do: twice of that, so that it grows if there was.
        (2.0 * possible).min(4.0 * self.most_at(now)) as usize
    }

    fn most_at(&self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.at);
        self.most * 0.5_f64.powf(age.as_secs_f64() / HALF_LIFE.as_secs_f64())
    }
}

fn blend(value: &mut Option<f64>, newest: f64) {
    *value = Some(value.map_or(newest, |old| old + NEWEST * (newest - old)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_millis(2);

    fn after(runs: &[Duration], concurrency: usize) -> usize {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        pace.turned(now, TURN, runs.iter().copied());
        pace.ahead(now, concurrency)
    }

    #[test]
    fn nothing_is_claimed_ahead_until_something_is_known() {
        assert_eq!(after(&[], 8), 0);
    }

    #[test]
    fn more_than_were_done_if_jobs_are_fast() {
        assert_eq!(after(&[Duration::from_micros(5); 8], 8), 32);
    }

    #[test]
    fn one_that_was_held_up_makes_no_slow_jobs_of_all() {
        let mut runs = [Duration::from_micros(5); 8];
        runs[0] = Duration::from_millis(100);
        assert_eq!(after(&runs, 1), 32);
    }

    #[test]
    fn of_slow_jobs_none_however_many_ended_together() {
        assert_eq!(after(&[Duration::from_secs(1); 8], 8), 0);
        assert_eq!(after(&[Duration::from_millis(16); 8], 8), 2);
    }

    #[test]
    fn a_burst_is_remembered_for_a_while() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        pace.turned(now, TURN, std::iter::repeat_n(Duration::from_micros(5), 100));
        pace.turned(now, TURN, std::iter::once(Duration::from_micros(5)));
        assert_eq!(pace.ahead(now, 8), 400);
        assert_eq!(pace.ahead(now + HALF_LIFE, 8), 200);
        assert_eq!(pace.ahead(now + 20 * HALF_LIFE, 8), 0);
    }
}
