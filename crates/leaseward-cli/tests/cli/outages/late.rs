//! A store that is not there yet when the tool is started.

use leaseward_testkit::{Postgres, RedisServer};
use rustix::process::Signal;

use super::servers::{Away, Server};
use crate::support::{Place, Running, signal};

/// Services wait for it; who made a slip is told at once.
fn comes_late(server: &Server) {
    let place = Place::new();
    let store = server.stores().remove(0);
    let start = |arguments: &[&str]| {
        Running::start(&mut place.tool([&["--store", &store.url], arguments].concat()))
    };
    server.goes(Away::Stopped);
    let mut services = Vec::new();
    if store.elects {
        services.push((
            start(&["elect", "boss", "--", "sh", "-c", "echo works; exec sleep 1000"]),
            143,
        ));
    }
    if store.keeps_jobs {
        services.push((start(&["queue", "work", "--", "sh", "-c", "echo works"]), 0));
    }
    for (service, _) in &mut services {
        let said = service.err_line();
        assert!(said.starts_with("warning: the store is away"), "{said}");
    }
    let mut at_once = vec![
        vec!["run", "x", "--wait", "5m", "--", "true"],
        vec!["acquire", "x", "--wait", "5m"],
        vec!["events", "--follow"],
    ];
    if store.keeps_jobs {
        at_once.push(vec!["queue", "work", "--until-empty", "--", "true"]);
        at_once.push(vec!["queue", "top"]);
    }
    for arguments in at_once {
        let ran = start(&arguments).end();
        assert_eq!(ran.code, 69, "{arguments:?}: {}", ran.err);
    }
    server.comes_back(Away::Stopped);
    if store.keeps_jobs {
        assert_eq!(start(&["queue", "add", "1"]).end().code, 0);
    }
    for (mut service, code) in services {
        assert_eq!(service.line(), "works");
        signal(service.wrapper(), Signal::TERM);
        let ran = service.end();
        assert_eq!(ran.code, code, "{}", ran.err);
        assert_eq!(ran.err.matches("the store is back").count(), 1, "{}", ran.err);
    }
}

#[test]
fn a_service_comes_up_with_postgresql() {
    comes_late(&Server::postgres());
}

#[test]
#[ignore = "one store is enough to see that it is waited for; the others take long to start"]
fn a_service_comes_up_with_every_store() {
    super::on_every_server(comes_late);
}

#[test]
fn what_does_not_pass_by_itself_ends_a_service_at_once() {
    let (redis, postgres) =
        (RedisServer::builder().requirepass("right").start(), Postgres::builder());
    let redis = format!("redis://:wrong@{}", redis.address());
    let postgres = postgres.in_memory().start();
    let postgres = postgres.url_of("app", "wrong", "postgres");
    let place = Place::new();
    for arguments in [
        ["--store", &redis, "elect", "boss", "--", "true"].as_slice(),
        &["--store", &postgres, "elect", "boss", "--", "true"],
        &["--store", &postgres, "queue", "work", "--", "true"],
    ] {
        let ran = place.run(arguments);
        assert_eq!(ran.code, 69, "{}", ran.err);
        assert!(ran.err.starts_with("error: "), "{}", ran.err);
    }
}
