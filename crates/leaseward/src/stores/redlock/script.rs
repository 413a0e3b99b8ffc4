//! The script that a node carries out, in one piece.

use std::sync::LazyLock;

use super::ballot::ALLOWANCE;
use crate::stores::redis::script::{PLACEHOLDER, Script};

/// How an answer begins.
pub(super) mod code {
    pub(in super::super) const GRANTED: i64 = 1;
    pub(in super::super) const LOW: i64 = 3;
    pub(in super::super) const BUSY: i64 = 4;
    pub(in super::super) const RENEWED: i64 = 5;
    pub(in super::super) const RELEASED: i64 = 6;
    pub(in super::super) const NOT_YOURS: i64 = 7;
    pub(in super::super) const GONE: i64 = 8;
    pub(in super::super) const DONE: i64 = 9;
    pub(in super::super) const FAILED: i64 = 10;
    /// Granted with the ballot that was proposed: the usual case, in as few words.
    pub(in super::super) const PLAIN: i64 = 11;
    /// Held under this token, for so long yet.
    pub(in super::super) const HELD: i64 = 12;
    /// Unchanged; a matter for the careful script.
    pub(in super::super) const ODD: i64 = 13;
    /// Of a whole call: nothing was unusual.
    pub(in super::super) const USUAL: i64 = 14;
}

/// Why a token holds nothing at a node.
pub(super) mod reason {
    pub(in super::super) const EXPIRED: i64 = 1;
    pub(in super::super) const NOT_OURS: i64 = 2;
    pub(in super::super) const BROKEN: i64 = 3;
    /// Somebody else had it since, and nobody has it now.
    pub(in super::super) const FREE: i64 = 4;
}

/// What stands for `@NAME` in the script.
fn constant(name: &str) -> String {
    let number = match name {
        "GRANTED" => code::GRANTED,
        "LOW" => code::LOW,
        "BUSY" => code::BUSY,
        "RENEWED" => code::RENEWED,
        "RELEASED" => code::RELEASED,
        "NOT_YOURS" => code::NOT_YOURS,
        "GONE" => code::GONE,
        "DONE" => code::DONE,
        "FAILED" => code::FAILED,
        "PLAIN" => code::PLAIN,
        "HELD" => code::HELD,
        "ODD" => code::ODD,
        "USUAL" => code::USUAL,
        "EXPIRED" => reason::EXPIRED,
        "NOT_OURS" => reason::NOT_OURS,
        "BROKEN" => reason::BROKEN,
        "FREE" => reason::FREE,
        "ALLOWANCE_MS" => return ALLOWANCE.as_millis().to_string(),
        "PLACEHOLDER" => return PLACEHOLDER.to_owned(),
        other => unreachable!("BUG: the script names a constant `{other}`"),
    };
    number.to_string()
}

/// The script for everything.
pub(super) static CAREFUL: LazyLock<Script> = LazyLock::new(|| {
    const SOURCE: &str = concat!(include_str!("lua/room.lua"), include_str!("lua/operations.lua"));
    Script::compile(SOURCE, constant)
});

/// The script for what is usual.
pub(super) static PLAIN: LazyLock<Script> =
    LazyLock::new(|| Script::compile(include_str!("lua/plain.lua"), constant));
