//! The file is deleted or replaced while it is in use: holders are told, and it goes on with what is there now.

use std::{fs, path::Path, time::Duration};

use leaseward::{
    Locks, LostReason,
    store::{Push, Reply},
};

use crate::{
    help::{all, granted, listen, one, open_now, queue, release, renew, take},
    names::token,
};

/// Far longer than any of this takes.
const NEVER: Duration = Duration::from_secs(30);

/// Ways in which the file goes; each leaves the log of the old one.
fn ways() -> [fn(&Path); 2] {
    [
        |path| fs::remove_file(path).expect("it was there"),
        |path| {
            let other = path.with_extension("other");
            drop(open_now(&other));
            fs::rename(other, path).expect("both are files");
        },
    ]
}

#[test]
fn a_holder_is_told_before_anything_is_given_in_the_new_file() {
    for way in ways() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("leases.db");
        let store = open_now(&path);
        let pushes = listen(&store);
        let before = granted(one(&store, take("a", 1)));
        way(&path);
        let after = granted(one(&store, take("a", 2)));
        assert!(matches!(pushes.try_recv(), Ok(Push::SessionLost)));
        assert!(after.fence() > before.fence());
        assert!(matches!(one(&store, renew("a", 1)), Ok(Reply::NotYours(LostReason::NotOurs))));
        assert!(matches!(one(&store, renew("a", 2)), Ok(Reply::Renewed(_))));
        assert!(pushes.try_recv().is_err(), "it is told once");
        assert_eq!(all(&store).len(), 1, "people are shown the new file too");
    }
}

#[test]
fn a_deleted_file_leaves_nothing_to_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    let (old, waiter) = (open_now(&path), open_now(&path));
    let pushes = listen(&waiter);
    granted(one(&old, take("a", 1)));
    assert!(matches!(one(&waiter, queue("a", 2)), Ok(Reply::Queued(_))));
    fs::remove_file(&path).expect("it was there");
    let new = open_now(&path);
    assert!(all(&new).is_empty());
    granted(one(&new, take("a", 3)));
    // Both find the new file, in which the name is held, and waiting goes on there.
    assert!(matches!(one(&old, renew("a", 1)), Ok(Reply::NotYours(_))));
    assert!(matches!(one(&waiter, queue("a", 2)), Ok(Reply::Queued(_))));
    assert!(matches!(pushes.recv_timeout(NEVER), Ok(Push::SessionLost)));
    assert!(matches!(one(&new, release("a", 3)), Ok(Reply::Released)));
    let Ok(Push::Granted { token: to, .. }) = pushes.recv_timeout(NEVER) else {
        panic!("nobody was woken in the new file")
    };
    assert_eq!(to, token(2));
}

#[test]
fn a_folder_that_went_is_not_made_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("of/leases.db");
    let store = open_now(&path);
    granted(one(&store, take("a", 1)));
    fs::remove_dir_all(folder.path().join("of")).expect("it was there");
    assert!(one(&store, renew("a", 1)).is_err());
    assert!(!folder.path().join("of").exists());
}

#[test]
fn a_guard_is_lost_and_its_name_free_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    run_in_a_runtime(async move {
        let locks =
            Locks::builder().connect(&format!("sqlite:{}", path.display())).await.expect("a file");
        let ttl = Duration::from_millis(600);
        let guard = locks.lock("a").ttl(ttl).acquire().await.expect("free");
        fs::remove_file(&path).expect("it was there");
        assert_eq!(guard.lost().await, LostReason::SessionEnded);
        let again = locks.lock("a").ttl(ttl).acquire().await.expect("free again");
        assert!(again.is_held());
        locks.shutdown().await;
    });
}

fn run_in_a_runtime(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(work);
}
