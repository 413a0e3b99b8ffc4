//! The scripts that carry out batches: a small one for what is usual, and one that does everything, in one piece.

use std::sync::LazyLock;

use crate::store::timing::HANDED_MAX;

/// The script and the hash by which a server knows it.
#[derive(Debug)]
pub(in crate::stores) struct Script {
    pub(in crate::stores) text: String,
    pub(in crate::stores) hash: String,
}

/// How an answer begins.
pub(super) mod code {
    pub(in super::super) const GRANTED: i64 = 1;
    pub(in super::super) const QUEUED: i64 = 3;
    pub(in super::super) const BUSY: i64 = 4;
    pub(in super::super) const RENEWED: i64 = 5;
    pub(in super::super) const RELEASED: i64 = 6;
    pub(in super::super) const NOT_YOURS: i64 = 7;
    pub(in super::super) const GONE: i64 = 8;
    pub(in super::super) const CAPACITY: i64 = 9;
    pub(in super::super) const FAILED: i64 = 10;
    pub(in super::super) const DONE: i64 = 11;
    /// Granted, one fence, nobody waits: the usual case, in as few words.
    pub(in super::super) const PLAIN: i64 = 12;
    /// Not for the small script: the careful one is to do it.
    pub(in super::super) const ODD: i64 = 13;
    /// Asks that stand one behind the other were granted, with fences that do.
    pub(in super::super) const RUN: i64 = 14;
}

/// Why a lease is no longer its owner's.
pub(super) mod reason {
    pub(in super::super) const EXPIRED: i64 = 1;
    pub(in super::super) const NOT_OURS: i64 = 2;
    pub(in super::super) const BROKEN: i64 = 3;
}

/// What the lock key holds while readers or permits are out.
pub(in crate::stores) const PLACEHOLDER: &str = "'leaseward:held-by-several'";

/// Two letters, from `@` on, say which of a run of asks a lease was given to: so many letters are in use. Their square is
/// more than a run is long.
pub(super) const LETTERS: u64 = 63;

/// What stands for `@NAME` in the script.
fn constant(name: &str) -> String {
    let handed_ms = HANDED_MAX.as_millis();
    match name {
        "GRANTED" => code::GRANTED.to_string(),
        "QUEUED" => code::QUEUED.to_string(),
        "BUSY" => code::BUSY.to_string(),
        "RENEWED" => code::RENEWED.to_string(),
        "RELEASED" => code::RELEASED.to_string(),
        "NOT_YOURS" => code::NOT_YOURS.to_string(),
        "GONE" => code::GONE.to_string(),
        "CAPACITY" => code::CAPACITY.to_string(),
        "FAILED" => code::FAILED.to_string(),
        "DONE" => code::DONE.to_string(),
        "PLAIN" => code::PLAIN.to_string(),
        "ODD" => code::ODD.to_string(),
        "RUN" => code::RUN.to_string(),
        "EXPIRED" => reason::EXPIRED.to_string(),
        "NOT_OURS" => reason::NOT_OURS.to_string(),
        "BROKEN" => reason::BROKEN.to_string(),
        "PLACEHOLDER" => PLACEHOLDER.to_owned(),
        // A pattern: what else begins with digits and a colon is none of ours.
        "TOKEN" => "%x".repeat(32) + ":[^\\n]*",
        "LETTERS" => LETTERS.to_string(),
        // What has more is no fence: microseconds have as many until the year 2286.
        "FENCE_DIGITS" => "16".to_owned(),
        // A place lasts min(ttl, this) after its last ask, and so does a lease handed over until its first renewal.
        "HANDED_MAX_MS" => handed_ms.to_string(),
        // How long the queue's keys last once nobody keeps them. Whoever comes to an empty queue, asks again, leaves or is
        // dropped keeps them, and so does who is served, if a window of the clock has begun since its last ask; other joins
        // and hand-overs need not. That is enough: take who is first when a window begins. Until it is gone or asks again
        // takes no longer than a place lasts; should it die instead, whoever comes drops it, and who came before asks again
        // before its own place ends. So while anybody lives in it, the queue is kept within two windows of the beginning of
        // each, which is every three at least.
        "QUEUE_MS" => (4 * handed_ms).to_string(),
        "WINDOW_US" => (1_000 * handed_ms).to_string(),
        other => unreachable!("BUG: the script names a constant `{other}`"),
    }
}

/// The script for what is usual.
pub(super) static PLAIN: LazyLock<Script> =
    LazyLock::new(|| Script::compile(include_str!("lua/plain.lua"), constant));

/// The script that does everything.
pub(super) static CAREFUL: LazyLock<Script> = LazyLock::new(|| {
    const SOURCE: &str = concat!(
        include_str!("lua/head.lua"),
        include_str!("lua/records.lua"),
        include_str!("lua/room.lua"),
        include_str!("lua/slow.lua"),
        include_str!("lua/operations.lua"),
        include_str!("lua/tail.lua"),
    );
    Script::compile(SOURCE, constant)
});

impl Script {
    /// Puts constants in and leaves comments and indentation out: every new connection sends it.
    pub(in crate::stores) fn compile(source: &str, constant: impl Fn(&str) -> String) -> Self {
        let lines = source.lines().map(str::trim);
        let mut text = String::with_capacity(source.len());
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with("--")) {
            let mut parts = line.split('@');
            text.push_str(parts.next().unwrap_or_default());
            for part in parts {
                let end = part
                    .find(|c: char| !(c.is_ascii_uppercase() || c == '_'))
                    .unwrap_or(part.len());
                text.push_str(&constant(&part[..end]));
                text.push_str(&part[end..]);
            }
            text.push('\n');
        }
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}
