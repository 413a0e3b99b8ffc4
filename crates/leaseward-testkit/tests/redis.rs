//! One server: its options, its end, its return.

use std::{fs, path::Path, time::Duration};

use leaseward_testkit::{Fsync, PATIENCE, RedisServer, eventually};

#[test]
fn a_restart_keeps_port_and_pause_keeps_connections() {
    let server = RedisServer::start();
    server.cli(&["set", "a", "1"]);
    let (port, pid) = (server.port(), server.pid());
    assert!(server.client_list().is_empty());
    server.pause();
    server.resume();
    assert_eq!(server.cli(&["get", "a"]), "1");
    server.kill();
    assert!(server.try_cli(&["ping"]).is_err());
    server.restart();
    assert_eq!(server.cli(&["get", "a"]), "", "nothing is kept by default");
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
}

#[test]
fn an_append_only_file_survives_a_kill() {
    let server = RedisServer::builder().appendonly(Fsync::Always).start();
    server.cli(&["set", "a", "1"]);
    server.restart();
    assert_eq!(server.cli(&["get", "a"]), "1");
    assert_eq!(server.info("persistence")["aof_enabled"], "1");
}

#[test]
fn a_password_is_asked_for_and_users_have_limits() {
    let server = RedisServer::builder()
        .requirepass("secret")
        .acl("locker on >other ~lock:* +set +get +ping")
        .start();
    assert_eq!(server.url(), format!("redis://:secret@127.0.0.1:{}", server.port()));
    assert_eq!(server.cli(&["ping"]), "PONG");
    let as_user = |args: &[&str]| {
        let login = ["--no-auth-warning", "--user", "locker", "--pass", "other"];
        server.try_cli(&[&login, args].concat())
    };
    assert_eq!(as_user(&["set", "lock:a", "1"]), Ok("OK".into()));
    let refused = as_user(&["set", "a", "1"]).expect_err("no right to that key");
    assert!(refused.contains("NOPERM"), "{refused}");
}

#[test]
fn a_replica_follows_and_a_unix_socket_answers() {
    let primary = RedisServer::builder().unix_socket().start();
    let replica = RedisServer::builder().replica_of(&primary).start();
    replica.wait_for_link();
    let socket = primary.socket();
    let socket = socket.to_str().expect("a plain path");
    assert_eq!(primary.cli(&["-s", socket, "set", "a", "1"]), "OK");
    eventually("the replica has it", PATIENCE, || {
        (replica.cli(&["get", "a"]) == "1").then_some(())
    });
    assert_eq!(primary.info("replication")["connected_slaves"], "1");
}

#[test]
fn a_full_server_refuses() {
    let server = RedisServer::builder().maxmemory(1, "noeviction").start();
    let refused = server.try_cli(&["set", "a", "1"]).expect_err("no memory");
    assert!(refused.contains("OOM"), "{refused}");
}

#[test]
fn a_dropped_server_is_gone_even_if_paused() {
    let server = RedisServer::start();
    let (pid, folder) = (server.pid(), server.folder().to_owned());
    server.pause();
    drop(server);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(!folder.exists());
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let server = std::thread::spawn(RedisServer::start).join().expect("it starts");
    // The kernel tells of a thread's end a moment later.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(server.cli(&["ping"]), "PONG");
}

#[test]
#[should_panic(expected = "no-such-option")]
fn a_server_that_does_not_come_up_says_why() {
    let _ = RedisServer::builder().arg("no-such-option", "1").start();
}

#[test]
fn a_server_dies_with_a_killed_test_program() {
    let (pid, folder) = child::start_a_server_and_be_killed();
    let gone = || {
        // A zombie whose parent is gone is init's to reap.
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (status.is_empty() || status.contains(") Z ")).then_some(())
    };
    eventually("the server is gone", PATIENCE, gone);
    // Nobody was left to do it.
    fs::remove_dir_all(folder).expect("the folder is there");
}

/// This very program again, as a test program that does not live to the end.
mod child {
    use std::{
        env,
        io::{BufRead, BufReader},
        path::PathBuf,
        process::{Command, Stdio},
    };

    use leaseward_testkit::RedisServer;

    const ROLE: &str = "LEASEWARD_TESTKIT_ROLE";

    pub(crate) fn start_a_server_and_be_killed() -> (u32, PathBuf) {
        let mut child = Command::new(env::current_exe().expect("our program"))
            .args(["--exact", "child::role", "--nocapture"])
            .env(ROLE, "victim")
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs again");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut lines = lines.map_while(Result::ok);
        let server = lines.find_map(|line| {
            let (pid, folder) = line.split_once("server ")?.1.split_once(' ')?;
            Some((pid.parse().ok()?, folder.into()))
        });
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
        server.expect("it says which server it has started")
    }

    #[test]
    fn role() {
        if env::var_os(ROLE).is_some() {
            let server = RedisServer::start();
            println!("server {} {}", server.pid(), server.folder().display());
            std::thread::park();
        }
    }
}
