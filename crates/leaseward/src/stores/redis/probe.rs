//! What a server is and allows, learnt in the one round trip that follows connecting.
//!
//! A managed server may forbid any of the questions; what it does not say is unknown, never assumed.

use std::{
    collections::HashMap,
    fmt,
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant},
};

use redis::{Cmd, Value};

use super::config::Address;
use crate::{Error, ErrorKind};

/// The oldest server whose scripts, expiries and pushes are as this store needs them.
const VERSION_MIN: (u32, u32) = (6, 2);

/// Commands that servers may lack, by version, by product or because somebody took them away. WAIT is used by strong
/// mode; the others are reported only: no server this store is tested on has the newer ones.
pub(in crate::stores) const MAY_LACK: [&str; 6] =
    ["wait", "function|load", "spublish", "waitaof", "delex", "delifeq"];

/// What is asked of a server right after connecting.
pub(in crate::stores) fn questions() -> Vec<Cmd> {
    let ask = |words: &[&str]| {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command
    };
    vec![
        redis::cmd("ROLE"),
        ask(&["INFO", "server"]),
        // One pattern each: servers before 7.0 take no more.
        ask(&["CONFIG", "GET", "*append*"]),
        ask(&["CONFIG", "GET", "save"]),
        ask(&[&["COMMAND", "INFO"], &MAY_LACK[..]].concat()),
    ]
}

/// What a server is in its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stores) enum Role {
    Primary,
    Replica,
    Sentinel,
    /// It does not say: a replica is then found out by its refusal to write.
    Unknown,
}

/// How a server keeps what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stores) enum Persistence {
    /// A write is on disk before it is answered.
    Always,
    /// A write is handed to the system before it is answered, and reaches the disk some time later.
    Appended,
    /// Everything is written to disk now and then.
    Snapshots,
    /// Nothing is kept.
    Nothing,
    /// It does not say.
    Unknown,
}

/// What program it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::stores) struct Version {
    product: &'static str,
    /// As it is written; empty if it is not said.
    number: String,
    /// Which Redis it behaves like.
    like: Option<(u32, u32)>,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number.as_str() {
            "" => f.write_str("a server that does not say its version"),
            number => write!(f, "{} {number}", self.product),
        }
    }
}

impl Version {
    fn read(server: &HashMap<String, String>) -> Self {
        let redis = server.get("redis_version").cloned().unwrap_or_default();
        let like = major_and_minor(&redis);
        match server.get("valkey_version") {
            Some(valkey) => Self { product: "Valkey", number: valkey.clone(), like },
            None => Self { product: "Redis", number: redis, like },
        }
    }

    /// Whether it is known to be older than this store needs.
    pub(in crate::stores) fn is_too_old(&self) -> bool {
        self.like.is_some_and(|like| like < VERSION_MIN)
    }
}

