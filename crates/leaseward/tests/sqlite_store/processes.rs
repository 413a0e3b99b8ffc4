//! Real processes on one file: this test binary starts itself.

use std::{
    io::{BufRead, BufReader, Lines},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use leaseward::{
    Fence,
    clock::SystemClock,
    store::{self, Push, Reply},
};

use crate::help::{context, granted, listen, one, open_now, queue, release, renew, run, take};

const ROLE: &str = "LEASEWARD_TEST_ROLE";
const FILE: &str = "LEASEWARD_TEST_FILE";

/// What children say begins with this; the test harness says other things.
const SAID: &str = "child says ";

/// How often a waiter asks again, so that its place lasts: a third of what it lasts.
const REFRESH: Duration = Duration::from_secs(3);

/// Not a test: what the children do. Without a role it does nothing.
#[test]
fn child() {
    let (Ok(role), Ok(file)) = (std::env::var(ROLE), std::env::var(FILE)) else { return };
    if role == "default" {
        let store = run(store::open("sqlite:", context(Arc::new(SystemClock)))).expect("a home");
        println!("\n{SAID}{}", store.location());
        granted(one(&*store, take("a", 1)));
        return;
    }
    let store = open_now(Path::new(&file));
    let pid = u128::from(std::process::id());
    match role.as_str() {
        // Takes and gives back without end, until it is killed in the middle of something.
        "churn" => {
            for round in 1_u128.. {
                let who = pid << 32 | round;
                let grant = granted(one(&store, take(&format!("churn:{pid}"), who)));
                println!("\n{SAID}{}", grant.fence());
                assert!(matches!(
                    one(&store, release(&format!("churn:{pid}"), who)),
                    Ok(Reply::Released)
                ));
            }
        }
        "wait" => {
            let pushes = listen(&store);
            assert!(matches!(one(&store, queue("a", pid)), Ok(Reply::Queued(_))));
            println!("\n{SAID}queued");
            let Ok(Push::Granted { grant, .. }) = pushes.recv() else { panic!("no grant") };
            println!("\n{SAID}{}", grant.fence());
        }
        // Stands in line as an engine does, and gives back at once what it gets.
        "line" => {
            let pushes = listen(&store);
            let mut answer = one(&store, queue("a", pid));
            let Ok(Reply::Queued(place)) = &answer else { panic!("not queued: {answer:?}") };
            println!("\n{SAID}{}", place.standing.ahead);
            let grant = loop {
                if let Ok(Reply::Queued(_)) = answer {
                    match pushes.recv_timeout(REFRESH) {
                        Ok(Push::Granted { grant, .. }) => break grant,
                        _ => answer = one(&store, queue("a", pid)),
                    }
                } else {
                    break granted(answer);
                }
            };
            assert!(matches!(one(&store, release("a", pid)), Ok(Reply::Released)));
            println!("\n{SAID}{}", grant.fence());
        }
        other => panic!("no role is called {other}"),
    }
}

struct Helper {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Helper {
    fn start(role: &str, file: &Path) -> Self {
        Self::by(Command::new(std::env::current_exe().expect("this binary")), role, file)
    }

    /// Starts what runs this binary.
    fn by(mut command: Command, role: &str, file: &Path) -> Self {
        let mut process = command
            .args(["--exact", "processes::child", "--nocapture"])
            .env(ROLE, role)
            .env(FILE, file)
            .env("XDG_STATE_HOME", file)
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary runs");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        Self { process, lines }
    }

    fn hear(&mut self) -> String {
        loop {
            let line = self.lines.next().expect("it is alive").expect("it writes text");
            if let Some(said) = line.strip_prefix(SAID) {
                return said.to_owned();
            }
        }
    }

    fn hear_fence(&mut self) -> Fence {
        Fence::new(self.hear().parse().expect("a fence"))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // SIGKILL: nothing is released, nothing is closed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn killed_writers_leave_a_working_file_and_growing_fences() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    let mut last = Fence::ZERO;
    for round in 1..=5 {
        let mut helpers = [Helper::start("churn", &path), Helper::start("churn", &path)];
        for helper in &mut helpers {
            for _ in 0..200 {
                last = last.max(helper.hear_fence());
            }
        }
        drop(helpers);
        let store = open_now(&path);
        let fence = granted(one(&store, take("after", round))).fence();
        assert!(fence > last, "{fence} is not above {last}");
        last = fence;
        assert!(matches!(one(&store, release("after", round)), Ok(Reply::Released)));
    }
    let conn = rusqlite::Connection::open(&path).expect("a file");
    let state: String =
        conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a database");
    assert_eq!(state, "ok");
}

/// As many as ask at once in CI, and in a long run.
fn crowd() -> usize {
    if std::env::var_os("LEASEWARD_FULL").is_some() { 1_000 } else { 300 }
}

#[test]
fn a_crowd_of_processes_is_served_in_the_order_of_their_places() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    let store = open_now(&path);
    granted(one(&store, take("a", 1)));
    let mut crowd: Vec<_> = (0..crowd()).map(|_| Helper::start("line", &path)).collect();
    let places: Vec<u32> = crowd
        .iter_mut()
        .map(|helper| {
            assert!(matches!(one(&store, renew("a", 1)), Ok(Reply::Renewed(_))));
            helper.hear().parse().expect("how many were before it")
        })
        .collect();
    assert!(matches!(one(&store, release("a", 1)), Ok(Reply::Released)));
    let mut served: Vec<_> =
        places.into_iter().zip(crowd.iter_mut().map(Helper::hear_fence)).collect();
    served.sort_unstable();
    assert!(served.iter().zip(0..).all(|((place, _), at)| *place == at), "{served:?}");
    assert!(served.is_sorted_by(|one, next| one.1 < next.1), "not in order: {served:?}");
}

#[test]
fn a_release_wakes_a_waiter_in_another_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    let store = open_now(&path);
    let before = granted(one(&store, take("a", 1))).fence();
    let mut waiter = Helper::start("wait", &path);
    assert_eq!(waiter.hear(), "queued");
    assert!(matches!(one(&store, release("a", 1)), Ok(Reply::Released)));
    assert!(waiter.hear_fence() > before);
}

/// As in a container that shares the file and nothing else; only root can be in one.
#[cfg(target_os = "linux")]
#[test]
fn who_cannot_be_called_looks_by_itself() {
    let apart = |program: &Path| {
        let mut command = Command::new("unshare");
        command.arg("--net").arg(program);
        command
    };
    if !apart(Path::new("true")).status().is_ok_and(|status| status.success()) {
        eprintln!("not root: the test of a network apart did not run");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leases.db");
    let store = open_now(&path);
    let before = granted(one(&store, take("a", 1))).fence();
    let this = std::env::current_exe().expect("this binary");
    let mut waiter = Helper::by(apart(&this), "wait", &path);
    assert_eq!(waiter.hear(), "queued");
    assert!(matches!(one(&store, release("a", 1)), Ok(Reply::Released)));
    assert!(waiter.hear_fence() > before);
}

#[cfg(unix)]
#[test]
fn the_default_file_is_the_users_own() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let mut helper = Helper::start("default", &state);
    let path = state.join("leaseward/leases.db");
    assert_eq!(helper.hear(), format!("sqlite:{}", path.display()));
    let mode = |path: &Path| path.metadata().expect("it was made").permissions().mode() & 0o777;
    assert_eq!((mode(&state.join("leaseward")), mode(&path)), (0o700, 0o600));
}
