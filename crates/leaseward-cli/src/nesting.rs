//! A command under a lock that asks for the same lock: it would wait for its own end.

use std::{collections::BTreeMap, env};

use leaseward::{
    Locks, Mode,
    store::{LockView, Query},
};

use crate::{
    claim::{Claim, Kind, Patience},
    failure::Failure,
};

/// Refuses to wait for what the surrounding `leaseward run` or `elect` holds until this process has ended.
///
/// The environment says what that holds; the store, whether it still does. A store that cannot tell is believed nothing.
///
/// # Errors
/// As for a command line that cannot be used, if the wait could not end.
pub(crate) async fn check(claim: &Claim, locks: &Locks) -> Result<(), Failure> {
    if claim.patience == Patience::None {
        return Ok(());
    }
    let around = around(|variable| env::var(variable).ok());
    for name in &claim.names {
        let Some(fence) = around.get(name.as_str()) else { continue };
        let Ok(views) = locks.inspect(Query::Name(name.clone())).await else { continue };
        if views.iter().any(|view| waits_for_itself(claim.kind, *fence, view)) {
            return Err(Failure::usage(format!(
                "`{name}` is held by the `leaseward` that this command runs under: it would wait for itself"
            ))
            .hint(
                "leave the inner one out, or name another lock; one that is to wait for the end of the outer \
                 command is started with `env -u LEASEWARD_NAME -u LEASEWARD_FENCES`",
            ));
        }
    }
    Ok(())
}

/// Names and fences of the surrounding lease.
fn around(variable: impl Fn(&str) -> Option<String>) -> BTreeMap<String, u64> {
    let several = variable("LEASEWARD_FENCES").and_then(|text| serde_json::from_str(&text).ok());
    several.unwrap_or_else(|| {
        let fence = variable("LEASEWARD_FENCE").and_then(|text| text.parse().ok());
        variable("LEASEWARD_NAME").zip(fence).into_iter().collect()
    })
}

/// Whether a claim has to wait for the end of the lease with this fence.
fn waits_for_itself(kind: Kind, fence: u64, view: &LockView) -> bool {
    let Some(outer) = view.holders.iter().find(|holder| holder.fence.get() == fence) else {
        return false;
    };
    match (kind, outer.mode) {
        (Kind::Shared, Mode::Shared) => false,
        // Another of several holders may give its permit back first.
        (Kind::Permit(_), Mode::Permit { capacity }) => capacity == 1,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Vec<(String, u64)> {
        let found = around(|wanted| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        });
        found.into_iter().collect()
    }

    #[test]
    fn the_environment_says_what_is_held() {
        assert_eq!(found(&[]), []);
        let one = [("LEASEWARD_NAME", "a"), ("LEASEWARD_FENCE", "7")];
        assert_eq!(found(&one), [("a".to_owned(), 7)]);
        assert_eq!(found(&one[..1]), []);
        let several = [one[0], one[1], ("LEASEWARD_FENCES", r#"{"a":7,"b":9}"#)];
        assert_eq!(found(&several), [("a".to_owned(), 7), ("b".to_owned(), 9)]);
    }
}