fn major_and_minor(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// What is known about a server.
#[derive(Debug)]
pub(in crate::stores) struct Probe {
    pub(in crate::stores) version: Version,
    pub(in crate::stores) run_id: String,
    /// When it was asked, and what it said then: how long it had been running, in whole seconds, and its clock.
    pub(in crate::stores) asked: Instant,
    pub(in crate::stores) uptime: Option<Duration>,
    pub(in crate::stores) clock_us: Option<u64>,
    pub(in crate::stores) role: Role,
    /// How many replicas are connected; below zero if it does not say. The one thing that changes while all is well.
    replicas: AtomicI64,
    pub(in crate::stores) is_cluster: Option<bool>,
    pub(in crate::stores) persistence: Persistence,
    /// For each of [`MAY_LACK`], whether it is there.
    commands: Option<Vec<bool>>,
}

impl Probe {
    /// Reads the answers to [`questions`].
    pub(in crate::stores) fn read(answers: &[Value]) -> Self {
        let [role, server, append, save, commands] = answers else {
            unreachable!("BUG: a server answers every question");
        };
        let server = fields(server);
        let mut settings = pairs(append);
        settings.extend(pairs(save));
        let number = |key: &str| server.get(key).and_then(|text| text.parse().ok());
        Self {
            version: Version::read(&server),
            run_id: server.get("run_id").cloned().unwrap_or_default(),
            asked: Instant::now(),
            uptime: number("uptime_in_seconds").map(Duration::from_secs),
            clock_us: number("server_time_usec"),
            role: role_of(role),
            replicas: AtomicI64::new(replicas_of(role)),
            is_cluster: server.get("redis_mode").map(|mode| mode == "cluster"),
            persistence: persistence(&settings),
            commands: present(commands),
        }
    }

    /// How many replicas were connected when it was last asked.
    pub(in crate::stores) fn replicas(&self) -> Option<u32> {
        u32::try_from(self.replicas.load(Ordering::Relaxed)).ok()
    }

    /// Takes a later answer to ROLE.
    pub(in crate::stores) fn hear_role(&self, role: &Value) {
        self.replicas.store(replicas_of(role), Ordering::Relaxed);
    }

    /// Whether both are known to come from the same run of the same server.
    pub(in crate::stores) fn is_same_run(&self, other: &Self) -> bool {
        !self.run_id.is_empty() && self.run_id == other.run_id
    }

    /// Whether leases can be kept on such a server at all.
    pub(in crate::stores) fn check(&self, at: &Address) -> Result<(), Error> {
        let (major, minor) = VERSION_MIN;
        if self.version.is_too_old() {
            let message = format!("redis at {at} is too old: it is {}", self.version);
            return Err(Error::new(ErrorKind::Unsupported, message)
                .hint(format!("Redis {major}.{minor} or newer is needed, or Valkey")));
        }
        match self.role {
            Role::Primary | Role::Unknown => Ok(()),
            Role::Replica => Err(Error::new(
                ErrorKind::Unavailable,
                format!("redis at {at} is a replica and takes no writes"),
            )
            .hint("connect to its primary, or through Sentinel: `redis+sentinel://…/NAME`")),
            Role::Sentinel => Err(Error::new(
                ErrorKind::Refused,
                format!("what listens at {at} is a Sentinel, which keeps no locks itself"),
            )
            .hint(format!(
                "it is asked for the primary with `redis+sentinel://{at}/NAME`; \
                 `redis-cli -p PORT sentinel masters` lists the names it knows"
            ))),
        }
    }

    /// Whether it has one of the commands of [`MAY_LACK`].
    pub(in crate::stores) fn has(&self, command: &str) -> Option<bool> {
        let at = MAY_LACK.iter().position(|name| *name == command)?;
        self.commands.as_ref()?.get(at).copied()
    }
}

fn role_of(role: &Value) -> Role {
    let Value::Array(parts) = role else { return Role::Unknown };
    match parts.first().and_then(text).as_deref() {
        Some("master") => Role::Primary,
        Some("slave") => Role::Replica,
        Some("sentinel") => Role::Sentinel,
        _ => Role::Unknown,
    }
}

/// A primary says after its role and its offset who follows it.
fn replicas_of(role: &Value) -> i64 {
    let Value::Array(parts) = role else { return -1 };
    match parts.as_slice() {
        [_, _, Value::Array(replicas)] => i64::try_from(replicas.len()).unwrap_or(-1),
        _ => -1,
    }
}

fn persistence(settings: &HashMap<String, String>) -> Persistence {
    let get = |key: &str| settings.get(key).map(String::as_str);
    match (get("appendonly"), get("appendfsync"), get("save")) {
        (Some("yes"), Some("always"), _) => match get("no-appendfsync-on-rewrite") {
            Some("no") => Persistence::Always,
            // While the file is rewritten, `always` is not what it says.
            _ => Persistence::Appended,
        },
        (Some("yes"), Some(_), _) => Persistence::Appended,
        (Some("no"), _, Some("")) => Persistence::Nothing,
        (Some("no"), _, Some(_)) => Persistence::Snapshots,
        _ => Persistence::Unknown,
    }
}

/// COMMAND INFO answers nothing for a command that is not there.
fn present(commands: &Value) -> Option<Vec<bool>> {
    match commands {
        Value::Array(answers) => {
            Some(answers.iter().map(|answer| matches!(answer, Value::Array(_))).collect())
        }
        _ => None,
    }
}

/// The lines `key:value` of an INFO section.
pub(in crate::stores) fn fields(info: &Value) -> HashMap<String, String> {
    let text = text(info).unwrap_or_default();
    let line = |line: &str| line.split_once(':').map(|(k, v)| (k.to_owned(), v.trim().to_owned()));
    text.lines().filter_map(line).collect()
}

/// The settings that CONFIG GET answers.
pub(in crate::stores) fn pairs(config: &Value) -> HashMap<String, String> {
    match config {
        Value::Map(pairs) => {
            pairs.iter().filter_map(|(key, value)| Some((text(key)?, text(value)?))).collect()
        }
        Value::Array(flat) => flat
            .chunks_exact(2)
            .filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?)))
            .collect(),
        _ => HashMap::new(),
    }
}

