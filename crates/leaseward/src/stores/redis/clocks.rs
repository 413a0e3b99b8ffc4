//! The clocks of servers, against ours.

use std::time::Duration;

use futures_util::future::try_join_all;
use redis::{Cmd, RedisError, Value};

use super::{client::Client, config::Topology, error, keys::Slot, node::Node, probe};
use crate::{Error, clock::Clock};

/// How a clock stands against ours.
#[derive(Clone, Copy, Debug)]
pub(in crate::stores) struct Reading {
    /// By how much it is ahead, in microseconds.
    pub(super) ahead_us: i64,
    /// How long the answer took: the reading may be wrong by half of it.
    pub(super) round_trip: Duration,
}

impl Reading {
    /// Reads an answer to TIME that was asked for and came at these moments of our wall clock. The server is taken to
    /// have looked half-way between.
    fn of(answer: &Value, asked_us: u64, came_us: u64) -> Option<Self> {
        let Value::Array(parts) = answer else { return None };
        let number = |value: &Value| probe::text(value)?.parse::<u64>().ok();
        let [seconds, micros] = parts.as_slice() else { return None };
        let server_us = number(seconds)? * 1_000_000 + number(micros)?;
        let took_us = came_us.saturating_sub(asked_us);
        let ours_us = asked_us + took_us / 2;
        let ahead_us = i64::try_from(i128::from(server_us) - i128::from(ours_us)).ok()?;
        Some(Self { ahead_us, round_trip: Duration::from_micros(took_us) })
    }
}

/// Looks at a clock over whatever answers TIME.
pub(in crate::stores) async fn read(
    clock: &dyn Clock,
    ask: impl AsyncFnOnce(Cmd) -> Result<Value, RedisError>,
) -> Option<Reading> {
    let asked_us = clock.wall_us();
    let answer = ask(redis::cmd("TIME")).await.ok()?;
    Reading::of(&answer, asked_us, clock.wall_us())
}

impl Client {
    /// Asks every primary for its time and its replicas, and one server also for its newest fence: one round trip.
    pub(super) async fn ping(&self) -> Result<(), Error> {
        let nodes = self.servers().primaries();
        let readings = try_join_all(nodes.iter().map(|node| self.ping_at(node))).await?;
        // Fences of one node are not to look early by the clock of another: the clock that is ahead of all counts.
        // Clocks of a cluster that differ are a finding of their own.
        if let Some(ahead_us) = readings.iter().flatten().map(|reading| reading.ahead_us).max() {
            self.fences.set_ahead(ahead_us);
        }
        Ok(())
    }

    /// A server that answers is there, even if it forbids to ask.
    async fn ping_at(&self, node: &Node) -> Result<Option<Reading>, Error> {
        let link = node.link()?;
        let mut questions = redis::pipe();
        questions.cmd("TIME").cmd("ROLE");
        if !matches!(self.config.topology, Topology::Cluster { .. }) {
            questions.cmd("GET").arg(self.keys.fence_key(Slot(0)));
        }
        let failed = |error: RedisError| error::of_call(&error, &link.address.to_string());
        let asked_us = self.clock.wall_us();
        let answers = link.pipeline(&questions).await.map_err(failed)?;
        let came_us = self.clock.wall_us();
        for answer in &answers {
            if let Value::ServerError(refusal) = answer {
                let refusal: RedisError = refusal.clone().into();
                if error::code_of(&refusal) != Some(error::Code::NoPerm) {
                    return Err(failed(refusal));
                }
            }
        }
        if let Some(fence) = answers.get(2).and_then(probe::text).and_then(|text| text.parse().ok())
        {
            self.fences.seen(fence);
        }
        link.probe.hear_role(&answers[1]);
        Ok(Reading::of(&answers[0], asked_us, came_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_looked_half_way() {
        let time = Value::Array(vec![
            Value::BulkString(b"10".to_vec()),
            Value::BulkString(b"500".to_vec()),
        ]);
        let reading = Reading::of(&time, 9_000_000, 9_000_200).expect("read");
        assert_eq!(reading.ahead_us, 1_000_400);
        assert_eq!(reading.round_trip, Duration::from_micros(200));
        let behind = Reading::of(&time, 11_000_500, 11_000_500).expect("read");
        assert_eq!(behind.ahead_us, -1_000_000);
        assert!(Reading::of(&Value::Nil, 0, 0).is_none());
    }
}
