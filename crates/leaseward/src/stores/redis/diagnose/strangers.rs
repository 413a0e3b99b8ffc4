//! Keys in the place of locks that are none, or never end.

use redis::Value;

use super::{
    super::{client::Client, inspect, node::Link, probe},
    finding,
};
use crate::{
    Error,
    store::{Finding, Severity},
};

/// How many keys of the database are gone through at most: a second's work for a server, spread over many calls.
const LOOKED_AT_MAX: usize = 100_000;

/// How many names are told.
const NAMED_MAX: usize = 5;

/// What was seen of one sort.
#[derive(Default)]
struct Seen {
    many: usize,
    names: Vec<String>,
}

impl Seen {
    fn add(&mut self, name: &[u8]) {
        self.many += 1;
        if self.names.len() < NAMED_MAX {
            self.names.push(format!("`{}`", shown(name)));
        }
    }

    /// The number, what they are, and the first names.
    fn told(&self, one: &str, several: &str) -> String {
        let Self { many, names } = self;
        let (what, rest) = (if *many == 1 { one } else { several }, many - names.len());
        let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        format!("{many} {what}: {}{more}", names.join(", "))
    }
}

impl Client {
    pub(super) async fn strangers(&self, link: &Link) -> Result<Vec<Finding>, Error> {
        if self.keys.prefix().is_empty() {
            return Ok(vec![finding(
                Severity::Note,
                "the prefix is empty, so keys were not gone through",
                "locks of other libraries cannot be told from data, and `leaseward ls` shows only ours",
                "nothing, if other libraries need the bare names; else give locks a prefix",
            )]);
        }
        let pattern = format!("{}*", inspect::glob(self.keys.prefix()));
        let (mut endless, mut hashes, mut others) =
            (Seen::default(), Seen::default(), Seen::default());
        let mut scan = inspect::Scan::new(&pattern);
        let mut looked_at = 0;
        while let Some(keys) = scan.next(link).await? {
            looked_at += inspect::SCAN_COUNT;
            for (key, kind, left) in self.kinds(link, keys).await? {
                // What is said to be held is told as `break` and `show` want it: by name.
                let name = key.strip_prefix(self.keys.prefix().as_bytes()).unwrap_or(&key);
                match kind.as_str() {
                    "string" if left == -1 => endless.add(name),
                    "string" | "none" => {}
                    "hash" => hashes.add(name),
                    _ => others.add(&key),
                }
            }
            if looked_at >= LOOKED_AT_MAX {
                break;
            }
        }
        let mut findings = judge(&endless, &hashes, &others);
        if !scan.is_over() {
            findings.push(finding(
                Severity::Note,
                format!("only about {LOOKED_AT_MAX} keys of the database were gone through"),
                "there may be more keys in the place of locks that never end, or are none",
                "nothing, if none is missing; a database of their own makes locks easier to look after",
            ));
        }
        Ok(findings)
    }

    /// Type and time left of each key.
    async fn kinds(
        &self,
        link: &Link,
        keys: Vec<Vec<u8>>,
    ) -> Result<Vec<(Vec<u8>, String, i64)>, Error> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut questions = redis::pipe();
        for key in &keys {
            questions.cmd("TYPE").arg(key);
            questions.cmd("PTTL").arg(key);
        }
        let answers = self.ask(link, &questions).await?;
        let seen =
            keys.into_iter().zip(answers.chunks_exact(2)).filter_map(|(key, answers)| {
                match (probe::text(&answers[0]), &answers[1]) {
                    (Some(kind), Value::Int(left)) => Some((key, kind, *left)),
                    _ => None,
                }
            });
        Ok(seen.collect())
    }
}

/// A key or name on one line, and harmless to a terminal: others may have put anything there.
fn shown(bytes: &[u8]) -> String {
    let mut text = String::new();
    for c in String::from_utf8_lossy(bytes).chars() {
        if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
    }
    text
}

fn judge(endless: &Seen, hashes: &Seen, others: &Seen) -> Vec<Finding> {
    let findings = [
        (endless.many > 0).then(|| {
            finding(
                Severity::Warning,
                endless.told("name is held without expiry", "names are held without expiry"),
                "if its holder crashed, such a name stays held for ever (redis-py's `Lock` without `timeout` does this)",
                "give those locks a time-out; `leaseward break NAME --now` frees one whose holder is gone",
            )
        }),
        (hashes.many > 0).then(|| {
            finding(
                Severity::Warning,
                hashes.told("name is held by a hash", "names are held by hashes"),
                "Redisson keeps its locks so: it and we exclude each other, but it gets an error instead of waiting",
                "give it names, or us a prefix, of our own: `?prefix=…`",
            )
        }),
        (others.many > 0).then(|| {
            finding(
                Severity::Warning,
                others.told("key is in the place of a lock and is none", "keys are in the place of locks and are none"),
                "these names count as held for as long as the keys are there",
                "keep other data under other names, or give locks a prefix of their own: `?prefix=…`",
            )
        }),
    ];
    findings.into_iter().flatten().collect()
}
