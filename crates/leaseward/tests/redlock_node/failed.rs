//! A node that fails in the middle of a call.

use std::{sync::Arc, time::Duration};

use leaseward::{
    Mode, Name, Token,
    store::{Ask, IfBusy, Operation, Release, Renew, Reply},
};
use leaseward_testkit::{PATIENCE, RedisServer, eventually};

use crate::script::open;

/// Longer than this test.
const LONG: Duration = Duration::from_secs(60);

fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

fn token(random: u128) -> Token {
    Token::new(random, Arc::from("test:1"))
}

fn ask(what: &str, who: u128) -> Operation {
    Operation::Ask(Ask {
        name: name(what),
        token: token(who),
        mode: Mode::Exclusive,
        ttl: LONG,
        if_busy: IfBusy::Tell,
        block: 1,
        value: None,
    })
}

/// Whether a name is held at a server.
fn is_held(server: &RedisServer, what: &str) -> bool {
    !server.cli(&["get", &format!("lock:{what}")]).is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_did_before_an_error_is_taken_back_and_what_it_did_not_do_is_told_again() {
    let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let store = open(&[&servers[0], &servers[1], &servers[2]]).await;
    let taken = store.carry_out(vec![ask("kept", 1), ask("given back", 2)]).await;
    assert!(taken.iter().all(|answer| matches!(answer, Ok(Reply::Granted(_)))), "{taken:?}");
    eventually("all have it", PATIENCE, || {
        let has_both =
            |server: &RedisServer| is_held(server, "kept") && is_held(server, "given back");
        servers.iter().all(has_both).then_some(())
    });
    // One node fails at the renewal, which comes behind what is asked for and before what is given back.
    servers[0].cli(&["acl", "setuser", "default", "-pttl"]);
    for server in &servers[1..] {
        server.cli(&["set", "lock:asked for", "another's", "px", "60000"]);
    }
    let renew = Renew { name: name("kept"), token: token(1), ttl: LONG };
    let keep = Duration::ZERO;
    let release = Release { name: name("given back"), token: token(2), keep };
    let batch = vec![ask("asked for", 3), Operation::Renew(renew), Operation::Release(release)];
    let answers = store.carry_out(batch).await;
    let [Ok(Reply::Busy(_)), Ok(Reply::Renewed(_)), Ok(Reply::Released)] = &answers[..] else {
        panic!("{answers:?}")
    };
    eventually("it has nothing of either", PATIENCE, || {
        let names = ["asked for", "given back"];
        (!names.iter().any(|name| is_held(&servers[0], name))).then_some(())
    });
    store.close().await;
}
