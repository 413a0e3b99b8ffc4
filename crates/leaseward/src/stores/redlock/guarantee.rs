//! How firmly leases hold on a quorum.

use super::{client::Client, config::Amnesia};
use crate::store::{Guarantee, Level, Reach};

impl Client {
    pub(super) fn guarantee(&self) -> Guarantee {
        let mut breaks_when = vec![
            "nodes end leases early because their clocks are set forward, are emptied by hand (`FLUSHALL`) or evict \
             keys, and these are a majority together with nodes that do not have the lease"
                .to_owned(),
        ];
        if self.config.amnesia == Amnesia::Trust {
            breaks_when
                .push("a node restarts and has forgotten its votes (`amnesia=trust`)".into());
        } else {
            breaks_when.push(
                "a node forgot its votes, its clock is set forward after it started, and a client connects to it for \
                 the first time"
                    .into(),
            );
            breaks_when.push(format!(
                "for the order of fences: a node forgot its votes, and clocks differ by more than {} ms",
                self.config.skew.as_millis()
            ));
        }
        Guarantee {
            exclusion: Level::WithinBounds,
            fences: Level::WithinBounds,
            reach: Reach::Network,
            breaks_when,
        }
    }
}
