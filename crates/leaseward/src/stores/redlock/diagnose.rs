//! What silently breaks locks on a quorum. Only reads; runs only when asked.

use std::sync::Arc;

use super::{
    client::{Client, ONCE},
    config::Amnesia,
    member::{Absence, Member},
    roll::Roll,
};
use crate::{
    Error,
    store::{Finding, Severity},
    stores::redis::{
        clocks::{self, Reading},
        diagnose::{clock, finding, setting},
        error,
        node::Link,
        probe::Persistence,
    },
};

impl Client {
    pub(super) async fn diagnose(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        findings.extend(self.number());
        let (mut links, mut readings, mut away) = (Vec::new(), Vec::new(), Vec::new());
        let mut roll = Roll::default();
        for member in &self.members {
            match self.look_at(member).await {
                Ok((link, found, reading)) => {
                    let at = &member.address;
                    let named =
                        |one: Finding| Finding { what: format!("{at}: {}", one.what), ..one };
                    findings.extend(found.into_iter().map(named));
                    readings.extend(reading.map(|reading| (at.clone(), reading)));
                    let absence = roll.enter(&link).err().or_else(|| self.waiting(member));
                    away.extend(absence.map(|absence| (member, absence)));
                    links.push(link);
                }
                Err(error) => away.push((member, Absence::Lost(error))),
            }
        }
        let has_majority = self.members.len() - away.len() >= self.quorum.needed();
        findings.extend(away.iter().map(|(member, why)| absent(member, why, has_majority)));
        findings.extend(clock::of_primaries(&readings));
        findings.extend(self.memory(&links));
        findings.extend(versions(&links));
        findings
    }

    /// Whether a node that is there does not vote yet.
    fn waiting(&self, member: &Member) -> Option<Absence> {
        match member.voter(&self.config) {
            Err(absence @ Absence::Waits(_)) => Some(absence),
            _ => None,
        }
    }

    async fn look_at(
        &self,
        member: &Member,
    ) -> Result<(Arc<Link>, Vec<Finding>, Option<Reading>), Error> {
        let link = member.node.link()?;
        let answers = match link.pipeline(&setting::questions()).await {
            Ok(answers) => answers,
            Err(why) => {
                let why = error::of_call(&why, &link.address.to_string());
                // A connection that is found dead is given up like any other.
                member.node.broken(&link, why.duplicate());
                return Err(why);
            }
        };
        let facts = setting::Facts::read(&answers, &link.probe);
        let reading = clocks::read(&*self.clock, async |time| link.command(&time).await).await;
        Ok((link, setting::judge_one_of_several(&facts), reading))
    }

    fn number(&self) -> Option<Finding> {
        let odd = self.config.odd_number()?;
        let what = match self.members.len() {
            1 => "1 node".to_owned(),
            nodes => format!("{nodes} nodes"),
        };
        Some(finding(Severity::Warning, what, odd, "name three, five or seven independent servers"))
    }

    /// What becomes of votes when nodes restart.
    fn memory(&self, links: &[Arc<Link>]) -> Option<Finding> {
        let forgets = |link: &&Arc<Link>| link.probe.persistence != Persistence::Always;
        let forgetful: Vec<_> =
            links.iter().filter(forgets).map(|link| link.address.to_string()).collect();
        let what = match forgetful.len() {
            0 => return None,
            count if count == self.members.len() => "no node keeps every vote on its disk".into(),
            _ => format!("not every vote is on the disk of {}", forgetful.join(", ")),
        };
        let advice = "`appendonly yes` and `appendfsync always` have a node keep its votes";
        Some(match self.config.amnesia {
            Amnesia::Trust => finding(
                Severity::Warning,
                what,
                "with `amnesia=trust` a node that restarts votes although it may have forgotten: a second holder then \
                 gets the lock, with a larger fence",
                advice,
            ),
            Amnesia::Wait => {
                let meaning = format!(
                    "after a restart such a node does not vote for {} s; if that leaves no majority, nothing is granted \
                     for so long",
                    self.config.max_ttl.as_secs()
                );
                finding(Severity::Note, what, &meaning, advice)
            }
        })
    }
}

fn absent(member: &Member, why: &Absence, has_majority: bool) -> Finding {
    let (severity, meaning) = if let Absence::Twin(_) = why {
        (Severity::Danger, "there is a node fewer than it seems: fewer may be lost")
    } else if has_majority {
        (Severity::Warning, "the others decide without it; fewer may be lost yet")
    } else {
        (Severity::Danger, "with those that are left there is no majority: nothing is granted")
    };
    let advice = match why {
        Absence::Waits(_) => "wait; nothing it may have forgotten is held by then",
        Absence::Twin(_) => ONCE,
        Absence::Lost(_) | Absence::Late(_) => {
            "bring it back, or check that this machine reaches it"
        }
    };
    finding(severity, format!("{}: {}", member.address, why.at(&member.address)), meaning, advice)
}

/// One line if all are the same.
fn versions(links: &[Arc<Link>]) -> Vec<Finding> {
    let version = |link: &Arc<Link>| link.probe.version.to_string();
    let mut different: Vec<_> = links.iter().map(version).collect();
    different.sort_unstable();
    different.dedup();
    let note = |version: &String| {
        let nodes: Vec<_> = links
            .iter()
            .filter(|link| link.probe.version.to_string() == *version)
            .map(|link| link.address.to_string())
            .collect();
        let what = format!("{version} at {}", nodes.join(", "));
        finding(Severity::Note, what, "it has all that leases need", "nothing")
    };
    different.iter().map(note).collect()
}
