//! The record of a contest, and what it says.

use std::time::Duration;

use crate::stats::{jain, quantile};

/// What contention came to.
pub(crate) struct Turns {
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) requests: f64,
    pub(crate) starved: f64,
    pub(crate) jain: f64,
    pub(crate) longest_to_median: f64,
    pub(crate) errors: f64,
}

/// When who held it, from the logs of all processes, in nanoseconds.
#[derive(Default)]
pub(crate) struct Record {
    visits: Vec<Visit>,
    /// When those asked that still waited at the end.
    waiting: Vec<f64>,
    end: f64,
}

#[derive(Clone, Copy)]
struct Visit {
    task: usize,
    asked: f64,
    came: f64,
    left: f64,
}

impl Record {
    /// Lines of `task asked came left`; `task asked` of those still waiting; `end` and when that was.
    pub(crate) fn read(&mut self, log: &str) -> Result<(), String> {
        for line in log.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<f64>().map_err(|_| format!("`{line}`?"));
            match words.len() {
                2 if words[0] == "end" => self.end = self.end.max(number(1)?),
                2 => self.waiting.push(number(1)?),
                4 => {
                    let (asked, came, left) = (number(1)?, number(2)?, number(3)?);
                    self.visits.push(Visit { task: number(0)? as usize, asked, came, left });
                }
                _ => return Err(format!("`{line}`?")),
            }
        }
        Ok(())
    }

    pub(crate) fn summary(&mut self, tasks: usize, span: Duration) -> Turns {
        self.visits.sort_by(|a, b| a.came.total_cmp(&b.came));
        let (mut handed, mut overlaps) = (Vec::new(), 0);
        for two in self.visits.windows(2) {
            // Two holders at once: an error of whoever promised that there is one.
            overlaps += u32::from(two[1].came < two[0].left);
            if two[0].task != two[1].task {
                handed.push((two[1].came - two[0].left) / 1e3);
            }
        }
        handed.sort_by(f64::total_cmp);
        let mut times = vec![0.0; tasks];
        for visit in &self.visits {
            times[visit.task] += 1.0;
        }
        let mut waits: Vec<_> = self.visits.iter().map(|visit| visit.came - visit.asked).collect();
        waits.sort_by(f64::total_cmp);
        // Who still waits has waited at least so long.
        let unserved = self.waiting.iter().map(|asked| self.end - asked);
        let longest = unserved.chain(waits.last().copied()).fold(0.0, f64::max);
        Turns {
            per_second: handed.len() as f64 / span.as_secs_f64(),
            p50_us: quantile(&handed, 0.5),
            p99_us: quantile(&handed, 0.99),
            requests: f64::NAN,
            starved: times.iter().filter(|times| **times == 0.0).count() as f64,
            jain: jain(&times),
            longest_to_median: longest / quantile(&waits, 0.5),
            errors: overlaps.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_hand_overs_from_visits() {
        // Task 0, task 1, task 1 again, task 0; task 2 waits all the time. Times in nanoseconds.
        let (one, two) = ("end 9000\n0 0 1000 2000\n0 2000 7000 8000\n0 8000\n", "end 9500\n2 0\n");
        let three = "1 0 2500 3000\n1 3000 4000 5000\n1 8500\n";
        let mut record = Record::default();
        for log in [one, two, three] {
            record.read(log).expect("a log");
        }
        let turns = record.summary(3, Duration::from_secs(1));
        assert_eq!(turns.per_second, 2.0);
        assert_eq!((turns.p50_us, turns.p99_us), (2.0, 2.0));
        assert_eq!(turns.starved, 1.0);
        assert_eq!(turns.jain, 16.0 / (3.0 * 8.0));
        assert_eq!(turns.longest_to_median, 9_500.0 / 2_500.0);
        assert_eq!(turns.errors, 0.0);
        assert!(Record::default().read("1 2 3\n").is_err());
    }

    #[test]
    fn two_holders_at_once_are_an_error() {
        let mut record = Record::default();
        record.read("0 0 10 30\n1 0 20 40\n").expect("a log");
        assert_eq!(record.summary(2, Duration::from_secs(1)).errors, 1.0);
    }
}