pub(in crate::stores) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        Value::VerbatimString { text, .. } => Some(text.clone()),
        Value::Okay => Some("OK".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn list(texts: &[&str]) -> Value {
        Value::Array(texts.iter().copied().map(bulk).collect())
    }

    #[test]
    fn tells_products_and_versions_apart() {
        let table = [
            ("redis_version:7.0.15\r\n", "Redis 7.0.15", false),
            ("redis_version:6.2.0\r\n", "Redis 6.2.0", false),
            ("redis_version:6.0.16\r\n", "Redis 6.0.16", true),
            (
                "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\n",
                "Valkey 8.1.0",
                false,
            ),
            ("run_id:a\r\n", "a server that does not say its version", false),
            ("redis_version:unstable\r\n", "Redis unstable", false),
        ];
        for (info, shown, is_too_old) in table {
            let version = Version::read(&fields(&bulk(info)));
            assert_eq!((version.to_string().as_str(), version.is_too_old()), (shown, is_too_old));
        }
    }

    #[test]
    fn reads_how_data_is_kept() {
        let of = |append: &[&str], save: &[&str]| {
            let mut settings = pairs(&list(append));
            settings.extend(pairs(&list(save)));
            persistence(&settings)
        };
        let always = ["appendonly", "yes", "appendfsync", "always"];
        let strict = [&always[..], &["no-appendfsync-on-rewrite", "no"]].concat();
        assert_eq!(of(&strict, &[]), Persistence::Always);
        let lax = [&always[..], &["no-appendfsync-on-rewrite", "yes"]].concat();
        assert_eq!(of(&lax, &[]), Persistence::Appended);
        let second = ["appendonly", "yes", "appendfsync", "everysec"];
        assert_eq!(of(&second, &["save", ""]), Persistence::Appended);
        let off = ["appendonly", "no", "appendfsync", "always"];
        assert_eq!(of(&off, &["save", "3600 1"]), Persistence::Snapshots);
        assert_eq!(of(&off, &["save", ""]), Persistence::Nothing);
        assert_eq!(of(&[], &[]), Persistence::Unknown);
    }

    #[test]
    fn a_server_that_says_nothing_is_unknown() {
        let refusals: Vec<_> = questions().iter().map(|_| Value::Nil).collect();
        let probe = Probe::read(&refusals);
        assert_eq!((probe.role, probe.persistence), (Role::Unknown, Persistence::Unknown));
        assert_eq!((probe.replicas(), probe.is_cluster, probe.has("wait")), (None, None, None));
        assert!(!probe.version.is_too_old());
    }

    #[test]
    fn reads_role_and_commands() {
        let followers = Value::Array(vec![list(&["10.0.0.1", "6379", "12"])]);
        let role = Value::Array(vec![bulk("master"), Value::Int(12), followers]);
        assert_eq!((role_of(&role), replicas_of(&role)), (Role::Primary, 1));
        let replica = Value::Array(vec![bulk("slave"), bulk("h"), Value::Int(1)]);
        assert_eq!((role_of(&replica), replicas_of(&replica)), (Role::Replica, -1));
        let there = list(&["wait"]);
        let mut answers = vec![Value::Nil; MAY_LACK.len()];
        answers[0] = there;
        assert_eq!(
            present(&Value::Array(answers)),
            Some(vec![true, false, false, false, false, false])
        );
    }
}
