//! Passwords: never printed, never passed on.

use std::fs;

use leaseward_testkit::RedisServer;

use crate::support::{Place, Ran};

const SECRET: &str = "hunter2";

/// Nothing that can be seen of a run holds the password.
fn assert_silent(ran: &Ran) {
    assert!(!ran.out.contains(SECRET), "{}", ran.out);
    assert!(!ran.err.contains(SECRET), "{}", ran.err);
}

#[test]
fn a_url_with_a_password_is_not_repeated() {
    let place = Place::new();
    for url in [
        "nonsense://u:hunter2@host",
        "nonsense:hunter2?x",
        "hunter2",
        "redis://u:hunter2@127.0.0.1:1",
        "redis://u:hunter2/@x@127.0.0.1:1",
        "redis://u:hunter2",
        "redis+unix://u:hunter2@/nowhere.sock",
        "redis+sentinel://127.0.0.1:1/main?sentinel_password=hunter2",
        "redlock://a:hunter2@127.0.0.1:1,b:hunter2@127.0.0.1:2",
        "etcd://u:hunter2/@127.0.0.1:1",
        "zookeeper://u:hunter2",
        "postgres://u:hunter2/@127.0.0.1:1",
        "postgres://u:hunter2",
        "postgres://u:hunter2@127.0.0.1:1/db",
    ] {
        for command in [&["doctor"][..], &["doctor", "--json"], &["ls"]] {
            let ran = place.run(["--store", url].iter().chain(command));
            assert_ne!(ran.code, 0, "{url}: {}", ran.out);
            assert_silent(&ran);
        }
    }
    let ran = Ran::from(
        place
            .bare_tool(["--help"])
            .env("LEASEWARD_STORE", "nonsense://u:hunter2@host")
            .output()
            .expect("starts"),
    );
    assert_silent(&ran);
}

/// Before a host is looked up, anything is connected to, or anything is printed.
#[test]
fn a_password_where_none_belongs_is_refused() {
    let place = Place::new();
    for url in [
        "postgres://u:p@hunter2@127.0.0.1:1/db",
        "postgres+advisory://u:p@hunter2@127.0.0.1:1/db",
        "redis:u:hunter2@127.0.0.1:1",
        "etcd:u:hunter2@127.0.0.1:1",
        "postgres:u:hunter2@127.0.0.1:1",
        "postgres:/u:hunter2@127.0.0.1:1",
        "postgres:///u:hunter2@127.0.0.1:1",
        "zookeeper:u:hunter2@127.0.0.1:1",
        "redlock:u:hunter2@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
        "redis://u:1?hunter2=x@127.0.0.1:1",
    ] {
        for command in [&["doctor"][..], &["run", "x", "--", "env"], &["queue", "stats"]] {
            let ran = place.run(["--store", url].iter().chain(command));
            assert_eq!(ran.code, 2, "{url}: {}{}", ran.out, ran.err);
            assert!(ran.err.contains("hint: "), "{url}: {}", ran.err);
            assert_silent(&ran);
        }
    }
}

#[test]
fn the_command_gets_no_password() {
    let place = Place::new();
    let url = format!("{}?durability=normal", place.store());
    let output = place
        .bare_tool(["run", "x", "--", "sh", "-c", "env; cat /proc/self/cmdline"])
        .env("LEASEWARD_STORE", &url)
        .env("LEASEWARD_STORE_PASSWORD", SECRET)
        .output();
    let ran = Ran::from(output.expect("starts"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("LEASEWARD_STORE=sqlite:"), "{}", ran.out);
    assert_silent(&ran);
}

#[test]
fn a_password_file_is_read_but_not_shown() {
    let place = Place::new();
    fs::write(place.path("password"), format!("{SECRET}\n")).expect("written");
    let config = "store = \"nonsense://host\"\nstore_password_file = \"password\"\n";
    fs::write(place.path("c.toml"), config).expect("written");
    let output = place.bare_tool(["--config", "c.toml", "ls"]).output();
    let ran = Ran::from(output.expect("starts"));
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert_silent(&ran);
    fs::write(place.path("c.toml"), format!("store = [\"redis://:{SECRET}@h\"]\n"))
        .expect("written");
    let output = place.bare_tool(["--config", "c.toml", "ls"]).output();
    assert_silent(&Ran::from(output.expect("starts")));
}

#[test]
fn a_password_from_elsewhere_is_shown_to_every_host() {
    let place = Place::new();
    let server = || RedisServer::builder().requirepass(SECRET).unix_socket().start();
    let servers = [server(), server(), server()];
    let nodes: Vec<_> = servers.iter().map(RedisServer::address).collect();
    for url in [
        format!("redis://{}", nodes[0]),
        format!("redis+unix://{}", servers[0].socket().display()),
        format!("redlock://{}?amnesia=trust", nodes.join(",")),
    ] {
        let run = ["--store", &url, "run", "x", "--", "env"];
        let output = place.bare_tool(run).env("LEASEWARD_STORE_PASSWORD", SECRET).output();
        let ran = Ran::from(output.expect("starts"));
        assert_eq!(ran.code, 0, "{url}: {}", ran.err);
        assert!(ran.out.contains(&format!("LEASEWARD_STORE={url}")), "{}", ran.out);
        assert_silent(&ran);
    }
    // One that was forgotten is named: no majority would mean that it was not asked.
    servers[2].kill();
    let url = format!("redlock://{}?amnesia=trust", nodes.join(","));
    let output = place.bare_tool(["--store", &url, "doctor"]);
    let ran =
        Ran::from({ output }.env("LEASEWARD_STORE_PASSWORD", SECRET).output().expect("starts"));
    assert!(ran.out.contains(&nodes[2]) && !ran.out.contains("asks for a password"), "{}", ran.out);
    assert_silent(&ran);
}
