//! What silently breaks locks on a Redis. Only reads; runs only when asked.

pub(in crate::stores) mod clock;
mod rights;
pub(in crate::stores) mod setting;
mod strangers;
pub(in crate::stores) mod version;

use redis::{Pipeline, Value};

use super::{client::Client, clocks, error, node::Link};
use crate::{
    Error, ErrorKind,
    store::{Finding, Severity},
};

impl Client {
    /// Looks at every primary.
    pub(super) async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        let nodes = self.servers().primaries();
        let is_cluster = nodes.len() > 1;
        let (mut findings, mut clocks) = (Vec::new(), Vec::new());
        for node in nodes {
            let link = node.link()?;
            let mut found = self.examine(&link).await?;
            if is_cluster {
                for finding in &mut found {
                    finding.what = format!("{}: {}", link.address, finding.what);
                }
            }
            findings.extend(found);
            let reading = clocks::read(&*self.clock, async |time| link.command(&time).await).await;
            clocks.extend(reading.map(|reading| (link.address.clone(), reading)));
        }
        findings.extend(clock::of_primaries(&clocks));
        Ok(findings)
    }

    async fn examine(&self, link: &Link) -> Result<Vec<Finding>, Error> {
        let facts =
            setting::Facts::read(&self.ask(link, &setting::questions()).await?, &link.probe);
        let mut findings = setting::judge(&facts, self.config.strong);
        findings.extend(self.replicas_clocks(link, &facts.replicas).await);
        findings.extend(self.rights(link).await?);
        match self.strangers(link).await {
            Ok(found) => findings.extend(found),
            // What is forbidden was told just now.
            Err(why) if why.kind() == ErrorKind::Refused => {}
            Err(why) => return Err(why),
        }
        findings.push(version::of(&link.probe));
        Ok(findings)
    }

    /// Asks several things at once; a refusal is an answer too.
    async fn ask(&self, link: &Link, questions: &Pipeline) -> Result<Vec<Value>, Error> {
        let answers = link.pipeline(questions).await;
        answers.map_err(|why| error::of_call(&why, &link.address.to_string()))
    }
}

pub(in crate::stores) fn finding(
    severity: Severity,
    what: impl Into<String>,
    meaning: &str,
    advice: &str,
) -> Finding {
    Finding { severity, what: what.into(), meaning: meaning.into(), advice: advice.into() }
}
