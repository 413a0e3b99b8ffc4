//! `leaseward queue add`: pushes jobs.

use std::time::{Duration, SystemTime};

use clap::Args;
use leaseward_queue::{NewJob, Priority, Pushed};
use serde_json::{Value, json, value::RawValue};

use super::{DEFAULT, Desk, bulk::Bar, source};
use crate::{exit::Exit, failure::Failure, session::interrupted, units};

/// Push jobs
///
/// Each PAYLOAD is JSON, and becomes one job; `-` reads JSON from stdin, one value a line, and pushes what comes in
/// together, in batches. Prints the id of each job; with `-` only how many there were, unless `--json` is given.
///
/// With `--json` each line is an object with `id` and `new`, which is false if another job with the unique key was there.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct AddArgs {
    /// The queue, which is made if it is not there
    #[arg(long, short, value_name = "NAME", default_value = DEFAULT)]
    queue: String,

    /// How urgent: 0 comes first, 15 last
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(0..=15))]
    priority: u8,

    /// Not before this much time has passed
    #[arg(long = "in", value_name = "DURATION", value_parser = units::duration, allow_hyphen_values = true, conflicts_with = "at")]
    delay: Option<Duration>,

    /// Not before this time, such as `2027-01-31T08:00:00Z`
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<SystemTime>,

    /// Push nothing while another job of the queue with this key has not ended
    #[arg(long, value_name = "KEY", conflicts_with = "unique_by")]
    unique: Option<String>,

    /// The same, with the key found in each payload: a field of it, such as `to`, or a JSON pointer, such as `/user/id`
    #[arg(long, value_name = "FIELD")]
    unique_by: Option<String>,

    /// Push nothing within this time after another job with the unique key, whether that has ended or not
    #[arg(long, value_name = "DURATION", value_parser = units::duration, allow_hyphen_values = true)]
    unique_for: Option<Duration>,

    /// Jobs of one key run one at a time, unless the queue is set up otherwise
    #[arg(long, value_name = "KEY", conflicts_with = "key_by")]
    key: Option<String>,

    /// The same, with the key found in each payload
    #[arg(long, value_name = "FIELD")]
    key_by: Option<String>,

    /// After how many failed attempts a job is dead [default: the worker decides]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: Option<u32>,

    /// How long an attempt may take [default: the worker decides]
    #[arg(long, value_name = "DURATION", value_parser = units::duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,

    /// Take payloads as they are for text, not JSON
    #[arg(long)]
    text: bool,

    /// Print one JSON object for each job
    #[arg(long)]
    json: bool,

    /// What the jobs are about, as JSON; `-` reads lines from stdin
    #[arg(value_name = "PAYLOAD", required = true, allow_negative_numbers = true)]
    payloads: Vec<String>,
}

const AFTER: &str = "\
Examples:
    leaseward queue add --queue mail '{\"to\":\"a@example.org\"}'
    leaseward queue add --in 1h --priority 0 '{\"remind\":7}'
    leaseward queue add --text 'any text'
    jq -c '.users[]' users.json | leaseward queue add --queue mail --unique-by to -";

/// Reads a time.
fn time(text: &str) -> Result<SystemTime, String> {
    humantime::parse_rfc3339_weak(text).map_err(|error| {
        format!("{error}\nhint: write it as `2027-01-31T08:00:00Z`, or use `--in`")
    })
}

/// Carries it out.
pub(crate) async fn run(args: AddArgs, desk: &mut Desk) -> Result<Exit, Failure> {
    check(&args)?;
    if args.payloads == ["-"] {
        return from_stdin(&args, desk).await;
    }
    let mut jobs = Vec::new();
    for payload in &args.payloads {
        jobs.push(args.job(payload)?);
    }
    let queue = desk.queue.clone();
    for pushed in desk.answer(queue.push_many(jobs)).await? {
        if args.json {
            print(pushed, desk)?;
        } else {
            desk.printer.line(&pushed.id().to_string())?;
            if !pushed.is_new() {
                desk.printer.say("another job has this unique key: nothing was pushed");
            }
        }
    }
    Ok(Exit::Done)
}

fn check(args: &AddArgs) -> Result<(), Failure> {
    let is_bulk = args.payloads.iter().any(|payload| payload == "-");
    if is_bulk && args.payloads.len() > 1 {
        return Err(Failure::usage("`-` stands alone")
            .hint("put all payloads into stdin, or all on the command line"));
    }
    if args.unique.is_some() && (is_bulk || args.payloads.len() > 1) {
        return Err(Failure::usage("jobs with one `--unique` key are one job")
            .hint("`--unique-by FIELD` finds a key in each payload"));
    }
    if args.unique_for.is_some() && args.unique.is_none() && args.unique_by.is_none() {
        return Err(Failure::usage("`--unique-for` needs a key")
            .hint("name it with `--unique KEY` or `--unique-by FIELD`"));
    }
    Ok(())
}

