//! What silently breaks locks in etcd, or will.

use super::{
    client::Client,
    conn::{ALARM, MEMBERS, STATUS},
    error::Asked,
    proto::{AlarmResponse, Empty, MemberListResponse, StatusResponse},
};
use crate::{
    Error,
    store::{Finding, Severity},
};

/// etcd's own limit where nobody set one.
const QUOTA: i64 = 2 << 30;

impl Client {
    pub(super) async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        let status: StatusResponse = self.link.call(STATUS, Asked::Read, Empty {}).await?;
        // These two a user without rights may not ask.
        let alarms = self.link.call::<_, AlarmResponse>(ALARM, Asked::Read, Empty {}).await;
        let members = self.link.call::<_, MemberListResponse>(MEMBERS, Asked::Read, Empty {}).await;
        let mut findings = Vec::new();
        if let Ok(answer) = alarms {
            findings.extend(answer.alarms.iter().map(|alarm| of_alarm(alarm.alarm)));
        }
        findings.extend(of_status(&status));
        if let Ok(answer) = members {
            let voting = answer.members.iter().filter(|member| !member.is_learner).count();
            findings.extend(of_members(voting));
        }
        findings.push(Finding {
            severity: Severity::Note,
            what: format!("etcd {}", status.version),
            meaning: "leases are keys ordered by their create revision".into(),
            advice: "nothing to do".into(),
        });
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        Ok(findings)
    }
}

fn of_alarm(alarm: i32) -> Finding {
    let (what, meaning, advice) = match alarm {
        1 => (
            "etcd has run out of space",
            "no lock can be taken until that is mended",
            "compact and defragment it, raise `--quota-backend-bytes`, then `etcdctl alarm disarm`",
        ),
        2 => (
            "etcd reports data that differs between members",
            "two clients may see different holders",
            "stop using it, and restore the members that differ",
        ),
        _ => ("etcd has raised an alarm", "it may refuse to work", "see `etcdctl alarm list`"),
    };
    Finding {
        severity: Severity::Danger,
        what: what.into(),
        meaning: meaning.into(),
        advice: advice.into(),
    }
}

fn of_status(status: &StatusResponse) -> Vec<Finding> {
    let mut findings = Vec::new();
    if status.leader == 0 {
        findings.push(Finding {
            severity: Severity::Danger,
            what: "this member knows no leader".into(),
            meaning: "a majority of members is away: nothing can be locked, held leases end".into(),
            advice: "start the other members, or see what keeps them apart".into(),
        });
    }
    if status.db_size > QUOTA / 10 * 8 {
        findings.push(Finding {
            severity: Severity::Warning,
            what: format!("its database takes {} MiB", status.db_size >> 20),
            meaning: "at its quota, 2 GiB where none is set, etcd refuses all writes".into(),
            advice: "compact and defragment it, or raise `--quota-backend-bytes`".into(),
        });
    }
    if is_old(&status.version) {
        findings.push(Finding {
            severity: Severity::Warning,
            what: format!("etcd {} is older than 3.4", status.version),
            meaning: "waiting needs watches that a client may name, which it does not know".into(),
            advice: "upgrade it".into(),
        });
    }
    findings
}

fn is_old(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (3, 4)
}

fn of_members(voting: usize) -> Option<Finding> {
    let (what, meaning) = match voting {
        0 => return None,
        1 => (
            "the cluster has one member".to_owned(),
            "while it is down nothing can be locked, and leases that are held end",
        ),
        even if even.is_multiple_of(2) => (
            format!("the cluster has {even} members"),
            "an even number survives no more failures than one member less",
        ),
        _ => return None,
    };
    let meaning = meaning.into();
    let advice = "run three or five members".into();
    Some(Finding { severity: Severity::Note, what, meaning, advice })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, old) in [("3.4.23", false), ("3.3.27", true), ("3.10.0", false), ("", true)] {
            assert_eq!(is_old(version), old, "{version}");
        }
    }

    #[test]
    fn an_alarm_and_no_leader_are_dangers() {
        assert_eq!(of_alarm(1).severity, Severity::Danger);
        let status = StatusResponse { version: "3.5.0".into(), ..StatusResponse::default() };
        assert_eq!(of_status(&status)[0].severity, Severity::Danger);
        assert!(of_members(3).is_none() && of_members(1).is_some() && of_members(4).is_some());
    }
}
