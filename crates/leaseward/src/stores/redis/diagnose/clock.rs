//! Clocks that differ.

use super::{
    super::{
        client::Client,
        clocks::{self, Reading},
        config::Address,
        node::Link,
    },
    finding,
    setting::Replica,
};
use crate::store::{Finding, Severity};

/// Clocks that somebody keeps right differ by milliseconds; a second means that nobody does.
const APART_MAX_US: i64 = 1_000_000;

/// Judges the clocks of all primaries against each other, or, where they agree, against ours.
///
/// Never a danger: deadlines are counted from moments of one clock only, and who of two is wrong cannot be known here.
/// What suffers is the floor of fences, and only after a server lost its counter.
pub(in crate::stores) fn of_primaries(readings: &[(Address, Reading)]) -> Option<Finding> {
    let slow = readings.iter().min_by_key(|(_, reading)| reading.ahead_us)?;
    let fast = readings.iter().max_by_key(|(_, reading)| reading.ahead_us)?;
    let apart = beyond_doubt(fast.1.ahead_us - slow.1.ahead_us, &[fast.1, slow.1]);
    let what = if apart.abs() > APART_MAX_US {
        let (ahead, behind) = (&fast.0, &slow.0);
        format!("the clock of {ahead} is {} ahead of that of {behind}", seconds(apart))
    } else {
        let off = beyond_doubt(fast.1.ahead_us, &[fast.1]);
        if off.abs() <= APART_MAX_US {
            return None;
        }
        let way = if off > 0 { "ahead of" } else { "behind" };
        format!("the server's clock is {} {way} this machine's", seconds(off))
    };
    Some(finding(
        Severity::Warning,
        what,
        "fences follow the server's clock: should it lose its data, or another take its place, with a clock that is \
         behind, it would give out fences again that others have already",
        "keep the clocks of all machines right, with NTP",
    ))
}

impl Client {
    /// Judges the clocks of replicas against their primary's: expiries are kept as points in time, so whoever takes
    /// the primary's place ends them by its own clock.
    pub(super) async fn replicas_clocks(&self, link: &Link, replicas: &[Replica]) -> Vec<Finding> {
        let ours = &*self.clock;
        let Some(primary) = clocks::read(ours, async |time| link.command(&time).await).await else {
            return Vec::new();
        };
        let mut findings = Vec::new();
        for Replica { address, .. } in replicas {
            let dialled = self.wiring.dialler.dial(address, Box::new(|_| {})).await;
            let reading = match dialled {
                Err(_) => None,
                Ok(replica) => clocks::read(ours, async |time| replica.command(&time).await).await,
            };
            findings.extend(match reading {
                None => Some(unknown(address)),
                Some(reading) => self.of_replica(address, reading, primary),
            });
        }
        findings
    }

    fn of_replica(&self, address: &Address, replica: Reading, primary: Reading) -> Option<Finding> {
        let apart = beyond_doubt(replica.ahead_us - primary.ahead_us, &[replica, primary]);
        if apart.abs() <= APART_MAX_US {
            return None;
        }
        let severity = match self.config.strong {
            // Only then does a lease survive a failover at all.
            Some(_) if apart > 0 => Severity::Danger,
            _ => Severity::Warning,
        };
        let (way, meaning) = if apart > 0 {
            (
                "ahead of",
                "should it take the primary's place, leases end that much too early, and a second holder \
                          gets in while the first is at work",
            )
        } else {
            (
                "behind",
                "should it take the primary's place, leases end that much too late, and fences it gives out \
                        may be smaller than those given out before",
            )
        };
        Some(finding(
            severity,
            format!(
                "the clock of the replica at {address} is {} {way} its primary's",
                seconds(apart)
            ),
            meaning,
            "keep the clocks of all machines right, with NTP",
        ))
    }
}

fn unknown(address: &Address) -> Finding {
    finding(
        Severity::Note,
        format!("the replica at {address} cannot be reached from here"),
        "its clock was not compared with its primary's; leases do not need this connection",
        "nothing, if only the primary is meant to be reached; else run this on a machine that reaches both",
    )
}

/// What of a difference is left if both answers took as long as they could to come.
fn beyond_doubt(apart_us: i64, readings: &[Reading]) -> i64 {
    let doubt: u128 = readings.iter().map(|reading| reading.round_trip.as_micros() / 2).sum();
    let doubt = i64::try_from(doubt).unwrap_or(i64::MAX);
    apart_us.signum() * (apart_us.saturating_abs() - doubt).max(0)
}

fn seconds(us: i64) -> String {
    format!("{}.{} s", us.abs() / 1_000_000, us.abs() / 100_000 % 10)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(port: u16, ahead_us: i64, round_trip_ms: u64) -> (Address, Reading) {
        let round_trip = Duration::from_millis(round_trip_ms);
        (Address::Tcp("h".into(), port), Reading { ahead_us, round_trip })
    }

    fn judged(readings: &[(Address, Reading)]) -> Option<String> {
        of_primaries(readings).map(|finding| finding.what)
    }

    #[test]
    fn only_what_is_beyond_doubt_is_told() {
        assert_eq!(judged(&[]), None);
        assert_eq!(judged(&[at(1, 900_000, 0)]), None);
        assert_eq!(judged(&[at(1, 1_200_000, 500)]), None, "it may be the way to it");
        let ahead = judged(&[at(1, 2_500_000, 0)]).expect("a finding");
        assert!(ahead.contains("2.5 s ahead of this machine"), "{ahead}");
        let behind = judged(&[at(1, -2_500_000, 0)]).expect("a finding");
        assert!(behind.contains("2.5 s behind this machine"), "{behind}");
    }

    #[test]
    fn servers_that_differ_are_named_once() {
        let told = judged(&[at(1, 0, 0), at(2, 5_000_000, 0), at(3, 1_000, 0)]).expect("a finding");
        assert!(told.contains("h:2 is 5.0 s ahead of that of h:1"), "{told}");
    }
}
