//! What silently breaks locks on a quorum. Only reads; runs only when asked.

use super::{client::Client, member::Absence};
use crate::{
    Error,
    store::{Finding, Severity},
    stores::redis::{
        clocks::{self, Reading},
        config::Address,
        diagnose::{clock, finding, setting, version},
        error,
        node::Link,
    },
};

impl Client {
    pub(super) async fn diagnose(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        findings.extend(self.number());
        let (mut readings, mut away) = (Vec::new(), 0);
        for member in &self.members {
            let at = &member.address;
            let examined = match member.node.link() {
                Ok(link) => self.examine(&link).await,
                Err(error) => Err(error),
            };
            match examined {
                Ok((found, reading)) => {
                    findings.extend(
                        found
                            .into_iter()
                            .map(|one| Finding { what: format!("{at}: {}", one.what), ..one }),
                    );
                    readings.extend(reading.map(|reading| (at.clone(), reading)));
                }
                Err(error) => {
                    away += 1;
                    findings.push(self.absent(at, &Absence::Lost(error), away));
                    continue;
                }
            }
            if let Err(absence @ Absence::Waits(_)) = member.voter(&self.config) {
                away += 1;
                findings.push(self.absent(at, &absence, away));
            }
        }
        findings.extend(clock::of_primaries(&readings));
        findings
    }

    async fn examine(&self, link: &Link) -> Result<(Vec<Finding>, Option<Reading>), Error> {
        let answers = link
            .pipeline(&setting::questions())
            .await
            .map_err(|why| error::of_call(&why, &link.address.to_string()))?;
        let facts = setting::Facts::read(&answers, &link.probe);
        let mut findings = setting::judge_one_of_several(&facts);
        findings.push(version::of(&link.probe));
        let reading = clocks::read(&*self.clock, async |time| link.command(&time).await).await;
        Ok((findings, reading))
    }

    fn number(&self) -> Option<Finding> {
        let odd = self.config.odd_number()?;
        let what = format!("{} nodes", self.members.len());
        Some(finding(Severity::Warning, what, odd, "name three, five or seven independent servers"))
    }

    fn absent(&self, at: &Address, why: &Absence, away: usize) -> Finding {
        let no_majority = self.members.len() - away < self.quorum.needed();
        let (severity, meaning) = if no_majority {
            (Severity::Danger, "with those that are left there is no majority: nothing is granted")
        } else {
            (Severity::Warning, "the others decide without it; fewer may be lost yet")
        };
        finding(severity, format!("{at}: {why}"), meaning, "bring it back, or wait until it votes")
    }
}
