//! What silently breaks or slows locks in a file.

use std::path::Path;

use super::{config::Durability, file::beside};
use crate::store::{Finding, Severity};

/// Above this the log is not being copied back: somebody reads for ever, or housekeeping cannot keep up.
const LOG_LARGE_BYTES: u64 = 64 << 20;

/// Below this a burst of commits could fill the disk.
const FREE_LOW_BYTES: u64 = 64 << 20;

/// Looks at the file from outside.
pub(super) fn diagnose(path: &Path, durability: Durability) -> Vec<Finding> {
    let log_bytes = std::fs::metadata(beside(path, "-wal")).map_or(0, |meta| meta.len());
    let findings = [
        (durability == Durability::Normal).then(|| Finding {
            severity: Severity::Note,
            what: "`durability=normal`".into(),
            meaning:
                "a power cut may take back the last commits; it ends all holders with the machine"
                    .into(),
            advice: "if the clock may be wrong after a power cut, use `?durability=full`".into(),
        }),
        (log_bytes > LOG_LARGE_BYTES).then(|| Finding {
            severity: Severity::Warning,
            what: format!("the write-ahead log is {} MiB long", log_bytes >> 20),
            meaning: "it is not being copied back into the file, which slows opening it".into(),
            advice:
                "look for a program that reads this file without end, such as an open database tool"
                    .into(),
        }),
        free_bytes(path).filter(|free| *free < FREE_LOW_BYTES).map(|free| Finding {
            severity: Severity::Danger,
            what: format!("{} MiB are left on the disk", free >> 20),
            meaning: "when it is full no lease can be renewed, and all of them run out".into(),
            advice: "make room, or keep the file on another disk".into(),
        }),
    ];
    findings.into_iter().flatten().collect()
}

#[cfg(unix)]
fn free_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(not(unix))]
fn free_bytes(_path: &Path) -> Option<u64> {
    None
}
