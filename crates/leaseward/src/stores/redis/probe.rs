//! What a server is and allows, learnt in the one round trip that follows connecting.

use std::collections::HashMap;

use redis::{Cmd, Value};

/// What is asked of a server right after connecting.
pub(super) fn questions() -> Vec<Cmd> {
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("append*");
    vec![redis::cmd("ROLE"), section("server"), section("replication"), section("cluster"), config]
}

fn section(name: &str) -> Cmd {
    let mut info = redis::cmd("INFO");
    info.arg(name);
    info
}

/// How a server keeps what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persistence {
    /// A write is on disk before it is answered.
    Always,
    /// A crash may lose the last writes, or all.
    Lossy,
    /// It does not say.
    Unknown,
}

/// What is known about a server.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    pub(super) version: String,
    pub(super) run_id: String,
    pub(super) is_primary: bool,
    pub(super) replicas: u32,
    pub(super) is_cluster: bool,
    pub(super) persistence: Persistence,
}

impl Probe {
    /// Reads the answers to [`questions`]; what a server refuses to say is unknown.
    pub(super) fn read(answers: &[Value]) -> Self {
        let [role, server, replication, cluster, config] = answers else {
            unreachable!("BUG: a server answers every question");
        };
        let server = fields(server);
        let replication = fields(replication);
        let is_primary = match first_text(role) {
            Some(role) => role == "master",
            // A server that forbids ROLE may still say it here.
            None => replication.get("role").is_none_or(|role| role == "master"),
        };
        Self {
            version: server.get("redis_version").cloned().unwrap_or_default(),
            run_id: server.get("run_id").cloned().unwrap_or_default(),
            is_primary,
            replicas: replication.get("connected_slaves").and_then(|n| n.parse().ok()).unwrap_or(0),
            is_cluster: fields(cluster).get("cluster_enabled").is_some_and(|on| on == "1"),
            persistence: persistence(config),
        }
    }
}

fn persistence(config: &Value) -> Persistence {
    let settings = pairs(config);
    let is = |key: &str, value: &str| settings.get(key).map(|found| found == value);
    match (is("appendonly", "yes"), is("appendfsync", "always")) {
        (Some(true), Some(true)) => Persistence::Always,
        (Some(_), Some(_)) => Persistence::Lossy,
        _ => Persistence::Unknown,
    }
}

/// The lines `key:value` of an INFO section.
pub(super) fn fields(info: &Value) -> HashMap<String, String> {
    let text = text(info).unwrap_or_default();
    let line = |line: &str| line.split_once(':').map(|(k, v)| (k.to_owned(), v.trim().to_owned()));
    text.lines().filter_map(line).collect()
}

/// The settings that CONFIG GET answers.
pub(super) fn pairs(config: &Value) -> HashMap<String, String> {
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

fn first_text(value: &Value) -> Option<String> {
    match value {
        Value::Array(values) => values.first().and_then(text),
        _ => None,
    }
}

pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        Value::VerbatimString { text, .. } => Some(text.clone()),
        Value::Okay => Some("OK".into()),
        _ => None,
    }
}