impl AddArgs {
    /// The job of one payload.
    fn job(&self, payload: &str) -> Result<NewJob, Failure> {
        let raw = if self.text {
            serde_json::value::to_raw_value(payload)
        } else {
            serde_json::from_str::<Box<RawValue>>(payload)
        };
        let raw = raw.map_err(|error| {
            Failure::usage(format!("`{}` is not JSON: {error}", cut(payload)))
                .hint("text stands in quotes, `'\"like this\"'`; `--text` takes it as it is")
        })?;
        let needs_fields = self.unique_by.is_some() || self.key_by.is_some();
        let value: Value = if needs_fields {
            serde_json::from_str(raw.get()).map_err(|error| Failure::usage(error.to_string()))?
        } else {
            Value::Null
        };
        let mut job = NewJob::raw(&self.queue, raw);
        job = job.priority(Priority::new(self.priority).unwrap_or_default());
        if let Some(delay) = self.delay {
            job = job.after(delay);
        }
        if let Some(time) = self.at {
            job = job.at(time);
        }
        let found = self.unique_by.as_deref().map(|by| field(&value, by)).transpose()?;
        if let Some(key) = self.unique.clone().or(found) {
            job = match self.unique_for {
                Some(window) => job.unique_for(key, window),
                None => job.unique(key),
            };
        }
        let found = self.key_by.as_deref().map(|by| field(&value, by)).transpose()?;
        if let Some(key) = self.key.clone().or(found) {
            job = job.key(key);
        }
        if let Some(attempts) = self.max_attempts {
            job = job.max_attempts(attempts);
        }
        if let Some(timeout) = self.timeout {
            job = job.timeout(timeout);
        }
        job.check()?;
        Ok(job)
    }
}

/// The beginning of a text, for a message.
fn cut(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A key that stands in the payload.
fn field(payload: &Value, by: &str) -> Result<String, Failure> {
    let found = if by.starts_with('/') { payload.pointer(by) } else { payload.get(by) };
    match found {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(number @ (Value::Number(_) | Value::Bool(_))) => Ok(number.to_string()),
        _ => Err(Failure::usage(format!("a payload has no text or number at `{by}`"))
            .hint("a field is named `to`, one deeper in it by a JSON pointer, `/user/id`")),
    }
}

fn print(pushed: Pushed, desk: &Desk) -> Result<(), Failure> {
    desk.printer.json(&json!({ "id": pushed.id(), "new": pushed.is_new() }))
}

/// Pushes what comes in, in batches of what there is: a slow pipe waits for nothing, a fast one costs little.
async fn from_stdin(args: &AddArgs, desk: &mut Desk) -> Result<Exit, Failure> {
    let mut lines = source::lines();
    let bar = Bar::counting("added", desk.printer);
    let (mut read, mut new, mut twins) = (0_u64, 0_u64, 0_u64);
    loop {
        let mut batch = Vec::new();
        let more = tokio::select! {
            count = lines.recv_many(&mut batch, source::BATCH) => count > 0,
            signal = desk.signals.ending() => return Err(interrupted(signal)),
        };
        if !more {
            break;
        }
        let (mut jobs, mut bad) = (Vec::new(), None);
        for line in batch {
            read += 1;
            match line.and_then(|line| args.job(&line)) {
                Ok(job) => jobs.push(job),
                Err(failure) => {
                    bad = Some(failure);
                    break;
                }
            }
        }
        let queue = desk.queue.clone();
        let pushed = desk.answer(queue.push_many(jobs)).await;
        for pushed in pushed.map_err(|failure| so_far(failure, new + twins))? {
            if pushed.is_new() {
                new += 1
            } else {
                twins += 1
            }
            if args.json {
                print(pushed, desk)?;
            }
        }
        bar.at(new + twins);
        if let Some(mut failure) = bad {
            failure.message = format!("line {read}: {}", failure.message);
            return Err(so_far(failure, new + twins));
        }
    }
    drop(bar);
    let others = if twins > 0 { format!(", {twins} were there already") } else { String::new() };
    desk.printer.say(&format!("{new} jobs added to `{}`{others}", args.queue));
    Ok(Exit::Done)
}

/// Code 2 says that nothing was changed, which is not so if something was pushed.
fn so_far(mut failure: Failure, pushed: u64) -> Failure {
    if pushed > 0 {
        failure.message = format!("{}; the {pushed} jobs before it were pushed", failure.message);
        if failure.exit == Exit::Usage {
            failure.exit = Exit::Other;
        }
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_payloads() {
        let payload = json!({ "to": "x", "user": { "id": 7 }, "list": [] });
        assert_eq!(field(&payload, "to").ok().as_deref(), Some("x"));
        assert_eq!(field(&payload, "/user/id").ok().as_deref(), Some("7"));
        for bad in ["list", "/user", "none", "/user/none"] {
            assert!(field(&payload, bad).is_err(), "{bad}");
        }
        assert!(field(&json!("text"), "to").is_err());
    }

    #[test]
    fn what_was_pushed_before_is_told_and_is_no_longer_nothing() {
        assert_eq!(so_far(Failure::usage("no"), 0).exit, Exit::Usage);
        let failure = so_far(Failure::usage("no"), 2);
        assert_eq!(failure.exit, Exit::Other);
        assert_eq!(failure.message, "no; the 2 jobs before it were pushed");
    }
}
