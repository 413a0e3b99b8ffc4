//! The audit log.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use leaseward::{AuditLog, ErrorKind, EventKind, Locks, connect};
use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    pipe::fcntl_setpipe_size,
};
use serde_json::Value;
use tempfile::TempDir;

/// A log that follows a client of its own.
struct Audited {
    _folder: TempDir,
    path: PathBuf,
    log: AuditLog,
    locks: Locks,
}

impl Audited {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let locks = Locks::builder().who("web-3").connect("memory:").await.expect("opens");
        let log = AuditLog::open(&path).expect("opens");
        log.follow(&locks);
        Self { _folder: folder, path, log, locks }
    }

    /// One hold: two lines.
    async fn hold(&self, name: &str) {
        let guard = self.locks.lock(name).acquire().await.expect("free");
        guard.release().await.expect("ours");
        self.log.written().await;
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("it exists");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn kinds(path: &Path) -> Vec<String> {
    let kind = |line: &Value| line["kind"].as_str().expect("a kind").to_owned();
    lines(path).iter().map(kind).collect()
}

#[tokio::test]
async fn records_holds_without_the_token() {
    let audited = Audited::new().await;
    let guard = audited.locks.lock("deploy").trace_id("4bf92f35").acquire().await.expect("free");
    let fence = guard.fence().get();
    guard.release().await.expect("ours");
    audited.log.written().await;
    assert_eq!(kinds(&audited.path), ["acquired", "released"]);
    for line in lines(&audited.path) {
        assert_eq!((&line["name"], &line["fence"]), (&"deploy".into(), &fence.into()));
        let prefix = line["token"].as_str().map(str::len);
        assert_eq!(prefix, Some(8), "only the beginning of the token");
        // What joins the files of several replicas.
        let process = line["process"].as_str().unwrap_or_default();
        assert!(process.ends_with(&format!(":{}", std::process::id())), "{line}");
        assert_eq!((&line["holder"], &line["trace_id"]), (&"web-3".into(), &"4bf92f35".into()));
        assert!(line["by"].is_string() && line["store"].is_string(), "{line}");
    }
    audited.hold("untraced").await;
    assert!(lines(&audited.path)[2].get("trace_id").is_none(), "none is made up");
}

#[tokio::test]
async fn records_waits_and_renewals() {
    let audited = Audited::new().await;
    let (told, mut renewals) = tokio::sync::mpsc::unbounded_channel();
    audited.locks.on_event(move |event| {
        if event.kind == EventKind::Renewed {
            let _ = told.send(());
        }
    });
    let lock = audited.locks.lock("x").ttl(Duration::from_secs(1));
    let guard = lock.acquire().await.expect("free");
    renewals.recv().await.expect("a third of the TTL");
    let waited = lock.owner("another").wait(Duration::from_millis(20)).acquire().await;
    assert_eq!(waited.expect_err("held").kind(), ErrorKind::Timeout);
    drop(guard);
    audited.locks.shutdown().await;
    let kinds = kinds(&audited.path);
    for kind in ["acquired", "renewed", "waiting", "timed_out", "released"] {
        assert!(kinds.iter().any(|other| other == kind), "no `{kind}` in {kinds:?}");
    }
}

#[tokio::test]
async fn a_shutdown_waits_until_all_is_written() {
    const MANY: usize = 100;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.fifo");
    // A disk that takes nothing until it is told to: a pipe that is full.
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("made");
    let disk = OpenOptions::new().read(true).write(true).open(&path).expect("there");
    fcntl_setpipe_size(&disk, 4_096).expect("one page");
    let locks = connect("memory:").await.expect("opens");
    AuditLog::open(&path).expect("opens").follow(&locks);
    let mut guards = Vec::new();
    for at in 0..MANY {
        guards.push(locks.lock(format!("x{at}")).acquire().await.expect("free"));
    }
    let stopping = tokio::spawn(async move { locks.shutdown().await });
    for _ in 0..MANY {
        tokio::task::yield_now().await;
    }
    assert!(!stopping.is_finished(), "its lines are not written yet");
    let reading = std::thread::spawn(move || {
        let lines = BufReader::new(disk).lines().map(|line| line.expect("text"));
        lines.filter(|line| line.contains("released")).take(MANY).count()
    });
    stopping.await.expect("no panic");
    assert_eq!(reading.join().expect("no panic"), MANY);
}

#[tokio::test]
async fn follows_its_name_when_the_file_is_renamed_or_removed() {
    let audited = Audited::new().await;
    audited.hold("one").await;
    let mode = fs::metadata(&audited.path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "its owner's alone");
    fs::set_permissions(&audited.path, PermissionsExt::from_mode(0o640)).expect("it is ours");
    let rotated = audited.path.with_extension("1");
    fs::rename(&audited.path, &rotated).expect("renamed");
    audited.hold("two").await;
    let name = |path: &Path| lines(path)[0]["name"].clone();
    assert_eq!((name(&rotated), lines(&rotated).len()), ("one".into(), 2));
    assert_eq!((name(&audited.path), lines(&audited.path).len()), ("two".into(), 2));
    let mode = fs::metadata(&audited.path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "as the file before");
    fs::remove_file(&audited.path).expect("removed");
    // Another program was faster.
    File::create(&audited.path).expect("made");
    audited.hold("three").await;
    assert_eq!(name(&audited.path), "three");
}

/// What `copytruncate` does.
#[tokio::test]
async fn goes_on_from_the_start_of_a_truncated_file() {
    let audited = Audited::new().await;
    audited.hold("one").await;
    let file = OpenOptions::new().write(true).open(&audited.path).expect("there");
    file.set_len(0).expect("truncated");
    audited.hold("two").await;
    assert_eq!(lines(&audited.path)[0]["name"], "two", "and no hole before it");
}

#[tokio::test]
async fn the_log_of_one_client_records_what_else_happens() {
    let audited = Audited::new().await;
    audited.log.record("queue", &serde_json::json!({ "kind": "started", "job": 7 }));
    audited.log.written().await;
    let line = &lines(&audited.path)[0];
    assert_eq!((&line["kind"], &line["store"]), (&"started".into(), &"queue".into()));
    assert_eq!(line["holder"], line["process"]);
}

#[test]
fn says_what_is_wrong_with_the_file() {
    let error = AuditLog::open("/no/such/folder/audit.jsonl").expect_err("no folder");
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.hint_text().is_some());
}

#[tokio::test]
async fn two_clients_share_a_file() {
    let audited = Audited::new().await;
    let other = connect("memory:").await.expect("opens");
    AuditLog::open(&audited.path).expect("opens").follow(&other);
    drop(other.lock("y").acquire().await.expect("free"));
    other.shutdown().await;
    audited.hold("x").await;
    assert_eq!(lines(&audited.path).len(), 4);
}
