//! A waiter hears that it is its turn, from whichever client the lease comes.

use std::time::Duration;

use leaseward::store::{Evidence, Push, Reply, Store};

use crate::{
    help::{granted, listen, one, open_now, queue, release, renew, take},
    names::{name, token},
};

/// Far longer than any of this takes: only a wake-up that never comes runs into it.
const NEVER: Duration = Duration::from_secs(30);

#[test]
fn another_clients_release_wakes_the_next_in_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    let (holder, waiter) = (open_now(&path), open_now(&path));
    let pushes = listen(&waiter);
    for round in 0..50 {
        let (first, second) = (2 * round + 1, 2 * round + 2);
        let before = granted(one(&holder, take("a", first)));
        let Ok(Reply::Queued(place)) = one(&waiter, queue("a", second)) else {
            panic!("the name is held")
        };
        assert_eq!(place.last_fence, before.fence());
        assert!(matches!(one(&holder, release("a", first)), Ok(Reply::Released)));
        let Ok(Push::Granted { name, token: to, grant }) = pushes.recv_timeout(NEVER) else {
            panic!("nobody was woken")
        };
        assert_eq!((name.as_str(), to), ("a", token(second)));
        assert_eq!(grant.evidence, Evidence::LargerFence);
        assert!(grant.fence() > place.last_fence);
        assert_eq!(grant.ttl, Duration::from_secs(10));
        assert!(matches!(one(&waiter, renew("a", second)), Ok(Reply::Renewed(_))));
        assert!(matches!(one(&waiter, release("a", second)), Ok(Reply::Released)));
    }
    assert!(pushes.try_recv().is_err(), "each is told once");
}

#[test]
fn what_a_break_frees_goes_to_the_next_in_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    let (holder, waiter) = (open_now(&path), open_now(&path));
    let pushes = listen(&waiter);
    granted(one(&holder, take("a", 1)));
    assert!(matches!(one(&waiter, queue("a", 2)), Ok(Reply::Queued(_))));
    let order = leaseward::store::Break { name: name("a"), now: true };
    let broken = crate::help::run(holder.break_lease(order)).expect("a good file");
    assert_eq!(broken.holders.len(), 1);
    assert!(matches!(pushes.recv_timeout(NEVER), Ok(Push::Granted { .. })));
}
