//! What in the servers' setting is about to break locks, or makes them slow.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    client::Client,
    config::Host,
    wire::{Body, Request},
};
use crate::{
    Error,
    lease::TTL_DEFAULT,
    store::{Finding, Guarantee, Level, Reach, Severity},
};

/// What one server says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    version: Option<String>,
    mode: Option<String>,
}

/// What it promises: everything is decided by a majority and on disk before it is answered.
pub(super) fn guarantee() -> Guarantee {
    Guarantee {
        exclusion: Level::Holds,
        fences: Level::Holds,
        reach: Reach::Network,
        breaks_when: vec![
            "the servers' disks lose what they confirmed (`forceSync=no` and a power cut)".into(),
            "a majority of the servers is rebuilt empty while a holder is at work".into(),
        ],
    }
}

impl Client {
    pub(super) async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        let session = self.any_session().await?;
        let mut said = Vec::new();
        for host in &self.ground.config.hosts {
            said.push((host.to_string(), srvr(host, self.ground.config.timeout).await));
        }
        let mut findings = servers(&said);
        let root = self.ground.config.root.clone();
        let path = if root.is_empty() { "/".to_owned() } else { root };
        let acl = session.ask(Request::GetAcl { path: path.clone() }).await;
        if let Ok(Body::Acl { is_open: true }) = acl {
            findings.push(finding(
                Severity::Note,
                format!("anybody may change `{path}`"),
                "whoever reaches the servers can delete locks",
                "put a login into the store's URL, and an access list onto the node",
            ));
        }
        findings.extend(times(self.bounds.shortest_ttl(), self.bounds.longest_ttl()));
        Ok(findings)
    }
}

fn finding(severity: Severity, what: String, meaning: &str, advice: &str) -> Finding {
    Finding { severity, what, meaning: meaning.to_owned(), advice: advice.to_owned() }
}

fn servers(said: &[(String, Option<Said>)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, said) in said {
        let Some(said) = said else {
            findings.push(finding(
                Severity::Warning,
                format!("{at} says nothing about itself"),
                "it is down, cut off from the others, or does not allow `srvr`",
                "is it running? a majority of the servers is needed for every lock",
            ));
            continue;
        };
        let (version, mode) = (said.version.as_deref(), said.mode.as_deref());
        let (version, mode) = (version.unwrap_or("unknown"), mode.unwrap_or("unknown"));
        findings.push(finding(
            Severity::Note,
            format!("{at} is ZooKeeper {version}, {mode}"),
            "leases are nodes that end with their sessions",
            "nothing to do",
        ));
        if mode == "standalone" {
            findings.push(finding(
                Severity::Warning,
                format!("{at} is alone"),
                "while it is down no lock is given or kept, and its disk is the only copy",
                "run three servers, or five",
            ));
        }
    }
    findings
}

/// Leases of these lengths can be had.
fn times(shortest: Duration, longest: Duration) -> Vec<Finding> {
    let mut findings = vec![finding(
        Severity::Note,
        format!("TTLs from {shortest:?} to {longest:?} can be kept"),
        "the servers bound how long a session lasts (`minSessionTimeout`, `maxSessionTimeout`)",
        "nothing to do",
    )];
    if longest < TTL_DEFAULT {
        findings.push(finding(
            Severity::Warning,
            format!("the default TTL of {TTL_DEFAULT:?} cannot be kept"),
            "a lock without a TTL of its own is refused",
            "raise `maxSessionTimeout` to a minute, or give each lock a shorter TTL",
        ));
    }
    findings
}

/// Asks one server about itself.
async fn srvr(host: &Host, patience: Duration) -> Option<Said> {
    let asking = async {
        let mut stream = TcpStream::connect((host.name.as_str(), host.port)).await.ok()?;
        stream.write_all(b"srvr").await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        Some(text)
    };
    let text = tokio::time::timeout(patience, asking).await.ok()??;
    read(&text)
}

fn read(text: &str) -> Option<Said> {
    let after = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.split([',', '-']).next()?.trim().to_owned())
    };
    let said = Said { version: after("Zookeeper version: "), mode: after("Mode: ") };
    (said != Said::default()).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_server_says() {
        let text = "Zookeeper version: 3.8.0-5a02a05e, built on 2022\nLatency min/avg/max: 0\nMode: follower\n";
        let said = read(text).expect("it says something");
        assert_eq!(
            (said.version.as_deref(), said.mode.as_deref()),
            (Some("3.8.0"), Some("follower"))
        );
        assert_eq!(read("srvr is not executed because it is not in the whitelist."), None);
        let found = servers(&[("a:1".into(), Some(said)), ("b:1".into(), None)]);
        assert_eq!(found.iter().filter(|found| found.severity == Severity::Warning).count(), 1);
    }
}
