//! The audit log.

use std::{
    fs,
    io::{BufRead, BufReader},
    time::Duration,
};

use leaseward::{AuditLog, ErrorKind, connect};

#[tokio::test]
async fn records_holds_without_the_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let locks = connect("memory:").await.expect("opens");
    AuditLog::open(&path).expect("opens").follow(&locks);
    let guard = locks.lock("deploy").acquire().await.expect("free");
    let fence = guard.fence().get();
    guard.release().await.expect("ours");
    let lines = read_lines(&path, 2).await;
    let events: Vec<serde_json::Value> =
        lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(events[0]["kind"], "acquired");
    assert_eq!(events[1]["kind"], "released");
    for event in &events {
        assert_eq!(event["name"], "deploy");
        assert_eq!(event["fence"], fence);
        assert_eq!(
            event["token"].as_str().map(str::len),
            Some(8),
            "only the beginning of the token"
        );
    }
}

#[test]
fn says_what_is_wrong_with_the_file() {
    let error = AuditLog::open("/no/such/folder/audit.jsonl").expect_err("no folder");
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.hint_text().is_some());
}

/// The log is written by a thread of its own: look until the lines are there.
async fn read_lines(path: &std::path::Path, count: usize) -> Vec<String> {
    for _ in 0..500 {
        let file = fs::File::open(path).expect("it exists");
        let lines: Vec<_> = BufReader::new(file).lines().map_while(Result::ok).collect();
        if lines.len() >= count {
            return lines;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the audit log never had {count} lines");
}
