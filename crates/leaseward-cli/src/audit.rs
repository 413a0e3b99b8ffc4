//! The audit file: one line of JSON for each time somebody interfered with a lock.

use std::{
    env,
    fs::{File, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use leaseward::{Name, store::Broken};
use serde_json::json;

use crate::{failure::Failure, known, units};

/// An audit file that was opened before the deed, so that what cannot be written down is not done.
#[derive(Debug)]
pub(crate) struct Audit {
    file: File,
    path: PathBuf,
}

impl Audit {
    /// Opens the file for appending, and makes it if it is not there.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file = file.map_err(|error| {
            Failure::usage(format!("cannot write the audit file `{}`: {error}", path.display()))
                .hint("nothing was broken; the file is named by `audit` or `LEASEWARD_AUDIT`")
        })?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Writes down a break.
    pub(crate) fn broken(
        &mut self,
        name: &Name,
        now: bool,
        store: &str,
        broken: &Broken,
    ) -> Result<(), Failure> {
        let holders: Vec<_> = broken
            .holders
            .iter()
            .map(|held| {
                json!({
                    "who": *held.who,
                    "fence": known::fence(held),
                    "token": held.token_prefix,
                    "held_ms": known::held_for(held).map(units::millis),
                })
            })
            .collect();
        let line = json!({
            "at": humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
            "action": "break",
            "name": name.as_str(),
            "now": now,
            "store": store,
            "by": by(),
            "pid": std::process::id(),
            "holders": holders,
        });
        writeln!(self.file, "{line}").map_err(|error| {
            Failure::system(&format!("cannot write to `{}`", self.path.display()), &error)
        })
    }
}

/// Who does this: the user behind sudo if there is one.
fn by() -> String {
    let named = ["SUDO_USER", "USER", "LOGNAME"];
    let user = named.iter().find_map(|variable| env::var(variable).ok());
    let uid = rustix::process::getuid().as_raw();
    match user {
        Some(user) => format!("{user} (uid {uid})"),
        None => format!("uid {uid}"),
    }
}
