//! Who votes in a round: each server once, under however many names it was given.
//!
//! The URL may name one server twice without anybody seeing it, such as by host name and by address. With two votes it could
//! be most of a majority. A run of a server has a number of its own, by which it is known again.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    config::Config,
    member::{Absence, Member, Voter},
};
use crate::stores::redis::node::Link;

/// Nodes are few.
const FEW: usize = 5;

/// Those who vote, one after the other.
#[derive(Default)]
pub(super) struct Roll(SmallVec<[Arc<Link>; FEW]>);

impl Roll {
    /// The connection to the next node, if it may vote.
    pub(super) fn call(&mut self, member: &Member, config: &Config) -> Result<Voter, Absence> {
        let voter = member.voter(config)?;
        self.enter(&voter.link)?;
        Ok(voter)
    }

    /// Notes a server, unless it is there under another name.
    pub(super) fn enter(&mut self, link: &Arc<Link>) -> Result<(), Absence> {
        let same = |other: &&Arc<Link>| link.probe.is_same_run(&other.probe);
        match self.0.iter().find(same) {
            Some(other) => Err(Absence::Twin(other.address.clone())),
            None => {
                self.0.push(link.clone());
                Ok(())
            }
        }
    }
}
