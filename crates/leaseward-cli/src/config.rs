//! Settings: command line, then environment, then one configuration file, then defaults.
//!
//! The first file that exists is the only one read: `--config`, `$XDG_CONFIG_HOME/leaseward/config.toml`,
//! `/etc/leaseward.toml`. Files are not merged, so that what is in force can be seen in one place.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use leaseward::{AuditLog, TTL_DEFAULT};
use serde::Deserialize;

use crate::{address::Address, args::Global, failure::Failure, printer::Printer, units};

/// The file that makes settings machine-wide.
const MACHINE_WIDE: &str = "/etc/leaseward.toml";

/// A password for the store, so that none stands in its URL.
pub(crate) const PASSWORD_VARIABLE: &str = "LEASEWARD_STORE_PASSWORD";
/// What the options of the same name are where they are not given.
const TTL_VARIABLE: &str = "LEASEWARD_TTL";
const WAIT_VARIABLE: &str = "LEASEWARD_WAIT";
const GRACE_VARIABLE: &str = "LEASEWARD_GRACE";

/// What all variables of the tool begin with.
const PREFIX: &str = "LEASEWARD_";

/// Those it reads.
const SETTINGS: [&str; 7] = [
    "LEASEWARD_STORE",
    "LEASEWARD_CONFIG",
    PASSWORD_VARIABLE,
    AUDIT_VARIABLE,
    TTL_VARIABLE,
    WAIT_VARIABLE,
    GRACE_VARIABLE,
];

/// Those it sets for commands, which may run the tool again.
const FOR_COMMANDS: [&str; 6] = [
    "LEASEWARD_NAME",
    "LEASEWARD_FENCE",
    "LEASEWARD_FENCES",
    "LEASEWARD_JOB_ID",
    "LEASEWARD_ATTEMPT",
    "LEASEWARD_QUEUE",
];

/// Where it is written down what becomes of leases and jobs.
const AUDIT_VARIABLE: &str = "LEASEWARD_AUDIT";

/// What is in force.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) store: Address,
    pub(crate) ttl: Duration,
    /// How long to wait where neither `--wait` nor `--no-wait` is given; `None` for without limit.
    pub(crate) wait: Option<Duration>,
    /// The grace where `--grace` is not given; `None` for a share of the TTL.
    pub(crate) grace: Option<Duration>,
    audit: Option<PathBuf>,
}

/// The file as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    store: Option<String>,
    ttl: Option<String>,
    store_password_file: Option<PathBuf>,
    audit: Option<PathBuf>,
}

impl Settings {
    /// Puts the layers on top of each other.
    pub(crate) fn load(global: &Global) -> Result<Self, Failure> {
        let file = match found(global.config.as_deref())? {
            Some((path, text)) => parsed(&path, &text)?,
            None => File::default(),
        };
        let password = match set(PASSWORD_VARIABLE) {
            Some(password) => Some(password),
            None => file.store_password_file.as_deref().map(read_password).transpose()?,
        };
        let store = match global.store.as_deref().or(file.store.as_deref()) {
            Some(url) => named_store(url, password.as_deref())?,
            None => default_store()?,
        };
        let in_file = file.ttl.map(|text| read("ttl", &text, units::ttl)).transpose()?;
        let ttl = variable(TTL_VARIABLE, units::ttl)?.or(in_file).unwrap_or(TTL_DEFAULT);
        let wait = variable(WAIT_VARIABLE, units::duration)?;
        let grace = variable(GRACE_VARIABLE, units::duration)?;
        let audit = set(AUDIT_VARIABLE).map(PathBuf::from).or(file.audit);
        Ok(Self { store, ttl, wait, grace, audit })
    }

    /// Opens the audit file, if there is to be one.
    pub(crate) fn audit(&self) -> Result<Option<AuditLog>, Failure> {
        let Some(path) = &self.audit else { return Ok(None) };
        let log = AuditLog::open(path).map_err(|error| {
            Failure::usage(error.message()).hint(
                "nothing was done; the file is named by `audit` or `LEASEWARD_AUDIT`, and this user must be able to write it",
            )
        })?;
        Ok(Some(log))
    }
}

/// Variables that begin as the tool's own do and mean nothing to it, such as a misspelt one.
fn unknown_variables() -> Vec<String> {
    let is_known = |name: &str| SETTINGS.contains(&name) || FOR_COMMANDS.contains(&name);
    let mut unknown: Vec<String> = env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| name.starts_with(PREFIX) && !is_known(name))
        .collect();
    unknown.sort_unstable();
    unknown
}

