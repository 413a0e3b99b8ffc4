//! etcd in the caller's own transactions: writes that etcd itself carries out only while a lock is held.

use crate::{Error, ErrorKind, Guard, stores::etcd::Etcd};

/// What proves in etcd that a lock is held: the key of its lease exists, and was created by this acquisition.
///
/// Put the comparison into the transaction that does the protected write. Then nothing a late holder sends has any
/// effect, however long it was paused: fencing without a fence column.
///
/// ```text
/// etcdctl txn <<.
/// create("leaseward/deploy/5f0c…") = "4711"
///
/// put config/version 42
///
///
/// .
/// ```
///
/// Holders that got the lease from each other inside one process share the key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ownership {
    /// The key. Whoever knows it could delete it: do not log it.
    pub key: Vec<u8>,
    /// Its create revision, to be compared for equality.
    pub create_revision: i64,
}

/// The comparison that holds in etcd exactly as long as this lease does.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if the lease is kept by another store, [`ErrorKind::Lost`] if it is held no more.
pub fn ownership(guard: &Guard) -> Result<Ownership, Error> {
    if !guard.is_held() {
        return Err(crate::guard::lost_error(guard.name(), crate::LostReason::Expired));
    }
    let kept = guard.kept_in::<Etcd>().and_then(|(etcd, token)| etcd.recorded(guard.name(), token));
    kept.map(|(key, create_revision)| Ownership { key, create_revision }).ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "this lease is not kept in etcd")
            .hint("other stores have `Guard::fence` and `leaseward::fenced`")
    })
}
