//! Files that cannot be used: a clear error, and nothing changed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use leaseward::{Error, ErrorKind, clock::SystemClock, store::Reply};
use rusqlite::Connection;

use crate::help::{all, granted, one, open, open_now, take};

fn refusal(path: &Path) -> Error {
    let error = open(path, Arc::new(SystemClock)).expect_err("not a file of leases");
    assert!(error.hint_text().is_some(), "{error:?} has no hint");
    error
}

#[test]
fn a_folder_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = refusal(folder.path());
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().contains("is a folder"), "{error}");
}

#[test]
fn a_file_where_a_folder_should_be_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("x"), "").expect("a file");
    assert_eq!(refusal(&folder.path().join("x/leases.db")).kind(), ErrorKind::InvalidInput);
}

#[test]
fn what_is_no_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    let garbage = "not a database ".repeat(1_000);
    fs::write(&path, &garbage).expect("a file");
    let error = refusal(&path);
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.message().contains("not a database"), "{error}");
    assert_eq!(fs::read_to_string(&path).expect("still there"), garbage);
}

#[test]
fn a_damaged_file_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    let conn = {
        drop(open_now(&path));
        Connection::open(&path).expect("a file")
    };
    // Everything into the file itself, so that there is something to damage.
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("nobody reads");
    drop(conn);
    let mut bytes = fs::read(&path).expect("a file");
    bytes[100..4_000].fill(0xA5);
    fs::write(&path, bytes).expect("a file");
    assert_eq!(refusal(&path).kind(), ErrorKind::Refused);
}

#[test]
fn a_newer_schema_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    drop(open_now(&path));
    let conn = Connection::open(&path).expect("a file");
    conn.pragma_update(None, "user_version", 99).expect("writable");
    let error = refusal(&path);
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.message().contains("newer version"), "{error}");
}

#[test]
fn another_programs_database_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    let conn = Connection::open(&path).expect("a file");
    conn.execute_batch("CREATE TABLE mails (id INTEGER)").expect("writable");
    let error = refusal(&path);
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.message().contains("another program"), "{error}");
}

/// A small disk of its own; only root can have one.
struct Disk(PathBuf);

impl Disk {
    fn mount(folder: &Path) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=400k", "tmpfs"])
            .arg(folder)
            .output()
            .is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("not root: the test of a full and of a read-only disk did not run");
        }
        mounted.then(|| Self(folder.to_owned()))
    }

    fn make_read_only(&self) {
        let status = Command::new("mount")
            .args(["-o", "remount,ro"])
            .arg(&self.0)
            .status()
            .expect("there is a mount command");
        assert!(status.success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a thread may still have the file open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(disk) = Disk::mount(folder.path()) else { return };
    let path = disk.0.join("leases.db");
    let store = open_now(&path);
    granted(one(&store, take("before", 1)));
    let filler = disk.0.join("filler");
    let mut held = 1;
    // The log has room for some more commits until the disk refuses to make it longer.
    let _ = fs::write(&filler, vec![0_u8; 1 << 20]);
    let error = (2..10_000)
        .find_map(|who| match one(&store, take(&format!("n{who}"), who)) {
            Ok(_) => {
                held += 1;
                None
            }
            Err(error) => Some(error),
        })
        .expect("the disk is full");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("disk is full"), "{error:?}");
    assert_eq!(all(&store).len(), held);
    fs::remove_file(filler).expect("it was made");
    granted(one(&store, take("after", 10_001)));
}

#[test]
fn a_read_only_disk_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(disk) = Disk::mount(folder.path()) else { return };
    let path = disk.0.join("leases.db");
    drop(open_now(&path));
    disk.make_read_only();
    let error = refusal(&path);
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.message().contains("ead-only"), "{error:?}");
    assert_eq!(refusal(&disk.0.join("new.db")).kind(), ErrorKind::Refused);
}

#[test]
fn tables_that_vanish_under_us_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    let store = open_now(&path);
    assert!(matches!(one(&store, take("a", 1)), Ok(Reply::Granted(_))));
    let spoiled = Connection::open(&path).expect("a file");
    spoiled.execute_batch("DROP TABLE places").expect("writable");
    let error = one(&store, take("a", 2)).expect_err("the tables are not ours any more");
    assert_eq!(error.kind(), ErrorKind::Refused);
}