/// What to say about those.
pub(crate) fn warn_of_unknown_variables(printer: Printer) {
    let unknown = unknown_variables();
    if !unknown.is_empty() {
        printer.warning(&format!("`{}` means nothing to the tool", unknown.join("`, `")));
        printer.hint(&format!("it reads {}", SETTINGS.join(", ")));
    }
}

/// A length of time from the environment. An empty one is no answer: a script forgot to set it.
fn variable(
    name: &str,
    parse: impl Fn(&str) -> Result<Duration, String>,
) -> Result<Option<Duration>, Failure> {
    match env::var(name) {
        Ok(text) => read(name, &text, parse).map(Some),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(error) => Err(Failure::usage(format!("`{name}`: {error}"))),
    }
}

fn read(
    key: &str,
    text: &str,
    parse: impl Fn(&str) -> Result<Duration, String>,
) -> Result<Duration, Failure> {
    parse(text).map_err(|error| split(&format!("`{key}`: {error}")))
}

/// A variable, if it is set to something.
fn set(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|value| !value.is_empty())
}

/// A message whose second line is its hint.
fn split(text: &str) -> Failure {
    match text.split_once("\nhint: ") {
        Some((message, hint)) => Failure::usage(message).hint(hint),
        None => Failure::usage(text),
    }
}

fn found(chosen: Option<&Path>) -> Result<Option<(PathBuf, String)>, Failure> {
    if let Some(path) = chosen {
        let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
        return Ok(Some((path.to_owned(), text)));
    }
    let own = set("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".config")))
        .map(|folder| folder.join("leaseward/config.toml"));
    for path in own.into_iter().chain([PathBuf::from(MACHINE_WIDE)]) {
        match fs::read_to_string(&path) {
            Ok(text) => return Ok(Some((path, text))),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) => {}
            Err(error) => return Err(unreadable(&path, &error)),
        }
    }
    Ok(None)
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot read the configuration `{}`: {error}", path.display()))
        .hint("name another with `--config FILE`")
}

/// Only the message and the line are shown: the line itself may hold a password.
fn parsed(path: &Path, text: &str) -> Result<File, Failure> {
    toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .and_then(|span| text.get(..span.start))
            .map_or(1, |before| before.matches('\n').count() + 1);
        let what = error.message().lines().next().unwrap_or_default().to_owned();
        Failure::usage(format!("`{}`, line {line}: {what}", path.display()))
            .hint("keys are `store`, `ttl`, `store_password_file` and `audit`")
    })
}

fn read_password(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("cannot read the password file `{}`: {error}", path.display()))
            .hint("it is named by `store_password_file` in the configuration")
    })?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// The store that was named. A name that is empty is a variable that was not set: taken for the default, locks would be
/// kept on each machine apart.
fn named_store(url: &str, password: Option<&str>) -> Result<Address, Failure> {
    if url.trim().is_empty() {
        return Err(Failure::usage("the store's URL is empty").hint(
            "is a variable in `--store \"$URL\"` not set? unset LEASEWARD_STORE and leave `--store` out for this user's own file",
        ));
    }
    Ok(Address::new(url, password)?)
}

/// The embedded store of this user, under the state folder.
#[cfg(feature = "sqlite")]
fn default_store() -> Result<Address, Failure> {
    let path = leaseward::stores::sqlite::default_path()?;
    Ok(Address::embedded(&path))
}

#[cfg(not(feature = "sqlite"))]
fn default_store() -> Result<Address, Failure> {
    Err(Failure::usage("no store was named, and this build has no embedded one")
        .hint("name one with `--store URL` or `LEASEWARD_STORE`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_line_is_named_but_not_shown() {
        let text = "ttl = \"30s\"\nstore = [\"redis://:hunter2@host\"]\n";
        let failure = parsed(Path::new("c.toml"), text).expect_err("a list is no URL");
        assert!(failure.message.contains("line 2"), "{}", failure.message);
        assert!(!failure.message.contains("hunter2"), "{}", failure.message);
    }

    #[test]
    fn unknown_keys_are_refused() {
        let failure = parsed(Path::new("c.toml"), "tll = \"30s\"").expect_err("misspelt");
        assert!(failure.message.contains("tll"), "{}", failure.message);
    }
}
