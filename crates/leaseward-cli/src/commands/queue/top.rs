//! `leaseward queue top`: the queues as they change.

use std::{
    collections::HashMap,
    io::IsTerminal,
    time::{Duration, Instant, UNIX_EPOCH},
};

use clap::Args;
use leaseward_queue::QueueStats;
use serde_json::json;

use super::{
    Desk,
    stats::{HEAD, cells},
};
use crate::{exit::Exit, failure::Failure, outage::Outage, units};

/// Moves to the top left corner and wipes what is below.
const WIPE: &str = "\x1b[H\x1b[J";

/// Watch the queues: how many jobs wait, how many come and go each second
///
/// Ends with Ctrl-C. Off a terminal a table follows the other. With `--json` one object a line for each queue and look:
/// what `stats` has, and `pushed_per_s`, `done_per_s`, `failed_per_s`. A store that goes away is waited for: a line says
/// since when it is away, and the next table that it is back.
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Only this queue
    #[arg(long, short, value_name = "NAME")]
    queue: Option<String>,

    /// How often to look
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1s")]
    interval: Duration,

    /// Look so many times, then end [default: until Ctrl-C]
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<u64>,

    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

impl TopArgs {
    /// Whether it goes on until it is interrupted.
    pub(super) fn is_endless(&self) -> bool {
        self.count.is_none()
    }
}

/// What has happened since a queue was made.
#[derive(Clone, Copy, Debug, Default)]
struct Counts([u64; 3]);

impl Counts {
    fn of(stats: &QueueStats) -> Self {
        Self([stats.pushed, stats.done, stats.failed])
    }

    /// How many a second, since another look.
    fn rates(self, before: Option<Self>, time: Duration) -> [f64; 3] {
        let before = before.unwrap_or(self).0;
        let seconds = time.as_secs_f64().max(0.001);
        std::array::from_fn(|at| {
            #[allow(clippy::cast_precision_loss)] // jobs of one interval
            let since = self.0[at].saturating_sub(before[at]) as f64;
            since / seconds
        })
    }
}

/// Carries it out.
pub(crate) async fn run(args: &TopArgs, desk: &mut Desk) -> Result<Exit, Failure> {
    if let Some(name) = &args.queue {
        desk.known(name).await?;
    }
    let queue = desk.queue.clone();
    let mut before: HashMap<String, Counts> = HashMap::new();
    let mut looked = Instant::now();
    let mut looks = 0;
    let mut outage = Outage::none_yet(desk.printer);
    loop {
        let looked_at = tokio::select! {
            all = queue.stats() => all,
            _ = desk.signals.ending() => return Ok(Exit::Done),
        };
        let mut all = match looked_at {
            Ok(all) => all,
            // A slip, most likely: whoever typed it is there.
            Err(error) if looks == 0 => return Err(error.into()),
            Err(error) => {
                let is_new = outage.since_us().is_none();
                outage.failed(error)?;
                if is_new && !args.json {
                    desk.printer.line(&away_since(&outage))?;
                }
                if ended_within(args.interval, desk).await {
                    return Ok(Exit::Done);
                }
                continue;
            }
        };
        outage.answered();
        all.retain(|stats| args.queue.as_ref().is_none_or(|name| *name == stats.name));
        let time = looked.elapsed();
        looked = Instant::now();
        let mut rows = Vec::new();
        for stats in &all {
            let counts = Counts::of(stats);
            let rates = counts.rates(before.insert(stats.name.clone(), counts), time);
            if args.json {
                print(stats, rates, desk)?;
            } else {
                let rates = rates.map(|rate| format!("{rate:.0}"));
                rows.push(cells(stats).into_iter().chain(rates).collect());
            }
        }
        if !args.json {
            draw(rows, desk)?;
        }
        looks += 1;
        if args.count.is_some_and(|count| looks >= count) {
            return Ok(Exit::Done);
        }
        if ended_within(args.interval, desk).await {
            return Ok(Exit::Done);
        }
    }
}

/// Waits for the next look; whether whoever watched has seen enough.
async fn ended_within(interval: Duration, desk: &mut Desk) -> bool {
    tokio::time::timeout(interval, desk.signals.ending()).await.is_ok()
}

fn away_since(outage: &Outage) -> String {
    let since = UNIX_EPOCH + Duration::from_micros(outage.since_us().unwrap_or_default());
    format!("store away since {}", humantime::format_rfc3339_seconds(since))
}

fn print(stats: &QueueStats, rates: [f64; 3], desk: &Desk) -> Result<(), Failure> {
    let mut value = serde_json::to_value(stats)
        .map_err(|error| Failure::system("cannot write JSON", &error))?;
    for (name, rate) in ["pushed_per_s", "done_per_s", "failed_per_s"].into_iter().zip(rates) {
        value[name] = json!((rate * 10.0).round() / 10.0);
    }
    desk.printer.json(&value)
}

fn draw(rows: Vec<Vec<String>>, desk: &Desk) -> Result<(), Failure> {
    if std::io::stdout().is_terminal() {
        let store = desk.settings.store.shown();
        desk.printer.line(&format!("{WIPE}queues in {store}"))?;
    }
    if rows.is_empty() {
        return desk.printer.line("there are none");
    }
    let head: Vec<&str> = HEAD.into_iter().chain(["PUSHED/S", "DONE/S", "FAILED/S"]).collect();
    desk.printer.table(&head, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_per_second_and_begin_with_nothing() {
        let (one, two) = (Counts([10, 5, 1]), Counts([30, 6, 0]));
        assert_eq!(one.rates(None, Duration::from_secs(1)), [0.0; 3]);
        assert_eq!(two.rates(Some(one), Duration::from_secs(2)), [10.0, 0.5, 0.0]);
    }
}
