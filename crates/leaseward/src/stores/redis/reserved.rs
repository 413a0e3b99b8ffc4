//! Lock keys that nobody may have, because keys of ours begin in the same way.

use crate::{
    Error, ErrorKind, Name,
    store::{Answer, Batch},
};

/// What all side keys and channels begin with.
pub(in crate::stores) const SIDE: &str = "leaseward:";

/// Which names a prefix makes such keys of. A lock with the key of the fence counter would stop every other one.
#[derive(Clone, Debug)]
pub(in crate::stores) struct Reserved {
    prefix: String,
    /// Whether there are any: with most prefixes no name has to be looked at.
    has_any: bool,
}

impl Reserved {
    pub(in crate::stores) fn new(prefix: &str) -> Self {
        let has_any = prefix.starts_with(SIDE) || SIDE.starts_with(prefix);
        Self { prefix: prefix.to_owned(), has_any }
    }

    pub(in crate::stores) fn has(&self, name: &str) -> bool {
        let is_side = || match SIDE.strip_prefix(&*self.prefix) {
            Some(rest) => name.starts_with(rest),
            None => true,
        };
        self.has_any && is_side()
    }

    /// # Errors
    /// [`ErrorKind::InvalidInput`] if a name must not be used.
    pub(in crate::stores) fn check(&self, name: &Name) -> Result<(), Error> {
        if !self.has(name) {
            return Ok(());
        }
        let message = format!(
            "the key of a lock must not begin with `{SIDE}`, as `{}{name}` does",
            self.prefix
        );
        Err(Error::new(ErrorKind::InvalidInput, message)
            .hint("the store's own keys begin so: choose another name, or another `prefix`"))
    }

    /// Has those operations of a batch carried out whose names may be used, in their order, and answers the others.
    pub(in crate::stores) async fn submit<F>(
        &self,
        batch: Batch,
        carry_out: impl FnOnce(Batch) -> F,
    ) -> Vec<Answer>
    where
        F: Future<Output = Vec<Answer>>,
    {
        if !self.has_any {
            return carry_out(batch).await;
        }
        let refused: Vec<_> =
            batch.iter().map(|operation| self.check(operation.name()).err()).collect();
        let sound = batch.into_iter().zip(&refused).filter(|(_, why)| why.is_none());
        let sound: Batch = sound.map(|(operation, _)| operation).collect();
        let answers = if sound.is_empty() { Vec::new() } else { carry_out(sound).await };
        let mut answers = answers.into_iter();
        let answer = |why: Option<Error>| match why {
            Some(why) => Err(why),
            None => answers.next().expect("BUG: every operation is answered"),
        };
        refused.into_iter().map(answer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_like_our_keys_is_reserved() {
        for (prefix, name, is_reserved) in [
            ("", "leaseward:fence", true),
            ("", "leaseward:", true),
            ("", "leaseward", false),
            ("", "a:leaseward:", false),
            ("lease", "ward:h:a", true),
            ("lease", "leaseward:h:a", false),
            ("leaseward:", "a", true),
            ("leaseward:locks:", "a", true),
            ("leaseward", ":a", true),
            ("leaseward", "a", false),
            ("lock:", "leaseward:fence", false),
        ] {
            assert_eq!(Reserved::new(prefix).has(name), is_reserved, "{prefix}{name}");
        }
    }
}
